# SPDX-License-Identifier: Apache-2.0
# Imitated schedulers on PATH, for tests: source it behind lib.sh. See fakes/slurm/README.md.

fakes_slurm() { # a cluster of its own in $T/slurm
    LF_FAKE_DIR=$T/slurm
    export LF_FAKE_DIR
    mkdir -p "$LF_FAKE_DIR/knobs" "$LF_FAKE_DIR/bin"
    for _name in sbatch squeue sacct scontrol scancel srun sinfo fakeslurm; do
        ln -s "$LF_BUILDDIR/tests/flow/fakes/slurm/fakeslurm" "$LF_FAKE_DIR/bin/$_name"
    done
    PATH=$LF_FAKE_DIR/bin:$PATH
    LF_TEMPLATES_DIR=$LF_SRCDIR/templates LF_CACHE_DIR=$T/cache
    export PATH LF_TEMPLATES_DIR LF_CACHE_DIR
    # Sanitizers' options are part of every shell here.
    [ -z "${ASAN_OPTIONS:-}${UBSAN_OPTIONS:-}" ] || knob login_env "ASAN_OPTIONS=${ASAN_OPTIONS:-}
UBSAN_OPTIONS=${UBSAN_OPTIONS:-}"
    trap 'fakeslurm stop; cleanup' EXIT
}
knob() { # knob NAME VALUE: set; knob NAME: take away. In one step: the controller reads it all the time.
    if [ $# -gt 1 ]; then
        printf '%s\n' "$2" >"$LF_FAKE_DIR/knob.tmp"
        mv "$LF_FAKE_DIR/knob.tmp" "$LF_FAKE_DIR/knobs/$1"
    else rm -f "$LF_FAKE_DIR/knobs/$1"; fi
}
calls() { grep -c -e " $1" "$LF_FAKE_DIR/calls"; }        # calls NAME: how many times a command was called
starts() { grep -c " start .*$1" "$LF_FAKE_DIR/history"; } # starts TEXT: of jobs with it in name or comment
submits() { grep -c " submit .*$1" "$LF_FAKE_DIR/history"; }

batch_pipeline() { # batch_pipeline SCHEDULER: first -> second, last joins both; every job is small
    echo "text to read" >in.txt
    cat >pipeline.ini <<END_INI
[pipeline]
name = demo
[site]
scheduler = $1
poll = 1s
settle = 1s
submit_wait = 2s
[resources]
time_limit = 10m
memory = 1G
[stage first]
kind = work
input = in.txt
steps = 6
step_time = 20
[stage second]
kind = work
input = \${stage:first}
steps = 4
step_time = 20
[stage last]
kind = join
parts = \${stage:first.result}
    \${stage:second.result}
END_INI
}
# reference: what the pipeline computes, from a local run elsewhere
reference() {
    mkdir -p ref.d
    cp in.txt ref.d/
    sed 's/^scheduler = .*/scheduler = local/' pipeline.ini >ref.d/pipeline.ini
    (cd ref.d && env PATH="${PATH#"$LF_FAKE_DIR/bin:"}" "$LF" run >out 2>err) || { ok 1 "the reference runs" "$(cat ref.d/err)"; return 1; }
    REF=$(cd ref.d && result last joined)
}
states() { echo "$(state first) $(state second) $(state last)"; }
jobs_end() { fakeslurm wait "${1:-40}"; ok $? "all jobs come to an end" "$(fakeslurm jobs | tr '\n' ';')"; }
# whole NAME: all done, the right result, every stage computed once, the ledger in order and equal to a rebuilt one
whole() {
    is "$(states)" "done done done" "$1: all done"
    is "$(result last joined)" "$REF" "$1: the result of a local run"
    is "$(ls -d loong-data/*/runs/*/*/*.*/out/result loong-data/*/runs/*/*/*.*/out/joined 2>/dev/null | wc -l)" "${2:-3}" "$1: nothing was computed twice"
    ledger_whole "$1"
}
ledger_rows() {
    for _t in run stage edge attempt segment artifact gone io; do
        echo "# $_t"
        "$LF" ledger sql "select * from $_t order by 1, 2, 3, 4"
    done
    # The number of a curve is the ledger's own.
    "$LF" ledger sql "select m.run, m.stage, m.attempt, m.key, m.stride, p.* from metric m join metric_point p on p.metric = m.id
        order by 1, 2, 3, 4, p.epoch, p.i" | sed 's/^\( *[^ ]* *[^ ]* *[^ ]* *[^ ]* *[^ ]*\) *[^ ]*/\1/'
}
ledger_whole() {
    "$LF" ledger check >check.out 2>&1
    ok $? "$1: the ledger is in order" "$(head -3 check.out | tr '\n' ' ')"
    ledger_rows >rows.now
    "$LF" ledger rebuild >/dev/null 2>&1
    ledger_rows >rows.rebuilt
    cmp -s rows.now rows.rebuilt
    ok $? "$1: and equal to the one rebuilt from the run directories" "$(diff rows.now rows.rebuilt | head -4 | tr '\n' ' ')"
}

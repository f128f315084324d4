# SPDX-License-Identifier: Apache-2.0
# For tests on a real SLURM: source it. Skips where there is none; otherwise slurm_cluster gives one (six nodes, partitions of
# slurm_parts.conf), cases run side by side in directories of their own, and every case ends with `books`.
. "$LF_SRCDIR/tests/flow/lib.sh"
PATH=$PATH:/usr/sbin:/sbin
for p in slurmctld slurmd munged sbatch; do
    command -v $p >/dev/null && continue
    skip_all "$p not found (Debian: apt-get install slurm-wlm munge)"
done
id -un >/dev/null 2>&1 || skip_all "SLURM needs a user with a name, and $(id -u) has none"
own_slurm= cases=
slurm_end() { # the cluster, and those that cases have started
    for d in $own_slurm $(cat "$T"/*/cluster 2>/dev/null); do LF_SLURM_DIR=$d "$LF_SRCDIR/tests/flow/slurm-down"; done
    own_slurm=
}
trap 'slurm_end; cleanup' EXIT
trap 'exit 143' HUP INT TERM

# slurm_cluster [own]: sets SLURM_CONF. Without `own` the cluster that root started for us (autogen.sh check) is taken where
# there is one, which makes us a submitter who is not the SLURM user; else one of our own.
slurm_cluster() {
    if [ "${1:-}" != own ] && [ -n "${LF_SLURM_SHARED:-}" ]; then
        SLURM_CONF=$LF_SLURM_SHARED
        export SLURM_CONF
        return 0
    fi
    dir=$(mktemp -d "${TMPDIR:-/tmp}/lf-slurm.XXXXXX") || exit 99
    if env=$(LF_SLURM_DIR=$dir LF_SLURM_NODES=6 LF_SLURM_MEM=4096 LF_SLURM_EXTRA=$LF_SRCDIR/tests/flow/slurm_parts.conf \
        "$LF_SRCDIR/tests/flow/slurm-up" 2>slurm-up.log); then
        own_slurm=$dir
        eval "$env"
        return 0
    fi
    LF_SLURM_DIR=$dir "$LF_SRCDIR/tests/flow/slurm-down" >/dev/null 2>&1
    rm -rf "$dir"
    if grep -q 'resolves no name' slurm-up.log; then
        skip_all "$(cat slurm-up.log)"
    fi
    sed 's/^/# /' slurm-up.log
    bail "slurm-up failed"
}
# The site file of these tests: short times.
slurm_site() {
    printf '[site]\nscheduler = slurm\npoll = 1s\ncommand_timeout = 20s\nlost_after = 60s\n' >"$T/site.ini"
    LF_SITE_CONFIG=$T/site.ini
    export LF_SITE_CONFIG
}

# ---- cases side by side

# begin NAME: runs the function case_NAME in a directory NAME of its own, in the background. LF_CASES names a few for a try.
begin() {
    case " ${LF_CASES:-$1} " in *" $1 "*) ;; *) return 0 ;; esac
    mkdir "$T/$1" || exit 99
    (
        trap - EXIT HUP INT TERM
        BG= tap_n=0 tap_bad=0
        trap end_background EXIT
        cd "$T/$1" && "case_$1" && echo "complete"
    ) >"$T/$1.tap" 2>"$T/$1.err" </dev/null &
    cases="$cases $1"
}
# Wait for all cases; print their points with numbers of ours.
gather() {
    wait
    for c in $cases; do
        tail -n 1 "$T/$c.tap" | grep -q '^complete$' || echo "not ok 1 - $c did not come to its end" >>"$T/$c.tap"
        while read -r line; do
            case $line in
            complete) ;;
            "ok "* | "not ok "*)
                tap_n=$((tap_n + 1))
                echo "$line" | sed "s/^\(not ok\|ok\) [0-9]* - /\1 $tap_n - $c: /"
                case $line in "not ok"*) tap_bad=$((tap_bad + 1)) ;; esac
                ;;
            *) echo "$line" ;;
            esac
        done <"$T/$c.tap"
        [ ! -s "$T/$c.err" ] || head -n 20 "$T/$c.err" | sed "s/^/# $c: /"
    done
}

# ---- what cases ask

# ended SECONDS STATE STAGE: waits until the stage is in that state, or in another that is an end, or
# nothing is queued any more. A busy machine gets minutes.
ended() {
    end=$(($(date +%s) + 120 + $1 * 10)) idle=0
    while [ "$(date +%s)" -lt $end ] && [ $idle -lt 120 ]; do
        s=$(state "$3")
        case $s in
        "$2") return 0 ;;
        done | failed | cancelled) break ;;
        esac
        if none_left; then idle=$((idle + 1)); else idle=0; fi
        sleep 1
    done
    echo "# $3 is ${s:-unknown}, not $2; $(squeue -a -h -t all -o '%i %P %j %T %r' | grep "$(id -un)\|$3" | tr '\n' ';' | head -c 600)"
    "$LF" status 2>&1 | sed 's/^/# /'
    return 1
}
run_path() { echo "$PWD"/loong-data/*/runs/"$(run_id)"; }
tokens() { sed -n 's/.*"token": *"\([0-9a-f]*\)".*/\1/p' "$(run_path)"/${1:-*}/attempt.*.json | sort -u; }
# Ids of all jobs that SLURM has seen of this run or stage, by the token in their names; requeues keep the id.
jobs_of() {
    tokens "${1:-*}" >tok
    squeue -h -t all -o '%i %j' | awk 'NR == FNR { t[$1] = 1; next } { for (k in t) if (index($2, k)) print $1 }' tok - | sort -n -u
}
none_left() { squeue -h -o %i | sort >live && jobs_of | sort >mine && [ -z "$(comm -12 live mine)" ]; }
job_of() { jobs_of "$1" | tail -n 1; }
job_state() { squeue -h -t all -o %T -j "$(job_of "$1")" | head -n 1; }
# How often the stage was started, and how often it was committed.
starts() { ls -d "$(run_path)/$1"/[0-9]*.[0-9]*/ 2>/dev/null | wc -l | tr -d ' '; }
commits() { ls "$(run_path)/$1"/[0-9]*.[0-9]*/done.json 2>/dev/null | wc -l | tr -d ' '; }
step_of() { sed -n 's/.*lf-work: step \([0-9]*\) of.*/\1/p' "$(run_path)/$1"/[0-9]*.[0-9]*/log 2>/dev/null | tail -n 1; }
# Steps of all starts, in order: each must have been made once, or the work was done twice.
steps_once() {
    cat $(ls -d "$(run_path)/$1"/[0-9]*.[0-9]*/log | sort -t. -k2n) | sed -n 's/.*lf-work: step \([0-9]*\) of.*/\1/p' >steps
    sort -n -u steps | cmp -s - steps
}
table() { "$LF" ledger sql "select $1" | sed 's/^ *//; s/ *$//'; }
# books STAGE:STARTS ...: each stage was committed once after so many starts, SLURM saw one job for each attempt that was
# handed over, and the ledger is in order, tells the same, and is the same when it is made again from the run.
books() {
    "$LF" ledger sync >/dev/null 2>&1
    for b in "$@"; do
        is "$(commits "${b%:*}") $(starts "${b%:*}")" "1 ${b#*:}" "${b%:*} committed once, after ${b#*:} start(s)"
    done
    sed -n 's/.*"id": *"\([0-9]*\)".*/\1/p' "$(run_path)"/*/job.*.json | sort -n >known
    is "$(jobs_of | tr '\n' ' ')" "$(tr '\n' ' ' <known)" "SLURM saw the jobs that are written down, and no other"
    until_true 30 none_left
    ok $? "none of them is left in the queue" "$(squeue -h -o '%i %j %T %r' | tr '\n' ';')"
    "$LF" ledger check >check.out 2>&1
    ok $? "the ledger is in order" "$(cat check.out)"
    for b in "$@"; do
        is "$(table "count(*) from segment where run = '$(run_id)' and stage = '${b%:*}'" | tail -n 1)" "${b#*:}" "the ledger knows ${b#*:} start(s) of ${b%:*}"
        is "$(table "state from stage_state where run = '$(run_id)' and stage = '${b%:*}'" | tail -n 1)" "done" "and that ${b%:*} is done"
    done
    for t in attempt segment artifact io; do table "* from $t order by 1, 2, 3, 4"; done >rows1
    "$LF" ledger rebuild >/dev/null 2>&1
    for t in attempt segment artifact io; do table "* from $t order by 1, 2, 3, 4"; done >rows2
    cmp -s rows1 rows2
    ok $? "the ledger equals the one rebuilt from the run" "$(diff rows1 rows2 | head -n 4 | tr '\n' '~')"
}
# Three stages in a row; the first with the given lines.
three() { # three PARTITION LINES-OF-FIRST [LINES-OF-SECOND]
    echo "text to read" >in.txt
    cat >pipeline.ini <<END
[pipeline]
name = demo
[resources]
partition = $1
memory = 64M
time_limit = 10m
[stage first]
kind = work
input = in.txt
$2
[stage second]
kind = work
input = \${stage:first}
steps = 3
${3:-}
[stage last]
kind = join
parts = \${stage:first.result}
    \${stage:second.result}
END
}
# 240 KB of invented words into text.txt.
words() {
    awk 'BEGIN { x = 7; for (i = 0; i < 3000; i++) { line = ""; m = 5 + i % 23
        for (j = 0; j < m; j++) { x = (x * 16807) % 2147483647; w = ""; k = 2 + x % 5; y = x
            for (q = 0; q < k; q++) { y = (y * 16807) % 2147483647; w = w substr("etaoinshrdlucmfw", 1 + y % 16, 1) }
            line = line (j ? " " : "") w (x % 31 == 0 ? "," : "") }
        print line "." } }' >text.txt
}
# The programs themselves instead of the stages that do nothing, and the example pipeline in small: sizes by --set.
real_programs() {
    LF=$LF_BUILDDIR/loong-flow LF_LIBEXEC=$LF_BUILDDIR/stages LF_MODELS_DIR=$LF_SRCDIR/models
    export LF_LIBEXEC LF_MODELS_DIR
    words
    sed "s|@TEXT@|$PWD/text.txt|" "$LF_SRCDIR/examples/quickstart/pipeline.ini" >pipeline.ini
    small="--set model.preset=tiny-llama --set tokenize.vocab_size=512 --set tokenize.doc_bytes=1K --set tokenize.valid_fraction=0.1
        --set tokenize.threads=1 --set train.seq_length=64
        --set train.batch=4 --set train.micro_batch=2 --set train.steps=30 --set train.warmup=3 --set train.valid_interval=15
        --set train.valid_tokens=1k --set train.save_interval=10 --set train.threads=1 --set generate.max_tokens=8
        --set generate.threads=1 --set eval.threads=1 --set eval.limit=4 --set resources.memory=512M
        --set resources.time_limit=10m"
}

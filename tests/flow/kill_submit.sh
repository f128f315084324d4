#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# loong-flow submit is killed before each of its changes to files. Whatever command comes next: one job for each stage, with the
# right dependency, known to its record; no orphan; the ledger equal to one that is rebuilt. Every tenth pipeline runs to its end.
. "$LF_SRCDIR/tests/tap/shm.sh"
. "$LF_SRCDIR/tests/flow/lib.sh"
. "$LF_SRCDIR/tests/flow/fakes.sh"
. "$LF_SRCDIR/tests/flow/kill_lib.sh"
fakes_slurm
mkdir p && cd p || exit 99
cat >pipeline.ini <<'END'
[pipeline]
name = demo
[site]
scheduler = slurm
poll = 1s
settle = 1s
[resources]
time_limit = 10m
[stage first]
kind = work
steps = 2
step_time = 1
[stage second]
kind = work
input = ${stage:first}
steps = 2
step_time = 1
END
afresh() {
    fakeslurm clear
    until_true 10 rm -rf .loong loong-data
    : >"$LF_FAKE_DIR/history"
}
id_of() { squeue -h -o '%i %j' | sed -n "s/^\([0-9]*\) $1-.*/\1/p" | tr '\n' ' '; }
recorded() { cat loong-data/*/runs/*/"$1"/job.*.json 2>/dev/null | grep -o '"ids": *\["[0-9]*"' | grep -o '[0-9][0-9]*' | tail -1; }

knob max_running 0
afresh
changes 'loong-flow submit' "$LF" submit
ok $? "submit" "$(cat e)"
for k in $(points /ledger.db); do # those are in kill_ingest.sh
    afresh
    killed "$k" 'loong-flow submit' "$LF" submit
    want $? 137 "exit"
    case $((k % 4)) in
    0) ;;
    1) "$LF" status >/dev/null 2>&1 ;;
    2) "$LF" tick >/dev/null 2>&1 ;;
    3) "$LF" resume >/dev/null 2>&1 ;;
    esac
    "$LF" submit >o 2>e || note "the next submit: $(cat o e)"
    want "$(id_of first | wc -w) $(id_of second | wc -w)" "1 1" "jobs"
    a=$(id_of first) b=$(id_of second)
    want "$(squeue -h -j "${b% }" -o %E)" "afterok:${a% }(unfulfilled)" "dependency"
    want "$(recorded first) $(recorded second)" "${a% } ${b% }" "records"
    want "$(ls loong-data/*/runs/*/rev.1/plan.json | wc -l)" 1 "runs"
    [ $((k % 3)) -ne 0 ] || want_ledger
    if [ $((k % 10)) -eq 0 ]; then
        knob max_running
        fakeslurm wait 30 || note "jobs stay"
        want "$(state first) $(state second)" "done done" "states"
        want "$(starts first-) $(starts second-)" "1 1" "jobs that ran"
        want_ledger
        knob max_running 0
    fi
    point "killed before change $k: $(sed -n "s/^$k //p" "$T/changes.log" | head -1)"
done
finish_min 40 # one for each change to a file

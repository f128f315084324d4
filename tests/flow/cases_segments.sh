#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Jobs that are put back: at their limit, by a warning that comes too early, by preemption without grace, where requeue is refused.
# Two stages wait behind; nothing runs twice, no job ends in TIMEOUT.
. "$LF_SRCDIR/tests/tap/shm.sh"
. "$LF_SRCDIR/tests/flow/lib.sh"
. "$LF_SRCDIR/tests/flow/fakes.sh"
fakes_slurm
batch_pipeline slurm
sed 's/^time_limit = .*/time_limit = 1m\ngrace = 1/' pipeline.ini >p && mv p pipeline.ini
sed 's/^steps = 6/steps = 50/; s/^step_time = 20/step_time = 200/' pipeline.ini >p && mv p pipeline.ini # 10 s of work in first
reference
afresh() {
    fakeslurm clear
    until_true 10 rm -rf .loong loong-data
    : >"$LF_FAKE_DIR/history"
}
through() { # through NAME: everything ended well; first was put back; one id, no TIMEOUT, what was saved was used
    fakeslurm wait 60
    is "$(states)" "done done done" "$1: all done" "$("$LF" status | tr '\n' '~')"
    is "$(result last joined)" "$REF" "$1: the result of an uninterrupted run"
    is "$(submits first-) $(starts second-) $(starts last-)" "${2:-1} 1 1" "$1: first submitted ${2:-1} times, the others ran once"
    unlike "$LF_FAKE_DIR/history" ' end [0-9]* (TIMEOUT|FAILED|CANCELLED|PREEMPTED)' "$1: no job ended badly"
    is "$(ls -d loong-data/*/runs/*/first/[0-9]*.[0-9]*/done.json | wc -l)" 1 "$1: one result"
    ledger_whole "$1"
}
running() { until_true 30 sh -c 'ls loong-data/*/runs/*/first/[0-9]*.[0-9]*/out/ck-5'; ok $? "first is at work"; }

# --- the limit: three segments or so ---
knob minute 10 # so a time limit of one minute is over after 10 s
runs 0 "$LF" submit
through "limit"
[ "$(starts first-)" -ge 2 ]; ok $? "limit: first ran in segments" "$(starts first-)"
is "$(grep -c ' requeued 1 RUNNING first-' "$LF_FAKE_DIR/history")" "$(($(starts first-) - 1))" "limit: put back by itself while it ran, each time"
"$LF" ledger sql "select state, count(*) from segment where stage = 'first' group by state order by 1" >out
like out 'done +1' "limit: the ledger has its segments" "$(cat out)"
like out 'stopped +[1-9]' "limit: and how they ended" "$(cat out)"
knob minute

# --- the warning comes a minute early ---
afresh
knob minute 6
knob signal_early 6
runs 0 "$LF" submit --set resources.time_limit=3m --set first.step_time=300 # 15 s of 18; the warning comes after about 11
through "early signal"
[ "$(starts first-)" -ge 2 ]; ok $? "early signal: more segments than the one that the limit alone would have allowed" "$(starts first-)"
knob signal_early
knob minute

# --- preemption without grace ---
afresh
runs 0 "$LF" submit
running
fakeslurm preempt 2 0 2>/dev/null
id=$(squeue -h -o '%i %j' | sed -n 's/^\([0-9]*\) first-.*/\1/p')
fakeslurm preempt "$id" 0
through "preempted"
is "$(starts first-)" 2 "preempted: it ran twice"
# On a busy machine the wrapper is faster than the end that SLURM makes of it.
is "$(grep -cE " requeue $id (PREEMPTED|requeue) " "$LF_FAKE_DIR/history")" 1 "preempted: it was put back, once"

# --- requeue is refused: a successor, and the children wait for it ---
afresh
knob minute 10
knob requeue_refused always
runs 0 "$LF" submit
fakeslurm wait 60
"$LF" tick >out 2>err
fakeslurm wait 60
until_true 60 sh -c "$LF tick >/dev/null 2>&1; $LF status --columns name,state | grep -q 'last.*done'"
is "$(states)" "done done done" "requeue refused: all done in the end" "$("$LF" status | tr '\n' '~')"
is "$(result last joined)" "$REF" "requeue refused: the result of an uninterrupted run"
is "$(ls -d loong-data/*/runs/*/second/[0-9]*.[0-9]*/done.json | wc -l)" 1 "requeue refused: second has one result"
ledger_whole "requeue refused"
finish 38

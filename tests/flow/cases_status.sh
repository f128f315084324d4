#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What a scheduler says of jobs, and what it does not say: accounting off, empty, old, of another day; ids unknown; strange
# words; no answer at all; files that other nodes have written and this one does not see yet. Absence is never success.
. "$LF_SRCDIR/tests/tap/shm.sh"
. "$LF_SRCDIR/tests/flow/lib.sh"
. "$LF_SRCDIR/tests/flow/fakes.sh"
fakes_slurm
batch_pipeline slurm
sed 's/^poll = 1s/poll = 1s\nlost_after = 3s/' pipeline.ini >p && mv p pipeline.ini

json() { "$LF" status --json | tr -d ' \n' | sed 's/},{"name"/},\n{"name"/g' | grep -o "\"name\":\"$1\".*" | head -1; }
afresh() {
    fakeslurm stop
    until_true 10 rm -rf .loong loong-data "$LF_FAKE_DIR"/state.json "$LF_FAKE_DIR"/ends # what was killed may not be gone yet
    : >"$LF_FAKE_DIR/history"
    : >"$LF_FAKE_DIR/calls"
}
first_id() { sed -n 's/.*"id": *"\([0-9]*\)".*/\1/p' "$(ls loong-data/*/runs/*/first/job.1.json)"; }
up() { until_true 30 sh -c "ls loong-data/*/runs/*/first/1.1/stage.json"; }

# --- waiting and running, with reason and time ---
knob max_running 0
knob start_estimate 4000000000
runs 0 "$LF" submit --set first.steps=400 --set first.step_time=50
until_true 10 sh -c "squeue -h -o %r | grep -q Resources"
until_true 10 sh -c "$LF status | grep -q Resources"
ok $? "a queued stage shows the scheduler's reason" "$("$LF" status | tr '\n' '~')"
json first >js
like js '"job":\{' "and JSON has the job"
is "$(states)" "pending pending pending" "it is pending"
knob max_running
up
ok $? "it starts"
is "$(state first)" running "and is running"

# --- nobody answers ---
knob down always
sleep 1.2
"$LF" status >out 2>err
is "$? $(state first)" "0 running" "no controller: status still answers, by the wrapper's own evidence"
knob down

# --- floor between polls, shared by all processes ---
sed 's/^poll = 1s/poll = 60s/' pipeline.ini >p && mv p pipeline.ini
: >"$LF_FAKE_DIR/calls"
for i in 1 2 3 4 5 6; do "$LF" status >/dev/null; done
[ "$(calls squeue)" -le 1 ]; ok $? "six status commands make at most one squeue" "$(calls squeue)"
is "$(calls sacct)" 0 "and no sacct"
fakeslurm stop

# --- the wrapper is killed: no end record; the controller forgets the job ---
for mode in off empty on; do
    afresh
    sed 's/^poll = .*/poll = 1s/' pipeline.ini >p && mv p pipeline.ini
    knob sacct $mode
    "$LF" submit --set first.steps=4000 --set first.step_time=50 >o 2>e
    up
    id=$(first_id)
    fakeslurm kill "$id"
    until_true 10 sh -c "squeue -h -t all -j $id -o %T | grep -q FAILED"
    ok $? "sacct $mode: a job that is killed without a word" "$(fakeslurm state "$id")"
    fakeslurm forget "$id"
    [ "$(state first)" != done ]; ok $? "is not done"
    until_true 90 sh -c "$LF status --columns name,state | grep -qE '^first +(failed|pending)'"
    ok $? "and in the end it is known to have ended" "$("$LF" status | tr '\n' '~')"
    is "$(starts second-)" 0 "no child has run"
done
knob sacct on

# --- CANCELLED by, cut words, unknown words ---
for word in "CANCELLED by 123" "CANCELLED+" "CANCELLED"; do
    afresh
    knob max_running 0
    "$LF" submit >o 2>e
    id=$(first_id)
    scancel "$id"
    fakeslurm forget "$id"
    knob sacct_state "$word"
    until_true 90 sh -c "$LF status --columns name,state | grep -qE '^first +cancelled'"
    ok $? "sacct says '$word'" "$("$LF" status | tr '\n' '~')"
    knob sacct_state
    knob max_running
done
for word in SPECIAL_EXIT WONDERFUL "COMPLETED+"; do
    afresh
    knob max_running 0
    "$LF" submit >o 2>e
    id=$(first_id)
    knob squeue_state "* $word"
    sleep 1.1
    s=$(state first)
    case $s in unknown | pending) ok 0 "squeue says $word: $s" ;; *) ok 1 "squeue says $word" "$s" ;; esac
    knob squeue_state
    knob max_running
done

# --- yesterday, and an old version ---
afresh
knob sacct_midnight 1
knob acct_shift 90000
knob sacct_old 1
"$LF" submit --set first.steps=4000 --set first.step_time=50 >o 2>e
up
id=$(first_id)
scancel "$id"
until_true 20 sh -c "fakeslurm state $id | grep -q CANCELLED"
fakeslurm forget "$id"
until_true 90 sh -c "$LF status --columns name,state | grep -qE '^first +(cancelled|pending)'"
ok $? "an end of yesterday in an old sacct" "$("$LF" status | tr '\n' '~')"
! grep -h 'Invalid field' e o; ok $? "no field was asked for that it lacks"
knob sacct_midnight
knob acct_shift
knob sacct_old

# --- squeue fails for an id it does not know ---
afresh
knob squeue_strict_ids 1
runs 0 "$LF" submit
fakeslurm wait 30
fakeslurm forget "$(first_id)"
sleep 1.1
is "$(states)" "done done done" "an unknown id does not hide the others"
knob squeue_strict_ids

# --- an answer that is empty though jobs are there; rubbish ---
afresh
"$LF" submit --set first.steps=4000 --set first.step_time=50 >o 2>e
up
knob squeue_empty 1
sleep 1.1
is "$(state first)" running "an empty answer is no end"
knob squeue_says "1
squeue: hello|there
||||||||||
9999999999999999999999|R|$(head -c 300 /dev/zero | tr '\0' x)
"
sleep 1.1
is "$(state first)" running "nor is rubbish"
runs 0 "$LF" cancel
fakeslurm wait 20
is "$(state first)" cancelled "cancel works"

# --- the marker of another node is seen late: done.json comes after the scheduler says that the job is gone ---
afresh
"$LF" submit --only first --set first.steps=3 >o 2>e
fakeslurm wait 30
d=$(stage_dir first)
e=$(ls -d "$d"/../epoch.2)
mkdir hidden
mv "$d/done.json" "$d/end.json" hidden/
mv "$e" hidden/epoch.2
sleep 1.1
case $(state first) in done | failed) ok 1 "files not seen yet: no verdict" "$(state first)" ;; *) ok 0 "files not seen yet: no verdict" ;; esac
mv hidden/epoch.2 "$e"
mv hidden/done.json hidden/end.json "$d/"
is "$(state first)" done "and done as soon as they are there"

# --- the clock of the nodes is five minutes off, either way ---
if command -v faketime >/dev/null 2>&1; then
    for by in -300 +300; do
        afresh
        faketime -f "${by}s" "$LF" submit >o 2>e
        is $? 0 "submit with a clock of ${by}s" "$(cat e)"
        fakeslurm wait 30
        is "$(states)" "done done done" "clock ${by}s: done"
    done
else
    skip "" "clocks that differ: there is no faketime"
fi
finish_min 38 # three more with faketime

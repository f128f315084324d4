#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Jobs that fail: no step is gained, memory runs out until the cap, a node is lost while its processes live on, a cancel during the
# save. What follows is bounded, and nothing comes back that was cancelled.
. "$LF_SRCDIR/tests/tap/shm.sh"
. "$LF_SRCDIR/tests/flow/lib.sh"
. "$LF_SRCDIR/tests/flow/fakes.sh"
fakes_slurm
batch_pipeline slurm
sed 's/^time_limit = .*/time_limit = 10m\ngrace = 1/; s/^memory = .*/memory = 1G\nmemory_max = 2G/' pipeline.ini >p && mv p pipeline.ini
reference
afresh() {
    fakeslurm clear
    until_true 10 rm -rf .loong loong-data
    : >"$LF_FAKE_DIR/history"
}
first_job() { squeue -h -t RUNNING -o '%i %j' | sed -n 's/^\([0-9]*\) first-.*/\1/p'; }
runs_or_failed() { [ -n "$(first_job)" ] || [ "$(state first)" = failed ]; }
at_work() { until_true 30 sh -c "ls loong-data/*/runs/*/first/$1/out/ck-${2:-2}"; ok $? "first is at work ($1)" "$("$LF" status | tr '\n' '~')"; }

# --- a segment that gains nothing ---
knob limit 3
runs 0 "$LF" submit --set first.fail_at=1 --set first.fail_how=deaf
fakeslurm wait 60
# A job of three seconds that a busy machine could not begin leaves no record; then, and only then, a tick goes on.
ticks=0
given_up() {
    [ "$(state first)" = failed ] && return 0
    "$LF" status | grep -q 'its own record has not come yet' || return 1
    ticks=$((ticks + 1))
    "$LF" tick >/dev/null 2>&1
    fakeslurm wait 30
    [ "$(state first)" = failed ]
}
until_true 120 given_up
is "$(state first)" failed "no progress: it is given up" "$("$LF" status | tr '\n' '~')"
[ "$(starts first-)" -le $((3 + ticks)) ]; ok $? "no progress: after few segments" "$(starts first-), $ticks ticks"
is "$(starts second-) $(starts last-)" "0 0" "no progress: nothing behind it ran"
for i in 1 2 3 4 5 6; do "$LF" tick >/dev/null 2>&1; fakeslurm wait 30; done
[ "$(starts first-)" -le 8 ]; ok $? "no progress: ticks do not go on for ever" "$(starts first-)"
ledger_whole "no progress"
knob limit

# --- out of memory, until the cap ---
afresh
runs 0 "$LF" submit --set first.steps=5000
for k in 1 2 3 4 5 6; do
    until_true 10 runs_or_failed
    [ -n "$(first_job)" ] || break
    until_true 20 sh -c "[ \$(ls loong-data/*/runs/*/first/*/stage.json | wc -l) -ge $k ]" # memory runs out in the stage, not before it
    fakeslurm oom "$(first_job)"
    fakeslurm wait 10
    sleep 1.1
    "$LF" tick >out 2>err
done
is "$(state first)" failed "memory: in the end it is left to a person" "$("$LF" status | tr '\n' '~')"
is "$(grep -h -o 'mem=[0-9]*M' loong-data/*/runs/*/first/script.* | tr '\n' ' ')" "mem=1024M mem=1536M mem=2048M " "memory: asked for half as much again, up to memory_max"
"$LF" status >out
like out 'oom|memory' "memory: and status says why"
is "$(starts second-)" 0 "memory: nothing behind it ran"
ledger_whole "memory"

# --- a node is lost, its processes live on ---
afresh
hold
runs 0 "$LF" submit --set first.steps=60 --set "first.hold=$HOLD" --set first.hold_at=3
at_work 1.1 3
old=$(pid_in "$(ls loong-data/*/runs/*/first/1.1/stage.json)")
id=$(first_job)
fakeslurm nodefail "$id"
until_true 30 sh -c "ls loong-data/*/runs/*/first/1.2/stage.json"
ok $? "lost node: the job runs elsewhere"
until_true 20 sh -c "! kill -0 $old"
ok $? "lost node: the old start sees that it is not wanted any more"
let_go
fakeslurm wait 60
fakeslurm noderestore
is "$(states)" "done done done" "lost node: all done" "$("$LF" status | tr '\n' '~')"
[ ! -e "$(ls -d loong-data/*/runs/*/first/1.1)/done.json" ]; ok $? "lost node: the old start published nothing"
is "$(starts first-) $(submits first-) $(starts second-)" "2 1 1" "lost node: one job, which ran twice; its children once"
ledger_whole "lost node"

# --- scancel while it saves ---
afresh
knob kill_wait 60
runs 0 "$LF" submit --set first.steps=400 --set first.step_time=300
at_work 1.1 2
scancel "$(first_job)"
fakeslurm wait 40
sleep 1.1
is "$(state first)" cancelled "scancel: cancelled" "$("$LF" status | tr '\n' '~')"
is "$(starts first-) $(grep -c ' requeued ' "$LF_FAKE_DIR/history")" "1 0" "scancel: it did not come back"
is "$(starts second-) $(starts last-)" "0 0" "scancel: nothing behind it ran"
"$LF" tick >/dev/null 2>&1
fakeslurm wait 5
is "$(starts first-)" 1 "scancel: tick leaves it alone"
ck=$(ls loong-data/*/runs/*/first/1.1/out/ | grep -c '^ck-')
[ "$ck" -ge 2 ]; ok $? "scancel: what was saved is there"
runs 0 "$LF" resume --set first.steps=12 --set first.step_time=20 --accept steps
fakeslurm wait 40
is "$(states)" "done done done" "resume goes on from there" "$("$LF" status | tr '\n' '~')"
ledger_whole "scancel"
finish 34

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tick: what goes on without a person, what waits for one, and that a second round does nothing more.
. "$LF_SRCDIR/tests/flow/lib.sh"
. "$LF_SRCDIR/tests/flow/fakes.sh"
fakes_slurm
printf '[site]\nscheduler = slurm\npoll = 0\nsettle = 0\nlost_after = 2\nsubmit_wait = 10\n' >site.ini
LF_SITE_CONFIG=$T/site.ini
export LF_SITE_CONFIG
run_dir() { echo "$T"/loong-data/*/runs/"$(run_id)"; }
job() { sed -n 's/.*"id":"\([0-9]*\)".*/\1/p' "$(run_dir)/$1/job.$2.json"; }
is_state() { [ "$(state "$1")" = "$2" ]; }
begin() { # begin OPTIONS: a new run whose first stage is under way
    "$LF" submit --new --set first.step_time=300 "$@" >o 2>&1
    until_true 30 sh -c "$LF status | grep -q 'first .*running .*[1-9]/'"
}
pipeline

# --- out of memory: more is asked for, and what waited is sent again ---
begin --set resources.memory=1G
fakeslurm oom "$(job first 1)"
until_true 20 is_state first failed
ok $? "killed for its memory: failed"
runs 0 "$LF" tick
like out 'first: submitted again' "tick submits it again"
like "$(run_dir)/first/script.2" '^#SBATCH --mem=1536M$' "with more memory"
is "$(tries first) $(tries second) $(tries last)" "2 2 2" "and what waited behind it"
runs 0 "$LF" tick
is "$(tries first) $(tries second)" "2 2" "a second tick does nothing more"
like "$(run_dir)/driver.want" '"first"' "the run is still wanted"
runs 0 "$LF" cancel --now
[ ! -e "$(run_dir)/driver.want" ]; ok $? "not after a cancel"
runs 0 "$LF" tick
is "$(tries first)" 2 "a cancelled run stays as it is"

# --- a job that nobody knows any more ---
begin
j=$(job first 1) others="$(job second 1) $(job last 1)"
fakeslurm oom "$j"
until_true 10 sh -c "! squeue -h -t running -j $j | grep -q ." # status is not asked before the scheduler has forgotten it
for k in $j $others; do fakeslurm forget "$k"; done
until_true 20 sh -c "$LF status | grep -q 'first .*lost'"
ok $? "lost, when it was seen by nobody for so long"
runs 0 "$LF" tick
is "$(tries first)" 2 "a lost job is made again"
runs 0 "$LF" cancel --now

# --- somebody ended it: a person decides ---
begin
scancel "$(job first 1)"
until_true 20 is_state first cancelled
ok $? "ended with scancel: cancelled"
runs 0 "$LF" tick
is "$(tries first)" 1 "and left alone"
runs 0 "$LF" resume --set first.step_time=1 --wait
is "$(state last)" done "until somebody resumes it"
runs 0 "$LF" tick --json
like out '"state": "done"' "a tick sees that it is done"
[ ! -e "$(run_dir)/driver.want" ]; ok $? "and need not look again"
looks=$(calls squeue)
runs 0 "$LF" tick
is "$(calls squeue)" "$looks" "so it does not"

# --- nobody answers ---
begin
knob down always
runs 5 "$LF" tick
like err 'scheduler does not answer' "an unreachable scheduler: exit 5"
knob down
is "$(tries first)" 1 "and nothing was concluded from it"

# --- cancelled while it is submitted ---
runs 0 "$LF" cancel --now
knob sbatch_hang 1
hold
h=$(submits first)
"$LF" submit --new --set "first.hold=$HOLD" >o 2>&1 &
p=$!
BG="$BG $p"
until_true 20 sh -c "[ \$(grep -c ' submit .*first' $LF_FAKE_DIR/history) -gt $h ]"
until_true 20 sh -c "$LF status | grep -Eq 'first .*(pending|running)'"
"$LF" cancel --now >o2 2>&1
kill -9 $p
wait $p 2>/dev/null
let_go
is "$(squeue -h -t pending,running | wc -l)" 0 "a cancel during a submit leaves no job"
runs 0 "$LF" resume --wait
is "$(state last)" done "and resume goes on"
finish 33

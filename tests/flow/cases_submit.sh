#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Troubles of submitting to SLURM: no answer, chatter, limits, ids that come again, parents that are forgotten, a hostile environment.
. "$LF_SRCDIR/tests/tap/shm.sh"
. "$LF_SRCDIR/tests/flow/lib.sh"
. "$LF_SRCDIR/tests/flow/fakes.sh"
fakes_slurm
batch_pipeline slurm
sed 's/^poll = 1s/poll = 1s\nlost_after = 3s/' pipeline.ini >p && mv p pipeline.ini
reference

afresh() { # a new project, the same cluster
    fakeslurm wait 20
    rm -rf .loong loong-data
    : >"$LF_FAKE_DIR/history"
    : >"$LF_FAKE_DIR/calls"
}
once() { # every stage was submitted and started once
    for s in first second last; do
        is "$(submits "$s-") $(starts "$s-")" "1 1" "$1: $s has one job, which ran once"
    done
}

# --- as it should be ---
runs 0 "$LF" submit
jobs_end
whole "plain"
once "plain"
runs 0 "$LF" submit
is "$(calls sbatch)" 3 "submit again: nothing is submitted"
like out 'nothing to do|done' "and it says so"

# --- sbatch says that it timed out, but the job exists ---
afresh
knob sbatch_timeout 2
"$LF" submit >o 2>e
code=$?
[ $code -eq 0 ] || "$LF" submit >o 2>e
[ $code -eq 0 ] || [ $code -eq 5 ] || [ $code -eq 9 ]
ok $? "a submit that timed out: adopted at once, or exit 5 or 9 and adopted by the next" "exit $code $(cat e)"
jobs_end
whole "timed out"
once "timed out"
like "$(ls loong-data/*/runs/*/first/job.1.json)" '"adopted": *true' "the job is recorded as adopted"

# --- and where nothing was submitted ---
afresh
knob sbatch_lost 1
"$LF" submit >o 2>e || "$LF" submit >o 2>e
ok $? "a submit that was lost is made again" "$(cat e)"
jobs_end
whole "lost"
once "lost"

# --- an sbatch that never returns ---
afresh
knob sbatch_hang 1
sed 's/^poll = 1s/poll = 1s\ncommand_timeout = 20s/' pipeline.ini >p && mv p pipeline.ini
"$LF" submit >o 2>e || "$LF" submit >o 2>e
ok $? "an sbatch that hangs is given up, its job is found" "$(cat e)"
jobs_end
whole "hung"
once "hung"

# --- a scheduler that never answers: the commands asked are counted, as its user waits for each of them ---
mkdir mute && for c in sbatch squeue sacct scontrol scancel; do
    printf '#!/bin/sh\n[ "${1:-}" != --version ] || { echo slurm 22.05.8; exit; }\necho %s >>"%s/asked"\nexec sleep 600\n' $c "$T" >mute/$c
    chmod +x mute/$c
done
afresh
cp pipeline.ini talking.ini
sed 's/^command_timeout = .*/command_timeout = 1s/; s/^submit_wait = .*/submit_wait = 1h/' talking.ini >pipeline.ini
for command in submit resume status "cancel --now"; do
    : >asked
    code=5
    [ "$command" != status ] || code=0
    PATH=$T/mute:$PATH timeout 300 "$LF" $command >o 2>e
    is $? $code "$command ends when nobody answers, though a submission would be tried for an hour" "$(cat o e)"
    [ "$(wc -l <asked)" -le 8 ]; ok $? "$command asks a few times only" "$(tr '\n' ' ' <asked)"
done
cp talking.ini pipeline.ini
"$LF" submit >o 2>e
ok $? "and when it talks again all is submitted" "$(cat o e)"
jobs_end
whole "mute"
once "mute"

# --- exit 0 without an id ---
afresh
knob sbatch_silent 1
"$LF" submit >o 2>e || "$LF" submit >o 2>e
ok $? "an sbatch that prints nothing" "$(cat e)"
jobs_end
whole "silent"
once "silent"

# --- chatter ---
afresh
knob sbatch_chatter always
knob cluster big
runs 0 "$LF" submit
knob sbatch_chatter
jobs_end
whole "chatter"
once "chatter"
knob cluster
like "$(ls loong-data/*/runs/*/first/job.1.json)" '"cluster": *"big"' "ID;CLUSTER among chatter"

# --- refused ---
afresh
knob sbatch_refuse "always
sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified"
runs 4 "$LF" submit
like err 'Invalid account' "refused for good: exit 4, with the words of the scheduler"
is "$(calls sbatch)" 1 "and no second try"
knob sbatch_refuse
knob sbatch_refuse "2
sbatch: error: Batch job submission failed: Slurm temporarily unable to accept job, sleeping and retrying."
"$LF" submit >o 2>e || "$LF" submit >o 2>e || "$LF" submit >o 2>e
ok $? "temporarily unable: tried again" "$(cat e)"
jobs_end
whole "temporarily"
once "temporarily"

# --- a limit of jobs: some now, the rest later ---
afresh
knob max_submit 2
"$LF" submit >o 2>e
code=$?
[ $code -eq 9 ] || [ $code -eq 5 ] || [ $code -eq 0 ]
ok $? "a submit limit: partly submitted" "exit $code $(cat e)"
is "$(submits first-) $(submits second-)" "1 1" "what fitted"
fakeslurm wait 20
runs 0 "$LF" submit
jobs_end
whole "limit"
once "limit"
knob max_submit

# --- no controller ---
afresh
knob down always
runs 5 "$LF" submit
like err 'contact slurm controller' "exit 5, and why"
is "$(submits first-)" 0 "nothing was submitted"
knob down
runs 0 "$LF" submit
jobs_end
whole "controller back"
once "controller back"

# --- the parent is forgotten before its child is submitted ---
afresh
knob min_job_age 0
runs 0 "$LF" submit --only first
fakeslurm wait 20
is "$(fakeslurm jobs | wc -l)" 0 "the controller has forgotten first"
runs 0 "$LF" submit
like "$LF_FAKE_DIR/calls" 'sbatch .*second-' "second is submitted"
! grep -e 'sbatch .*=second-' "$LF_FAKE_DIR/calls" | tail -1 | grep -q -e '--dependency'
ok $? "without a dependency on a job that is done"
jobs_end
whole "forgotten parent"
once "forgotten parent"
knob min_job_age

# --- the parent failed, and is forgotten: an unknown id counts as satisfied, so the child would run ---
afresh
knob min_job_age 0
"$LF" submit --set first.fail_at=3 >o 2>e
fakeslurm wait 20
until_true 20 sh -c "$LF status --columns name,state | grep -q 'second.*waiting'"
is "$(states)" "failed waiting waiting" "a failed parent, its children forgotten"
is "$(starts second-) $(starts last-)" "0 0" "its children did not start"
knob min_job_age

# --- ids come again ---
afresh
knob min_job_age 0
fakeslurm nextid 500
runs 0 "$LF" submit
jobs_end
whole "ids 500 to 502"
fakeslurm nextid 500
cp pipeline.ini p.ini
runs 0 "$LF" submit --new --set first.steps=300 --set first.step_time=50
"$LF" status >out
like out 'first +work +(running|pending)' "a new run whose first job has an old id"
run2=$(run_id)
runs 0 "$LF" cancel
fakeslurm wait 20
"$LF" status "$run2" >out
like out 'first +work +cancelled' "is cancelled by that id"
run1=$("$LF" ledger sql "select run from run order by run limit 1" | tail -1)
"$LF" status "$run1" >out
unlike out 'running|cancelled|failed' "and the old run with the same ids is still done"
knob min_job_age

# --- a job of somebody else under an id of mine that is long gone ---
printf '#!/bin/sh\nsleep 30\n' >other.sh
rm -rf .loong loong-data
fakeslurm nextid 700
knob min_job_age 0
"$LF" submit --only first --set first.steps=1000 >o 2>e
until_true 20 sh -c "ls loong-data/*/runs/*/first/1.1/stage.json"
fakeslurm kill 700
until_true 10 sh -c "[ -z \"\$(fakeslurm state 700)\" ]"
fakeslurm nextid 700
is "$(sbatch --parsable -o /dev/null -J other other.sh)" 700 "another job gets the id of a job that died without a word"
sleep 1.1
[ "$(state first)" != running ]; ok $? "that does not make its stage run"
"$LF" cancel >out 2>err
is "$(fakeslurm state 700)" RUNNING "and cancel leaves it alone"
scancel 700
knob min_job_age

# --- the environment ---
afresh
printf '%s\n' "SQUEUE_FORMAT=%i" "SQUEUE_STATES=FAILED" "SQUEUE_USERS=nobody" "SACCT_FORMAT=jobid" "SLURM_TIME_FORMAT=relative" \
    "SBATCH_PARTITION=nowhere" "SBATCH_TIMELIMIT=rubbish" "SBATCH_EXPORT=NIL" "SBATCH_NO_REQUEUE=1" "SLURM_JOB_ID=99" \
    "SLURM_RESTART_COUNT=7" "SLURM_MEM_PER_CPU=17" "SLURM_JOB_END_TIME=1" "LC_ALL=de_DE.UTF-8" >vars
env $(cat vars) "$LF" submit >out 2>err
is $? 0 "SQUEUE_FORMAT, SBATCH_PARTITION and others are set" "$(cat err)"
env $(cat vars) "$LF" status >out 2>err
is $? 0 "status with them"
jobs_end
whole "hostile environment"
once "hostile environment"

# --- from inside a job ---
afresh
printf '#!/bin/sh\ncd "%s" && exec "%s" submit\n' "$T" "$LF" >outer.sh
sbatch --parsable -n 3 -c 2 --mem=3G -t 1 -o outer.out outer.sh >id
until_true 30 sh -c "fakeslurm state $(cat id) | grep -q COMPLETED"
ok $? "submit from inside a job" "$(cat outer.out)"
jobs_end
whole "inside a job"
once "inside a job"
finish 173

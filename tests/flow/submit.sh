#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# submit on an imitated SLURM: scripts and commands byte for byte, the whole graph at once, exactly once, status, resume, cancel, tick.
. "$LF_SRCDIR/tests/flow/lib.sh"
. "$LF_SRCDIR/tests/flow/fakes.sh"
fakes_slurm
cat >site.ini <<'END'
[site]
scheduler = slurm
poll = 1
settle = 0
lost_after = 3
submit_wait = 20
END
LF_SITE_CONFIG=$T/site.ini
export LF_SITE_CONFIG
job() { sed -n 's/.*"id":"\([0-9]*\)".*/\1/p' "$(run_dir)/$1/job.$2.json"; } # job STAGE ATTEMPT
run_dir() { echo "$T"/loong-data/*/runs/"$(run_id)"; }
history() { cat "$LF_FAKE_DIR/history"; }
no_jobs() { [ -z "$(squeue -h -t pending,running,completing)" ]; }
pipeline
sed -i "s,^step_time = 20$,&\nhold = $HOLD," pipeline.ini

# --- what would be submitted is what is submitted ---
runs 0 "$LF" submit --dry-run
[ ! -e .loong ]; ok $? "a dry run makes nothing"
like out '^\$ sbatch --parsable --propagate=NONE --export=NONE --requeue --open-mode=append --job-name=first-TOKEN ' "it prints the commands"
like out 'dependency=afterok:JOB\(first\):JOB\(second\)' "with dependencies, also on two"
[ ! -e "$LF_FAKE_DIR/calls" ]; ok $? "no command of the scheduler was called"
sha=$(sed -n 's/^== second (script \(.*\))$/\1/p' out)
hold # a job that is over by then has nothing to tell
runs 0 "$LF" submit
like out 'last: submitted as job 3 after 1, 2' "all stages at once, with dependencies"
is "$(sha256sum <"$(run_dir)/second/script.1" | cut -c1-64)" "$sha" "the script that was printed is the one that was handed over"
like "$(run_dir)/second/job.1.json" "\"script_sha256\":\"$sha\"" "its hash is in the job's record"
is "$("$LF" ledger sql "select script_sha256 from attempt where stage='second'" | tail -1 | tr -d ' ')" "$sha" "and in the ledger"
like "$LF_FAKE_DIR/calls" 'sbatch --parsable --propagate=NONE --export=NONE --requeue .*kill-on-invalid-dep=yes .*script.1 .*exec --run-dir' "the command"
"$LF" status --json >js
like js '"job": \{' "status --json tells of the job"
like js '"backend": "slurm"' "with its scheduler"
runs 0 "$LF" submit
like out '0 submitted, 0 adopted, [0-3] kept|nothing to do' "a second submit does nothing"
let_go
runs 0 "$LF" submit --wait
is "$(state first) $(state second) $(state last)" "done done done" "the run is done"
is "$(history | grep -c ' start ')" 3 "nothing ran twice"
is "$("$LF" ledger check >/dev/null; echo $?)" 0 "the ledger is in order"

# --- one look for all ---
"$LF" submit --new --set first.step_time=3000 >o
until_true 20 sh -c "ls $(run_dir)/first/*/out/ck-1" # its job has asked the queue what it has to ask
n0=$(calls squeue)
sed -i 's/^poll = .*/poll = 60/' site.ini
"$LF" resume >o 2>&1
n0=$(calls squeue)
for i in 1 2 3 4 5; do "$LF" status >/dev/null; "$LF" status --json >/dev/null; done
is "$(calls squeue)" "$n0" "ten times status within the floor: no look at the queue"
like o 'kept, job' "a resume keeps what is queued"
runs 0 "$LF" status
like out 'second +work +pending .*queued as job [0-9]+: Dependency' "status has the scheduler's reason"

# --- cancel: children first, nothing comes back ---
runs 0 "$LF" cancel
is "$(state first) $(state second)" "cancelled cancelled" "cancelled"
no_jobs; ok $? "no job is left"
a=$(grep -n ' scancel .*USR2' "$LF_FAKE_DIR/calls" | head -1 | cut -d: -f1)
b=$(grep -n ' scancel [0-9]' "$LF_FAKE_DIR/calls" | head -1 | cut -d: -f1)
[ "$b" -lt "$a" ]; ok $? "those that wait first" "waiting $b running $a"
sed -i 's/^poll = .*/poll = 1/' site.ini
runs 0 "$LF" resume --wait --set first.step_time=5
is "$(state last)" done "resume after a cancel"
like "$(stage_dir first)/log" 'continues at step' "from the checkpoint"

# --- a stage that fails, its children, and resume ---
runs 1 "$LF" submit --new --wait --set first.fail_at=3
is "$(state first) $(state second)" "failed waiting" "a failure: the children wait"
no_jobs; ok $? "their jobs are gone"
runs 0 "$LF" tick
is "$(tries first)" 1 "tick leaves alone what a person must look at"
runs 0 "$LF" resume --wait --set first.fail_at=0
is "$(state last) $(tries first) $(tries second)" "done 2 2" "resume submits what is missing"

# --- exactly once ---
knob sbatch_timeout 1
runs 0 "$LF" submit --new
like out 'looking whether the job was made' "a time-out is looked after"
until_true 20 no_jobs
is "$(state last) $(tries first)" "done 1" "sbatch timed out, the job exists: it is taken"
like "$(run_dir)/first/job.1.json" '"adopted":true' "and noted"
knob sbatch_lost 1
runs 0 "$LF" submit --new
until_true 20 no_jobs
is "$(state last) $(tries first)" "done 1" "sbatch timed out, no job: it is submitted again"
knob sbatch_late "1
3"
runs 0 "$LF" submit --new --set first.step_time=100
token=$(sed -n 's/.*"token":"\([0-9a-f]*\)".*/\1/p' "$(run_dir)/first/job.1.json")
until_true 20 sh -c "[ \$(grep -c \" end .*$token\" $LF_FAKE_DIR/history) -eq 2 ]"
is "$(submits "$token")" 2 "a job that is made long after sbatch gave up is a second one"
is "$(ls "$(run_dir)/first" | grep -c '^1\.[0-9]')" 1 "and runs nothing"
until_true 20 no_jobs
is "$(state last) $(tries first)" "done 1" "the first one's result is the result"
knob sbatch_chatter 3
runs 0 "$LF" submit --new
knob sbatch_chatter
until_true 20 no_jobs
is "$(state last)" done "chatter before the id"
knob sbatch_hang 1
h=$(submits first)
"$LF" submit --new >o 2>&1 &
p=$!
BG="$BG $p"
until_true 20 sh -c "[ \$(grep -c ' submit .*first' $LF_FAKE_DIR/history) -gt $h ]"
kill -9 $p
wait $p 2>/dev/null
runs 0 "$LF" status
like out 'last +join +(waiting|pending)' "a submit that was killed: status says so"
runs 0 "$LF" resume --wait
is "$(submits first)" $((h + 1)) "the job that was made is adopted, not made again"
is "$(state first) $(state last) $(tries first) $(tries last)" "done done 1 1" "and what was never sent is sent"
is "$("$LF" ledger sql "select count(*) from event where kind='adopt'" | tail -1 | tr -d ' ' | grep -c '[1-9]')" 1 "the ledger knows of adoptions"

# --- refusals ---
runs 4 "$LF" submit --new --set resources.partition=nowhere
like err 'nvalid partition' "refused: what the scheduler said"
"$LF" status >out
like out 'first .*refused it: .*nvalid partition' "status still knows its words"
like out 'last .*waits for ' "and what it means for those behind"
unlike out 'cut short' "nothing is called cut short that was answered"
runs 0 "$LF" resume
"$LF" status >out
unlike out 'refused it' "a submission that is taken is not called refused"
runs 0 "$LF" cancel --now
runs 9 "$LF" submit --new --set last.partition=nowhere
like out 'last: not submitted' "a part was submitted"
runs 0 "$LF" cancel --now
knob down always
sed -i 's/^submit_wait = .*/submit_wait = 1/' site.ini
runs 5 "$LF" submit --new
like err 'nable to contact slurm controller' "and what it did not say"
knob down
runs 0 "$LF" resume --wait
is "$(state last)" done "unreachable, later reached"
knob sbatch_nowhere always
runs 5 "$LF" submit --new
like out 'first: not submitted: sbatch knows of no cluster: .*configuration source' "no cluster at all is no refusal"
unlike out 'looking whether' "and nobody is asked whether the job was made"
knob sbatch_nowhere

# --- states that only the scheduler knows ---
"$LF" submit --new --set first.step_time=2000 >o
until_true 20 sh -c "$LF status | grep -q 'first .*running'"
first_pid=$(pid_in "$(run_dir)/first/epoch.1")
knob squeue_down always
sleep 1.2
"$LF" status --json >js
knob squeue_down
like js '"unreachable": ' "an unreachable scheduler is said"
is "$(state first)" running "and nothing is concluded from it"
knob squeue_empty always
sleep 1.2
"$LF" status >out
unlike out 'first .*(done|pending)' "an empty queue is no success"
knob squeue_empty
runs 0 "$LF" cancel --now
kill -9 "$first_pid" 2>/dev/null

# --- settings that changed while it waits ---
"$LF" submit --new --set first.step_time=1000 >o
old=$(job second 1)
runs 0 "$LF" resume --set first.step_time=1000 --set second.factor=3
like out "second: submitted again" "a job with old settings is replaced"
until_true 10 sh -c "! squeue -h -j $old | grep -q PENDING"
ok $? "the old one is ended"
runs 0 "$LF" cancel --now

# --- selection ---
runs 0 "$LF" submit --new --until second --wait
is "$(state second) $(tries last)" "done 0" "--until"
runs 0 "$LF" resume --from last --wait
is "$(state last)" done "--from"
runs 4 "$LF" submit --new --only last
like out 'needs first, which is pending and not selected' "--only what cannot run"

# --- from inside a job, with an environment that would change what commands print ---
SLURM_JOB_ID=77 SBATCH_PARTITION=nowhere SQUEUE_FORMAT=%A SLURM_TIME_FORMAT=relative PBS_JOBID=1 SLURM_CLUSTERS=x
export SLURM_JOB_ID SBATCH_PARTITION SQUEUE_FORMAT SLURM_TIME_FORMAT PBS_JOBID SLURM_CLUSTERS
runs 0 "$LF" submit --new --wait
is "$(state last)" done "submitting from inside a job"
unset SLURM_JOB_ID SBATCH_PARTITION SQUEUE_FORMAT SLURM_TIME_FORMAT PBS_JOBID SLURM_CLUSTERS

# --- tick: a job that is gone without a word is made again, once ---
"$LF" submit --new --set first.step_time=3000 >o
until_true 20 sh -c "$LF status | grep -q 'first .*running'"
scancel --signal=KILL --full "$(job first 1)" 2>/dev/null
until_true 10 sh -c "! squeue -h -t running -j $(job first 1) | grep -q ."
sleep 1.2
runs 0 "$LF" tick
runs 0 "$LF" tick
is "$(tries second | grep -c '[12]')" 1 "tick twice is no more than once"
runs 0 "$LF" cancel --now

# --- the page of [pipeline] report ---
runs 0 "$LF" submit --new --wait --set pipeline.report=waited.html
like out "^report: $PWD/waited.html" "submit --wait writes the page when the run has ended"
like waited.html "$(run_id)" "which is of this run"
runs 0 "$LF" submit --new --set pipeline.report=ticked.html
until_true 60 sh -c "$LF status | grep -q 'last .*done'"
runs 0 "$LF" tick --quiet
like ticked.html "$(run_id)" "tick writes it when the run is done"
mv ticked.html once.html
runs 0 "$LF" tick
is "$(ls ticked.html 2>/dev/null)" "" "once"
runs 0 "$LF" submit --new --set pipeline.report=failed.html --set first.fail_at=3 --set first.retries=0
until_true 60 sh -c "$LF status | grep -q 'first .*failed'"
until_true 60 sh -c "$LF tick --quiet; test -s failed.html"
like failed.html "$(run_id)" "and when it has failed, with nobody waiting for it"
mv failed.html once.html
runs 0 "$LF" tick
is "$(ls failed.html 2>/dev/null)" "" "once, too"

# --- names and values that want to be commands ---
runs 2 "$LF" submit --new --set 'resources.partition=a;rm -rf /'
runs 2 "$LF" submit --new --set 'resources.account=--wrap=evil'
runs 2 "$LF" submit --new --set 'resources.qos=$(id)'
runs 2 "$LF" submit --new --set 'resources.reservation=a"b'
runs 2 "$LF" submit --new --set 'resources.modules=-x'
runs 2 "$LF" submit --new --set 'resources.gpus=-1'
runs 2 "$LF" submit --new --set 'resources.extra=rm'
like err "flags begin with '-'" "extra is for flags"
mkdir "d '\$(touch evil);%j"
cp pipeline.ini in.txt "d '\$(touch evil);%j"
(cd "d '\$(touch evil);%j" && "$LF" submit --wait >o 2>&1)
is $? 0 "a directory whose name wants to be a command"
[ ! -e evil ] && [ ! -e "d '\$(touch evil);%j/evil" ]; ok $? "and is not"
[ -e "$(echo d*/loong-data/*/runs/*/first)/boot.1.log" ]; ok $? "its log is where it belongs"
finish 116

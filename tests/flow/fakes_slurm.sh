#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The imitated SLURM does what the real one was seen to do; the tests of the flow stand on it.
. "$LF_SRCDIR/tests/flow/lib.sh"
. "$LF_SRCDIR/tests/flow/fakes.sh"
fakes_slurm
knob kill_wait 1
job() { # job NAME LINES: a batch script
    printf '#!/bin/sh\n%s\n' "$2" >"$1.sh"
}
ends() { until_true 20 sh -c "[ \"\$(fakeslurm state $1)\" = $2 ]"; ok $? "$3" "$(fakeslurm state "$1") instead of $2"; }
job good 'echo "here $SLURM_JOB_ID ${SLURM_RESTART_COUNT:-none} $#:$1"; sleep 0.2'
job bad 'exit 3'
job long 'trap "echo got TERM; exit 5" TERM; trap "echo got USR1" USR1; touch up.$SLURM_JOB_ID; i=0; while [ $i -lt 2000 ]; do sleep 0.05; i=$((i + 1)); done'

# --- grammar ---
runs 0 sbatch --parsable -o good.out good.sh "a word"
id=$(cat out)
is "$id" 1 "the id, and nothing else"
ends 1 COMPLETED "it runs to its end"
is "$(cat good.out)" "here 1 none 1:a word" "with its id and words"
runs 1 sbatch --no-such-option good.sh
like err "unrecognized option '--no-such-option'" "an option that sbatch has not"
runs 99 sbatch --array=1-3 good.sh
runs 1 sbatch --time=soon good.sh
runs 1 sbatch --mem=3X good.sh
runs 1 sbatch --mem=1G --mem-per-cpu=1G good.sh
runs 1 sbatch --partition=nowhere good.sh
like err 'invalid partition specified: nowhere' "a partition that is not there"
runs 1 sbatch --kill-on-invalid-dep=maybe good.sh
runs 1 sbatch --dependency=after_ok:1 good.sh
like err 'Job dependency problem' "a dependency of no kind"
echo 'echo no interpreter' >x.sh
runs 1 sbatch x.sh
runs 1 sbatch nowhere.sh
runs 1 squeue --no-such-option
runs 1 squeue -h -o %@
runs 1 squeue -h -t NOSTATE
runs 1 squeue -h -j 777
like err 'Invalid job id specified' "squeue of one unknown id fails"
runs 0 squeue -h -t all -j 777,1 -o '%i|%T'
is "$(cat out)" "1|COMPLETED" "squeue of several leaves the unknown one out"
for w in "$(squeue -h -t all -j 1 -o %u)" "$(id -u)" "x,$(id -u)" 9999999; do squeue -h -t all -u "$w" -o "$w %i"; done >out
is "$(wc -l <out | tr -d ' ')" 3 "a user by name or number" "$(cat out)"
runs 1 scontrol requeue 777
runs 1 scontrol frobnicate
runs 1 scancel --signal=NOSUCH 1
runs 0 scancel 777
runs 1 sacct
like err 'accounting storage is disabled' "no accounting"
knob sacct on
runs 1 sacct -o jobid,nosuchfield
like err 'Invalid field requested: "nosuchfield"' "a field that sacct has not"
printf '#!/bin/sh\n# text\n#SBATCH --job-name="two words" --comment=a\\ b # not this\n#SBATCH -t 5\necho x\n#SBATCH --no-such\n' >d.sh
runs 0 env SBATCH_PARTITION=long sbatch --parsable --hold -t 7 d.sh
runs 0 squeue -h -j "$(cat out)" -o '%j|%k|%l|%P|%T'
is "$(cat out)" "two words|a b|7:00|long|PENDING" "script, environment, command line, in this order"
until_true 5 sh -c "squeue -h -j 2 -o %r | grep -q JobHeldUser"
ok $? "a held job"
runs 0 scancel 2
is "$(fakeslurm state 2)" CANCELLED "a pending job is cancelled at once"

# --- the environment ---
job env 'env >env.out'
SECRET=x SLURM_LEAK=y sbatch --parsable --export=NONE env.sh >id
ends "$(cat id)" COMPLETED "--export=NONE"
unlike env.out '^SECRET=' "nothing of the caller"
like env.out '^SLURM_LEAK=y' "but every SLURM_ variable"
unlike env.out '^SLURM_JOB_END_TIME=' "and not the end of the job, in 22.05"
SECRET=x sbatch --parsable env.sh >id
ends "$(cat id)" COMPLETED "--export=ALL"
like env.out '^SECRET=x' "everything of the caller"
job step 'srun env >s1; srun --export=ALL sh -c "echo \$SLURM_PROCID" >s2; srun -n 3 sh -c "exit \$SLURM_PROCID"; echo $? >s3; srun --mpi=pmix true'
A=1 sbatch --parsable --export=NONE -n 2 step.sh >id
ends "$(cat id)" FAILED "srun --mpi=pmix where there is none"
unlike s1 '^HOME=' "srun in a job with --export=NONE hands on nothing"
is "$(sort s2 | tr '\n' ' ')" "0 1 " "srun starts as many tasks as the job has"
is "$(cat s3)" 2 "and returns the highest code"
job killsrun 'srun sh -c "trap \"exit 75\" TERM USR2; touch up.$SLURM_JOB_ID; while :; do sleep 0.1; done" & touch ks; until [ -e up.$SLURM_JOB_ID ]; do sleep 0.05; done; kill -${1} $!; wait $!; r=$?; [ $r -gt 128 ] && { wait $!; r=$?; }; exit $r'
t=$(sbatch --parsable -o /dev/null killsrun.sh TERM) u=$(sbatch --parsable -o /dev/null killsrun.sh USR2)
ends "$t" FAILED "srun that gets TERM"
ends "$u" FAILED "srun that gets USR2"
is "$(scontrol show job -o "$t" | tr ' ' '\n' | grep ^ExitCode) $(scontrol show job -o "$u" | tr ' ' '\n' | grep ^ExitCode)" \
    "ExitCode=137:0 ExitCode=75:0" "the first kills its tasks, the second hands it on"

# --- dependencies ---
sub() { sbatch --parsable -o /dev/null "$@" || echo refused; }
b=$(sub bad.sh)
ends "$b" FAILED "exit 3"
is "$(scontrol show job -o "$b" | tr ' ' '\n' | grep -c -E '^(ExitCode=3:0|Reason=NonZeroExitCode)$')" 2 "ExitCode 3:0"
c1=$(sub -d afterok:"$b" --kill-on-invalid-dep=yes good.sh)
ends "$c1" CANCELLED "afterok of a failed job, kill-on-invalid-dep"
is "$(squeue -h -t all -j "$c1" -o %r)" DependencyNeverSatisfied "with the reason"
c2=$(sub -d afterok:"$b" good.sh)
until_true 5 sh -c "squeue -h -j $c2 -o %r | grep -q DependencyNeverSatisfied"
is "$(fakeslurm state "$c2")" PENDING "without it: pending for ever"
scancel "$c2"
c3=$(sub -d afterok:99999 good.sh)
ends "$c3" COMPLETED "afterok of an unknown id counts as satisfied"
l=$(sub long.sh)
a1=$(sub -d afterany:"$l" good.sh) a2=$(sub -d afternotok:"$l" good.sh) a3=$(sub -d "afterok:$l:$c3" --kill-on-invalid-dep=yes good.sh)
until_true 10 test -e "up.$l"
until_true 5 sh -c "squeue -h -j $a3 -o %r | grep -q Dependency"
is "$(squeue -h -j "$a3" -o '%E %r')" "afterok:$l(unfulfilled) Dependency" "a dependency as text"
scancel --batch --signal=USR1 "$l"
scancel "$l"
ends "$l" CANCELLED "a job that ends itself on TERM is cancelled all the same"
is "$(scontrol show job -o "$l" | tr ' ' '\n' | grep ExitCode)" "ExitCode=5:0" "with its own exit code"
ends "$a1" COMPLETED "afterany"
ends "$a2" COMPLETED "afternotok"
ends "$a3" CANCELLED "afterok"
r=$(sub --no-requeue long.sh)
until_true 10 test -e "up.$r"
runs 1 scontrol requeue "$r"
like err 'presently disabled' "--no-requeue"
scancel "$r"

# --- requeue ---
job again 'trap "exit 75" TERM; echo "run ${SLURM_RESTART_COUNT:-0}" >>again.out; [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ] && exit 0; scontrol requeue $SLURM_JOB_ID; sleep 5'
a=$(sub again.sh) k=$(sub -d afterok:"$(sub again.sh)" good.sh)
ends "$a" COMPLETED "a job that requeues itself before it exits"
ends "$k" COMPLETED "an afterok child survives its parent's requeue"
is "$(sort again.out | tr '\n' ' ')" "run 0 run 0 run 1 run 1 " "both run twice"
l=$(sub long.sh)
until_true 10 test -e "up.$l"
rm "up.$l"
scancel "$l"
scontrol requeue "$l"
ends "$l" RUNNING "requeue while a job is being cancelled brings it back"
scancel "$l"
x=$(sub bad.sh)
kid=$(sub -d afterok:"$x" good.sh)
ends "$x" FAILED "a failed parent"
until_true 5 sh -c "squeue -h -j $kid -o %r | grep -q Never"
scontrol requeue "$x"
until_true 5 sh -c "[ \$(grep -c ' end $x FAILED' slurm/history) -eq 2 ]"
is "$(squeue -h -j "$kid" -o '%T %r')" "PENDING DependencyNeverSatisfied" "once failed, always failed"
scancel "$kid"

# --- the limit, the signal, KillWait ---
knob limit 1
job deaf 'trap "" TERM; sleep 20 & wait; sleep 20'
t=$(sbatch --parsable -o deaf.out deaf.sh)
ends "$t" TIMEOUT "the time limit, and KILL for one that does not hear TERM"
like deaf.out "DUE TO TIME LIMIT" "slurmstepd says why"
is "$(scontrol show job -o "$t" | tr ' ' '\n' | grep ExitCode)" "ExitCode=0:9" "ExitCode 0:9"
knob limit 602 # it is signalled after 2 s and has ten minutes left
job sig 'trap "touch sig.seen; exit 0" USR2; sleep 600 & wait'
t=$(sub --signal=B:USR2@600 sig.sh)
ends "$t" COMPLETED "--signal=B: reaches the batch shell before the limit"
[ -e sig.seen ]; ok $? "(by its trap)"
knob limit

# --- nodes, preemption, memory ---
job node 'echo "run ${SLURM_RESTART_COUNT:-0} $$" >>node.out; [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ] || sleep 600'
t=$(sub node.sh)
until_true 10 test -s node.out
fakeslurm nodefail "$t"
ends "$t" COMPLETED "a job whose node is lost runs again"
pid=$(awk 'NR == 1 { print $3 }' node.out)
kill -0 "$pid"; ok $? "while its old processes live on"
fakeslurm noderestore
until_true 5 sh -c "! kill -0 $pid"
ok $? "until the node is back"
t=$(sub --no-requeue long.sh)
until_true 10 test -e "up.$t"
fakeslurm nodefail "$t"
is "$(fakeslurm state "$t")" NODE_FAIL "NODE_FAIL without --requeue"
t=$(sbatch --parsable --open-mode=append -o pre.out long.sh)
until_true 10 test -e "up.$t"
t0=$(date +%s)
fakeslurm preempt "$t" 600
e=$(date -d "$(squeue -h -j "$t" -o %e)" +%s)
[ "$e" -ge $((t0 + 599)) ] && [ "$e" -le "$(($(date +%s) + 601))" ]; ok $? "preempted: its end is that of the grace time"
unlike pre.out TERM "and its script hears nothing yet"
fakeslurm preempt "$t" 0
until_true 10 sh -c "grep -q 'got TERM' pre.out"
ok $? "until the grace is over"
ends "$t" RUNNING "then it runs again"
like pre.out 'DUE TO PREEMPTION' "slurmstepd says why"
scancel "$t"
job prestep 'srun sh -c "trap \"exit 75\" TERM; touch up.$SLURM_JOB_ID; sleep 120 & wait"; r=$?; echo "srun $r"; exit $r'
t=$(sbatch --parsable -o pre2.out prestep.sh)
until_true 10 test -e "up.$t"
fakeslurm preempt "$t" 600
ends "$t" FAILED "a job that ends by itself in the grace time has failed, for SLURM"
like pre2.out 'srun 75' "its step got TERM at once"
t=$(sub long.sh)
until_true 10 test -e "up.$t"
fakeslurm oom "$t"
ends "$t" OUT_OF_MEMORY "out of memory"

# --- accounting, purge, reuse of ids ---
t=$(sub long.sh)
until_true 10 test -e "up.$t"
scancel "$t"
ends "$t" CANCELLED "cancelled"
like "$LF_FAKE_DIR/history" " cancel $t RUNNING" "(from running)"
is "$(sacct -X -n -P -j "$t" -o state | cut -c 1-13)" "CANCELLED by " "sacct says by whom"
is "$(sacct -X -n -j "$t" -o state | tr -d ' ')" "CANCELLED+" "and cuts it where columns are narrow"
knob acct_shift 86400
is "$(sacct -X -n -P -o jobid | wc -l)" 0 "yesterday's jobs are outside the default window"
[ "$(sacct -X -n -P -j "$t" -o jobid | wc -l)" -eq 1 ]; ok $? "with -j they are not"
knob acct_shift
knob sacct_old 1
runs 1 sacct -X -n -P -j "$t" -o jobid,submitline
knob sacct_old
knob min_job_age 0
sleep 0.1
runs 1 squeue -h -t all -j "$t"
is "$(sacct -X -n -P -j "$t" -o jobid)" "$t" "accounting remembers what the controller has forgotten"
fakeslurm nextid "$t"
is "$(sub good.sh)" "$t" "an id is given out again"
knob min_job_age

# --- troubles ---
knob sbatch_late "1
$T/goes.on"
runs 1 sbatch --parsable -J late good.sh
is "$(squeue -h -t all -n late -o %j)" "" "a controller that stands still"
: >"$T/goes.on"
until_true 10 sh -c "squeue -h -t all -n late -o %j | grep -q late"
ok $? "makes the job when it goes on"
knob sbatch_timeout 1
runs 1 sbatch --parsable -J lost good.sh
like err 'Socket timed out' "a submit that timed out"
is "$(squeue -h -t all -n lost -o %j)" lost "though the job exists"
knob sbatch_lost 1
runs 1 sbatch --parsable -J nowhere good.sh
is "$(squeue -h -t all -n nowhere -o %j)" "" "and one where it does not"
knob sbatch_chatter 1
runs 0 sbatch --parsable good.sh
is "$(wc -l <out)" 5 "chatter"
knob down 1
runs 1 squeue -h
like err 'Unable to contact slurm controller' "no controller"
runs 0 squeue -h
fakeslurm wait 300
knob max_submit 1
h=$(sub --hold good.sh)
runs 1 sbatch good.sh
like err 'QOSMaxSubmitJobPerUserLimit' "a submit limit"
scancel "$h"
knob max_submit
knob cluster big
runs 0 sbatch --parsable good.sh
like out '^[0-9]+;big$' "id;cluster"
knob cluster
SLURM_TIME_FORMAT=relative SQUEUE_FORMAT=%i squeue -t all >out
unlike out 'T[0-9][0-9]:' "the environment changes what squeue prints"
fakeslurm wait 300
ok $? "nothing is left running"
until_true 5 sh -c "! grep -q ctld slurm/state.json"
is "$?$(grep -c . slurm/slurmctld.log)" 00 "and the controller is gone, without a word"
finish 119

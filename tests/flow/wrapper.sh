#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The wrapper inside a job: `loong-flow exec` with a job's environment and scheduler commands that only answer and take notes.
# What a scheduler then does is tested with the strict fakes and on real ones; here it is what the wrapper does, and when.
. "$LF_SRCDIR/tests/flow/lib.sh"
mkdir fake
cat >fake/squeue <<'END'
#!/bin/sh
echo "squeue $*" >>"$FAKE/calls"
[ ! -e "$FAKE/away" ] || { echo "slurm_load_jobs error: Unable to contact slurm controller (connect failure)" >&2; exit 1; }
case " $* " in
*" --me "*) cat "$FAKE/waiting" 2>/dev/null ;;
*) echo "$(cat "$FAKE/state")|$(date -d "@$(cat "$FAKE/end")" +%Y-%m-%dT%H:%M:%S)|$(cat "$FAKE/node" 2>/dev/null)" ;;
esac
END
cat >fake/scontrol <<'END'
#!/bin/sh
seen=$(ls -d "$FAKE"/loong-data/*/runs/*/*/*/end.json 2>/dev/null | wc -l)
echo "scontrol $* ends=$seen" >>"$FAKE/calls"
case $1 in
requeue) [ ! -e "$FAKE/norequeue" ] || { echo "slurm_requeue error: Requested operation is presently disabled" >&2; exit 1; } ;;
esac
exit 0
END
cat >fake/sbatch <<'END'
#!/bin/sh
echo "sbatch $*" >>"$FAKE/calls"
echo 99
END
cat >fake/qstat <<'END'
#!/bin/sh
echo "qstat $*" >>"$FAKE/calls"
printf 'Job Id: 7.server\n    Job_Name = x\n    job_state = R\n    Resource_List.walltime = %s\n    stime = %s\n' "$(cat "$FAKE/walltime")" \
    "$(cat "$FAKE/stime")"
END
chmod +x fake/*
PATH=$T/fake:$PATH FAKE=$T
export PATH FAKE
cat >pipeline.ini <<'END'
[pipeline]
name = demo
data_dir = loong-data
[resources]
grace = 3
[stage first]
kind = work
steps = 60
step_time = 20
hold = @HOLD@
[stage second]
kind = work
input = ${stage:first}
steps = 2
END
sed -i "s|@HOLD@|$HOLD|" pipeline.ini

# A run with an attempt 1 that was stopped; attempt 2 is the one that a scheduler got. The stage is held
# behind its first step until `job` lets it go: what a case does meanwhile does not race with its end.
new_run() { # new_run [--set ...]
    hold
    : >o # here, or the words of the run before may be read for those of this one
    "$LF" run --new --only first "$@" >o 2>&1 &
    p=$!
    BG="$BG $p"
    # The run before may still look alive, so status must speak of this one.
    until_true 20 grep -q '^run ' o
    id=$(awk '$1 == "run" { print $2; exit }' o)
    until_true 20 sh -c "$LF status >s && grep -q '^run $id' s && grep -q '${seen:-running .*[0-9]/}' s"
    kill -INT $p
    wait $p
    rd=$(cd "$(stage_dir first)/../.." && pwd)
    : >calls
    echo RUNNING >state
    echo $(($(date +%s) + 3600)) >end
    rm -f norequeue away
    attempt 2
}
attempt() { # attempt N [RESOURCES]: what submit writes
    sed -e "s/\"attempt\":[0-9]*/\"attempt\":$1/" -e 's/"backend":"local"/"backend":"slurm"/' \
        -e "s/\"token\":\"[0-9a-f]*\"/\"token\":\"abc$1\"/" "$rd/first/attempt.1.json" >a.json
    if [ -n "${2:-}" ]; then
        sed "s/\"resources\":{/&$2,/" a.json >b.json && mv b.json a.json
    fi
    grep -q '"attempt"' a.json || bail "attempt.1.json has no number"
    cp a.json "$rd/first/attempt.$1.json"
}
# go N ID COUNT [STAGE]: become the wrapper of that job (in a subshell, or in the background)
go() {
    SLURM_JOB_ID=$2 SLURM_RESTART_COUNT=$3 SLURMD_NODENAME=node7
    export SLURM_JOB_ID SLURM_RESTART_COUNT SLURMD_NODENAME
    exec "$rd/rev.1/bin/loong-flow" exec --run-dir "$rd" --stage "${4:-first}" --attempt "$1" --token "abc$1" --project "$T" >jo 2>je
}
# job ...: the same to its end; the exit code is left in `code`
job() {
    let_go
    (go "$@")
    code=$?
}
wrapper_of() { pid_in "$rd/first/epoch.$1"; }
started() { until_true 20 test -s "$rd/first/$1/metrics"; }

# --- the segment ends with work left: requeued before the wrapper exits ---
new_run
go 2 41 0 &
j=$!
BG="$BG $j"
started 2.2
kill -USR2 "$(wrapper_of 2)"
wait $j
is "$(grep -c '^scontrol requeue 41 ' calls)" 1 "the job is put back into the queue"
like calls 'requeue 41 ends=2' "after its end was written down"
like "$rd/first/2.2/end.json" '"state":"stopped"' "the stage stopped at a good checkpoint"
like "$rd/first/2.2/end.json" '"next":\{"act":"continue"' "the record says what follows"
like "$rd/first/2.2/end.json" '"step":[1-9]' "and which step is saved"
cat "$rd/first/2.2/spool/"*-requeue.json >ev
like ev '"jobid":"41"' "there is a requeue event"
job 2 41 1
is $code 0 "the requeued job does the rest"
like "$rd/first/2.3/log" 'continues at step' "from the checkpoint"
is "$(state first)" done "and the stage is done"
n0=$(ls "$rd/first" | grep -c '^epoch')
job 2 42 0
is "$code $(ls "$rd/first" | grep -c '^epoch')" "0 $n0" "a leftover link ends at once with 0 and claims nothing"

# --- a job that may not be requeued ---
new_run
printf '#!/bin/sh\nexec "$@"\n' >"$rd/first/script.2"
printf '%s\n' '43|afterok:41(unfulfilled)' '44|afterok:7(unfulfilled),afterok:41(unfulfilled)' '45|afterok:40(unfulfilled)' >waiting
: >norequeue
go 2 41 0 &
j=$!
BG="$BG $j"
started 2.2
kill -USR2 "$(wrapper_of 2)"
wait $j
like calls "^sbatch .*--requeue .*--dependency=afterany:41 .*$rd/first/script.2 .*--attempt 2 --token abc2 " "a successor follows, with the same attempt and token"
like calls '^scontrol update JobId=43 Dependency=afterok:99 ' "what waited for this job waits for it now"
like calls '^scontrol update JobId=44 Dependency=afterok:7,afterok:99 ' "and for nothing less than before"
is "$(grep -c 'JobId=45' calls)" 0 "what waits for others is left alone"
printf '{"lf_job":1,"backend":"slurm","id":"41","ids":["41"],"token":"abc2"}' >"$rd/first/job.2.json"
job 2 99 0
is "$code $(state first)" "0 done" "the successor is one of the attempt's and does the rest"

# --- who may not be put back ---
new_run
go 2 41 0 &
j=$!
BG="$BG $j"
started 2.2
echo COMPLETING >state # scancel: the controller is ending the job, since now
date +%s >end
kill -TERM "$(wrapper_of 2)"
wait $j
is "$(grep -c requeue calls)" 0 "a job that is being cancelled is left to the scheduler"
like "$rd/first/2.2/end.json" '"exit":75' "though the stage saved"
like "$rd/first/2.2/end.json" '"state":"cancelled"' "and its end is a cancel: no command starts it again by itself"
go 2 41 0 &
j=$!
BG="$BG $j"
started 2.3
echo RUNNING >state
echo $(($(date +%s) + 3600)) >end
: >"$rd/first/cancel.2"
wait $j
is "$(grep -c requeue calls)" 0 "nor is one with a cancel file"
like "$rd/first/2.3/end.json" '"state":"cancelled"' "which is recorded as cancelled"
job 2 41 1
is $code 77 "and when the scheduler starts it again it does nothing"
like je 'was cancelled' "and says why"
rm "$rd/first/cancel.2"
attempt 3
job 2 41 1
is $code 77 "an attempt that was given up does nothing"
like je 'a newer one exists' "and says why"
cat >"$rd/first/job.3.json" <<'END'
{"lf_job":1,"backend":"slurm","id":"51","ids":["51"],"token":"abc3"}
END
job 3 52 0
is $code 77 "a job that is not the attempt's does nothing"
like je 'job 52 is not the one' "and says why"

# --- readiness ---
cat >"$rd/second-attempt" <<'END'
{"lf_attempt":1,"attempt":1,"token":"abc1","rev":1,"backend":"slurm","spec_id":"x"}
END
mkdir -p "$rd/second" && mv "$rd/second-attempt" "$rd/second/attempt.1.json"
go 1 60 0 second &
j=$!
BG="$BG $j"
sleep 2
kill -0 $j 2>/dev/null
ok $? "a stage whose input is not there yet is waited for a moment"
job 3 51 0
is $code 0 "(the input is made meanwhile)"
wait $j
[ -e "$rd/second/1.1/done.json" ]; ok $? "then it runs"
new_run
mkdir -p "$rd/second"
printf '{"lf_attempt":1,"attempt":1,"token":"abc1","rev":1,"backend":"slurm","spec_id":"x"}' >"$rd/second/attempt.1.json"
nrd=$rd # waits a while; looked at below
SLURM_JOB_ID=60 "$rd/rev.1/bin/loong-flow" exec --run-dir "$rd" --stage second --attempt 1 --token abc1 --project "$T" 2>je.ready &
ready=$!

# --- the clock ---
new_run --set first.steps=100k --set first.grace=55
echo $(($(date +%s) + 60)) >end # asked to stop 55 s before
t0=$(date +%s)
job 2 41 0
t1=$(date +%s)
is $code 75 "before the job's end the stage stops"
like "$rd/first/2.2/end.json" '"class":"timeout"' "because of the time"
[ $((t1 - t0)) -ge 2 ] && [ "$t1" -le "$(cat end)" ]; ok $? "in time, and not at once" "after $((t1 - t0)) s"
is "$(grep -c '^scontrol requeue 41 ' calls)" 1 "and the job is put back"
new_run --set first.grace=36 # scontrol has a quarter of it to answer
end_1=$(($(date +%s) + 75))
echo $end_1 >end
go 2 41 0 &
j=$!
BG="$BG $j"
started 2.2
echo $(($(date +%s) + 3600)) >end # somebody raised the limit
past() { [ "$(date +%s)" -gt $((end_1 + 1)) ]; }
let_go_when 75 past
wait $j
[ -e "$rd/first/2.2/done.json" ]; ok $? "a limit that was raised meanwhile is asked for again before it is obeyed"

wait $ready
is $? 76 "an input that does not come: a code of its own"
like je.ready 'stage first is not done' "with the name of the stage"
[ ! -e "$nrd/second/epoch.1" ]; ok $? "and no epoch was claimed"
"$LF" status "$(basename "$nrd")" >out
like out 'did not begin: stage first is not done' "status says so too"

# --- caps and progress ---
new_run --set first.steps=100k
attempt 2 '"max_segments":2'
segment() { # segment COUNT EPOCH
    go 2 41 "$1" &
    j=$!
    BG="$BG $j"
    started "2.$2"
    kill -USR2 "$(wrapper_of "$2")"
    wait $j
}
segment 0 2
segment 1 3
is "$(grep -c '^scontrol requeue 41 ' calls)" 1 "max_segments = 2: the second is not put back"
like "$rd/first/2.3/end.json" '"class":"capped".*"state":"failed"' "but failed with the cap as its class"
is "$(state first)" failed "and so says status"
"$LF" status >out
like out '2 segments are over, and max_segments is 2' "with the numbers"
like out 'raise max_segments' "and what to do"
job 2 43 0
is $code 1 "a link that follows ends with 1: the jobs behind it must not start"
[ ! -e "$rd/first/epoch.4" ]; ok $? "and begins nothing"
attempt 3 '"max_walltime":1'
# A fast machine runs the three starts in less than a second: the second is said to have begun earlier.
sed "s/\"t\":[0-9.]*/\"t\":$(($(date +%s) - 60))/" "$rd/first/epoch.2" >claim.2
cmp -s claim.2 "$rd/first/epoch.2" && bail "epoch.2 has no time"
mv -f claim.2 "$rd/first/epoch.2"
job 3 44 0
is $code 1 "max_walltime over all starts"
like je 'max_walltime is 1' "by name"

seen=running
new_run --set first.steps=100k --set first.hold_at=0
seen=
attempt 2 '"stall_segments":2'
for e in 2 3; do # segments that end before their first step
    go 2 41 $((e - 2)) &
    j=$!
    BG="$BG $j"
    until_true 20 test -e "$rd/first/2.$e/stage.json"
    kill -USR2 "$(wrapper_of $e)" # before its first step
    wait $j
done
is "$(grep -c '^scontrol requeue 41 ' calls)" 1 "after two segments without a step the job is not put back again"
like "$rd/first/2.3/end.json" '"class":"stalled"' "and the stage has failed for that"
like "$rd/first/2.3/end.json" 'no step was gained in 2 segments' "by number"

# --- the node and the memory ---
new_run --set first.fail_at=55 --set first.fail_how=oom --set first.step_time=10
attempt 2 '"memory_bytes":1073741824'
SLURM_MEM_PER_NODE=1024
export SLURM_MEM_PER_NODE
job 2 41 0
like calls 'scontrol requeue 41 ' "out of memory: the job goes back"
like calls 'scontrol update JobId=41 MinMemoryNode=1536 ' "and asks for half as much again"
like "$rd/first/2.2/end.json" '"class":"oom".*"next":\{"act":"more memory","memory_bytes":1610612736' "as its record says"
job 2 41 1
is $code 1 "a scheduler that did not give more: no third time of the same"
like je 'no more than 1024 MiB' "by number"
SLURM_MEM_PER_NODE=1536
job 2 41 2
like calls 'MinMemoryNode=2304 ' "with more it runs, and may ask for more again"
SLURM_MEM_PER_NODE=2304
job 2 41 3
is "$(grep -c "requeue 41" calls)" 2 "but only as often as retries allows"
is $code 1 "then it has failed"
unset SLURM_MEM_PER_NODE
new_run --set first.fail_at=55 --set first.fail_how=node --set first.step_time=10
job 2 41 0
like calls 'scontrol update JobId=41 ExcNodeList=node7 ' "a node that failed is left out"
cat "$rd/first/2.2/spool/"*-node_strike.json >ev
like ev '"host":"node7"' "and gets a strike"
new_run --set first.fail_at=55 --set first.fail_how=words --set first.step_time=10
job 2 41 0
like "$rd/first/2.2/end.json" '"class":"unknown"' "ordinary text in a log is no evidence"
is "$code $(grep -c requeue calls)" "1 0" "and what is unknown is not tried again"

# --- a requeue by the scheduler while the old processes live on ---
new_run
go 2 41 0 &
j=$!
BG="$BG $j"
started 2.2
go 2 41 1 &
k=$!
BG="$BG $k"
until_true 10 test -e "$rd/first/2.2/end.json"
ok $? "the old start notices the newer epoch and stops"
like "$rd/first/2.2/end.json" '"class":"superseded"' "and says why"
let_go
wait $j
is "$(grep -c requeue calls)" 0 "it does not put the job back"
wait $k
[ -e "$rd/first/2.3/done.json" ] && [ ! -e "$rd/first/2.2/done.json" ]; ok $? "the newer one publishes, alone"
# Both reach publication: the wrapper of the first is held when its stage ends well.
new_run
go 2 41 0 &
j=$!
BG="$BG $j"
started 2.2
w=$(wrapper_of 2)
kill -STOP "$w"
let_go
until_true 20 test -e "$rd/first/2.2/out/result/manifest.json"
job 2 41 1
is $code 0 "the newer start is done"
kill -CONT "$w"
wait $j
is "$(ls -d "$rd"/first/2.*/done.json | wc -l)" 1 "of two that reached publication one has published"
is "$(state first)" done "and the stage is done"

# --- a controller that does not answer, PBS ---
new_run
go 2 41 0 &
j=$!
BG="$BG $j"
started 2.2
: >away
kill -USR2 "$(wrapper_of 2)"
sleep 3
kill -0 $j 2>/dev/null
ok $? "a controller that does not answer is waited for"
rm away
wait $j
is "$(grep -c '^scontrol requeue 41 ' calls)" 1 "then the job is put back"
new_run --set first.grace=55
sed 's/"backend":"slurm"/"backend":"pbs"/' "$rd/first/attempt.2.json" >a && cp a "$rd/first/attempt.2.json"
echo 00:01:00 >walltime
LC_ALL=C date "+%a %b %e %H:%M:%S %Y" >stime
PBS_JOBID=7.server "$rd/rev.1/bin/loong-flow" exec --run-dir "$rd" --stage first --attempt 2 --token abc2 --project "$T"
is $? 75 "PBS: stopped before the walltime that qstat tells"
let_go
like "$rd/first/2.2/end.json" '"class":"timeout"' "because of the time"
echo 01:00:00 >walltime
LC_ALL=C date "+%a %b %e %H:%M:%S %Y" >stime
PBS_JOBID=8.server "$rd/rev.1/bin/loong-flow" exec --run-dir "$rd" --stage first --attempt 2 --token abc2 --project "$T"
is $? 0 "the next link does the rest"
finish 74

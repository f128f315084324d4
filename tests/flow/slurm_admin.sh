#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What only happens to those who break a cluster: nodes and controllers that die under jobs, on a SLURM of our own.
. "$LF_SRCDIR/tests/flow/slurm_lib.sh"
slurm_cluster own
slurm_site

slurmd_pid() { cat "$LF_SLURM_DIR/run/slurmd-$1.pid"; }
node_of() { squeue -h -o %N -j "$(job_of "$1")"; }
# Of the newest start of a stage: the oldest process whose arguments name this run and the stage. A child that has not yet become another
# program has them too, and after a wrap of process ids the smaller id.
pid_of_wrapper() {
    _run=$(run_id)
    for p in /proc/[0-9]*; do
        tr '\0' ' ' 2>/dev/null <"$p/cmdline" | grep -q "loong-flow exec .*$_run.*--stage $1 " &&
            echo "$(sed 's/.*) //' "$p/stat" | cut -d ' ' -f 20) ${p#/proc/}"
    done 2>/dev/null | sort -n | sed -n '1s/.* //p'
}

# A node's slurmd is killed, its processes live on, SLURM starts the job elsewhere. The old wrapper sees the newer epoch and
# stops; what it made is not published twice.
case_slurmd() {
    three p45 "steps = 150
step_time = 400"
    runs 0 "$LF" submit
    until_true 60 sh -c "grep -q 'step 3 of' loong-data/*/runs/*/first/1.1/log"
    node=$(node_of first)
    kill -9 "$(slurmd_pid "$node")"
    run=$(run_path)
    until_true 180 [ -s "$run/first/1.2/log" ]
    ok $? "SLURM started the job again, elsewhere"
    until_true 60 [ -e "$run/first/1.1/end.json" ]
    ok $? "the old start noticed the newer one and ended"
    is "$("$LF" ledger sync >/dev/null; table "count(*) from segment where run = '$(run_id)' and stage = 'first'" | tail -n 1)" 2 "the ledger has both"
    ended 240 done last
    ok $? "all three stages are done"
    rm -f "$LF_SLURM_DIR/run/slurmd-$node.pid"
    slurmd -f "$SLURM_CONF" -N "$node"
    books first:2 second:1 last:1
}

# The same, but the old wrapper sleeps (stopped) until the new start has committed. Its stage ends by the fence, or came to its end
# before. When the wrapper wakes up it cannot commit.
case_zombie() {
    three p01 "steps = 60
step_time = 700"
    runs 0 "$LF" submit
    until_true 60 sh -c "grep -q 'step 3 of' loong-data/*/runs/*/first/1.1/log"
    node=$(node_of first)
    run=$(run_path)
    old=$(pid_of_wrapper first)
    [ -n "$old" ]; ok $? "the wrapper of the first start was found"
    kill -STOP "$old"
    kill -9 "$(slurmd_pid "$node")"
    until_true 180 [ -s "$run/first/1.2/log" ]
    ok $? "SLURM started the job again, elsewhere"
    until_true 120 [ -e "$run/first/1.2/done.json" ]
    ok $? "the new start committed"
    kill -CONT "$old"
    until_true 60 sh -c "! kill -0 $old"
    ok $? "the old wrapper woke up and ended"
    [ ! -e "$run/first/1.1/done.json" ]; ok $? "and committed nothing"
    ended 240 done last
    ok $? "all three stages are done"
    is "$(stage_dir first)" "$run/first/1.2" "the result is the new start's"
    rm -f "$LF_SLURM_DIR/run/slurmd-$node.pid"
    slurmd -f "$SLURM_CONF" -N "$node"
    books first:2 second:1 last:1
}

# An operator sets the node down: the job goes elsewhere and continues.
case_down() {
    three p23 "steps = 40
step_time = 300"
    runs 0 "$LF" submit
    until_true 60 sh -c "grep -q 'step 3 of' loong-data/*/runs/*/first/1.1/log"
    node=$(node_of first)
    scontrol update nodename="$node" state=down reason=test
    until_true 120 [ -s "$(run_path)/first/1.2/log" ]
    ok $? "the job was started on the other node"
    scontrol update nodename="$node" state=resume 2>/dev/null # a node that answers may be up again already
    ended 240 done last
    ok $? "all three stages are done"
    steps_once first; ok $? "no step was made twice" "$(tr '\n' ' ' <steps)"
    books first:2 second:1 last:1
}

# The controller stops answering at the second sbatch, whose request it finds when it goes on: sbatch has given up by then, yet a
# job is made. First submit sits it out; then submit is killed while the controller is away, and the next one puts it right.
case_controller() {
    sub=$(mktemp -d "${TMPDIR:-/tmp}/lf-slurm.XXXXXX")
    echo "$sub" >cluster
    env=$(unset SLURM_CONF; LF_SLURM_DIR=$sub LF_SLURM_NODES=1 LF_SLURM_MEM=4096 "$LF_SRCDIR/tests/flow/slurm-up" 2>up.log)
    ok $? "a cluster of its own is up" "$(cat up.log)"
    eval "$env"
    sed 's/^command_timeout = .*/command_timeout = 8s/' "$T/site.ini" >site.ini
    LF_SITE_CONFIG=$PWD/site.ini LF_CACHE_DIR=$PWD/cache
    export LF_SITE_CONFIG LF_CACHE_DIR
    ctl=$(cat "$sub/run/slurmctld.pid")
    mkdir bin
    cat >bin/sbatch <<END
#!/bin/sh
n=\$((\$(cat "$PWD/calls" 2>/dev/null || echo 0) + 1))
echo \$n >"$PWD/calls"
[ \$n -ne 2 ] || kill -STOP $ctl
exec $(command -v sbatch) "\$@"
END
    chmod +x bin/sbatch
    three main "steps = 60
step_time = 300"
    { until_true 60 grep -q 2 calls; sleep 10; kill -CONT "$ctl"; } &
    BG=$!
    runs 0 env PATH="$PWD/bin:$PATH" "$LF" submit
    wait $BG
    BG=
    ended 180 done last
    ok $? "submit waited for the controller, and all stages are done"
    books first:1 second:1 last:1

    rm calls
    PATH=$PWD/bin:$PATH "$LF" submit --new >out 2>err &
    BG=$!
    until_true 60 grep -q '^State:.T' "/proc/$ctl/status"
    sleep 3 # sbatch has asked by now
    kill -9 $BG
    wait $BG
    is $? 137 "submit is killed while the controller does not answer"
    BG=
    kill -CONT "$ctl"
    runs 0 "$LF" submit
    ended 180 done last
    ok $? "the next submit completes the graph, and all stages are done"
    books first:1 second:1 last:1
}

# Two nodes of a site whose srun has no PMIx (MpiDefault=none): ranks by our own launcher.
case_launch() {
    real_programs
    # shellcheck disable=SC2086
    runs 0 "$LF" submit $small --set resources.partition=main --set train.nodes=2 --set train.ranks=1 --set train.launcher=loong
    ended 300 done generate
    ok $? "all stages up to the texts are done"
    ended 120 done eval # which does not wait for them
    ok $? "and the scores"
    grep -q 'n[0-9].*n[0-9]' "$(stage_dir train)/job.txt" 2>/dev/null || is "$(squeue -h -t all -o %D -j "$(job_of train)")" 2 "training had two nodes"
    "$LF" metrics train --format csv --key loss >loss.csv
    is "$(awk -F, 'END { print $1 }' loss.csv)" 30 "30 steps were made"
    awk -F, 'NR == 2 { a = $2 } END { exit !($2 < a) }' loss.csv; ok $? "the loss fell"
    books tokenize:1 train:1 generate:1 eval:1
}

begin slurmd
begin zombie
begin down
begin controller
begin launch
gather
finish_min 110 # a cluster that root started may have more

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Pipelines of an ordinary user on a real SLURM. Under autogen.sh check the SLURM user is somebody else (root). All cases run
# at once on nodes of their own, as most of their time is SLURM's.
. "$LF_SRCDIR/tests/flow/slurm_lib.sh"
slurm_cluster
slurm_site
if [ "$(scontrol show config | sed -n 's/^SlurmUser *= *\([^(]*\).*/\1/p')" = "$(id -un)" ]; then
    skip "" "the submitter is the SLURM user here; autogen.sh check as root gives another"
else
    ok 0 "the submitter, $(id -un), is not the SLURM user"
fi

# A stage that needs three walltime segments of one minute, with two stages behind it: one job id, no end in TIMEOUT.
case_walltime() {
    three p1 "steps = 90
step_time = 1000
time_limit = 1m
grace = 20s"
    runs 0 "$LF" submit
    is "$(jobs_of | wc -l | tr -d ' ')" 3 "the whole graph was handed over"
    ended 420 done last
    ok $? "all three stages are done"
    s=$(starts first)
    [ "$s" -ge 3 ]; ok $? "it took three segments or more ($s)"
    steps_once first; ok $? "no step was made twice" "$(tr '\n' ' ' <steps)"
    for e in "$(run_path)"/first/1.*/end.json; do sed -n 's/.*"exit": *\([0-9]*\).*/\1/p' "$e"; echo; done | sort | uniq -c | awk '$2 != "" { printf "%s x %s ", $1, $2 }' >exits
    is "$(cat exits)" "1 x 0 $((s - 1)) x 75 " "all segments but the last stopped at a good checkpoint, none in SLURM's TIMEOUT"
    books "first:$s" second:1 last:1
}

# A job of higher priority takes the node: TERM, time to save, requeue by SLURM, on with the next epoch.
case_preempt() {
    three low "steps = 60
step_time = 500
exclusive = yes"
    runs 0 "$LF" submit
    until_true 60 sh -c "grep -q 'step 3 of' loong-data/*/runs/*/first/1.1/log"
    sbatch -p high -t 2 --exclusive -o /dev/null --wrap 'sleep 6' >high.id
    ended 240 done last
    ok $? "all three stages are done"
    is "$(cat "$(run_path)"/first/1.1/end.json | sed -n 's/.*"exit": *\([0-9]*\).*/\1/p')" 75 "the preempted start stopped at a good checkpoint"
    steps_once first; ok $? "no step was made twice" "$(tr '\n' ' ' <steps)"
    books first:2 second:1 last:1
}

# scancel while the stage saves: it stays cancelled, and its children with it.
case_scancel() {
    three p3 "steps = 500
step_time = 200
save_time = 2500"
    runs 0 "$LF" submit
    until_true 60 sh -c "grep -q 'step 3 of' loong-data/*/runs/*/first/1.1/log"
    id=$(job_of first)
    scancel "$id"
    until_true 60 sh -c "[ -z \"\$(squeue -h -o %i -j $id 2>/dev/null)\" ]"
    sleep 12 # a requeued job waits 6 s
    is "$(squeue -h -o %i -j "$id" 2>/dev/null)" "" "a cancelled job does not come back"
    is "$(starts first)" 1 "and was started once"
    like "$(run_path)/first/1.1/log" 'stopped at step' "it had saved"
    is "$(state first)" cancelled "status says so"
    is "$(starts second) $(starts last)" "0 0" "what waits for it was not started"
    until_true 30 none_left
    ok $? "nothing of the run is left in the queue" "$(squeue -h -o '%i %T %r')"
    sed -i 's/^step_time = 200/step_time = 1/' pipeline.ini
    runs 0 "$LF" resume
    ended 180 done last
    ok $? "resume makes it whole"
    steps_once first; ok $? "from the step that was saved" "$(head -n 20 steps | tr '\n' ' ')"
    books first:2 second:1 last:1
}

# A stage that fails; its setting is repaired; only what is missing runs.
case_fail() {
    three p0 "steps = 4" "fail_at = 2"
    runs 0 "$LF" submit
    ended 120 failed second
    ok $? "the second stage fails"
    is "$(state first)" "done" "the first is done"
    until_true 30 sh -c "[ -z \"\$(squeue -h -o %i -j $(job_of last) 2>/dev/null)\" ]"
    ok $? "SLURM took the job of the last out of the queue"
    is "$(starts last)" 0 "which was not started"
    sed -i '/^fail_at/d' pipeline.ini
    runs 0 "$LF" resume
    ended 120 done last
    ok $? "after the repair everything is done"
    is "$(starts first)" 1 "the first stage did not run again"
    books first:1 second:2 last:1
}

# submit is killed before the second sbatch, and the next one after its third: whatever was handed over is adopted.
case_killed() {
    mkdir bin
    cat >bin/sbatch <<END
#!/bin/sh
n=\$((\$(cat "$PWD/calls" 2>/dev/null || echo 0) + 1))
echo \$n >"$PWD/calls"
[ \$n -ne 2 ] || { kill -9 \$PPID; exit 1; }
[ \$n -ne 3 ] || { /usr/bin/env -u LD_PRELOAD $(command -v sbatch) "\$@" >/dev/null; kill -9 \$PPID; exit 1; }
exec $(command -v sbatch) "\$@"
END
    chmod +x bin/sbatch
    three p0 "steps = 60
step_time = 200"
    PATH=$PWD/bin:$PATH "$LF" submit >out 2>err
    is $? 137 "submit was killed before its second sbatch"
    PATH=$PWD/bin:$PATH "$LF" submit >out 2>err
    is $? 137 "the next was killed when sbatch had made a job"
    runs 0 env PATH="$PWD/bin:$PATH" "$LF" submit
    is "$(cat calls)" 4 "the third called sbatch for what was missing alone"
    ended 120 done last
    ok $? "all three stages are done"
    books first:1 second:1 last:1
}

# The programs are replaced between two queued stages, as make install does: jobs use what was frozen, nothing reruns.
case_install() {
    cp -R "$LF_BUILDDIR/tests/flow/bin" inst
    LF=$PWD/inst/loong-flow LF_LIBEXEC=$PWD/inst
    export LF_LIBEXEC
    three p3 "steps = 15
step_time = 300"
    runs 0 "$LF" submit
    until_true 60 sh -c "grep -q 'step 2 of' loong-data/*/runs/*/first/1.1/log"
    for p in loong-flow lf-work lf-join; do
        cp inst/$p inst/new && echo "another build" >>inst/new && mv -f inst/new inst/$p
    done
    ended 120 done last
    ok $? "all three stages are done"
    runs 0 "$LF" submit
    like out 'nothing to do' "with the new programs there is nothing to do"
    is "$(jobs_of | wc -l | tr -d ' ')" 3 "no job was submitted again"
    books first:1 second:1 last:1
}

# The real programs: text to tokens to a model of two ranks, started by srun where it offers PMIx, to texts and scores.
case_quickstart() {
    real_programs
    launcher=auto
    ! srun --mpi=list 2>&1 | grep -q pmix || launcher=srun
    # shellcheck disable=SC2086
    runs 0 "$LF" submit $small --set resources.partition=p45 --set train.ranks=2 --set train.launcher=$launcher
    ended 300 done generate
    ok $? "all stages up to the texts are done"
    ended 120 done eval
    ok $? "and the scores"
    [ "$(wc -l <"$(stage_dir generate)/out/text/out.jsonl")" -eq 3 ]; ok $? "three texts were written"
    "$LF" metrics train --format csv --key loss >loss.csv
    is "$(awk -F, 'END { print $1 }' loss.csv)" 30 "30 steps were made"
    awk -F, 'NR == 2 { a = $2 } END { exit !($2 < a) }' loss.csv; ok $? "the loss fell"
    books tokenize:1 train:1 generate:1 eval:1
}

# doctor with a job of its own.
case_doctor() {
    real_programs
    runs 0 "$LF" doctor --launch --partition p0
    like out '^ok +scheduler: .*, the controller answers' "the controller answers"
    like out '^ok +launch: job [0-9]* ran on .* and its file came back' "a job ran and answered"
    like out '^ok +launch: launcher loong works on ' "our launcher works in a job"
    ! srun --mpi=list 2>&1 | grep -q pmix || like out '^ok +launch: launcher srun works on ' "and srun with PMIx in a step"
    runs 1 "$LF" doctor --partition nowhere
    like out '^fail +partition: there is no partition nowhere' "a partition that is not there"
}

begin walltime
begin doctor
begin preempt
begin scancel
begin fail
begin install
begin killed
begin quickstart
gather
finish 146

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Pipelines of an ordinary user on a real SLURM. Under autogen.sh check the SLURM user is somebody else (root). All cases run
# at once on nodes of their own, as most of their time is SLURM's.
. "$LF_SRCDIR/tests/flow/slurm_lib.sh"
slurm_cluster
slurm_site
if [ "$(scontrol show config | sed -n 's/^SlurmUser *= *\([^(]*\).*/\1/p')" = "$(id -un)" ]; then
    echo "ok 1 # SKIP the submitter is the SLURM user here; autogen.sh check as root gives another"
else
    echo "ok 1 - the submitter, $(id -un), is not the SLURM user"
fi
n=1

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
    three p0 "steps = 20
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
    LF=$PWD/inst/loong-flow LOONG_LIBEXEC=$PWD/inst
    export LOONG_LIBEXEC
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

begin fail
begin install
begin killed
gather
finish

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The SLURM that the tests bring up: jobs run, a second slurm-up changes nothing, dead daemons are replaced, slurm-down leaves
# nothing, the machine's own SLURM is not looked at.
. "$LF_SRCDIR/tests/flow/slurm_lib.sh"
up() { LF_SLURM_DIR=$dir LF_SLURM_NODES=2 "$LF_SRCDIR/tests/flow/slurm-up" >up.env 2>up.log; }
down() { LF_SLURM_DIR=$dir "$LF_SRCDIR/tests/flow/slurm-down" >down.log 2>&1; }
daemons() { for f in "$dir"/run/*.pid; do cat "$f"; done | sort -n | tr '\n' ' '; }
# A process that has ended and that nobody has asked about has no command line.
alive() { for p in $1; do [ -z "$(tr -d '\0' 2>/dev/null <"/proc/$p/cmdline")" ] || return 0; done 2>/dev/null; return 1; }

dir=$(mktemp -d "${TMPDIR:-/tmp}/lf-slurm.XXXXXX") || exit 99
echo "$dir" >"$T/cluster"
mkdir "$T/x" && mv "$T/cluster" "$T/x/cluster" # slurm_end finds it there, however this ends
up
rc=$?
if [ $rc -ne 0 ] && grep -q 'resolves no name' up.log; then
    skip_all "$(cat up.log)"
fi
ok $rc "slurm-up brings up two nodes" "$(cat up.log)"
. ./up.env
is "$SLURM_CONF" "$dir/slurm.conf" "it prints the environment"
is "$(sinfo -h -N -o %T -p main | sort -u)" idle "all nodes are idle"
pids=$(daemons)
is "$(echo "$pids" | wc -w | tr -d ' ')" 4 "munged, slurmctld and two slurmds"
srun -N2 --ntasks-per-node=1 sh -c 'echo $SLURMD_NODENAME' >nodes 2>err
is "$(sort nodes | tr '\n' ' ')" "n0 n1 " "a step runs on both nodes"
sbatch --parsable -W -o job.out --wrap 'id -un; exit 3' >/dev/null 2>&1
is $? 3 "a batch job runs and its exit code comes back"
is "$(cat job.out)" "$(id -un)" "as the user who submitted it"
up
is "$? $(daemons)" "0 $pids" "a second slurm-up changes nothing"
like up.log 'already up' "and says so"
kill -9 "$(cat "$dir/run/slurmctld.pid")"
up
is $? 0 "with a dead controller it starts anew"
. ./up.env
is "$(sinfo -h -N -o %T -p main | sort -u)" idle "and the nodes are idle"
alive "$pids"
is $? 1 "nothing of the first is left"
pids=$(daemons)
sbatch -o /dev/null --wrap 'sleep 600' >/dev/null
sbatch -o /dev/null --wrap "echo \$\$ >'$T/task'; sleep 600" >/dev/null
until_true 20 sh -c '[ "$(squeue -h -t R -o %i | wc -l)" -eq 2 ] && [ -s task ]'
task=$(cat task)
kill -9 "$(ps -o ppid= -p "$task" | tr -d ' ')"
down
is "$? $(ls -d "$dir" 2>/dev/null)" "0 " "slurm-down ends it with a running job, and removes its files" "$(cat down.log)"
alive "$pids"
is $? 1 "no daemon is left"
alive "$task"
is $? 1 "nor the task of a job whose slurmstepd was killed"
ps -e -o args | grep -F "$dir" | grep -v grep >left
is "$(cat left)" "" "no process is left"
down
is $? 0 "without a cluster slurm-down has nothing to do"
mkdir "$dir" && touch "$dir/precious"
down
is "$? $(ls "$dir")" "1 precious" "a directory that is not its own is left alone"
up
is $? 1 "slurm-up does not take it either"
rm -r "$dir"

if [ -n "${LF_SLURM_SHARED:-}" ]; then
    slurm_cluster
    user=$(scontrol show config | sed -n 's/^SlurmUser *= *\([^(]*\).*/\1/p')
    [ "$user" != "$(id -un)" ]; ok $? "on the cluster that root started, the SLURM user ($user) is not the submitter"
    sbatch --parsable -W -p p1 -t 2 -o job2.out --wrap 'id -un' >/dev/null 2>&1
    is "$(cat job2.out)" "$(id -un)" "whose jobs run as himself"
else
    skip "" "the submitter is the SLURM user here; autogen.sh check, run by root, gives another"
fi
finish_min 20 # one more on a cluster that root started

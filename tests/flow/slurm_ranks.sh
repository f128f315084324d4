#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ranks on a real SLURM: srun --mpi=pmix where it has that, and our own launcher over two nodes, whose srun then needs no
# PMIx (MpiDefault=none): the same bits, exit codes and names either way.
. "$LF_SRCDIR/tests/flow/slurm_lib.sh"
R=$LF_BUILDDIR/tests/unit/comm_ranks F=$LF_BUILDDIR/tests/unit/comm_faults
need_ranks
slurm_cluster
bits() { sed -n 's/.*bits \([0-9a-f]*\) .*/\1/p' "$1"; }
# job CODE NAME COMMAND: a batch job of four tasks on two nodes that runs it; its output is in out
job() {
    printf '#!/bin/sh\ncd "%s" || exit 99\n%s\n' "$T" "$3" >job.sh
    sbatch --parsable -W -p p45 -N2 --ntasks-per-node=2 --mem=200 --export=NONE --propagate=NONE -o "$T/out" job.sh >id 2>err
    is $? "$1" "exit $1 in a job: $2"
    until_true 10 test -e out # the node may be slower than the answer
}
runs 0 "$LF" launch -n 4 -- "$R" check
bits out >want

export="export ASAN_OPTIONS=$ASAN_OPTIONS UCX_LOG_LEVEL=$UCX_LOG_LEVEL LF_COMM_PATIENCE=20;"
job 0 "four ranks" "$export '$LF' launch -n 4 -- '$R' check || exit; '$LF' launch -n 4 -- '$R' who"
is "$(bits out)" "$(cat want)" "our launcher on two nodes: the bits of one"
like out '^\[0\] rank 0 of 4, local 0 of 2, node 0 of 2, pmix$' "rank 0 is on the first node"
like out '^\[3\] rank 3 of 4, local 1 of 2, node 1 of 2, pmix$' "rank 3 is on the second"
job 75 "ranks that fail and stop" "$export '$LF' launch -n 4 -- '$F' kill 2; echo killed \$?
'$LF' launch -n 4 -- sh -c '[ \$PMIX_RANK != 3 ] || exit 6; sleep 100'; echo failed \$?
'$LF' launch -n 4 -- sh -c 'exit 75'"
like out '^failed 6$' "the exit code of the first rank that fails"
like out 'rank 3 \(host n5, pid [0-9]+\) ended with exit code 6' "which is named with SLURM's name of the node"
like out '^killed 137$' "a rank that was killed"
like out 'rank 2 \(host n5, pid [0-9]+\) died; missing in all_reduce #7, step 3' "is named with the collective it was missing in"

if srun --mpi=list 2>&1 | grep -q pmix; then
    srun --mpi=pmix -p p45 -N2 -n4 --mem=200 --export=ALL -c 1 "$R" check >out 2>err
    is $? 0 "srun --mpi=pmix starts ranks that find each other" "$(head -c 300 err)"
    is "$(bits out)" "$(cat want)" "with the same bits"
    job 0 "a probe" "$export srun --mpi=pmix --export=ALL -n4 -c 1 '$LF' launch --probe --ranks 4"
    like out '^4 ranks found each other$' "the probe of it says so"
    LF_COMM_PATIENCE=20 srun --mpi=pmix -p p45 -N2 -n3 --mem=200 --export=ALL -c 1 --kill-on-bad-exit=0 "$F" loop 1 >out 2>err
    [ $? -ne 0 ]; ok $? "a rank that hangs ends the step"
    like err 'rank 1 .* hangs: computing .*; missing in all_reduce #7, step 3' "by name"
else
    skip "srun --mpi=pmix" "this SLURM has no pmix"
fi
srun --mpi=none -p p45 -N2 -n2 --mem=200 --export=ALL "$R" who >out 2>err
[ $? -ne 0 ]; ok $? "several processes without PMIx are refused"
like err 'srun started 2 processes without PMIx' "with what to do instead"
srun --mpi=none -p p45 -N1 -n1 --mem=200 --export=ALL "$R" who >out 2>err
is "$(cat out)" "rank 0 of 1, local 0 of 1, node 0 of 1, single" "one process is alone"
finish 19

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ranks under our own launcher (one node, simulated nodes, ssh, pbsdsh and srun by stand-ins) and under others where they
# exist: start-up, collectives with the same bits everywhere, output, exit codes, signals, nothing left behind.
. "$LF_SRCDIR/tests/flow/lib.sh"
. "$LF_SRCDIR/tests/flow/launches.sh"
F=$LF_BUILDDIR/tests/unit/comm_faults

if ! "$LF" launch -n 1 -- true 2>err && grep -q 'without-pmix' err; then
    runs 1 "$LF" launch -n 2 -- true
    like err 'without-pmix' "without PMIx in the build the launcher says so"
    finish 2
fi
if ! "$LF" launch -n 2 -- "$R" who >out 2>err && grep -q 'without-ucx' err; then
    ok 0 "without UCX in the build two ranks are refused, and told so"
    finish 1
fi
bits() { sed -n 's/.*bits \([0-9a-f]*\) .*/\1/p' "$1"; }

# ---- collectives ----
for r in 1 2 3 4; do
    runs 0 "$LF" launch -n $r -- "$R" check
    bits out >bits.$r
    [ -s bits.$r ]; ok $? "$r ranks: every result has the bits of the definition"
done
runs 0 "$LF" launch -n 3 --nodes 2 --start local -- "$R" check
is "$(bits out)" "$(cat bits.3)" "3 ranks on 2 nodes: the same bits"
runs 0 "$LF" launch -n 4 --nodes 2 --start local -- "$R" check
is "$(bits out)" "$(cat bits.4)" "4 ranks on 2 nodes: the same bits"
UCX_TLS=tcp,self runs 0 "$LF" launch -n 3 -- "$R" check
is "$(bits out)" "$(cat bits.3)" "over TCP: the same bits"
LF_TEST_JITTER=1 runs 0 "$LF" launch -n 4 -- "$R" check
is "$(bits out)" "$(cat bits.4)" "ranks that come at odd times: the same bits"
free_kb=$(sed -n 's/^MemAvailable: *\([0-9]*\).*/\1/p' /proc/meminfo)
if [ "${free_kb:-0}" -gt 12000000 ] && [ -n "${LF_TEST_BIG:-}" ]; then
    runs 0 "$LF" launch -n 2 -- "$R" big
else
    skip "more than 2 GiB in one call" "set LF_TEST_BIG=1 on a machine with 12 GB free"
fi
runs 0 env LF_COMM=self "$LF" launch -n 1 -- "$R" check
runs 12 env LF_COMM=self "$LF" launch -n 2 -- "$R" check
like err 'transport self is for one rank' "a transport that does not fit is refused"
runs 12 env LF_COMM=magic "$LF" launch -n 2 -- "$R" check
like err 'no transport "magic"' "an unknown transport is refused"

# ---- who they are ----
runs 0 "$LF" launch -n 3 --nodes 2 --start local -- "$R" who
like out '^\[0\] rank 0 of 3, local 0 of 1, node 0 of 2, pmix$' "rank 0 is alone on node 0"
like out '^\[2\] rank 2 of 3, local 1 of 2, node 1 of 2, pmix$' "rank 2 is the second on node 1"
runs 0 "$R" who
like out '^rank 0 of 1, local 0 of 1, node 0 of 1, single$' "without a launcher a process is alone"

# ---- output, exit codes, environment ----
runs 0 "$LF" launch -n 2 -- sh -c 'echo out; echo oops >&2; printf tail'
is "$(sort out | tr '\n' '~')" '[0] out~[0] tail~[1] out~[1] tail~' "lines are tagged with the rank, the last one too"
is "$(sort err | tr '\n' '~')" '[0] oops~[1] oops~' "standard error stays apart"
runs 0 "$LF" launch -n 1 --raw -- sh -c 'i=0; while [ $i -lt 20000 ]; do echo "line $i of a rank that prints much"; i=$((i+1)); done'
is "$(cksum <out)" "$(i=0; while [ $i -lt 20000 ]; do echo "line $i of a rank that prints much"; i=$((i + 1)); done | cksum)" \
    "much output arrives whole"
runs 0 env -u OMP_NUM_THREADS "$LF" launch -n 2 --cpus 3 -- sh -c 'echo "$OMP_NUM_THREADS"'
like out '^\[1\] 3$' "--cpus is OMP_NUM_THREADS"
runs 0 env OMP_NUM_THREADS=7 "$LF" launch -n 2 --cpus 3 -- sh -c 'echo "$OMP_NUM_THREADS"'
like out '^\[1\] 7$' "but what is set stays"
runs 0 env PMIX_NAMESPACE=old PMIX_RANK=9 "$LF" launch -n 2 -- "$R" who
like out 'rank 1 of 2' "another launcher's variables do not leak in"
if [ "$(env -u OMP_NUM_THREADS nproc)" -ge 2 ]; then # nproc tells OMP_NUM_THREADS where that is set
    runs 0 "$LF" launch -n 2 --cpu-bind --cpus 1 -- sh -c 'grep Cpus_allowed_list /proc/self/status'
    is "$(sed 's/^.*:[[:space:]]*//' out | sort -u | wc -l)" 2 "--cpu-bind gives each rank its own processor"
else
    skip "--cpu-bind gives each rank its own processor" "there is one processor"
fi
runs 5 "$LF" launch -n 3 -- sh -c '[ "$PMIX_RANK" != 1 ] || exit 5; sleep 100'
like err 'rank 1 \(host .*, pid [0-9]+\) ended with exit code 5' "the first rank that fails is named, the others are ended"
runs 137 "$LF" launch -n 2 -- sh -c '[ "$PMIX_RANK" != 1 ] || kill -9 $$; sleep 100'
like err 'rank 1 .*signal 9' "a signal is 128 + n"
runs 75 "$LF" launch -n 2 -- sh -c '[ "$PMIX_RANK" = 1 ] || { sleep 1; echo saved; }; exit 75'
like out '^\[0\] saved$' "who ended with 75 does not end those that still save"
runs 1 "$LF" launch -n 2 -- sh -c '[ "$PMIX_RANK" = 1 ] && exit 75; sleep 0.3; exit 1'
runs 7 "$LF" launch -n 3 -- "$R" abort
like err 'rank 1 \(host .*, pid [0-9]+\) aborts the job \(7\): enough of this' "an abort ends all with its code and its text"
runs 127 "$LF" launch -n 2 -- "$T/no-such-program"
like err 'cannot execute' "a program that does not exist is said to"
runs 2 "$LF" launch -n 2
runs 2 "$LF" launch -- true
runs 2 "$LF" launch -n 2 --hosts a:1 -- true
runs 2 "$LF" launch --hosts a:x -- true
runs 2 "$LF" launch --hosts -oProxyCommand=x:1 -- true
runs 2 "$LF" launch -n 4 --nodes 2 -- true
like err 'name them with --hosts' "nodes without a scheduler need names"

# ---- signals ----
for s in TERM USR2 INT; do
    "$LF" launch -n 2 --nodes 2 --start local -- "$F" steps >out.$s 2>err.$s &
    p=$!
    BG="$BG $p"
    until_true 60 sh -c "[ \$(grep -c 'at work' out.$s) -eq 2 ]"
    kill -$s $p
    wait $p
    is $? 75 "SIG$s reaches the ranks of both nodes"
    is "$(sed -n 's/^\[[01]\] stopped at step //p' out.$s | sort -u | wc -l)" 1 "and they stop at the same step"
done

# ---- nothing is left behind ----
"$LF" launch -n 3 --nodes 2 --start local -- sh -c "sleep 300 & echo \$! >>$T/pids; echo \$\$ >>$T/pids; wait" 2>err &
p=$!
BG="$BG $p"
until_true 20 sh -c "[ \$(wc -l <$T/pids) -eq 6 ]"
kill -9 $p
wait $p 2>/dev/null
none_alive() { for q in $(cat "$T/pids"); do ! kill -0 "$q" 2>/dev/null || return 1; done; }
until_true 20 none_alive
ok $? "a launcher that is killed takes ranks and their children with it"
until_true 10 sh -c "[ -z \"\$(ls $TMPDIR)\" ]"
ok $? "no temporary directory is left" "$(ls "$TMPDIR")"
rm "$T/pids"
"$LF" launch -n 2 -- sh -c "echo \$PPID >$T/daemon; sleep 300 & echo \$! >>$T/pids; echo \$\$ >>$T/pids; wait" 2>err &
p=$!
BG="$BG $p"
until_true 20 sh -c "[ \$(cat $T/pids 2>/dev/null | wc -l) -eq 4 ]"
kill -9 "$(cat "$T/daemon")"
wait $p
is $? 1 "a daemon that is killed ends the job"
like err 'the daemon of node 0 .* is gone' "and is named"
until_true 20 none_alive
ok $? "neither its ranks nor their children live on"
until_true 10 sh -c "[ -z \"\$(ls $TMPDIR)\" ]"
ok $? "its temporary directory is removed" "$(ls "$TMPDIR")"

# ---- hosts by ssh, pbsdsh, srun: stand-ins that check how they are called ----
mkdir bin
cat >bin/ssh <<'END'
#!/bin/sh
[ "$1 $2 $3 $4 $5" = "-o BatchMode=yes -o ConnectTimeout=30 --" ] 2>/dev/null || { [ "$5" = -- ] || exit 98; }
[ "$1$2" = -oBatchMode=yes ] || exit 97
echo "$6" >>"$SSH_HOSTS"
shift 6
# As sshd does: a shell, a bare environment, the home directory.
exec env -i PATH=/usr/bin:/bin HOME="$HOME" TMPDIR="$TMPDIR" sh -c "cd / && $*"
END
cat >bin/pbsdsh <<'END'
#!/bin/sh
[ "$1" = -n ] && [ "$3" = -- ] || exit 98
echo "$2" >>"$SSH_HOSTS"
shift 3
case "$*" in *"$KEY_HINT"*) exit 96 ;; esac
cd / && exec env -i PATH=/usr/bin:/bin HOME="$HOME" TMPDIR="$TMPDIR" "$@"
END
cat >bin/srun <<'END'
#!/bin/sh
# A step on two nodes n0, n1: only what the launcher may ask for.
n=
while [ $# -gt 0 ]; do
    case $1 in
    --mpi=none | --export=ALL | --nodes=2 | --ntasks-per-node=1 | --kill-on-bad-exit=0) ;;
    --ntasks=2) n=2 ;;
    -c) [ "$2" = 2 ] || exit 1; shift ;;
    -*) echo "srun: unrecognized option '$1'" >&2; exit 1 ;;
    *) break ;;
    esac
    shift
done
[ "$n" = 2 ] || exit 1
for i in 1 0; do SLURM_NODEID=$i SLURMD_NODENAME=n$i "$@" & done
wait
END
chmod +x bin/*
export SSH_HOSTS="$T/ssh-hosts" KEY_HINT=key
runs 0 env PATH="$T/bin:$PATH" "$LF" launch --hosts alpha:1,beta:2 -- "$R" check
is "$(bits out)" "$(cat bits.3)" "3 ranks on 2 hosts by ssh: the same bits"
is "$(sort "$SSH_HOSTS" | tr '\n' ' ')" "alpha beta " "ssh was asked for both"
runs 0 env PATH="$T/bin:$PATH" "$LF" launch --hosts alpha:1,beta,alpha:1,beta -- "$R" who
like out '^\[1\] rank 1 of 4, local 1 of 2, node 0 of 2' "a host that is named twice is one node"
runs 0 env PATH="$T/bin:$PATH" MARK='a "b" $c' "$LF" launch --hosts alpha,beta -- sh -c 'pwd; echo "$MARK"'
like out "^\[1\] $T\$" "ranks work in the launcher's directory"
like out '^\[0\] a "b" \$c$' "with its environment"
printf 'h1\nh1\nh2\nh2\n' >nodefile
: >"$SSH_HOSTS"
runs 0 env PATH="$T/bin:$PATH" PBS_NODEFILE="$T/nodefile" PBS_JOBID=7 "$LF" launch -n 4 -- "$R" check
is "$(bits out)" "$(cat bits.4)" "4 ranks on the 2 hosts of a PBS job: the same bits"
is "$(sort "$SSH_HOSTS" | tr '\n' ' ')" "0 2 " "one daemon on the first slot of each host"
[ -z "$(ls -A | grep loong-launch)" ]; ok $? "the key's file is removed"
printf 'h1\nh1\nh1\nh2\n' >nodefile
runs 0 env PATH="$T/bin:$PATH" PBS_NODEFILE="$T/nodefile" PBS_JOBID=7 "$LF" launch -n 4 -- "$R" who
like out '^\[2\] rank 2 of 4, local 0 of 2, node 1 of 2' "chunks of three slots and one: each host has as many ranks"
runs 0 env PATH="$T/bin:$PATH" SLURM_JOB_ID=7 SLURM_JOB_NUM_NODES=2 SLURM_JOB_CPUS_PER_NODE='3,2(x2)' "$LF" launch -n 4 -- "$R" who
like out '^\[3\] rank 3 of 4, local 1 of 2, node 1 of 2' "ranks follow SLURM's node numbers, whoever comes first"
printf '#!/bin/sh\nexit 9\n' >bin/ssh
runs 1 env PATH="$T/bin:$PATH" "$LF" launch --hosts alpha:1,beta:2 -- true
like err 'starting the daemons failed' "a host that cannot be reached ends the launch"

# ---- other launchers ----
# Their own needs (a network interface that they like, a name for this machine) are not what is tested.
root=
[ "$(id -u)" -ne 0 ] || root=--allow-run-as-root
for l in mpirun prterun; do
    case $l in
    mpirun) set -- mpirun $root -np 3 --oversubscribe ;;
    *) set -- prterun $root -n 3 --map-by :OVERSUBSCRIBE ;;
    esac
    if command -v $l >/dev/null && timeout 300 "$@" true >/dev/null 2>&1; then
        runs 0 "$@" "$R" check
        is "$(bits out)" "$(cat bits.3)" "3 ranks under $l: the same bits"
    else
        skip "3 ranks under $l" "no $l that starts three processes here"
    fi
done

# MPI's own sum of the same numbers.
set -- mpirun $root -np 3 --oversubscribe
if command -v mpicc >/dev/null && timeout 300 "$@" true >/dev/null 2>&1 &&
    mpicc -O1 -o comm_mpi "$LF_SRCDIR/tests/bench/comm_mpi.c" -lm; then
    mkdir dump
    runs 0 "$LF" launch -n 3 -- "$R" dump "$T/dump"
    runs 0 "$@" ./comm_mpi ref "$T/dump"
    like out '^300000 elements, 0 wrong$' "MPI_Allreduce in f64 agrees with our f32 sums"
    printf '\000\000\000\000' | dd of=dump/sum bs=4 seek=7 conv=notrunc 2>/dev/null
    runs 1 "$@" ./comm_mpi ref "$T/dump"
else
    skip "MPI_Allreduce agrees with our sums" "no mpicc and mpirun that work here"
fi

# ---- again and again; more of it is in `make check-long` ----
launches 12
is $failed 0 "12 launches, none failed"
[ -z "$(ls "$TMPDIR")" ]; ok $? "and nothing is left of them"
finish_min 91 # fewer without mpirun, prterun, mpicc or a second processor

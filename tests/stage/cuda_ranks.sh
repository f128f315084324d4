#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Two ranks with an emulated GPU each and an emulated NCCL between them: the losses of two ranks on the CPU, the weights of one rank,
# the same bits every time, also with the optimizer's state in the host's memory, one wait in a step; kills, stops, a rank that dies and a collective that fails.
. "$LF_SRCDIR/tests/stage/lib.sh"
pretrain=$LF_BUILDDIR/stages/lf-pretrain
with_ranks
emulated_gpu
emulated_nccl

close() { # close A B WEIGHTS MOMENTS: final checkpoints, |a - b| / |b| of the tensor that is furthest apart
    "$tool" distance "$dir/$1/out/checkpoint" "$dir/$2/out/checkpoint" >"$dir/apart" 2>"$dir/err" || return 2
    awk -v w="$3" -v m="$4" '{ exit !(NF == 6 && $2 > 0 && $2 < w && $4 < m && $6 < m) }' "$dir/apart"
}
run() { train "$launch 2 -- $pretrain" "$dir/run.ini" "$@"; } # run NAME ARGS...: on two ranks

pids() { ps -eo pid,args | awk -v d="$dir/$1/out" '/lf-[a-z]* / && index($0, d) && !/awk/ && !/launch/ { print $1 }'; }

need_ranks
"$tool" data "$dir/data" 60 40 || bail "no test data"
cat >"$dir/run.ini" <<END
[stage]
data = $dir/data
device = cuda
steps = 6
seq_length = 16
batch = 4
micro_batch = 1
valid_interval = 0
valid_tokens = 32
save_interval = 3
save_time = 0
lr = 5e-3
warmup = 1
seed = 5
threads = 1
[model]
family = llama3
layers = 1
hidden = 16
heads = 1
kv_heads = 1
ffn = 32
vocab = 64
max_positions = 16
END

run gpu
is $rc 0 "two ranks on emulated GPUs"
run cpu --device cpu
is $rc 0 "and on CPUs"
near_losses gpu cpu 1e-5 6
ok $? "the same losses: $(losses gpu | tr '\n' ' ')"
LF_EMU_ORDER=7 run again
is "$(id again) $(metrics again)" "$(id gpu) $(metrics gpu)" "the same bits in another order"
LF_COMM=ucx run host
is "$(id host) $(metrics host)" "$(id gpu) $(metrics gpu)" "and with sums through host memory, which wait"
LF_EMU_ORDER=7 run zero --zero 1
is "$rc $(id zero) $(metrics zero)" "0 $(id gpu) $(metrics gpu)" "and with the optimizer's state in parts"
LF_COMM=ucx run zero_host --zero 1 --optimizer-offload 1
is "$rc $(id zero_host)" "0 $(id gpu)" "parts in the host's memory, exchanged through it"
"$pretrain" --config "$dir/run.ini" --out "$dir/one/out" --metrics "$dir/one/metrics" --steps 6 2>"$dir/err" || mkdir -p "$dir/one"
near_losses one gpu 1e-5 6
ok $? "one rank: the losses of two"
close one gpu 1e-6 1e-5
ok $? "and the weights: $(cat "$dir/apart")"
run less --steps 5
close less gpu 1e-6 1e-5
[ $? -eq 1 ]
ok $? "(a step less is found: $(cat "$dir/apart"))"
run big --clip 0 --loss-scale 0 --loss-scale-start 8.51e37 --loss-scale-window 2
is $rc 0 "steps that overflow are made again on both"
run plain --clip 0
is "$(losses big)" "$(losses plain)" "and nothing is lost"

# masters and moments in the host's memory
state="--precision bf16 --moments bf16"
# shellcheck disable=SC2086
run here $state
# shellcheck disable=SC2086
run there $state --optimizer-offload 1
is $rc 0 "two ranks with the optimizer's state in the host's memory"
says "of it offloaded masters and moments" "say so"
is "$(id there) $(metrics there)" "$(id here) $(metrics here)" "and end with the bits of two without"
mkdir -p "$dir/some/out/checkpoints"
cp -R "$dir/there/out/checkpoints/step-00000003" "$dir/some/out/checkpoints/"
# shellcheck disable=SC2086
run rest $state --optimizer-offload 0.5 --resume-from "$dir/some/out"
says "continuing bitwise" "another share goes on, bitwise"
is "$(id rest)" "$(id here)" "to the same weights and moments"

# held NAME: two ranks in the background, the first of which waits (SIGSTOP) behind its first checkpoint; $pid is the launcher's.
# Under sanitizers, which keep fail.so out, they go on.
held() {
    mkdir -p "$dir/$1"
    _held=$dir/$1.held
    [ -n "$FAIL" ] || _held=$dir/$1/out/checkpoints/step-00000003
    LF_COMM_PATIENCE=600 LD_PRELOAD=$FAIL LF_FAIL_ROOT=$dir LF_FAIL_PROGRAM=lf-pretrain LF_FAIL_ACTION=stop LF_FAIL_AFTER=4 \
        LF_FAIL_MATCH="pwrite */$1/metrics" LF_FAIL_ONCE=$dir/$1.held \
        $launch 2 -- "$pretrain" --config "$dir/run.ini" --out "$dir/$1/out" --metrics "$dir/$1/metrics" 2>"$dir/err" &
    pid=$!
    until [ -e "$_held" ] || ! kill -0 $pid; do sleep 0.01; done 2>/dev/null
    [ -z "$FAIL" ] || until still "$1" || ! kill -0 $pid; do sleep 0.01; done 2>/dev/null
}
# still NAME: $rank is the one that stands; its file of $dir/NAME.held is older than its SIGSTOP
still() { for rank in $(pids "$1"); do stopped "$rank" && return 0; done; return 1; }
# shellcheck disable=SC2046
wake() { kill -CONT $(pids "$1") 2>/dev/null; }

held stop
kill -TERM $pid
# The launcher has told the one that is held: SIGTERM (bit 14) waits for it.
told() { grep -q '^ShdPnd:[[:space:]]*[0-9a-f]*[4-7c-f][0-9a-f]\{3\}$' "/proc/$rank/status"; }
until [ -z "$FAIL" ] || told || ! kill -0 $pid; do sleep 0.01; done 2>/dev/null
wake stop
wait $pid
is $? 75 "SIGTERM in the middle: 75"
run stop
is "$(id stop) $(metrics stop)" "$(id gpu) $(metrics gpu)" "and on to the same bits"

FAKE_NCCL_FAIL=10:1 run refused
is $rc 1 "a collective that fails on one rank ends both with 1"
says_like "NCCL: all_reduce on rank 1.*internal error" "and is named"
run refused
is "$(id refused)" "$(id gpu)" "which a new start makes good"

held dead
kill -9 "$(pids dead | tail -n 1)"
wake dead
wait $pid
[ $? -ne 0 ]
ok $? "a rank that dies ends the job"
run dead
is "$(id dead) $(metrics dead)" "$(id gpu) $(metrics gpu)" "which goes on to the same bits"
LF_NCCL_LIB=$dir/nowhere.so run none
is $rc 1 "without NCCL several GPUs are refused"
says "LF_COMM=ucx does without" "with what to do"
finish 26

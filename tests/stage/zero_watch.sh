#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A rank that is stopped in its forward pass, stopped in its backward pass (with zero = 2 and 3 between two sums), or killed where it
# gives others its part of the weights, with each stage of ZeRO: one line names the rank, its micro-batch and the collective in which it
# is missing; all processes end; the next start goes on to the bits of an undisturbed run. A rank that takes many times longer than the
# others is no hang. WATCH_S bounds the seconds from the fault to the end; without it they are only told.
. "$LF_SRCDIR/tests/stage/lib.sh"
pretrain=$LF_BUILDDIR/stages/lf-pretrain
with_ranks
need_ranks
[ -n "$FAIL" ] || skip_all "$no_fail"
hurt=$LF_BUILDDIR/tests/fault/ranks.so
LF_COMM_PATIENCE=${LF_TEST_PATIENCE:-20}
export LF_COMM_PATIENCE

"$tool" data "$dir/data" 60 0 || bail "no test data"
cat >"$dir/run.ini" <<END
[stage]
data = $dir/data
steps = 4
seq_length = 16
batch = 6
micro_batch = 1
lr = 5e-3
warmup = 1
save_interval = 2
save_time = 0
seed = 5
mfu = no
threads = 1
[model]
family = llama3
layers = 3
hidden = 64
heads = 2
kv_heads = 1
ffn = 96
vocab = 512
max_positions = 16
END
run() { # run ZERO NAME
    mkdir -p "$dir/$2"
    $launch 3 -- "$pretrain" --config "$dir/run.ini" --out "$dir/$2/out" --metrics "$dir/$2/metrics" --zero "$1" >"$dir/$2/stdout" 2>"$dir/$2/err"
}
# start ZERO NAME DO AT NTH SEND KIND: rank 1 of three, in the background
start() {
    mkdir -p "$dir/$2"
    (
        LD_PRELOAD=$hurt NVTX_INJECTION64_PATH=$hurt LF_HURT_RANK=1 LF_HURT_DO=$3 LF_HURT_AT=$4 LF_HURT_NTH=$5 LF_HURT_SEND=$6 LF_HURT_KIND=$7 \
            LF_HURT_MARK=$dir/$2/mark
        export LD_PRELOAD NVTX_INJECTION64_PATH LF_HURT_RANK LF_HURT_DO LF_HURT_AT LF_HURT_NTH LF_HURT_SEND LF_HURT_KIND LF_HURT_MARK
        run "$1" "$2"
        echo $? >"$dir/$2/code.part"
        mv "$dir/$2/code.part" "$dir/$2/code"
    ) &
}
left() { ps -eo args | awk -v d="$dir/$1/out" '/lf-pretrain/ && index($0, d) && !/awk/ { n++ } END { print n + 0 }'; }
# ended NAME CODE WHAT: with that code, and nothing is left
ended() {
    tries=0
    until [ -e "$dir/$1/code" ] || [ $tries -ge 6000 ]; do sleep 0.1; tries=$((tries + 1)); done
    _s=$(($(stat -c %Y "$dir/$1/code") - $(stat -c %Y "$dir/$1/mark")))
    _most=${WATCH_S:-$_s}
    [ "$2" -ne 0 ] || _most=$_s
    is "$(cat "$dir/$1/code") $(left "$1") $((_s <= _most))" "$2 0 1" "$1: exit code $2 and no process is left, $_s s after $3" \
        "$(tail -n 3 "$dir/$1/err")"
}
line() { # line NAME PATTERN: one line of the watchdog, which says so; the launcher may repeat it
    _said=$(grep '^\[[02]\] rank 1 (host .*; missing in ' "$dir/$1/err")
    is "$(echo "$_said" | grep -cE "rank 1 \(host [^,]+, pid [0-9]+\) $2") $(echo "$_said" | wc -l | tr -d ' ')" "1 1" "$1: one line names it" "$_said"
}
again() { # again ZERO NAME
    run "$1" "$2"
    is "$? $(id "$2") $(metrics "$2" | cksum)" "0 $want" "$2: the next start goes on to the bits of an undisturbed run"
}

# Each rank has two micro-batches a step: passes 5 and 6 are those of step 3.
slow_ms=$((LF_COMM_PATIENCE * 700))
for z in 1 2 3; do
    start $z "forward$z" stop "train forward" 6 0 0
    start $z "backward$z" stop "train backward" 6 $((z > 1 ? 3 : 0)) 1
    start $z "gather$z" kill "$([ $z = 3 ] && echo "train forward" || echo optimizer)" $((z == 3 ? 6 : 3)) 1 3
    start $z "slow$z" $slow_ms "train forward" 7 0 0
done
stopped='has not been heard of for [0-9]+ s \(stopped, or its node is\); missing in'
for z in 1 2 3; do
    run $z "whole$z" || bail "$(cat "$dir/whole$z/err")"
    want="$(id "whole$z") $(metrics "whole$z" | cksum)"
    # With zero = 1 and 2 nothing is exchanged in a forward pass: the others wait where the step needs all.
    ended "forward$z" 70 "the stop"
    line "forward$z" "$stopped (all|reduce)_[a-z]+ #[0-9]+, step 3.*it was (after|in) .*, step 3, micro-batch 2 forward"
    ended "backward$z" 70 "the stop"
    line "backward$z" "$stopped (all|reduce)_[a-z]+ #[0-9]+, step 3.*it was (after|in) .*, step 3, micro-batch 2 backward"
    ended "gather$z" 137 "the kill"
    line "gather$z" "died; missing in all_gather #[0-9]+, step 3$([ $z = 3 ] && echo ", micro-batch 2 forward"), where rank [02] and 1 more wait"
    ended "slow$z" 0 "the first of two passes of $slow_ms ms in a step, while others wait"
    is "$(id "slow$z") $(metrics "slow$z" | cksum)" "$want" "which have the same bits"
    for name in forward backward gather; do again $z $name$z; done
done
finish 33

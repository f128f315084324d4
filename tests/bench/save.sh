#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# How long checkpoints hold training up: lf-pretrain on two ranks with zero = 0, 1 and 3, a Llama-like model of 26M parameters in f32 (some
# 310 MB in a checkpoint), one thread a rank, 512 tokens a step, SAVES (3) checkpoints, one every INTERVAL (10) steps. What a checkpoint
# costs does not depend on the interval, so the mean is shown as a share of 100 steps: agreement, comparing replicas, the snapshot (the
# first one also finds its memory), waiting for the save before. Then the load. Run in the build directory after
# `make all tests/stage/train_tool`.
src=${LF_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)} interval=${INTERVAL:-10} saves=${SAVES:-3}
. "$src/tests/bench/ranks.sh"
"$tool" data "$tmp/data" 4000 0 || exit 1
cat >"$tmp/run.ini" <<END
[stage]
data = $tmp/data
steps = $((interval * saves + 2))
seq_length = 128
batch = 4
micro_batch = 2
lr = 1e-3
warmup = 1
save_interval = $interval
save_time = 0
keep = 1
log_interval = 1000
threads = 1
mfu = no
[model]
family = llama3
layers = 6
hidden = 512
heads = 8
kv_heads = 8
ffn = 1376
vocab = 8192
max_positions = 128
END
machine
for zero in 0 1 3; do
    rm -rf "$tmp/out"
    "$build/loong-flow" launch -n 2 -- "$build/stages/lf-pretrain" --config "$tmp/run.ini" --zero $zero --out "$tmp/out" >"$tmp/log" 2>&1 ||
        { cat "$tmp/log" >&2; exit 1; }
    sed -n 's/.*lf-pretrain: \(.*\) checkpoints held training up for \(.*\) s of \(.*\) s (.*/\1 \2 \3/p' "$tmp/log" | awk -v zero=$zero -v steps=$((interval * saves + 2)) \
        '{ save = $2 / $1; all = ($3 - $2) / steps * 100
           printf "  zero = %d: a checkpoint holds training up for %.2f s, 100 steps take %.1f s: %.2f %%\n", zero, save, all, 100 * save / all }'
    sed -n 's/.*lf-pretrain: \(saved .*\)/      \1/p' "$tmp/log"
    echo "      load $(load)"
done

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Run every libFuzzer target of the current build directory, or those named in $2, for $1 seconds each (default 600); stops at the first
# finding.
set -eu
src=$(cd "$(dirname "$0")" && pwd)
LF_SRCDIR=${LF_SRCDIR:-$src/../..} # what some targets read
export LF_SRCDIR
for t in ${2:-ini number event config tokenizer spm tokforms shard ckpt megatron safetensors torch pickle jinja rows parquet media processor}; do
    work=fuzz-work/$t
    mkdir -p "$work" "fuzz-work/seeds-$t"
    seeds=$src/corpus/$t
    [ "$t" != torch ] || seeds=$src/../golden/store/torch
    [ "$t" != safetensors ] || seeds=$src/../golden/store/safetensors
    [ "$t" != media ] || seeds=$src/../golden/media/images
    [ -d "$seeds" ] || seeds=fuzz-work/seeds-$t
    echo "== $t"
    ./tests/fuzz/fuzz_$t -max_total_time="${1:-600}" -max_len=65536 -rss_limit_mb=4096 -timeout=20 -print_final_stats=1 \
        -artifact_prefix="$work/" "$work" "$seeds" 2>&1 | grep -vE '^#|NEW|REDUCE|pulse' | tail -n 12
done

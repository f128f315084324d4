#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Pictures beside transformers with PyTorch, with PYTHON naming a python that has torch, torchvision, transformers and tokenizers:
#   64 JPEGs of 1024 x 768 from files to rows of floats on one thread, and without decoding, by both backends of transformers' CLIPImageProcessor;
#   a step of a LLaVA of 62M parameters (4 pictures of 256 patches, f32, AdamW) on all cores.
# ROUNDS (3) rounds in which everything has its turn; medians. Run in the build directory after `make all tests/bench/pictures_bench
# tests/stage/train_tool`. Nothing fails by a number.
src=${LF_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)} rounds=${ROUNDS:-3}
: "${PYTHON:?names no python}"
. "$src/tests/bench/ranks.sh"
unset OMP_NUM_THREADS
number() { sed -n "s/.*\"$1\": *\([0-9.e-]*\).*/\1/p"; }
peer() { "$PYTHON" "$src/tests/bench/pictures_peer.py" "$@" 2>"$tmp/err" || { cat "$tmp/err" >&2; exit 1; }; }

peer make "$tmp/model" >"$tmp/made"
"$build/stages/lf-convert" --from "$tmp/model" --out "$tmp/ck" --verify none >"$tmp/log" 2>&1 &&
    "$build/stages/lf-tokenize" --tokenizer "$tmp/model" --processor "$tmp/model" --shape auto --media-dir "$tmp/model" --valid-fraction 0 \
        --out "$tmp/tok" "$tmp/model/rows.json" >"$tmp/log" 2>&1 || { cat "$tmp/log" >&2; exit 1; }
round() {
    "$build/tests/bench/pictures_bench" "$tmp/model" "$tmp"/model/*.jpg >"$tmp/ours" || exit 1
    for what in files pixels; do sed -n "s/^$what //p" "$tmp/ours" >>"$tmp/time.$what"; done
    for b in torchvision pil; do
        peer prepare "$tmp/model" $b | number files >>"$tmp/time.files-$b"
        peer prepare "$tmp/model" $b decoded | number files >>"$tmp/time.pixels-$b"
    done
    rm -rf "$tmp/sft" "$tmp/lines"
    "$build/stages/lf-sft" --init-from "$tmp/ck/checkpoint" --data "$tmp/tok/shards" --seq-length 336 --batch 4 --micro-batch 4 --max-patches 1024 \
        --steps 5 --lr 1e-4 --warmup 0 --precision f32 --save-interval 0 --no-mfu --metrics-jsonl "$tmp/lines" --out "$tmp/sft" >"$tmp/log" 2>&1 ||
        { cat "$tmp/log" >&2; exit 1; }
    number step_s <"$tmp/lines" | tail -n +2 | median >>"$tmp/time.step"
    peer step "$tmp/model" 5 | number seconds >>"$tmp/time.step-peer"
}
machine
i=0
while [ $i -lt "$rounds" ]; do
    round
    i=$((i + 1))
    echo "round $i: load $(load)"
done
# line NAME PEER WORDS
line() {
    awk -v a="$(median <"$tmp/time.$1")" -v b="$(median <"$tmp/time.$2")" -v w="$3" 'BEGIN { printf "  %-46s %.3f s against %.3f s: %.2f\n", w, a, b, b / a }'
}
line files files-pil "files to floats, against Pillow"
line files files-torchvision "files to floats, against torchvision"
line pixels pixels-pil "without decoding, against Pillow"
line pixels pixels-torchvision "without decoding, against torchvision"
line step step-peer "a step of training, against PyTorch"

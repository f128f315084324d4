#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Training steps of the encoders and encoder-decoder that LiBai's users train: BERT-base (8 x 128 tokens, 15 % of them said), T5-small (4 x 512
# tokens to 114) and ViT-B/16 (8 pictures), f32 and bf16, ours beside transformers on PyTorch (sdpa, the best of eager and compiled, plain and
# tuned malloc), step by step in turn. Both sides without dropout.
#
# usage: libai.sh BUILD [WORD...]     after make tests/bench/model_bench; words choose rows: bert, t5, vit, f32, bf16
# LF_BENCH_ROUNDS (9), LF_BENCH_THREADS (2), LF_BENCH_ISA and more as turns.py has them; PYTHON has torch and transformers.
set -u
here=$(cd "$(dirname "$0")" && pwd)
[ $# -ge 1 ] && [ -x "$1/tests/bench/model_bench" ] || { sed -n '7,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
build=$1
shift
exec "${PYTHON:-python3}" "$here/turns.py" "$build/tests/bench/model_bench" "$here/../../models" libai "$@"

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ranks with different layers on emulated GPUs: every schedule has the losses of one GPU and the bits of the first schedule, also with several chunks,
# ranks that share the batch and state, tied weights and experts; resumed on one GPU.
. "$LF_SRCDIR/tests/stage/lib.sh"
. "$LF_SRCDIR/tests/stage/layout_lib.sh"
with_ranks
emulated_gpu
emulated_nccl
need_ranks

"$tool" data "$dir/data" 60 40 || bail "no test data"
shape="layers=4 heads=1 vocab=64 max_positions=16"
more="clip = 0"
small llama3 "kv_heads = 1"
trial "gpus" pretrain bits "2:pipeline=2 2:pipeline=2+pipeline-schedule=gpipe 2:pipeline=2+pipeline-schedule=zb-h1 2:pipeline=2+pipeline-chunks=2 \
    2:pipeline=2+pipeline-stages=3,1"
base=2:zero=0
trial "data" pretrain bits "4:pipeline=2 4:pipeline=2+zero=1"
base=
small gpt2
trial "tied weights" pretrain 1e-5 "2:pipeline=2"
small qwen2-moe "kv_heads = 1" "experts = 4" "experts_per_token = 2" "expert_ffn = 16" "shared_ffn = 16" "router_aux = 0.01"
trial "experts" pretrain 1e-5 "2:pipeline=2"
small llama3 "kv_heads = 1"
go "gpus.2:pipeline=2+pipeline-chunks=2" 1 again
is "$rc $(id again)" "0 $(id gpus.one)" "one GPU goes on from its checkpoint to the same bits"
finish 10

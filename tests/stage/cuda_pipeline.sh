#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ranks with different layers on emulated GPUs: every schedule has the losses of one GPU and the bits of the first schedule, also with several chunks,
# ranks that share the batch and state, tied weights and experts; in every order in which streams may run, and through memory of the host; what the plan
# says of memory for messages; a message that fails; resumed on one GPU.
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
saves=2
trial "gpus" pretrain bits "2:pipeline=2 2:pipeline=2+pipeline-schedule=gpipe 2:pipeline=2+pipeline-schedule=zb-h1 2:pipeline=2+pipeline-chunks=2 \
    2:pipeline=2+pipeline-schedule=zb-v 2:pipeline=2+pipeline-stages=3,1 3:pipeline=3"
saves=0
for order in 1 7; do
    LF_EMU_ORDER=$order on 2 order$order --pipeline 2 --pipeline-chunks 2
    is "$rc $(id order$order)" "0 $(id gpus.one)" "order $order of the streams: the same bits" "$(tail -n 3 "$dir/err")"
done
LF_COMM=ucx on 2 host --pipeline 2 --pipeline-schedule zb-h1
is "$rc $(id host)" "0 $(id gpus.one)" "and through memory of the host"
bytes() { # bytes KIND ARGS...
    _kind=$1
    shift
    "$stages/lf-pretrain" --config "$dir/run.ini" --plan --ranks 2 --pipeline 2 "$@" | sed -n "s/.*\"$_kind\":\([0-9]*\)[.,}].*/\1/p"
}
# Two channels of 4 x 9,633,792 bytes, which NCCL allocates; buffers for messages are on the GPU, or on the host.
buffers=$(bytes cache)
is "$(bytes communicators) $(($(bytes device) - $(LF_COMM=ucx bytes device) - buffers)) $(($(LF_COMM=ucx bytes host) - $(bytes host) - buffers))" \
    "77070336 77070336 0" "the plan has memory for NCCL's two channels, and $buffers bytes of messages where they are"
[ "$buffers" -gt 0 ]
ok $? "which are some"
FAKE_NCCL_FAIL=4:1 on 2 refused --pipeline 2
is $rc 70 "a message that fails on one GPU ends both at once"
says_like 'NCCL: \(send\|recv\|receive\).* on rank 1.*internal error' "and is named" "$(tail -n 3 "$dir/err")"
base=2:zero=0
trial "data" pretrain bits "4:pipeline=2 4:pipeline=2+zero=1"
base=
CUDA_DEVICE_MAX_CONNECTIONS=1 on 2 narrow --pipeline 2
is $rc 1 "too few queues of a GPU are refused"
says "CUDA_DEVICE_MAX_CONNECTIONS=1" "by name"
small gpt2
trial "tied weights" pretrain 1e-5 "2:pipeline=2"
small qwen2-moe "kv_heads = 1" "experts = 4" "experts_per_token = 2" "expert_ffn = 16" "shared_ffn = 16" "router_aux = 0.01"
trial "experts" pretrain 1e-5 "2:pipeline=2"
small llama3 "kv_heads = 1"
go "gpus.2:pipeline=2+pipeline-chunks=2" 1 again
is "$rc $(id again)" "0 $(id gpus.one)" "one GPU goes on from its checkpoint to the same bits"
finish 21

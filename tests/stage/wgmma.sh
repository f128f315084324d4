#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# LF_GEMM_CUDA and LF_ATTN of lf-pretrain on the emulated GPU: the same losses with either family of products and attention, bit for bit, in
# captures and without, another order of threads; what fingerprints say; words it does not know.
. "$LF_SRCDIR/tests/stage/lib.sh"
pretrain=$stages/lf-pretrain
emulated_gpu
unset LF_GEMM_CUDA LF_ATTN
by() { # by WORD NAME ARGS...: run with both set to WORD; output below $dir/NAME, exit code in $rc
    LF_GEMM_CUDA=$1 LF_ATTN=$1
    shift
    export LF_GEMM_CUDA LF_ATTN
    train "$pretrain" "$dir/run.ini" "$@"
    unset LF_GEMM_CUDA LF_ATTN
}
whose() { "$tool" state "$dir/$1/out/checkpoint" | sed -n 's/.*"attention":"\([^"]*\)".*"products":"\([^"]*\)".*/\1, \2/p'; }

"$tool" data "$dir/data" 60 40 || bail "no test data"
cat >"$dir/run.ini" <<END
[stage]
data = $dir/data
device = cuda
precision = bf16
numeric = invariant
steps = 3
seq_length = 16
batch = 1
micro_batch = 1
valid_interval = 0
valid_tokens = 64
lr = 5e-3
warmup = 1
save_interval = 1
save_time = 0
seed = 5
threads = 1
[model]
family = llama3
layers = 1
hidden = 16
heads = 2
kv_heads = 1
ffn = 16
vocab = 64
max_positions = 16
END

by mma own
is $rc 0 "three steps with the kernels for any GPU"
is "$(whose own)" "own, own" "the checkpoint says whose they were"
by '' wg
is $rc 0 "and with those of this one's own instructions, unasked"
is "$(whose wg)" "own wgmma, own wgmma" "it says so"
is "$(losses wg)" "$(losses own)" "on the emulator the losses are the same"
is "$(id wg)" "$(id own)" "and so are the checkpoints, bit for bit"
by wgmma both
is $rc 0 "and with those that were asked for"
is "$(whose both)" "own wgmma, own wgmma" "the checkpoint says that too"
is "$(id both)" "$(id own)" "the same checkpoint again"
LF_EMU_FAIL=launch:1:gemm_wg_bf16_tn
export LF_EMU_FAIL
by '' refused
unset LF_EMU_FAIL
[ $rc -ne 0 ]
ok $? "a run with a GPU that refuses those kernels fails: they are what runs"
says gemm_wg_bf16_tn "and names the kernel"
for kernel in fwd dkv dq; do
    LF_EMU_FAIL=launch:1:attn_${kernel}_wg_bf16_64
    export LF_EMU_FAIL
    by '' "no-$kernel"
    unset LF_EMU_FAIL
    says attn_${kernel}_wg_bf16_64 "attention, too: what cannot start is attn_${kernel}_wg"
done
LF_CUDA_GRAPHS=0 LF_EMU_ORDER=3
export LF_CUDA_GRAPHS LF_EMU_ORDER
by wgmma plain
unset LF_CUDA_GRAPHS LF_EMU_ORDER
is "$(id plain)" "$(id wg)" "without captures and in another order of threads, the same checkpoint"
by mma on --resume-from "$dir/wg/out" --steps 4
says_like 'perhaps not bitwise: .*products was "own wgmma", is "own"' "going on with the other family, it says that bits may differ"
by wgmma half --precision fp16 --steps 1
is $rc 0 "f16"
is "$(whose half)" "own wgmma, own wgmma" "likewise"
LF_GEMM_CUDA=tensor
export LF_GEMM_CUDA
train "$pretrain" "$dir/run.ini" wrong
unset LF_GEMM_CUDA
is $rc 1 "an unknown word ends with 1"
says "LF_GEMM_CUDA is one of mma, wgmma" "and says which there are"
finish 20

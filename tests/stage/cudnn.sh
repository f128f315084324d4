#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# LF_ATTN=cudnn of lf-pretrain on the emulated GPU with the emulated cuDNN: learning as with our own attention, in captures and without;
# what fingerprints say; a library that is not there.
. "$LF_SRCDIR/tests/stage/lib.sh"
pretrain=$LF_BUILDDIR/stages/lf-pretrain
emulated_gpu
LF_CUDNN=$LF_CUDA_DRIVER
export LF_CUDNN
unset LF_ATTN

run() { train "$pretrain" "$dir/run.ini" "$@"; } # run NAME ARGS...
by() { # by WISH NAME ARGS...: run with LF_ATTN=WISH
    LF_ATTN=$1
    export LF_ATTN
    shift
    run "$@"
    unset LF_ATTN
}
attention() { "$tool" state "$dir/$1/out/checkpoint" | sed -n 's/.*"attention":"\([^"]*\)".*/\1/p'; }

"$tool" data "$dir/data" 60 40 || bail "no test data"
cat >"$dir/run.ini" <<END
[stage]
data = $dir/data
device = cuda
precision = bf16
steps = 3
seq_length = 16
batch = 1
micro_batch = 1
max_docs = 4
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

run own
is $rc 0 "three steps with our own attention"
is "$(attention own)" "own wgmma" "the checkpoint says whose it was"
by cudnn lib
is $rc 0 "and with cuDNN's"
near_losses lib own 2e-3 3
ok $? "with the same losses: $(losses lib | tr '\n' ' ')"
[ "$(id lib)" != "$(id own)" ]
ok $? "by another program"
is "$(attention lib)" "cudnn 91900" "the checkpoint says whose, and which version"
by cudnn-forward forward
near_losses forward own 2e-3 3
ok $? "the forward alone, with our backward"
is "$(attention forward)" "cudnn-forward 91900" "is told apart"
[ "$(id forward)" != "$(id lib)" ]
ok $? "and is another program again"
LF_CUDA_GRAPHS=0 LF_EMU_ORDER=3
export LF_CUDA_GRAPHS LF_EMU_ORDER
by cudnn plain
unset LF_CUDA_GRAPHS LF_EMU_ORDER
is "$(id plain)" "$(id lib)" "without captures and in another order of streams, the same checkpoint"
run on --resume-from "$dir/lib/out" --steps 4
says_like 'perhaps not bitwise: .*attention was "cudnn 91900", is "own wgmma"' "going on with our own attention, it says that bits may differ"

run sure --numeric invariant --steps 1
by cudnn surely --numeric invariant --steps 1
is "$(losses surely)" "$(losses sure)" "invariant numerics never go to the library"
is "$(attention surely)" "own wgmma" "and the checkpoint says so"

LF_CUDNN=$dir/nowhere.so
by cudnn none
is $rc 1 "asked for and not there: it ends with 1"
says "nowhere.so" "and names the library"
by fastest wrong
is $rc 1 "an unknown wish ends with 1"
says "LF_ATTN is one of own, mma, wgmma, cudnn, cudnn-forward" "and says which there are"
finish 17

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# precision = fp8 of lf-pretrain and lf-sft on the CPU and on the emulated GPU: learning as in bf16, kill -9 and the same bits, which
# layers, what is refused.
. "$LF_SRCDIR/tests/stage/lib.sh"
pretrain=$LF_BUILDDIR/stages/lf-pretrain
sft=$LF_BUILDDIR/stages/lf-sft

run() { train "$pretrain" "$dir/run.ini" "$@"; } # run NAME ARGS...

"$tool" data "$dir/data" 60 40 || bail "no test data"
cat >"$dir/run.ini" <<END
[stage]
data = $dir/data
device = cpu
precision = fp8
steps = 8
seq_length = 16
batch = 2
micro_batch = 1
valid_interval = 0
lr = 5e-3
warmup = 1
save_interval = 1
save_time = 0
seed = 5
threads = 1
[model]
family = llama3
layers = 3
hidden = 32
heads = 2
kv_heads = 1
ffn = 48
vocab = 64
max_positions = 16
END

run base
is $rc 0 "eight steps in fp8"
run bf16 --precision bf16
near_losses base bf16 2e-2 8
ok $? "learn as bf16 does: $(losses base | tr '\n' ' ')"
[ "$(id base)" != "$(id bf16)" ]
ok $? "with other numbers"

mkdir -p "$dir/kill"
cut_at kill 1 "*/kill/out/checkpoints/step-00000003*" "test -e $dir/kill/out/checkpoints/step-00000002" \
    "$pretrain" --config "$dir/run.ini" --out "$dir/kill/out" --metrics "$dir/kill/metrics"
is $rc 137 "kill -9 after the second step"
[ ! -e "$dir/kill/out/checkpoint" ]
ok $? "before the end"
run kill
is $rc 0 "started again it ends"
says "continuing bitwise" "and says that it goes on bitwise"
is "$(id kill)" "$(id base)" "with the same checkpoint"
is "$(losses kill)" "$(losses base)" "and the same losses"
run threads --threads 2
is "$(id threads)" "$(id base)" "two threads give the same checkpoint"
run again --recompute full
is "$(id again)" "$(id base)" "and so does recomputation"

run edges --fp8-edges 1 --fp8-layers mlp
is $rc 0 "the middle layer's mlp alone"
[ "$(id edges)" != "$(id base)" ] && [ "$(id edges)" != "$(id bf16)" ]
ok $? "is another run than all layers or none"
run all --fp8-layers mlp --fp8-layers attention
is "$(id all)" "$(id base)" "both kinds named are all of them"
run plan --plan
grep -q '"params"' "$dir/stdout"
ok $? "it can be planned"

refused() { # refused TEXT ARGS...
    _text=$1
    shift
    run no "$@"
    [ $rc -eq 1 ] || [ $rc -eq 2 ]
    ok $? "refused: $*"
    says_like "$_text" "it says why: $_text"
}
refused "the model has 3 layers" --fp8-edges 2
refused "attention or mlp" --fp8-layers head
refused "belongs to precision = fp8" --precision bf16 --fp8-scaling block
refused "multiple of 128" --fp8-scaling block
refused "no invariant mode" --numeric invariant
refused "layers.0.attn.qkv.weight .* times 10 rows" --seq-length 10

"$sft" --data "$dir/data" --init-from "$dir/bf16/out/checkpoint" --steps 3 --seq-length 16 --micro-batch 1 --lora-rank 2 --precision fp8 \
    --threads 1 --device cpu --out "$dir/sft/out" 2>"$dir/err"
is $? 0 "an adapter learns beside 8-bit weights"
"$sft" --data "$dir/data" --init-from "$dir/bf16/out/checkpoint" --steps 3 --seq-length 16 --micro-batch 1 --precision fp8 --threads 1 \
    --device cpu --out "$dir/full/out" 2>"$dir/err"
is $? 0 "and lf-sft trains all weights"
emulated_gpu
LF_CUBLASLT=$LF_CUDA_DRIVER # its products, emulated
run gpu --device cuda
is $rc 0 "on the emulated GPU, captured"
near_losses gpu base 2e-3 8
ok $? "it learns as on the CPU: $(losses gpu | tr '\n' ' ')"
[ "$(id gpu)" != "$(id base)" ]
ok $? "by another program"
LF_CUBLASLT=$dir/nowhere.so run none --device cuda
is $rc 1 "without cuBLASLt it ends with 1"
says "precision fp8 needs cublasLt" "and says what is missing"
finish 34

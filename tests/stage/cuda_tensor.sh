#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Divided matrices (tensor = 2, with and without sequence_parallel) and divided rows (context = 2) on emulated GPUs: the numbers of one GPU, over NCCL
# and through memory of the host, for a dense model with one head of keys, tied weights, experts, bf16, DPO and a reward model; texts; with a pipeline
# (DPO too), and with ranks that share the batch and state; resumed on CPUs.
. "$LF_SRCDIR/tests/stage/lib.sh"
. "$LF_SRCDIR/tests/stage/layout_lib.sh"
with_ranks
emulated_gpu
emulated_nccl
need_ranks

must "$tool" data "$dir/data" 60 40
must "$tool" pairs "$dir/pairs" 8 2
shape="layers=2 heads=2 vocab=70 max_positions=48"
small llama3 "kv_heads = 1"
saves=2
trial "gpus" pretrain 2e-6 "2:tensor=2 2:tensor=2+sequence-parallel 4:tensor=2+zero=1 4:tensor=2+sequence-parallel+zero=3 4:tensor=2+pipeline=2 \
    8:tensor=2+zero=1+zero-inner=2 2:context=2"
saves=0
trial "bf16" pretrain 2e-2 "2:tensor=2+sequence-parallel" --precision bf16 --valid-tokens 64
LF_COMM=ucx
export LF_COMM
trial "through the host" pretrain 2e-6 "2:tensor=2+sequence-parallel 4:tensor=2 2:context=2"
unset LF_COMM
small gpt2
trial "tied weights" pretrain 2e-6 "2:tensor=2+sequence-parallel"
small qwen2-moe "kv_heads = 1" "experts = 4" "experts_per_token = 2" "expert_ffn = 16" "shared_ffn = 16" "router_aux = 0.01"
trial "experts" pretrain 2e-6 "2:tensor=2+sequence-parallel 2:context=2"

# --- other stages, from weights that two GPUs have made ---
small llama3 "kv_heads = 1"
sed -i '/^\[model\]/,$d' "$dir/run.ini"
echo "init_from = $dir/gpus.2:tensor=2/out/checkpoint" >>"$dir/run.ini"
trial "dpo" dpo 2e-6 "2:tensor=2 4:tensor=2+pipeline=2 2:context=2 4:context=2+pipeline=2" --data "$dir/pairs" --seq-length 48
trial "rm" rm 2e-6 "2:context=2" --data "$dir/pairs" --seq-length 48
trial "an adapter with magnitudes" sft 2e-6 "2:tensor=2+sequence-parallel" --lora-rank 2 --lora-dora
trial "magnitudes of a fused group" sft 2e-6 "2:tensor=2" --lora-rank 2 --lora-dora --lora-targets qkv --lora-targets o

small llama3 "kv_heads = 1"
go "gpus.2:tensor=2+sequence-parallel" 2 again --tensor 2 --device cpu
[ $rc -eq 0 ] && agree again gpus.one 2e-5
ok $? "CPUs go on from its checkpoint: the numbers of a run that was not stopped, apart by ${apart:-much}" "$(tail -n 3 "$dir/err")"

# --- texts ---
awk 'BEGIN { for (i = 1; i <= 5; i++) printf "{\"id\":\"p%d\",\"prompt_token_ids\":[%d,%d,5],\"temperature\":%d}\n", i, i, i * 31 % 70, i % 2 }' >"$dir/prompts.jsonl"
generate() { # generate RANKS NAME ARGS...
    _ranks=$1 _name=$2
    shift 2
    $launch "$_ranks" -- "$stages/lf-generate" --checkpoint "$dir/gpus.one/out/checkpoint" --prompts "$dir/prompts.jsonl" --out "$dir/$_name" --threads 1 \
        --slots 2 --step-rows 8 --logprobs 1 --max-tokens 5 --device cuda "$@" >"$dir/stdout" 2>"$dir/err"
    rc=$?
}
generate 1 text1
generate 2 text2 --tensor 2
apart=$(alike "$dir/text1/text/out.jsonl" "$dir/text2/text/out.jsonl" 2e-6) && [ $rc -eq 0 ]
ok $? "two GPUs generate the texts of one, apart by ${apart:-much}" "$(tail -n 3 "$dir/err")"

# --- what fails ---
small llama3 "kv_heads = 1"
FAKE_NCCL_FAIL=40:1 on 2 refused --tensor 2 --sequence-parallel
is $rc 1 "a collective that fails on one GPU ends both with 1"
says_like "NCCL: .* on rank 1.*internal error" "and is named"
says_like 'error: rank 1 (.*) failed' "and the other hears of it and ends by itself"
finish 26

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Divided experts (expert = 2, 4) on emulated GPUs: the numbers of one GPU, over NCCL and through memory of the host, with rows in rounds, ranks that
# share the batch and state, divided matrices and layers, a rank without a micro-batch; experts that no row chooses, and all rows for one rank; the same
# bits in every order in which streams may run; divided rows (context) beside other axes; gradients and weights of parts; resumed on CPUs; what fails.
. "$LF_SRCDIR/tests/stage/lib.sh"
. "$LF_SRCDIR/tests/stage/layout_lib.sh"
with_ranks
emulated_gpu
emulated_nccl
need_ranks

must "$tool" data "$dir/data" 60 40
must "$tool" pairs "$dir/pairs" 8 2
shape="layers=2 heads=2 vocab=64 max_positions=48"
moe() { small qwen2-moe "kv_heads = 2" "experts = 4" "experts_per_token = 2" "expert_ffn = 16" "shared_ffn = 16" "router_aux = 0.1" "$@"; }
moe
saves=2
trial "experts" pretrain 2e-6 "2:expert=2 2:expert=2+expert-room=0.4 4:expert=4+zero=1 4:expert=2 4:expert=2+zero=1 4:expert=2+tensor=2+sequence-parallel \
    4:expert=2+pipeline=2 4:expert=2+zero=3+expert-room=0.4 4:context=2+expert=2"
saves=0
trial "experts alone are trained" pretrain 2e-6 "4:expert=2+zero=3" --freeze "embed*" --freeze "head*" --freeze "*norm*" --freeze "*attn*" \
    --freeze "*router*" --freeze "*shared*"
trial "a rank without a micro-batch" pretrain 2e-6 "2:expert=2+expert-room=0.4" --batch 3
trial "rows again" pretrain 2e-6 "2:expert=2+recompute=full+expert-room=0.4 4:expert=2+zero=3+recompute=full"
trial "ranks of tensor among them" pretrain 2e-6 "2:tensor=2+expert=2+expert-tensor=1 4:tensor=2+sequence-parallel+expert=4+expert-tensor=1+expert-room=0.4 \
    4:tensor=2+expert=2+expert-tensor=1+zero=3"
trial "bf16" pretrain 2e-2 "2:expert=2" --precision bf16
LF_COMM=ucx
export LF_COMM
trial "through the host" pretrain 2e-6 "2:expert=2+expert-room=0.4 4:expert=2+zero=1 4:tensor=2+expert=2+expert-tensor=1+zero=2"
unset LF_COMM
for order in 1 7; do
    LF_EMU_ORDER=$order on 2 order$order --expert 2
    is "$rc $(id order$order) $(metrics order$order | cksum)" "0 $(id experts.2:expert=2) $(metrics experts.2:expert=2 | cksum)" \
        "order $order of the streams: the same bits" "$(tail -n 3 "$dir/err")"
done
go experts.4:expert=4+zero=1 2 again --expert 2 --device cpu
[ $rc -eq 0 ] && agree again experts.one 2e-5
ok $? "CPUs go on from its checkpoint: the numbers of a run that was not stopped, apart by ${apart:-much}" "$(tail -n 3 "$dir/err")"
nccl() { "$pretrain" --config "$dir/run.ini" --plan "$@" | sed -n 's/.*"communicators":\([0-9]*\)[.,}].*/\1/p'; }
is "$(nccl --ranks 2 --expert 2)" 924844032 "the plan has memory for NCCL: two rings and the rows of another rank, 32 channels each"
is "$(nccl --ranks 4 --expert 2 --zero 1)" 2466250752 "of four ranks: three rings, the rows of one, parts of gradients of three and of one with these experts"

# --- texts ---
awk 'BEGIN { for (i = 1; i <= 5; i++) printf "{\"id\":\"p%d\",\"prompt_token_ids\":[%d,%d,5],\"temperature\":%d}\n", i, i, i * 31 % 60, i % 2 }' >"$dir/prompts.jsonl"
generate() { # generate RANKS NAME ARGS...
    _ranks=$1 _name=$2
    shift 2
    $launch "$_ranks" -- "$stages/lf-generate" --checkpoint "$dir/experts.one/out/checkpoint" --prompts "$dir/prompts.jsonl" --out "$dir/$_name" --threads 1 \
        --slots 2 --step-rows 8 --logprobs 1 --max-tokens 5 --device cuda "$@" >"$dir/stdout" 2>"$dir/err"
    rc=$?
}
generate 1 text1
generate 2 text2 --tensor 2 --expert 2
apart=$(alike "$dir/text1/text/out.jsonl" "$dir/text2/text/out.jsonl" 2e-6) && [ $rc -eq 0 ]
ok $? "two GPUs that divide experts generate the texts of one, apart by ${apart:-much}" "$(tail -n 3 "$dir/err")"

# --- experts drop rows ---
moe "capacity_factor = 0.7"
trial "experts drop rows" pretrain 2e-6 "2:expert=2 4:context=2+expert=2" --steps 2
records "experts drop rows.2:expert=2" | grep '^router_dropped:0\.[0-9]' >/dev/null
ok $? "and a share of them is told"
moe

# --- layers in a V; a rank has fewer micro-batches ---
shape="layers=4 heads=2 vocab=64 max_positions=48"
moe
trial "V" pretrain 2e-6 "4:expert=2+pipeline=2+pipeline-schedule=zb-v" --batch 3
shape="layers=2 heads=2 vocab=64 max_positions=48"

# --- rows that choose as they are told ---
moe "router_linear_bias = yes"
on 1 told --steps 2
must "$tool" chosen "$dir/told/out/checkpoint" "$dir/chosen" 2
sed -i '/^\[model\]/,$d' "$dir/run.ini"
echo "init_from = $dir/chosen" >>"$dir/run.ini"
trial "two experts without rows" pretrain 2e-6 "2:expert=2 4:expert=4"
is "$(records "two experts without rows.2:expert=2" | sed -n 's/^router_load:\([0-9]*\)$/\1/p' | sort -u)" 2 "the first two of four get all rows"

# --- another stage ---
sed -i "s|^init_from = .*|init_from = $dir/experts.2:expert=2/out/checkpoint|" "$dir/run.ini"
trial "dpo" dpo 2e-6 "2:expert=2" --data "$dir/pairs" --seq-length 48
trial "adapters of experts" sft 2e-6 "2:expert=2 4:expert=2+tensor=2" --lora-rank 3 --lora-targets "layers.*.moe.experts.*" --lr 1e-2

# --- divided rows beside other axes ---
small llama3 "kv_heads = 2"
trial "rows" pretrain 2e-6 "4:context=2+zero=1 4:context=2+pipeline=2"

# --- what fails ---
moe
FAKE_NCCL_FAIL=6:1 on 2 refused --expert 2
is $rc 70 "an exchange that fails on one GPU ends both"
says_like 'rank 1 failed in step 1: NCCL: .* on rank 1.*internal error' "and is named"
FAKE_NCCL_FAIL=70:1 LF_COMM_PATIENCE=20 on 2 validation --expert 2 --steps 1 --valid-interval 1
says_like 'rank 1 failed in step 2: NCCL: .* on rank 1.*internal error' "so is one of a validation, behind the only step"
finish 41

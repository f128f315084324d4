#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Post-training and inference on two ranks with an emulated GPU each, a table: what lf-sft (experts too), lf-rm and lf-dpo report is what one rank with one
# GPU reports, within the rounding of f32, and again has the same bits; lf-generate, lf-eval and lf-score give the bytes of one
# rank. (lf-pretrain: cuda_ranks.sh; lf-ppo: cuda_ppo_ranks.sh; that one GPU agrees with the CPU: cuda_post.sh, cuda_infer.sh.)
. "$LF_SRCDIR/tests/stage/lib.sh"
with_ranks
emulated_gpu
emulated_nccl
need_ranks

model() { # model VOCAB [LINE]: a description
    printf '[model]\nfamily = llama3\nlayers = 1\nhidden = 16\nheads = 2\nkv_heads = 1\nffn = 32\nvocab = %s\nmax_positions = 64\n%s\n' "$1" "${2:-}"
}
model 64 >"$dir/lm.ini"
model 270 >"$dir/policy.ini"
model 270 "output = score" >"$dir/rm.ini"
must "$infer" ckpt "$dir/lm" "$dir/lm.ini" 64
must "$infer" ckpt "$dir/policy" "$dir/policy.ini" 270
must "$infer" ckpt "$dir/reward" "$dir/rm.ini" 270
sed 's/^family = .*/family = qwen2-moe/; s/^ffn = .*/ffn = 32\nexperts = 4\nexperts_per_token = 2\nexpert_ffn = 16\nshared_ffn = 16\nrouter_bias = yes\nrouter_bias_rate = 0.01\nrouter_aux = 0.01/' \
    "$dir/lm.ini" >"$dir/experts.ini"
must "$infer" ckpt "$dir/experts" "$dir/experts.ini" 64
must "$tool" data "$dir/docs" 24 6
must "$tool" pairs "$dir/pairs" 24 4
must "$tool" labels "$dir/labels" 24 4
cat >"$dir/run.ini" <<END
[stage]
init_from = $dir/lm
device = cuda
steps = 4
seq_length = 32
batch = 4
micro_batch = 1
lr = 1e-3
valid_interval = 2
valid_tokens = 64
save_interval = 2
save_time = 0
seed = 5
threads = 1
END

# --- training ---
ids() { for _c in checkpoint adapter best; do [ ! -e "$dir/$1/out/$_c" ] || "$tool" id "$dir/$1/out/$_c"; done 2>&1; }
trial() { # trial NAME STAGE ARGS...
    _case=$1 _stage=$stages/lf-$2
    shift 2
    train "$_stage" "$dir/run.ini" "$_case.one" "$@"
    _one=$rc
    train "$launch 2 -- $_stage" "$dir/run.ini" "$_case" "$@"
    [ "$_one $rc" = "0 0" ] && agree "$_case" "$_case.one" 1e-5
    ok $? "${_stage##*/}, $_case: the numbers of one rank, apart by ${apart:-$_one $rc}"
}
again() { # again NAME STAGE ARGS...: of a trial
    _case=$1 _stage=$stages/lf-$2
    shift 2
    train "$launch 2 -- $_stage" "$dir/run.ini" "$_case.again" "$@"
    is "$rc $(ids "$_case.again")" "0 $(ids "$_case")" "$_case: the same bits again"
}
lora="--lora-rank 2 --lr 1e-2"
pairs="--data $dir/pairs"
# shellcheck disable=SC2086
{
    trial full sft --data "$dir/docs"
    trial lora sft --data "$dir/docs" $lora
    trial best sft --data "$dir/docs" --keep-best --sample-interval 2 --sample-rows 2 --sample-tokens 4
    trial offload sft --data "$dir/docs" --optimizer-offload 0.5
    trial experts sft --data "$dir/docs" --init-from "$dir/experts"
    trial rm rm $pairs
    trial rm-lora rm $pairs $lora
    trial sigmoid dpo $pairs --nll 0.2
    trial dpo-lora dpo $pairs $lora
    trial kto dpo --data "$dir/labels" --loss kto
    again experts sft --data "$dir/docs" --init-from "$dir/experts"
    again dpo-lora dpo $pairs $lora
}
train "$launch 2 -- $stages/lf-sft" "$dir/run.ini" far --data "$dir/docs" --lr 1.01e-3
[ $rc -eq 0 ] && ! agree far full.one 1e-5
ok $? "a learning rate 1 % off is seen: $apart"

# --- inference ---
awk 'BEGIN { for (a = 0; a < 60; a++) for (b = 0; b < 9; b++) print a "+" b "=" a + b }' >"$dir/text.txt"
awk 'BEGIN { for (a = 0; a < 5; a++) printf "{\"id\":\"t%d\",\"prompt\":\"%d+%d=\",\"completion\":\"%d\"}\n", a, a, a % 7, 11 * a }' >"$dir/texts.jsonl"
head -n 5 "$dir/text.txt" | sed 's/.*/{"text":"&"}/' >"$dir/pages.jsonl"
awk 'BEGIN { for (i = 0; i < 6; i++) printf "{\"id\": \"q%d\", \"prompt_token_ids\": [%d, %d], \"max_tokens\": %d}\n", i, i, 7 * i, 4 + i }' >"$dir/requests.jsonl"
must "$stages/lf-tokenize" --doc-split=line --vocab-size=270 --out "$dir/tok" "$dir/text.txt"
both() { # both NAME FILE STAGE ARGS...: FILE below out is the same of one rank and of two
    _case=$1 _file=$2 _stage=$stages/lf-$3
    shift 3
    "$_stage" --out "$dir/$_case.one" --tokenizer "$dir/tok/tokenizer" --threads 1 --device cuda "$@" 2>"$dir/err" >"$dir/stdout"
    _one=$?
    $launch 2 -- "$_stage" --out "$dir/$_case" --tokenizer "$dir/tok/tokenizer" --threads 1 --device cuda "$@" 2>"$dir/err" >"$dir/stdout"
    [ "$_one $?" = "0 0" ] && [ -s "$dir/$_case/$_file" ] && cmp "$dir/$_case/$_file" "$dir/$_case.one/$_file" >>"$dir/err" 2>&1
    ok $? "${_stage##*/}, $_case: the bytes of one rank"
}
both text text/out.jsonl generate --checkpoint "$dir/policy" --prompts "$dir/requests.jsonl" --slots 2 --step-rows 16
both alternatives text/out.jsonl generate --checkpoint "$dir/policy" --prompts "$dir/requests.jsonl" --logprobs 2 --precision fp16
both pages results/samples.jsonl eval --checkpoint "$dir/policy" --text "$dir/pages.jsonl" --micro-tokens 128
both scores scores/scores.jsonl score --checkpoint "$dir/reward" --inputs "$dir/texts.jsonl" --micro-tokens 128
finish 17

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What generates or scores with device = cuda on the emulated driver: lf-generate with the CPU's tokens, the same bytes whatever the batch
# and after kill -9, in every precision; lf-eval and lf-score with the CPU's numbers; rounds of lf-ppo whose ratio is exactly 1.
. "$LF_SRCDIR/tests/stage/lib.sh"
tool=$LF_BUILDDIR/tests/stage/infer_tool
emulated_gpu

near() { # near A B TOLERANCE NAME: two lists of as many numbers, not all of them equal
    { echo "$1"; echo "$2"; } | awk -v t="$3" '{ k[NR] = split($0, x, " "); for (i = 1; i <= k[NR]; i++) v[NR, i] = x[i] }
        END { for (i = 1; i <= k[1]; i++) { d = v[1, i] - v[2, i]; if (!(d < t && d > -t)) bad = 1; if (d != 0) moved = 1 }
              exit bad || !moved || k[1] < 1 || k[1] != k[2] }'
    ok $? "$4"
}

# --- a model of 270 tokens and one that scores, a tokenizer, data ---
awk 'BEGIN { for (a = 0; a < 60; a++) for (b = 0; b < 9; b++) print a "+" b "=" a + b }' >"$dir/text.txt"
awk 'BEGIN { for (a = 0; a < 6; a++) printf "{\"prompt\":\"%d+%d=\",\"answer\":\"%d\"}\n", a, a % 7, a + a % 7 }' >"$dir/prompts.jsonl"
awk 'BEGIN { for (a = 0; a < 5; a++) printf "{\"id\":\"t%d\",\"prompt\":\"%d+%d=\",\"completion\":\"%d\"}\n", a, a, a % 7, 11 * a }' >"$dir/texts.jsonl"
head -n 3 "$dir/text.txt" | sed 's/.*/{"text":"&"}/' >"$dir/pages.jsonl"
cat >"$dir/model.ini" <<END
[model]
family = llama3
layers = 1
hidden = 16
heads = 2
kv_heads = 1
ffn = 32
vocab = 270
max_positions = 128
END
{ cat "$dir/model.ini"; echo "output = score"; } >"$dir/score.ini"
{ cat "$dir/model.ini"; echo "mtp_layers = 1"; } >"$dir/later.ini"
must "$stages/lf-tokenize" --doc-split=line --vocab-size=270 --out "$dir/tok" "$dir/text.txt"
must "$stages/lf-tokenize" --shape=prompt --tokenizer "$dir/tok/tokenizer" --unmapped=ignore --out "$dir/data" "$dir/prompts.jsonl"
must "$tool" ckpt "$dir/lm" "$dir/model.ini" 270
must "$tool" ckpt "$dir/rm" "$dir/score.ini" 270
must "$tool" ckpt "$dir/later" "$dir/later.ini" 270
tok="--tokenizer $dir/tok/tokenizer --threads 1"

# --- lf-generate ---
awk 'BEGIN { for (i = 0; i < 6; i++) {
    printf "{\"id\": \"q%d\", \"prompt_token_ids\": [%d", i, i
    for (j = 0; j < (i * 29) % 80; j++) printf ", %d", (i * 31 + j * j) % 270
    printf "], \"max_tokens\": %d%s}\n", 4 + i, i % 3 ? "" : ", \"temperature\": 0" } }' >"$dir/requests.jsonl"
alternatives=1 # with 0 a GPU draws
lm=lm
generate() { # generate NAME ARGS...
    _name=$1
    shift
    "$stages/lf-generate" --checkpoint "$dir/$lm" --out "$dir/$_name" $tok --prompts "$dir/requests.jsonl" --logprobs $alternatives "$@" 2>"$dir/err" >"$dir/stdout"
    rc=$?
}
get() { for i in 1 2 3 4 5 6; do "$tool" get "$dir/$1/text/out.jsonl" $i "$2"; done | tr -d '[]' | tr ',\n' '  '; }
sum() { cksum <"$dir/$1/text/out.jsonl"; }
generate cpu --device cpu
is $rc 0 "six requests on the CPU"
generate gpu --device cuda --slots 3 --step-rows 16
is $rc 0 "and on the emulated GPU"
is "$(get gpu token_ids)" "$(get cpu token_ids)" "with the same tokens"
near "$(get gpu logprobs)" "$(get cpu logprobs)" 1e-4 "and close log-probabilities"
generate other --device cuda --slots 6 --step-rows 90 --page-tokens 128
is "$rc $(sum other)" "0 $(sum gpu)" "another batch and other pages: the same bytes"
grep -q '"kernels": *"cuda-sm_' "$dir/gpu/text/manifest.json"
ok $? "the result tells its kernels"
for p in bf16 fp16; do
    generate $p --device cuda --precision $p
    is $rc 0 "$p"
    [ "$(get $p logprobs)" != "$(get gpu logprobs)" ] && [ "$(get $p token_ids | wc -w)" -eq "$(get gpu token_ids | wc -w)" ]
    ok $? "... which is another type"
done
generate refused --device cpu --precision fp16
is $rc 1 "fp16 on a CPU is refused"
says "GPUs have" "and it says where to run it"
cut_at kill 3 "write */kill/text/out.jsonl.part" "[ \"\$(wc -l <$dir/kill/text/out.jsonl.part)\" -ge 2 ]" \
    "$stages/lf-generate" --checkpoint "$dir/lm" --out "$dir/kill" $tok --prompts "$dir/requests.jsonl" --logprobs 1 --device cuda --slots 1 --step-rows 8
is $rc 137 "kill -9 behind the second result"
made=$(wc -l <"$dir/kill/text/out.jsonl.part")
generate kill --device cuda --slots 3 --step-rows 16
is "$rc $(sum kill)" "0 $(sum gpu)" "started again: the bytes of a run that was never killed"
says "continuing behind $made of 6" "and goes on behind them"
LF_EMU_FAIL=launch:1:attn_paged_f32 generate fail --device cuda
is $rc 1 "a launch that fails ends the run with 1"
says "attn_paged" "and names the operation"
alternatives=0
state() { generate plan --plan --slots 4 --device "$1"; tr -d ' \n' <"$dir/stdout" | sed -n 's/.*"state":\([0-9]*\).*/\1/p'; }
more=$(($(state cuda) - $(state cpu)))
[ $more -gt 500000 ] && [ $more -lt 600000 ]
ok $? "the plan for a GPU counts what drawing needs: $more bytes for 4 slots"
LF_EMU_FAIL=launch:1:sample_pick generate nodraw --device cuda
is $rc 1 "so does one where the tokens are drawn"
says "sample_pick" "and names it"
sampled="--temperature 0.8 --top-p 0.9 --top-k 40 --repetition-penalty 1.1"
generate bent --device cpu $sampled
generate drawn --device cuda --slots 4 --step-rows 32 $sampled
is "$rc $(get drawn token_ids)" "0 $(get bent token_ids)" "cut and penalised draws without alternatives: the CPU's tokens, drawn on the GPU"
lm=later
generate alone --device cuda --slots 3 --step-rows 16
generate guessed --device cuda --slots 3 --step-rows 16 --speculative mtp
is "$rc $(sum guessed)" "0 $(sum alone)" "a head that guesses: the same bytes"
says "tokens guessed" "and the summary tells of it"
lm=lm

# --- lf-eval, lf-score ---
for d in cpu cuda; do
    must "$stages/lf-eval" --checkpoint "$dir/lm" --out "$dir/eval.$d" $tok --text "$dir/pages.jsonl" --device $d --micro-tokens 128
    must "$stages/lf-score" --checkpoint "$dir/rm" --out "$dir/score.$d" $tok --inputs "$dir/texts.jsonl" --device $d --micro-tokens 128
done
bits() { grep -o '"bits_per_byte,none": *[-0-9.e+]*' "$dir/eval.$1/results/results.json" | sed 's/.*: *//'; }
scores() { grep -o '"score": *[-0-9.e+]*' "$dir/score.$1/scores/scores.jsonl" | sed 's/.*: *//' | tr '\n' ' '; }
near "$(bits cuda)" "$(bits cpu)" 1e-4 "lf-eval: the CPU's bits per byte, $(bits cuda)"
near "$(scores cuda)" "$(scores cpu)" 1e-4 "lf-score: the scores of the CPU, $(scores cuda)"

# --- lf-ppo ---
cat >"$dir/ppo.ini" <<END
[stage]
data = $dir/data/shards
tokenizer = $dir/tok/tokenizer
init_from = $dir/lm
device = cuda
threads = 1
max_prompt = 8
max_tokens = 4
round_prompts = 2
samples = 2
minibatch = 2
round_epochs = 1
rounds = 1
lr = 1e-3
micro_tokens = 32
slots = 4
step_rows = 16
END
echo 'while read -r line; do echo "$((${#line} % 5 * 125))e-3"; done' >"$dir/reward.sh"
member() { "$tool" record "$dir/$1.m" | sed -n "$2"'p' | grep -o "\"$3\":[^,}]*" | sed 's/.*://'; } # member RUN LINE NAME
for a in grpo ppo; do
    "$stages/lf-ppo" --config "$dir/ppo.ini" --out "$dir/$a" --metrics "$dir/$a.m" --algorithm $a --reward-command "exec sh $dir/reward.sh" \
        2>"$dir/err" >"$dir/stdout"
    is $? 0 "a round of $a"
    is "$(member $a 1 mismatch_max) $(member $a 1 ratio_min) $(member $a 1 ratio_max)" "0 1 1" "whose ratio is exactly 1 on the first mini-batch"
    [ "$(member $a 2 ratio_max)" != 1 ]
    ok $? "and not on the second"
done
finish 31

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Samples during training in every training stage: what is trained has the same bits with them and without, each step's samples
# are in their file once however often a run was killed, and --plan counts what generation takes. Those of lf-sft: sft.sh.
. "$LF_SRCDIR/tests/stage/lib.sh"
pretrain=$stages/lf-pretrain
dpo=$stages/lf-dpo

run() { train "$pretrain" "$dir/run.ini" "$@"; } # run NAME ARGS...
said() { cat "$dir/$1/samples.jsonl"; }
steps() { sed 's/{"step":\([0-9]*\),.*/\1/' "$dir/$1/samples.jsonl" | uniq -c | awk '{ printf "%d:%d ", $2, $1 }'; } # STEP:LINES ...
number() { sed 's/.*"'"$1"'":\([0-9.e+]*\).*/\1/' "$dir/stdout"; } # number MEMBER of what --plan said

# Shards with the tokenizer that made them beside.
awk 'BEGIN { for (i = 0; i < 300; i++) printf "the %s cat %s sat on mat %d and saw %s.\n\n", i % 3 ? "old" : "new", i % 2 ? "quietly" : "", i % 17, i % 5 ? "it" : "us" }' >"$dir/text.txt"
must "$stages/lf-tokenize" --inputs "$dir/text.txt" --doc-split blank --vocab-size 280 --valid-fraction 0.1 --out "$dir/tok"
cat >"$dir/run.ini" <<END
[stage]
data = $dir/tok/shards
steps = 8
mfu = no
seq_length = 48
batch = 4
micro_batch = 2
lr = 5e-3
save_interval = 2
save_time = 0
valid_interval = 4
threads = 1
[model]
family = llama3
layers = 2
hidden = 32
heads = 4
kv_heads = 2
ffn = 64
vocab = 280
max_positions = 48
END
run plain
is $rc 0 "lf-pretrain without samples"
sampled="--sample-interval 4 --sample-rows 3 --sample-tokens 8"
run sampled $sampled
is "$rc $(id sampled)" "0 $(id plain)" "with samples: the same weights"
is "$(metrics sampled)" "$(metrics plain)" "and the same metrics"
is "$(steps sampled)" "4:3 8:3 " "a line for each sample"
is "$(grep -c '^{"step":[48],"prompt":"the .*","id":"valid-[123]","sample":0,.*"text":".*","token_ids":\[[0-9].*,"seed":[0-9]*}$' "$dir/sampled/samples.jsonl")" 6 \
    "with prompts and texts by the tokenizer beside the data"
says 'log p of a token' "the log tells of them"
is "$(grep -c '  "the .*" -> "' "$dir/err")" 6 "and shows them"
mkdir -p "$dir/kill"
killed_often 4 "$dir/kill/metrics" "$(bytes "$dir/sampled/metrics")" "$pretrain" --config "$dir/run.ini" --out "$dir/kill/out" --metrics "$dir/kill/metrics" $sampled
run kill $sampled
is "$rc $often $(id kill)" "0 1 $(id plain)" "after $kills kills -9 the same weights"
is "$(said kill)" "$(said sampled)" "and each step's samples once, the same bytes"
# A start with files of its own, behind step 4: what stands behind it in the earlier file no longer counts.
mkdir -p "$dir/first/checkpoints"
cp -R "$dir/sampled/out/checkpoints/step-00000006" "$dir/first/checkpoints/"
run next $sampled --resume-from "$dir/first"
is "$(head -n 1 "$dir/next/samples.jsonl") $(steps next)" '{"step":6,"resumed":true} 6:1 8:3 ' "a start that goes on elsewhere says behind which step"
is "$(said next | tail -n 3)" "$(said sampled | tail -n 3)" "and goes on with the same samples"
# What was killed between a line and its end, and lines behind the checkpoint.
cp -R "$dir/sampled" "$dir/torn"
rm -r "$dir/torn/out/checkpoint" "$dir/torn/out/checkpoints/step-00000006"
cp -R "$dir/sampled/out/checkpoints/step-00000006" "$dir/torn/out/checkpoints/"
printf '{"step":8,"prompt":"half' >>"$dir/torn/samples.jsonl"
run torn $sampled
is "$rc $(said torn)" "0 $(said sampled)" "a torn line and what stands behind the checkpoint are cut"
mkdir -p "$dir/mine"
echo '{"question":"mine"}' >"$dir/mine/samples.jsonl"
run mine $sampled
is "$rc $(cat "$dir/mine/samples.jsonl")" '1 {"question":"mine"}' "a file of somebody else is not touched"
says "holds something else than samples" "and the message says so"
"$pretrain" --config "$dir/run.ini" --out "$dir/bare" --steps 2 --sample-interval 2 --sample-tokens 8 2>"$dir/err"
is "$(wc -l <"$dir/bare/samples.jsonl")" 8 "without metrics they lie in out"

# Prompts of the options: text that carries what a terminal would obey.
run esc --steps 2 --sample-interval 2 --sample-tokens 8 --sample-prompt "$(printf 'the \033[31mcat\302\233 sat\r<b>')" --sample-prompt 'the old'
is "$rc $(steps esc)" "0 2:2 " "prompts of the options"
grep -q '"prompt":"the \\u001b\[31mcat' "$dir/esc/samples.jsonl"
ok $? "the record has them whole, escaped as JSON"
grep '  "the' "$dir/err" >"$dir/shown"
is "$(LC_ALL=C tr -cd '\001-\010\013-\037\177' <"$dir/shown" | wc -c) $(grep -c 'the ?\[31mcat? sat?<b>' "$dir/shown")" "0 1" "the log has no control byte of theirs"
run both --sample-interval 2 --sample-rows 3 --sample-prompt x
is $rc 2 "sample_rows with prompts is a usage error"
run none --sample-prompt x
is $rc 2 "so is a prompt without an interval"
mkdir "$dir/alone"
cp -R "$dir/tok/shards" "$dir/alone/"
run alone2 --data "$dir/alone/shards" --steps 2 --sample-interval 2 --sample-tokens 8 --sample-prompt "the cat"
is $rc 1 "text prompts without a tokenizer are an error"
says "beside $dir/alone/shards lies no tokenizer that made it: give tokenizer" "that says what to give"
run alone --data "$dir/alone/shards" --steps 2 --sample-interval 2 --sample-tokens 8 --sample-rows 2
[ $rc -eq 0 ] && grep -q 'samples are ids' "$dir/err" && grep -q '"prompt_token_ids":\[' "$dir/alone/samples.jsonl"
ok $? "samples of documents are ids then"
run long --steps 2 --sample-interval 2 --sample-tokens 48
is $rc 1 "samples as long as a sequence are refused"
says "leave no room for a prompt in 48 positions" "and it says why"

# bf16, 8-bit products, experts, tied, offloaded and thin state: no bit changes.
for k in "--precision bf16 --masters bf16" "--precision fp8 --recompute full" "--numeric invariant --moments bf16"; do
    n=$(echo "$k" | tr -d ' -')
    run "a$n" --steps 4 $k
    run "b$n" --steps 4 $k --sample-interval 1 --sample-rows 2 --sample-tokens 8 --sample-temperature 1
    is "$rc $(id "b$n") $(metrics "b$n")" "0 $(id "a$n") $(metrics "a$n")" "$k: the same"
done
sed 's/^ffn.*/ffn = 32\nexperts = 4\nexperts_per_token = 2\ntied_head = yes/' "$dir/run.ini" >"$dir/moe.ini"
train "$pretrain" "$dir/moe.ini" moea --steps 4
train "$pretrain" "$dir/moe.ini" moeb --steps 4 --sample-interval 2 --sample-tokens 8
is "$rc $(id moeb) $(metrics moeb)" "0 $(id moea) $(metrics moea)" "experts and a tied head: the same"

# memory: what is planned for generation is what is taken
sed 's/^hidden.*/hidden = 256/; s/^max_pos.*/max_positions = 640/; s/^seq_length.*/seq_length = 640/; s/^layers.*/layers = 4/; s/^batch.*/batch = 1/; s/^micro_batch.*/micro_batch = 1/' "$dir/run.ini" >"$dir/big.ini"
awk 'BEGIN { for (k = 0; k < 4; k++) { printf "{\"id\":\"p%d\",\"prompt_token_ids\":[7", k; for (i = 1; i < 512; i++) printf ",%d", 5 + (i * 7 + k) % 200; print "]}" } }' >"$dir/long.jsonl"
big="--steps 1 --sample-interval 1 --sample-prompts $dir/long.jsonl --sample-tokens 32"
train "$pretrain" "$dir/big.ini" planned --plan --steps 1
less=$(number total)
train "$pretrain" "$dir/big.ini" planned --plan $big
awk -v c="$(number cache)" -v t="$(number total)" -v l="$less" 'BEGIN { exit !(c > 4e6 && t - l >= c && t - l < 1.5 * c) }'
ok $? "--plan has the cache of generation: $(number cache) bytes, in all $(number total), $less without"
train "$pretrain" "$dir/big.ini" big $big
train "$pretrain" "$dir/big.ini" small --steps 1
said_of() { grep -ao "\"$2\":[0-9.e+]*" "$dir/$1/metrics" | sed 's/.*://'; } # said_of RUN NUMBER
name="and memory grows with samples as is planned"
if sanitizers; then
    skip "$name" "sanitizers keep what was freed, and a shadow of all"
else
    awk -v r="$(said_of big rss)" -v s="$(said_of small rss)" -v p="$(said_of big planned_memory)" -v q="$(said_of small planned_memory)" \
        'BEGIN { d = (r - s) - (p - q); exit !(p - q > 1e7 && d < 7e6 && d > -7e6) }'
    ok $? "$name: by $(($(said_of big rss) - $(said_of small rss))) bytes, planned $(said_of big planned_memory) behind $(said_of small planned_memory)"
fi

# the emulated GPU
(
    emulated_gpu
    for k in off on; do
        [ $k = on ] && with="--sample-interval 2 --sample-rows 2 --sample-tokens 4" || with=
        run gpu$k --device cuda --steps 3 --seq-length 16 --batch 2 --micro-batch 1 --valid-tokens 32 $with || exit 1
    done
)
is "$? $(id gpuon) $(metrics gpuon)" "0 $(id gpuoff) $(metrics gpuoff)" "on the emulated GPU: the same weights and metrics"
is "$(steps gpuon)" "2:2 3:2 " "and samples of both visits"

# lf-dpo
"$tool" pairs "$dir/pairs" 60 20 || bail "no pairs"
sed '/^data/d; /^\[model\]/,$d' "$dir/run.ini" >"$dir/dpo.ini"
cat >>"$dir/dpo.ini" <<END
data = $dir/pairs
init_from = $dir/bases/out/checkpoint
END
sed 's/^vocab.*/vocab = 64/; s/^max_pos.*/max_positions = 64/; s/^seq_length.*/seq_length = 64/' "$dir/run.ini" >"$dir/base.ini"
"$tool" data "$dir/data" 60 0 || bail "no data"
train "$pretrain" "$dir/base.ini" bases --data "$dir/data" --steps 2
dpo() { train "$dpo" "$dir/dpo.ini" "$@" --seq-length 64; }
for k in "" "--lora-rank 4"; do
    n=$(echo "$k" | tr -d ' -')
    dpo "off$n" $k
    dpo "on$n" $k $sampled
    is "$rc $(id "on$n") $(metrics "on$n")" "0 $(id "off$n") $(metrics "off$n")" "lf-dpo $k: the same weights and metrics"
    is "$(steps "on$n")" "4:3 8:3 " "and three samples a visit"
done
[ "$(sed -n '1,2s/.*"prompt_token_ids":\(\[[^]]*\]\).*/\1/p' "$dir/on/samples.jsonl" | sort -u | wc -l)" -eq 2 ]
ok $? "of the prompts of pairs, each once"
dpo ref --mode reference $sampled
is $rc 2 "mode = reference samples nothing, and says so"
with_ranks
if have_ranks; then
    train "$launch 2 -- $dpo" "$dir/dpo.ini" two --seq-length 64 $sampled
    is "$rc $(steps two)" "0 4:3 8:3 " "two ranks: one of them samples"
else
    skip_some 1 "ranks cannot be started here"
fi

# lf-ppo: the policy, by its own generator, whose memory is planned already
awk 'BEGIN { for (a = 0; a < 12; a++) printf "{\"prompt\":\"the %s cat %d\"}\n", a % 2 ? "old" : "new", a }' >"$dir/prompts.jsonl"
must "$stages/lf-tokenize" --shape prompt --tokenizer "$dir/tok/tokenizer" --out "$dir/prompts" "$dir/prompts.jsonl"
cat >"$dir/ppo.ini" <<END
[stage]
data = $dir/prompts/shards
tokenizer = $dir/tok/tokenizer
init_from = $dir/plain/out/checkpoint
threads = 1
max_prompt = 24
max_tokens = 8
round_prompts = 4
samples = 2
rounds = 4
lr = 1e-3
minibatch = 4
save_interval = 1
micro_tokens = 48
reward = format:(?s).*[a-f].*
temperature = 1.5
END
ppo() { train "$stages/lf-ppo" "$dir/ppo.ini" "$@"; }
numbers() { records "$1" | sed 's/,"sample_tokens".*//; s/,"gen_s".*//; s/,"train_s".*//'; }
records() { grep -ao '{"step":[^}]*}' "$dir/$1/metrics"; }
asked="--sample-interval 2 --sample-rows 3"
for k in "" "--lora-rank 4"; do
    n=$(echo "$k" | tr -d ' -')
    ppo "poff$n" $k
    ppo "pon$n" $k $asked
    is "$rc $(id "pon$n") $(numbers "pon$n")" "0 $(id "poff$n") $(numbers "poff$n")" "lf-ppo $k: the same weights and metrics"
    is "$(steps "pon$n")" "4:3 8:3 " "and three samples a visit"
done
is "$(grep -c '"prompt":"the .* cat [0-9]*","id":"prompt-[123]",.*"text":".*"seed":' "$dir/pon/samples.jsonl") $(records pon | grep -c '"sample_tokens":[0-9]')" "6 2" \
    "prompts of the data, texts, and their numbers in the metrics"
# The first mini-batches of both have the same sequences, for a new adapter changes nothing.
work() { records "$1" | sed -n '1s/.*"step_s":\([^,]*\),"model_flops_causal":\([^,]*\),.*/\1 \2/p' | awk '{ printf "%.0f", $1 * $2 }'; }
awk -v a="$(work poff)" -v l="$(work pofflorarank4)" 'BEGIN { exit !(a > 0 && l > 0.66 * a && l < 0.95 * a) }'
ok $? "FLOPs of a mini-batch: $(work poff) with all weights, $(work pofflorarank4) with an adapter"
mkdir -p "$dir/pkill"
killed_often 4 "$dir/pkill/metrics" "$(bytes "$dir/pon/metrics")" "$stages/lf-ppo" --config "$dir/ppo.ini" --out "$dir/pkill/out" --metrics "$dir/pkill/metrics" $asked
ppo pkill $asked
is "$rc $often $(id pkill) $(said pkill)" "0 1 $(id pon) $(said pon)" "after $kills kills -9 the same weights and samples"
# At temperature 1 the generator's logits are divided by 1.5 already; a draw must not be divided twice.
ppo warm --rounds 1 --sample-interval 1 --sample-prompt "the old" --sample-prompt "the new cat" --sample-temperature 1 --lr 1e-12
grep -o '"token_ids":\[[^]]*' "$dir/warm/samples.jsonl" >"$dir/a"
printf '{"id":"prompt-1","prompt":"the old"}\n{"id":"prompt-2","prompt":"the new cat"}\n' >"$dir/ask.jsonl"
must "$stages/lf-generate" --checkpoint "$dir/warm/out/checkpoint" --tokenizer "$dir/tok/tokenizer" --prompts "$dir/ask.jsonl" --max-tokens 8 --seed 1 --temperature 1 --max-context 32 --out "$dir/gen"
grep -o '"token_ids":\[[^]]*' "$dir/gen/text/out.jsonl" >"$dir/b"
is "$(cat "$dir/a")" "$(cat "$dir/b")" "what is drawn is what lf-generate draws at that temperature"
ppo no --sample-interval 1 --sample-tokens 9
is $rc 2 "samples longer than completions are refused"
says "sample_tokens = 9 is more than max_tokens = 8" "by name"
if have_ranks; then
    train "$launch 2 -- $stages/lf-ppo" "$dir/ppo.ini" ptwo $asked
    is "$rc $(steps ptwo)" "0 4:3 8:3 " "two ranks: one of them samples"
else
    skip_some 1 "ranks cannot be started here"
fi

# lf-rm: scores of validation pairs
awk 'BEGIN { for (i = 0; i < 60; i++) printf "{\"prompt\":\"the %s cat\",\"chosen\":\" sat on mat %d\",\"rejected\":\" saw us %d\"}\n", i % 2 ? "old" : "new", i, i }' >"$dir/judged.jsonl"
must "$stages/lf-tokenize" --shape preference --tokenizer "$dir/tok/tokenizer" --valid-fraction 0.2 --out "$dir/judged" "$dir/judged.jsonl"
sed '/^data/d; /^\[model\]/,$d' "$dir/run.ini" >"$dir/rm.ini"
printf 'data = %s\ninit_from = %s\n' "$dir/judged/shards" "$dir/plain/out/checkpoint" >>"$dir/rm.ini"
rm_() { train "$stages/lf-rm" "$dir/rm.ini" "$@"; }
judged="--sample-interval 4 --sample-rows 3 --tokenizer $dir/tok/tokenizer"
for k in "" "--lora-rank 4"; do
    n=$(echo "$k" | tr -d ' -')
    rm_ "roff$n" $k
    rm_ "ron$n" $k $judged
    is "$rc $(id "ron$n") $(metrics "ron$n")" "0 $(id "roff$n") $(metrics "roff$n")" "lf-rm $k: the same weights and metrics"
    is "$(steps "ron$n")" "4:6 8:6 " "and the scores of three pairs a visit"
done
is "$(grep -c '"prompt":"the ... cat","id":"valid-[123]","sample":\(0,"answer":"chosen".*"text":" sat\|1,"answer":"rejected".*"text":" saw\).*"score":[-0-9.e]*}$' "$dir/ron/samples.jsonl")" 12 "chosen and rejected, with their texts"
says_like '  [-0-9.]* "the ... cat" -> " sat on mat' "which the log shows"
sed -n '7,$s/.*"prompt":"\([^"]*\)","id":"\([^"]*\)","sample":\([01]\).*"text":"\([^"]*\)".*"score":\([-0-9.e+]*\).*/\2.\3 \5/p' "$dir/ron/samples.jsonl" >"$dir/a"
sed -n '7,$s/.*"prompt":"\([^"]*\)","id":"\([^"]*\)","sample":\([01]\).*"text":"\([^"]*\)".*/{"id":"\2.\3","prompt":"\1","completion":"\4"}/p' "$dir/ron/samples.jsonl" >"$dir/texts.jsonl"
must "$stages/lf-score" --checkpoint "$dir/ron/out/checkpoint" --tokenizer "$dir/tok/tokenizer" --inputs "$dir/texts.jsonl" --out "$dir/scored"
sed -n 's/.*"id":"\([^"]*\)".*"score":\([-0-9.e+]*\).*/\1 \2/p' "$dir/scored"/scores/*.jsonl >"$dir/b"
paste -d' ' "$dir/a" "$dir/b" | awk '{ d = $2 - $4; if ($1 != $3 || d > 1e-4 || d < -1e-4) bad = 1 } END { exit bad || NR != 6 }'
ok $? "those of the last weights are what lf-score says of the checkpoint"
mkdir -p "$dir/rkill"
killed_often 3 "$dir/rkill/metrics" "$(bytes "$dir/ron/metrics")" "$stages/lf-rm" --config "$dir/rm.ini" --out "$dir/rkill/out" --metrics "$dir/rkill/metrics" $judged
rm_ rkill $judged
is "$rc $often $(id rkill) $(said rkill)" "0 1 $(id ron) $(said ron)" "after $kills kills -9 the same weights and scores"
rm_ no --tokenizer "$dir/tok/tokenizer"
is $rc 2 "a tokenizer without samples is a usage error"

# Two trainings whose metrics lie in one directory.
mkdir -p "$dir/both"
for m in one two; do
    # shellcheck disable=SC2086
    "$pretrain" --config "$dir/run.ini" --out "$dir/both/$m" --metrics "$dir/both/$m.m" $sampled 2>"$dir/err" || break
done
cmp "$dir/both/one.m.samples.jsonl" "$dir/sampled/samples.jsonl" 2>"$dir/err" && cmp "$dir/both/two.m.samples.jsonl" "$dir/sampled/samples.jsonl" 2>"$dir/err"
ok $? "two trainings in one directory keep their samples apart"
finish 61

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# lf-rm as a user runs it: preferences to a reward model that tells good from bad on pairs it has not seen; exact resume
# after kill -9; micro-batches and ranks; pairs left out; what it refuses; out for transformers; adapters with their head.
. "$LF_SRCDIR/tests/stage/lib.sh"
with_ranks

prefix=
rm_() { train "$prefix $stages/lf-rm" "$dir/rm.ini" "$@"; } # rm_ NAME ARGS...
field() { tr '{' '\n' <"$dir/$1/metrics" | sed -n 's/.*"'"$2"'":\([-0-9.e+]*\).*/\1/p' | tail -n 1; }
# The losses of two runs, step by step, no further apart than $3 of them.
near() {
    "$tool" metrics "$dir/$1/metrics" >"$dir/a"
    "$tool" metrics "$dir/$2/metrics" | paste "$dir/a" - |
        awk -v tol="$3" '{ h = NF / 2; d = $4 - $(4 + h); if (d < 0) d = -d; if (d > tol * $4) { print "# " $0; bad = 1 } } END { exit bad || NR < 5 }'
}

# Good answers have words of one half of the list, bad ones mostly of the other.
awk 'BEGIN { srand(3); split("ban dor fel gim hut jal kes lom", w, " ")
    for (i = 0; i < 300; i++) {
        p = "q"; g = ""; b = ""; n = 1 + int(rand() * 5)
        for (k = 0; k < 2 + int(rand() * 3); k++) p = p " " w[1 + int(rand() * 8)]
        for (k = 0; k < n; k++) { g = g " " w[1 + int(rand() * 4)]; b = b " " w[(rand() < 0.8 ? 5 : 1) + int(rand() * 4)] }
        if (g != b) printf "{\"prompt\":\"%s:\",\"chosen\":\"%s\",\"rejected\":\"%s\",\"margin\":%.1f}\n", p, g, b, int(rand() * 3) / 2
    } }' >"$dir/pairs.jsonl"
sed 's/.*"prompt":"\([^"]*\)","chosen":"\([^"]*\)","rejected":"\([^"]*\)".*/\1\2\n\1\3/' "$dir/pairs.jsonl" >"$dir/text.txt"
must "$stages/lf-tokenize" --doc-split=line --vocab-size 270 --out "$dir/text" "$dir/text.txt"
must "$stages/lf-tokenize" --tokenizer "$dir/text/tokenizer" --shape preference --valid-fraction 0.2 --out "$dir/data" "$dir/pairs.jsonl"
cat >"$dir/lm.ini" <<END
[stage]
data = $dir/text/shards
steps = 3
seq_length = 64
batch = 4
lr = 1e-3
threads = 1
[model]
family = llama
layers = 2
hidden = 32
heads = 4
kv_heads = 2
ffn = 64
vocab = 320
max_positions = 128
attn_dropout = 0.1
END
must "$stages/lf-pretrain" --config "$dir/lm.ini" --out "$dir/lm"
cat >"$dir/rm.ini" <<END
[stage]
data = $dir/data/shards
init_from = $dir/lm/checkpoint
seq_length = 128
batch = 4
micro_batch = 2
lr = 3e-3
save_interval = 4
save_time = 0
valid_interval = 10
log_interval = 5
centre = 0.01
threads = 1
END

rm_ plan --plan --epochs 3
grep -q '"parameters":' "$dir/stdout"
ok $? "--plan"
"$stages/lf-rm" --data x --init-from "$dir/nothing" --steps 2 --plan 2>"$dir/err" | grep -q 'does not exist yet'
ok $? "--plan of a checkpoint that is not there yet"
rm_ base --epochs 3
grep -q "dropout is not applied" "$dir/err"
ok $? "a model with dropout: that it is left out is told"
is $rc 0 "a run to the end"
rm_ base --epochs 3 --centre 0.5
[ $rc -eq 1 ] && grep -q "made with other options (centre was .*, is 0.5); use another out" "$dir/err"
ok $? "other options in a finished out are refused by name"
awk -v a="$(field base valid_accuracy)" -v l="$(field base valid_loss)" 'BEGIN { exit !(a > 0.9 && l < 0.45) }'
ok $? "it tells good from bad on pairs it has not seen: $(field base valid_accuracy)"
for key in accuracy margin reward chosen rejected reward_std reward_min reward_max valid_margin; do
    [ -n "$(field base $key)" ]
    ok $? "the metrics hold $key"
done
"$tool" state "$dir/base/out/checkpoint" >"$dir/state"
grep -q '"output": *"score"' "$dir/state" && grep -q '"std":' "$dir/state" && grep -q '"mean":' "$dir/state"
ok $? "the model gives scores and knows their mean and standard deviation"

base=$(id base)
mkdir -p "$dir/kill"
killed_often 5 "$dir/kill/metrics" "$(bytes "$dir/base/metrics")" \
    "$stages/lf-rm" --config "$dir/rm.ini" --out "$dir/kill/out" --metrics "$dir/kill/metrics" --epochs 3
rm_ kill --epochs 3
is "$rc $often $(id kill)" "0 1 $base" "after $kills kills -9 the same bits"
"$tool" metrics "$dir/kill/metrics" >"$dir/a"
"$tool" metrics "$dir/base/metrics" | cmp -s "$dir/a" -
ok $? "and the same metrics"
grep -o '"score": *{[^}]*}' "$dir/state" >"$dir/a"
"$tool" state "$dir/kill/out/checkpoint" | grep -o '"score": *{[^}]*}' | cmp -s "$dir/a" -
ok $? "and the same normalisation"

# Numbers of one step do not depend on how it is cut; later ones only by rounding.
rm_ whole --micro-batch 4 --epochs 0.6
rm_ cut --micro-batch 1 --epochs 0.6
near whole cut 1e-6
ok $? "four micro-batches of one and one of four have the same losses"
if ! have_ranks; then
    skip_some 1 "ranks cannot be started here: $(tail -n 1 "$dir/err")"
else
    prefix="$launch 2 --"
    rm_ ranks --micro-batch 2 --epochs 0.6
    prefix=
    is $rc 0 "two ranks"
    near whole ranks 1e-6
    ok $? "have the losses of one"
fi
rm_ plain --centre 0 --no-margins --steps 1 --normalize no
[ "$(field plain loss)" != "$("$tool" metrics "$dir/base/metrics" | awk 'NR == 1 { print $4 }')" ]
ok $? "margins and centring are in the loss"
rm_ zero --score-init zero --centre 0 --no-margins --steps 1 --normalize train
awk -v l="$(field zero loss)" -v a="$(field zero accuracy)" 'BEGIN { d = l - log(2); exit !(d < 1e-9 && d > -1e-9 && a == 0) }'
ok $? "a head of zeros begins at ln 2 with nothing right: $(field zero loss)"

rm_ short --seq-length 22 --steps 1
grep -q 'of [0-9]* pairs of a train split are longer than seq_length = 22' "$dir/err"
ok $? "pairs that do not fit are left out and counted"
must "$stages/lf-tokenize" --tokenizer "$dir/text/tokenizer" --shape preference --no-append-eos --out "$dir/open" "$dir/pairs.jsonl"
rm_ open --data "$dir/open/shards" --steps 1
[ $rc -eq 1 ] && grep -q 'do not end with EOS.*chosen one of pair 0' "$dir/err"
ok $? "answers without EOS are refused"
rm_ open --data "$dir/open/shards" --steps 1 --no-require-eos
is $rc 0 "unless that is meant"
rm_ text --data "$dir/text/shards" --steps 1
[ $rc -eq 1 ] && grep -q 'holds plain documents, but pairs of answers are trained on here' "$dir/err"
ok $? "texts are no pairs"
"$stages/lf-pretrain" --data "$dir/text/shards" --init-from "$dir/base/out/checkpoint" --steps 1 --seq-length 32 --out "$dir/no" 2>"$dir/err"
[ $? -eq 1 ] && grep -q 'gives scores' "$dir/err"
ok $? "a reward model predicts no tokens"
rm_ again --init-from "$dir/base/out/checkpoint" --steps 1 --lr 1e-9
awk -v a="$(field again accuracy)" 'BEGIN { exit !(a > 0.8) }'
ok $? "a reward model is trained on: $(field again accuracy) at its first step"

"$stages/lf-convert" --from "$dir/base/out/checkpoint" --out "$dir/hf" --tokenizer "$dir/text/tokenizer" 2>"$dir/err"
[ $? -eq 1 ] && grep -q 'no padding token' "$dir/err"
ok $? "an export needs a padding token"
"$stages/lf-convert" --from "$dir/base/out/checkpoint" --out "$dir/hf" --pad-token 300 2>"$dir/err"
is $? 0 "and gets one"
grep -q '"LlamaForSequenceClassification"' "$dir/hf/model/config.json" && grep -q '"mean"' "$dir/hf/model/config.json" &&
    grep -q '"pad_token_id": 300' "$dir/hf/model/config.json"
ok $? "config.json of a classifier"
"$stages/lf-convert" --from "$dir/base/out/checkpoint" --out "$dir/hf2" --tokenizer "$dir/text/tokenizer" --pad-token 5 2>"$dir/err"
grep -q '"eos_token_id": 0' "$dir/hf2/model/config.json" && grep -q '"pad_token_id": 5' "$dir/hf2/model/config.json" &&
    grep -q '^pipeline_tag: text-classification$' "$dir/hf2/model/README.md" && grep -q '"pad_token"' "$dir/hf2/model/tokenizer_config.json"
ok $? "with a tokenizer beside it: its end token, a card"
"$stages/lf-convert" --from "$dir/base/out/checkpoint" --out "$dir/hf3" --tokenizer "$dir/text/tokenizer" --pad-token 0 2>"$dir/err"
[ $? -eq 1 ] && grep -q 'pad_token = 0 is the end token' "$dir/err"
ok $? "the end token fills no batch"
"$stages/lf-convert" --from "$dir/hf/model" --out "$dir/back" --verify none >"$dir/stdout" 2>"$dir/err"
is "$? $("$tool" id "$dir/back/checkpoint" | awk '{ print NF }')" "0 2" "which comes in again"
"$tool" state "$dir/back/checkpoint" | grep -q '"std":'
ok $? "with its normalisation"
golden=$LF_SRCDIR/tests/golden/post
for m in qwen2 gpt2; do
    "$stages/lf-convert" --from "$golden/rm-$m" --out "$dir/v-$m" --verify "$golden/rm-$m/verify.safetensors" >"$dir/stdout" 2>"$dir/err"
    [ $? -eq 0 ] && grep -q '^VERIFIED' "$dir/stdout"
    ok $? "$m: a classifier that comes in is held to transformers' scores: $(sed 's/:.*//' "$dir/stdout")"
done
"$stages/lf-convert" --from "$golden/rm-qwen2" --out "$dir/v-not" --verify "$golden/rm-gpt2/verify.safetensors" >"$dir/stdout" 2>"$dir/err"
[ $? -eq 1 ] && grep -q '^DIFFERENT' "$dir/stdout" && [ ! -e "$dir/v-not/checkpoint" ]
ok $? "those of another are seen"
"$stages/lf-convert" --from "$golden/rm-qwen2" --out "$dir/v-no" --verify "$LF_SRCDIR/tests/golden/families/qwen2/expected.safetensors" >"$dir/stdout" 2>"$dir/err"
[ $? -eq 1 ] && grep -q 'gives one score a token' "$dir/err"
ok $? "and logits are no scores"

# An adapter, the head whole beside it, with dropout of both kinds; killed, scored with, exchanged.
lora="--lora-rank 4 --lora-scaling root --lora-dora --lr 1e-2 --dropout --lora-dropout 0.05 --epochs 2"
rm_ lora $lora
is $rc 0 "an adapter"
! grep -q "dropout is not applied" "$dir/err"
ok $? "with dropout"
awk -v a="$(field lora valid_accuracy)" 'BEGIN { exit !(a > 0.85) }'
ok $? "tells good from bad: $(field lora valid_accuracy)"
"$tool" state "$dir/lora/out/adapter" | tr -d ' \n' >"$dir/a"
grep -q '"head":true' "$dir/a" && grep -q '"std":' "$dir/a" && grep -q '"base":' "$dir/a"
ok $? "is kept with the head, the normalisation and its base"
mkdir -p "$dir/lorakill"
killed_often 5 "$dir/lorakill/metrics" "$(bytes "$dir/lora/metrics")" \
    "$stages/lf-rm" --config "$dir/rm.ini" --out "$dir/lorakill/out" --metrics "$dir/lorakill/metrics" $lora
rm_ lorakill $lora
is "$rc $often $(id lorakill) $("$tool" id "$dir/lorakill/out/adapter")" "0 1 $(id lora) $("$tool" id "$dir/lora/out/adapter")" \
    "after $kills kills -9 the same bits"
rm_ dry --lora-rank 4 --lora-scaling root --lora-dora --lr 1e-2 --steps 1
rm_ wet $(echo "$lora" | sed 's/--epochs 2/--steps 1/')
[ -n "$(field dry loss)" ] && [ "$(field dry loss)" != "$(field wet loss)" ]
ok $? "dropout is in the loss"
rm_ wetcut $(echo "$lora" | sed 's/--epochs 2/--steps 5/') --micro-batch 1
rm_ wetone $(echo "$lora" | sed 's/--epochs 2/--steps 5/') --micro-batch 4
near wetcut wetone 1e-6
ok $? "and does not depend on how a step is cut"
rm_ no --lora-rank 4 --lora-dropout 0.1 --steps 1
[ $rc -ne 0 ] && grep -q 'no effect with dropout = no' "$dir/err"
ok $? "lora_dropout without dropout is refused"

score() { # score NAME ARGS...
    _name=$1
    shift
    "$stages/lf-score" --threads 1 --tokenizer "$dir/text/tokenizer" --inputs "$dir/some.jsonl" --out "$dir/score-$_name" "$@" >"$dir/stdout" 2>"$dir/err"
}
scores() { sed 's/[^0-9.e+-]/ /g' "$dir/score-$1/scores/scores.jsonl"; }
head -n 40 "$dir/pairs.jsonl" >"$dir/some.jsonl"
score beside --checkpoint "$dir/lm/checkpoint" --adapter "$dir/lora/out/adapter" --normalized
is $? 0 "lf-score with the adapter beside the language model"
score merged --checkpoint "$dir/lora/out/checkpoint" --normalized
scores merged >"$dir/a"
scores beside | paste - "$dir/a" |
    awk '{ h = NF / 2; for (i = 1; i <= h; i++) { d = $i - $(i + h); if (d < 0) d = -d; if (d > 1e-4) bad = 1; if (d > 0) some = 1 } } END { exit bad || !some || NR < 40 }'
ok $? "its scores are those of the merged model"
"$stages/lf-convert" --from "$dir/lora/out/adapter" --out "$dir/hf-lora" >"$dir/stdout" 2>"$dir/err"
is "$? $(grep -c '"SEQ_CLS"' "$dir/hf-lora/peft/adapter_config.json")" "0 1" "out as PEFT's, for a sequence classifier"
score peft --checkpoint "$dir/lm/checkpoint" --adapter "$dir/hf-lora/peft"
score ours --checkpoint "$dir/lm/checkpoint" --adapter "$dir/lora/out/adapter"
cmp "$dir/score-peft/scores/scores.jsonl" "$dir/score-ours/scores/scores.jsonl" 2>>"$dir/err" >&2
ok $? "whose scores are the same bytes"
score none --checkpoint "$dir/lm/checkpoint" --adapter "$dir/nothing" --plan
grep -q 'adapter, which does not exist yet' "$dir/stdout"
ok $? "--plan with an adapter that is not there yet"
"$stages/lf-convert" --from "$dir/lora/out/adapter" --base "$dir/lm/checkpoint" --to checkpoint --out "$dir/merge" >"$dir/stdout" 2>"$dir/err"
is "$? $(grep -c '^MERGED' "$dir/stdout")" "0 1" "merged once more, and compared: $(sed 's/.*differ/differ/' "$dir/stdout")"
rm_ on --adapter "$dir/hf-lora/peft" --steps 1 --lr 1e-9
awk -v a="$(field on accuracy)" 'BEGIN { exit !(a > 0.7) }'
ok $? "it is trained on: $(field on accuracy) at the first step"
"$stages/lf-sft" --data "$dir/text/shards" --init-from "$dir/lm/checkpoint" --adapter "$dir/lora/out/adapter" --steps 1 --seq-length 32 --out "$dir/no" 2>"$dir/err"
[ $? -eq 1 ] && grep -q 'has a score head' "$dir/err"
ok $? "a reward model's adapter is none for lf-sft"
"$stages/lf-sft" --data "$dir/text/shards" --init-from "$dir/lm/checkpoint" --lora-rank 2 --steps 1 --seq-length 32 --out "$dir/sft" 2>"$dir/err"
rm_ no --adapter "$dir/sft/adapter" --steps 1
[ $rc -eq 1 ] && grep -q 'has no score head' "$dir/err"
ok $? "nor the other way round"
"$stages/lf-convert" --from "$dir/sft/adapter" --out "$dir/hf-sft" >"$dir/stdout" 2>"$dir/err"
saved() { # JSON, message: a PEFT adapter without a head whose modules_to_save is that
    sed -i.was "s/^{/{\"modules_to_save\": $1,/" "$dir/hf-sft/peft/adapter_config.json"
    score saved --checkpoint "$dir/lm/checkpoint" --adapter "$dir/hf-sft/peft"
    rc=$?
    mv "$dir/hf-sft/peft/adapter_config.json.was" "$dir/hf-sft/peft/adapter_config.json"
    [ $rc -eq 1 ] && grep -q "$2" "$dir/err"
    ok $? "modules_to_save = $1: $2"
}
saved '["score"]' 'score.weight, but modules_to_save'
saved '"score"' 'modules_to_save is no list'
"$stages/lf-generate" --checkpoint "$dir/lm/checkpoint" --adapter "$dir/lora/out/adapter" --tokenizer "$dir/text/tokenizer" --prompt "q ban" --out "$dir/no2" 2>"$dir/err"
[ $? -eq 1 ] && grep -q "is a reward model's" "$dir/err"
ok $? "and it predicts no tokens"
finish_min 60 # one fewer where ranks cannot be started

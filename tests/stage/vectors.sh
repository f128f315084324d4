#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Vectors of texts: lf-rm with objective = contrast teaches an encoder to find the answer of a question among those of others,
# whatever the layout, the micro-batch and kills; lf-score writes the vectors of texts as lines and as HDF5, on any ranks and after a
# stop, and labels with how right they are.
. "$LF_SRCDIR/tests/stage/lib.sh"
with_ranks

# A question has five letters and its answer the same in capitals, in another order; a wrong answer is of other letters.
awk 'BEGIN { srand(11)
    for (i = 0; i < 240; i++) {
        q = a = n = ""
        for (k = 0; k < 5; k++) {
            c = int(rand() * 16); q = q substr("abcdefghijklmnop", c + 1, 1); a = substr("ABCDEFGHIJKLMNOP", c + 1, 1) a
            n = n substr("ABCDEFGHIJKLMNOP", 1 + int(rand() * 16), 1)
        }
        printf "{\"prompt\":\"[CLS]%s[SEP][CLS]%s[SEP]%s\"}\n", q, a, (i % 2 ? "[CLS]" n "[SEP]" : "") >"'"$dir"'/pairs.jsonl"
        printf "{\"id\":\"q%d\",\"text\":\"[CLS]%s[SEP]\",\"label\":%d}\n", i, q, (q ~ /a/) >"'"$dir"'/rows.jsonl"
        print q a >"'"$dir"'/text.txt"
    } }'
must "$stages/lf-tokenize" --doc-split line --special-tokens '<|endoftext|>' --special-tokens '[CLS]' --special-tokens '[SEP]' --special-tokens '[MASK]' \
    --vocab-size 260 --out "$dir/text" "$dir/text.txt"
must "$stages/lf-tokenize" --tokenizer "$dir/text/tokenizer" --special-in-text token --shape prompt --valid-fraction 0.2 --out "$dir/pairs" \
    "$dir/pairs.jsonl"
cat >"$dir/bert.ini" <<END
[stage]
data = $dir/text/shards
steps = 2
seq_length = 32
batch = 4
lr = 1e-3
threads = 1
objective = mlm
mask_token = 3
[model]
family = bert
layers = 2
hidden = 32
heads = 4
ffn = 64
vocab = 260
max_positions = 128
mlp_dropout = 0.1
END
must "$stages/lf-pretrain" --config "$dir/bert.ini" --out "$dir/bert"
cat >"$dir/run.ini" <<END
[stage]
data = $dir/pairs/shards
init_from = $dir/bert/checkpoint
objective = contrast
separator = 2
steps = 40
seq_length = 96
batch = 4
micro_batch = 2
lr = 3e-3
schedule = constant
valid_interval = 20
log_interval = 20
save_time = 0
seed = 3
threads = 1
END
on1() {
    _n=$1
    shift
    train "$stages/lf-rm" "$dir/run.ini" "$_n" "$@"
}
field() { tr '{' '\n' <"$dir/$1/metrics" | sed -n 's/.*"'"$2"'":\([-0-9.e+]*\).*/\1/p' | tail -n 1; }
pretrain="$stages/lf-rm" # what `on` starts

# --- training ---
on1 plan --plan
grep -q '"parameters":' "$dir/stdout"
ok $? "--plan" "$(cat "$dir/err")"
on1 one
is $rc 0 "40 steps"
awk -v a="$(field one valid_accuracy)" 'BEGIN { exit !(a > 0.5) }'
ok $? "of 48 answers that it has not seen it finds the right one more often than not: $(field one valid_accuracy)" "$(cat "$dir/err")"
mkdir "$dir/kill"
killed_often 2 "$dir/kill/metrics" "$(bytes "$dir/one/metrics")" "$stages/lf-rm" --config "$dir/run.ini" --out "$dir/kill/out" \
    --metrics "$dir/kill/metrics" --save-interval 7
on1 kill --save-interval 7
is "$often $(id kill) $(metrics kill | cksum)" "1 $(id one) $(metrics one | cksum)" "killed and continued, the same bits"
on1 six --steps 6 --dropout
same() { # same NAME WORDS
    near_losses six "$1" 1e-5 6 && awk -v a="$(field six valid_loss)" -v b="$(field "$1" valid_loss)" 'BEGIN { exit !(a > 0 && a - b < 1e-5 && b - a < 1e-5) }'
    ok $? "$2, the same losses, of validation too" "$(field six valid_loss) $(field "$1" valid_loss) $(cat "$dir/err")"
}
on1 micro --steps 6 --dropout --micro-batch 1
same micro "with dropout, micro-batches of half the size"
on1 few --steps 2 --max-docs 4
is $rc 0 "max_docs counts documents, which are several texts each"
on1 both --steps 6 --dropout --both-ways
on1 cold --steps 6 --dropout --temperature 0.2
on1 first --steps 6 --dropout --pooling first
is "$({ for n in six both cold first; do losses $n | head -n 1; done; } | sort -u | wc -l)" 4 "both ways, another temperature, another pooling: other losses"
if have_ranks; then
    on 2 data --steps 6 --dropout
    same data "two ranks, whose answers are candidates of both"
    on 2 tensor --steps 6 --dropout --tensor 2
    same tensor "matrices on two ranks"
    on 2 rows --steps 6 --dropout --context 2
    same rows "rows on two ranks"
    on 4 gather --steps 6 --dropout --context 2 --context-kind gather --zero 1
    same gather "rows on two of four, which gather keys"
    on 2 pipe --steps 6 --dropout --pipeline 2
    says "the embedding is the head too" "a pipeline of a model with a tied head is refused"
    sed '/^objective/d; /^mask_token/d; /_dropout/d; s/family = bert/family = llama/' "$dir/bert.ini" >"$dir/llama.ini"
    must "$stages/lf-pretrain" --config "$dir/llama.ini" --out "$dir/llama"
    rm -rf "$dir/six"
    on1 six --steps 6 --init-from "$dir/llama/checkpoint"
    on 2 untied --steps 6 --init-from "$dir/llama/checkpoint" --pipeline 2
    same untied "a layer of a decoder on each of two ranks"
    on 4 rest --steps 6 --init-from "$dir/llama/checkpoint" --pipeline 2 --context 2 --context-kind gather
    same rest "and some rows on each of two that have it"
    awk 'BEGIN { for (i = 0; i < 8; i++) { s = ""; for (k = 0; k < 20; k++) s = s "[CLS]a[SEP]"; printf "{\"prompt\":\"%s\"}\n", s } }' >"$dir/many.jsonl"
    must "$stages/lf-tokenize" --tokenizer "$dir/text/tokenizer" --special-in-text token --shape prompt --out "$dir/many" "$dir/many.jsonl"
    on 2 many --data "$dir/many/shards" --steps 1 --valid-interval 0 --micro-batch 1 --max-docs 1 --init-from "$dir/llama/checkpoint" --pipeline 2
    says "texts, for which there is no room: raise max_docs" "texts that find no room are told, and no rank of a pipeline waits"
else
    skip_some 8 "ranks cannot be started here"
fi

# --- adapters: no head is beside them ---
lora="--lora-rank 4 --lr 1e-2 --steps 80"
on1 lora $lora
awk -v a="$(field lora valid_accuracy)" 'BEGIN { exit !(a > 0.5) }'
ok $? "adapters find the right answer, too: $(field lora valid_accuracy)" "$(cat "$dir/err")"
mkdir "$dir/lorakill"
killed_often 1 "$dir/lorakill/metrics" "$(bytes "$dir/lora/metrics")" "$stages/lf-rm" --config "$dir/run.ini" --out "$dir/lorakill/out" \
    --metrics "$dir/lorakill/metrics" --save-interval 7 $lora
on1 lorakill $lora --save-interval 7
is "$often $(id lorakill) $("$tool" id "$dir/lorakill/out/adapter")" "1 $(id lora) $("$tool" id "$dir/lora/out/adapter")" "killed and continued, the same bits"
for n in beside merged; do
    [ $n = beside ] && set -- "$dir/bert/checkpoint" --adapter "$dir/lora/out/adapter" || set -- "$dir/lora/out/checkpoint"
    must "$stages/lf-score" --tokenizer "$dir/text/tokenizer" --append-eos=no --special-in-text token --threads 1 --give embeddings --out "$dir/lora-$n" \
        --checkpoint "$@" "$dir/rows.jsonl"
done
alike "$dir/lora-beside/scores/scores.jsonl" "$dir/lora-merged/scores/scores.jsonl" 1e-5 >"$dir/apart"
ok $? "lf-score gives with the adapter the vectors of the merged model" "$(cat "$dir/apart")"
must "$stages/lf-convert" --from "$dir/lora/out/adapter" --out "$dir/lora-peft"
is "$(grep -c 'modules_to_save' "$dir/lora-peft/peft/adapter_config.json") $(grep -c '"FEATURE_EXTRACTION"' "$dir/lora-peft/peft/adapter_config.json")" "0 1" \
    "PEFT has it as an adapter of the base alone, which generates nothing"
must "$stages/lf-score" --tokenizer "$dir/text/tokenizer" --append-eos=no --special-in-text token --threads 1 --give embeddings --out "$dir/lora-theirs" \
    --checkpoint "$dir/bert/checkpoint" --adapter "$dir/lora-peft/peft" "$dir/rows.jsonl"
cmp -s "$dir/lora-beside/scores/embeddings.h5" "$dir/lora-theirs/scores/embeddings.h5"
ok $? "from whose files the vectors are the same bytes"

# --- what is refused ---
refused() { # refused WORDS TEXT ARGS...
    _words=$1 _text=$2
    shift 2
    on1 refused "$@"
    [ $rc -ne 0 ] && grep -qF -- "$_words" "$dir/err"
    ok $? "$_text is refused" "$(cat "$dir/err")"
}
refused "is one text; a question and its answer are asked for" "a text that ends otherwise" --separator 3
{ head -n 200 "$dir/pairs.jsonl"; echo '{"prompt":"[CLS]alone[SEP]"}'; } >"$dir/some.jsonl"
must "$stages/lf-tokenize" --tokenizer "$dir/text/tokenizer" --special-in-text token --shape prompt --out "$dir/some" "$dir/some.jsonl"
refused "train split: train-00000.h5: document 200 is one text" "a question without an answer, before the first step" --data "$dir/some/shards" --steps 1 \
    --batch 1 --micro-batch 1
refused "temperature belongs to objective = contrast" "the temperature of labels" --objective labels --temperature 1
must "$tool" poison "$dir/bert/checkpoint" "$dir/poison"
on1 poisoned --init-from "$dir/poison" --steps 2
says "diverged at step 1: the loss is not finite" "vectors that are none end the run as a loss does"
says "has a number that is not finite" "which says of which text"
sed '/^separator/d' "$dir/run.ini" >"$dir/none.ini"
train "$stages/lf-rm" "$dir/none.ini" none
says "objective = contrast needs separator" "and texts that end nowhere"

# --- vectors ---
score() { # score NAME ARGS...
    _name=$1
    shift
    "$stages/lf-score" --checkpoint "$dir/one/out/checkpoint" --tokenizer "$dir/text/tokenizer" --append-eos=no --special-in-text token \
        --threads 1 --out "$dir/$_name" "$@" 2>"$dir/err" >"$dir/stdout"
}
score vectors --give embeddings "$dir/rows.jsonl"
is "$? $(grep -c '"embedding":\[' "$dir/vectors/scores/scores.jsonl")" "0 240" "a vector of each text"
head -n 1 "$dir/vectors/scores/scores.jsonl" | sed 's/.*\[\(.*\)\].*/\1/' | tr ',' '\n' |
    awk '{ n++; s += $1 * $1 } END { exit !(n == 32 && s > 0.99999 && s < 1.00001) }'
ok $? "of length 1, as wide as the model" "$(head -n 1 "$dir/vectors/scores/scores.jsonl")"
od -An -v -tf4 -w4 "$dir/vectors/scores/embeddings.h5" >"$dir/floats"
sed 's/.*\[\(.*\)\].*/\1/' "$dir/vectors/scores/scores.jsonl" | tr ',' '\n' | awk 'function near(a, b) { a -= b; return a < 1e-6 && a > -1e-6 }
    NR == FNR { x[n++] = $1; next }
    { if (near(x[k], $1)) k++; else k = near(x[0], $1); if (k == n) found = 1 } END { exit n != 7680 || !found }' - "$dir/floats"
ok $? "and all of them one after the other in one array"
score again --give embeddings --micro-tokens 77 --block 7 "$dir/rows.jsonl"
cmp -s "$dir/vectors/scores/scores.jsonl" "$dir/again/scores/scores.jsonl" && cmp -s "$dir/vectors/scores/embeddings.h5" "$dir/again/scores/embeddings.h5"
ok $? "other batches, the same bytes"
score first --give embeddings --pooling first --normalize=no "$dir/rows.jsonl"
score last --give embeddings --pooling last --normalize=no "$dir/rows.jsonl"
score mean --give embeddings --pooling mean --normalize=no "$dir/rows.jsonl"
is "$(for n in first last mean vectors; do head -n 1 "$dir/$n/scores/scores.jsonl"; done | sort -u | wc -l)" 4 "three poolings, and lengths"
if have_ranks; then
    mkdir -p "$dir/ranks"
    $launch 2 -- "$stages/lf-score" --checkpoint "$dir/one/out/checkpoint" --tokenizer "$dir/text/tokenizer" --append-eos=no --special-in-text token \
        --give embeddings --threads 1 --out "$dir/ranks" "$dir/rows.jsonl" 2>"$dir/err"
    cmp -s "$dir/vectors/scores/scores.jsonl" "$dir/ranks/scores/scores.jsonl"
    ok $? "two ranks, the same bytes" "$(cat "$dir/err")"
    mkdir -p "$dir/tensor-told"
    $launch 2 -- "$stages/lf-score" --checkpoint "$dir/one/out/checkpoint" --tokenizer "$dir/text/tokenizer" --append-eos=no --special-in-text token \
        --give embeddings --tensor 2 --threads 1 --out "$dir/tensor-told" "$dir/rows.jsonl" 2>"$dir/err"
    alike "$dir/vectors/scores/scores.jsonl" "$dir/tensor-told/scores/scores.jsonl" 1e-5 >"$dir/apart"
    ok $? "and with matrices on two ranks nearly the same numbers" "$(cat "$dir/apart" "$dir/err")"
else
    skip_some 2 "ranks cannot be started here"
fi
head -n 100 "$dir/vectors/scores/scores.jsonl" >"$dir/part"
mkdir -p "$dir/stopped/scores"
cp "$dir/part" "$dir/stopped/scores/scores.jsonl.part"
score stopped --give embeddings "$dir/rows.jsonl"
cmp -s "$dir/vectors/scores/scores.jsonl" "$dir/stopped/scores/scores.jsonl" && grep -q 'continuing behind 100 of 240' "$dir/err"
ok $? "stopped and continued, the same bytes" "$(cat "$dir/err")"
score plain --pooling mean "$dir/rows.jsonl"
says "pooling belongs to give = embeddings" "a pooling of scores is refused"
score tokens "$dir/rows.jsonl"
says "this model predicts tokens" "and scores of a model that gives none"

# --- labels ---
sed 's/"text"/"prompt"/' "$dir/rows.jsonl" >"$dir/prompts.jsonl"
must "$stages/lf-tokenize" --tokenizer "$dir/text/tokenizer" --special-in-text token --shape prompt --out "$dir/labelled" "$dir/prompts.jsonl"
sed '/^separator/d; s/= contrast/= labels/' "$dir/run.ini" >"$dir/labels.ini"
train "$stages/lf-rm" "$dir/labels.ini" labels --data "$dir/labelled/shards" --steps 20
"$stages/lf-score" --checkpoint "$dir/labels/out/checkpoint" --tokenizer "$dir/text/tokenizer" --append-eos=no --special-in-text token --threads 1 \
    --out "$dir/told" "$dir/prompts.jsonl" 2>"$dir/err"
is "$? $(grep -c '"labels":\[.*"class":[01],' "$dir/told/scores/scores.jsonl")" "0 240" "labels of prompts, and their class"
right=$(paste -d' ' "$dir/prompts.jsonl" "$dir/told/scores/scores.jsonl" | sed 's/.*"label":\([01]\).*"class":\([01]\).*/\1 \2/' |
    awk '{ n += $1 == $2 } END { printf "%.6f", n / NR }')
grep -q "labels: accuracy ${right%0000}" "$dir/err" || grep -q "labels: accuracy $(echo "$right" | sed 's/0*$//')" "$dir/err"
ok $? "as many are right as is told: $right" "$(cat "$dir/err")"
grep -q '"macro_f1"' "$dir/told/scores/results.json" && grep -q '"matthews"' "$dir/told/scores/results.json"
ok $? "with macro F1 and Matthews"
tell() { # tell NAME ARGS...: by the model with labels
    _name=$1
    shift
    "$stages/lf-score" --checkpoint "$dir/labels/out/checkpoint" --tokenizer "$dir/text/tokenizer" --append-eos=no --special-in-text token --threads 1 \
        --out "$dir/$_name" "$@" 2>"$dir/err"
}
sed 's/"label":1/"label":true/; s/"label":0/"label":false/' "$dir/prompts.jsonl" >"$dir/said.jsonl"
tell said "$dir/said.jsonl"
cmp -s "$dir/told/scores/results.json" "$dir/said/scores/results.json"
ok $? "true and false are labels" "$(cat "$dir/err")"
# Of two classes F1, by subset too: counted here again.
paste -d' ' "$dir/prompts.jsonl" "$dir/told/scores/scores.jsonl" | sed 's/.*"label":\([01]\).*"class":\([01]\).*/\1 \2/' >"$dir/pairs.txt"
f1() { awk "$1"'{ tp += $1 && $2; fp += !$1 && $2; fn += $1 && !$2 } END { printf "%.6f", 2 * tp / (2 * tp + fp + fn) }' "$dir/pairs.txt"; }
awk '{ sub(/}$/, ",\"subset\":\"" (NR % 3 ? "most" : "third") "\"}"); print }' "$dir/prompts.jsonl" >"$dir/subsets.jsonl"
tell subsets "$dir/subsets.jsonl"
tr -d ' \n' <"$dir/subsets/scores/results.json" >"$dir/results"
got=$(for part in '"labels":' '"most":' '"third":'; do sed "s/.*$part{\([^}]*\)}.*/\1/; s/.*\"f1\":\([0-9.]*\).*/\1/" "$dir/results" | awk '{ printf "%.6f ", $1 }'; done)
is "$got" "$(f1 '') $(f1 'NR % 3') $(f1 'NR % 3 == 0') " "F1 of class 1, of all and by subset" "$(cat "$dir/results" "$dir/err")"
{ cat "$dir/subsets.jsonl"; echo '{"prompt":"[CLS]abc[SEP]","subset":"nothing"}'; } >"$dir/unsaid.jsonl"
tell unsaid "$dir/unsaid.jsonl"
grep -q '"third"' "$dir/unsaid/scores/results.json" && ! grep -q '"nothing"' "$dir/unsaid/scores/results.json"
ok $? "a subset of which nothing is said is left out" "$(cat "$dir/unsaid/scores/results.json" "$dir/err")"
tell best --best "$dir/prompts.jsonl"
says "best belongs to scores" "the best of labels is refused"
tell beyond --separator 260 "$dir/prompts.jsonl"
says "separator = 260: the vocabulary has 260 words" "a separator that there is not is refused"
mkdir -p "$dir/mixed/scores"
head -n 100 "$dir/told/scores/scores.jsonl" >"$dir/mixed/scores/scores.jsonl.part"
tell mixed --give embeddings "$dir/prompts.jsonl"
says "has a line without a vector" "vectors behind lines of labels are refused"
finish 45

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Labels as a user has them (lf-rm, objective = labels): an encoder learns classes of texts and of their tokens, numbers, and where
# an answer stands, and tells them of texts that it has not seen; layouts, micro-batches and kills change nothing; a decoder learns
# classes; what is wrong with a label is told before the first step; out as a class of transformers and in again.
# engine/post/label_train.h
. "$LF_SRCDIR/tests/stage/lib.sh"
with_ranks

# Every letter is a token: the first half of the alphabet, the second, and between z and y an answer.
awk 'BEGIN { srand(7)
    for (i = 0; i < 500; i++) {
        n = 6 + int(rand() * 5); s = ""; good = 0; t = "-100"; none = "-1"
        for (k = 0; k < n; k++) {
            c = int(rand() * 16); good += c < 8; s = s substr("abcdefghijklmnop", c + 1, 1); t = t "," (c < 8); none = none ",-1"
        }
        from = int(rand() * (n - 2)); len = 1 + int(rand() * 2)
        a = substr(s, 1, from) "z" substr(s, from + 1, len) "y" substr(s, from + len + 1)
        last = substr("abcdefghijklmnop", int(rand() * 16) + 1, 1)
        printf "{\"prompt\":\"[CLS]%s[SEP]\",\"one\":%d,\"numbers\":%.3f,\"tokens\":[%s,-100],\"any\":[%d,%d],\"none\":[%s,-1]}\n", s,
            (good * 2 > n), good / n, t, (s ~ /a/), (s ~ /p/), none >"'"$dir"'/texts.jsonl"
        printf "{\"prompt\":\"[CLS]%s[SEP]\",\"span\":[%d,%d]}\n", a, from + 1, from + len + 2 >"'"$dir"'/answers.jsonl"
        printf "{\"prompt\":\"[CLS]%s[SEP]%s\",\"label\":%d}\n", s, last, (last < "i") >"'"$dir"'/pairs.jsonl"
    } }'
sed 's/.*"prompt":"\([^"]*\)".*/\1/' "$dir/texts.jsonl" >"$dir/text.txt"
must "$stages/lf-tokenize" --doc-split line --special-tokens '<|endoftext|>' --special-tokens '[CLS]' --special-tokens '[SEP]' --special-tokens '[MASK]' \
    --vocab-size 260 --special-in-text token --out "$dir/text" "$dir/text.txt"
for f in texts answers pairs; do
    must "$stages/lf-tokenize" --tokenizer "$dir/text/tokenizer" --special-in-text token --shape prompt --valid-fraction 0.2 --out "$dir/$f" \
        "$dir/$f.jsonl"
done
cat >"$dir/lm.ini" <<END
[stage]
data = $dir/text/shards
steps = 2
seq_length = 32
batch = 4
lr = 1e-3
threads = 1
END
{
    cat "$dir/lm.ini"
    printf 'objective = mlm\nmask_token = 3\n[model]\nfamily = bert\nlayers = 2\nhidden = 32\nheads = 4\nffn = 64\nvocab = 260\nmax_positions = 64\n'
} >"$dir/bert.ini"
{
    cat "$dir/lm.ini"
    printf '[model]\nfamily = llama\nlayers = 1\nhidden = 32\nheads = 4\nkv_heads = 2\nffn = 64\nvocab = 260\nmax_positions = 64\n'
} >"$dir/llama.ini"
must "$stages/lf-pretrain" --config "$dir/bert.ini" --out "$dir/bert"
must "$stages/lf-pretrain" --config "$dir/llama.ini" --out "$dir/llama"
cat >"$dir/run.ini" <<END
[stage]
data = $dir/texts/shards
init_from = $dir/bert/checkpoint
objective = labels
label_column = one
steps = 80
seq_length = 64
batch = 8
micro_batch = 4
lr = 5e-3
schedule = constant
valid_interval = 40
log_interval = 40
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
above() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a > b) }'; }
pretrain="$stages/lf-rm" # what `on` starts

# --- what it learns ---
on1 plan --plan
grep -q '"parameters":' "$dir/stdout"
ok $? "--plan" "$(cat "$dir/err")"
on1 one
is $rc 0 "classes of texts"
above "$(field one valid_accuracy)" 0.9 && above "$(field one valid_f1)" 0.9 && above "$(field one valid_matthews)" 0.8
ok $? "of texts that it has not seen it tells more than nine in ten: $(field one valid_accuracy)"
"$tool" state "$dir/one/out/checkpoint" >"$dir/state"
grep -q '"labels_of": *"text"' "$dir/state" && grep -q '"label_head": *"tanh"' "$dir/state" && grep -q '"macro_f1":' "$dir/state" &&
    grep -q '"matthews":' "$dir/state"
ok $? "the model says what its labels are, and how good they were" "$(cat "$dir/state")"
sed 's/"one":/"label":/' "$dir/texts.jsonl" >"$dir/rows.jsonl"
"$stages/lf-score" --checkpoint "$dir/one/out/checkpoint" --tokenizer "$dir/text/tokenizer" --append-eos=no --special-in-text token --threads 1 \
    --out "$dir/told" "$dir/rows.jsonl" 2>"$dir/err"
above "$(sed -n 's/.*"accuracy": *\([0-9.]*\).*/\1/p' "$dir/told/scores/results.json")" 0.9
ok $? "lf-score reads the labels where they were trained" "$(cat "$dir/err")"
# A step that moves nothing: its loss is that of the labels that lf-score reads, at the same token.
head -n 1 "$dir/rows.jsonl" >"$dir/lone.jsonl"
must "$stages/lf-tokenize" --tokenizer "$dir/text/tokenizer" --special-in-text token --shape prompt --out "$dir/lone" "$dir/lone.jsonl"
on1 still --data "$dir/lone/shards" --label-column label --steps 1 --lr 1e-12 --valid-interval 0
"$stages/lf-score" --checkpoint "$dir/still/out/checkpoint" --tokenizer "$dir/text/tokenizer" --append-eos=no --special-in-text token --threads 1 \
    --out "$dir/lone-told" "$dir/lone.jsonl" 2>>"$dir/err"
sed 's/.*"labels":\[\([^,]*\),\([^]]*\)\].*/\1 \2/' "$dir/lone-told/scores/scores.jsonl" |
    awk -v y="$(sed 's/.*"label":\([01]\).*/\1/' "$dir/lone.jsonl")" -v l="$(field still loss)" '{ d = log(exp($1) + exp($2)) - (y ? $2 : $1) - l }
    END { exit !(NR == 1 && l > 0 && d < 1e-6 && d > -1e-6) }'
ok $? "and its numbers have the loss of training: $(field still loss)" "$(cat "$dir/err")"
on1 tokens --label-column tokens --label-kind tokens --labels 2 --steps 40
above "$(field tokens valid_accuracy)" 0.97
ok $? "classes of tokens: $(field tokens valid_accuracy)" "$(cat "$dir/err")"
on1 numbers --label-column numbers --label-kind numbers
above "$(field numbers valid_pearson)" 0.9
ok $? "numbers: $(field numbers valid_pearson)" "$(cat "$dir/err")"
"$tool" state "$dir/numbers/out/checkpoint" | grep -q '"spearman":'
ok $? "with the correlation of their ranks"
on1 short --label-column numbers --label-kind numbers --seq-length 10 --steps 2
"$tool" state "$dir/short/out/checkpoint" | sed -n 's/.*"pearson": *\([-0-9.e]*\).*/\1/p' >"$dir/pearson"
awk -v a="$(cat "$dir/pearson")" -v b="$(field short valid_pearson)" 'BEGIN { exit !(a != "" && b != "" && a - b < 1e-6 && b - a < 1e-6) }'
ok $? "of texts that fit into seq_length alone: $(cat "$dir/pearson")" "$(field short valid_pearson) $(cat "$dir/err")"
on1 any --label-column any --label-kind any --labels 2 --steps 40
above "$(field any valid_f1)" 0.5
ok $? "labels of which any may be: $(field any valid_f1)" "$(cat "$dir/err")"
on1 span --data "$dir/answers/shards" --label-column span --label-kind span --steps 40
above "$(field span valid_exact)" 0.8 && above "$(field span valid_f1)" 0.8
ok $? "where an answer stands: $(field span valid_exact), $(field span valid_f1)" "$(cat "$dir/err")"
on1 decoder --init-from "$dir/llama/checkpoint"
above "$(field decoder valid_accuracy)" 0.85
ok $? "and a decoder classes, at the last token: $(field decoder valid_accuracy)" "$(cat "$dir/err")"
"$tool" state "$dir/decoder/out/checkpoint" | grep -q '"label_row": *"last"'
ok $? "as its model says"
on1 pairs --data "$dir/pairs/shards" --label-column label --separator 2 --steps 2
on1 untyped --data "$dir/pairs/shards" --label-column label --steps 2
[ -n "$(field pairs loss)" ] && [ "$(field pairs loss)" != "$(field untyped loss)" ]
ok $? "what is behind the separator is of another type" "$(cat "$dir/err")"

# --- what changes nothing ---
mkdir "$dir/kill"
killed_often 2 "$dir/kill/metrics" "$(bytes "$dir/one/metrics")" "$stages/lf-rm" --config "$dir/run.ini" --out "$dir/kill/out" \
    --metrics "$dir/kill/metrics" --save-interval 11
on1 kill --save-interval 11
is "$often $(id kill) $(metrics kill | cksum)" "1 $(id one) $(metrics one | cksum)" "killed and continued, the same bits"
on1 six --steps 6
same() { # same NAME WORDS
    near_losses six "$1" 1e-5 6
    ok $? "$2, the same losses" "$(cat "$dir/err")"
}
on1 micro --steps 6 --micro-batch 2
same micro "micro-batches of half the size"
if have_ranks; then
    on 2 data --steps 6
    same data "two ranks"
    on 2 tensor --steps 6 --tensor 2
    same tensor "matrices on two ranks"
    on 2 rows --steps 6 --tensor 2 --sequence-parallel=yes
    same rows "and rows"
    on 2 pipe --steps 6 --pipeline 2
    same pipe "a layer on each of two ranks"
    on 2 zero --steps 6 --zero 2
    same zero "parts of the state on each of two ranks"
else
    skip_some 5 "ranks cannot be started here"
fi

# --- what is refused ---
refused() { # refused WORDS TEXT ARGS...
    _words=$1 _text=$2
    shift 2
    on1 refused "$@"
    [ $rc -ne 0 ] && grep -qF -- "$_words" "$dir/err"
    ok $? "$_text is refused" "$(cat "$dir/err")"
}
refused 'column "label" is missing' "a column that there is not" --label-column label
refused 'is no class below labels' "a class that there is not" --label-column numbers --labels 2
refused 'has another length; it is a list with the class of each token' "a label for all tokens" --label-column any --label-kind tokens --labels 2
refused 'is no first and last token of the text' "an answer that ends before it begins" --label-column any --label-kind span
refused 'column "none": not one token has a class' "a label that says nothing" --label-column none --label-kind tokens --labels 2
refused "best_metric = f1: this loss has no f1" "F1 of three classes" --labels 3 --keep-best --best-metric f1
refused "margins belongs to objective = pairs" "a margin" --no-margins
refused "label_kind belongs to objective = labels" "a label of pairs" --objective pairs --label-kind any
refused "label_kind = tokens needs labels" "as many labels as you like" --label-kind tokens
refused "separator = 300: the vocabulary has 260 words" "a separator that there is not" --separator 300
refused "holds plain documents" "data without labels" --data "$dir/text/shards"
train "$stages/lf-pretrain" "$dir/bert.ini" back --init-from "$dir/one/out/checkpoint"
says "label" "next tokens of a classifier are refused"

# --- adapters: the matrices of labels are trained whole beside them ---
lora="--lora-rank 4 --lr 1e-2 --steps 80"
on1 lora $lora
is $rc 0 "adapters"
above "$(field lora valid_accuracy)" 0.85
ok $? "class texts, too: $(field lora valid_accuracy)" "$(cat "$dir/err")"
"$tool" state "$dir/lora/out/adapter" | tr -d ' \n' >"$dir/state"
grep -q '"labels":2,"labels_of":0' "$dir/state" && grep -q '"macro_f1":' "$dir/state"
ok $? "are kept with their labels" "$(cat "$dir/state")"
mkdir "$dir/lorakill"
killed_often 1 "$dir/lorakill/metrics" "$(bytes "$dir/lora/metrics")" "$stages/lf-rm" --config "$dir/run.ini" --out "$dir/lorakill/out" \
    --metrics "$dir/lorakill/metrics" --save-interval 11 $lora
on1 lorakill $lora --save-interval 11
is "$often $(id lorakill) $("$tool" id "$dir/lorakill/out/adapter")" "1 $(id lora) $("$tool" id "$dir/lora/out/adapter")" "killed and continued, the same bits"
told() { # told NAME ARGS...
    _name=$1
    shift
    must "$stages/lf-score" --tokenizer "$dir/text/tokenizer" --append-eos=no --special-in-text token --threads 1 --out "$dir/told-$_name" "$@" \
        "$dir/some.jsonl"
    sed 's/[^0-9.e+-]/ /g' "$dir/told-$_name/scores/scores.jsonl" >"$dir/told-$_name.txt"
}
near_told() { # near_told A B: no number further off than 1e-4, and some are there
    paste "$dir/told-$1.txt" "$dir/told-$2.txt" | awk '{ h = NF / 2; for (i = 1; i <= h; i++) { d = $i - $(i + h); if (d > 1e-4 || d < -1e-4) bad = 1; n++ } }
        END { exit bad || n < 40 }'
}
head -n 20 "$dir/rows.jsonl" >"$dir/some.jsonl"
told beside --checkpoint "$dir/bert/checkpoint" --adapter "$dir/lora/out/adapter"
told merged --checkpoint "$dir/lora/out/checkpoint"
near_told beside merged
ok $? "lf-score tells with the adapter what the merged model says" "$(paste "$dir/told-beside.txt" "$dir/told-merged.txt" | head -n 3)"
must "$stages/lf-convert" --from "$dir/lora/out/adapter" --base "$dir/bert/checkpoint" --to checkpoint --out "$dir/lora-merged"
"$tool" moved "$dir/lora/out/checkpoint" "$dir/lora-merged/checkpoint" 'model/*' | grep -q '^0 of'
ok $? "lf-convert merges it to the same weights"
on1 more --adapter "$dir/lora/out/adapter" --lr 1e-12 --steps 1
is $rc 0 "adapter goes on with it"
told more --checkpoint "$dir/more/out/checkpoint"
near_told more merged
ok $? "from where it was" "$(paste "$dir/told-more.txt" "$dir/told-merged.txt" | head -n 3)"
if have_ranks; then
    rm -rf "$dir/six"
    on1 six --lora-rank 4 --steps 6
    on 2 loratensor --lora-rank 4 --steps 6 --tensor 2
    same loratensor "matrices and their adapters on two ranks"
    on 2 lorapipe --lora-rank 4 --steps 6 --pipeline 2
    same lorapipe "a layer and its adapters on each of two ranks"
else
    skip_some 2 "ranks cannot be started here"
fi
refused "has 2 labels, and not the ones of this run" "an adapter with other labels" --adapter "$dir/lora/out/adapter" --label-column tokens \
    --label-kind tokens --labels 2
on1 loradec --lora-rank 4 --steps 1 --valid-interval 0 --init-from "$dir/llama/checkpoint"
"$stages/lf-generate" --checkpoint "$dir/llama/checkpoint" --adapter "$dir/loradec/out/adapter" --tokenizer "$dir/text/tokenizer" --prompt a --out "$dir/no" \
    2>"$dir/err"
[ $? -ne 0 ] && grep -q 'the adapter tells 2 labels' "$dir/err"
ok $? "and one with labels where tokens are said" "$(cat "$dir/err")"
"$stages/lf-convert" --from "$dir/lora/out/adapter" --out "$dir/no" 2>"$dir/err"
[ $? -ne 0 ] && grep -q 'has labels beside the adapter' "$dir/err"
ok $? "for PEFT it is refused" "$(cat "$dir/err")"
"$stages/lf-score" --checkpoint "$dir/bert/checkpoint" --adapter "$dir/lora/out/adapter" --tokenizer "$dir/text/tokenizer" --plan --out "$dir/p" \
    "$dir/some.jsonl" >"$dir/stdout" 2>"$dir/err"
grep -q '"parameters":' "$dir/stdout"
ok $? "lf-score --plan with it" "$(cat "$dir/stdout" "$dir/err")"

# --- out, and in again ---
must "$stages/lf-convert" --from "$dir/one/out/checkpoint" --out "$dir/hf"
grep -q '"BertForSequenceClassification"' "$dir/hf/model/config.json" && grep -q '"LABEL_1": 1' "$dir/hf/model/config.json"
ok $? "the export is a classifier of transformers"
grep -q '^pipeline_tag: text-classification$' "$dir/hf/model/README.md" &&
    grep -q 'AutoModelForSequenceClassification.from_pretrained' "$dir/hf/model/README.md"
ok $? "and its card says so"
must "$stages/lf-convert" --verify none --from "$dir/hf/model" --out "$dir/again"
"$tool" moved "$dir/one/out/checkpoint" "$dir/again/checkpoint" 'model/*' | grep -q '^0 of'
ok $? "which comes in with the same weights"
sed 's/LABEL_0/bad/; s/LABEL_1/good/' "$dir/hf/model/config.json" >"$dir/config.json" && cp "$dir/config.json" "$dir/hf/model/config.json"
must "$stages/lf-convert" --verify none --from "$dir/hf/model" --out "$dir/names"
on1 named --init-from "$dir/names/checkpoint" --steps 1
must "$stages/lf-convert" --from "$dir/named/out/checkpoint" --out "$dir/named-hf"
grep -q '"1": "good"' "$dir/named-hf/model/config.json" && grep -q '"bad": 0' "$dir/named-hf/model/config.json"
ok $? "trained further it keeps the names of its labels" "$(cat "$dir/err")"

# --- an encoder whose embedding is narrow (ELECTRA), and its vectors ---
sed 's/^family = bert/family = electra\nembed_dim = 16\nembed_narrow = yes/' "$dir/bert.ini" >"$dir/electra.ini"
must "$stages/lf-pretrain" --config "$dir/electra.ini" --out "$dir/electra"
on1 narrow --init-from "$dir/electra/checkpoint"
above "$(field narrow valid_accuracy)" 0.85
ok $? "ELECTRA classes: $(field narrow valid_accuracy)" "$(cat "$dir/err")"
must "$stages/lf-convert" --from "$dir/narrow/out/checkpoint" --out "$dir/narrow-hf"
grep -q '"ElectraForSequenceClassification"' "$dir/narrow-hf/model/config.json" && grep -q '"embedding_size": 16' "$dir/narrow-hf/model/config.json"
ok $? "and goes out as it"
must "$stages/lf-score" --checkpoint "$dir/narrow/out/checkpoint" --tokenizer "$dir/text/tokenizer" --append-eos=no --special-in-text token --threads 1 \
    --give embeddings --out "$dir/narrow-vectors" "$dir/lone.jsonl"
is "$(sed 's/.*"embedding":\[\([^]]*\)\].*/\1/' "$dir/narrow-vectors/scores/scores.jsonl" | tr ',' '\n' | grep -c .)" 32 "its vectors are as wide as the stream"
# Of a discriminator that was trained with a generator, the generator stays behind.
sed 's/^objective = mlm/objective = electra/; $a generator_layers = 1\ngenerator_hidden = 8\ngenerator_heads = 2\ngenerator_ffn = 16' \
    "$dir/electra.ini" >"$dir/joint.ini"
must "$stages/lf-pretrain" --config "$dir/joint.ini" --out "$dir/joint"
on1 joint --init-from "$dir/joint/checkpoint" --steps 1
is $rc 0 "labels begin with a discriminator"
must "$stages/lf-score" --checkpoint "$dir/joint/checkpoint" --tokenizer "$dir/text/tokenizer" --append-eos=no --special-in-text token --threads 1 \
    --give embeddings --out "$dir/joint-vectors" "$dir/lone.jsonl"
is "$(sed 's/.*"embedding":\[\([^]]*\)\].*/\1/' "$dir/joint-vectors/scores/scores.jsonl" | tr ',' '\n' | grep -c .)" 32 "and so do vectors"

# --- a task of GLUE, as its files come ---
{ printf 'sentence1\tsentence2\tlabel\n' && awk 'BEGIN { srand(8); for (i = 0; i < 40; i++) { a = int(rand() * 9); b = int(rand() * 2)
    printf "w%d or\tnot \"w%d\"\t%s\n", a, b ? a : a + 1, b ? "entailment" : "not_entailment" } }'; } >"$dir/rte.tsv"
awk -F '\t' 'NR > 1 { gsub(/"/, "\\\"", $2); printf "{\"prompt\":\"%s[SEP]%s\",\"label\":%d}\n", $1, $2, $3 != "entailment" }' "$dir/rte.tsv" >"$dir/rte.jsonl"
must "$stages/lf-tokenize" --tokenizer "$dir/text/tokenizer" --shape prompt --glue rte --special-in-text token --out "$dir/rte" "$dir/rte.tsv"
must "$stages/lf-tokenize" --tokenizer "$dir/text/tokenizer" --shape prompt --special-in-text token --out "$dir/rte.rows" "$dir/rte.jsonl"
docs() { "$stages/lf-tokenize" --show-shards --samples 5 "$dir/$1/shards" 2>/dev/null | grep -v "$dir" >"$dir/$1.docs"; }
docs rte
docs rte.rows
grep -q '{"label":1}' "$dir/rte.docs" && cmp -s "$dir/rte.docs" "$dir/rte.rows.docs"
ok $? "a file of GLUE is rows of prompts with labels, and says the same as they do" "$(cat "$dir/rte.docs")"
must "$stages/lf-rm" --data "$dir/rte/shards" --init-from "$dir/bert/checkpoint" --objective labels --steps 2 --seq-length 64 --batch 4 --threads 1 --out "$dir/rte.model"
for f in "rte.tsv --glue rte" "rte.jsonl --shape prompt"; do
    # shellcheck disable=SC2086
    must "$stages/lf-score" --checkpoint "$dir/rte.model/checkpoint" --tokenizer "$dir/text/tokenizer" --special-in-text token --threads 1 --out "$dir/s.${f%% *}" "$dir/${f%% *}" ${f#* }
done
grep -q '"n": 40' "$dir/s.rte.tsv/scores/results.json" && cmp -s "$dir/s.rte.tsv/scores/results.json" "$dir/s.rte.jsonl/scores/results.json"
ok $? "and lf-score measures it so" "$(cat "$dir/s.rte.tsv/scores/results.json")"
awk '{ print } NR == 3 { print "one text" }' "$dir/rte.tsv" >"$dir/hurt.tsv"
"$stages/lf-tokenize" --tokenizer "$dir/text/tokenizer" --shape prompt --glue rte --out "$dir/no" "$dir/hurt.tsv" 2>"$dir/err"
says "hurt.tsv:4: it has 1 columns, and the first line of the file has 3; bad_rows = skip" "a line that is none, which files of QQP have, is told"
must "$stages/lf-tokenize" --tokenizer "$dir/text/tokenizer" --shape prompt --glue rte --special-in-text token --bad-rows skip --out "$dir/hurt" "$dir/hurt.tsv"
docs hurt
cmp -s "$dir/rte.docs" "$dir/hurt.docs"
ok $? "and left out where one says so" "$(cat "$dir/hurt.docs")"
"$stages/lf-tokenize" --tokenizer "$dir/text/tokenizer" --glue rte --out "$dir/no" "$dir/rte.tsv" 2>"$dir/err"
says "glue makes rows of prompts: say shape = prompt" "without its shape it is refused"
"$stages/lf-score" --checkpoint "$dir/rte.model/checkpoint" --tokenizer "$dir/text/tokenizer" --glue mnlii --threads 1 --out "$dir/no" "$dir/rte.tsv" 2>"$dir/err"
says "glue = mnlii is none of its tasks" "and so is a task that there is not"
finish 63

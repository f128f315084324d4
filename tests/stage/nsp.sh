#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Next sentence prediction (lf-pretrain, objective = mlm, nsp = yes): both losses are told, and micro-batches, layouts, what is computed
# again and kills change nothing; the checkpoint goes out as BertForPreTraining and comes in again, and its pooler is what labels of texts
# begin with. What has no meaning is refused. engine/train/nsp.h, engine/model/nsp.c
. "$LF_SRCDIR/tests/stage/lib.sh"
with_ranks

"$tool" data "$dir/data" 400 40 || bail "no test data"
cat >"$dir/run.ini" <<END
[stage]
data = $dir/data
objective = mlm
mask_token = 63
mask_spared = 0
nsp = yes
begin_token = 61
separator = 62
mfu = no
steps = 12
seq_length = 64
batch = 8
micro_batch = 4
lr = 1e-3
schedule = constant
valid_interval = 6
valid_tokens = 512
log_interval = 6
save_time = 0
seed = 5
threads = 1
[model]
family = bert
nsp_head = yes
layers = 2
hidden = 32
heads = 4
ffn = 64
vocab = 64
max_positions = 64
END
on1() {
    _n=$1
    shift
    train "$pretrain" "$dir/run.ini" "$_n" "$@"
}
on1 one
is $rc 0 "12 steps"
"$infer" record "$dir/one/metrics" | head -n 1 | tr -d '{}"' | tr ',' '\n' >"$dir/first"
awk -F: '{ v[$1] = $2 } END { d = v["nsp_loss"] - log(2); t = v["loss"] - v["nsp_loss"] - log(64)
    exit !(d * d < 0.01 && t * t < 0.04 && v["nsp_accuracy"] > 0 && v["nsp_accuracy"] < 1) }' "$dir/first"
ok $? "a model that knows nothing: of pairs it says what a coin would, and the loss is that and of hidden tokens" "$(cat "$dir/first")"
"$infer" record "$dir/one/metrics" | tail -n 1 | grep -q '"valid_nsp_loss":0.*"valid_nsp_accuracy":0'
ok $? "of validation too" "$("$infer" record "$dir/one/metrics" | tail -n 1)"
on1 again --recompute full --save-async=no
is "$(id again)" "$(id one)" "computed again, the same bits"
mkdir "$dir/kill"
killed_often 2 "$dir/kill/metrics" "$(bytes "$dir/one/metrics")" "$pretrain" --config "$dir/run.ini" --out "$dir/kill/out" --metrics "$dir/kill/metrics" \
    --save-interval 5
on1 kill --save-interval 5
is "$often $(id kill) $(metrics kill | cksum)" "1 $(id one) $(metrics one | cksum)" "killed and continued, the same bits"
on1 micro --micro-batch 2
agree one micro 1e-5
ok $? "micro-batches of half the size, the same numbers" "$apart"
on1 ends --sentence-ends 1-8 --steps 1
grep -v "^nsp =\|^begin_token\|^separator" "$dir/run.ini" >"$dir/masked.ini"
train "$pretrain" "$dir/masked.ini" masked --steps 1
is "$({ losses one | head -n 1; losses ends; losses masked; } | sort -u | wc -l)" 3 "texts that end with sentences, and texts alone: other losses"
if have_ranks; then
    for layout in "" "--zero 1" "--tensor 2" "--tensor 2 --sequence-parallel=yes" "--pipeline 2" "--context 2" "--context 2 --context-kind gather"; do
        # shellcheck disable=SC2086
        on 2 cut $layout
        agree one cut 1e-5
        ok $? "two ranks ${layout:-of data}, the same numbers" "$apart $(cat "$dir/err")"
        rm -rf "$dir/cut"
    done
else
    skip_some 7 "ranks cannot be started here"
fi

# --- out, in again, and labels behind it ---
must "$stages/lf-convert" --from "$dir/one/out/checkpoint" --out "$dir/hf"
grep -q '"BertForPreTraining"' "$dir/hf/model/config.json" && grep -q 'AutoModelForPreTraining.from_pretrained' "$dir/hf/model/README.md"
ok $? "the export is what transformers pretrains, and its card says so"
must "$stages/lf-convert" --verify none --from "$dir/hf/model" --out "$dir/back"
is "$("$tool" moved "$dir/one/out/checkpoint" "$dir/back/checkpoint" 'model/*')" "0 of 46" "which comes in with the same weights"
on1 more --init-from "$dir/back/checkpoint" --steps 1
is $rc 0 "and is trained on"

# --- what goes with what ---
refused() { # refused WORDS TEXT ARGS...
    _words=$1 _text=$2
    shift 2
    train "$pretrain" "$dir/bad.ini" refused "$@"
    [ $rc -ne 0 ] && grep -qF -- "$_words" "$dir/err"
    ok $? "$_text" "$(cat "$dir/err")"
}
cp "$dir/run.ini" "$dir/bad.ini"
refused "begin_token = separator = 62" "one token for both is refused" --begin-token 62
refused "mask_token = 63 is separator, too" "the token of hidden ones as separator" --separator 63
refused "separator = 64: the vocabulary has 64 words" "one that there is not" --separator 64
echo "token_types = 1" >>"$dir/bad.ini"
refused "nsp: the two texts of a pair are of two types, and [model] token_types = 1" "a model that tells no texts apart"
sed -i '/^nsp_head/d' "$dir/bad.ini"
refused "this model has no head that tells whether texts follow each other" "a model without the head"
grep -v '^separator' "$dir/run.ini" >"$dir/bad.ini"
refused "nsp needs separator" "no separator"
grep -v '^nsp =' "$dir/run.ini" >"$dir/bad.ini"
refused "separator belongs to nsp = yes" "a separator of nothing"
sed 's/^family.*/family = llama3/; /^mask/d; /^objective/d; /^separator/d; /^begin_token/d; /^nsp =/d' "$dir/run.ini" >"$dir/bad.ini"
refused "nsp_head: means nothing without output = tokens and mask = both" "the head of an encoder behind a decoder"
refused "nsp belongs to objective = mlm" "pairs of another objective" --nsp
finish 26

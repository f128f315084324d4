#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ELECTRA (lf-pretrain, objective = electra): a generator and a discriminator on one embedding. Micro-batches, ranks, what is computed again
# and kills change nothing; both go out and come in again, and training goes on from both. What does not go with it is refused.
# engine/train/electra.h, engine/model/electra.h
. "$LF_SRCDIR/tests/stage/lib.sh"
with_ranks

"$tool" data "$dir/data" 400 40 || bail "no test data"
cat >"$dir/run.ini" <<END
[stage]
data = $dir/data
objective = electra
mask_token = 63
mask_spared = 0
mask_random = 0
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
family = electra
layers = 2
hidden = 32
heads = 4
ffn = 64
embed_dim = 16
embed_narrow = yes
generator_layers = 1
generator_hidden = 8
generator_heads = 2
generator_ffn = 32
vocab = 64
max_positions = 64
embed_dropout = 0.1
attn_dropout = 0.1
mlp_dropout = 0.1
END
on1() {
    _n=$1
    shift
    train "$pretrain" "$dir/run.ini" "$_n" "$@"
}
on1 one
is $rc 0 "12 steps"
"$infer" record "$dir/one/metrics" | head -n 1 | tr -d '{}"' | tr ',' '\n' >"$dir/first"
awk -F: '{ v[$1] = $2 } END { g = v["generator_loss"] - log(64); d = v["discriminator_loss"] - log(2)
    s = v["loss"] - v["generator_loss"] - 50 * v["discriminator_loss"]
    exit !(g * g < 0.01 && d * d < 0.01 && s * s < 1e-6 && v["replaced"] > 0.08 && v["replaced"] < 0.2 && v["accuracy"] > 0) }' "$dir/first"
ok $? "a model that knows nothing says any word, and of each token what a coin would; the loss is the first plus 50 times the second" "$(cat "$dir/first")"
"$infer" record "$dir/one/metrics" | tail -n 1 | grep -q '"valid_generator_loss":[0-9].*"valid_discriminator_loss":0.*"valid_accuracy":0'
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
on1 half --precision bf16
losses half | awk -v f="$(losses one | tail -n 1)" '{ last = $1 } END { exit !(NR == 12 && last - f < 2 && f - last < 2) }'
ok $? "in bf16 it learns as much" "$(losses half | tail -n 1) $(losses one | tail -n 1) $(cat "$dir/err")"
if have_ranks; then
    for layout in "" "--zero 1"; do
        # shellcheck disable=SC2086
        on 2 cut $layout
        agree one cut 1e-5
        ok $? "two ranks ${layout:-of data}, the same numbers" "$apart $(cat "$dir/err")"
        rm -rf "$dir/cut"
    done
else
    skip_some 2 "ranks cannot be started here"
fi
on1 seed --seed 6 --steps 1
on1 light --discriminator-weight 5 --steps 1
is "$({ losses one | head -n 1; losses seed; losses light; } | sort -u | wc -l)" 3 "another seed and another weight: other losses"
on1 long --steps 300 --lr 5e-3 --valid-interval 300
"$infer" record "$dir/long/metrics" | tail -n 1 | tr -d '{}"' | tr ',' '\n' |
    awk -F: '{ v[$1] = $2 } END { exit !(v["valid_generator_loss"] < 4.1 && v["valid_discriminator_loss"] < 0.46 && v["valid_accuracy"] > 0.8) }'
ok $? "both learn: of held-out texts the losses are less than those of any word (4.16) and of a coin (0.69)" \
    "$("$infer" record "$dir/long/metrics" | tail -n 1)"

# --- out, in again, and on ---
must "$stages/lf-convert" --from "$dir/one/out/checkpoint" --out "$dir/disc"
must "$stages/lf-convert" --from "$dir/one/out/checkpoint" --parts generator --out "$dir/gen"
grep -q '"ElectraForPreTraining"' "$dir/disc/model/config.json" && grep -q '"ElectraForMaskedLM"' "$dir/gen/model/config.json" &&
    grep -q '"hidden_size": 8' "$dir/gen/model/config.json" && grep -q '"embedding_size": 16' "$dir/gen/model/config.json"
ok $? "each goes out as the class that transformers has of it" "$(cat "$dir/gen/model/config.json")"
must "$stages/lf-convert" --verify none --from "$dir/disc/model" --out "$dir/disc-in"
must "$stages/lf-convert" --verify none --from "$dir/gen/model" --out "$dir/gen-in"
on1 more --init-from "$dir/one/out/checkpoint" --steps 1
on1 joined --init-from "$dir/disc-in/checkpoint" --generator-from "$dir/gen-in/checkpoint" --steps 1
is "$rc $(losses joined)" "0 $(losses more)" "both come in again, and go on as the checkpoint of both does"
on1 drawn --init-from "$dir/disc-in/checkpoint" --steps 1
[ $rc -eq 0 ] && [ "$(losses drawn)" != "$(losses more)" ]
ok $? "without generator_from another generator is drawn" "$(losses drawn)"

"$stages/lf-convert" --from "$dir/disc-in/checkpoint" --parts generator --out "$dir/none" 2>"$dir/err"
says "parts = generator: no generator was trained with this model" "a model without a generator has none to export"
"$stages/lf-convert" --verify none --from "$dir/disc/model" --parts generator --out "$dir/none-in" 2>"$dir/err"
says "parts = generator is of an export of a whole model" "nor has an import"

# --- what goes with what ---
refused() { # refused WORDS TEXT ARGS...
    _words=$1 _text=$2
    shift 2
    train "$pretrain" "$dir/bad.ini" refused "$@"
    [ $rc -ne 0 ] && grep -qF -- "$_words" "$dir/err"
    ok $? "$_text" "$(cat "$dir/err")"
}
cp "$dir/run.ini" "$dir/bad.ini"
for layout in "tensor 2" "pipeline 2" "context 2"; do
    # shellcheck disable=SC2086
    refused "${layout% *}: with objective = electra ranks share the batch alone" "${layout% *} is refused" --${layout}
done
refused "zero = 2: with objective = electra" "zero 2" --zero 2
refused "layer_decay: with objective = electra" "rates by depth" --layer-decay 0.9
refused "nsp belongs to objective = mlm" "pairs of texts" --nsp
refused "generator_layers: a generator and the model that tells its draws are trained with objective = electra" "a generator of mlm" --objective mlm
sed -i '/^generator_ffn/d' "$dir/bad.ini"
refused "give generator_hidden, generator_heads and generator_ffn" "a generator without sizes"
sed -i '/^generator_/d' "$dir/bad.ini"
refused "describe the latter with generator_layers" "no generator"
sed -i '/^family/s/electra/bert/; /^embed_/d; $a generator_layers = 1' "$dir/bad.ini"
refused "generator_layers: is of family = electra" "one of another family"
refused "generator_from belongs to objective = electra" "a generator for another objective" --objective mlm --generator-from "$dir/gen-in/checkpoint"
finish 27

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The published models that see of which vlm.sh and vlm_generate.sh have none: greedy generation with the tokens of transformers,
# of all prompts at once or one after the other; another picture, another text; twenty steps of fine-tuning with its losses, packed
# or not, recomputed, on two ranks; the weights that came in go out (tests/golden/vlm/make_run.py).
. "$LF_SRCDIR/tests/stage/lib.sh"
golden=$LF_SRCDIR/tests/golden/vlm/run
images=$LF_SRCDIR/tests/golden/media/images
grep -q '^#define HAVE_PNG' "$LF_BUILDDIR/config.h" && grep -q '^#define HAVE_JPEG' "$LF_BUILDDIR/config.h" ||
    skip_all "a decoder of pictures is not built in"
with_ranks
under=
sft() { # sft NAME ARGS...: steps over all rows, with $under before the command
    _name=$1
    shift
    train "$under $stages/lf-sft" "$dir/run.ini" "$_name" "$@" || tail -n 3 "$dir/err" >&2
}
generate() { # generate NAME PROMPTS ARGS...
    _name=$1 _prompts=$2
    shift 2
    "$stages/lf-generate" --checkpoint "$dir/$model/checkpoint" --tokenizer "$golden/$model" --prompts "$_prompts" --media-dir "$images" \
        --max-tokens 32 --temperature 0 --ignore-eos --threads 1 --out "$dir/$_name" "$@" 2>"$dir/err" >/dev/null
    rc=$?
}
ids() { sed 's/.*"token_ids":\[\([0-9,]*\)\].*/\1/; s/,/ /g' "$dir/$1/text/out.jsonl"; }
sed 's/420.jpg/rgba8.png/' "$golden/prompts.jsonl" >"$dir/other.jsonl"
for model in llava-next llava-onevision qwen2-vl pixtral; do
    must "$stages/lf-convert" --from "$golden/$model" --out "$dir/$model" --verify none
    must "$stages/lf-tokenize" --tokenizer "$golden/$model" --processor "$golden/$model" --shape auto --media-dir "$images" \
        --valid-fraction 0 --out "$dir/$model.tok" "$golden/train.json"
    generate $model.gen "$golden/prompts.jsonl"
    is "$rc $(ids $model.gen)" "0 $(cat "$golden/$model/generated")" "$model: the tokens of transformers"
    generate $model.other "$dir/other.jsonl" --slots 1 --step-rows 16
    is "$(ids $model.other | head -n 4)" "$(head -n 4 "$golden/$model/generated")" "$model: one after the other, in steps of 16 rows"
    [ "$(ids $model.other | tail -n 1)" != "$(tail -n 1 "$golden/$model/generated")" ]
    ok $? "$model: another picture, another text"
    cat >"$dir/run.ini" <<E2
[stage]
init_from = $dir/$model/checkpoint
data = $dir/$model.tok/shards
mfu = no
seq_length = 512
batch = 1
max_patches = 1024
steps = 20
lr = 1e-3
schedule = constant
warmup = 0
beta1 = 0.9
beta2 = 0.95
eps = 1e-8
weight_decay = 0
clip = 0
log_interval = 1
save_time = 0
threads = 1
E2
    sft $model.plain
    losses $model.plain | paste -d ' ' - "$golden/$model/losses" | awk '{ d = $1 - $2; if (!(d <= 1e-5 && d >= -1e-5)) bad = 1 } END { exit bad || NR != 20 }'
    ok $? "$model: 20 steps of fine-tuning as in transformers"
    sft $model.again --recompute full --steps 3
    losses $model.plain | head -n 3 >"$dir/first"
    is "$(losses $model.again)" "$(cat "$dir/first")" "$model: recomputed, the same losses"
    sft $model.rows --seq-length 256 --batch 4 --steps 1
    { losses $model.rows; head -n 1 "$dir/first"; } | awk '{ x[NR] = $1 } END { d = x[1] - x[2]; exit NR != 2 || d > 1e-5 || d < -1e-5 }'
    ok $? "$model: rows apart, the loss of rows packed together"
    if have_ranks; then
        sft $model.one --seq-length 256 --batch 4 --steps 3
        under="$launch 2 --"
        sft $model.data --seq-length 256 --batch 4 --steps 3
        near_losses $model.data $model.one 1e-5 3
        ok $? "$model: two ranks share the rows"
        sft $model.tensor --tensor 2 --steps 3
        near_losses $model.tensor $model.again 1e-5 3
        ok $? "$model: two ranks divide the matrices"
        sft $model.pipeline --pipeline 2 --steps 3
        near_losses $model.pipeline $model.again 1e-5 3
        ok $? "$model: two stages of a pipeline"
        under=
    else
        skip_some 3 "ranks cannot be started here"
    fi
    must "$stages/lf-convert" --from "$dir/$model/checkpoint" --tokenizer "$dir/$model/tokenizer" --out "$dir/$model.hf"
    cmp -s "$dir/$model.hf/model/model.safetensors" "$golden/$model/model.safetensors"
    ok $? "$model: the weights that came in go out"
done
finish 40

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Models that see from end to end, as tests/golden/vlm/make_run.py prepared them: imported, pictures tokenized, fine-tuned with
# the losses of transformers, also on several ranks; greedy generation with its tokens; another picture changes the text; what
# is frozen keeps its bits; a run that is stopped goes on with the same bits; the export is what came in.
. "$LF_SRCDIR/tests/stage/lib.sh"
golden=$LF_SRCDIR/tests/golden/vlm/run
images=$LF_SRCDIR/tests/golden/media/images
grep -q '^#define HAVE_PNG' "$LF_BUILDDIR/config.h" && grep -q '^#define HAVE_JPEG' "$LF_BUILDDIR/config.h" ||
    skip_all "a decoder of pictures is not built in"
with_ranks

# sft NAME ARGS...: 20 steps over all rows at once, with $under before the command
under=
sft() {
    _name=$1
    shift
    train "$under $stages/lf-sft" "$dir/run.ini" "$_name" "$@" || tail -n 3 "$dir/err" >&2
}
ini() {
    cat <<E2
[stage]
init_from = $dir/$1/checkpoint
data = $dir/$1.tok/shards
mfu = no
seq_length = 256
batch = 1
max_patches = 512
steps = ${2:-20}
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
}
# Losses of a run against those of transformers.
as_reference() { # as_reference NAME MODEL TOLERANCE
    losses "$1" | paste -d ' ' - "$golden/$2/losses" |
        awk -v t="$3" '{ d = $1 - $2; if (d < 0) d = -d; if (!(d <= t)) bad = 1 } END { exit bad || NR != 20 }'
}
generate() { # generate NAME MODEL PROMPTS ARGS...
    _name=$1 _model=$2 _prompts=$3
    shift 3
    "$stages/lf-generate" --checkpoint "$dir/$_model/checkpoint" --tokenizer "$golden/$_model" --prompts "$_prompts" --media-dir "$images" \
        --max-tokens ${most:-32} --temperature 0 --ignore-eos --threads 1 --out "$dir/$_name" "$@" 2>"$dir/err" >/dev/null
    rc=$?
}
ids() { sed 's/.*"token_ids":\[\([0-9,]*\)\].*/\1/; s/,/ /g' "$dir/$1/text/out.jsonl"; }

for model in llava qwen2.5-vl gemma3; do
    # tensors of the projector's linear layers; rows so long that the five documents take four
    fc=4 row=64
    [ $model != gemma3 ] || fc=1 row=48
    must "$stages/lf-convert" --from "$golden/$model" --out "$dir/$model" --verify none
    must "$stages/lf-tokenize" --tokenizer "$golden/$model" --processor "$golden/$model" --shape auto --media-dir "$images" \
        --valid-fraction 0 --out "$dir/$model.tok" "$golden/train.json"

    # --- generation ---
    generate "$model.gen" $model "$golden/prompts.jsonl"
    is $rc 0 "$model: prompts with pictures of several sizes, and one without"
    is "$(ids "$model.gen")" "$(cat "$golden/$model/generated")" "$model: the tokens of transformers"
    sed 's/420.jpg/rgba8.png/' "$golden/prompts.jsonl" >"$dir/other.jsonl"
    generate "$model.other" $model "$dir/other.jsonl" --slots 5 --step-rows 16
    is "$(ids "$model.other" | head -n 4)" "$(ids "$model.gen" | head -n 4)" "$model: the same in steps of 16 rows"
    [ "$(ids "$model.other" | tail -n 1)" != "$(ids "$model.gen" | tail -n 1)" ]
    ok $? "$model: another picture, another text"

    a='{"type": "image"}' b='{"type": "image", "path": "444.jpg"}'
    echo "{\"images\": [\"rgb8.png\"], \"messages\": [{\"role\": \"user\", \"content\": [$b, $a]}]}" >"$dir/mixed.jsonl"
    echo "{\"images\": [\"444.jpg\", \"rgb8.png\"], \"messages\": [{\"role\": \"user\", \"content\": [$a, $a]}]}" >"$dir/listed.jsonl"
    generate "$model.mixed" $model "$dir/mixed.jsonl"
    generate "$model.listed" $model "$dir/listed.jsonl"
    said() { sed 's/.*"token_ids"/"token_ids"/' "$dir/$1/text/out.jsonl"; } # with log-probabilities, which tell pictures apart
    is "$(ids "$model.mixed" | wc -w) $(said "$model.mixed")" "32 $(said "$model.listed")" "$model: a part without a path takes the next of images"

    # --- training ---
    ini $model >"$dir/run.ini"
    sft $model.plain
    as_reference $model.plain $model 1e-5
    ok $? "$model: 20 steps of fine-tuning as in transformers"
    sft $model.again --recompute full
    is "$(id $model.again)" "$(id $model.plain)" "$model: recomputed, the same bits"
    mkdir "$dir/$model.kill"
    killed_often 2 "$dir/$model.kill/metrics" "$(bytes "$dir/$model.plain/metrics")" "$stages/lf-sft" --config "$dir/run.ini" \
        --out "$dir/$model.kill/out" --metrics "$dir/$model.kill/metrics" --save-interval 3
    sft $model.kill --save-interval 3
    is "$often $(id $model.kill)" "1 $(id $model.plain)" "$model: killed and continued, the same bits"
    sft $model.frozen --freeze 'vision.*' --steps 2
    moved() { "$tool" moved "$dir/$model/checkpoint" "$dir/$model.frozen/out/checkpoint" "$1"; }
    is "$(moved 'model/vision.*' | sed 's/ of .*//') $(moved 'model/projector.fc*')" "0 $fc of $fc" "$model: a frozen encoder keeps its bits, the projector moves"
    sft $model.slow --lr-scale '*:1e-6' --steps 20
    as_reference $model.slow $model 1e-5
    is $? 1 "$model: learning rates of their own"
    sft $model.rows --seq-length $row --batch 4 --max-patches 160 --steps 1
    { losses $model.rows; head -n 1 "$golden/$model/losses"; } | awk '{ x[NR] = $1 } END { d = x[1] - x[2]; exit NR != 2 || d > 1e-5 || d < -1e-5 }'
    ok $? "$model: rows apart, the loss of rows packed together"

    # --- ranks ---
    if have_ranks; then
        under="$launch 2 --"
        sft $model.tensor --tensor 2
        as_reference $model.tensor $model 1e-5
        ok $? "$model: two ranks divide the matrices"
        sft $model.sequence --tensor 2 --sequence-parallel
        as_reference $model.sequence $model 1e-5
        ok $? "$model: and the rows of tokens between the products"
        sft $model.pipeline --pipeline 2
        as_reference $model.pipeline $model 1e-5
        ok $? "$model: two stages of a pipeline"
        for kind in ulysses gather; do
            sft $model.$kind --context 2 --context-kind $kind
            as_reference $model.$kind $model 1e-5
            ok $? "$model: two ranks divide the rows of tokens, and each encodes the pictures, with context_kind = $kind"
        done
        sft $model.data --seq-length 64 --batch 6 --max-patches 160 --steps 3
        under=
        sft $model.one --seq-length 64 --batch 6 --max-patches 160 --steps 3
        near_losses $model.data $model.one 1e-5 3
        ok $? "$model: two ranks share the rows"
    else
        skip_some 3 "ranks cannot be started here"
    fi

    # --- a GPU, emulated ---
    emulated_gpu
    sft $model.gpu --device cuda --steps 1
    { losses $model.gpu; head -n 1 "$golden/$model/losses"; } | awk '{ x[NR] = $1 } END { d = x[1] - x[2]; exit NR != 2 || d > 1e-4 || d < -1e-4 }'
    ok $? "$model: a step on a GPU"
    sed -n 1p "$golden/prompts.jsonl" >"$dir/first.jsonl"
    most=3
    generate "$model.gpu1" $model "$dir/first.jsonl" --device cuda
    most=
    is "$(ids "$model.gpu1")" "$(head -n 1 "$golden/$model/generated" | cut -d ' ' -f 1-3)" "$model: tokens from a GPU"
    unset LF_CUDA_DRIVER LF_CUBLASLT

    # --- out again ---
    must "$stages/lf-convert" --from "$dir/$model/checkpoint" --tokenizer "$dir/$model/tokenizer" --out "$dir/$model.hf"
    cmp -s "$dir/$model.hf/model/model.safetensors" "$golden/$model/model.safetensors"
    ok $? "$model: the weights that came in go out"
    must "$stages/lf-convert" --from "$dir/$model.kill/out/checkpoint" --tokenizer "$dir/$model/tokenizer" --out "$dir/$model.hf2"
    for f in "$golden/$model/config.json" "$dir/$model.hf2/model/config.json"; do sed -n 's/^ *"\([a-z_]*\)": .*/\1/p' "$f" | sort -u; done |
        sort | uniq -u >"$dir/apart"
    is "$(tr '\n' ' ' <"$dir/apart")" "" "$model: after training, config.json has the keys that it had"
done

# --- others: what the first two do not have, in generation and in training ---
for model in qwen3-vl qwen3-vl-moe qwen3.5-vl qwen3.5-vl-moe idefics3 mistral3 vipllava; do
    must "$stages/lf-convert" --from "$golden/$model" --out "$dir/$model" --verify none
    must "$stages/lf-tokenize" --tokenizer "$golden/$model" --processor "$golden/$model" --shape auto --media-dir "$images" \
        --valid-fraction 0 --out "$dir/$model.tok" "$golden/train.json"
    generate "$model.gen" $model "$golden/prompts.jsonl"
    is "$(ids "$model.gen")" "$(cat "$golden/$model/generated")" "$model: the tokens of transformers"
    ini $model >"$dir/run.ini"
    sft $model.plain --seq-length 512 --max-patches 1024
    # the scans of the reference are f32, or twenty steps of scans tell what is f32 here
    near=1e-5
    case $model in qwen3.5-vl) near=2e-4 ;; qwen3.5*) near=1e-4 ;; esac
    as_reference $model.plain $model $near
    ok $? "$model: 20 steps of fine-tuning as in transformers"
    must "$stages/lf-convert" --from "$dir/$model/checkpoint" --tokenizer "$dir/$model/tokenizer" --out "$dir/$model.hf"
    cmp -s "$dir/$model.hf/model/model.safetensors" "$golden/$model/model.safetensors"
    ok $? "$model: the weights that came in go out"
done

# --- and those whose generation vlm_generate.sh compares ---
for model in paligemma paligemma2 internvl; do
    # InternVL's tiles take more than a row
    rows=$golden/train.json batch=2
    [ $model = internvl ] || rows=$golden/paligemma/train.jsonl batch=1
    must "$stages/lf-convert" --from "$golden/$model" --out "$dir/$model" --verify none
    must "$stages/lf-tokenize" --tokenizer "$golden/$model" --processor "$golden/$model" --shape auto --media-dir "$images" \
        --valid-fraction 0 --out "$dir/$model.tok" "$rows"
    ini $model >"$dir/run.ini"
    sft $model.plain --max-patches 1024 --batch $batch
    # the caps of Gemma 2 make more of roundings: 9.8e-6 at the last step here
    near=1e-5
    [ $model != paligemma2 ] || near=2e-5
    as_reference $model.plain $model $near
    ok $? "$model: 20 steps of fine-tuning as in transformers"
done

# --- ranks that divide scans ---
for model in qwen3.5-vl qwen3.5-vl-moe; do
    if ! have_ranks; then
        skip_some 2 "ranks cannot be started here"
        continue
    fi
    ini $model >"$dir/run.ini"
    under="$launch 2 --"
    sft $model.tensor --seq-length 512 --max-patches 1024 --tensor 2
    as_reference $model.tensor $model 2e-4
    ok $? "$model: two ranks divide the matrices"
    sft $model.pipeline --seq-length 512 --max-patches 1024 --pipeline 2
    as_reference $model.pipeline $model 2e-4
    ok $? "$model: two stages of a pipeline"
    under=
done

# --- states of scans beside pictures ---
model=qwen3.5-vl-moe
generate "$model.few" $model "$golden/prompts.jsonl" --slots 2 --step-rows 16
is "$(ids "$model.few")" "$(cat "$golden/$model/generated")" "$model: the same by twos, in steps of 16 rows"
ini $model >"$dir/run.ini"
sft $model.again --seq-length 512 --max-patches 1024 --recompute full
is "$(id $model.again)" "$(id $model.plain)" "$model: recomputed, the same bits"
sft $model.rows --seq-length 64 --batch 4 --max-patches 160 --steps 1
{ losses $model.rows; head -n 1 "$golden/$model/losses"; } | awk '{ x[NR] = $1 } END { d = x[1] - x[2]; exit NR != 2 || d > 1e-5 || d < -1e-5 }'
ok $? "$model: rows apart, the loss of rows packed together"
if have_ranks; then
    sft $model.one --seq-length 64 --batch 4 --max-patches 160 --steps 3
    under="$launch 2 --"
    sft $model.expert --seq-length 64 --batch 4 --max-patches 160 --steps 3 --expert 2
    under=
    near_losses $model.expert $model.one 1e-5 3
    ok $? "$model: two ranks divide the experts, and each has pictures of its own" "$(cat "$dir/err")"
else
    skip_some 1 "ranks cannot be started here"
fi
sft $model.lora --seq-length 512 --max-patches 1024 --lora-rank 4 --lora-targets q --lora-targets v --lora-targets z --lora-targets a --steps 3
losses $model.lora | cat - "$golden/$model/losses" | awk '{ x[NR] = $1 } END { d = x[1] - x[4]; exit NR != 23 || d > 1e-5 || d < -1e-5 || x[3] > x[1] }'
ok $? "$model: adapters of attention and scans begin as the model and learn"
emulated_gpu
sft $model.gpu --seq-length 512 --max-patches 1024 --device cuda --steps 1
{ losses $model.gpu; head -n 1 "$golden/$model/losses"; } | awk '{ x[NR] = $1 } END { d = x[1] - x[2]; exit NR != 2 || d > 1e-4 || d < -1e-4 }'
ok $? "$model: a step on a GPU"
most=3
generate "$model.gpu1" $model "$dir/first.jsonl" --device cuda
most=
is "$(ids "$model.gpu1")" "$(head -n 1 "$golden/$model/generated" | cut -d ' ' -f 1-3)" "$model: tokens from a GPU"
unset LF_CUDA_DRIVER LF_CUBLASLT

# In an answer, which is trained: <image>, <fake_token_around_image>, <global-img>, <row_1_col_1>
echo '[{"image": "rgb8.png", "conversations": [{"from": "human", "value": "x"}, {"from": "gpt", "value": "<image> y"}]}]' >"$dir/said.json"
must "$stages/lf-tokenize" --tokenizer "$golden/idefics3" --processor "$golden/idefics3" --shape auto --media-dir "$images" --valid-fraction 0 \
    --out "$dir/said.tok" "$dir/said.json"
"$LF_BUILDDIR/tests/stage/shards_tool" "$dir/said.tok/shards" train | sed 's/\[.*//' | tr ' ' '\n' >"$dir/said"
seen() { grep -cx -e "$1" "$dir/said"; }
is "$(seen -97) $(seen '-10[456]') $(seen '97\|10[456]')" "20 8 0" "idefics3: no mark of a picture is trained"

# --- a model from parts: a decoder of its own, LLaVA's encoder, and a projector that begins at random and is trained alone ---
text() {
    printf '[model]\nfamily = llama\nlayers = 2\nhidden = 32\nheads = 4\nkv_heads = 2\nffn = 48\nvocab = 104\nmax_positions = 256\n'
}
parts() { sed 's/^init_from.*//; s/^steps.*/steps = 2/' "$dir/run.ini"; }
ini llava 2 >"$dir/run.ini"
"$tool" data "$dir/text.data" 20 0 >/dev/null || bail "no test data"
{ parts | sed "s|^data.*|data = $dir/text.data|; s/^max_patches.*//; s/^seq_length.*/seq_length = 64/" && text; } >"$dir/text.ini"
train "$pretrain" "$dir/text.ini" text
{
    parts && printf 'init_from = %s\nvision_from = %s\n' "$dir/text/out/checkpoint" "$dir/llava/checkpoint"
    for p in 'vision.*' 'layers.*' 'embed.*' 'final_norm.*' 'head.*'; do echo "$p"; done | sed '1s/^/freeze = /; 2,$s/^/    /'
    text && sed 's/^ *//' <<E2
        vision.family = clip
        vision.layers = 3
        vision.hidden = 32
        vision.heads = 4
        vision.ffn = 48
        vision.patch_dim = 48
        vision.positions = 26
        vision.read_layers = 2
        vision.read_norm = no
        projector.hidden = 32
        image_token = 97
E2
} >"$dir/parts.ini"
train "$pretrain" "$dir/parts.ini" parts
is $rc 0 "a model from parts"
between() { "$tool" moved "$dir/$1/checkpoint" "$dir/parts/out/checkpoint" "$2"; }
is "$(between llava 'model/vision.*') $(between text/out 'model/layers.*')" "0 of 55 0 of 18" "its encoder and its decoder are those that were given"

must "$stages/lf-convert" --from "$dir/parts/out/checkpoint" --tokenizer "$dir/llava/tokenizer" --out "$dir/parts.hf"
grep -q '"LlavaForConditionalGeneration"' "$dir/parts.hf/model/config.json"
ok $? "which goes out as a LLaVA"

# --- norms over all heads and channels of an encoder whose ranks have some of them ---
norms() { # norms FAMILY
    parts | sed 's/^steps.*/steps = 4/' && text && sed 's/^ *//' <<E2
        vision.family = $1
        vision.attn_inner_norm = yes
        vision.mlp_inner_norm = yes
        vision.layers = 2
        vision.hidden = 32
        vision.heads = 4
        vision.ffn = 48
        vision.patch_dim = 48
        vision.positions = 26
        projector.hidden = 32
        image_token = 97
E2
}
for family in internvit-rms eva02; do
    what="two ranks divide an encoder with norms over all heads and channels: $family"
    have_ranks || { skip "$what" "ranks cannot be started here"; continue; }
    norms $family >"$dir/norms.ini"
    train "$pretrain" "$dir/norms.ini" $family.one
    train "$launch 2 -- $pretrain" "$dir/norms.ini" $family.two --tensor 2
    near_losses $family.two $family.one 1e-5 4
    ok $? "$what"
done

# --- mistakes ---
ini llava 2 >"$dir/run.ini"
sft none --max-patches 0 2>/dev/null
says "give max_patches" "pictures without room for any"
sft few --max-patches 4 2>/dev/null
says_like "max_patches\|left out" "a picture larger than the room"
must "$stages/lf-tokenize" --tokenizer "$golden/qwen2.5-vl" --shape text --append-eos --valid-fraction 0 --out "$dir/words.tok" "$golden/prompts.jsonl" \
    --text-field id
ini qwen2.5-vl 1 | sed "s|$dir/qwen2.5-vl.tok|$dir/words.tok|" >"$dir/words.ini"
"$stages/lf-sft" --config "$dir/words.ini" --out "$dir/words" --metrics "$dir/words.m" >"$dir/err" 2>&1
is $? 0 "room for pictures, and none in the data"
echo '[{"conversations": [{"from": "human", "value": "No picture"}, {"from": "gpt", "value": "yes"}]}]' >"$dir/none.json"
must "$stages/lf-tokenize" --tokenizer "$golden/llava" --processor "$golden/llava" --shape auto --media-dir "$images" --valid-fraction 0 \
    --out "$dir/none.tok" "$dir/none.json"
sft unseen --data "$dir/none.tok/shards" --max-patches 0
is $rc 0 "data without pictures, whatever it was prepared with"
sft room --data "$dir/none.tok/shards" --max-patches 64 --steps 99 --resume-from "$dir/unseen/out" 2>/dev/null
says "was trained on another order of data" "which room for pictures packs otherwise, as it says"
generate blind llava "$golden/prompts.jsonl" --processor "$dir" 2>/dev/null
says "preprocessor_config.json" "a processor without its file"
echo '{"prompt": "<user><image><image>x<bot>", "images": ["rgb8.png"]}' >"$dir/two.jsonl"
generate two llava "$dir/two.jsonl" 2>/dev/null
is $rc 1 "more marks than pictures"
echo "{\"images\": [\"rgb8.png\", \"444.jpg\"], \"messages\": [{\"role\": \"user\", \"content\": [$a]}]}" >"$dir/left.jsonl"
generate left llava "$dir/left.jsonl" 2>/dev/null
says "take 1 of them" "a picture that no part takes"
echo '{"prompt": "<user><image>x<bot>", "images": ["https://example.org/a.png"]}' >"$dir/web.jsonl"
generate web llava "$dir/web.jsonl" 2>/dev/null
says "fetch them beforehand" "a picture of the web"
echo '{"prompt": "<user><image>x<bot>", "images": ["crc.png"]}' >"$dir/broken.jsonl"
generate broken llava "$dir/broken.jsonl" 2>/dev/null
says "crc.png" "a broken picture"

finish 114

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# An encoder of pictures that learns to restore hidden patches (lf-pretrain, objective = mae): the loss falls; micro-batches,
# ranks, what is computed again and kills change nothing; another model begins with the encoder; what is about text is
# refused. What was trained goes out as the model of transformers that it is, and encoders of theirs come in.
# engine/train/mae.h; tests/golden/mae has the numbers.
. "$LF_SRCDIR/tests/stage/lib.sh"
golden=$LF_SRCDIR/tests/golden/vlm/run/llava
images=$LF_SRCDIR/tests/golden/media/images
grep -q '^#define HAVE_PNG' "$LF_BUILDDIR/config.h" && grep -q '^#define HAVE_JPEG' "$LF_BUILDDIR/config.h" ||
    skip_all "a decoder of pictures is not built in"
with_ranks

# --- 16 documents to train on, of one or two pictures of 5 x 5 patches, and some of text ---
for i in 0 1 2 3; do
    for f in rgb8.png 444.jpg rgba8.png 420.jpg exif.png; do
        echo "{\"images\": [\"$f\"], \"messages\": [{\"role\": \"user\", \"content\": \"<image>What? $i\"}, {\"role\": \"assistant\", \"content\": \"A cat\"}]}"
    done
    echo "{\"messages\": [{\"role\": \"user\", \"content\": \"no $i\"}, {\"role\": \"assistant\", \"content\": \"picture\"}]}"
    echo "{\"images\": [\"grey8.png\", \"rgb8.png\"], \"messages\": [{\"role\": \"user\", \"content\": \"<image> or <image>?\"}, {\"role\": \"assistant\", \"content\": \"$i\"}]}"
done >"$dir/rows.jsonl"
must "$stages/lf-tokenize" --tokenizer "$golden" --processor "$golden" --shape auto --media-dir "$images" --valid-fraction 0.25 --out "$dir/tok" \
    "$dir/rows.jsonl"

vision() { # vision [POSITIONS [FAMILY HIDDEN HEADS FFN]]
    cat <<E2
vision.family = ${2:-vit-mae}
vision.layers = 2
vision.hidden = ${3:-32}
vision.heads = ${4:-4}
vision.ffn = ${5:-64}
vision.patch_dim = 48
vision.positions = ${1:-26}
E2
}
text() {
    printf 'family = llama\nlayers = 1\nhidden = 32\nheads = 4\nkv_heads = 2\nffn = 48\nvocab = 104\nmax_positions = 64\n'
}
stage() {
    printf '[stage]\ndata = %s\nobjective = mae\nbatch = 4\nmicro_batch = 2\nmax_patches = 100\nmax_tiles = 4\nsteps = 40\nlr = 3e-3\n' "$dir/tok/shards"
    printf 'schedule = constant\nvalid_interval = 20\nlog_interval = 10\nsave_time = 0\nthreads = 1\n'
}
decoder="mae.layers = 1
mae.hidden = 24
mae.heads = 3"
{ stage && echo "[model]" && vision && echo "$decoder"; } >"$dir/run.ini"

# --- one rank ---
on1() {
    _n=$1
    shift
    train "$pretrain" "$dir/run.ini" "$_n" "$@"
}
on1 one
is $rc 0 "40 steps"
says "pictures/s" "the log tells pictures, and no tokens"
says "have no pictures" "documents of text are left out, which is said"
losses one | awk '{ x[NR] = $1 } END { for (i = 1; i <= 5; i++) { a += x[i]; b += x[NR + 1 - i] } exit NR != 40 || !(b < 0.9 * a) }'
ok $? "the loss falls" "$(losses one | tr '\n' ' ')"
record=$("$infer" record "$dir/one/metrics" | tail -n 1)
case $record in *'"pictures":'*'"valid_loss":'*'"pictures_per_s":'*) true ;; *) false ;; esac
ok $? "a record has pictures and the loss of validation" "$record"
case $record in *tokens* | *flops* | *mfu*) false ;; *) true ;; esac
ok $? "but no tokens or FLOPs" "$record"
on1 again --recompute full --save-async=no
is "$(id again)" "$(id one)" "computed again, the same bits"
mkdir "$dir/kill"
killed_often 2 "$dir/kill/metrics" "$(bytes "$dir/one/metrics")" "$pretrain" --config "$dir/run.ini" --out "$dir/kill/out" --metrics "$dir/kill/metrics" \
    --save-interval 7
on1 kill --save-interval 7
is "$often $(id kill) $(metrics kill | cksum)" "1 $(id one) $(metrics one | cksum)" "killed and continued, the same bits"
on1 micro --micro-batch 4 --max-patches 200 --max-tiles 8 --steps 10
losses one | head -n 10 >"$dir/a"
losses micro | paste "$dir/a" - | awk '{ d = $1 - $2; if (!(d < 1e-5 && d > -1e-5)) bad = 1 } END { exit bad || NR != 10 }'
ok $? "micro-batches of twice the size, the same losses"
on1 other --seed 2 --steps 2
[ "$(losses other | tail -n 1)" != "$(losses one | sed -n 2p)" ]
ok $? "another seed, another loss"
on1 plain --norm-pix-loss=no --steps 1
on1 half --mask-ratio 0.5 --steps 1
is "$({ losses one | head -n 1; losses plain; losses half; } | sort -u | wc -l)" 3 "plain pixels, half of them hidden: other losses"

# --- ranks ---
if have_ranks; then
    on 2 two --steps 10
    losses one | head -n 10 >"$dir/a"
    losses two | paste "$dir/a" - | awk '{ d = $1 - $2; if (!(d < 1e-5 && d > -1e-5)) bad = 1 } END { exit bad || NR != 10 }'
    ok $? "two ranks, the losses of one"
    on 2 zero --steps 10 --zero 2
    is "$(losses zero)" "$(losses two)" "zero = 2, the same losses"
else
    skip_some 2 "ranks cannot be started here"
fi

# --- a GPU, emulated ---
emulated_gpu
on1 gpu --device cuda --steps 1
{ losses gpu; losses one | head -n 1; } | awk '{ x[NR] = $1 } END { d = x[1] - x[2]; exit NR != 2 || d > 1e-4 || d < -1e-4 }'
ok $? "a step on a GPU" "$(cat "$dir/err")"
unset LF_CUDA_DRIVER LF_CUBLASLT

# --- a model that sees begins with the encoder ---
sees() {
    printf '[stage]\ndata = %s\nvision_from = %s\nseq_length = 64\nbatch = 2\nmicro_batch = 2\nmax_patches = 100\nmax_tiles = 4\nsteps = 2\n' \
        "$dir/tok/shards" "${3:-$dir/one/out/checkpoint}"
    printf 'freeze = vision.*\nmfu = no\nsave_time = 0\nthreads = 1\n[model]\n' && text && vision "${1:-26}" ${2:-} &&
        printf 'image_token = 97\nprojector.merge = 1\nvision.read_norm = yes\n'
}
sees >"$dir/sees.ini"
train "$pretrain" "$dir/sees.ini" sees
is $rc 0 "a text decoder sees with this encoder"
is "$("$tool" moved "$dir/one/out/checkpoint" "$dir/sees/out/checkpoint" 'model/vision.*')" "0 of 38" "which is the one that was trained, with its positions"
sees 17 >"$dir/grid.ini"
train "$pretrain" "$dir/grid.ini" grid 2>/dev/null
says "vision.pos_embed.weight is [26, 32] there" "positions of another grid are refused"
sed 's/^vision.family.*/vision.family = dinov2/' "$dir/sees.ini" >"$dir/dinov2.ini"
train "$pretrain" "$dir/dinov2.ini" kin 2>/dev/null
says "vision.family = vit-mae, but [model] says vision.family = dinov2" "and so is an encoder of another family, which is named"

# --- encoders of transformers come in, and go out of what was trained ---
hf() { # hf OUT ARGS...: exports
    _out=$1
    shift
    "$stages/lf-convert" --out "$dir/$_out" "$@" >"$dir/stdout" 2>"$dir/err" || bail "$(cat "$dir/err")"
}
class() { sed -n '/"architectures"/{n;s/[ "]//g;p;}' "$dir/$1/model/config.json"; }
must "$stages/lf-convert" --verify none --from "$LF_SRCDIR/tests/golden/vision/lone/clip-pair" --out "$dir/clip"
sees 26 "clip 40 5 56" "$dir/clip/checkpoint" >"$dir/eye.ini"
sed 's/^freeze.*/freeze = layers.*/; s/^vision.read_norm.*/vision.read_norm = no\nvision.read_layers = 1/' "$dir/eye.ini" >"$dir/eye2.ini"
train "$pretrain" "$dir/eye.ini" eye
is "$rc $("$tool" moved "$dir/clip/checkpoint" "$dir/eye/out/checkpoint" 'model/vision.*')" "0 0 of 39" "a model that sees begins with the tower of a CLIPModel"
train "$pretrain" "$dir/eye2.ini" eye2
hf eye.hf --from "$dir/eye2/out/checkpoint" --family clip-vision
is "$(class eye.hf)" CLIPVisionModel "its encoder, trained, goes out by itself"
must "$stages/lf-convert" --verify none --from "$dir/eye.hf/model" --out "$dir/eye.in"
is "$("$tool" moved "$dir/eye2/out/checkpoint" "$dir/eye.in/checkpoint" 'model/vision.*')" "0 of 39" "with the weights that it has there"
hf mae.hf --from "$dir/one/out/checkpoint"
is "$(class mae.hf)" ViTMAEForPreTraining "what restores pictures goes out whole"
must "$stages/lf-convert" --verify none --from "$dir/mae.hf/model" --out "$dir/mae.in"
is "$("$tool" moved "$dir/one/out/checkpoint" "$dir/mae.in/checkpoint" 'model/*')" "0 of 62" "and comes in again as it was"
{ stage && echo "init_from = $dir/mae.in/checkpoint"; } >"$dir/back.ini"
train "$pretrain" "$dir/back.ini" back --steps 1
{ losses back; losses one | sed -n 1p; } | awk '{ x[NR] = $1 } END { exit NR != 2 || !(x[1] < 0.95 * x[2]) }'
ok $? "to be trained further" "$(losses back)"

{ stage && echo "init_from = $dir/one/out/checkpoint"; } >"$dir/further.ini"
train "$pretrain" "$dir/further.ini" further --steps 1
{ losses further; losses one | sed -n 1p; } | awk '{ x[NR] = $1 } END { exit NR != 2 || !(x[1] < 0.95 * x[2]) }'
ok $? "more training begins where this one ended" "$(losses further)"

# --- the plan ---
"$pretrain" --config "$dir/run.ini" --plan >"$dir/stdout" 2>"$dir/err"
grep -q '"steps":40' "$dir/stdout" && ! grep -q '"tokens"\|flops' "$dir/stdout"
ok $? "--plan: steps, and no FLOPs of tokens" "$(cat "$dir/stdout")"

# --- mistakes ---
wrong() { # wrong WORDS INI ARGS...
    _words=$1 _ini=$2
    shift 2
    "$pretrain" --config "$_ini" --out "$dir/wrong" "$@" >"$dir/stdout" 2>"$dir/err"
    says "$_words" "$*: $_words"
}
wrong "seq_length has no meaning with objective = mae" "$dir/run.ini" --seq-length 64
wrong "tokenizer has no meaning with objective = mae" "$dir/run.ini" --tokenizer "$golden"
wrong "pipeline: with objective = mae ranks share the batch and divide matrices (tensor) alone" "$dir/run.ini" --pipeline 2
wrong "give max_patches" "$dir/run.ini" --max-patches 0
wrong "lower max_tiles" "$dir/run.ini" --max-tiles 101
wrong "mask_ratio belongs to objective = mae" "$dir/sees.ini" --mask-ratio 0.5
wrong "mae.layers: an encoder and what restores pictures are" "$dir/run.ini" --objective next_token --max-patches 100 --seq-length 64
sed "/^seq_length/d; /^mfu/d" "$dir/sees.ini" >"$dir/blind.ini"
wrong "objective = mae needs a decoder that restores pictures" "$dir/blind.ini" --objective mae
sed "s|^data.*|data = $dir/words.tok/shards|" "$dir/run.ini" >"$dir/words.ini"
must "$stages/lf-tokenize" --tokenizer "$golden" --shape text --append-eos --valid-fraction 0 --text-field id --out "$dir/words.tok" \
    "$LF_SRCDIR/tests/golden/vlm/run/prompts.jsonl"
wrong "has no pictures, which are what is trained on here" "$dir/words.ini"
"$stages/lf-generate" --checkpoint "$dir/one/out/checkpoint" --tokenizer "$golden" --prompts "$LF_SRCDIR/tests/golden/vlm/run/prompts.jsonl" \
    --out "$dir/text" >"$dir/stdout" 2>"$dir/err"
says "predicts no tokens" "no text comes from such a model"
"$stages/lf-convert" --from "$dir/one/out/checkpoint" --family llama --out "$dir/hf" >"$dir/stdout" 2>"$dir/err"
says "mae.layers" "nor is it one"
must "$stages/lf-convert" --verify none --from "$LF_SRCDIR/tests/golden/vision/lone/clip" --out "$dir/tower"
{ stage && echo "init_from = $dir/tower/checkpoint"; } >"$dir/alone.ini"
wrong "is an encoder of pictures alone: give it with vision_from" "$dir/alone.ini"
{ stage && echo "[model]" && vision; } >"$dir/alone2.ini"
wrong "nothing trains an encoder of pictures" "$dir/alone2.ini"
"$stages/lf-generate" --checkpoint "$dir/tower/checkpoint" --tokenizer "$golden" --prompts "$LF_SRCDIR/tests/golden/vlm/run/prompts.jsonl" \
    --out "$dir/text2" >"$dir/stdout" 2>"$dir/err"
says "encoder of pictures alone, it predicts no tokens" "it predicts no tokens either"
sed "/^vision_from/s|.*|init_from = $dir/tower/checkpoint|" "$dir/eye.ini" >"$dir/alone3.ini"
wrong "is an encoder of pictures alone: give it with vision_from" "$dir/alone3.ini"
sed "/^vision_from/s|.*|init_from = $dir/one/out/checkpoint|" "$dir/eye.ini" >"$dir/alone4.ini"
wrong "is an encoder that restores pictures: train it with objective = mae, or give it" "$dir/alone4.ini"
sed '/^\[model\]/,$d' "$dir/alone4.ini" >"$dir/alone5.ini"
wrong "is an encoder that restores pictures: train it with objective = mae, or give it" "$dir/alone5.ini"
"$stages/lf-features" --checkpoint "$dir/clip/checkpoint" --data "$dir/tok/shards" --out "$dir/eyes" >"$dir/stdout" 2>"$dir/err"
says "has no decoder of text" "nor are features made with it"
sed "/^vision_from/s|.*|init_from = $dir/clip/checkpoint|" "$dir/eye.ini" >"$dir/alone6.ini"
wrong "compares pictures and texts: train it with objective = clip or siglip" "$dir/alone6.ini"

finish 45

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Features of a frozen encoder as a stage: the same losses and the same bits as with the encoder, whose memory the run does
# not take; the model that comes out is whole; several ranks; kill -9, a full disk, a file cut short; features of another
# encoder, processor or precision.
. "$LF_SRCDIR/tests/stage/lib.sh"
golden=$LF_SRCDIR/tests/golden/vlm/run
images=$LF_SRCDIR/tests/golden/media/images
grep -q '^#define HAVE_PNG' "$LF_BUILDDIR/config.h" && grep -q '^#define HAVE_JPEG' "$LF_BUILDDIR/config.h" ||
    skip_all "a decoder of pictures is not built in"
with_ranks

under=
disk() { sed 's/.*"disk_bytes":\([0-9]*\).*/\1/' "$dir/stdout"; }
on_disk() { cat "$dir/$1"/features/*.h5 | wc -c | tr -d ' '; }
sft() { # sft NAME ARGS...
    _name=$1
    shift
    train "$under $stages/lf-sft" "$dir/run.ini" "$_name" "$@"
}
features() { # features NAME ARGS...
    _name=$1
    shift
    $under "$stages/lf-features" --checkpoint "${of:-$dir/$model/checkpoint}" --data "$dir/$model.tok/shards" --max-patches ${most:-300} --threads 1 \
        --out "$dir/$_name" "$@" 2>"$dir/err" >"$dir/stdout"
    rc=$?
}
ini() {
    cat <<E2
[stage]
init_from = $dir/$1/checkpoint
data = $dir/$1.tok/shards
mfu = no
numeric = invariant
seq_length = 256
batch = 1
max_patches = 512
steps = 3
lr = 1e-3
schedule = constant
warmup = 0
save_interval = 1
save_time = 0
threads = 1
freeze = vision.*
E2
}
prepare() {
    must "$stages/lf-convert" --from "$golden/$1" --out "$dir/$1" --verify none
    must "$stages/lf-tokenize" --tokenizer "$golden/$1" --processor "$golden/$1" --shape auto --media-dir "$images" \
        --valid-fraction 0 --out "$dir/$1.tok" "$golden/train.json"
}
same() { is "$rc $(id "$1") $(metrics "$1" | cksum)" "0 $(id "$2") $(metrics "$2" | cksum)" "$3"; }

# --- class tokens; windows; merged patches; taps of deeper layers ---
for model in llava qwen2.5-vl qwen3-vl-moe; do
    prepare $model
    ini $model >"$dir/run.ini"
    more=
    [ $model != qwen3-vl-moe ] || more="--seq-length 512 --max-patches 1024"
    for precision in f32 bf16; do
        features $model.$precision --precision $precision
        # shellcheck disable=SC2086
        sft $model.run.$precision --precision $precision $more
        # shellcheck disable=SC2086
        sft $model.seen.$precision --precision $precision --features "$dir/$model.$precision/features" $more
        same $model.seen.$precision $model.run.$precision "$model, $precision: losses and weights have the bits of a run with the encoder"
    done
done

# --- memory, and what comes out ---
model=llava
ini llava >"$dir/run.ini"
seen=$dir/llava.f32/features
params() { sed 's/.*"params":\([0-9]*\).*/\1/' "$dir/stdout"; }
sft plan --plan
all=$(params)
sft plan --plan --features "$seen"
[ "$(params)" -lt "$all" ]
ok $? "the plan has no encoder: weights of $(params) bytes, not $all"
whole() { "$tool" moved "$dir/llava/checkpoint" "$dir/$1/out/checkpoint" 'model/vision.*'; }
is "$(whole llava.seen.f32)" "0 of 55" "the checkpoint has all of it"
sft adapted --features "$seen" --lora-rank 2
is "$rc $(whole adapted)" "0 0 of 55" "an adapter: the merged model has the encoder"
sft next --features "$seen" --init-from "$dir/llava.seen.f32/out/checkpoint"
is $rc 0 "a stage behind that one reads the same features"
sft thawed --init-from "$dir/llava.seen.f32/out/checkpoint" --freeze 'head.*'
[ "$rc $(whole thawed)" != "0 0 of 55" ] && [ $rc -eq 0 ]
ok $? "and one that trains the encoder begins with it"

features said --plan
grep -q '"notes"' "$dir/stdout"
is "$? $(disk)" "1 $(on_disk llava.f32)" "the plan of the stage knows the bytes of its files"
features said --plan --data "$dir/nothing"
grep -q 'data that does not exist yet' "$dir/stdout" && ! grep -q disk_bytes "$dir/stdout"
ok $? "and says where they follow from shards that are not there yet" "$dir/stdout"

# --- averages of its weights ---
sft averaged --ema 0.5 --freeze 'head.*'
must "$stages/lf-convert" --from "$dir/averaged/out/checkpoint" --weights ema --out "$dir/average.hf"
must "$stages/lf-convert" --from "$dir/average.hf/model" --out "$dir/average" --verify none
of=$dir/averaged/out/checkpoint
features of_average --weights ema
features of_weights
of=$dir/average/checkpoint
features as_weights
of=
cmp "$dir"/of_average/features/*.h5 "$dir"/as_weights/features/*.h5 >"$dir/stdout" 2>&1
ok $? "weights = ema: the bytes of features of the model that convert makes of the averages" "$dir/stdout"
! cmp -s "$dir"/of_average/features/*.h5 "$dir"/of_weights/features/*.h5
[ $? -eq 0 ] && [ -e "$dir/of_weights/features/manifest.json" ]
ok $? "which are others than those of the weights"
sft on_average --init-from "$dir/average/checkpoint" --features "$dir/of_average/features"
is $rc 0 "and a training of that model reads them" "$(cat "$dir/err")"
features of_none --weights ema
says "averages" "weights = ema of a checkpoint without averages"
features of_none --weights ema --plan
says "averages" "and in the plan"

# --- a model from parts: the encoder of vision_from ---
{
    ini llava | sed '/^init_from/d'
    sed 's/^ *//' <<E2
        vision_from = $dir/llava/checkpoint
        [model]
        family = llama
        layers = 2
        hidden = 32
        heads = 4
        kv_heads = 2
        ffn = 48
        vocab = 104
        max_positions = 256
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
train "$pretrain" "$dir/parts.ini" parts.run
train "$pretrain" "$dir/parts.ini" parts.seen --features "$seen"
same parts.seen parts.run "lf-pretrain with an encoder from elsewhere"

# --- several layers of the encoder side by side ---
sed 's/^vision.read_layers.*/vision.read_states = 3,0/' "$dir/parts.ini" >"$dir/states.ini"
train "$pretrain" "$dir/states.ini" states
must "$stages/lf-features" --checkpoint "$dir/states/out/checkpoint" --data "$dir/llava.tok/shards" --threads 1 --out "$dir/states.eyes"
sft states.run --init-from "$dir/states/out/checkpoint"
sft states.seen --init-from "$dir/states/out/checkpoint" --features "$dir/states.eyes/features"
same states.seen states.run "features of two layers side by side"

# --- pictures of any shape: SigLIP 2, whose positions are resampled to each grid ---
cp -r "$golden/llava" "$dir/naflex"
cat >"$dir/naflex/processor_config.json" <<E2
{"processor_class": "LlavaProcessor", "image_token": "<image>", "patch_size": 4, "num_additional_image_tokens": 0,
 "vision_feature_select_strategy": "full",
 "image_processor": {"image_processor_type": "Siglip2ImageProcessor", "patch_size": 4, "max_num_patches": 30}}
E2
must "$stages/lf-convert" --from "$LF_SRCDIR/tests/golden/vision/lone/siglip2" --out "$dir/siglip2" --verify none
must "$stages/lf-tokenize" --tokenizer "$golden/llava" --processor "$dir/naflex" --shape auto --media-dir "$images" \
    --valid-fraction 0 --out "$dir/naflex.tok" "$golden/train.json"
sed "s,^vision_from.*,vision_from = $dir/siglip2/checkpoint,; s,^data.*,data = $dir/naflex.tok/shards,; /^vision.read/d
s/^vision.family.*/vision.family = siglip2/; s/^vision.layers.*/vision.layers = 2/; s/^vision.hidden.*/vision.hidden = 40/
s/^vision.heads.*/vision.heads = 5/; s/^vision.ffn.*/vision.ffn = 56/; s/^vision.positions.*/vision.positions = 25/" \
    "$dir/parts.ini" >"$dir/naflex.ini"
train "$pretrain" "$dir/naflex.ini" naflex.run
must "$stages/lf-features" --checkpoint "$dir/naflex.run/out/checkpoint" --data "$dir/naflex.tok/shards" --threads 1 --out "$dir/naflex.eyes"
train "$pretrain" "$dir/naflex.ini" naflex.seen --features "$dir/naflex.eyes/features"
same naflex.seen naflex.run "a model with SigLIP 2 for pictures of any shape"

# --- a GPU, emulated ---
emulated_gpu
features gpu --device cuda
sft gpu --features "$dir/gpu/features" --device cuda --steps 1
unset LF_CUDA_DRIVER LF_CUBLASLT
{ losses gpu; losses llava.run.f32 | head -n 1; } | awk '{ x[NR] = $1 } END { d = x[1] - x[2]; exit NR != 2 || d > 1e-4 || d < -1e-4 }'
ok $? "both stages on a GPU"

# --- pairs of answers, each seen with the pictures of its prompt, and a reference ---
must "$stages/lf-tokenize" --tokenizer "$golden/llava" --processor "$golden/llava" --shape auto --media-dir "$images" --valid-fraction 0 \
    --out "$dir/pairs.tok" "$golden/pairs.jsonl"
must "$stages/lf-features" --checkpoint "$dir/llava/checkpoint" --data "$dir/pairs.tok/shards" --threads 1 --out "$dir/pairs.eyes"
for how in run seen; do
    with=
    [ $how = run ] || with="--features $dir/pairs.eyes/features"
    # shellcheck disable=SC2086
    train "$stages/lf-dpo" "$dir/run.ini" dpo.$how --data "$dir/pairs.tok/shards" $with
done
same dpo.seen dpo.run "lf-dpo reads features too"

# --- killed, stopped, a full disk ---
mkdir "$dir/kill"
killed_often 2 "$dir/kill/metrics" "$(bytes "$dir/llava.seen.f32/metrics")" "$stages/lf-sft" --config "$dir/run.ini" \
    --out "$dir/kill/out" --metrics "$dir/kill/metrics" --features "$seen"
sft kill --features "$seen"
same kill llava.seen.f32 "training with features, killed and continued: the same bits"
must "$stages/lf-tokenize" --tokenizer "$golden/llava" --processor "$golden/llava" --shape auto --media-dir "$images" --valid-fraction 0.4 \
    --shard-tokens 64 --out "$dir/small.tok" "$golden/train.json"
files() { (cd "$dir/$1/features" && cat manifest.json && cksum features-*.h5); }
many() { # many NAME ARGS...: a file for each of several shards
    _name=$1
    shift
    $under "$stages/lf-features" --checkpoint "$dir/llava/checkpoint" --data "$dir/small.tok/shards" --max-patches ${most:-64} \
        --threads ${threads:-1} --out "$dir/$_name" "$@" 2>"$dir/err" >"$dir/stdout"
    rc=$?
}
many whole
is "$rc" 0 "a file of features for each file of shards"
want=$(files whole)
many said --plan
is "$(disk)" "$(on_disk whole)" "of all of which the plan knows the bytes"
most=500 threads=2
many again
most= threads=
is "$(files again)" "$want" "other passes and threads: the same bytes"
often=0
for n in 3 9 15; do # changes below the output
    cut_at kill $n "*cut/features/*" "[ -e '$dir/cut/features' ]" "$stages/lf-features" --checkpoint "$dir/llava/checkpoint" \
        --data "$dir/small.tok/shards" --max-patches 64 --threads 1 --out "$dir/cut"
    [ $rc -ne 137 ] || often=$((often + 1))
done
many cut
is "$((often > 0)) $(files cut)" "1 $want" "killed $often times and started again: the same bytes"
(
    ulimit -f 4
    many full
    exit $rc
) 2>/dev/null
is "$? $(ls "$dir/full/features" 2>/dev/null | grep -c manifest)" "1 0" "a file that cannot be written: no artifact"
many full
is "$(files full)" "$want" "and with room the same bytes"
for n in 9 10 11 12 13 14 15 16; do # how many changes come before the first rows is up to HDF5
    cut_at eio $n "*bad/features/*" : "$stages/lf-features" --checkpoint "$dir/llava/checkpoint" --data "$dir/llava.tok/shards" \
        --max-patches 64 --threads 1 --out "$dir/bad"
    ! grep -q 'cannot write .* bytes at' "$dir/err" || break
    rm -r "$dir/bad"
done
says "error: cannot write" "rows that cannot be written are no fault of the next picture"
rm -r "$dir/bad"

# --- ranks ---
if have_ranks; then
    under="$launch 2 --"
    many ranks
    is "$rc $(files ranks)" "0 $want" "two ranks make the same files"
    sft pair --features "$seen" --batch 2 --seq-length 128 --max-patches 256 --zero 1
    is "$rc $(whole pair)" "0 0 of 55" "two ranks that divide the state read what they need, and write all"
    sft tensor --features "$seen" --tensor 2
    near_losses tensor llava.seen.f32 1e-5 3 && [ "$(whole tensor)" = "0 of 55" ]
    ok $? "two ranks divide the matrices"
    sft pipeline --features "$seen" --pipeline 2
    near_losses pipeline llava.seen.f32 1e-5 3 && [ "$(whole pipeline)" = "0 of 55" ]
    ok $? "two stages of a pipeline"
    under=
else
    skip_some 4 "ranks cannot be started here"
fi

# --- mistakes ---
sft not --features "$dir/llava.bf16/features"
says "made with precision = bf16, and this run has f32" "features of another precision"
sft not --features "$seen" --init-from "$dir/thawed/out/checkpoint"
says "of another encoder than that of" "of another encoder"
cp -r "$golden/llava" "$dir/dark"
sed 's/0\.48145466/0.25/' "$golden/llava/processor_config.json" >"$dir/dark/processor_config.json"
must "$stages/lf-tokenize" --tokenizer "$golden/llava" --processor "$dir/dark" --shape auto --media-dir "$images" --valid-fraction 0 \
    --out "$dir/dark.tok" "$golden/train.json"
sft not --features "$seen" --data "$dir/dark.tok/shards"
says "as another processor prepares them than that of $dir/dark.tok/shards" "shards of another processor"
train "$stages/lf-dpo" "$dir/run.ini" not --data "$dir/pairs.tok/shards" --features "$seen"
says "picture 1: there are no features of it" "shards with a picture that has none"
cp -r "$seen" "$dir/short"
truncate -s -1 "$dir/short/features-00000.h5"
sft not --features "$dir/short"
says "features-00000.h5" "a file that was cut short"
cp -r "$seen" "$dir/bad"
printf '\377\377' | dd of="$dir/bad/features-00000.h5" bs=1 seek=$(($(wc -c <"$dir/bad/features-00000.h5") - 9)) conv=notrunc 2>/dev/null
sft not --features "$dir/bad"
says "features-00000.h5" "one with other bytes"
sft not --features "$seen" --max-patches 0
says "need max_patches" "features without room for pictures"
sft not --features "$seen" --sample-interval 1
says "sample_interval" "samples, which the encoder would have to see"
most=2
features few
says "raise max_patches" "a picture larger than a pass"
"$stages/lf-features" --checkpoint "$dir/nothing" --data "$dir/llava.tok/shards" --plan >"$dir/stdout" 2>"$dir/err"
grep -q 'does not exist yet' "$dir/stdout"
ok $? "a plan before there is a checkpoint"

# --- a pipeline ---
LC_ALL=C LF_MODELS_DIR=$LF_SRCDIR/models LF_SITE_CONFIG= LF_USER_CONFIG=
export LC_ALL LF_MODELS_DIR LF_SITE_CONFIG LF_USER_CONFIG
light_flow
lf=$LF
mkdir "$dir/project" && cd "$dir/project" || exit 99
cat >pipeline.ini <<E2
[pipeline]
name = eyes
[stage tokenize]
kind = tokenize
inputs = $golden/train.json
shape = auto
tokenizer = $golden/llava
processor = $golden/llava
media_dir = $images
valid_fraction = 0
[stage eyes]
kind = features
checkpoint = $dir/llava/checkpoint
data = \${stage:tokenize.shards}
[stage train]
kind = sft
init_from = $dir/llava/checkpoint
data = \${stage:tokenize.shards}
features = \${stage:eyes.features}
numeric = invariant
seq_length = 256
max_patches = 512
batch = 1
steps = 3
lr = 1e-3
schedule = constant
E2
"$lf" plan >"$dir/stdout" 2>"$dir/err" && grep -q eyes "$dir/stdout"
ok $? "loong-flow plans it" "$dir/stdout"
"$lf" run >"$dir/stdout" 2>"$dir/err"
ok $? "and runs it" "$dir/err"
is "$("$tool" moved "$dir/llava.seen.f32/out/checkpoint" "$(find . -path '*train*/out/checkpoint' -type d | head -n 1)" 'model/*' | sed 's/ of .*//')" "0" \
    "to the weights of the stages by hand"
"$lf" run >"$dir/stdout" 2>"$dir/err" && grep -q 'nothing to do' "$dir/stdout"
ok $? "a second run has nothing to do"
"$lf" show >"$dir/stdout" 2>"$dir/err" && "$lf" artifacts >>"$dir/stdout" 2>"$dir/err" && grep -q ' features ' "$dir/stdout"
ok $? "the features are an artifact"

finish 50

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Swin and Swin v2 tell classes of pictures (lf-pretrain, objective = classes): they learn; micro-batches, ranks, a kill and what is computed
# again change nothing; they go out as their classes and come in again, lf-score tells classes with them; what is wrong is refused.
# tests/golden/classes has the numbers.
. "$LF_SRCDIR/tests/stage/lib.sh"
golden=$LF_SRCDIR/tests/golden/vlm/run/llava
images=$LF_SRCDIR/tests/golden/media/images
grep -q '^#define HAVE_PNG' "$LF_BUILDDIR/config.h" && grep -q '^#define HAVE_JPEG' "$LF_BUILDDIR/config.h" ||
    skip_all "a decoder of pictures is not built in"
with_ranks

# --- 24 pictures of 5 x 5 patches, of six classes ---
for i in 0 1 2 3; do
    k=0
    for f in rgb8.png photo.jpg wide.png exif.png grey8.png la8.png; do
        echo "{\"id\": \"$i-$k\", \"images\": [\"$f\"], \"prompt\": \"<image> $i $k\", \"label\": $k}"
        k=$((k + 1))
    done
done >"$dir/rows.jsonl"
must "$stages/lf-tokenize" --tokenizer "$golden" --processor "$golden" --shape prompt --unmapped ignore --media-dir "$images" --valid-fraction 0 \
    --out "$dir/tok" "$dir/rows.jsonl"
model() { # model FAMILY WINDOW
    printf '[stage]\ndata = %s\nobjective = classes\nbatch = 4\nmicro_batch = 2\nmax_patches = 50\nmax_tiles = 2\nsteps = 100\nlr = 2e-3\n' "$dir/tok/shards"
    printf 'schedule = constant\nlog_interval = 10\nsave_time = 0\nthreads = 1\n[model]\nvision.family = %s\nvision.stage_layers = 2,2\n' "$1"
    printf 'vision.stage_widths = 16,32\nvision.stage_heads = 2,4\nvision.ffn = 64\nvision.patch_dim = 48\nvision.grid = 5\nvision.window = %s\n' "$2"
    printf 'classes.labels = 6\nclasses.read = mean\n'
}
model swin 2 >"$dir/run.ini"
model swinv2 4 >"$dir/v2.ini"
on1() {
    _n=$1
    shift
    train "$pretrain" "$dir/run.ini" "$_n" "$@"
}
changes="--crop-scale 0.3 --flip --mixup 0.8 --label-smoothing 0.1 --drop-path 0.3"
close() { losses "$1" | head -n 10 | paste "$dir/a" - | awk '{ d = $1 - $2; if (!(d < 1e-5 && d > -1e-5)) bad = 1 } END { exit bad || NR != 10 }'; }

# --- one rank ---
on1 one
losses one | tail -n 1 | awk '{ exit !($1 < 0.2) }'
ok $? "100 steps, and it has learned" "$rc $(losses one | tail -n 1)"
train "$pretrain" "$dir/v2.ini" v2
losses v2 | tail -n 1 | awk '{ exit !($1 < 0.2) }'
ok $? "so has Swin v2" "$rc $(losses v2 | tail -n 1)"
# shellcheck disable=SC2086
on1 wild $changes --steps 10
losses wild | head -n 10 >"$dir/a"
# shellcheck disable=SC2086
on1 again $changes --steps 10 --recompute full --save-async=no
is "$(id again)" "$(id wild)" "with pictures changed and layers left out: computed again, the same bits"
# shellcheck disable=SC2086
on1 micro $changes --steps 10 --micro-batch 4 --max-patches 110 --max-tiles 5
close micro
ok $? "micro-batches of twice the size, with room to spare, the same losses"
# shellcheck disable=SC2086
on1 whole $changes --steps 10 --layer-decay 0.7
[ "$(losses whole)" != "$(losses wild)" ]
ok $? "layer_decay is done"
losses one | head -n 10 >"$dir/a"
on1 bf16 --precision bf16 --steps 10
losses bf16 | head -n 10 | paste "$dir/a" - | awk '{ d = $1 - $2; if (!(d < 0.03 && d > -0.03)) bad = 1; if (d) other = 1 } END { exit bad || !other || NR != 10 }'
ok $? "bf16, nearly the same losses" "$(losses bf16 | paste "$dir/a" -)"
mkdir "$dir/kill"
# shellcheck disable=SC2086
killed_often 1 "$dir/kill/metrics" "$(bytes "$dir/wild/metrics")" "$pretrain" --config "$dir/run.ini" --out "$dir/kill/out" \
    --metrics "$dir/kill/metrics" $changes --steps 10 --save-interval 4
# shellcheck disable=SC2086
on1 kill $changes --steps 10 --save-interval 4
is "$often $(id kill)" "1 $(id wild)" "killed and continued, the same bits"

# --- ranks ---
if have_ranks; then
    losses wild | head -n 10 >"$dir/a"
    # shellcheck disable=SC2086
    on 2 two --steps 10 $changes
    close two
    ok $? "two ranks, the losses of one"
    # shellcheck disable=SC2086
    on 2 zero --steps 10 --zero 2 $changes
    is "$(losses zero)" "$(losses two)" "zero = 2, the same losses"
else
    skip_some 2 "ranks cannot be started here"
fi

# --- out, in, and scores ---
for m in one v2; do
    must "$stages/lf-convert" --from "$dir/$m/out/checkpoint" --out "$dir/$m.hf"
    must "$stages/lf-convert" --verify none --from "$dir/$m.hf/model" --out "$dir/$m.in"
    is "$(sed -n 's/.*"\(Swin.*ForImageClassification\)".*/\1/p' "$dir/$m.hf/model/config.json") $("$tool" moved "$dir/$m/out/checkpoint" "$dir/$m.in/checkpoint" 'model/*' | sed 's/ of.*//')" \
        "$([ $m = one ] && echo SwinForImageClassification || echo Swinv2ForImageClassification) 0" "it goes out as its class, and comes in again as it was"
    "$stages/lf-score" --checkpoint "$dir/$m.in/checkpoint" --tokenizer "$golden" --processor "$golden" --media-dir "$images" --shape prompt \
        --threads 1 --out "$dir/$m.scores" --max-patches 100 --max-tiles 4 "$dir/rows.jsonl" >"$dir/stdout" 2>"$dir/err"
    is "$(sed -n 's/.*"class":\([0-9]*\).*/\1/p' "$dir/$m.scores/scores/scores.jsonl" | tr -d '\n')" 012345012345012345012345 "and lf-score tells the classes" \
        "$(cat "$dir/err")"
done

{ cat "$dir/v2.ini" && printf 'vision.qkv_bias = no\nvision.bare_keys = no\n'; } >"$dir/bare.ini"
train "$pretrain" "$dir/bare.ini" bare --steps 1
must "$stages/lf-convert" --from "$dir/bare/out/checkpoint" --out "$dir/bare.hf"
"$stages/lf-convert" --verify none --from "$dir/bare.hf/model" --out "$dir/bare.in" >"$dir/stdout" 2>"$dir/err"
is "$("$tool" moved "$dir/bare/out/checkpoint" "$dir/bare.in/checkpoint" 'model/*' | sed 's/ of.*//')" 0 \
    "Swin v2 whose attention has no biases goes out and comes in again" "$(cat "$dir/err")"

# --- mistakes ---
wrong() { # wrong WORDS KEY VALUE [INI]: with this key, in place of what stood there
    sed "/^$2 =/d" "$dir/${4:-run.ini}" >"$dir/wrong.ini" && echo "$2 = $3" >>"$dir/wrong.ini"
    "$pretrain" --config "$dir/wrong.ini" --out "$dir/wrong" >"$dir/stdout" 2>"$dir/err"
    says "$1" "$2 = $3: $1"
}
wrong "pictures of this encoder have the 7 x 7 patches of vision.grid" vision.grid 7
wrong "its tables of distances have more than there are" vision.window 4
wrong "shifted needs window" vision.window 0
wrong "give a larger max_patches" vision.grid 12
wrong "the stages have 4 layers" vision.layers 3
wrong "stage_widths has 3 numbers for the 2 stages" vision.stage_widths 8,16,32
wrong "stage 2 has 3 heads, and a width of 32" vision.stage_heads 2,3
wrong "is no whole number" vision.ffn 63
wrong "has a number for each stage of stage_layers, with cosine" vision.trained_windows 2,2
wrong "is the side of no window" vision.trained_windows 1,0 v2.ini
wrong "has no class token" classes.read class
wrong "class_token does not go together with stages" vision.class_token yes
wrong "positions = 24, but a picture has 5 x 5 patches" vision.positions 24
"$pretrain" --config "$dir/run.ini" --out "$dir/wrong" --pipeline 2 >"$dir/stdout" 2>"$dir/err"
says "pipeline: with objective = classes ranks share the batch and divide matrices (tensor) alone" "ranks divide no layers"
emulated_gpu
"$pretrain" --config "$dir/run.ini" --out "$dir/wrong" --device cuda >"$dir/stdout" 2>"$dir/err"
says "has no kernel for attention with a table of distances" "GPUs have no such attention"
unset LF_CUDA_DRIVER LF_CUBLASLT

finish 29

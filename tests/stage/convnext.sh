#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A ConvNeXt that tells classes of pictures (lf-pretrain, objective = classes): it learns; computed again, on two ranks that divide its state
# and after a kill it has the same bits; averages of its weights are measured and go out as a ConvNeXt of transformers; what is of
# attention is refused. tests/golden/classes has the numbers.
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
must "$stages/lf-tokenize" --tokenizer "$golden" --processor "$golden" --shape prompt --unmapped ignore --media-dir "$images" --valid-fraction 0.25 \
    --out "$dir/tok" "$dir/rows.jsonl"
cat >"$dir/run.ini" <<END
[stage]
data = $dir/tok/shards
objective = classes
batch = 4
micro_batch = 2
max_patches = 50
max_tiles = 2
steps = 80
lr = 4e-3
schedule = constant
valid_interval = 40
log_interval = 20
save_time = 0
threads = 1
layer_decay = 0.9
drop_path = 0.1
ema = 0.9
[model]
vision.family = convnext
vision.stage_layers = 1,2
vision.stage_widths = 16,24
vision.ffn = 96
vision.patch_dim = 48
vision.grid = 5
vision.layer_scale_init = 0.5
classes.labels = 6
classes.read = mean
classes.norm_eps = 1e-6
END
on1() {
    _n=$1
    shift
    train "$pretrain" "$dir/run.ini" "$_n" "$@"
}

on1 one
is $rc 0 "80 steps"
losses one | awk 'NR == 1 { first = $1 } { last = $1 } END { exit !(last < 0.3 * first) }'
ok $? "it learns: from $(losses one | head -n 1) to $(losses one | tail -n 1)"
on1 again --recompute full --steps 10
on1 ten --steps 10
is "$(id again)" "$(id ten)" "computed again, the same bits"
mkdir "$dir/kill"
killed_often 2 "$dir/kill/metrics" "$(bytes "$dir/ten/metrics")" "$pretrain" --config "$dir/run.ini" --out "$dir/kill/out" \
    --metrics "$dir/kill/metrics" --steps 10 --save-interval 3
on1 kill --steps 10 --save-interval 3
is "$often $(id kill)" "1 $(id ten)" "killed and continued, the same bits"
if have_ranks; then
    on 2 two --steps 10
    on 2 zero --steps 10 --zero 3
    is "$(id zero)" "$(id two)" "two ranks that divide everything, the bits of two that divide nothing"
else
    skip "two ranks" "ranks cannot be started here"
fi

score() { # score CHECKPOINT WEIGHTS
    rm -rf "$dir/scores"
    "$stages/lf-score" --checkpoint "$1" --weights "$2" --tokenizer "$golden" --processor "$golden" --media-dir "$images" --shape prompt \
        --threads 1 --out "$dir/scores" --max-patches 100 --max-tiles 4 "$dir/rows.jsonl" >"$dir/stdout" 2>"$dir/err"
    rc=$?
    sed 's/,"tokens.*//; s/"seconds.*//' "$dir/scores/scores/scores.jsonl" 2>/dev/null | cksum
}
ema=$(score "$dir/one/out/checkpoint" ema)
grep -q '"accuracy": 1.0' "$dir/scores/scores/results.json"
ok $? "averages of its weights tell all classes" "$(cat "$dir/err" "$dir/scores/scores/results.json")"
plain=$(score "$dir/one/out/checkpoint" trained)
must "$stages/lf-convert" --from "$dir/one/out/checkpoint" --weights ema --out "$dir/hf"
grep -q ConvNextForImageClassification "$dir/hf/model/config.json"
ok $? "they go out as a ConvNextForImageClassification"
must "$stages/lf-convert" --verify none --from "$dir/hf/model" --out "$dir/in"
[ "$(score "$dir/in/checkpoint" trained)" = "$ema" ] && [ "$ema" != "$plain" ]
ok $? "and come in as those, which are not the weights" "$(cat "$dir/err")"
sed 's/^vision.grid.*/&\nvision.heads = 2/' "$dir/run.ini" >"$dir/heads.ini"
train "$pretrain" "$dir/heads.ini" heads
says "heads is of attention" "heads are refused"
sed 's/^vision.grid.*/vision.grid = 6/' "$dir/run.ini" >"$dir/grid.ini"
train "$pretrain" "$dir/grid.ini" grid
[ $rc -ne 0 ] && grep -q "vision.grid" "$dir/err"
ok $? "and pictures of another grid" "$(tail -n 1 "$dir/err")"

# --- a ResMLP ---
sed "/^vision\./d; /^classes.norm_eps/d" "$dir/run.ini" >"$dir/mix.ini"
printf "vision.family = resmlp\nvision.layers = 2\nvision.hidden = 24\nvision.ffn = 48\nvision.patch_dim = 48\nvision.grid = 5\n" >>"$dir/mix.ini"
train "$pretrain" "$dir/mix.ini" mix --lr 1e-2
losses mix | awk "NR == 1 { first = \$1 } { last = \$1 } END { exit !(last < 0.5 * first) }"
ok $? "a ResMLP learns, too: from $(losses mix | head -n 1) to $(losses mix | tail -n 1)"
train "$pretrain" "$dir/mix.ini" mixed --lr 1e-2 --micro-batch 4 --max-patches 113 --max-tiles 5 --steps 3
{ losses mix | head -n 3; losses mixed; } | awk "{ x[NR] = \$1 } END { for (i = 1; i <= 3; i++) { d = x[i] - x[i + 3]; if (!(d < 1e-5 && d > -1e-5)) bad = 1 }; exit bad || NR != 6 }"
ok $? "in a micro-batch of twice the size, with room that is no multiple of a picture, the same losses" "$(losses mixed)"
"$stages/lf-convert" --from "$dir/mix/out/checkpoint" --out "$dir/mix.hf" 2>"$dir/err"
[ $? -ne 0 ] && grep -q "resmlp\|family" "$dir/err"
ok $? "and no class of transformers has it" "$(cat "$dir/err")"
finish 13

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# An encoder of pictures that learns to tell that two views are of one picture (lf-pretrain, objective = moco): the loss falls; micro-batches, ranks
# and kills change nothing; the average moves and is kept; a linear probe of it; it goes out as a ViTModel; what is not done is refused by name.
# engine/post/moco_train.h; tests/golden/moco and tests/golden/media/augment_test have the numbers.
. "$LF_SRCDIR/tests/stage/lib.sh"
golden=$LF_SRCDIR/tests/golden/vlm/run/llava
images=$LF_SRCDIR/tests/golden/media/images
grep -q '^#define HAVE_PNG' "$LF_BUILDDIR/config.h" && grep -q '^#define HAVE_JPEG' "$LF_BUILDDIR/config.h" ||
    skip_all "a decoder of pictures is not built in"
with_ranks

# --- 36 pictures of 5 x 5 patches, of six kinds ---
i=0
while [ $i -lt 8 ]; do
    k=0
    for f in rgb8.png photo.jpg wide.png exif.png grey8.png la8.png; do
        echo "{\"images\": [\"$f\"], \"prompt\": \"<image> $i $k\", \"label\": $k}"
        k=$((k + 1))
    done
    i=$((i + 1))
done >"$dir/rows.jsonl"
must "$stages/lf-tokenize" --tokenizer "$golden" --processor "$golden" --shape prompt --unmapped ignore --media-dir "$images" --valid-fraction 0.25 \
    --out "$dir/tok" "$dir/rows.jsonl"

vision() {
    printf 'vision.family = vit\nvision.layers = 2\nvision.hidden = 32\nvision.heads = 4\nvision.ffn = 64\nvision.patch_dim = 48\nvision.positions = 26\nvision.init_std = 0.2\n'
}
stage() {
    printf '[stage]\ndata = %s\nobjective = moco\nmoco_hidden = 48\nmoco_dim = 16\nbatch = 16\nmicro_batch = 4\nmax_patches = 100\nmax_tiles = 4\nsteps = 30\n' \
        "$dir/tok/shards"
    printf 'lr = 1e-3\nschedule = constant\nvalid_interval = 15\nlog_interval = 10\nsave_time = 0\nthreads = 1\n'
}
{ stage && echo "[model]" && vision; } >"$dir/run.ini"
on1() {
    _n=$1
    shift
    train "$pretrain" "$dir/run.ini" "$_n" "$@"
}

# --- one rank ---
on1 one
is $rc 0 "30 steps" "$(cat "$dir/err")"
losses one | awk '{ x[NR] = $1 } END { for (i = 1; i <= 5; i++) { a += x[i]; b += x[NR + 1 - i] } exit NR != 30 || !(b < 0.97 * a) }'
ok $? "the loss falls" "$(losses one | tr '\n' ' ')"
record=$("$infer" record "$dir/one/metrics" | tail -n 1)
case $record in *'"valid_loss":'*'"accuracy":'*'"valid_accuracy":'*) true ;; *) false ;; esac
ok $? "a record has how many views find their own picture" "$record"
# Statistics of eight pictures magnify the last bits, so runs are compared at a small rate: losses, and the lengths of the gradients.
numbers() { "$infer" record "$dir/$1/metrics" | head -n 6 | sed 's/.*"loss":\([^,}]*\).*"grad_norm":\([^,}]*\).*/\1 \2/'; }
close() { numbers "$1" | paste "$dir/a" - | awk '{ for (i = 1; i < 3; i++) { d = $i / $(i + 2) - 1; if (!(d < 1e-4 && d > -1e-4)) bad = 1 } } END { exit bad || NR != 6 }'; }
slow="--lr 1e-5 --steps 6"
# shellcheck disable=SC2086
on1 slow $slow
numbers slow >"$dir/a"
# shellcheck disable=SC2086
on1 micro $slow --micro-batch 8 --max-patches 200 --max-tiles 8
close micro
ok $? "micro-batches of twice the size, the same losses and gradients" "$(numbers micro | paste "$dir/a" -)"
mkdir "$dir/kill"
killed_often 2 "$dir/kill/metrics" "$(bytes "$dir/one/metrics")" "$pretrain" --config "$dir/run.ini" --out "$dir/kill/out" --metrics "$dir/kill/metrics" \
    --save-interval 7
on1 kill --save-interval 7
is "$often $(id kill) $(metrics kill | cksum)" "1 $(id one) $(metrics one | cksum)" "killed and continued, the same bits: the average is kept too"
# shellcheck disable=SC2086
on1 bf16 $slow --precision bf16
numbers bf16 | paste "$dir/a" - | awk '{ d = $1 - $3; if (!(d < 0.1 && d > -0.1)) bad = 1; if (d) other = 1 } END { exit bad || !other || NR != 6 }'
ok $? "bf16, nearly the same losses" "$(numbers bf16 | paste "$dir/a" -)"
on1 first --steps 1
on1 stays --steps 6 --moco-momentum 1
is "$("$tool" moved "$dir/first/out/checkpoint" "$dir/stays/out/checkpoint" 'model/momentum.*')" "0 of 45" "with a momentum of 1 the average stays"
is "$("$tool" moved "$dir/first/out/checkpoint" "$dir/one/out/checkpoint" 'model/momentum.*')" "45 of 45" "else it moves"
on1 frozen --steps 3 --freeze 'vision.patch_embed.*'
is "$("$tool" moved "$dir/first/out/checkpoint" "$dir/frozen/out/checkpoint" 'model/vision.patch_embed.*')" "2 of 2" "first: the patches are trained"
on1 frozen1 --steps 1 --freeze 'vision.patch_embed.*'
is "$("$tool" moved "$dir/frozen1/out/checkpoint" "$dir/frozen/out/checkpoint" 'model/*patch_embed.*')" "0 of 4" "frozen, the projection of patches stays random"
for one in "--view-jitter 0" "--view-grey 0" "--view-blur 0" "--view-blur-second 1" "--view-solarize 0" "--crop-scale 0.5" "--flip=no" \
    "--moco-temperature 1" "--moco-hidden 40" "--moco-dim 8"; do
    # shellcheck disable=SC2086
    on1 single $one --steps 2
    losses single | tail -n 1
    rm -r "$dir/single"
done >"$dir/singles" 2>&1
is "$(sort -u "$dir/singles" | wc -l)" 10 "each setting is read, and by itself" "$(cat "$dir/singles")"

# --- ranks ---
if have_ranks; then
    # shellcheck disable=SC2086
    on 2 two $slow
    close two
    ok $? "two ranks, the losses of one: statistics and negatives are of all pictures of a step" "$(numbers two | paste "$dir/a" -)"
else
    skip_some 1 "ranks cannot be started here"
fi

# --- what it is good for ---
"$stages/lf-convert" --from "$dir/one/out/checkpoint" --out "$dir/hf" >"$dir/stdout" 2>"$dir/err"
is "$? $(sed -n '/"architectures"/{n;s/[ "]//g;p;}' "$dir/hf/model/config.json")" "0 ViTModel" "it goes out as a ViTModel" "$(cat "$dir/err")"
must "$stages/lf-convert" --verify none --from "$dir/hf/model" --out "$dir/in"
is "$("$tool" moved "$dir/one/out/checkpoint" "$dir/in/checkpoint" 'model/vision.*')" "0 of 38" "and comes in again as it was"
{ stage | sed '/^moco/d; s/^objective.*/objective = classes/; s/^steps.*/steps = 60/; s/^lr.*/lr = 2e-2/' &&
    printf 'vision_from = %s\nfreeze = vision.*\nweight_decay = 0\n[model]\n' "$dir/one/out/checkpoint" && vision &&
    printf 'classes.labels = 6\nclasses.norm = yes\n'; } >"$dir/probe.ini"
train "$pretrain" "$dir/probe.ini" probe
is "$rc $("$tool" moved "$dir/one/out/checkpoint" "$dir/probe/out/checkpoint" 'model/vision.*')" "0 0 of 38" "a linear probe of it" "$(cat "$dir/err")"
"$infer" record "$dir/probe/metrics" | tail -n 1 | grep -q '"valid_accuracy":1[,.}]'
ok $? "tells six pictures apart" "$("$infer" record "$dir/probe/metrics" | tail -n 1)"
mkdir "$dir/again"
killed_often 2 "$dir/again/metrics" "$(bytes "$dir/probe/metrics")" "$pretrain" --config "$dir/probe.ini" --out "$dir/again/out" --metrics "$dir/again/metrics" \
    --save-interval 9
train "$pretrain" "$dir/probe.ini" again --save-interval 9
is "$often $(id again)" "1 $(id probe)" "killed and continued, the same bits: its constants are kept"
if have_ranks; then
    numbers probe >"$dir/a"
    _run=$dir/run.ini
    cp "$dir/probe.ini" "$dir/run.ini"
    on 2 probe2 --steps 6
    close probe2
    ok $? "measured by two ranks, too" "$(numbers probe2 | paste "$dir/a" -)"
    { stage && echo "[model]" && vision; } >"$dir/run.ini"
else
    skip_some 1 "ranks cannot be started here"
fi
"$stages/lf-score" --checkpoint "$dir/probe/out/checkpoint" --tokenizer "$golden" --processor "$golden" --media-dir "$images" --shape prompt \
    --max-patches 100 --max-tiles 4 --threads 1 --out "$dir/scores" "$dir/rows.jsonl" >"$dir/stdout" 2>"$dir/err"
grep -q '"accuracy": 1.0' "$dir/scores/scores/results.json"
ok $? "and lf-score asks it" "$(cat "$dir/err" "$dir/scores/scores/results.json")"
"$stages/lf-convert" --from "$dir/probe/out/checkpoint" --out "$dir/probe.hf" >"$dir/stdout" 2>"$dir/err"
says "without classes.norm" "no class of transformers normalises so"

# --- mistakes ---
wrong() { # wrong WORDS INI ARGS...
    _words=$1 _ini=$2
    shift 2
    "$pretrain" --config "$_ini" --out "$dir/wrong" "$@" >"$dir/stdout" 2>"$dir/err"
    says "$_words" "$*: $_words"
}
wrong "zero: with objective = moco" "$dir/run.ini" --zero 1
wrong "precision = fp16 is not for objective = moco" "$dir/run.ini" --precision fp16
wrong "device: with objective = moco" "$dir/run.ini" --device cuda
wrong "masters = bf16: with objective = moco" "$dir/run.ini" --precision bf16 --masters bf16
wrong "pipeline: with objective = moco ranks share the batch and divide matrices (tensor) alone" "$dir/run.ini" --pipeline 2
wrong "init_from: with objective = moco" "$dir/run.ini" --init-from "$dir/one/out/checkpoint"
wrong "not a multiple of 4" "$dir/run.ini" --batch 6 --micro-batch 2 --max-patches 50 --max-tiles 2
for i in 0 1 2 3 4 5; do echo "{\"images\": [\"rgb8.png\"], \"prompt\": \"<image> $i\", \"label\": 0}"; done >"$dir/few.jsonl"
must "$stages/lf-tokenize" --tokenizer "$golden" --processor "$golden" --shape prompt --unmapped ignore --media-dir "$images" --valid-fraction 0.1 \
    --out "$dir/few" "$dir/few.jsonl"
wrong "the valid split has 1 pictures, and this objective compares 2 at least" "$dir/run.ini" --data "$dir/few/shards" --batch 4 --micro-batch 4
wrong "moco_dim belongs to objective = moco" "$dir/probe.ini" --moco-dim 8
wrong "mixup belongs to objective = classes" "$dir/run.ini" --mixup 1
sed '/^moco/d; s/^objective.*/objective = mae/' "$dir/run.ini" >"$dir/mae.ini"
wrong "flip belongs to objective = classes or moco" "$dir/mae.ini" --flip
wrong "vision.family) alone but objective = moco" "$dir/mae.ini"
{ cat "$dir/run.ini" && echo "classes.labels = 6"; } >"$dir/heads.ini"
wrong "objective = moco trains an encoder of pictures alone" "$dir/heads.ini"
sed '/^freeze/d' "$dir/probe.ini" >"$dir/trained.ini"
wrong "classes.norm normalises by constants of an encoder that is not" "$dir/trained.ini"

finish 34

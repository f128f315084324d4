#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A model that tells classes of pictures (lf-pretrain, objective = classes): it learns; micro-batches, ranks, kills and what is computed
# again change nothing, also where pictures are cropped, changed, erased and mixed at random; it begins with an encoder that restored
# pictures, and with a ViT of transformers; it goes out as one, lf-score tells classes with it; what is wrong is refused.
# engine/post/class_train.h; tests/golden/classes and tests/golden/media/augment_test have the numbers.
. "$LF_SRCDIR/tests/stage/lib.sh"
golden=$LF_SRCDIR/tests/golden/vlm/run/llava
images=$LF_SRCDIR/tests/golden/media/images
grep -q '^#define HAVE_PNG' "$LF_BUILDDIR/config.h" && grep -q '^#define HAVE_JPEG' "$LF_BUILDDIR/config.h" ||
    skip_all "a decoder of pictures is not built in"
with_ranks

# --- 48 pictures of 5 x 5 patches, of six classes ---
rows() { # rows N
    i=0
    while [ $i -lt "$1" ]; do
        k=0
        for f in rgb8.png photo.jpg wide.png exif.png grey8.png la8.png; do
            echo "{\"id\": \"$i-$k\", \"images\": [\"$f\"], \"prompt\": \"<image> $i $k\", \"label\": $k, \"said\": $(((k + i) % 6))}"
            k=$((k + 1))
        done
        i=$((i + 1))
    done
}
rows 8 >"$dir/rows.jsonl"
tokenize() { # tokenize NAME FILE
    must "$stages/lf-tokenize" --tokenizer "$golden" --processor "$golden" --shape prompt --unmapped ignore --media-dir "$images" --valid-fraction 0.25 \
        --out "$dir/$1" "$2"
}
tokenize tok "$dir/rows.jsonl"
sed 's/<image> [0-9]* [0-9]*/<image>/' "$dir/rows.jsonl" >"$dir/same.jsonl"
tokenize same "$dir/same.jsonl"
[ -f "$dir/same/shards/valid-00000.h5" ] && [ -f "$dir/same/shards/train-00000.h5" ]
ok $? "equal prompts about other pictures are not one document: some are kept for validation" "$(ls "$dir/same/shards")"

# --- folders of classes ---
mkdir -p "$dir/folders/ants/more" "$dir/folders/bees" && cp "$images/photo.jpg" "$dir/folders/ants/more/" && cp "$images/rgb8.png" "$dir/folders/ants/" &&
    cp "$images/wide.png" "$dir/folders/bees/a \"b\".png"
prefix=
folders() { $prefix "$stages/lf-tokenize" --tokenizer "$golden" --processor "$golden" --shape prompt --class-folders --out "$dir/$1" "$2" >"$dir/stdout" 2>"$dir/err"; }
for f in 'ants/more/photo.jpg","ants",0' 'ants/rgb8.png","ants",0' 'bees/a \"b\".png","bees",1'; do
    echo "$f" | sed 's/\(.*\)","\(.*\)",\(.\)/{"images":["\1"],"prompt":"<image>","label":\3,"class":"\2"}/'
done >"$dir/told.jsonl"
folders told "$dir/folders"
is $? 0 "a folder that has a folder of pictures for each class" "$(cat "$dir/err")"
must "$stages/lf-tokenize" --tokenizer "$golden" --processor "$golden" --shape prompt --media-dir "$dir/folders" --out "$dir/rows" "$dir/told.jsonl"
echo x >"$dir/folders/notes.txt"
folders notes "$dir/folders"
says "notes.txt is no folder" "nothing else stands there"
rm "$dir/folders/notes.txt" && mkdir "$dir/folders/wasps"
folders wasps "$dir/folders"
says "wasps: the folder of a class has no picture" "no class is without a picture"
rmdir "$dir/folders/wasps" && echo x >"$dir/folders/bees/z.png"
folders broken "$dir/folders"
says "folders/bees/z.png" "what is no picture is named"
rm "$dir/folders/bees/z.png"

stage() {
    printf '[stage]\ndata = %s\nobjective = classes\nbatch = 4\nmicro_batch = 2\nmax_patches = 50\nmax_tiles = 2\nsteps = 150\nlr = 2e-3\n' "$dir/tok/shards"
    printf 'schedule = constant\nvalid_interval = 50\nlog_interval = 10\nsave_time = 0\nthreads = 1\n'
}
vision() { # vision [FAMILY [POSITIONS]]
    printf 'vision.family = %s\nvision.layers = 2\nvision.hidden = 32\nvision.heads = 4\nvision.ffn = 64\nvision.patch_dim = 48\nvision.positions = %s\n' \
        "${1:-vit}" "${2:-26}"
}
{ stage && echo "[model]" && vision && echo "classes.labels = 6"; } >"$dir/run.ini"
changes="--crop-scale 0.3 --repeats 2 --flip --rand-ops 2 --erase 0.5 --mixup 0.8 --cutmix 1 --label-smoothing 0.1 --drop-path 0.3"
on1() {
    _n=$1
    shift
    train "$pretrain" "$dir/run.ini" "$_n" "$@"
}

# --- one rank ---
on1 one
is $rc 0 "150 steps"
says "pictures/s" "the log tells pictures, and no tokens"
record=$("$infer" record "$dir/one/metrics" | tail -n 1)
case $record in *'"valid_loss":'*'"accuracy":'*'"accuracy_5":'*'"valid_accuracy":'*'"valid_accuracy_5":'*) true ;; *) false ;; esac
ok $? "a record has accuracies, of validation too" "$record"
echo "$record" | grep -q '"valid_accuracy":1[,.}]'
ok $? "which are right" "$record"
on1 again --recompute full --save-async=no
is "$(id again)" "$(id one)" "computed again, the same bits"
on1 micro --micro-batch 4 --max-patches 100 --max-tiles 4 --steps 10
losses one | head -n 10 >"$dir/a"
close() { losses "$1" | head -n 10 | paste "$dir/a" - | awk '{ d = $1 - $2; if (!(d < 1e-5 && d > -1e-5)) bad = 1 } END { exit bad || NR != 10 }'; }
close micro
ok $? "micro-batches of twice the size, the same losses"

on1 bf16 --precision bf16 --steps 10
losses bf16 | head -n 10 | paste "$dir/a" - | awk '{ d = $1 - $2; if (!(d < 0.03 && d > -0.03)) bad = 1; if (d) other = 1 } END { exit bad || !other || NR != 10 }'
ok $? "bf16, nearly the same losses" "$(losses bf16 | paste "$dir/a" -)"
sed '/^valid_interval/d' "$dir/run.ini" >"$dir/folders.ini"
for f in told rows; do train "$pretrain" "$dir/folders.ini" "from-$f" --steps 3 --data "$dir/$f/shards"; done
is "$rc $(losses from-told)" "0 $(losses from-rows)" "folders of classes train as rows do that name their pictures and number them"
sed 's/classes.labels = 6/classes.labels = 2/' "$dir/folders.ini" >"$dir/two.ini"
train "$pretrain" "$dir/two.ini" named --steps 1 --data "$dir/told/shards"
must "$stages/lf-convert" --from "$dir/named/out/checkpoint" --out "$dir/named.out"
is "$(sed -n '/"id2label"/,/}/p' "$dir/named.out/model/config.json" | tr -d ' \n') $(grep -c '"image_mean"' "$dir/named.out/model/preprocessor_config.json")" \
    '"id2label":{"0":"ants","1":"bees"}, 1' "their names go out, and how pictures were prepared"
"$pretrain" --config "$dir/run.ini" --plan >"$dir/stdout" 2>"$dir/err"
grep -q '"steps":150' "$dir/stdout" && ! grep -q '"tokens"\|flops' "$dir/stdout"
ok $? "--plan: steps, and no FLOPs of tokens" "$(cat "$dir/stdout")"

# --- pictures are changed at random, by counters ---
# shellcheck disable=SC2086
on1 wild $changes --steps 20
is $rc 0 "20 steps of changed pictures"
[ "$(losses wild | head -n 1)" != "$(losses one | head -n 1)" ]
ok $? "other losses"
losses wild | head -n 10 >"$dir/a"
# shellcheck disable=SC2086
on1 wildmicro $changes --steps 10 --micro-batch 4 --max-patches 100 --max-tiles 4
close wildmicro
ok $? "micro-batches of twice the size, the same losses"
mkdir "$dir/kill"
# shellcheck disable=SC2086
killed_often 2 "$dir/kill/metrics" "$(bytes "$dir/wild/metrics")" "$pretrain" --config "$dir/run.ini" --out "$dir/kill/out" \
    --metrics "$dir/kill/metrics" $changes --steps 20 --save-interval 7
# shellcheck disable=SC2086
on1 kill $changes --steps 20 --save-interval 7
is "$often $(id kill)" "1 $(id wild)" "killed and continued, the same bits"
first() { losses "$1" | head -n 1; }
for one in "--crop-scale 0.3" "--flip" "--rand-ops 1 --rand-magnitude 20" "--erase 1" "--mixup 1" "--cutmix 1" "--label-smoothing 0.3" "--drop-path 0.5" "--layer-decay 0.5" "--flip --repeats 2"; do
    # shellcheck disable=SC2086
    on1 single $one --steps 3
    losses single | tail -n 1
    rm -r "$dir/single"
done >"$dir/singles" 2>&1
is "$(sort -u "$dir/singles" | wc -l)" 10 "each of them is done, and by itself" "$(cat "$dir/singles")"

# --- ranks ---
if have_ranks; then
    # shellcheck disable=SC2086
    on 2 two --steps 10 $changes
    close two
    ok $? "two ranks, the losses of one"
    # shellcheck disable=SC2086
    on 2 zero --steps 10 --zero 2 $changes
    is "$(losses zero)" "$(losses two)" "zero = 2, the same losses"
    prefix="$launch 2 --"
    folders told2 "$dir/folders"
    cmp -s "$dir/told/shards/train-00000.h5" "$dir/told2/shards/train-00000.h5"
    ok $? "folders of classes read by two ranks are the same shards" "$(cat "$dir/err")"
else
    skip_some 3 "ranks cannot be started here"
fi

# --- a GPU, emulated ---
emulated_gpu
on1 gpu --device cuda --steps 1
{ first gpu; first one; } | awk '{ x[NR] = $1 } END { d = x[1] - x[2]; exit NR != 2 || d > 1e-4 || d < -1e-4 }'
ok $? "a step on a GPU" "$(cat "$dir/err")"
unset LF_CUDA_DRIVER LF_CUBLASLT

# --- a teacher ---
{ stage && echo "teacher_column = said" && echo "[model]" && vision deit 27 && printf 'classes.labels = 6\nclasses.read = both\n'; } >"$dir/deit.ini"
train "$pretrain" "$dir/deit.ini" deit --steps 20
is $rc 0 "two heads, one of which learns what a teacher says"
is "$("$tool" moved "$dir/deit/out/checkpoint" "$dir/deit/out/checkpoint" 'model/classes.*')" "0 of 4" "which are four tensors"

# --- out, in, and scores ---
must "$stages/lf-convert" --from "$dir/one/out/checkpoint" --out "$dir/hf"
grep -q ViTForImageClassification "$dir/hf/model/config.json"
ok $? "it goes out as a ViTForImageClassification"
must "$stages/lf-convert" --verify none --from "$dir/hf/model" --out "$dir/in"
is "$("$tool" moved "$dir/one/out/checkpoint" "$dir/in/checkpoint" 'model/*')" "0 of 40" "and comes in again as it was"
mkdir "$dir/named.hf" && cp "$dir/hf/model/"* "$dir/named.hf/"
sed 's/LABEL_0/red/; s/LABEL_1/a photo/; s/LABEL_2/wide/; s/LABEL_3/tur\\"ned/; s/LABEL_4/grey/; s/LABEL_5/pale/' "$dir/hf/model/config.json" >"$dir/named.hf/config.json"
rm -rf "$dir/in"
must "$stages/lf-convert" --verify none --from "$dir/named.hf" --out "$dir/in"
{ stage && echo "init_from = $dir/in/checkpoint"; } >"$dir/further.ini"
train "$pretrain" "$dir/further.ini" further --steps 1
{ first further; losses one | tail -n 1; } | awk '{ x[NR] = $1 } END { exit NR != 2 || !(x[1] < 0.3) }'
ok $? "to be trained further" "$(losses further)"
must "$stages/lf-convert" --from "$dir/further/out/checkpoint" --out "$dir/further.hf"
named() { sed -n '/"'"$2"'"/,/}/p' "$1/config.json" | sed 's/,$//' | LC_ALL=C sort; }
is "$(named "$dir/further.hf/model" id2label) $(named "$dir/further.hf/model" label2id)" "$(named "$dir/named.hf" id2label) $(named "$dir/named.hf" label2id)" \
    "its classes go out under the names that they came in with"
score() { # score CHECKPOINT FILE ARGS...
    _c=$1 _f=$2
    shift 2
    rm -rf "$dir/scores"
    "$stages/lf-score" --checkpoint "$_c" --tokenizer "$golden" --processor "${processor:-$golden}" --media-dir "$images" --shape prompt \
        --threads 1 --out "$dir/scores" "$@" "$_f" >"$dir/stdout" 2>"$dir/err"
    rc=$?
}
score "$dir/one/out/checkpoint" "$dir/rows.jsonl" --max-patches 100 --max-tiles 4
is $rc 0 "lf-score tells classes" "$(cat "$dir/err")"
is "$(sed -n 's/.*"class":\([0-9]*\).*/\1/p' "$dir/scores/scores/scores.jsonl" | tr -d '\n')" 012345012345012345012345012345012345012345012345 "of every picture"
! grep -q '"name"' "$dir/scores/scores/scores.jsonl"
ok $? "which has no name"
grep -q '"accuracy": 1.0' "$dir/scores/scores/results.json"
ok $? "and how many are right" "$(cat "$dir/scores/scores/results.json")"
score "$dir/further/out/checkpoint" "$dir/rows.jsonl" --max-patches 100 --max-tiles 4
is "$(sed -n 's/.*"class":\([0-9],"name":.*\),"tokens.*/\1/p' "$dir/scores/scores/scores.jsonl" | head -n 4 | tail -n 2 | tr '\n' ' ')" \
    '2,"name":"wide" 3,"name":"tur\"ned" ' "and where it has one, lf-score tells it"
cp "$dir/scores/scores/scores.jsonl" "$dir/seen.jsonl"
echo '{"image_processor_type": "ViTImageProcessor", "size": 20, "image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711]}' \
    >"$dir/named.hf/preprocessor_config.json"
processor=$dir/named.hf
score "$dir/in/checkpoint" "$dir/rows.jsonl" --max-patches 100 --max-tiles 4
processor=
is "$rc $(wc -l <"$dir/scores/scores/scores.jsonl") $(cmp -s "$dir/seen.jsonl" "$dir/scores/scores/scores.jsonl" && echo equal)" "0 48 " \
    "the folder of a ViT tells how its pictures are prepared" "$(cat "$dir/err")"
score "$dir/one/out/checkpoint" "$dir/rows.jsonl" --max-patches 100 --plan
is "$rc $(grep -c '"total"\|bytes' "$dir/stdout")" "0 1" "--plan of lf-score" "$(cat "$dir/err" "$dir/stdout")"
score "$dir/one/out/checkpoint" "$dir/rows.jsonl"
says "give max_patches" "without max_patches it is told what is lacking"
score "$dir/deit/out/checkpoint" "$dir/rows.jsonl" --max-patches 25 --max-tiles 1
is "$rc $(wc -l <"$dir/scores/scores/scores.jsonl")" "0 48" "by two heads too, picture by picture"

# --- it begins with an encoder that restored pictures ---
{ stage | sed 's/^objective.*/objective = mae/' && printf '[model]\n' && vision vit-mae && printf 'mae.layers = 1\nmae.hidden = 24\nmae.heads = 3\n'; } >"$dir/mae.ini"
sed "/^valid_interval/d" "$dir/mae.ini" >"$dir/eyes.ini"
train "$pretrain" "$dir/eyes.ini" eyes --steps 3
is $rc 0 "an encoder restores the pictures of the same shards" "$(cat "$dir/err")"
{ stage && echo "vision_from = $dir/eyes/out/checkpoint" && printf '[model]\n' && vision vit-mae && echo "classes.labels = 6"; } >"$dir/tuned.ini"
train "$pretrain" "$dir/tuned.ini" tuned --steps 1 --freeze 'vision.*'
is "$rc $("$tool" moved "$dir/eyes/out/checkpoint" "$dir/tuned/out/checkpoint" 'model/vision.*')" "0 0 of 38" "classes are told with it"
must "$stages/lf-convert" --from "$dir/tuned/out/checkpoint" --out "$dir/tuned.hf"
grep -q ViTForImageClassification "$dir/tuned.hf/model/config.json"
ok $? "and it goes out as a ViT"

{ stage && printf '[model]\n' && vision siglip 25 && printf 'classes.labels = 6\nclasses.read = mean\n'; } >"$dir/mean.ini"
train "$pretrain" "$dir/mean.ini" mean --steps 1
is $rc 0 "the mean of the patches tells classes too" "$(cat "$dir/err")"
"$stages/lf-convert" --from "$dir/mean/out/checkpoint" --out "$dir/mean.hf" >"$dir/stdout" 2>"$dir/err"
says "deit with classes.read = both" "which no class of transformers does"

# --- mistakes ---
wrong() { # wrong WORDS INI ARGS...
    _words=$1 _ini=$2
    shift 2
    "$pretrain" --config "$_ini" --out "$dir/wrong" "$@" >"$dir/stdout" 2>"$dir/err"
    says "$_words" "$*: $_words"
}
wrong "seq_length has no meaning with objective = classes" "$dir/run.ini" --seq-length 64
wrong "pipeline: with objective = classes ranks share the batch and divide matrices (tensor) alone" "$dir/run.ini" --pipeline 2
wrong "give max_patches" "$dir/run.ini" --max-patches 0
wrong "mixup belongs to objective = classes" "$dir/mae.ini" --mixup 1
wrong "take an even one" "$dir/run.ini" --cutmix 1 --micro-batch 1 --max-patches 25 --max-tiles 1
wrong "batch of 4 samples is not a multiple of 6" "$dir/run.ini" --repeats 3 --flip
wrong "nothing changes pictures" "$dir/run.ini" --repeats 2
wrong "rand_magnitude is of rand_ops" "$dir/run.ini" --rand-magnitude 3
wrong "teacher_column is for" "$dir/run.ini" --teacher-column said
wrong "second head learns from a teacher" "$dir/deit.ini" --teacher-column ''
sed 's/^classes.labels.*//; s/^objective.*/objective = classes/' "$dir/mae.ini" >"$dir/mixed.ini"
wrong "mae.layers: an encoder and what restores pictures are" "$dir/mixed.ini"
wrong "objective = mae needs a decoder that restores pictures" "$dir/run.ini" --objective mae
wrong 'column "nothing" is missing' "$dir/run.ini" --label-column nothing
sed 's/classes.labels = 6/classes.labels = 5/' "$dir/run.ini" >"$dir/five.ini"
wrong "is no class below labels" "$dir/five.ini"
sed 's/^objective.*/objective = next_token/; s/^max_tiles.*/seq_length = 64/' "$dir/run.ini" >"$dir/next.ini"
wrong "is trained with objective = classes" "$dir/next.ini"
"$stages/lf-generate" --checkpoint "$dir/one/out/checkpoint" --tokenizer "$golden" --prompts "$LF_SRCDIR/tests/golden/vlm/run/prompts.jsonl" \
    --out "$dir/text" >"$dir/stdout" 2>"$dir/err"
says "it predicts no tokens" "no text comes from such a model"

finish 60

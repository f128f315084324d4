#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Pictures and captions (lf-pretrain, objective = clip and siglip): they find each other; micro-batches, ranks, kills and what is computed again change
# nothing; data come from rows, folders of classes and tar files; the model goes out as a CLIPModel or SiglipModel and comes in again; lf-score gives
# vectors and tells classes by captions; what is wrong is refused. engine/post/dual_train.h; tests/golden/dual has the numbers.
. "$LF_SRCDIR/tests/stage/lib.sh"
golden=$LF_SRCDIR/tests/golden/vlm/run/llava
images=$LF_SRCDIR/tests/golden/media/images
grep -q '^#define HAVE_PNG' "$LF_BUILDDIR/config.h" && grep -q '^#define HAVE_JPEG' "$LF_BUILDDIR/config.h" ||
    skip_all "a decoder of pictures is not built in"
with_ranks
beside='{"processor_class": "CLIPProcessor"}'

# --- 48 pictures of 5 x 5 patches with captions ---
files="rgb8.png photo.jpg wide.png exif.png grey8.png la8.png"
names="red photo wide turned grey pale"
i=0
while [ $i -lt 8 ]; do
    set -- $names
    for f in $files; do
        echo "{\"image\": \"$f\", \"text\": \"a $1 one $i\"}"
        shift
    done
    i=$((i + 1))
done >"$dir/rows.jsonl"
tokenize() { # tokenize NAME ARGS...
    _n=$1
    shift
    "$stages/lf-tokenize" --tokenizer "$golden" --processor "$golden" --placeholders "$beside" --out "$dir/$_n" "$@" >"$dir/stdout" 2>"$dir/err"
    rc=$?
}
tokenize tok --shape auto --media-dir "$images" --valid-fraction 0.25 "$dir/rows.jsonl"
is $rc 0 "rows with a picture and a caption, without a mark" "$(cat "$dir/err")"
mkdir -p "$dir/folders/big_ants" "$dir/folders/bees" && cp "$images/rgb8.png" "$dir/folders/big_ants/" && cp "$images/wide.png" "$dir/folders/bees/"
tokenize folders --shape prompt --class-folders --class-caption "a photo of {}." --valid-fraction 0 "$dir/folders"
is $rc 0 "folders of classes, whose names become captions" "$(cat "$dir/err")"
{
    echo '{"images": ["bees/wide.png"], "prompt": "<image>a photo of bees.", "label": 0, "class": "bees"}'
    echo '{"images": ["big_ants/rgb8.png"], "prompt": "<image>a photo of big ants.", "label": 1, "class": "big_ants"}'
} >"$dir/told.jsonl"
tokenize told --shape prompt --media-dir "$dir/folders" --valid-fraction 0 "$dir/told.jsonl"
is "$rc $("$LF_BUILDDIR/tests/stage/shards_tool" "$dir/folders/shards" train | cut -d r -f 1)" \
    "0 $("$LF_BUILDDIR/tests/stage/shards_tool" "$dir/told/shards" train | cut -d r -f 1)" "which are those of rows that say them" "$(cat "$dir/err")"
tokenize bad --shape prompt --class-folders --class-caption "a photo" "$dir/folders"
says "has no {}" "a caption without a place for the name"
tokenize bad --shape auto --class-caption "a {}" "$dir/rows.jsonl"
says "class_caption is of class_folders" "and without folders"

stage() { # stage OBJECTIVE
    printf '[stage]\ndata = %s\nobjective = %s\nbatch = 6\nmicro_batch = 2\nmax_patches = 50\nmax_tiles = 2\nsteps = 400\nlr = 2e-3\n' "$dir/tok/shards" "$1"
    printf 'schedule = constant\nvalid_interval = 200\nlog_interval = 10\nsave_time = 0\nthreads = 1\n'
}
model() { # model FAMILY POSITIONS
    printf '[model]\nfamily = %s\nlayers = 1\nhidden = 32\nheads = 4\nffn = 64\nmax_positions = 24\nvision.family = %s\n' "$1" "$1"
    printf 'vision.layers = 1\nvision.hidden = 32\nvision.heads = 4\nvision.ffn = 64\nvision.patch_dim = 48\nvision.positions = %s\ndual.dim = 32\n' "$2"
}
{ stage clip && model clip 26; } >"$dir/run.ini"
{ stage siglip && model siglip 25; } >"$dir/siglip.ini"
on1() {
    _n=$1
    shift
    train "$pretrain" "${ini:-$dir/run.ini}" "$_n" "$@"
}

# --- one rank ---
on1 one
is $rc 0 "400 steps" "$(cat "$dir/err")"
record=$("$infer" record "$dir/one/metrics" | tail -n 1)
case $record in *'"valid_loss":'*'"accuracy":'*'"text_accuracy":'*'"scale":'*'"valid_accuracy":'*) true ;; *) false ;; esac
ok $? "a record has accuracies, the scale, and those of validation" "$record"
first() { losses "$1" | head -n 1; }
last() { losses "$1" | tail -n 1; }
{ first one; last one; } | awk '{ x[NR] = $1 } END { exit NR != 2 || !(x[2] < 0.7 * x[1]) }'
ok $? "the loss falls" "$(first one) $(last one)"
on1 again --recompute full --save-async=no
is "$(id again)" "$(id one)" "computed again, the same bits"
on1 micro --micro-batch 6 --max-patches 150 --max-tiles 6 --steps 10
losses one | head -n 10 >"$dir/a"
close() { losses "$1" | head -n 10 | paste "$dir/a" - | awk '{ d = $1 - $2; if (!(d < 1e-5 && d > -1e-5)) bad = 1 } END { exit bad || NR != 10 }'; }
close micro
ok $? "micro-batches of three times the size, the same losses" "$(losses micro | paste "$dir/a" -)"
on1 bf16 --precision bf16 --steps 10
losses bf16 | head -n 10 | paste "$dir/a" - | awk '{ d = $1 - $2; if (!(d < 0.03 && d > -0.03)) bad = 1; if (d) other = 1 } END { exit bad || !other || NR != 10 }'
ok $? "bf16, nearly the same losses" "$(losses bf16 | paste "$dir/a" -)"
on1 short --steps 10
mkdir "$dir/kill"
killed_often 2 "$dir/kill/metrics" "$(bytes "$dir/short/metrics")" "$pretrain" --config "$dir/run.ini" --out "$dir/kill/out" \
    --metrics "$dir/kill/metrics" --steps 10 --save-interval 4
on1 kill --steps 10 --save-interval 4
is "$often $(id kill)" "1 $(id short)" "killed and continued, the same bits"
"$pretrain" --config "$dir/run.ini" --plan >"$dir/stdout" 2>"$dir/err"
grep -q '"steps":400' "$dir/stdout"
ok $? "--plan" "$(cat "$dir/stdout" "$dir/err")"
on1 lit --steps 2 --init-from "$dir/one/out/checkpoint" --freeze 'vision.*' --freeze 'dual.image.*'
is "$rc $("$tool" moved "$dir/one/out/checkpoint" "$dir/lit/out/checkpoint" 'model/vision.*')" "0 0 of 23" "texts are tuned to pictures that stay (LiT)" "$(cat "$dir/err")"
sed '/^valid_interval/d' "$dir/run.ini" >"$dir/some.ini"
ini=$dir/some.ini on1 folder --steps 1 --batch 2 --data "$dir/folders/shards"
is $rc 0 "captions of folders are trained on" "$(cat "$dir/err")"

# --- the scale has a bound ---
sed 's/^dual.dim.*/&\ndual.scale_init = 4.7/' "$dir/run.ini" >"$dir/hot.ini"
ini=$dir/hot.ini on1 hot --steps 2 --save-interval 1
is "$("$infer" record "$dir/hot/metrics" | sed -n 's/.*"step":1,.*"scale":\([0-9]*\.[0-9]\).*/\1/p' | head -n 1)" 100.0 "it is at most 100"

# --- ranks ---
if have_ranks; then
    on 2 two --steps 10 --batch 8
    on1 alone --steps 10 --batch 8
    losses alone | head -n 10 >"$dir/a"
    close two
    ok $? "two ranks, the losses of one" "$(losses two | paste "$dir/a" -)"
    on 2 zero --steps 10 --batch 8 --zero 2
    close zero
    ok $? "zero = 2, the same losses but for the order in which the norm is summed" "$(losses zero | paste "$dir/a" -)"
else
    skip_some 2 "ranks cannot be started here"
fi

# --- pair by pair ---
ini=$dir/siglip.ini on1 sig
is $rc 0 "400 steps with the loss of SigLIP" "$(cat "$dir/err")"
{ first sig; last sig; } | awk '{ x[NR] = $1 } END { exit NR != 2 || !(x[2] < 0.7 * x[1]) }'
ok $? "the loss falls" "$(first sig) $(last sig)"

# --- a GPU, emulated ---
emulated_gpu
on1 gpu --device cuda --steps 1
{ first gpu; first one; } | awk '{ x[NR] = $1 } END { d = x[1] - x[2]; exit NR != 2 || d > 1e-4 || d < -1e-4 }'
ok $? "a step on a GPU" "$(cat "$dir/err")"
"$pretrain" --config "$dir/siglip.ini" --out "$dir/wrong" --device cuda --steps 1 >"$dir/stdout" 2>"$dir/err"
says "has no kernel for attention to another text (cross attention, [model] encoder_layers or dual.read = attention)" \
    "SigLIP's attention head on one is refused"
unset LF_CUDA_DRIVER LF_CUBLASLT

# --- pictures and texts in a tar file ---
mkdir "$dir/tar" && for f in $files; do cp "$images/$f" "$dir/tar/$f" && echo "a ${f%%.*}" >"$dir/tar/${f%%.*}.txt"; done
(cd "$dir/tar" && tar cf ../pairs.tar $(for f in $files; do echo "$f ${f%%.*}.txt"; done))
tokenize tar --shape auto --valid-fraction 0 "$dir/pairs.tar"
is "$rc $("$LF_BUILDDIR/tests/stage/shards_tool" "$dir/tar/shards" train | grep -c '\[')" "0 6" "pictures and texts of a tar file" "$(cat "$dir/err")"
ini=$dir/some.ini on1 tarred --steps 1 --data "$dir/tar/shards"
is $rc 0 "are trained on" "$(cat "$dir/err")"

# --- out, in, and what it says ---
for n in one sig; do
    must "$stages/lf-convert" --from "$dir/$n/out/checkpoint" --out "$dir/$n.hf"
    must "$stages/lf-convert" --verify none --from "$dir/$n.hf/model" --out "$dir/$n.in"
    sed -n '/"architectures"/{n;s/[ "]//g;p;}' "$dir/$n.hf/model/config.json"
    "$tool" moved "$dir/$n/out/checkpoint" "$dir/$n.in/checkpoint" 'model/*' | sed 's/of .*/of/'
    [ -f "$dir/$n.hf/model/preprocessor_config.json" ] && echo prepared
done >"$dir/classes"
is "$(tr '\n' ' ' <"$dir/classes")" "CLIPModel 0 of prepared SiglipModel 0 of prepared " "they go out as models of transformers, and come in as they were"
must "$stages/lf-tokenize" --vocab-size 270 --special-tokens "<|endoftext|>" --out "$dir/words" "$dir/rows.jsonl"
must "$stages/lf-tokenize" --tokenizer "$dir/words/tokenizer" --processor "$golden" --placeholders "$beside" --shape auto --media-dir "$images" \
    --valid-fraction 0 --out "$dir/own" "$dir/rows.jsonl"
ini=$dir/some.ini on1 owned --steps 1 --data "$dir/own/shards"
must "$stages/lf-convert" --from "$dir/owned/out/checkpoint" --tokenizer "$dir/words/tokenizer" --out "$dir/own.hf"
grep -q '"eos_token": "<|endoftext|>"' "$dir/own.hf/model/tokenizer_config.json" && grep -q 'add_eos_token = True' "$dir/own.hf/model/README.md"
ok $? "with a tokenizer that transformers loads as it is, and how captions end" "$(ls "$dir/own.hf/model")"
"$stages/lf-convert" --from "$dir/one/out/checkpoint" --tokenizer "$dir/words/tokenizer" --out "$dir/wrong.hf" >"$dir/stdout" 2>"$dir/err"
says "tokenizer" "another tokenizer is refused"
for n in $names; do echo "$n"; done >"$dir/names"
k=0
for f in $files; do
    echo "{\"images\": [\"$f\"], \"prompt\": \"<image>\", \"label\": $k}"
    k=$((k + 1))
done >"$dir/held.jsonl"
score() { # score CHECKPOINT FILE ARGS...
    _c=$1 _f=$2
    shift 2
    rm -rf "$dir/scores"
    "$stages/lf-score" --checkpoint "$_c" --tokenizer "$golden" --processor "$golden" --placeholders "$beside" --media-dir "$images" --max-patches 100 \
        --max-tiles 4 --threads 1 --out "$dir/scores" "$@" "$_f" >"$dir/stdout" 2>"$dir/err"
    rc=$?
}
told() { sed -n 's/.*"class":\([0-9]*\).*/\1/p' "$dir/scores/scores/scores.jsonl" | tr -d '\n'; }
score "$dir/one/out/checkpoint" "$dir/held.jsonl" --classes "$dir/names" --class-caption "a {} one 1"
is "$rc $(told)" "0 012345" "classes are told by captions" "$(cat "$dir/err" "$dir/scores/scores/scores.jsonl")"
grep -q '"accuracy": 1.0' "$dir/scores/scores/results.json" && grep -q '"name":"turned"' "$dir/scores/scores/scores.jsonl"
ok $? "with their names, and how many are right" "$(cat "$dir/scores/scores/results.json")"
score "$dir/sig/out/checkpoint" "$dir/held.jsonl" --classes "$dir/names" --class-caption "a {} one 1" --class-caption "a {} one 2"
is "$rc $(told)" "0 012345" "by SigLIP too, and by several captions" "$(cat "$dir/err")"
{ cat "$dir/held.jsonl" && echo '{"text": "a red one 1"}' && echo '{"text": "a grey one 1"}'; } >"$dir/mixed.jsonl"
score "$dir/one/out/checkpoint" "$dir/mixed.jsonl" --give embeddings
is "$rc $(grep -c '"embedding":' "$dir/scores/scores/scores.jsonl")" "0 8" "vectors of pictures and of texts" "$(cat "$dir/err")"
sed 's/.*"embedding":\[\([^]]*\)\].*/\1/' "$dir/scores/scores/scores.jsonl" | awk -F, '
    { for (c = 1; c <= NF; c++) x[NR, c] = $c; n = NF }
    function dot(a, b,   s, c) { for (c = 1; c <= n; c++) s += x[a, c] * x[b, c]; return s }
    END { if (NR != 8) exit 1
          for (i = 2; i <= 6; i++) if (dot(7, i) >= dot(7, 1)) bad = 1
          for (i = 1; i <= 6; i++) if (i != 5 && dot(8, i) >= dot(8, 5)) bad = 1
          d = dot(1, 1) - 1; exit bad || d > 1e-5 || d < -1e-5 }'
ok $? "of length 1, and a text is closest to its picture" "$(cat "$dir/scores/scores/scores.jsonl")"

# --- mistakes ---
wrong() { # wrong WORDS INI ARGS...
    _words=$1 _ini=$2
    shift 2
    "$pretrain" --config "$_ini" --out "$dir/wrong" "$@" >"$dir/stdout" 2>"$dir/err"
    says "$_words" "$*: $_words"
}
score "$dir/one/out/checkpoint" "$dir/held.jsonl"
says "give classes" "scores of what, lf-score asks"
: >"$dir/nobody"
score "$dir/one/out/checkpoint" "$dir/held.jsonl" --classes "$dir/nobody"
says "has 0 names of classes" "an empty file of classes"
printf 'red\nblue\0green\n' >"$dir/cut-names"
score "$dir/one/out/checkpoint" "$dir/held.jsonl" --classes "$dir/cut-names"
says "has a zero byte" "a zero byte, which would cut the file of classes short"
score "$dir/one/out/checkpoint" "$dir/held.jsonl" --give embeddings --classes "$dir/names"
says "classes belongs to give = scores" "vectors need no classes"
wrong "seq_length has no meaning with objective = clip" "$dir/run.ini" --seq-length 64
wrong "pipeline: with objective = siglip ranks share the batch and divide matrices (tensor) alone" "$dir/siglip.ini" --pipeline 2
wrong "give max_patches" "$dir/run.ini" --max-patches 0
wrong "dual.dim: towers of pictures and texts are trained with" "$dir/run.ini" --objective next_token --seq-length 16 --max-patches 0
wrong "dual.bias: the loss of objective = clip knows none" "$dir/siglip.ini" --objective clip
{ cat "$dir/siglip.ini" && echo "dual.pad_token = 5000"; } >"$dir/pad.ini"
wrong "dual.pad_token: it is no word of the vocabulary" "$dir/pad.ini"
{ cat "$dir/run.ini" && echo "dual.end_token = 5000"; } >"$dir/end.ini"
wrong "dual.end_token: it is no word of the vocabulary" "$dir/end.ini"
sed '/^dual.dim/d' "$dir/run.ini" >"$dir/none.ini"
wrong "need towers of pictures and texts" "$dir/none.ini"
sed 's/"text": "/"prompt": "<image>/' "$dir/rows.jsonl" >"$dir/into.jsonl"
must "$stages/lf-tokenize" --tokenizer "$golden" --processor "$golden" --media-dir "$images" --shape prompt --valid-fraction 0 --out "$dir/into" "$dir/into.jsonl"
wrong "has placeholders in its text" "$dir/some.ini" --data "$dir/into/shards"
"$stages/lf-generate" --checkpoint "$dir/one/out/checkpoint" --tokenizer "$golden" --prompts "$LF_SRCDIR/tests/golden/vlm/run/prompts.jsonl" \
    --out "$dir/text" >"$dir/stdout" 2>"$dir/err"
says "it predicts no tokens" "no text comes from such a model"

finish 46

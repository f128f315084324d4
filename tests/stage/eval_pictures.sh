#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# lf-eval on tasks with pictures: sample by sample what hf-multimodal of lm-evaluation-harness makes of them
# (tests/golden/harness/make_pictures.py), whatever the batch; documents of our own; pictures that are broken or do not fit.
. "$LF_SRCDIR/tests/stage/lib.sh"
golden=$LF_SRCDIR/tests/golden/harness/pictures
models=$LF_SRCDIR/tests/golden/vlm/run
images=$LF_SRCDIR/tests/golden/media/images
grep -q '^#define HAVE_PNG' "$LF_BUILDDIR/config.h" && grep -q '^#define HAVE_JPEG' "$LF_BUILDDIR/config.h" ||
    skip_all "a decoder of pictures is not built in"
with_ranks
model=llava tokenizer=$models/llava under=
run() { # run NAME ARGS...
    _name=$1
    shift
    $under "$stages/lf-eval" --checkpoint "$dir/$model/checkpoint" --tokenizer "$tokenizer" --threads 1 --bootstrap 2 --out "$dir/$_name" "$@" \
        >"$dir/stdout" 2>"$dir/err"
    rc=$?
}
samples() { cat "$dir/$1/results/samples.jsonl"; }
told() { sed -n 's/.*planned memory \([0-9.]*\) MiB.*/\1/p' "$dir/err"; }
# Notes of a plan, and its bytes.
in_plan() { echo "$(grep -c notes "$dir/stdout") $(sed -n 's/.*"total": *\([0-9.]*\).*/\1/p' "$dir/stdout" | awk '{ printf "%.1f", $1 / 1048576 }')"; }
numbers() { samples "$1" | sed -n "/\"task\":\"$2\"/s/.*\"ll\":\[\([^]]*\)\].*/\1/p; /\"task\":\"$2\"/s/.*\"ll\":\(-[0-9.e-]*\),.*/\1/p" | tr ',' ' '; }
# as_scored NAME TASK WHAT: the numbers are those of transformers (make_scores.py)
as_scored() {
    sed -n "s/^$3 //p" "$models/$model/scored" | tr ' ' '\n' >"$dir/want"
    numbers "$1" "$2" | tr ' ' '\n' | paste -d ' ' - "$dir/want" |
        awk '{ d = $1 - $2; if (!(NF == 2 && d < 5e-5 && d > -5e-5)) bad = 1 } END { exit bad || NR < 2 }'
}
# bad TEXT NAME ARGS...: one line with TEXT before anything is measured
bad() {
    _text=$1 _what=$2
    shift 2
    rm -rf "$dir/bad"
    run bad "$@"
    [ $rc -eq 1 ] && grep -qF -- "$_text" "$dir/err" && [ "$(wc -l <"$dir/err")" -eq 1 ] && [ ! -e "$dir/bad/results/samples.jsonl.part" ]
    ok $? "$_what"
}

# --- the harness ---
for model in llava qwen2.5-vl; do
    must "$stages/lf-convert" --from "$models/$model" --out "$dir/$model" --verify none
    tokenizer=$models/$model
    for which in chat plain; do
        run $model.$which --requests "$golden/$which.jsonl"
        ok $rc "$model: requests of $which.jsonl"
        planned=$(told)
        run $model.plan --plan --requests "$golden/$which.jsonl"
        is "$(in_plan)" "0 $planned" "$model: --plan has the memory of the run"
        "$LF_BUILDDIR/tests/golden/harness_near" "$golden/$model-$which.json" "$dir/$model.$which/results" each >"$dir/near"
        sed -n 's/^# /# /p' "$dir/near"
        while read -r word number text; do
            case $word in ok) ok 0 "$model $text" ;; not) ok 1 "$model $text" ;; esac
        done <"$dir/near"
    done
done
model=llava tokenizer=$models/llava
run small --requests "$golden/chat.jsonl" --slots 2 --step-rows 16 --block 3 --no-share
is "$rc $(samples small | cksum)" "0 $(samples llava.chat | cksum)" "small batches: the same bytes"

if have_ranks; then
    under="$launch 2 --"
    run ranks --requests "$golden/chat.jsonl" --block 3
    under=
    is "$rc $(samples ranks | cksum)" "0 $(samples llava.chat | cksum)" "two ranks: the same bytes"
else
    skip_some 1 "ranks cannot be started here"
fi

# --- documents of our own ---
ask() { printf '{"messages":[{"role":"user","content":[{"type":"image"},{"type":"text","text":"%s"}]}],"images":["%s"],"target":"x"}\n' "$2" "$1"; }
{ ask rgb8.png 'What?'; ask 444.jpg 'Which animal?'; } >"$dir/ask.jsonl"
run ask --generate "$dir/ask.jsonl" --media-dir "$images" --max-tokens 10 --until '
' --until _
said() { samples "$1" | sed -n "/\"task\":\"$2\"/s/.*\"resps\"/\"resps\"/p" | head -n 2; }
is "$rc $(said ask ask)" "0 $(said llava.chat vqa)" "generate: messages with pictures, the texts of the harness"
pick() { printf '{"context":"%s","images":["%s"],"choices":["A","B"],"gold":0}\n' "$2" "$1"; }
{ pick rgb8.png '<image>A or B?'; pick 444.jpg '<image>A or B?'; pick rgb8.png '<image>A or B?'; } >"$dir/pick.jsonl"
cp "$images/rgb8.png" "$images/444.jpg" "$dir"
run pick --multiple-choice "$dir/pick.jsonl"
ll() { samples pick | sed -n "$1"'s/.*\("ll":\[[^]]*\]\).*/\1/p'; }
[ $rc -eq 0 ] && [ -n "$(ll 1)" ] && [ "$(ll 1)" = "$(ll 3)" ] && [ "$(ll 1)" != "$(ll 2)" ]
ok $? "multiple choice: pictures beside the documents, another picture, other numbers"
seeing=$(told)
run plan --plan --multiple-choice "$dir/pick.jsonl"
is "$(in_plan)" "0 $seeing" "--plan has the memory of the run"
run plan --plan --multiple-choice "$dir/pick.jsonl" --generate "$dir/none.jsonl"
grep -q "what pictures need follows from data that are not all there yet" "$dir/stdout"
ok $? "and a note where documents are yet to come"
sed 's/<image>//; s/"images":\[[^]]*\],//' "$dir/pick.jsonl" >"$dir/blind.jsonl"
run blind --multiple-choice "$dir/blind.jsonl"
echo "$seeing $(told)" | awk '{ exit !($1 > $2 && $2 > 0) }'
ok $? "encoder and pictures are in the memory that is told: $seeing and $(told) MiB"
run parquet --generate "$LF_SRCDIR/tests/golden/parquet/rows/asked.parquet" --max-tokens 10
printf '{"context":"<image>What?","target":"x","images":["rgb8.png"]}\n{"context":"none","target":"y"}\n' >"$dir/asked.jsonl"
rcs=$rc
run lines --generate "$dir/asked.jsonl" --max-tokens 10
is "$rcs$rc $(samples parquet)" "00 $(samples lines)" "parquet with the bytes of pictures, and rows without"

# --- shards of conversations with pictures ---
# What is said is the log-likelihood of what stands before a picture, and of what stands behind it, which requests ask for.
shards() { # shards MODEL NAME ROWS ARGS...
    _model=$1 _name=$2 _rows=$3
    shift 3
    must "$stages/lf-tokenize" --tokenizer "$models/$_model" --processor "$models/$_model" --shape auto --media-dir "$images" --valid-fraction 0 \
        --out "$dir/$_model.$_name" "$@" "$_rows"
}
head=$(grep -m 1 '"output_type": "multiple_choice"' "$golden/plain.jsonl" | sed 's/"task": "[a-z_]*"/"task": "parts"/')
part() { # part DOC IDX CTX CONT PICTURES DOC-MEMBERS
    printf '{"task":"parts","doc_id":%s,"idx":%s,"kind":"loglikelihood","ctx":"%s","cont":"%s"%s%s}\n' "$@"
}
end='<|endoftext|>' gold=',"doc":{"doc":{},"gold":0,"chars":[1,1],"bytes":[1,1],"doc_hash":"a","prompt_hash":"b","target_hash":"c","target":0}'
must "$stages/lf-convert" --from "$models/qwen3.5-vl" --out "$dir/qwen3.5-vl" --verify none
for model in llava qwen2.5-vl qwen3.5-vl; do
    tokenizer=$models/$model
    shards $model train "$models/train.json"
    begin= behind=
    [ $model = llava ] || begin='<|vision_start|>' behind='<|vision_end|>'
    {
        printf '%s\n' "$head"
        part 0 0 "$end" "<user>$begin" "" "$gold"
        part 0 1 "$end<user>$begin<image>" "${behind}What?<bot>A cat$end" ',"images":["rgb8.png"]' ""
        part 1 0 "$end" "<user>No picture" "" "$gold"
        part 1 1 "$end<user>No picture" "<bot>yes$end" "" ""
        part 2 0 "$end" "<user>$begin" "" "$gold"
        part 2 1 "$end<user>$begin<image>" "${behind}Color?<bot>blue green$end" ',"images":["420.jpg"]' ""
    } >"$dir/parts.jsonl"
    run $model.parts --requests "$dir/parts.jsonl" --media-dir "$images"
    rcs=$rc
    run $model.shards --data "$dir/$model.train/shards" --split train
    planned=$(told)
    { numbers $model.parts parts; numbers $model.shards train; } | awk 'NF == 2 { want[n++] = $1 + $2 } NF == 1 { have[m++] = $1 }
        END { split("0 3 4", at, " "); for (i = 0; i < 3; i++) { d = want[i] - have[at[i + 1]]; if (!(d < 1e-6 && d > -1e-6)) bad = 1 } exit bad || n != 3 || m != 5 }'
    is "$rcs$rc $?" "00 0" "$model: documents of shards have the log-likelihoods of their parts, placeholders apart"
    is "$(samples $model.shards | sed -n '1s/.*"tokens":\([0-9]*\).*/\1/p')" $((13 + (${#begin} > 0) + (${#behind} > 0))) "$model: tokens of pictures do not count"
    run $model.batches --data "$dir/$model.train/shards" --split train --slots 2 --step-rows 16 --block 2
    is "$rc $(samples $model.batches | cksum)" "0 $(samples $model.shards | cksum)" "$model: in small batches the same bytes"
    as_scored $model.shards train documents
    ok $? "$model: the log-likelihoods of transformers: documents"
    run $model.pick --multiple-choice "$dir/pick.jsonl"
    as_scored $model.pick pick choices
    ok $? "$model: ... and choices"
done
run $model.plan --plan --data "$dir/$model.train/shards" --split train
is "$(in_plan)" "0 $planned" \
    "--plan has the memory of the run: $planned MiB"
run $model.plan --plan --data "$dir/$model.train/shards" --split train --data "$dir/none" --limit 1
grep -q "what pictures need follows from data that are not all there yet" "$dir/stdout"
ok $? "and a note where shards are yet to come"
run other --data "$dir/$model.train/shards" --split train --limit 1
sed 's/rgb8.png/444.jpg/' "$models/train.json" >"$dir/swapped.json"
shards $model swapped "$dir/swapped.json"
run swapped --data "$dir/$model.swapped/shards" --split train --limit 1
[ $rc -eq 0 ] && [ -n "$(numbers swapped train)" ] && [ "$(numbers swapped train)" != "$(numbers other train)" ]
ok $? "another picture, another number"
if have_ranks; then
    under="$launch 2 --"
    run two --data "$dir/$model.train/shards" --split train --block 2
    under=
    is "$rc $(samples two | cksum)" "0 $(samples $model.shards | cksum)" "two ranks: the same bytes"
else
    skip_some 1 "ranks cannot be started here"
fi
bad "document 0: it has " "a document that is too long is not cut" --data "$dir/$model.train/shards" --split train --max-context 12
cp -r "$dir/$model.train" "$dir/broken"
at=$(LC_ALL=C grep -obUa IHDR "$dir"/broken/shards/train-*.h5 | head -n 1 | cut -d : -f 1)
printf 'XXXX' | dd of="$(ls "$dir"/broken/shards/train-*.h5)" bs=1 seek=$((at + 30)) conv=notrunc 2>/dev/null
run damaged --data "$dir/broken/shards" --split train
says_like 'train-00000.h5: document 0, picture 1: PNG' "a damaged picture"
must "$stages/lf-convert" --from "$models/paligemma" --out "$dir/paligemma" --verify none
model=paligemma tokenizer=$models/paligemma
sed 's/"id": "[^"]*", *//' "$models/paligemma/prompts.jsonl" >"$dir/asked.jsonl"
must "$stages/lf-tokenize" --tokenizer "$tokenizer" --processor "$tokenizer" --shape prompt --unmapped ignore --media-dir "$images" --valid-fraction 0 \
    --out "$dir/paligemma.train" "$dir/asked.jsonl"
bad "document 0: no token behind the first is trained" "prompts alone, which see each other" --data "$dir/paligemma.train/shards" --split train
# the prompt of a document is seen as a whole, as in training and before choices; nothing stands before it
cat >"$dir/answers.jsonl" <<E2
{"prompt": "<image>What?", "completion": " A cat", "images": ["rgb8.png"]}
{"prompt": "<image>Which animal?", "completion": "  dog and cat", "images": ["444.jpg"]}
E2
cat >"$dir/choices.jsonl" <<E2
{"context": "<image>What?", "images": ["rgb8.png"], "choices": ["A cat<|endoftext|>", "A dog"], "gold": 0}
{"context": "<image>Which animal? ", "images": ["444.jpg"], "choices": ["dog and cat<|endoftext|>", "x"], "gold": 0}
E2
shards paligemma answers "$dir/answers.jsonl"
run answers --data "$dir/paligemma.answers/shards" --split train
rcs=$rc
run choices --multiple-choice "$dir/choices.jsonl" --media-dir "$images"
is "$rcs$rc $(numbers answers train | tr '\n' ' ')" "00 $(numbers choices choices | cut -d ' ' -f 1 | tr '\n' ' ')" "a model whose prompts see each other: documents and choices"
as_scored answers train documents
ok $? "... with the log-likelihoods of transformers: documents"
as_scored choices choices choices
ok $? "... and choices"
run chosen --multiple-choice "$dir/choices.jsonl" --media-dir "$images" --slots 2 --step-rows 48 --block 1 --no-share
is "$rc $(samples chosen | cksum)" "0 $(samples choices | cksum)" "... in small batches the same bytes"
printf '[stage]\ninit_from = %s\ndata = %s\n' "$dir/paligemma/checkpoint" "$dir/paligemma.answers/shards" >"$dir/run.ini"
train "$stages/lf-sft" "$dir/run.ini" answered --no-mfu --seq-length 128 --batch 1 --max-patches 512 --steps 1 --lr 1e-9 --log-interval 1 --save-time 0
{ losses answered; numbers answers train; } | awk 'NR == 1 { loss = $1 } NR > 1 { ll += $1 } END { d = loss + ll / 21; exit NR != 3 || d > 1e-5 || d < -1e-5 }'
ok $? "... and the loss of training"
run long --multiple-choice "$dir/choices.jsonl" --media-dir "$images" --step-rows 24 --slots 2
says_like "'choices/0': the prompt has .* raise step_rows" "a prompt that is longer than a step"
echo '{"text": "No picture"}' >"$dir/words.jsonl"
shards paligemma words "$dir/words.jsonl"
run words --data "$dir/paligemma.words/shards" --split train
is "$rc $(numbers words train | wc -w | tr -d ' ')" "0 1" "but one of words that were prepared with its processor"
must "$stages/lf-convert" --from "$models/gemma3" --out "$dir/gemma3" --verify none
model=gemma3 tokenizer=$models/gemma3
shards $model train "$models/train.json"
run whole --data "$dir/gemma3.train/shards" --split train
rcs=$rc
run batches --data "$dir/gemma3.train/shards" --split train --slots 2 --step-rows 9 --block 2
is "$rcs$rc $(samples batches | cksum)" "00 $(samples whole | cksum)" "a model whose pictures' tokens see each other: documents, in batches too"
run large --data "$dir/gemma3.train/shards" --split train --slots 2 --step-rows 8
says_like "'train/0': a picture has 9 tokens.* raise step_rows" "a picture that is longer than a step"
run seen --multiple-choice "$dir/pick.jsonl"
rcs=$rc
run shared --multiple-choice "$dir/pick.jsonl" --slots 2 --step-rows 10 --no-share
is "$rcs$rc $(samples shared | cksum)" "00 $(samples seen | cksum)" "... and choices"
as_scored whole train documents
ok $? "... with the log-likelihoods of transformers: documents"
as_scored seen pick choices
ok $? "... and choices"
model=llava tokenizer=$models/llava

# --- mistakes ---
ask crc.png 'What?' >"$dir/broken.jsonl"
bad "crc.png" "a broken picture" --generate "$dir/broken.jsonl" --media-dir "$images"
says "broken.jsonl:1" "... with file and line"
ask none.png 'What?' >"$dir/missing.jsonl"
bad "$dir/none.png" "a picture that is not there" --generate "$dir/missing.jsonl"
pick rgb8.png '<image><image>A or B?' >"$dir/marks.jsonl"
bad "2 times for 1 picture" "more marks than pictures" --multiple-choice "$dir/marks.jsonl"
echo '{"context": "<image>A or B?", "choices": ["A", "B"], "gold": 0}' >"$dir/alone.jsonl"
bad "has the mark of a picture (<image>), but no picture is given" "a mark alone" --multiple-choice "$dir/alone.jsonl"
model=qwen2.5-vl tokenizer=$models/qwen2.5-vl
bad "has the mark of a picture (<|image_pad|>), but" "where the model's is another" --multiple-choice "$dir/alone.jsonl"
model=llava tokenizer=$models/llava
bad "not cut" "a context that is too long" --generate "$dir/ask.jsonl" --media-dir "$images" --max-tokens 10 --max-context 40
bad "not cut" "choices behind one" --multiple-choice "$dir/pick.jsonl" --max-context 24
cp "$models/llava/tokenizer.json" "$dir/tokenizer.json"
tokenizer=$dir/tokenizer.json
bad "processor = the folder" "no processor" --multiple-choice "$dir/pick.jsonl"
bad "there is no chat template" "no chat template" --processor "$models/llava" --generate "$dir/ask.jsonl" --media-dir "$images" --max-tokens 10
tokenizer=$models/llava
sed 's/"messages"/"context":"x","messages"/' "$dir/ask.jsonl" >"$dir/both.jsonl"
bad "both 'messages' and" "messages and a text" --generate "$dir/both.jsonl" --media-dir "$images"
head='{"task":"t","output_type":"loglikelihood_rolling","metrics":[{"metric":"bits_per_byte","aggregation":"bits_per_byte"}],"filters":[{"name":"none","steps":[{"function":"take_first"}]}]}'
printf '%s\n' "$head" '{"task":"t","doc_id":0,"idx":0,"kind":"loglikelihood_rolling","ctx":"<image>x","images":["rgb8.png"],"doc":{"words":1,"bytes":1}}' \
    >"$dir/rolling.jsonl"
bad "goes without pictures" "pictures in a text that is scored whole" --requests "$dir/rolling.jsonl"
finish 170

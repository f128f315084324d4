#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# lf-tokenize on rows with pictures: every shape gives the same documents, placeholders are those of the processor and
# are not trained, one picture is stored once, what is wrong is told with its row, and a run that is killed ends with
# the same bytes.
. "$LF_SRCDIR/tests/stage/lib.sh"
tokenize=$LF_BUILDDIR/stages/lf-tokenize
tool=$LF_BUILDDIR/tests/stage/shards_tool
images=$LF_SRCDIR/tests/golden/media/images
grep -q '^#define HAVE_PNG' "$LF_BUILDDIR/config.h" && grep -q '^#define HAVE_JPEG' "$LF_BUILDDIR/config.h" ||
    skip_all "a decoder of pictures is not built in"

# --- a tokenizer whose tokens are bytes and special tokens ---
echo "What is in the pictures? A cat, and a dog." >"$dir/text"
"$tokenize" --vocab-size 300 --special-tokens '<|endoftext|>' --special-tokens '<image>' --special-tokens '<user>' \
    --special-tokens '<bot>' --out "$dir/tok" "$dir/text" 2>"$dir/err" >/dev/null || bail "no tokenizer: $(cat "$dir/err")"
cat >"$dir/chat.jinja" <<'E2'
{%- for m in messages -%}
{{ '<user>' if m.role == 'user' else '<bot>' }}
{%- for c in m.content -%}
{%- if c.type == 'image' or 'image' in c %}<image>{% else %}{{ c.text }}{% endif -%}
{%- endfor -%}
{%- if m.role == 'assistant' %}<|endoftext|>{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}<bot>{% endif -%}
E2
mkdir "$dir/model"
echo '{"image_processor_type":"CLIPImageProcessor","processor_class":"LlavaProcessor","size":{"shortest_edge":24},
"crop_size":{"height":24,"width":24}}' >"$dir/model/preprocessor_config.json"
echo '{"vision_config":{"patch_size":8}}' >"$dir/model/config.json"
echo '{"vision_feature_select_strategy":"full"}' >"$dir/model/processor_config.json"

run() {
    _out=$1
    shift
    "$tokenize" --tokenizer "$dir/tok/tokenizer" --chat-template "${template:-$dir/chat.jinja}" --processor "${model:-$dir/model}" --media-dir "$images" \
        --shape "${shape:-auto}" --out "$dir/$_out" "$@" 2>"$dir/err" >"$dir/stdout"
    rc=$?
}
show() { "$tool" "$dir/$1/shards" train 2>&1; }

# --- the shapes ---
cat >"$dir/llava.json" <<'E2'
[{"image": "rgb8.png", "conversations": [{"from": "human", "value": "<image>\nWhat?"}, {"from": "gpt", "value": "A cat"}]},
 {"image": ["444.jpg", "rgb8.png"], "conversations": [{"from": "human", "value": "a <image> or <image>"},
   {"from": "gpt", "value": "dog"}]},
 {"conversations": [{"from": "human", "value": "no"}, {"from": "gpt", "value": "picture"}]}]
E2
run llava "$dir/llava.json"
is $rc 0 "LLaVA's array"
images_of() { show "$1" | sed 's/^[^[]*//'; }
is "$(images_of llava | sed 's/ [0-9a-f]\{8\}\]/]/g; s/^$/none/')" "[0 $(wc -c <"$images/rgb8.png") 2 48x37 1x3x3 1+9]
[1 $(wc -c <"$images/444.jpg") 1 48x37 1x3x3 2+9][0 $(wc -c <"$images/rgb8.png") 2 48x37 1x3x3 13+9]
none" "pictures with their places, one file once"
image=$(show llava | head -n 1 | sed 's/^-[0-9]* -\([0-9]*\) .*/\1/')
is "$(show llava | sed 's/\[.*//' | grep -o -e "-$image " | wc -l | tr -d ' ')" 27 "nine placeholders each, of one token, not trained"
show llava | sed 's/\[.*//' | tr ' ' '\n' | grep -qx "$image"
is $? 1 "nowhere is one trained"
is "$(show llava | sed 's/\[.*//' | awk '{ n = 0; for (i = 1; i <= NF; i++) n += $i !~ /^-/; print (n > 1) }' | tr -d '\n')" 111 \
    "but the answers are"

tr -d '\n' <"$dir/llava.json" | sed 's/^\[//; s/\]$//; s/}, *{"image"/}\n{"image"/g; s/}, *{"conversations"/}\n{"conversations"/g' >"$dir/llava.jsonl"
run lines "$dir/llava.jsonl"
is "$(show lines)" "$(show llava)" "the same as lines"
cat >"$dir/images.jsonl" <<'E2'
{"images": ["rgb8.png"], "messages": [{"role": "user", "content": "<image>What?"}, {"role": "assistant", "content": "A cat"}]}
{"images": ["444.jpg", "rgb8.png"], "conversations": [{"from": "human", "value": "a<image>or<image>"}, {"from": "gpt", "value": "dog"}]}
{"messages": [{"role": "user", "content": "no"}, {"role": "assistant", "content": "picture"}]}
E2
run images "$dir/images.jsonl"
is "$(show images)" "$(show llava)" "messages and ShareGPT with a column of images"
png=$(base64 <"$images/rgb8.png" | tr -d '\n')
cat >"$dir/parts.jsonl" <<E2
{"messages": [{"role": "user", "content": [{"type": "image", "image": "data:image/png;base64,$png"}, {"type": "text", "text": "What?"}]}, {"role": "assistant", "content": "A cat"}]}
{"images": ["$images/444.jpg"], "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "or"}, {"type": "image_url", "image_url": {"url": "file://$images/rgb8.png"}}]}, {"role": "assistant", "content": [{"type": "text", "text": "dog"}]}]}
{"messages": [{"role": "user", "content": "no"}, {"role": "assistant", "content": "picture"}]}
E2
run parts "$dir/parts.jsonl"
is "$(show parts)" "$(show llava)" "parts of turns: a data: URL, a path, a file: URL, the column's next"
sed 's/"images"/"photos"/' "$dir/images.jsonl" >"$dir/renamed.jsonl"
run renamed --columns images=photos "$dir/renamed.jsonl"
is "$(show renamed)" "$(show llava)" "a column of another name"
run headers --picture-check header "$dir/llava.json"
cmp -s "$dir/headers/shards/train-00000.h5" "$dir/llava/shards/train-00000.h5"
is $? 0 "headers of pictures tell what their pixels do"
run threads --threads 3 "$dir/llava.json"
cmp -s "$dir/threads/shards/train-00000.h5" "$dir/llava/shards/train-00000.h5"
is $? 0 "threads change no byte"

sed 's/{%- if m.role == .assistant. %}<|endoftext|>{% endif -%}//
s/^{%- for c in m.content -%}/{%- if m.role == "assistant" %}{% generation %}{{ m.content[0].text }}<|endoftext|>{% endgeneration %}{% else -%}\n&/
s/^{%- endfor -%}$/&/' "$dir/chat.jinja" | awk '/^{%- endfor -%}$/ && !seen++ { print; print "{%- endif -%}"; next } { print }' >"$dir/marks.jinja"
template=$dir/marks.jinja run marks "$dir/llava.json"
is "$(show marks)" "$(show llava)" "blocks that the template marks are where they were written"
with_ranks
if have_ranks; then
    # shellcheck disable=SC2086
    $launch 2 -- "$tokenize" --tokenizer "$dir/tok/tokenizer" --chat-template "$dir/chat.jinja" --processor "$dir/model" \
        --media-dir "$images" --shape auto --out "$dir/ranks" "$dir/llava.json" 2>"$dir/err" >/dev/null
    cmp -s "$dir/ranks/shards/train-00000.h5" "$dir/llava/shards/train-00000.h5"
    is $? 0 "ranks change no byte"
else
    skip "ranks change no byte" "no ranks here"
fi
parquet=$LF_SRCDIR/tests/golden/parquet/rows
run parquet "$parquet/pictures.parquet"
is "$(show parquet)" "$(show llava)" "parquet: bytes, and a path where there are none"
run parquet1 "$parquet/picture.parquet"
is "$(show parquet1)" "$(show llava | head -n 1)" "and one picture a row"
"$tokenize" --tokenizer "$dir/tok/tokenizer" --chat-template "$dir/chat.jinja" --shape auto --out "$dir/parquet2" \
    "$parquet/picture.parquet" 2>"$dir/err" >/dev/null
says "column image.bytes is binary, which a row of text has no place for" "bytes are refused without a processor"
"$tokenize" --tokenizer "$dir/tok/tokenizer" --chat-template "$LF_SRCDIR/tests/golden/parquet/README.md" --shape auto --unmapped ignore \
    --out "$dir/parquet3" "$parquet/picture.parquet" 2>"$dir/err" >/dev/null
! grep -q "binary" "$dir/err"
is $? 0 "or passed over where columns are"

# --- webdataset ---
mkdir "$dir/web"
cp "$images/rgb8.png" "$dir/web/a.png"
printf '{"conversations": [{"from": "human", "value": "<image>\\nWhat?"}, {"from": "gpt", "value": "A cat"}], "image": "a.png"}' >"$dir/web/a.json"
cp "$images/444.jpg" "$dir/web/b.img1.jpg"
cp "$images/rgb8.png" "$dir/web/b.img2.png"
printf '{"conversations": [{"from": "human", "value": "a<image>or<image>"}, {"from": "gpt", "value": "dog"}]}' >"$dir/web/b.json"
printf '{"messages": [{"role": "user", "content": "no"}, {"role": "assistant", "content": "picture"}]}' >"$dir/web/c.json"
tar -C "$dir/web" -cf "$dir/web.tar" a.png a.json b.json b.img1.jpg b.img2.png c.json
run web "$dir/web.tar"
is "$(show web)" "$(show llava)" "samples in a tar file"
gzip -k "$dir/web.tar"
run webgz "$dir/web.tar.gz"
is "$(show webgz)" "$(show llava)" "also a compressed one"
printf 'A cat' >"$dir/web/d.txt"
cp "$images/rgb8.png" "$dir/web/d.png"
tar -C "$dir/web" -cf "$dir/captions.tar" d.txt d.png
run captions "$dir/captions.tar"
printf '{"image": "rgb8.png", "messages": [{"role": "user", "content": "<image>"}, {"role": "assistant", "content": "A cat"}]}\n' >"$dir/captions.jsonl"
run captions2 "$dir/captions.jsonl"
is "$(show captions)" "$(show captions2)" "a text is the answer to its picture"
cp "$dir/text" "$dir/web/d.cls"
tar -C "$dir/web" -cf "$dir/other.tar" d.txt d.png d.cls
run other "$dir/other.tar"
says "other.tar: d.cls: members of samples are" "a member of another kind"
run other2 --unmapped ignore "$dir/other.tar"
is "$(show other2)" "$(show captions)" "which unmapped = ignore passes over"
tar -C "$dir/web" -cf "$dir/none.tar" d.png
run none "$dir/none.tar"
says "none.tar: d: the sample has neither txt nor json" "a sample that says nothing"
head -c 3000 "$dir/web.tar" >"$dir/cut.tar"
run cut "$dir/cut.tar"
[ $rc -eq 1 ] && grep -q "cut.tar: .*complete" "$dir/err"
is $? 0 "an archive that ends early"

# --- PaliGemma: a prompt without a template ---
mkdir "$dir/pali"
echo '{"image_processor_type":"SiglipImageProcessor","processor_class":"PaliGemmaProcessor","size":{"height":28,"width":28},
"image_seq_length":4}' >"$dir/pali/preprocessor_config.json"
echo '{"prompt":"<image>What?","completion":"A cat","image":"rgb8.png"}' >"$dir/pali.jsonl"
model=$dir/pali run pali --placeholders '{"patch_size": 14, "bos": "<user>"}' --special-in-text token "$dir/pali.jsonl"
user=$(show llava | head -n 1 | sed 's/^-\([0-9]*\) .*/\1/')
what=$(show llava | head -n 1 | sed 's/\[.*//' | tr ' ' '\n' | sed -n 11,200p | awk '/^[0-9]/ { exit } { print }' | sed '$d' | tr '\n' ' ')
show pali | grep -q "^-$image -$image -$image -$image -$user $what-[0-9]* [0-9]"
is $? 0 "placeholders, BOS, the prompt and a line end, then what is trained"

sed 's/"type": "text",/"type": "text", "image": null,/' "$dir/parts.jsonl" >"$dir/nulls.jsonl"
run nulls "$dir/nulls.jsonl"
is "$(show nulls)" "$(show llava)" "members that are null are none"
run prompt --train-on-prompt "$dir/llava.json"
is "$(show prompt | sed 's/\[.*//' | tr ' ' '\n' | grep '^-' | sort | uniq -c | tr -s ' ')" " 27 -$image
 3 -$user" "with prompts trained, too, placeholders are not, nor the first token"

# rows of answers that are judged, without pictures: the template gets lists of parts, and the texts are the same
cat >"$dir/pairs.jsonl" <<'E2'
{"chosen": [{"role": "user", "content": "no"}, {"role": "assistant", "content": "A cat"}], "rejected": [{"role": "user", "content": "no"}, {"role": "assistant", "content": "dog"}]}
{"prompt": "no", "chosen": [{"role": "user", "content": "no"}, {"role": "assistant", "content": "A cat"}], "rejected": [{"role": "user", "content": "no"}, {"role": "assistant", "content": "dog"}]}
E2
cat >"$dir/plain.jinja" <<'E2'
{%- for m in messages -%}
{{ '<user>' if m.role == 'user' else '<bot>' }}{{ m.content }}
{%- if m.role == 'assistant' %}<|endoftext|>{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}<bot>{% endif -%}
E2
run pairs1 "$dir/pairs.jsonl"
"$tokenize" --tokenizer "$dir/tok/tokenizer" --chat-template "$dir/plain.jinja" --shape auto --out "$dir/pairs2" "$dir/pairs.jsonl" \
    2>"$dir/err" >/dev/null
is "$(show pairs1 | grep -c '^-')" 4 "pairs without pictures"
is "$(show pairs1)" "$(show pairs2)" "are those without a processor"

# --- judged answers and prompts with pictures ---
say() { echo "{\"role\": \"$1\", \"content\": [$2{\"type\": \"text\", \"text\": \"$3\"}]}"; }
one='"images": ["rgb8.png"]' pic='{"type": "image"}, '
for answer in "A cat" dog; do
    echo "{$one, \"messages\": [$(say user "$pic" "What?"), $(say assistant "" "$answer")]}"
done >"$dir/sides.jsonl"
run sides "$dir/sides.jsonl"
echo "{$one, \"prompt\": [$(say user "$pic" "What?")], \"chosen\": [$(say assistant "" "A cat")], \"rejected\": [$(say assistant "" dog)]}" >"$dir/pair.jsonl"
run pair "$dir/pair.jsonl"
is "$(show pair)" "$(show sides)" "a pair is two conversations, and their picture is stored once"
echo "{$one, \"chosen\": [$(say user "$pic" "What?"), $(say assistant "" "A cat")], \"rejected\": [$(say user "$pic" "What?"), $(say assistant "" dog)]}" >"$dir/whole.jsonl"
run whole1 "$dir/whole.jsonl"
is "$(show whole1)" "$(show sides)" "whole conversations, which both have the pictures of the column"
own='{"type": "image", "image": "rgb8.png"}, '
echo "{\"chosen\": [$(say user "$own" "What?"), $(say assistant "" "A cat")], \"rejected\": [$(say user "$own" "What?"), $(say assistant "" dog)]}" >"$dir/own.jsonl"
run own "$dir/own.jsonl"
is "$(show own)" "$(show sides)" "and with pictures of their own"
echo "{$one, \"prompt\": \"<user><image>What?<bot>\", \"chosen\": \"A cat<|endoftext|>\", \"rejected\": \"dog<|endoftext|>\"}" >"$dir/texts.jsonl"
run texts --special-in-text token --append-eos=no "$dir/texts.jsonl"
is "$(show texts)" "$(show sides)" "a pair of texts"
echo "{$one, \"prompt\": [$(say user "$pic" "What?")], \"completion\": [$(say assistant "" "A cat")], \"label\": true}" >"$dir/label.jsonl"
run label "$dir/label.jsonl"
is "$(show label)" "$(show sides | sed -n 1p | sed 's/\[/label=1&/')" "an answer with a label"
echo "{$one, \"prompt\": [$(say user "$pic" "What?")], \"answer\": \"x\"}" >"$dir/asked.jsonl"
run asked --unmapped ignore "$dir/asked.jsonl"
is "$(show asked | sed 's/rest=.*}//; s/^/ /; s/ -/ /g')" "$(show sides | sed -n 1p | sed 's/^/ /; s/ [0-9][0-9 ]*\[/ [/; s/ -/ /g')" \
    "a prompt, up to where the answer begins"
is "$(show asked | grep -o 'rest=[^[]*' | tr -d ' \n')" 'rest={"answer":"x"}' "and its other columns"
other='{"type": "image", "image": "444.jpg"}, '
echo "{\"chosen\": [$(say user "$own" "What?"), $(say assistant "" "A cat")], \"rejected\": [$(say user "$other" "What?"), $(say assistant "" dog)]}" >"$dir/apart.jsonl"
run apart "$dir/apart.jsonl"
says "to other pictures than the better one" "answers to two pictures"
echo "{$one, \"prompt\": [$(say user "$pic$pic" "What?")], \"chosen\": [$(say assistant "" "A cat")], \"rejected\": [$(say assistant "" dog)]}" >"$dir/more.jsonl"
run more "$dir/more.jsonl"
says "2 marks of pictures" "more marks than pictures"

# --- settings ---
run strategy --placeholders '{"vision_feature_select_strategy": "default"}' "$dir/llava.json"
is "$(images_of strategy | head -n 1 | cut -d ' ' -f 6)" "1+8" "what is given counts before the files"
run typo --placeholders '{"strategy": "default"}' "$dir/llava.json"
says "placeholders: strategy means nothing to LlavaProcessor" "a setting that is not known"
run noid --placeholders '{"image_token": "<pic>"}' "$dir/llava.json"
says "the tokenizer has no token <pic>" "a placeholder that is no token"
shape=text run text "$dir/llava.json"
says "set shape to what they are" "pictures need a shape of rows"

# --- what is wrong with rows ---
wrong() { # wrong NAME ROW WORDS...
    _name=$1 _row=$2
    shift 2
    { sed -n 3p "$dir/images.jsonl"; echo "$_row"; } >"$dir/wrong.jsonl"
    run "wrong-$_name" "$dir/wrong.jsonl"
    grep -qF "wrong.jsonl:2: " "$dir/err" && grep -qF -- "$*" "$dir/err" && [ $rc -eq 1 ]
    is $? 0 "$_name"
}
ask='"messages": [{"role": "user", "content": "<image>What?"}, {"role": "assistant", "content": "A cat"}]'
wrong "no picture for a mark" "{$ask}" "1 mark of pictures"
wrong "two pictures for a mark" "{\"images\": [\"rgb8.png\", \"444.jpg\"], $ask}" "the row has 2 pictures for them"
wrong "http" "{\"image\": \"http://x/y.png\", $ask}" "pictures are not fetched"
wrong "no such file" "{\"image\": \"nothing.png\", $ask}" "nothing.png"
wrong "a broken picture" "{\"image\": \"cut-rgb8.png\", $ask}" "picture 1: PNG"
wrong "no picture at all" "{\"image\": \"text.bin\", $ask}" "the first bytes are of no picture"
wrong "another format" "{\"image\": \"gif.bin\", $ask}" "this is a GIF picture"
wrong "base64 that is none" "{\"image\": \"data:image/png;base64,???\", $ask}" "the base64 of a data: URL is damaged"
wrong "two columns" "{\"image\": \"rgb8.png\", \"images\": [\"rgb8.png\"], $ask}" 'pictures in "image" and in "images"'
wrong "a column of numbers" "{\"images\": [1], $ask}" 'picture 1 of "images" is no path'
wrong "a size of its own" '{"messages": [{"role": "user", "content": [{"type": "image", "image": "rgb8.png", "max_pixels": 99}]}, {"role": "assistant", "content": "A"}]}' \
    'member "max_pixels" of an image means nothing'
wrong "a part that is a number" '{"messages": [{"role": "user", "content": [1]}, {"role": "assistant", "content": "A"}]}' "is no object and no text"
wrong "a video" '{"messages": [{"role": "user", "content": [{"type": "video"}]}, {"role": "assistant", "content": "A"}]}' "a turn with video"
wrong "a preference with a picture on one side" '{"image": "rgb8.png", "chosen": [{"role": "user", "content": "<image>"}, {"role": "assistant", "content": "A"}], "rejected": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "B"}]}' "0 marks of pictures"
run skipped --bad-rows skip "$dir/wrong.jsonl"
is $rc 0 "bad_rows = skip leaves such rows out"
run long --max-length 12 --bad-rows skip "$dir/llava.json"
is "$(show long | wc -l | tr -d ' ')" 1 "rows with pictures are never cut: too long ones are left out"
says "rows left out: too_long" "and counted"

# --- what shards hold ---
"$tokenize" --show-shards --tokenizer "$dir/tok/tokenizer" --sample 1 "$dir/llava" 2>"$dir/err" >"$dir/stdout"
grep -q "picture 2: PNG of 48 x 37 pixels, .* 1 tile of 3 x 3 patches, 9 placeholders from token 13 on" "$dir/stdout" &&
    grep -q "<image> x 9" "$dir/stdout"
is $? 0 "show_shards tells pictures"
"$tokenize" --show-shards --json --sample 1 "$dir/llava" 2>"$dir/err" | tr -d ' ' >"$dir/stdout"
grep -q '"format":"JPEG","width":48,"height":37,.*"first":2,"placeholders":9,' "$dir/stdout"
is $? 0 "as JSON, too"

# --- the doctor ---
{ cat "$dir/images.jsonl"; echo "{\"image\": \"exif.png\", $ask}"; echo "{\"image\": \"cut-rgb8.png\", $ask}"; echo "{$ask}"; } >"$dir/sick.jsonl"
run sick --doctor --json "$dir/sick.jsonl"
is $rc 0 "the doctor"
number() { tr -d ' \n' <"$dir/stdout" | sed "s/.*\"$1\":\([0-9][0-9]*\).*/\1/"; }
is "$(number pictures | head -c 20) $(number mismatched) $(number repeated)" "4 1 1" "counts pictures, mismatched rows, repeated pictures"
tr -d ' \n' <"$dir/stdout" | grep -q '"pictures":{"broken":1,.*"height":{"max":48,"min":37},"mismatched":1,"pictures":4,"placeholders":{"max":9,"mean":9.0,"min":9}'
is $? 0 "and broken ones, sizes and placeholders"
# A page has the first rows as they are trained, with their pictures.
page=$dir/sick/doctor/samples.html
sed -n 's/.*src="data:image\/png;base64,\([^"]*\)".*/\1/p' "$page" 2>/dev/null | head -n 1 | base64 -d | cmp -s - "$images/rgb8.png"
is $? 0 "a page of samples has the picture of the first one"
like() { grep -q "$1" "$page"; is $? 0 "$2"; }
like 'data:image/jpeg;base64,.*48 x 37 pixels, 9 placeholders' "that of another format, with its size"
like '&lt;image&gt; x 9 What?&lt;bot&gt;<mark>A cat&lt;|endoftext|&gt;</mark>' "placeholders are counted, what is trained is marked"
like "img-src data:" "and loads nothing"
grep -q '"html"' "$dir/sick/doctor/report.json"
is $? 1 "the report has no pictures in it"
printf '%s\n' '{"images": ["rgb8.png"], "messages": [{"role": "user", "content": "<image>{+ a +}?"}, {"role": "assistant", "content": "b {+ c"}]}' \
    '{"images": ["444.jpg"], "messages": [{"role": "user", "content": "<image>{+ a +}?"}, {"role": "assistant", "content": "b {+ c"}]}' >"$dir/signs.jsonl"
run signs --doctor --json "$dir/signs.jsonl"
page=$dir/signs/doctor/samples.html
like '{+ a +}?&lt;bot&gt;<mark>b {+ c&lt;|endoftext|&gt;</mark>' "texts that look like the signs are not taken for them"
tr -d ' \n' <"$dir/stdout" | grep -q '"user":{"histogram":\[[^]]*\],"max":[1-9]'
is $? 0 "turns in parts have lengths"
grep -q '"repeated_prompts"' "$dir/stdout"
is $? 1 "and the same words about two pictures are two prompts"
run sick2 --doctor "$dir/sick.jsonl"
grep -q "4 pictures in 3 rows" "$dir/stdout" && grep -q "1 rows have a picture that is not there or cannot be read" "$dir/stdout"
is $? 0 "for people, too"
grep -q "duplicates" "$dir/stdout"
is $? 1 "the same words to another picture are another row"

# --- killed and resumed ---
i=0
while [ $i -lt 12 ]; do
    sed "s/What/What $i/; s/or/or $i/" "$dir/images.jsonl"
    i=$((i + 1))
done >"$dir/many.jsonl"
run whole --shard-tokens 80 --threads 2 "$dir/many.jsonl"
is "$(find "$dir/whole/shards" -name 'train-*.h5' | wc -l | tr -d ' ')" "$(find "$dir/whole/progress" -name '*.json' | wc -l | tr -d ' ')" \
    "shards in groups"
for k in 1 3 6; do
    cut_at kill "$k" "fsync */kill$k/progress" "[ \$(find '$dir/kill$k/progress' -name '*.json' 2>/dev/null | wc -l) -ge $k ]" \
        "$tokenize" --tokenizer "$dir/tok/tokenizer" --chat-template "$dir/chat.jinja" --processor "$dir/model" --media-dir "$images" \
        --shape auto --out "$dir/kill$k" --shard-tokens 80 --threads 2 "$dir/many.jsonl"
    is $rc 137 "killed"
    run "kill$k" --shard-tokens 80 --threads 2 "$dir/many.jsonl"
    diff -r "$dir/whole/shards" "$dir/kill$k/shards" >"$dir/err" 2>&1
    is $? 0 "and resumed after $k groups: the same bytes, and no left-over"
done
finish 81

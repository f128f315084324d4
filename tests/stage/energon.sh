#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# lf-tokenize on folders that Megatron-Energon prepared: the documents are those of the rows that Energon itself yields
# (tests/golden/energon), in its order; what cannot be read is told.
. "$LF_SRCDIR/tests/stage/lib.sh"
tokenize=$LF_BUILDDIR/stages/lf-tokenize
tool=$LF_BUILDDIR/tests/stage/shards_tool
golden=$LF_SRCDIR/tests/golden/energon
grep -q '^#define HAVE_PNG' "$LF_BUILDDIR/config.h" || skip_all "a decoder of PNG is not built in"

# --- a tokenizer whose tokens are bytes and special tokens ---
echo "What is in the pictures? A cat, and a dog." >"$dir/text"
"$tokenize" --vocab-size 300 --special-tokens '<|endoftext|>' --special-tokens '<image>' --special-tokens '<user>' \
    --special-tokens '<bot>' --special-tokens '<system>' --out "$dir/tok" "$dir/text" 2>"$dir/err" >/dev/null || bail "no tokenizer: $(cat "$dir/err")"
cat >"$dir/chat.jinja" <<'E2'
{%- for m in messages -%}
{{ '<' + ('bot' if m.role == 'assistant' else m.role) + '>' }}
{%- if m.content is string %}{{ m.content }}{% else -%}
{%- for c in m.content -%}
{%- if c.type == 'image' or 'image' in c %}<image>{% else %}{{ c.text }}{% endif -%}
{%- endfor -%}
{%- endif -%}
{%- if m.role == 'assistant' %}<|endoftext|>{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}<bot>{% endif -%}
E2
mkdir "$dir/model"
echo '{"image_processor_type":"CLIPImageProcessor","processor_class":"LlavaProcessor","size":{"shortest_edge":16},
"crop_size":{"height":16,"width":16}}' >"$dir/model/preprocessor_config.json"
echo '{"vision_config":{"patch_size":8}}' >"$dir/model/config.json"
echo '{"vision_feature_select_strategy":"full"}' >"$dir/model/processor_config.json"
run() {
    _out=$1
    shift
    "$tokenize" --tokenizer "$dir/tok/tokenizer" --chat-template "$dir/chat.jinja" --processor "$dir/model" --shape auto \
        --turn-order any --out "$dir/$_out" "$@" 2>"$dir/err" >"$dir/stdout"
    rc=$?
}
show() { "$tool" "$dir/$1/shards" train 2>&1; }

xz -dc "$golden/folders.tar.xz" | tar -C "$dir" -xf - || bail "no folders"
for rows in "$golden"/rows/*.jsonl; do
    name=$(basename "$rows" .jsonl)
    folder=$dir/folders/${name%-*}
    case $name in
    inter-*) loader=interleaved ;;
    mix-*) loader=texts ;;
    *) loader=none ;;
    esac
    run "$name" --split-part "${name##*-}" --sample-loader $loader "$folder"
    [ $rc -eq 0 ] || sed 's/^/# /' "$dir/err"
    run "$name-rows" "$rows"
    is "$(show "$name")" "$(show "$name-rows")" "$name: what Energon yields"
done
"$tokenize" --tokenizer "$dir/tok/tokenizer" --out "$dir/texts" "$dir/folders/text" 2>"$dir/err" >/dev/null
is "$(show texts)" "$(show text-train)" "without a processor texts are documents, too"

# --- other ways to the same folder ---
mkdir "$dir/up"
cp -r "$dir/folders/vqa" "$dir/folders/caption" "$dir/up"
run both "$dir/up"
is "$(show both | wc -l | tr -d ' ')" "$(($(show vqa-train | wc -l) + $(show caption-train | wc -l)))" "folders below a directory"
"$tokenize" --doctor --tokenizer "$dir/tok/tokenizer" --chat-template "$dir/chat.jinja" --processor "$dir/model" "$dir/folders/vqa" >"$dir/stdout" 2>"$dir/err"
is $? 0 "the doctor reads it, too"
grep -q "pictures" "$dir/stdout"
is $? 0 "and sees its pictures"

# --- refusals ---
run no "$dir/folders/mix"
says "mix/.nv-meta/dataset.yaml: its samples are loaded by code (sample_loader: sample_loader.py:sample_loader)" "code is not run"
run no --sample-loader interleaved "$dir/folders/mix"
says "sample_loader = interleaved makes samples of class InterleavedSample, not MultiMixQASample" "the wrong loader"
run no --split-part test "$dir/folders/vqa"
says "no split is called \"test\"; there are train, val" "a split that is not there"
f=$dir/up/vqa
sed -i.old 's/a\/x.tar": 2/a\/x.tar": 3/' "$f/.nv-meta/.info.json"
run no "$f"
says "a/x.tar has 2 samples, and .nv-meta says 3; run energon prepare again" "an archive that changed"
mv "$f/.nv-meta/.info.json.old" "$f/.nv-meta/.info.json"
sed -i.old 's/img.png/img.jpg/' "$f/.nv-meta/dataset.yaml"
run no "$f"
says "a/x.tar: q1:1: image of the sample (img.jpg) is not there" "a part that is not there"
sed 's/img.jpg/img.png/; s/VQASample/VidQASample/' "$f/.nv-meta/dataset.yaml.old" >"$f/.nv-meta/dataset.yaml"
run no "$f"
says "samples of class VidQASample are not read" "a class that is not read"
sed 's/answers:/boxes:/' "$f/.nv-meta/dataset.yaml.old" >"$f/.nv-meta/dataset.yaml"
run no "$f"
says "field_map has boxes, which samples of class VQASample have no row for" "a field that is not read"
sed 's/image:/image: \&a/' "$f/.nv-meta/dataset.yaml.old" >"$f/.nv-meta/dataset.yaml"
run no "$f"
says "vqa/.nv-meta/dataset.yaml:5:10: an anchor" "YAML that is not read, with its place"
mv "$f/.nv-meta/dataset.yaml.old" "$f/.nv-meta/dataset.yaml"
rm "$f/a/x.tar"
run no "$f"
says "vqa/a/x.tar, which the split of " "an archive that is missing"

# --- files that mix folders, and indices ---
cat >"$dir/mix.yaml" <<E2
__module__: megatron.energon
__class__: MetadatasetV2
splits:
  train:
    blend:
      - {weight: 3, path: ./up/vqa}
      - weight: 1
        path: ./up/caption
E2
run no "$dir/mix.yaml"
says "mix.yaml is a metadataset of Energon, which mixes folders by weight: give each of its folders to a tokenize stage" "a metadataset"
printf 'a: text\n__class__: Other\n' >"$dir/notes.yaml"
"$tokenize" --tokenizer "$dir/tok/tokenizer" --out "$dir/notes" "$dir/notes.yaml" 2>"$dir/err" >/dev/null
is $? 0 "another YAML file is the text that it is"
mkdir "$dir/lines"
echo '{"text": "one"}' >"$dir/lines/a.jsonl"
printf '\000\377\000\001' >"$dir/lines/a.jsonl.idx"
run no "$dir/lines/a.jsonl.idx"
says "a.jsonl.idx is an index of JSON lines" "an index"
"$tokenize" --tokenizer "$dir/tok/tokenizer" --out "$dir/lines.tok" "$dir/lines" 2>"$dir/err" >/dev/null
is "$? $(show lines.tok | wc -l | tr -d ' ')" "0 1" "in a folder it is left out"
"$tokenize" --tokenizer "$dir/tok/tokenizer" --out "$dir/matches.tok" "$dir/lines/*" 2>"$dir/err" >/dev/null
is "$? $(show matches.tok | wc -l | tr -d ' ')" "0 1" "and among the matches of a pattern"
mkdir -p "$dir/mixed/deep"
cp "$dir/lines/a.jsonl" "$dir/mixed"
cp "$dir/mix.yaml" "$dir/mixed/deep"
run no "$dir/mixed"
says "mixed/deep/mix.yaml is a metadataset of Energon" "a metadataset inside a folder"
run no "$dir/mix*.yaml"
says "mix.yaml is a metadataset of Energon" "and as the match of a pattern"

finish 29

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# examples/convert, run by loong-flow: a Hugging Face model in, trained on, out again, sampled; and what comes out goes in again.
. "$LF_SRCDIR/tests/stage/lib.sh"
LC_ALL=C LF_MODELS_DIR=$LF_SRCDIR/models LF_SITE_CONFIG= LF_USER_CONFIG=
export LC_ALL LF_MODELS_DIR LF_SITE_CONFIG LF_USER_CONFIG
light_flow
lf=$LF bin=$LF_LIBEXEC
cd "$dir" || exit 99

# A pretrained model that fits in a test: one step on invented words, written as a Hugging Face directory.
awk 'BEGIN { x = 7; for (i = 0; i < 400; i++) { line = ""; for (j = 0; j < 12; j++) { x = (x * 16807) % 2147483647; w = ""; y = x
    for (q = 0; q < 2 + x % 4; q++) { y = (y * 16807) % 2147483647; w = w substr("etaoinshrdlu", 1 + y % 12, 1) }
    line = line (j ? " " : "") w }
    print line "." } }' >words.txt
cat >first.ini <<END
[stage]
data = $dir/first/shards
steps = 1
seq_length = 32
batch = 2
micro_batch = 2
threads = 1
[model]
family = llama3
layers = 1
hidden = 32
heads = 2
ffn = 48
vocab = 300
max_positions = 128
END
"$bin/lf-tokenize" --inputs words.txt --doc-split line --vocab-size 300 --out first >o 2>&1 &&
    "$bin/lf-pretrain" --config first.ini --out first >>o 2>&1 &&
    printf '{"eos_token_id": [0, 5]}' >first/tokenizer/generation_config.json &&
    "$bin/lf-convert" --from first/checkpoint --tokenizer first/tokenizer --family llama --out first >>o 2>&1
ok $? "a small model as a Hugging Face directory" o

mkdir project project/texts
cp -r first/model project/model
rm project/model/manifest.json
cp words.txt project/texts/
sed -e 's/^tokens = .*/steps = 2/; s/^seq_length = .*/seq_length = 32/; s/^batch = .*/batch = 2/; s/^micro_batch = .*/micro_batch = 2/
    s/^warmup = .*/warmup = 1/; s/^max_tokens = .*/max_tokens = 4/; s/^tokenizer = \${stage:import.tokenizer}$/&/' \
    "$LF_SRCDIR/examples/convert/pipeline.ini" >project/pipeline.ini
sed -i 's/^inputs = texts/&\ndoc_split = line/' project/pipeline.ini
cd project || exit 99
LF_LIBEXEC=$bin
export LF_LIBEXEC
"$lf" plan >../o 2>&1 && ! grep -q 'cost unknown' ../o
ok $? "plan" ../o
"$lf" run >../o 2>&1
ok $? "run: import, tokenize, train, export, generate" ../o
"$lf" artifacts >../o 2>&1 && grep -q ' model ' ../o && grep -q ' checkpoint ' ../o
ok $? "the model is an artifact" ../o
"$lf" run >../o 2>&1 && grep -q 'nothing to do' ../o
ok $? "a second run has nothing to do" ../o
out=$(find . -path '*/out/model' -type d | head -1)
[ -f "$out/config.json" ] && [ -f "$out/tokenizer.json" ] && [ -f "$out/generation_config.json" ] && grep -q '"bfloat16"' "$out/config.json"
ok $? "what came out has its config.json, its tokenizer and its end tokens"
cmp -s "$out/tokenizer.json" model/tokenizer.json && ! cmp -s "$out/model.safetensors" model/model.safetensors
ok $? "the tokenizer is the old one, the weights are not"
"$bin/lf-convert" --from "$out" --out ../again --verify none >../o 2>&1
ok $? "it comes in again" ../o
finish 8

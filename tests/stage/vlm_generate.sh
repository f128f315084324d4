#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# PaliGemma and PaliGemma 2, where the tokens of a prompt see each other, and InternVL, which cuts pictures into tiles: greedy generation with the
# tokens of transformers, in the order of one batch or another, and the export of what came in (tests/golden/vlm/make_run.py).
. "$LF_SRCDIR/tests/stage/lib.sh"
golden=$LF_SRCDIR/tests/golden/vlm/run
images=$LF_SRCDIR/tests/golden/media/images
grep -q '^#define HAVE_PNG' "$LF_BUILDDIR/config.h" && grep -q '^#define HAVE_JPEG' "$LF_BUILDDIR/config.h" ||
    skip_all "a decoder of pictures is not built in"
generate() { # generate NAME ARGS...
    _name=$1
    shift
    "$stages/lf-generate" --checkpoint "$dir/$model/checkpoint" --tokenizer "$golden/$model" --prompts "$prompts" --media-dir "$images" \
        --max-tokens 32 --temperature 0 --ignore-eos --threads 1 --out "$dir/$_name" "$@" 2>"$dir/err" >"$dir/stdout"
    rc=$?
}
ids() { sed 's/.*"token_ids":\[\([0-9,]*\)\].*/\1/; s/,/ /g' "$dir/$1/text/out.jsonl"; }
keys() { sed -n 's/^ *"\([a-z_]*\)": .*/\1/p' "$1" | sort -u; }
for model in paligemma paligemma2 internvl; do
    prompts=$golden/prompts.jsonl
    [ $model = internvl ] || prompts=$golden/paligemma/prompts.jsonl
    must "$stages/lf-convert" --from "$golden/$model" --out "$dir/$model" --verify none
    generate $model.gen
    told=$(sed -n 's/.*planned memory \([0-9.]*\) MiB.*/\1/p' "$dir/err")
    is "$rc $(ids $model.gen)" "0 $(cat "$golden/$model/generated")" "$model: the tokens of transformers"
    generate $model.plan --plan
    is "$(grep -c notes "$dir/stdout") $(sed -n 's/.*"total": *\([0-9.]*\).*/\1/p' "$dir/stdout" | awk '{ printf "%.1f", $1 / 1048576 }')" "0 $told" \
        "$model: --plan has the memory of the run: $told MiB"
    generate $model.one --slots 1 --step-rows 64
    is "$rc $(cat "$dir/$model.one/text/out.jsonl")" "0 $(cat "$dir/$model.gen/text/out.jsonl")" "$model: one after the other, the same"
    # a picture in the place of its path
    url="data:image/png;base64,$(base64 -w 0 <"$images/rgb8.png")"
    sed "s|\"rgb8.png\"|\"$url\"|" "$prompts" >"$dir/urls.jsonl"
    prompts=$dir/urls.jsonl
    generate $model.url
    is "$rc $(ids $model.url)" "0 $(cat "$golden/$model/generated")" "$model: data: URLs"
    must "$stages/lf-convert" --from "$dir/$model/checkpoint" --tokenizer "$dir/$model/tokenizer" --out "$dir/$model.hf"
    cmp -s "$dir/$model.hf/model/model.safetensors" "$golden/$model/model.safetensors"
    ok $? "$model: the weights that came in go out"
    is "$(keys "$dir/$model.hf/model/config.json")" "$(keys "$golden/$model/config.json")" "$model: config.json has the keys that it had"
done
prompts=$dir/none.jsonl
generate none --plan
grep -q "what pictures need follows from prompts that are not all there yet" "$dir/stdout"
ok $? "--plan: prompts that are yet to come"
# a single picture by the name that rows for training have
model=paligemma prompts=$dir/single.jsonl
sed 's/"images": \["\([^",]*\)"\]/"image": "\1"/' "$golden/paligemma/prompts.jsonl" >"$prompts"
generate single
is "$rc $(grep -c '"image": "' "$prompts") $(ids single)" "0 4 $(cat "$golden/paligemma/generated")" "'image', a single picture"
sed 's/"image":/"images": [], "image":/' "$prompts" | head -n 1 >"$dir/both.jsonl"
prompts=$dir/both.jsonl
generate both
says "both 'image' and 'images' are given" "a row with both"
model=internvl
sed 's/base64,iVBOR/base64,i!BOR/' "$dir/urls.jsonl" | head -n 1 >"$dir/bad.jsonl"
prompts=$dir/bad.jsonl
generate bad
says "base64" "a data: URL that is damaged"
[ "$(wc -c <"$dir/err")" -lt 400 ]
ok $? "which is not printed whole"
finish 23

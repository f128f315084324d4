#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# lf-convert of what was trained here: the files that transformers looks for lie beside the weights and name the special tokens, those
# of a tokenizer made here and those that only the config.json of an import names.
. "$LF_SRCDIR/tests/stage/lib.sh"
golden=$LF_SRCDIR/tests/golden/families
key() { tr -d ' \n' <"$dir/$1/model/$2" | sed -n 's/.*"'"$3"'":\("[^"]*"\|[^,}]*\).*/\1/p'; }
out() { # out NAME ARGS...: export to $dir/NAME
    _name=$1
    shift
    "$stages/lf-convert" --to hf --threads 1 --out "$dir/$_name" "$@" >"$dir/stdout" 2>"$dir/err"
}

# ---- a model and a tokenizer that were made here ----
awk 'BEGIN { for (i = 0; i < 60; i++) print "the quick brown fox " i " jumps over " i * 7 " lazy dogs" }' >"$dir/text.txt"
must "$stages/lf-tokenize" --doc-split line --vocab-size 280 --out "$dir/text" "$dir/text.txt"
cat >"$dir/run.ini" <<END
[model]
family = gpt2
layers = 1
hidden = 16
heads = 2
ffn = 32
vocab = 288
max_positions = 64
[stage]
data = $dir/text/shards
steps = 2
seq_length = 32
batch = 2
lr = 1e-3
save_time = 0
threads = 1
END
must "$stages/lf-pretrain" --config "$dir/run.ini" --out "$dir/gpt2"
# A Gemma 2 with the usual scale, which the settings do not name and config.json always does.
sed 's/^family = gpt2/family = gemma2\nembed_scale = 4\nkv_heads = 1\nhead_dim = 8\nsliding_window = 16/' "$dir/run.ini" >"$dir/gemma2.ini"
must "$stages/lf-pretrain" --config "$dir/gemma2.ini" --out "$dir/gemma2"
out gemma --from "$dir/gemma2/checkpoint" --tokenizer "$dir/text/tokenizer"
ok $? "a Gemma 2 without attn_scale goes out"
is "$(key gemma config.json query_pre_attn_scalar)" 8 "with the scale of its heads"
out own --from "$dir/gpt2/checkpoint" --tokenizer "$dir/text/tokenizer"
ok $? "a GPT-2 trained here goes out"
out bare --from "$dir/gpt2/checkpoint"
for f in config.json generation_config.json model.safetensors README.md tokenizer.json tokenizer_config.json; do
    [ -s "$dir/own/model/$f" ] && grep -q "\"$f\"" "$dir/own/model/manifest.json"
    ok $? "with $f" "$dir/own/model/manifest.json"
done
is "$(key own config.json bos_token_id) $(key own config.json eos_token_id) $(key own config.json pad_token_id)" "0 0 0" \
    "config.json names the beginning, the end and the padding"
is "$(key own tokenizer_config.json tokenizer_class) $(key own tokenizer_config.json eos_token) $(key own tokenizer_config.json model_max_length)" \
    '"PreTrainedTokenizerFast" "<|endoftext|>" 64' "tokenizer_config.json names the class, the end and the length"
grep -q '"attention_mask"' "$dir/own/model/tokenizer_config.json" && ! grep -q token_type "$dir/own/model/tokenizer_config.json"
ok $? "and what a decoder takes" "$dir/own/model/tokenizer_config.json"
head -n 1 "$dir/own/model/README.md" | grep -qx -- --- && grep -q '^pipeline_tag: text-generation$' "$dir/own/model/README.md" &&
    grep -q '^| steps of the last training | 2 |$' "$dir/own/model/README.md" && grep -q '^| class | GPT2LMHeadModel |$' "$dir/own/model/README.md"
ok $? "the card says what the model is and how it was trained" "$dir/own/model/README.md"
grep -q '^tokenizer = PreTrainedTokenizerFast' "$dir/own/model/README.md" && ! grep -q tokenizer "$dir/bare/model/README.md"
ok $? "how it is loaded, and its tokenizer, where it has one" "$dir/own/model/README.md"
! grep -q "$dir" "$dir/own/model/README.md"
ok $? "and no path"
out again --from "$dir/gpt2/checkpoint" --tokenizer "$dir/text/tokenizer"
diff -r "$dir/own/model" "$dir/again/model" >"$dir/err" 2>&1
ok $? "a second export has the same bytes"
is "$(key bare config.json bos_token_id) $(key bare config.json eos_token_id) $(key bare config.json pad_token_id) $(ls "$dir/bare/model" | tr '\n' ' ')" \
    "null null null README.md config.json manifest.json model.safetensors " "without a tokenizer nothing is invented"
cp -r "$dir/text/tokenizer" "$dir/mine" && chmod -R u+w "$dir/mine" && rm "$dir/mine/manifest.json"
echo '{"tokenizer_class":"Mine","eos_token":"<|endoftext|>"}' >"$dir/mine/tokenizer_config.json"
out mine --from "$dir/gpt2/checkpoint" --tokenizer "$dir/mine"
cmp "$dir/mine/tokenizer_config.json" "$dir/mine/model/tokenizer_config.json" 2>"$dir/err"
ok $? "a tokenizer_config.json that is there stays"

# ---- tokens that only config.json of an import names ----
cp -r "$dir/own/model" "$dir/foreign" && chmod -R u+w "$dir/foreign"
cd "$dir/foreign" && rm -f manifest.json generation_config.json tokenizer_config.json README.md && cd - >/dev/null || exit 99
sed 's/"\(bos\|eos\|pad\)_token_id": 0/"\1_token_id": \1/; s/": bos/": 6/; s/": eos/": 5/; s/": pad/": 7/' "$dir/own/model/config.json" >"$dir/foreign/config.json"
must "$stages/lf-convert" --from "$dir/foreign" --out "$dir/in" --verify none --threads 1
must "$stages/lf-pretrain" --data "$dir/text/shards" --init-from "$dir/in/checkpoint" --steps 2 --seq-length 32 --batch 2 --threads 1 --out "$dir/on"
tokens() { echo "$(key "$1" config.json bos_token_id) $(key "$1" config.json eos_token_id) $(key "$1" config.json pad_token_id)"; }
out on1 --from "$dir/on/checkpoint" --tokenizer "$dir/in/tokenizer"
is "$(tokens on1)" "6 5 7" "trained on, an import keeps its special tokens"
is "$(key on1 generation_config.json bos_token_id) $(key on1 generation_config.json eos_token_id) $(key on1 generation_config.json pad_token_id)" "6 5 7" \
    "in generation_config.json too"
out on2 --from "$dir/on/checkpoint" --tokenizer "$dir/in/tokenizer" --pad-token 9 --eos 8
is "$(tokens on2)" "6 8 9" "unless others are named"
out on3 --from "$dir/in/checkpoint" --tokenizer "$dir/in/tokenizer"
cmp "$dir/foreign/config.json" "$dir/on3/model/config.json" 2>"$dir/err"
ok $? "what was only imported has its config.json, byte for byte"
sed -i 's/"pad_token_id": 7/"pad_token_id": 288/' "$dir/foreign/config.json"
must "$stages/lf-convert" --from "$dir/foreign" --out "$dir/behind" --verify none --threads 1
out on4 --from "$dir/on/checkpoint" --tokenizer "$dir/behind/tokenizer"
is "$(tokens on4)" "6 5 0" "a padding token behind the vocabulary is none"
rm "$dir/foreign/tokenizer.json"
must "$stages/lf-convert" --from "$dir/foreign" --out "$dir/alone" --verify none --threads 1
out on5 --from "$dir/on/checkpoint" --tokenizer "$dir/alone/tokenizer"
is "$(tokens on5)" "6 5 null" "what the manifest keeps needs no vocabulary beside it"
finish 24

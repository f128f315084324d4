#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# lf-convert: every golden family in, proved, and out again byte for byte; what is wrong in a file is named; kills.
. "$LF_SRCDIR/tests/stage/lib.sh"
LC_ALL=C
export LC_ALL
src=${LF_SRCDIR:-.} build=${LF_BUILDDIR:-.}
lf=$build/stages/lf-convert tool=$build/tests/stage/convert_tool golden=$src/tests/golden/families
run() { "$lf" --threads 1 "$@" >"$dir/o" 2>"$dir/e"; }
# $1: expected exit code, $2: text in the message, $3: name; the rest: arguments
refused() {
    want=$1 text=$2 name=$3
    shift 3
    run "$@"
    rc=$?
    [ $rc -eq "$want" ] && grep -q -- "$text" "$dir/e" "$dir/o" && [ "$(grep -c error: "$dir/e")" -le 1 ]
    ok $? "$name" "$dir/e"
}
like() { # a directory $2 with the files of golden family $1 except the weights
    mkdir -p "$2"
    cp "$golden/$1/config.json" "$2/"
    chmod u+w "$2/config.json"
}

# ---- every family: in, proof, out ----
for d in "$golden"/*/; do
    f=$(basename "$d")
    run --from "$d" --out "$dir/$f" --verify "$d/expected.safetensors" && grep -q '^VERIFIED: ' "$dir/o"
    ok $? "$f: import, logits as expected" "$dir/e"
    run --from "$dir/$f/checkpoint" --tokenizer "$dir/$f/tokenizer" --out "$dir/$f" &&
        cmp "$d/model.safetensors" "$dir/$f/model/model.safetensors" >>"$dir/e" 2>&1 && cmp "$d/config.json" "$dir/$f/model/config.json" >>"$dir/e" 2>&1
    ok $? "$f: export, byte for byte" "$dir/e"
    # A config.json written from the model alone means the same model.
    run --from "$dir/$f/checkpoint" --dtype f32 --out "$dir/$f/again" &&
        run --from "$dir/$f/again/model" --out "$dir/$f/back" --verify "$d/expected.safetensors"
    ok $? "$f: a new config.json, imported again" "$dir/e"
    if [ "$f" = mamba2 ]; then
        card=$dir/$f/model/README.md
        grep -q '^| heads of scans | 6, keys 5 wide, values 4 |$' "$card" && ! grep -q '^| heads |' "$card"
        ok $? "$f: the card has heads of scans, and none of attention" "$dir/e"
    fi
    [ "$f" = gpt2 ] || [ "$f" = llama ] || rm -rf "${dir:?}/$f"
done

# ---- proof ----
refused 1 "UNVERIFIED: $dir/u/checkpoint is complete and can be used, but .*counts as failed; verify = FILE .*, verify = none does" "without proof: published, but not well" --from "$golden/llama" --out "$dir/u"
[ -f "$dir/u/checkpoint/manifest.json" ]
ok $? "what is unverified is there"
run --from "$golden/llama" --out "$dir/u2" --verify none && grep -q UNVERIFIED "$dir/o"
ok $? "verify = none goes on" "$dir/e"
refused 1 "logits differ by" "another model's logits" --from "$golden/llama" --out "$dir/w" --verify "$golden/llama-linear/expected.safetensors"
[ ! -e "$dir/w/checkpoint/manifest.json" ]
ok $? "a model that differs is taken back"
refused 1 "expected.py" "a file without expected logits" --from "$golden/llama" --out "$dir/w2" --verify "$golden/llama/model.safetensors"

# ---- tensors ----
edit() { # $1: name of the case, $2: family; the rest: arguments of the tool
    c=$dir/case-$1 f=$2
    shift 2
    like "$f" "$c"
    "$tool" "$golden/$f" "$c" "$@"
}
edit drop llama drop model.layers.1.mlp.up_proj.weight
refused 1 "missing: model.layers.1.mlp.up_proj.weight" "a missing tensor" --from "$c" --out "$dir/x" --verify none
edit add llama add model.layers.0.mlp.extra.weight
refused 1 "no place in this model: model.layers.0.mlp.extra.weight" "an extra tensor" --from "$c" --out "$dir/x" --verify none
edit bias llama add model.layers.0.self_attn.q_proj.bias
refused 1 "no place in this model: model.layers.0.self_attn.q_proj.bias" "a bias that config.json does not know" --from "$c" --out "$dir/x" --verify none
edit rename llama rename model.norm.weight model.normal.weight
refused 1 "missing: model.norm.weight; and these have no place in this model: model.normal.weight" "a renamed tensor" --from "$c" --out "$dir/x" --verify none
edit widen gpt2 widen transformer.h.1.attn.c_attn.weight
refused 1 "transformer.h.1.attn.c_attn.weight is \[" "a wrong shape" --from "$c" --out "$dir/x" --verify none
edit nan llama nan model.layers.0.mlp.gate_proj.weight
run --from "$c" --out "$dir/nan" --verify none && grep -q "layers.0.mlp.gate.weight holds 1 values that are NaN" "$dir/e"
ok $? "NaN is told" "$dir/e"
edit tied gpt2 copy transformer.wte.weight lm_head.weight
run --from "$c" --out "$dir/tied" --verify none && run --from "$dir/tied/checkpoint" --out "$dir/tied" &&
    cmp "$c/model.safetensors" "$dir/tied/model/model.safetensors"
ok $? "a second copy of tied weights is written again" "$dir/e"
"$tool" "$c" "$dir/untied" change lm_head.weight && cp "$c/config.json" "$dir/untied/"
refused 1 "lm_head.weight differs from transformer.wte.weight" "two different tensors for tied weights" --from "$dir/untied" --out "$dir/x" --verify none
edit second xlm-roberta rename roberta.embeddings.word_embeddings.weight lm_head.decoder.weight
run --from "$c" --out "$dir/second" --verify "$golden/xlm-roberta/expected.safetensors"
ok $? "the second copy alone, as transformers 5 writes it of XLM-R" "$dir/e"
edit pairs bert add cls.seq_relationship.bias
run --from "$c" --out "$dir/pairs" --verify "$golden/bert/expected.safetensors"
ok $? "BERT with the head that says whether texts follow each other" "$dir/e"
edit gamma bert rename bert.encoder.layer.1.output.LayerNorm.weight bert.encoder.layer.1.output.LayerNorm.gamma
run --from "$c" --out "$dir/gamma" --verify "$golden/bert/expected.safetensors"
ok $? "a norm by its old name" "$dir/e"
edit places distilbert add distilbert.embeddings.position_ids
run --from "$c" --out "$dir/places" --verify "$golden/distilbert/expected.safetensors"
ok $? "numbers of positions, which transformers 4 wrote" "$dir/e"
cp -r "$golden/llama" "$dir/cut" && chmod -R u+w "$dir/cut" && : >"$dir/cut/model.safetensors" && dd if="$golden/llama/model.safetensors" of="$dir/cut/model.safetensors" bs=1000 count=5 2>/dev/null
refused 1 model.safetensors "a file that is cut short" --from "$dir/cut" --out "$dir/x" --verify none
[ ! -e "$dir/x/checkpoint" ]
ok $? "none of these left a checkpoint"

# ---- shards and types ----
edit split llama split 4000
[ "$(ls "$c"/*.safetensors | wc -l)" -gt 2 ] && run --from "$c" --out "$dir/split" --verify "$golden/llama/expected.safetensors" &&
    run --from "$dir/split/checkpoint" --out "$dir/split" --max-file 4000 && (cd "$c" && for x in model*; do cmp "$x" "$dir/split/model/$x" || exit 1; done)
ok $? "shards, in and out" "$dir/e"
rm "$(ls "$c"/model-00002*)"
refused 1 model-00002 "a missing shard" --from "$c" --out "$dir/x" --verify none
for t in f16 bf16; do
    edit $t gpt2 $t
    run --from "$c" --out "$dir/$t" --verify none && run --from "$dir/$t/checkpoint" --out "$dir/$t" && cmp "$c/model.safetensors" "$dir/$t/model/model.safetensors"
    ok $? "$t: out as it came in" "$dir/e"
done
run --from "$dir/f16/checkpoint" --dtype bf16 --out "$dir/f16b" && grep -q bfloat16 "$dir/f16b/model/config.json"
ok $? "another type on the way out" "$dir/e"
refused 1 "f32 or bf16" "no f16 in checkpoints" --from "$golden/gpt2" --out "$dir/x" --dtype f16 --verify none

# ---- config.json ----
config() { # $1: name of the case, $2: sed program over llama's config.json
    c=$dir/config-$1
    like llama "$c"
    cp "$golden/llama/model.safetensors" "$c/"
    sed "$2" "$golden/llama/config.json" >"$c/config.json"
}
config key 's/{/{"attention_sinks": 4,/'
refused 1 "key 'attention_sinks' is not known" "an unknown key" --from "$c" --out "$dir/x" --verify none
config off 's/{/{"attention_sinks": null,/'
run --from "$c" --out "$dir/off" --verify none
ok $? "an unknown key that is off" "$dir/e"
config act 's/"silu"/"swoosh"/'
refused 1 "swoosh" "an unknown activation" --from "$c" --out "$dir/x" --verify none
config type 's/"llama"/"lama"/'
refused 1 "model_type 'lama' is not known" "an unknown family" --from "$c" --out "$dir/x" --verify none
config heads 's/"num_attention_heads": [0-9]*/"num_attention_heads": 3/'
refused 1 heads "sizes that contradict each other" --from "$c" --out "$dir/x" --verify none
config gone 's/"hidden_size"/"hidden_syze"/'
refused 1 "hidden_size is missing" "a size that is missing" --from "$c" --out "$dir/x" --verify none
config json 's/}$//'
refused 1 "config.json:" "no JSON" --from "$c" --out "$dir/x" --verify none

# ---- PyTorch's files, Megatron's checkpoints (tests/golden/convert) ----
like gpt-neox "$dir/bin" && cp "$src/tests/golden/convert/torch-gpt-neox/pytorch_model.bin" "$dir/bin/"
run --from "$dir/bin" --out "$dir/bin" --verify "$golden/gpt-neox/expected.safetensors" && run --from "$dir/bin/checkpoint" --out "$dir/bin" &&
    cmp "$golden/gpt-neox/model.safetensors" "$dir/bin/model/model.safetensors"
ok $? "pytorch_model.bin in, safetensors out" "$dir/e"
for m in gpt:gpt2 llama:llama; do
    f=${m#*:}
    run --from "$src/tests/golden/convert/megatron-${m%:*}" --out "$dir/mg:$f" --verify "$golden/$f/expected.safetensors"
    ok $? "a Megatron checkpoint of $f, logits as expected" "$dir/e"
    run --from "$dir/mg:$f/checkpoint" --family "$f" --out "$dir/mg:$f" && cmp "$golden/$f/model.safetensors" "$dir/mg:$f/model/model.safetensors" 2>>"$dir/e"
    ok $? "and out as Hugging Face has it" "$dir/e"
done
refused 1 "say family =" "a family that Hugging Face has not" --from "$dir/mg:gpt2/checkpoint" --out "$dir/x"
run --from "$src/tests/golden/convert/megatron-gpt" --inspect && grep -q '"form": "Megatron checkpoint"' "$dir/o" && grep -q '"mapping": "complete"' "$dir/o"
ok $? "inspect a Megatron checkpoint" "$dir/o"
cp -r "$src/tests/golden/convert/megatron-gpt" "$dir/torn" && chmod -R u+w "$dir/torn" && rm -r "$dir/torn/iter_0000007/mp_rank_01"
refused 1 "rank" "a Megatron checkpoint without one of its ranks" --from "$dir/torn" --out "$dir/x" --verify none

# ---- another family on the way out ----
refused 1 "cannot be written\|no such tensor\|has no row" "a family that cannot say it" --from "$dir/gpt2/checkpoint" --out "$dir/x" --family llama
refused 1 "known: gpt2" "a family that is none" --from "$dir/gpt2/checkpoint" --out "$dir/x" --family gtp2

# ---- directories ----
mkdir -p "$dir/mine/model" && echo precious >"$dir/mine/model/file"
refused 1 "has not written" "a directory with other files is left alone" --from "$dir/gpt2/checkpoint" --out "$dir/mine"
[ "$(cat "$dir/mine/model/file")" = precious ]
ok $? "and so are they"
refused 1 "what is converted is" "neither a model nor a checkpoint" --from "$dir/mine" --out "$dir/x"
refused 1 "nothing\|No such file" "a path that is not there" --from "$dir/no" --out "$dir/x"
run --from "$golden/gpt2" --out "$dir/gpt2" --verify none && grep -q "complete already" "$dir/e"
ok $? "what is complete is not made again" "$dir/e"
refused 1 "gpt2/checkpoint was made with other options (dtype was keep, is f32)" "... with another type" --from "$golden/gpt2" --out "$dir/gpt2" --verify none --dtype f32
refused 1 "gpt2/checkpoint was made with other options (from has other contents)" "... of another model" --from "$golden/llama" --out "$dir/gpt2" --verify none
cp -r "$dir/gpt2" "$dir/both" && rm -rf "$dir/both/model" &&
    run --from "$dir/gpt2/checkpoint" --out "$dir/both" && run --from "$dir/gpt2/checkpoint" --out "$dir/both" && grep -q "model is complete already" "$dir/e"
ok $? "an export beside an import is another result" "$dir/e"
refused 1 "both/model was made with other options (dtype was keep, is bf16)" "... with options of its own" --from "$dir/gpt2/checkpoint" --out "$dir/both" --dtype bf16

# ---- inspect ----
run --from "$golden/llama" --inspect && grep -q '"mapping": "complete"' "$dir/o" && grep -q '"family": "llama"' "$dir/o"
ok $? "inspect a model" "$dir/o"
run --from "$dir/case-drop" --inspect && grep -q '"mapping_error": .*up_proj' "$dir/o"
ok $? "inspect a model that lacks a tensor" "$dir/o"
run --from "$dir/gpt2/checkpoint" --inspect && grep -q '"form": "checkpoint"' "$dir/o" && grep -q '"imported_from": "gpt2"' "$dir/o"
ok $? "inspect a checkpoint" "$dir/o"
is "$(grep -o '^  "[a-z]*"' "$dir/o" | head -n 5 | tr -d ' "\n')" "pathformkindfamilyparameters" "the summary comes first"
idx=$(find "$src/tests/golden" -name '*.idx' | sort | head -1)
[ -n "$idx" ] && run --from "$idx" --inspect && grep -q '"sequences": [1-9]' "$dir/o" && grep -q '"form": "Megatron .bin/.idx"' "$dir/o"
ok $? "inspect an .idx" "$dir/e"
run --from "$dir/gpt2/tokenizer" --inspect && grep -q '"form": "tokenizer artifact"' "$dir/o"
ok $? "inspect a tokenizer" "$dir/o"

# ---- several chat templates, as transformers 5 saves them ----
like gpt2 "$dir/named"
cp "$golden/gpt2/model.safetensors" "$dir/named/"
mkdir "$dir/named/additional_chat_templates"
echo own >"$dir/named/chat_template.jinja"
echo tools >"$dir/named/additional_chat_templates/tool_use.jinja"
run --from "$dir/named" --out "$dir/named-in" --verify none && grep -q '"name": *"tool_use"' "$dir/named-in/tokenizer/tokenizer_config.json" &&
    grep -q '"own' "$dir/named-in/tokenizer/tokenizer_config.json" && [ ! -e "$dir/named-in/tokenizer/chat_template.jinja" ]
ok $? "templates of a folder come in as a list" "$dir/e"
run --from "$dir/named-in/checkpoint" --tokenizer "$dir/named-in/tokenizer" --out "$dir/named-in" &&
    cmp "$dir/named-in/tokenizer/tokenizer_config.json" "$dir/named-in/model/tokenizer_config.json"
ok $? "and go out as one" "$dir/e"

# ---- what ranks of other programs have written ----
# foreign NAME TEXT FILE...: a directory of such files is refused with the text, which begins with the file's path
foreign() {
    _f=$dir/foreign/$1 _text=$2
    shift 2
    for _file in "$@"; do mkdir -p "$_f/$(dirname "$_file")" && : >"$_f/$_file"; done
    refused 1 "$_f/$_text" "refused by name: ${_f##*/}" --from "$_f" --out "$dir/out-foreign"
}
core="a distributed checkpoint of Megatron Core .*: load it with .* --ckpt-convert-format torch"
dcp="a distributed checkpoint of PyTorch (DCP), .* dcp_to_torch"
foreign core "common.pt: $core" common.pt .metadata __0_0.distcp metadata.json
foreign core-zarr "common.pt: $core" common.pt metadata.json model.embedding/0.0
mkdir -p "$dir/foreign/core-run" && echo 10 >"$dir/foreign/core-run/latest_checkpointed_iteration.txt"
foreign core-run "iter_0000010/common.pt: $core" iter_0000010/common.pt iter_0000010/.metadata iter_0000010/__0_0.distcp
foreign dcp "__0_0.distcp: $dcp" .metadata __0_0.distcp __1_0.distcp
foreign fsdp "pytorch_model_fsdp_0/__0_0.distcp: $dcp" pytorch_model_fsdp_0/.metadata pytorch_model_fsdp_0/__0_0.distcp
like llama "$dir/foreign/beside"
foreign beside "__0_0.distcp: $dcp" .metadata __0_0.distcp
foreign deepspeed "global_step10/mp_rank_00_model_states.pt: a checkpoint of DeepSpeed, .*zero_to_fp32.py" latest \
    global_step10/mp_rank_00_model_states.pt global_step10/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt
foreign zero3 "zero_pp_rank_0_mp_rank_00_model_states.pt: a checkpoint of DeepSpeed, .*zero_to_fp32.py" zero_pp_rank_0_mp_rank_00_model_states.pt
foreign neox "layer_00-model_00-model_states.pt: a checkpoint of a pipeline of DeepSpeed, .*convert_neox_to_hf.py" layer_00-model_00-model_states.pt \
    mp_rank_00_model_states.pt
foreign legacy "mp_rank_00/model_optim_rng.pt is no file of torch.save" mp_rank_00/model_optim_rng.pt # of Megatron-LM too, and read
refused 2 "$dir/foreign/dcp/__0_0.distcp: $dcp" "by the plan as well" --plan --from "$dir/foreign/dcp" --out "$dir/out-foreign"
refused 1 "$dir/foreign/dcp/__0_0.distcp: $dcp" "and where a path is only looked at" --inspect --from "$dir/foreign/dcp"
finish 511

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# lf-convert: every golden family in, proved, and out again byte for byte; what is wrong in a file is named; kills.
set -u
LC_ALL=C
export LC_ALL
src=${LF_SRCDIR:-.} build=${LF_BUILDDIR:-.}
lf=$build/stages/lf-convert tool=$build/tests/stage/convert_tool golden=$src/tests/golden/families
tmp=$(mktemp -d "${TMPDIR:-/tmp}/lf-convert.XXXXXX")
trap 'chmod -R u+w "$tmp"; rm -rf "$tmp"' EXIT
n=0
ok() { # $1: 0 = ok, $2: name, $3: file of findings
    n=$((n + 1))
    if [ "$1" -eq 0 ]; then echo "ok $n - $2"; else
        echo "not ok $n - $2"
        sed 's/^/# /' "${3:-/dev/null}"
    fi
}
run() { "$lf" --threads 1 "$@" >"$tmp/o" 2>"$tmp/e"; }
# $1: expected exit code, $2: text in the message, $3: name; the rest: arguments
refused() {
    want=$1 text=$2 name=$3
    shift 3
    run "$@"
    rc=$?
    [ $rc -eq "$want" ] && grep -q -- "$text" "$tmp/e" "$tmp/o" && [ "$(grep -c error: "$tmp/e")" -le 1 ]
    ok $? "$name" "$tmp/e"
}
like() { # a directory $2 with the files of golden family $1 except the weights
    mkdir -p "$2"
    cp "$golden/$1/config.json" "$2/"
    chmod u+w "$2/config.json"
}

# ---- every family: in, proof, out ----
for dir in "$golden"/*/; do
    f=$(basename "$dir")
    run --from "$dir" --out "$tmp/$f" --verify "$dir/expected.safetensors" && grep -q '^VERIFIED: ' "$tmp/o"
    ok $? "$f: import, logits as expected" "$tmp/e"
    run --from "$tmp/$f/checkpoint" --tokenizer "$tmp/$f/tokenizer" --out "$tmp/$f" &&
        cmp "$dir/model.safetensors" "$tmp/$f/model/model.safetensors" >>"$tmp/e" 2>&1 && cmp "$dir/config.json" "$tmp/$f/model/config.json" >>"$tmp/e" 2>&1
    ok $? "$f: export, byte for byte" "$tmp/e"
    # A config.json written from the model alone means the same model.
    run --from "$tmp/$f/checkpoint" --dtype f32 --out "$tmp/$f/again" &&
        run --from "$tmp/$f/again/model" --out "$tmp/$f/back" --verify "$dir/expected.safetensors"
    ok $? "$f: a new config.json, imported again" "$tmp/e"
    [ "$f" = gpt2 ] || [ "$f" = llama ] || rm -rf "${tmp:?}/$f"
done

# ---- proof ----
refused 1 UNVERIFIED "without proof: published, but not well" --from "$golden/llama" --out "$tmp/u"
[ -f "$tmp/u/checkpoint/manifest.json" ]
ok $? "what is unverified is there"
run --from "$golden/llama" --out "$tmp/u2" --verify none && grep -q UNVERIFIED "$tmp/o"
ok $? "verify = none goes on" "$tmp/e"
refused 1 "logits differ by" "another model's logits" --from "$golden/llama" --out "$tmp/w" --verify "$golden/llama-linear/expected.safetensors"
[ ! -e "$tmp/w/checkpoint/manifest.json" ]
ok $? "a model that differs is taken back"
refused 1 "expected.py" "a file without expected logits" --from "$golden/llama" --out "$tmp/w2" --verify "$golden/llama/model.safetensors"

# ---- tensors ----
edit() { # $1: name of the case, $2: family; the rest: arguments of the tool
    c=$tmp/case-$1 f=$2
    shift 2
    like "$f" "$c"
    "$tool" "$golden/$f" "$c" "$@"
}
edit drop llama drop model.layers.1.mlp.up_proj.weight
refused 1 "missing: model.layers.1.mlp.up_proj.weight" "a missing tensor" --from "$c" --out "$tmp/x" --verify none
edit add llama add model.layers.0.mlp.extra.weight
refused 1 "no place in this model: model.layers.0.mlp.extra.weight" "an extra tensor" --from "$c" --out "$tmp/x" --verify none
edit bias llama add model.layers.0.self_attn.q_proj.bias
refused 1 "no place in this model: model.layers.0.self_attn.q_proj.bias" "a bias that config.json does not know" --from "$c" --out "$tmp/x" --verify none
edit rename llama rename model.norm.weight model.normal.weight
refused 1 "missing: model.norm.weight; and these have no place in this model: model.normal.weight" "a renamed tensor" --from "$c" --out "$tmp/x" --verify none
edit widen gpt2 widen transformer.h.1.attn.c_attn.weight
refused 1 "transformer.h.1.attn.c_attn.weight is \[" "a wrong shape" --from "$c" --out "$tmp/x" --verify none
edit nan llama nan model.layers.0.mlp.gate_proj.weight
run --from "$c" --out "$tmp/nan" --verify none && grep -q "layers.0.mlp.gate.weight holds 1 values that are NaN" "$tmp/e"
ok $? "NaN is told" "$tmp/e"
edit tied gpt2 copy transformer.wte.weight lm_head.weight
run --from "$c" --out "$tmp/tied" --verify none && run --from "$tmp/tied/checkpoint" --out "$tmp/tied" &&
    cmp "$c/model.safetensors" "$tmp/tied/model/model.safetensors"
ok $? "a second copy of tied weights is written again" "$tmp/e"
"$tool" "$c" "$tmp/untied" change lm_head.weight && cp "$c/config.json" "$tmp/untied/"
refused 1 "lm_head.weight differs from transformer.wte.weight" "two different tensors for tied weights" --from "$tmp/untied" --out "$tmp/x" --verify none
cp -r "$golden/llama" "$tmp/cut" && chmod -R u+w "$tmp/cut" && : >"$tmp/cut/model.safetensors" && dd if="$golden/llama/model.safetensors" of="$tmp/cut/model.safetensors" bs=1000 count=5 2>/dev/null
refused 1 model.safetensors "a file that is cut short" --from "$tmp/cut" --out "$tmp/x" --verify none
[ ! -e "$tmp/x/checkpoint" ]
ok $? "none of these left a checkpoint"

# ---- shards and types ----
edit split llama split 4000
[ "$(ls "$c"/*.safetensors | wc -l)" -gt 2 ] && run --from "$c" --out "$tmp/split" --verify "$golden/llama/expected.safetensors" &&
    run --from "$tmp/split/checkpoint" --out "$tmp/split" --max-file 4000 && (cd "$c" && for x in model*; do cmp "$x" "$tmp/split/model/$x" || exit 1; done)
ok $? "shards, in and out" "$tmp/e"
rm "$(ls "$c"/model-00002*)"
refused 1 model-00002 "a missing shard" --from "$c" --out "$tmp/x" --verify none
for t in f16 bf16; do
    edit $t gpt2 $t
    run --from "$c" --out "$tmp/$t" --verify none && run --from "$tmp/$t/checkpoint" --out "$tmp/$t" && cmp "$c/model.safetensors" "$tmp/$t/model/model.safetensors"
    ok $? "$t: out as it came in" "$tmp/e"
done
run --from "$tmp/f16/checkpoint" --dtype bf16 --out "$tmp/f16b" && grep -q bfloat16 "$tmp/f16b/model/config.json"
ok $? "another type on the way out" "$tmp/e"
refused 1 "f32 or bf16" "no f16 in checkpoints" --from "$golden/gpt2" --out "$tmp/x" --dtype f16 --verify none

# ---- config.json ----
config() { # $1: name of the case, $2: sed program over llama's config.json
    c=$tmp/config-$1
    like llama "$c"
    cp "$golden/llama/model.safetensors" "$c/"
    sed "$2" "$golden/llama/config.json" >"$c/config.json"
}
config key 's/{/{"attention_sinks": 4,/'
refused 1 "key 'attention_sinks' is not known" "an unknown key" --from "$c" --out "$tmp/x" --verify none
config off 's/{/{"attention_sinks": null,/'
run --from "$c" --out "$tmp/off" --verify none
ok $? "an unknown key that is off" "$tmp/e"
config act 's/"silu"/"swoosh"/'
refused 1 "swoosh" "an unknown activation" --from "$c" --out "$tmp/x" --verify none
config type 's/"llama"/"lama"/'
refused 1 "model_type 'lama' is not known" "an unknown family" --from "$c" --out "$tmp/x" --verify none
config heads 's/"num_attention_heads": [0-9]*/"num_attention_heads": 3/'
refused 1 heads "sizes that contradict each other" --from "$c" --out "$tmp/x" --verify none
config gone 's/"hidden_size"/"hidden_syze"/'
refused 1 "hidden_size is missing" "a size that is missing" --from "$c" --out "$tmp/x" --verify none
config json 's/}$//'
refused 1 "config.json:" "no JSON" --from "$c" --out "$tmp/x" --verify none

# ---- PyTorch's files, Megatron's checkpoints (tests/golden/convert) ----
like gpt-neox "$tmp/bin" && cp "$src/tests/golden/convert/torch-gpt-neox/pytorch_model.bin" "$tmp/bin/"
run --from "$tmp/bin" --out "$tmp/bin" --verify "$golden/gpt-neox/expected.safetensors" && run --from "$tmp/bin/checkpoint" --out "$tmp/bin" &&
    cmp "$golden/gpt-neox/model.safetensors" "$tmp/bin/model/model.safetensors"
ok $? "pytorch_model.bin in, safetensors out" "$tmp/e"
for m in gpt:gpt2 llama:llama; do
    f=${m#*:}
    run --from "$src/tests/golden/convert/megatron-${m%:*}" --out "$tmp/mg:$f" --verify "$golden/$f/expected.safetensors"
    ok $? "a Megatron checkpoint of $f, logits as expected" "$tmp/e"
    run --from "$tmp/mg:$f/checkpoint" --family "$f" --out "$tmp/mg:$f" && cmp "$golden/$f/model.safetensors" "$tmp/mg:$f/model/model.safetensors" 2>>"$tmp/e"
    ok $? "and out as Hugging Face has it" "$tmp/e"
done
refused 1 "say family =" "a family that Hugging Face has not" --from "$tmp/mg:gpt2/checkpoint" --out "$tmp/x"
run --from "$src/tests/golden/convert/megatron-gpt" --inspect && grep -q '"form": "Megatron checkpoint"' "$tmp/o" && grep -q '"mapping": "complete"' "$tmp/o"
ok $? "inspect a Megatron checkpoint" "$tmp/o"
cp -r "$src/tests/golden/convert/megatron-gpt" "$tmp/torn" && chmod -R u+w "$tmp/torn" && rm -r "$tmp/torn/iter_0000007/mp_rank_01"
refused 1 "rank" "a Megatron checkpoint without one of its ranks" --from "$tmp/torn" --out "$tmp/x" --verify none

# ---- another family on the way out ----
refused 1 "cannot be written\|no such tensor\|has no row" "a family that cannot say it" --from "$tmp/gpt2/checkpoint" --out "$tmp/x" --family llama
refused 1 "known: gpt2" "a family that is none" --from "$tmp/gpt2/checkpoint" --out "$tmp/x" --family gtp2

# ---- directories ----
mkdir -p "$tmp/mine/model" && echo precious >"$tmp/mine/model/file"
refused 1 "has not written" "a directory with other files is left alone" --from "$tmp/gpt2/checkpoint" --out "$tmp/mine"
[ "$(cat "$tmp/mine/model/file")" = precious ]
ok $? "and so are they"
refused 1 "what is converted is" "neither a model nor a checkpoint" --from "$tmp/mine" --out "$tmp/x"
refused 1 "nothing\|No such file" "a path that is not there" --from "$tmp/no" --out "$tmp/x"
run --from "$golden/gpt2" --out "$tmp/gpt2" --verify none && grep -q "complete already" "$tmp/e"
ok $? "what is complete is not made again" "$tmp/e"

# ---- inspect ----
run --from "$golden/llama" --inspect && grep -q '"mapping": "complete"' "$tmp/o" && grep -q '"family": "llama"' "$tmp/o"
ok $? "inspect a model" "$tmp/o"
run --from "$tmp/case-drop" --inspect && grep -q '"mapping_error": .*up_proj' "$tmp/o"
ok $? "inspect a model that lacks a tensor" "$tmp/o"
run --from "$tmp/gpt2/checkpoint" --inspect && grep -q '"form": "checkpoint"' "$tmp/o" && grep -q '"imported_from": "gpt2"' "$tmp/o"
ok $? "inspect a checkpoint" "$tmp/o"
idx=$(find "$src/tests/golden" -name '*.idx' | sort | head -1)
[ -n "$idx" ] && run --from "$idx" --inspect && grep -q '"sequences": [1-9]' "$tmp/o" && grep -q '"form": "Megatron .bin/.idx"' "$tmp/o"
ok $? "inspect an .idx" "$tmp/e"
run --from "$tmp/gpt2/tokenizer" --inspect && grep -q '"form": "tokenizer artifact"' "$tmp/o"
ok $? "inspect a tokenizer" "$tmp/o"
echo "1..$n"

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# lf-convert on adapters: PEFT's files in, merged (logits as PEFT has them), out again byte for byte; what is wrong is named.
. "$LF_SRCDIR/tests/stage/lib.sh"
src=${LF_SRCDIR:-.} build=${LF_BUILDDIR:-.}
lf=$build/stages/lf-convert golden=$src/tests/golden
run() { "$lf" --threads 1 "$@" >"$dir/o" 2>"$dir/e"; }
refused() { # $1: text in the message, $2: name; the rest: arguments
    text=$1 name=$2
    shift 2
    run "$@"
    [ $? -eq 1 ] && grep -q -- "$text" "$dir/e"
    ok $? "$name"
}

for f in llama phi3 gpt2 gpt-neox llama-dora gpt2-dora qwen3-next qwen3.5 mamba2 kimi-linear nemotron-h-latent qwen3-next-dora mixtral qwen3-moe; do
    d=$dir/$f
    run --from "$golden/families/${f%-dora}" --out "$d" --verify none
    run --from "$golden/peft/$f" --base "$d/checkpoint" --out "$d"
    ok $? "$f: an adapter comes in"
    run --from "$d/adapter" --out "$d"
    cmp "$golden/peft/$f/adapter_model.safetensors" "$d/peft/adapter_model.safetensors" 2>>"$dir/e"
    ok $? "$f: and goes out byte for byte"
    run --from "$d/peft" --base "$d/checkpoint" --out "$d/again"
    cmp "$d/adapter/data-00000.h5" "$d/again/adapter/data-00000.h5" 2>>"$dir/e"
    ok $? "$f: what was written is read again"
    run --from "$d/adapter" --base "$d/checkpoint" --to checkpoint --out "$d/merged" && grep -q '^MERGED: .* differ by [0-9.]*e-0[6-9]' "$dir/o"
    ok $? "$f: merged, $(sed 's/.*differ/differ/' "$dir/o")"
    run --from "$d/merged/checkpoint" --to hf --dtype f32 --out "$d/merged" &&
        run --from "$d/merged/model" --out "$d/proof" --verify "$golden/peft/$f/expected.safetensors" && grep -q '^VERIFIED' "$dir/o"
    ok $? "$f: its logits are those of PEFT"
    run --from "$d/merged/checkpoint" --to hf --dtype f32 --out "$d/x1"
    run --from "$d/x1/model" --out "$d/x2" --verify "$golden/families/${f%-dora}/expected.safetensors"
    [ $? -eq 1 ]
    ok $? "$f: and not those of the base"
done
run --from "$dir/llama/adapter" --base "$dir/llama/checkpoint" --to checkpoint --dtype bf16 --out "$dir/half" && grep -q 'MERGED.*(bf16)' "$dir/o"
ok $? "merged to bf16"

# models that see: their decoders' adapters, by the names of the programs of now and of before
for f in llava qwen2.5-vl gemma3; do
    d=$dir/vlm-$f from=$golden/peft/vlm-$f
    run --from "$golden/vlm/$f" --out "$d" --verify none
    run --from "$from" --base "$d/checkpoint" --out "$d"
    ok $? "$f: an adapter of a model that sees comes in"
    run --from "$d/adapter" --out "$d"
    cmp "$from/adapter_model.safetensors" "$d/peft/adapter_model.safetensors" 2>>"$dir/e"
    ok $? "$f: and goes out byte for byte"
    mkdir "$d/other"
    cp "$from/adapter_config.json" "$d/other"
    cp "$from/other.safetensors" "$d/other/adapter_model.safetensors"
    run --from "$d/other" --base "$d/checkpoint" --out "$d/same"
    cmp "$d/adapter/data-00000.h5" "$d/same/adapter/data-00000.h5" 2>>"$dir/e"
    ok $? "$f: by the names of an older program it is the same"
    run --from "$d/peft" --base "$d/checkpoint" --out "$d/again"
    cmp "$d/adapter/data-00000.h5" "$d/again/adapter/data-00000.h5" 2>>"$dir/e"
    ok $? "$f: what was written is read again"
    run --from "$d/adapter" --base "$d/checkpoint" --to checkpoint --out "$d/merged" && grep -q '^MERGED: .* differ by [0-9.]*e-0[6-9]' "$dir/o"
    ok $? "$f: merged, $(sed 's/.*differ/differ/' "$dir/o")"
done

# adapters of encoder and projector: the logits of PEFT with pictures in the texts
for f in llava qwen2.5-vl qwen3-vl gemma3; do
    d=$dir/eyes-$f from=$golden/peft/vlm-$f-eyes
    run --from "$golden/vlm/$f" --out "$d" --verify none
    run --from "$from" --base "$d/checkpoint" --out "$d"
    ok $? "$f: an adapter of encoder and projector comes in"
    run --from "$d/adapter" --out "$d"
    cmp "$from/adapter_model.safetensors" "$d/peft/adapter_model.safetensors" 2>>"$dir/e"
    ok $? "$f: and goes out byte for byte"
    run --from "$d/adapter" --base "$d/checkpoint" --to checkpoint --out "$d/merged" && grep -q '^MERGED' "$dir/o"
    ok $? "$f: merged"
    run --from "$d/merged/checkpoint" --to hf --dtype f32 --out "$d/merged" &&
        run --from "$d/merged/model" --out "$d/proof" --verify "$from/expected.safetensors" && grep -q '^VERIFIED' "$dir/o"
    ok $? "$f: its logits are those of PEFT"
    run --from "$golden/vlm/$f" --out "$d/base" --verify "$from/expected.safetensors"
    [ $? -eq 1 ]
    ok $? "$f: and not those of the base"
done
# the name of the matrix of patches in the place of one of the decoder's, with blanks for the difference
mkdir "$dir/tower"
cp "$golden/peft/vlm-qwen2.5-vl/adapter_config.json" "$dir/tower"
LC_ALL=C sed 's/model\.language_model\.layers\.0\.self_attn\.q_proj\.lora_A\.weight":/model.visual.patch_embed.proj.lora_A.weight":                 /' \
    "$golden/peft/vlm-qwen2.5-vl/adapter_model.safetensors" >"$dir/tower/adapter_model.safetensors"
refused "patches and positions have none" "an adapter of the matrix of patches" --from "$dir/tower" --base "$dir/vlm-qwen2.5-vl/checkpoint" --out "$dir/r0"
# the head of one whose head is its own, in the same way
mkdir "$dir/head"
cp "$golden/peft/vlm-llava/adapter_config.json" "$dir/head"
LC_ALL=C sed 's/model\.language_model\.layers\.0\.mlp\.down_proj\.lora_A\.weight":/lm_head.lora_A.weight":                                    /' \
    "$golden/peft/vlm-llava/adapter_model.safetensors" >"$dir/head/adapter_model.safetensors"
refused "embedding and head have none" "an adapter of the head" --from "$dir/head" --base "$dir/vlm-llava/checkpoint" --out "$dir/r0"
run --from "$golden/vlm/gemma3" --parts text --out "$dir/decoder" --verify none
refused "imported without parts = text" "an adapter of the whole for its decoder alone" --from "$golden/peft/vlm-gemma3" --base "$dir/decoder/checkpoint" --out "$dir/r0"

# what is wrong
mkdir "$dir/single" "$dir/ranks"
cp "$golden/peft/mixtral/adapter_config.json" "$dir/single"
LC_ALL=C sed 's/model\.layers\.0\.mlp\.experts\.base_layer\.lora_A\.weight":/model.layers.0.mlp.experts.0.up_proj.lora_A.weight": /' \
    "$golden/peft/mixtral/adapter_model.safetensors" >"$dir/single/adapter_model.safetensors"
refused "a module of one expert" "an adapter of single experts" --from "$dir/single" --base "$dir/qwen3-moe/checkpoint" --out "$dir/r0"
cp "$golden/peft/mixtral/adapter_model.safetensors" "$dir/ranks"
for r in 2 9223372036854775807; do
    sed "s/\"r\": 3/\"r\": $r/" "$golden/peft/mixtral/adapter_config.json" >"$dir/ranks/adapter_config.json"
    refused "$([ $r = 2 ] && echo 'it is not F32 or BF16' || echo 'at most 65536')" "adapters of experts of another rank than the file says: $r" \
        --from "$dir/ranks" --base "$dir/mixtral/checkpoint" --out "$dir/r0"
done
refused "base" "an adapter needs its base" --from "$golden/peft/llama" --out "$dir/r1"
refused "holds no adapter of a layer" "a base of another family" --from "$golden/peft/llama" --base "$dir/gpt2/checkpoint" --out "$dir/r2"
refused "other weights" "merging into other weights" --from "$dir/llama/adapter" --base "$dir/llama/merged/checkpoint" --to checkpoint --out "$dir/r3"
bad() { # bad NAME SED TEXT
    mkdir -p "$dir/bad"
    cp "$golden"/peft/llama/adapter_* "$dir/bad/"
    chmod u+w "$dir"/bad/*
    sed "$2" "$golden/peft/llama/adapter_config.json" >"$dir/bad/adapter_config.json"
    refused "$3" "$1" --from "$dir/bad" --base "$dir/llama/checkpoint" --out "$dir/r4"
}
bad "DoRA without magnitudes" 's/"use_dora": false/"use_dora": true/' "lora_magnitude_vector"
bad "a form of LoRA that is not known" 's/"use_qalora": false/"use_qalora": true/' "use_qalora"
bad "biases" 's/"bias": "none"/"bias": "all"/' "bias"
bad "other ranks of some layers" 's/"rank_pattern": {}/"rank_pattern": {"q_proj": 8}/' "rank_pattern"
bad "a key of the future" 's/"r": 3/"r": 3, "sharpness": 2/' "sharpness"
bad "a base that was changed" 's/"init_lora_weights": true/"init_lora_weights": "pissa"/' "init_lora_weights"
bad "another rank than the file's" 's/"r": 3/"r": 2/' "lora_A"
head -c 3000 "$golden/peft/llama/adapter_model.safetensors" >"$dir/bad/adapter_model.safetensors"
cp "$golden/peft/llama/adapter_config.json" "$dir/bad/adapter_config.json"
refused "adapter_model.safetensors" "a file cut short" --from "$dir/bad" --base "$dir/llama/checkpoint" --out "$dir/r4"
[ ! -e "$dir/r4/adapter/manifest.json" ]
ok $? "and nothing is published"

finish 138

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# lf-convert on adapters: PEFT's files in, merged (logits as PEFT has them), out again byte for byte; what is wrong is named.
set -u
src=${LF_SRCDIR:-.} build=${LF_BUILDDIR:-.}
lf=$build/stages/lf-convert golden=$src/tests/golden
tmp=$(mktemp -d "${TMPDIR:-/tmp}/lf-peft.XXXXXX") || exit 99
trap 'chmod -R u+w "$tmp"; rm -rf "$tmp"' EXIT
n=0
failed=0
ok() { # $1: 0 = ok, $2: name
    n=$((n + 1))
    if [ "$1" -eq 0 ]; then echo "ok $n - $2"; else
        echo "not ok $n - $2"
        failed=1
        sed 's/^/# /' "$tmp/e"
    fi
}
run() { "$lf" --threads 1 "$@" >"$tmp/o" 2>"$tmp/e"; }
refused() { # $1: text in the message, $2: name; the rest: arguments
    text=$1 name=$2
    shift 2
    run "$@"
    [ $? -eq 1 ] && grep -q -- "$text" "$tmp/e"
    ok $? "$name"
}

for f in llama phi3 gpt2 gpt-neox llama-dora gpt2-dora; do
    d=$tmp/$f
    run --from "$golden/families/${f%-dora}" --out "$d" --verify none
    run --from "$golden/peft/$f" --base "$d/checkpoint" --out "$d"
    ok $? "$f: an adapter comes in"
    run --from "$d/adapter" --out "$d"
    cmp "$golden/peft/$f/adapter_model.safetensors" "$d/peft/adapter_model.safetensors" 2>>"$tmp/e"
    ok $? "$f: and goes out byte for byte"
    run --from "$d/peft" --base "$d/checkpoint" --out "$d/again"
    cmp "$d/adapter/data-00000.h5" "$d/again/adapter/data-00000.h5" 2>>"$tmp/e"
    ok $? "$f: what was written is read again"
    run --from "$d/adapter" --base "$d/checkpoint" --to checkpoint --out "$d/merged" && grep -q '^MERGED: .* differ by [0-9.]*e-0[6-9]' "$tmp/o"
    ok $? "$f: merged, $(sed 's/.*differ/differ/' "$tmp/o")"
    run --from "$d/merged/checkpoint" --to hf --dtype f32 --out "$d/merged" &&
        run --from "$d/merged/model" --out "$d/proof" --verify "$golden/peft/$f/expected.safetensors" && grep -q '^VERIFIED' "$tmp/o"
    ok $? "$f: its logits are those of PEFT"
    run --from "$d/merged/checkpoint" --to hf --dtype f32 --out "$d/x1"
    run --from "$d/x1/model" --out "$d/x2" --verify "$golden/families/${f%-dora}/expected.safetensors"
    [ $? -eq 1 ]
    ok $? "$f: and not those of the base"
done
run --from "$tmp/llama/adapter" --base "$tmp/llama/checkpoint" --to checkpoint --dtype bf16 --out "$tmp/half" && grep -q 'MERGED.*(bf16)' "$tmp/o"
ok $? "merged to bf16"

# what is wrong
refused "base" "an adapter needs its base" --from "$golden/peft/llama" --out "$tmp/r1"
refused "holds no adapter of a layer" "a base of another family" --from "$golden/peft/llama" --base "$tmp/gpt2/checkpoint" --out "$tmp/r2"
refused "other weights" "merging into other weights" --from "$tmp/llama/adapter" --base "$tmp/llama/merged/checkpoint" --to checkpoint --out "$tmp/r3"
bad() { # bad NAME SED TEXT
    mkdir -p "$tmp/bad"
    cp "$golden"/peft/llama/adapter_* "$tmp/bad/"
    chmod u+w "$tmp"/bad/*
    sed "$2" "$golden/peft/llama/adapter_config.json" >"$tmp/bad/adapter_config.json"
    refused "$3" "$1" --from "$tmp/bad" --base "$tmp/llama/checkpoint" --out "$tmp/r4"
}
bad "DoRA without magnitudes" 's/"use_dora": false/"use_dora": true/' "lora_magnitude_vector"
bad "a form of LoRA that is not known" 's/"use_qalora": false/"use_qalora": true/' "use_qalora"
bad "biases" 's/"bias": "none"/"bias": "all"/' "bias"
bad "other ranks of some layers" 's/"rank_pattern": {}/"rank_pattern": {"q_proj": 8}/' "rank_pattern"
bad "a key of the future" 's/"r": 3/"r": 3, "sharpness": 2/' "sharpness"
bad "a base that was changed" 's/"init_lora_weights": true/"init_lora_weights": "pissa"/' "init_lora_weights"
bad "another rank than the file's" 's/"r": 3/"r": 2/' "lora_A"
head -c 3000 "$golden/peft/llama/adapter_model.safetensors" >"$tmp/bad/adapter_model.safetensors"
cp "$golden/peft/llama/adapter_config.json" "$tmp/bad/adapter_config.json"
refused "adapter_model.safetensors" "a file cut short" --from "$tmp/bad" --base "$tmp/llama/checkpoint" --out "$tmp/r4"
[ ! -e "$tmp/r4/adapter/manifest.json" ]
ok $? "and nothing is published"

echo "1..$n"
[ $failed -eq 0 ]

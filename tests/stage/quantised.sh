#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A model of 8-bit floats in blocks through the stages: out again byte for byte, of what was trained only that; frozen layers, adapters,
# several ranks, resumed, killed, a grown vocabulary, another form; what of a conversion goes on after kill -9.
. "$LF_SRCDIR/tests/stage/lib.sh"
with_ranks
lf=$stages/lf-convert sft=$stages/lf-sft

convert() { "$lf" --threads 1 "$@" >"$dir/stdout" 2>"$dir/err"; }
# hashes DIR: of every tensor of an export, a line each
hashes() { tr '{},' '\n\n\n' <"$1/model/manifest.json" | grep -E '^"[a-z_0-9.]*(weight|bias|scale_inv)":' | sort; }
# changed A B: which tensors differ
changed() { { hashes "$1"; hashes "$2"; } | sort | uniq -u | cut -d'"' -f2 | sort -u; }
out() { convert --from "$dir/$1/out/checkpoint" --out "$dir/$1" || bail "$1: $(cat "$dir/err")"; } # of a run

must "$tool" data "$dir/data" 60 40
cat >"$dir/run.ini" <<END
[stage]
data = $dir/data
device = cpu
steps = 4
seq_length = 16
batch = 2
micro_batch = 1
valid_interval = 0
lr = 1e-2
warmup = 1
save_interval = 1
save_time = 0
seed = 5
threads = 1
[model]
family = llama3
layers = 2
hidden = 128
heads = 2
kv_heads = 2
ffn = 256
vocab = 64
max_positions = 16
END
train "$pretrain" "$dir/run.ini" base --precision bf16 --steps 1
is $rc 0 "a model"
sed -i '/^\[model\]/,$d' "$dir/run.ini"

# ---- in and out ----
convert --from "$dir/base/out/checkpoint" --dtype bf16 --quantize fp8 --out "$dir/release"
ok $? "goes out quantised" "$dir/err"
[ "$(hashes "$dir/release" | grep -c scale_inv)" -eq 14 ] && grep -q '"lm_head"' "$dir/release/model/config.json" &&
    ! grep -q '_proj"' "$dir/release/model/config.json"
ok $? "its linear layers with scales, and config.json names the others" "$dir/release/model/config.json"
convert --from "$dir/release/model" --verify none --out "$dir/in"
ok $? "comes in" "$dir/err"
says "an export is quantised again" "and it is told what becomes of it"
convert --from "$dir/in/checkpoint" --out "$dir/again"
ok $? "and goes out again" "$dir/err"
cmp "$dir/release/model/model.safetensors" "$dir/again/model/model.safetensors" >"$dir/err" 2>&1 &&
    cmp "$dir/release/model/config.json" "$dir/again/model/config.json" >"$dir/err" 2>&1
ok $? "byte for byte"
convert --from "$dir/in/checkpoint" --max_file 200K --out "$dir/files"
[ -e "$dir/files/model/model.safetensors.index.json" ] && is "$(changed "$dir/again" "$dir/files")" "" "in several files the same tensors"
convert --from "$dir/in/checkpoint" --quantize bf16 --out "$dir/plain"
[ "$(hashes "$dir/plain" | grep -c scale_inv)" -eq 0 ] && ! grep -q quantization_config "$dir/plain/model/config.json"
ok $? "quantize = bf16: no scales, and config.json speaks of none" "$dir/plain/model/config.json"
convert --inspect --from "$dir/in/checkpoint" && ! grep -q optimizer_tensors "$dir/stdout"
ok $? "scales are no moments of an optimizer" "$dir/stdout"
convert --from "$dir/release/model" --quantize fp8 --verify none --out "$dir/no"
is $? 1 "quantize = fp8 is of exports"
says "quantize = fp8 is for exports" "it says so"
convert --from "$dir/data" --to megatron --quantize bf16 --out "$dir/no"
is $? 1 "and of models"
says "quantize is of models" "it says so"

# ---- what was not trained ----
run() { train "$sft" "$dir/run.ini" "$@" --init-from "$dir/in/checkpoint" --precision bf16; }
run frozen --freeze 'layers.0.*' --freeze embed.* --freeze head.* --freeze '*norm*'
is $rc 0 "a layer learns"
out frozen
is "$(changed "$dir/again" "$dir/frozen" | grep -v 'layers\.1\.')" "" "of the frozen one every code and scale is the release's"
[ "$(changed "$dir/again" "$dir/frozen" | grep -c 'weight$')" -eq 7 ]
ok $? "the other has new ones"
grep -q '"weight_block_size"' "$dir/frozen/model/config.json"
ok $? "and config.json says how" "$dir/frozen/model/config.json"
convert --from "$dir/frozen/model" --verify none --out "$dir/frozen2" && convert --from "$dir/frozen2/checkpoint" --out "$dir/frozen2" &&
    cmp "$dir/frozen/model/model.safetensors" "$dir/frozen2/model/model.safetensors" 2>"$dir/err"
ok $? "which comes in and goes out again" "$dir/err"
run lora --lora-rank 2 --lora-targets q --lora-targets down
is $rc 0 "an adapter learns"
out lora
[ "$(changed "$dir/again" "$dir/lora" | grep 'weight$' | grep -c -v -E '(q|down)_proj')" -eq 0 ] &&
    [ "$(changed "$dir/again" "$dir/lora" | grep -c 'weight$')" -eq 4 ]
ok $? "merged it changes what it adapts: $(changed "$dir/again" "$dir/lora" | tr '\n' ' ')"

# ---- resumed, killed, on several ranks ----
run whole
is $rc 0 "all weights learn"
mkdir -p "$dir/kill"
cut_at kill 1 "*/kill/out/checkpoints/step-00000003*" "test -e $dir/kill/out/checkpoints/step-00000002" \
    "$sft" --config "$dir/run.ini" --out "$dir/kill/out" --metrics "$dir/kill/metrics" --init-from "$dir/in/checkpoint" --precision bf16
is $rc 137 "kill -9 after the second step"
run kill
is "$rc $(id kill)" "0 $(id whole)" "goes on to the same checkpoint, scales and all"
out kill
[ "$(hashes "$dir/kill" | grep -c scale_inv)" -eq 14 ]
ok $? "which goes out quantised"
if have_ranks; then
    for how in "--zero 3" "--tensor 2" "--pipeline 2"; do
        _at=$(echo "$how" | tr -d ' -')
        # shellcheck disable=SC2086
        train "$launch 2 -- $sft" "$dir/run.ini" "$_at" $how --init-from "$dir/in/checkpoint" --precision bf16 --freeze 'layers.0.*'
        is $rc 0 "two ranks, $how" "$(tail -n 2 "$dir/err")"
        out "$_at"
        is "$(changed "$dir/again" "$dir/$_at" | grep 'layers\.0\.')" "" "the frozen layer is the release's"
        [ "$(hashes "$dir/$_at" | grep -c scale_inv)" -eq 14 ]
        ok $? "and all is quantised"
    done
fi
finish 34

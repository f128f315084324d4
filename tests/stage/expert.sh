#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ranks that divide experts (expert = 2, 4): the losses, norms and validations of one rank, with rows in rounds, with zero, tensor and pipeline beside; every
# stage of training; checkpoints resumed on other layouts; killed; what is planned and what is refused.
. "$LF_SRCDIR/tests/stage/lib.sh"
. "$LF_SRCDIR/tests/stage/layout_lib.sh"
with_ranks
need_ranks

must "$tool" data "$dir/data" 300 1000
must "$tool" pairs "$dir/pairs" 500 4

moe() { use qwen2-moe 1000 2 "kv_heads = 4" "experts = 4" "experts_per_token = 2" "expert_ffn = 64" "shared_ffn = 64" "router_aux = 0.01" "$@"; }
moe
saves=2
trial "experts" pretrain 2e-5 "2:expert=2 2:expert=2+expert-room=0.4 4:expert=2+zero=1"
saves=0
trial "experts again" pretrain 2e-5 "2:expert=2+recompute=full 4:expert=2+pipeline=2+recompute=full"
trial "beside other axes" pretrain 2e-5 "4:expert=2+tensor=2 2:expert=2+context=2 4:expert=4+context=2+zero=3 4:expert=2+pipeline=2+pipeline-schedule=zb-h1" --batch 3

# --- checkpoints: of any layout, resumed on any other ---
again experts.2:expert=2 1
again experts.4:expert=2+zero=1 2 --expert 2
again experts.one 4 --expert 4
again experts.2:expert=2+expert-room=0.4 2 --tensor 2
go experts.2:expert=2 2 bitwise --expert 2
is "$rc $(id bitwise) $(metrics bitwise | cksum)" "0 $(id experts.2:expert=2) $(metrics experts.2:expert=2 | cksum)" "with the same layout: the same bits"
rank_killed 2 "" --expert 2 --batch 3

# --- other stages ---
sed -i '/^\[model\]/,$d' "$dir/run.ini"
echo "init_from = $dir/experts.4:expert=2+zero=1/out/checkpoint" >>"$dir/run.ini"
trial "an adapter of all layers, and of each expert" sft 2e-5 "2:expert=2 2:tensor=2 4:expert=2+zero=3 4:expert=2+tensor=2 4:expert=2+context=2 2:pipeline=2 2:tensor=2+expert=2+expert-tensor=1 \
    4:tensor=2+sequence-parallel+expert=4+expert-tensor=1" --lora-rank 4 --lr 1e-2
trial "gate and up of experts read one A" sft 2e-5 "2:expert=2 2:tensor=2" --lora-rank 4 --lr 1e-2 --lora-targets q --lora-targets down \
    --lora-targets "layers.*.moe.experts.gate+up.weight"
for k in "an adapter of all layers, and of each expert.4:expert=2+tensor=2" "gate and up of experts read one A.2:tensor=2"; do
    "$stages/lf-convert" --threads 1 --from "$dir/$k/out/adapter" --base "$dir/experts.4:expert=2+zero=1/out/checkpoint" --to checkpoint --out "$dir/merged" \
        >"$dir/stdout" 2>"$dir/err"
    grep -q '^MERGED: .* differ by [0-9.]*e-0[6-9]' "$dir/stdout"
    ok $? "$k: merged, $(sed 's/.*differ/differ/' "$dir/stdout")" "$(tail -n 3 "$dir/err")"
    rm -rf "$dir/merged"
done
peft() { "$stages/lf-convert" --threads 1 --from "$dir/$1/out/adapter" --out "$dir/x" >"$dir/stdout" 2>"$dir/err"; }
peft "gate and up of experts read one A.2:tensor=2" && grep -q '"experts.gate_up_proj"' "$dir/x/peft/adapter_config.json"
ok $? "out to PEFT, as adapters of stacked parameters" "$(tail -n 1 "$dir/err")"
rm -rf "$dir/x"
peft "an adapter of all layers, and of each expert.2:tensor=2"
[ $? -eq 1 ] && grep -qF "so adapt them as one (lora_targets = layers.*.moe.experts.gate+up.weight)" "$dir/err"
ok $? "PEFT has gate and up as one: with an A each they are refused" "$(tail -n 1 "$dir/err")"
for k in "--lora-dora:lengths (lora_dora)" "--lora-dropout 0.1:lora_dropout"; do
    # shellcheck disable=SC2086
    train "$stages/lf-sft" "$dir/run.ini" not --lora-rank 4 ${k%%:*}
    [ $rc -eq 1 ] && grep -qF "lora_targets = all takes in the experts (layers.0.moe.experts.gate.weight), whose adapters have no ${k#*:}" "$dir/err"
    ok $? "adapters of experts have no ${k#*:}" "$(tail -n 1 "$dir/err")"
done
trial "dpo" dpo 2e-5 "2:expert=2" --data "$dir/pairs" --valid-tokens 64
trial "rm" rm 2e-5 "2:expert=2" --data "$dir/pairs" --valid-tokens 64 --lr 5e-4

# --- experts drop rows ---
moe "capacity_factor = 0.7"
trial "experts drop rows" pretrain 2e-5 "2:expert=2 4:expert=4+context=2 2:context=2+context-kind=gather" --steps 2
dropped() { records "$1" | sed -n 's/^router_dropped:\(.*\)$/\1/p' | tr '\n' ' '; }
share=$(dropped "experts drop rows.one")
[ -n "$share" ] && [ "$(dropped "experts drop rows.2:expert=2")" = "$share" ] && [ "$(dropped "experts drop rows.4:expert=4+context=2")" = "$share" ]
ok $? "as many of them in every layout: $share" "$(dropped "experts drop rows.2:expert=2")"
# a rank has a prime number of rows, so that the last of its blocks is shorter
sed -i 's/^max_positions = .*/max_positions = 8198/' "$dir/run.ini"
trial "experts drop 8198 rows" pretrain 2e-5 "2:context=2+context-kind=gather" --steps 3 --batch 1 --seq-length 8198
share=$(dropped "experts drop 8198 rows.one")
is "$(dropped "experts drop 8198 rows.2:context=2+context-kind=gather")" "${share:-a share}" "where blocks end early the same ones, too"
! "$infer" record "$dir/experts.one/metrics" | grep -q 'router_dropped\|comm_exposed_s' && "$infer" record "$dir/experts.2:expert=2/metrics" | grep -q '"comm_exposed_s":0*\.*0*[1-9]'
ok $? "without a capacity none is told, and one rank waits for nobody; of two it is told how long"
# shares of steps in which ranks waited, one a line
for _m in "$dir"/*:*/metrics; do
    "$infer" record "$_m" | sed -n 's/.*"step_s":\([^,}]*\).*"comm_exposed_s":\([^,}]*\).*/\2 \1/p'
done | awk '{ print $1 / $2 }' | sort -g >"$dir/shares"
[ "$(wc -l <"$dir/shares")" -gt 60 ] && awk '!($1 >= 0 && $1 <= 1) { bad = 1 } END { exit bad }' "$dir/shares"
ok $? "never longer than the step takes: $(tail -n 1 "$dir/shares") of it at most, in $(wc -l <"$dir/shares" | tr -d ' ') steps"

# --- the plan ---
moe
plan() { "$pretrain" --config "$dir/run.ini" --plan --ranks "$@" 2>"$dir/err" | sed -n 's/.*"params":\([0-9]*\)[.,}].*/\1/p'; }
whole=$(plan 2) half=$(plan 2 --expert 2)
[ "$half" -lt $((whole - 70000)) ] && [ "$half" -gt $((whole / 2)) ]
ok $? "two ranks with expert = 2: weights of a rank take $half bytes of $whole"
"$pretrain" --config "$dir/run.ini" --plan --ranks 2 --expert 2 >"$dir/stdout" 2>"$dir/err"
grep -q '"expert_bytes_per_step":[1-9]' "$dir/stdout" && grep -q '"expert":2' "$dir/stdout"
ok $? "what goes to experts is planned" "$(cat "$dir/stdout")"
# activations LAYERS: of a rank that divides experts and repeats layers
activations() {
    use qwen2-moe 1000 "$1" "experts = 4" "experts_per_token = 2" "expert_ffn = 64" "shared_ffn = 64"
    "$pretrain" --config "$dir/run.ini" --plan --ranks 2 --expert 2 --recompute full 2>"$dir/err" | sed -n 's/.*"activations":\([0-9]*\).*/\1/p'
}
few=$(activations 4) many=$(activations 8)
_layer=$(((many - few) / 4)) _input=$((32 * 64 * 4))
[ "${few:-0}" -gt 0 ] && [ $_layer -ge $_input ] && [ $((10 * _layer)) -le $((11 * _input)) ]
ok $? "with recompute = full a layer keeps the $_input bytes of its input, and no rows of others: $_layer" "$(cat "$dir/err")"
moe
refused "--ranks 3 --expert 2" "expert = 2: the 3 ranks that share the batch cannot form such groups"
refused "--ranks 3 --expert 3" "expert = 3: the 4 experts of the model do not divide among so many ranks"
refused "--ranks 2 --expert-room 3" "set expert to 2 or more"
refused "--ranks 4 --expert 2 --zero 1 --zero-inner 2" "leave zero_inner out"
use llama3 1000 2 "kv_heads = 2"
refused "--ranks 2 --expert 2" "the model has none"
finish 50

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ranks with different layers (pipeline = 2, 4, with every schedule, in a V too, and several chunks): the bits of one rank, but for a tied embedding; uneven and empty
# parts, fewer micro-batches than ranks, experts, adapters, every stage of training; with ranks that share the batch, state and matrices; checkpoints
# resumed on other layouts; cut by times that are measured, once in a run; killed; damaged data; what is planned, drawn and refused.
. "$LF_SRCDIR/tests/stage/lib.sh"
. "$LF_SRCDIR/tests/stage/layout_lib.sh"
with_ranks
need_ranks

must "$tool" data "$dir/data" 300 1000
must "$tool" pairs "$dir/pairs" 24 4
must "$tool" labels "$dir/labels" 24 4

# --- schedules: gradients are added in the order of one rank, and so is everything else but the norm, which is alike here ---
use llama3 1000 4 "kv_heads = 2"
saves=2
trial "schedules" pretrain 2e-6 "2:pipeline=2 2:pipeline=2+pipeline-schedule=gpipe 2:pipeline=2+pipeline-schedule=zb-h1 \
    2:pipeline=2+pipeline-chunks=2 4:pipeline=4+pipeline-schedule=zb-h1 2:pipeline=2+pipeline-stages=3,1 4:pipeline=4+pipeline-stages=2,0,1,1 \
    2:pipeline=2+pipeline-schedule=zb-v 2:pipeline=2+pipeline-schedule=dualpipe-v 4:pipeline=4+pipeline-schedule=zb-v+pipeline-stages=1,0,1,0,0,1,0,1"
saves=0
trial "fewer micro-batches than ranks" pretrain 2e-6 "4:pipeline=4 4:pipeline=4+pipeline-schedule=zb-h1 2:pipeline=2+pipeline-chunks=2 \
    2:pipeline=2+pipeline-schedule=zb-v" --batch 1
trial "two micro-batches for each rank" pretrain 2e-6 "4:pipeline=4+pipeline-schedule=dualpipe-v+pipeline-stages=0,1,0,1,1,0,0,1" --batch 8
trial "no clipping" pretrain bits "2:pipeline=2 4:pipeline=4+pipeline-schedule=gpipe 2:pipeline=2+pipeline-chunks=2 2:pipeline=2+pipeline-schedule=zb-h1 \
    2:pipeline=2+pipeline-schedule=zb-v 2:pipeline=2+pipeline-schedule=dualpipe-v" --clip 0
trial "bf16, recomputation" pretrain bits "2:pipeline=2 2:pipeline=2+pipeline-chunks=2" --clip 0 --precision bf16 --recompute full

# --- with other axes: the bits of ranks that share the batch and the matrices alone ---
base=2:tensor=2
trial "tensor" pretrain bits "4:pipeline=2+tensor=2 8:pipeline=4+tensor=2 4:pipeline=2+tensor=2+pipeline-schedule=zb-v" --clip 0
base=4:tensor=2+sequence-parallel
trial "tensor and data" pretrain bits "8:pipeline=2+tensor=2+sequence-parallel 8:pipeline=2+tensor=2+sequence-parallel+zero=1" --clip 0
base=3:zero=0
trial "data" pretrain bits "6:pipeline=2+pipeline-chunks=2 6:pipeline=2+zero=1 6:pipeline=2+pipeline-schedule=zb-v+zero=1" --clip 0
base=
use gpt2 1000 4
trial "tied weights" pretrain 2e-6 "2:pipeline=2 4:pipeline=2+zero=1 4:pipeline=4+pipeline-schedule=zb-h1 4:pipeline=2+pipeline-schedule=zb-v+zero=1"
use qwen2-moe 1000 4 "kv_heads = 4" "experts = 4" "experts_per_token = 2" "expert_ffn = 64" "shared_ffn = 64" "router_aux = 0.01" \
    "router_bias = yes" "router_bias_rate = 0.01"
trial "experts" pretrain 2e-6 "2:pipeline=2 2:pipeline=2+pipeline-chunks=2 4:pipeline=4+pipeline-schedule=zb-h1 2:pipeline=2+pipeline-schedule=dualpipe-v"

# --- other stages ---
use llama3 1000 4 "kv_heads = 2"
sed -i '/^\[model\]/,$d' "$dir/run.ini"
echo "init_from = $dir/schedules.2:pipeline=2+pipeline-chunks=2/out/checkpoint" >>"$dir/run.ini"
trial "an adapter" sft 2e-6 "2:pipeline=2 4:pipeline=2+tensor=2" --lora-rank 4 --lora-dropout 0.1
trial "frozen layers" sft 2e-6 "2:pipeline=2" --freeze 'layers.2.*'
trial "first parts that are frozen" sft bits "2:pipeline=2+pipeline-schedule=zb-h1 2:pipeline=2+pipeline-chunks=2 4:pipeline=4+pipeline-stages=1,0,2,1 \
    2:pipeline=2+pipeline-schedule=zb-v 2:pipeline=2+pipeline-schedule=dualpipe-v" \
    --freeze 'layers.[01].*' --freeze 'embed*' --clip 0
trial "first parts that are frozen, an adapter" sft 2e-6 "4:pipeline=2+pipeline-chunks=2+tensor=2" --lora-rank 4 --freeze 'layers.[012].*' --clip 0
trial "last part that is frozen" sft bits "2:pipeline=2" --freeze 'layers.[23].*' --freeze 'head*' --freeze 'final*' --clip 0
sed -i "s,init_from = .*,init_from = $dir/experts.2:pipeline=2/out/checkpoint," "$dir/run.ini"
trial "first parts where experts are balanced alone" sft 2e-6 "2:pipeline=2+pipeline-chunks=2" --freeze 'layers.[01].[an]*' \
    --freeze 'layers.[01].*weight' --freeze 'embed*'
sed -i "s,init_from = .*,init_from = $dir/schedules.2:pipeline=2+pipeline-chunks=2/out/checkpoint," "$dir/run.ini"
trial "dpo" dpo 2e-6 "2:pipeline=2 4:pipeline=2+pipeline-chunks=2 2:pipeline=2+pipeline-schedule=zb-v" --data "$dir/pairs" --valid-tokens 64
trial "kto" dpo 2e-6 "2:pipeline=2+pipeline-schedule=gpipe" --data "$dir/labels" --loss kto --valid-tokens 64
trial "rm" rm 2e-5 "2:pipeline=2 4:pipeline=2+tensor=2+sequence-parallel" --data "$dir/pairs" --valid-tokens 64 --lr 5e-4

# --- checkpoints: of any layout, resumed on any other ---
use llama3 1000 4 "kv_heads = 2"
again schedules.4:pipeline=4+pipeline-stages=2,0,1,1 1
again schedules.one 4 --pipeline 2 --tensor 2
again schedules.2:pipeline=2+pipeline-chunks=2 3 --zero 2
again schedules.2:pipeline=2+pipeline-schedule=zb-v 2 --pipeline 2 --pipeline-schedule dualpipe-v
again schedules.2:pipeline=2+pipeline-schedule=dualpipe-v 2 --pipeline 2
says_like "placement was \"v\", is \"in turns\"" "a log tells that the parts are elsewhere"
again schedules.4:pipeline=4+pipeline-schedule=zb-h1 2 --pipeline 2 --pipeline-schedule zb-v
rank_killed 4 "" --pipeline 2 --pipeline-schedule zb-v --zero 1 --batch 4
data_damaged 4 --pipeline 2 --batch 4

# --- cut by times: those of the run's beginning stay, whatever a later start would measure ---
timed="--pipeline 2 --pipeline-cost measured"
cut() { sed -n 's/.*pipeline 2 (1f1b; layers \([0-9,]*\)).*/\1/p' "$dir/err"; }
# shellcheck disable=SC2086
on 2 timed $timed
cut=$(cut)
[ $rc -eq 0 ] && says_like "a step of 6 micro-batches takes [0-9.]* s by the schedule, as measured$" "pipeline_cost = measured: times and the cut $cut in the log"
on 2 "by hand" --pipeline 2 --pipeline-stages "$cut"
is "$(id timed) $(metrics timed | cksum)" "$(id "by hand") $(metrics "by hand" | cksum)" "the bits of a run with that cut by hand"
# shellcheck disable=SC2086
go timed 2 "timed again" $timed
is "$rc $(id "timed again") $(grep -c "measuring" "$dir/err") $(cut)" "0 $(id timed) 0 $cut" "a resumed run measures nothing and has the cut and the bits of it"
says "by the schedule, as measured when the run began" "its log has the times of the beginning"
# shellcheck disable=SC2086
go timed 4 "timed wide" $timed --tensor 2
is "$rc $(grep -c "measuring" "$dir/err")" "0 1" "one with another layout measures again"
# shellcheck disable=SC2086
go schedules.one 2 "timed late" $timed
is "$rc $(grep -c "measuring" "$dir/err")" "0 1" "so does one that goes on from a run without it"

# --- the plan ---
plan() { "$stages/lf-pretrain" --config "$dir/run.ini" --plan --ranks "$@" >"$dir/stdout" 2>"$dir/err"; }
plan 4 --pipeline 4 --batch 8
grep -q '"layers":\["3"\]' "$dir/stdout"
ok $? "the plan has the layers of each rank" "$(cat "$dir/err")"
grep -q '"drawing":"rank 0  *F0 F1 F2 F3 Z0 F4 Z1' "$dir/stdout"
ok $? "and draws what each does"
plan 2 --pipeline 2 --pipeline-schedule zb-v
grep -q '"layers":\["0","3"\].*"layers":\["1","2"\]' "$dir/stdout" && grep -q '"drawing":"rank 0  *F0.0 F1.0 F2.0 F0.3 B0.3 W0.3 F1.3' "$dir/stdout"
ok $? "in a V the first rank has both ends" "$(cat "$dir/stdout")"
whole=$(sed -n 's/.*"parameters":\([0-9]*\).*/\1/p' "$dir/stdout")
plan 1
is "$whole $(sed -n 's/.*"parameters":\([0-9]*\).*/\1/p' "$dir/stdout")" "316992 316992" "it counts the parameters of all layers"
one=$(plan 1 && sed -n 's/.*"params":\([0-9]*\)[.,}].*/\1/p' "$dir/stdout")
half=$(plan 2 --pipeline 2 && sed -n 's/.*"params":\([0-9]*\)[.,}].*/\1/p' "$dir/stdout")
[ "$half" -ge $((one / 2)) ] && [ "$half" -le $((one * 7 / 10)) ]
ok $? "two ranks: weights of the larger one take $half bytes of $one"
plan 2 --pipeline 2 --pipeline-cost measured
grep -q '"notes":\["pipeline_cost = measured: the run measures its layers' "$dir/stdout" && ! grep -q forward_s "$dir/stdout"
ok $? "a plan without \`measure\` says that the run will measure" "$(cat "$dir/stdout")"
plan 2 --pipeline 2 --pipeline-cost measured --measure
grep -o '"[a-z_]*_s":[0-9.e-]*' "$dir/stdout" | awk -F: '{ n[$1]++; if ($2 > 0) s[$1] += $2 } END { for (k in n) if (!s[k]) exit 1
    f = s["\"forward_s\""] + s["\"backward_input_s\""] + s["\"backward_weight_s\""]
    exit !(n["\"update_s\""] == 2 && s["\"step_s\""] > 2 * f && s["\"step_s\""] < 20 * f) }'
ok $? "one with it has F, B and W of each rank, and a step of six micro-batches" "$(cat "$dir/stdout")"
refused "--ranks 2 --pipeline-cost measured" "set pipeline to 2 or more"
refused "--ranks 2 --pipeline 2 --pipeline-cost measured --pipeline-stages 2,2" "give one of them"
refused "--ranks 3 --pipeline 2" "pipeline = 2 and tensor = 1: 3 ranks cannot form such groups"
refused "--ranks 2 --pipeline-chunks 2" "set pipeline to 2 or more"
refused "--ranks 2 --pipeline-stages 2,2" "set pipeline to 2 or more"
refused "--ranks 2 --pipeline 2 --pipeline-stages 2,1" "pipeline_stages"
refused "--ranks 2 --pipeline 2 --pipeline-chunks 2 --pipeline-schedule zb-h1" "take interleaved"
refused "--ranks 2 --pipeline 2 --pipeline-chunks 3 --pipeline-schedule zb-v" "leave pipeline_chunks out"
refused "--ranks 2 --pipeline 2 --pipeline-schedule dualpipe-v --batch 3" "a step has 3 micro-batches, and this order of passes needs 4"
refused "--ranks 8 --pipeline 8" "pipeline stages, the model has 4 layers"
refused "--ranks 4 --pipeline 2 --zero 2" "take zero = 1"
refused "--ranks 2 --pipeline 2 --pipeline-schedule zb-h1 --recompute full" "recompute"
refused "--ranks 2 --pipeline 2 --pipeline-schedule zb-v --recompute full" "recompute"
sed -i '/^\[model\]/,$d' "$dir/run.ini"
echo "init_from = $dir/schedules.one/out/checkpoint" >>"$dir/run.ini"
"$stages/lf-sft" --config "$dir/run.ini" --plan --ranks 2 --pipeline 2 --freeze 'nothing.*' >"$dir/stdout" 2>"$dir/err"
says "freeze = nothing.* matches no tensor" "a pattern that matches no layer is refused"
use llama3 1000 4 "kv_heads = 2"
sed -i '/^batch/d' "$dir/run.ini"
trial "a batch that grows" pretrain 2e-6 "2:pipeline=2+pipeline-chunks=2 4:pipeline=2" --batch-ramp 2@0 --batch-ramp 5@4
finish 96

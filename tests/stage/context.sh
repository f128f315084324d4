#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Divided rows (context = 2): the losses, norms and validations of one rank, alone and beside tensor, pipeline and zero; an adapter;
# checkpoints resumed on other layouts; a rank killed; what is planned and what is refused.
. "$LF_SRCDIR/tests/stage/lib.sh"
. "$LF_SRCDIR/tests/stage/layout_lib.sh"
with_ranks
need_ranks

must "$tool" data "$dir/data" 300 1000
must "$tool" pairs "$dir/pairs" 24 4

# keys and values that come to a rank's rows
g2=2:context=2+context-kind=gather
use llama3 1000 2 "kv_heads = 2"
saves=2
trial rows pretrain 2e-5 "2:context=2 4:context=4+zero=1 4:context=2+tensor=2+sequence-parallel 4:context=2+pipeline=2 $g2 4:context=2+context-kind=gather+tensor=2+sequence-parallel 4:context=2+context-kind=gather+pipeline=2+recompute=full 4:context=4+context-kind=both"
saves=0
trial bf16 pretrain 2e-2 "2:context=2 $g2" --precision bf16 --recompute full
again rows.one 2 --context 2
again rows.2:context=2 1
again rows.$g2 1
again rows.2:context=2 2 --context 2 --context-kind gather --zero 3
again rows.$g2 2 --context 2
again rows.2:context=2 4 --context 2 --zero 1
again rows.4:context=4+zero=1 2 --tensor 2
rank_killed 2 "" --context 2 --batch 2

plan() { "$stages/lf-pretrain" --config "$dir/run.ini" --plan --ranks "$@" 2>"$dir/err" | sed -n 's/.*"activations":\([0-9]*\)[.,}].*/\1/p'; }
one=$(plan 1) half=$(plan 2 --context 2)
[ "$half" -ge $((one / 3)) ] && [ "$half" -le $((one * 7 / 10)) ]
ok $? "two ranks with context = 2: activations of a rank take $half bytes of $one"
refused "--ranks 3 --context 2" "error: context = 2: 3 ranks cannot form such groups; start a multiple of 2 ranks"
refused "--ranks 6 --context 2 --pipeline 2" "error: context = 2 and pipeline = 2: 6 ranks cannot form such groups"
refused "--ranks 2 --context-kind gather" "context_kind = gather is of ranks that divide rows; set context to 2 or more"
refused "--ranks 2 --context 65536 --tensor 65536" "2 ranks cannot form such groups"
refused "--ranks 65536 --tensor 65536 --pipeline 65536" "65536 ranks cannot form such groups"
refused "--ranks 3 --context 3 --seq-length 33" "heads = 8 do not divide among 3 ranks (context); take a context that divides heads; on CPUs context_kind = gather asks"
refused "--ranks 2 --context 2 --seq-length 33" "the 33 rows of a micro-batch (seq_length x micro_batch) do not divide"
refused "--ranks 4 --context 2 --tensor 2 --sequence-parallel --seq-length 34" "make seq_length a multiple of 4"
refused "--ranks 2 --context 2 --context-kind ring" "never gives one rank's bits"
refused "--ranks 2 --context 2 --context-kind gather --device cuda" "attention of some rows over the keys of others is for CPUs so far"
three=$(plan 3 --context 3 --context-kind gather --seq-length 33)
[ "${three:-0}" -gt 0 ]
ok $? "ranks that gather keys need not divide the heads" "$(cat "$dir/err")"
refused "--ranks 2 --context 2 --sample-interval 2 --sample-tokens 6" "which context cannot divide"
# rows in order, where windows reach no further than over those of the rank before
use llama3 1000 2 "kv_heads = 2" "sliding_window = 9"
trial window pretrain 2e-5 "$g2 4:context=4+context-kind=both+recompute=full"
# in turns, where some layers have none: they exchange what the windows of the others reach
long="--seq-length 304 --batch 2"
moved() { "$stages/lf-pretrain" --config "$dir/run.ini" --plan --ranks 2 --context 2 --context-kind gather $long 2>"$dir/err" | sed -n 's/.*"context_bytes_per_step":\([0-9]*\)[.,}].*/\1/p'; }
use llama3 1000 2 "kv_heads = 2" "sliding_window = 9" "layer_mixers = wf*"
sed -i 's/^max_positions = .*/max_positions = 304/' "$dir/run.ini"
trial turns pretrain 2e-5 "$g2 4:context=4+context-kind=both" $long
some=$(moved)
sed -i '/^sliding_window/d; /^layer_mixers/d' "$dir/run.ini"
all=$(moved)
[ "${some:-0}" -gt 0 ] && [ "$some" -lt $((all * 8 / 10)) ]
ok $? "ranks with two runs of rows each send $some bytes in the place of $all" "$(cat "$dir/err")"
use mamba2 1000 2 "scan_heads = 8" "scan_key_dim = 16" "scan_value_dim = 16"
refused "--ranks 2 --context 2" "context = 2: layer 0 scans"

# --- other stages ---
use llama3 1000 2 "kv_heads = 2"
sed -i '/^\[model\]/,$d' "$dir/run.ini"
echo "init_from = $dir/rows.4:context=2+pipeline=2/out/checkpoint" >>"$dir/run.ini"
trial adapter sft 2e-5 "2:context=2 $g2" --lora-rank 4
# losses that compare whole texts, of which ranks have some rows each
must "$tool" labels "$dir/labels" 24 4
trial dpo dpo 2e-5 "2:context=2 $g2 4:context=2+context-kind=gather+pipeline=2+zero=1" --data "$dir/pairs" --valid-tokens 64
trial kto dpo 2e-5 "$g2" --data "$dir/labels" --loss kto --valid-tokens 64
trial rm rm 2e-5 "2:context=2 4:context=2+context-kind=gather+tensor=2+sequence-parallel" --data "$dir/pairs" --valid-tokens 64 --lr 5e-4
rm -rf "$dir/kill" "$dir/unbroken"
pretrain=$stages/lf-dpo
rank_killed 2 "" --data "$dir/pairs" --context 2 --context-kind gather --valid-tokens 64
finish 48

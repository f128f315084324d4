#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Optimizer state in bf16 through lf-pretrain: what it learns in 200 steps against f32 state, kill -9 and the same bits, types in
# checkpoints, a run that goes on with other types, --plan, settings that contradict each other.
. "$LF_SRCDIR/tests/stage/lib.sh"
pretrain=$LF_BUILDDIR/stages/lf-pretrain

run() { train "$pretrain" "$dir/run.ini" "$@"; } # run NAME ARGS...
types() { "$tool" types "$dir/$1/out/checkpoint" | tr '\n' ';'; }
# Mean loss of the last 50 steps; of A minus B it is within TOLERANCE.
last50() { "$tool" metrics "$dir/$1/metrics" | awk '$1 > 150 { s += $4; n++ } END { printf "%.4f", n == 50 ? s / n : 1e9 }'; }
within() { awk -v a="$(last50 "$1")" -v b="$(last50 "$2")" -v t="$3" 'BEGIN { exit !(a < 100 && b < 100 && a - b < t && b - a < t) }'; }
bytes() { sed -n 's/.*"bytes":{\([^}]*\)}.*/\1/p' "$dir/stdout" | tr ',' '\n' | sed -n "s/^\"$1\":\([0-9]*\).*/\1/p"; }

"$tool" data "$dir/data" 400 40 || bail "no test data"
cat >"$dir/run.ini" <<END
[stage]
data = $dir/data
precision = bf16
steps = 200
mfu = no
seq_length = 64
batch = 4
micro_batch = 4
lr = 5e-3
beta2 = 0.99
warmup = 4
save_time = 0
valid_interval = 0
log_interval = 100
seed = 5
threads = 1
[model]
family = llama3
layers = 1
hidden = 48
heads = 4
kv_heads = 2
ffn = 96
vocab = 64
max_positions = 64
END

# What is learned. Two seeds of f32 state are 0.03 apart, state in bf16 and in f32 less than a sixth of that.
run base
is $rc 0 "f32 state: $(last50 base)"
run seed --seed 6
run m --moments bf16
within m base 0.005
ok $? "moments in bf16: $(last50 m), another seed of f32 $(last50 seed)"
run mw --moments bf16 --masters bf16
within mw base 0.005
ok $? "weights in bf16 too: $(last50 mw)"
run slow --lr 2e-5 --min-lr 2e-5
run slowmw --lr 2e-5 --min-lr 2e-5 --moments bf16 --masters bf16
run slownear --lr 2e-5 --min-lr 2e-5 --moments bf16 --masters bf16 --no-stochastic-rounding
within slowmw slow 0.005
ok $? "with steps far below half a unit of a weight: f32 $(last50 slow), at random $(last50 slowmw)"
within slownear slow 0.03
[ $? -ne 0 ]
ok $? "and to nearest they are lost: $(last50 slownear)"

# what is kept
is "$(types base)" "weight 1d f32 3;weight 2d f32 9;adam_m 1d f32 3;adam_m 2d f32 9;adam_v 1d f32 3;adam_v 2d f32 9;" "f32 checkpoints"
is "$(types mw)" "weight 1d f32 3;weight 2d bf16 9;adam_m 1d bf16 3;adam_m 2d bf16 9;adam_v 1d bf16 3;adam_v 2d bf16 9;" "bf16 ones"
run plan --plan
wide="$(bytes params) $(bytes optimizer) $(bytes host)"
run plan --plan --moments bf16 --masters bf16
echo "$wide $(bytes params) $(bytes optimizer) $(bytes host)" | awk '{ exit !(NF == 6 && $4 < 0.36 * $1 && $4 > 0.3 * $1 && $5 < 0.51 * $2 && $5 > 0.49 * $2 && $6 < $3) }'
ok $? "--plan: weights take a third, moments half: $wide, then $(bytes params) $(bytes optimizer) $(bytes host)"
run next --init-from "$dir/mw/out/checkpoint" --steps 1 --warmup 0
is $rc 0 "bf16 weights are weights to begin with"

# exactly the same again
state="--moments bf16 --masters bf16 --steps 24 --save-interval 3"
# shellcheck disable=SC2086
run whole $state
mkdir -p "$dir/kill"
# shellcheck disable=SC2086
cut_at kill 1 "*/kill/out/checkpoints/step-00000009*" "test -e $dir/kill/out/checkpoints/step-00000006" \
    "$pretrain" --config "$dir/run.ini" --out "$dir/kill/out" --metrics "$dir/kill/metrics" $state
[ ! -e "$dir/kill/out/checkpoint" ]
ok $? "kill -9 after the sixth step"
# shellcheck disable=SC2086
run kill $state
is "$(id kill)" "$(id whole)" "goes on to the same checkpoint"
says "continuing bitwise" "and says so"
# shellcheck disable=SC2086
run threads $state --threads 2
is "$(id threads)" "$(id whole)" "so do two threads"
run wide --steps 30 --resume-from "$dir/whole/out"
is $rc 0 "a run goes on with f32 state"
says_like 'perhaps not bitwise: .*optimizer_state was "bf16 moments, bf16 masters, stochastic", is "f32"' "and it says what changed"
is "$(types wide)" "$(types base)" "and keeps that"
run narrow --steps 36 --resume-from "$dir/wide/out" --moments bf16
is $rc 0 "and back with moments in bf16"
"$tool" metrics "$dir/narrow/metrics" | awk '{ if ($4 > 4.2) bad = 1 } END { exit bad || NR != 6 }'
ok $? "still having what it learned"

# contradictions
run refused --precision f32 --masters bf16
is $rc 2 "masters = bf16 with precision = f32 is refused"
says "needs precision = bf16" "and it says what it needs"
finish 20

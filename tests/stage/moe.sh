#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Training a mixture of experts with lf-pretrain: it learns, says how it is balanced, has the same bits with other threads,
# recomputation and after a stop (the bias that balances is in the checkpoint), and ranks count together.
. "$LF_SRCDIR/tests/stage/lib.sh"
pretrain=$LF_BUILDDIR/stages/lf-pretrain
with_ranks

run() { train "$prefix $pretrain" "$dir/run.ini" "$@"; } # run NAME ARGS...
# field NAME KEY: of the last record
field() { tr '{' '\n' <"$dir/$1/metrics" | sed -n 's/.*"'"$2"'":\([-0-9.e+]*\).*/\1/p' | tail -n 1; }
prefix=

"$tool" data "$dir/data" 400 40 || bail "no test data"
cat >"$dir/run.ini" <<END
[stage]
data = $dir/data
steps = 10
mfu = no
seq_length = 64
batch = 8
micro_batch = 4
lr = 5e-3
warmup = 2
save_interval = 5
keep = 9
save_time = 0
log_interval = 8
seed = 5
threads = 1
[model]
family = qwen2-moe
layers = 3
hidden = 32
heads = 4
kv_heads = 2
ffn = 64
layer_mlps = d,m*
experts = 8
experts_per_token = 2
expert_ffn = 32
shared_ffn = 32
router_bias = yes
router_bias_rate = 0.01
router_aux = 0.01
vocab = 64
max_positions = 64
END

run plan --plan
grep -q '"parameters":' "$dir/stdout"
ok $? "--plan knows experts"
run base
is $rc 0 "a run to the end"
metrics base | awk 'NR == 1 { a = $4 } { b = $4 } END { exit !(NR == 10 && a > 4 && a < 4.4 && b < a - 0.15) }'
ok $? "it learns"
for key in router_aux router_entropy router_load; do
    [ -n "$(field base $key)" ]
    ok $? "the metrics hold $key: $(field base $key)"
done
awk -v a="$(field base router_aux)" -v h="$(field base router_entropy)" -v l="$(field base router_load)" \
    'BEGIN { exit !(a >= 1.9 && a < 4 && h > 1 && h < 2.08 && l >= 1 && l < 4) }'
ok $? "and they are what nearly even routing gives: 2, ln 8 = 2.08, 1"
base=$(id base)
run threads --threads 2 --recompute full
is "$(id threads)" "$base" "two threads and full recomputation give the same bits"
mkdir -p "$dir/stop/out/checkpoints"
cp -R "$dir/base/out/checkpoints/step-00000005" "$dir/stop/out/checkpoints"
run stop
is "$rc $(id stop)" "0 $base" "and so does a run that goes on from step 5"
sed 's/^router_bias_rate = .*/router_bias_rate = 0/' "$dir/run.ini" >"$dir/held.ini"
mv "$dir/run.ini" "$dir/moved.ini" && cp "$dir/held.ini" "$dir/run.ini"
run held --steps 10
[ "$(id held)" != "$base" ]
ok $? "a bias that is held gives others: the rule did something"
mv "$dir/moved.ini" "$dir/run.ini"
mkdir -p "$dir/other/out/checkpoints"
cp -R "$dir/base/out/checkpoints/step-00000005" "$dir/other/out/checkpoints"
sed 's/^experts = 8/experts = 4/' "$dir/run.ini" >"$dir/held.ini" && cp "$dir/held.ini" "$dir/other.ini"
"$pretrain" --config "$dir/other.ini" --out "$dir/other/out" 2>"$dir/err"
[ $? -eq 1 ] && grep -q 'experts differs' "$dir/err"
ok $? "a checkpoint with other experts is refused by name"

if ! have_ranks; then
    skip_some 1 "ranks cannot be started here: $(tail -n 1 "$dir/err")"
else
    prefix="$launch 2 --"
    run ranks
    is $rc 0 "two ranks"
    metrics base >"$dir/a"
    metrics ranks | paste "$dir/a" - | awk '{ h = NF / 2; d = $4 - $(4 + h); if (NR <= 5 && (d > 1e-4 || d < -1e-4)) bad = 1 } END { exit bad || NR != 10 }'
    ok $? "have the losses of one: loads are counted over both"
    awk -v a="$(field base router_aux)" -v b="$(field ranks router_aux)" 'BEGIN { d = a - b; exit !(d < 0.02 && d > -0.02) }'
    ok $? "and its balance: $(field base router_aux), $(field ranks router_aux)"
fi
finish_min 12 # two fewer where ranks cannot be started

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Averages of weights over steps (ema) through lf-pretrain: they are what the formula says of the weights of every step and change no
# weight; kill -9, threads, ranks that divide them and other micro-batches give the same bits; lf-eval, lf-generate and lf-convert take
# them; what is wrong is refused.
. "$LF_SRCDIR/tests/stage/lib.sh"
with_ranks

run() { train "$pretrain" "$dir/run.ini" "$@"; } # run NAME ARGS...
types() { "$tool" types "$dir/$1/out/checkpoint" | tr '\n' ';'; }
kinds() { "$tool" kinds "$dir/$1" "$2" "$dir/$3" "$4" 2>&1; }
# near_formula NAME ARGS... WHAT [TENSORS]: within the rounding of f32 over a few steps
near_formula() {
    _said=$("$tool" average "$dir/$1/out" "$2" "$3" "$4" "$5" 2>&1)
    echo "$_said" | awk -v n="${7:-12}" '{ exit !(NF == 3 && $1 < 3e-7 && $3 == n) }'
    ok $? "$6: within $_said tensors"
}
bytes() { sed -n 's/.*"bytes":{\([^}]*\)}.*/\1/p' "$dir/stdout" | tr ',' '\n' | sed -n "s/^\"$1\":\([0-9]*\).*/\1/p"; }

"$tool" data "$dir/data" 60 10 || bail "no test data"
cat >"$dir/run.ini" <<END
[stage]
data = $dir/data
precision = bf16
steps = 8
mfu = no
seq_length = 32
batch = 4
micro_batch = 2
lr = 5e-3
warmup = 2
save_interval = 1
save_time = 0
keep = 100
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

run none
is $rc 0 "without averages"
run base --ema 0.7
is $rc 0 "with them"
is "$(kinds base/out/checkpoint weight none/out/checkpoint weight)" "0 of 12" "the same weights"
is "$(kinds base/out/checkpoint weight base/out/checkpoint ema)" "12 of 12" "and the averages are others"
near_formula base 7 0.7 0 0 "the formula"
case $("$tool" average "$dir/base/out" 7 0.69 0 0) in 0*e-0[1-4]*|[1-9]*e-0[1-4]*|0.0*) true ;; *) false ;; esac
ok $? "another decay is noticed"
run start --ema 0.7 --ema-start 3
near_formula start 7 0.7 3 0 "from step 3 on"
is "$(kinds start/out/checkpoints/step-00000003 weight start/out/checkpoints/step-00000003 ema)" "0 of 12" "until then they are the weights"
run ramp --ema 0.9 --ema-warmup
near_formula ramp 7 0.9 0 1 "a decay that rises"
is "$(types base)" "weight 1d f32 3;weight 2d f32 9;adam_m 1d f32 3;adam_m 2d f32 9;adam_v 1d f32 3;adam_v 2d f32 9;ema 1d f32 3;ema 2d f32 9;" \
    "checkpoints have them"
run frozen --ema 0.7 --freeze 'layers.*.mlp.*'
is "$(types frozen | tr ';' '\n' | grep ema | tr '\n' ';')" "ema 1d f32 3;ema 2d f32 6;" "what is frozen has none"
run narrow --ema 0.7 --moments bf16 --masters bf16
is "$(types narrow | tr ';' '\n' | grep ema | tr '\n' ';')" "ema 1d f32 3;ema 2d f32 9;" "of weights in bf16 they are f32"
run plan --plan
moments=$(bytes optimizer)
run plan --plan --ema 0.7
is $(($(bytes optimizer) * 2)) $((moments * 3)) "--plan: half as much again as the moments"

# --- the same bits ---
run threads --ema 0.7 --threads 2
is "$(id threads)" "$(id base)" "two threads, the same checkpoint"
mkdir -p "$dir/kill"
cut_at kill 1 "*/kill/out/checkpoints/step-00000005*" "test -e $dir/kill/out/checkpoints/step-00000003" \
    "$pretrain" --config "$dir/run.ini" --out "$dir/kill/out" --metrics "$dir/kill/metrics" --ema 0.7
[ ! -e "$dir/kill/out/checkpoint" ]
ok $? "kill -9 after some steps"
run kill --ema 0.7
is "$(id kill)" "$(id base)" "goes on to the same checkpoint"
if have_ranks; then
    on 2 two --ema 0.7
    near_formula two 7 0.7 0 0 "two ranks"
    for z in 1 2 3; do
        on 2 "zero$z" --ema 0.7 --zero $z
        is "$(id "zero$z")" "$(id two)" "zero = $z: the same checkpoint"
    done
    for f in two zero3; do run "from-$f" --ema 0.7 --steps 9 --resume-from "$dir/$f/out"; done
    is "$rc $(id from-zero3)" "0 $(id from-two)" "one rank goes on from what ranks wrote in parts as from what one wrote"
    on 2 tensor --ema 0.7 --tensor 2
    near_formula tensor 7 0.7 0 0 "matrices that ranks divide"
    sed 's/^layers = 1/layers = 2/' "$dir/run.ini" >"$dir/deep.ini"
    train "$pretrain" "$dir/deep.ini" deep --ema 0.7 --clip 0
    train "$launch 2 -- $pretrain" "$dir/deep.ini" pipeline --ema 0.7 --clip 0 --pipeline 2
    near_formula pipeline 7 0.7 0 0 "layers that ranks divide" 21
    is "$(id pipeline)" "$(id deep)" "which are the bits of one rank"
else
    skip "two ranks" "ranks cannot be started here"
    for z in 1 2 3; do skip "zero = $z" "ranks cannot be started here"; done
    skip "a checkpoint that ranks wrote" "ranks cannot be started here"
    skip "matrices that ranks divide" "ranks cannot be started here"
    skip_some 2 "ranks cannot be started here"
fi

# --- who takes them ---
must "$stages/lf-convert" --from "$dir/base/out/checkpoint" --weights ema --out "$dir/hf"
must "$stages/lf-convert" --from "$dir/hf/model" --verify none --out "$dir/back"
is "$(kinds base/out/checkpoint ema back/checkpoint weight)" "0 of 12" "lf-convert writes them"
evaluate() { "$stages/lf-eval" --data "$dir/data" --threads 1 --out "$dir/eval-$1" --checkpoint "$2" --weights "$3" 2>"$dir/err" >"$dir/stdout"; }
told() { sed 's/.*"ll":\([^,}]*\).*/\1/' "$dir/eval-$1/results/samples.jsonl" | awk '{ s += $1 } END { printf "%.9g", s }'; }
evaluate ema "$dir/base/out/checkpoint" ema
evaluate back "$dir/back/checkpoint" trained
evaluate plain "$dir/base/out/checkpoint" trained
awk -v a="$(told ema)" 'BEGIN { exit !(a < -1) }' && [ "$(told ema)" = "$(told back)" ] && [ "$(told ema)" != "$(told plain)" ]
ok $? "lf-eval measures them: $(told ema), and not $(told plain)"

# --- refused ---
evaluate none "$dir/none/out/checkpoint" ema
is $? 1 "averages of a checkpoint without some"
says "holds no averages of weights (ema)" "which says so"
run ended --steps 9 --resume-from "$dir/base/out"
says "has averages of the weights (ema = 0.7), which end here: this run has no ema" "a run that goes on without ema says that the averages end"
run other --ema 0.5 --steps 9 --resume-from "$dir/base/out"
says "ema was 0.7 in " "one with another decay says that, too"
run late --ema 0.7 --steps 9 --resume-from "$dir/none/out"
is $rc 1 "a run that had none does not go on with some"
says "was saved by a run without ema" "and says why"
run later --ema-start 3
is $rc 2 "a start of no averages"
says "ema_start belongs to ema" "is refused"
sed '/^\[model\]/,$d; /^precision/d; /^valid_interval/d' "$dir/run.ini" >"$dir/sft.ini"
train "$stages/lf-sft" "$dir/sft.ini" low --ema 0.7 --lora-rank 4 --init-from "$dir/none/out/checkpoint"
says "ema averages all weights of a model; with an adapter (lora_rank) leave it out" "an adapter has none, and the run says so"
finish 35

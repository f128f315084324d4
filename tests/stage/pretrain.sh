#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# lf-pretrain as a user or the flow runs it: options and exit codes, learning, exact resume after kill -9, SIGTERM and a
# stop file, divergence, damaged and missing checkpoints, equality under micro-batches and recomputation, bf16.
. "$LF_SRCDIR/tests/stage/lib.sh"
pretrain=$LF_BUILDDIR/stages/lf-pretrain
ini=$dir/run.ini

# check "WORDS" CONDITION: awk on one line; its status is left in $?. No words: no.
check() { printf '%s\n' "$1" | awk "{ exit !($2) }"; }
run() { train "$pretrain" "$ini" "$@"; } # run NAME ARGS...
column() { metrics "$1" | awk -v c="$2" -v s="$3" '$1 == s { print $c }'; }

"$tool" data "$dir/data" 400 40 || bail "no test data"
cat >"$dir/run.ini" <<END
[stage]
data = $dir/data
steps = 36
mfu = no
seq_length = 64
batch = 8
micro_batch = 4
lr = 5e-3
warmup = 4
save_interval = 3
keep = 3
save_time = 0
valid_interval = 12
log_interval = 12
seed = 5
threads = 1
[model]
family = llama3
layers = 2
hidden = 48
heads = 4
kv_heads = 2
ffn = 96
vocab = 64
max_positions = 64
END

# options and exit codes
run usage --stepz 3
is $rc 2 "an unknown option is a usage error"
says "steps" "and names the nearest one"
run usage --tokens 100k
is $rc 2 "steps and tokens together are refused"
run usage --batch 6
is $rc 2 "a batch that is no multiple of micro_batch is refused"
run usage --seq-length 128
is $rc 2 "a sequence longer than max_positions is refused"
says "max_positions" "and says which key"
run usage --schedule wsd
is $rc 2 "wsd without decay is refused"
run missing --data "$dir/nowhere"
is $rc 1 "missing data is a failure"
says "nowhere" "that names it"
run missing --init-from "$dir/nowhere/checkpoint"
is $rc 1 "a missing checkpoint in init_from is a failure"
says "nowhere/checkpoint" "that names it"
run missing --resume-from "$dir/nowhere/out"
is $rc 1 "a missing directory in resume_from is a failure"
sed 's/^heads = 4/heads = 5/' "$dir/run.ini" >"$dir/bad.ini"
"$pretrain" --config "$dir/bad.ini" --out "$dir/x" 2>"$dir/err"
is $? 2 "a contradictory model is a usage error"
grep -q 'bad.ini:[0-9]*:[0-9]*: \[model\] heads' "$dir/err"
ok $? "with file, line and key"
run plan --plan
is $rc 0 "--plan"
grep -q '"parameters":' "$dir/stdout" && grep -q '"flops_per_step":' "$dir/stdout" && grep -q '"total":' "$dir/stdout"
ok $? "prints parameters, bytes and FLOPs"
planned=$(sed -n 's/.*"total": *\([0-9.]*\).*/\1/p' "$dir/stdout" | awk '{ printf "%.1f MiB", $1 / 1048576 }')
! grep -q measured_flops "$dir/stdout" && run plan --plan --measure && grep -q '"measured_flops": *[1-9]' "$dir/stdout"
ok $? "with --measure the FLOP/s to expect too"
[ ! -e "$dir/plan/out" ]
ok $? "and writes nothing"
sed 's/^heads = .*/&\nhead_dim = 258/' "$dir/run.ini" >"$dir/wide.ini"
"$pretrain" --config "$dir/wide.ini" --plan --device cuda --out "$dir/x" >"$dir/stdout" 2>"$dir/err"
says "[model] head_dim: heads of layer 0 have 258 channels, and attention on sm_" "heads that no GPU takes are named"

sed '/^vocab/d; /^steps/d' "$dir/run.ini" >"$dir/epoch.ini"
ini=$dir/epoch.ini
run plan --plan --epochs 2
ini=$dir/run.ini
grep -q '"parameters":47856,' "$dir/stdout" && grep -q '"steps":[1-9]' "$dir/stdout"
ok $? "vocabulary and length of an epoch come from the manifest of the data"

# learning
run base
is $rc 0 "a run to the end"
grep -q "planned memory $planned: weights " "$dir/err" && grep -q "resident memory .* planned memory $planned\$" "$dir/err"
ok $? "its planned memory is the total of --plan: $planned"
! grep -q "higher than at the start" "$dir/err"
ok $? "that learned does not say that it got worse"
is "$(metrics base | wc -l | tr -d ' ')" 36 "has one record per step"
column base 4 1 >"$dir/first"
column base 4 36 >"$dir/last"
check "$(cat "$dir/first" "$dir/last" | tr '\n' ' ')" 'NF == 2 && $1 > 4.0 && $1 < 4.4 && $2 < $1 - 0.6'
ok $? "the first loss is near ln 64 = 4.16 and it falls: $(cat "$dir/first") to $(cat "$dir/last")"
is "$(metrics base | awk '$5 != "-" { printf "%s ", $1 }')" "12 24 36 " "validated at the interval and at the end"
is "$(ls "$dir/base/out/checkpoints" | tr '\n' ' ')" "step-00000027 step-00000030 step-00000033 " "retention keeps three"
run worse --steps 8 --lr 3 --warmup 0 --clip 0 --valid-interval 0
is $rc 0 "a short run with a learning rate far too high ends"
says "warning: the loss is higher than at the start" "and says that it got worse"
base=$(id base)
basemetrics=$(metrics base)
run base
is $rc 0 "the same run again has nothing to do"
is "$(id base)" "$base" "and leaves the checkpoint alone"
run again
is "$(id again)" "$base" "a second run gives the same bits"
run threads --threads 2
is "$(id threads)" "$base" "so do two threads"
run recompute --recompute full
is "$(id recompute)" "$base" "so does full recomputation"
run sync --no-save-async
is "$(id sync)" "$base" "so does saving without a background writer"

# loss scaling: a power of two changes no bit where nothing overflows, and what overflows is made again
run scaled --loss-scale 1024
is "$(id scaled)" "$base" "a fixed scale of the loss gives the same bits"
sed 's/^family.*/&\ninit_std = 4/' "$dir/run.ini" >"$dir/steep.ini" # steep, and no clipping: its factor / 2^126 would be subnormal
ini=$dir/steep.ini
big="--clip 0 --loss-scale 0 --loss-scale-start 8.51e37 --loss-scale-window 5" # 2^126
run steep --clip 0
# shellcheck disable=SC2086
run scaled2 $big
is $rc 0 "a scale that is found while training"
is "$(id scaled2)" "$(id steep)" "gives the same bits though steps overflowed"
scales() { grep -ao '"loss_scale":[^,]*,"overflows":[^,]*' "$dir/$1/metrics" | sed 's/"loss_scale"://; s/,"overflows":/ /'; }
check "$(scales scaled2 | sed -n 1p)" 'NF == 2 && $1 > 1 && $1 < 8.5e37 && $2 > 0'
ok $? "the first step was made again with less: $(scales scaled2 | sed -n 1p)"
check "$(scales scaled2 | awk 'NR > 1 && $1 == 2 * last { n++ } { last = $1 } END { print NR, n }')" '$1 == 36 && $2 >= 2'
ok $? "after five steps in a row it is doubled"
# shellcheck disable=SC2086
mkdir -p "$dir/scaled3"
cut_at kill 1 "*/scaled3/out/checkpoints/step-00000008*" "test -e $dir/scaled3/out/checkpoints/step-00000007" \
    "$pretrain" --config "$ini" --out "$dir/scaled3/out" --metrics "$dir/scaled3/metrics" $big --save-interval 1
is $rc 137 "killed behind the seventh step"
# shellcheck disable=SC2086
run scaled3 $big
is "$(id scaled3) $(scales scaled3)" "$(id steep) $(scales scaled2)" "killed and resumed, too, with the same course of the scale"
run overflow --clip 0 --loss-scale 8e37
is $rc 1 "a fixed scale that overflows stops the run"
says "the gradient is not finite" "and says so"
ini=$dir/run.ini

# kill -9, always into the same directory
mkdir -p "$dir/kill"
killed_often 10 "$dir/kill/metrics" "$(bytes "$dir/base/metrics")" \
    "$pretrain" --config "$dir/run.ini" --out "$dir/kill/out" --metrics "$dir/kill/metrics"
run kill
is "$rc $often" "0 1" "after $kills kills -9 the run ends"
is "$(id kill)" "$base" "with the same checkpoint"
is "$(metrics kill)" "$basemetrics" "and the same metrics"

# SIGTERM and a chain of starts
mkdir -p "$dir/term1"
five() { [ "$("$tool" metrics "$dir/term1/metrics" 2>/dev/null | wc -l)" -ge 5 ]; }
cut_at term 5 "pwrite */term1/metrics" five \
    "$pretrain" --config "$dir/run.ini" --out "$dir/term1/out" --metrics "$dir/term1/metrics" --save-interval 0
is $rc 75 "SIGTERM: exit 75"
stopped=$(ls "$dir/term1/out/checkpoints")
[ -n "$stopped" ] && [ ! -e "$dir/term1/out/checkpoint" ]
ok $? "with a checkpoint at $stopped"
run term2 --resume-from "$dir/term1/out"
is $rc 0 "resumed in a new start"
is "$(id term2)" "$base" "with the same checkpoint in the end"
says "continuing bitwise" "and it says that it is bitwise"
head -c 60 "$dir/term2/metrics" | grep -aq "{\"step\":$(echo "${stopped##*step-}" | sed 's/^0*//'),\"resumed\":true}"
ok $? "whose metrics begin with where it resumed"
is "$( (metrics term1; metrics term2) | sort -n)" "$(metrics base | sort -n)" "the two metric streams together are the one"
touch "$dir/stop-now"
run stop --stop-file "$dir/stop-now"
is $rc 75 "a stop file: exit 75"

# damage
cp -r "$dir/term1" "$dir/damage"
file=$(ls "$dir/damage/out/checkpoints/$stopped"/data-*.h5)
size=$(wc -c <"$file")
printf '\377' | dd of="$file" bs=1 seek=$((size / 2)) conv=notrunc 2>/dev/null
run damage
is $rc 0 "a checkpoint with a flipped byte is passed over"
says "passing over" "with a warning"
is "$(id damage)" "$base" "and the run ends the same"
cp -r "$dir/term1" "$dir/short"
file=$(ls "$dir/short/out/checkpoints/$stopped"/data-*.h5)
head -c 1000 "$file" >"$dir/cut" && cp "$dir/cut" "$file"
run short --save-interval 1
is $rc 0 "a checkpoint that was cut short is set aside, so that a good one can take its place"
is "$(id short)" "$base" "and the run ends the same"
file=$(ls "$dir/short/out/checkpoint"/data-*.h5)
printf '\377' | dd of="$file" bs=1 seek=$(($(wc -c <"$file") / 2)) conv=notrunc 2>/dev/null
run short --save-interval 1
is "$rc $(id short) $(ls -d "$dir/short/out/checkpoint.broken")" "0 $base $dir/short/out/checkpoint.broken" \
    "a final checkpoint with a flipped byte is set aside and made again"
mkdir "$dir/twin"
cp -r "$dir/term1/out" "$dir/twin/out"
file=$(ls "$dir/twin/out/checkpoints/$stopped"/data-*.h5)
printf '\377' | dd of="$file" bs=1 seek=$((size / 2)) conv=notrunc 2>/dev/null
run twin --resume-from "$dir/term1/out"
says "continuing bitwise from $dir/term1/out/checkpoints/$stopped" "where it is damaged, the same step of an earlier start is taken"
is "$rc $(id twin)" "0 $base" "and the run ends the same"
run init --init-from "$dir/base/out/checkpoint" --steps 2 --warmup 0 --save-interval 0
is $rc 0 "init_from takes the weights"
check "$(cat "$dir/last") $(column init 4 1)" 'NF == 2 && $2 < $1 + 0.4'
ok $? "and begins near the loss they had: $(column init 4 1)"
run order --seed 6 --resume-from "$dir/term1/out"
is $rc 1 "another seed cannot continue"
says "another order of data" "and says why"
sed 's/^ffn = 96/ffn = 80/' "$dir/run.ini" >"$dir/other.ini"
"$pretrain" --config "$dir/other.ini" --out "$dir/other/out" --resume-from "$dir/term1/out" 2>"$dir/err"
is $? 1 "another model cannot continue"
says "ffn differs" "and names the key"

ini=$dir/other.ini
run base
ini=$dir/run.ini
is $rc 1 "another model in an out that is finished is refused"
says "ffn differs" "and names the key"
run base --seed 6
is $rc 1 "so is another order of data"
says "made with other options (seed was 5, is 6)" "by name"
run base --lr 4e-3
is $rc 1 "and another learning rate"
says_like "made with other options (lr was [0-9.e-]*, is 0.004); use another out" "by name"
run base --save-interval 7
is "$rc $(id base)" "0 $base" "but not what changes no result"
run batch --batch 4 --resume-from "$dir/term1/out"
is $rc 0 "another batch goes on where its steps begin"
says_like "perhaps not bitwise: .*batch was .*0, 8.*, is .*0, 4" "and is not called bitwise"
"$tool" state "$dir/batch/out/checkpoint" | grep -q '"history":\[{[^]]*"bitwise":false[^]]*batch was'
ok $? "the checkpoint's history says so"
cp -r "$dir/data" "$dir/flipped"
file=$(ls "$dir"/flipped/train-*.h5 | head -n 1)
printf '\377' | dd of="$file" bs=1 seek=$(($(wc -c <"$file") - 100)) conv=notrunc 2>/dev/null
run flipped --data "$dir/flipped"
is $rc 1 "data with a flipped byte is refused before the first step"
says "$(basename "$file")" "by the name of the file"
run rate --lr 4e-3 --resume-from "$dir/term1/out"
says "perhaps not bitwise: schedule peak" "another learning rate is not called bitwise"
run usage --steps 1T --batch 1G
is $rc 2 "a run whose tokens nobody could count is refused"
"$pretrain" --config "$dir/run.ini" 2>"$dir/err"
is $? 2 "out is needed"
run settings --threads 3 --resume-from "$dir/term1/out"
is $rc 0 "other settings of computation go on"
says_like "perhaps not bitwise: .*threads was 1, is 3" "and it is said what differs"
mkdir -p "$dir/older/checkpoints"
must "$tool" older "$dir/term1/out/checkpoints/$stopped" "$dir/older/checkpoints/$stopped"
run updated --resume-from "$dir/older"
is $rc 0 "a checkpoint of kernels of the version before goes on"
says_like 'perhaps not bitwise: kernel_version was [0-9]*, is [0-9]*$' "it is said that bits may be others, for that reason alone"
mkdir -p "$dir/full"
(
    ulimit -f 300 # blocks of 512 or 1024 bytes: less than a checkpoint, more than the metrics
    exec "$pretrain" --config "$dir/run.ini" --out "$dir/full/out" --metrics "$dir/full/metrics" 2>"$dir/err"
)
is $? 1 "a file that cannot grow, as on a full disk, fails the run"
says "checkpoint" "and names what could not be written"
run full
is $rc 0 "with room again it goes on"
is "$(id full)" "$base" "to the same checkpoint"
is "$(metrics full)" "$basemetrics" "and the same metrics"

# divergence
"$tool" poison "$dir/base/out/checkpoint" "$dir/poisoned"
run nan --init-from "$dir/poisoned"
is $rc 1 "a weight that is no number stops the run"
says "diverged at step 1: the loss is not finite" "and says so"
[ -f "$dir/nan/out/diverged/manifest.json" ]
ok $? "the weights before the step are kept"
"$tool" state "$dir/nan/out/diverged" | grep -q '"micro_batches":\[{"cu_seqlens"'
ok $? "with the batch"
run nan --init-from "$dir/poisoned"
says "diverged at step 1" "started again it says the same"
run spike --lr 2 --warmup 0 --clip 0 --spike-after 2 --spike-factor 1.5
is $rc 1 "a loss that leaves its mean stops the run"
says "the loss left its running mean" "and says so"
batch=$(sed -n 's/.*skip_batches = \([0-9]*\).*/\1/p' "$dir/err")
run skip --skip-batches 3
is $rc 0 "skip_batches passes over a batch (a diverged run named $batch)"
[ "$(column skip 4 3)" = "$(column base 4 3)" ] && [ "$(column skip 4 4)" != "$(column base 4 4)" ]
ok $? "and trains on the next one instead"

# other ways of the same step
run micro --micro-batch 8 --steps 3 --warmup 0 --save-interval 0 --valid-interval 0
run accum --micro-batch 1 --steps 3 --warmup 0 --save-interval 0 --valid-interval 0
check "$(column micro 4 3) $(column accum 4 3)" 'NF == 2 && ($1 - $2) / $1 < 1e-6 && ($2 - $1) / $1 < 1e-6'
ok $? "one micro-batch or eight: the same loss within 1e-6 ($(column micro 4 3), $(column accum 4 3))"
sed 's/^layers = 2/layers = 2\nattn_prob_dropout = 0.3/' "$dir/run.ini" >"$dir/drop.ini"
ini=$dir/drop.ini
run dropmicro --micro-batch 8 --steps 3 --warmup 0 --save-interval 0
run dropaccum --micro-batch 1 --steps 3 --warmup 0 --save-interval 0 --recompute full
check "$(column dropmicro 4 3) $(column dropaccum 4 3)" 'NF == 2 && ($1 - $2) / $1 < 1e-6 && ($2 - $1) / $1 < 1e-6'
ok $? "dropout of attention probabilities: decided by sample and position, whatever the micro-batch ($(column dropmicro 4 3))"
check "$(column dropmicro 4 1) $(column micro 4 1)" 'NF == 2 && ($1 - $2 > 1e-5 || $2 - $1 > 1e-5)'
ok $? "and it is there: $(column dropmicro 4 1), without $(column micro 4 1)"
ini=$dir/run.ini
sed '/^batch =/d' "$dir/run.ini" >"$dir/ramp.ini"
ini=$dir/ramp.ini
run ramp --batch-ramp 4@0 --batch-ramp 8@16 --steps 8 --save-interval 0
ini=$dir/run.ini
is "$(metrics ramp | awk '{ printf "%s ", $2 }')" "4 8 12 16 24 32 40 48 " "a batch ramp"
run bf16 --precision bf16
is $rc 0 "bf16 runs"
check "$(column bf16 4 36) $(cat "$dir/last")" 'NF == 2 && $1 - $2 < 0.1 && $2 - $1 < 0.1'
ok $? "and learns as f32 does: $(column bf16 4 36)"

# samples in Megatron's order
mega="--sample-order megatron --warmup 0 --save-interval 2 --valid-interval 0"
run mega $mega --megatron-split 9,1 --steps 6
is $rc 0 "sample_order = megatron runs"
cp -r "$dir/mega" "$dir/mega1" && rm -r "$dir/mega1/out/checkpoint" "$dir/mega1/out/checkpoints/step-00000006"
cp -r "$dir/mega1" "$dir/mega2"
run mega1 $mega --megatron-split 9,1 --steps 6
says "continuing bitwise" "it goes on from a checkpoint"
is "$(id mega1)" "$(id mega)" "with the same checkpoint in the end"
run mega2 $mega --megatron-split 9,1 --steps 7
is $rc 1 "another length is another order, as in Megatron"
says "another order of data" "and it says so"
run mega4 $mega --megatron-split 9,1 --megatron-samples 48 --steps 2
is "$(column mega4 4 1)" "$(column mega 4 1)" "unless megatron_samples is given"
run mega5 $mega --megatron-split 1,99 --megatron-samples 8 --steps 6
is $rc 1 "a run longer than the order is refused"
says "raise megatron_samples" "and says how"
run mega6 --megatron-seed 3
is $rc 2 "Megatron's keys belong to sample_order = megatron"
run mega6 $mega --steps 6 --packing bfd
is $rc 2 "and packing does not"

finish 118

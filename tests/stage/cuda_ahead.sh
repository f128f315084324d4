#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# lf-pretrain on the emulated GPU while results are read a step later: one wait in a step; steps that overflow, spike, are
# stopped, killed or saved in between end with the bits of a run that waits for each (--profile does).
. "$LF_SRCDIR/tests/stage/lib.sh"
pretrain=$LF_BUILDDIR/stages/lf-pretrain
emulated_gpu

run() { LF_EMU_REPORT=$dir/$1/calls train "$pretrain" "$dir/run.ini" "$@"; } # run NAME ARGS...
waits() { sed -n 's/.*"waits": \([0-9]*\).*/\1/p' "$dir/$1/calls"; }
scales() { grep -ao '"loss_scale":[^,]*,"overflows":[^,]*' "$dir/$1/metrics" | sed 's/"loss_scale"://; s/,"overflows":/ /' | tr '\n' ' '; }

"$tool" data "$dir/data" 60 40 || bail "no test data"
cat >"$dir/run.ini" <<END
[stage]
data = $dir/data
device = cuda
steps = 6
seq_length = 16
batch = 2
micro_batch = 1
valid_interval = 0
valid_tokens = 32
save_interval = 0
save_time = 0
lr = 5e-3
warmup = 1
seed = 5
threads = 1
[model]
family = llama3
layers = 1
hidden = 16
heads = 1
kv_heads = 1
ffn = 32
vocab = 64
max_positions = 16
END

run ahead
is $rc 0 "six steps, each read while the next one runs"
run now --profile
is $rc 0 "six steps, each waited for"
is "$(id ahead)" "$(id now)" "the same weights"
is "$(metrics ahead)" "$(metrics now)" "and metrics"
run longer --steps 12
is $(($(waits longer) - $(waits ahead))) 6 "one wait in a step: $(waits ahead) in a run of 6, $(waits longer) in one of 12"
LF_EMU_ORDER=7 run order
is "$(id order) $(metrics order)" "$(id now) $(metrics now)" "in another order of the emulator"

# What is due after a step waits for it.
run saves --save-interval 2 --valid-interval 3
run saves_now --save-interval 2 --valid-interval 3 --profile
is "$(id saves) $(metrics saves)" "$(id saves_now) $(metrics saves_now)" "with checkpoints and validation between"
is "$("$tool" id "$dir/saves/out/checkpoints/step-00000004")" "$("$tool" id "$dir/saves_now/out/checkpoints/step-00000004")" "those of a step hold its weights"

# A step that is not to be taken leaves no trace in the one that was begun already.
cp "$dir/run.ini" "$dir/plain.ini"
sed 's/^family.*/&\ninit_std = 4/' "$dir/plain.ini" >"$dir/run.ini"
big="--clip 0 --loss-scale 0 --loss-scale-start 8.51e37 --loss-scale-window 2" # 2^126
# shellcheck disable=SC2086
run scaled $big
is $rc 0 "steps that overflow are made again"
run steep --clip 0
is "$(id scaled)" "$(id steep)" "and give the bits of steps that did not"
# shellcheck disable=SC2086
run scaled_now $big --profile
is "$(scales scaled) $(metrics scaled)" "$(scales scaled_now) $(metrics scaled_now)" "the course of the scale, too: $(scales scaled)"
run fixed --clip 0 --loss-scale 8e37
is $rc 1 "a fixed scale that overflows stops the run"
says "the gradient is not finite" "and says so"
cp "$dir/plain.ini" "$dir/run.ini"

spike="--steps 12 --lr 2 --warmup 0 --clip 0 --spike-after 2 --spike-factor 1.1"
# shellcheck disable=SC2086
run spike $spike
is $rc 1 "a loss that leaves its mean stops the run"
grep -o 'diverged at step.*skip_batches = [0-9]*' "$dir/err" | sed "s,$dir/[a-z_]*,," >"$dir/spike.says"
# shellcheck disable=SC2086
run spike_now $spike --profile
grep -o 'diverged at step.*skip_batches = [0-9]*' "$dir/err" | sed "s,$dir/[a-z_]*,," >"$dir/spike_now.says"
grep -q "the loss left its running mean" "$dir/spike.says" && cmp -s "$dir/spike.says" "$dir/spike_now.says"
ok $? "with the same words: $(cat "$dir/spike.says")"
is "$("$tool" id "$dir/spike/out/diverged")" "$("$tool" id "$dir/spike_now/out/diverged")" "and the weights before it are kept"
is "$(metrics spike)" "$(metrics spike_now)" "the steps before it are told"
"$tool" poison "$dir/ahead/out/checkpoint" "$dir/poisoned"
run nan --init-from "$dir/poisoned"
says "diverged at step 1: the loss is not finite" "a weight that is no number stops the run"

# Killed and stopped while a step is under way.
for how in KILL TERM; do
    mkdir -p "$dir/$how"
    cut_at "$(echo $how | tr KILTERM kilterm)" 1 "*/$how/out/checkpoints/step-00000006*" "test -e $dir/$how/out/checkpoints/step-00000003" \
        "$pretrain" --config "$dir/run.ini" --out "$dir/$how/out" --metrics "$dir/$how/metrics" --steps 12 --save-interval 3
    is $rc "$([ $how = KILL ] && echo 137 || echo 75)" "SIG$how in the middle"
    run $how --steps 12 --save-interval 3
    is "$(id $how) $(metrics $how)" "$(id longer) $(metrics longer)" "and on to the same end"
done

# Samples between steps: one after which the model is asked lands first, and none of it shows in what is trained.
tune() { # tune NAME ARGS...
    _name=$1
    shift
    "$LF_BUILDDIR/stages/lf-sft" --data "$dir/data" --device cuda --init-from "$dir/ahead/out/checkpoint" --steps 4 --seq-length 16 --batch 2 --lr 5e-3 \
        --threads 1 --valid-tokens 32 --out "$dir/$_name/out" --metrics "$dir/$_name/metrics" "$@" 2>"$dir/err" >"$dir/stdout"
}
mkdir "$dir/dry" "$dir/sampled"
tune dry
is $? 0 "lf-sft runs ahead, too"
tune sampled --sample-interval 2 --sample-rows 2 --sample-tokens 3
is "$? $(cut -d, -f1 "$dir/sampled/samples.jsonl" | uniq | wc -l) $(grep -c '"token_ids":\[[0-9]' "$dir/sampled/samples.jsonl")" "0 2 4" "it samples now and then"
is "$(id sampled) $(metrics sampled)" "$(id dry) $(metrics dry)" "and trains the same bits"
finish 25

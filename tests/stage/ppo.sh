#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# lf-ppo as a user or the flow runs it: the generator's log-probabilities are the training graph's, runs that are killed in the middle of a
# rollout and of an epoch end with the same bits, rollouts are replayed, rewards of a hostile command, groups of equal rewards.
. "$LF_SRCDIR/tests/stage/lib.sh"
ppo=$LF_BUILDDIR/stages/lf-ppo
tool=$LF_BUILDDIR/tests/stage/infer_tool

differ() { [ -n "$1" ] && [ "$1" != "$2" ]; ok $? "$3"; }
# run NAME ARGS...: out below $dir/NAME, exit code in $rc
run() {
    _name=$1
    shift
    "$ppo" --config "$dir/base.ini" --out "$dir/$_name" --metrics "$dir/$_name.m" "$@" 2>"$dir/err" >"$dir/stdout"
    rc=$?
}
id() { grep -o '"identity":"[0-9a-f]*"' "$dir/$1/manifest.json"; }
# Records without what is measured in time.
records() { "$tool" record "$dir/$1.m" | sed 's/,"gen_s":.*//; s/,"train_s":.*//'; }
member() { "$tool" record "$dir/$1.m" | sed -n "$2"'p' | grep -o "\"$3\":[^,}]*" | sed 's/.*://'; } # member RUN LINE NAME

cat >"$dir/base.ini" <<INI
[stage]
data = $dir/prompts/shards
tokenizer = $dir/tok/tokenizer
init_from = $dir/ckpt
threads = 2
max_prompt = 16
max_tokens = 12
round_prompts = 8
samples = 4
rounds = 3
lr = 1e-3
minibatch = 8
round_epochs = 2
save_interval = 1
micro_tokens = 64
INI

# A tokenizer, prompts with answers, a model with hot random weights.
awk 'BEGIN { for (a = 0; a < 60; a++) for (b = 0; b < 9; b++) print a "+" b "=" a + b }' >"$dir/text.txt"
awk 'BEGIN { for (a = 0; a < 20; a++) printf "{\"prompt\":\"%d+%d=\",\"answer\":\"%d\"}\n", a, a % 7, a + a % 7 }' >"$dir/prompts.jsonl"
"$LF_BUILDDIR/stages/lf-tokenize" --doc-split=line --vocab-size=270 --out "$dir/tok" "$dir/text.txt" 2>"$dir/err" &&
    "$LF_BUILDDIR/stages/lf-tokenize" --shape=prompt --tokenizer "$dir/tok/tokenizer" --unmapped=ignore --out "$dir/prompts" "$dir/prompts.jsonl" 2>"$dir/err" &&
    "$tool" ckpt "$dir/ckpt" "$LF_SRCDIR/models/tiny-llama.ini" 270 || bail "no test model: $(tail -n 1 "$dir/err")"

# A reward that depends on the length of the request, which tells what it was asked, and does something else at one request.
cat >"$dir/reward.sh" <<'SH'
# reward.sh DIR: DIR/when holds "COUNT ACTION [FILE]"; late-kill waits for FILE, the round as it is stored before its epochs
dir=$1
count=0 # of those before this command, too; thousands follow, so the shell does all itself
[ ! -e "$dir/asked" ] || count=$(wc -l <"$dir/asked")
while read -r line; do
    echo x >>"$dir/asked"
    id=${line##*'"id":"'}
    echo "${id%%'"'*}" >>"$dir/ids"
    count=$((count + 1))
    action=none
    [ -e "$dir/when" ] && read -r at action stored <"$dir/when" && [ "$count" -ne "$at" ] && action=none
    case $action in
    kill) kill -9 "$PPID" ;;
    term) kill -TERM "$PPID"; sleep 5 ;;
    nan) echo NaN; continue ;;
    die) exit 3 ;;
    finish) echo '{}' >"$dir/finish"; sleep 1.1 ;;
    esac
    echo "$((${#line} % 5 * 125))e-3"
    case $action in
    late-kill) while [ ! -e "$stored" ] && kill -0 "$PPID"; do :; done; kill -9 "$PPID" ;;
    late-term) kill -TERM "$PPID" ;;
    esac
done
SH
cmd() { echo "exec sh $dir/reward.sh $dir/$1"; }
mkdir "$dir/w"

# --- usage and plan ---
run bad
[ $rc -eq 2 ] && grep -qF "no reward" "$dir/err"
ok $? "no reward"
run bad --reward number:answer --samples 1
[ $rc -eq 2 ] && grep -qF "2 or more" "$dir/err"
ok $? "a group of one"
run bad --reward nonsense
[ $rc -eq 2 ] && grep -qF "no such rule" "$dir/err"
ok $? "an unknown rule"
run bad --reward number:colour
[ $rc -eq 1 ] && grep -qF "no column 'colour'" "$dir/err"
ok $? "a column that the data does not have"
run bad --reward number:answer --max-prompt 1
[ $rc -eq 1 ] && grep -qF "max_prompt" "$dir/err"
ok $? "prompts that are all too long"
run plan --plan --algorithm ppo --reward number:answer
[ $rc -eq 0 ] && grep -q '"critic":{' "$dir/stdout" && grep -q '"ref":{' "$dir/stdout" && grep -q '"cache"' "$dir/stdout"
ok $? "--plan tells the memory of every model"
sed 's/^heads = .*/&\nhead_dim = 258/' "$LF_SRCDIR/models/tiny-llama.ini" >"$dir/wide.ini"
"$tool" ckpt "$dir/wide" "$dir/wide.ini" 270 || bail "no model with wide heads"
run plan --plan --algorithm grpo --reward number:answer --init-from "$dir/wide" --device cuda
says "head_dim: heads of layer 0 have 258 channels, and attention on sm_" "heads that no GPU takes are named"

# --- a run, and what it says ---
command=$(cmd w)
run a --reward-command "$command"
ok $rc "a run of three rounds"
run a --reward-command "$command" --lr 1e-4
[ $rc -eq 1 ] && grep -q "made with other options (lr was .*, is 0.0001); use another out" "$dir/err"
ok $? "other options in a finished out are refused by name"
is "$(wc -l <"$dir/w/asked" | tr -d ' ')" 96 "every completion was scored once"
is "$("$tool" record "$dir/a.m" | wc -l | tr -d ' ')" 24 "a record for each mini-batch"
is "$(member a 1 mismatch_max) $(member a 9 mismatch_max) $(member a 17 mismatch_max)" "0 0 0" \
    "the generator's log-probabilities are those of the training graph, in every round"
is "$(member a 9 js_divergence) $(member a 9 gen_kl_error) $(member a 9 token_mult_prob_error)" "0 0 1" "nor is there a divergence of them"
is "$(member a 9 ratio_min) $(member a 9 ratio_max) $(member a 9 approx_kl)" "1 1 0" "the ratio is exactly 1 on the first mini-batch of a round"
[ "$(member a 16 ratio_max)" != 1 ]
ok $? "and not on the last"
differ "$(id a/checkpoint)" "$(id ckpt)" "the policy has changed"
ls "$dir/a/rollouts" | tr '\n' ' ' >"$dir/list"
is "$(cat "$dir/list")" "step-00000001.h5 step-00000002.h5 step-00000003.h5 " "the rounds are kept"
cp -r "$dir/w" "$dir/w.full"

# continues NAME WHAT: run $dir/b ended; start it again in the same out and compare with a
continues() {
    rm -f "$dir/w/when"
    run "$1" --reward-command "$command"
    ok $rc "$2: started again"
    cp "$dir/err" "$dir/err.$1"
    is "$(id "$1/checkpoint")" "$(id a/checkpoint)" "$2: the same policy, bit for bit"
    records a >"$dir/ra"
    records "$1" >"$dir/rb"
    cmp -s "$dir/ra" "$dir/rb"
    ok $? "$2: the same metrics"
}
interrupt() { # interrupt NAME COUNT ACTION
    rm -rf "$dir/w"
    mkdir "$dir/w"
    echo "$2 $3 $dir/$1/rollouts/step-00000002.h5" >"$dir/w/when"
    run "$1" --reward-command "$command"
}

# --- killed in the middle of a rollout ---
interrupt b 44 kill
[ $rc -ge 128 ]
ok $? "killed in the middle of a rollout"
continues b "kill -9 in a rollout"
is "$(sort "$dir/w/ids" | uniq -d | wc -l | tr -d ' ')" 1 "only the completion that was being scored is scored again"
# --- killed in the middle of an epoch ---
interrupt c 64 late-kill
[ $rc -ge 128 ]
ok $? "killed behind a rollout"
continues c "kill -9 in an epoch"
# --- asked to stop, in a rollout and in an epoch ---
interrupt d 44 term
is $rc 75 "asked to stop in a rollout: exit 75"
continues d "stopped in a rollout"
interrupt e 64 late-term
is $rc 75 "asked to stop in an epoch: exit 75"
rm -f "$dir/w/when"
run e2 --reward-command "$command" --resume-from "$dir/e"
ok $rc "continued in another out"
grep -q "round 2, [1-7] of its mini-batches done" "$dir/err"
ok $? "in the middle of the round"
is "$(id e2/checkpoint)" "$(id a/checkpoint)" "stopped in an epoch: the same policy, bit for bit"
run e2 --reward-command "$command" --resume-from "$dir/e"
says "nothing to do" "a run that is over stays over"

# --- damage: a checkpoint is set aside, so that a good one can take its place ---
flip() { printf '\377' | dd of="$1" bs=1 seek=$(($(wc -c <"$1") / 2)) conv=notrunc 2>/dev/null; }
cut_short() { head -c 1000 "$1" >"$dir/cut" && cp "$dir/cut" "$1"; }
aside() { find "$dir/$1" -name "$2.broken" | wc -l | tr -d ' '; } # aside RUN NAME
cp -r "$dir/w" "$dir/w.kept"
interrupt dmg 44 term
rm -f "$dir/w/when"
is "$rc $(ls "$dir/dmg/checkpoints")" "75 step-00000008" "stopped after a round, with one checkpoint"
for how in flip cut_short; do
    cp -r "$dir/dmg" "$dir/$how" && cp "$dir/dmg.m" "$dir/$how.m"
    $how "$(ls "$dir/$how"/checkpoints/step-00000008/data-*.h5)"
    run $how --reward-command "$command"
    is "$rc $(id $how/checkpoint)" "0 $(id a/checkpoint)" "$how: the run ends with the same policy, bit for bit"
    records $how >"$dir/rb"
    cmp -s "$dir/ra" "$dir/rb"
    ok $? "$how: and the same metrics"
    is "$(aside $how step-00000008)" 1 "$how: what is damaged is set aside"
    $how "$(ls "$dir/$how"/checkpoint/data-*.h5)"
    run $how --reward-command "$command"
    is "$rc $(id $how/checkpoint) $(aside $how checkpoint)" "0 $(id a/checkpoint) 1" "$how: so is a final one, and made again"
done

# --- a run that goes on with other settings says so ---
run lr --reward-command "$command" --resume-from "$dir/e" --lr 2e-3
is $rc 0 "going on with another learning rate"
says "perhaps not bitwise: schedule peak was 0.001, is 0.002" "it is not called bitwise, and why"
"$LF_BUILDDIR/tests/stage/train_tool" state "$dir/lr/checkpoint" | grep -q '"history":\[{[^]]*"bitwise":false[^]]*schedule peak was'
ok $? "the checkpoint's history says so"
run loss --reward-command "$command" --resume-from "$dir/e" --clip-high 0.3 --critic-lr 1e-4
says_like "perhaps not bitwise: critic_lr was .*clip_high was 0.2" "so it is with another loss"
run as --reward-command "$command" --resume-from "$dir/e"
says "continuing bitwise from" "as it was it is bitwise"
is "$(id as/checkpoint)" "$(id a/checkpoint)" "and it is"
rm -rf "$dir/w"
mv "$dir/w.kept" "$dir/w"

# --- replay; one without the other ---
run r --reward-command "$command" --replay "$dir/a"
ok $rc "trained on the rollouts of another run"
is "$(id r/checkpoint)" "$(id a/checkpoint)" "the same policy without generating"
is "$(wc -l <"$dir/w/asked" | tr -d ' ')" 96 "and without scoring"
run wsd --reward-command "$command" --replay "$dir/a" --schedule wsd --decay-rounds 2
is "$rc $(member wsd 8 lr) $(member wsd 24 lr)" "0 0.001 0" "a schedule counted in rounds: level, then two rounds down to 0"
run g --reward-command "$command" --round-epochs 0 --rounds 1
ok $rc "generating without training"
is "$(id g/checkpoint | wc -c)" "$(id ckpt | wc -c)" "makes a checkpoint"
run g1 --reward-command "$command" --replay "$dir/g" --rounds 1
run g2 --reward-command "$command" --rounds 1
is "$(id g1/checkpoint)" "$(id g2/checkpoint)" "training on it gives what one run gives"
run s --reward-command "$command" --slots 3 --step-rows 5 --page-tokens 128 --tensorboard "$dir/tb" --metrics-jsonl "$dir/s.jsonl" --log-samples 2
is "$(id s/checkpoint)" "$(id a/checkpoint)" "how completions share steps of generation changes no bit"

# --- the comparison can fail ---
run t --reward-command "$command" --replay "$dir/a" --temperature 1.001 --rounds 1
[ "$(member t 1 mismatch_max)" != 0 ] && [ "$(member t 1 ratio_max)" != 1 ]
ok $? "a temperature of 1.001 is seen"
"$tool" ckpt "$dir/other" "$LF_SRCDIR/models/tiny-llama.ini" 270 1.01
run u --reward-command "$command" --replay "$dir/a" --init-from "$dir/other" --rounds 1
[ "$rc" -eq 0 ] && [ "$(member u 1 mismatch_max)" != 0 ] && [ "$(member u 1 ratio_max)" != 1 ]
ok $? "one weight that is 1 % larger is seen"

# --- a critic and a reference ---
pp="--algorithm ppo --samples 1 --round-prompts 16 --kl-target 0.1 --rounds 2"
run p $pp --reward-command "$command"
ok $rc "PPO with critic and reference"
is "$(member p 1 objective_kl)" 0 "the KL is exactly 0 in the first round"
is "$(member p 1 mismatch_max) $(member p 1 ratio_max)" "0 1" "the ratio is 1"
[ "$(member p 5 objective_kl)" != 0 ] && [ "$(member p 5 kl_coef)" != 0.050000000000000003 ]
ok $? "later there is a KL, and its coefficient adapts"
rm -rf "$dir/w"
mkdir "$dir/w"
echo "32 late-term" >"$dir/w/when"
run q $pp --reward-command "$command"
is $rc 75 "PPO asked to stop in an epoch"
rm -f "$dir/w/when"
run q $pp --reward-command "$command"
is "$(id q/checkpoint)" "$(id p/checkpoint)" "policy, critic and their moments are the same bits"
for at in "20 kill" "32 late-kill"; do
    rm -rf "$dir/w" "$dir/q" "$dir/q.m"
    mkdir "$dir/w"
    echo "$at $dir/q/rollouts/step-00000002.h5" >"$dir/w/when"
    run q $pp --reward-command "$command"
    [ $rc -ge 128 ]
    ok $? "PPO killed: $at"
    rm -f "$dir/w/when"
    run q $pp --reward-command "$command"
    is "$(id q/checkpoint)" "$(id p/checkpoint)" "PPO killed: $at: and started again: the same policy, critic and moments"
done

# --- a loss scale: a power of two changes no bit, what overflows is made again with half of it ---
# Rewards of up to 5e5, whose gradients are cut by no norm: 2^126 times that is no f32.
large="$pp --reward-command-weight 1e6 --no-whiten --clip 1e9" scaled="--loss-scale 0 --loss-scale-start 1e38 --loss-scale-window 3"
run large $large --reward-command "$command"
run fixed --reward-command "$command" --loss-scale 1024
is "$rc $(id fixed/checkpoint)" "0 $(id a/checkpoint)" "a fixed loss scale of 1024: the same policy, bit for bit"
run over $large --reward-command "$command" $scaled
is "$rc $(id over/checkpoint)" "0 $(id large/checkpoint)" "a scale that overflows at first and again: the same policy, critic and moments"
[ "$(member over 1 overflows)" -ge 1 ] && [ "$(member over 1 critic_overflows)" -ge 1 ] &&
    [ "$(member over 8 overflows)" -gt "$(member over 1 overflows)" ] && [ "$(member over 1 loss_scale)" != "$(member over 1 critic_loss_scale)" ]
ok $? "policy and critic have one each: $(member over 1 loss_scale) and $(member over 1 critic_loss_scale) after $(member over 1 overflows) and $(member over 1 critic_overflows) overflows"
is "$(records over | sed 's/,"[a-z_]*\(loss_scale\|overflows\)":[^,]*//g')" "$(records large)" "all else is reported as without"
for at in "32 late-term" "32 late-kill"; do
    rm -rf "$dir/w" "$dir/over2" "$dir/over2.m"
    mkdir "$dir/w"
    echo "$at $dir/over2/rollouts/step-00000002.h5" >"$dir/w/when"
    run over2 $large --reward-command "$command" $scaled
    [ $rc -ge 75 ] && [ ! -e "$dir/over2/checkpoint" ]
    ok $? "ended in the second round: $at"
    rm -f "$dir/w/when"
    run over2 $large --reward-command "$command" $scaled
    grep -q "round 2, [0-3] of its mini-batches done" "$dir/err"
    ok $? "it goes on there"
    is "$(id over2/checkpoint) $(records over2)" "$(id over/checkpoint) $(records over)" "with the scales that it had, bit for bit"
done

# --- a reward model, which the critic begins with, beside a rule ---
{ cat "$LF_SRCDIR/models/tiny-llama.ini"; echo "output = score"; } >"$dir/rm.ini"
"$tool" ckpt "$dir/rm" "$dir/rm.ini" 270
run v $pp --reward-model "$dir/rm" --reward-model-weight 0.5 --critic-from "$dir/rm" --reward '2 * format:.*'
[ $rc -eq 0 ] && [ "$(member v 1 mismatch_max)" = 0 ] && [ "$(member v 1 reward_format)" = 1 ] && [ "$(member v 1 value)" != 0 ]
ok $? "a reward model beside a rule; the critic begins with its weights"
awk "BEGIN { d = $(member v 1 score) - 2 - 0.5 * $(member v 1 reward_model); exit !(d < 1e-12 && d > -1e-12) }"
ok $? "the score is the weighted sum of both"
run v-plan $pp --plan --reward-model "$dir/rm"
rm_bytes=$(tr -d ' \n' <"$dir/stdout" | sed 's/.*"reward_model":{[^}]*"total":\([0-9]*\).*/\1/')
with=$(tr -d ' \n' <"$dir/stdout" | sed 's/.*"bytes":{[^}]*"total":\([0-9]*\).*/\1/')
run v-plan $pp --plan --reward-command "$command"
without=$(tr -d ' \n' <"$dir/stdout" | sed 's/.*"bytes":{[^}]*"total":\([0-9]*\).*/\1/')
[ "$rm_bytes" -gt 100000 ] && [ $((with - without)) -ge "$rm_bytes" ]
ok $? "--plan counts the reward model: $rm_bytes bytes"
run v-plan $pp --plan --reward-model "$dir/not-there"
[ $rc -eq 0 ] && grep -q "does not exist yet" "$dir/stdout"
ok $? "and one that is yet to be made"
run v2 --reward-model "$dir/ckpt"
[ $rc -eq 1 ] && grep -qF "reward_model" "$dir/err"
ok $? "a policy is no reward model"

# --- adapters: the reference is the actor without its own ---
lora="--lora-rank 4 --lr 1e-2 --kl-coef 0.1"
run lora $lora --reward-command "$command"
ok $rc "an adapter with a reference"
is "$(member lora 1 mismatch_max) $(member lora 9 mismatch_max) $(member lora 17 mismatch_max) $(member lora 1 objective_kl)" "0 0 0 0" \
    "it generates and trains through the same bits; its KL begins at exactly 0"
[ "$(member lora 9 objective_kl)" != 0 ]
ok $? "and does not stay there"
run lora-dora $lora --lora-dora --reward-command "$command"
is "$(member lora-dora 1 mismatch_max) $(member lora-dora 17 mismatch_max) $(member lora-dora 1 objective_kl)" "0 0 0" "so does DoRA"
run lora-two $lora --ref-from "$dir/ckpt" --reward-command "$command"
is "$(id lora-two/checkpoint)" "$(id lora/checkpoint)" "a second model as the reference changes no bit"
run dora $lora --lora-dora --rounds 2 --reward-command "$command"
[ "$rc $(member dora 1 mismatch_max) $(member dora 9 mismatch_max) $(member dora 1 objective_kl)" = "0 0 0 0" ]
ok $? "weight-decomposed: the same"
run lora-plan $lora --plan --reward-command "$command"
[ $rc -eq 0 ] && ! grep -q '"ref":{' "$dir/stdout"
ok $? "but there is none"
"$LF_BUILDDIR/stages/lf-convert" --from "$dir/lora/adapter" --to hf --base "$dir/ckpt" --out "$dir/peft" >"$dir/stdout" 2>"$dir/err" &&
    [ -n "$(find "$dir/peft" -name adapter_model.safetensors)" ]
ok $? "the adapter goes out to PEFT's files"
lora_killed() { # lora_killed NAME COUNT ACTION
    rm -rf "$dir/w"
    mkdir "$dir/w"
    echo "$2 $3 $dir/$1/rollouts/step-00000002.h5" >"$dir/w/when"
    run "$1" $lora --reward-command "$command"
    [ $rc -ge 128 ]
    ok $? "an adapter killed: $3"
    rm -f "$dir/w/when"
    run "$1" $lora --reward-command "$command"
    is "$(id "$1/checkpoint") $(id "$1/adapter")" "$(id lora/checkpoint) $(id lora/adapter)" "and started again: the same bits"
}
lora_killed lora-b 44 kill
lora_killed lora-c 64 late-kill
run lora --lora-rank 4 --lr 1e-2 --kl-coef 0.1 --reward-command "$command"
says "nothing to do" "a run of an adapter that is over stays over"
run lora-more $lora --rounds 4 --reward-command "$command" --resume-from "$dir/lora"
[ $rc -eq 0 ] && grep -q "round 4, 0 of" "$dir/err"
ok $? "longer, in another out, it goes on from there"
run lora-b --lora-rank 8 --lr 1e-2 --rounds 4 --kl-coef 0.1 --reward-command "$command"
[ $rc -eq 1 ] && grep -q "made with other options (.*lora_rank was 4, is 8" "$dir/err"
ok $? "other settings of the adapter are refused"
run bad --lora-rank 4 --lora-dropout 0.1 --reward-command "$command"
[ $rc -eq 2 ] && grep -qF "lora_dropout" "$dir/err"
ok $? "so is dropout"
run lora-critic ${pp%--rounds*} --lora-rank 4 --rounds 1 --reward-command "$command"
[ $rc -eq 0 ] && [ "$(member lora-critic 1 ratio_max)" = 1 ] && grep -rqaF "critic/" "$dir/lora-critic/adapter"
ok $? "with a critic, which is kept beside the adapter"
run ice --freeze 'embed.*' --freeze 'head.*' --rounds 1 --reward-command "$command"
[ $rc -eq 0 ] && [ "$(id ice/checkpoint)" != "$(id g2/checkpoint)" ]
ok $? "parts can be frozen"

# --- every algorithm, two rounds ---
for a in grpo rloo reinforce++ dapo dr-grpo gspo; do
    run "x$a" --algorithm "$a" --rounds 2 --samples 4 --reward-command "$command" --overlong-buffer 4 --missing-eos penalty
    [ $rc -eq 0 ] && [ "$(member "x$a" 1 mismatch_max)" = 0 ]
    ok $? "$a"
done

# --- groups of equal rewards ---
run f --reward 'format:.*' --rounds 1
[ $rc -eq 0 ] && [ "$(member f 1 frac_reward_zero_std)" = 1 ] && [ "$(member f 1 grad_norm)" = 0 ]
ok $? "groups of equal rewards are counted and teach nothing"
run f2 --reward 'format:.*' --rounds 1 --dynamic-sampling --dynamic-rounds 3
[ $rc -eq 1 ] && grep -qF "equal scores" "$dir/err"
ok $? "dynamic sampling that finds no other group says so"

# --- a hostile command ---
rm -rf "$dir/w"
mkdir "$dir/w"
echo "20 nan" >"$dir/w/when"
run h --reward-command "$command" --rounds 1 --reward-retries 0
[ $rc -eq 1 ] && grep -qF "not finite (nan)" "$dir/err"
ok $? "NaN ends the run, by name"
rm -f "$dir/w/when"
run h --reward-command "$command" --rounds 1 --reward-retries 0
ok $rc "mended, it goes on"
is "$(sort "$dir/w/ids" | uniq -d | wc -l | tr -d ' ')" 1 "what was scored is not asked again"
is "$(id h/checkpoint)" "$(id g2/checkpoint)" "with the same result"
rm -rf "$dir/w"
mkdir "$dir/w"
echo "20 die" >"$dir/w/when"
run i --reward-command "$command" --rounds 1
[ $rc -eq 0 ] && [ "$(id i/checkpoint)" = "$(id g2/checkpoint)" ] && [ "$(member i 1 command_died)" = 1 ]
ok $? "a command that dies once is started again and counted"
run j --reward-command "exit 3" --rounds 1 --reward-fallback 0.5 --reward-retries 0
[ $rc -eq 0 ] && [ "$(member j 1 command_fallbacks)" = 32 ] && [ "$(member j 1 score)" = 0.5 ]
ok $? "with a fallback the run goes on, counted"
# --- whitened rewards: variance 1, the mean is kept, scores are as they were ---
mkdir -p "$dir/plain" "$dir/white"
run plain-r --reward-command "$(cmd plain)" --rounds 1 --round-epochs 0 --save-interval 0
run white-r --reward-command "$(cmd white)" --rounds 1 --round-epochs 0 --save-interval 0 --whiten-rewards
is "$(member white-r 1 score)" "$(member plain-r 1 score)" "whitened rewards: scores are as they were"
awk -v a="$(member white-r 1 reward)" -v b="$(member plain-r 1 reward)" 'BEGIN { d = a - b; exit !(a != "" && d * d < 1e-12) }'
ok $? "whitened rewards: the mean is kept"
awk -v a="$(member white-r 1 reward_max)" -v m="$(member white-r 1 reward)" -v b="$(member plain-r 1 reward_max)" -v s="$(member plain-r 1 score_std)" \
    'BEGIN { want = m + (b - m) / s; d = a - want; exit !(s > 0.01 && s < 0.9 && d * d < 1e-4) }'
ok $? "whitened rewards: their distances from it are divided by the deviation"

# --- a published round belongs to the precision that drew it ---
mkdir -p "$dir/mixed/rollouts" && cp "$dir/a/rollouts/step-00000001.h5" "$dir/mixed/rollouts/"
run mixed --reward-command "$command" --rounds 1 --precision bf16
is "$rc $(member mixed 1 mismatch_max) $(ls "$dir/mixed/rollouts" | tr '\n' ' ')" "0 0 step-00000001.h5 step-00000001.h5.other-1 " \
    "a round of f32 is none for a run in bf16"

# --- longrope: the angles of a text are those of what it could have become when it was made ---
cat >"$dir/longrope.keys" <<END
rope_scaling = longrope
rope_factor = 4
rope_original_positions = 103
rope_short_factors = 1,1,1,1,1,1,1,1
rope_long_factors = 1,2,3,4,5,6,7,8
END
sed -e "/^family/r $dir/longrope.keys" -e "s/llama3/llama/" \
    "$LF_SRCDIR/models/tiny-llama.ini" >"$dir/longrope.ini"
must "$tool" ckpt "$dir/longrope" "$dir/longrope.ini" 270
run angles --init-from "$dir/longrope" --reward number:answer --rounds 1 --max-tokens 100
ok $rc "a longrope policy"
is "$(member angles 1 mismatch_max) $(member angles 1 ratio_min)" "0 1" \
    "has the same bits in generation and training, texts on both sides of the switch"

# --- an early end: after the round under way, or without one that is only being generated ---
mkdir "$dir/e"
echo "40 finish" >"$dir/e/when"
LF_ENDING=$dir/e/finish
export LF_ENDING
run ended --reward-command "$(cmd e)"
unset LF_ENDING
at=$(grep -o '"ended":{[^}]*}' "$dir/ended/checkpoint/manifest.json" | sed 's/.*"at":\([0-9]*\).*/\1/')
grep -q '"ended":{.*"of":3,.*"unit":"rounds"' "$dir/ended/checkpoint/manifest.json"
is "$rc $?" "0 0" "a run that is asked to end in round 2 of 3 ends well, and says so: after $at"
rm -r "$dir/e"
mkdir "$dir/e"
run rounds --reward-command "$(cmd e)" --rounds "$at"
is "$(id ended/checkpoint)" "$(id rounds/checkpoint)" "with the bits of a run of that many rounds"
before=$(id ended/checkpoint)
run ended --reward-command "$(cmd e)"
is "$rc $(id ended/checkpoint)" "0 $before" "and does not train on"
run late --reward-command "$(cmd e)" --hours 1e-6 --resume-from "$dir/rounds"
is "$rc $(id late/checkpoint)" "0 $before" "the hours of earlier starts count"
LF_STOP_STEP=3
export LF_STOP_STEP
run rung --reward-command "$(cmd e)" --rounds "$at"
unset LF_STOP_STEP
is "$rc $(cd "$dir/rung/checkpoints" && ls -d step-*3)" "75 step-00000003" "a run that is given a step stops behind that update"
run rung --reward-command "$(cmd e)" --rounds "$at"
is "$rc $(id rung/checkpoint)" "0 $before" "and goes on to the same bits"
events=$(find "$dir/tb" -name 'events.*')
is "$(grep -ao train/approx_kl "$events" | wc -l) $(grep -c '"approx_kl"' "$dir/s.jsonl") $(grep -ao 'samples/[12]' "$events" | wc -l)" "24 24 6" \
    "a dashboard has the numbers of each mini-batch and two samples of each round"
finish 130

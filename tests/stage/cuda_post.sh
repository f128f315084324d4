#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Post-training with device = cuda on the emulated driver, a table of runs of lf-sft, lf-rm, lf-dpo and lf-ppo: every number that a run
# reports is the CPU's within 1e-4 of itself or of 1, in f32; a run that is killed and started again ends with the checkpoint and the
# metrics of one that is not, bit for bit. lf-ppo in fp16: ratios of exactly 1, a loss scale that finds itself.
. "$LF_SRCDIR/tests/stage/lib.sh"
infer=$LF_BUILDDIR/tests/stage/infer_tool
emulated_gpu

# --- models of 64 and of 270 tokens, a tokenizer, data ---
model() { # model VOCAB [LINE]: a description
    printf '[model]\nfamily = llama3\nlayers = 1\nhidden = 16\nheads = 2\nkv_heads = 1\nffn = 32\nvocab = %s\nmax_positions = 64\n%s\n' "$1" "${2:-}"
}
model 64 >"$dir/lm.ini"
model 270 >"$dir/policy.ini"
model 270 "output = score" >"$dir/rm.ini"
must "$infer" ckpt "$dir/lm" "$dir/lm.ini" 64
must "$infer" ckpt "$dir/policy" "$dir/policy.ini" 270
must "$infer" ckpt "$dir/reward" "$dir/rm.ini" 270
must "$tool" data "$dir/docs" 24 6
must "$tool" data "$dir/others" 12 4
must "$tool" pairs "$dir/pairs" 24 4
must "$tool" labels "$dir/labels" 24 4
awk 'BEGIN { for (a = 0; a < 60; a++) for (b = 0; b < 9; b++) print a "+" b "=" a + b }' >"$dir/text.txt"
awk 'BEGIN { for (a = 0; a < 6; a++) printf "{\"prompt\":\"%d+%d=\",\"answer\":\"%d\"}\n", a, a % 7, a + a % 7 }' >"$dir/prompts.jsonl"
awk 'BEGIN { for (a = 0; a < 24; a++) printf "{\"prompt\":\"%d+%d=\",\"completion\":\"%d\"}\n", a, a % 7, a + a % 7 }' >"$dir/answers.jsonl"
must "$stages/lf-tokenize" --doc-split=line --vocab-size=270 --out "$dir/tok" "$dir/text.txt"
must "$stages/lf-tokenize" --shape=prompt --tokenizer "$dir/tok/tokenizer" --unmapped=ignore --out "$dir/prompts" "$dir/prompts.jsonl"
must "$stages/lf-tokenize" --shape=prompt_completion --tokenizer "$dir/tok/tokenizer" --valid-fraction 0.2 --out "$dir/answers" "$dir/answers.jsonl"
cat >"$dir/train.ini" <<END
[stage]
steps = 3
seq_length = 16
batch = 4
micro_batch = 2
lr = 1e-3
valid_tokens = 32
save_interval = 1
save_time = 0
keep = 9
seed = 5
threads = 1
END
cat >"$dir/ppo.ini" <<END
[stage]
data = $dir/prompts/shards
tokenizer = $dir/tok/tokenizer
init_from = $dir/policy
threads = 1
max_prompt = 8
max_tokens = 6
round_prompts = 2
samples = 2
minibatch = 2
round_epochs = 1
rounds = 2
save_interval = 1
lr = 1e-2
critic_lr = 1e-2
micro_tokens = 32
slots = 4
step_rows = 16
END
# A reward that follows from the request; at request number COUNT of DIR/when it does what stands there: stored-kill waits
# for the second round as it is stored before its epochs.
cat >"$dir/reward.sh" <<'SH'
dir=$1
while read -r line; do
    echo x >>"$dir/asked"
    action=none
    [ -e "$dir/when" ] && read -r at action <"$dir/when" && [ "$(wc -l <"$dir/asked")" -ne "$at" ] && action=none
    [ $action = kill ] && kill -9 "$PPID"
    echo "$((${#line} % 5 * 125))e-3"
    [ $action = late-kill ] && sleep 0.02 && kill -9 "$PPID"
    [ $action = stored-kill ] || continue
    while [ ! -e "$dir/../out/rollouts/step-00000002.h5" ] && kill -0 "$PPID"; do :; done
    kill -9 "$PPID"
done
SH

# --- the table ---
id() { for _c in checkpoint adapter best; do [ -e "$dir/$1/out/$_c" ] && "$tool" id "$dir/$1/out/$_c"; done 2>&1; }
# What a run reports, without what is measured in time.
records() { "$infer" record "$dir/$1/metrics" | sed 's/,"\(tokens_per_s\|gen_s\|saved\)":.*//'; }
run() { # run NAME STAGE ARGS...: output below $dir/NAME, exit code in $rc
    _name=$1 _stage=$2 _ini=train.ini
    shift 2
    [ "$_stage" = ppo ] && _ini=ppo.ini
    mkdir -p "$dir/$_name/w"
    [ "$_stage" = ppo ] && set -- --reward-command "exec sh $dir/reward.sh $dir/$_name/w" "$@"
    "$stages/lf-$_stage" --config "$dir/$_ini" --out "$dir/$_name/out" --metrics "$dir/$_name/metrics" "$@" 2>"$dir/err" >"$dir/stdout"
    rc=$?
}
# The largest difference of two runs' numbers, relative where they are above 1, to $apart; not the same in all of them.
agree() { # agree A B TOLERANCE
    records "$1" | tr -d '{}"' | tr ',' '\n' >"$dir/a"
    records "$2" | tr -d '{}"' | tr ',' '\n' | paste -d: "$dir/a" - >"$dir/both"
    apart=$(awk -F: -v t="$3" '{ d = $2 - $4; m = $4; if (d < 0) d = -d; if (m < 0) m = -m; if (m > 1) d /= m; if (d > 0) moved = 1
            if ($1 != $3 || $2 == "" || $4 == "" || !(d <= t)) { print $0; bad = 1; exit } if (d > worst) { worst = d; at = $1 } }
        END { if (!bad) print !moved ? "nothing differs" : NR < 20 ? "too few" : worst " (" at ")"; exit bad || !moved || NR < 20 }' "$dir/both")
}
# Killed behind the first step, or as the reward command does it; then started again.
killed() { # killed NAME STAGE ARGS...
    _k=$1 _s=$2 _why=none
    mkdir -p "$dir/$_k/w"
    if [ "$_s" = ppo ]; then
        echo "$at" >"$dir/$_k/w/when"
        run "$@"
    else
        shift 2
        cut_at kill 1 "*/$_k/out/checkpoints/step-00000002*" "test -e $dir/$_k/out/checkpoints/step-00000001" \
            "$stages/lf-$_s" --config "$dir/train.ini" --out "$dir/$_k/out" --metrics "$dir/$_k/metrics" "$@"
        set -- "$_k" "$_s" "$@"
    fi
    [ $rc -eq 137 ] && [ ! -e "$dir/$_k/out/checkpoint" ] || _why="not killed: $rc"
    rm -f "$dir/$_k/w/when"
    run "$@"
    [ $rc -eq 0 ] && [ "$_why" = none ] && [ -n "$(id "$_k")" ] && [ "$(id "$_k")" = "$(id "$_ref")" ] && [ "$(records "$_k")" = "$(records "$_ref")" ]
}
at="6 late-kill" # of lf-ppo: 4 completions in a round
trial() { # trial NAME STAGE ARGS...
    _case=$1
    shift
    run "$_case.cpu" "$@" --device cpu
    _cpu=$rc
    run "$_case" "$@" --device cuda
    [ "$_cpu $rc" = "0 0" ] && agree "$_case" "$_case.cpu" 1e-4
    ok $? "$1, $_case: the numbers of the CPU, apart by ${apart:-$_cpu $rc}"
    _ref=$_case
    killed "$_case.kill" "$@" --device cuda
    ok $? "killed and started again: the same bits"
    [ "$at" = "8 stored-kill" ] && at="6 kill" || at="8 stored-kill"
}

docs="--data $dir/docs --init-from $dir/lm --valid-interval 2"
lora="--lora-rank 2 --lr 1e-2"
# shellcheck disable=SC2086
{
    trial full sft $docs
    trial lora sft $docs $lora --lora-dropout 0.1
    trial dora sft $docs $lora --lora-dora
    trial masked sft --data "$dir/answers/shards" --init-from "$dir/policy" --valid-interval 2
    trial sets sft $docs --valid-data "$dir/docs" --valid-data "$dir/others" --valid-names here --valid-names there --keep-best
    trial sampled sft $docs --sample-interval 2 --sample-rows 2 --sample-tokens 4 --neftune-alpha 5
}
for k in loss grad_norm accuracy entropy valid_entropy; do
    records full | grep -q "\"$k\":" || break
done
is "$k $(records full | grep -c '"entropy":')" "valid_entropy 3" "the entropy of training and of validation is reported at every step"
grep -q '"valid_loss_there":' "$dir/both" || records sets | grep -q '"valid_loss_there":'
ok $? "and each validation set on its own"
cmp -s "$dir/sampled/samples.jsonl" "$dir/sampled.cpu/samples.jsonl" ||
    is "$(sed 's/.*"token_ids":\(\[[^]]*\]\).*/\1/' "$dir/sampled/samples.jsonl")" \
        "$(sed 's/.*"token_ids":\(\[[^]]*\]\).*/\1/' "$dir/sampled.cpu/samples.jsonl")" "samples are the CPU's"

long="--init-from $dir/lm --valid-interval 2 --seq-length 32 --batch 2 --micro-batch 1"
pairs="--data $dir/pairs $long"
# shellcheck disable=SC2086
{
    trial rm rm $pairs
    trial rm-lora rm $pairs $lora
    trial sigmoid dpo $pairs --nll 0.2
    trial cdpo dpo $pairs --label-smoothing 0.1
    trial ipo dpo $pairs --loss ipo
    trial robust dpo $pairs --loss robust --label-smoothing 0.1
    trial hinge dpo $pairs --loss hinge
    trial orpo dpo $pairs --loss orpo
    trial simpo dpo $pairs --loss simpo
    trial kto dpo --data "$dir/labels" $long --loss kto
    trial dpo-lora dpo $pairs $lora
    run reference dpo $pairs --mode reference --device cuda
    run cached dpo $pairs --nll 0.2 --reference "$dir/reference/out/reference" --device cuda
}
is "$rc $(id cached) $(records cached)" "0 $(id sigmoid) $(records sigmoid)" "a reference that was computed before: the bits of one that was not"

for a in grpo rloo reinforce++ dapo dr-grpo gspo; do
    trial "$a" ppo --algorithm $a
done
trial ppo ppo --algorithm ppo --kl-target 0.1 --reward-model "$dir/reward" --critic-from "$dir/reward"
trial ppo-lora ppo --algorithm ppo --lora-rank 2

# --- lf-ppo in fp16 ---
field() { records "$1" | sed -n "$2"'p' | grep -o "\"$3\":[^,}]*" | sed 's/.*://'; } # field RUN LINE NAME
scale="--precision fp16 --loss-scale-start 1e7"
for a in grpo ppo; do
    with="--algorithm $a"
    [ $a = ppo ] && with="$with --reward-model $dir/reward --critic-from $dir/reward" # as f32 had them above
    # shellcheck disable=SC2086
    run half-$a ppo $with $scale --device cuda
    is "$rc $(field half-$a 1 mismatch_max) $(field half-$a 1 ratio_min) $(field half-$a 1 ratio_max)" "0 0 1 1" \
        "$a in fp16: the ratio is exactly 1 on the first mini-batch"
    last=$(records half-$a | wc -l)
    r2=$((last / 2 + 1))
    is "$(field half-$a $r2 round) $(field half-$a $r2 mismatch_max) $(field half-$a $r2 ratio_max)" "2 0 1" "and on that of the second round"
    [ "$(field half-$a "$last" ratio_max)" != 1 ] && [ "$(field half-$a 1 overflows)" -gt 5 ]
    ok $? "and not on the last; the scale was $(field half-$a 1 loss_scale) after $(field half-$a 1 overflows) overflows"
    # Of the same completions: what f32 finds, the first mini-batch long, which no update came before.
    # shellcheck disable=SC2086
    run again-$a ppo $with $scale --replay "$dir/$a/out" --rounds 1 --device cuda
    # shellcheck disable=SC2086
    run full-$a ppo $with --replay "$dir/$a/out" --rounds 1 --device cuda
    for k in loss policy_loss entropy grad_norm value_loss critic_grad_norm; do
        echo "$k $(field again-$a 1 $k) $(field full-$a 1 $k)"
    done | awk 'NF == 3 { d = $2 - $3; m = $3 < 0 ? -$3 : $3; if (d < 0) d = -d; if (m > 1) d /= m; if (d > worst) worst = d; if (!(d < 1e-2)) bad = 1; n++ }
        END { print n, worst; exit bad || n < 4 || worst == 0 }' >"$dir/worst"
    ok $? "of f32's completions it finds f32's losses and gradient norms, number and apart by: $(cat "$dir/worst")"
    _ref=half-$a at="6 late-kill"
    [ $a = ppo ] && at="3 late-kill"
    # shellcheck disable=SC2086
    killed half-$a.kill ppo $with $scale --device cuda
    ok $? "killed in a round and started again: the same bits, and the same scales"
done
# shellcheck disable=SC2086
run found ppo --algorithm grpo $scale --rounds 1 --minibatch 4 --device cuda
run fixed ppo --algorithm grpo --precision fp16 --loss-scale "$(field found 1 loss_scale)" --rounds 1 --minibatch 4 --device cuda
is "$rc $(id fixed)" "0 $(id found)" "a step that begins with the scale that was found: the same bits, so what overflowed left none"
run fixed2 ppo --algorithm grpo --precision fp16 --loss-scale 1e8 --device cuda
[ $rc -eq 1 ] && grep -q "mini-batch 1: the gradient of the actor is not finite" "$dir/err"
ok $? "a fixed scale that overflows ends the run, by name"
run refused ppo --algorithm grpo --precision fp16 --device cpu
[ $rc -eq 1 ] && grep -q "GPUs have" "$dir/err"
ok $? "on a CPU fp16 is refused, and it says where to run it"

finish 67

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# lf-ppo in fp16 on two ranks with an emulated GPU each: ratios of exactly 1 between the generator of one rank and the training of another,
# one loss scale for all ranks whichever of them overflows, the updates of one rank, kills and stops that end with the same bits; in f32 on two that divide
# matrices, and with rollouts that do not.
. "$LF_SRCDIR/tests/stage/lib.sh"
tool=$LF_BUILDDIR/tests/stage/infer_tool
with_ranks
emulated_gpu
emulated_nccl
need_ranks

# reward.sh DIR: DIR/when holds "COUNT ACTION", for the command of one rank
cat >"$dir/reward.sh" <<'SH'
dir=$1
count=0
while read -r line; do
    count=$((count + 1))
    action=none
    [ -e "$dir/when" ] && read -r at action <"$dir/when" && { [ "$count" -eq "$at" ] && mkdir "$dir/taken" || action=none; } 2>/dev/null
    case $action in
    kill) kill -9 "$PPID" ;;
    term) kill -TERM "$PPID"; sleep 5 ;;
    esac
    echo "$((${#line} % 5 * 125))e-3"
done
SH
mkdir "$dir/w"
printf '[model]\nfamily = llama3\nlayers = 1\nhidden = 16\nheads = 2\nkv_heads = 1\nffn = 32\nvocab = 270\nmax_positions = 64\n' >"$dir/policy.ini"
cat >"$dir/base.ini" <<INI
[stage]
data = $dir/prompts/shards
tokenizer = $dir/tok/tokenizer
init_from = $dir/ckpt
device = cuda
precision = fp16
loss_scale_start = 2e7
threads = 1
algorithm = ppo
samples = 2
max_prompt = 8
max_tokens = 6
round_prompts = 3
rounds = 2
lr = 1e-3
critic_lr = 1e-3
minibatch = 3
round_epochs = 1
save_interval = 1
micro_tokens = 32
slots = 4
step_rows = 16
reward_command = exec sh $dir/reward.sh $dir/w
INI
awk 'BEGIN { for (a = 0; a < 60; a++) for (b = 0; b < 9; b++) print a "+" b "=" a + b }' >"$dir/text.txt"
awk 'BEGIN { for (a = 0; a < 6; a++) printf "{\"prompt\":\"%d+%d=\",\"answer\":\"%d\"}\n", a, a % 7, a + a % 7 }' >"$dir/prompts.jsonl"
must "$stages/lf-tokenize" --doc-split=line --vocab-size=270 --out "$dir/tok" "$dir/text.txt"
must "$stages/lf-tokenize" --shape=prompt --tokenizer "$dir/tok/tokenizer" --unmapped=ignore --out "$dir/prompts" "$dir/prompts.jsonl"
must "$tool" ckpt "$dir/ckpt" "$dir/policy.ini" 270

on() { # on RANKS NAME ARGS...
    _ranks=$1
    shift
    if [ "$_ranks" -eq 1 ]; then train "$stages/lf-ppo" "$dir/base.ini" "$@"; else train "$launch $_ranks -- $stages/lf-ppo" "$dir/base.ini" "$@"; fi
}
id() { grep -o '"identity":"[0-9a-f]*"' "$dir/$1/out/checkpoint/manifest.json"; }
field() { "$tool" record "$dir/$1/metrics" | sed -n "$2"'p' | grep -o "\"$3\":[^,}]*" | sed 's/.*://'; } # field RUN LINE NAME
# What the ranks say of every update but times, a number a line.
numbers() { "$tool" record "$dir/$1/metrics" | sed 's/,"gen_s":.*//; s/,"train_s":.*//' | tr '{},' '   ' | tr ' ' '\n' | grep : | sed 's/.*"\(.*\)":/\1 /'; }
agree() { # agree A B TOLERANCE: of the larger, or of 1
    numbers "$1" >"$dir/a"
    numbers "$2" | paste -d ' ' "$dir/a" - | awk -v t="$3" '{ d = $2 - $4; m = $2 < 0 ? -$2 : $2; if (d < 0) d = -d; if (m > 1) d /= m; if (d > worst) worst = d }
        $1 != $3 || !(d <= t) { print "#", $0; bad = 1 } END { print worst; exit bad || NR < 40 }' >"$dir/apart"
}

on 1 one
is "$rc $(field one 1 mismatch_max)" "0 0" "one rank"
[ "$(field one 1 overflows)" -gt 5 ]
ok $? "whose loss scale came down to $(field one 1 loss_scale) after $(field one 1 overflows) overflows"
on 2 two
is "$rc $(field two 1 mismatch_max) $(field two 1 ratio_min) $(field two 1 ratio_max)" "0 0 1 1" "two ranks: what one generated another trains with the same bits"
on 2 again
is "$rc $(id again)" "0 $(id two)" "and again: the same bits"
for z in 1 2 3; do
    on 2 "zero$z" --zero "$z"
    is "$rc $(id "zero$z")" "0 $(id two)" "zero = $z: the same bits"
done
LF_COMM=ucx on 2 ucx
is "$rc $(id ucx)" "0 $(id two)" "without NCCL, through the host's memory: the same bits"
on 2 replay --replay "$dir/one/out"
is "$rc $(field replay 1 overflows) $(field replay 1 loss_scale) $(field replay 1 critic_loss_scale)" \
    "0 $(field one 1 overflows) $(field one 1 loss_scale) $(field one 1 critic_loss_scale)" "on the completions of one rank: its overflows and scales"
agree one replay 2e-3
ok $? "and its numbers, apart by $(tail -n 1 "$dir/apart")" "$dir/apart"
on 2 other --replay "$dir/one/out" --lr 2e-3
[ $rc -eq 0 ] && ! agree one other 2e-3
ok $? "another learning rate is seen"
for action in kill term; do
    rm -rf "$dir/w"
    mkdir "$dir/w"
    echo "5 $action" >"$dir/w/when"
    on 2 "$action"
    case $action in kill) [ $rc -ne 0 ] && [ $rc -ne 75 ] ;; term) [ $rc -eq 75 ] ;; esac
    ok $? "$action in the second round: exit $rc"
    on 2 "$action"
    is "$rc $(id $action)" "0 $(id two)" "started again: the same bits"
done
sed -i '/^loss_scale_start/d' "$dir/base.ini"
on 1 whole --precision f32
on 2 divided --precision f32 --tensor 2
[ $rc -eq 0 ] && agree whole divided 1e-5
ok $? "two ranks that divide the matrices of all models: the numbers of one, apart by $(tail -n 1 "$dir/apart")" "$dir/err"
on 2 moved --precision f32 --tensor 2 --rollout-tensor 1 --critic-tensor 1 --numeric fast
[ $rc -eq 0 ] && agree whole moved 1e-5
ok $? "with rollouts and a critic that are whole, apart by $(tail -n 1 "$dir/apart")" "$dir/err"
on 2 half --tensor 2 --rollout-tensor 1 --numeric fast --rounds 1
f=$(field half 1 mismatch_max)
[ $rc -eq 0 ] && awk -v x="$f" 'BEGIN { exit !(x < 1e-2) }' && [ "$(field half 1 rollout_bytes)" -gt 0 ]
ok $? "fp16 weights move to rollouts, which are $f from training" "$dir/err"
finish 18

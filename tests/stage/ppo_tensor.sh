#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# lf-ppo on ranks that divide matrices (tensor): policy, rollouts, reference, critic and reward model have the layout. One rank's tokens, and its numbers
# within the rounding of other sums; with groups that share the prompts, zero, adapters, plain text; a command is asked once for a group; stopped, killed,
# resumed on other layouts; planned and refused.
. "$LF_SRCDIR/tests/stage/lib.sh"
ppo=$LF_BUILDDIR/stages/lf-ppo
tool=$LF_BUILDDIR/tests/stage/infer_tool
with_ranks
need_ranks

cat >"$dir/reward.sh" <<'SH'
# reward.sh DIR: DIR/when holds "COUNT ACTION"
dir=$1
count=0
while read -r line; do
    echo x >>"$dir/asked"
    count=$((count + 1))
    action=none
    [ -e "$dir/when" ] && read -r at action <"$dir/when" && { [ "$count" -eq "$at" ] && mkdir "$dir/taken" || action=none; }
    case $action in
    kill) kill -9 "$PPID" ;;
    term) kill -TERM "$PPID"; sleep 5 ;;
    fail) exit 1 ;;
    esac
    echo "$((${#line} % 5 * 125))e-3"
done
SH
cat >"$dir/base.ini" <<INI
[stage]
data = $dir/prompts/shards
tokenizer = $dir/tok/tokenizer
init_from = $dir/ckpt
threads = 1
algorithm = ppo
samples = 2
max_prompt = 16
max_tokens = 12
round_prompts = 5
rounds = 2
lr = 2e-4
minibatch = 5
round_epochs = 2
save_interval = 1
micro_tokens = 84
mfu = no
reward_command = exec sh $dir/reward.sh $dir/w
reward_retries = 0
INI
awk 'BEGIN { for (a = 0; a < 60; a++) for (b = 0; b < 9; b++) print a "+" b "=" a + b }' >"$dir/text.txt"
awk 'BEGIN { for (a = 0; a < 20; a++) printf "{\"prompt\":\"%d+%d=\",\"answer\":\"%d\"}\n", a, a % 7, a + a % 7 }' >"$dir/prompts.jsonl"
must "$stages/lf-tokenize" --doc-split=line --vocab-size=270 --out "$dir/tok" "$dir/text.txt"
must "$stages/lf-tokenize" --shape=prompt --tokenizer "$dir/tok/tokenizer" --unmapped=ignore --out "$dir/prompts" "$dir/prompts.jsonl"
must "$tool" ckpt "$dir/ckpt" "$LF_SRCDIR/models/tiny-llama.ini" 270
{ cat "$LF_SRCDIR/models/tiny-llama.ini"; echo "output = score"; } >"$dir/rm.ini"
must "$tool" ckpt "$dir/rm" "$dir/rm.ini" 270

on() { # on RANKS NAME ARGS...: out below $dir/NAME, exit code in $rc
    _ranks=$1 _name=$2
    shift 2
    mkdir -p "$dir/w"
    $launch "$_ranks" -- "$ppo" --config "$dir/base.ini" --out "$dir/$_name" --metrics "$dir/$_name.m" "$@" 2>"$dir/err" >"$dir/stdout"
    rc=$?
}
id() { sed -n 's/.*"identity": *"\([0-9a-f]*\)".*/\1/p' "$dir/$1/checkpoint/manifest.json"; }
numbers() { "$tool" record "$dir/$1.m" | sed 's/,"gen_s":.*//; s/,"train_s":.*//' | tr '{},' '   ' | tr ' ' '\n' | grep : | sed 's/.*"\(.*\)":/\1 /'; }
near() { # near A B: every number within 1e-4 of the larger, or of 1
    numbers "$1" >"$dir/flat"
    numbers "$2" | paste -d ' ' "$dir/flat" - | awk 'function abs(x) { return x < 0 ? -x : x }
        { m = abs($2) > abs($4) ? abs($2) : abs($4); if ($1 != $3 || abs($2 - $4) > 1e-4 * (m > 1 ? m : 1)) { bad++; print "#", $0 } rows++ }
        END { exit !(rows > 100 && !bad) }'
}
k=0
# alike WHAT "LAYOUT ..." ARGS...: one rank, then layouts like 4:tensor=2+zero=1: the same numbers
alike() {
    _what=$1 _layouts=$2
    k=$((k + 1))
    shift 2
    on 1 "one$k" "$@"
    [ $rc -eq 0 ] || bail "$_what: $(tail -n 2 "$dir/err")"
    for _l in $_layouts; do
        rm -rf "$dir/w"
        # shellcheck disable=SC2046
        on "${_l%%:*}" "two$k.$_l" $(echo "$_l" | sed 's/^[0-9]*:/--/; s/+/ --/g; s/=/ /g') "$@"
        [ $rc -eq 0 ] && near "two$k.$_l" "one$k"
        ok $? "$_what, $_l: the numbers of one rank" "$(tail -n 2 "$dir/err")"
    done
}

alike "critic and reference" "2:tensor=2 4:tensor=2 4:tensor=4 4:tensor=2+zero=1 4:tensor=2+zero=3" --keep-best \
    --sample-interval 1 --sample-tokens 6 --sample-rows 2
grep -q 'lf-ppo: 4 ranks: data 2 x tensor 2' "$dir/err"
ok $? "the log says the layout"
! grep -q 'warning: generator' "$dir/err"
ok $? "that generator and training differ by rounding is no warning"
drawn() { grep -o '"token_ids":[^]]*' "$dir/$1.m.samples.jsonl" | cksum; }
is "$(grep -c . "$dir/one1.m.samples.jsonl") $(drawn "two1.4:tensor=2+zero=3")" "4 $(drawn one1)" "samples are written once, and are those of one rank"
rm -rf "$dir/w" && on 2 asked --tensor 2 --rounds 1
is "$rc $(wc -l <"$dir/w/asked" | tr -d ' ')" "0 10" "the command is asked once for each completion, not by each rank"
alike "GRPO, an adapter with magnitudes, its base as the reference" "2:tensor=2" --algorithm grpo --lora-rank 4 --lora-dora --lora-targets qkv \
    --lora-targets o --lr 1e-2 --kl-coef 0.1
alike "a reward model, groups of equal scores are dropped" "2:tensor=2 4:tensor=2" --algorithm dapo --samples 4 --minibatch 5 --dynamic-rounds 4 \
    --reward-model "$dir/rm" --kl-coef 0.1
alike "several micro-batches, plain text at another temperature" "2:tensor=2" --micro-tokens 32 --minibatch 7 --ptx-data "$dir/tok/shards" --ptx-coef 2 \
    --ptx-batch 5 --temperature 0.9

# --- stopped, killed, failed ---
ended() { # ended NAME RANKS COUNT ACTION ARGS...: when a rank's command has been asked COUNT times
    _run=$1 _of=$2 _count=$3 _act=$4
    shift 4
    rm -rf "$dir/w"
    mkdir "$dir/w"
    echo "$_count $_act" >"$dir/w/when"
    on "$_of" "$_run" "$@"
    rm -f "$dir/w/when"
}
on 4 whole --tensor 2
ended s 4 8 term --tensor 2
is "$rc" 75 "one rank is asked to stop in a round: all do" "$(tail -n 2 "$dir/err")"
for to in 4:2 2:2 1:1 3:1; do
    rm -rf "$dir/c" "$dir/c.m"
    cp -R "$dir/s" "$dir/c"
    cp "$dir/s.m" "$dir/c.m"
    on "${to%:*}" c --tensor "${to#*:}"
    [ $rc -eq 0 ] && near c whole
    ok $? "${to%:*} ranks go on with tensor = ${to#*:}: its numbers" "$(tail -n 2 "$dir/err")"
    [ "$to" != 4:2 ] || is "$(id c)" "$(id whole)" "on the same layout its bits"
done
ended k 4 8 kill --tensor 2
[ $rc -ne 0 ] && [ $rc -ne 75 ]
ok $? "a rank that is killed ends the job"
on 4 k --tensor 2
is "$rc $(id k)" "0 $(id whole)" "which goes on to the same bits"
ended e 4 3 fail --tensor 2
[ $rc -ne 0 ] && grep -q "error: prompt .* the reward command ended" "$dir/err"
ok $? "a rank whose command fails says why" "$(tail -n 3 "$dir/err")"
says_like 'error: rank [0-9] (.*) failed' "and the others, those of its group too, hear of it and end by themselves"

if [ -n "$FAIL" ]; then
    LD_PRELOAD=$FAIL LF_FAIL_ROOT=$dir LF_FAIL_PROGRAM=lf-ppo LF_FAIL_ACTION=eio LF_FAIL_AFTER=3 LF_FAIL_MATCH='*write *.part'
    export LD_PRELOAD LF_FAIL_ROOT LF_FAIL_PROGRAM LF_FAIL_ACTION LF_FAIL_AFTER LF_FAIL_MATCH
    on 2 weak --tensor 2
    unset LD_PRELOAD LF_FAIL_ROOT LF_FAIL_PROGRAM LF_FAIL_ACTION LF_FAIL_AFTER LF_FAIL_MATCH
    [ $rc -ne 0 ] && grep -q "error: .*[.]part" "$dir/err"
    ok $? "a rank that cannot write between two passes says why" "$(tail -n 3 "$dir/err")"
    grep -q 'error: rank 0 of the 2 that have the model together has failed' "$dir/err" && ! grep -q 'not been heard\|missing in' "$dir/err"
    ok $? "and its group, which would wait for it in the next pass, ends by itself" "$(tail -n 3 "$dir/err")"
else
    skip_some 2 "$no_fail"
fi

# --- planned, refused ---
plan() { "$ppo" --config "$dir/base.ini" --plan "$@" 2>"$dir/err"; }
bytes() { plan --ranks 2 --tensor "$1" | sed -n "s/.*\"$2\":{\([^}]*\)}.*/\1/p" | sed -n "s/.*\"$3\":\([0-9]*\)[.,}]*.*/\1/p"; }
for of in "actor optimizer" "actor cache" "critic grads" "ref params"; do
    # shellcheck disable=SC2086
    part=$(bytes 2 $of) all=$(bytes 1 $of)
    [ "$part" -ge $((all / 10 * 4)) ] && [ "$part" -le $((all / 10 * 6)) ]
    ok $? "$of: $part bytes of $all"
done
[ "$(plan --ranks 2 --tensor 2 | sed -n 's/.*"tensor_bytes_per_step":\([0-9]*\).*/\1/p')" -gt 10000 ]
ok $? "what moves between them in an update is in the plan"
for a in "--pipeline 2" "--tensor 2 --sequence-parallel"; do
    # shellcheck disable=SC2086
    plan --ranks 2 $a >/dev/null
    [ $? -ne 0 ] && grep -q 'ppo generates with what it trains' "$dir/err"
    ok $? "$a is refused, with the reason" "$(cat "$dir/err")"
done
finish 32

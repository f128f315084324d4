#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# lf-ppo on several ranks, started by loong-flow launch: the rounds of one rank bit for bit, updates within the rounding of f32, kills and
# stops lose nothing, with another number of ranks too.
. "$LF_SRCDIR/tests/stage/lib.sh"
. "$LF_SRCDIR/tests/stage/ppo_lib.sh"
sed -i 's/^round_prompts = .*/round_prompts = 7/; s/^minibatch = .*/minibatch = 7/; s/^micro_tokens = .*/micro_tokens = 32/
    /^mfu = /d; /^reward_retries = /d' "$dir/base.ini"
mkdir "$dir/w"

# on RANKS NAME ARGS...: as in ppo_lib.sh, and one rank without a launcher
on() {
    _ranks=$1 _name=$2
    shift 2
    if [ "$_ranks" -eq 1 ]; then
        "$ppo" --config "$dir/base.ini" --out "$dir/$_name" --metrics "$dir/$_name.m" "$@" 2>"$dir/err" >"$dir/stdout"
    else
        $launch "$_ranks" -- "$ppo" --config "$dir/base.ini" --out "$dir/$_name" --metrics "$dir/$_name.m" "$@" 2>"$dir/err" >"$dir/stdout"
    fi
    rc=$?
}
record() { "$tool" record "$dir/$1.m" | sed -n "$2p"; }
member() { record "$1" "$2" | grep -o "\"$3\":[^,}]*" | sed 's/.*://'; } # member RUN LINE NAME
# near RUN RUN: every number of every record that is not a time, within 5e-6 of the larger; what compares the weights as they are now with
# those that generated is a difference of numbers that may be so far apart, within 2e-5
near() {
    for _r in "$1" "$2"; do
        "$tool" record "$dir/$_r.m" | sed 's/,"gen_s":.*//; s/,"train_s":.*//' | tr '{},' '   ' | tr ' ' '\n' | grep : | sed 's/.*"\(.*\)":/\1 /' >"$dir/$_r.flat"
    done
    paste -d ' ' "$dir/$1.flat" "$dir/$2.flat" | awk 'function abs(x) { return x < 0 ? -x : x }
        $1 != $3 { bad++ }
        { d = abs($2 - $4); m = abs($2) > abs($4) ? abs($2) : abs($4); if ($1 ~ /^(loss|policy_loss|ratio_var)$/ && m < 1) m = 1
          if (d > ($1 ~ /^(ratio_m|mismatch)/ ? 2e-5 : 5e-6 * m + 1e-7)) { bad++; print "#", $0 } rows++ }
        END { exit !(rows > 100 && !bad) }' >"$dir/far"
    _near=$?
    head -n 4 "$dir/far"
    return $_near
}

# --- the same run on 1, 2 and 3 ranks: PPO with critic, whitening over the round ---
for ranks in 1 2 3; do
    on $ranks r$ranks
    is "$rc $("$tool" record "$dir/r$ranks.m" | wc -l | tr -d ' ')" "0 8" "$ranks ranks"
    is "$(member r$ranks 1 mismatch_max) $(member r$ranks 1 ratio_min) $(member r$ranks 1 ratio_max) $(member r$ranks 5 mismatch_max)" "0 1 1 0" \
        "what was generated on one rank is trained on another with the same bits"
done
is "$(wc -l <"$dir/w/asked" | tr -d ' ')" 84 "every completion was scored once"
is "$(ls "$dir/r3/rollouts" | tr '\n' ' ')" "step-00000001.h5 step-00000002.h5 " "no part of a round is left"
for ranks in 2 3; do
    cmp -s "$dir/r1/rollouts/step-00000001.h5" "$dir/r$ranks/rollouts/step-00000001.h5"
    ok $? "$ranks ranks: the round of equal weights, its values and advantages too, has the bytes of one rank's"
    on $ranks p$ranks --replay "$dir/r1"
    [ $rc -eq 0 ] && near r1 p$ranks
    ok $? "$ranks ranks on its rounds: every metric of every update within 5e-6"
done
on 2 again
is "$(id again/checkpoint)" "$(id r2/checkpoint)" "two ranks twice: the same bits"
on 2 other --replay "$dir/r1" --lr 2.02e-4
[ $rc -eq 0 ] && ! near r1 other >/dev/null
ok $? "a learning rate 1 % off is seen"
on 3 few --minibatch 1 --rounds 1 --round-epochs 1 --round-prompts 2
[ $rc -eq 0 ] && on 1 few1 --minibatch 1 --rounds 1 --round-epochs 1 --round-prompts 2 && near few few1
ok $? "ranks that have no micro-batch add nothing"

# --- kills and stops ---
interrupt() { # interrupt RANKS NAME COUNT ACTION
    rm -rf "$dir/w"
    mkdir "$dir/w"
    echo "$3 $4" >"$dir/w/when"
    on "$1" "$2"
}
interrupt 2 k 10 kill
[ $rc -ne 0 ] && [ $rc -ne 75 ]
ok $? "a rank that is killed in a rollout takes the others along"
on 2 k
is "$rc $(id k/checkpoint)" "0 $(id r2/checkpoint)" "started again: the same bits"
[ "$(wc -l <"$dir/w/asked")" -ge 29 ] && [ "$(wc -l <"$dir/w/asked")" -le 30 ]
ok $? "and at most the completions under way are scored again"
interrupt 2 s 10 term
is $rc 75 "a stop of one rank is a stop of all"
on 2 s
is "$rc $(id s/checkpoint)" "0 $(id r2/checkpoint)" "and goes on to the same bits"
interrupt 3 m 7 term
ls "$dir/m/rollouts" | grep -q '00000002.part-2'
ok $? "every rank keeps its part of the round"
on 2 m
[ $rc -eq 0 ] && grep -q "perhaps not bitwise" "$dir/err" && near r3 m
ok $? "three ranks go on as two, within 5e-6"
cmp -s "$dir/r3/rollouts/step-00000002.h5" "$dir/m/rollouts/step-00000002.h5"
ok $? "with the round that three had begun"
is "$(ls "$dir/m/rollouts" | grep -c part)" 0 "of which no part is left"
on 2 lora --algorithm grpo --lora-rank 4 --lr 1e-2 --kl-coef 0.1
[ $rc -eq 0 ] && [ "$(member lora 1 objective_kl)" = 0 ] && [ -e "$dir/lora/adapter/manifest.json" ]
ok $? "an adapter on two ranks"
# --- plain text beside the rewards ---
ptx="--ptx-data $dir/tok/shards --ptx-coef 2 --temperature 0.9"
rm -rf "$dir/w"
mkdir "$dir/w"
on 1 x $ptx
[ $rc -eq 0 ] && awk -v a="$(member x 1 ptx_loss)" -v b="$(member x 8 ptx_loss)" 'BEGIN { exit !(a > 3 && b < a) }'
ok $? "the loss of plain text falls: $(member x 1 ptx_loss) to $(member x 8 ptx_loss)"
on 3 x3 $ptx --replay "$dir/x"
[ $rc -eq 0 ] && near x x3
ok $? "three ranks share it"
echo "20 term" >"$dir/w/when"
on 1 xs $ptx
is $rc 75 "stopped in round 2"
on 1 xs $ptx
is "$(id xs/checkpoint)" "$(id x/checkpoint)" "it goes on with the documents that were next"
on 1 bad --ptx-coef 2
[ $rc -eq 2 ] && grep -q "belong together" "$dir/err"
ok $? "a coefficient without text is refused"
$launch 2 -- sh -c 'exec "$0" --config "$1/base.ini" --out "$1/diff" --seed "$PMIX_RANK"' "$ppo" "$dir" 2>"$dir/err" >/dev/null
[ $? -eq 1 ] && grep -q "does not run the same as rank 0 .*seed" "$dir/err"
ok $? "ranks of different settings are refused"

finish 31

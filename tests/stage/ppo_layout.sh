#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# lf-ppo whose rollouts, reference, reward model and critic have layouts of their own over the same ranks: one rank's tokens and numbers within the rounding
# of other sums, with zero, adapters, samples, a reward model; weights that come to a rollout are those that the plan says; killed and resumed with other
# layouts; refused.
. "$LF_SRCDIR/tests/stage/lib.sh"
. "$LF_SRCDIR/tests/stage/ppo_lib.sh"
echo "numeric = fast" >>"$dir/base.ini"

of() { printf '%s' "$1" | sed 's/^[0-9]*:/--/; s/+/ --/g; s/=/ /g'; }
plan() { # plan LAYOUT ARGS...
    _p=$1
    shift
    # shellcheck disable=SC2046
    "$ppo" --config "$dir/base.ini" --plan --ranks "${_p%%:*}" $(of "$_p") "$@" 2>"$dir/refusal"
}
member() { "$tool" record "$dir/$1.m" | sed -n "$2"'p' | grep -o "\"$3\":[^,}]*" | sed 's/.*://'; } # member RUN LINE NAME
planned() { sed -n "s/.*\"rollout_bytes_$1\":\([0-9]*\).*/\1/p"; }
counted() { "$tool" record "$dir/$1.m" | grep "\"round\":$2," | sed -n 's/.*"rollout_bytes":\([0-9]*\).*/\1/p' | sort -u | tr '\n' ' '; }

k=0
# trial WHAT "LAYOUT ..." ARGS...: one rank, then layouts like 4:tensor=2+rollout-tensor=1: the same numbers, and the bytes that are planned
trial() {
    _what=$1 _layouts=$2
    k=$((k + 1))
    shift 2
    on 1 "one$k" "$@"
    [ $rc -eq 0 ] || bail "$_what: $(tail -n 2 "$dir/err")"
    for _l in $_layouts; do
        rm -rf "$dir/w"
        # shellcheck disable=SC2046
        on "${_l%%:*}" "two$k.$_l" $(of "$_l") "$@"
        [ $rc -eq 0 ] && near "two$k.$_l" "one$k"
        ok $? "$_what, $_l: the numbers of one rank" "$(tail -n 2 "$dir/err")"
        case $_l in
        *rollout*)
            plan "$_l" "$@" >"$dir/plan"
            is "$(counted "two$k.$_l" 1)$(counted "two$k.$_l" 2)" "$(planned first <"$dir/plan") $(planned per_round <"$dir/plan") " \
                "the bytes that came to rank 0 are those of the plan"
            ;;
        esac
    done
}

# --- rollouts ---
trial "critic and reference" "2:rollout-tensor=2 2:tensor=2+rollout-tensor=1 2:zero=3+rollout-tensor=2 4:tensor=2+zero=1+rollout-tensor=4"
grep -q 'lf-ppo: rollout: data 1 x tensor 4' "$dir/err"
ok $? "the log says the layout of rollouts"
[ "$(counted "two1.2:tensor=2+rollout-tensor=1" 2)" -gt 100000 ] && [ "$(counted "two1.2:rollout-tensor=2" 2)" -eq 0 ]
ok $? "half of the weights comes where the other rank has it, nothing where each has all"
m=$(member "two1.2:tensor=2+rollout-tensor=1" 1 mismatch_max)
[ -n "$m" ] && [ "$m" != 0 ]
ok $? "and the metrics say how far they are from training: $m"
l=4:tensor=2+zero=3+rollout-tensor=1
trial "GRPO, an adapter with magnitudes, its base as the reference" $l --algorithm grpo --lora-rank 4 --lora-dora --lora-targets qkv --lora-targets o --lr 1e-2 \
    --kl-coef 0.1
[ "$(counted "two2.$l" 2)" -gt 0 ] && [ "$(counted "two2.$l" 2)" -lt $(($(counted "two2.$l" 1) / 4)) ]
ok $? "of an adapter only what is trained comes again"
drawn() { grep -o '"token_ids":[^]]*' "$dir/$1.m.samples.jsonl" | cksum; }
on 1 alone --rounds 1 --sample-interval 1 --sample-tokens 6 --sample-rows 2
on 2 drawn --rounds 1 --sample-interval 1 --sample-tokens 6 --sample-rows 2 --tensor 2 --rollout-tensor 1
is "$rc $(drawn drawn)" "0 $(drawn alone)" "samples are continued with the weights after the last update"
is "$(counted drawn 1)" "236544 473088 " "which have come once more" # the record of the last update is behind them
on 2 half --rounds 1 --round-epochs 1 --precision bf16 --tensor 2 --rollout-tensor 1
is "$rc $(counted half 1)" "0 118272 " "bf16: copies move, which are half as large"

# --- the other models ---
trial "each model on its own" "2:reference-tensor=2+critic-tensor=2 4:tensor=2+zero=3+reference-tensor=4+critic-tensor=1"
trial "a reward model, groups of equal scores are dropped" 4:tensor=2+reward-tensor=4+rollout-tensor=1 --algorithm dapo --samples 4 \
    --minibatch 5 --dynamic-rounds 4 --reward-model "$dir/rm" --kl-coef 0.1

# --- rows of training, which rollouts do not divide ---
trial "rows" "2:context=2 4:context=2+context-kind=gather+zero=3 4:tensor=2+context=2+critic-tensor=1"
grep -q 'lf-ppo: rollout: data 2 x tensor 2' "$dir/err"
ok $? "the log says the layout of rollouts" "$(cat "$dir/err")"
trial "rows of GRPO, an adapter, its base as the reference" "2:context=2+context-kind=gather" --algorithm grpo --lora-rank 4 --kl-coef 0.1
exact() { # exact RUN: of the rollout, how far training is from it
    "$tool" record "$dir/$1.m" | sed -n 's/.*"mismatch_max":\([^,}]*\).*/\1/p' | sort -u | tr '\n' ' '
}
on 2 bits --context 2 --numeric invariant
is "$rc $(exact bits)" "0 0 " "with numeric = invariant the bits of the rollout"
plan 2:context=2 | grep -q '"context_bytes_per_step":[1-9]'
ok $? "and the plan has what rows move"

# --- training's own layout, by name ---
on 2 plain --tensor 2
on 2 named --tensor 2 --rollout-tensor 2 --reference-tensor 2 --critic-tensor 2
is "$rc $(id named/checkpoint)" "0 $(id plain/checkpoint)" "that of training by name: its bits"
is "$(plan 2:tensor=2+rollout-tensor=2 | grep -c rollout)" 0 "and no second copy of the weights"
plan 2:tensor=2+rollout-tensor=1 | grep -q '"rollout":{"activations":[0-9.]*,"cache":[1-9].*"params":[1-9]'
ok $? "which another one has in the plan, with the cache"

# --- killed, resumed ---
on 4 whole --tensor 2 --rollout-tensor 1 --critic-tensor 4
stopped k 4 6 kill --tensor 2 --rollout-tensor 1 --critic-tensor 4
[ $rc -ne 0 ] && [ $rc -ne 75 ]
ok $? "a rank that is killed in a rollout ends the job"
for to in 4:tensor=2+critic-tensor=4+rollout-tensor=4 2:rollout-tensor=2+zero=3; do
    rm -rf "$dir/c" "$dir/c.m"
    cp -R "$dir/k" "$dir/c"
    cp "$dir/k.m" "$dir/c.m"
    # shellcheck disable=SC2046
    on "${to%%:*}" c $(of "$to")
    [ $rc -eq 0 ] && near c whole
    ok $? "which goes on with $to: its numbers" "$(tail -n 2 "$dir/err")"
done
on 4 k --tensor 2 --rollout-tensor 1 --critic-tensor 4
is "$rc $(id k/checkpoint)" "0 $(id whole/checkpoint)" "and on the same layouts to its bits"

# --- refused ---
refused() { # refused TEXT LAYOUT ARGS...
    _text=$1
    shift
    plan "$@" >/dev/null
    [ $? -ne 0 ] && grep -q "error: .*$_text" "$dir/refusal"
    ok $? "$* is refused: $_text" "$(cat "$dir/refusal")"
}
refused 'rollout_layout has tensor = 2 and training tensor = 1.*set numeric = fast' 2:rollout-tensor=2 --numeric invariant
refused 'rollout_layout: tensor = 3: 4 ranks cannot form such groups' 4:rollout-tensor=3
refused 'reference_layout: there is no model of a reference without kl_coef' 2:reference-tensor=2 --kl-coef 0
refused 'reference_layout: there is no model of a reference beside a policy that is an adapter' 2:reference-tensor=2 --lora-rank 4
refused 'reward_layout has no use without reward_model' 2:reward-tensor=2
refused 'critic_layout: there is a critic with advantage = gae only' 2:critic-tensor=2 --algorithm grpo
finish 41

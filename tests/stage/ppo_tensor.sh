#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# lf-ppo on ranks that divide matrices (tensor): policy, rollouts, reference, critic and reward model have the layout. One rank's tokens, and its numbers
# within the rounding of other sums; with groups that share the prompts, zero, adapters, plain text; a command is asked once for a group; stopped, killed,
# resumed on other layouts; planned and refused.
. "$LF_SRCDIR/tests/stage/lib.sh"
. "$LF_SRCDIR/tests/stage/ppo_lib.sh"

k=0
# trial WHAT "LAYOUT ..." ARGS...: one rank, then layouts like 4:tensor=2+zero=1: the same numbers
trial() {
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

trial "critic and reference" "2:tensor=2 4:tensor=2 4:tensor=4 4:tensor=2+zero=1 4:tensor=2+zero=3" --keep-best \
    --sample-interval 1 --sample-tokens 6 --sample-rows 2
grep -q 'lf-ppo: 4 ranks: data 2 x tensor 2' "$dir/err"
ok $? "the log says the layout"
! grep -q 'warning: generator' "$dir/err"
ok $? "that generator and training differ by rounding is no warning"
drawn() { grep -o '"token_ids":[^]]*' "$dir/$1.m.samples.jsonl" | cksum; }
is "$(grep -c . "$dir/one1.m.samples.jsonl") $(drawn "two1.4:tensor=2+zero=3")" "4 $(drawn one1)" "samples are written once, and are those of one rank"
rm -rf "$dir/w" && on 2 asked --tensor 2 --rounds 1
is "$rc $(wc -l <"$dir/w/asked" | tr -d ' ')" "0 10" "the command is asked once for each completion, not by each rank"
trial "GRPO, an adapter with magnitudes, its base as the reference" "2:tensor=2" --algorithm grpo --lora-rank 4 --lora-dora --lora-targets qkv \
    --lora-targets o --lr 1e-2 --kl-coef 0.1
trial "a reward model, groups of equal scores are dropped" "2:tensor=2 4:tensor=2" --algorithm dapo --samples 4 --minibatch 5 --dynamic-rounds 4 \
    --reward-model "$dir/rm" --kl-coef 0.1
trial "several micro-batches, plain text at another temperature" "2:tensor=2" --micro-tokens 32 --minibatch 7 --ptx-data "$dir/tok/shards" --ptx-coef 2 \
    --ptx-batch 5 --temperature 0.9

# --- stopped, killed, failed ---
on 4 whole --tensor 2
stopped s 4 8 term --tensor 2
is "$rc" 75 "one rank is asked to stop in a round: all do" "$(tail -n 2 "$dir/err")"
for to in 4:2 2:2 1:1 3:1; do
    rm -rf "$dir/c" "$dir/c.m"
    cp -R "$dir/s" "$dir/c"
    cp "$dir/s.m" "$dir/c.m"
    on "${to%:*}" c --tensor "${to#*:}"
    [ $rc -eq 0 ] && near c whole
    ok $? "${to%:*} ranks go on with tensor = ${to#*:}: its numbers" "$(tail -n 2 "$dir/err")"
    [ "$to" != 4:2 ] || is "$(id c/checkpoint)" "$(id whole/checkpoint)" "on the same layout its bits"
done
stopped k 4 8 kill --tensor 2
[ $rc -ne 0 ] && [ $rc -ne 75 ]
ok $? "a rank that is killed ends the job"
on 4 k --tensor 2
is "$rc $(id k/checkpoint)" "0 $(id whole/checkpoint)" "which goes on to the same bits"
stopped e 4 3 fail --tensor 2
[ $rc -ne 0 ] && grep -q "error: prompt .* the reward command ended" "$dir/err"
ok $? "a rank whose command fails says why" "$(tail -n 3 "$dir/err")"
says_like 'error: rank [0-9] (.*) failed' "and the others, those of its group too, hear of it and end by themselves"

if [ -n "$FAIL" ]; then
    faulty eio 3 '*write *.part' 2 weak --tensor 2
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

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# lf-ppo with sharded state (zero = 1, 2, 3): checkpoints, rounds, samples and metrics of ranks that keep everything, bit for bit, with a
# critic, a reference, adapters, plain text beside the rewards, f32 and bf16; groups of ranks; resumed with and without it and on other numbers
# of ranks; killed and stopped in a rollout; a rank that fails there; a damaged part; less memory, as planned.
. "$LF_SRCDIR/tests/stage/lib.sh"
. "$LF_SRCDIR/tests/stage/ppo_lib.sh"

# The parts of a run that do not tell times: its checkpoints, rounds, numbers and samples.
all() {
    id "$1/checkpoint"
    for s in $(ls "$dir/$1/checkpoints"); do id "$1/checkpoints/$s"; done
    numbers "$1" | cksum
    for f in "$dir/$1"/rollouts/*; do cksum <"$f"; done
    [ ! -e "$dir/$1.m.samples.jsonl" ] || cksum <"$dir/$1.m.samples.jsonl"
}
# same RANKS WHAT STAGES ARGS...: without and with each stage
same() {
    _n=$1 _what=$2 _stages=$3
    shift 3
    on "$_n" "w$k" "$@"
    _codes=$rc _want=$(all "w$k")
    for z in $_stages; do
        rm -rf "$dir/z$k" "$dir/z$k.m"*
        on "$_n" "z$k" --zero "$z" "$@"
        is "$_codes $rc" "0 0" "$_n ranks, $_what, zero = $z: both run" "$(tail -n 2 "$dir/err")"
        is "$(all "z$k")" "$_want" "the same bits"
    done
    k=$((k + 1))
}
k=1
# At most one micro-batch for each rank.
same 2 "critic, reference and samples" "1 2 3" --sample-interval 1 --sample-tokens 6 --sample-rows 2 --keep-best
is "$(ls "$dir/z1") $(ls "$dir/z1/checkpoints") $(grep -c '"token_ids":' "$dir/z1.m.samples.jsonl")" "$(ls "$dir/w1") $(ls "$dir/w1/checkpoints") 4" \
    "the same is kept"
same 2 "bf16, state in bf16, rounded at random" "1 2 3" --precision bf16 --moments bf16 --masters bf16
same 4 "bf16, recomputation, ranks without a micro-batch" "2 3" --precision bf16 --recompute full
same 2 "GRPO, an adapter with magnitudes, its base as the reference" "1 2 3" --algorithm grpo --lora-rank 4 --lora-dora --lr 1e-2 --kl-coef 0.1
same 4 "RLOO, a frozen layer" 3 --algorithm rloo --freeze "layers.0.*"
same 2 "DAPO: groups of equal scores are dropped; a reward model, which is whole" 3 --algorithm dapo --samples 4 --minibatch 5 --dynamic-rounds 4 \
    --reward-model "$dir/rm" --kl-coef 0.1
same 2 "generation alone" "1 3" --round-epochs 0 --sample-interval 1 --sample-tokens 6 --sample-rows 2

# --- several micro-batches, and groups ---
several() { # several WHAT ARGS...: more than one for a rank, not as many on each
    _what=$1
    shift
    for z in 0 2 3; do
        rm -rf "$dir/s$z" "$dir/s$z.m"
        on 2 s$z --micro-tokens 32 --minibatch 7 --zero $z "$@"
    done
    is "$rc $(all s3)" "0 $(all s2)" "several micro-batches$_what: the same bits with zero = 2 and 3"
    near s2 s0
    ok $? "and the numbers of zero = 0"
}
several ""
several ", and plain text at another temperature" --ptx-data "$dir/tok/shards" --ptx-coef 2 --ptx-batch 5 --temperature 0.9
on 2 u
for z in 1 2 3; do on 4 g$z --zero $z --zero-inner 2; done
is "$rc $(all g2) $(all g3)" "0 $(all g1) $(all g1)" "two groups of two ranks: the same bits with each stage"
near g3 u
ok $? "and the numbers of two ranks"
on 2 bad --zero 1 --zero-inner 3
[ $rc -ne 0 ]
ok $? "groups that two ranks cannot form are refused"
says "zero_inner = 3: " "by name"

# --- a run that was stopped goes on with any setting ---
stopped s 2 8 term --zero 3
is "$rc $(ls "$dir/s/rollouts" | grep -c part)" "75 2" "a stop in the second rollout: each rank keeps its part of the round"
for to in "2 3" "2 0" "2 1" "3 2" "4 3" "1 3"; do
    n=${to% *} z=${to#* }
    rm -rf "$dir/c" "$dir/c.m"
    cp -R "$dir/s" "$dir/c"
    cp "$dir/s.m" "$dir/c.m"
    on "$n" c --zero "$z"
    cmp -s "$dir/c/rollouts/step-00000002.h5" "$dir/u/rollouts/step-00000002.h5"
    is "$rc $?" "0 0" "$n ranks go on with zero = $z: the round that two had begun"
    if [ "$n" -eq 2 ]; then
        is "$(id c/checkpoint)" "$(id u/checkpoint)" "to the bits of a run that was not stopped"
    else
        near c u
        ok $? "to its numbers"
    fi
done
stopped f 2 8 term
on 2 f --zero 3
is "$rc $(id f/checkpoint)" "0 $(id u/checkpoint)" "a run without it goes on with zero = 3 to the same bits"

# --- in the middle of a round: its rollout is found by the key of weights that nobody has all of ---
if [ -n "$FAIL" ]; then
    rm -rf "$dir/c" "$dir/c.m"
    faulty term 6 '*write /c.m' 2 c --zero 3
    is "$rc $(ls "$dir/c/checkpoints" | tail -n 1)" "75 step-00000006" "a stop between two updates of the second round"
    on 2 c --zero 0
    is "$rc $(id c/checkpoint)" "0 $(id u/checkpoint)" "goes on without zero to the same bits"
    says "its rollout is there already" "with the rollout that there is"
    faulty kill 2 '*write *.part-1' 2 gone --zero 3
    [ $rc -ne 0 ] && [ $rc -ne 75 ]
    ok $? "a rank that is killed while it draws, between two of its steps, ends the job"
    on 2 gone --zero 3
    is "$rc $(id gone/checkpoint)" "0 $(id u/checkpoint)" "which goes on to the same bits"
    faulty eio 2 '*write *.part-1' 2 weak --zero 3
    [ $rc -ne 0 ] && grep -q "error: .*part-1" "$dir/err"
    ok $? "one that fails there says why" "$(tail -n 3 "$dir/err")"
    says_like 'error: rank 1 (.*) failed' "and the other, which needs it for no step, hears of it"
    faulty eio 1 'pwrite *step-00000004/data-00001*' 2 once --zero 3
    is "$rc $(id once/checkpoint)" "0 $(id u/checkpoint)" "a checkpoint that one rank cannot write costs the run only that"
    says_like "step 4 is not saved, and the run goes on: rank 1 (.*data-00001-00000.h5" "rank 0 names the rank and the file"
else
    skip_some 9 "$no_fail"
fi

# --- killed, failed, damaged ---
stopped k 2 8 kill --zero 3
[ $rc -ne 0 ] && [ $rc -ne 75 ]
ok $? "a rank that is killed in a rollout ends the job"
on 2 k --zero 3
is "$rc $(id k/checkpoint)" "0 $(id u/checkpoint)" "which goes on to the same bits"
stopped e 2 3 fail --zero 3
[ $rc -ne 0 ] && grep -q "error: prompt .* the reward command ended" "$dir/err"
ok $? "a rank whose command fails within a rollout says why" "$(tail -n 3 "$dir/err")"
says_like 'error: rank [01] (.*) failed' "and the other, which has made another number of steps, hears of it and ends by itself"
for z in 2 3; do # with one micro-batch, of rank 0
    stopped wild$z 2 3 huge --zero $z --algorithm reinforce++ --whiten=no --minibatch 1 --reward-command-weight 2
    [ $rc -ne 0 ] && [ "$(grep -c 'error: round 1, mini-batch .* the advantage is not finite' "$dir/err")" -eq 1 ]
    ok $? "zero = $z: what is not finite ends a rank between two passes: $(grep -o 'error: round.*' "$dir/err" | cut -c 1-90)" "$(tail -n 3 "$dir/err")"
    says_like 'error: rank 0 (.*) failed' "and the other, which gathers and sums meanwhile, hears of it"
done
rm -rf "$dir/c" "$dir/c.m" "$dir/w"
on 2 c --zero 3
rm -rf "$dir/c/checkpoint"
last=$(ls "$dir/c/checkpoints" | tail -n 1)
for f in "$dir/c/checkpoints/$last"/data-00001-*.h5; do
    printf '\377\377\377\377' | dd of="$f" bs=1 seek=$(($(wc -c <"$f") - 3000)) conv=notrunc 2>/dev/null
done
on 2 c --zero 3
is "$rc $(id c/checkpoint) $(ls -d "$dir/c/checkpoints/$last.broken" | wc -l)" "0 $(id u/checkpoint) 1" \
    "damage in the part of one rank: all pass over it, and nothing of it stays"
says "passing over" "and it is told"

# --- the plan ---
plan() { "$ppo" --config "$dir/base.ini" --plan --ranks "$1" --zero "$2" --precision bf16 2>"$dir/err"; }
bytes() { # bytes RANKS STAGE MODEL KIND: of a rank
    plan "$1" "$2" | sed -n "s/.*\"$3\":{\([^}]*\)}.*/\1/p" | sed -n "s/.*\"$4\":\([0-9]*\)[.,}]*.*/\1/p"
}
part() { # part KIND STAGE MODEL...: a rank of 2 has about its half of a kind; it is cut at blocks of the norm
    _kind=$1 _stage=$2
    shift 2
    for m in "$@"; do
        _part=$(bytes 2 "$_stage" "$m" "$_kind") _all=$(bytes 2 0 "$m" "$_kind")
        [ "$_part" -ge $((_all / 10 * 3)) ] && [ "$_part" -le $((_all / 10 * 7)) ]
        ok $? "zero = $_stage: $_kind of the $m take $_part bytes of $_all"
    done
}
part optimizer 1 actor critic
part grads 2 actor critic
part params 3 ref critic
is "$(bytes 1 3 actor params)" "$(bytes 1 0 actor params)" "one rank has everything"
sent() { plan 2 "$1" | sed -n 's/.*"bytes_per_step":\([0-9]*\).*/\1/p'; }
[ "$(sent 3)" -gt "$(sent 1)" ]
ok $? "what moves in an update is in the plan: $(sent 1) and $(sent 3) bytes"
round() { plan 2 "$1" | sed -n 's/.*"bytes_per_round":\([0-9]*\).*/\1/p'; }
[ "$(round 3)" -gt $(($(round 2) * 2)) ] && [ "$(round 2)" -gt 0 ] && [ "$(round 0)" -eq 0 ]
ok $? "so is what a round moves, for the key of parts of f32 weights ($(round 2) bytes), with 3 before it and in forward passes ($(round 3))"

# --- a model that does not fit one rank, and whose actor does while it draws ---
sed 's/^layers = .*/layers = 5/; s/^hidden = .*/hidden = 384/; s/^heads = .*/heads = 8/; s/^ffn = .*/ffn = 1032/' \
    "$LF_SRCDIR/models/tiny-llama.ini" >"$dir/large.ini"
# shellcheck disable=SC2086
sanitizers || least_room $launch 1 -- "$ppo" --config "$dir/base.ini" --rounds 1 --round-epochs 1 --out "$dir/room"
limited() { # limited RANKS: each with 360 MB of addresses more than a small model needs; one rank needs 400, four need 330
    (ulimit -v $((room + 360000)) && whole $launch "$1" -- "$ppo" --config "$dir/base.ini" --init-from "$dir/large" --rounds 1 --round-epochs 1 --zero 3 \
        --out "$dir/large$1" --metrics "$dir/large$1.m") >"$dir/stdout" 2>"$dir/err"
    rc=$?
}
if sanitizers; then
    skip_some 3 "sanitizers need all addresses"
else
    must "$tool" ckpt "$dir/large" "$dir/large.ini" 270
    limited 1
    [ $rc -ne 0 ]
    ok $? "a model whose actor, critic and reference do not fit one rank's memory"
    says "memory" "is refused with the reason"
    limited 4
    is $rc 0 "four ranks with zero = 3 draw from it and train it" "$(tail -n 2 "$dir/err")"
fi
finish 84

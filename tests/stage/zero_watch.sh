#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A rank that is stopped in its forward pass, stopped in its backward pass (with zero = 2 and 3 between two sums), or killed where it
# gives others its part of the weights, with each stage of ZeRO: one line names the rank, its micro-batch and the collective in which it
# is missing; all processes end; the next start goes on to the bits of an undisturbed run. A rank that takes many times longer than the
# others is no hang.
. "$LF_SRCDIR/tests/stage/lib.sh"
. "$LF_SRCDIR/tests/stage/watch_lib.sh"
settings 3 6

# Each rank has two micro-batches a step: passes 5 and 6 are those of step 3.
for z in 1 2 3; do
    start 3 "forward$z" "1 stop 6 0 0" "train forward" --zero $z
    start 3 "backward$z" "1 stop 6 $((z > 1 ? 3 : 0)) 1" "train backward" --zero $z
    start 3 "gather$z" "1 kill $((z == 3 ? 6 : 3)) 1 3" "$([ $z = 3 ] && echo "train forward" || echo optimizer)" --zero $z
    start 3 "slow$z" "1 $slow_ms 7 0 0" "train forward" --zero $z
done
for z in 1 2 3; do
    whole 3 "whole$z" --zero $z
    # With zero = 1 and 2 nothing is exchanged in a forward pass: the others wait where the step needs all.
    ended "forward$z" 70 "the stop"
    line "forward$z" 1 "$stopped; missing in (all|reduce)_[a-z]+ #[0-9]+, step 3.*it was (after|in) .*, step 3, micro-batch 2 forward"
    ended "backward$z" 70 "the stop"
    line "backward$z" 1 "$stopped; missing in (all|reduce)_[a-z]+ #[0-9]+, step 3.*it was (after|in) .*, step 3, micro-batch 2 backward"
    ended "gather$z" 137 "the kill"
    # With zero = 3 gradients of the micro-batch before may be under way yet. Else one of the others may still be in the sum before.
    line "gather$z" 1 "died; missing in $([ $z = 3 ] && echo '[a-z_]+ #[0-9]+, step 3, micro-batch [12] [a-z]+, where rank [02] ' ||
        echo 'all_gather #[0-9]+, step 3, where rank [02] (and 1 more wait|waits; rank [02] waits in all_reduce #[0-9]+, step 3)')"
    ended "slow$z" 0 "the first of two passes of $slow_ms ms in a step, while others wait"
    same "slow$z" "the bits of an undisturbed run"
    for name in forward backward gather; do again 3 $name$z --zero $z; done
done
finish 33

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ranks that have different layers (pipeline) and divide matrices (tensor): one is stopped in a forward pass while its neighbours wait for messages, one is
# killed in a sum over those that divide matrices while others wait for messages of the pipeline. One line names the rank, and what each of the others
# waits for; all processes end; the next start goes on to the bits of an undisturbed run. A rank that is slow is no hang.
. "$LF_SRCDIR/tests/stage/lib.sh"
. "$LF_SRCDIR/tests/stage/watch_lib.sh"
settings 4 4

# Each rank has four micro-batches a step: pass 10 is the second one of step 3, pass 13 the first one of step 4.
start 4 stopped "2 stop 10 0 0" "train forward" --pipeline 4
start 4 killed "1 die 13 1 1" "train forward" --pipeline 2 --tensor 2
start 2 slow "0 $slow_ms 15 0 0" "train forward" --pipeline 2
of='#[0-9]+ of communicator [0-9]+'
whole 4 whole4 --pipeline 4
ended stopped 70 "the stop"
line stopped 2 "$stopped; missing in recv from rank 2, .* it was .*, step 3, micro-batch 2 forward" \
    ".*[; ]rank 3 waits(;| in recv from rank 2, forward, chunk 0 $of, step 3, micro-batch 2 forward)" \
    ".*[; ]rank 1 waits(;| in recv from rank 2, backward, chunk 0 $of, step 3, micro-batch 1 backward)" \
    ".*; rank 0 waits in recv from rank 1, backward, chunk 0 $of, step 3, micro-batch 1 backward"
again 4 stopped --pipeline 4
whole 4 whole22 --pipeline 2 --tensor 2
ended killed 137 "the kill"
line killed 1 "died; missing in recv from rank 1, forward, chunk 0 $of, step 4, micro-batch 1 forward, where rank 3 waits; " \
    ".*; rank 0 waits in all_reduce $of, step 4, micro-batch 1 forward" \
    ".*; rank 2 waits in recv from rank 0, forward, chunk 0 $of, step 4, micro-batch 1 forward"
again 4 killed --pipeline 2 --tensor 2
whole 2 whole2 --pipeline 2
ended slow 0 "the first of two passes of $slow_ms ms in a step, while the other rank waits"
same slow "the bits of an undisturbed run"
finish 8

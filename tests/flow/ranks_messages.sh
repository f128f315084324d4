#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Calls of ranks that do not wait: bits, order, bounds and counts over every transport of UCX, and messages that arrive
# while every rank computes. No clock decides here; tests/bench/comm_move.sh has the times.
. "$LF_SRCDIR/tests/flow/lib.sh"
M=$LF_BUILDDIR/tests/unit/comm_messages
need_ranks
bits() { sed -n 's/.*bits \([0-9a-f]*\) .*/\1/p' "$1"; }

for n in 1 2 3 4; do
    runs 0 "$LF" launch -n $n -- "$M" check
    bits out >bits.$n
    [ -s bits.$n ]; ok $? "$n ranks: every result is that of the definition"
done
for tls in posix,self tcp,self; do
    for n in 2 3; do
        runs 0 env UCX_TLS=$tls "$LF" launch -n $n -- "$M" check
        is "$(bits out)" "$(cat bits.$n)" "$n ranks over $tls: the same bits"
    done
done
runs 0 "$LF" launch -n 4 --nodes 2 --start local -- "$M" check
is "$(bits out)" "$(cat bits.4)" "4 ranks on 2 nodes: the same bits"

# arrives TRANSPORTS MODE RANKS: an empty list is UCX's own choice, which uses cross-memory attach where it is allowed
arrives() {
    mkdir "at$$"
    runs 0 env ${1:+UCX_TLS=$1} sh -c "cd at$$ && exec \"$LF\" launch -n $3 -- \"$M\" $2"
    rm -r "at$$"
}
for tls in '' posix,self tcp,self; do
    arrives "$tls" compute 2
    arrives "$tls" product 2
    arrives "$tls" still 2
done
arrives '' compute 3
arrives tcp,self product 3

# The same calls over an emulated NCCL, in two orders in which emulated GPUs may run their streams.
gpus() { # gpus EXIT RANKS ORDER [MISTAKE]
    runs "$1" env LF_CUDA_DRIVER="$LF_BUILDDIR/tests/libcuemu.so" LF_NCCL_LIB="$LF_BUILDDIR/tests/libncclemu.so" \
        LF_CUDART_LIB="$LF_BUILDDIR/tests/libncclemu.so" LF_CUBLASLT=none LF_EMU_ORDER="$3" \
        "$LF" launch -n "$2" -- "$LF_BUILDDIR/tests/unit/comm_gpus" $4
}
for order in 0 1; do
    for n in 2 3; do gpus 0 $n $order ''; done
done
gpus 134 2 0 order
grep -q 'use their communicators in different order' err; ok $? "two communicators in another order on another rank are told"
gpus 134 2 0 calls
grep -q 'make different calls' err; ok $? "and different calls"
gpus 134 2 0 sizes
grep -q 'give a message different sizes' err; ok $? "and a message of another size on the other side"
gpus 134 2 0 hang
grep -q 'wait for messages of each other' err; ok $? "and two ranks that both send before they receive"
FAKE_NCCL_VERSION=21705 gpus 0 2 0 ''

# Start-up: each rank reads two blobs of every rank and does nothing else that grows faster.
for n in 2 4 8; do
    runs 0 "$LF" launch -n $n -- "$M" start
    is "$(sed 's/^\[[0-9]*\] //' out | sort | uniq -c | sed 's/^ *//')" "$n $((2 * n)) of $n" "$n ranks read $((2 * n)) blobs each"
done
finish 48

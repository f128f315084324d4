#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Messages between two ranks that both compute half a second in matrix products: milliseconds until the last byte has come,
# with lf_comm_poll at the borders of tasks and without, over three transports. Run in the build directory, after
# `make tests/bench/comm_move loong-flow`; RANKS sets another number.
build=${LF_BUILDDIR:-$PWD}
export OMP_NUM_THREADS=1
for tls in posix,cma,self posix,self tcp,self; do
    echo "$tls"
    printf '%-8s %9s %9s %9s %9s\n' '' bytes median largest border
    UCX_TLS=$tls "$build/loong-flow" launch --raw -n "${RANKS:-2}" -- "$build/tests/bench/comm_move" || exit 1
done

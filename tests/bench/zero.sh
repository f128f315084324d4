#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What it costs when ranks divide their state: lf-pretrain on two ranks with zero = 0, 1, 2, 3 and on one rank, in turn, ROUNDS (9) times each,
# 1,024 tokens in a micro-batch, a Llama-like model of 58M parameters in f32, one thread a rank; then with four micro-batches. Beside it PyTorch
# (PYTHON) on the same shapes: one rank, DDP, and FSDP2 over gloo that keeps gathered weights for the backward pass or gathers them again.
# Prints the median of the rounds, each the median of a run's steps but the first, and the load. Run in the build directory after
# `make all tests/stage/train_tool`.
src=${LF_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)} rounds=${ROUNDS:-9} steps=${STEPS:-4}
. "$src/tests/bench/ranks.sh"
"$tool" data "$tmp/data" 4000 1000 || exit 1
# ours RANKS ZERO: seconds of a step
ours() { seconds "$1" --batch $((4 * micro * $1)) --zero "$2"; }
peer() { "$PYTHON" "$src/tests/bench/fsdp_peer.py" "$1" "$2" "$micro" "$steps" 2>/dev/null | sed -n 's/.*"seconds": *\([0-9.e-]*\).*/\1/p'; }
row() { # row NAME WHAT OF: the median of WHAT, and by that of OF
    [ -s "$tmp/$2" ] || return
    median <"$tmp/$2" >"$tmp/a"
    median <"$tmp/$3" >"$tmp/b"
    paste "$tmp/a" "$tmp/b" | awk -v name="$1" '{ printf "  %-28s %7.3f s  %5.3f\n", name, $1, $1 / $2 }'
}
machine
for micro in ${MICRO:-1 4}; do
    settings "$steps" 4 "threads = 1" >"$tmp/run.ini"
    rm -f "$tmp"/t.*
    i=0
    while [ $i -lt "$rounds" ]; do
        for zero in 0 1 2 3; do ours 2 $zero >>"$tmp/t.$zero"; done
        ours 1 0 >>"$tmp/t.one"
        if [ -n "${PYTHON:-}" ]; then
            peer 1 none >>"$tmp/t.none"
            for mode in ddp fsdp2 fsdp3; do peer 2 $mode >>"$tmp/t.$mode"; done
        fi
        i=$((i + 1))
    done
    echo "$micro micro-batches a rank and step; seconds of a step, and by that of the first line of its kind; load $(load)"
    row "one rank" t.one t.one
    for zero in 0 1 2 3; do row "two ranks, zero = $zero" t.$zero t.one; done
    for zero in 1 2 3; do row "zero = $zero by zero = 0" t.$zero t.0; done
    row "PyTorch, one rank" t.none t.none
    row "DDP" t.ddp t.none
    row "FSDP2, weights kept" t.fsdp2 t.none
    row "FSDP2, gathered again" t.fsdp3 t.none
done

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Some programs of tests/op on the PTX that nvcc made of the kernels (tests/cuda/ptx). `make check-ptx` runs all of them.
set -u
build=${LF_BUILDDIR:-.}
dir=$(mktemp -d "${TMPDIR:-/tmp}/lf-ptx.XXXXXX") || exit 99
trap 'rm -rf "$dir"' EXIT
n=0
failed=0
ok() { # ok STATUS NAME
    n=$((n + 1))
    if [ "$1" -eq 0 ]; then echo "ok $n - $2"; else
        failed=$((failed + 1))
        echo "not ok $n - $2"
        grep -e '^not ok' -e '^ptx' -e '^#' "$dir/log" | tail -n 20 | sed 's/^/# /'
    fi
}
[ -n "$(sed -n 's/^NVCC = *//p' "$build/Makefile" 2>/dev/null)" ] || { echo "1..0 # SKIP no nvcc: not configured --with-cuda"; exit 0; }

# PTXDIR PROGRAM: passes, and what ran was PTX.
on_ptx() {
    rm -f "$dir/count"
    LF_EMU_PTX=$1 LF_EMU_PTX_COUNT=$dir/count "$build/tests/op/cuda_$2_test" >"$dir/log" 2>&1 && [ "$(cat "$dir/count" 2>/dev/null || echo 0)" -gt 0 ]
}
for t in round rope norm optim fp8 gemm attn; do
    start=$(date +%s)
    on_ptx "$build/kernels/cuda" $t
    ok $? "$t: $(grep -c '^ok' "$dir/log") points, $(($(date +%s) - start)) s"
done

# Sources of every difference exchanged: what nvcc wrote is what is run.
mkdir "$dir/bad"
sed 's/\(sub\.rn\.f32[^%]*%f[0-9]*\), \(%f[0-9]*\), \(%f[0-9]*\);/\1, \3, \2;/' "$build/kernels/cuda/rows.ptx" >"$dir/bad/rows.ptx"
! cmp -s "$build/kernels/cuda/rows.ptx" "$dir/bad/rows.ptx" && ! on_ptx "$dir/bad" norm && grep -q '^not ok' "$dir/log"
ok $? "(an error in a .ptx is found)"
. "$LF_SRCDIR/tests/tap/plan.sh"
plan 8
[ $failed -eq 0 ]

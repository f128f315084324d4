#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Some programs of tests/op on the PTX that nvcc made of the kernels (tests/cuda/ptx). `make check-ptx` runs all of them.
set -u
build=${LF_BUILDDIR:-.}
. "$LF_SRCDIR/tests/tap/tap.sh"
own_dir
dir=$T
tap_why=$dir/log
[ -n "$(sed -n 's/^NVCC = *//p' "$build/Makefile" 2>/dev/null)" ] || skip_all "no nvcc: not configured --with-cuda"

# PTXDIR PROGRAM: passes, and what ran was PTX.
on_ptx() {
    rm -f "$dir/count"
    LF_EMU_PTX=$1 LF_EMU_PTX_COUNT=$dir/count "$build/tests/op/cuda_$2_test" >"$dir/log" 2>&1 && [ "$(cat "$dir/count" 2>/dev/null || echo 0)" -gt 0 ]
}
for t in round rope conv norm optim fp8 gemm attn; do
    start=$(date +%s)
    on_ptx "$build/kernels/cuda" $t
    ok $? "$t: $(grep -c '^ok' "$dir/log") points, $(($(date +%s) - start)) s"
done

# Sources of every difference exchanged: what nvcc wrote is what is run.
mkdir "$dir/bad"
sed 's/\(sub\.rn\.f32[^%]*%f[0-9]*\), \(%f[0-9]*\), \(%f[0-9]*\);/\1, \3, \2;/' "$build/kernels/cuda/rows.ptx" >"$dir/bad/rows.ptx"
! cmp -s "$build/kernels/cuda/rows.ptx" "$dir/bad/rows.ptx" && ! on_ptx "$dir/bad" norm && grep -q '^not ok' "$dir/log"
ok $? "(an error in a .ptx is found)"
finish 9

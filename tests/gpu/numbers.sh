#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What the bits of GPU code depend on (kernels/cuda/dev.h, "Numbers"): the build asks for it in both compilers, no device function steps
# around it, and, where nvcc was found, it does what is meant and nothing that was built is older than that.
set -u
src=${LF_SRCDIR:-.} build=${LF_BUILDDIR:-.}
. "$src/tests/tap/tap.sh"
own_dir
dir=$T
want='-fmad=false -ftz=false -prec-div=true -prec-sqrt=true'

# ---- the rules ----

# Commands of a makefile, one a line, that compile for a GPU without our flags behind the user's, or the emulator with contraction.
commands() { sed -e ':a' -e '/\\$/{N;s/\\\n//;ba' -e '}' "$1" | tr ';' '\n'; }
loose() {
    commands "$1" | grep -e '\$(NVCC) .*-fatbin' -e '\$(NVCC) .*-ptx' | grep -v -e '\$(NVCCFLAGS) \$(LF_NVCC_NUMBERS) -o'
    commands "$1" | grep -e '\$(CC) .*-shared .*\$\$list' | grep -v -e '-ffp-contract=off'
}
grep -q "^LF_NVCC_NUMBERS = $want\$" "$src/kernels/cuda.mk" && grep -q '^AM_CFLAGS = .*-ffp-contract=off' "$src/Makefile.am"
ok $? "no contraction, no flushed denormals, division and roots rounded correctly; none on the CPU either"
fatbins=$src/kernels/cuda.mk ptx=$src/tests/cuda/ptx.mk emu=$src/tests/cuda/local.mk
for mk in "$src"/kernels/*.mk "$src"/tests/cuda/*.mk; do loose "$mk"; done >"$dir/loose"
[ ! -s "$dir/loose" ] && [ "$(for mk in "$fatbins" "$ptx" "$emu"; do commands "$mk" | grep -c -e ' -fatbin' -e ' -ptx' -e 'shared .*list'; done | tr '\n' ' ')" = "1 1 1 " ] &&
    grep -q '^tests_cuda_libcuemu_a_CFLAGS = \$(AM_CFLAGS) \$(LF_EMU_CFLAGS) -fPIC$' "$emu"
ok $? "every command that compiles device code says so" "$(cat "$dir/loose")"
planted() { # planted FILE WORDS: without them
    sed "s/$2//" "$1" >"$dir/mk"
    [ -n "$(loose "$dir/mk")" ]
    ok $? "(without $2 in $(basename "$1") it would be noticed)"
}
planted "$emu" '-ffp-contract=off'
planted "$fatbins" ' \$(LF_NVCC_NUMBERS) -o'
planted "$ptx" ' \$(LF_NVCC_NUMBERS) -o'

# ---- the sources ----

# Approximations and ways to round otherwise. dev.h has the one that is meant.
fast() {
    grep -nE '__(exp|exp10|log|log2|log10|pow|sin|cos|tan|tanh|fdivide|saturate)f *\(|__(fmul|fadd|fsub|fmaf|fdiv|frcp|fsqrt|frsqrt)_r[nzud]|rsqrtf|\.approx' "$@" |
        grep -v '^[^:]*dev\.h:[0-9]*:.*ex2\.approx\.ftz'
}
fast "$src"/kernels/cuda/*.cu "$src"/kernels/cuda/*.h >"$dir/fast"
ok $((! $?)) "no approximation but lf_exp2" "$(cat "$dir/fast")"
echo 'y = __expf(x) * rsqrtf(z);' >"$dir/x.cu"
fast "$dir/x.cu" >/dev/null
ok $? "(one would be noticed)"

# ---- what nvcc makes of it ----

nvcc=$(sed -n 's/^NVCC = *//p' "$build/Makefile" 2>/dev/null)
if [ -z "$nvcc" ]; then
    skip "the compiler" "no nvcc: not configured --with-cuda"
    finish 8
fi
for report in "$build"/kernels/cuda/*.fatbin.log; do
    [ ! -e "$report" ] || sed -n 1p "$report" | grep -q -e "^nvcc flags: .*$want\$" || echo "$report: remove the fat binary and run make"
done >"$dir/old"
[ ! -s "$dir/old" ]
ok $? "what was built was built with these flags" "$(cat "$dir/old")"
cat >"$dir/probe.cu" <<'END'
extern "C" __global__ void probe(float *x, double *y)
{
    x[0] = x[1] * x[2] + x[3];
    x[4] = fmaf(x[5], x[6], x[7]);
    x[8] = x[9] / x[10];
    x[11] = sqrtf(x[12]);
    y[0] = y[1] * y[2] - y[3];
}
END
ptx() { # ptx FLAGS...: instructions of the probe
    "$nvcc" -ptx -O3 -std=c++17 "$@" -o "$dir/probe.ptx" "$dir/probe.cu" 2>"$dir/err" || return
    sed -n 's/^[[:space:]]*\([a-z]*\(\.[a-z]*\)*\.f\(32\|64\)\).*/\1/p' "$dir/probe.ptx" | grep -e '^mul' -e '^add' -e '^sub' -e '^fma' -e '^div' -e '^sqrt' | sort | tr '\n' ' '
}
# shellcheck disable=SC2086
got=$(ptx -use_fast_math -fmad=true $want)
[ "$got" = 'add.rn.f32 div.rn.f32 fma.rn.f32 mul.rn.f32 mul.rn.f64 sqrt.rn.f32 sub.rn.f64 ' ]
ok $? "a product and a sum stay two, in code that a driver compiles later too; flags before ours change nothing" "$got $(cat "$dir/err")"
got=$(ptx)
case $got in *'fma.rn.f32 fma.rn.f32 mul.f64'*) true ;; *) false ;; esac # a bare mul is ptxas's to contract
ok $? "(without them they are one)" "$got $(cat "$dir/err")"
finish 10

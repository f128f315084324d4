#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The benchmarks run, on the emulated GPU with tiny shapes: every row of the kernels has a time and a rate, words choose rows; a model
# decodes. Times mean nothing here: where the clock tells no positive one, the row says so.
set -u
bench=$LF_BUILDDIR/tests/gpu/gpu_kernels
. "$LF_SRCDIR/tests/tap/tap.sh"
own_dir
dir=$T
tap_why=$dir/out
LF_GPU_EMULATED=1 "$bench" >"$dir/out" 2>&1
ok $? "it runs"
for row in 'gemm .* forward, fast' 'gemm .* dw' 'gemm .* dx, invariant, wgmma' 'decode 16x.*' 'decode 64x.*, wgmma' 'rmsnorm .* backward' 'swiglu .* forward' 'attention .* forward' 'attention .* backward' 'attention .* forward, cudnn' 'attention .* backward, wgmma' 'attention .* backward, cudnn' 'adamw' 'classifier' 'sample .* greedy' 'sample .* top-k'; do
    grep -q "^| $row[^|]* | \\(too short to tell | |\\|[0-9.]* [mu]*s | [0-9.]* \\(TFLOP\\|GB\\)/s |\\)" "$dir/out"
    ok $? "$row"
done
grep -q 'copies at [0-9]* GB/s' "$dir/out"
ok $? "the bandwidth of copies, which rows are a share of"
LF_GPU_EMULATED=1 "$bench" attention >"$dir/out" 2>&1
[ "$(grep -c '^| attention' "$dir/out")" = 6 ] && ! grep -q '^| gemm' "$dir/out"
ok $? "a word chooses rows"
# A step's time is a difference of two, which noise can make negative: then it and what follows from it
# are null.
LF_GPU_EMULATED=1 "$LF_BUILDDIR/tests/gpu/gpu_model" decode "$LF_SRCDIR/models/tiny-llama.ini" 2 3 1 >"$dir/out" 2>"$dir/err"
rc=$?
time='"median_s":[0-9.e+-]*,"tokens_per_s":[0-9.e+]*,"share":[0-9.e+-]*,"rate":[0-9.e+]*,'
none='"median_s":null,"tokens_per_s":null,"share":null,"rate":null,'
[ $rc -eq 0 ] && grep -q '"what":"decode".*"B":2,"T":3,.*\('"$time\|$none"'\)' "$dir/out" && ! grep -q '_s":-' "$dir/out"
ok $? "decoding of a whole model"
grep -q 'step2, layer 1' "$dir/err"
ok $? "and where its time goes"
finish 21

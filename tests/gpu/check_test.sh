#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check.sh and bench.sh with programs that pass, fail, crash and find no GPU: what they print, write and return.
set -u
. "$LF_SRCDIR/tests/tap/tap.sh"
own_dir
dir=$T
tap_why=$dir/out
check() { sh "$LF_SRCDIR/tests/gpu/check.sh" -o "$dir/table" "$@" >"$dir/out" 2>&1; }
bench() { sh "$LF_SRCDIR/tests/gpu/bench.sh" -o "$dir/report" "$@" >"$dir/out" 2>&1; }
program() { # PATH BODY
    mkdir -p "${1%/*}"
    printf '#!/bin/sh\n%s\n' "$2" >"$1"
    chmod +x "$1"
}
unset LF_REQUIRE_GPU LF_GPU_PART LF_GPU_LINES LF_GPU_BENCH
program "$dir/op/cuda_good" 'echo "# on Toy GPU"; echo "ok 1 - a"; echo "ok 2 - b # SKIP c"; echo 1..2; echo "$LF_REQUIRE_GPU" >"'"$dir"'/asked"'
program "$dir/op/cuda_bad" 'echo "ok 1 - a"; echo "not ok 2 - b"; echo "# got 3"; echo 1..2; exit 1'
program "$dir/op/cuda_crash" 'echo "ok 1 - a"; kill -SEGV $$'
program "$dir/op/cuda_none" 'echo "Bail out! LF_REQUIRE_GPU=1: libcuda.so.1 cannot be loaded"; exit 1'
program "$dir/sanitizer" 'shift 6; case $* in */cuda_racy) echo "RACECHECK SUMMARY: 1 hazard"; exit 99 ;; esac; exec "$@"'
LF_GPU_SANITIZER=$dir/sanitizer
export LF_GPU_SANITIZER

check "$dir/op/cuda_good"
ok $? "what passes passes"
grep -q 'on Toy GPU' "$dir/table" && grep -q '^tests *cuda_good *passed *2 *0 *1' "$dir/table" && [ "$(cat "$dir/asked")" = 1 ]
ok $? "a table names the device and counts; the program was told to need a GPU"
grep -q '^memcheck *cuda_good *passed' "$dir/table" && grep -q '^racecheck *cuda_good *passed' "$dir/table"
ok $? "with both sanitizers"
check "$dir/op/cuda_none" "$dir/op/cuda_good"
[ $? -eq 1 ] && [ "$(wc -l <"$dir/out")" -eq 1 ] && grep -q 'no GPU to test on: libcuda.so.1' "$dir/out"
ok $? "without a GPU: one line that says why, a failure"
check "$dir/op/cuda_good" "$dir/op/cuda_bad" "$dir/op/cuda_crash"
[ $? -eq 1 ] && grep -q '^tests *cuda_bad *FAILED (1) *1 *1' "$dir/table" && grep -q '^tests *cuda_crash *FAILED (139)' "$dir/table" &&
    grep -q '^# got 3' "$dir/table" && grep -q '3 passed, 6 failed' "$dir/table"
ok $? "a failed point and a crash are told, with their words"
program "$dir/op/cuda_racy" 'echo "ok 1 - a"; echo 1..1'
LF_GPU_PART=racecheck check "$dir/op/cuda_racy"
[ $? -eq 1 ] && grep -q '^racecheck *cuda_racy *FAILED (99)' "$dir/table" && grep -q 'hazard' "$dir/table"
ok $? "a race is a failure"
program "$dir/model/loss" 'echo "ok 1 - a"; echo 1..1'
check "$dir/op/cuda_good" "$dir/model/loss"
[ $? -eq 0 ] && grep -q '^tests *loss *passed' "$dir/table" && ! grep -q 'check *loss' "$dir/table"
ok $? "the sanitizers look at tests/op alone"
check
[ $? -eq 2 ]
ok $? "no programs: a mistake of the command line"
check -e "$dir/op/cuda_good"
[ $? -eq 0 ] && [ -z "$(cat "$dir/asked")" ] && grep -q 'the emulator' "$dir/table"
ok $? "-e asks for no GPU"
check -o /nonexistent/x -e "$dir/op/cuda_good"
[ $? -eq 1 ]
ok $? "a table that cannot be written is a failure"

# libraries that the loader does not know
program "$dir/tools/ldconfig" 'echo "	libc.so.6 => /lib/libc.so.6"'
mkdir -p "$dir/toolkit/lib64"
: >"$dir/toolkit/lib64/libcublasLt.so.13"
program "$dir/op/cuda_good" 'echo "ok 1 - $LF_CUBLASLT"; echo 1..1; echo "$LF_CUBLASLT $LF_CUDNN" >"'"$dir"'/asked"'
(PATH=$dir/tools:$PATH CUDA_HOME=$dir/toolkit LF_CUDNN=/named/so && export PATH CUDA_HOME LF_CUDNN && unset LF_CUBLASLT && check "$dir/op/cuda_good")
[ $? -eq 0 ] && [ "$(cat "$dir/asked")" = "$dir/toolkit/lib64/libcublasLt.so.13 /named/so" ]
ok $? "cuBLASLt of a toolkit is found; what is named stays"

# little time
program "$dir/op/cuda_slow" 'echo "ok 1 - a"; sleep 300; echo 1..1'
program "$dir/op/cuda_gemm_test" 'echo ran >>"'"$dir"'/ran"; echo "ok 1 - a"; echo 1..1'
program "$dir/model/loss_test" 'echo "ok 1 - a"; echo 1..1'
LF_GPU_LIMIT=10 check -e "$dir/op/cuda_slow" "$dir/op/cuda_good"
[ $? -eq 1 ] && grep -q '^tests *cuda_slow *FAILED (124)' "$dir/table" && grep -q 'stopped after [0-9]* s' "$dir/table" && grep -q '^tests *cuda_good *passed' "$dir/table"
ok $? "what hangs is stopped and has failed; the others go on"
check -e -t 0 "$dir/model/loss_test" "$dir/op/cuda_slow" "$dir/op/cuda_gemm_test"
[ $? -eq 3 ] && [ "$(sed -n 's/^tests *\([^ ]*\) *not run.*/\1/p' "$dir/table" | tr '\n' ' ')" = 'cuda_gemm_test cuda_slow loss_test ' ] &&
    grep -q '0 passed, 0 failed, 3 not run' "$dir/table"
ok $? "when time runs out: 3, and what was not run is told; products stand first, loss curves last"
program "$dir/op/cuda_slow" 'echo "ok 1 - a"; echo 1..1'
: >"$dir/ran"
check -e -c "$dir/model/loss_test" "$dir/op/cuda_slow" "$dir/op/cuda_gemm_test"
[ $? -eq 0 ] && grep -q 'other programs' "$dir/out" && grep -q '3 passed, 0 failed$' "$dir/table" && [ -s "$dir/ran" ]
ok $? "-c runs everything when a program has changed"
sed 's/^\(tests *cuda_slow *\)passed/\1not run/' "$dir/table" >"$dir/t" && mv "$dir/t" "$dir/table"
: >"$dir/ran"
check -e -c "$dir/model/loss_test" "$dir/op/cuda_slow" "$dir/op/cuda_gemm_test"
[ $? -eq 0 ] && grep -q '3 passed, 0 failed$' "$dir/table" && [ ! -s "$dir/ran" ] && [ "$(grep -c '^tests: ' "$dir/out")" -eq 0 ] && [ "$(grep -c '^tests cuda_slow: passed' "$dir/out")" -eq 1 ]
ok $? "else only what is left"

program "$dir/bench/cuda_gemm" 'echo "gemm 700 TFLOP/s"'
program "$dir/bench/gpu_model" 'case $1 in info) echo "Toy GPU, 1 GiB" ;; train) echo "{\"median_s\":0.5,\"tokens_per_s\":1000,\"share\":0.61,\"overhead\":0.004}" ;;
    *) echo "out of memory" >&2; exit 1 ;; esac'
printf 'train toy 2 64\ndecode toy 1 8\n' >"$dir/lines"
LF_GPU_LINES=$dir/lines PYTHON=false bench -m "$dir" -p /nonexistent "$dir/bench/cuda_gemm" "$dir/bench/gpu_model"
[ $? -eq 1 ] && grep -q '| train toy, 2 x 64 | 500.0 ms | 1000 | 61.0 % | 0.40 % | - | - |' "$dir/report" && grep -q 'gemm 700' "$dir/report" && ! grep -q 'cannot open' "$dir/out"
ok $? "bench-gpu: a table of models, output of kernel benches"
grep -q '| decode toy, 1 x 8 | failed: out of memory' "$dir/report" && grep -q 'No peer' "$dir/report"
ok $? "and what failed, and why there is no peer"
program "$dir/bin/python3" 'case $1 in -c) exit 0 ;; esac; echo "{\"median_s\": 0.6, \"tokens_per_s\": 800}"'
: >"$dir/peer.py"
LF_GPU_BENCH=train LF_GPU_LINES=$dir/lines PYTHON=$dir/bin/python3 bench -m "$dir" -p "$dir/peer.py" "$dir/bench/gpu_model"
[ $? -eq 0 ] && grep -q '| 600.0 ms, 800 | 1.25 |' "$dir/report" && ! grep -q decode "$dir/report"
ok $? "the peer stands beside it; words choose lines"
program "$dir/peer/python3" 'case $1 in -c) exit 0 ;; esac; touch "'"$dir"'/asked_peer"; echo "{\"median_s\": 0.6, \"tokens_per_s\": 500}"'
rm -f "$dir/asked_peer"
program "$dir/bench/gpu_model" 'case $1 in info) echo "Toy GPU, 1 GiB" ;; *) echo "$*" >>"'"$dir"'/ours"; echo "{\"median_s\":0.25,\"tokens_per_s\":1000,\"share\":0.5,\"overhead\":0}" ;; esac'
: >"$dir/ours"
LF_GPU_LINES=$dir/lines PYTHON=$dir/peer/python3 bench -c -m "$dir" -p "$dir/peer.py" "$dir/bench/cuda_gemm" "$dir/bench/gpu_model"
[ $? -eq 0 ] && [ "$(wc -l <"$dir/ours")" -eq 1 ] && grep -q '| train toy, 2 x 64 | 500.0 ms | 1000 | 61.0 % | 0.40 % | 600.0 ms, 800 | 1.25 |' "$dir/report" &&
    grep -q '| decode toy, 1 x 8 | 250.0 ms | 1000 | 50.0 % | 0.00 % | 600.0 ms, 500 | 2.00 |' "$dir/report" && grep -q 'gemm 700' "$dir/report"
ok $? "-c keeps what is known, ours and the peer's, and measures the rest"
: >"$dir/ours"
LF_GPU_LINES=$dir/lines PYTHON=false bench -t 0 -m "$dir" -p /nonexistent "$dir/bench/cuda_gemm" "$dir/bench/gpu_model"
[ $? -eq 3 ] && [ ! -s "$dir/ours" ] && grep -q '| train toy, 2 x 64 | not run' "$dir/report" && grep -q '^not run: no time' "$dir/report"
ok $? "when time runs out: 3, and what was not run is told"
program "$dir/bench/gpu_model" 'case $1 in info) echo "Toy GPU, 1 GiB" ;; *) echo "{\"median_s\":null,\"tokens_per_s\":null,\"share\":null,\"overhead\":null}" ;; esac'
LF_GPU_BENCH=decode LF_GPU_LINES=$dir/lines PYTHON=$dir/bin/python3 bench -m "$dir" -p "$dir/peer.py" "$dir/bench/gpu_model"
[ $? -eq 0 ] && grep -q '| decode toy, 1 x 8 | too short to tell | - | - | - | 600.0 ms, 800 | - |' "$dir/report"
ok $? "a difference of two times that is not positive is too short to tell, and no failure"
finish 21

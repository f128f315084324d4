#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# lf-pretrain with device = cuda on the emulated driver: exit codes, learning as on the CPU, kill -9 and the same bits, checkpoints that
# either device goes on from, fp16.
. "$LF_SRCDIR/tests/stage/lib.sh"
pretrain=$LF_BUILDDIR/stages/lf-pretrain
emulated_gpu

run() { train "$pretrain" "$dir/run.ini" "$@"; } # run NAME ARGS...

"$tool" data "$dir/data" 60 40 || bail "no test data"
cat >"$dir/run.ini" <<END
[stage]
data = $dir/data
device = cuda
steps = 5
seq_length = 16
batch = 1
micro_batch = 1
valid_interval = 0
valid_tokens = 64
lr = 5e-3
warmup = 1
save_interval = 1
save_time = 0
seed = 5
threads = 1
[model]
family = llama3
layers = 1
hidden = 16
heads = 1
kv_heads = 1
ffn = 32
vocab = 64
max_positions = 16
END

# libsanitizer of gcc 12 misreads such a block of a library that is loaded late, and LeakSanitizer crashes at exit.
nm -D "$LF_CUDA_DRIVER" >"$dir/symbols" && grep -q ' cuInit$' "$dir/symbols" && ! grep -q '__tls_get_addr' "$dir/symbols"
ok $? "the emulated driver has no thread-local block of its own"
run base
is $rc 0 "five steps on the emulated GPU"
run cpu --device cpu
is $rc 0 "and on the CPU"
near_losses base cpu 1e-4 5
ok $? "with the same losses: $(losses base | tr '\n' ' ')"
[ "$(id base)" != "$(id cpu)" ]
ok $? "by two different programs"
"$tool" state "$dir/base/out/checkpoint" | grep -q '"products":"own wgmma"' && ! "$tool" state "$dir/cpu/out/checkpoint" | grep -q '"products"'
ok $? "the checkpoint of the GPU says who multiplied matrices"

mkdir -p "$dir/kill"
cut_at kill 1 "*/kill/out/checkpoints/step-00000003*" "test -e $dir/kill/out/checkpoints/step-00000002" \
    "$pretrain" --config "$dir/run.ini" --out "$dir/kill/out" --metrics "$dir/kill/metrics"
is $rc 137 "kill -9 after the second step"
[ ! -e "$dir/kill/out/checkpoint" ]
ok $? "before the end"
run kill
is $rc 0 "started again it ends"
says "continuing bitwise" "and says that it goes on bitwise"
is "$(id kill)" "$(id base)" "with the same checkpoint"
is "$(losses kill)" "$(losses base)" "and the same losses"

run stop --steps 3
run on --device cpu --resume-from "$dir/stop/out"
is $rc 0 "the CPU goes on from a GPU's checkpoint"
says_like "perhaps not bitwise: .*cuda.*cpu" "and says that the device was another"
{ losses stop; losses on; } | awk '{ print }' >"$dir/two"
is "$(wc -l <"$dir/two" | tr -d ' ')" 5 "with the two steps that were left"

# products by another library
lib="--precision bf16 --batch 2 --micro-batch 2" # more rows than our own product is taken for
# shellcheck disable=SC2086
run own $lib
# shellcheck disable=SC2086
LF_CUBLASLT=$LF_CUDA_DRIVER run lt $lib
"$tool" state "$dir/own/out/checkpoint" | grep -q '"products":"own wgmma"' && "$tool" state "$dir/lt/out/checkpoint" | grep -q '"products":"cublasLt [0-9]'
ok $? "cuBLASLt, where there is one, stands in the checkpoint"
[ "$(id own)" != "$(id lt)" ]
ok $? "and gives other bits"
mkdir -p "$dir/ltstop/out/checkpoints"
cp -R "$dir/lt/out/checkpoints/step-00000003" "$dir/ltstop/out/checkpoints/"
# shellcheck disable=SC2086
LF_CUBLASLT=$LF_CUDA_DRIVER run lton $lib --resume-from "$dir/ltstop/out"
says "continuing bitwise" "a run with it goes on with it, bitwise"
is "$(id lton)" "$(id lt)" "to the same checkpoint"
# shellcheck disable=SC2086
run ltother $lib --resume-from "$dir/ltstop/out"
is $rc 0 "without it the run goes on"
says_like 'perhaps not bitwise: .*products was "cublasLt [0-9]*, own wgmma", is "own wgmma"' "and says that it may not be the same bits, and why"

run half --precision fp16
is $rc 0 "fp16 runs"
near_losses half base 2e-2 5
ok $? "and learns as f32 does: $(losses half | tr '\n' ' ')"
run refused --device cpu --precision fp16
is $rc 1 "on a CPU fp16 is refused"
says "GPUs have" "and it says where to run it"

# masters and moments in the host's memory, moments in bf16 rounded at random
state="--precision bf16 --moments bf16"
# shellcheck disable=SC2086
run here $state
# shellcheck disable=SC2086
run there $state --optimizer-offload 1
is $rc 0 "all of the optimizer's state in the host's memory"
says "of it offloaded masters and moments" "and it says so"
is "$(id there)" "$(id here)" "with the same checkpoint"
mkdir -p "$dir/away"
# shellcheck disable=SC2086
cut_at kill 1 "*/away/out/checkpoints/step-00000003*" "test -e $dir/away/out/checkpoints/step-00000002" \
    "$pretrain" --config "$dir/run.ini" --out "$dir/away/out" --metrics "$dir/away/metrics" $state --optimizer-offload 1
[ ! -e "$dir/away/out/checkpoint" ]
ok $? "killed"
# shellcheck disable=SC2086
run away $state --optimizer-offload 0.6
says "continuing bitwise" "it goes on with another share, bitwise"
is "$(id away)" "$(id here)" "to the same checkpoint"
# shellcheck disable=SC2086
run narrow $state --masters bf16 --optimizer-offload 0.5
# shellcheck disable=SC2086
run narrowcpu $state --masters bf16 --device cpu
near_losses narrow narrowcpu 2e-2 5
ok $? "weights in bf16 alone learn as on the CPU: $(losses narrow | tr '\n' ' ')"
run refused --device cpu --optimizer-offload 0.5
is $rc 1 "on a CPU it is refused"
says "in the host's memory anyway" "and says why"
"$pretrain" --config "$dir/run.ini" --out "$dir/x" --plan --precision bf16 --optimizer-offload 1 >"$dir/stdout" 2>"$dir/err"
grep -q '"optimizer":0[.,]' "$dir/stdout" && grep -q '"offloaded":[1-9]' "$dir/stdout"
ok $? "--plan counts it apart"

LF_EMU_FAIL=launch:9 run fail
is $rc 1 "a launch that fails ends the run with 1"
says "GPU 0" "and names the GPU"
LF_CUDA_DRIVER=$dir/nowhere.so run none
is $rc 1 "without a driver device = cuda is a failure"
says "no CUDA driver" "that says so"
finish 39

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Use, memory and power of the GPU in the metrics: the emulated GPU, and a library in the place of NVML (unit/fake_nvml.c).
. "$LF_SRCDIR/tests/stage/lib.sh"
pretrain=$LF_BUILDDIR/stages/lf-pretrain
emulated_gpu
nvml=$LF_BUILDDIR/tests/unit/nvml

"$tool" data "$dir/data" 60 40 || bail "no test data"
cat >"$dir/run.ini" <<END
[stage]
data = $dir/data
device = cuda
steps = 3
seq_length = 16
batch = 1
micro_batch = 1
valid_tokens = 32
save_time = 0
gpu_interval = 1d
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
# run NAME ARGS...: with the library
run() {
    LD_LIBRARY_PATH=$nvml${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} train "$pretrain" "$dir/run.ini" "$@" --metrics-jsonl "$dir/$1.jsonl"
}
told() { sed -n 's/.*"gpu_util":\([^,]*\),"gpu_memory":\([^,]*\),"gpu_power":\([^,]*\),.*/\1 \2 \3/p' "$dir/$1.jsonl"; }
any() { grep -c '"gpu_' "$dir/$1.jsonl"; }

train "$pretrain" "$dir/run.ini" without --metrics-jsonl "$dir/without.jsonl"
without=$(id without)
run with
is "$rc $(id with)" "0 $without" "a run that asks the library has the bits of one that does not"
is "$(told with)" "0.37 123456789 250.5" "the first record has what it says of the GPU of this UUID; the next is a day away"
if [ -e /dev/nvidiactl ] || ldconfig -p 2>/dev/null | grep -q libnvidia-ml; then
    skip "without the library there is nothing" "there is one on this machine"
else
    is "$(any without)" 0 "without the library there is nothing"
fi
run often --gpu-interval 0
is "$rc $(any often)" "0 0" "nor with gpu_interval = 0"
FAKE_NVML=old run old
is "$rc $(any old)" "0 0" "nor of a library that does not start"
FAKE_NVML=silent run silent
is "$rc $(grep -o '"gpu_[^,]*' "$dir/silent.jsonl" | tr '\n' ' ')" '0 "gpu_memory":123456789 ' "what the device does not tell is left out"
# Where the wrapper keeps the ranks of a start, each names its GPU.
mkdir "$dir/ranks" "$dir/ranks-cpu"
LF_RANKS_DIR=$dir/ranks
export LF_RANKS_DIR
run named --gpu-interval 0
grep -q '[A-Za-z].*, driver [0-9]' "$dir"/ranks/gpu.*
ok $? "a rank leaves the name of its GPU for reports" "$(ls "$dir/ranks") $(cat "$dir"/ranks/gpu.* 2>&1)"
LF_RANKS_DIR=$dir/ranks-cpu
run cpu --device cpu
is "$rc $(any cpu)" "0 0" "a CPU has none"
is "$(ls "$dir"/ranks-cpu | grep -c gpu)" 0 "and no GPU is named"
unset LF_RANKS_DIR

finish 9

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# LF_GEMM_CUDA=wgmma of lf-pretrain on the emulated GPU: the same losses as with the other family of products (there, bit for bit), in
# captures and without, another order of threads; what fingerprints say; words it does not know.
set -u
pretrain=$LF_BUILDDIR/stages/lf-pretrain
tool=$LF_BUILDDIR/tests/stage/train_tool
LF_CUDA_DRIVER=$LF_BUILDDIR/tests/libcuemu.so
LF_CUBLASLT=none # a real one knows no emulated GPU
export LF_CUDA_DRIVER LF_CUBLASLT
unset LF_GEMM_CUDA
dir=$(mktemp -d "${TMPDIR:-/tmp}/lf-wgmma.XXXXXX") || exit 99
n=0
failed=0
trap 'test $failed -ne 0 || test -n "${LF_KEEP:-}" || rm -rf "$dir"' EXIT

ok() { # ok STATUS NAME
    n=$((n + 1))
    if [ "$1" -eq 0 ]; then
        echo "ok $n - $2"
    else
        failed=$((failed + 1))
        echo "not ok $n - $2"
        [ -f "$dir/err" ] && sed 's/^/# /' "$dir/err" | tail -n 8
    fi
}
same() { [ "$1" = "$2" ]; ok $? "$3"; [ "$1" = "$2" ] || echo "# '$1' is not '$2'"; }
says() { grep -q "$1" "$dir/err"; ok $? "$2"; }
by() { # by WORD NAME ARGS...: run with LF_GEMM_CUDA=WORD; output below $dir/NAME, exit code in $rc
    _word=$1 _name=$2
    shift 2
    mkdir -p "$dir/$_name"
    LF_GEMM_CUDA=$_word "$pretrain" --config "$dir/run.ini" --out "$dir/$_name/out" --metrics "$dir/$_name/metrics" "$@" 2>"$dir/err" >"$dir/stdout"
    rc=$?
}
id() { "$tool" id "$dir/$1/out/checkpoint" 2>&1; }
losses() { "$tool" metrics "$dir/$1/metrics" | awk '{ print $4 }'; }
products() { "$tool" state "$dir/$1/out/checkpoint" | sed -n 's/.*"products":"\([^"]*\)".*/\1/p'; }

"$tool" data "$dir/data" 60 40 || { echo "Bail out! no test data"; exit 1; }
cat >"$dir/run.ini" <<END
[stage]
data = $dir/data
device = cuda
precision = bf16
numeric = invariant
steps = 3
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
heads = 2
kv_heads = 1
ffn = 16
vocab = 64
max_positions = 16
END

by '' own
same $rc 0 "three steps with the products of gemm.cu"
same "$(products own)" own "the checkpoint says whose they were"
by wgmma wg
same $rc 0 "and with those of gemm_wgmma.cu"
same "$(products wg)" "own wgmma" "it says so"
same "$(losses wg)" "$(losses own)" "on the emulator the losses are the same"
same "$(id wg)" "$(id own)" "and so are the checkpoints, bit for bit"
LF_EMU_FAIL=launch:1:gemm_wg_bf16_tn
export LF_EMU_FAIL
by wgmma refused
unset LF_EMU_FAIL
[ $rc -ne 0 ]
ok $? "a run with a GPU that refuses those kernels fails: they are what runs"
says gemm_wg_bf16_tn "and names the kernel"
LF_CUDA_GRAPHS=0 LF_EMU_ORDER=3
export LF_CUDA_GRAPHS LF_EMU_ORDER
by wgmma plain
unset LF_CUDA_GRAPHS LF_EMU_ORDER
same "$(id plain)" "$(id wg)" "without captures and in another order of threads, the same checkpoint"
by '' on --resume-from "$dir/wg/out" --steps 4
says 'perhaps not bitwise: .*products was "own wgmma", is "own"' "going on with the other family, it says that bits may differ"
by wgmma half --precision fp16 --steps 1
same $rc 0 "f16"
same "$(products half)" "own wgmma" "likewise"
by tensor wrong
same $rc 1 "an unknown word ends with 1"
says "LF_GEMM_CUDA is one of mma, wgmma" "and says which there are"
. "$LF_SRCDIR/tests/tap/plan.sh"
plan 14
[ $failed -eq 0 ]

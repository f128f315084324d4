#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `make bench`: the CPU table, ours and PyTorch's in one run, medians. Arguments: words to choose lines by ("train", "decode", "gpt2",
# "bf16", "B8"). LF_BENCH_STEPS (default 5), LF_BENCH_THREADS (2), LF_BENCH_PEER=no, PYTHON (with torch; python3).
set -u
src=$(cd "$(dirname "$0")/../.." && pwd) build=${LF_BUILDDIR:-.}
steps=${LF_BENCH_STEPS:-5} threads=${LF_BENCH_THREADS:-2} failed=0 python=${PYTHON:-python3}
export OMP_NUM_THREADS="$threads"
peer=no
[ "${LF_BENCH_PEER:-yes}" = no ] || ! "$python" -c 'import torch' 2>/dev/null || peer=yes
[ $peer = yes ] || echo "no PyTorch with '$python': ours only (set PYTHON)"

field() { sed -n "s/.*\"$1\": *\"\{0,1\}\([^,\"}]*\).*/\1/p"; }
wanted() {
    for w in $words; do case " $1 " in *" $w "*) ;; *) return 1 ;; esac done
    return 0
}
words=$*

# Best of the peer's ways: eager and compiled, plain and tuned malloc.
best_peer() { # what kind B T prec
    best= how=
    for mode in eager compile; do
        for malloc in plain tuned; do
            if [ $malloc = tuned ]; then
                line=$(MALLOC_MMAP_THRESHOLD_=4294967296 MALLOC_TRIM_THRESHOLD_=8589934592 MALLOC_TOP_PAD_=268435456 \
                    "$python" "$src/tests/bench/torch_peer.py" "$@" "$steps" "$threads" $mode 2>/dev/null)
            else
                line=$("$python" "$src/tests/bench/torch_peer.py" "$@" "$steps" "$threads" $mode 2>/dev/null)
            fi
            s=$(printf '%s\n' "$line" | field median_s)
            if [ -z "$s" ]; then
                echo "    torch $mode malloc $malloc: failed" >&2
                continue
            fi
            printf '    torch %-8s malloc %-6s %10.4f s\n' "$mode" "$malloc" "$s" >&2
            if [ -z "$best" ] || awk "BEGIN{exit !($s < $best)}"; then best=$s how="$mode, malloc $malloc"; fi
        done
    done
}

ours_run() { # gemm mode; the row's words are globals
    if [ "$1" = own ]; then LF_GEMM=own; export LF_GEMM; fi
    # Threads that measured the peak do not spin beside those of the kernels.
    OMP_WAIT_POLICY=passive "$build/tests/bench/model_bench" "$what" "$src/models/$model" "$B" "$T" "$prec" "$2" "$steps" "$threads"
}

row() { # what kind model B T prec
    what=$1 kind=$2 model=$3 B=$4 T=$5 prec=$6
    wanted "$what $kind $prec B$B" || return 0
    fast=$(ours_run default fast) && inv=$(ours_run default invariant) && own=$(ours_run own fast) || {
        echo "$what $kind B=$B T=$T $prec: model_bench failed" >&2
        failed=1
        return 0
    }
    best= how=
    [ $peer = no ] || best_peer "$what" "$kind" "$B" "$T" "$prec"
    ours=$(printf '%s' "$fast" | field median_s)
    ratio=-
    [ -z "$best" ] || ratio=$(awk "BEGIN{printf \"%.2f\", $best / $ours}")
    awk -v w="$what" -v k="$kind" -v b="$B" -v t="$T" -v p="$prec" -v o="$ours" -v r="$ratio" -v pe="${best:--}" -v h="$how" \
        -v sh="$(printf '%s' "$fast" | field share)" -v so="$(printf '%s' "$own" | field share)" \
        -v i="$(printf '%s' "$inv" | field median_s)" -v c="$(printf '%s' "$fast" | field ceiling)" 'BEGIN {
        printf "%-6s %-5s B=%-2s T=%-4s %-4s  ours %8.4f s  %5.1f %% of %s  own kernels %5.1f %%  invariant/fast %.3f  peer %s s (%s)  peer/ours %s\n",
            w, k, b, t, p, o, 100 * sh, w == "train" ? sprintf("%.0f GFLOP/s FMA peak", c / 1e9) : sprintf("%.1f GB/s read floor", c / 1e9),
            100 * so, i / o, pe, h, r }'
}

for prec in f32 bf16; do
    row train gpt2 gpt2-124m.ini 4 256 $prec
    row train llama llama-58m.ini 4 512 $prec
    row decode gpt2 gpt2-124m.ini 1 64 $prec
    row decode gpt2 gpt2-124m.ini 8 64 $prec
    row decode llama llama-58m.ini 1 64 $prec
    row decode llama llama-58m.ini 8 64 $prec
done

# Tokenizing, one thread each: a text of 10 MB, the dictionary of the quickstart unless LF_BENCH_TEXT names a file.
if wanted tokenize && [ -x "$build/tests/bench/tokenize_bench" ]; then
    text=$(mktemp) && trap 'rm -f "$text"' EXIT
    if [ -n "${LF_BENCH_TEXT:-}" ]; then head -c 10000000 "$LF_BENCH_TEXT" >"$text"
    else gzip -dc <"${LF_BENCH_DICT:-/usr/share/dictd/gcide.dict.dz}" 2>/dev/null | head -c 10000000 >"$text"; fi
    if [ ! -s "$text" ]; then echo "tokenize: no text; set LF_BENCH_TEXT"
    elif "$python" -c 'import tokenizers' 2>/dev/null; then "$python" "$src/tests/bench/tokenize_peer.py" "$build/tests/bench/tokenize_bench" "$text"
    else echo 1 | "$build/tests/bench/tokenize_bench" "$src/tests/golden/tokenizer/llama3.json" "$text"; fi
fi
exit $failed

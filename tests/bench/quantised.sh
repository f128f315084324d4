#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `make bench-quantised`: models whose weights are bf16, 8-bit floats in blocks and 4-bit floats in blocks through lf-convert, in turn, warm, everything
# hashed; the 8-bit one back, too. Rates are per byte of bf16 output (of the export: per byte that it reads), medians of the rounds, ratios those of bf16.
# LF_BENCH_GB (1), LF_BENCH_DIR (default TMPDIR), LF_BENCH_ROUNDS (5), LF_BENCH_THREADS (2). Needs four times LF_BENCH_GB of disk.
# Fails above 1 GB of memory. CPU time is what to look at on a busy machine.
set -eu
build=${LF_BUILDDIR:-.} gb=${LF_BENCH_GB:-1} rounds=${LF_BENCH_ROUNDS:-5} threads=${LF_BENCH_THREADS:-2}
bench=$build/tests/bench/convert_bench convert=$build/stages/lf-convert
dir=$(mktemp -d "${LF_BENCH_DIR:-${TMPDIR:-/tmp}}/lf-bench-quantised-XXXXXX")
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM
bytes_of() { find "$1" -name '*.h5' -printf '%s\n' | awk '{n += $1} END {printf "%.0f", n}'; }
# once WHAT FROM OUT ARGS...: a line "WHAT bytes wall cpu rss"
once() {
    what=$1 from=$2 out=$3
    shift 3
    rm -rf "$out"
    "$bench" run "$convert" --from "$from" --out "$out" --threads "$threads" "$@" >"$dir/time" 2>"$dir/log" || {
        cat "$dir/log" "$dir/time" >&2
        exit 1
    }
    of=$out/checkpoint
    [ -e "$of" ] || of=$from
    echo "$what $(bytes_of "$of") $(tail -n 1 "$dir/time")" >>"$dir/lines"
}

for form in bf16 fp8 mxfp4; do
    "$bench" make "$dir/$form" "$gb" $form
done
for round in $(seq "$rounds"); do
    for form in bf16 fp8 mxfp4; do
        once "$form-in" "$dir/$form" "$dir/ckpt" --verify none --max_file 0
        [ $form = mxfp4 ] || once "$form-out" "$dir/ckpt/checkpoint" "$dir/out" --to hf --max_file 0
        if [ "$round" = 1 ] && [ $form != mxfp4 ]; then
            cmp "$dir/$form/model.safetensors" "$dir/out/model/model.safetensors"
        fi
    done
done
grep -m1 'model name' /proc/cpuinfo || true
echo "load $(cut -d' ' -f1-3 /proc/loadavg), $threads threads, $rounds rounds"
awk '
    function median(a, n,    i, j, t) {
        for (i = 2; i <= n; i++) for (j = i; j > 1 && a[j] < a[j - 1]; j--) { t = a[j]; a[j] = a[j - 1]; a[j - 1] = t }
        return (a[int((n + 1) / 2)] + a[int(n / 2) + 1]) / 2
    }
    { n[$1]++; wall[$1, n[$1]] = $3 / $2; cpu[$1, n[$1]] = $4 / $2; bytes[$1] = $2; if ($5 > peak[$1]) peak[$1] = $5 }
    END {
        k = split("bf16-in fp8-in mxfp4-in bf16-out fp8-out", order, " ")
        for (i = 1; i <= k; i++) {
            w = order[i]
            for (j = 1; j <= n[w]; j++) { a[j] = wall[w, j]; b[j] = cpu[w, j] }
            W[w] = median(a, n[w]); C[w] = median(b, n[w])
            base = w ~ /-in/ ? "bf16-in" : "bf16-out"
            printf "%-9s %.2f GB  %6.2f GB/s by the clock, %6.2f by CPU time; of bf16 %.2f and %.2f; peak %.0f MiB\n",
                w, bytes[w] / 1e9, 1e-9 / W[w], 1e-9 / C[w], W[base] / W[w], C[base] / C[w], peak[w] / 1048576
            bad = bad || peak[w] >= 1e9
        }
        exit bad
    }' "$dir/lines" || { echo "more than 1 GB of memory" >&2; exit 1; }

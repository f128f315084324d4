#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `make bench-convert`: a synthetic model through lf-convert and back, beside cp and SHA-256 on the same disk and machine.
# LF_BENCH_GB (8), LF_BENCH_DIR (a directory on the disk to measure; default TMPDIR), LF_BENCH_ROUNDS (1), LF_BENCH_THREADS (2).
# One file each way, so that the result can be compared byte for byte. Needs three times LF_BENCH_GB of disk. Every reading is cold, every time ends when all bytes are on the disk.
set -eu
build=${LF_BUILDDIR:-.} gb=${LF_BENCH_GB:-8} rounds=${LF_BENCH_ROUNDS:-1} threads=${LF_BENCH_THREADS:-2}
bench=$build/tests/bench/convert_bench convert=$build/stages/lf-convert
dir=$(mktemp -d "${LF_BENCH_DIR:-${TMPDIR:-/tmp}}/lf-bench-convert-XXXXXX")
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM
bytes_of() { find "$1" -type f -printf '%s\n' | awk '{n += $1} END {printf "%.0f", n}'; }

# Prints wall seconds of a cold copy of $1 that has reached the disk.
copy() {
    "$bench" drop "$1"
    "$bench" run sh -c 'cp -r "$1" "$2" && find "$2" -type f -exec sync {} + && sync "$2"' sh "$1" "$dir/copy" | awk '{print $1}'
    rm -rf "$dir/copy"
}

# Wall, CPU seconds and resident bytes of a conversion of $2 into $3, cold; further arguments are options.
convert() {
    what=$1 from=$2 out=$3
    shift 3
    "$bench" drop "$from"
    "$bench" run "$convert" --from "$from" --out "$out" --threads "$threads" "$@" 2>"$dir/log" >"$dir/time" || {
        cat "$dir/log" "$dir/time" >&2
        exit 1
    }
    tail -n 1 "$dir/time"
}

line() { # what bytes copy_s "wall cpu rss"
    printf '%s\n' "$4" | awk -v w="$1" -v b="$2" -v c="$3" -v h="$rate" '{
        limit = c > b / h ? c : b / h
        printf "%-7s %5.2f GB  %7.1f s (CPU %.1f s)  cp %.1f s  SHA-256 %.1f s  limit/ours %.2f  peak %.0f MiB\n",
            w, b / 1e9, $1, $2, c, b / h, limit / $1, $3 / 1048576
        exit !($3 < 1e9) }' || { echo "$1: more than 1 GB of memory" >&2; exit 1; }
}

"$bench" make "$dir/model" "$gb"
for round in $(seq "$rounds"); do
    n=$(bytes_of "$dir/model")
    c=$(copy "$dir/model")
    rate=$("$bench" hash)
    t=$(convert import "$dir/model" "$dir/in" --to checkpoint --verify none --max_file 0)
    line import "$n" "$c" "$t"
    n=$(bytes_of "$dir/in/checkpoint")
    c=$(copy "$dir/in/checkpoint")
    rate=$("$bench" hash)
    t=$(convert export "$dir/in/checkpoint" "$dir/out" --to hf --max_file 0)
    line export "$n" "$c" "$t"
    [ "$round" -gt 1 ] || for f in "$dir"/model/*.safetensors; do
        cmp "$f" "$dir/out/model/$(basename "$f")" || { echo "the round trip changed $f" >&2; exit 1; }
    done
    rm -rf "$dir/in" "$dir/out"
done

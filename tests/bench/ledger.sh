#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Speed of a large project: ledger.sh [RUNS ATTEMPTS RECORDS], as designed 1000 runs with 10 attempts of 200 records of 5 keys:
# 10,000 attempts and 10 million metric points. Prints the medians beside what is wanted.
set -eu
build=${LF_BUILDDIR:-$PWD} runs=${1:-1000} attempts=${2:-10} records=${3:-200}
lf=$build/loong-flow bench=$build/tests/bench/ledger_bench
dir=$(mktemp -d "${TMPDIR:-/tmp}/loong-ledger-bench.XXXXXX")
trap 'rm -rf "$dir"' EXIT
LF_SITE_CONFIG= LF_USER_CONFIG=
export LF_SITE_CONFIG LF_USER_CONFIG
"$bench" make "$dir" "$runs" "$attempts" "$records"
cd "$dir"
echo "$runs runs, $((runs * attempts)) attempts, $((runs * attempts * records * 5)) metric points"
t() { printf '%-44s %8s ms   (%s)\n' "$1" "$("$bench" time 5 "$lf" $2)" "$3"; }
printf '%-44s %8s ms\n' "first reading of everything" "$("$bench" time 1 "$lf" ledger sync)"
ls -l .loong | awk '$9 ~ /^ledger.db/ { printf "  %-30s %7.1f MB\n", $9, $5 / 1e6 }'
t "status" status "wanted: below 100"
t "status --all" "status --all" ""

t "status --all --state failed" "status --all --state failed" ""
t "show" show ""
t "metrics train" "metrics train --lines 5" ""
t "artifacts" artifacts ""
t "ledger sync of nothing, everything walked" "ledger sync" ""
"$bench" event "$dir" 11
echo "(wanted: below 100 ms)"
ls -l .loong | awk '$9 ~ /^ledger.db/ { printf "  %-30s %7.1f MB\n", $9, $5 / 1e6 }'

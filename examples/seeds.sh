#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# An example several times with other seeds: is what it shows more than luck?
#
# usage: seeds.sh N EXAMPLE BUILD [DIR [DICTIONARY]]
#   N          how many runs: seeds 1 to N
#   EXAMPLE    encoder, spans, grpo, rlhf, scenes, classes or captions, a folder beside this file
#   BUILD ..   as run.sh of the example takes them; run K goes to DIR/seed-K (default ./EXAMPLE-seeds), and is continued there
#
# Each run leaves its numbers in DIR/seed-K/numbers; printed are the mean of each, its standard error over the runs (their standard
# deviation / root of N) and what the runs had. Exit codes: 0 done, and every run improved all of its numbers; 1 not; 2 usage.
set -u
LC_ALL=C
export LC_ALL
here=$(cd "$(dirname "$0")" && pwd)
[ $# -ge 3 ] && [ "$1" -ge 2 ] 2>/dev/null && grep -q SEED= "$here/$2/run.sh" 2>/dev/null || { sed -n '5,8s/^# \{0,1\}//p' "$here/seeds.sh" >&2; exit 2; }
count=$1 example=$2 build=$3 dir=${4:-$2-seeds}
shift 3
[ $# -eq 0 ] || shift
mkdir -p "$dir" || exit 1
worst=0 k=1
while [ "$k" -le "$count" ]; do
    SEED=$k sh "$here/$example/run.sh" "$build" "$dir/seed-$k" "$@" || { rc=$?; echo "seeds: run $k exits with $rc" >&2; worst=1; }
    k=$((k + 1))
done
k=1
while [ "$k" -le "$count" ]; do
    cat "$dir/seed-$k/numbers" || worst=1
    k=$((k + 1))
done | awk -F '\t' '{ if (!($1 in n)) name[++names] = $1; n[$1]++; sum[$1] += $2; sq[$1] += $2 * $2; all[$1] = all[$1] " " $2 }
    END { printf "\n"
    for (i = 1; i <= names; i++) {
        s = name[i]; m = sum[s] / n[s]; v = n[s] > 1 ? (sq[s] - n[s] * m * m) / (n[s] - 1) : 0
        printf "%-58s %8.4f +- %.4f  of %d:%s\n", s, m, sqrt(v > 0 ? v / n[s] : 0), n[s], all[s] } }'
exit $worst

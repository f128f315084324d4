#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs the pipeline beside it and tells how often the model's sums are right, before and after.
#
# usage: run.sh BUILD [DIR]
#   BUILD   the build directory, or the prefix that loong-flow was installed below
#   DIR     where everything goes (default ./grpo-run); run again with the same DIR to continue
# With SEED=K in the environment all of it has other random numbers; ../seeds.sh does that several times. DIR/numbers has the results.
#
# Exit codes: 0 done, and right answers rose by more than three standard errors; 1 failed; 2 usage.
set -u
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../common.sh"
[ $# -ge 1 ] && [ $# -le 2 ] || { usage 5 8 >&2; exit 2; }
find_build "$1"
dir=${2:-grpo-run}
mkdir -p "$dir" && cp "$here/pipeline.ini" "$dir/" && cd "$dir" || exit 1

awk 'BEGIN { for (a = 0; a < 10; a++) for (b = 0; b < 10; b++) print a "+" b "=" a + b }' >sums.txt
awk 'BEGIN { for (a = 0; a < 10; a++) for (b = 0; b < 10; b++) printf "{\"prompt\":\"%d+%d=\",\"answer\":\"%d\"}\n", a, b, a + b }' >prompts.jsonl
awk 'BEGIN { x = 7; for (i = 0; i < 3000; i++) { x = (x * 16807) % 2147483647; a = int(x / 7) % 10
    x = (x * 16807) % 2147483647; b = int(x / 7) % 10
    printf "{\"prompt\":\"%d+%d=\",\"completion\":\"%d\"}\n", a, b, a + b } }' >rows.jsonl

seed=${SEED:-1}
"$lf" run pipeline.ini --set "stage first.seed=$seed" --set "stage grpo.seed=$seed" --set "stage before.seed=$((seed + 1))" || exit $?
awk -v b="$(last before score)" -v bs="$(last before score_std)" -v a="$(last after score)" -v as="$(last after score_std)" 'BEGIN {
    e = sqrt((bs * bs + as * as) / 800)
    printf "right answers: %.1f %% before, %.1f %% after GRPO (standard error of the difference %.1f %%)\n", 100 * b, 100 * a, 100 * e
    printf "right answers before\t%.4f\nright answers after GRPO\t%.4f\n", b, a >"numbers"
    exit !(b > 0 && a - b > 3 * e) }' || { echo "grpo: the reward did not rise clearly" >&2; exit 1; }

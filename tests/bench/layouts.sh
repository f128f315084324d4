#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A training step of one rank with two threads, of two ranks with one thread each that divide matrices (tensor = 2, and with rows divided), that have
# different layers (pipeline = 2: 1f1b, interleaved, zb-h1, zb-v) and that share the batch, all with the same batch: ROUNDS (9) alternated runs of STEPS (6)
# steps of a Llama-like model of 58M parameters in f32, BATCH (8) sequences of 256 tokens a step. The median of the medians of the runs, by that of one rank,
# and what the schedule alone allows: 1 / (1 - idle share) of the plan. Run in the build directory after `make all tests/stage/train_tool`.
src=${LF_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)} rounds=${ROUNDS:-9} steps=${STEPS:-6} batch=${BATCH:-8}
. "$src/tests/bench/ranks.sh"
"$tool" data "$tmp/data" 4000 0 || exit 1
settings "$steps" 1 "batch = $batch" >"$tmp/run.ini"
layouts="one tensor rows 1f1b interleaved zb-h1 zb-v data"
options() { # options LAYOUT: threads of a rank and its place
    case $1 in
    one) echo "--threads 2" ;;
    tensor) echo "--threads 1 --tensor 2" ;;
    rows) echo "--threads 1 --tensor 2 --sequence-parallel" ;;
    1f1b) echo "--threads 1 --pipeline 2" ;;
    interleaved) echo "--threads 1 --pipeline 2 --pipeline-chunks 2" ;;
    zb-h1 | zb-v) echo "--threads 1 --pipeline 2 --pipeline-schedule $1" ;;
    data) echo "--threads 1" ;;
    esac
}
ranks() { [ "$1" = one ] && echo 1 || echo 2; }
# shellcheck disable=SC2046
once() { seconds "$(ranks "$1")" $(options "$1") >>"$tmp/time.$1" || exit 1; }
machine
i=0
while [ $i -lt "$rounds" ]; do
    for l in $layouts; do once "$l"; done
    i=$((i + 1))
done
one=$(median <"$tmp/time.one")
for l in $layouts; do
    # shellcheck disable=SC2046
    idle=$("$build/stages/lf-pretrain" --config "$tmp/run.ini" --plan --ranks "$(ranks "$l")" $(options "$l") | sed -n 's/.*"idle_share":\([0-9.]*\).*/\1/p')
    awk -v l="$l" -v t="$(median <"$tmp/time.$l")" -v one="$one" -v idle="${idle:-0}" \
        'BEGIN { printf "  %-12s %.3f s, %.2f of one rank%s\n", l, t, t / one, (idle > 0 ? sprintf(" (the schedule alone: %.2f)", 1 / (1 - idle)) : "") }'
done
echo "load $(load)"

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What layouts are measured by, on GPT-2 124M in f32 (models/gpt2-124m.ini, random weights, sequences of 256 tokens):
#   tensor = 2 with a thread each by one rank with two threads: at most 1.10;
#   pipeline = 2 (1f1b) by the simulator's time with F, B, W and optimizer of each rank as that run measured them (pipeline_cost = measured), between
#   ranks in shared memory and over TCP: at most 1.05;
#   and, with PYTHON naming a python that has torch, each layout by one rank with two threads beside the same ratio of PyTorch: parallelize_module and
#   Schedule1F1B over gloo (layouts_peer.py), on the same shapes, batch, micro-batches and cut; the same by one rank with one thread, which is what a
#   second rank of a thread adds.
# ROUNDS (9) rounds, in each of which everything has its turn, of STEPS (4) steps, the first of which does not count, of BATCH (8) sequences in
# micro-batches of MICRO (1). Medians over rounds of medians over steps; the load is told at each round. SCHEDULES ("1f1b") may add interleaved and
# zb-h1. Run in the build directory after `make all tests/stage/train_tool`. Nothing fails by a number: the words within and above tell.
src=${LF_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)} rounds=${ROUNDS:-9} steps=${STEPS:-4} batch=${BATCH:-8} micro=${MICRO:-1}
schedules=${SCHEDULES:-1f1b}
. "$src/tests/bench/ranks.sh"
"$tool" data "$tmp/data" 4000 0 || exit 1
{ steps_only "$steps" "$micro" "batch = $batch" && cat "${MODEL:-$src/models/gpt2-124m.ini}"; } >"$tmp/run.ini"
two="--threads 1 --tensor 2"

# pipeline SCHEDULE TRANSPORT ARGS...: also what the simulator says, and its ratio
pipeline() {
    _name=$1-$2 _tls=$3 _schedule=$1
    [ "$_schedule" = interleaved ] && _chunks="--pipeline-chunks 2" || _chunks=
    # shellcheck disable=SC2086
    _took=$(UCX_TLS=$_tls seconds 2 --threads 1 --pipeline 2 --pipeline-cost measured --pipeline-schedule "$_schedule" $_chunks) || exit 1
    _said=$(sed -n 's/.*a step of [0-9]* micro-batches takes \([0-9.]*\) s by the schedule.*/\1/p' "$tmp/log")
    [ -n "$_said" ] || { echo "the run told no time of a step" >&2; exit 1; }
    echo "$_took" >>"$tmp/time.$_name"
    awk -v t="$_took" -v s="$_said" 'BEGIN { print t / s }' >>"$tmp/by.$_name"
    sed -n 's/.*pipeline 2 (.*; layers \([0-9]*\),.*/\1/p' "$tmp/log" >"$tmp/first"
    sed -n 's/.*lf-pretrain: \(pipeline rank .*\)/    \1/p' "$tmp/log" >"$tmp/parts.$_name"
}
# peer MODE ARGS...
peer() {
    _mode=$1
    shift
    "$PYTHON" "$src/tests/bench/layouts_peer.py" "$_mode" "$batch" "$micro" "$steps" "$@" >"$tmp/peer" || exit 1
    sed -n 's/.*"seconds": *\([0-9.e-]*\).*/\1/p' "$tmp/peer" >>"$tmp/time.peer-$_mode"
}
round() {
    seconds 1 --threads 2 >>"$tmp/time.one" || exit 1
    seconds 1 --threads 1 >>"$tmp/time.one-thread" || exit 1
    # shellcheck disable=SC2086
    seconds 2 $two >>"$tmp/time.tensor" || exit 1
    for s in $schedules; do
        pipeline "$s" memory shm,self
        pipeline "$s" tcp tcp,self
    done
    [ -n "${PYTHON:-}" ] || return 0
    for m in one one-untied one-thread one-untied-thread tensor; do peer "$m"; done
    peer pipeline "$(cat "$tmp/first")"
}
# line NAME OVER BOUND: the median time of NAME, by that of OVER and of OVER with a thread
line() {
    awk -v l="$1" -v t="$(median <"$tmp/time.$1")" -v one="$(median <"$tmp/time.$2")" -v thread="$(median <"$tmp/time.$2-thread")" -v b="$3" 'BEGIN {
        printf "  %-20s %.3f s, %.3f of one rank%s, %.3f of one rank with one thread\n", l, t, t / one,
            b == "" ? "" : sprintf(" (%s %s)", t / one <= b ? "within" : "above", b), t / thread }'
}

machine
i=0
while [ $i -lt "$rounds" ]; do
    round
    i=$((i + 1))
    echo "round $i, load $(load)"
done
printf '  %-20s %.3f s, with one thread %.3f s\n' one "$(median <"$tmp/time.one")" "$(median <"$tmp/time.one-thread")"
line tensor one 1.10
for s in $schedules; do
    for over in memory tcp; do
        line "$s-$over" one ""
        awk -v r="$(median <"$tmp/by.$s-$over")" 'BEGIN { printf "    %.3f of the time by the schedule (%s 1.05)\n", r, r <= 1.05 ? "within" : "above" }'
        cat "$tmp/parts.$s-$over"
    done
done
if [ -n "${PYTHON:-}" ]; then
    echo "  PyTorch $("$PYTHON" -c 'import torch; print(torch.__version__)'), by itself on one rank:"
    for m in one one-untied; do
        printf '  %-20s %.3f s, with one thread %.3f s\n' "peer-$m" "$(median <"$tmp/time.peer-$m")" "$(median <"$tmp/time.peer-$m-thread")"
    done
    line peer-tensor peer-one ""
    line peer-pipeline peer-one-untied ""
fi

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What ranks that divide experts, or the rows of a long sequence, cost: a training step of two ranks with one thread each by that of one rank with two threads,
# ROUNDS (9) alternated runs of STEPS (5) steps in f32. expert = 2: a model of eight experts, two of them for a token, BATCH (8) sequences of 256 tokens, by
# 1.15 of the largest load of an expert by the mean one (router_load of the metrics). context = 2, heads exchanged and keys gathered: a dense model, one
# sequence of 8192 tokens. Says whether messages and bytes were those of the plan, and how long a rank waits in a step (comm_exposed_s), by 1.2 of what its
# bytes take at the bandwidth of an all-to-all that comm_bench measures between the runs. Run in the build directory after
# `make all tests/stage/train_tool tests/bench/comm_bench`. A rank also waits while another one computes longer, as with experts of uneven load. So one run more
# of each row has --profile, and what the exchanges take themselves is told, too: of each the shorter time of both ranks, as the rank that comes last finds the
# other one there.
src=${LF_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)} rounds=${ROUNDS:-9} steps=${STEPS:-5} batch=${BATCH:-8}
. "$src/tests/bench/ranks.sh"
[ -x "$build/tests/bench/comm_bench" ] || { echo "make tests/bench/comm_bench first" >&2; exit 1; }
"$tool" data "$tmp/data" 4000 0 || exit 1
"$tool" data "$tmp/long" 100000 0 || exit 1
model() { # model POSITIONS LINES...: of 12M parameters, or with experts of 21M
    printf '[model]\nfamily = %s\nlayers = 4\nhidden = 384\nheads = 6\nkv_heads = 6\nffn = 1024\nvocab = 8000\nmax_positions = %s\n' "$2" "$1"
    shift 2
    [ $# -eq 0 ] || printf '%s\n' "$@"
}
{ steps_only "$steps" 1 "batch = $batch"; model 256 mixtral "experts = 8" "experts_per_token = 2" "expert_ffn = 512" "router_aux = 0.01"; } >"$tmp/experts.ini"
{ steps_only "$steps" 1 "batch = 1" | sed "s/^seq_length = .*/seq_length = 8192/; s|^data = .*|data = $tmp/long|"; model 8192 llama3; } >"$tmp/long.ini"
rows="experts:one experts:expert long:one long:heads long:gather"
options() { # options ROW: threads of a rank and its place
    case $1 in
    *:one) echo "--threads 2" ;;
    *:expert) echo "--threads 1 --expert 2" ;;
    *:heads) echo "--threads 1 --context 2" ;;
    *:gather) echo "--threads 1 --context 2 --context-kind gather" ;;
    esac
}
ranks() { case $1 in *:one) echo 1 ;; *:expert) echo 2 ;; *) echo 2 ;; esac; }
value() { sed -n "s/.*\"$1\": *\([0-9.e+-]*\).*/\1/p" "$tmp/lines" | tail -n +2 | median; }
once() { # once ROW: its time, what was waited for, load of experts, bytes of a step
    cp "$tmp/${1%:*}.ini" "$tmp/run.ini"
    # shellcheck disable=SC2046
    seconds "$(ranks "$1")" $(options "$1") >>"$tmp/time.$1" || exit 1
    [ "$(ranks "$1")" -eq 1 ] && return
    value comm_exposed_s >>"$tmp/wait.$1"
    value router_load >>"$tmp/load.$1"
    sed -n 's/.*rank 0 sent \([0-9]*\) bytes in .* collectives of the plan, and \([0-9]*\) bytes in \([0-9]*\) others\(.*\)/\1 \2 \4/p' "$tmp/log" >>"$tmp/moved.$1"
    "$build/loong-flow" launch --raw -n 2 -- "$build/tests/bench/comm_bench" swap | awk '$2 > most { most = $2; us = $3 } END { print most / us * 1e6 }' >>"$tmp/bandwidth"
}
# exchanges ROW: seconds of a step between the ranks, none of them for a rank that computes
exchanges() {
    cp "$tmp/${1%:*}.ini" "$tmp/run.ini"
    # shellcheck disable=SC2046
    seconds 2 $(options "$1") --profile >/dev/null || exit 1
    for f in "$tmp/profile.trace.json" "$tmp/profile.1.trace.json"; do
        sed -n 's/.*"name":"\([^"]*\)","cat":"communication".*"dur":\([0-9.]*\).*/\2 \1/p' "$f" >"$f.list"
    done
    awk -v steps="$steps" 'NR == FNR { t[FNR] = $1; sub(/^[^ ]* /, ""); name[FNR] = $0; n = FNR; next }
        { d = $1; sub(/^[^ ]* /, "") } $0 != name[FNR] { bad = 1 } { s += d < t[FNR] ? d : t[FNR] }
        END { if (bad || FNR != n || !n) exit 1; printf "%.6f\n", s / 1e6 / steps }' "$tmp/profile.trace.json.list" "$tmp/profile.1.trace.json.list" ||
        { echo "the profiles of both ranks tell of different exchanges" >&2; exit 1; }
}
machine
i=0
while [ $i -lt "$rounds" ]; do
    for r in $rows; do once "$r"; done
    i=$((i + 1))
done
for r in $rows; do
    one=$(median <"$tmp/time.${r%:*}:one")
    awk -v r="$r" -v t="$(median <"$tmp/time.$r")" -v one="$one" 'BEGIN { printf "  %-16s %.3f s, %.2f of one rank", r, t, t / one }'
    case $r in
    *:one) echo ;;
    *:expert) awk -v l="$(median <"$tmp/load.$r")" 'BEGIN { printf "; load %.2f, bound %.2f\n", l, 1.15 * l }' ;;
    *) echo "; bound 1.15" ;;
    esac
done
for r in $rows; do
    [ -s "$tmp/moved.$r" ] || continue
    cp "$tmp/${r%:*}.ini" "$tmp/run.ini" # rows of experts are planned for even loads, and not compared with what moves
    # shellcheck disable=SC2046
    rows=$("$build/stages/lf-pretrain" --config "$tmp/run.ini" --plan --ranks 2 $(options "$r") | sed -n 's/.*"expert_bytes_per_step":\([0-9]*\).*/\1/p')
    own=$(exchanges "$r") || exit 1
    awk -v r="$r" -v steps="$steps" -v rows="${rows:-0}" -v own="$own" -v w="$(median <"$tmp/wait.$r")" -v rate="$(median <"$tmp/bandwidth")" '
        { plan = $1; others = $2; good += /every rank as planned/ }
        END { b = (plan + others) / steps + rows; printf "  %-16s %.1f MB a step at %.2f GB/s take %.4f s, exchanges take %.4f s (bound %.4f); a rank waits %.4f s; as planned in %d of %d runs\n",
              r, b / 1e6, rate / 1e9, b / rate, own, 1.2 * b / rate, w, good, NR }' "$tmp/moved.$r"
done
echo "load $(load)"

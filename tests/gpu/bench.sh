#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The CUDA benchmarks on GPU 0: every kernel bench, then training steps and decoding of whole models, then PyTorch beside them where a
# python3 with torch is found. Each figure is printed as soon as it is known, and the report, in the form of kernels/README.md, is
# written anew with it. `make bench-gpu` and a bundle's gpu/bench-gpu call this.
#
#   bench.sh [-c] [-t SECONDS] [-o FILE] [-m MODELS_DIR] [-p PEER.py] PROGRAM...
#
# PROGRAM */gpu_model is run once for each line of the table below; every other one once, and its output is shown.
# -t: to be done in so many seconds: what was not begun is listed. -c: go on with the report in FILE: figures that stand there stay.
# LF_GPU_BENCH="train qwen2.5-1.5b" runs the lines that have all these words. PYTHON names the interpreter of the peer.
# LF_GPU_LINES names a file with other lines (tests use tiny ones). A program that takes longer than LF_GPU_LIMIT (240) seconds is
# stopped and has failed. Exit: 0, 1 when a bench failed or there is no GPU, 2 usage, 3 nothing failed, but time ran out (-c goes on).
set -u
LC_ALL=C
export LC_ALL
out=bench-gpu.md models=${LF_MODELS_DIR:-} peer= seconds= go_on=
usage() { echo "usage: bench.sh [-c] [-t SECONDS] [-o FILE] [-m MODELS_DIR] [-p PEER.py] PROGRAM..." >&2; exit 2; }
while getopts ct:o:m:p: opt; do
    case $opt in
    c) go_on=1 ;;
    t) seconds=$OPTARG ;;
    o) out=$OPTARG ;;
    m) models=$OPTARG ;;
    p) peer=$OPTARG ;;
    *) usage ;;
    esac
done
case $seconds in *[!0-9]*) usage ;; esac
shift $((OPTIND - 1))
[ $# -gt 0 ] || { echo "bench-gpu: no programs were given" >&2; exit 2; }
work=$(mktemp -d "${TMPDIR:-/tmp}/bench-gpu.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
# shellcheck source=tests/gpu/library.sh
. "$(dirname "$0")/library.sh"
find_libraries
begun=$(date +%s)
timeout=
if command -v timeout >/dev/null; then timeout='timeout -k 10'; fi

# What model sequences tokens: sequences of a micro-batch (train) or batch (decode), tokens of one (decode: new tokens). What is asked
# for first stands first.
lines() {
    if [ -n "${LF_GPU_LINES:-}" ]; then cat "$LF_GPU_LINES"; return; fi
    cat <<'END'
train qwen2.5-1.5b 8 2048
decode llama2-7b 1 256
train gpt2-124m 16 1024
train llama2-7b 4 2048
decode llama2-7b 64 256
train qwen2.5-0.5b 8 2048
train llama3.2-1b 8 2048
train gpt2-124m 8 2048
train qwen2.5-1.5b 4 4096
train qwen2.5-0.5b 4 4096
train llama3.2-1b 4 4096
train llama2-7b 2 4096
END
}
wanted() { # LINE: has it every word of LF_GPU_BENCH?
    for w in ${LF_GPU_BENCH:-}; do case " $1 " in *" $w "*) ;; *) return 1 ;; esac; done
    return 0
}
member() { printf '%s\n' "$1" | sed -n "s/.*\"$2\": *\"\{0,1\}\([^,\"}]*\).*/\1/p"; } # member JSON-LINE NAME
failed=0 left=0

# run LEAST COMMAND...: within LF_GPU_LIMIT and what is left of the time; 125: less than LEAST seconds are left.
run() {
    _cut=${LF_GPU_LIMIT:-240} _least=$1
    shift
    if [ -n "$seconds" ]; then
        _rest=$((seconds - ($(date +%s) - begun)))
        [ $_rest -ge "$_least" ] || return 125
        if [ $_rest -lt "$_cut" ]; then _cut=$_rest; fi
    fi
    $timeout ${timeout:+"$_cut"} "$@"
}

# ---- the report ----

table='| | ours | tokens/s | share | outside kernels | PyTorch, tokens/s | ours / PyTorch |'
: >"$work/kernels"
: >"$work/lines"
: >"$work/device"
row() { # I: the table's row of line I, as far as it is known
    read -r _what _model _b _t <"$work/$1.line"
    _name="$_what $_model, $_b x $_t"
    if [ -s "$work/$1.why" ]; then printf '| %s | %s | | | | | |\n' "$_name" "$(cat "$work/$1.why")"; return; fi
    [ -s "$work/$1.ours" ] || return 0
    _o=$(cat "$work/$1.ours") _p=$(cat "$work/$1.peer" 2>/dev/null)
    awk -v o="$(member "$_o" median_s)" -v r="$(member "$_o" tokens_per_s)" -v s="$(member "$_o" share)" -v h="$(member "$_o" overhead)" \
        -v p="$(member "$_p" median_s)" -v q="$(member "$_p" tokens_per_s)" -v name="$_name" 'BEGIN {
        short = o == "null" # the difference of two times was not positive
        if (short) printf "| %s | too short to tell | - | - | - |", name
        else printf "| %s | %.1f ms | %.0f | %.1f %% | %.2f %% |", name, o * 1e3, r, 100 * s, 100 * h
        if (p == "") printf " - | - |\n"
        else if (short || q <= 0) printf " %.1f ms, %.0f | - |\n", p * 1e3, q
        else printf " %.1f ms, %.0f | %.2f |\n", p * 1e3, q, r / q }'
}
numbers() { seq 1 "$(wc -l <"$work/lines")"; }
report() {
    {
        echo "## bench-gpu, $(date -u +%Y-%m-%dT%H:%M:%SZ)"
        echo
        [ ! -s "$work/device" ] || { cat "$work/device"; echo; }
        if [ -s "$work/lines" ]; then
            echo "Medians, bf16. Share: training of the peak of matrix products (causal FLOPs), decoding of the rate at which the weights can be read."
            [ -z "$why_no_peer" ] || echo "No peer: $why_no_peer."
            echo
            echo "$table"
            echo '|---|---|---|---|---|---|---|'
            for i in $(numbers); do row "$i"; done
        fi
        cat "$work/kernels"
        for i in $(numbers); do model_block "$i"; done
    } >"$work/report"
    cp "$work/report" "$out" || { echo "bench-gpu: $out cannot be written" >&2; exit 1; }
}
block() { printf '\n### %s\n\n```\n' "$1"; cat "$2"; printf '```\n'; } # block NAME FILE
model_block() { # I: our line, the peer's, where the time goes
    [ -s "$work/$1.ours" ] || return 0
    read -r _what _model _b _t <"$work/$1.line"
    { cat "$work/$1.ours"; [ ! -s "$work/$1.peer" ] || sed 's/^/peer /' "$work/$1.peer"; cat "$work/$1.err"; } >"$work/text"
    block "$_what $_model, $_b x $_t" "$work/text"
}
# What stands in block NAME of an earlier report.
old_block() { awk -v h="### $1" '/^### / { on = $0 == h; next } on && !/^```$/ && (NF || n) { print; n++ }' "$work/before" | sed '$!b;/^$/d'; }
: >"$work/before"
if [ -n "$go_on" ] && [ -r "$out" ]; then cp "$out" "$work/before"; fi

# ---- the peer ----

python=
for p in "${PYTHON:-}" python3; do
    if [ -n "$p" ] && [ -z "$python" ] && "$p" -c 'import torch' 2>/dev/null; then python=$p; fi
done
why_no_peer=
[ -n "$python" ] || why_no_peer='no python3 with torch (PYTHON names one)'
[ -n "$peer" ] && [ -r "$peer" ] || why_no_peer='no peer script'

# ---- kernels ----

model=
for p in "$@"; do
    name=${p##*/}
    if [ "$name" = gpu_model ]; then
        model=$p
        "$p" info >"$work/device" 2>"$work/err" || { echo "bench-gpu: $(tail -n 1 "$work/err")" >&2; exit 1; }
        cat "$work/device"
    fi
done
if [ -s "$work/before" ] && [ -s "$work/device" ] && ! grep -qF "$(sed 's/[,:].*//' "$work/device")" "$work/before"; then
    echo "bench-gpu: $out is of another device, everything is run" >&2
    : >"$work/before"
fi
for p in "$@"; do
    name=${p##*/}
    if [ "$name" = gpu_model ] || ! wanted "$name"; then continue; fi
    old_block "$name" >"$work/kept"
    if [ -s "$work/kept" ] && ! grep -q -e '^FAILED' -e '^not run' "$work/kept"; then
        block "$name" "$work/kept" >>"$work/kernels"
        continue
    fi
    echo "== $name"
    { run 20 "$p" 2>&1; echo $? >"$work/rc"; } | tee "$work/log"
    case $(cat "$work/rc") in
    0) ;;
    125) left=$((left + 1)); echo 'not run: no time was left' | tee -a "$work/log" ;;
    *) failed=$((failed + 1)); echo "FAILED ($(cat "$work/rc"))" | tee -a "$work/log" ;;
    esac
    block "$name" "$work/log" >>"$work/kernels"
    report
done

# ---- models: all of ours, then the peer's ----

if [ -n "$model" ]; then
    lines | while read -r what m b t; do if wanted "$what $m $b $t"; then echo "$what $m $b $t"; fi; done >"$work/lines"
fi
for i in $(numbers); do sed -n "${i}p" "$work/lines" >"$work/$i.line"; done
for i in $(numbers); do
    read -r what m b t <"$work/$i.line"
    old_block "$what $m, $b x $t" >"$work/kept"
    sed -n '1{/^{/p;}' "$work/kept" >"$work/$i.ours"
    if [ -s "$work/$i.ours" ]; then
        sed -n 's/^peer {/{/p' "$work/kept" >"$work/$i.peer"
        sed -e 1d -e '/^peer {/d' "$work/kept" >"$work/$i.err"
        row "$i"
        continue
    fi
    run 30 "$model" "$what" "$models/$m.ini" "$b" "$t" >"$work/json" 2>"$work/$i.err"
    rc=$?
    ours=$(tail -n 1 "$work/json")
    case $rc:$ours in
    0:'{'*) printf '%s\n' "$ours" >"$work/$i.ours" ;;
    125:*) left=$((left + 1)); echo 'not run: no time was left' >"$work/$i.why" ;;
    *)
        failed=$((failed + 1))
        echo "failed: $([ $rc -ne 124 ] || printf 'stopped. ')$(tail -n 1 "$work/$i.err" | tr '|' '/')" >"$work/$i.why"
        sed 's/^/  /' "$work/$i.err" | tail -n 5
        ;;
    esac
    row "$i"
    report
done
for i in $(numbers); do
    if [ -n "$why_no_peer" ] || [ ! -s "$work/$i.ours" ] || [ -s "$work/$i.peer" ]; then continue; fi
    read -r what m b t <"$work/$i.line"
    run 60 "$python" "$peer" "$what" "$models/$m.ini" "$b" "$t" >"$work/json" 2>"$work/perr"
    rc=$?
    tail -n 1 "$work/json" | grep '^{' >"$work/$i.peer"
    if [ $rc -eq 125 ]; then left=$((left + 1)); elif [ ! -s "$work/$i.peer" ]; then sed 's/^/  peer: /' "$work/perr" | tail -n 3; fi
    row "$i"
    report
done

report
echo
cat "$work/report"
echo "written to $out"
[ $failed -eq 0 ] || exit 1
[ $left -eq 0 ] || exit 3

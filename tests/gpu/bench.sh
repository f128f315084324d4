#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The CUDA benchmarks on GPU 0: every kernel bench, then training steps and decoding of whole models beside PyTorch in the same run
# where a python3 with torch is found. The report, in the form of kernels/README.md, goes to a file too. `make bench-gpu` and a
# bundle's gpu/bench-gpu call this.
#
#   bench.sh [-o FILE] [-m MODELS_DIR] [-p PEER.py] PROGRAM...
#
# PROGRAM */gpu_model is run once for each line of the table below; every other one once, and its output is shown.
# LF_GPU_BENCH="train qwen2.5-1.5b" runs the lines that have all these words. PYTHON names the interpreter of the peer.
# LF_GPU_LINES names a file with other lines (tests use tiny ones). Exit: 0, 1 when a bench failed or there is no GPU.
set -u
LC_ALL=C
export LC_ALL
out=bench-gpu.md models=${LF_MODELS_DIR:-} peer=
while getopts o:m:p: opt; do
    case $opt in
    o) out=$OPTARG ;;
    m) models=$OPTARG ;;
    p) peer=$OPTARG ;;
    *) echo "usage: bench.sh [-o FILE] [-m MODELS_DIR] [-p PEER.py] PROGRAM..." >&2; exit 2 ;;
    esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || { echo "bench-gpu: no programs were given" >&2; exit 2; }
work=$(mktemp -d "${TMPDIR:-/tmp}/bench-gpu.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# what model sequences tokens: sequences of a micro-batch (train) or batch (decode), tokens of one (decode: new tokens)
lines() {
    if [ -n "${LF_GPU_LINES:-}" ]; then cat "$LF_GPU_LINES"; return; fi
    cat <<'END'
train gpt2-124m 16 1024
train gpt2-124m 8 2048
train qwen2.5-0.5b 8 2048
train qwen2.5-0.5b 4 4096
train qwen2.5-1.5b 8 2048
train qwen2.5-1.5b 4 4096
train llama3.2-1b 8 2048
train llama3.2-1b 4 4096
train llama2-7b 4 2048
train llama2-7b 2 4096
decode llama2-7b 1 256
decode llama2-7b 64 256
END
}
wanted() { # LINE: has it every word of LF_GPU_BENCH?
    for w in ${LF_GPU_BENCH:-}; do case " $1 " in *" $w "*) ;; *) return 1 ;; esac; done
    return 0
}
member() { printf '%s\n' "$1" | sed -n "s/.*\"$2\": *\"\{0,1\}\([^,\"}]*\).*/\1/p"; } # member JSON-LINE NAME
failed=0

python=
for p in "${PYTHON:-}" python3; do
    if [ -n "$p" ] && [ -z "$python" ] && "$p" -c 'import torch' 2>/dev/null; then python=$p; fi
done
why_no_peer=
[ -n "$python" ] || why_no_peer='no python3 with torch (PYTHON names one)'
[ -n "$peer" ] && [ -r "$peer" ] || why_no_peer='no peer script'

model_line() { # PROGRAM WHAT MODEL B T
    ours=$("$1" "$2" "$models/$3.ini" "$4" "$5" 2>"$work/err" | tail -n 1)
    theirs=
    case $ours in
    '{'*)
        printf '%s\n' "$ours"
        { printf '\n### %s\n\n```\n%s\n' "$2 $3, $4 x $5" "$ours"; cat "$work/err"; printf '```\n'; } >>"$work/kernels"
        ;;
    *)
        failed=$((failed + 1))
        sed 's/^/  /' "$work/err" | tail -n 5
        printf '| %s %s, %s x %s | failed: %s | | | | |\n' "$2" "$3" "$4" "$5" "$(tail -n 1 "$work/err" | tr '|' '/')" >>"$work/models"
        return
        ;;
    esac
    if [ -z "$why_no_peer" ]; then
        theirs=$("$python" "$peer" "$2" "$models/$3.ini" "$4" "$5" 2>"$work/perr" | tail -n 1)
        case $theirs in '{'*) printf '%s\n' "$theirs" ;; *) sed 's/^/  peer: /' "$work/perr" | tail -n 3; theirs= ;; esac
    fi
    awk -v o="$(member "$ours" median_s)" -v r="$(member "$ours" tokens_per_s)" -v s="$(member "$ours" share)" -v h="$(member "$ours" overhead)" \
        -v p="$(member "$theirs" median_s)" -v q="$(member "$theirs" tokens_per_s)" -v name="$2 $3, $4 x $5" 'BEGIN {
        printf "| %s | %.1f ms | %.0f | %.1f %% | %.2f %% |", name, o * 1e3, r, 100 * s, 100 * h
        if (p != "") printf " %.1f ms, %.0f | %.2f |\n", p * 1e3, q, (q > 0 ? r / q : 0); else printf " - | - |\n" }' >>"$work/models"
}

: >"$work/kernels"
: >"$work/models"
for p in "$@"; do
    name=${p##*/}
    if [ "$name" = gpu_model ]; then
        "$p" info >"$work/device" 2>"$work/err" || { echo "bench-gpu: $(tail -n 1 "$work/err")" >&2; exit 1; }
        lines >"$work/lines"
        while read -r what model b t; do
            if wanted "$what $model $b $t"; then model_line "$p" "$what" "$model" "$b" "$t"; fi
        done <"$work/lines"
    elif wanted "$name"; then
        echo "== $name"
        if "$p" >"$work/log" 2>&1; then cat "$work/log"; else failed=$((failed + 1)); echo "FAILED: $(tail -n 3 "$work/log")" | tee -a "$work/log"; fi
        { printf '\n### %s\n\n```\n' "$name"; cat "$work/log"; printf '```\n'; } >>"$work/kernels"
    fi
done

{
    echo "## bench-gpu, $(date -u +%Y-%m-%dT%H:%M:%SZ)"
    echo
    [ ! -s "$work/device" ] || { cat "$work/device"; echo; }
    if [ -s "$work/models" ]; then
        echo "Medians, bf16. Share: training of the peak of matrix products (causal FLOPs), decoding of the rate at which the weights can be read."
        [ -z "$why_no_peer" ] || echo "No peer: $why_no_peer."
        echo
        echo '| | ours | tokens/s | share | outside kernels | PyTorch, tokens/s | ours / PyTorch |'
        echo '|---|---|---|---|---|---|---|'
        cat "$work/models"
    fi
    cat "$work/kernels"
} >"$work/report"
cp "$work/report" "$out" || { echo "bench-gpu: $out cannot be written" >&2; exit 1; }
echo
cat "$work/report"
echo "written to $out"
[ $failed -eq 0 ]

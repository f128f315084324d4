# SPDX-License-Identifier: Apache-2.0
# Sourced by zero.sh, layouts.sh, layouts_full.sh and save.sh, which time lf-pretrain on ranks: $tool makes data, $tmp is removed at the end.
build=${LF_BUILDDIR:-$PWD}
tool=$build/tests/stage/train_tool
[ -x "$tool" ] || { echo "make tests/stage/train_tool first" >&2; exit 1; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
LF_LIBEXEC=$build/stages OMP_WAIT_POLICY=passive OMP_NUM_THREADS=1
export LF_LIBEXEC OMP_WAIT_POLICY OMP_NUM_THREADS
load() { cut -d' ' -f1-3 /proc/loadavg; }
machine() { echo "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(getconf _NPROCESSORS_ONLN) cores; load $(load)"; }
median() { sort -g | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }
# steps_only STEPS MICRO_BATCH LINES... >FILE: sequences of 256 tokens in f32, and nothing but steps; [model] is the caller's
steps_only() {
    printf '[stage]\ndata = %s\nsteps = %s\nmicro_batch = %s\n' "$tmp/data" "$1" "$2"
    shift 2
    [ $# -eq 0 ] || printf '%s\n' "$@"
    cat <<END
seq_length = 256
lr = 1e-3
warmup = 1
save_interval = 0
save_time = 0
valid_interval = 0
valid_tokens = 1024
log_interval = 1000
mfu = no
END
}
# settings STEPS MICRO_BATCH LINES... >FILE: the same of a Llama-like model of 58M parameters
settings() {
    steps_only "$@"
    cat <<END
[model]
family = llama3
layers = 8
hidden = 512
heads = 8
kv_heads = 8
ffn = 1376
vocab = 32000
max_positions = 256
END
}
# seconds RANKS ARGS...: the median step of a run with $tmp/run.ini, without the first
seconds() {
    _ranks=$1
    shift
    rm -rf "$tmp/out" "$tmp/m" "$tmp/lines"
    "$build/loong-flow" launch -n "$_ranks" -- "$build/stages/lf-pretrain" --config "$tmp/run.ini" --out "$tmp/out" --metrics "$tmp/m" \
        --metrics-jsonl "$tmp/lines" "$@" >"$tmp/log" 2>&1 || { cat "$tmp/log" >&2; exit 1; }
    sed -n 's/.*"step_s": *\([0-9.e-]*\).*/\1/p' "$tmp/lines" | tail -n +2 | median
}

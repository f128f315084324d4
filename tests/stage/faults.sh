#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A disk that fills up or fails under each stage: the n-th change that it makes to its files fails with ENOSPC (and then every later
# one) or with EIO (that one alone), for every n; of calls in a row on one file for the first two and the last, with FAULTS_LONG
# (faults_long.sh) for all that ENOSPC may hit. Each time there is one clear error and exit 1; nothing that is published is half
# there; started again without the fault the stage ends with the same bytes. Then limits on the size of files.
. "$LF_SRCDIR/tests/stage/lib.sh"
bin=$LF_BUILDDIR/stages

# 200 lines of invented words.
awk 'BEGIN { x = 7; for (i = 0; i < 200; i++) { line = ""; m = 5 + i % 23
    for (j = 0; j < m; j++) { x = (x * 16807) % 2147483647; w = ""; k = 2 + x % 5; y = x
        for (q = 0; q < k; q++) { y = (y * 16807) % 2147483647; w = w substr("etaoinshrdlucmfw", 1 + y % 16, 1) }
        line = line (j ? " " : "") w }
    print line "." } }' >"$dir/text.txt"
cat >"$dir/tokenize.ini" <<END_INI
[stage]
inputs = $dir/text.txt
doc_split = line
vocab_size = 300
valid_fraction = 0.1
shard_tokens = 8k
threads = 1
END_INI
cat >"$dir/pretrain.ini" <<END_INI
[stage]
data = $dir/tokenize/out/shards
steps = 2
mfu = no
seq_length = 32
batch = 2
micro_batch = 2
valid_tokens = 64
save_interval = 1
save_time = 0
keep = 1
threads = 1
[model]
family = llama3
layers = 1
hidden = 16
heads = 1
kv_heads = 1
ffn = 16
vocab = 300
max_positions = 32
tied_head = yes
END_INI
cat >"$dir/generate.ini" <<END_INI
[stage]
checkpoint = $dir/pretrain/out/checkpoint
tokenizer = $dir/tokenize/out/tokenizer
prompt = the
    of a
max_tokens = 4
threads = 1
END_INI
cat >"$dir/eval.ini" <<END_INI
[stage]
checkpoint = $dir/pretrain/out/checkpoint
tokenizer = $dir/tokenize/out/tokenizer
data = $dir/tokenize/out/shards
limit = 4
block = 2
threads = 1
END_INI

# A thousand starts follow: what the shell can do itself, no other process does.
# stage KIND WHERE [ERR]: run it; its words in ERR, or WHERE.err
stage() {
    [ -d "$2" ] || mkdir -p "$2"
    "$bin/lf-$1" --config "$dir/$1.ini" --out "$2/out" --metrics "$2/metrics" --log-level warning >"${3:-$2.err}" 2>&1
}
# result KIND WHERE: all that must repeat
result() {
    case $1 in
    tokenize) (cd "$2/out" && cksum shards/*.h5 shards/manifest.json tokenizer/*.json) ;;
    pretrain) "$tool" id "$2/out/checkpoint" metrics "$2/metrics" ;;
    generate) cksum <"$2/out/text/out.jsonl" ;;
    eval) cksum <"$2/out/results/results.json" ;;
    esac 2>&1
}
faulty() { # faulty ACTION N KIND WHERE [ERR]
    mkdir -p "$4"
    LD_PRELOAD=$FAIL LF_FAIL_ROOT=$4 LF_FAIL_ACTION=$1 LF_FAIL_AFTER=$2 LF_FAIL_LOG=${LOG:-/dev/null} stage "$3" "$4" "${5:-}"
}
# one_error ACTION FILE: the file is one line, and it says what went wrong. Where it says first that a checkpoint before the last one
# is not saved, that line is put aside.
one_error() {
    grep -v ' is not saved, and the run goes on: ' "$2" >"$dir/one.err"
    { IFS= read -r _line && ! read -r _more && [ -z "$_more" ]; } <"$dir/one.err" || return 1
    case "$1: $_line" in
    "enospc: "*'No space left on device'* | "eio: "*'Input/output error'* | "eio: "*'is the disk full'*) return 0 ;;
    esac
    return 1
}
# went_on CODE FILE WHERE: lf-pretrain ended well without the first of its checkpoints, and says so
went_on() {
    [ "$1" -eq 0 ] && { IFS= read -r _line && ! read -r _more; } <"$2" || return 1
    case $_line in
    *'step 1 is not saved, and the run goes on: '*'Input/output error'* | *'step 1 is not saved'*'is the disk full'*)
        # One that failed after its manifest was there is complete.
        _dir=$3/out/checkpoints/step-00000001
        { [ ! -e "$_dir/manifest.json" ] || "$tool" id "$_dir" >/dev/null; } && [ "$(result pretrain "$3")" = "$_ref" ] ;;
    *) return 1 ;;
    esac
}
# points KIND ACTION: the numbers to try. ENOSPC does not count what removes a file; the sync when a metrics file is closed is left
# out, because every record was synced before and nothing depends on it; so is the removal of the lock and its temporary file: a
# lock whose holder is gone holds nobody up.
points() {
    awk -v a="$2" -v all="${FAULTS_LONG-}" '{ key[NR] = $2 " " $3; count[NR] = (a != "enospc" || $2 != "unlink")
            tried[NR] = count[NR] && !($2 == "unlink" && $3 ~ "^/out/.lock"); if (tried[NR]) last = NR }
        END { if (key[last] == "fsync /metrics") last--
            for (i = 1; i <= last; i++) { number += count[i]
                middle = i > 2 && i < last && key[i] == key[i - 1] && key[i] == key[i - 2] && key[i] == key[i + 1]
                if (tried[i] && ((all != "" && a == "enospc") || !middle)) print number, key[i] } }' "$dir/$1.calls"
}
# sweep KIND ACTION
sweep() {
    _tried=0 _bad=0
    points "$1" "$2" >"$dir/points"
    _ref=$(cat "$dir/$1.ref")
    while read -r _i _call; do
        _tried=$((_tried + 1))
        _w=$dir/w
        rm -rf "$_w"
        faulty "$2" "$_i" "$1" "$_w" "$dir/first.err" </dev/null
        _code=$?
        stage "$1" "$_w" </dev/null
        _again=$?
        _now=$(result "$1" "$_w")
        { [ $_code -eq 1 ] && one_error "$2" "$dir/first.err"; } || went_on $_code "$dir/first.err" "$_w"
        if [ $? -ne 0 ] || [ $_again -ne 0 ] || [ "$_now" != "$_ref" ] || [ -s "$_w.err" ]; then
            _bad=$((_bad + 1))
            [ $_bad -gt 12 ] || echo "# $1, $2 at $_i $_call: exit $_code, then $_again: $(head -3 "$dir/first.err" | tr '\n' '~') /" \
                "$(head -3 "$_w.err" | tr '\n' '~') $(echo "$_now" | diff "$dir/$1.ref" - | head -2 | tr '\n' '~')"
        fi
    done <"$dir/points"
    [ $_bad -eq 0 ] && [ $_tried -gt 10 ]
    ok $? "lf-$1: $2 at each of $_tried changes: one error, exit 1, and the same bytes afterwards ($_bad are not so)"
}

for kind in tokenize pretrain generate eval; do
    LOG=$dir/$kind.calls faulty none 0 $kind "$dir/$kind"
    ok $? "lf-$kind without faults"
    result $kind "$dir/$kind" >"$dir/$kind.ref"
done
if [ -z "$FAIL" ]; then
    skip "" "faults of single calls: $no_fail"
else
    for kind in ${KINDS-tokenize pretrain generate eval}; do
        sweep $kind enospc
        sweep $kind eio
    done
fi

# ulimit -f as on a quota: files that may not grow beyond a few blocks. (Checkpoints: tests/stage/pretrain.sh.)
limited() { # limited KIND WHAT BLOCKS: exit 1, one line, and afterwards the same bytes
    rm -rf "$dir/w"
    (
        ulimit -f "$3"
        stage "$1" "$dir/w" 2>/dev/null
    )
    _code=$?
    grep -v ' is not saved, and the run goes on: ' "$dir/w.err" >"$dir/first.err"
    [ $_code -eq 1 ] && grep -qE "$2.*(File too large|is the disk full)" "$dir/first.err" && [ "$(wc -l <"$dir/first.err")" -eq 1 ] &&
        stage "$1" "$dir/w" && result "$1" "$dir/w" | cmp -s "$dir/$1.ref" -
    ok $? "lf-$1 where files may not grow: $(head -c 160 "$dir/first.err" | tr '\n' ' ')"
}
# HDF5 leaks a property list where it cannot write what it has kept.
echo "leak:libhdf5" >"$dir/suppressed"
LSAN_OPTIONS="${LSAN_OPTIONS:+$LSAN_OPTIONS:}suppressions=$dir/suppressed:print_suppressions=0"
export LSAN_OPTIONS
limited tokenize 'tokenizer.json|shards' 4
limited pretrain 'metrics|checkpoint' 4
limited eval 'results' 1
sed -i 's/^max_tokens = 4/max_tokens = 20\nlogprobs = 4/' "$dir/generate.ini"
rm -rf "$dir/generate"
stage generate "$dir/generate"
result generate "$dir/generate" >"$dir/generate.ref"
limited generate 'out.jsonl' 4
finish_min 9 # four for each kind that is asked for; sanitizers keep out faults of single calls

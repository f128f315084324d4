#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# lf-tokenize as a user or the flow runs it: options and exit codes, formats, equality under threads, exact resume after
# kill -9 at many points, SIGTERM and a stop file, bad input.
. "$LF_SRCDIR/tests/stage/lib.sh"
tokenize=$LF_BUILDDIR/stages/lf-tokenize
tool=$LF_BUILDDIR/tests/stage/tokenize_tool
golden=$LF_SRCDIR/tests/golden/tokenizer

run() { "$tokenize" "$@" 2>"$dir/err" >"$dir/stdout"; rc=$?; }
# fails CODE TEXT NAME ARGS...: exits with CODE and says TEXT on one line of standard error
fails() {
    _code=$1 _text=$2 _name=$3
    shift 3
    run "$@"
    [ $rc -eq "$_code" ] && grep -qF -- "$_text" "$dir/err" && [ "$(wc -l <"$dir/err")" -le 3 ]
    ok $? "$_name"
    [ $rc -eq "$_code" ] || echo "# exit $rc, not $_code"
}
same() { diff -r "$1/shards" "$2/shards" >/dev/null && diff -r "$1/tokenizer" "$2/tokenizer" >/dev/null; ok $? "$3"; }
member() { sed -n "s/.*\"$2\":{[^}]*\"$3\":\([0-9.]*\).*/\1/p" "$dir/$1/shards/manifest.json"; } # member OUT SPLIT KEY
count() { find "$1" -name "$2" 2>/dev/null | wc -l; }

# Some 2.5 MB of invented words, 24,000 lines, with a few characters beyond ASCII.
awk 'BEGIN { x = 7; for (i = 0; i < 24000; i++) { line = ""; m = 5 + i % 23;
    for (j = 0; j < m; j++) { x = (x * 16807) % 2147483647; w = ""; k = 2 + x % 5; y = x;
        for (q = 0; q < k; q++) { y = (y * 16807) % 2147483647; w = w substr("etaoinshrdlucmfw", 1 + y % 16, 1) }
        line = line (j ? " " : "") (x % 97 == 0 ? "naïve—" : "") w (x % 31 == 0 ? "," : "") }
    print line "." } }' >"$dir/text.txt"
mkdir "$dir/in"
head -n 9000 "$dir/text.txt" >"$dir/in/a.txt"
sed -n '9001,16000p' "$dir/text.txt" >"$dir/in/b.txt"
sed -n '16001,$p' "$dir/text.txt" | sed 's/.*/{"id":1,"text":"&"}/' >"$dir/in/c.jsonl"
opts="--doc-split=line --vocab-size=600 --valid-fraction=0.05 --shard-tokens=40k"

# --- usage ---
run --help
[ $rc -eq 0 ] && grep -q -- "--vocab-size" "$dir/stdout" && grep -q "valid" "$dir/stdout"
ok $? "--help"
run --version
[ $rc -eq 0 ] && grep -q "^lf-tokenize" "$dir/stdout"
ok $? "--version"
fails 2 "valid-fraction" "an unknown option, with the nearest name" --valid-fractoin=0.1 --out "$dir/x" "$dir/in"
fails 2 "inputs" "no input" --out "$dir/x"
fails 2 "--out" "no out" "$dir/in"
fails 2 "doc_split" "a value that is no choice" --doc-split=page --out "$dir/x" "$dir/in"
fails 2 "valid_fraction" "a value out of range" --valid-fraction=0.9 --out "$dir/x" "$dir/in"
fails 2 "doc_separator" "separator without a line" --doc-split=separator --out "$dir/x" "$dir/in"
fails 2 "no room" "a vocabulary too small" --vocab-size=257 --special-tokens=a --special-tokens=b --out "$dir/x" "$dir/in"
fails 2 "vocab_size" "an option without effect" --tokenizer "$golden/gpt2.json" --vocab-size=500 --out "$dir/x" "$dir/in"
fails 1 "missing.txt" "a missing input" --out "$dir/x" "$dir/missing.txt"
fails 2 "run.ini:2" "an unknown key of the INI file" --config "$(printf '[stage]\nvocab_sise = 5\n' >"$dir/run.ini"; echo "$dir/run.ini")" --out "$dir/x" "$dir/in"
run --plan "$dir/in" $opts
[ $rc -eq 0 ] && grep -q '"stage":"tokenize"' "$dir/stdout" && grep -q '"disk_bytes":[1-9]' "$dir/stdout" &&
    grep -q '"outputs":\["shards","tokenizer"\]' "$dir/stdout"
ok $? "--plan needs no out"
run --print-config --out "$dir/x" "$dir/in" $opts
[ $rc -eq 0 ] && grep -q "^vocab_size = 600$" "$dir/stdout" && grep -q "^shard_tokens = 40000$" "$dir/stdout" && ! grep -q "^out" "$dir/stdout"
ok $? "--print-config"
printf '[stage]\n' >"$dir/back.ini"
sed 1d "$dir/stdout" >>"$dir/back.ini"
run --config "$dir/back.ini" --print-config --out "$dir/x"
sed 1d "$dir/stdout" | cmp -s - "$(sed 1d "$dir/back.ini" >"$dir/back.txt"; echo "$dir/back.txt")"
ok $? "what --print-config prints reads back"

# --- the reference run, threads, round trip ---
run $opts --threads=1 --out "$dir/ref" --metrics "$dir/metrics" "$dir/in"
ok $rc "one thread"
grep -q "unigram entropy" "$dir/err"
ok $? "the unigram entropy is told"
run $opts --threads=4 --out "$dir/t4" "$dir/in"
same "$dir/ref" "$dir/t4" "four threads give the same bytes"
[ "$(count "$dir/ref/shards" 'train-*.h5')" -gt 8 ] && [ "$(count "$dir/ref/shards" 'valid-*.h5')" -gt 8 ] && [ -s "$dir/metrics" ]
ok $? "several shards, and metrics"
"$tool" "$dir/ref" train >"$dir/docs" && "$tool" "$dir/ref" valid >>"$dir/docs"
sort "$dir/docs" >"$dir/docs.sorted"
sort "$dir/text.txt" | cmp -s - "$dir/docs.sorted"
ok $? "train and valid together decode to every line of the input"
run $opts --out "$dir/ref" "$dir/in"
[ $rc -eq 0 ] && grep -q "nothing to do" "$dir/err"
ok $? "a finished run is left alone"
run $opts --shard-tokens=1M --out "$dir/big" "$dir/in/b.txt" "$dir/in/c.jsonl" "$dir/in/a.txt" --tokenizer "$dir/ref/tokenizer" 2>/dev/null
[ $rc -eq 2 ] # vocab_size has no effect with a tokenizer
ok $? "training options beside a tokenizer are refused"
run --doc-split=line --valid-fraction=0.05 --shard-tokens=1M --out "$dir/big" "$dir/in/b.txt" "$dir/in/c.jsonl" "$dir/in/a.txt" --tokenizer "$dir/ref/tokenizer"
"$tool" "$dir/big" valid | sort >"$dir/v1"
"$tool" "$dir/ref" valid | sort | cmp -s - "$dir/v1"
ok $? "other order and shard size, the same validation documents"
[ "$(wc -l <"$dir/v1")" -gt 900 ] && [ "$(wc -l <"$dir/v1")" -lt 1500 ]
ok $? "about 5 % of them"
run --doc-split=line --valid-fraction=0.05 --valid-seed=1 --out "$dir/seed" "$dir/in" --tokenizer "$dir/ref/tokenizer"
"$tool" "$dir/seed" valid | sort | cmp -s - "$dir/v1"
[ $? -ne 0 ]
ok $? "another seed, another validation set"

# --- kill -9 and go on ---
# killed NAME RECORDS ARGS...: lf-tokenize into $dir/NAME is killed once so many of its groups are recorded
killed() {
    _out=$dir/$1 _records=$2
    _what="fsync */$1/progress"
    [ "$_records" -gt 0 ] || _what="mkdir */$1/progress"
    shift 2
    cut_at kill $((_records > 0 ? _records : 1)) "$_what" "[ \$(count '$_out/progress' '*.json') -ge $_records ]" \
        "$tokenize" $opts --threads=2 --out "$_out" "$@"
}
point=0
for records in 0 1 2 4 7; do
    point=$((point + 1))
    out=$dir/kill$point
    killed "kill$point" $records "$dir/in"
    done_before=$(count "$out/progress" '*.json')
    ls -i "$out/shards/train-00000.h5" 2>/dev/null >"$dir/inode"
    run $opts --out "$out" "$dir/in"
    same "$dir/ref" "$out" "killed with $done_before groups done: the same bytes in the end"
    [ $records -gt 0 ] || continue
    if [ "$done_before" -gt 0 ] && [ -s "$dir/inode" ]; then
        ls -i "$out/shards/train-00000.h5" | cmp -s - "$dir/inode"
        ok $? "finished shards were kept"
    else
        skip "finished shards were kept" "no shard was finished yet"
    fi
done
# A chain of starts, each in a directory of its own.
from=
for k in 1 2 3; do
    killed "chain$k" $((2 * k)) $from "$dir/in"
    from="$from --resume-from=$dir/chain$k"
done
run $opts --out "$dir/chain4" $from "$dir/in"
same "$dir/ref" "$dir/chain4" "resume_from over three killed starts"
# out itself as an earlier start, in other words: its finished shards are not touched.
cp -r "$dir/ref" "$dir/self"
rm "$dir/self/shards/manifest.json"
run $opts --out "$dir/self" --resume-from "$dir/in/../self" "$dir/in"
same "$dir/ref" "$dir/self" "resume_from may name out itself"
# Half-written and torn leftovers are no obstacle.
mkdir -p "$dir/torn/shards" "$dir/torn/progress"
head -c 5000 "$dir/ref/shards/train-00000.h5" >"$dir/torn/shards/train-00000.h5"
run $opts --out "$dir/torn" "$dir/in"
same "$dir/ref" "$dir/torn" "a shard without a record is made again"

# --- stopping ---
"$tokenize" $opts --threads=1 --out "$dir/term" - --tokenizer "$dir/ref/tokenizer" 2>/dev/null </dev/null
[ $? -eq 2 ]
ok $? "vocab_size with a tokenizer is refused for standard input too"
mkfifo "$dir/fifo"
sleep 3600 >"$dir/fifo" &
holder=$!
"$tokenize" --doc-split=line --out "$dir/term" --tokenizer "$dir/ref/tokenizer" - <"$dir/fifo" 2>"$dir/err" &
pid=$!
# It hears signals before it takes this lock.
until [ -e "$dir/term/.lock" ] || ! kill -0 $pid; do sleep 0.01; done 2>/dev/null
kill -TERM $pid
wait $pid
[ $? -eq 75 ]
ok $? "SIGTERM while waiting for input: 75"
kill $holder 2>/dev/null
wait $holder 2>/dev/null
touch "$dir/stop"
run $opts --out "$dir/stopped" --stop-file "$dir/stop" "$dir/in"
[ $rc -eq 75 ] && grep -q "stop" "$dir/err"
ok $? "a stop file: 75"
run $opts --out "$dir/stopped" "$dir/in"
same "$dir/ref" "$dir/stopped" "and the run goes on to the same bytes"

# --- formats ---
run --doc-split=line --valid-fraction=0.05 --out "$dir/std" --tokenizer "$dir/ref/tokenizer" - <"$dir/text.txt"
[ $rc -eq 0 ] && [ "$(member std train tokens)" = "$(member ref train tokens)" ] && [ "$(member std valid docs)" = "$(member ref valid docs)" ]
ok $? "standard input"
if gzip --version >/dev/null 2>&1; then
    gzip -c "$dir/text.txt" >"$dir/text.txt.gz"
    run --doc-split=line --valid-fraction=0.05 --out "$dir/gz" --tokenizer "$dir/ref/tokenizer" "$dir/text.txt.gz"
    [ $rc -eq 0 ] && [ "$(member gz train tokens)" = "$(member ref train tokens)" ]
    ok $? "gzip"
    head -c 200000 "$dir/text.txt.gz" >"$dir/cut.txt.gz"
    fails 1 "cut.txt.gz" "a truncated file" --doc-split=line --out "$dir/cut" --tokenizer "$dir/ref/tokenizer" "$dir/cut.txt.gz"
    [ ! -e "$dir/cut/shards/manifest.json" ]
    ok $? "leaves no manifest"
else
    skip_some 3 "no gzip here"
fi
for t in gpt2 llama3; do
    run --doc-split=file --out "$dir/$t" --tokenizer "$golden/$t.json" --append-eos=no "$dir/in/a.txt"
    [ $rc -eq 0 ] && cmp -s "$dir/$t/tokenizer/tokenizer.json" "$golden/$t.json" && "$tool" "$dir/$t" train | head -c 300000 >"$dir/back" &&
        head -c 300000 "$dir/in/a.txt" | cmp -s - "$dir/back"
    ok $? "a $t tokenizer; the file is one document"
done
run --doc-split=line --limit-docs=10 --out "$dir/few" --tokenizer "$dir/ref/tokenizer" "$dir/in"
[ $rc -eq 0 ] && [ "$(member few train docs)" = 10 ]
ok $? "limit_docs"
run --doc-split=line --dtype=u32 --out "$dir/u32" --tokenizer "$dir/ref/tokenizer" "$dir/in"
[ $rc -eq 0 ] && grep -q '"token_bytes":4' "$dir/u32/shards/manifest.json"
ok $? "dtype = u32"

# --- bad input ---
printf 'good line\nbad \377 line\n' >"$dir/bad.txt"
fails 1 "bad.txt:2: byte 4 (0xff) is not valid UTF-8" "invalid UTF-8 refused with its place" --doc-split=line --invalid-utf8=error --out "$dir/bad" --tokenizer "$dir/ref/tokenizer" "$dir/bad.txt"
run --doc-split=line --out "$dir/rep" --tokenizer "$dir/ref/tokenizer" "$dir/bad.txt"
[ $rc -eq 0 ] && grep -q '"invalid_utf8_replaced":1' "$dir/rep/shards/manifest.json" && grep -q "U+FFFD" "$dir/err"
ok $? "or replaced, counted and told"
awk 'BEGIN { for (i = 0; i < 200; i++) printf "un caf\351 cr\350me\n" }' >"$dir/latin1.txt"
fails 1 "latin1.txt is no UTF-8 text" "a text in Latin-1 is refused" --doc-split=line --out "$dir/bad" --tokenizer "$dir/ref/tokenizer" "$dir/latin1.txt"
run --doc-split=line --invalid-utf8=replace --out "$dir/latin" --tokenizer "$dir/ref/tokenizer" "$dir/latin1.txt"
[ $rc -eq 0 ] && grep -q '"invalid_utf8_replaced":400' "$dir/latin/shards/manifest.json"
ok $? "and taken by who says so"
printf '{"text":"a"}\n{"text":"b"\n' >"$dir/bad.jsonl"
fails 1 "bad.jsonl:2: not a JSON object" "a broken JSON line" --out "$dir/bad" --tokenizer "$dir/ref/tokenizer" "$dir/bad.jsonl"
sed 's/"merges":\[/"merges":["Q7 qz",/' "$golden/gpt2.json" >"$dir/merge.json"
fails 1 "merges[0]" "a tokenizer.json with a missing merge" --out "$dir/bad" --tokenizer "$dir/merge.json" "$dir/in"
fails 1 "eos_token" "an eos_token that is not there" --out "$dir/bad" --tokenizer "$dir/ref/tokenizer" --eos-token='<nope>' "$dir/in"
fails 1 "other options" "other options in the same out" --doc-split=line --vocab-size=700 --out "$dir/kill1x" --resume-from="$dir/ref" "$dir/in"
fails 1 "no document" "empty input" --out "$dir/bad2" --tokenizer "$dir/ref/tokenizer" "$(: >"$dir/empty.txt"; echo "$dir/empty.txt")"
cp -r "$dir/t4" "$dir/purged"
rm "$dir/purged/shards/train-00003.h5"
fails 1 "train-00003.h5" "a shard that was deleted" $opts --out "$dir/purged" "$dir/in"
rm "$dir/purged/shards/manifest.json"
run $opts --out "$dir/purged" "$dir/in"
same "$dir/ref" "$dir/purged" "is made again once the manifest is removed"
rm "$dir/purged/shards/manifest.json" "$dir/purged/shards/valid-00003.h5"
run $opts --out "$dir/purged" "$dir/in"
same "$dir/ref" "$dir/purged" "a group that lost one shard of two is counted once"
fails 1 "other options (inputs has other contents)" "other inputs in an out that is finished" $opts --out "$dir/t4" "$dir/in/a.txt"
fails 1 "tokenizer has other contents" "another tokenizer in an out that is finished" --doc-split=line --dtype=u32 --out "$dir/u32" --tokenizer "$golden/gpt2.json" "$dir/in"
fails 2 "limit_docs" "a limit below nothing" --limit-docs=-1 --out "$dir/x" "$dir/in"
cp -r "$dir/t4" "$dir/flip"
rm "$dir/flip/shards/manifest.json"
printf 'XX' | dd of="$dir/flip/shards/train-00001.h5" bs=1 seek=3000 conv=notrunc 2>/dev/null
fails 1 "train-00001.h5" "a damaged shard is not adopted" $opts --out "$dir/flip" "$dir/in"
run $opts --out "$dir/flip2" --resume-from "$dir/flip" "$dir/in"
same "$dir/ref" "$dir/flip2" "one of an earlier start is made again"
cp -r "$dir/t4" "$dir/flip3"
at=$(grep -abo '"merges":' "$dir/flip3/tokenizer/tokenizer.json" | head -n 1 | cut -d: -f1)
printf 'Q' | dd of="$dir/flip3/tokenizer/tokenizer.json" bs=1 seek=$((at + 12)) conv=notrunc 2>/dev/null
fails 1 "tokenizer.json: its bytes do not match the hash in the manifest" "a damaged tokenizer is not used" --out "$dir/flipx" \
    --tokenizer "$dir/flip3/tokenizer" "$dir/in"
run $opts --out "$dir/flip4" --resume-from "$dir/flip3" "$dir/in"
same "$dir/ref" "$dir/flip4" "one of an earlier start is trained again"

# --- one row that is wrong ---
printf '{"text":"one"}\n{"text":"tw\n' >"$dir/broken.jsonl"
fails 1 'broken.jsonl:2: not a JSON object' "a broken row is named" --tokenizer "$dir/ref/tokenizer" --out "$dir/x" "$dir/broken.jsonl"
says_like '; bad_rows = skip leaves such rows out$' "with the way out"
printf '{"txt":"one"}\n' >"$dir/first.jsonl"
fails 1 'first.jsonl:1: ' "where the first row is wrong" --tokenizer "$dir/ref/tokenizer" --out "$dir/x" "$dir/first.jsonl"
is "$(grep -c bad_rows "$dir/err")" 0 "there is none: all may be"

# --- rows that are taken as text, and documents too few to keep some ---
printf '{"text":"one"}\n{"text":"two"}\n' >"$dir/rows.json"
cp "$dir/rows.json" "$dir/rows.csv"
cp "$dir/rows.json" "$dir/rows.jsonl"
run --tokenizer "$dir/ref/tokenizer" --out "$dir/astext" "$dir/rows.json" "$dir/rows.csv"
is "$rc $(grep -c 'warning: .*rows.json and 1 more: taken as plain text' "$dir/err")" "0 1" "names of tables that are read as text are a warning"
run --tokenizer "$dir/ref/tokenizer" --out "$dir/astext2" --input-format text "$dir/rows.json"
is "$rc $(grep -c 'warning' "$dir/err")" "0 0" "which input_format silences"
fails 1 'rows are wanted (text_field)' "a text where a column was named" --tokenizer "$dir/ref/tokenizer" --text-field text --out "$dir/x" "$dir/rows.json"
fails 1 'rows are wanted (shape)' "or a shape" --tokenizer "$dir/ref/tokenizer" --shape alpaca --out "$dir/x" "$dir/rows.csv"
run --plan --tokenizer "$dir/ref/tokenizer" --valid-fraction=0.01 "$dir/rows.jsonl"
is "$(grep -c 'valid_fraction = 0.01 of 2 documents: none is kept for validation with a chance of 98 %"' "$dir/stdout")" 1 "--plan counts the documents of a short text"
run --plan --tokenizer "$dir/ref/tokenizer" --valid-fraction=0.02 "$dir/in/a.txt"
is "$(grep -c 'of 1 document: .* 98 %; doc_split = blank' "$dir/stdout")" 1 "and says how there are more"
run --plan --tokenizer "$dir/ref/tokenizer" --valid-fraction=0.02 --doc-split=line "$dir/in/a.txt"
is "$rc $(grep -c 'kept for validation' "$dir/stdout")" "0 0" "of enough it says nothing"
run --tokenizer "$dir/ref/tokenizer" --valid-fraction=0.01 --out "$dir/fewrows" "$dir/rows.jsonl"
is "$rc $(grep -c 'valid_fraction = 0.01 keeps none of 2 documents' "$dir/err")" "0 1" "none is kept: a warning"
seed=0
until run --tokenizer "$dir/ref/tokenizer" --valid-fraction=0.5 --valid-seed=$seed --out "$dir/all$seed" "$dir/in/a.txt"; [ $rc -ne 0 ] || [ $seed -gt 40 ]; do
    seed=$((seed + 1))
done
is "$rc $(grep -c 'error: valid_fraction = 0.5: all documents (1) went to validation' "$dir/err")" "1 1" "all are kept: an error (seed $seed)"

finish 81

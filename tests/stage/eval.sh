#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# lf-eval as a user or the flow runs it: the three kinds of task and shards, results and metrics, independence of batch and threads,
# exact resume after kill -9, SIGTERM, bad input. The numbers themselves are held to a reference by tests/golden/eval_test.
. "$LF_SRCDIR/tests/stage/lib.sh"
eval=$LF_BUILDDIR/stages/lf-eval
tool=$LF_BUILDDIR/tests/stage/infer_tool
ckpt=ckpt
threads=1

run() { # run NAME ARGS...: output below $dir/NAME, exit code in $rc
    _name=$1
    shift
    "$eval" --checkpoint "$dir/$ckpt" --out "$dir/$_name" --metrics "$dir/$_name.metrics" --threads $threads "$@" 2>"$dir/err" >"$dir/stdout"
    rc=$?
}
value() { sed -n "/\"results\": {/,\$p" "$dir/$1/results/results.json" | sed -n "/\"$2\": {/,/}/s/.*\"$3,none\": \([-0-9.e+]*\).*/\1/p"; }
sample() { "$tool" get "$dir/$1/results/samples.jsonl" "$2" "$3" 2>&1; }
sums() { cksum <"$dir/$1/results/samples.jsonl"; sed '/"threads"/d; /"plan"/d' "$dir/$1/results/results.json" | cksum; }
# fails CODE TEXT NAME ARGS...: one line of error with TEXT, and no result
fails() {
    _code=$1 _text=$2 _what=$3
    shift 3
    rm -rf "$dir/bad"
    run bad "$@"
    [ $rc -eq "$_code" ] && grep -qF -- "$_text" "$dir/err" && [ "$(wc -l <"$dir/err")" -eq 1 ] && [ ! -e "$dir/bad/results/samples.jsonl" ]
    ok $? "$_what"
    [ $rc -eq "$_code" ] || echo "# exit $rc, not $_code"
}
bad_line() { # bad_line OPTION TEXT NAME LINE
    printf '%s\n' "$4" >"$dir/bad.jsonl"
    fails 1 "$2" "$3" $tok "$1" "$dir/bad.jsonl"
    says "bad.jsonl:1" "... with file and line"
}

# A model of 320 tokens with random hot weights, a tokenizer of as many, shards, and one file of each kind.
awk 'BEGIN { x = 7; for (i = 0; i < 400; i++) { line = ""
    for (j = 0; j < 12 + (i % 50 == 0) * 200; j++) { x = (x * 16807) % 2147483647; w = ""; y = x
        for (q = 0; q < 2 + x % 5; q++) { y = (y * 16807) % 2147483647; w = w substr("etaoinshrdlucmfw", 1 + y % 16, 1) }
        line = line (j ? " " : "") w }
    print line "." } }' >"$dir/text.txt"
"$LF_BUILDDIR/stages/lf-tokenize" --doc-split=line --vocab-size=320 --valid-fraction=0.5 --out "$dir/tok" "$dir/text.txt" 2>"$dir/err" &&
    "$tool" ckpt "$dir/ckpt" "$LF_SRCDIR/models/tiny-llama.ini" 320 || bail "no test model"
tok="--tokenizer $dir/tok/tokenizer"
sed 's/.*/{"text":"&"}/' "$dir/text.txt" | head -n 60 >"$dir/pages.jsonl"
awk '{ printf "{\"context\":\"%s %s\",\"choices\":[\"%s\",\"%s %s\",\"%s\"],\"gold\":%d}\n", $1, $2, $3, $4, $5, $6, NR % 3 }' "$dir/text.txt" |
    head -n 50 >"$dir/choice.jsonl"
sed 's/.*/{"text":"&"}/' "$dir/text.txt" | tail -n 45 >"$dir/words.jsonl"
head -n 40 "$dir/text.txt" >"$dir/book.txt"
all="$tok --data $dir/tok/shards --text $dir/pages.jsonl --text $dir/book.txt --multiple-choice $dir/choice.jsonl --last-word $dir/words.jsonl"

# --- usage ---
run usage --help
[ $rc -eq 0 ] && grep -q -- "--multiple-choice" "$dir/stdout"
ok $? "--help"
fails 2 "did you mean \"--tokenizer\"" "an unknown option, with the nearest name" --tokeniser x
fails 2 "nothing to measure" "nothing to measure" $tok
fails 2 "need tokenizer" "texts without a tokenizer" --text "$dir/book.txt"
fails 2 "prefix" "a prefix without a tokenizer" --data "$dir/tok/shards" --prefix "<s>"
fails 1 "no token 'nonsense'" "a prefix that is no token" $tok --text "$dir/book.txt" --prefix nonsense
fails 1 "$dir/none.txt" "a missing text is named" $tok --text "$dir/none.txt"
fails 1 "$dir/none" "missing shards are named" $tok --data "$dir/none"
ckpt=none
fails 1 "$dir/none" "a missing checkpoint is named" $all
run plan --plan $all
[ $rc -eq 0 ] && grep -q "does not exist yet" "$dir/stdout"
ok $? "--plan of a checkpoint that is yet to come says so"
ckpt=ckpt
run plan --plan $all
grep -q '"parameters":' "$dir/stdout" && grep -q '"total":' "$dir/stdout" && [ ! -e "$dir/plan" ]
ok $? "--plan prints parameters and bytes, and writes nothing"

# --- results ---
run base $all
is $rc 0 "shards, pages, a book, choices and last words at once"
docs=$(wc -l <"$dir/base/results/samples.jsonl" | tr -d ' ')
is "$docs" "$(($(grep -c '"task":"valid"' "$dir/base/results/samples.jsonl") + 60 + 1 + 50 + 45))" \
    "a sample for every document"
for m in word_perplexity byte_perplexity bits_per_byte token_perplexity; do
    [ -n "$(value base pages $m)" ] && [ -n "$(value base valid $m)" ] && [ -n "$(value base pages ${m}_stderr)" ]
    ok $? "rolling: $m and its standard error"
done
printf '%s\n' "$(value base pages byte_perplexity) $(value base pages bits_per_byte)" |
    awk '{ e = log($1) / log(2) - $2; exit !(NF == 2 && e < 1e-9 && e > -1e-9) }'
ok $? "bits per byte are the logarithm of the byte perplexity"
is "$(sample base "$((docs - 44 - 50))" gold)" 1 "choices keep their gold index"
for m in acc acc_norm acc_bytes; do
    grep '"task":"choice"' "$dir/base/results/samples.jsonl" |
        awk -v m="\"$m\":" -v want="$(value base choice $m)" '{ s += substr($0, index($0, m) + length(m), 1) } END { exit !(want != "" && s / NR == want + 0) }'
    ok $? "multiple choice: $m is the mean of the samples"
done
[ -n "$(value base words acc)" ] && [ -n "$(value base words perplexity)" ] && [ -n "$(value base words perplexity_stderr)" ]
ok $? "last word: acc, perplexity and its standard error"
grep -q '"checkpoint_identity"' "$dir/base/results/results.json" && grep -q '"numeric": "invariant"' "$dir/base/results/results.json"
ok $? "results say of which checkpoint they are, and how they were computed"
mkdir "$dir/moved"
cp -r "$dir/tok/shards" "$dir/pages.jsonl" "$dir/choice.jsonl" "$dir/words.jsonl" "$dir/book.txt" "$dir/moved"
run moved $(printf '%s' "$all" | sed "s#$dir/tok/shards#$dir/moved/shards#; s#$dir/\([a-z]*\.[jt]\)#$dir/moved/\1#g")
is "$(sums moved)" "$(sums base)" "the same data elsewhere gives the same results"
! grep -q "$dir" "$dir/base/results/results.json"
ok $? "which name no place"
is "$("$tool" record "$dir/base.metrics" | wc -l | tr -d ' ')" 1 "one metrics record"
"$tool" record "$dir/base.metrics" | grep -q "\"pages.bits_per_byte\":$(value base pages bits_per_byte)[,}]"
ok $? "with the same numbers"
run base $all
says "complete already" "a second run finds it complete"
run base $(printf '%s' "$all" | sed "s#$dir/tok/shards#$dir/moved/shards#; s#$dir/\([a-z]*\.[jt]\)#$dir/moved/\1#g")
[ $rc -eq 0 ] && grep -q "complete already" "$dir/err"
ok $? "the same data elsewhere is the same"
run base $all --limit 3
[ $rc -eq 1 ] && grep -q "made with other options (limit was 0, is 3); use another out" "$dir/err"
ok $? "another limit in a finished out is refused by name"
run base $all --numeric fast
[ $rc -eq 1 ] && grep -q "(numeric was invariant, is fast)" "$dir/err"
ok $? "so are other kernels"
head -n 30 "$dir/pages.jsonl" >"$dir/fewer.jsonl"
run base $(printf '%s' "$all" | sed "s#pages.jsonl#fewer.jsonl#")
[ $rc -eq 1 ] && grep -q "(text has other contents)" "$dir/err"
ok $? "and other texts"
threads=2
run small $all --micro-tokens 256 --block 3
is "$(sums small)" "$(sums base)" "smaller batches, other blocks, two threads: the same bytes"
threads=3
run large $all --micro-tokens 2000 --block 500
is "$(sums large)" "$(sums base)" "larger ones, three threads: the same bytes"
threads=1
run limit $all --limit 7
is "$(wc -l <"$dir/limit/results/samples.jsonl" | tr -d ' ')" 29 "limit: the first documents of each task"
is "$(sample limit 9 ll)" "$("$tool" get "$dir/base/results/samples.jsonl" $((docs - 50 - 45 - 1 - 60 + 2)) ll)" "with the same numbers"
mkdir "$dir/mark"
for f in pages.jsonl choice.jsonl words.jsonl book.txt; do
    printf '\357\273\277' | cat - "$dir/$f" >"$dir/mark/$f"
done
run mark $tok --text "$dir/mark/pages.jsonl" --text "$dir/mark/book.txt" --multiple-choice "$dir/mark/choice.jsonl" --last-word "$dir/mark/words.jsonl" --limit 7
is "$(grep -c . "$dir/mark/results/samples.jsonl") $(sed 's/.*"ll":/"ll":/' "$dir/mark/results/samples.jsonl")" \
    "22 $(grep -v '"task":"valid"' "$dir/limit/results/samples.jsonl" | sed 's/.*"ll":/"ll":/')" "behind byte order marks: the same numbers"
run notok --data "$dir/tok/shards"
is "$rc $(value notok valid token_perplexity)" "0 $(value base valid token_perplexity)" "shards without a tokenizer: the same token perplexity"
is "$(value notok valid bits_per_byte)" "" "and no numbers per byte, which are not known"
run short $tok --text "$dir/book.txt" --max-context 32
is "$(sample short 1 tokens)" "$(sample base $((docs - 95)) tokens)" "a shorter context scores as many tokens"
run bf16 $all --precision bf16 --limit 5
is $rc 0 "bf16"

# --- bad input ---
bad_line --multiple-choice 'no "gold"' "no gold" '{"context":"a","choices":["b","c"]}'
bad_line --multiple-choice "'gold' must be" "gold out of range" '{"context":"a","choices":["b","c"],"gold":2}'
bad_line --multiple-choice "choice 1 is not a text" "an empty choice" '{"context":"a","choices":["b",""],"gold":0}'
bad_line --last-word "'text' must hold a word" "no last word" '{"text":"word"}'
bad_line --text 'no "text"' "no text" '{"page":"x"}'
bad_line --text "the line is no JSON object" "a line that is no object" '["x"]'
: >"$dir/bad.jsonl"
fails 1 "holds no documents" "an empty file" $tok --text "$dir/bad.jsonl"
printf 'abc \377 def' >"$dir/bad.txt"
fails 1 "byte 4 is not valid UTF-8" "a text that is not UTF-8" $tok --text "$dir/bad.txt"
mkdir "$dir/sub"
cp "$dir/book.txt" "$dir/sub"
fails 1 "two tasks are called 'book'" "two tasks of one name" $tok --text "$dir/book.txt" --text "$dir/sub/book.txt"
"$LF_BUILDDIR/stages/lf-tokenize" --doc-split=line --vocab-size=300 --out "$dir/tok2" "$dir/book.txt" 2>/dev/null
fails 1 "made with another tokenizer" "shards of another tokenizer" --tokenizer "$dir/tok2/tokenizer" --data "$dir/tok/shards"

# --- interrupted ---
lines() { if [ -f "$dir/$1/results/samples.jsonl.part" ]; then wc -l <"$dir/$1/results/samples.jsonl.part" | tr -d ' '; else echo 0; fi; }
# cut NAME ACTION N: ended at the N-th sample that it writes; or, where it cannot end itself, when so many more are there
cut() {
    _until=$(($(lines "$1") + $3))
    cut_at "$2" "$3" "write */$1/results/samples.jsonl.part" "[ \$(lines $1) -ge $_until ]" \
        "$eval" --checkpoint "$dir/ckpt" --out "$dir/$1" --threads 1 --micro-tokens 256 --block 1 $all
}
kills=0
for more in 4 37 50 80; do
    cut kill kill $more
    [ $rc -ne 137 ] || kills=$((kills + 1))
done
before=$(lines kill)
[ $kills -ge "$([ -n "$FAIL" ] && echo 4 || echo 2)" ] && [ "$before" -ge 3 ]
ok $? "killed $kills times, $before samples are there"
printf '{"task":"val' >>"$dir/kill/results/samples.jsonl.part"
run kill $all
is "$rc $(sums kill)" "0 $(sums base)" "continued: the bytes of a run that was never killed"
says "continuing behind $before of $docs" "and only what was missing was measured"
cut term term 5
is $rc 75 "SIGTERM: exit 75"
run term $all --rolling-bos=no
[ $rc -eq 1 ] && grep -q "was begun with other options (rolling_bos was yes, is no)" "$dir/err"
ok $? "what was begun does not go on with other options"
run next $all --resume-from "$dir/term"
is "$rc $(sums next)" "0 $(sums base)" "continued in a new directory: the same bytes"
cp -r "$dir/base" "$dir/flip"
sed -i '3s/"acc":0/"acc":1/; 3s/\(:-[0-9]\)/\10/' "$dir/flip/results/samples.jsonl"
! cmp -s "$dir/flip/results/samples.jsonl" "$dir/base/results/samples.jsonl"
ok $? "a number in finished samples is another one"
run flipped $all --resume-from "$dir/flip"
is "$rc $(sums flipped)" "0 $(sums base)" "they are not continued: what their manifest does not say is measured again"
cp -r "$dir/base" "$dir/crash"
rm "$dir/crash/results/manifest.json" "$dir/crash/results/results.json"
run crash $all
is "$rc $(sums crash)" "0 $(sums base)" "a crash before the manifest: results from the samples that are there"
run other $tok --text "$dir/book.txt" --resume-from "$dir/term"
is $rc 1 "samples of other tasks are not continued"
says "belongs to another run" "and it is said"

# --- parquet ---
rows=$LF_SRCDIR/tests/golden/parquet/rows
for f in parquet jsonl; do run from-$f $tok --limit 5 --text "$rows/texts.$f" --multiple-choice "$rows/choices.$f"; done
is "$rc $(wc -l <"$dir/from-parquet/results/samples.jsonl" | tr -d ' ')" "0 10" "texts and choices from parquet"
cmp -s "$dir/from-parquet/results/samples.jsonl" "$dir/from-jsonl/results/samples.jsonl"
ok $? "are measured as JSON lines are"

finish 71

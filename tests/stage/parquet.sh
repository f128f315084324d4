#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Parquet wherever JSON lines go: the tokens of the same rows as JSON lines, in every shape, on threads and ranks and after
# kill -9; columns that have no place in a row; files that are refused, and what is said to do about them.
. "$LF_SRCDIR/tests/stage/lib.sh"
with_ranks
tokenize=$LF_BUILDDIR/stages/lf-tokenize
tool=$LF_BUILDDIR/tests/stage/shards_tool
rows=$LF_SRCDIR/tests/golden/parquet/rows
vocab=$LF_SRCDIR/tests/golden/tokenizer/gpt2.json

run() { "$tokenize" "$@" 2>"$dir/err" >"$dir/stdout"; rc=$?; }
ids() { for _split in train valid; do "$tool" "$dir/$1/shards" $_split 2>/dev/null; done; }
# both NAME FILE ARGS...: FILE as parquet and as JSON lines gives the same tokens, masks and splits.
both() {
    _what=$1 _file=$2
    shift 2
    rm -rf "$dir/p" "$dir/j"
    run "$@" --out "$dir/p" "$rows/$_file.parquet"
    ok $rc "$_what"
    run "$@" --out "$dir/j" "$rows/$_file.jsonl"
    ids p >"$dir/ids.p"
    ids j >"$dir/ids.j"
    [ -s "$dir/ids.p" ] && cmp -s "$dir/ids.p" "$dir/ids.j"
    ok $? "the tokens are those of JSON lines"
}
# refused TEXT NAME ARGS...: an error of one line that says TEXT
refused() {
    _text=$1 _name=$2
    shift 2
    run "$@" --out "$dir/refused"
    [ $rc -eq 1 ] && grep -qF -- "$_text" "$dir/err" && [ "$(wc -l <"$dir/err")" -le 2 ]
    ok $? "$_name"
}

# --- shapes ---
cat >"$dir/chat.jinja" <<'END'
{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|endoftext|>
{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}
END
both "texts, with a part for validation" texts --tokenizer "$vocab" --valid-fraction 0.1 --shard-tokens 500
both "a tokenizer trained on a column" texts --vocab-size 400 --shard-tokens 500 --min-frequency 1
both "conversations" chats --tokenizer "$vocab" --chat-template "$dir/chat.jinja" --shape auto --turn-order any
grep -q -- - "$dir/ids.p"
ok $? "with masks"
for f in chats pairs; do
    for e in parquet jsonl; do
        "$tokenize" --doctor "$rows/$f.$e" 2>"$dir/err" | grep -E '^  (system|user|assistant|tool|prompt|chosen|rejected|turn|repeated|same|empty)' >"$dir/turns.$e"
    done
    [ "$(wc -l <"$dir/turns.jsonl")" -ge 3 ] && cmp -s "$dir/turns.jsonl" "$dir/turns.parquet"
    ok $? "the doctor sees the same turns in $f" "$(diff "$dir/turns.jsonl" "$dir/turns.parquet")"
done
for f in texts pairs prompts; do
    for e in parquet jsonl; do
        "$tokenize" --doctor "$rows/$f.$e" 2>"$dir/err" | grep -A1 '^columns that mean nothing' >"$dir/columns.$e"
    done
    cmp -s "$dir/columns.jsonl" "$dir/columns.parquet" && case $f in prompts) ! [ -s "$dir/columns.parquet" ] ;; *) grep -q '^  id (' "$dir/columns.parquet" ;; esac
    ok $? "and the same columns that mean nothing in $f" "$(diff "$dir/columns.jsonl" "$dir/columns.parquet")"
done
both "pairs" pairs --tokenizer "$vocab" --shape preference --unmapped ignore --no-append-eos
both "prompts with other columns" prompts --tokenizer "$vocab" --shape prompt --no-append-eos

# --- threads, ranks, kill -9 ---
opts="--tokenizer $vocab --valid-fraction 0.1 --shard-tokens 500"
cp "$rows/texts.parquet" "$dir/no-suffix"
# shellcheck disable=SC2086
go() { # go NAME ARGS...
    _out=$1
    shift
    $prefix "$tokenize" $opts --out "$dir/$_out" "$@" 2>"$dir/err" >"$dir/stdout"
    rc=$?
}
bytes_are_same() { diff -r "$dir/$1/shards" "$dir/$2/shards" >"$dir/err" 2>&1; ok $? "$3"; }
prefix=
go one --threads 1 "$rows/texts.parquet"
go four --threads 4 "$rows/texts.parquet"
bytes_are_same one four "four threads give the bytes of one"
go named "$dir/no-suffix"
ids named >"$dir/ids.n"
ids one | cmp -s - "$dir/ids.n"
ok $? "a file is known by its first and last bytes"
if have_ranks; then
    prefix="$launch 2 --"
    go ranks --threads 1 "$rows/texts.parquet"
    prefix=
    bytes_are_same one ranks "two ranks give the bytes of one"
else
    skip "two ranks give the bytes of one" "ranks cannot be started here"
fi
for at in 1 8 25; do
    # shellcheck disable=SC2086
    cut_at kill $at "*/cut$at/progress/*" "test -e $dir/cut$at/progress" "$tokenize" $opts --threads 1 --out "$dir/cut$at" "$rows/texts.parquet"
    is $rc 137 "killed at change $at of its records"
    go cut$at --threads 2 "$rows/texts.parquet"
    bytes_are_same one cut$at "and gone on with: the same bytes"
done

# --- columns ---
refused 'it has no column body; its columns are id, text' "a missing column names those that are there" \
    --tokenizer "$vocab" --text-field body "$rows/texts.parquet"
refused 'the object has no field "body"; its fields are id, text' "as it does of JSON lines" \
    --tokenizer "$vocab" --text-field body "$rows/texts.jsonl"
refused 'texts.parquet:1: "id" is not a string' "a column that is no text" --tokenizer "$vocab" --text-field id "$rows/texts.parquet"
refused 'prompts.parquet:1: column "answer" means nothing in a row of shape prompt' "a column that means nothing" \
    --tokenizer "$vocab" --shape auto "$rows/prompts.parquet"
for e in parquet jsonl; do
    refused "choices.$e:1: the columns (context, choices, gold) are those of no shape" "rows of no shape name all columns ($e)" \
        --tokenizer "$vocab" --shape auto "$rows/choices.$e"
done
run --doctor --shape auto "$rows/chats.parquet"
[ $rc -eq 0 ] && grep -q '12 rows' "$dir/stdout"
ok $? "the doctor reads them" "$dir/stdout"

# --- refused ---
tar -cf "$dir/inside.tar" -C "$rows" texts.parquet
refused "a parquet file inside an archive" "inside an archive" --tokenizer "$vocab" "$dir/inside.tar"
gzip -c "$rows/texts.parquet" >"$dir/texts.parquet.gz"
refused "unpack it to a file of its own" "compressed as a whole" --tokenizer "$vocab" "$dir/texts.parquet.gz"
run --tokenizer "$vocab" --out "$dir/refused" --input-format parquet - <"$rows/texts.parquet"
says "standard input: parquet is read from its end" "on standard input"
refused "auto takes it" "read as text" --tokenizer "$vocab" --input-format text "$rows/texts.parquet"
refused "pyarrow.feather as f" "Arrow's file format says how to convert it" --tokenizer "$vocab" "$rows/file.arrow"
refused "a.ipc.open_stream" "and its stream" --tokenizer "$vocab" "$rows/stream.arrow"
head -c 20000 "$rows/texts.parquet" >"$dir/short.parquet"
refused "does not end with PAR1" "a file that is cut short" --tokenizer "$vocab" "$dir/short.parquet"

finish 39

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Megatron .idx/.bin to shards and back with lf-convert: byte for byte, with end-of-document tokens, and what is refused.
. "$LF_SRCDIR/tests/stage/lib.sh"
convert=$LF_BUILDDIR/stages/lf-convert
tool=$LF_BUILDDIR/tests/stage/shards_tool
golden=$LF_SRCDIR/tests/golden/megatron
vocab=$LF_SRCDIR/tests/golden/tokenizer/gpt2.json

run() { "$convert" "$@" 2>"$dir/err" >"$dir/stdout"; rc=$?; }

for name in u16 i32 modes i64; do
    run --from "$golden/$name.idx" --vocab-size 2147483647 --out "$dir/$name"
    is $rc 0 "$name.idx becomes shards"
    run --from "$dir/$name/shards" --out "$dir/$name"
    is $rc 0 "and an .idx again"
    cmp "$golden/$name.idx" "$dir/$name/megatron/train.idx" && cmp "$golden/$name.bin" "$dir/$name/megatron/train.bin"
    ok $? "with the same bytes"
done
"$tool" "$dir/i32/shards" train | grep -q '|'
ok $? "documents keep their sequences"
"$LF_BUILDDIR/stages/lf-tokenize" --show-shards "$dir/i32" --samples 100 --show-tokens 0 >"$dir/shown" 2>"$dir/err"
is "$(grep -o '[0-9·]*··' "$dir/shown" | wc -l)" "$("$tool" "$dir/i32/shards" train | grep -c ' | ')" "and are shown with them"
run --from "$golden/u16.bin" --vocab-size 2147483647 --out "$dir/u16"
[ $rc -eq 0 ] && grep -q "complete already" "$dir/err"
ok $? "what is there is not made again, by either name of the pair"
run --from "$golden/u16.bin" --vocab-size 65536 --out "$dir/u16"
[ $rc -eq 1 ] && grep -q "made with other options (vocab_size was 2147483647, is 65536)" "$dir/err"
ok $? "nor with other options"

# end-of-document tokens
cat >"$dir/docs.jsonl" <<'END'
{"input_ids":[5,6]}
{"input_ids":[7,8,9]}
END
"$LF_BUILDDIR/stages/lf-tokenize" --shape tokens --no-append-eos --tokenizer "$vocab" --out "$dir/docs" "$dir/docs.jsonl" 2>"$dir/err"
run --from "$dir/docs/shards" --out "$dir/docs"
is $rc 0 "our own shards become an .idx"
is "$(od -An -tu2 -v "$dir/docs/megatron/train.bin" | tr -s ' ')" " 5 6 7 8 9" "in u16, which the vocabulary allows"
run --from "$dir/docs/megatron/train.idx" --tokenizer "$vocab" --append-eod --eod-token '<|endoftext|>' --out "$dir/eod"
is $rc 0 "append_eod"
"$tool" "$dir/eod/shards" train >"$dir/eod.txt"
is "$(awk '{ print NF, ($NF == last || NR == 1) ; last = $NF }' "$dir/eod.txt" | tr '\n' ' ')" "3 1 4 1 " "ends every document with the same token"
run --from "$dir/eod/shards" --out "$dir/eod"
run --from "$dir/eod/megatron/train.idx" --tokenizer "$vocab" --append-eod --eod-token '<|endoftext|>' --out "$dir/eod2"
"$tool" "$dir/eod2/shards" train | cmp -s - "$dir/eod.txt"
ok $? "once"

# refusals
run --from "$golden/u16.idx" --out "$dir/no"
is $rc 1 "without tokenizer and vocab_size"
says "vocab_size" "it says what is needed"
run --from "$golden/u16.idx" --vocab-size 100 --out "$dir/no"
is $rc 1 "ids beyond the vocabulary"
says "the vocabulary ends at 99" "are named"
[ ! -e "$dir/no/shards/manifest.json" ]
ok $? "and nothing is published"
run --from "$golden/u16.idx" --vocab-size 65536 --append-eod --out "$dir/no"
is $rc 1 "append_eod without a tokenizer"
head -c 100 "$golden/u16.idx" >"$dir/cut.idx"
cp "$golden/u16.bin" "$dir/cut.bin"
run --from "$dir/cut.idx" --vocab-size 65536 --out "$dir/no"
is $rc 1 "an .idx that was cut short"
says "do not fit into its 100 bytes" "is named"
echo '{"input_ids":[5,6],"labels":[-100,6]}' >"$dir/masked.jsonl"
"$LF_BUILDDIR/stages/lf-tokenize" --shape tokens --no-append-eos --tokenizer "$vocab" --out "$dir/masked" "$dir/masked.jsonl" 2>"$dir/err"
run --from "$dir/masked/shards" --out "$dir/masked"
is $rc 1 "a loss mask has no place in an .idx"
says "loss mask" "which is said"
run --from "$golden/u16.idx" --to hf --out "$dir/no"
is $rc 1 "data does not become a model"
touch "$dir/stop"
run --from "$golden/u16.idx" --vocab-size 65536 --stop-file "$dir/stop" --out "$dir/stopped"
is $rc 75 "a stop file: exit 75"
run --from "$golden/u16.idx" --vocab-size 65536 --out "$dir/stopped"
is $rc 0 "and the next run makes it"

finish 34

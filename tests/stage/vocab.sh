#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# lf-vocab as a user or the flow runs it, and the whole of continued pretraining on two invented languages: tokenizer and
# model of the first, growth by the second, training goes on; bits per byte before and after. Kill -9, threads, bad input.
. "$LF_SRCDIR/tests/stage/lib.sh"
LC_ALL=C
export LC_ALL
golden=$LF_SRCDIR/tests/golden/tokenizer

run() { "$stages/lf-vocab" "$@" 2>"$dir/err" >"$dir/stdout"; rc=$?; }
# fails CODE TEXT NAME ARGS...: exits with CODE and says TEXT on standard error
fails() {
    _code=$1 _text=$2 _name=$3
    shift 3
    run "$@"
    [ $rc -eq "$_code" ] && grep -qF -- "$_text" "$dir/err"
    ok $? "$_name"
    [ $rc -eq "$_code" ] || echo "# exit $rc, not $_code"
}
stage() { _s=$1; shift; "$stages/lf-$_s" --threads=1 "$@" 2>"$dir/err" >"$dir/stdout"; ok $? "lf-$_s"; }
number() { tr -d ' \n' <"$1" | sed -n "s/.*$2\(-\{0,1\}[0-9][0-9.eE+-]*\).*/\1/p"; }

# Two languages of 400 words each over different letters; a word likes to be followed by one of a few others.
words() { # words SEED LETTERS LINES
    awk -v x="$1" -v letters="$2" -v lines="$3" 'BEGIN {
        for (i = 0; i < 400; i++) { w = ""; m = 2 + i % 6
            for (k = 0; k < m; k++) { x = (x * 16807) % 2147483647; w = w substr(letters, 1 + x % length(letters), 1) }
            word[i] = w }
        for (i = 0; i < lines; i++) { line = ""; at = i % 400
            for (k = 0; k < 12; k++) { x = (x * 16807) % 2147483647; at = (at * 7 + x % 4) % 400; line = line (k ? " " : "") word[at] }
            print line "." } }'
}
words 7 etaoinsrhldc 2000 >"$dir/old.txt"
words 11 wvqkzjxyubgp 2000 >"$dir/new.txt"

# --- usage and bad input ---
run --help
[ $rc -eq 0 ] && grep -q -- "--new-tokens" "$dir/stdout"
ok $? "--help"
fails 2 "base" "no base" --out "$dir/x" "$dir/new.txt"
fails 2 "give text or donor" "nothing to grow by" --out "$dir/x" --base "$golden/gpt2.json"
fails 2 "--out" "no out" --base "$golden/gpt2.json" "$dir/new.txt"
fails 2 "pad_to" "an option without effect" --out "$dir/x" --base "$golden/gpt2.json" --pad-to=8 "$dir/new.txt"
fails 1 "missing.json" "a missing base" --out "$dir/x" --base "$dir/missing.json" "$dir/new.txt"
awk 'BEGIN { for (i = 0; i < 200; i++) printf "un caf\351 cr\350me\n" }' >"$dir/latin1.txt"
fails 1 "latin1.txt is no UTF-8 text" "a text in Latin-1" --out "$dir/x" --base "$golden/gpt2.json" "$dir/latin1.txt"
fails 1 "missing.txt" "a missing text" --out "$dir/x" --base "$golden/gpt2.json" "$dir/missing.txt"
echo '{"model":{"type":"Unigram","vocab":[["a",0]]}}' >"$dir/unigram.json"
fails 1 "Unigram" "a base that cannot grow" --out "$dir/x" --base "$dir/unigram.json" "$dir/new.txt"
fails 1 "odd.json" "a donor that is no tokenizer" --out "$dir/x" --base "$golden/gpt2.json" --donor "$(echo '{}' >"$dir/odd.json"; echo "$dir/odd.json")"
fails 1 "no new token" "a donor without anything new" --out "$dir/x" --base "$golden/gpt2.json" --donor "$golden/gpt2.json"
mkdir "$dir/empty"
fails 1 "no tokenizer" "a directory without a tokenizer" --out "$dir/x" --base "$dir/empty" "$dir/new.txt"
[ "$(find "$dir/x" -type f 2>/dev/null | wc -l)" -eq 0 ]
ok $? "nothing was written by the refused ones"
run --plan --base "$golden/gpt2.json" "$dir/new.txt"
[ $rc -eq 0 ] && grep -q '"stage":"vocab"' "$dir/stdout" && grep -q '"outputs":\["tokenizer","checkpoint","report"\]' "$dir/stdout"
ok $? "--plan"

# --- a model of the first language ---
stage tokenize --out "$dir/tok" --doc-split=size --doc-bytes=1K --vocab-size=500 --valid-fraction=0.1 "$dir/old.txt"
cat >"$dir/train.ini" <<END
[model]
family = llama
layers = 1
hidden = 48
heads = 2
ffn = 96
max_positions = 64
[stage]
seq_length = 64
micro_batch = 8
batch = 8
lr = 1e-2
warmup = 5
END
stage pretrain --config "$dir/train.ini" --data "$dir/tok/shards" --steps=40 --out "$dir/train"

# --- growth ---
grow="--base $dir/tok/tokenizer --checkpoint $dir/train/checkpoint --new-tokens=200 --old-text $dir/old.txt $dir/new.txt"
# shellcheck disable=SC2086
run --out "$dir/g" --threads=1 $grow
ok $rc "a vocabulary and a model grow"
grep -q 'another tokenizer' "$dir/err"
[ $? -eq 1 ]
ok $? "its own tokenizer is no other"
mkdir "$dir/resaved"
cp -R "$dir/tok/tokenizer/." "$dir/resaved"
rm -f "$dir/resaved/manifest.json"
echo >>"$dir/resaved/tokenizer.json"
run --out "$dir/g-other" --base "$dir/resaved" --checkpoint "$dir/train/checkpoint" --new-tokens=20 "$dir/new.txt"
[ $rc -eq 1 ] && grep -q 'train/checkpoint was trained with another tokenizer .* than that of .*resaved' "$dir/err"
ok $? "a base that the checkpoint was not trained with is refused"
# shellcheck disable=SC2086
run --out "$dir/g3" --threads=3 $grow
diff -r "$dir/g" "$dir/g3" >/dev/null
ok $? "three threads give the same bytes"
grep -q '"old_size":500,"new_tokens":200' "$dir/g/tokenizer/growth.json" && grep -q '"vocab":"704"' "$dir/g/checkpoint/state.json"
ok $? "500 + 200 tokens, 704 rows"
before=$(number "$dir/g/report/report.json" '"new_text":{[^}]*"tokens_per_byte_before":')
after=$(number "$dir/g/report/report.json" '"new_text":{[^}]*"tokens_per_byte_after":')
old_ratio=$(number "$dir/g/report/report.json" '"old_text":{[^}]*"ratio":')
awk -v b="$before" -v a="$after" -v r="$old_ratio" 'BEGIN { exit !(a > 0 && a < 0.5 * b && r > 0.9 && r <= 1) }'
ok $? "held-out new text takes fewer than half the tokens ($before to $after a byte), old text what it took ($old_ratio)"
# shellcheck disable=SC2086
run --out "$dir/g" $grow
[ $rc -eq 0 ] && grep -q "nothing to do" "$dir/err"
ok $? "a finished run is left alone"
# shellcheck disable=SC2086
fails 1 "made with other options (seed was 1, is 2); use another out" "other options, the same out" --out "$dir/g" $grow --seed=2
fails 1 "do not belong together" "a checkpoint with fewer rows than the tokenizer has tokens" --out "$dir/x" --base "$golden/gpt2.json" \
    --checkpoint "$dir/train/checkpoint" "$dir/new.txt"
run --out "$dir/s" --threads=1 --base "$dir/tok/tokenizer" --checkpoint "$dir/train/checkpoint" --special-tokens '<image>' --special-tokens '<pad>'
[ $rc -eq 0 ] && grep -q '"old_size":500,"new_tokens":2' "$dir/s/tokenizer/growth.json" && grep -q '{"id":500,"text":"<image>","old":\[[0-9,]*\]}' "$dir/s/tokenizer/growth.json" &&
    grep -q '"vocab":"512"' "$dir/s/checkpoint/state.json"
ok $? "special tokens alone: two ids, 512 rows"
# shellcheck disable=SC2086
run --out "$dir/sg" --threads=1 $grow --special-tokens '<image>'
[ $rc -eq 0 ] && [ "$(head -n 201 "$dir/sg/tokenizer/growth.json" | tail -n 200 | cksum)" = "$(head -n 201 "$dir/g/tokenizer/growth.json" | tail -n 200 | sed '$s/]}$//; $s/$/,/' | cksum)" ] &&
    grep -q '{"id":700,"text":"<image>"' "$dir/sg/tokenizer/growth.json"
ok $? "and behind learned ones, which stay"
fails 1 "<|endoftext|> is a token already, with id 0" "a special token that is there" --out "$dir/x" --base "$dir/tok/tokenizer" --special-tokens '<|endoftext|>'
fails 2 "new_tokens" "nothing is learned without text" --out "$dir/x" --base "$dir/tok/tokenizer" --special-tokens '<image>' --new-tokens=5
point=0
for file in tokenizer/growth.json tokenizer/manifest.json checkpoint checkpoint/manifest.json; do
    point=$((point + 1))
    # shellcheck disable=SC2086
    "$stages/lf-vocab" --out "$dir/k$point" --threads=1 $grow 2>/dev/null &
    pid=$!
    tries=0
    while [ ! -e "$dir/k$point/$file" ] && kill -0 $pid 2>/dev/null && [ $tries -lt 3000 ]; do tries=$((tries + 1)); done
    kill -9 $pid 2>/dev/null
    wait $pid 2>/dev/null
    [ ! -d "$dir/k$point/tokenizer" ] || touch "$dir/k$point/tokenizer/manifest.json.1-2-3.tmp" # as from a kill between link and unlink
    # shellcheck disable=SC2086
    run --out "$dir/k$point" --threads=2 $grow
    # where the kill came too late there was nothing to go on with, and nothing to tidy up
    ! grep -q "nothing to do" "$dir/err" || rm -f "$dir/k$point/tokenizer/manifest.json.1-2-3.tmp"
    [ $rc -eq 0 ] && diff -r "$dir/g" "$dir/k$point" >/dev/null
    ok $? "killed when $file appears, then run again: the same bytes"
done
# shellcheck disable=SC2086
run --out "$dir/stop" --stop-file "$dir/old.txt" $grow
[ $rc -eq 75 ] && [ ! -e "$dir/stop/report" ]
ok $? "a stop file stops it"
run --out "$dir/donor" --base "$golden/gpt2.json" --donor "$dir/tok" --new-tokens=100 "$dir/old.txt"
[ $rc -eq 1 ] && grep -q "no tokenizer" "$dir/err" # not the directory of a tokenizer, but the one above
ok $? "a donor that is no tokenizer's directory"
run --out "$dir/donor" --base "$golden/gpt2.json" --donor "$dir/tok/tokenizer" --new-tokens=100 "$dir/old.txt"
[ $rc -eq 0 ] && grep -q '"donor_tokens_left":[1-9]' "$dir/donor/report/report.json"
ok $? "tokens of a donor, chosen by text"

# --- SentencePiece's types: trained, and grown as json and as model ---
head -n 300 "$dir/old.txt" >"$dir/short.txt"
for type in sp_bpe unigram; do
    stage tokenize --out "$dir/$type" --doc-split=line --vocab-type=$type --vocab-size=400 "$dir/short.txt"
    [ -s "$dir/$type/tokenizer/tokenizer.json" ] && [ -s "$dir/$type/tokenizer/tokenizer.model" ]
    ok $? "$type: tokenizer.json and tokenizer.model"
done
mkdir "$dir/model"
cp "$dir/sp_bpe/tokenizer/tokenizer.model" "$dir/model"
run --out "$dir/g-json" --base "$dir/sp_bpe/tokenizer" --new-tokens=100 "$dir/new.txt"
ok $rc "a SentencePiece tokenizer.json grows"
run --out "$dir/g-model" --base "$dir/model" --new-tokens=100 "$dir/new.txt"
[ $rc -eq 0 ] && cmp -s "$dir/g-json/tokenizer/growth.json" "$dir/g-model/tokenizer/growth.json" &&
    [ "$(sed 's/.*"new_text"//' "$dir/g-json/report/report.json")" = "$(sed 's/.*"new_text"//' "$dir/g-model/report/report.json")" ]
ok $? "its tokenizer.model grows to the same tokens"
fails 1 "Unigram" "a Unigram vocabulary is refused" --out "$dir/x" --base "$dir/unigram/tokenizer" "$dir/new.txt"

# --- training goes on ---
stage tokenize --out "$dir/new" --tokenizer "$dir/g/tokenizer" --doc-split=size --doc-bytes=1K --valid-fraction=0.1 "$dir/new.txt"
printf '[stage]\n' >"$dir/more.ini"
sed -n '/^seq_length/,$p' "$dir/train.ini" >>"$dir/more.ini"
stage pretrain --config "$dir/more.ini" --data "$dir/new/shards" --init-from "$dir/g/checkpoint" --steps=40 --out "$dir/more"
grep -q 'another tokenizer' "$dir/err"
[ $? -eq 1 ]
ok $? "data of the grown tokenizer are those of the grown model"
# other STAGE ARGS...: the grown model with what was made with the old tokenizer
other() {
    _s=$1
    shift
    "$stages/lf-$_s" --threads=1 --out "$dir/wrong-$_s" "$@" 2>"$dir/err" >"$dir/stdout"
    [ $? -eq 1 ] && grep -q "g/checkpoint was trained with another tokenizer" "$dir/err"
    ok $? "lf-$_s refuses data or a tokenizer that are not the model's"
}
other pretrain --config "$dir/more.ini" --data "$dir/tok/shards" --init-from "$dir/g/checkpoint" --steps=6
other sft --data "$dir/tok/shards" --init-from "$dir/g/checkpoint" --steps 1 --seq-length 64
other ppo --data "$dir/tok/shards" --tokenizer "$dir/tok/tokenizer" --init-from "$dir/g/checkpoint" --reward length:4 --rounds 1
other eval --checkpoint "$dir/g/checkpoint" --data "$dir/tok/shards" --limit 1
other eval --checkpoint "$dir/g/checkpoint" --tokenizer "$dir/tok/tokenizer" --text "$dir/old.txt"
other generate --checkpoint "$dir/g/checkpoint" --tokenizer "$dir/tok/tokenizer" --max-tokens 1 x
other convert --from "$dir/g/checkpoint" --tokenizer "$dir/tok/tokenizer"
bits() { # bits NAME CHECKPOINT TOKENIZER TEXT
    stage eval --out "$dir/eval-$1" --checkpoint "$2" --tokenizer "$3" --text "$4"
    number "$dir/eval-$1/results/results.json" '"bits_per_byte,none":' >"$dir/bits-$1"
}
tail -n 40 "$dir/new.txt" >"$dir/sample.txt"
bits before "$dir/train/checkpoint" "$dir/tok/tokenizer" "$dir/sample.txt"
bits grown "$dir/g/checkpoint" "$dir/g/tokenizer" "$dir/sample.txt"
bits after "$dir/more/checkpoint" "$dir/g/tokenizer" "$dir/sample.txt"
awk -v b="$(cat "$dir/bits-before")" -v g="$(cat "$dir/bits-grown")" -v a="$(cat "$dir/bits-after")" 'BEGIN { exit !(a > 0 && a < 0.6 * b && g > a) }'
ok $? "bits per byte of the new language: $(cat "$dir/bits-before") before, $(cat "$dir/bits-grown") grown, $(cat "$dir/bits-after") after training"
finish 57

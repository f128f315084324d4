#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# lf-score: rows of several shapes, the same bytes whatever the batch, threads, ranks and after kill -9, rows that cannot be
# scored, accuracy on pairs by subset, normalised scores, the best of several answers.
. "$LF_SRCDIR/tests/stage/lib.sh"
with_ranks

prefix=
model=rm
score() { # score NAME ARGS...
    _name=$1
    shift
    $prefix "$stages/lf-score" --checkpoint "$dir/$model/checkpoint" --tokenizer "$dir/text/tokenizer" --out "$dir/$_name" "$@" 2>"$dir/err" >"$dir/stdout"
    rc=$?
}
lines() { cat "$dir/$1/scores/scores.jsonl"; }
equal() { cmp -s "$dir/$1/scores/scores.jsonl" "$dir/$2/scores/scores.jsonl"; ok $? "$3"; }
number() { sed -n 's/.*"'"$2"'": *\([-0-9.e+]*\).*/\1/p' "$1" | head -n 1; }

awk 'BEGIN { srand(3); split("ban dor fel gim hut jal kes lom", w, " ")
    for (i = 0; i < 200; i++) {
        p = "q"; g = ""; b = ""; n = 1 + int(rand() * 5)
        for (k = 0; k < 2 + int(rand() * 3); k++) p = p " " w[1 + int(rand() * 8)]
        for (k = 0; k < n; k++) { g = g " " w[1 + int(rand() * 4)]; b = b " " w[(rand() < 0.8 ? 5 : 1) + int(rand() * 4)] }
        if (g != b) printf "{\"id\":\"p%d\",\"subset\":\"%s\",\"prompt\":\"%s:\",\"chosen\":\"%s\",\"rejected\":\"%s\"}\n", i, i % 3 ? "easy" : "hard", p, g, b
    } }' >"$dir/pairs.jsonl"
sed 's/"id":"\(p[0-9]*\)","subset":"[a-z]*","prompt":"\([^"]*\)","chosen":"\([^"]*\)","rejected":"\([^"]*\)"/"id":"\1","prompt":"\2","completion":"\3"}\n{"id":"\1","prompt":"\2","completion":"\4"/' \
    "$dir/pairs.jsonl" >"$dir/answers.jsonl"
sed 's/.*"prompt":"\([^"]*\)","completion":"\([^"]*\)".*/\1\2/' "$dir/answers.jsonl" >"$dir/text.txt"
must "$stages/lf-tokenize" --doc-split=line --vocab-size 270 --out "$dir/text" "$dir/text.txt"
must "$stages/lf-tokenize" --tokenizer "$dir/text/tokenizer" --shape preference --unmapped ignore --out "$dir/data" "$dir/pairs.jsonl"
cat >"$dir/lm.ini" <<END
[stage]
data = $dir/text/shards
steps = 1
seq_length = 32
[model]
family = llama
layers = 2
hidden = 32
heads = 4
ffn = 64
vocab = 320
max_positions = 128
END
must "$stages/lf-pretrain" --config "$dir/lm.ini" --out "$dir/lm"
must "$stages/lf-rm" --data "$dir/data/shards" --init-from "$dir/lm/checkpoint" --epochs 3 --seq-length 128 --batch 4 --lr 3e-3 --out "$dir/rm"

score base "$dir/answers.jsonl"
is "$rc $(lines base | wc -l)" "0 $(wc -l <"$dir/answers.jsonl")" "a line for every row"
lines base | head -n 1 | grep -Eq '^\{"id":"p0","score":-?[0-9.e+-]+,"tokens":[0-9]+\}$'
ok $? "as it is described: $(lines base | head -n 1)"
score base --normalized "$dir/answers.jsonl"
[ $rc -eq 1 ] && grep -q "made with other options (normalized was no, is yes); use another out" "$dir/err"
ok $? "other options in a finished out are refused by name"
{
    printf '\357\273\277'
    cat "$dir/answers.jsonl"
} >"$dir/mark.jsonl"
score small --micro-tokens 128 --block 1 --threads 1 "$dir/mark.jsonl"
equal small base "small batches, and a byte order mark in front, give the same bytes"
score big --micro-tokens 4096 --block 1000 --threads 2 "$dir/answers.jsonl"
equal big base "large batches and two threads too"
tac "$dir/answers.jsonl" >"$dir/back.jsonl"
score back "$dir/back.jsonl"
tac "$dir/back/scores/scores.jsonl" | cmp -s - "$dir/base/scores/scores.jsonl"
ok $? "and any order"
killed_often 4 "$dir/kill/scores/scores.jsonl.part" "$(bytes "$dir/base/scores/scores.jsonl")" \
    "$stages/lf-score" --checkpoint "$dir/rm/checkpoint" --tokenizer "$dir/text/tokenizer" \
    --out "$dir/kill" --block 1 --micro-tokens 128 "$dir/answers.jsonl"
score kill --block 1 --micro-tokens 128 "$dir/answers.jsonl"
[ $often -eq 1 ]
ok $? "killed $kills times"
equal kill base "and the same bytes too"
if ! have_ranks; then
    skip_some 2 "ranks cannot be started here: $(tail -n 1 "$dir/err")"
else
    prefix="$launch 2 --"
    score ranks --block 7 "$dir/answers.jsonl"
    prefix="$launch 4 --"
    score divided --tensor 2 --block 7 "$dir/answers.jsonl"
    prefix=
    equal ranks base "and two ranks"
    apart=$(alike "$dir/base/scores/scores.jsonl" "$dir/divided/scores/scores.jsonl" 1e-5) && [ $rc -eq 0 ]
    ok $? "two groups of two ranks that divide matrices: the same numbers, apart by $apart"
fi
mkdir -p "$dir/mixed/scores" && head -n 3 "$dir/base/scores/scores.jsonl" >"$dir/mixed/scores/scores.jsonl.part"
score mixed "$dir/back.jsonl"
[ $rc -eq 1 ] && grep -q 'other rows were scored here' "$dir/err"
ok $? "lines of other rows are not continued"

# Every tenth pair is the wrong way round.
awk 'NR % 10 == 0 { sub(/"chosen"/, "\"x\""); sub(/"rejected"/, "\"chosen\""); sub(/"x"/, "\"rejected\"") } { print }' "$dir/pairs.jsonl" >"$dir/some.jsonl"
score pairs "$dir/some.jsonl" --metrics "$dir/metrics"
results=$dir/pairs/scores/results.json
awk -v a="$(number "$results" accuracy)" -v s="$(number "$results" accuracy_stderr)" 'BEGIN { exit !(a > 0.8 && a < 0.92 && s > 0.02 && s < 0.04) }'
ok $? "accuracy of pairs: $(number "$results" accuracy), standard error $(number "$results" accuracy_stderr)"
grep -q '"easy"' "$results" && grep -q '"hard"' "$results"
ok $? "by subset"
right=$(lines pairs | grep -c '"correct":true')
awk -v a="$(number "$results" accuracy)" -v r="$right" -v n="$(lines pairs | wc -l)" 'BEGIN { d = a - r / n; exit !(d < 1e-9 && d > -1e-9) }'
ok $? "is the share of lines that are correct"
grep -q 'pair_accuracy' "$dir/metrics"
ok $? "and goes to the metrics"
score straight "$dir/pairs.jsonl"
lines straight | sed 's/.*"chosen":\([^,]*\),"rejected":\([^,]*\),.*/\1\n\2/' >"$dir/a"
lines base | sed 's/.*"score":\([^,]*\),.*/\1/' | cmp -s "$dir/a" -
ok $? "a side of a pair has the score of the same text alone, to the last digit"
score best --best "$dir/answers.jsonl"
lines straight | sed -n 's/.*"chosen":\([^,]*\),"rejected":\([^,]*\),.*/\1 \2/p' | awk '{ print ($1 >= $2 ? 1 : 2) }' >"$dir/a"
sed 's/,"score":[^}]*}$/}/' "$dir/best/scores/best.jsonl" >"$dir/b"
awk -v f="$dir/answers.jsonl" '{ getline x <f; getline y <f; print ($1 == 1 ? x : y) }' "$dir/a" | cmp -s - "$dir/b"
ok $? "the best answer of each id, as it came"

score norm --normalized "$dir/answers.jsonl"
state=$dir/rm/checkpoint/state.json
lines norm | head -n 1 | sed 's/.*"score":\([^,]*\),.*/\1/' >"$dir/a"
lines base | head -n 1 | sed 's/.*"score":\([^,]*\),.*/\1/' >>"$dir/a"
tr ',{}' '\n\n\n' <"$state" | sed -n 's/^ *"mean": *\(.*\)/\1/p; s/^ *"std": *\(.*\)/\1/p' >>"$dir/a"
awk '{ v[NR] = $1 } END { d = v[1] - (v[2] - v[3]) / v[4]; exit !(NR == 4 && d < 1e-6 && d > -1e-6) }' "$dir/a"
ok $? "normalised: less the mean, over the standard deviation ($(tr '\n' ' ' <"$dir/a"))"
must "$stages/lf-rm" --data "$dir/data/shards" --init-from "$dir/rm/checkpoint" --steps 1 --seq-length 128 --normalize no --out "$dir/plain"
model=plain
score plain-norm --normalized "$dir/answers.jsonl"
[ $rc -eq 1 ] && grep -q 'no normalisation' "$dir/err"
ok $? "a model without one says so"
model=lm
score lm-score "$dir/answers.jsonl"
model=rm
[ $rc -eq 1 ] && grep -q 'predicts tokens' "$dir/err"
ok $? "a language model gives no scores"

long=$(awk 'BEGIN { for (i = 0; i < 300; i++) printf "ban " }')
printf '%s\n' '{"id":1,"text":"ban dor"}' '' '{"text":"ban' '{"prompt":"q ban:"}' "{\"text\":\"$long\"}" '{"text":""}' '{"text":"ban dor"}' >"$dir/odd.jsonl"
score odd --token-ids "$dir/odd.jsonl"
is "$rc $(lines odd | wc -l) $(lines odd | grep -c '"error"')" "0 6 4" "rows that cannot be scored are told, none is lost"
lines odd | sed -n 2p | grep -q '"id":"line-3","error":"broken: ' && lines odd | sed -n 4p | grep -q '"error":"too_long'
ok $? "with the reason: $(lines odd | sed -n 4p)"
[ "$(lines odd | sed -n '1s/.*"score"//p')" = "$(lines odd | sed -n '6s/.*"score"//p')" ] && lines odd | sed -n 1p | grep -q '"id":"1".*"token_ids":\['
ok $? "the same text has the same score, and its ids are written"
grep -q '4 of 6 rows could not be scored' "$dir/err"
ok $? "and counted"
printf '%s\n' '{"messages":[{"role":"user","content":"q ban"},{"role":"assistant","content":" dor"}]}' >"$dir/chat.jsonl"
score chat "$dir/chat.jsonl"
[ $rc -eq 1 ] && grep -q 'chat.jsonl:1' "$dir/err"
ok $? "a conversation needs a template: $(tail -n 1 "$dir/err")"
printf '%s' '{% for m in messages %}{{ m.content }}{% if m.role == "assistant" %}<|endoftext|>{% else %}:{% endif %}{% endfor %}' >"$dir/t.jinja"
printf '%s\n' '{"prompt":"q ban:","completion":" dor"}' >"$dir/flat.jsonl"
score chat --chat-template "$dir/t.jinja" "$dir/chat.jsonl"
score flat "$dir/flat.jsonl"
equal chat flat "a conversation is scored as its template writes it"
for f in parquet jsonl; do score from-$f "$LF_SRCDIR/tests/golden/parquet/rows/pairs.$f"; done
is "$rc $(lines from-parquet | wc -l | tr -d ' ')" "0 8" "pairs from parquet"
equal from-parquet from-jsonl "have the scores of JSON lines"
score chatplan --plan "$dir/chat.jsonl"
grep -q '"bytes"' "$dir/stdout"
ok $? "--plan"
finish 29

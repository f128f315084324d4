#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# lf-tokenize on JSON lines of other shapes than text, and its doctor.
. "$LF_SRCDIR/tests/stage/lib.sh"
tokenize=$LF_BUILDDIR/stages/lf-tokenize
tool=$LF_BUILDDIR/tests/stage/shards_tool
vocab=$LF_SRCDIR/tests/golden/tokenizer/gpt2.json

run() { "$tokenize" --tokenizer "$vocab" --no-append-eos "$@" 2>"$dir/err" >"$dir/stdout"; rc=$?; }
ids() { "$tool" "$dir/$1/shards" train 2>/dev/null || echo "no shards in $1"; }
plain() { sed 's/-//g'; }

cat >"$dir/pairs.jsonl" <<'END'
{"prompt":"What is the capital of France?\n","completion":"Paris, the city of light."}
{"prompt":"Add one and two:","completion":" three"}
END
printf '%s\n' '{"text":"What is the capital of France?\nParis, the city of light."}' '{"text":"Add one and two: three"}' >"$dir/texts.jsonl"
printf '%s\n' '{"text":"What is the capital of France?\n"}' '{"text":"Add one and two:"}' >"$dir/prompts.jsonl"
run --shape auto --out "$dir/pairs" "$dir/pairs.jsonl"
is $rc 0 "prompts and completions"
run --out "$dir/texts" "$dir/texts.jsonl"
run --out "$dir/prompts" "$dir/prompts.jsonl"
is "$(ids pairs | plain)" "$(ids texts)" "are the tokens of the two texts together"
is "$(ids pairs | grep -o -e '-[0-9]*' | tr -d '\n')" "$(ids prompts | sed 's/\([0-9][0-9]*\) */-\1/g' | tr -d '\n ')" \
    "of which the prompt's are not trained"
ids texts | grep -q -e -
is $? 1 "plain text is all trained"
sed 's/prompt/question/; s/completion/answer/' "$dir/pairs.jsonl" >"$dir/renamed.jsonl"
run --shape prompt_completion --columns prompt=question --columns completion=answer --out "$dir/renamed" "$dir/renamed.jsonl"
is "$(ids renamed)" "$(ids pairs)" "under other names"
cat "$dir/pairs.jsonl" "$dir/texts.jsonl" >"$dir/mixed.jsonl"
run --shape auto --threads 3 --out "$dir/mixed" "$dir/mixed.jsonl"
is "$(ids mixed)" "$(ids pairs; ids texts)" "texts and pairs in one file"

printf '%s\n' '{"input_ids":[5,6,7,1],"labels":[-100,-100,7,-100],"attention_mask":[1,1,1,0]}' '{"input_ids":[9]}' >"$dir/tokens.jsonl"
run --shape auto --append-eos --eos-token '<|endoftext|>' --out "$dir/tokens" "$dir/tokens.jsonl"
run --shape auto --out "$dir/tokens2" "$dir/tokens.jsonl"
is "$(ids tokens2)" "-5 -6 7 
9 " "tokens are taken as they are, without padding, labels as the mask"
echo '{"input_ids":[99999999]}' >"$dir/big.jsonl"
run --shape tokens --out "$dir/big" "$dir/big.jsonl"
is $rc 1 "an id beyond the vocabulary"
says "big.jsonl:1: input_ids[0] = 99999999" "is named with its line"

echo '{"messages":[{"role":"user","content":"hello"}]}' >"$dir/chat.jsonl"
run --shape auto --out "$dir/chat" "$dir/chat.jsonl"
is $rc 1 "conversations"
says "chat.jsonl:1: a row of shape messages with turns needs a chat template" "need a chat template, which is said with the line"
run --shape auto --out "$dir/id" "$dir/texts.jsonl" --columns text=body
is $rc 1 "columns of no shape"
says "texts.jsonl:1: the columns (text) are those of no shape" "are named with their line"
printf '{"text":"a"}\n{"text":"b","url":"c"}\n' >"$dir/url.jsonl"
run --shape auto --out "$dir/url" "$dir/url.jsonl"
says 'url.jsonl:2: column "url" means nothing' "a column that means nothing is an error"
run --shape auto --unmapped ignore --out "$dir/url2" "$dir/url.jsonl"
is $rc 0 "unless unmapped = ignore"
run --out "$dir/url3" "$dir/url.jsonl"
is $rc 0 "shape = text looks at text_field alone"
run --shape auto --columns promt=x --out "$dir/x" "$dir/url.jsonl"
is $rc 2 "an unknown column is a usage error"
says "did you mean prompt" "with the nearest one"
run --columns prompt=x --out "$dir/x" "$dir/url.jsonl"
is $rc 2 "columns belong to other shapes than text"
"$tokenize" --shape auto --out "$dir/x" "$dir/texts.jsonl" 2>"$dir/err"
is $? 2 "no tokenizer is trained on other shapes"

# the doctor
printf '%s\n' '{"text":"one ordinary row"}' '{"text":"caf\u00c3\u00a9 au lait"}' '{"text": oops' '{"text":"one ordinary row"}' \
    '{"messages":[{"role":"user","content":"hello"}]}' >"$dir/sick.jsonl"
run --doctor --out "$dir/doctor" "$dir/sick.jsonl"
is $rc 0 "the doctor reports and succeeds"
grep -q "mojibake: 1 rows" "$dir/stdout" && grep -q "sick.jsonl:2" "$dir/stdout" && grep -q "broken: 1 rows" "$dir/stdout" &&
    grep -q "sick.jsonl:4 is .*sick.jsonl:1" "$dir/stdout" && grep -q "1 of shape messages" "$dir/stdout" && grep -q "lengths in tokens" "$dir/stdout"
ok $? "with what it found and where"
[ -f "$dir/doctor/doctor/manifest.json" ] && cmp -s "$dir/stdout" "$dir/doctor/doctor/report.txt" && [ ! -d "$dir/doctor/shards" ]
ok $? "as an artifact too; no shards are made"
run --doctor --json --out "$dir/doctor" "$dir/sick.jsonl"
cmp -s "$dir/stdout" "$dir/doctor/doctor/report.json" || { echo >>"$dir/doctor/doctor/report.json"; cmp -s "$dir/stdout" "$dir/doctor/doctor/report.json"; }
ok $? "--json prints the same as JSON, and a report takes the place of an earlier one"
"$tokenize" --doctor "$dir/texts.jsonl" >"$dir/stdout" 2>"$dir/err"
is $? 0 "neither tokenizer nor out are needed"
grep -q "nothing odd was found" "$dir/stdout" && grep -q "lengths in characters" "$dir/stdout"
ok $? "a clean file is clean"
gzip -c "$dir/sick.jsonl" >"$dir/sick.jsonl.gz"
(cd "$dir" && tar cf sick.tar texts.jsonl sick.jsonl)
"$tokenize" --doctor "$dir/sick.jsonl.gz" "$dir/sick.tar" >"$dir/stdout" 2>"$dir/err"
grep -q "sick.tar: sick.jsonl:3" "$dir/stdout" && grep -q "sick.jsonl.gz:3" "$dir/stdout" && grep -q "^12 rows" "$dir/stdout"
ok $? "compressed files and archives"

# the doctor on conversations and pairs
cat >"$dir/conv.jsonl" <<'END'
{"messages":[{"role":"system","content":"be brief"},{"role":"user","content":"hello"},{"role":"assistant","content":"good day"}],"source":"a","lang":"en"}
{"messages":[{"role":"system","content":"be brief"},{"role":"user","content":"hello"},{"role":"assistant","content":"good evening to you"}],"source":"b"}
{"messages":[{"role":"user","content":"more"},{"role":"user","content":"and more"},{"role":"assistant","content":"less"}]}
{"messages":[{"role":"user","content":"question"},{"role":"assistant","content":"  "}]}
{"messages":[{"role":"user","content":"what time?"},{"role":"assistant","content":"","tool_calls":[{"function":{"name":"now","arguments":{}}}]}]}
{"prompt":"2+2=","chosen":"4","rejected":"5"}
{"prompt":"2+2=","chosen":"4","rejected":"4"}
{"prompt":"3+3=","chosen":"","rejected":"7"}
{"chosen":[{"role":"user","content":"hello"},{"role":"assistant","content":"x"}],"rejected":[{"role":"user","content":"hello"},{"role":"assistant","content":"x"}]}
{"text":"plain text has no turns"}
END
found() { grep -A2 "^  $1: $2 rows" "$dir/stdout" | sed 's,[^ ]*/,,g; s/^ *//' | sed -n "2,$(($2 + 1))p" | tr '\n' ','; } # found NAME ROWS: the places
"$tokenize" --doctor "$dir/conv.jsonl" >"$dir/stdout" 2>"$dir/err"
is "$(found repeated_prompts 2)" "conv.jsonl:2 is that of conv.jsonl:1,conv.jsonl:7 is that of conv.jsonl:6," "prompts that repeat"
is "$(found same_answers 2)" "conv.jsonl:7,conv.jsonl:9," "answers that are the same, texts and turns"
is "$(found empty_turns 2)" "conv.jsonl:4,conv.jsonl:8," "empty turns; a tool call is none"
is "$(found turn_order 1)" "conv.jsonl:3," "roles out of order"
grep -q '^  source (2 rows), lang (1 rows)$' "$dir/stdout"
ok $? "columns that mean nothing" "$(cat "$dir/stdout")"
part() { grep "^  $1 " "$dir/stdout" | tr -s ' '; }
is "$(part user)" " user 8 mean 6.2, least 4, p50 5, p95 10, most 10" "lengths by role"
is "$(part chosen)$(part rejected)" " chosen 4 mean 2.0, least 0, p50 1, p95 6, most 6 rejected 4 mean 2.2, least 1, p50 1, p95 6, most 6" "and of both sides"
is "$(grep '^  turn 3 ' "$dir/stdout" | tr -s ' ')" " turn 3 3 mean 10.3, most 19" "and by turn"
"$tokenize" --doctor --tokenizer "$vocab" --seq-length 3 "$dir/texts.jsonl" "$dir/prompts.jsonl" >"$dir/stdout" 2>"$dir/err"
want=$(cat "$dir/texts.jsonl" "$dir/prompts.jsonl" >"$dir/four.jsonl"; run --out "$dir/four" "$dir/four.jsonl"; ids four | awk '{ all += NF; if (NF > 3) { rows++; behind += NF - 3 } } END { printf "%d rows (%.1f %%); %d tokens (%.1f %%) lie behind it", rows, 100 * rows / NR, behind, 100 * behind / all }')
case $want in 4\ rows*) true ;; *) false ;; esac
ok $? "documents are longer than three tokens" "$want"
"$tokenize" --doctor --no-append-eos --tokenizer "$vocab" --seq-length 3 "$dir/texts.jsonl" "$dir/prompts.jsonl" >"$dir/stdout" 2>"$dir/err"
grep -qF "longer than seq_length = 3: $want" "$dir/stdout"
ok $? "what does not fit is counted" "want $want: $(grep longer "$dir/stdout")"
"$tokenize" --doctor --seq-length 3 "$dir/texts.jsonl" >"$dir/stdout" 2>"$dir/err"
is $? 2 "seq_length without a tokenizer"
says "seq_length counts tokens: give tokenizer" "is a usage error"
awk 'BEGIN { for (i = 0; i < 200000; i++) printf "{\"prompt\":\"question %d\",\"completion\":\"x\"}\n", i % 100000 }' >"$dir/bulk.jsonl"
"$tokenize" --doctor --json --doctor-memory 1M "$dir/bulk.jsonl" >"$dir/stdout" 2>"$dir/err"
n=$(tr -d ' \n' <"$dir/stdout" | sed 's/.*"repeated_prompts":{"estimated":true,"first":\[[^]]*\],"rows":\([0-9]*\).*/\1/')
[ "$n" -gt 80000 ] 2>/dev/null && [ "$n" -lt 120000 ]
ok $? "prompts beyond the memory are sampled: about 100000 repeat" "$n"

finish 40

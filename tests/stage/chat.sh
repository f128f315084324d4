#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# lf-tokenize on conversations, preferences, labelled answers and prompts; rows at fault; kill -9 on the way.
. "$LF_SRCDIR/tests/stage/lib.sh"
tokenize=$LF_BUILDDIR/stages/lf-tokenize
tool=$LF_BUILDDIR/tests/stage/shards_tool
golden=$LF_SRCDIR/tests/golden

run() { rm -rf "$dir/$1"; out=$1; shift; "$tokenize" --tokenizer "$dir/kit" --out "$dir/$out" "$@" 2>"$dir/err" >"$dir/stdout"; rc=$?; }
ids() { "$tool" "$dir/$1/shards" train 2>/dev/null || echo "no shards in $1"; }
count() { sed 's/.*"'"$2"'":\([0-9]*\).*/\1/' "$dir/$1/shards/manifest.json"; }
plain() { sed 's/-//g'; }

# A tokenizer whose padding is its EOS, with a template of the ChatML kind.
mkdir "$dir/kit"
cp "$golden/chat/tokenizer.json" "$dir/kit"
cp "$golden/jinja/templates/chatml.jinja" "$dir/kit/chat_template.jinja"
echo '{"eos_token":"<|im_end|>","pad_token":"<|im_end|>"}' >"$dir/kit/tokenizer_config.json"
eos=7

u() { printf '{"role":"user","content":"%s"}' "$1"; }
a() { printf '{"role":"assistant","content":"%s"}' "$1"; }
m() { printf '{"messages":['; sep=; while [ $# -gt 0 ]; do printf '%s%s' "$sep" "$($1 "$2")"; sep=,; shift 2; done; printf ']}\n'; }

# One conversation in four shapes.
m u hello a "good day" u more a less >"$dir/messages.jsonl"
echo '{"conversations":[{"from":"human","value":"hello"},{"from":"gpt","value":"good day"},{"from":"human","value":"more"},{"from":"gpt","value":"less"}]}' >"$dir/sharegpt.jsonl"
echo '{"instruction":"more","output":"less","history":[["hello","good day"]]}' >"$dir/alpaca.jsonl"
printf '{"prompt":[%s,%s,%s],"completion":[%s]}\n' "$(u hello)" "$(a 'good day')" "$(u more)" "$(a less)" >"$dir/pc.jsonl"
for f in messages sharegpt alpaca pc; do run $f --shape auto "$dir/$f.jsonl"; is $rc 0 "$f"; done
is "$(ids sharegpt)" "$(ids messages)" "ShareGPT is the same conversation"
is "$(ids alpaca)" "$(ids messages)" "Alpaca's history is trained"
is "$(ids pc | plain)" "$(ids messages | plain)" "a prompt of turns has the same tokens"
run last --shape messages --train-turns last "$dir/messages.jsonl"
is "$(ids pc)" "$(ids last)" "of which the completion is trained, as with train_turns = last"
ids messages | grep -q " $eos "
is $? 0 "the EOS of a turn is trained, although it is the padding token"
run noend --shape messages --no-train-end "$dir/messages.jsonl"
ids noend | grep -q " $eos "
is $? 1 "unless train_end = no"
case $(ids messages) in -*) true ;; *) false ;; esac
ok $? "the first token is not"
run all --shape messages --train-on-prompt "$dir/messages.jsonl"
is "$(ids all)" "$(ids messages | plain | sed 's/^/-/')" "train_on_prompt trains all others"
[ -f "$dir/messages/tokenizer/chat_template.jinja" ]
ok $? "the template goes with the tokenizer"
[ ! -f "$dir/messages/tokenizer/generation_config.json" ]
ok $? "as it is, where turns end with the tokenizer's EOS"
cp -r "$dir/kit" "$dir/base"
echo '{"eos_token":"<|endoftext|>"}' >"$dir/base/tokenizer_config.json"
"$tokenize" --tokenizer "$dir/base" --out "$dir/ends" --shape messages "$dir/messages.jsonl" 2>"$dir/err"
is "$(cat "$dir/ends/tokenizer/generation_config.json")" '{"eos_token_id":[5,7]}' "else generation is told to stop at both"
echo '{"eos_token_id":5,"top_k":3}' >"$dir/base/generation_config.json"
"$tokenize" --tokenizer "$dir/base" --out "$dir/ends2" --shape messages "$dir/messages.jsonl" 2>"$dir/err"
is "$(cat "$dir/ends2/tokenizer/generation_config.json")" '{"eos_token_id":[5,7],"top_k":3}' "beside what it knows already"
cp "$golden/jinja/templates/phi3.jinja" "$dir/mine.jinja"
run mine --shape messages --chat-template "$dir/mine.jinja" "$dir/messages.jsonl"
cmp -s "$dir/mine/tokenizer/chat_template.jinja" "$dir/mine.jinja" && [ "$(ids mine)" != "$(ids messages)" ]
ok $? "or the user's own"
"$tokenize" --tokenizer "$dir/kit" --out "$dir/mine" --shape messages "$dir/messages.jsonl" 2>"$dir/err"
is $? 1 "the same out with another template"
says "use another out" "is refused"

# Preferences.
printf '{"prompt":[%s],"chosen":[%s],"rejected":[%s],"margin":0.5}\n' "$(u q)" "$(a yes)" "$(a no)" >"$dir/pairs.jsonl"
printf '{"chosen":[%s,%s],"rejected":[%s,%s]}\n' "$(u q)" "$(a yes)" "$(u q)" "$(a no)" >>"$dir/pairs.jsonl"
printf '{"prompt":"q","chosen":[%s,%s],"rejected":[%s,%s]}\n' "$(u q)" "$(a yes)" "$(u q)" "$(a no)" >>"$dir/pairs.jsonl"
m u q a yes >"$dir/yes.jsonl"
m u q a no >"$dir/no.jsonl"
run pairs --shape auto "$dir/pairs.jsonl"
run yes --shape auto "$dir/yes.jsonl"
run no --shape auto "$dir/no.jsonl"
judged() { ids "$1" | sed 's/244 $//'; } # without the line end behind the turn
is "$(ids pairs)" "$(echo "$(judged yes)margin=0.5" && judged no && echo "$(judged yes)margin=0" && judged no && echo "$(judged yes)margin=0" && judged no)" \
    "pairs with a prompt, without one, and with a prompt that the answers repeat"
grep -q '"rows":"pairs"' "$dir/pairs/shards/manifest.json"
ok $? "the manifest says that these are pairs"
echo '{"chosen":"Human: q\n\nAssistant: yes","rejected":"Human: q\n\nAssistant: no"}' >"$dir/texts.jsonl"
run texts --shape auto "$dir/texts.jsonl"
ids texts | grep -q '^-.* [0-9].* 7 $'
is "$(ids texts | sed -n 1p | grep -o -e '-[0-9]*' | tr -d '\n')" "$(ids texts | sed -n 2p | grep -o -e '-[0-9]*' | tr -d '\n')" "texts without a prompt: what they share is one"
run cut --shape auto --max-length 5 "$dir/pairs.jsonl"
is $rc 1 "pairs that are too long are dropped"
says "3 of 3 rows left out: too_long" "and counted"
printf '{"prompt":"q","chosen":"same","rejected":"same"}\n' >"$dir/twice.jsonl"
run twice --shape auto "$dir/twice.jsonl"
says "twice.jsonl:1: the better and the worse answer are the same" "answers that are the same"
cat "$dir/yes.jsonl" "$dir/pairs.jsonl" >"$dir/both.jsonl"
run both --shape auto "$dir/both.jsonl"
is $rc 1 "conversations and pairs"
says "record 2 is of the kind pairs, those before are plain" "do not mix"

# Labelled answers and prompts.
printf '{"prompt":[%s],"completion":[%s],"label":true}\n{"messages":[%s,%s],"kto_tag":false}\n' "$(u q)" "$(a yes)" "$(u q)" "$(a no)" >"$dir/kto.jsonl"
run kto --shape auto "$dir/kto.jsonl"
is "$(ids kto)" "$(echo "$(judged yes)label=1" && echo "$(judged no)label=0")" "labelled answers"
printf '{"prompt":[%s],"answer":"42","id":7}\n{"prompt":"2+2=","answer":"4"}\n' "$(u q)" >"$dir/prompts.jsonl"
run prompts --shape prompt "$dir/prompts.jsonl"
is "$(ids prompts | sed 's/.*rest=//')" '{"answer":"42","id":7}
{"answer":"4"}' "the other columns of prompts"
p=$(ids prompts | sed -n '1s/rest=.*//p' | plain)
case $(ids yes | plain) in "$p"*) true ;; *) false ;; esac
ok $? "which are what an answer follows"
ids prompts | sed -n '2s/rest=.*//p' | plain | grep -q " $eos "
is $? 1 "and have no EOS"

# Rows at fault.
{
    m u a a b
    echo '{"messages": oops'
    echo '{"messages":[]}'
    m u a u b a c
    m a a
    m u a
    echo '{"messages":[{"role":"narrator","content":"x"}]}'
    m u c a d
} >"$dir/bad.jsonl"
run bad --shape messages "$dir/bad.jsonl"
is $rc 1 "a broken row"
says "bad.jsonl:2: not a JSON object" "is named with its line"
[ ! -f "$dir/bad/shards/manifest.json" ]
ok $? "and nothing is published"
run skip --shape messages --bad-rows skip --threads 2 "$dir/bad.jsonl"
is "$rc $(ids skip | wc -l)" "0 2" "bad_rows = skip keeps the others"
is "$(count skip broken) $(count skip no_target)" "5 1" "and counts them by reason"
says "bad.jsonl:3: " "each is named: no turns"
says "bad.jsonl:4: turn 2 is of user, after one of the user" "wrong order"
says "bad.jsonl:5: turn 1 is of assistant" "no user in front"
says "bad.jsonl:7: speaker" "an unknown speaker"
run any --shape messages --bad-rows skip --turn-order any --non-prefix drop "$dir/bad.jsonl"
is "$(count any broken) $(count any non_prefix)" "3 1" "turn_order = any leaves the order to the template"
cp "$golden/jinja/templates/gemma.jinja" "$dir/gemma.jinja"
run raise --shape messages --turn-order any --chat-template "$dir/gemma.jinja" --bad-rows skip "$dir/bad.jsonl"
says "bad.jsonl:4: " "a template that raises"
grep -q "the template refuses: Conversation roles must alternate" "$dir/err"
ok $? "says why"
m u a a "<think>old</think>b" u c a d >"$dir/think.jsonl"
run think --shape messages --chat-template "$golden/jinja/templates/thinking.jinja" "$dir/think.jsonl"
is $rc 1 "a template that drops earlier reasoning"
says "think.jsonl:1: the template is not prefix-preserving" "is refused"
run think --shape messages --chat-template "$golden/jinja/templates/thinking.jinja" --non-prefix drop "$dir/think.jsonl" "$dir/yes.jsonl"
is "$rc $(count think non_prefix)" "0 1" "or its rows are dropped and counted"
run think --shape messages --chat-template "$golden/jinja/templates/thinking.jinja" --train-turns last "$dir/think.jsonl"
is $rc 0 "the last turn alone can be trained"
run date --shape messages --chat-template "$golden/jinja/templates/harmony.jinja" "$dir/yes.jsonl"
says "chat_time" "a template that writes the date wants one"
run date --shape messages --chat-template "$golden/jinja/templates/harmony.jinja" --chat-time 1700000000 --chat-vars '{"reasoning_effort":"low"}' "$dir/yes.jsonl"
is $rc 0 "and takes it"
rm -f "$dir/kit/chat_template.jinja"
run none --shape messages "$dir/yes.jsonl"
says "yes.jsonl:1: a row of shape messages with turns needs a chat template" "no template"
cp "$golden/jinja/templates/chatml.jinja" "$dir/kit/chat_template.jinja"
m u a a b | sed 's/"b"/"b","train":false/' >"$dir/untrained.jsonl"
run untrained --shape messages "$dir/untrained.jsonl"
is $rc 1 "no token to train at all"
says "no document that is not left out" "is an error"
echo '{"input_ids":[1,2,3],"labels":[1,-100,-100]}' >"$dir/first.jsonl"
run first --shape tokens "$dir/first.jsonl"
is $rc 1 "nor is a first token something to train"

# Truncation.
m u "a b c d e f g h i j k l m n o p q r s t" a "yes and no" >"$dir/long.jsonl"
run start --shape messages --max-length 40 "$dir/long.jsonl" "$dir/yes.jsonl"
is "$(count start all_masked) $(count start truncated)" "1 0" "a start without an answer is dropped"
run budget --shape messages --max-length 40 --truncation budget "$dir/long.jsonl"
is "$(ids budget | wc -w) $(count budget truncated)" "40 1" "shared room"
ids budget | grep -q " $eos "
ok $? "keeps the answer"
run drop --shape messages --max-length 40 --truncation drop "$dir/long.jsonl" "$dir/yes.jsonl"
is "$(ids drop) $(count drop too_long)" "$(ids yes) 1" "or the row is dropped"

# Texts: EOS where it lacks.
printf '%s\n' '{"text":"end<|im_end|>"}' '{"text":"end"}' >"$dir/eos.jsonl"
run eos --special-in-text token "$dir/eos.jsonl"
is "$(ids eos | sed -n 1p)" "$(ids eos | sed -n 2p)" "EOS is not put behind a text that has it"
ids eos | grep -q " $eos \$"
ok $? "and trained"

# The doctor tells the same beforehand.
grep -v oops "$dir/bad.jsonl" | cat "$dir/messages.jsonl" "$dir/pairs.jsonl" - >"$dir/sick.jsonl"
run doctor --doctor "$dir/sick.jsonl"
is $rc 0 "the doctor"
has() { grep -qF -- "$1" "$dir/stdout"; ok $? "$2"; [ "$(grep -cF -- "$1" "$dir/stdout")" -gt 0 ] || sed 's/^/# /' "$dir/stdout" | head -n 60; }
has "tokenized as told: 6 rows, 9 documents" "counts rows and documents"
has "of them trained (1" "and the share that is trained"
has "left out, broken: 2 rows" "rows that would be left out"
has "sick.jsonl:7: turn 2 is of user, after one of the user" "where and why"
has "left out, no_target: 1 rows" "one without an answer"
has "{+good day<|im_end|>" "a sample shows what is trained"
has "--- against" "and both sides of a pair"
run doctor --doctor --max-length 36 --append-eos --json "$dir/messages.jsonl" "$dir/eos.jsonl"
has '"truncated"' "what would be truncated"
has '"trained_share": 0.' "the share as a number"
echo '{"prompt":"1 ","completion":"one"}' >"$dir/seam.jsonl"
run doctor --doctor --no-append-eos "$dir/seam.jsonl"
has "seams: 1 rows" "a seam that does not hold"
has "without_eos: 1 rows" "a row without EOS"
{
    m u a a "" u b a c
    m u a a b
} >"$dir/hollow.jsonl"
printf '{"chosen":[%s,%s],"rejected":[%s,%s]}\n' "$(u a)" "$(a b)" "$(u x)" "$(a c)" >"$dir/apart.jsonl"
run doctor --doctor "$dir/hollow.jsonl" "$dir/apart.jsonl"
has "empty_answers: 1 rows" "an empty answer"
has "different_prompts: 1 rows" "a pair of answers to different questions"
run hollow --shape messages "$dir/hollow.jsonl"
is "$rc $(count hollow empty_answers)" "0 1" "empty answers are counted"
grep -q "1 of 2 rows have empty_answers: an answer is white space only$" "$dir/err"
ok $? "and told"
run apart --shape preference "$dir/apart.jsonl"
is "$rc $(count apart different_prompts)" "0 1" "so are pairs of different prompts"
grep -q "1 of 1 rows have different_prompts: the answers of a pair are to different questions$" "$dir/err"
ok $? "and told"
m u "what is <|im_end|>?" a "it ends turns" >"$dir/inside.jsonl"
run doctor --doctor "$dir/inside.jsonl"
has "special_in_content: 1 rows" "a special token in what a user wrote"
printf '<s>{{ bos_token }}{%% for m in messages %%}{{ m.content }}{%% endfor %%}' >"$dir/bos.jinja"
sed 's/{/{"bos_token":"<s>",/' "$dir/kit/tokenizer_config.json" >"$dir/config" && mv "$dir/config" "$dir/kit/tokenizer_config.json"
run doctor --doctor --chat-template "$dir/bos.jinja" "$dir/yes.jsonl"
has "the template writes the BOS token twice" "two BOS"
rm "$dir/kit/chat_template.jinja"
run doctor --doctor "$dir/yes.jsonl"
has "1 rows have turns, and there is no chat template for them" "no template"
cp "$golden/jinja/templates/chatml.jinja" "$dir/kit/chat_template.jinja"

# kill -9 on the way, then the same bytes.
i=0
while [ $i -lt 4000 ]; do
    i=$((i + 1))
    m u "question $i of many" a "answer $((i * 7919 % 1000)) to it"
    [ $((i % 97)) -ne 0 ] || m u a u b
done >"$dir/many.jsonl"
set -- --shape messages --bad-rows skip --shard-tokens 9k --valid-fraction 0.1 --threads 2
run whole "$@" "$dir/many.jsonl"
is $rc 0 "many conversations"
kills=0
have=0
for _ in 1 2 3; do # each start makes two records more
    cut_at kill 2 "fsync */killed/progress" "[ \$(ls '$dir/killed/progress' | wc -l) -ge $((have + 2)) ]" \
        "$tokenize" --tokenizer "$dir/kit" --out "$dir/killed" "$@" "$dir/many.jsonl"
    [ $rc -ne 137 ] || kills=$((kills + 1))
    have=$(ls "$dir/killed/progress" | wc -l)
done
"$tokenize" --tokenizer "$dir/kit" --out "$dir/killed" "$@" "$dir/many.jsonl" 2>"$dir/err" >/dev/null
[ $kills -ge $((${#FAIL} ? 3 : 1)) ]
ok $? "killed $kills times"
for f in "$dir"/whole/shards/*.h5 "$dir"/whole/progress/*.json; do
    cmp -s "$f" "$dir/killed/${f#"$dir"/whole/}" || echo "$f"
done >"$dir/differ"
is "$(cat "$dir/differ")" "" "and resumed: the same shards and records"
is "$(sed 's/.*"counts"/"counts"/' "$dir/killed/shards/manifest.json")" "$(sed 's/.*"counts"/"counts"/' "$dir/whole/shards/manifest.json")" "and the same counts"

# What shards hold, token by token.
shown() { "$tokenize" --show-shards "$@" 2>"$dir/err" >"$dir/stdout"; rc=$?; }
has() { grep -qF -- "$1" "$dir/stdout"; ok $? "$2" "$(cat "$dir/stdout" "$dir/err")"; }
body() { sed -n '/^--- /,$p' "$dir/stdout" | sed -n '/^  /p'; }
shown "$dir/messages"
is $rc 0 "shards are shown"
member() { sed 's/.*"train":{[^}]*"'"$1"'":\([0-9]*\).*/\1/' "$dir/messages/shards/manifest.json"; }
has "1 documents, $(member tokens) tokens, $(member trained) of them trained" "with the sums that the manifest has"
is "$(body)" '  <|im_start|>·system·\n·
  Y·o·u· ·ar·e· a· ·h·el·p·f·ul· ·assistant·.·<|im_end|>·\n·
  <|im_start|>·user·\n·
  h·el·lo·<|im_end|>·\n·
  <|im_start|>·assistant·\n·
  {+g·o·o·d· d·a·y·<|im_end|>·\n+}·
  <|im_start|>·user·\n·
  m·or·e·<|im_end|>·\n·
  <|im_start|>·assistant·\n·
  {+l·es·s·<|im_end|>·\n+}' "token by token, and what is trained"
shown "$dir/messages" --json
is "$(grep -o '"ids":\[[^]]*\]' "$dir/stdout" | tr -dc '0-9,')" "$(ids messages | plain | sed 's/ $//' | tr ' ' ,)" "as JSON: the ids"
is "$(grep -o '"mask":\[[^]]*\]' "$dir/stdout" | grep -o 'true\|false' | tr '\n' ' ')" \
    "$(ids messages | sed 's/ $//' | tr ' ' '\n' | sed 's/^-.*/false/; s/^[0-9].*/true/' | tr '\n' ' ')" "and the mask"
is "$(grep -o '"text":\[[^]]*\]' "$dir/stdout" | grep -o 'g","o","o".*y"')" 'g","o","o","d"," d","a","y"' "and the texts"
shown "$dir/pairs/shards" --sample 0 --ids
has "6 documents in 3 pairs" "pairs are counted"
has "--- pair 0, train-00000.h5:0, margin 0.5" "a pair by its number, with its margin"
is "$(grep -E '^(chosen|rejected): ' "$dir/stdout" | cut -d: -f1 | tr '\n' ' ')" "chosen rejected " "both sides of it"
is "$(sed -n '/^chosen/,/^rejected/p' "$dir/stdout" | grep -o '{+[^}]*+}' | grep -o '#[0-9]*' | tr -d '#\n')" "$(ids pairs | sed -n 1p | grep -o ' [0-9][0-9]*' | tr -d ' \n')" "the ids of the answer that is trained"
shown "$dir/kto" --samples 2
is "$(grep -oE 'labelled (good|bad)' "$dir/stdout" | tr '\n' ' ')" "labelled good labelled bad " "labels"
shown "$dir/prompts" --sample 0
has '--- prompt 0, train-00000.h5:0, with {"answer":"42","id":7}' "a prompt with its other columns"
is "$(grep -c 'trained)\|, [0-9]* trained$' "$dir/stdout")" 0 "of a prompt nothing is trained, and nothing said about it"
awk 'BEGIN { for (i = 0; i < 50; i++) printf "{\"text\":\"document %d\"}\n", i }' >"$dir/fifty.jsonl"
run fifty "$dir/fifty.jsonl"
numbers() { grep -o '^--- document [0-9]*' "$dir/stdout" | tr -dc '0-9\n' | tr '\n' ' '; }
shown "$dir/fifty" --samples 5
first=$(numbers)
shown "$dir/fifty" --samples 5
is "$(numbers)" "$first" "the choice is the same each time"
is "$(echo "$first" | wc -w) $(echo "$first" | tr ' ' '\n' | grep . | sort -nu | wc -l)" "5 5" "of five different ones"
shown "$dir/fifty" --samples 5 --seed 1
[ "$(numbers)" != "$first" ]
ok $? "another seed chooses others"
shown "$dir/fifty" --samples 100
is "$(numbers | wc -w)" 50 "all of them"
shown "$dir/fifty" --sample 7 --show-tokens 3
has "  ... $(($(ids fifty | sed -n 8p | wc -w) - 3)) tokens are left out ..." "a long one without its middle"
printf '{"text":"a\\u001b[31mb\\u009bc\\\\d\\u00b7{+e+}\\u0007"}\n' >"$dir/escape.jsonl"
run escape "$dir/escape.jsonl"
shown "$dir/escape"
is "$(LC_ALL=C tr -d '\n -~' <"$dir/stdout" | sed 's/·//g')" "" "no control byte reaches the terminal"
is "$(body)" '  a·{+\x1B·[·3·1·m·b·\xC2·\x9B·c·\\·d·\xC2·\xB7·{·+·e·+·}·\x07·<|im_end|>+}' "they are escaped"
refused() { _t=$1; shift; shown "$@"; [ $rc -ne 0 ] && grep -qF -- "$_t" "$dir/err" && [ "$(wc -l <"$dir/err")" -eq 1 ] && [ ! -s "$dir/stdout" ]; ok $? "refused: $_t" "$rc $(cat "$dir/err")"; }
refused "has samples 0 to 49" "$dir/fifty" --sample 50
refused "has samples 0 to 49" "$dir/fifty" --sample -1
refused "has no 'valid' shards" "$dir/fifty" --split valid
refused "train-00000.h5 is a file; name the directory" "$dir/fifty/shards/train-00000.h5"
refused "holds an artifact of kind 'tokenizer', needed is 'shards'" "$dir/fifty/tokenizer"
refused "another tokenizer" "$dir/fifty" --tokenizer "$golden/tokenizer/gpt2.json"
refused "option vocab_size has no effect" "$dir/fifty" --vocab-size 300
cp -r "$dir/fifty" "$dir/short"
truncate -s 1000 "$dir/short/shards/train-00000.h5"
refused "cut short" "$dir/short"
cp -r "$dir/fifty" "$dir/foreign"
bytes=$(wc -c <"$dir/foreign/shards/train-00000.h5")
head -c "$bytes" /dev/zero >"$dir/foreign/shards/train-00000.h5"
refused "train-00000.h5" "$dir/foreign"
mv "$dir/fifty/tokenizer" "$dir/elsewhere"
shown "$dir/fifty" --sample 0
says "no tokenizer lies beside" "without the tokenizer it says so"
is "$(body | grep -o '[0-9]*' | tr '\n' ' ')" "$(ids fifty | sed -n 1p)" "and shows ids"
shown "$dir/fifty" --sample 0 --tokenizer "$dir/elsewhere"
has "document" "or takes the one that is named"

# Several ranks: batches of other ranks bring their masks and other columns along.
with_ranks
awk 'BEGIN { for (i = 0; i < 13000; i++) printf "{\"prompt\":\"question %d\",\"answer\":%d}\n", i, i * 7 % 1000 }' >"$dir/asks.jsonl"
sed 's/"answer":\(.*\)}/"completion":" \1"}/' "$dir/asks.jsonl" >"$dir/told.jsonl"
for f in asks told; do
    shape=prompt
    [ $f = asks ] || shape=prompt_completion
    run $f-1 --shape $shape "$dir/$f.jsonl"
    have_ranks || { skip "two ranks make the same shards of $shape" "ranks cannot be started here"; continue; }
    $launch 2 -- "$tokenize" --tokenizer "$dir/kit" --out "$dir/$f-2" --threads 1 --shape $shape "$dir/$f.jsonl" >/dev/null 2>"$dir/err"
    diff -r "$dir/$f-1/shards" "$dir/$f-2/shards" >/dev/null
    ok $? "two ranks make the same shards of $shape"
done

finish 118

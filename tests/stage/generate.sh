#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# lf-generate as a user or the flow runs it: requests and results, what ends a text, bad requests, independence of batch and threads,
# exact resume after kill -9, SIGTERM and a stop file, what it refuses.
. "$LF_SRCDIR/tests/stage/lib.sh"
generate=$LF_BUILDDIR/stages/lf-generate
tool=$LF_BUILDDIR/tests/stage/infer_tool
ckpt=ckpt
threads=2

run() { # run NAME ARGS...: output below $dir/NAME, exit code in $rc
    _name=$1
    shift
    "$generate" --checkpoint "$dir/$ckpt" --out "$dir/$_name" --threads $threads "$@" 2>"$dir/err" >"$dir/stdout"
    rc=$?
}
get() { "$tool" get "$dir/$1/text/out.jsonl" "$2" "$3" 2>&1; } # get NAME LINE MEMBER
sum() { cksum <"$dir/$1/text/out.jsonl"; }
# fails CODE TEXT NAME ARGS...: one line of error with TEXT, and no result
fails() {
    _code=$1 _text=$2 _what=$3
    shift 3
    rm -rf "$dir/bad"
    run bad "$@"
    [ $rc -eq "$_code" ] && grep -qF -- "$_text" "$dir/err" && [ "$(wc -l <"$dir/err")" -eq 1 ] && [ ! -e "$dir/bad/text/out.jsonl" ]
    ok $? "$_what"
    [ $rc -eq "$_code" ] || echo "# exit $rc, not $_code"
}
bad_line() { # bad_line TEXT NAME LINE: requests whose second line is bad
    printf '%s\n%s\n' '{"prompt_token_ids":[1,2]}' "$3" >"$dir/bad.jsonl"
    fails 1 "$1" "$2" --tokenizer "$dir/tok/tokenizer" --prompts "$dir/bad.jsonl"
    grep -qF "bad.jsonl:2" "$dir/err"
    ok $? "... with file and line"
}

# A model of 320 tokens with random hot weights, and a tokenizer of as many.
awk 'BEGIN { x = 7; for (i = 0; i < 300; i++) { line = ""
    for (j = 0; j < 12; j++) { x = (x * 16807) % 2147483647; w = ""; y = x
        for (q = 0; q < 2 + x % 5; q++) { y = (y * 16807) % 2147483647; w = w substr("etaoinshrdlucmfw", 1 + y % 16, 1) }
        line = line (j ? " " : "") w }
    print line "." } }' >"$dir/text.txt"
"$LF_BUILDDIR/stages/lf-tokenize" --doc-split=line --vocab-size=320 --out "$dir/tok" "$dir/text.txt" 2>"$dir/err" &&
    "$tool" ckpt "$dir/ckpt" "$LF_SRCDIR/models/tiny-llama.ini" 320 || bail "no test model"
tok="--tokenizer $dir/tok/tokenizer"

# --- usage ---
run usage --help
[ $rc -eq 0 ] && grep -q -- "--max-tokens" "$dir/stdout"
ok $? "--help"
fails 2 "did you mean \"--temperature\"" "an unknown option, with the nearest name" --temprature 1 x
fails 2 "nothing to continue" "neither prompt nor prompts"
fails 2 "needs tokenizer" "words without a tokenizer" "the house"
fails 2 "top_p" "a top_p out of range" $tok --top-p 1.5 x
fails 2 "min_tokens" "min_tokens above max_tokens" $tok --min-tokens 9 --max-tokens 8 x
fails 1 "no token 'nonsense'" "an unknown end token" $tok --eos nonsense x
ckpt=none
fails 1 "$dir/none" "a missing checkpoint is named" $tok x
run plan --plan $tok x
[ $rc -eq 0 ] && grep -q "does not exist yet" "$dir/stdout"
ok $? "--plan of a checkpoint that is yet to come says so"
printf '[model]\nfamily = llama\nlayers = 1\nhidden = 16\nheads = 2\nhead_dim = 258\nffn = 32\nvocab = 320\nmax_positions = 64\n' >"$dir/wide.ini"
"$tool" ckpt "$dir/wide" "$dir/wide.ini" 320 || bail "no model with wide heads"
ckpt=wide
fails 2 "[model] head_dim: heads of layer 0 have 258 channels, and attention on sm_" "heads that no GPU takes are named" $tok --plan --device cuda x
run wide --plan --device cpu $tok x
is $rc 0 "a CPU takes them"
ckpt=ckpt
fails 1 "none.jsonl" "a missing file of prompts is named" --prompts "$dir/none.jsonl"
fails 1 "has 256 positions" "a context beyond the model's" $tok --max-context 512 x
fails 1 "multiple of 64" "a page size that cannot be" $tok --page-tokens 100 x
fails 1 "kv_tokens" "a cache too small for a request" $tok --kv-tokens 64 --max-tokens 200 x
"$generate" --checkpoint "$dir/ckpt" $tok x 2>"$dir/err" >"$dir/stdout"
is $? 1 "neither --out nor --show is refused"
says "--out" "... and says what to give"
run plan --plan $tok x
grep -q '"parameters":' "$dir/stdout" && grep -q '"total":' "$dir/stdout" && [ ! -e "$dir/plan" ]
ok $? "--plan prints parameters and bytes, and writes nothing"

# --- requests and results ---
run words $tok --max-tokens 12 --temperature 0 --logprobs 3 --show "the house" "of straw"
is "$rc" 0 "two prompts in words"
is "$(get words 1 id) $(get words 2 id)" '"prompt-1" "prompt-2"' "results in order with their ids"
is "$(get words 1 finish_reason)" '"length"' "finish reason"
is "$(get words 1 token_ids.0)" "$(get words 1 top_logprobs.0.token_ids.0)" "a greedy token is the first alternative"
is "$(get words 1 logprobs.0)" "$(get words 1 top_logprobs.0.logprobs.0)" "with the same log-probability"
grep -q "^--- prompt-2 sample 0 (length)" "$dir/stdout"
ok $? "--show prints the texts"
printf '{"id":"ring\\u0007\\u001b[2J\\u009b","prompt":"the house"}\n' >"$dir/rude.jsonl"
run rude $tok --max-tokens 2 --temperature 0 --show --prompts "$dir/rude.jsonl"
grep -qF -- '--- ring??[2J? sample 0' "$dir/stdout" && ! LC_ALL=C grep -q "$(printf '[\007\033\233]')" "$dir/stdout"
ok $? "--show prints no control characters"
[ -f "$dir/words/text/manifest.json" ] && [ ! -e "$dir/words/text/out.jsonl.part" ]
ok $? "the artifact is published, nothing is left over"
run words $tok --max-tokens 12 --temperature 0 --logprobs 3 --slots 2 "the house" "of straw"
[ $rc -eq 0 ] && grep -q "complete already" "$dir/err"
ok $? "a second run finds it complete, whatever its batch"
run words $tok --max-tokens 12 --temperature 0 --logprobs 3 "the house"
[ $rc -eq 1 ] && grep -q "made with other options (prompt was the house.*of straw, is the house); use another out" "$dir/err"
ok $? "other prompts in a finished out are refused by name"
run words $tok --max-tokens 13 --temperature 0 --logprobs 3 "the house" "of straw"
[ $rc -eq 1 ] && grep -q "(max_tokens was 12, is 13)" "$dir/err"
ok $? "so is another length"
cp -r "$dir/words/text" "$dir/alone"
mkdir "$dir/moved-text" && mv "$dir/alone" "$dir/moved-text/text"
run moved-text $tok --max-tokens 13 --temperature 0 "the house"
[ $rc -eq 0 ] && grep -q "does not say with which options it was made" "$dir/err"
ok $? "results that stand alone do not say what made them, and that is said"

awk 'BEGIN { for (i = 0; i < 40; i++) {
    printf "{\"id\": \"q%d\", \"prompt_token_ids\": [%d", i, i
    for (j = 0; j < (i * 13) % 90; j++) printf ", %d", (i * 31 + j * j) % 300
    printf "], \"max_tokens\": %d%s%s}\n", 5 + i % 30, i % 4 ? "" : ", \"n\": 3", i % 3 ? "" : ", \"temperature\": 0" }
    print "{\"id\": 77, \"prompt\": [1, 2, 3], \"seed\": 5}"; print "{\"prompt\": \"words\", \"top_k\": 5, \"top_p\": 0.8, \"min_p\": 0.01}" }' \
    >"$dir/requests.jsonl"
run base $tok --prompts "$dir/requests.jsonl"
is "$rc $(wc -l <"$dir/base/text/out.jsonl" | tr -d ' ')" "0 62" "JSON lines: a result for every request and sample"
is "$(get base 2 id) $(get base 2 sample) $(get base 62 id)" '"q0" 1 "line-42"' "samples count from 0, a line without id is named by its number"
threads=1
run small $tok --prompts "$dir/requests.jsonl" --slots 1 --step-rows 1
threads=3
is "$(sum small)" "$(sum base)" "one sequence at a time, one row, one thread: the same bytes"
run pages $tok --prompts "$dir/requests.jsonl" --slots 5 --step-rows 33 --page-tokens 128 --kv-tokens 900
threads=2
is "$(sum pages)" "$(sum base)" "another batch, cache and pages: the same bytes"
{
    printf '\357\273\277'
    cat "$dir/requests.jsonl"
} >"$dir/mark.jsonl"
"$generate" --checkpoint "$dir/ckpt" --out "$dir/stdin" $tok --prompts - <"$dir/mark.jsonl" 2>"$dir/err"
is "$(sum stdin)" "$(sum base)" "from standard input, behind a byte order mark: the same bytes"
run seed $tok --prompts "$dir/requests.jsonl" --seed 2
[ "$(get seed 14 token_ids)" != "$(get base 14 token_ids)" ]
ok $? "another seed draws other tokens"
is "$(get seed 1 token_ids)" "$(get base 1 token_ids)" "but a greedy request has no seed"
is "$(get seed 61 token_ids)" "$(get base 61 token_ids)" "nor one that gives its own"
[ "$(get base 14 id)" = "$(get base 15 id)" ] && [ "$(get base 14 token_ids)" != "$(get base 15 token_ids)" ]
ok $? "two samples of a prompt differ"
run bf16 $tok --prompts "$dir/requests.jsonl" --precision bf16
is $rc 0 "bf16"
run noids --max-tokens 3 --prompts "$dir/requests.jsonl" --log-level warning
says "needs a tokenizer" "words among ids without a tokenizer are refused"

# --- what ends a text ---
printf '{"prompt":"the house","seed":5}\n' >"$dir/drawn.jsonl"
run drawn $tok --prompts "$dir/drawn.jsonl" --max-tokens 40
third=$(get drawn 1 token_ids.2)
{
    printf '{"prompt":"the house","seed":5,"stop_token_ids":[%s]}\n' "$third"
    printf '{"prompt":"the house","seed":5,"stop_token_ids":[%s],"ignore_eos":true,"include_stop_str_in_output":true}\n' "$third"
    printf '{"prompt":"the house","seed":5,"stop_token_ids":[%s],"min_tokens":6,"max_tokens":6}\n' "$third"
} >"$dir/stop.jsonl"
run stop $tok --prompts "$dir/stop.jsonl" --max-tokens 12
is "$(get stop 1 finish_reason) $(get stop 1 token_ids)" "\"stop\" $(get drawn 1 token_ids | cut -d , -f 1-3)]" \
    "a stop token ends the text and is kept among the tokens"
is "$(get stop 1 stop_reason)" "$third" "... and is the stop reason"
is "$(get stop 2 finish_reason) $(get stop 2 token_ids)" "\"stop\" $(get stop 1 token_ids)" "ignore_eos is about the model's end tokens, not these"
[ "$(get stop 2 text)" != "$(get stop 1 text)" ]
ok $? "include_stop_str_in_output keeps its text"
get stop 3 token_ids | grep -q "[[,]$third[],]"
is $? 1 "min_tokens keeps it away"
is "$(get stop 3 finish_reason)" '"length"' "... to the length asked for"
part=$(get drawn 1 text | LC_ALL=C sed 's/\\u[0-9a-fA-F]*/ /g; s/\\./ /g' | LC_ALL=C grep -o '[a-z][a-z][a-z]*' | tail -n 1)
run string $tok --prompts "$dir/drawn.jsonl" --max-tokens 40 --stop "$part"
is "$(get string 1 finish_reason) $(get string 1 stop_reason)" "\"stop\" \"$part\"" "a stop string ends the text"
get string 1 text | grep -qF "$part"
is $? 1 "and is cut off"

run keep $tok --prompts "$dir/drawn.jsonl" --max-tokens 40 --stop "$part" --include-stop
get keep 1 text | grep -qF "$part\""
ok $? "or kept at the end with --include-stop"
run late $tok --prompts "$dir/drawn.jsonl" --max-tokens 40 --min-tokens 40 --ignore-eos --stop "$part"
is "$(get late 1 finish_reason) $(get late 1 token_ids)" "\"length\" $(get drawn 1 token_ids)" "min_tokens passes over stop strings"

# --- parameters ---
{
    printf '{"prompt":"the house","seed":5,"n":2,"best_of":6,"max_tokens":8}\n'
    printf '{"id":"six","prompt":"the house","seed":5,"n":6,"max_tokens":8}\n'
    printf '{"prompt":"the house","seed":5,"bad_words":["x"],"logit_bias":{"%s":-100},"max_tokens":9}\n' "$third"
    printf '{"prompt":"the house","seed":5,"allowed_token_ids":[100,101,102],"max_tokens":9,"top_k":-1,"seed":null}\n' | sed 's/,"seed":5//'
    printf '{"prompt":"the house","temperature":0,"max_tokens":2,"prompt_logprobs":2}\n'
    printf '{"prompt":"of straw the house","temperature":0,"max_tokens":2,"truncate_prompt_tokens":2}\n'
} >"$dir/params.jsonl"
run params $tok --prompts "$dir/params.jsonl"
is "$rc $(wc -l <"$dir/params/text/out.jsonl" | tr -d ' ')" "0 12" "best_of makes six and gives two"
best=$(for i in 3 4 5 6 7 8; do get params $i logprobs | tr -d '[]' | tr , '\n' | awk -v i=$i '{ s += $1 } END { printf "%.9f %d\n", s, i }'; done |
    sort -rn | head -n 2 | cut -d ' ' -f 2 | tr '\n' ' ')
first=$(echo "$best" | cut -d ' ' -f 1) second=$(echo "$best" | cut -d ' ' -f 2)
is "$(get params 1 token_ids) $(get params 2 token_ids)" "$(get params "$first" token_ids) $(get params "$second" token_ids)" \
    "... those of largest summed log-probability"
is "$(get params 1 sample)" "$((first - 3))" "... with their numbers"
get params 9 token_ids | grep -q "[[,]$third[],]"
is $? 1 "logit_bias -100 keeps a token away"
is "$(get params 10 token_ids | tr -d '[]' | tr , '\n' | sort -u | awk '$1 < 100 || $1 > 102' | wc -l | tr -d ' ')" 0 "allowed_token_ids"
is "$(get params 11 prompt_logprobs.0) $(get params 11 prompt_top_logprobs.1.token_ids.1 | grep -c '^[0-9]')" "null 1" "prompt_logprobs"
is "$(get params 12 prompt_tokens)" 2 "truncate_prompt_tokens"
run params2 $tok --prompts "$dir/params.jsonl" --slots 3 --step-rows 5
is "$(sum params2)" "$(sum params)" "another batch: the same bytes"
run best $tok --samples 2 --best-of 6 --max-tokens 8 --seed 5 --logit-bias "$third=-100" --allowed-token-ids 7 --allowed-token-ids 9 \
    --stop-token-ids 9 --bad-words ab --prompt-logprobs 0 --truncate-prompt-tokens 1 "the house"
is "$rc $(get best 1 prompt_tokens) $(wc -l <"$dir/best/text/out.jsonl" | tr -d ' ')" "0 1 2" "the same as options"
fails 2 "best_of 2 is below samples 3" "best_of below samples" $tok --samples 3 --best-of 2 x
fails 2 "'7' is not ID=NUMBER" "a bias without a number" $tok --logit-bias 7 x
for where in 2 8 15; do # a run cut short behind any line goes on with the same bytes
    head -n $((where / 2)) "$dir/params/text/out.jsonl" >"$dir/cut"
    mkdir -p "$dir/cut$where/text"
    mv "$dir/cut" "$dir/cut$where/text/out.jsonl.part"
    run cut$where $tok --prompts "$dir/params.jsonl" --slots 2
    is "$rc $(sum cut$where)" "0 $(sum params)" "continued behind line $((where / 2)): the same bytes"
done

# --- generation_config.json ---
cp -r "$dir/tok/tokenizer" "$dir/conf"
printf '{"temperature": 0, "max_new_tokens": 5, "top_k": 20, "eos_token_id": [0, %s], "bos_token_id": 0}' "$third" >"$dir/conf/generation_config.json"
run conf --tokenizer "$dir/conf" --prompts "$dir/drawn.jsonl"
says "from generation_config.json: temperature 0, top_k 20, max_tokens 5" "its defaults are taken and printed"
run greedy $tok --prompts "$dir/drawn.jsonl" --temperature 0 --max-tokens 5
is "$(get conf 1 token_ids)" "$(get greedy 1 token_ids)" "... as the options of that name"
run given --tokenizer "$dir/conf" --prompts "$dir/drawn.jsonl" --temperature 1 --top-k 0 --max-tokens 12
is "$(get given 1 token_ids) $(get given 1 stop_reason)" "$(get stop 1 token_ids) infer_tool: no member " \
    "options win; any of its end tokens ends the text"
run raw --tokenizer "$dir/conf" --prompts "$dir/drawn.jsonl" --raw --ignore-eos --max-tokens 40
is "$(get raw 1 token_ids)" "$(get drawn 1 token_ids)" "--raw takes nothing of it"
printf '{"top_p": "x"}' >"$dir/conf/generation_config.json"
fails 1 "generation_config.json: top_p is no number" "a broken one is named" --tokenizer "$dir/conf" x
printf '{"forced_eos_token_id": 1e300}' >"$dir/conf/generation_config.json"
fails 1 "forced_eos_token_id = 1e+300 is no whole number" "and a token that is none" --tokenizer "$dir/conf" x
printf '%s' '{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>{{ style }}{% endif %}' \
    >"$dir/chat.jinja"

# --- the OpenAI batch shape and conversations ---
batch() { printf '{"custom_id":"%s","method":"POST","url":"/v1/%s","body":{%s}}\n' "$1" "$2" "$3"; }
{
    batch plain completions '"model":"m","prompt":"the house","temperature":0,"max_tokens":4,"logprobs":1,"n":2'
    batch ids completions '"prompt":[5,6,7],"temperature":0,"max_tokens":4,"user":"u","stream":false'
    batch typo completions '"prompt":"x","temperatur":1'
    batch long completions "\"prompt\":[1$(awk 'BEGIN { for (i = 0; i < 300; i++) printf ",1" }')]"
    batch url embeddings '"input":"x"'
    batch chat chat/completions '"messages":[{"role":"user","content":"the house"}],"max_completion_tokens":3,"temperature":0,"logprobs":true,"top_logprobs":2'
    batch none chat/completions '"prompt":"x"'
    printf '{"id":"own","messages":[{"role":"user","content":"the house"}],"max_tokens":3,"temperature":0}\n'
    printf '{"id":"kw","messages":[{"role":"user","content":"the house"}],"max_tokens":3,"chat_template_kwargs":{"style":"very "}}\n'
    printf '{"id":"flat","prompt":"<user>the house<assistant>","max_tokens":3,"temperature":0,"add_special_tokens":false}\n'
} >"$dir/batch.jsonl"
run batch $tok --chat-template "$dir/chat.jinja" --prompts "$dir/batch.jsonl"
is "$rc $(wc -l <"$dir/batch/text/out.jsonl" | tr -d ' ')" "0 10" "a line for every batch request"
says "4 of 10 requests cannot be run" "those that cannot be run are counted"
is "$(get batch 1 custom_id) $(get batch 1 response.status_code) $(get batch 1 response.body.object) $(get batch 1 response.body.model)" \
    '"plain" 200 "text_completion" "m"' "a completion"
is "$(get batch 1 response.body.usage)" \
    "{\"prompt_tokens\":$(get words 1 prompt_tokens),\"total_tokens\":$(($(get words 1 prompt_tokens) + 8)),\"completion_tokens\":8}" "... its usage"
is "$(get batch 1 response.body.choices.1.index) $(get batch 1 response.body.choices.1.text)" \
    "1 $(get batch 1 response.body.choices.0.text)" "... its choices, greedy and equal"
is "$(get batch 1 response.body.choices.0.logprobs.token_logprobs.0)" "$(get words 1 logprobs.0)" "... their log-probabilities"
is "$(get batch 2 response.body.choices.0.logprobs) $(get batch 2 error)" "null null" "none where not asked for"
is "$(get batch 3 response.status_code) $(get batch 3 response.body) $(get batch 3 error.message)" \
    "400 null \"unknown parameter 'temperatur'; did you mean 'temperature'?\"" "an unknown parameter is refused by name"
get batch 4 error.message | grep -q "the prompt has 301 tokens, the model's context is 256"
ok $? "a prompt beyond the context"
get batch 5 error.message | grep -q "url '/v1/embeddings'"
ok $? "an unknown url"
get batch 7 error.message | grep -q "unknown parameter 'prompt'"
ok $? "a chat request without messages"
is "$(get batch 6 response.body.object) $(get batch 6 response.body.choices.0.message.role) $(get batch 6 response.body.choices.0.message.content)" \
    "\"chat.completion\" \"assistant\" $(get batch 10 text)" "a conversation is its template's text"
is "$(get batch 6 response.body.choices.0.logprobs.content.2.logprob)" "$(get batch 10 logprobs.2)" "... with its log-probabilities"
is "$(get batch 8 token_ids)" "$(get batch 10 token_ids)" "messages in our shape"
is "$(($(get batch 9 prompt_tokens) > $(get batch 8 prompt_tokens)))" 1 "chat_template_kwargs reach the template"
for where in 2 5 8; do
    mkdir -p "$dir/half$where/text"
    head -n $where "$dir/batch/text/out.jsonl" >"$dir/half$where/text/out.jsonl.part"
    run half$where $tok --chat-template "$dir/chat.jinja" --prompts "$dir/batch.jsonl" --slots 2
    is "$rc $(sum half$where)" "0 $(sum batch)" "continued behind line $where: the same bytes"
done
printf '{"messages":[{"role":"user","content":"x"}]}\n' >"$dir/bad.jsonl"
fails 1 "there is no chat template" "messages without a template" $tok --prompts "$dir/bad.jsonl"

# --- bad requests ---
bad_line "did you mean 'temperature'" "an unknown member, with the nearest name" '{"prompt":"x","temperatur":1}'
bad_line "top_p must be" "a value out of range" '{"prompt":"x","top_p":2}'
bad_line "'max_tokens' must be an integer" "a value of the wrong type" '{"prompt":"x","max_tokens":"8"}'
bad_line "both 'prompt' and 'prompt_token_ids'" "two prompts" '{"prompt":"x","prompt_token_ids":[1]}'
bad_line "no 'prompt'" "no prompt" '{"id":"a"}'
bad_line "prompt is empty" "an empty prompt" '{"prompt_token_ids":[]}'
bad_line "entry 2 is not a token id" "an id that is none" '{"prompt_token_ids":[1,-4]}'
bad_line "the line is no JSON object" "a line that is no object" '[1,2]'
bad_line "second request has the id 'line-1'" "an id given twice" '{"id":"line-1","prompt":"x"}'
bad_line "bad.jsonl:2:" "broken JSON" '{"prompt": "x"'
printf '{"id":"far","prompt_token_ids":[5000]}\n' >"$dir/bad.jsonl"
fails 1 "request 'far': token 5000 is outside the vocabulary of 320" "a token outside the vocabulary" --prompts "$dir/bad.jsonl"
awk 'BEGIN { printf "{\"id\":\"long\",\"prompt_token_ids\":[1"; for (i = 0; i < 300; i++) printf ",1"; print "]}" }' >"$dir/bad.jsonl"
fails 1 "is 256 with room for one more; shorten it, or set truncate_prompt_tokens = 128 to keep its end" "a prompt beyond the context says what to do" --prompts "$dir/bad.jsonl"
fails 1 "request 'long': the prompt has 301 tokens" "a prompt beyond the context" --prompts "$dir/bad.jsonl"
: >"$dir/bad.jsonl"
fails 1 "holds no requests" "an empty file" --prompts "$dir/bad.jsonl"

# --- interrupted ---
lines() { if [ -f "$dir/$1/text/out.jsonl.part" ]; then wc -l <"$dir/$1/text/out.jsonl.part" | tr -d ' '; else echo 0; fi; }
# cut NAME ACTION N: ended at the N-th result that it writes; or, where it cannot end itself, when so many more are there
cut() {
    _until=$(($(lines "$1") + $3))
    cut_at "$2" "$3" "write */$1/text/out.jsonl.part" "[ \$(lines $1) -ge $_until ]" \
        "$generate" --checkpoint "$dir/ckpt" --out "$dir/$1" --threads 1 --slots 1 --step-rows 1 $tok --prompts "$dir/requests.jsonl"
}
kills=0
for more in 3 8 8 13 15; do
    cut kill kill $more
    [ $rc -ne 137 ] || kills=$((kills + 1))
done
before=$(lines kill)
[ $kills -ge "$([ -n "$FAIL" ] && echo 5 || echo 3)" ] && [ "${before:-0}" -ge 2 ]
ok $? "killed $kills times, $before results are there"
printf '{"id":"q12","sam' >>"$dir/kill/text/out.jsonl.part" # what a killed machine may leave: half a line
run kill $tok --prompts "$dir/requests.jsonl"
is "$rc $(sum kill)" "0 $(sum base)" "continued: the bytes of a run that was never killed"
says "continuing behind $before of 62 results" "and only what was missing was made"
cut term term 5
is $rc 75 "SIGTERM: exit 75"
[ ! -e "$dir/term/text/out.jsonl" ] && [ "$(lines term)" -ge 5 ]
ok $? "with what was done so far"
run next $tok --prompts "$dir/requests.jsonl" --resume-from "$dir/term"
is "$rc $(sum next)" "0 $(sum base)" "continued in a new directory: the same bytes"
cp -r "$dir/base" "$dir/crash"
rm "$dir/crash/text/manifest.json"
run crash $tok --prompts "$dir/requests.jsonl"
is "$rc $(sum crash)" "0 $(sum base)" "a crash before the manifest: published as it is"
says "continuing behind 62 of 62" "and nothing is made again"
touch "$dir/stop-now"
run stopfile $tok --prompts "$dir/requests.jsonl" --stop-file "$dir/stop-now"
is $rc 75 "a stop file: exit 75"
printf '{"id":"other","prompt_token_ids":[3]}\n' >"$dir/other.jsonl"
run other $tok --prompts "$dir/other.jsonl" --resume-from "$dir/term"
is $rc 1 "results of other requests are not continued"
says "belongs to another run" "and it is said"
# Requests from parquet, their prompts as lists of ids, a setting that is null in some.
for f in parquet jsonl; do run from-$f --prompts "$LF_SRCDIR/tests/golden/parquet/rows/requests.$f"; done
is "$rc $(wc -l <"$dir/from-parquet/text/out.jsonl" | tr -d ' ')" "0 6" "requests from parquet"
cmp -s "$dir/from-parquet/text/out.jsonl" "$dir/from-jsonl/text/out.jsonl"
ok $? "give what JSON lines give"
cp -r "$dir/ckpt" "$dir/flip"
file=$(ls "$dir"/flip/data-*.h5)
printf '\377' | dd of="$file" bs=1 seek=$(($(wc -c <"$file") / 2)) conv=notrunc 2>/dev/null
ckpt=flip
fails 1 "flip" "a checkpoint with a flipped byte is refused" $tok x

# --- guesses of the model's own head, interrupted ---
{ cat "$LF_SRCDIR/models/tiny-llama.ini" && echo mtp_layers = 1; } >"$dir/later.ini"
"$tool" ckpt "$dir/later" "$dir/later.ini" 320 || bail "no model with a head for later tokens"
head -n 12 "$dir/requests.jsonl" >"$dir/few.jsonl"
ckpt=later
run plain $tok --prompts "$dir/few.jsonl"
is $rc 0 "a model with a head for later tokens"
kills=0
for more in 2 3 4; do
    _until=$(($(lines guesses) + more))
    cut_at kill $more "write */guesses/text/out.jsonl.part" "[ \$(lines guesses) -ge $_until ]" \
        "$generate" --checkpoint "$dir/later" --out "$dir/guesses" --threads 1 --slots 2 $tok --prompts "$dir/few.jsonl" --speculative mtp
    [ $rc -ne 137 ] || kills=$((kills + 1))
done
before=$(lines guesses)
[ $kills -ge "$([ -n "$FAIL" ] && echo 3 || echo 1)" ] && [ "${before:-0}" -ge 2 ]
ok $? "its head guesses: killed $kills times, $before results are there"
run guesses $tok --prompts "$dir/few.jsonl" --speculative mtp
is "$rc $(sum guesses)" "0 $(sum plain)" "continued: the bytes of a run without guesses that was never killed"
says "continuing behind $before of 18 results" "and only what was missing was made"
grep -q ' tokens guessed, ' "$dir/err"
ok $? "with guesses"
ckpt=ckpt

# --- more than the context holds ---
ckpt=ckpt
run most $tok --max-tokens 100k "the house"
is "$rc $(grep -c 'warning: max_tokens = 100000 is beyond the model.s context of 256 tokens' "$dir/err")" "0 1" "more tokens than the context has is a warning"
run few $tok --max-tokens 20 "the house"
is "$rc $(grep -c warning "$dir/err")" "0 0" "fewer are not"

finish 135

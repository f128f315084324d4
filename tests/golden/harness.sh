#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# lf-eval on requests exported from lm-evaluation-harness: its numbers, whatever the batch, block, sharing and threads; continued after
# kill -9; broken files.
. "$LF_SRCDIR/tests/stage/lib.sh"
golden=$LF_SRCDIR/tests/golden/harness
run() { # run NAME ARGS...
    _name=$1
    shift
    "$stages/lf-eval" --checkpoint "$dir/model/checkpoint" --tokenizer "$golden/model" --bootstrap 2000 --out "$dir/$_name" "$@" \
        >"$dir/stdout" 2>"$dir/err"
    rc=$?
}
sums() { cat "$dir/$1/results/"samples*.jsonl | cksum; sed '/"threads"/d; /"plan"/d; /"fingerprint"/,/}/d' "$dir/$1/results/results.json" | cksum; }
same() { [ "$rc $(sums "$1")" = "0 $(sums base)" ]; ok $? "$2"; }
bad() { # bad TEXT NAME LINE...: a file of these lines is refused with TEXT
    _text=$1 _what=$2
    shift 2
    printf '%s\n' "$@" >"$dir/bad.jsonl"
    run bad --requests "$dir/bad.jsonl"
    [ $rc -eq 1 ] && grep -qF -- "$_text" "$dir/err" && grep -q "bad.jsonl:" "$dir/err" && [ ! -e "$dir/bad/results/samples.jsonl" ]
    ok $? "$_what"
}

"$stages/lf-convert" --from "$golden/model" --out "$dir/model" --verify none >"$dir/stdout" 2>"$dir/err"
ok $? "the model is imported"
run base --requests "$golden/requests.jsonl"
ok $rc "requests of seven tasks and a group"
"$LF_BUILDDIR/tests/golden/harness_near" "$golden/golden.json" "$dir/base/results" >"$dir/near"
ok $? "numbers, texts and standard errors are those of lm-evaluation-harness"
sed 's/^/# /' "$dir/near"
run small --requests "$golden/requests.jsonl" --threads 1 --slots 2 --step-rows 3 --micro-tokens 96 --block 5
same small "small batches, one thread: the same bytes"
run alone --requests "$golden/requests.jsonl" --threads 2 --no-share --block 200 --page-tokens 128
same alone "nothing shared: the same bytes"
part=$dir/kill/results/samples.jsonl.part
cut_at kill 12 "write */kill/results/samples.jsonl.part" "[ \$(cat $part 2>/dev/null | wc -l) -ge 12 ]" \
    "$stages/lf-eval" --checkpoint "$dir/model/checkpoint" --tokenizer "$golden/model" --bootstrap 2000 --out "$dir/kill" --block 1 --threads 1 \
    --requests "$golden/requests.jsonl"
printf '{"task":"arc' >>"$part"
run kill --requests "$golden/requests.jsonl"
same kill "killed and continued: the same bytes"
grep -q "continuing behind" "$dir/err"
ok $? "and only what was missing was made"

head='{"task":"t","output_type":"multiple_choice","metrics":[{"metric":"acc","aggregation":"mean"}],"filters":[{"name":"none","steps":[{"function":"take_first"}]}]}'
doc='"ctx":"the house","cont":" a","doc":{"gold":0,"chars":[1],"bytes":[1]}'
bad "bad.jsonl:2:" "a broken line" "$head" '{"task":"t","doc_id":0'
bad "'weird'" "an unknown kind" "$head" "{\"task\":\"t\",\"doc_id\":0,\"idx\":0,\"kind\":\"weird\",$doc}"
bad "given twice" "a document given twice" "$head" "{\"task\":\"t\",\"doc_id\":0,\"idx\":0,\"kind\":\"loglikelihood\",$doc}" \
    "{\"task\":\"t\",\"doc_id\":0,\"idx\":0,\"kind\":\"loglikelihood\",$doc}"
bad "given twice or out of order" "a request out of order" "$head" "{\"task\":\"t\",\"doc_id\":0,\"idx\":1,\"kind\":\"loglikelihood\",$doc}"
bad "does not stand behind the header" "a request without a header" "{\"task\":\"u\",\"doc_id\":0,\"idx\":0,\"kind\":\"loglikelihood\",$doc}"
bad "the metric 'bleu' is not supported" "an unknown metric" "$(echo "$head" | sed 's/"acc"/"bleu"/')"
bad "the filter 'regexp' is not supported" "an unknown filter" "$(echo "$head" | sed 's/take_first/regexp/')"
bad '"gold" of the document' "gold out of range" "$head" "{\"task\":\"t\",\"doc_id\":0,\"idx\":0,\"kind\":\"loglikelihood\",$(echo "$doc" |
    sed 's/"gold":0/"gold":1/')}"

# --- the built-in task that generates ---
printf '%s\n' '{"context":"the house","target":"x"}' '{"context":"a small tree","target":["y","7"]}' >"$dir/gen.jsonl"
run gen --generate "$dir/gen.jsonl" --max-tokens 8 --match number
[ $rc -eq 0 ] && grep -q '"exact_match,none"' "$dir/gen/results/results.json"
ok $? "texts generated and matched"
# Several texts of one request, a vote, and what stands behind the end of thinking.
vote='{"task":"t","output_type":"generate_until","metrics":[{"metric":"exact_match","aggregation":"mean"}],"filters":[{"name":"vote","steps":[{"function":"majority_vote"},{"function":"take_first"}]}]}'
asked() { # asked REPEATS TEMPERATURE
    printf '%s\n' "$vote" "{\"task\":\"t\",\"doc_id\":0,\"idx\":0,\"kind\":\"generate_until\",\"ctx\":\"Question: the house?\\nAnswer:\",\"gen\":{\"until\":[\"bird\"],\"temperature\":$2,\"max_gen_toks\":24},\"repeats\":$1,\"doc\":{\"doc\":{\"q\":\"x\"},\"target\":\"y\",\"doc_hash\":\"0\",\"prompt_hash\":\"0\",\"target_hash\":\"0\"}}" >"$dir/asked.jsonl"
}
texts() { sed 's/.*"resps":\[\[//; s/\]\].*//; s/","/"\n"/g' "$dir/$1/results/samples.jsonl"; }
filtered() { sed 's/.*"filtered_resps":\[\("[^"]*"\)\].*/\1/' "$dir/$1/results/samples_t.jsonl"; }
asked 4 1.0
run four --requests "$dir/asked.jsonl"
[ $rc -eq 0 ] && [ "$(texts four | sort -u | wc -l)" -eq 4 ] && [ "$(filtered four)" = "$(texts four | head -n 1)" ]
ok $? "four repeats draw four texts; a vote among different ones is for the first"
asked 4 0.0
run greedy --requests "$dir/asked.jsonl"
[ $rc -eq 0 ] && [ "$(texts greedy | wc -l)" -eq 4 ] && [ "$(texts greedy | sort -u | wc -l)" -eq 1 ]
ok $? "four repeats at temperature 0 are one text"
run think --requests "$dir/asked.jsonl" --think-end ' and'
whole=$(texts greedy | head -n 1)
want=\"$(printf '%s' "${whole##* and}" | sed 's/^ *//')
[ $rc -eq 0 ] && [ "${whole##* and}" != "$whole" ] && [ "$(texts think | head -n 1)" = "$want" ]
ok $? "behind the last end of thinking: $(texts think | head -n 1)"
run never --requests "$dir/asked.jsonl" --think-end '</nothing>'
[ $rc -eq 0 ] && [ "$(texts never | head -n 1)" = "\"$(printf '%s' "$whole" | sed 's/^"//; s/^ *//')" ]
ok $? "a text without one is whole"

finish 20

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Beam search by lf-generate, and the most likely tokens of encoder-decoders, against transformers' generate (tests/golden/beams): tokens of
# every result and their scores, resume within a
# request, what does not go with it. engine/infer/beam.h
. "$LF_SRCDIR/tests/stage/lib.sh"
golden=$LF_SRCDIR/tests/golden/beams

search() { # search FAMILY NAME ARGS...
    _family=$1 _name=$2
    shift 2
    "$stages/lf-generate" --checkpoint "$dir/$_family/checkpoint" --threads 1 --out "$dir/$_name" "$@" >"$dir/stdout" 2>"$dir/err"
    rc=$?
}
results() { sed 's/.*"token_ids":\(\[[0-9,]*\]\).*/\1/' "$dir/$1/text/out.jsonl"; }
for family in llama gpt2 t5 bart; do
    must "$stages/lf-convert" --verify none --from "$LF_SRCDIR/tests/golden/families/$family" --out "$dir/$family"
    grep "\"$family-" "$golden/requests.jsonl" >"$dir/$family.jsonl"
    grep "\"$family-" "$golden/expected.jsonl" >"$dir/$family.want"
    search $family $family.out --prompts "$dir/$family.jsonl" --slots 7
    results $family.out >"$dir/got"
    sed 's/.*"tokens":\(\[[0-9,]*\]\).*/\1/' "$dir/$family.want" >"$dir/want"
    cmp -s "$dir/got" "$dir/want"
    ok $? "$family: the tokens of all $(wc -l <"$dir/want") results are those of transformers" "$(cat "$dir/err"; diff "$dir/got" "$dir/want" | head -n 4)"
    # the score of a result: its log-probabilities, summed, over its tokens to the power of length_penalty
    sed 's/.*"id":"\([^"]*\)".*"length_penalty":\([-0-9.]*\).*/\1 \2/' "$dir/$family.jsonl" >"$dir/penalties"
    sed 's/.*"id":"\([^"]*\)".*"score":\([-0-9.e]*\).*/\1 \2/; s/.*"id".*/none none/' "$dir/$family.want" >"$dir/scores"
    sed 's/.*"logprobs":\[\([^]]*\)\].*/\1/' "$dir/$family.out/text/out.jsonl" | paste -d ' ' "$dir/scores" - |
        awk 'NR == FNR { power[$1] = $2; next }
            $2 == "none" { next } # without beams
            { n = split($3, x, ","); s = 0; for (i = 1; i <= n; i++) s += x[i]; d = s / n ^ power[$1] - $2; if (d < 0) d = -d
                if (d > 1e-4 * (1 + ($2 < 0 ? -$2 : $2))) bad++; seen++ }
            END { exit bad > 0 || seen < 60 }' "$dir/penalties" -
    ok $? "and so are their scores"
    search $family $family.other --prompts "$dir/$family.jsonl" --slots 24 --step-rows 5
    cmp -s "$dir/$family.out/text/out.jsonl" "$dir/$family.other/text/out.jsonl"
    ok $? "with other slots and steps the same bytes"
done

# A run that was stopped between the results of a request goes on to the same bytes.
mkdir -p "$dir/part/text"
head -n 8 "$dir/llama.out/text/out.jsonl" >"$dir/part/text/out.jsonl.part"
search llama part --prompts "$dir/llama.jsonl" --slots 7
grep -q "behind 8 of 87" "$dir/err" &&
    cmp -s "$dir/llama.out/text/out.jsonl" "$dir/part/text/out.jsonl"
ok $? "continued behind the second of three results, the same bytes" "$(cat "$dir/err")"

# Options are the defaults of requests.
printf '{"prompt_token_ids":[5,6,7]}\n' >"$dir/plain.jsonl"
printf '{"prompt_token_ids":[5,6,7],"beams":4,"n":2,"length_penalty":0.5,"early_stopping":"never"}\n' >"$dir/said.jsonl"
search llama plain --prompts "$dir/plain.jsonl" --beams 4 --samples 2 --length-penalty 0.5 --early-stopping never --max-tokens 9
search llama said --prompts "$dir/said.jsonl" --max-tokens 9
[ -s "$dir/plain/text/out.jsonl" ] && cmp -s "$dir/plain/text/out.jsonl" "$dir/said/text/out.jsonl"
ok $? "by options and by members, the same" "$(cat "$dir/err")"

refused() { # refused WORDS TEXT ARGS...
    _words=$1 _text=$2
    shift 2
    rm -rf "$dir/bad"
    search llama bad --prompts "$dir/plain.jsonl" --max-tokens 4 "$@"
    [ $rc -ne 0 ] && grep -qF -- "$_words" "$dir/err"
    ok $? "$_text" "$(cat "$dir/err")"
}
refused "no more samples than that" "more samples than beams" --beams 2 --samples 3
refused "best_of 4 chooses among draws" "the best of draws" --beams 2 --best-of 4
refused "a search knows no frequency_penalty" "a penalty" --beams 2 --frequency-penalty 1
refused "raise slots" "more beams than slots" --beams 9
printf '{"prompt_token_ids":[5],"beams":2,"early_stopping":"soon"}\n' >"$dir/plain.jsonl"
refused "'early_stopping' must be true, false or" "an end that is none"
printf '{"prompt_token_ids":[5,6,7]}\n' >"$dir/plain.jsonl"
refused "first_token: token 4000 is outside the vocabulary" "a first token that there is not" --first-token 4000
search llama few --prompts "$dir/plain.jsonl" --beams 3 --samples 3 --first-token 5 --last-token 6 --max-tokens 2
says "the search has 1 results, and 3 are asked for" "more results than what is forced leaves are refused"
finish 21

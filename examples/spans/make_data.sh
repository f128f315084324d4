#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Sources of this example: pieces of held-out texts that lack spans, and what these were.
# make_data.sh DIR [SEED], which reads the JSON of `loong-flow show shards` from standard input
#   sources.jsonl  requests of lf-generate, tokens by number; spans.txt  of each, a line a span: number of the piece, its span, its tokens
# A piece is 44 tokens, and loses 7 of them in 2 spans, as texts do in training: lengths of spans and of what stands between them are
# all equally likely that have these sums, and a piece begins with text.
set -eu
LC_ALL=C
export LC_ALL
[ $# -ge 1 ] && [ $# -le 2 ] || { echo "usage: sh make_data.sh DIR [SEED]" >&2; exit 2; }
mkdir -p "$1"
tr -d ' \n' | grep -o '"ids":\[[0-9,]*\]' | tr -d '"ids:[]' | awk -F, -v dir="$1" -v seed="${2:-1}" '
    # cut(LIST, SUM, PARTS): as many parts of at least one, by choosing PARTS - 1 of SUM - 1 places
    function cut(list, sum, parts, i, left, n) {
        left = parts - 1
        n = 1
        for (i = 1; i < sum; i++) {
            list[n]++
            if (rand() * (sum - i) < left) { left--; n++ }
        }
        list[n]++
    }
    function piece(first, k, i, at, stay, go, out) {
        cut(stay, TEXT - NOISE, SPANS)
        cut(go, NOISE, SPANS)
        at = first
        out = ""
        for (k = 1; k <= SPANS; k++) {
            for (i = 0; i < stay[k]; i++) out = out $(at++) ","
            out = out (SENTINEL - k + 1) ","
            printf "%d %d ", pieces, k - 1 >spans
            for (i = 0; i < go[k]; i++) printf "%s%s", i ? "," : "", $(at++) >spans
            print "" >spans
        }
        printf "{\"prompt_token_ids\":[%s0]}\n", out >sources
        pieces++
    }
    BEGIN { srand(seed); TEXT = 44; NOISE = 7; SPANS = 2; SENTINEL = 16; sources = dir "/sources.jsonl"; spans = dir "/spans.txt" }
    { for (at = 1; at + TEXT - 1 <= NF; at += TEXT) if (pieces < 1200) piece(at) }
    END { if (!pieces) { print "make_data.sh: no text is long enough" >"/dev/stderr"; exit 1 } }'

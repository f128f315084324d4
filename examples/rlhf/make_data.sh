#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Data of this example out of a dictionary whose entries are a word and, indented, its senses ("n 1: ..."), as the package
# dict-wn has it: make_data.sh DICTIONARY DIR
#   text.txt    definitions as text        sft.jsonl    word -> definition
#   pairs.jsonl right definitions against the same words in a random order      held.jsonl  pairs of other words
#   prompts.jsonl  other words again, to be defined by the model itself         ask.jsonl   those of held.jsonl, likewise
set -eu
LC_ALL=C
export LC_ALL
[ $# -eq 2 ] || { echo "usage: sh make_data.sh DICTIONARY DIR" >&2; exit 2; }
dict=$1 dir=$2
[ -f "$dict" ] && [ -r "$dict" ] || { echo "make_data.sh: the dictionary $dict cannot be read" >&2; exit 1; }
mkdir -p "$dir"
case $dict in *.dz | *.gz) gzip -dc <"$dict" ;; *) cat "$dict" ;; esac | awk -v dir="$dir" '
    function put() { # one sense is ready
        gsub(/ +/, " ", sense)
        sub(/^ *[a-z]* *[0-9]*: */, "", sense)
        sub(/[;\[{].*/, "", sense)
        sub(/ $/, "", sense)
        k = split(sense, w, " ")
        if (word != "" && k >= 6 && k <= 20 && sense !~ /[^ a-z,()-]/ && word ~ /^[a-z]+$/ && ++n <= 12000) {
            good = " " sense
            for (i = k; i > 1; i--) { j = 1 + int(rand() * i); t = w[i]; w[i] = w[j]; w[j] = t }
            bad = ""
            for (i = 1; i <= k; i++) bad = bad " " w[i]
            print "define " word ":" good >(dir "/text.txt")
            prompt = "{\"prompt\":\"define " word ":\"}"
            if (n % 10 == 5) { print prompt >(dir "/prompts.jsonl"); sense = ""; return }
            if (n % 10 == 0) {
                file = "held.jsonl"
                print prompt >(dir "/ask.jsonl")
            } else {
                file = "pairs.jsonl"
                printf "{\"prompt\":\"define %s:\",\"completion\":\"%s\"}\n", word, good >(dir "/sft.jsonl")
            }
            if (good != bad) printf "{\"prompt\":\"define %s:\",\"chosen\":\"%s\",\"rejected\":\"%s\"}\n", word, good, bad >(dir "/" file)
        }
        sense = ""
    }
    BEGIN { srand(1) }
    /^[^ ]/ { put(); word = $0; next }
    /^  *([a-z]+ )?[0-9]*:/ || /^  *(n|v|adj|adv) / { put(); sense = $0; next }
    { sense = sense " " $0 }
    END { put() }'
[ -s "$dir/text.txt" ] || { echo "make_data.sh: $dict has no entry in this form" >&2; exit 1; }
wc -l "$dir"/*.txt "$dir"/*.jsonl

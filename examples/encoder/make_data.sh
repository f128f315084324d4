#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Sentences of this example, definitions out of a dictionary whose entries are a word and, indented, its senses ("n 1: ..."), as the
# package dict-wn has it: make_data.sh DICTIONARY DIR [SEED]
#   twice.jsonl    definitions, each of them twice: pairs that need no label. Of each copy 6 words in 10 are left, in a random order
#   graded.jsonl   pairs of sentences whose similarity is known by rule, a sentence a line; grades.txt  the similarity of each pair
# The rule: the hundred most frequent words are function words, all others content words. The second sentence of a pair is the first one in
# which k of the n content words, 0 <= k <= n, are others, and all function words, each drawn as often as definitions have it; then all of
# its words are shuffled. The similarity is the share of content words that stayed, (n - k) / n. No definition stands in both files.
set -eu
LC_ALL=C
export LC_ALL
[ $# -ge 2 ] && [ $# -le 3 ] || { echo "usage: sh make_data.sh DICTIONARY DIR [SEED]" >&2; exit 2; }
dict=$1 dir=$2
[ -f "$dict" ] && [ -r "$dict" ] || { echo "make_data.sh: the dictionary $dict cannot be read" >&2; exit 1; }
mkdir -p "$dir"
case $dict in *.dz | *.gz) gzip -dc <"$dict" ;; *) cat "$dict" ;; esac | awk -v dir="$dir" -v seed="${3:-1}" '
    function put() { # one sense is ready
        gsub(/ +/, " ", sense)
        sub(/^ *[a-z]* *[0-9]*: */, "", sense)
        sub(/[;\[{].*/, "", sense)
        sub(/ $/, "", sense)
        if (sense !~ /[^ a-z,()-]/) {
            gsub(/[,()]/, "", sense)
            k = split(sense, w, " ")
            if (k >= 6 && k <= 20 && !(sense in known)) {
                known[sense] = 1
                text[n++] = sense
                for (i = 1; i <= k; i++) count[w[i]]++
            }
        }
        sense = ""
    }
    function draw(list, size) { return list[int(rand() * size)] }
    function shuffle(v, size, i, j, t) {
        for (i = size; i > 1; i--) { j = 1 + int(rand() * i); t = v[i]; v[i] = v[j]; v[j] = t }
    }
    function copy(s, k, i, m, v, out) {
        k = split(s, w, " ")
        m = 0
        for (i = 1; i <= k; i++) if (rand() < 0.6) v[++m] = w[i]
        if (m < 2) { v[1] = w[1]; v[2] = w[k]; m = 2 }
        shuffle(v, m)
        out = v[1]
        for (i = 2; i <= m; i++) out = out " " v[i]
        return out
    }
    function grade(s, k, i, m, change, out, at) {
        k = split(s, w, " ")
        m = 0
        for (i = 1; i <= k; i++) if (!(w[i] in frequent)) at[++m] = i
        if (m < 3) return
        change = int(rand() * (m + 1))
        shuffle(at, m)
        for (i = 1; i <= k; i++) if (w[i] in frequent) w[i] = draw(often, n_often)
        for (i = 1; i <= change; i++) w[at[i]] = draw(rare, n_rare)
        shuffle(w, k)
        out = w[1]
        for (i = 2; i <= k; i++) out = out " " w[i]
        printf "{\"text\":\"%s[SEP]\"}\n{\"text\":\"%s[SEP]\"}\n", s, out >(dir "/graded.jsonl")
        printf "%.6f\n", (m - change) / m >(dir "/grades.txt")
    }
    BEGIN { srand(seed) }
    /^[^ ]/ { put(); next }
    /^  *([a-z]+ )?[0-9]*:/ || /^  *(n|v|adj|adv) / { put(); sense = $0; next }
    { sense = sense " " $0 }
    END {
        put()
        for (t = 0; t < 100; t++) {
            best = ""
            for (v in count) if (!(v in frequent) && (best == "" || count[v] > count[best] || (count[v] == count[best] && v < best))) best = v
            frequent[best] = 1
        }
        for (i = 0; i < n; i++) {
            k = split(text[i], w, " ")
            for (j = 1; j <= k; j++) if (w[j] in frequent) often[n_often++] = w[j]; else rare[n_rare++] = w[j]
        }
        all = n < 27000 ? n : 27000
        for (t = 0; t < all; t++) {
            s = text[int(t * n / all)] # from all of the alphabet
            if (t % 27 == 26) grade(s)
            else printf "{\"prompt\":\"%s[SEP]%s[SEP]\"}\n", copy(s), copy(s) >(dir "/twice.jsonl")
        }
    }'
[ -s "$dir/twice.jsonl" ] && [ -s "$dir/grades.txt" ] || { echo "make_data.sh: $dict has too few entries in this form" >&2; exit 1; }
wc -l "$dir"/*.jsonl "$dir/grades.txt"

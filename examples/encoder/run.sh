#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes an encoder of texts from nothing with the pipeline beside it, and tells what it has learned.
#
# usage: run.sh BUILD [DIR [TEXT [DICTIONARY]]]
#   BUILD       the build directory, or the prefix that loong-flow was installed below
#   DIR         where everything goes (default ./encoder-run); run again with the same DIR to continue
#   TEXT        what hidden tokens are said of (default: Debian's dict-gcide)
#   DICTIONARY  sentences, in the form of Debian's dict-wn (default: that one)
# With SEED=K in the environment all of it has other random numbers; ../seeds.sh does that several times. DIR/numbers has the results.
#
# Exit codes: 0 done, and the encoder has learned: it says at least 10 points more of the hidden tokens of held-out texts than the most
# frequent token would be right, and its vectors tell how similar sentences are better than those of the encoder that they were made of,
# and of one that has learned nothing; 1 failed; 2 usage; 75 stopped at a good checkpoint (run it again).
set -u
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../common.sh"
[ $# -ge 1 ] && [ $# -le 4 ] || { usage 5 10 >&2; exit 2; }
find_build "$1"
dir=${2:-encoder-run} text=${3:-/usr/share/dictd/gcide.dict.dz} words=${4:-/usr/share/dictd/wn.dict.dz} seed=${SEED:-1}
[ -r "$text" ] || die "cannot read $text; Debian's dict-gcide has it, another can be named as TEXT"
[ -r "$words" ] || die "cannot read $words; Debian's dict-wn has it, another can be named as DICTIONARY"
case $text in /*) ;; *) text=$PWD/$text ;; esac
case $words in /*) ;; *) words=$PWD/$words ;; esac
mkdir -p "$dir" || die "cannot make $dir"
quoted=$(printf '%s' "$text" | sed 's/[\\&|]/\\&/g')
sed "s|@TEXT@|$quoted|" "$here/pipeline.ini" >"$dir/pipeline.ini" && cd "$dir" || exit 1
times >times.txt
cpu=$(cpu_of times.txt)
[ -f data/made ] || { sh "$here/make_data.sh" "$words" data "$seed" && : >data/made; } || die "no sentences could be made of $words"

set --
for stage in words vectors; do set -- "$@" --set "stage $stage.seed=$seed"; done
"$lf" run pipeline.ini "$@" || exit $?

stage_dir() { "$lf" status -o name,dir | awk -v s="$1" '$1 == s {sub(/^[^ ]+ +/, ""); print}'; }
# How often the most frequent token of the held-out texts is there.
unigram() {
    "$lf" show shards --from tokenize --split valid --samples 100000 --show-tokens 0 --json | tr -d ' \n' | grep -o '"ids":\[[^]]*\]' |
        tr -c '0-9\n' '\n' | awk 'NF { n++; if (++count[$1] > most) most = count[$1] } END { if (n) printf "%.6f\n", most / n }'
}
# ranked: lines of values in their order; out come their ranks, the mean of them where values are the same
ranked() {
    awk '{ print NR, $1 }' | sort -k 2,2g -k 1,1n | awk '{ if (NR == 1 || $2 != value) { flush(); value = $2 } line[++m] = $1 }
        function flush(i) { for (i = 1; i <= m; i++) print line[i], done + (m + 1) / 2; done += m; m = 0 }
        END { flush() }' | sort -n | cut -d' ' -f2
}
# spearman STAGE: how well the cosines of its pairs have the order of the grades
spearman() {
    sed 's/.*"embedding": *\[\([^]]*\)\].*/\1/' "$(stage_dir "$1")/out/scores/scores.jsonl" | awk -F, '
        NR % 2 { for (i = 1; i <= NF; i++) x[i] = $i; next }
        { s = 0; for (i = 1; i <= NF; i++) s += x[i] * $i; printf "%.9f\n", s }' | ranked >cosines.txt
    ranked <data/grades.txt | paste -d' ' - cosines.txt | awk '
        NF == 2 { n++; x += $1; y += $2; xx += $1 * $1; yy += $2 * $2; xy += $1 * $2 }
        END { if (n != NR) exit 1; printf "%.6f %d\n", (n * xy - x * y) / sqrt((n * xx - x * x) * (n * yy - y * y)), n }'
    rm -f cosines.txt
}
base=$(unigram) accuracy=$(last words valid_accuracy)
nothing=$(spearman before) words=$(spearman between) vectors=$(spearman after)
times >times.txt
awk -v s="$(($(cpu_of times.txt) - cpu))" -v b="$base" -v a="$accuracy" -v x="$nothing" -v y="$words" -v z="$vectors" '
    function tell(text, value, rest) { printf "%-60s %s%s\n", text, value, rest; sub(/ %$/, "", value); printf "%s\t%s\n", text, value >"numbers" }
    BEGIN {
        if (b == "" || a == "" || split(x, u, " ") != 2 || split(y, v, " ") != 2 || split(z, w, " ") != 2) {
            print "encoder: numbers are missing in the results" > "/dev/stderr"; exit 1 }
        printf "\n"
        tell("the most frequent token of held-out texts", sprintf("%.2f %%", 100 * b), "")
        tell("hidden tokens of held-out texts that it says", sprintf("%.2f %%", 100 * a), "   10 points more are asked for")
        tell("Spearman, vectors of an encoder that has learned nothing", sprintf("%.4f", u[1]), sprintf("   %d graded pairs", u[2]))
        tell("Spearman, of the one that says hidden tokens", sprintf("%.4f", v[1]), "")
        tell("Spearman, after contrastive training", sprintf("%.4f", w[1]), "   more than both is asked for")
        printf "CPU time %dm%02ds\n", s / 60, s % 60
        exit !(a - b >= 0.1 && w[1] > u[1] && w[1] > v[1]) }' || die "the encoder has not learned what it should"

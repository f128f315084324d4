#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes an encoder-decoder from nothing with the pipeline beside it, and tells what it has learned.
#
# usage: run.sh BUILD [DIR [TEXT]]
#   BUILD  the build directory, or the prefix that loong-flow was installed below
#   DIR    where everything goes (default ./spans-run); run again with the same DIR to continue
#   TEXT   what it learns to restore (default: Debian's dict-gcide)
# With SEED=K in the environment all of it has other random numbers; ../seeds.sh does that several times. DIR/numbers has the results.
#
# Exit codes: 0 done, and it has learned: of the spans that were taken out of held-out texts it says more than three times as many,
# token for token, as the most frequent span would be right; 1 failed; 2 usage; 75 stopped at a good checkpoint (run it again).
set -u
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../common.sh"
[ $# -ge 1 ] && [ $# -le 3 ] || { usage 5 9 >&2; exit 2; }
find_build "$1"
dir=${2:-spans-run} text=${3:-/usr/share/dictd/gcide.dict.dz} seed=${SEED:-1}
[ -r "$text" ] || die "cannot read $text; Debian's dict-gcide has it, another can be named as TEXT"
case $text in /*) ;; *) text=$PWD/$text ;; esac
mkdir -p "$dir" || die "cannot make $dir"
quoted=$(printf '%s' "$text" | sed 's/[\\&|]/\\&/g')
sed "s|@TEXT@|$quoted|" "$here/pipeline.ini" >"$dir/pipeline.ini" && cd "$dir" || exit 1
times >times.txt
cpu=$(cpu_of times.txt)
mkdir -p data
[ -f data/made ] || {
    : >data/sources.jsonl # the pipeline names it
    "$lf" run pipeline.ini --set "stage restore.seed=$seed" --until tokenize || exit $?
    "$lf" show shards --from tokenize --split valid --samples 100000 --show-tokens 0 --json | sh "$here/make_data.sh" data "$seed" &&
        : >data/made
} || die "no sources could be made of $text"
"$lf" run pipeline.ini --set "stage restore.seed=$seed" || exit $?

said=$("$lf" status -o name,dir | awk '$1 == "say" {sub(/^[^ ]+ +/, ""); print}')/out/text/out.jsonl
times >times.txt
# The tokens behind each <extra_id> up to the next one, beside those that were taken out.
sed 's/.*"token_ids":\[\([0-9,]*\)\].*/\1/' "$said" | awk -v s="$(($(cpu_of times.txt) - cpu))" '
    function tell(text, value, rest) { printf "%-60s %s%s\n", text, value, rest; sub(/ %$/, "", value); printf "%s\t%s\n", text, value >"numbers" }
    NR == FNR { n = split($0, t, ","); span = -1
        for (i = 1; i <= n && t[i] != 0; i++)
            if (t[i] <= 16) span = 16 - t[i]
            else says[NR - 1, span] = says[NR - 1, span] (says[NR - 1, span] == "" ? "" : ",") t[i]
        pieces = NR
        next }
    { spans++; right += says[$1, $2] == $3; if (++count[$3] > most) most = count[$3]; last = $1 }
    END {
        if (!spans || last + 1 != pieces) { print "spans: numbers are missing in the results" > "/dev/stderr"; exit 1 }
        printf "\n"
        tell("the most frequent span of held-out texts", sprintf("%.2f %%", 100 * most / spans), sprintf("   of %d", spans))
        tell("spans of held-out texts that it says, token for token", sprintf("%.2f %%", 100 * right / spans), "   three times as many are asked for")
        printf "CPU time %dm%02ds\n", s / 60, s % 60
        exit !(right > 3 * most) }' - data/spans.txt || die "the encoder-decoder has not learned what it should"

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes the data, runs the pipeline beside it and tells what each stage has improved.
#
# usage: run.sh BUILD [DIR [DICTIONARY]]
#   BUILD       the build directory, or the prefix that loong-flow was installed below
#   DIR         where everything goes (default ./rlhf-run); run again with the same DIR to continue
#   DICTIONARY  in the form of Debian's dict-wn (default: that one)
# With SEED=K in the environment all of it has other random numbers; ../seeds.sh does that several times. DIR/numbers has the results.
#
# Exit codes: 0 done, and each stage has improved its number; 1 failed; 2 usage; 75 stopped (run it again).
set -u
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../common.sh"
[ $# -ge 1 ] && [ $# -le 3 ] || { usage 5 8 >&2; exit 2; }
find_build "$1"
words=${3:-/usr/share/dictd/wn.dict.dz}
[ -r "$words" ] || { echo "rlhf: cannot read $words; Debian's dict-wn has it, another can be named as DICTIONARY" >&2; exit 1; }
case $words in /*) ;; *) words=$PWD/$words ;; esac
dir=${2:-rlhf-run}
mkdir -p "$dir" && cp "$here/pipeline.ini" "$dir/" && cd "$dir" || exit 1
[ -f data/ask.jsonl ] || sh "$here/make_data.sh" "$words" data || { echo "rlhf: no data could be made of $words" >&2; exit 1; }

seed=${SEED:-1}
set --
for stage in pretrain sft rm dpo ppo; do set -- "$@" --set "stage $stage.seed=$seed"; done
"$lf" run pipeline.ini "$@" --set "stage before.seed=$((seed + 1))" || exit $?
awk -v sft0="$(first sft valid_loss)" -v sft1="$(last sft valid_loss)" -v rm0="$(first rm valid_loss)" -v rm1="$(last rm valid_loss)" \
    -v dpo0="$(first dpo valid_loss)" -v dpo1="$(last dpo valid_loss)" -v acc="$(last score pair_accuracy)" -v accs="$(last score pair_accuracy_stderr)" \
    -v b="$(last before score)" -v bs="$(last before score_std)" -v a="$(last after score)" -v as="$(last after score_std)" 'BEGIN {
    if (sft1 == "" || acc == "" || dpo1 == "" || b == "" || a == "") { print "rlhf: numbers are missing in the metrics" > "/dev/stderr"; exit 1 }
    e = sqrt((bs * bs + as * as) / 400)
    printf "\n%-58s %7.3f -> %.3f\n", "sft: loss of definitions that were held back", sft0, sft1
    printf "%-58s %7.3f (standard error %.3f; 0.5 is chance)\n", "rm: right about unseen pairs", acc, accs
    printf "%-58s %7.3f -> %.3f (%.3f before)\n", "dpo: loss of pairs that were held back", dpo0, dpo1, log(2)
    printf "%-58s %7.3f -> %.3f (standard error of the difference %.3f)\n", "ppo: reward of definitions of unseen words", b, a, e
    printf "sft loss before\t%.4f\nsft loss\t%.4f\nrm accuracy\t%.4f\ndpo loss\t%.4f\n", sft0, sft1, acc, dpo1 >"numbers"
    printf "reward before ppo\t%.4f\nreward after ppo\t%.4f\n", b, a >"numbers"
    exit !(sft1 < sft0 && acc - 0.5 > 3 * accs && dpo1 < log(2) && a - b > 3 * e) }' || { echo "rlhf: a stage has not improved its number" >&2; exit 1; }

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A head that predicts the token behind the next one: trained with the model, it guesses while the model generates.
#
# usage: run.sh BUILD [--text FILE] [--dir DIR] [--set SECTION.KEY=VALUE ...]
#   BUILD   the build directory, or the prefix that loong-flow was installed below
#   --text  a text of some ten kilobytes or more (default: settings of the examples and of the models beside them)
#   --dir   where everything goes (default ./later-tokens-run); run again with the same DIR to continue
#   --set   a setting over the pipeline file, given to `loong-flow run`
#
# Exit codes: 0 the texts are the same and more than half of the guesses right, 1 failed, 2 usage, 75 stopped (run it again).
set -u
{ # read as a whole before it runs: the file may change meanwhile
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../common.sh"

build= text= dir=later-tokens-run sets=
while [ $# -gt 0 ]; do
    case $1 in
    --text | --dir | --set)
        [ $# -ge 2 ] || { usage 5 9 >&2; exit 2; }
        case $1 in --text) text=$2 ;; --dir) dir=$2 ;; --set) sets="$sets
$2" ;; esac
        shift
        ;;
    -h | --help) usage 5 9; exit 0 ;;
    -*) echo "later-tokens: unknown option $1" >&2; usage 5 9 >&2; exit 2 ;;
    *)
        [ -z "$build" ] || { usage 5 9 >&2; exit 2; }
        build=$1
        ;;
    esac
    shift
done
[ -n "$build" ] || { usage 5 9 >&2; exit 2; }
find_build "$build"

[ -z "$text" ] || [ -r "$text" ] || die "--text: $text cannot be read"
mkdir -p "$dir" || die "cannot make $dir"
if [ ! -f "$dir/text.txt" ]; then
    if [ -n "$text" ]; then cat "$text"; else cat "$here"/../*/pipeline.ini "$LF_MODELS_DIR"/*.ini; fi >"$dir/text.txt.new" &&
        mv "$dir/text.txt.new" "$dir/text.txt" || die "no text"
    # Every so many lines one of some length becomes a prompt; what JSON would write otherwise is left out.
    awk 'length($0) > 30 && $0 !~ /["\\\t]/ && n++ % 9 == 0 && id < 40 {
        printf "{\"id\": \"%d\", \"prompt\": \"%s\\n\"}\n", ++id, $0 }' "$dir/text.txt" >"$dir/prompts.jsonl"
    [ -s "$dir/prompts.jsonl" ] || die "the text has no lines of more than 30 characters"
fi
cp "$here/pipeline.ini" "$dir/pipeline.ini" || exit 1
cd "$dir" || exit 1
times >times.txt
cpu=$(cpu_of times.txt)

# Settings are one per line; a value may hold blanks.
set --
old_ifs=$IFS
IFS='
'
for s in $sets; do set -- "$@" --set "$s"; done
IFS=$old_ifs
"$lf" run "$@"
status=$?
[ $status -ne 75 ] || { echo "later-tokens: stopped; the same command continues"; exit 75; }
[ $status -eq 0 ] || die "the run is not complete (exit status $status)"

stage_dir() { "$lf" status -o name,dir | awk -v s="$1" '$1 == s {sub(/^[^ ]+ +/, ""); print}'; }
number() { tr -d ' \n' <"$1" | sed -n "s/.*\"$2\":\([0-9][0-9]*\).*/\1/p"; }
plain=$(stage_dir plain)/out/text guessed=$(stage_dir guessed)/out/text
cmp "$plain/out.jsonl" "$guessed/out.jsonl" || die "the texts with guesses are others than those without"
drafted=$(number "$guessed/manifest.json" drafted_this_run) accepted=$(number "$guessed/manifest.json" accepted_this_run)
[ -n "$drafted" ] && [ -n "$accepted" ] || die "the manifest of $guessed does not tell of guesses"
times >times.txt
echo
echo "== a head that predicts the token behind the next one"
printf '%-46s %8.3f\n' "loss of the next token, last step" "$(last train loss)"
printf '%-46s %8.3f\n' "loss of the token behind it" "$(last train mtp1_loss)"
printf '%-46s %8.3f\n' "share of these that it finds, in training" "$(last train mtp1_accuracy)"
awk -v d="$drafted" -v a="$accepted" -v n="$(wc -l <prompts.jsonl)" 'BEGIN {
    printf "%-46s %8d   in %d texts, which are those without guesses\n", "guesses while generating", d, n
    printf "%-46s %7.1f %%   more than 50 are asked for\n", "of them right", 100 * a / d }'
printf '%-46s %8s   CPU time\n' "all of it" "$(minutes $(($(cpu_of times.txt) - cpu)))"
rm -f times.txt
[ $((2 * accepted)) -gt "$drafted" ] || die "no more than half of the guesses are right"
exit 0
}

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# From real English text to a trained, evaluated model on this machine, with a table at the end.
#
# usage: run.sh BUILD [--text PATH] [--dir DIR] [--set SECTION.KEY=VALUE ...]
#   BUILD   the build directory, or the prefix that loong-flow was installed below
#   --text  any text: a file, a directory, an archive, .jsonl; compressed or not (default: a dictionary, see below)
#   --dir   where everything goes (default ./quickstart-run); run again with the same DIR to continue
#   --set   a setting over the pipeline file, given to `loong-flow plan` and `loong-flow run`
#
# Exit codes: 0 done and the model has learned, 1 failed, 2 usage, 75 stopped at a good checkpoint (run it again).
set -u
{ # read as a whole before it runs: the file may change meanwhile
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../common.sh"

build= text= dir=quickstart-run sets=
while [ $# -gt 0 ]; do
    case $1 in
    --text | --dir | --set)
        [ $# -ge 2 ] || { usage 5 9 >&2; exit 2; }
        case $1 in --text) text=$2 ;; --dir) dir=$2 ;; --set) sets="$sets
$2" ;; esac
        shift
        ;;
    -h | --help) usage 5 9; exit 0 ;;
    -*) echo "quickstart: unknown option $1" >&2; usage 5 9 >&2; exit 2 ;;
    *)
        [ -z "$build" ] || { usage 5 9 >&2; exit 2; }
        build=$1
        ;;
    esac
    shift
done
[ -n "$build" ] || { usage 5 9 >&2; exit 2; }
find_build "$build"

# One file of the documentation texts of this system, when they are enough to learn from.
collect_docs() {
    echo "quickstart: no dictionary here (Debian: apt-get install dict-gcide); collecting texts from /usr/share/doc"
    find /usr/share/doc -type f -size +1k \( -name '*.txt' -o -name '*.txt.gz' -o -name 'README*' -o -name 'NEWS*' \
        -o -name 'changelog*' -o -name 'FAQ*' \) 2>/dev/null | sort | while read -r f; do
        case $f in *.gz) gzip -dc "$f" 2>/dev/null ;; *.html | *.pdf | *.png) ;; *) cat "$f" ;; esac
    done | head -c 33554432 >"$1.tmp"
    bytes=$(wc -c <"$1.tmp")
    [ "$bytes" -ge 4194304 ] && mv "$1.tmp" "$1" && return
    rm -f "$1.tmp"
    die "only $bytes bytes of text found under /usr/share/doc; at least 4 MB are needed. Install dict-gcide (Debian), or give --text PATH"
}

if [ -n "$text" ]; then
    [ -e "$text" ] || die "--text: $text does not exist"
    text=$(cd "$(dirname "$text")" && pwd)/$(basename "$text")
fi
mkdir -p "$dir" || die "cannot make $dir"
dir=$(cd "$dir" && pwd)
cd "$dir" || exit 1
[ -n "${LF_BUILD_TIME:-}" ] || forecast 0
clock=$(date +%s)
times >times.txt
cpu=$(cpu_of times.txt)
if [ ! -f pipeline.ini ] || [ -n "$text" ]; then
    for t in /usr/share/dictd/gcide.dict.dz /usr/share/dictd/wn.dict.dz; do
        [ -n "$text" ] || [ ! -r "$t" ] || text=$t
    done
    [ -n "$text" ] || text=$dir/texts.txt
    [ "$text" != "$dir/texts.txt" ] || [ -f "$text" ] || collect_docs "$text"
    quoted=$(printf '%s' "$text" | sed 's/[\\&|]/\\&/g')
    sed "s|@TEXT@|$quoted|" "$here/pipeline.ini" >pipeline.ini.new && mv pipeline.ini.new pipeline.ini || exit 1
fi
echo "quickstart: text $(sed -n 's/^text = //p' pipeline.ini), everything goes to $dir"

# Settings are one per line; a value may hold blanks.
set --
old_ifs=$IFS
IFS='
'
for s in $sets; do set -- "$@" --set "$s"; done
IFS=$old_ifs

echo
echo "== loong-flow plan"
"$lf" plan "$@" || exit
echo
echo "== loong-flow run"
"$lf" run "$@"
status=$?
[ $status -ne 75 ] || { echo "quickstart: stopped; the same command continues"; exit 75; }

echo
echo "== loong-flow status"
"$lf" status -o name,state,step,steps,time_text || exit 1
[ $status -eq 0 ] || die "the run is not complete (exit status $status); \`$lf logs\` in $dir has the details, the same command continues"

# Where a stage lies, and one number of a JSON file that is written on one line.
stage_dir() { "$lf" status -o name,dir | awk -v s="$1" '$1 == s {sub(/^[^ ]+ +/, ""); print}'; }
number() { tr -d ' \n' <"$1" | sed -n "s/.*$2\(-\{0,1\}[0-9][0-9.eE+-]*\).*/\1/p"; }
need() { [ -n "$2" ] || die "$1 is missing in the results"; }

tok=$(stage_dir tokenize) train=$(stage_dir train) gen=$(stage_dir generate) ev=$(stage_dir eval)
manifest=$tok/out/shards/manifest.json
h_train=$(number "$manifest" '"train":{[^}]*"unigram_entropy":')
h_valid=$(number "$manifest" '"valid":{[^}]*"unigram_entropy":')
bpb=$(number "$ev/out/results/results.json" '"bits_per_byte,none":')
need "the unigram entropy of the text" "$h_train"
need "the unigram entropy of the validation texts" "$h_valid"
need "bits per byte of the evaluation" "$bpb"

echo
echo "== what it learned"
"$lf" metrics train --format csv --key loss --key valid_loss --key tokens_per_s --key step_s --key ln_vocab >metrics.csv || exit 1
awk -F, -v h_train="$h_train" -v h_valid="$h_valid" -v bpb="$bpb" '
    NR == 1 { next }
    first == "" { first = $2; ln_vocab = $6 }
    { last = $2; step = $1 }
    $3 != "" { valid = $3 }
    $5 > 0 { tokens += $4 * $5; seconds += $5 }
    END {
        if (valid == "") { print "quickstart: no validation loss in the metrics" > "/dev/stderr"; exit 1 }
        h = h_train < h_valid ? h_train : h_valid
        printf "%-46s %8.3f   ln(vocabulary) = %.3f\n", "loss of the first step, nats a token", first, ln_vocab
        printf "%-46s %8.3f   step %d\n", "loss of the last step", last, step
        printf "%-46s %8.3f\n", "validation loss", valid
        printf "%-46s %8.3f   train %.3f, validation %.3f\n", "unigram entropy of the text, nats a token", h, h_train, h_valid
        printf "%-46s %8.3f   at least 1.0 is asked for\n", "  the model is better by", h - valid
        printf "%-46s %8.3f   a byte of plain text is 8\n", "evaluation, bits per byte", bpb
        printf "%-46s %8.0f\n", "training, tokens per second", (seconds > 0 ? tokens / seconds : 0)
        exit !(h - valid >= 1.0)
    }' metrics.csv
learned=$?

# The samples, one a line, behind their prompts; JSON escapes resolved.
echo
echo "== what it writes ($gen/out/text/out.jsonl)"
awk '
    FILENAME == "pipeline.ini" && /^prompt *=/ { sub(/^prompt *= */, ""); prompt[++n] = $0; more = 1; next }
    FILENAME == "pipeline.ini" { if (more && /^ /) { sub(/^ +/, ""); prompt[++n] = $0 } else more = 0; next }
    match($0, /"text": *"([^"\\]|\\.)*"/) {
        t = substr($0, RSTART, RLENGTH); sub(/^"text": *"/, "", t); sub(/"$/, "", t)
        gsub(/\\[nrt]/, " ", t); gsub(/\\"/, "\"", t); gsub(/\\\\/, "\\", t); gsub(/ +/, " ", t)
        printf "  %s |%s\n", prompt[FNR], t
    }' pipeline.ini "$gen/out/text/out.jsonl"

echo
echo "== how long it took"
took() { printf '  %-36s %8s   CPU time %s\n' "$1" "$(minutes "$2")" "$(minutes "$3")"; }
# autogen.sh has measured its build: seconds by the clock and of CPU time
# shellcheck disable=SC2086
[ -z "${LF_BUILD_TIME:-}" ] || took build $LF_BUILD_TIME
times >times.txt
took "tokenize, train, generate, eval" $(($(date +%s) - clock)) $(($(cpu_of times.txt) - cpu))
rm -f times.txt

cat <<EOF

== where things are
  pipeline       $dir/pipeline.ini
  tokenizer      $tok/out/tokenizer/tokenizer.json
  shards         $tok/out/shards
  checkpoint     $train/out/checkpoint
  results        $ev/out/results/results.json
  loss curve     $dir/metrics.csv

== what to try next (in $dir, with $build in PATH${LF_MODELS_DIR:+ and LF_MODELS_DIR=$LF_MODELS_DIR})
  loong-flow metrics train --format plot --key loss     the loss curve
  loong-flow report                                     one HTML page about the run
  edit [stage train] (steps, lr) or [model] in pipeline.ini, then loong-flow plan, loong-flow run:
                                                        only what the change touches runs again
EOF
[ $learned -eq 0 ] || die "the validation loss is not 1.0 nat below the unigram entropy of the text"
exit 0
}

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Continued pretraining in another language on this machine, with bits per byte before and after at the end.
#
# usage: run.sh BUILD [--old PATH] [--new PATH] [--dir DIR] [--set SECTION.KEY=VALUE ...]
#   BUILD   the build directory, or the prefix that loong-flow was installed below
#   --old   text of the old language (default: a dictionary, else the texts below /usr/share/doc)
#   --new   text of the new language (default: the German manual pages of this system; where there are none, a made-up
#           language: the old text's words written backwards in Cyrillic letters)
#   --dir   where everything goes (default ./continue-run); run again with the same DIR to continue
#   --set   a setting over the pipeline file, given to `loong-flow plan` and `loong-flow run`
#
# Exit codes: 0 done and the model has learned the new language, 1 failed, 2 usage, 75 stopped (run it again).
set -u
{ # read as a whole before it runs: the file may change meanwhile
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../common.sh"

build= old= new= dir=continue-run sets=
while [ $# -gt 0 ]; do
    case $1 in
    --old | --new | --dir | --set)
        [ $# -ge 2 ] || { usage 5 11 >&2; exit 2; }
        case $1 in --old) old=$2 ;; --new) new=$2 ;; --dir) dir=$2 ;; --set) sets="$sets
$2" ;; esac
        shift
        ;;
    -h | --help) usage 5 11; exit 0 ;;
    -*) echo "continue-pretrain: unknown option $1" >&2; usage 5 11 >&2; exit 2 ;;
    *)
        [ -z "$build" ] || { usage 5 11 >&2; exit 2; }
        build=$1
        ;;
    esac
    shift
done
[ -n "$build" ] || { usage 5 11 >&2; exit 2; }
find_build "$build"

whole() { # whole OPTION PATH: an absolute path of something that exists
    [ -e "$2" ] || die "$1: $2 does not exist"
    echo "$(cd "$(dirname "$2")" && pwd)/$(basename "$2")"
}
enough() { [ -f "$1" ] && [ "$(wc -c <"$1")" -ge "$2" ]; }
# Text of the manual pages of language $1, without the marks of their typesetter.
manual_pages() {
    find "/usr/share/man/$1" -name '*.gz' 2>/dev/null | sort | while read -r f; do gzip -dc "$f" 2>/dev/null; done |
        sed "/^[.']/d; s/\\\\f[A-Z]//g; s/\\\\f([A-Z][A-Z]//g; s/\\\\[-&|]//g; s/\\\\(co//g" | grep -v '^ *$' | head -c 2000000
}
documentation() {
    find /usr/share/doc -type f -size +1k \( -name '*.txt' -o -name '*.txt.gz' -o -name 'README*' -o -name 'NEWS*' \
        -o -name 'changelog*' -o -name 'copyright' \) 2>/dev/null | sort | while read -r f; do
        case $f in *.gz) gzip -dc "$f" 2>/dev/null ;; *.html | *.pdf | *.png) ;; *) cat "$f" ;; esac
    done | head -c 4000000
}
# A made-up language: every word of the text backwards, each letter as a Cyrillic one.
invented() {
    tr 'A-Z' 'a-z' | awk 'BEGIN {
            n = split("а б ц д е ф г х и ж к л м н о п я р с т у в ш ч ы з", to, " ")
            for (i = 1; i <= n; i++) map[substr("abcdefghijklmnopqrstuvwxyz", i, 1)] = to[i] }
        { out = ""; word = ""
          for (i = 1; i <= length($0); i++) { c = substr($0, i, 1)
              if (c in map) word = map[c] word; else { out = out word c; word = "" } }
          print out word }' | head -c 3000000
}

[ -z "$old" ] || old=$(whole --old "$old") || exit 1
[ -z "$new" ] || new=$(whole --new "$new") || exit 1
mkdir -p "$dir" || die "cannot make $dir"
dir=$(cd "$dir" && pwd)
cd "$dir" || exit 1
if [ ! -f pipeline.ini ] || [ -n "$old$new" ]; then
    if [ -z "$old" ]; then
        old=$dir/old.txt
        if [ -r /usr/share/dictd/gcide.dict.dz ]; then gzip -dc </usr/share/dictd/gcide.dict.dz | head -c 4000000 >"$old"
        elif [ -r /usr/share/dictd/wn.dict.dz ]; then gzip -dc </usr/share/dictd/wn.dict.dz | head -c 4000000 >"$old"
        else documentation >"$old"; fi
        enough "$old" 1000000 ||
            die "too little text on this system (dict-gcide is a package with some); give --old PATH and --new PATH"
    fi
    if [ -z "$new" ]; then
        new=$dir/new.txt
        manual_pages de >"$new"
        if ! enough "$new" 1000000; then
            echo "continue-pretrain: few German manual pages here; making a language up"
            if [ -f "$old" ]; then invented <"$old" >"$new"; else die "--old is no plain file; give --new PATH too"; fi
        fi
    fi
    cp "$here/old.ini" "$here/new.ini" . || exit 1
    q() { printf '%s' "$1" | sed 's/[\\&|]/\\&/g'; }
    sed "s|@OLD@|$(q "$old")|; s|@NEW@|$(q "$new")|" "$here/pipeline.ini" >pipeline.ini.new && mv pipeline.ini.new pipeline.ini || exit 1
fi
sed -n 's/^old = /continue-pretrain: old text /p; s/^new = /continue-pretrain: new text /p' pipeline.ini

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
[ $status -ne 75 ] || { echo "continue-pretrain: stopped; the same command continues"; exit 75; }
[ $status -eq 0 ] || die "the run is not complete (exit status $status); \`$lf logs\` in $dir has the details, the same command continues"

stage_dir() { "$lf" status -o name,dir | awk -v s="$1" '$1 == s {sub(/^[^ ]+ +/, ""); print}'; }
number() { tr -d ' \n' <"$1" | sed -n "s/.*$2\(-\{0,1\}[0-9][0-9.eE+-]*\).*/\1/p"; }
bits() { number "$(stage_dir "$1")/out/results/results.json" '"bits_per_byte,none":'; }
report=$(stage_dir grow)/out/report/report.json

echo
echo "== the new language (a byte of plain text is 8 bits)"
awk -v b="$(bits eval-before)" -v g="$(bits eval-grown)" -v a="$(bits eval-after)" \
    -v tb="$(number "$report" '"tokens_per_byte_before":')" -v ta="$(number "$report" '"tokens_per_byte_after":')" 'BEGIN {
    if (b == "" || g == "" || a == "") { print "continue-pretrain: bits per byte are missing in the results" > "/dev/stderr"; exit 1 }
    printf "%-52s %8.4f\n", "tokens a byte, old vocabulary", tb
    printf "%-52s %8.4f\n", "tokens a byte, grown vocabulary", ta
    printf "%-52s %8.3f\n", "bits per byte, old model", b
    printf "%-52s %8.3f\n", "bits per byte, grown, not yet trained", g
    printf "%-52s %8.3f   at most 0.8 of the old is asked for\n", "bits per byte, after training", a
    exit !(a <= 0.8 * b) }'
learned=$?
cat <<END

== where things are
  pipeline       $dir/pipeline.ini
  growth         $(stage_dir grow)/out/tokenizer/growth.json (new ids and what they are made of)
  checkpoint     $(stage_dir new-model)/out/checkpoint
END
[ $learned -eq 0 ] || die "the model has not learned the new language"
exit 0
}

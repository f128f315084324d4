#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The option table of a stage, its --help and its man page say the same, and every option is read by the stage's sources.
set -u
LC_ALL=C
export LC_ALL
src=${LF_SRCDIR:-.} build=${LF_BUILDDIR:-.}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
n=0 bad=0
result() { # $1: 0 = ok, $2: name, $3: findings
    n=$((n + 1))
    if [ "$1" -eq 0 ]; then echo "ok $n - $2"; else
        echo "not ok $n - $2"
        bad=1
        printf '%s\n' "$3" | sed 's/^/# /'
    fi
}
none() { result "$([ -z "$2" ]; echo $?)" "$1" "$2"; }

# Names in the rows of table $1; the rows that all tables share stand in opts.h, those of training stages in train_opts.h.
rows() { grep -o '\.name = "[a-z0-9_]*"' | sed 's/.*"\(.*\)"/\1/'; }
table() {
    { rows <"$1"
        for _rows in $(grep -o 'LF_TRAIN_[A-Z]*_ROWS' "$1"); do
            sed -n "/^#define $_rows/,/[^\\\\]\$/p" "$src/stages/train_opts.h" | rows
        done
        rows <"$src/stages/opts.h"; } | sort
}
# Names in --help $1.
help_names() { sed -n 's/^  --\(\[no-\]\)\{0,1\}\([a-z0-9-]*\).*/\2/p' "$1" | tr - _ | sort; }
# Names in section OPTIONS of man page $1; --no-NAME is not a name of its own.
page_names() {
    sed -n '/^\.SH OPTIONS/,/^\.SH EXIT/p' "$1" | grep -A1 '^\.TP' | grep -o '\\fB\\-\\-[a-z0-9\\-]*\\fR' |
        sed 's/\\fB\\-\\-//; s/\\fR//; s/\\-/-/g' | grep -v '^no-' | tr - _ | sort
}
# "name default" of --help $1 and of man page $2; the word default comes last but for the class.
help_defaults() {
    tr '\n' ' ' <"$1" | sed 's/  --/\n--/g' |
        sed -n 's/^--\(\[no-\]\)\{0,1\}\([a-z0-9-]*\).*; default \([^)]*\)).*/\2 \3/p; t
            s/^--\(\[no-\]\)\{0,1\}\([a-z0-9-]*\).*(default \([^)]*\)).*/\2 \3/p' | sort
}
page_defaults() {
    sed -n '/^\.SH OPTIONS/,/^\.SH EXIT/p' "$1" | sed 's/\\-/-/g' | awk '
        /^\.TP/ { getline; name = $0; sub(/^\\fB--/, "", name); sub(/\\fR.*/, "", name) }
        match($0, /default [^,)]*/) { print name, substr($0, RSTART + 8, RLENGTH - 8) }' | sort
}
unread() { # names of file $1 that no source in the rest of the arguments has as a text
    names=$1
    shift
    while read -r o; do cat "$@" | grep -q "\"$o\"" || echo "$o"; done <"$names"
}
differ() { comm -3 "$1" "$2" | sed 's/^\t/only in the second: /; t; s/^/only in the first: /'; }

for t in "$src"/stages/*_opts.c; do
    kind=$(basename "$t" _opts.c)
    [ "$kind" != all ] || continue
    page=$src/stages/lf-$kind.1
    table "$t" >"$tmp/table"
    [ "$(wc -l <"$tmp/table")" -gt 11 ]
    result $? "$kind: the table was read" "$(cat "$tmp/table")"
    "$build/stages/lf-$kind" --help >"$tmp/help"
    result $? "$kind: --help" ""
    help_names "$tmp/help" >"$tmp/h"
    page_names "$page" >"$tmp/p"
    none "$kind: the table and --help" "$(differ "$tmp/table" "$tmp/h")"
    none "$kind: the table and the man page" "$(differ "$tmp/table" "$tmp/p")"
    help_defaults "$tmp/help" >"$tmp/hd"
    page_defaults "$page" >"$tmp/pd"
    [ -s "$tmp/hd" ] && none "$kind: defaults in --help and in the man page" "$(differ "$tmp/hd" "$tmp/pd")"
    found=
    for s in NAME SYNOPSIS DESCRIPTION OPTIONS 'EXIT STATUS' FILES EXAMPLES 'SEE ALSO'; do
        grep -q "^\.SH $s\$" "$page" || found="$found $s;"
    done
    none "$kind: sections of the man page" "$found"
    none "$kind: every option is read" \
        "$(unread "$tmp/table" $(ls "$src/stages/$kind"*.c | grep -v _opts.c) "$src/stages/stage.c" "$src/stages/infer_common.c" "$src/stages/train_common.c")"
done

# The checks see what is planted.
cp "$tmp/table" "$tmp/more"
echo no_such_option >>"$tmp/more"
sort -o "$tmp/more" "$tmp/more"
[ "$(differ "$tmp/table" "$tmp/more")" = "only in the second: no_such_option" ] &&
    [ "$(differ "$tmp/more" "$tmp/table")" = "only in the first: no_such_option" ] &&
    [ "$(unread "$tmp/more" "$src"/stages/*[a-z].c)" = no_such_option ]
result $? "a planted option is noticed" "$(differ "$tmp/table" "$tmp/more")"
sed 's/default 0/default 7/' "$tmp/pd" >"$tmp/x"
sed 's/ 0$/ 7/' "$tmp/pd" >"$tmp/pd7"
[ -n "$(differ "$tmp/hd" "$tmp/pd7")" ]
result $? "a planted default is noticed" ""

if command -v mandoc >/dev/null 2>&1; then
    # Pages carry no date: a build gives the same bytes on any day.
    none "mandoc has no warning about a man page" "$(mandoc -Tlint -W warning "$src"/stages/*.1 "$build"/flow/*.1 2>&1 | grep -v 'missing date')"
else
    n=$((n + 1))
    echo "ok $n - mandoc has no warning about a man page # SKIP no mandoc"
fi
echo "1..$n"
exit $bad

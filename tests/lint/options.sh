#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The man page of a stage is its prose with what the option table says in between, --help has every option of it, and every
# option fills a member or is read by the stage's sources.
. "${LF_SRCDIR:-.}/tests/lint/lib.sh"
LC_ALL=C
export LC_ALL

# Names in --help $1.
help_names() { sed -n 's/^  --\(\[no-\]\)\{0,1\}\([a-z0-9-]*\).*/\2/p' "$1" | tr - _ | sort; }
# Names in section OPTIONS of man page $1; --no-NAME is not a name of its own.
page_names() {
    sed -n '/^\.SH OPTIONS/,/^\.SH EXIT/p' "$1" | grep -A1 '^\.TP' | grep -o '^\\fB\\-\\-[a-z0-9\\-]*\\fR' |
        sed 's/\\fB\\-\\-//; s/\\fR//; s/\\-/-/g' | tr - _ | sort
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
    page=$build/stages/lf-$kind.1
    "$build/stages/lf-$kind" --help >"$tmp/help"
    ok $? "$kind: --help"
    help_names "$tmp/help" >"$tmp/h"
    page_names "$page" >"$tmp/p"
    none "$kind: --help and the man page" "$(differ "$tmp/h" "$tmp/p")"
    "$build/loong-flow" completion man "$kind" >"$tmp/part"
    awk -v part="$tmp/part" '$0 == "@OPTIONS@" { while ((getline line < part) > 0) print line; next } { print }' \
        "$src/stages/lf-$kind.1.in" >"$tmp/want"
    cmp -s "$tmp/want" "$page"
    ok $? "$kind: the built man page is what loong-flow prints between its prose"
    found=
    for s in NAME SYNOPSIS DESCRIPTION OPTIONS 'EXIT STATUS' FILES EXAMPLES 'SEE ALSO'; do
        grep -q "^\.SH $s\$" "$page" || found="$found $s;"
    done
    none "$kind: sections of the man page" "$found"
    "$build/tests/unit/stage_opts" --by-name "$kind" >"$tmp/byname"
    ok $? "$kind: options that fill no member"
    none "$kind: every option is read" \
        "$(unread "$tmp/byname" $(ls "$src/stages/$kind"*.c | grep -v _opts.c) "$src/stages/stage.c" "$src/stages/infer_common.c" "$src/stages/infer_ranks.c" "$src/stages/train_common.c")"
done

# The checks see what is planted.
sort "$tmp/byname" >"$tmp/h"
{ cat "$tmp/h"; echo no_such_option; } | sort >"$tmp/more"
[ "$(differ "$tmp/h" "$tmp/more")" = "only in the second: no_such_option" ] &&
    [ "$(differ "$tmp/more" "$tmp/h")" = "only in the first: no_such_option" ] &&
    [ "$(unread "$tmp/more" "$src"/stages/*[a-z].c)" = no_such_option ]
ok $? "a planted option is noticed" "$(differ "$tmp/h" "$tmp/more")"

if command -v mandoc >/dev/null 2>&1; then
    # Pages carry no date: a build gives the same bytes on any day.
    none "mandoc has no warning about a man page" "$(mandoc -Tlint -W warning "$build"/stages/*.1 "$build"/flow/*.1 2>&1 | grep -v 'missing date')"
else
    skip "mandoc has no warning about a man page" "no mandoc"
fi
finish 74

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The figure of docs/architecture.md: every folder with sources stands in it once, and whatever
# layers.sh allows a folder to include stands in a lower row.
. "${LF_SRCDIR:-.}/tests/lint/lib.sh"
eval "$(sed -n '/^allowed() {/,/^}/p' "$src/tests/lint/layers.sh")"

# rows PAGE: lines "ROW FOLDER" of the figure; ROW grows downwards.
rows() {
    awk '/^## / { here = $0 == "## The figure" } /^```/ { code = !code; next }
        here && code && /^\|/ {
            row++
            for (i = 1; i <= NF; i++)
                if ($i ~ /^[a-z0-9_\/]+\/$/) { sub(/\/$/, "", $i); print row, $i }
        }' "$1"
}
# findings PAGE: what is wrong with its figure.
findings() {
    rows "$1" >"$tmp/rows"
    cut -d' ' -f2 "$tmp/rows" | sort | uniq -d | sed 's/$/ stands in the figure twice/'
    (cd "$src" && find engine kernels db flow stages -name '*.c' -o -name '*.cu') |
        sed 's/\/[^/]*$//' | sort -u | while read -r d; do
            p=$d
            while [ "$p" != . ] && ! grep -q " $p\$" "$tmp/rows"; do p=$(dirname "$p"); done
            [ "$p" != . ] || echo "$d has sources and is not in the figure"
        done
    while read -r row f; do
        [ -d "$src/$f" ] || echo "$f is in the figure and nowhere else"
        for a in $(allowed "$f"); do
            case $a in *.h) a=$(dirname "$a") ;; esac
            awk -v row="$row" -v f="$f" -v a="$a" '
                $2 == f || index(f, $2 "/") == 1 { next } # itself, or the folder of this room
                $2 == a || index($2, a "/") == 1 {
                    seen = 1
                    if ($1 <= row) print f " may include " $2 ", which is not below it"
                }
                END { if (!seen && a != f) print f " may include " a ", not in the figure" }' \
                "$tmp/rows"
        done
    done <"$tmp/rows"
}

page=$src/docs/architecture.md
none "the figure was found" "$([ "$(rows "$page" | wc -l)" -ge 20 ] || rows "$page")"
none "the figure agrees with the folders and with layers.sh" "$(findings "$page")"

# The check sees what is planted.
sed 's/^| flow\/run\/ /| flow\/ran\/ /; s/engine\/base\//engine\/bass\//' "$page" >"$tmp/page.md"
findings "$tmp/page.md" >"$tmp/found"
grep -q '^flow/ran is in the figure and nowhere else' "$tmp/found" &&
    grep -q '^engine/base has sources' "$tmp/found"
none "a folder that is missing or made up is seen" "$([ $? -eq 0 ] || findings "$tmp/page.md")"
sed 's|engine/graph/|engine/XX|; s|engine/store/|engine/graph/|; s|engine/XX|engine/store/|' \
    "$page" >"$tmp/page.md"
[ "$(findings "$tmp/page.md")" = "engine/graph may include engine/back, which is not below it
engine/graph may include kernels, which is not below it" ]
none "two folders in each other's places are seen" "$([ $? -eq 0 ] || findings "$tmp/page.md")"
finish 4

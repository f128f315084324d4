#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Words that docs/GLOSSARY.md gave up do not come back, and all of our environment variables begin with LF_.
set -u
src=${LF_SRCDIR:-.}
n=0 bad=0
result() { # $1: 0 = ok, $2: name, $3: findings
    n=$((n + 1))
    if [ "$1" -eq 0 ]; then echo "ok $n - $2"; else
        echo "not ok $n - $2"
        bad=1
        printf '%s\n' "$3" | head -n 40 | sed 's/^/# /'
    fi
}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
# Lines of tree $1 with an old word: whole words only, without the member of JSON that keeps its name.
given_up() {
    (cd "$1" && find engine kernels db flow stages tests docs examples templates packaging README.md CONTRIBUTING.md -type f \
        \( -name '*.[ch]' -o -name '*.cu' -o -name '*.sh' -o -name '*.md' -o -name '*.in' -o -name '*.ini' \) 2>/dev/null |
        grep -v 'docs/GLOSSARY\.md' | xargs grep -niE 'incarnation' /dev/null | grep -vE '"incarnations"|tests/lint/words\.sh')
}
# Environment variables of the product with another prefix; env.c has the names of before.
strangers() {
    (cd "$1" && find engine kernels db flow stages -name '*.[ch]' 2>/dev/null |
        xargs grep -nE '"(LOONG|LFLOW|LOONGFLOW)_[A-Z]' /dev/null | grep -vE '^(engine/base/env|flow/sched/pbs_parse)\.c:')
}
mkdir -p "$tmp/flow"
printf '/* One incarnation. */\njson("incarnations");\nconst char *v = getenv("LOONG_NEW");\n' >"$tmp/flow/planted.c"
found=$(given_up "$src")
result "$([ -z "$found" ]; echo $?)" "a start is called a start" "$found"
result "$([ "$(given_up "$tmp" | cut -d: -f1,2)" = flow/planted.c:1 ]; echo $?)" "a planted word is seen" "$(given_up "$tmp")"
found=$(strangers "$src")
result "$([ -z "$found" ]; echo $?)" "environment variables begin with LF_" "$found"
result "$([ "$(strangers "$tmp" | cut -d: -f1,2)" = flow/planted.c:3 ]; echo $?)" "a planted one is seen" "$(strangers "$tmp")"
ok() { result "$1" "$2" ""; }
. "$src/tests/tap/plan.sh"
plan 4
exit $bad

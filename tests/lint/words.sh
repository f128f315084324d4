#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Words that docs/GLOSSARY.md gave up do not come back, and all of our environment variables begin with LF_.
. "${LF_SRCDIR:-.}/tests/lint/lib.sh"
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
plant flow/planted.c '/* One incarnation. */\njson("incarnations");\nconst char *v = getenv("LOONG_NEW");\n'
found=$(given_up "$src")
none "a start is called a start" "$found"
is "$(given_up "$tmp" | cut -d: -f1,2)" flow/planted.c:1 "a planted word is seen"
found=$(strangers "$src")
none "environment variables begin with LF_" "$found"
is "$(strangers "$tmp" | cut -d: -f1,2)" flow/planted.c:3 "a planted one is seen"
finish 4

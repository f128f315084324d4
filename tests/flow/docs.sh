#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The man page and the completion file know every command and option, and no other.
. "$LF_SRCDIR/tests/flow/lib.sh"
man=$LF_SRCDIR/flow/loong-flow.1
"$LF" completion >c
cmp -s c "$LF_SRCDIR/flow/loong-flow.bash"
ok $? "flow/loong-flow.bash is what \`loong-flow completion\` prints (make it again)"
if command -v bash >/dev/null; then bash -n c; ok $? "bash can read it"; fi
sed 's/\\-/-/g; s/\\(aq/'"'"'/g' "$man" >m
for c in $("$LF" --help | sed -n 's/^  \([a-z]*\) .*/\1/p'); do
    missing=
    grep -q "^.SS $c" m || missing=" (its section)"
    for o in $("$LF" "$c" --help | sed -n 's/^  \(--[a-z-]*\).*/\1/p'); do
        sed -n "/^.SS $c\( \|\$\)/,/^.S[SH]/p" m | grep -q "^.B $o\( \|\$\)" ||
            sed -n '/^.SH COMMON OPTIONS/,/^.SH EXIT/p' m | grep -q "^.B $o\( \|\$\)" || missing="$missing $o"
    done
    [ -z "$missing" ]; ok $? "man page: $c" "missing:$missing"
done
for c in $(sed -n 's/^.SS \([a-z]*\).*/\1/p' m); do
    "$LF" "$c" --help >/dev/null 2>&1 || { ok 1 "man page: $c does not exist"; }
done
finish

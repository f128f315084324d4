#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# JSON ends at the files of flow/record: outside of them a record is a struct. The launcher is a library of its own that cannot use
# that room, so that its messages have a file like those. json.txt lists who else sees JSON, the printer of --json; it only gets
# shorter. Planted violations are seen.
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
MOST=1 # lines of json.txt; when it has become shorter, so does this

# Files of flow in tree $1, but for *_json.c of flow/record and flow/launch, that see JSON: include its headers, call it or name its type. A
# `struct json_t *` that is only handed on is not seen.
users() {
    (cd "$1" && find flow -name '*.[ch]' ! -path 'flow/record/*_json.c' ! -path 'flow/launch/*_json.c' | sort | while read -r f; do
        sed 's/struct json_t//g' "$f" |
            grep -qE '^#include (<jansson|"engine/base/json)\.h|(^|[^a-zA-Z0-9_])(json_[a-z_]+\(|json_t([^a-zA-Z0-9_]|$))' && echo "$f"
    done)
}
# Those that are not in the list $2.
extra() { users "$1" | grep -vxF -f "$2"; }
# Those of the list that see no JSON any more.
stale() {
    users "$1" >"$tmp/users"
    grep -vxF -f "$tmp/users" "$2"
}

list=$src/tests/lint/json.txt
found=$(extra "$src" "$list")
result "$([ -z "$found" ]; echo $?)" "no file outside the list sees JSON" "$found"
found=$(stale "$src" "$list")
result "$([ -z "$found" ]; echo $?)" "every file of the list still does: take out those that do not" "$found"
result "$([ "$(wc -l <"$list")" -le $MOST ]; echo $?)" "the list has at most $MOST lines" "$(wc -l <"$list") lines"

mkdir -p "$tmp/flow/record" "$tmp/flow/run"
printf '#include <jansson.h>\n' >"$tmp/flow/record/doc_json.c"
printf '#include <jansson.h>\n' >"$tmp/flow/run/state.h"
printf 'int f(void)\n{\n    return json_object_size(o);\n}\n' >"$tmp/flow/run/state.c"
printf 'struct json_t *more;\nint lf_json_none(void);\n' >"$tmp/flow/run/runs.c"
printf 'flow/run/gone.c\nflow/run/state.h\n' >"$tmp/list"
result "$([ "$(extra "$tmp" "$tmp/list")" = flow/run/state.c ]; echo $?)" "a planted one is seen" "$(extra "$tmp" "$tmp/list")"
result "$([ "$(stale "$tmp" "$tmp/list")" = flow/run/gone.c ]; echo $?)" "and one that is listed for nothing" "$(stale "$tmp" "$tmp/list")"
ok() { result "$1" "$2" ""; }
. "$src/tests/tap/plan.sh"
plan 5
exit $bad

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# JSON ends at the files of flow/record: outside of them a record is a struct. The launcher is a library of its own that cannot use
# that room, so that its messages have a file like those. json.txt lists who else sees JSON, the printer of --json; it only gets
# shorter. Planted violations are seen.
. "${LF_SRCDIR:-.}/tests/lint/lib.sh"
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
none "no file outside the list sees JSON" "$found"
found=$(stale "$src" "$list")
none "every file of the list still does: take out those that do not" "$found"
ok "$([ "$(wc -l <"$list")" -le $MOST ]; echo $?)" "the list has at most $MOST lines" "$(wc -l <"$list") lines"

plant flow/record/doc_json.c '#include <jansson.h>\n'
plant flow/run/state.h '#include <jansson.h>\n'
plant flow/run/state.c 'int f(void)\n{\n    return json_object_size(o);\n}\n'
plant flow/run/runs.c 'struct json_t *more;\nint lf_json_none(void);\n'
plant list 'flow/run/gone.c\nflow/run/state.h\n'
is "$(extra "$tmp" "$tmp/list")" flow/run/state.c "a planted one is seen"
is "$(stale "$tmp" "$tmp/list")" flow/run/gone.c "and one that is listed for nothing"
finish 5

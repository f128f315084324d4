#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# One dialect: clang-format 14, 100 columns, seven parameters, one style of error flow, no | over calls that can fail.
# Each check sees a planted violation.
. "${LF_SRCDIR:-.}/tests/lint/lib.sh"

# C files of tree $1 below the folders that follow. Generated tables are left out.
sources() {
    tree=$1
    shift
    (cd "$tree" && find "$@" \( -name '*.c' -o -name '*.h' -o -name '*.cu' \) 2>/dev/null) |
        grep -vE '(/uni[a-z]*_data|uniprop_sets)\.h$' | sort
}
product="engine kernels db flow stages"

# Lines of more than 100 characters.
wide() { # wide TREE FOLDER...
    tree=$1
    sources "$@" | (cd "$tree" && xargs env LC_ALL=C awk '{
            line = $0
            gsub(/[\200-\277]/, "", line) # the bytes of a UTF-8 character but the first
            if (length(line) > 100) print FILENAME ":" FNR
        }')
}
# Functions of more than seven parameters: a definition begins in the first column, its body with a { of its own line.
many() {
    tree=$1
    sources "$@" | (cd "$tree" && xargs env LC_ALL=C awk '
        FNR == 1 { head = ""; open = 0 }
        /^[a-zA-Z_].*\(/ && !/^(typedef|enum|struct [a-z_]* \{|extern)/ && !/;[ \t]*$/ { head = ""; open = 1; at = FNR }
        open { head = head " " $0 }
        open && /;[ \t]*$/ { open = 0 }
        open && /^\{/ {
            open = 0
            depth = commas = 0
            for (i = 1; i <= length(head); i++) {
                c = substr(head, i, 1)
                if (c == "(") depth++
                else if (c == ")") { if (--depth == 0) break }
                else if (c == "," && depth == 1) commas++
            }
            if (commas > 6) print FILENAME ":" at ": " commas + 1 " parameters"
        }')
}
# Return codes are compared with 0: no !rc, no rc ? .. : .., no if (rc).
flow() {
    tree=$1
    sources "$@" | (cd "$tree" && xargs grep -nE \
        '(^|[^a-zA-Z0-9_.>])!rc($|[^a-zA-Z0-9_])|([=(,] |return |^ *)rc \?|(if|while) \(rc\)|(\(|^ *)rc (&&|\|\|)|(&&|\|\|) rc( (&&|\|\|)|\)|;|$)' /dev/null)
}
# Calls that can fail are not joined by |: their order is unspecified and all of them run.
joined() {
    tree=$1
    sources "$@" | (cd "$tree" && xargs grep -nE \
        '(json_(object|array)_[a-z_]*|lf_json_[a-z_]*|add_[a-z]+|f(close|flush|sync)|close)\(.*\) \|($| [a-z(])|(^|[^|])\| (json_(object|array)_|lf_json_)[a-z_]*\(' /dev/null)
}

long=$(awk 'BEGIN { for (i = 0; i < 101; i++) printf "x" }')
plant engine/wide.c "/* $long */\n"
plant engine/many.c 'static int eight(int a, int b, int c, int d, int e, int f, int g,\n                 int h)\n{\n    return 0;\n}\n'
plant engine/flow.c 'int f(void)\n{\n    if (!rc)\n        rc = rc ? rc : g();\n    if (rc)\n        return h && rc;\n}\n'
plant engine/joined.c 'bad = json_object_set_new(o, "a", a) |\n      json_object_set_new(o, "b", b);\nreturn bad | json_array_append(o, a);\n'

# shellcheck disable=SC2086
found=$(wide "$src" $product tests)
none "no line is longer than 100 characters" "$found"
is "$(wide "$tmp" engine)" engine/wide.c:1 "a planted one is seen"
# Those that are left from before this check, by file: the list only gets shorter.
left='flow/launch/pmix'
all=$(many "$src" engine db flow stages)
found=$(printf '%s\n' "$all" | grep -vE "^($left)\.c:")
ok "$([ -z "$found" ] && [ "$(printf '%s\n' "$all" | wc -l)" -le 4 ]; echo $?)" \
    "no function that is not a kernel takes more than seven arguments, but for 4 named by file" "$all"
is "$(many "$tmp" engine)" 'engine/many.c:1: 8 parameters' "a planted one is seen"
# shellcheck disable=SC2086
found=$(flow "$src" $product)
none "return codes are compared with 0" "$found"
is "$(flow "$tmp" engine | wc -l)" 4 "planted ones are seen"
# shellcheck disable=SC2086
found=$(joined "$src" $product)
none "no | stands between calls that can fail" "$found"
is "$(joined "$tmp" engine | wc -l)" 2 "planted ones are seen"

# The formatter's other versions format otherwise.
format=$(command -v clang-format-14 || command -v clang-format || true)
if [ -n "$format" ] && "$format" --version | grep -q 'version 14\.'; then
    # shellcheck disable=SC2086
    found=$(sources "$src" $product tests | (cd "$src" && xargs "$format" --dry-run 2>&1) | grep -a 'warning:' | cut -d: -f1,2 | sort -u)
    none "clang-format 14 changes nothing" "$found"
    cp "$src/.clang-format" "$tmp/"
    plant engine/form.c 'int  f(void) { return 0; }\n'
    found=$(cd "$tmp" && "$format" --dry-run engine/form.c 2>&1 | grep -c 'warning:')
    ok "$([ "$found" -gt 0 ]; echo $?)" "it changes a planted file"
else
    skip "clang-format 14 changes nothing" "no clang-format 14"
fi
finish_min 9 # one fewer without clang-format 14

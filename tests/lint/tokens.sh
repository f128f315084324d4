#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# How much C the product is, by folder: tokens without comments, which neither formatting nor names of another length change. A tool for
# developers, not a test.
#
# usage: tokens.sh [COMMIT..]   a column for each commit (default: HEAD); needs the git repository
#        tokens.sh -            tokens of standard input
set -eu
LC_ALL=C
export LC_ALL

# Prints FOLDER COUNT of files NAME.. (folder: the first part of the name), or the count of standard input.
count() {
    awk '
        FNR == 1 { comment = 0 }
        {
            line = $0
            sub(/\\$/, "", line)
            for (;;) {
                if (comment) {
                    if (!(at = index(line, "*/"))) break
                    line = substr(line, at + 2)
                    comment = 0
                }
                sub(/^[ \t\f\r]+/, "", line)
                if (line == "" || line ~ /^\/\//) break
                if (line ~ /^\/\*/) {
                    comment = 1
                    line = substr(line, 3)
                    continue
                }
                if (!match(line, /^("([^"\\]|\\.)*"|\047([^\047\\]|\\.)*\047|[A-Za-z_][A-Za-z0-9_]*)/) &&
                    !match(line, /^\.?[0-9]([eEpP][-+]|[A-Za-z0-9_.])*/) &&
                    !match(line, /^(<<=|>>=|\.\.\.|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*\/%&|^]=|##)/))
                    RLENGTH = 1
                line = substr(line, RLENGTH + 1)
                folder = FILENAME
                sub(/\/.*/, "", folder)
                n[folder]++
            }
        }
        END { for (f in n) print f, n[f] }' "$@"
}

if [ "${1:-}" = - ]; then
    count | awk '{ print $NF } END { if (!NR) print 0 }'
    exit
fi
case ${1:-} in -*) sed -n '6,7s/^# \{0,1\}//p' "$0" >&2; exit 2 ;; esac
[ $# -gt 0 ] || set -- HEAD
top=$(git rev-parse --show-toplevel)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
for c in "$@"; do
    id=$(git -C "$top" rev-parse --short "$c^{commit}")
    mkdir -p "$tmp/$id"
    git -C "$top" archive -o "$tmp/$id.tar" "$id"
    tar -xf "$tmp/$id.tar" -C "$tmp/$id"
    rm "$tmp/$id.tar"
    # tables that programs write are no code
    (cd "$tmp/$id" && find engine kernels db flow stages \( -name '*.c' -o -name '*.h' -o -name '*.cu' \) | grep -vE '(/uni[a-z]*_data|uniprop_sets)\.h$' |
        sort >../names)
    # shellcheck disable=SC2046
    (cd "$tmp/$id" && count $(cat ../names)) | sed "s/^/$id /" >>"$tmp/all"
    rm -r "${tmp:?}/$id"
    ids="${ids:-} $id"
done
awk -v ids="$ids" '
    { n[$1, $2] = $3; sum[$1] += $3 }
    END {
        k = split(ids, id, " ")
        printf "%-10s", "folder"
        for (i = 1; i <= k; i++) printf "%12s", id[i]
        print ""
        m = split("engine kernels db flow stages", f, " ")
        for (j = 1; j <= m; j++) {
            printf "%-10s", f[j]
            for (i = 1; i <= k; i++) printf "%12d", n[id[i], f[j]]
            print ""
        }
        printf "%-10s", "all"
        for (i = 1; i <= k; i++) printf "%12d", sum[id[i]]
        print ""
    }' "$tmp/all"

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Includes point down only; headers compile alone; only stages and flow print or exit; symbols carry the prefix.
. "${LF_SRCDIR:-.}/tests/lint/lib.sh"

# Folders that each folder may include from, besides itself and tests/tap for tests.
allowed() {
    case $1 in
    engine/base) echo "" ;;
    engine/text/jinja | engine/text/token) echo "engine/base" ;;
    engine/text/parquet) echo "engine/base" ;;
    engine/text/vocab) echo "engine/base engine/text/token" ;;
    engine/text/chat) echo "engine/base engine/text/token engine/text/jinja" ;;
    engine/text/corpus) echo "engine/base engine/text/token engine/text/chat engine/text/parquet" ;;
    engine/store) echo "engine/base" ;;
    engine/comm | engine/pipe | engine/media) echo "engine/base" ;;
    kernels*) echo "kernels engine/base/rng.h engine/base/f8.h engine/base/bits.h" ;;
    engine/back) echo "engine/base kernels" ;;
    engine/graph) echo "engine/base engine/back kernels" ;;
    engine/model) echo "engine/base engine/media engine/graph engine/back engine/store kernels" ;;
    engine/train | engine/infer) echo "engine/base engine/media engine/text engine/store engine/comm engine/pipe engine/back engine/graph engine/model kernels" ;;
    engine/post) echo "engine/base engine/media engine/text engine/store engine/comm engine/back engine/graph engine/model engine/train engine/infer kernels" ;;
    engine/convert) echo "engine/base engine/store engine/back engine/graph engine/model kernels" ;;
    db) echo "engine/base" ;;
    flow/launch) echo "engine/base" ;;
    flow/record) echo "engine/base db/event.h" ;;
    flow/plan) echo "engine/base flow/record" ;;
    flow/run) echo "db engine/base flow/record flow/plan" ;;
    flow/sched) echo "engine/base flow/record flow/plan flow/run" ;;
    flow/job) echo "engine/base flow/record flow/plan flow/run flow/sched flow/launch/launch.h" ;;
    flow/report) echo "engine/base flow/record flow/plan flow/run flow/sched" ;;
    flow/cmd) echo "db engine/base flow" ;;
    flow) echo "flow/cmd engine/base stages/opts.h" ;;
    stages) echo "engine kernels" ;;
    esac
}

# Prints the includes of files in tree $1 that break the rule. One awk reads the rules of the folders, then all files.
violations() {
    (cd "$1" && {
        find engine kernels db flow stages -type d 2>/dev/null | while read -r folder; do
            case $folder in kernels/*) key=kernels ;; *) key=$folder ;; esac
            echo "$folder $key $(allowed "$folder")"
        done
        echo .
        find engine kernels db flow stages -name '*.[ch]' 2>/dev/null | sort
    } | awk '$0 == "." { files = 1; next }
        !files { folder = $1; $1 = ""; may[folder] = $0; next }
        {
            folder = $0
            sub("/[^/]*$", "", folder)
            n = split(may[folder], a, " ")
            while ((getline line <$0) > 0) {
                if (line !~ /^#include "[^"]*\/[^"]*"/) continue
                split(line, part, "\"")
                good = 0
                for (i = 1; i <= n; i++) good = good || part[2] == a[i] || index(part[2], a[i] "/") == 1
                if (!good) print $0 " includes " part[2]
            }
            close($0)
        }')
}

found=$(violations "$src")
none "includes point down only" "$found"

plant db/x.c '#include "engine/graph/graph.h"\n'
plant engine/base/y.h '#include "engine/train/loop.h"\n'
plant flow/plan/conf.c '#include "flow/run/state.h"\n'
plant flow/launch/hub.c '#include "flow/record/record.h"\n'
plant engine/text/token/bpe.c '#include "engine/text/corpus/pack.h"\n'
is "$(violations "$tmp" | wc -l)" 5 "the check sees planted includes from above, between folders and rooms"

found=$(cd "$src" && grep -nE '\b(exit|abort|puts|printf|perror)[[:space:]]*\(|\bstdout\b' $(find engine kernels/cpu db $(ls kernels/cuda/*.c) -name '*.c') |
    grep -vE '^engine/base/(err|sys)\.c:|^[^:]*:[0-9]*:[[:space:]]*(\*|/\*|//)|_exit\(128' || true)
none "the engine, the kernels and db neither print nor exit" "$found"

# In a step a rank that waits for its receiver waits for its computation.
sends() {
    (cd "$1" && grep -nE '\blf_comm_(send|recv)[[:space:]]*\(' $(find engine -name '*.[ch]' ! -path 'engine/comm/*') /dev/null || true)
}
found=$(sends "$src")
none "nothing in the engine sends or receives in a call that waits" "$found"
plant engine/train/send.c 'int f(lf_comm *c)\n{\n    return lf_comm_send(c, 0, 0, 1, 0, 0);\n}\n'
is "$(sends "$tmp" | wc -l)" 1 "a planted one is seen"

found=$(cd "$src" && grep -nE '\b(strcpy|strcat|sprintf|vsprintf|gets|strtok|atoi|atol|atof|alloca)[[:space:]]*\(' \
    $(find engine kernels db flow stages -name '*.[ch]') || true)
none "no unsafe libc calls" "$found"

# Those of the files that standard input lists which do not name it in their first three lines.
unlicensed() {
    awk '{
        said = 0
        for (i = 0; i < 3 && (getline line <$0) > 0; i++) said = said || line ~ /SPDX-License-Identifier: Apache-2\.0/
        close($0)
        if (!said) print
    }'
}
found=$(cd "$src" && find engine kernels db flow stages tests -name "*.[ch]" -o -name "*.cu" | unlicensed)
none "every source names its licence" "$found"
plant late.c '\n\n\n/* SPDX-License-Identifier: Apache-2.0 */\n'
plant early.c '/* SPDX-License-Identifier: Apache-2.0 */\n'
is "$(printf '%s\n' "$tmp/late.c" "$tmp/early.c" | unlicensed)" "$tmp/late.c" "one that does so too late is seen"

found=$(cd "$src" && find engine kernels db flow stages -name '*.[ch]' | xargs wc -l | awk '$2 != "total" && $1 > 1000 {print $2 ": " $1 " lines"}')
none "no file above 1,000 lines" "$found"

if command -v nm >/dev/null 2>&1; then
    found=$(for a in engine/libbase.a engine/libengine.a engine/libmedia.a kernels/libkernels.a db/libdb.a; do
        [ -f "$build/$a" ] && nm -g --defined-only "$build/$a" 2>/dev/null | awk -v a="$a" '$2 ~ /[TDBR]/ && $3 !~ /^(lf_|__asan|__odr|__ubsan|_)/ {print a ": " $3}'
    done)
    none "every global symbol begins with lf_" "$found"
else
    skip "every global symbol begins with lf_" "no nm"
fi

# Each header alone, in one call of the compiler. The generated config.h is not included by headers.
cc=${CC:-cc}
alone() { # alone TREE: what the compiler says of the headers of the tree
    rm -rf "$tmp/alone"
    mkdir "$tmp/alone"
    (cd "$1" && find engine kernels db flow stages -name '*.h' ! -name '*_priv.h' ! -path '*/cuda/*' ! -path 'kernels/cpu/*' 2>/dev/null) |
        awk -v dir="$tmp/alone/" '{
            file = $0
            gsub("/", "+", file)
            file = dir file ".c"
            printf "#include \"%s\"\nint lf_lint_unit;\n", $0 >file
            close(file)
        }'
    # shellcheck disable=SC2086
    (cd "$1" && LC_ALL=C $cc -std=gnu11 -D_GNU_SOURCE -fsyntax-only -I. -I"$build" ${LF_LINT_CFLAGS:-} "$tmp"/alone/*.c 2>&1)
}
none "every header compiles alone" "$(alone "$src")"
plant engine/base/good.h '#include <stddef.h>\nsize_t lf_good(void);\n'
plant db/bad.h 'size_t lf_bad(void);\n'
alone "$tmp" >"$tmp/out"
is "$(grep -o '\(db/bad\|base/good\)\.h:[0-9:]* error' "$tmp/out" | sed 's/:.*//' | sort -u)" db/bad.h "one that does not is seen" "$(cat "$tmp/out")"
finish 12

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `make compile_commands.json` in a build directory where nothing is built yet: JSON with every C
# source of the build once for each object, and commands that compilers take.
. "$LF_SRCDIR/tests/pack/lib.sh"
"$MAKE" --version 2>/dev/null | grep -q 'GNU Make' || skip_all "make is not GNU make"
mkdir "b" && cd b && must "$LF_SRCDIR/configure" -C --without-cuda
"$MAKE" compile_commands.json >log 2>&1; ok $? "make compile_commands.json" "$(last log)"
is "$(find . -name '*.o')" "" "compiles nothing"
[ -s db/schema_sql.c ] && [ -s engine/base/commit.h ]
ok $? "generated sources are there" "$(last log)"

if command -v python3 >/dev/null; then
    python3 - >log 2>&1 <<'PY'
import json, os, shlex
entries = json.load(open("compile_commands.json"))
assert len({e["output"] for e in entries}) == len(entries), "an object twice"
for e in entries:
    path = os.path.join(e["directory"], e["file"])
    assert e["directory"] == os.getcwd() and os.path.isfile(path), path
    words = shlex.split(e["command"])
    assert words[-1] == e["file"] and words[words.index("-o") + 1] == e["output"], words
    assert not {"-MT", "-MD", "-MF", "&&"} & set(words), words
    assert "`" not in e["command"], words
with open("files", "w") as f:
    for e in entries:
        print(os.path.realpath(os.path.join(e["directory"], e["file"])), file=f)
PY
    ok $? "valid JSON: each object once, its source there, its command whole" "$(last log)"
else
    skip "valid JSON" "no python3"
    sed -n 's|^ "file": "\(.*\)",$|\1|p' compile_commands.json | xargs readlink -f >files
fi
top=$(readlink -f "$LF_SRCDIR")
left=$(cd "$top" && find flow stages db engine kernels/cpu -name '*.c' | while read -r f; do
    grep -Fqx "$top/$f" "$T/b/files" || echo "$f"
done)
is "$left" "" "every source of the product is there"
grep -Fqx "$top/tests/tap/tap.c" files; ok $? "and those of tests"

# Each command, tried on one source of each folder: the dry run said what make would do.
sed -n 's/^ "command": "\(.*\)"}.*/\1/p' compile_commands.json | sed 's/\\"/"/g; s/\\\\/\\/g' >lines
for o in db/open.o engine/base/built.o stages/stage.o kernels/cpu/libcpu_plain_a-gemm.o; do
    grep -F -- " -o $o " lines | sed 's/ -O[0-9] / -O0 /' >one
    mkdir -p "${o%/*}"
    [ -s one ] && sh one >log 2>&1 && [ -s "$o" ]
    ok $? "the command of $o makes it" "$(last log)"
done
for f in db/open.c engine/base/built.c kernels/cpu/gemm.c; do
    if command -v clang-tidy >/dev/null; then
        clang-tidy -p . --quiet '--checks=-*,bugprone-sizeof-expression' "$top/$f" >log 2>&1
        ok $? "clang-tidy reads $f" "$(last log)"
    else
        skip "clang-tidy reads $f" "no clang-tidy"
    fi
    if command -v clangd >/dev/null; then
        clangd --compile-commands-dir=. --check="$top/$f" >log 2>&1
        ok $? "clangd reads $f" "$(last log)"
    else
        skip "clangd reads $f" "no clangd"
    fi
done
cp compile_commands.json first && must "$MAKE" -j2 -s compile_commands.json
cmp -s first compile_commands.json; ok $? "made again, it is the same"
"$MAKE" -s distclean >log 2>&1; [ ! -e compile_commands.json ]; ok $? "make distclean takes it away"
finish 18

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tests/lint/howto/option.patch and op.patch show newcomers how an option and an op are added. In a copy of the source they apply, touch
# no more files than promised, build, and do what they say. The copy is built as this tree was configured, but for speed: only what the
# checks need, without optimisation and kernels for instruction sets, and nothing again that the patches cannot reach.
. "${LF_SRCDIR:-.}/tests/lint/lib.sh"
files() { grep -c '^+++ ' "$1"; }
few() { [ "$(files "$1")" -le "$2" ]; } # few PATCH LIMIT

few "$src/tests/lint/howto/option.patch" 3
ok $? "an option takes 3 files at most"
few "$src/tests/lint/howto/op.patch" 9
ok $? "an op takes 9 files at most"
{ cat "$src/tests/lint/howto/option.patch"; echo '+++ b/one/more'; } >"$tmp/four.patch"
! few "$tmp/four.patch" 3
ok $? "a fourth file is seen"

if [ "$src" = "$build" ]; then
    skip "the patches build and work" "objects in the source would be taken for those of the copy"
    finish 4
fi
unset MAKEFLAGS MFLAGS MAKEOVERRIDES # of the make that runs this test
# What a build reads: the folders of the product, and of the tests what Makefile.in includes and make depends on.
mkdir "$tmp/src"
(cd "$src" && tar -cf - --exclude='*.o' --exclude='*.a' --exclude='*.log' --exclude='*.trs' --exclude=.deps \
    build-aux configure configure.ac aclocal.m4 config.h.in Makefile.am Makefile.in NEWS README.md db docs engine examples flow kernels \
    models packaging stages templates tests) | (cd "$tmp/src" && tar -xf -)
chmod -R u+w "$tmp/src"
(cd "$tmp/src" && for p in option op; do patch -s -p1 <"$src/tests/lint/howto/$p.patch" || exit 1; done) >"$tmp/out" 2>&1
ok $? "both patches apply" "$tmp/out"
find "$tmp/src" -name '*.orig' >"$tmp/out"
[ ! -s "$tmp/out" ]
ok $? "and fit without an offset of their context" "$tmp/out"

# The answers that configure found before, and its settings; CFLAGS come last.
mkdir "$tmp/b"
sed -n '/^## Cache variables/,/^## Output variables/p' "$build/config.log" | grep -E '^ac_cv_[a-zA-Z0-9_]+=' |
    grep -v '^ac_cv_env_' >"$tmp/b/cache"
warn=
! grep -q '^LF_WARN_CFLAGS = .*-Werror' "$build/Makefile" || warn=--enable-devel
# The objects of a library that these programs need: those of these folders and files, of which the rest is not built.
parts() { # parts LIBRARY PATTERN
    make -pn 2>/dev/null | sed -n "s/^am_$1_OBJECTS = //p" | sed -n 1p | tr ' ' '\n' | grep -E "$2" | sed 's/\$(OBJEXT)/o/' | tr '\n' ' '
}
# These folders include nothing of what the patches touch (tests/lint/includes.sh), so this build's objects are the copy's, too. Make
# takes an object that is older than the stamp of its folder for stale.
reused='engine/base engine/text engine/store engine/comm db flow'
for d in $reused; do
    ! grep -q "^+++ b/$d/" "$src"/tests/lint/howto/*.patch || reused=
done
! grep -q '^CFLAGS = .*-fsanitize' "$build/Makefile" || reused=
for d in $reused; do
    (cd "$build" && find "$d" -name .dirstamp -o -name '*.o' | tar -cf - -T -) | (cd "$tmp/b" && tar -xf -)
done
find "$tmp/b" -name .dirstamp -exec touch -d '2000-01-01' {} +
(cd "$tmp/b" && "$tmp/src/configure" --cache-file=cache --disable-dependency-tracking --enable-native=plain $warn CC="$(sed -n 's/^CC = //p' "$build/Makefile")" \
    CFLAGS="-O0 -g0" LDFLAGS=-Wl,-S >out 2>&1 &&
    make -j2 "am_engine_libengine_a_OBJECTS=$(parts engine_libengine_a '^engine/(base|text|store|comm|back|graph)/|/same_tokenizer')" \
        "am_stages_libstages_a_OBJECTS=$(parts stages_libstages_a '^stages/(stage|stage_profile|made_by)\.')" \
        stages/lf-tokenize stages/lf-tokenize.1 tests/op/elementwise_test tests/unit/graph_random >>out 2>&1)
ok $? "the patched tree builds" "$tmp/b/out"

# The option.
cd "$tmp/b" || exit 1
stages/lf-tokenize --help | grep -q -e '--valid-min-bytes'
ok $? "--help has the new option"
grep -q 'valid\\-min\\-bytes' stages/lf-tokenize.1
ok $? "the man page has it"
awk 'BEGIN { for (i = 0; i < 200; i++) printf "the %d. house of %d stones stands on hill %d\n\n", i, 7 * i, i % 13 }' >text.txt
held() { # held OUT ARG..: documents kept for validation
    out=$1
    shift
    stages/lf-tokenize --inputs text.txt --doc-split blank --vocab-size 300 --valid-fraction 0.5 --threads 1 --out "$out" "$@" >log 2>&1 &&
        tr -d ' \n' <"$out/shards/manifest.json" | sed -n 's/.*"valid":{[^}]*"docs":\([0-9]*\).*/\1/p'
}
all=$(held all) some=$(held some --valid-min-bytes 43)
echo "held back: $all, and with --valid-min-bytes $some" >>log
[ "${all:-0}" -gt 60 ] && [ "${some:-$all}" -lt "$all" ]
ok $? "it is accepted, and fewer documents are held back" log
held no --valid-min-byte 43 >/dev/null
[ $? -ne 0 ]
ok $? "a name that is not there is refused"

# The op.
tests/op/elementwise_test >log 2>&1 && grep -q '^ok .*isru backward' log
ok $? "its kernels agree with the formulas" log
tests/unit/graph_random >log 2>&1 && grep -q '^ok .*gradient agrees' log
ok $? "gradients of random graphs with it are those that differences of the loss show" log
finish 12

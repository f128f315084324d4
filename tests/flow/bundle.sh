#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `make bundle`: moved to another place, read-only, on a machine whose libraries are hidden, it runs a pipeline from text to evaluation.
. "$LF_SRCDIR/tests/flow/lib.sh"
unset LF_LIBEXEC LF_TEMPLATES_DIR LF_MODELS_DIR

case $(LC_ALL=C ldd "$LF_BUILDDIR/stages/lf-pretrain") in
*libasan* | *libubsan*) skip_all "sanitizers: their libraries are the compiler's and are not carried" ;;
esac
unset MAKEFLAGS MFLAGS MAKELEVEL
"${MAKE:-make}" -s -C "$LF_BUILDDIR" bundle BUNDLE="$T/first" BUNDLE_TMP="$T/tmp" >log 2>&1; ok $? "make bundle" "$(tail -n 5 log | tr '\n' '~')"
mkdir elsewhere && mv first elsewhere/loong && B=$T/elsewhere/loong
chmod -R a-w "$B"
(cd "$B" && sha256sum --quiet -c MANIFEST >/dev/null 2>&1); ok $? "the manifest's hashes are right"
is "$(find "$B/lib/loong-flow" -type f ! -name LIBS | wc -l)" "$(wc -l <"$B/lib/loong-flow/LIBS")" "LIBS names every library"

# The part for GPUs: given such programs (one will do, and no nvcc), they and what they read lie below gpu/.
mkdir -p prefix && cp -R "$B/bin" "$B/libexec" prefix/ && chmod -R u+w prefix
sh "$LF_SRCDIR/templates/bundle.sh" "$T/prefix" "$T/gpu" 1 "$LF_SRCDIR" "$LF_BUILDDIR/tests/op/cuda_round_test" >log 2>&1
ok $? "a bundle with a program for GPUs" "$(tail -n 5 log | tr '\n' '~')"
cat gpu/gpu/data/engine/*/*.c >text 2>/dev/null
if [ "$(wc -c <text)" -lt 500000 ]; then false; fi; ok $? "half a megabyte of text for its models to learn" "$(wc -c <text)"
LF_REQUIRE_GPU='' gpu/gpu/op/cuda_round_test >out 2>&1; ok $? "the program runs from there" "$(tail -n 3 out | tr '\n' '~')"
rm -rf gpu prefix

# Part of the machine: the C library and its loader. Everything else comes from the bundle.
for f in "$B"/bin/loong-flow "$B"/libexec/loong-flow/*; do
    left=$(LC_ALL=C ldd "$f" | sed -n 's/^[[:space:]]*\([^ ]*\) => \([^ ]*\).*/\1 \2/p' | grep -Fv " $B/" |
        grep -Ev '^(ld-|ld64|lib(c|m|mvec|pthread|dl|rt|resolv|util|nsl|anl)\.so|linux-vdso)')
    is "$left" "" "${f##*/} takes nothing from the machine but its C library"
done
[ -n "$(ls "$B/licences")" ]; ok $? "licences of what is carried are there"

# Where a name space of our own is allowed, the machine's libraries are really hidden: empty files lie over them.
find "$B/lib/loong-flow" -name '*.so*' | sed 's|.*/||' | sort -u >names
cat >hide.sh <<'END'
for n in $(cat names); do
    for d in /lib /lib64 /usr/lib /usr/lib64 /lib/*-linux-* /usr/lib/*-linux-* /usr/lib/*-linux-*/pmix2/lib /usr/lib64/pmix/lib; do
        f=$(readlink -f "$d/$n" 2>/dev/null) || continue
        case $f in */libgcc_s* | */libz.so* | */libcap* | */libselinux* | */libacl* | */libzstd* | */liblzma* | */liblz4* | */libcrypto* | */libpcre2*) continue ;; esac # our tools' own
        [ -f "$f" ] && [ -s "$f" ] && mount --bind /dev/null "$f" 2>/dev/null
    done
done
exec "$@"
END
hide=
if command -v unshare >/dev/null && unshare -rm true 2>/dev/null; then
    hide="unshare -rm sh $T/hide.sh"
    $hide "$LF_BUILDDIR/stages/lf-pretrain" --version >out 2>&1; code=$?
    [ $code -ne 0 ]; ok $? "(with the machine's libraries hidden, what is not in the bundle cannot start)" "$(cat out)"
else
    echo "# the machine's libraries cannot be hidden here: no user name spaces"
fi
LF_CACHE_DIR=$T/cache $hide "$B/bin/loong-flow" version >out 2>&1; ok $? "it starts" "$(cat out)"

i=0
while [ $i -lt 3000 ]; do echo "The $i quick brown foxes jump over lazy dog number $((i * 7919 % 1000))."; i=$((i + 1)); done >text.txt
sed -e "s|@TEXT@|$T/text.txt|" -e 's/^vocab_size = .*/vocab_size = 300/' -e 's/^steps = .*/steps = 4/' -e 's/^warmup = .*/warmup = 1/' \
    -e 's/^seq_length = .*/seq_length = 64/' -e 's/^micro_batch = .*/micro_batch = 2/' -e 's/^batch = .*/batch = 4/' \
    -e 's/^doc_bytes = .*/doc_bytes = 1K/' -e 's/^valid_fraction = .*/valid_fraction = 0.1/' -e 's/^valid_tokens = .*/valid_tokens = 512/' -e 's/^preset = .*/preset = quickstart\nvocab = 300/' \
    "$B/examples/quickstart/pipeline.ini" >pipeline.ini
$hide "$B/bin/loong-flow" run pipeline.ini >out 2>&1; ok $? "text, tokenizer, model, samples, evaluation: all from the bundle" "$(tail -n 5 out | tr '\n' '~')"
is "$("$B/bin/loong-flow" status --columns state | sort -u | grep -c done)" 1 "every stage is done"
R=$(ls -d loong-data/*/runs/*)
[ -s "$R/rev.1/lib/loong-flow/LIBS" ]; ok $? "the run froze the libraries with the executables"
left=$(LC_ALL=C ldd "$R/rev.1/bin/lf-pretrain" | sed -n 's/^[[:space:]]*\([^ ]*\) => \([^ ]*\).*/\1 \2/p' | grep -Fv "$R/" | grep -Fv "$T/loong-data" |
    grep -Ev '^(ld-|ld64|lib(c|m|mvec|pthread|dl|rt|resolv|util|nsl|anl)\.so|linux-vdso)')
is "$left" "" "and its copies use them"
if [ -n "$hide" ] && "$B/bin/loong-flow" launch --help >/dev/null 2>&1; then
    $hide "$B/bin/loong-flow" launch -n 2 -- "$B/libexec/loong-flow/lf-pretrain" --version >out 2>&1; ok $? "its launcher starts ranks" "$(tail -n 3 out | tr '\n' '~')"
fi
# GPU tests and benchmarks, where nvcc compiled them: without a GPU one line says so.
if [ -d "$B/gpu" ] && [ ! -e /dev/nvidiactl ]; then
    $hide "$B/gpu/check-gpu" -o "$T/check-gpu.txt" >out 2>&1; code=$?
    [ $code -eq 1 ] && [ "$(wc -l <out)" -eq 1 ] && grep -q 'check-gpu: no GPU to test on' out; ok $? "its GPU tests want a GPU" "$(cat out)"
    $hide "$B/gpu/op/cuda_rope_test" >out 2>&1; ok $? "and run on the emulator" "$(tail -n 3 out | tr '\n' '~')"
fi
chmod -R u+w "$B"
finish_min 22 # fewer without user name spaces, PMIx or kernels of a GPU

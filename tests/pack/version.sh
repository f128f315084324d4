#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# --version: version, commit and features; what record.sh says of a source and when it writes.
. "$LF_SRCDIR/tests/pack/lib.sh"
record() { sh "$LF_SRCDIR/packaging/record.sh" "$@"; }
hex=0123456789012345678901234567890123456789

"$LF_BUILDDIR/loong-flow" --version >v 2>err; is $? 0 "loong-flow --version"
is "$(sed -n 1p v)" "loong-flow $(version)" "its first line is name and version"
built=$(sed -n 's/^#define LF_COMMIT "\(.*\)"$/\1/p' "$LF_BUILDDIR/engine/base/commit.h")
[ -n "$built" ] && is "$(sed -n 2p v)" "commit: $built" "then the commit of the last make"
on() { grep -q "^#define $1 1" "$LF_BUILDDIR/config.h" && echo yes || echo no; }
want="PMIx $(on HAVE_PMIX), UCX $(on HAVE_UCX), oneDNN $(on HAVE_ONEDNN), CUDA $(on HAVE_NVCC)"
want="$want, snappy $(on HAVE_SNAPPY), zstd $(on HAVE_ZSTD), zlib $(on HAVE_ZLIB)"
want="$want, JPEG $(on HAVE_JPEG), PNG $(on HAVE_PNG), WebP $(on HAVE_WEBP)"
is "$(sed -n '3s/, HDF5 [0-9][0-9.]*$//p' v)" "features: $want" "what configure found"
isas=plain
for i in avx2 avx512 avx512bf16 neon neonbf16 sve256bf16 sve512; do
    [ "$(on "HAVE_ISA_$(echo $i | tr a-z A-Z)")" = no ] || isas="$isas $i"
done
is "$(sed -n 4p v)" "instruction sets: $isas" "families of kernels"
"$LF_BUILDDIR/loong-flow" version --json >j 2>err; is $? 0 "version --json"
commit=$(sed -n 's/^commit: //p' v)
grep -q "\"commit\": \"$commit\"" j; ok $? "the same commit as JSON" "$(cat j)"
for s in "$LF_BUILDDIR"/stages/lf-*; do
    [ -x "$s" ] && [ -f "$s" ] || continue
    case ${s##*/} in *.*) continue ;; esac
    "$s" --version >s 2>err
    { echo "${s##*/} (loong-flow) $(version)"; sed -n 2,4p v; sed -n 5p s; } | cmp -s - s
    ok $? "${s##*/} --version says the same" "$(cat s err)"
    here=$(sed -n "5s/^runs here: //p" s)
    case " $isas " in *" ${here:-none} "*) ;; *) false ;; esac
    ok $? "and which of them run here" "$here"
done

# --- recipes of packages ---
pack=$LF_SRCDIR/packaging V=$(version)
is "$(sed -n 's/^Version: *//p' "$pack/rpm/loong-flow.spec")" "$V" "the spec has configure.ac's version"
eb=$(ls "$pack"/easybuild/*.eb)
is "$(sed -n "s/^version = '\(.*\)'$/\1/p" "$eb")" "$V" "EasyBuild too"
case ${eb##*/} in loong-flow-"$V"-*) true ;; *) false ;; esac; ok $? "in its name"
grep -qx "    version(\"$V\")" "$pack/spack/package.py"; ok $? "Spack too"

# --- the record ---
unset LF_COMMIT_KEEP
mkdir bare && is "$(record bare)" "commit unknown" "neither a record nor git: unknown"
mkdir tarball && printf 'commit %s\ndate 86400\n' $hex >tarball/.tarball-version
is "$(record tarball | tr '\n' ' ')" "commit $hex date 86400 " "a distribution says its commit"
record tarball head.h
is "$(sed -n 2p head.h)" "#define LF_COMMIT \"$hex\"" "as a header"
touch -d 2001-01-01 head.h && record tarball head.h
[ head.h -ot tarball ]; ok $? "which is not written again"
record bare head.h
is "$(sed -n 2p head.h)" '#define LF_COMMIT "unknown"' "but when it changes"
printf 'commit "; evil\n' >tarball/.tarball-version && record tarball head.h
is "$(sed -n 2p head.h)" '#define LF_COMMIT "unknown"' "and only hexadecimal digits become C"
mkdir other && echo "commit $hex" >other/.tarball-version
LF_COMMIT_KEEP=yes record other head.h
is "$(sed -n 2p head.h)" '#define LF_COMMIT "unknown"' "below make check it stays"
if command -v git >/dev/null; then
    GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
    GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@localhost GIT_COMMITTER_NAME=a
    GIT_COMMITTER_EMAIL=a@localhost GIT_AUTHOR_DATE='@86400 +0300' GIT_COMMITTER_DATE='@86400 +0300'
    export GIT_CONFIG_GLOBAL GIT_CONFIG_NOSYSTEM GIT_AUTHOR_NAME GIT_AUTHOR_EMAIL
    export GIT_COMMITTER_NAME GIT_COMMITTER_EMAIL GIT_AUTHOR_DATE GIT_COMMITTER_DATE
    must git init -q repo
    mkdir repo/inner && echo 1 >repo/file && git -C repo add file && must git -C repo commit -q -m 1
    must git -C repo tag -a -m 1 v1
    head=$(git -C repo rev-parse HEAD)
    is "$(record repo | tr '\n' ' ')" "commit $head date 86400 " "a checkout, tags or not"
    is "$(record repo/inner)" "commit unknown" "a repository around the source is not asked"
    is "$(GIT_DIR=/nowhere record repo | head -n 1)" "commit $head" "nor the one of GIT_DIR"
    index=$(cksum <repo/.git/index) && touch -d 2001-01-01 repo/file
    is "$(record repo | head -n 1)" "commit $head" "a file that was touched is not a change"
    is "$(cksum <repo/.git/index)" "$index" "and git's index is left alone"
    echo 2 >repo/file
    is "$(record repo | head -n 1)" "commit $head-dirty" "a changed file is said"
else
    skip "a checkout" "no git"
fi
finish_min 30 # five fewer without git

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `make dist` has the same bytes: from two clones of HEAD in different folders with another umask,
# time zone, locale and checkout time, and from what was unpacked from it.
. "$LF_SRCDIR/tests/pack/lib.sh"
needs sha256sum xz tar
tar --version 2>/dev/null | grep -q 'GNU tar' || skip_all "tar is not GNU tar"
sum() { sha256sum <"$1" | cut -d ' ' -f 1; }
# made DIRECTORY: configures the source there in the current folder and makes the tar. The shell's
# umask and environment are what is tested.
made() { "$1/configure" -C --without-cuda >log 2>&1 && "$MAKE" -s dist >>log 2>&1; }

if [ -e "$LF_SRCDIR/.git" ] && command -v git >/dev/null && command -v autoreconf >/dev/null; then
    other=$(locale -a 2>/dev/null | grep -Evx 'C|POSIX|C\..*' | head -n 1)
    commit=$(git -c safe.directory='*' -C "$LF_SRCDIR" rev-parse HEAD)
    [ -n "$other" ] || other=C.UTF-8
    clone() { git -c safe.directory='*' clone -q --no-local "$LF_SRCDIR/.git" "$1"; }
    mkdir one two two/far
    (umask 022; TZ=UTC LC_ALL=C; export TZ LC_ALL
     cd one && clone src && cd src && ./autogen.sh >log 2>&1 && made .)
    ok $? "a clone, built in its source" "$(last one/src/log)"
    (umask 077; TZ=Pacific/Chatham LC_ALL=$other; export TZ LC_ALL
     cd two/far && clone loong &&
         find loong -type f ! -path '*/.git/*' -exec touch -d 2011-11-11 {} + &&
         (cd loong && ./autogen.sh >log 2>&1) && mkdir b && cd b && made ../loong)
    ok $? "another, elsewhere: umask 077, TZ Pacific/Chatham, $other, files of 2011" \
        "$(last two/far/b/log)"
    first=one/src/$NAME.tar.xz second=two/far/b/$NAME.tar.xz
    is "$(sum "$second")" "$(sum "$first")" "have the same SHA-256"
    [ -s "$first" ] || bail "no tar"
    mkdir x && (cd x && xz -dc "../$first" | tar -xf -)
    is "$(sed -n 1p "x/$NAME/.tarball-version")" "commit $commit" "the record names the commit"
    left=$(cd "$LF_SRCDIR" && git -c safe.directory='*' ls-files | while read -r f; do
        case $f in .gitignore) continue ;; esac
        [ -f "$T/x/$NAME/$f" ] || echo "$f"
    done)
    is "$left" "" "every file of the repository is in it"
else
    skip "two clones" "not a git checkout, or no autoreconf"
    dist
    first=$NAME.tar.xz
    mkdir x && (cd x && xz -dc "../$first" | tar -xf -)
fi

xz -dc "$first" | tar -tvf - >list
is "$(awk '$2 != "0/0" && $2 != "root/root"' list)" "" "owner and group are 0"
modes="-rw-r--r-- -rwxr-xr-x drwxr-xr-x "
is "$(awk '{print $1}' list | LC_ALL=C sort -u | tr '\n' ' ')" "$modes" "modes of all files"
is "$(awk '{print $4, $5}' list | sort -u | wc -l)" 1 "one time"
awk '{print $6}' list | sed 's|/$||' | tr / '\001' >names
LC_ALL=C sort -c names; ok $? "names are sorted"

chmod -R a-w x && mkdir again && cd again && made "../x/$NAME" && cd ..
is "$(sum "again/$NAME.tar.xz")" "$(sum "$first")" "made from what was unpacked, the same again"
cd again && SOURCE_DATE_EPOCH=86400 "$MAKE" -s dist >log 2>&1
ok $? "SOURCE_DATE_EPOCH is heard" "$(last log)"
day=$(xz -dc "$NAME.tar.xz" | TZ=UTC tar -tvf - | awk 'NR == 1 {print $4}')
is "$day" 1970-01-02 "as the time of all files"
cd ..
finish_min 8 # four more from a git checkout

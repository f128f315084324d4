#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `make install` with DESTDIR puts everything where it is looked for; `make uninstall` leaves nothing.
. "$LF_SRCDIR/tests/pack/lib.sh"
umask 022
must "$MAKE" -s -C "$LF_BUILDDIR" install DESTDIR="$T/i" prefix=/usr libexecdir=/usr/libexec
(cd i && find . -type f | LC_ALL=C sort) >list
for f in bin/loong-flow libexec/loong-flow/lf-pretrain share/man/man1/loong-flow.1 \
    share/man/man1/lf-pretrain.1 share/loong-flow/models/llama2-7b.ini \
    share/loong-flow/templates/slurm/job.sh.in share/loong-flow/examples/quickstart/pipeline.ini \
    share/bash-completion/completions/loong-flow share/zsh/site-functions/_loong-flow \
    share/fish/vendor_completions.d/loong-flow.fish; do
    grep -qx "./usr/$f" list; ok $? "$f"
done
odd=$(grep -Ev '^\./usr/(bin/loong-flow|libexec/loong-flow/lf-[a-z]*|share/(loong-flow|man/man1|doc/loong-flow)/.*)$' list |
    grep -Ev '^\./usr/share/(bash-completion|zsh|fish)/')
is "$odd" "" "nothing elsewhere"
left=
for f in i/usr/libexec/loong-flow/*; do
    [ -f "i/usr/share/man/man1/${f##*/}.1" ] || left="$left ${f##*/}"
done
is "$left" "" "each stage has its man page"
is "$(find i ! -type l -perm /022)" "" "nobody else may write there"
left=$(cd i && find . -type f -exec grep -lF "$T" {} +)
is "$left" "" "no file names the folder that it was installed in"

echo keep >i/usr/share/loong-flow/site.ini
must "$MAKE" -s -C "$LF_BUILDDIR" uninstall DESTDIR="$T/i" prefix=/usr libexecdir=/usr/libexec
is "$(find i -type f -o -type l)" "i/usr/share/loong-flow/site.ini" "uninstall takes what it installed"
rm i/usr/share/loong-flow/site.ini
must "$MAKE" -s -C "$LF_BUILDDIR" install DESTDIR="$T/i" prefix=/usr libexecdir=/usr/libexec
must "$MAKE" -s -C "$LF_BUILDDIR" uninstall DESTDIR="$T/i" prefix=/usr libexecdir=/usr/libexec
is "$(find i -name 'loong-flow*' -o -name 'lf-*')" "" "and the folders that are its own"
finish 16

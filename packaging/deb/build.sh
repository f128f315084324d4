#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# build.sh TAR DIRECTORY: a Debian package of the distribution TAR (make dist), built below
# DIRECTORY, where the .deb files are in the end. Needs debhelper and what control asks for.
#
# The distribution says version and time; the changelog of the package is made from them. Changes
# of loong-flow itself are in NEWS.
set -eu
[ $# -eq 2 ] || { echo "usage: build.sh TAR DIRECTORY" >&2; exit 2; }
name=${1##*/}
name=${name%.tar.*}
version=${name#loong-flow-}
mkdir -p "$2"
xz -dc "$1" | (cd "$2" && tar -xf -)
cd "$2/$name"

rm -rf debian
cp -R packaging/deb debian
rm debian/build.sh
chmod 755 debian/rules
date=$(sed -n 's/^date \([0-9]*\)$/\1/p' .tarball-version)
cat >debian/changelog <<EOF
loong-flow ($version-1) unstable; urgency=medium

  * Version $version, $(sed -n 1p .tarball-version).

 -- loong-flow developers <loong-flow@example.invalid>  $(LC_ALL=C date -u -R -d "@${date:-0}")
EOF
dpkg-buildpackage -us -uc -b

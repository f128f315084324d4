#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Fills a folder with the C library and the libraries that configure asks for, as Debian has them for AArch64: what
# tests/pack/arm.sh builds against (LF_ARM_SYSROOT). dpkg of this machine learns of no second architecture: an apt with
# state and cache of its own downloads the packages, and they are unpacked, not installed.
# Usage: sh tests/pack/arm_root.sh FOLDER
set -eu
[ $# -eq 1 ] || { echo "usage: $0 FOLDER" >&2; exit 2; }
top=$(cd "$(dirname "$0")/../.." && pwd)
for tool in apt-get dpkg-deb; do
    command -v $tool >/dev/null || { echo "$0: there is no $tool; this makes a root of Debian's packages" >&2; exit 1; }
done
[ ! -e "$1/usr" ] || { echo "$0: $1 has a root already; remove it first" >&2; exit 1; }
mkdir -p "$1"
root=$(cd "$1" && pwd)
apt=$(mktemp -d "${TMPDIR:-/tmp}/lf-arm-apt.XXXXXX")
trap 'rm -rf "$apt"' EXIT
mkdir -p "$apt/state/lists/partial" "$apt/cache/archives/partial"
: >"$apt/status"
cat >"$apt/conf" <<END
Dir::State "$apt/state";
Dir::State::status "$apt/status";
Dir::Cache "$apt/cache";
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Install-Recommends "false";
APT::Sandbox::User "root";
END
APT_CONFIG=$apt/conf
export APT_CONFIG
# The libraries are those of autogen.sh; oneDNN is not among them, which computes nothing unless it is asked to.
libraries=$(sed -n '/^apt_build="/,/"$/p' "$top/autogen.sh" | tr -d '"\\' | sed 's/^apt_build=//' | tr ' ' '\n' |
    grep -e '-dev$' | grep -v '^libdnnl' | tr '\n' ' ')
apt-get -qq update
# shellcheck disable=SC2086
apt-get -qq -y -d install $libraries libgomp1 libgcc-s1 >/dev/null
# Programs that packages of libraries depend on are left packed: nothing here runs them.
for deb in "$apt"/cache/archives/*.deb; do
    case ${deb##*/} in
    libperl* | *-data_* | *-common_*) ;;
    lib* | zlib* | linux-libc-dev* | ibverbs-providers*) dpkg-deb -x "$deb" "$root" ;;
    esac
done
# A link to a path of the root's own leads out of it, as seen from here.
find "$root" -type l -lname '/*' | while read -r link; do
    ln -snf "$root$(readlink "$link")" "$link"
done
echo "$root: $(find "$root" -name '*.so*' -type f | wc -l) libraries for AArch64"

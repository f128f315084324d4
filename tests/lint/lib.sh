# SPDX-License-Identifier: Apache-2.0
# For tests of the source: source it first. $src and $build are the trees, $tmp is a directory that goes away at the end.
# A check is a function of a tree that prints what it finds: `none` asks it about $src, `is` about the violations that
# `plant` has put below $tmp.
set -u
src=$(cd "${LF_SRCDIR:-.}" && pwd) build=$(cd "${LF_BUILDDIR:-.}" && pwd)
tmp=$(mktemp -d "${TMPDIR:-/tmp}/lf-$(basename "$0" .sh).XXXXXX") || exit 99
trap 'rm -rf "$tmp"' EXIT
. "$src/tests/tap/tap.sh"

plant() { # plant FILE TEXT: TEXT is a format of printf
    mkdir -p "$(dirname "$tmp/$1")"
    # shellcheck disable=SC2059
    printf "$2" >"$tmp/$1"
}

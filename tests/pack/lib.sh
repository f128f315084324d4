# SPDX-License-Identifier: Apache-2.0
# For tests of packaging: source it first, end with `finish COUNT`. Each test works below $T, its own.
: "${LF_BUILDDIR:=$PWD}"
. "$LF_SRCDIR/tests/tap/tap.sh"
own_dir
cd "$T" || exit 99
HOME=$T TMPDIR=$T
export HOME TMPDIR
unset MAKEFLAGS MFLAGS MAKELEVEL SOURCE_DATE_EPOCH
MAKE=${MAKE:-make}
trap 'exit 1' HUP INT TERM

needs() { # needs TOOL...: the whole test is passed over where one is missing
    for tool; do command -v "$tool" >/dev/null 2>&1 || skip_all "no $tool"; done
}
last() { tail -n "${2:-12}" "$1"; }
# What must go well before anything can be tested. Output in $T/log.
must() {
    "$@" >"$T/log" 2>&1 && return
    _because "$T/log"
    bail "$*"
}
version() { sed -n 's/^AC_INIT(\[loong-flow\], \[\([^]]*\)\].*/\1/p' "$LF_SRCDIR/configure.ac"; }
NAME=loong-flow-$(version)
# The tar of this build's source, as $T/$NAME.tar.xz. Built once in a folder of its own.
dist() {
    [ ! -f "$T/$NAME.tar.xz" ] || return 0
    mkdir "$T/dist" && cd "$T/dist" || exit 99
    must "$LF_SRCDIR/configure" -C --without-cuda
    must "$MAKE" -s dist
    mv "$NAME.tar.xz" "$T" && cd "$T" && rm -rf dist
}

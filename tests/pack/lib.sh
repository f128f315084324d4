# SPDX-License-Identifier: Apache-2.0
# TAP in shell for tests of packaging: source it first, end with `finish COUNT`. Each test works below $T,
# its own, which is kept when a point failed or LF_KEEP is set.
: "${LF_BUILDDIR:=$PWD}"
T=$(mktemp -d "${TMPDIR:-/tmp}/lf-$(basename "$0" .sh).XXXXXX") || exit 99
cd "$T" || exit 99
HOME=$T TMPDIR=$T
export HOME TMPDIR
unset MAKEFLAGS MFLAGS MAKELEVEL SOURCE_DATE_EPOCH
MAKE=${MAKE:-make}
n=0 bad=0

cleanup() {
    if [ $bad -eq 0 ] && [ -z "${LF_KEEP:-}" ]; then
        chmod -R u+w "$T" 2>/dev/null
        rm -rf "$T"
    else
        echo "# kept $T"
    fi
}
trap cleanup EXIT
trap 'exit 1' HUP INT TERM

ok() { # ok STATUS NAME [WHY]
    n=$((n + 1))
    if [ "$1" -eq 0 ]; then
        echo "ok $n - $2"
    else
        echo "not ok $n - $2"
        bad=$((bad + 1))
        [ -z "${3:-}" ] || printf '%s\n' "$3" | sed 's/^/# /'
    fi
}
is() { [ "$1" = "$2" ]; ok $? "$3" "got '$1', want '$2'"; }
skip() { # skip NAME WHY: one point
    n=$((n + 1))
    echo "ok $n - $1 # SKIP $2"
}
skip_all() { echo "1..0 # SKIP $1"; exit 0; }
needs() { # needs TOOL...: the whole test is passed over where one is missing
    for tool; do command -v "$tool" >/dev/null 2>&1 || skip_all "no $tool"; done
}
last() { tail -n "${2:-12}" "$1"; }
# What must go well before anything can be tested. Output in $T/log.
must() {
    "$@" >"$T/log" 2>&1 && return
    last "$T/log" | sed 's/^/# /'
    bad=1
    echo "Bail out! $*"
    exit 1
}
. "$LF_SRCDIR/tests/tap/plan.sh"
# finish COUNT, finish_min COUNT: the end of a test that makes exactly, or at least, so many points
finish() { plan "$@"; exit $((bad > 0)); }
finish_min() { plan_min "$@"; exit $((bad > 0)); }

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

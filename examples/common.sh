# SPDX-License-Identifier: Apache-2.0
# What the examples' run.sh share; read with `here` the example's folder, before anything else.
LC_ALL=C
export LC_ALL

usage() { # usage FIRST LAST: those lines of run.sh's own comment
    sed -n "$1,$2s/^# \{0,1\}//p" "$here/run.sh"
}
die() {
    echo "$(basename "$here"): $*" >&2
    exit 1
}
# find_build DIR: the build directory or the prefix of an installation. Sets build and lf, the loong-flow in it. The models lie beside the
# examples, in the source as in the installed tree.
find_build() {
    build=$(cd "$1" 2>/dev/null && pwd) || die "there is no directory $1"
    lf=$build/loong-flow
    [ -x "$lf" ] || lf=$build/bin/loong-flow
    [ -x "$lf" ] || die "neither $build/loong-flow nor $build/bin/loong-flow is there; build first (make), or name another BUILD"
    LF_MODELS_DIR=${LF_MODELS_DIR:-$(cd "$here/../.." && pwd)/models}
    export LF_MODELS_DIR
}
# values STAGE KEY: what the metrics of a stage have of it, a line each.
values() { "$lf" metrics "$1" --key "$2" --lines 0 --format csv | awk -F, 'NR > 1 && $NF != "" { print $NF }'; }
first() { values "$@" | head -n 1; }
last() { values "$@" | tail -n 1; }

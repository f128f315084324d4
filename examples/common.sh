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

# cpu_of FILE: whole seconds of CPU time, from what the builtin `times` wrote into FILE. It is not called here: in a subshell it would
# tell of that one.
cpu_of() {
    awk '{ gsub(/m/, " "); gsub(/s/, " "); $0 = $0; for (i = 1; i < NF; i += 2) s += 60 * $i + $(i + 1) } END { printf "%d\n", s + 0.5 }' "$1"
}
# Cores that this process may use: those it is bound to, or fewer where its container has a quota.
cores_here() {
    cores=$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
    quota=max
    [ ! -r /sys/fs/cgroup/cpu.max ] || read -r quota period </sys/fs/cgroup/cpu.max
    if [ "$quota" != max ]; then
        quota=$(((quota + period - 1) / period))
        [ "$quota" -ge "$cores" ] || cores=$quota
    fi
    echo "$cores"
}
# forecast BUILD: how long the quickstart takes here; BUILD is 1 when there is something to build. The CPU minutes were measured on a
# server of 2023 whose cores others used too. A fast desktop needs half, an old machine twice as many; where others use the cores, which
# the load tells, the clock runs on meanwhile.
forecast() {
    plain=1
    ! grep -qs '^flags' /proc/cpuinfo || grep -q '^flags.* avx2' /proc/cpuinfo || plain=4
    load=0
    [ ! -r /proc/loadavg ] || read -r load _ </proc/loadavg
    awk -v cores="$(cores_here)" -v load="$load" -v build="$1" -v plain=$plain '
        function range(m) { return sprintf("%d to %d", m / 2 < 1 ? 1 : m / 2 + 0.5, 2.5 * m < 2 ? 2 : 2.5 * m + 0.5) }
        BEGIN {
            few = cores < 8 ? cores : 8 # a small model does not feed more
            busy = 1 + load / cores / 2
            b = (0.3 + 1.9 / cores) * busy
            s = (0.1 + 2.9 * plain / few) * busy
            printf "quickstart: %d core%s here; ", cores, cores == 1 ? "" : "s"
            if (build) printf "the build takes %s minutes (about 2 of CPU time), ", range(b)
            printf "tokenizing, training and writing %s minutes (about %d of CPU time)\n", range(s), 3 * plain
        }'
}
# minutes SECONDS
minutes() { echo "$(($1 / 60))m$(printf %02d $(($1 % 60)))s"; }

# SPDX-License-Identifier: Apache-2.0
# Two ranks that start, meet and end, over and over. Source it behind lib.sh: temporary files of
# launchers go to $T/tmp, which must be empty in the end.
R=$LF_BUILDDIR/tests/unit/comm_ranks
TMPDIR=$T/tmp
mkdir "$TMPDIR"
UCX_LOG_LEVEL=${UCX_LOG_LEVEL:-error}
ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0" # of libpmix and UCX
export TMPDIR UCX_LOG_LEVEL ASAN_OPTIONS

# launches COUNT: one in four on two simulated nodes; how many went wrong is left in $failed
launches() {
    failed=0
    for i in $(seq "$1"); do
        _nodes=
        [ $((i % 4)) -ne 0 ] || _nodes="--nodes 2 --start local"
        # shellcheck disable=SC2086
        timeout 600 "$LF" launch -n 2 $_nodes -- "$R" fence >/dev/null 2>err && continue
        failed=$((failed + 1))
        echo "# launch $i: $(head -c 300 err)"
    done
}

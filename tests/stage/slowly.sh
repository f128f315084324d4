# SPDX-License-Identifier: Apache-2.0
# To be sourced where $dir is set.
# slowly MICROSECONDS COMMAND...: becomes the command, which takes so much longer for each change that it
# makes to a file below $dir: a short run that can be hit. (Sanitizers, which keep the library out, are
# slow enough.)
slow_by=$LF_BUILDDIR/tests/fault/fail.so
[ -r "$slow_by" ] && ! grep -q '^#define LF_SANITIZERS' "$LF_BUILDDIR/config.h" || slow_by=
slowly() {
    _us=$1
    shift
    [ -n "$slow_by" ] || exec "$@"
    exec env LD_PRELOAD="$slow_by" LF_FAIL_ROOT="$dir" LF_FAIL_DELAY="$_us" "$@"
}
# cut_at ACTION N PATTERN READY COMMAND...: the command is ended (ACTION kill or term) by itself, at the
# N-th of its changes that fit ("name path", tests/fault/fail.c), so it cannot be at its end before.
# Under sanitizers from here, once the command READY succeeds. $rc: its exit status.
cut_at() {
    _action=$1 _nth=$2 _pattern=$3 _ready=$4
    shift 4
    if [ -n "$slow_by" ]; then
        env LD_PRELOAD="$slow_by" LF_FAIL_ROOT="$dir" LF_FAIL_ACTION="$_action" LF_FAIL_AFTER="$_nth" \
            LF_FAIL_MATCH="$_pattern" "$@" 2>"$dir/err" >"$dir/stdout"
        rc=$?
        return
    fi
    "$@" 2>"$dir/err" >"$dir/stdout" &
    pid=$!
    until eval "$_ready" || ! kill -0 $pid; do sleep 0.01; done 2>/dev/null
    kill -"$([ "$_action" = term ] && echo TERM || echo 9)" $pid
    wait $pid 2>/dev/null
    rc=$?
}

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

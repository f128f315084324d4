# SPDX-License-Identifier: Apache-2.0
# For tests of programs, not of disks: a file system in memory makes their many fsync cheap. Source it before the lib.sh
# of a folder of flow/; that of stage/ and tap_tmpdir() of tap.h do the same. It is not taken where it may not hold
# programs or has less than 4 GiB left, which a container's usually has not, or where LF_TEST_ON_DISK is set.
_try=/dev/shm/loong-flow-try.$$
if [ -z "${LF_TEST_ON_DISK:-}" ] && printf '#!/bin/sh\n' 2>/dev/null >"$_try"; then
    _left=$(df -Pk /dev/shm | awk 'NR == 2 { print $4 }')
    if [ "${_left:-0}" -gt 4194304 ] && chmod +x "$_try" && "$_try" 2>/dev/null; then
        TMPDIR=/dev/shm
        export TMPDIR
    fi
    rm -f "$_try"
fi

# SPDX-License-Identifier: Apache-2.0
# For tests of programs that crash, not of disks: a filesystem in memory makes their many fsync cheap. Source it before lib.sh.
_try=/dev/shm/loong-flow-try.$$
if printf '#!/bin/sh\n' 2>/dev/null >"$_try" && chmod +x "$_try" && "$_try" 2>/dev/null; then
    TMPDIR=/dev/shm
    export TMPDIR
fi
rm -f "$_try"

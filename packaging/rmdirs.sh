#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# rmdirs.sh DIRECTORY...: what `make uninstall` leaves of folders that are ours alone, if it is empty.
for d; do
    [ ! -d "$d" ] || find "$d" -depth -type d -exec rmdir {} + 2>/dev/null
done
exit 0

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# dist-tar.sh DIRECTORY: the tar of `make dist` on standard output, the same bytes for the same
# files: sorted names, owner 0, modes without the umask, times of the commit (or
# SOURCE_DATE_EPOCH; without either the tar says when it was made).
set -eu
dir=$1
date=${SOURCE_DATE_EPOCH:-$(sed -n 's/^date \([0-9]*\)$/\1/p' "$dir/.tarball-version")}
LC_ALL=C
export LC_ALL
unset TAR_OPTIONS
for tar in "${TAR:-tar}" gtar; do
    "$tar" --version 2>/dev/null | grep -q 'GNU tar' || continue
    exec "$tar" --format=ustar --sort=name --owner=0 --group=0 --numeric-owner \
        --mode=u=rwX,go=rX --mtime="@${date:-$(date +%s)}" --hard-dereference -chf - "$dir"
done
echo "make dist: GNU tar (tar or gtar) is needed, for the same bytes in each run" >&2
exit 1

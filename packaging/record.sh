#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# record.sh SRCDIR [FILE]: what the source in SRCDIR is, in two lines:
#
#     commit 0123456789abcdef0123456789abcdef01234567[-dirty]
#     date 1767225600
#
# An unpacked distribution carries them as .tarball-version; a checkout asks git. Elsewhere the
# commit is "unknown" and there is no date. A repository that merely surrounds SRCDIR is not asked.
# With FILE, the commit goes there as a C header, which is only written when it changes, and never a
# second time with LF_COMMIT_KEEP=yes: a test that calls make links no program anew under others.
set -eu
src=$1

# Git finds its repository from SRCDIR alone, also one of another owner, and writes nothing there.
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_OBJECT_DIRECTORY GIT_COMMON_DIR GIT_NAMESPACE
git_says() { GIT_OPTIONAL_LOCKS=0 git -c safe.directory='*' -C "$src" "$@" 2>/dev/null; }

record() {
    if [ -f "$src/.tarball-version" ]; then
        cat "$src/.tarball-version"
    elif [ -e "$src/.git" ] && command -v git >/dev/null 2>&1 &&
        commit=$(git_says rev-parse HEAD) && date=$(git_says log -1 --format=%ct) &&
        changes=$(git_says status --porcelain --untracked-files=no); then
        printf 'commit %s%s\ndate %s\n' "$commit" "${changes:+-dirty}" "$date"
    else
        echo "commit unknown"
    fi
}

if [ $# -lt 2 ]; then
    record
    exit
fi
[ "${LF_COMMIT_KEEP:-}" != yes ] || [ ! -f "$2" ] || exit 0
commit=$(record | sed -n 's/^commit \([0-9a-z-]*\)$/\1/p')
tmp=$2.$$
trap 'rm -f "$tmp"' EXIT
printf '/* Made by packaging/record.sh. */\n#define LF_COMMIT "%s"\n' "${commit:-unknown}" >"$tmp"
cmp -s "$tmp" "$2" || mv "$tmp" "$2"

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every file of the repository is listed for the tarball, by itself or below a listed folder. dist.sh
# (check-long) makes the tarball; this reads the lists alone.
. "$LF_SRCDIR/tests/pack/lib.sh"
[ -e "$LF_SRCDIR/.git" ] && command -v git >/dev/null || skip_all "not a git checkout"

# The names that `make dist` copies, relative to the source.
listed() {
    printf 'include Makefile\nlf-listed:\n\t@printf "%%s\\n" $(DISTFILES)\n' >"$T/list.mk"
    (cd "$LF_BUILDDIR" && "$MAKE" -s -f "$T/list.mk" lf-listed) | sed "s|^$LF_SRCDIR/||; s|^\.\./||"
}
# absent LIST: the lines of standard input that LIST has neither as they are nor a folder of.
absent() {
    awk 'NR == FNR { has[$0]; next }
        { for (p = $0; !(p in has) && sub(/\/[^\/]*$/, "", p);) ; if (!(p in has)) print }' "$1" -
}

listed >have
ok "$([ "$(wc -l <have)" -gt 1000 ]; echo $?)" "the lists can be read" "$(last have)"
git -c safe.directory='*' -C "$LF_SRCDIR" ls-files | grep -vx .gitignore >files
is "$(absent have <files)" "" "every file of the repository is in a list"
is "$(printf 'README.md\ndocs/none.md\nnone/README.md\n' | absent have | tr '\n' ' ')" \
    "docs/none.md none/README.md " "what is in none is found"
finish 3

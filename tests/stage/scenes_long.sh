#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# examples/scenes as its reader runs it, with three seeds: run.sh itself fails when fewer than 80 % of the answers about scenes that were
# never trained are right, more than 35 % without pictures, or pictures of other scenes are more than 5 points from that.
. "$LF_SRCDIR/tests/stage/lib.sh"
pkg-config freetype2 libpng 2>/dev/null || skip_all "FreeType and libpng are not here to draw with"
cd "$dir" || exit 1
sh "$LF_SRCDIR/examples/seeds.sh" 3 scenes "$LF_BUILDDIR" "$dir/runs" >"$dir/out" 2>&1
ok $? "three seeds see" "$(grep -v '^lf-' "$dir/out" | tail -n 20)"
sed -n '/ of 3: /s/^/# /p' "$dir/out"
is "$(grep -c 'right answers, scenes never trained.* of 3: 0.[89].* 0.[89].* 0.[89]' "$dir/out")" 1 "each with 80 % and more"
cd "$dir/runs/seed-1" && LF_MODELS_DIR=$LF_SRCDIR/models "$LF_BUILDDIR/loong-flow" report >"$dir/out" 2>&1
ok $? "a report" "$(cat "$dir/out")"
page=$(find . -name '*.html' | head -n 1)
[ "$(grep -o 'data:image/png' "$page" | wc -l)" -ge 20 ]
ok $? "which has the pictures that were asked about"
finish 4

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A start that fails once in hundreds is found by hundreds: 1,000 launches (LF_TIMES) one after another,
# then four rows of a quarter of that side by side, which compete for ports, names of shared memory and
# processors.
. "$LF_SRCDIR/tests/flow/lib.sh"
. "$LF_SRCDIR/tests/flow/launches.sh"
times=${LF_TIMES:-1000}
if ! "$LF" launch -n 2 -- "$R" fence >out 2>err && grep -Eq 'without-(pmix|ucx)' err; then
    skip_all "$(tail -n 1 err)"
fi
launches "$times"
is "$failed" 0 "$times launches, one after another"
[ -z "$(ls "$TMPDIR")" ]; ok $? "nothing is left of them"
rows=
for row in 1 2 3 4; do
    mkdir "row.$row"
    (cd "row.$row" && launches $((times / 4)) >told && echo "$failed" >failed) &
    rows="$rows $!"
done
wait $rows
for row in 1 2 3 4; do
    cat "row.$row/told"
    is "$(cat "row.$row/failed")" 0 "row $row of four: $((times / 4)) launches"
done
[ -z "$(ls "$TMPDIR")" ]; ok $? "nothing is left of them either"
finish 7

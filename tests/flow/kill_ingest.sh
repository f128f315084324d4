#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The command that brings the ledger up to date is killed before each of its changes to files; the wrapper is killed before each of
# its own, from the claim to the end record. The next command finds everything.
. "$LF_SRCDIR/tests/tap/shm.sh"
. "$LF_SRCDIR/tests/flow/lib.sh"
. "$LF_SRCDIR/tests/flow/fakes.sh"
. "$LF_SRCDIR/tests/flow/kill_lib.sh"
mkdir p && cd p || exit 99
cat >pipeline.ini <<'END'
[pipeline]
name = demo
[stage first]
kind = work
steps = 3
step_time = 1
[stage last]
kind = join
parts = ${stage:first.result}
END
# --- ingest: a new ledger, and one that gets another run ---
runs 0 "$LF" run
cp .loong/ledger.db one.db
runs 0 "$LF" run --new --set first.factor=2
runs 0 "$LF" ledger rebuild
ledger_rows >rows.all
[ "$(wc -l <rows.all)" -gt 30 ]; ok $? "a ledger with something in it"
for from in none one; do
    before() {
        rm -rf .loong/ledger.* .loong/lock*
        [ $from = none ] || cp one.db .loong/ledger.db
    }
    before
    changes 'loong-flow ledger' "$LF" ledger sync
    ok $? "ledger sync, from $from"
    ledger_rows >rows.now
    cmp -s rows.all rows.now
    ok $? "knows everything"
    for k in $(points); do
        before
        killed "$k" 'loong-flow ledger' "$LF" ledger sync
        want $? 137 "exit"
        "$LF" ledger sync >o 2>e || note "the next sync: $(cat o e)"
        "$LF" ledger check >o 2>e || note "ledger check: $(cat o e)"
        ledger_rows >rows.now 2>&1
        cmp -s rows.all rows.now || note "rows differ: $(diff rows.all rows.now | head -3 | tr '\n' ' ')"
        point "from $from, killed before change $k: $(sed -n "s/^$k //p" "$T/changes.log" | head -1)"
    done
done
finish_min 100 # one for each change to a file

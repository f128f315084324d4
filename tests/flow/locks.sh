#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A filesystem whose locks all fail with ENOLCK: the ledger is written under the project's own lock, and says what happened.
. "$LF_SRCDIR/tests/flow/lib.sh"
. "$LF_SRCDIR/tests/fault/lib.sh"
[ -n "$FAIL" ] || skip_all "$no_fail"
pipeline
no_locks() { LD_PRELOAD=$FAIL LF_FAIL_LOCKS=1 "$@"; }
runs 0 no_locks "$LF" run --set first.steps=2
is "$(state last)" done "without file locks the whole pipeline runs"
runs 0 "$LF" ledger check
runs 0 "$LF" ledger sql "select count(*) as n from stage"
like out '(^|[^0-9])3([^0-9]|$)' "and the ledger knows its three stages"
# A second one at once still waits for the first, or is refused by name: the link lock excludes.
no_locks "$LF" run --new --set first.steps=40 >o1 2>&1 &
p=$!
BG="$BG $p"
no_locks "$LF" run --set first.steps=40 >o2 2>&1
wait $p
is "$?" 0 "the first of two ends well"
is "$("$LF" status --columns name,state | awk '$2 == "done"' | wc -l | tr -d ' ')" 3 "and nothing is damaged"
runs 0 "$LF" ledger check
# A site that says so: the ledger is written and read without file locks, readers take the snapshot.
printf '[site]\nledger_locks = no\n' >site.ini
LF_SITE_CONFIG=$T/site.ini
runs 0 no_locks "$LF" artifacts
like out 'joined' "ledger_locks = no: readers ask no locks"
runs 0 no_locks "$LF" ledger check
printf '[site]\nledger_locks = perhaps\n' >site.ini
runs 2 "$LF" ledger sync
like err 'site.ini:2:.*yes or no' "a wrong value is named"
LF_SITE_CONFIG=
finish 13

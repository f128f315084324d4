#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The sums that `./autogen.sh check` prints: a program that fails is counted by its failures, and not once
# more for the exit status that follows from them; one that has errors alone is one.
. "${LF_SRCDIR:-.}/tests/lint/lib.sh"
tap_why=$tmp/out
sed -n -e '/^failures() {/,/^}/p' -e '/^summary() {/,/^}/p' "$LF_SRCDIR/autogen.sh" \
    >"$tmp/summary.sh"
cat >"$tmp/run.sh" <<'END'
set -eu
. "$1/summary.sh"
summary "$1"
END
# sums PASS FAIL ERROR SKIP, behind them the logs of what did not pass on standard input
sums() {
    {
        printf '# TOTAL: %d\n# PASS:  %d\n# SKIP:  %d\n# XFAIL: 0\n' $(($1 + $2 + $3 + $4)) "$1" "$4"
        printf '# FAIL:  %d\n# XPASS: 0\n# ERROR: %d\n\n' "$2" "$3"
        cat
    } >"$tmp/test-suite.log"
    LF_MAX_SKIP=5 sh "$tmp/run.sh" "$tmp" >"$tmp/out" 2>&1
}

sums 23612 0 0 3 <<'END'
SKIP: tests/flow/doctor.sh
==========================

ok 3 # SKIP no scheduler
SKIP: tests/flow/doctor.sh 3 # SKIP no scheduler
END
[ $? -eq 0 ] && grep -qx '23612 passed, 0 failed, 3 skipped' "$tmp/out"
ok $? "nothing failed"
sums 23612 1 1 0 <<'END'
ERROR: tests/gpu/kernels_test
=============================

not ok 19 - decoding of a whole model
FAIL: tests/gpu/kernels_test.sh 19 - decoding of a whole model
ERROR: tests/gpu/kernels_test.sh - exited with status 1
END
[ $? -eq 1 ] && grep -qx '23612 passed, 1 failed, 0 skipped' "$tmp/out"
ok $? "the exit status of a program with a failure is not a second one"
sums 20 3 3 0 <<'END'
ERROR: tests/unit/a
===================

FAIL: tests/unit/a 2 - x
FAIL: tests/unit/a 5
ERROR: tests/unit/a - exited with status 1
ERROR: tests/unit/b
===================

ERROR: tests/unit/b - too few tests run (expected 4, got 2)
ERROR: tests/unit/b - exited with status 139 (terminated by signal 11?)
FAIL: tests/unit/c
==================

FAIL: tests/unit/c 1 - y
END
[ $? -eq 1 ] && grep -qx '20 passed, 4 failed, 0 skipped' "$tmp/out"
ok $? "two failures, a crash, one more failure: four"
sums 20 0 0 6 </dev/null
[ $? -eq 1 ] && grep -q 'too many skipped tests: 6, at most 5' "$tmp/out"
ok $? "skips are bounded"
sums 0 0 0 0 </dev/null
ok $(($? != 1)) "a run of nothing is none"
rm "$tmp/test-suite.log"
! sh "$tmp/run.sh" "$tmp" >"$tmp/out" 2>&1 && grep -q 'no test has run' "$tmp/out"
ok $? "nor is one that did not build"
finish 6

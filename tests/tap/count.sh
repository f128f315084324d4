#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The numbers of points that tests state: TAP of tap.h and finish of tap.sh notice others.
set -u
tmp=$(mktemp -d "${TMPDIR:-/tmp}/lf-count.XXXXXX") || exit 99
trap 'rm -rf "$tmp"' EXIT
n=0 bad=0
ok() { # ok STATUS NAME: of this script alone, as that of tap.sh is tested
    n=$((n + 1))
    if [ "$1" -eq 0 ]; then echo "ok $n - $2"; else
        bad=$((bad + 1))
        echo "not ok $n - $2"
        sed 's/^/# /' "$tmp/out"
    fi
}

planted() { "$LF_BUILDDIR/tests/tap/planted" "$1" >"$tmp/out"; }
# wrong CASE FAILURES PLAN WORDS: so many points fail, one of them says WORDS
wrong() {
    planted "$1"
    [ $? -eq 1 ] && [ "$(grep -c '^not ok' "$tmp/out")" -eq "$2" ] && grep -qx "1..$3" "$tmp/out" &&
        grep -q "^not ok [0-9]* - $4\$" "$tmp/out"
    ok $? "$1: $4"
}
planted good && ! grep -q '^not ok' "$tmp/out" && grep -qx '1..18' "$tmp/out"
ok $? "calls with the points that they state"
wrong early 1 6 'stops(true) makes 3 points: 2 were seen'
wrong many 1 5 'makes(4) makes 3 points: 4 were seen'
wrong nested 1 5 'stops(early) makes 3 points: 2 were seen'
wrong least 1 3 'makes(2) makes at least 3 points: 2 were seen'
wrong left 1 2 'a call of TAP did not return to main'
wrong none 1 1 'no point was made'
planted deep
[ $? -eq 1 ] && grep -q '^Bail out! .*too deep' "$tmp/out"
ok $? "calls within calls without an end"

cat >"$tmp/test.sh" <<'END'
. "$LF_SRCDIR/tests/tap/tap.sh"
ok 0 a
ok "$1" b
shift
"$@"
END
# script STATUS-OF-B CODE LAST-LINES PLAN...
script() {
    want=$2 lines=$3
    sh "$tmp/test.sh" "$1" $4 >"$tmp/out"
    [ $? -eq "$want" ] && [ "$(tail -n +3 "$tmp/out" | tr '\n' '~')" = "$lines" ]
    ok $? "in shell, b $1: $4"
}
script 0 0 '1..2~' 'finish 2'
script 0 1 'not ok 3 - this test makes 3 points: 2 were seen~1..3~' 'finish 3'
script 0 1 'not ok 3 - this test makes 1 points: 2 were seen~1..3~' 'finish 1'
script 0 0 '1..2~' 'finish_min 1'
script 0 1 'not ok 3 - this test makes at least 3 points: 2 were seen~1..3~' 'finish_min 3'
script 0 1 'not ok 3 - the test states how many points it makes~1..3~' 'finish'
cat >"$tmp/own.sh" <<'END'
. "$LF_SRCDIR/tests/tap/tap.sh"
own_dir ended
kill -"$1" $$
sleep 1
END
for signal in HUP TERM; do
    # what is ignored from the start, as HUP is under nohup, no shell can trap
    if sh -c "kill -$signal \$\$"; then
        ok 0 "SIG$signal: a test that is ended leaves no directory # SKIP it is ignored here"
        continue
    fi
    TMPDIR=$tmp sh "$tmp/own.sh" $signal >"$tmp/out" 2>&1
    [ $? -eq 143 ] && ! ls -d "$tmp"/ended.* >>"$tmp/out" 2>&1
    ok $? "SIG$signal: a test that is ended leaves no directory"
done
echo "1..$n"
[ $bad -eq 0 ] && [ $n -eq 16 ]

# SPDX-License-Identifier: Apache-2.0
# kill -9 of one program before its n-th change to a file, for every n. Source it behind lib.sh and fakes.sh.
# LF_KILL_PART=2/3 takes every third point, from the second on: long lists are split over several tests.
. "$LF_SRCDIR/tests/fault/lib.sh"
[ -n "$FAIL" ] || skip_all "$no_fail"
part=${LF_KILL_PART:-1/1} missed=0
# changes PROGRAM COMMAND...: how many changes to files below $T the program makes; the command's own exit code in $?
changes() {
    _prog=$1
    shift
    rm -f "$T/changes.log"
    LD_PRELOAD=$FAIL LF_FAIL_ROOT=$T LF_FAIL_PROGRAM=$_prog LF_FAIL_LOG=$T/changes.log "$@" >o 2>e
    _code=$?
    N=$(sed -n 's/^\([0-9]*\) .*/\1/p' "$T/changes.log" | sort -n | tail -1)
    echo "# $_prog makes ${N:-0} changes"
    return $_code
}
# killed K PROGRAM COMMAND...: the first such process is killed before its K-th change
killed() {
    _k=$1 _prog=$2
    shift 2
    rm -f "$T/once"
    LD_PRELOAD=$FAIL LF_FAIL_ROOT=$T LF_FAIL_PROGRAM=$_prog LF_FAIL_ACTION=kill LF_FAIL_AFTER=$_k LF_FAIL_ONCE=$T/once "$@" >o 2>e
    _code=$?
    if [ ! -e "$T/once" ]; then
        # A look at the queue makes a few changes more or less than in the run that was counted, so only its last three may be missing.
        echo "# change $_k of $_prog was not reached"
        missed=$((missed + 1))
        if [ $missed -le 3 ] && [ $_code -eq 0 ] && [ "$_k" -gt $((N - 3)) ]; then return 137; fi
    fi
    return $_code
}
# points [PATTERN]: the numbers of the changes, but for those that match; of this part
points() { grep -vE "${1:-^$}" "$T/changes.log" | sed 's/ .*//' | awk -v a="${part%/*}" -v b="${part#*/}" 'NR % b == a % b'; }
# note PROBLEM: collects what is wrong at one point; point NAME reports it as one test
wrong=
note() { wrong="$wrong; $1"; }
point() { [ -z "$wrong" ]; ok $? "$1" "${wrong#; }"; wrong=; }
want() { [ "$1" = "$2" ] || note "$3: got '$1', want '$2'"; }
want_ledger() {
    "$LF" ledger check >check.out 2>&1 || note "ledger check: $(head -2 check.out | tr '\n' ' ')"
    ledger_rows >rows.now 2>&1
    "$LF" ledger rebuild >/dev/null 2>e || note "rebuild: $(cat e)"
    ledger_rows >rows.rebuilt 2>&1
    cmp -s rows.now rows.rebuilt || note "the ledger differs from the rebuilt one: $(diff rows.now rows.rebuilt | head -3 | tr '\n' ' ')"
}

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tests/tap/cpu.sh and covered.sh: the CPU time of a test with its children is recorded and summed, the slowest
# are named; what `make check-long` covered is told, what is missing by name.
. "${LF_SRCDIR:-.}/tests/lint/lib.sh"
tap_why=$tmp/out
cpu="sh $LF_SRCDIR/tests/tap/cpu.sh"
cd "$tmp" || exit 99
# Automake's driver, as far as it matters here: a .trs, and the exit status of its own.
cat >driver.sh <<'END'
while [ "$1" != -- ]; do [ "$1" != --trs-file ] || echo ":test-result: PASS" >"$2"; shift; done
shift
"$@" >/dev/null || exit 3
END
# At least 0.2 seconds of CPU in a child of a child, whatever else runs here: it counts its own.
cat >work.sh <<'END'
sh -c 'while :; do
    i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done
    times >"$0.t"; awk "NR == 1 { gsub(/[ms]/, \" \"); exit !(60 * \$1 + \$2 + 60 * \$3 + \$4 >= 0.2) }" "$0.t" && break
done' "$0"
exit "$1"
END
seconds() { sed -n 's/^:cpu-seconds: //p' "$1"; }
$cpu run sh driver.sh --test-name a --trs-file a.trs -- sh work.sh 0 >out 2>&1
[ $? -eq 0 ] && seconds a.trs | awk '{ exit !($1 >= 0.2) }' && grep -q '^:test-result: PASS' a.trs
ok $? "the time of a test's children stands in its .trs"
$cpu run sh driver.sh --test-name b --trs-file b.trs -- sh -c 'exit 1' >out 2>&1
[ $? -eq 3 ] && [ -n "$(seconds b.trs)" ]
ok $? "the driver's exit status stays"
$cpu run sh driver.sh --test-name c -- true >out 2>&1
[ $? -eq 0 ] && [ "$(ls ./*.cpu 2>/dev/null)" = "" ]
ok $? "without a .trs nothing is written"
for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo ":cpu-seconds: $i.50" >"t$i.trs"; done
echo ":test-result: SKIP" >t13.trs
$cpu sum t*.trs >out 2>&1
[ "$(grep -c '^cpu: ' out)" -eq 11 ] && sed -n 1p out | grep -q '^cpu: *84\.0 s  12 tests (1\.4 minutes)' &&
    sed -n 2p out | grep -q '^cpu: *12\.5 s  t12$' && sed -n 11p out | grep -q '^cpu: *3\.5 s  t3$'
ok $? "the sum, and the ten slowest in their order"
$cpu >out 2>&1
[ $? -eq 2 ] && grep -q 'cpu.sh sum' out
ok $? "otherwise a usage message"

mkdir -p src/tests
for t in long none gone; do printf '#!/bin/sh\n#\n# Kills in number: many.\n' >src/tests/$t.sh; done
mkdir tests
printf ':test-result: PASS long.sh 1\n:test-result: SKIP long.sh 2 # SKIP x\n:cpu-seconds: 7.00\n' >tests/long.trs
printf 'ok 1 - a\nok 2 - b # SKIP no rpmbuild\n1..2\n' >tests/long.log
echo ':test-result: SKIP' >tests/none.trs
echo '1..0 # SKIP no slurmctld here' >tests/none.log
LF_SRCDIR=src sh "$LF_SRCDIR/tests/tap/covered.sh" tests/long.sh tests/none.sh tests/gone.sh >out 2>&1
grep -qx 'long: 1 passed, 0 failed, 1 skipped, 7.00 s of CPU: tests/long.sh: Kills in number' out &&
    grep -qx 'long:     skipped: b # SKIP no rpmbuild' out
ok $? "what a long test covered, and what it skipped"
grep -qx 'long: SKIP tests/none.sh: no slurmctld here' out && grep -qx 'long: MISSING tests/gone.sh: did not run' out &&
    grep -qx 'long: 1 scripts ran, 2 did not' out
ok $? "what did not run, by name"
finish 7

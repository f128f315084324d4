#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What `make check-long` covered: covered.sh SCRIPT.. in the build directory, where their .log and .trs
# lie. A line for each script: its points, its CPU time and its first comment; or that it was skipped, and
# why; then the points that were skipped in the others.
set -u
LC_ALL=C
export LC_ALL
src=${LF_SRCDIR:-.}
count() { grep -c "^:test-result: $1" "$trs"; }
run=0 left=0
for t; do
    trs=${t%.sh}.trs log=${t%.sh}.log
    what=$(sed -n '3{s/^# //;s/[.:].*//;p;}' "$src/$t" 2>/dev/null)
    if [ ! -f "$trs" ]; then
        echo "long: MISSING $t: did not run"
        left=$((left + 1))
    elif grep -q '^1\.\.0' "$log"; then
        echo "long: SKIP $t: $(sed -n 's/^1\.\.0 *# *SKIP *//p' "$log" | head -n 1)"
        left=$((left + 1))
    else
        run=$((run + 1))
        echo "long: $(count PASS) passed, $(($(count FAIL) + $(count ERROR))) failed, $(count SKIP) skipped," \
            "$(sed -n 's/^:cpu-seconds: //p' "$trs") s of CPU: $t: $what"
        grep '^ok .*# SKIP' "$log" | sed 's/^ok [0-9]* *-* */long:     skipped: /'
    fi
done
echo "long: $run scripts ran, $left did not"

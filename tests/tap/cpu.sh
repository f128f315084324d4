#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The CPU time of tests: user and system time of a test and of all processes that it waited for. A daemon
# that nobody waits for is not in it.
#
#   cpu.sh run DRIVER [ARG..]   run Automake's test driver; its .trs file gets a line ":cpu-seconds: N"
#   cpu.sh sum NAME.trs..       the sum and the ten slowest tests
set -u
LC_ALL=C
export LC_ALL
case ${1:-} in
run)
    shift
    "$@"
    status=$?
    while [ $# -gt 1 ] && [ "$1" != -- ]; do
        [ "$1" != --trs-file ] || break
        shift
    done
    # without a .trs there is no result either
    [ "${1:-}" = --trs-file ] && [ -f "$2" ] || exit $status
    # Of the shell itself and of its children; a builtin, because a subshell would tell of itself.
    times >"$2.cpu"
    awk '{ gsub(/m/, " "); gsub(/s/, " "); $0 = $0; for (i = 1; i < NF; i += 2) s += 60 * $i + $(i + 1) }
        END { printf ":cpu-seconds: %.2f\n", s }' "$2.cpu" >>"$2"
    rm -f "$2.cpu"
    exit $status
    ;;
sum)
    shift
    awk '/^:cpu-seconds: / { name = FILENAME; sub(/\.trs$/, "", name); print $2, name }' "$@" /dev/null |
        sort -k 1,1nr -k 2 | awk '
        { sum += $1; if (NR <= 10) line[NR] = sprintf("cpu: %8.1f s  %s", $1, $2) }
        END {
            printf "cpu: %8.1f s  %d tests (%.1f minutes); the slowest:\n", sum, NR, sum / 60
            for (i = 1; i in line; i++) print line[i]
        }'
    ;;
*)
    sed -n '3,8s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The end of a launcher does not depend on that of a PMIx server: one that hangs is named and left, with the job's exit
# code, and no process and no directory stays.
. "$LF_SRCDIR/tests/flow/lib.sh"
. "$LF_SRCDIR/tests/fault/lib.sh"
[ -n "$FAIL" ] || skip_all "pmix.so cannot be loaded before the sanitizers' own library"
"$LF" launch -n 2 -- true >out 2>err || skip_all "ranks cannot be started here: $(tail -n 1 err)"

# start NAME HOW ARGS...: a launcher whose PMIx server hangs (tests/fault/pmix.c). They only wait, so they run side by side.
start() {
    mkdir "$1" "$1/tmp"
    (
        cd "$1" || exit 99
        LF_PMIX_HANGS=$2 LF_PMIX_LOG=$PWD/hung TMPDIR=$PWD/tmp LD_PRELOAD=$LF_BUILDDIR/tests/fault/pmix.so
        export LF_PMIX_HANGS LF_PMIX_LOG TMPDIR LD_PRELOAD
        shift 2
        exec "$LF" launch "$@" >out 2>err
    ) &
    hub=$!
    BG="$BG $hub"
}
gone_all() { for _p in $(cat "$1/hung"); do gone "$_p" || return 1; done; }
# ended NAME CODE DAEMONS
ended() {
    until_true 10 gone_all "$1"
    ok $? "$1: no daemon is left" "$1/err"
    is "$(wc -l <"$1/hung")" "$3" "$1: the PMIx servers of $3 daemons hung"
    is "$(ls "$1/tmp")" "" "$1: no directory is left"
    [ -z "$2" ] || is "$code" "$2" "$1: exit code $2" "$(cat "$1/err")"
}
late='^loong-flow launch: the daemon of node [0-9]+ \(host [^,]+, pid [0-9]+\) hangs in'

start one end -n 2 -- sh -c 'exit 3'
one=$hub
start two end -n 2 --nodes 2 --start local -- true
two=$hub
start stopped stop -n 2 -- true
stopped=$hub
start orphan end -n 1 -- sh -c 'echo $$ >rank; exec sleep 3000'
orphan=$hub
start begun start -n 1 -- true
begun=$hub
until_true 60 test -s orphan/rank
kill -9 "$orphan"
until_true 60 test -s begun/hung
kill -9 "$begun"

wait "$one"
code=$?
ended one 3 1
is "$(grep -Ec "$late the end of its PMIx server for [0-9]+ s: it ends without that, with 0 of its ranks killed" one/err)" 1 \
    "one line says what the daemon left"
wait "$two"
code=$?
ended two 0 2
is "$(grep -Ec "$late" two/err)" 2 "each of two daemons says it"
wait "$stopped"
code=$?
ended stopped 0 1
like stopped/err "a daemon \(pid $(cat stopped/hung)\) has not ended: signal 9" "a daemon that is stopped as a whole is killed by the launcher"
wait "$orphan" "$begun" 2>/dev/null
ended orphan "" 1
until_true 10 gone "$(cat orphan/rank)"
ok $? "a launcher that is killed: its rank ends"
like orphan/err "$late the end of its PMIx server" "and its daemon"
ended begun "" 1
like begun/err "$late the service of its ranks .* with 0 of its ranks killed" "also one that hangs before it has a rank"
finish 24

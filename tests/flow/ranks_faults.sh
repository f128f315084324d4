#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A rank that dies, stops, hangs or goes astray takes the whole job down, with its name and the collective it was missing
# in; one that is only busy with something announced does not.
. "$LF_SRCDIR/tests/flow/lib.sh"
F=$LF_BUILDDIR/tests/unit/comm_faults
LF_COMM_PATIENCE=${LF_TEST_PATIENCE:-20}
export LF_COMM_PATIENCE
need_ranks

# start NAME WHAT RANK RANKS [OPTION...]: a copy of the program with a name of its own shows what is left of it. Most of
# them only wait, so they run side by side.
start() {
    name=$1 what=$2 rank=$3 ranks=$4
    shift 4
    cp "$F" "$T/f$$.$name"
    mkdir "$T/said.$name"
    (LF_RANKS_DIR=$T/said.$name timeout 900 "$LF" launch -n "$ranks" "$@" -- "$T/f$$.$name" "$what" "$rank" >"out.$name" 2>"err.$name"; echo $? >"code.$name") &
    BG="$BG $!"
}
living() {
    for s in /proc/[0-9]*/status; do
        grep -q "^Name:[[:space:]]f$$\.$1$" "$s" 2>/dev/null && ! grep -q '^State:[[:space:]]Z' "$s" 2>/dev/null && return 0
    done
    return 1
}
dead() { ! living "$1"; }
# ended NAME CODE
ended() {
    until_true 900 test -s "code.$1"
    is "$(cat "code.$1")" "$2" "$1: exit code $2"
    until_true 10 dead "$1"
    ok $? "$1: no process is left"
}
p='\(host [^,]+, pid [0-9]+\)'
# said NAME CLASS BY PATTERN: what the wrapper of a job would read
said() {
    is "$(sed 's/.*"by":"\([^"]*\)","class":"\([^"]*\)".*/\2 \1/' "said.$1/cause.json")" "$2 $3" "$1: class $2, says the $3"
    like "said.$1/cause.json" "\"reason\":\"$4" "$1: with the line that names the rank"
}

# One of them computes without end; the others that do not come wait in a call, which costs no CPU time.
start stuck0 stuck 0 4 --nodes 2 --start local
start loop1 loop 1 2
start phase phase 1 2
start other other 1 2
start over overlong 1 2
start mstuck stuck-sender 1 2
until_true 60 test -s code.loop1
ended loop1 70
like err.loop1 "^.0. rank 1 $p hangs: computing for [0-9]+ s, after all_reduce #6, step 3; missing in all_reduce #7, step 3, where rank 0 waits" \
    "an endless loop is named"
ended stuck0 70
like err.stuck0 "rank 0 $p hangs: computing .*; missing in all_reduce #7, step 3, where rank [123] and 2 more wait" \
    "a rank 0 that is stuck, over two nodes"
ended other 70
like err.other "all ranks wait and no byte has moved for .*rank 0 $p in all_reduce #7, step 3; rank 1 $p in barrier #7, step 3" \
    "ranks in different collectives are told apart"
ended over 70
like err.over "rank 1 $p hangs: beyond the limit of its phase .*in phase \"save\", step 3; missing in all_reduce #7" \
    "a phase that lasts longer than announced"
ended mstuck 70
like err.mstuck "rank 1 $p hangs: computing .*; missing in recv from rank 1, backward, chunk 5 #2, step 3, where rank 0 waits" \
    "a message that does not come is named with its peer, its direction and its chunk"
ended phase 0
is "$(grep -c done out.phase)" 2 "an announced phase longer than the patience is no hang"

start kill1 kill 1 3
start kill0 kill 0 3
start mkill kill-sender 1 3
start stop1 stop 2 3
start stop0 stop 0 2
start exit exit 1 2
start leave leave 1 2
ended kill1 137
like err.kill1 "rank 1 $p was ended by signal 9" "the launcher says who was killed"
like err.kill1 "^.0. rank 1 $p died; missing in all_reduce #7, step 3, where rank [02] and 1 more wait; " \
    "the watchdog says where it was missing"
ended mkill 137
like err.mkill "^.0. rank 1 $p died; missing in recv from rank 1, backward, chunk 5 #2, step 3, where rank [02] and 1 more wait; " \
    "a sender that dies is missing in that message"
ended kill0 137
like err.kill0 "^.[12]. rank 0 $p died; rank [12] is in all_reduce #7, step 3" "rank 0 is watched too"
ended stop1 70
like err.stop1 "^.0. rank 2 $p has not been heard of for [0-9]+ s .*; missing in all_reduce #7, step 3" "a stopped rank is named"
ended stop0 70
like err.stop0 "^.1. rank 0 $p has not been heard of .*; rank 1 is in all_reduce #7, step 3" "a stopped rank 0 too"
ended exit 3
like err.exit "rank 1 $p died; missing in all_reduce #7" "leaving without a word is dying"
ended leave 70
like err.leave "rank 1 $p has ended its work, .*; missing in all_reduce #7" "leaving with a goodbye while others wait"

said loop1 rank watchdog "rank 1 $p hangs: computing"
said stop1 rank watchdog "rank 2 $p has not been heard of"
said stop0 rank watchdog "rank 0 $p has not been heard of"
said kill1 rank "loong-flow launch" "rank 1 $p was ended by signal 9"
root=
[ "$(id -u)" -ne 0 ] || root=--allow-run-as-root
if command -v mpirun >/dev/null && timeout 300 mpirun $root -np 2 --oversubscribe true >/dev/null 2>&1; then
    mkdir said.mpirun
    LF_RANKS_DIR=$T/said.mpirun timeout 900 mpirun $root -np 2 --oversubscribe --mca orte_abort_on_non_zero_status 0 "$F" kill 1 >out 2>&1
    said mpirun rank watchdog "rank 1 $p died"
else
    for what in class line; do skip "mpirun's killed rank: $what" "no mpirun that works here"; done
fi
runs 1 env LF_COMM_START=3 "$LF" launch -n 2 -- "$F" late 1
like err 'rank 0 .* has waited 3 s for the other ranks to start' "a rank that does not start is not waited for without end"
like err "not seen at PMIx_Init yet: rank 1 $p\$" "and the launcher names it"
runs 0 env LF_COMM_PATIENCE=off "$LF" launch -n 2 -- "$F" none 9
runs 1 env LF_COMM_PATIENCE=soon "$LF" launch -n 2 -- "$F" none 9
like err 'LF_COMM_PATIENCE=soon' "a patience that is no number is refused"
finish 56

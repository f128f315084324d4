#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Kills of ranks, launchers, wrappers and loong-flow itself, on this machine (make check-long).
. "$LF_SRCDIR/tests/flow/lib.sh"
. "$LF_SRCDIR/tests/flow/chaos_lib.sh"
driver=
begin_run() {
    "$LF" run --new >o 2>&1 &
    driver=$!
    BG="$BG $driver"
}
take_up() {
    alive "$driver" && return 0
    wait "$driver" 2>/dev/null
    "$LF" resume >o 2>&1 &
    driver=$!
    BG="$BG $driver"
}
pick() {
    common_victims
    ! alive "$driver" || echo "$driver loong-flow"
}
settle() { :; }
runs 0 "$LF" run
id=$("$tool" id "$(stage_dir train)/out/checkpoint")
series >series.ref
is "$(wc -l <series.ref | tr -d ' ') $(echo "$id" | wc -w | tr -d ' ')" "400 2" "an undisturbed run to compare with"
chaos
wait
finish_min 7 # four for each run that is killed

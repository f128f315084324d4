#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Kills of the server, moms, ranks, launchers and wrappers on the fake OpenPBS, which ends and starts jobs as a real one does (make check-long).
. "$LF_SRCDIR/tests/flow/lib.sh"
. "$LF_SRCDIR/tests/flow/fakes/pbs/lib.sh"
. "$LF_SRCDIR/tests/flow/pbs_cases.sh"
. "$LF_SRCDIR/tests/flow/chaos_lib.sh"
trap 'pbs_down >/dev/null 2>&1; cleanup' EXIT
LF_SITE_CONFIG= "$LF" run >o 2>&1
is $? 0 "an undisturbed run, without a scheduler" "$(tail -3 o)"
id=$("$tool" id "$(stage_dir train)/out/checkpoint")
series >series.ref
is "$(wc -l <series.ref | tr -d ' ') $(echo "$id" | wc -w | tr -d ' ')" "400 2" "to compare with"
pbs_up openpbs kill_delay=1 node_fail_requeue=1
pbs_server_up
is $? 0 "there is a server"
begin_run() { "$LF" submit --new >o 2>&1; }
take_up() { timeout 60 "$LF" resume >o.resume 2>&1; }
# A mom that dies leaves its job's processes alive, and the job runs again. Without a server nobody is answered; jobs go on.
pick() {
    common_victims
    [ $((kills % 2)) -ne 1 ] || echo "$(pbs_server_pid) pbs_server"
    for m in $(sed -n 's/.*"_mom": *\([0-9]*\).*/\1/p' "$LF_FAKE_DIR/state" | tr '\n' ' '); do echo "$m mom"; done
}
settle() {
    [ "$1" = pbs_server ] || return 0
    random 3
    sleep "$R"
    # A run that is done on disk needs no answer.
    [ "$R" -ne 1 ] || ! take_up || committed || ok 1 "resume says that it cannot ask" "$(tail -1 o.resume)"
    pbs_server_up || ok 1 "the server comes back"
}
chaos
finish_min 8 # four for each run that is killed

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Kills of slurmd, slurmctld, ranks, launchers and wrappers on a real SLURM of our own (make check-long).
. "$LF_SRCDIR/tests/flow/slurm_lib.sh"
. "$LF_SRCDIR/tests/flow/chaos_lib.sh"
slurm_cluster own
LF_SITE_CONFIG= "$LF" run >o 2>&1
is $? 0 "an undisturbed run, without a scheduler" "$(tail -3 o)"
id=$("$tool" id "$(stage_dir train)/out/checkpoint")
series >series.ref
is "$(wc -l <series.ref | tr -d ' ') $(echo "$id" | wc -w | tr -d ' ')" "400 2" "to compare with"
slurm_site
pid_of() { cat "$LF_SLURM_DIR/run/$1.pid" 2>/dev/null; }
begin_run() { "$LF" submit --new >o 2>&1; }
# What an administrator does. A node that was called dead is down until told otherwise. A controller that died before it had saved
# gives the numbers of its newest jobs again, which a node may remember: then the node is drained and the job held.
administer() {
    scontrol update nodename='n[0-5]' state=resume
    for j in $(squeue -h -t pending -o '%i %r' | sed -n 's/ launch failed requeued held$//p'); do scontrol release "$j"; done
} >/dev/null 2>&1
take_up() {
    administer
    timeout 60 "$LF" resume >o.resume 2>&1
}
# Only while the stage runs; the controller more seldom, it takes its time to come back.
pick() {
    d=$(start_dir)
    [ -e "$d/stage.json" ] && [ ! -e "$d/end.json" ] || return 0
    common_victims
    node=$(squeue -h -o %N -j "$(job_of train)" | head -n 1)
    case $node in n[0-5]) echo "$(pid_of "slurmd-$node") slurmd-$node" ;; esac
    [ $((kills % 4)) -ne 3 ] || echo "$(pid_of slurmctld) slurmctld"
}
answers() { sinfo -h >/dev/null; }
settle() {
    case $1 in
    slurmd-*)
        random 2
        [ $R -eq 0 ] || sleep 25 # long enough for the node to be called dead
        rm -f "$LF_SLURM_DIR/run/$1.pid"
        slurmd -f "$SLURM_CONF" -N "${1#slurmd-}"
        ;;
    slurmctld)
        sleep 1
        slurmctld -f "$SLURM_CONF"
        until_true 60 answers
        sleep 5
        ;;
    esac
}
chaos
finish_min 7 # four for each run that is killed

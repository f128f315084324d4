#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Pipelines through an OpenPBS that is installed here and takes jobs of this user.
. "$LF_SRCDIR/tests/flow/lib.sh"
command -v qsub >/dev/null || skip_all "no OpenPBS is installed (no qsub)"
case $(qsub --version 2>/dev/null) in pbs_version*) ;; *) skip_all "qsub is not of OpenPBS" ;; esac
qstat >/dev/null 2>&1 || skip_all "the PBS server does not answer"
id=$(qsub -l walltime=1:00 -j oe -o "$T/probe.out" -- /bin/true 2>probe.err) || skip_all "this user may not submit: $(head -1 probe.err)"
. "$LF_SRCDIR/tests/flow/pbs_cases.sh"
SLACK=120
trap 'ids=$(all_ids); [ -z "$ids" ] || qdel $ids >/dev/null 2>&1; cleanup' EXIT
over() { [ -n "$(end_of "$1")" ]; }
until_true 60 over "$id"
is "$(end_of "$id")" 0 "a job runs"
case_graph "fan-out and fan-in"
case_chain
case_failure
case_cancel
case_killed
case_quoting
finish_min 7 # at least one of each case; no OpenPBS was there to count them

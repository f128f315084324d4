#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Pipelines through the fake Torque: scheduler = pbs finds out by itself.
. "$LF_SRCDIR/tests/flow/lib.sh"
. "$LF_SRCDIR/tests/flow/fakes/pbs/lib.sh"
. "$LF_SRCDIR/tests/flow/pbs_cases.sh"
trap 'pbs_down >/dev/null 2>&1; cleanup' EXIT
pbs_up torque kill_delay=10

new_project
pipeline
cat >>pipeline.ini <<'P'
[resources]
nodes = 2
ranks = 2
cpus = 2
memory = 1G
gpus = 1
time_limit = 90m
queue = small
qos = high
P
runs 0 "$LF" submit --dry-run
sed -n '/^#PBS/p' out | sort -u >got
sort >want <<'W'
#PBS -S /bin/sh
#PBS -l mem=2048mb
#PBS -l nodes=2:ppn=4:gpus=1
#PBS -l qos=high
#PBS -l walltime=1:30:00
#PBS -q small
#PBS -r y
W
cmp -s got want
ok $? "the resources in Torque's words" "$(diff want got | tr '\n' '~')"
like out "qsub .*-F '" "arguments go with -F"
unlike out 'qsub .* -- ' "there is no -- form"

case_graph "fan-out and fan-in"
: >"$LF_FAKE_DIR/calls"
case_chain
is "$(grep -c '^qalter .*nodes=1:ppn=1' "$LF_FAKE_DIR/calls")" 1 "the links that were left over were made small"
case_failure
case_cancel
case_killed
case_quoting
pbs_conf keep_completed=0
case_graph "completed jobs are forgotten at once"
pbs_down
finish 68

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Pipelines through the fake OpenPBS: what would be submitted, and what a real one does too (pbs_cases.sh).
. "$LF_SRCDIR/tests/flow/lib.sh"
. "$LF_SRCDIR/tests/flow/fakes/pbs/lib.sh"
. "$LF_SRCDIR/tests/flow/pbs_cases.sh"
trap 'pbs_down >/dev/null 2>&1; cleanup' EXIT
pbs_up openpbs kill_delay=10

# ---- what would be submitted ----
new_project
pipeline
cat >>pipeline.ini <<'P'
[resources]
nodes = 2
ranks = 2
cpus = 4
memory = 3G
gpus = 1
time_limit = 1h30m
queue = small
account = proj_7
mail = me@site.org
mail_type = end fail
modules = gcc/12 hdf5
prologue = export WORD='a b'
extra = -p 10
P
sed -i 's/^\[stage last\]/[stage last]\nexclusive = yes\nlinks = 1/' pipeline.ini
runs 0 "$LF" submit --dry-run
sed -e "s|$PWD|PROJECT|g" -e 's|rev\.[0-9]*/|rev.K/|g' -e "s|$T|T|g" out >dry
sed -n '/^#PBS/p' dry | sort -u >got
sort >want <<'W'
#PBS -A proj_7
#PBS -M me@site.org
#PBS -l place=scatter
#PBS -l place=scatter:excl
#PBS -l select=2:ncpus=8:mpiprocs=2:ompthreads=4:mem=3072mb:ngpus=1
#PBS -l walltime=1:30:00
#PBS -m ae
#PBS -p 10
#PBS -q small
#PBS -r y
W
cmp -s got want
ok $? "the resources in PBS's words" "$(diff want got | tr '\n' '~')"
like dry "^export WORD='a b'\$" "lines of the prologue as they are"
like dry '^module load gcc/12$' "modules are loaded"
like dry 'qsub .*-l select=2:ncpus=8:mpiprocs=2:ompthreads=4:mem=3072mb:ngpus=1 .*-l walltime=1:30:00 .*-- /bin/sh .*script' "the command has the options of the script's lines"
like dry 'depend=afterany:' "links wait for each other"
like dry 'depend=afterok:' "stages wait for the last link"
is "$(ls "$LF_FAKE_DIR/state" 2>/dev/null)" "" "and nothing was submitted"
runs 2 "$LF" submit --dry-run --set first.gpus=a100:2
like err 'constraint' "a type of GPU is refused with what to do"
runs 2 "$LF" submit --dry-run --set first.qos=high
runs 2 "$LF" submit --dry-run --set first.chain=requeue
mkdir -p .loong/templates/pbs
printf '#!/bin/sh\n#PBS -l select=@SELECT@\n#PBS -N mine\nexec "$@"\n' >.loong/templates/pbs/job.sh.in
chmod 644 .loong/templates/pbs/job.sh.in
runs 2 "$LF" submit --dry-run
like err '\-N' "a template may not take the job's name"
printf '#!/bin/sh\n#PBS -l select=@SELCT@\nexec "$@"\n' >.loong/templates/pbs/job.sh.in
runs 2 "$LF" submit --dry-run
like err 'job.sh.in:2: .*@SELCT@.*@SELECT@' "an unknown placeholder is an error with the nearest name"

# ---- the same as on a real one ----
case_graph "fan-out and fan-in"
: >"$LF_FAKE_DIR/calls"
case_chain
is "$(grep -c '^qalter .*select=1:ncpus=1' "$LF_FAKE_DIR/calls")" 1 "the links that were left over were made small, in one call"
ok "$(! grep -q '^qalter.*depend\|^qdel' "$LF_FAKE_DIR/calls"; echo $?)" "no dependency was pointed elsewhere, no link deleted"
case_failure
case_cancel
case_killed
case_quoting

# ---- the clock ----
# The limit counts from the start of the job, not from that of the wrapper behind a long prologue.
new_project
chain_pipeline
sed -i 's/^grace = 8s/grace = 11s\nprologue = sleep 12/' pipeline.ini
runs 0 "$LF" submit --set first.steps=30 --set first.time_limit=28s
wait_state last done "a stage behind a long prologue"
for i in $(job_ids first); do echo "$i $(end_of "$i")"; done >ends
unlike ends ' -29$' "no link is killed at its limit"

# ---- no job history ----
# Each qsub takes longer than the first stage: a job that ran at once would be forgotten before the next asks for it.
pbs_conf history=0
pbs_knob qsub_before -1 2
case_graph "without job history"
pbs_knob qsub_before 0
pbs_conf history=1

pbs_down
finish 84

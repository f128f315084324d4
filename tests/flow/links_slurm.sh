#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# chain = links on an imitated SLURM: a stage of several walltimes as jobs submitted beforehand, nothing put back into the queue.
. "$LF_SRCDIR/tests/flow/lib.sh"
. "$LF_SRCDIR/tests/flow/fakes.sh"
fakes_slurm
SLACK=90
. "$LF_SRCDIR/tests/flow/pbs_cases.sh"
site 'scheduler = slurm' 'chain = links'
knob limit 24
new_project
chain_pipeline
runs 0 "$LF" submit
is "$(job_ids first | wc -w)" 6 "six links"
like "$LF_FAKE_DIR/calls" 'sbatch .*--no-requeue .*--dependency=afterany:' "links wait for each other and are not requeued"
wait_state last done "a stage of several walltimes with two stages behind it"
k=$(incs first)
ok "$([ "$k" -ge 2 ] && [ "$k" -le 6 ]; echo $?)" "its segments: $k"
is "$(incs second) $(incs last)" "1 1" "those behind it ran once"
is "$(calls 'scontrol requeue')" 0 "nothing was put back into the queue"
like "$LF_FAKE_DIR/calls" 'scontrol update JobId=.* TimeLimit=1' "links that were left over were made small"
ledger_true

new_project
chain_pipeline
runs 0 "$LF" submit --set first.steps=20 --set first.fail_at=5 --set first.links=3
wait_state first failed "a stage that fails"
until_true "$SLACK" sh -c '[ -z "$(squeue -h -t pending,running,completing)" ]'
is "$(incs first)" 1 "the links behind it did not try again"
ok "$([ "$(state second)" != done ] && [ "$(state last)" != done ]; echo $?)" "what needs it did not run: $(state second) $(state last)"
finish 14

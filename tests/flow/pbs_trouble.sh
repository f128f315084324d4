#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Troubles on the way to a PBS server, which one cannot order from a real one: answers that get lost, a server that is away, limits, jobs
# deleted behind our back, another program called qstat.
. "$LF_SRCDIR/tests/flow/lib.sh"
. "$LF_SRCDIR/tests/flow/fakes/pbs/lib.sh"
. "$LF_SRCDIR/tests/flow/pbs_cases.sh"
trap 'pbs_down >/dev/null 2>&1; cleanup' EXIT
pbs_up openpbs kill_delay=10

# ---- submissions that go wrong ----
jobs_made() { grep -c '"_seq"' "$LF_FAKE_DIR/state"; }
new_project
pipeline
site 'command_timeout = 6s'
before=$(jobs_made)
pbs_knob qsub_late 1 20
runs 0 "$LF" submit
wait_state last done "a qsub that is not heard of again, though the job is there"
is "$(($(jobs_made) - before))" 3 "no job was made twice"
is "$(incs first) $(incs second) $(incs last)" "1 1 1" "nothing ran twice"
site
new_project
pipeline
before=$(jobs_made)
pbs_knob qsub_lost 1
runs 0 "$LF" submit
wait_state last done "a connection that breaks after the job was taken"
is "$(($(jobs_made) - before))" 3 "no job was made twice"
new_project
pipeline
pbs_knob qsub_chatter -1 'Your project has 100 core hours left (12.5 used)'
runs 0 "$LF" submit
wait_state last done "lines before the id"
pbs_knob qsub_chatter 0

# ---- a server that is away, that refuses, that has a limit ----
new_project
pipeline
site 'submit_wait = 2s'
pbs_knob unreachable -1
runs 5 "$LF" submit
like out 'cannot connect' "a server that is away"
pbs_knob unreachable 0
site
runs 0 "$LF" submit
wait_state first done "it is back"
pbs_knob unreachable -1
runs 0 "$LF" status
is "$(state first)" done "status without the server"
pbs_knob unreachable 0
wait_state last done "and on it goes"
new_project
pipeline
pbs_knob qsub_refuse -1 'Unauthorized Request'
runs 4 "$LF" submit
like out 'Unauthorized Request' "refused for good, in the server's words"
pbs_knob qsub_refuse -1 'pbsconf error: pbs conf variables not found: PBS_HOME PBS_EXEC'
runs 5 "$LF" submit
like out 'qsub knows of no server: .*not found' "no server at all is no refusal"
pbs_knob qsub_refuse 2 "would exceed queue generic's per-user limit"
runs 0 "$LF" submit
wait_state last done "a limit is waited for"

# ---- jobs that vanish or move ----
new_project
pipeline
pbs_conf scheduling=0
runs 0 "$LF" submit
qdel "$(job_ids first)"
until_true "$SLACK" stage_is first cancelled
like_not_done() { [ "$(state "$1")" != done ] && [ "$(state "$1")" != running ]; }
ok "$(like_not_done first && like_not_done second && like_not_done last; echo $?)" \
    "jobs deleted behind our back are not done: $(state first) $(state second) $(state last)"
pbs_conf scheduling=1
runs 0 "$LF" resume
wait_state last done "resume makes them again"

new_project
pipeline
pbs_conf scheduling=0
site 'lost_after = 1s'
runs 0 "$LF" submit
qmove workq@pbs1 "$(job_ids first)"
sleep 3
"$LF" tick >/dev/null 2>&1
is "$(state first)" pending "a job that was moved to another server is not lost"
site
"$LF" status >out
like out 'first .*moved to another server' "and status says so"
qdel "$(job_ids last)" "$(job_ids second)"
pbs_conf scheduling=1

# ---- which PBS ----
new_project
pipeline
site 'scheduler = torque'
runs 2 "$LF" submit
like err 'scheduler = pbs' "Torque was named and is not there"
site
cat >"$T/qstat" <<'S'
#!/bin/sh
echo "slurm-wlm 22.05.8"
S
chmod +x "$T/qstat"
site "commands = qstat=$T/qstat"
runs 2 "$LF" submit --new
like err 'neither of PBS nor of Torque' "SLURM's wrappers are not taken for PBS"
site

pbs_down
finish 33

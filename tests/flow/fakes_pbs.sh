#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The fake PBS itself: it takes what the real commands take, refuses what they refuse, and ends jobs as they do.
. "$LF_SRCDIR/tests/flow/lib.sh"
. "$LF_SRCDIR/tests/flow/fakes/pbs/lib.sh"
trap 'pbs_down >/dev/null 2>&1; cleanup' EXIT
pbs_up openpbs kill_delay=1
over() { case "$(pbs_attr "$1" job_state)" in F | C | "") return 0 ;; *) return 1 ;; esac; }
run_job() { id=$(qsub "$@") && until_true 30 over "$id" && echo "$id"; }

# Grammar.
runs 0 qstat --version
like out '^pbs_version = ' "the version is on stdout"
runs 2 qsub --comment=x -- /bin/true
runs 1 qsub -N sixteen-letters- -- /bin/true
runs 1 qsub -N 9lives -- /bin/true
runs 187 qsub -l walltim=1:00 -- /bin/true
runs 36 qsub -l select=1:ncpus=x -- /bin/true
runs 36 qsub -l select=1:ncpus=1 -l nodes=1 -- /bin/true
runs 36 qsub -W comment=x -- /bin/true
runs 1 qsub -W depend=afterok:x -- /bin/true
runs 2 qstat -f -1
runs 2 qstat -F dsv
runs 2 qstat --json
runs 153 qstat 77
runs 153 qdel 77

# A program right below the mom: its exit code, its environment, its start directory.
cat >show.sh <<'S'
pwd; echo "args: $*"; env | sort; cat "$PBS_NODEFILE"
S
cd /
export LEAK=secret
id=$(run_job -N show -j oe -o "$T/show.out" -v LF_TOKEN=abc,B='x\,y' -l select=2:ncpus=2:mpiprocs=2 -l walltime=1:00 -- /bin/sh "$T/show.sh" 'a b' '$(c)')
cd "$T"
is "$(sed -n 1,2p show.out | tr '\n' '|')" "$LF_FAKE_DIR/home|args: a b \$(c)|" "it starts in HOME, its arguments are words"
like show.out '^LF_TOKEN=abc$' "-v is passed on"
like show.out '^B=x,y$' "with an escaped comma"
like show.out '^PBS_O_WORKDIR=/$' "the directory of the submission is told"
unlike show.out 'LEAK' "the environment of the submitter is not"
is "$(tail -4 show.out | tr '\n' ' ')" "n0 n0 n0 n0 " "the node file has mpiprocs lines for each chunk"
is "$(pbs_attr "$id" Exit_status) $(pbs_attr "$id" substate)" "0 92" "an end that is well"
runs 35 qstat "$id"
runs 35 qdel "$id"
bad_id=$(run_job -- /bin/sh -c 'exit 7')
is "$(pbs_attr "$bad_id" Exit_status) $(pbs_attr "$bad_id" substate)" "7 93" "an end that is not"

# Several ids at once.
is "$(qstat -x -f -F dsv "$id" "$bad_id" | grep -c '^Job Id: ')" 2 "dsv prints all"
is "$(qstat -x -f -F json "$id" "$bad_id" | grep -c '"Exit_status"')" 1 "JSON the first only"
qstat -x -f "$id" | awk 'length($0) > 80 { exit 1 }'
ok $? "text is wrapped at 80 columns"

# Dependencies.
pbs_conf cpus=1
a=$(qsub -h -- /bin/sh -c 'exit 3')
b=$(qsub -W depend=afterok:$a -- /bin/true)
c=$(qsub -W depend=afterany:$b -- /bin/true)
d=$(qsub -W depend=afterany:$a -- /bin/sh -c 'exit 0')
e=$(qsub -W depend=afterok:$d -- /bin/true)
is "$(pbs_attr $b job_state) $(pbs_attr $b substate) $(pbs_attr $b Hold_Types)" "H 22 s" "a job that waits for another"
qrls $a
until_true 30 over $e
is "$(pbs_attr $b job_state) $(pbs_attr $b substate) $(pbs_attr $b Exit_status)$(pbs_attr $b run_count)" "F 92 " \
    "the child of a failed job is deleted, without an exit status"
is "$(pbs_attr $c job_state)$(pbs_attr $c Exit_status)" F "and its child in turn"
is "$(pbs_attr $d Exit_status)$(pbs_attr $e Exit_status)" 00 "afterany runs, and what waits for that"
x=$(qsub -W depend=afterok:4711 -- /bin/true)
is "$?$(pbs_attr $x job_state)$(pbs_attr $x Exit_status)" 0F "a dependency on a job that is not known: an id, and then the job is gone"
a=$(qsub -h -- /bin/true)
b=$(qsub -W depend=afterany:$a -- /bin/true)
c=$(qsub -W depend=afterany:$b -- /bin/true)
qdel $a
is "$(pbs_attr $b job_state)$(pbs_attr $c job_state)" FF "qdel of a job that has not run takes its children with it"
a=$(qsub -h -- /bin/true)
b=$(qsub -W depend=afterany:$a -- /bin/true)
c=$(qsub -W depend=afterok:$b -- /bin/true)
runs 0 qalter -l select=1:ncpus=1 -l walltime=1:00 $b
is "$(pbs_attr $b job_state) $(pbs_attr $b Resource_List.walltime)" "H 1:00" "qalter shrinks a job that waits"
runs 159 qalter -l walltime=2:00 $b
runs 0 qalter -W depend=afterany:$a $b
is "$(pbs_attr $b job_state)$(pbs_attr $c job_state)" FF "a dependency that is pointed elsewhere deletes the job and its child"
qdel $a

# Time and signals.
id=$(run_job -l walltime=1 -- /bin/sh -c 'trap "exit 75" TERM; sleep 30 & wait')
is "$(pbs_attr $id Exit_status)" -29 "the walltime"
# Each of these says when it is ready to hear a signal.
id=$(qsub -- /bin/sh -c "trap 'exit 9' USR1; : >$T/ready.1; while :; do sleep 0.1; done")
until_true 20 test -e ready.1
until_true 20 sh -c "qstat -f -w $id | grep -q session_id"
qsig -s USR1 $id
until_true 20 over $id
is "$(pbs_attr $id Exit_status)" 9 "a program hears a signal itself"
cat >trap.sh <<S
trap "exit 9" USR1
: >$T/ready.2
while :; do sleep 0.1; done
S
id=$(qsub trap.sh)
until_true 20 test -e ready.2
until_true 20 sh -c "qstat -f -w $id | grep -q session_id"
qsig -s USR1 $id
until_true 20 over $id
is "$(pbs_attr $id Exit_status)" 266 "the login shell above a script dies of it"
id=$(qsub -- /bin/sh -c "trap '' TERM; : >$T/ready.3; while :; do sleep 0.1; done")
until_true 20 test -e ready.3
until_true 20 sh -c "qstat -f -w $id | grep -q session_id"
qdel $id
until_true 20 over $id
is "$(pbs_attr $id Exit_status) $(pbs_attr $id substate)" "265 91" "qdel: TERM, and KILL after a while"
runs 0 qsub -h -- /bin/true
runs 168 qsig -s USR1 "$(cat out)"

# Without job history; a server that does not answer; answers that get lost.
pbs_conf history=0
id=$(run_job -- /bin/true)
runs 153 qstat -x -f "$id"
b=$(qsub -W depend=afterok:$id -- /bin/true)
runs 153 qstat -x -f "$b"
pbs_knob unreachable 1
runs 255 qstat
runs 0 qstat
pbs_knob qsub_lost 1
runs 1 qsub -h -N lost -- /bin/true
is "$(qselect -N lost | wc -l)" 1 "a submission that looked failed has made a job"
pbs_down
ok $? "all is ended"

# A server that dies: a job goes on and ends, nothing else happens, and what it wrote down counts when the server is back.
rm -rf "$LF_FAKE_DIR"
pbs_up openpbs kill_delay=1 node_fail_requeue=1
pbs_server_up
ok $? "a server answers"
id=$(qsub -- /bin/sh -c ": >$T/ready.4; while [ ! -e $T/go.4 ]; do sleep 0.1; done; exit 3")
until_true 20 test -e ready.4
until_true 20 sh -c "qstat -f -w $id | grep -q session_id"
next=$(qsub -W depend=afterany:$id -- /bin/sh -c ": >$T/ready.5")
kill -9 "$(pbs_server_pid)"
until_true 20 sh -c '! qstat'
runs 255 qstat
runs 255 qsub -- /bin/true
like err 'cannot connect to server pbs0' "without it nobody is answered"
: >go.4
until_true 20 grep -q '"Exit_status": 3' "$LF_FAKE_DIR/state"
ok $? "its job ends"
[ ! -e ready.5 ]; ok $? "and what waits for it does not begin"
pbs_server_up
until_true 20 test -e ready.5
ok $? "before a server is back"
until_true 20 over $next
runs 99 "$LF_FAKE_DIR/bin/pbs_server"
pbs_down

# Torque.
rm -rf "$LF_FAKE_DIR"
pbs_up torque kill_delay=1 keep_completed=3600
runs 0 qstat --version
is "$(head -1 err | cut -c1-9)$(cat out)" "Version: " "Torque prints its version on stderr"
runs 2 qsub -- /bin/true
runs 187 qsub -l select=1:ncpus=1 trap.sh
runs 36 qsub -l nodes=1:ppn=1:mem=1gb trap.sh
echo 'echo "$PBS_WALLTIME $1|$2"; exit 5' >t.sh
id=$(qsub -l nodes=1:ppn=2,walltime=60 -j oe -o "$T/t.out" -F "'a b' c" t.sh)
until_true 20 over $id
is "$(cat t.out)" "60 a b|c" "-F are the arguments of the script, PBS_WALLTIME its time"
is "$(pbs_attr $id job_state) $(pbs_attr $id exit_status)" "C 5" "state C for a while"
is "$(qstat -x $id | grep -c '<exit_status>5</exit_status>')" 1 "-x is XML"
pbs_conf keep_completed=1
until_true 20 sh -c "! qstat -f -1 $id 2>/dev/null"
runs 153 qstat -f $id
pbs_down
finish 69

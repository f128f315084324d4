#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# on_end and on_fail: who runs them, once for each end, with what environment, and that they change nothing.
. "$LF_SRCDIR/tests/flow/lib.sh"
. "$LF_SRCDIR/tests/flow/fakes.sh"
run_dir() { echo "$T"/loong-data/*/runs/"$(run_id)"; }
told() { cat "$T/told" 2>/dev/null | tr '\n' ' '; }
events() { grep -l "\"command\":\"$1\"" "$(run_dir)"/spool/*run_end* 2>/dev/null | wc -l; }
records() { ls "$(run_dir)"/ended.*.json 2>/dev/null | wc -l; }
cat >tell.sh <<'E'
echo "$1 $LF_STATE" >>told
env | sort >env.$1
pwd >pwd.$1
echo "heard of $LF_REASON"
E
cat >pipeline.ini <<'E'
[pipeline]
name = demo
on_end = sh tell.sh end
on_fail = sh tell.sh fail
[stage first]
kind = work
steps = 5
step_time = 1
grace = 2
[stage second]
kind = work
input = ${stage:first}
E

# --- on this machine ---
A_SECRET=hush
export A_SECRET
runs 0 "$LF" run
is "$(told)" "end done " "a run that is done: on_end alone"
is "$(sed 's/=.*//' env.end | grep -v '^\(PWD\|OLDPWD\|SHLVL\|_\)$' | tr '\n' ' ')" "HOME LF_NAME LF_REASON LF_RUN LF_STATE PATH " \
    "which has these variables and no other"
is "$(grep '^LF_[RNS]' env.end | grep -v REASON | tr '\n' ' ')" "LF_NAME=demo LF_RUN=$(run_id) LF_STATE=done " "with these values"
is "$(cat pwd.end)" "$T" "in the directory of the project"
like "$(run_dir)/ended.log" '^-- .*Z on_end: exit 0$' "the log has its exit code"
like "$(run_dir)/ended.log" '^heard of $' "and what it said"
is "$(events on_end) $(events on_fail) $(records)" "1 0 1" "an event and a record"
is "$("$LF" ledger sql "SELECT count(*) FROM event WHERE kind = 'run_end'" | tail -n 1 | tr -d ' ')" 1 "the ledger has a row of it"
(cd "$T" && "$LF" run --quiet)
is "$(told)" "end done " "nothing to do: nothing more is told"

: >told
runs 1 "$LF" run --new --set first.fail_at=3
is "$(told)" "fail failed end failed " "a failed run: on_fail, then on_end"
like env.fail '^LF_REASON=first: .*something' "with the reason"
: >told
runs 0 "$LF" resume --set first.fail_at=0 --quiet
is "$(told)" "end done " "it goes on and ends again: that is told too"
is "$(records)" 2 "by a record of its own"

# A stop is an end.
: >told
hold
"$LF" run --new --set "first.hold=$HOLD" >o 2>&1 &
p=$!
BG="$BG $p"
until_true 20 sh -c "$LF status | grep -q 'first .*running .*[1-9]/'"
kill -INT $p
wait $p
is "$? $(told)" "75 end stopped " "a run that was stopped"
let_go

# A cancelled run: by the driver, or by cancel when that has gone.
: >told
hold
"$LF" run --new --set "first.hold=$HOLD" >o 2>&1 &
p=$!
BG="$BG $p"
until_true 20 sh -c "$LF status | grep -q 'first .*running .*[1-9]/'"
runs 0 "$LF" cancel
wait $p
is "$(told)" "end cancelled " "a run that was cancelled" "$(cat o)"
let_go
: >told
runs 0 "$LF" cancel
is "$(told)" "" "cancelling it again tells nothing"

# Whoever was first has told it: the record stands before the command runs.
: >told
hold
"$LF" run --new --set "first.hold=$HOLD" >o 2>&1 &
p=$!
BG="$BG $p"
until_true 20 sh -c "$LF status | grep -q 'first .*running .*[1-9]/'"
echo '{"lf_ended":1}' >"$(run_dir)/ended.2.2.json"
let_go
wait $p
is "$? $(told)" "0 " "the end of two attempts and two starts was claimed by somebody else: nothing is run"

# Failures of the commands have no effect.
runs 0 "$LF" run --new --set 'pipeline.on_end=echo no >&2; exit 3'
like out 'note: on_end failed; what it said is in ended.log' "a command that fails is a note"
like "$(run_dir)/ended.log" '^no$' "its words are in the log"
is "$(state second)" done "and the run is done"
runs 0 "$LF" run --new --set pipeline.on_time_limit=1s --set 'pipeline.on_end=echo $$ >pid; sleep 1000; echo late >>told'
like out 'note: on_end was ended at its time limit' "one that does not end is ended"
! kill -0 "$(cat pid)" 2>/dev/null; ok $? "it is gone"
is "$(told)" "" "before it did what came then"
runs 0 "$LF" run --new --set 'pipeline.on_end=if then'
like out 'note: on_end failed' "so is one that is no command"
runs 2 "$LF" plan --set pipeline.on_time_limit=2h
like err 'on_time_limit = 2h: a duration from 1s to 1h' "a limit has limits"

printf '[pipeline]\non_end = echo mine >>told\n' >user.ini
sed '/^on_/d' pipeline.ini >bare.ini
LF_USER_CONFIG=$T/user.ini "$LF" run --new bare.ini >out 2>&1
is "$? $(told)" "0 mine " "the user's own file may say it for every pipeline"

# --- with a batch scheduler ---
fakes_slurm
printf '[site]\nscheduler = slurm\npoll = 0\nsettle = 0\nlost_after = 2\nsubmit_wait = 10\n' >site.ini
LF_SITE_CONFIG=$T/site.ini
export LF_SITE_CONFIG
: >told
runs 0 "$LF" submit --new --wait
is "$(told)" "end done " "submit --wait tells the end"
runs 0 "$LF" tick
is "$(told)" "end done " "and tick does not tell it again"
: >told
runs 0 "$LF" submit --new --set first.fail_at=3 --set first.retries=0
until_true 30 sh -c "$LF status | grep -q 'first .*failed'"
until_true 30 sh -c "$LF tick >/dev/null 2>&1; test -s $T/told"
is "$(told)" "fail failed end failed " "without it tick does"
runs 0 "$LF" tick
is "$(told)" "fail failed end failed " "once"

# cancelled NAME: submitted, cancelled while it runs, told once
cancelled() {
    : >told
    hold
    runs 0 "$LF" submit --new --set "first.hold=$HOLD"
    until_true 30 sh -c "$LF status | grep -q 'first .*running'"
    runs 0 "$LF" cancel
    let_go
    until_true 30 sh -c "$LF tick >/dev/null 2>&1; test -s $T/told"
    is "$(told)" "end cancelled " "$1: a cancelled run is told, by cancel or by the next tick"
    runs 0 "$LF" tick
    runs 0 "$LF" tick "$(run_id)"
    is "$(told)" "end cancelled " "$1: once"
    is "$(sed -n 's/^LF_STATE=//p' env.end)" cancelled "$1: with its state"
}
cancelled slurm
fakeslurm stop

# --- with PBS ---
. "$LF_SRCDIR/tests/flow/fakes/pbs/lib.sh"
if [ -n "$(pbs_nameless)" ]; then
    skip_some 11 "$(pbs_nameless)"
    finish 61
fi
trap 'pbs_down >/dev/null 2>&1; cleanup' EXIT
pbs_up openpbs kill_delay=10
printf '[site]\nscheduler = pbs\npoll = 1s\ncommand_timeout = 20s\nsettle = 0s\n' >site.ini
: >told
runs 0 "$LF" submit --new --wait
is "$(told)" "end done " "PBS: submit --wait tells the end"
: >told
runs 0 "$LF" submit --new --set first.fail_at=3 --set first.retries=0
until_true 30 sh -c "$LF status | grep -q 'first .*failed'"
until_true 30 sh -c "$LF tick >/dev/null 2>&1; test -s $T/told"
is "$(told)" "fail failed end failed " "PBS: without it tick does"
cancelled PBS
pbs_down
finish 61

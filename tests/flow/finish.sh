#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# finish: a stage that runs, that was stopped, or that was killed ends early, and what follows goes on with what is
# there. The result and what was made of it have other spec ids; nobody else takes them over.
. "$LF_SRCDIR/tests/flow/lib.sh"
pipeline

begin() { # begin WORDS...: a run whose first stage holds after its first steps
    hold
    "$LF" "$@" --set "first.hold=$HOLD" --set first.hold_at=7 >o 2>&1 &
    p=$!
    BG="$BG $p"
    until_true 10 sh -c "$LF status | grep -q 'running .*7/30'"
    until_true 10 saved # what it tells it has not saved yet
}
saved() { [ -e "$(stage_dir first)/out/ck-7" ]; }
ends() { wait $p; is $? "$1" "$2"; }
spec() { "$LF" status ${2:+"$2"} --columns name,spec_id | awk -v s="$1" '$1 == s { print $2 }'; } # spec STAGE [RUN]
stage_of() { dirname "$(stage_dir "$1")"; }

# --- what may be asked ---
runs 0 "$LF" run
whole=$(result last joined)
whole_id=$(run_id)
runs 2 "$LF" finish
like err 'name the stage' "without a name: what to say"
runs 2 "$LF" finish last
like err 'kind join.*for stages that train: work' "a stage that does not train is refused"
runs 8 "$LF" finish frist
like err 'did you mean' "an unknown one too, as by every command that names a stage"
for words in "logs frist" "show latest frist" "metrics latest/frist" "rerun frist" "explain frist" "cancel --stage frist" "cancel --after frist" \
    "run --only frist" "run --until frist" "run --from frist" "run --force frist" "resume --only frist" "submit --until frist"; do
    # shellcheck disable=SC2086
    runs 8 "$LF" $words
done
runs 2 "$LF" finish first
like err 'first is done already' "one that is done has nothing to end"
frozen=$(spec second)

# --- while it runs ---
begin run --new
runs 2 "$LF" finish first --decay
like err 'schedule = wsd' "a decay is refused where the schedule has none"
runs 2 "$LF" finish second
like err 'has not begun' "a stage that waits has nothing to take"
runs 0 "$LF" finish first
like out 'asked to end after its current step' "a running stage is asked"
ends 0 "the run goes on to its end"
let_go
like o 'first: done .*ended at 7 of 30' "it says where the stage ended"
is "$(state first) $(state second) $(state last)" "done done done" "all stages are done"
early_id=$(run_id)
is "$(result last joined | grep -c .) $(result last joined | grep -cF "$whole")" "1 0" "with other results"
like "$(stage_dir first)/done.json" '"ended":\{.*"ended_at_step":7' "the commit says it"
like "$(stage_dir first)/end.json" '"ended":\{.*"ended_at_step":7' "and end.json"
like "$(stage_dir second)/done.json" '"ended_at_step":7' "its reader notes what it read"
runs 0 "$LF" status
like out 'ended at 7 of 30' "status says it"
"$LF" status --json | tr -d ' \n' >js
like js '"ended":\{[^}]*"ended_at_step":7' "and --json"
for words in plan "show first" watch "metrics first"; do
    # shellcheck disable=SC2086
    "$LF" $words >out 2>err
    like out 'ended at 7 of 30' "$words says it"
done
"$LF" report --output page.html >out 2>err
like page.html 'ended at 7 of 30' "the report says it"
is "$(spec first)" "$(spec first "$whole_id")" "its own spec id is that of its settings"
ended=$(spec second)
is "$([ -n "$ended" ] && [ "$ended" != "$frozen" ]; echo $?)" 0 "that of its reader is another one"
like "$(stage_dir second)/done.json" "\"spec_id\":\"$ended\"" "and is what it was committed with"
runs 0 "$LF" resume "$early_id"
like out 'nothing to do' "resume does not train on"
is "$(tries first)$(tries second)$(tries last)" 111 "nothing is made twice"
early=$(result last joined)
runs 2 "$LF" resume "$early_id" --set first.steps=40
like err '--accept steps continues from step 7' "with other steps it says what would be lost"
"$LF" artifacts --json >js
tr -d ' \n' <js | grep -q '"ended":{[^}]*"ended_at_step":7'
ok $? "the ledger has it"
cp js before
"$LF" ledger rebuild >/dev/null 2>&1
"$LF" artifacts --json >js
cmp -s js before; ok $? "and after it was rebuilt"
runs 0 "$LF" lineage "$(stage_dir second)/out/result"
like out 'first/1.1/out/result, ended at 7 of 30' "lineage names the step"

# --- by its own patience: the result of its settings, which anybody takes ---
runs 0 "$LF" run --new --set first.patience_at=5
said='patience: no better valid_loss for 2 validations, ended at 5 of 30 \(best at step 3\)'
like out "first: done .*$said" "the run says that patience ended a stage, and where"
for words in status "show first" "metrics first" "lineage $(stage_dir first)/out/result"; do
    # shellcheck disable=SC2086
    "$LF" $words >out 2>err
    like out "$said" "${words%% *} says it"
done
runs 0 "$LF" run --set first.patience_at=5 --set second.factor=3
runs 0 "$LF" status
like out "first .*result of run .*; $said" "and of a run that took it over"

# --- nobody takes it over ---
top=$PWD
mkdir alone
cd alone || exit 99
pipeline
begin run
runs 0 "$LF" finish first
ends 0 "a project whose only result ended early"
let_go
path=$(stage_dir first)/out/result
runs 0 "$LF" plan --set second.factor=2
like out "in run .* it ended at 7 of 30; who wants that result names its path, .*$path" "plan of another run says that it is there"
runs 0 "$LF" run --set second.factor=2
is "$(tries first) $(grep -c 'step 30 of 30' "$(stage_dir first)/log")" "1 1" "another run trains to the end itself"
runs 0 "$LF" run --set "second.input=$path" --set second.factor=2 --set first.steps=2
like "$(stage_dir second)/done.json" "\"path\":\"$path\"" "a run that names it takes it"
cd "$top" || exit 99

# --- stopped, then asked ---
begin run --new
kill -INT $p
ends 75 "a run that is stopped"
let_go
runs 0 "$LF" finish first
like out 'takes what it has saved when it starts next: loong-flow resume' "is asked all the same"
runs 0 "$LF" status
like out 'asked to end early' "status says that it is"
runs 0 "$LF" finish first --json
like out '"schema": *1' "asked once more, in JSON"
runs 0 "$LF" finish --help
like out '--decay' "its options"
runs 0 "$LF" resume
like out 'first: done .*ended at 7 of 30' "the next resume takes what was saved"
is "$(grep -c 'step 8 of' "$(stage_dir first)/log")" 0 "without a further step"
is "$(result last joined)" "$early" "with the same results"
is "$(spec second)" "$ended" "and the same ids"
# the request was for that result: when it is lost, the stage trains
rm -r "$(stage_dir first)/out/result" "$(stage_dir second)/out/result"
runs 0 "$LF" resume --only first --only second
like "$(stage_dir first)/log" 'step 30 of 30' "one that was lost is made again to its end"
is "$(spec second)" "$frozen" "and its reader is what it was before"

# --- withdrawn before the stage has found it ---
begin run --new
runs 2 "$LF" finish first --undo
like err 'is not asked to end early' "nothing to withdraw"
kill -INT $p
ends 75 "a run that is stopped"
let_go
runs 0 "$LF" finish first
runs 2 "$LF" finish first --undo --decay
runs 0 "$LF" finish first --undo
like out 'first: the request to end early is withdrawn$' "one that is stopped has not found it"
runs 0 "$LF" status
unlike out 'asked to end early' "status does not say it any more"
runs 0 "$LF" finish first
runs 0 "$LF" finish first --undo --json
runs 0 "$LF" resume
like "$(stage_dir first)/log" 'step 30 of 30' "it trains to its end"
is "$(result last joined) $(spec second)" "$whole $frozen" "with the results and ids of a run that was not asked"
runs 2 "$LF" finish first --undo
like err 'is done already' "one that is done keeps what it has"
begin run --new
stage=$(pid_in "$(stage_dir first)/stage.json")
kill -STOP "$stage"
runs 0 "$LF" finish first
runs 0 "$LF" finish first --undo
like out 'withdrawn; a stage that runs' "of one that runs nobody knows whether it has"
kill -CONT "$stage"
let_go
ends 0 "this one had not"
like "$(stage_dir first)/log" 'step 30 of 30' "and trains to its end"

# --- killed between the request and the end ---
begin run --new
dir=$(stage_dir first)
stage=$(pid_in "$dir/stage.json")
wrapper=$(pid_in "$(stage_of first)/epoch.1")
kill -STOP "$stage"
runs 0 "$LF" finish first
kill -9 $p "$wrapper" "$stage"
wait $p 2>/dev/null
let_go
runs 0 "$LF" resume
like out 'first: done .*ended at 7 of 30' "the request outlives stage, wrapper and driver"
is "$(result last joined)" "$early" "and is honoured"
is "$(ls "$(stage_of first)" | grep -c '^finish')" 1 "it was made once"

# --- begun anew it is not asked any more ---
begin run --new
kill -INT $p
ends 75 "another one that is stopped"
let_go
runs 0 "$LF" finish first
runs 0 "$LF" resume --set first.steps=9 --restart
like "$(stage_dir first)/log" 'step 9 of 9' "with other settings it trains to its end"

# --- jobs: a chain of links, and what waits behind them was submitted before ---
. "$LF_SRCDIR/tests/flow/fakes.sh"
fakes_slurm
mkdir batch
cd batch || exit 99
printf '[site]\nscheduler = slurm\nchain = links\npoll = 1\nsettle = 0\nsubmit_wait = 20\n' >site.ini
LF_SITE_CONFIG=$PWD/site.ini
export LF_SITE_CONFIG
pipeline
hold
runs 0 "$LF" submit --set first.time_limit=10m --set first.links=3 --set "first.hold=$HOLD" --set first.hold_at=7
until_true 20 sh -c "ls loong-data/*/runs/*/first/1.1/out/ck-7"
runs 0 "$LF" finish first
until_true 60 sh -c "$LF status | grep -q 'last .*done'"
let_go
is "$(state first) $(state second) $(state last)" "done done done" "jobs that waited for it start" 
runs 0 "$LF" status
like out 'ended at 7 of 30' "status says it of a job"
is "$(result last joined)" "$early" "they read what was there"
is "$(spec second)" "$ended" "and made what a local run makes"
like "$(stage_of second)/settled.1.json" "$ended" "under its id, which was not known when they were submitted"
until_true 60 sh -c '[ -z "$(squeue -h -t pending,running,completing)" ]'
ok $? "the links behind have ended"
is "$(ls -d loong-data/*/runs/*/first/1.* | wc -l | tr -d ' ')" 1 "without a start"
runs 0 "$LF" submit
like out 'nothing to do|0 submitted' "a second submit does nothing"
finish 131

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Asking about a run: logs by attempt, epoch and rank, followed over attempts; watch; formats of tables; exit codes; what is
# refused before anything is started.
. "$LF_SRCDIR/tests/flow/lib.sh"
pipeline
esc=$(printf '\302\233') # CSI as one character
sed "s/steps = 30/steps = 8/; s/name = demo/name = de${esc}31mmo/" pipeline.ini >p && cp p pipeline.ini
runs 0 "$LF" run

# No control byte of a name reaches the terminal.
for cmd in status "status --all" show plan watch "artifacts --all" "ledger check"; do
    "$LF" $cmd >o 2>&1
    ! LC_ALL=C grep -q "$esc" o; ok $? "no escape sequence of the name: $cmd"
done

# logs
"$LF" logs first --json >js
like js '"schema": 1' "logs --json has a schema"
like js '"lf-work: step 8 of 8"' "and the lines"
like js '"epoch": 1' "and whose they are"
is "$("$LF" logs first --json -n 2 | grep -c 'lf-work: step')" 2 "-n counts in JSON too"
is "$("$LF" logs first -n2)" "lf-work: step 7 of 8
lf-work: step 8 of 8" "-n2 is -n 2"
runs 0 "$LF" run --set second.factor=2
like out 'second: done' "another factor is another run"
"$LF" logs first -n 1 >o 2>e
is "$(cat o)" "lf-work: step 8 of 8" "logs of a stage that was taken over from another run"
like e 'taken over from run' "and says whose it is"
runs 8 "$LF" logs nosuch
runs 8 "$LF" logs second --attempt 7
like err 'no log of that attempt' "an attempt that is not there"
d=$(stage_dir second)
printf '[0] rank zero\n[1] rank one\nlauncher\n[1] more\n' >>"$d/log"
is "$("$LF" logs second --rank 1)" "[1] rank one
[1] more" "--rank picks the lines with its label"
echo "a file of its own" >"$d/log.2"
is "$("$LF" logs second --rank 2)" "a file of its own" "or the file of the rank"

# -f goes on over attempts: the first is stopped, the second finishes.
hold
"$LF" run --new --set first.steps=60 --set "first.hold=$HOLD" --set first.hold_at=5 >o1 2>&1 &
p=$!
BG="$BG $p"
until_true 20 sh -c "$LF logs first 2>/dev/null | grep -q 'step 3 of 60'"
"$LF" logs first -f >follow 2>&1 &
f=$!
BG="$BG $f"
"$LF" logs first -f --json >followjs 2>&1 &
g=$!
BG="$BG $g"
until_true 20 grep -q 'step 5 of' follow
d=$(stage_dir first)
kill -9 "$(pid_in "$d/../epoch.1")" "$(pid_in "$d/stage.json")" # a lost attempt is tried again
let_go
wait $p
wait $f
wait $g
like follow 'step 60 of 60' "logs -f follows to the end"
like follow '==> attempt 2 start 2 <==' "over a lost attempt"
is "$(grep -c 'step 3 of 60' follow)" 1 "and says each line once"
like followjs '"line":"lf-work: step 60 of 60".*"schema":1' "in JSON a line is an object"
"$LF" logs first --all >o
like o '==> attempt 1 start 1 <==' "--all has every start"

# watch, not on a terminal: a line per change, the exit code of the run
hold
"$LF" run --new --set first.steps=8 --set "first.hold=$HOLD" >o1 2>&1 &
p=$!
BG="$BG $p"
until_true 20 sh -c "$LF status | grep -q running"
: >w
let_go_when 20 grep -Eq 'first +running' w &
BG="$BG $!"
"$LF" watch --interval 1 >w 2>&1
is $? 0 "watch ends with the run, and as it did"
wait $p
like w 'first +running' "a line when it runs"
like w 'last +done' "a line when it is done"
unlike w "$esc" "no colours in a file"
# watch on a terminal: a table that is drawn again over itself, with bars, in colour unless NO_COLOR
if command -v script >/dev/null; then
    cat >tty.sh <<'END'
"$LF" run --new --set first.steps=30 --set "first.hold=$HOLD" --set first.hold_at=10 >o1 2>&1 &
p=$!
until "$LF" status 2>/dev/null | grep -q running; do sleep 0.1; done
"$LF" watch --interval 1
echo "exit $?" >code
wait $p
END
    hold
    : >screen
    let_go_when 20 grep -q '\[#' screen &
    BG="$BG $!"
    HOLD=$HOLD LF=$LF TERM=xterm script -qec "sh tty.sh" /dev/null >screen 2>&1 </dev/null
    is "$(cat code)" "exit 0" "watch on a terminal ends with the run"
    like screen "$(printf '\033')\[4A" "and draws over what it drew"
    like screen '\[#+\.+\] +[0-9]+%' "with a bar"
    like screen "$(printf '\033')\[36mrunning" "and colours"
    LF=$LF TERM=xterm NO_COLOR=1 script -qec "\"$LF\" status" /dev/null >screen 2>&1 </dev/null
    unlike screen "$(printf '\033')" "NO_COLOR: none"
    LF=$LF TERM=xterm script -qec "\"$LF\" status" /dev/null >screen 2>&1 </dev/null
    like screen "$(printf '\033')\[32mdone" "status has colours on a terminal"
else
    skip "watch on a terminal" "no script"
fi

"$LF" run --new --set first.fail_at=2 >o 2>&1
runs 1 "$LF" watch
like out 'first +failed' "and it says what failed"

# Tables
"$LF" status -o name,state%3 >o
like o '^first +fa\+$' "a width cuts"
"$LF" status -o 'name%+12,state' >o
like o '^       first  failed' "to the right"
"$LF" status --format=help >o
like o '^  default' "--format=help lists the formats"
like o '^  spec_id' "and columns"
"$LF" status -o +dir >o
like o 'STAGE.*DIRECTORY' "+KEY adds to the default"
runs 2 "$LF" status -o name%0
runs 2 "$LF" status -o nam
like err 'did you mean name' "columns are checked"

# --no-check says what it does; --set reaches templates; a plan that is refused by the stage is refused here.
"$LF" run --help >o
like o 'no-check +start also' "--no-check says what it does"
cp pipeline.ini keep.ini
cat >>pipeline.ini <<'END'
[template base]
steps = 4
[stage fourth]
kind = work
inherit = base
END
"$LF" config --set base.steps=3 >o
like o 'steps = 3' "--set reaches a template by its name"
"$LF" plan --json --set base.steps=3 >js
like js '"steps": 3' "and the stage that inherits it"
cp keep.ini pipeline.ini
runs 2 "$LF" plan --new --set first.fail_how=usage --set first.fail_at=1
like err 'pipeline.ini:[0-9]+:1: stage first: .*factor is wrong' "plan refuses settings that the stage refuses"
before=$("$LF" status -a -o run | wc -l)
runs 2 "$LF" run --new --set first.fail_how=usage --set first.fail_at=1
is "$("$LF" status -a -o run | wc -l)" "$before" "run makes no run of them"
TMPDIR=$T/nowhere "$LF" plan --new >o
like o "cost unknown: .*$T/nowhere" "plans are made in TMPDIR"

# Metrics at step 0 are results, not a step.
runs 0 "$LF" run --new
is "$("$LF" status -o name,done_text | awk '$1 == "last" { print $2 }')" - "a stage that counts no steps shows none"

# A purged stage that is named is made again, although nobody needs it.
rm "$(stage_dir first)/out/result/data.txt"
runs 0 "$LF" run
like out 'nothing to do' "nobody needs it"
runs 0 "$LF" run --only first
is "$(tries first) $(state first)" "2 done" "--only makes it again"

# Exit codes
(cd / && exec "$LF" status) >out 2>err
is $? 8 "no project: exit 8"
runs 8 "$LF" status zzzz
runs 2 "$LF" status --nosuch
chmod o+w loong-data/*
runs 2 "$LF" run --new
like err 'writable by everybody|writable by others' "a data root that others can write is refused"
chmod o-w loong-data/*
"$LF" ledger sync --json >js
like js '"events": [0-9]' "ledger sync --json"
like js '"schema": 1' "has a schema"
: >.loong/ledger.db.tmp
printf 'this is no database, it only has the name of one, and more than a hundred bytes of text to make it quite clear to all' >.loong/x
cp .loong/ledger.db good.db
cat .loong/x .loong/x >.loong/ledger.db
runs 7 "$LF" run --new
cp good.db .loong/ledger.db

# gc says "deleted" of what it deleted, and not before.
"$LF" run --new >/dev/null 2>&1
d=$(stage_dir first)
old=$("$LF" status -a -o run | tail -1)
if [ "$(id -u)" -ne 0 ]; then
    chmod a-w "loong-data/$(ls loong-data)/runs/$old/first/1.1/out/result"
    "$LF" gc --keep-runs 1 --yes >o 2>&1
    unlike o "deleted.*runs/$old/first/" "what could not be deleted is not called deleted"
    chmod u+w "loong-data/$(ls loong-data)/runs/$old/first/1.1/out/result"
else
    skip "what could not be deleted is not called deleted" "root can delete everything"
fi
finish_min 65 # five fewer without script(1)

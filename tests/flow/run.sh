#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run, status, resume: what runs, what does not, and what survives.
. "$LF_SRCDIR/tests/flow/lib.sh"
pipeline

runs 0 "$LF" plan
like out 'a new run' "plan: a new run"
like out 'second \(work\) <- first' "plan shows the graph"
like out '1.2M parameters' "plan asks the stage for its cost"
like out 'about 15s at 2.0G FLOP/s \(measured now, before the first run\)' "before the first run the stage measures the machine"
"$LF" plan --no-measure >o
like o 'time unknown before the first run \(--no-measure\)' "unless it shall not"
[ ! -e .loong ]; ok $? "plan makes nothing"

runs 0 "$LF" run
like out 'first: done' "run says what is done"
is "$(state first) $(state second) $(state last)" "done done done" "all stages are done"
ref=$(result last joined)
id=$(run_id)

"$LF" plan --new >o
unlike o 'measured now|time unknown' "a time from an earlier run goes before one that is measured"
like o 'about [0-9.]+s, as in an earlier run$' "and a stage without FLOPs takes as long as it did"
runs 0 "$LF" run
like out 'nothing to do' "a second run does nothing"
is "$(tries first)" 1 "no second attempt was made"
is "$(run_id)" "$id" "and no second run"

"$LF" status --json >js
like js '"state": "done"' "status --json has states"
like js '"schema": 1' "and a schema number"

# Operational settings are not part of the spec id, identity settings are.
runs 0 "$LF" run --set first.step_time=1
like out 'nothing to do' "an operational change reruns nothing"
runs 0 "$LF" run --set first.mode=invariant
like out 'nothing to do' "a numeric change reruns nothing"
runs 0 "$LF" run --set second.factor=2
is "$("$LF" status --columns name,attempts | awk '{ printf "%s ", $2 }')" "ATTEMPTS 0 1 1 " "an identity change reruns its stage and what follows"
like out 'second: started' "the changed stage"
runs 0 "$LF" plan --set second.factor=1.50
unlike out '^  run' "the same value written otherwise (1.50) is the same spec"
echo "other text" >in.txt
runs 0 "$LF" plan
like out '^  run  first' "another content of an outside file is another spec"
echo "text to read" >in.txt

# A Megatron index stands for tokens that it does not hold.
top=$PWD
mkdir pair
cd pair
printf '[pipeline]\nname = pair\n[stage a]\nkind = work\ninput = d.idx\nsteps = 1\n' >pipeline.ini
echo 1 >d.idx
echo 1 >d.bin
runs 0 "$LF" run
runs 0 "$LF" plan
unlike out '^  run  a' "an index and its data: done"
echo 2 >d.bin
runs 0 "$LF" plan
like out '^  run  a' "another content of d.bin is another spec of the stage that names d.idx"
cd "$top"

# Ctrl-C: stages save, exit 75, resume continues and the result is the same.
hold
"$LF" run --new --set "first.hold=$HOLD" >o 2>&1 &
p=$!
BG="$BG $p"
until_true 10 sh -c "$LF status | grep -q 'running .*[0-9]/30'"
kill -INT $p
wait $p
is $? 75 "Ctrl-C: exit 75"
let_go
is "$(state first)" pending "the stage is pending"
like "$(stage_dir first)/end.json" '"state":"stopped"' "it stopped at a good checkpoint"
runs 0 "$LF" resume
like "$(stage_dir first)/log" 'continues at step' "resume continues from the checkpoint"
is "$(result last joined)" "$ref" "and the result is that of an uninterrupted run"
is "$(tries first)" 2 "in a second attempt"

# kill -9 of the run command: the wrapper lives on, resume adopts it.
hold
"$LF" run --new --set "first.hold=$HOLD" >o 2>&1 &
p=$!
BG="$BG $p"
until_true 10 sh -c "$LF status | grep -q 'running .*[0-9]/30'"
kill -9 $p
wait $p 2>/dev/null
is "$(state first)" running "the stage runs on without the command"
: >out
let_go_when 30 grep -q adopted out &
BG="$BG $!"
runs 0 "$LF" resume
like out 'adopted' "resume adopts what lives"
is "$(tries first)" 1 "nothing ran twice"
is "$(result last joined)" "$ref" "the result is the same"

# kill -9 of the wrapper: the stage saves and ends, another attempt continues.
hold
"$LF" run --new --set "first.hold=$HOLD" >o 2>&1 &
p=$!
BG="$BG $p"
until_true 10 sh -c "$LF status | grep -q 'running .*[0-9]/30'"
kill -9 "$(pid_in "$(stage_dir first)/../epoch.1")"
let_go_when 30 test -e "$(stage_dir first)/../epoch.2" &
BG="$BG $!"
wait $p
is $? 0 "a killed wrapper is replaced"
is "$(tries first)" 2 "by a second attempt"
is "$(result last joined)" "$ref" "the result is the same"

# kill -9 of the stage.
hold
"$LF" run --new --set "first.hold=$HOLD" >o 2>&1 &
p=$!
BG="$BG $p"
until_true 10 sh -c "$LF status | grep -q 'running .*[0-9]/30'"
kill -9 "$(pid_in "$(stage_dir first)/stage.json")"
wait $p
is $? 1 "a killed stage is a failure"
let_go
is "$(state first) $(state second)" "failed waiting" "the next ones wait"
"$LF" status >out
like out 'killed by signal 9' "status says how it ended"
runs 0 "$LF" resume
like "$(stage_dir first)/log" 'continues at step' "resume continues from its checkpoint"
is "$(result last joined)" "$ref" "the result is the same"

# kill -9 of wrapper and stage and command at once, as a power cut does.
hold
"$LF" run --new --set "first.hold=$HOLD" >o 2>&1 &
p=$!
BG="$BG $p"
until_true 10 sh -c "$LF status | grep -q 'running .*[0-9]/30'"
kill -9 $p "$(pid_in "$(stage_dir first)/../epoch.1")" "$(pid_in "$(stage_dir first)/stage.json")"
wait $p 2>/dev/null
let_go
until_true 5 sh -c "$LF status | grep -q interrupted"
is "$(state first)" pending "all gone: pending"
"$LF" status >out
like out 'interrupted' "and called interrupted, not done and not failed"
runs 0 "$LF" resume
is "$(result last joined)" "$ref" "the result is the same"

# An identity change restarts the stage, --accept lets it continue.
hold
"$LF" run --new --set "first.hold=$HOLD" >o 2>&1 &
p=$!
BG="$BG $p"
until_true 10 sh -c "$LF status | grep -q 'running .*[0-9]/30'"
kill -INT $p
wait $p
let_go
sed 's/steps = 30/steps = 32/' pipeline.ini >p2 && cp p2 pipeline.ini
runs 0 "$LF" resume --only first --accept steps
like "$(stage_dir first)/log" 'continues at step' "--accept continues from the checkpoint"
sed 's/steps = 32/steps = 33/' pipeline.ini >p2 && cp p2 pipeline.ini
runs 2 "$LF" resume --only first
like err 'steps \(.*pipeline.ini:6\) changed: first would start over and lose 32 of 32 steps; --accept steps continues from step 32, --restart starts over' "without it nothing is started over silently"
runs 0 "$LF" resume --only first --restart
unlike "$(stage_dir first)/log" 'continues at step' "with --restart the stage starts over"
sed 's/steps = 33/steps = 30/' pipeline.ini >p2 && cp p2 pipeline.ini

# Warnings of a stage reach the console, with their number.
runs 0 "$LF" run --new --only first --set first.warnings=3
like out '^ *lf-work: warning: 9000 sequences were replaced' "a warning is told"
like out '^first: done in .*, 3 warnings' "with the number at the end of the stage"
unlike out '^    warning:' "and none is told twice"
like "$(stage_dir first)/end.json" '"n_warnings":3,.*"warnings":."9000 sequences were replaced","it is late"' "the record has each text once"

"$LF" status >out
like out '^first: 3 warnings' "status has the number"
like out '^  . it is late' "and the texts"
is "$("$LF" status --columns name,n_warnings | awk '$1 == "first" { print $2 }')" 3 "as a column, too"
runs 0 "$LF" report --output r.html
like r.html 'first: 3 warnings</h3><pre>9000 sequences' "the report has them"
# A stage that waits for its next step has said it already.
hold
"$LF" run --new --only first --set first.warnings=1 --set "first.hold=$HOLD" >o 2>&1 &
p=$!
BG="$BG $p"
until_true 10 sh -c "$LF status | grep -q '^first: 1 warning$'"
ok $? "status has that of a running stage"
kill -INT $p
wait $p
let_go

# A run keeps copies of its executables. They are kept by content, so the next run copies none.
mkdir "$T/copies" && cd "$T/copies" || exit 99
pipeline
copies() { "$LF" plan --new --json >js; awk '/"executables_bytes":/ { print $2 + 0 }' js; }
size=$(for f in "$LF" "$LF_LIBEXEC/lf-work" "$LF_LIBEXEC/lf-join"; do echo "$(sha256sum <"$f") $(wc -c <"$f")"; done |
    sort -u | awk '{ sum += $NF } END { print sum }')
is "$(copies)" "$size" "plan counts the executables that a run copies, each once"
"$LF" plan >out
like out '^  and [0-9.]+ MiB on disk: copies of the executables, which the run keeps$' "in a line of their own"
runs 0 "$LF" run --quiet
is "$(cat loong-data/*/exe/* | wc -c) $(copies)" "$size 0" "they are what was copied, and are there for the next run"

finish 80

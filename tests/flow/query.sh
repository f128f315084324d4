#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Asking: every command answers, in text and in JSON, and the answers are right.
. "$LF_SRCDIR/tests/flow/lib.sh"
pipeline
LF_MODELS_DIR=$LF_SRCDIR/models
export LF_MODELS_DIR
sed 's/steps = 30/steps = 12/' pipeline.ini >p && cp p pipeline.ini
runs 8 "$LF" status
like err 'no loong-flow project' "no project: said so"
runs 0 "$LF" run
runs 0 "$LF" run --new --set second.factor=2 --set first.step_time=1
a=$("$LF" status --all --columns run | tail -1) b=$("$LF" status --all --columns run | sed -n 2p)

# Every command, as --help lists them, in text and in JSON with a schema number; none is left out.
words() { # what to give a command so that it answers and changes nothing
    case $1 in
    diff) echo "$a $b" ;;
    ledger) echo check ;;
    lineage) echo "$(stage_dir last)/out/joined" ;;
    logs) echo first ;;
    rerun) echo last --dry-run ;;
    run | submit | resume) echo --quiet --set second.factor=2 --set first.step_time=1 ;; # the newest run: nothing to do
    cancel) echo "$b" ;;
    tag) echo "$b kept" ;;
    note) echo "$b words" ;;
    init) echo --list ;;
    esac
}
silent=" run submit resume tag note tick " # say nothing in text when there is nothing to say
for cmd in $("$LF" --help | sed -n 's/^  \([a-z]*\) .*/\1/p'); do
    # launch prints what its ranks print; finish changes what it is asked about (finish.sh); sweep wants a sweep (sweep.sh)
    case $cmd in launch | finish | sweep) continue ;; esac
    w=$(words $cmd)
    "$LF" $cmd $w --json >js 2>err
    code=$?
    [ $code -eq 0 ] && grep -q '"schema": *1' js
    ok $? "--json: $cmd" "exit $code $(cat err)"
    "$LF" $cmd $w >txt 2>err
    code=$?
    case $silent in *" $cmd "*) [ $code -eq 0 ] ;; *) [ $code -eq 0 ] && [ -s txt ] ;; esac
    ok $? "text: $cmd" "exit $code $(cat err)"
    "$LF" $cmd --help >txt 2>err && grep -q -e --json txt
    ok $? "--help: $cmd"
done
for what in sync rebuild "backup copy.db" "sql select(1)"; do
    "$LF" ledger $what --json >js 2>err && grep -q '"schema": 1' js
    ok $? "--json: ledger $what" "$(cat err)"
done
runs 2 "$LF" ledger sql "select * from runs"
like err 'no such table: runs; there are adopt, artifact, attempt, .* run, .*stage_state' "ledger sql: a wrong table lists the tables"
unlike err 'sqlite|walked' "but none of the file's own"
runs 2 "$LF" ledger sql "select nme from run"
like err 'no such column: nme; run has run, name, ' "ledger sql: a wrong column lists the columns"
"$LF" status --all --json >js
like js '"schema": 1' "--json: status --all"
unlike js 'null' "what is not known is not there"
"$LF" diff "$a" "$b" >out
like out 'second +factor +- +2' "diff shows the changed setting"
"$LF" metrics first --format csv >out
is "$(wc -l <out)" 13 "metrics: a row per step"
like out '^12,0.83' "with the values"
"$LF" metrics first --format plot --key loss >out
like out '\*' "a plot has points"
runs 0 "$LF" metrics first --format tensorboard --output tb
events=$(find tb -name 'events.out.tfevents.*')
is "$(dirname "$events")" "tb/$(run_id)/first" "an event file lies below RUN/STAGE"
is "$(grep -ao train/loss "$events" | wc -l) $(grep -ao brain.Event:2 "$events" | wc -l)" "12 1" "it has a point per step"
runs 2 "$LF" metrics first --format tensorboard
like err 'needs --output' "without a directory there is none"
runs 2 "$LF" metrics first --output tb
like err '--output belongs to --format tensorboard' "and a directory is for nothing else"
runs 0 "$LF" samples first
like out '^stage first has no samples; sample_interval' "a stage that samples nothing says so"
runs 0 "$LF" samples
like out '^no stage of run demo-[0-9]+ has samples; sample_interval' "and a run of which no stage does"
cat >"$(stage_dir first)/samples.jsonl" <<'END'
{"step":4,"id":"prompt-1","sample":0,"prompt":"the sea","text":" is early","token_ids":[1,2],"seed":7}
{"step":8,"id":"prompt-1","sample":0,"prompt":"the \u001b[31msea","text":" was calm\n<b>and","token_ids":[1,2],"seed":7}
{"step":8,"id":"valid-1","sample":1,"answer":"rejected","prompt":"q","text":"a","token_ids":[3],"score":-0.25}
{"step":8,"id":"valid-2","sample":0,"prompt_token_ids":[5],"text":"","token_ids":[3,4]}
{"step":12,"id":"torn
END
sed -i '$s/$/x/' "$(stage_dir first)/samples.jsonl"
runs 0 "$LF" samples
is "$(cat out)" "step 8: prompt-1
  | the ?[31msea
  >  was calm
  > <b>and
step 8: valid-1, rejected, score -0.2500
  | q
  > a
step 8: valid-2
  > 2 tokens, of which no tokenizer tells the text" "samples: the last ones, by the stage that has some, without control characters"
runs 0 "$LF" samples first --step 4
like out '^  >  is early$' "of a step"
runs 0 "$LF" samples first --all --json
is "$(grep -o '"step": *[0-9]*' out | tr -d ' ' | tr '\n' ' ')" '"step":4 "step":8 "step":8 "step":8 ' "all of them, in JSON"
like out '"score": *-0.25' "with the score"
"$LF" logs first -n 1 >out
is "$(cat out)" "lf-work: step 12 of 12" "logs -n"
"$LF" artifacts >out
like out 'last +joined' "artifacts lists outputs"
"$LF" lineage "$(stage_dir last)/out/joined" >out
like out 'made by second' "lineage goes up the chain"
like out 'in.txt +sha256' "to the outside files"
"$LF" explain second --set second.factor=9 >out
like out 'second: would run: changed since the last run: factor' "explain names the setting"
runs 2 "$LF" status --columns nme
like err 'did you mean "?name' "columns are checked"
runs 2 "$LF" statsu
like err 'did you mean status' "commands are checked"
runs 2 "$LF" status a b
runs 2 "$LF" status --al
like err 'did you mean' "options are checked"
runs 8 "$LF" status zzzz
like err 'no run "zzzz"' "runs are checked"
runs 0 "$LF" status "$(echo "$a" | cut -c 20-)"
runs 2 "$LF"

# logs -f ends with the stage
hold
"$LF" run --new --set "first.hold=$HOLD" >o 2>&1 &
p=$!
BG="$BG $p"
until_true 10 sh -c "$LF status | grep -q running"
: >out
let_go_when 10 grep -q 'step 1 of' out &
BG="$BG $!"
"$LF" logs first -f >out
like out 'step 12 of 12' "logs -f follows to the end"
wait $p

# gc keeps what it must and takes only what it says.
runs 0 "$LF" gc --keep-runs 1
like out 'would delete' "gc is dry by default"
is "$(ls loong-data/*/runs | wc -l)" 3 "and deletes nothing"
[ -e "loong-data/$(ls loong-data)/runs/$a/first/1.1/out/result/data.txt" ]; ok $? "nothing at all"
runs 0 "$LF" gc --keep-runs 1 --yes
is "$(state last)" done "the newest run is whole"
"$LF" status "$a" >out
like out 'first +work +purged' "an old one is purged, and says so"
runs 0 "$LF" ledger check
runs 0 "$LF" gc --keep-runs 1
unlike out 'would delete' "there is nothing left to delete"

# init, and what it writes is valid for the real stages
mkdir fresh && cd fresh || exit 99
runs 0 "$LF" init --list
cp out uses
echo text >corpus.txt; echo text >heldout.txt; echo "{}" >preferences.jsonl; echo "{}" >questions.jsonl; echo "{}" >held-out.jsonl; echo "{}" >chats.jsonl; mkdir checkpoint tokenizer base-model
for use in $(awk '{ print $1 }' uses); do
    runs 0 "$LF" init "$use" --output "$use.ini"
    LF_MODELS_DIR=$LF_SRCDIR/models "$LF_BUILDDIR/loong-flow" validate --quick "$use.ini" >out 2>err
    ok $? "init $use writes a valid pipeline" "$(cat err)"
done
runs 1 "$LF" init pretrain --output pretrain.ini
like err 'pretrain.ini exists and is left alone; -o FILE' "init overwrites nothing, and says what to do"
mkdir bare
(cd bare && "$LF" init >../out 2>&1)
like out 'wrote pipeline.ini for pretrain' "init says for which use"
like out 'init --list' "and that there are others"
cd ..
runs 0 "$LF" report --output r.html
like r.html '<svg' "the report has plots"
unlike r.html 'https?://[^w]' "and fetches nothing"
"$LF" run --new --set first.fail_at=3 >o 2>&1
runs 0 "$LF" report --output r2.html
unlike r2.html '<b>failed' "log text is escaped in HTML"
like r2.html '&lt;b&gt;failed' "(it is there)"
finish 173

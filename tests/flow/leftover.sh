#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A submit that is killed while it writes its run leaves copies of programs and half a run: gc shows and takes them, and nothing else.
# One that finds no room takes back what it has made, and says what to do.
. "$LF_SRCDIR/tests/tap/shm.sh"
. "$LF_SRCDIR/tests/flow/lib.sh"
. "$LF_SRCDIR/tests/flow/kill_lib.sh"
cat >pipeline.ini <<'END_INI'
[pipeline]
name = demo
[stage only]
kind = work
steps = 2
step_time = 1
END_INI
ledger_rows() { for q in 'SELECT run, stage FROM stage' 'SELECT run FROM run' 'SELECT id FROM event'; do "$LF" ledger query "$q"; done; }
afresh() { until_true 10 rm -rf .loong loong-data; }
# Everything below the data root but the empty notes for the ledger.
rests() { find loong-data ! -type d ! -path '*/changed/*' 2>/dev/null; }
runs_of() { find loong-data -path '*/runs/*' -prune 2>/dev/null; }
# The changes that a log has between the first below the data root and the plan that ends the freeze, every second of them.
freeze_points() {
    awk '$3 ~ /rev\.1\/plan\.json$/ { exit } $3 ~ /^\/loong-data/ { n = 1 } n && $1 % 2 == 0 && $3 !~ /^\/.loong/ { print $1 }' "$1"
}

# --- killed ---
changes 'loong-flow run' "$LF" run
ok $? "a run" "$(cat e)"
runs 0 "$LF" gc
like out '^0 B in all' "a run that is whole leaves nothing to take"
points=$(freeze_points "$T/changes.log") some=0
[ "$(echo "$points" | wc -l)" -gt 8 ]; ok $? "a freeze makes some changes to files" "$points"
for k in $points; do
    afresh
    killed "$k" 'loong-flow run' "$LF" run
    want $? 137 "exit"
    there=$(rests | wc -l)
    some=$((some + there))
    [ $((k % 4)) -ne 0 ] || "$LF" ledger sync >/dev/null 2>&1
    "$LF" gc >o 2>e || note "gc: $(cat e)"
    [ "$there" -eq 0 ] || grep -q 'would delete' o || note "gc does not see: $(rests)"
    "$LF" gc --yes >o 2>e || note "gc --yes: $(cat e)"
    want "$(rests) $(runs_of)" " " "what is left after gc --yes"
    "$LF" run >o 2>e || note "the next run: $(cat o e)"
    [ $((k % 4)) -ne 0 ] || want_ledger
    "$LF" gc --yes >o 2>e
    want "$(state only)" "done" "state after gc"
    point "killed before change $k: $(sed -n "s/^$k //p" "$T/changes.log" | head -1)"
done
[ $some -gt 40 ]; ok $? "there were files to find" "$some"

# --- no room ---
afresh
LD_PRELOAD=$FAIL LF_FAIL_ROOT=$T LF_FAIL_PROGRAM='loong-flow run' LF_FAIL_ACTION=enospc LF_FAIL_AFTER=1000000 \
    LF_FAIL_LOG=$T/room.log "$LF" run >o 2>e # removals are not counted here
for k in $(freeze_points "$T/room.log"); do
    afresh
    LD_PRELOAD=$FAIL LF_FAIL_ROOT=$T LF_FAIL_PROGRAM='loong-flow run' LF_FAIL_ACTION=enospc LF_FAIL_AFTER=$k "$LF" run >o 2>e
    want $? 1 "exit"
    want "$(grep -c 'No space left on device' e)" 1 "lines with the cause: $(cat e)"
    want "$(rests) $(runs_of)" " " "what is left"
    "$LF" run >o 2>e || note "with room again: $(cat o e)"
    want "$(state only)" "done" "state"
    point "full from change $k on: $(sed -n "s/^$k //p" "$T/room.log" | head -1)"
done

# --- no room for a second revision: the first stays ---
before=$(rests | sort)
LD_PRELOAD=$FAIL LF_FAIL_ROOT=$T LF_FAIL_PROGRAM='loong-flow resume' LF_FAIL_ACTION=enospc LF_FAIL_LOG=$T/second.log \
    LF_FAIL_AFTER=1000000 "$LF" resume --restart --set only.steps=3 >o 2>e
k=$(awk '$3 ~ /rev\.2\/pipeline\.ini/ { print $1; exit }' "$T/second.log")
afresh
"$LF" run >o 2>e; ok $? "a run" "$(cat e)"
before=$(rests | sort)
LD_PRELOAD=$FAIL LF_FAIL_ROOT=$T LF_FAIL_PROGRAM='loong-flow resume' LF_FAIL_ACTION=enospc LF_FAIL_AFTER="$k" \
    "$LF" resume --restart --set only.steps=3 >o 2>err
is $? 1 "no room for a second revision"
like err 'make room .`loong-flow gc` shows what may go. or set another data_dir' "it is said what to do"
is "$(rests | sort)" "$before" "the first stays, and nothing else"
is "$(state only)" "done" "the stage is what it was"

# --- a run whose plan was lost, but in which somebody has worked, is not gc's ---
rm loong-data/*/runs/*/rev.1/plan.json
runs 0 "$LF" gc --yes --keep-runs 0
[ -d "$(echo loong-data/*/runs/*/only/1.1/out)" ]; ok $? "a run with results and no plan is left alone" "$(cat out)"
finish_min 35 # one for each change to a file

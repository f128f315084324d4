#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A sweep on the imitated SLURM: nine children with one tokenize, max_parallel by dependencies, failures, kill -9 while it is submitted.
. "$LF_SRCDIR/tests/flow/lib.sh"
. "$LF_SRCDIR/tests/flow/fakes.sh"
fakes_slurm
echo "text to read" >in.txt
cat >pipeline.ini <<END
[pipeline]
name = demo
scheduler = slurm
[site]
poll = 1s
settle = 0
submit_wait = 2s
[stage tokenize]
kind = work
input = in.txt
steps = 2
hold = $HOLD
[stage train]
kind = work
input = \${stage:tokenize}
step_time = 20
[stage last]
kind = join
parts = \${stage:tokenize.result}
    \${stage:train.result}
[sweep]
train.factor = 1, 2, 3
train.steps = 3..5
max_parallel = 2
END
history() { cat "$LF_FAKE_DIR/history"; }
count() { "$LF" status --columns name,state | awk -v n="$1" -v s="$2" '$1 ~ n && $2 == s' | wc -l; }
# most LINES: of the history behind line LINES, how many jobs of children ran at once; and how many began
most() { history | awk -v from="$1" '
    match($0, / (start|end) /) && /@/ { split(substr($0, RSTART), w, " "); id = ""
        for (i = 1; i <= NF; i++) if ($i == w[1]) id = $(i + 1)
        if (NR <= from) next
        if (w[1] == "start") { if (!(id in on)) { on[id]; n++; began++ } if (n > most) most = n }
        else if (id in on) { delete on[id]; n-- } }
    END { print most + 0, began + 0 }'; }

# --- what would be sent ---
runs 0 "$LF" submit --dry-run
is "$(grep -c '^\$ sbatch' out)" 19 "a job for each stage, the shared one once; no arrays"
unlike out '\-\-array' "no arrays"
like out 'job-name=train@1-TOKEN .*dependency=afterok:JOB\(tokenize\).? ' "the first child waits for what all share"
like out 'job-name=train@3-TOKEN .*dependency=afterok:JOB\(tokenize\),afterany:JOB\(last@1\).? ' "the third also for the end of the first"
like out 'job-name=last@3-TOKEN .*dependency=afterok:JOB\(tokenize\):JOB\(train@3\).? ' "what needs the end of its queue waits for nothing else"

# --- nine children ---
hold
runs 0 "$LF" submit
like out 'train@3: submitted as job [0-9]+ after 1 behind 3$' "all at once, with their places"
let_go
runs 0 "$LF" submit --wait
is "$(count . 'done')" 19 "nine children are done"
is "$(most 0)" "2 18" "max_parallel was held, and nothing ran twice"
is "$(history | grep -c ' start .*tokenize')" 1 "tokenize ran once"
is "$("$LF" ledger check >/dev/null; echo $?)" 0 "the ledger is in order"
one=$(stage_dir last@6)/out/joined/data.txt
"$LF" run --new --quiet --set train.factor=2 --set train.steps=5 >o 2>&1
cmp -s "$one" "$(stage_dir last)/out/joined/data.txt"; ok $? "a child's result is that of the pipeline with its settings"

# --- a child that fails ends no queue ---
from=$(history | wc -l)
sed 's/^train.steps.*/train.fail_at = 0, 0\ntrain.note = "", x\nzip = train.fail_at train.note/; s/^train.factor = .*/train.factor = 4, 5, 6/' pipeline.ini >f.ini
sed -i 's/fail_at = 0, 0/fail_at = 2, 0/' f.ini
runs 1 "$LF" submit --wait f.ini
is "$(count '^train' failed) $(count '^train' 'done') $(count '^last' 'done')" "3 3 3" "three fail, three go on"
is "$(most "$from" | cut -d' ' -f1)" 2 "two at once"
from=$(history | wc -l)
sed -i 's/fail_at = 2, 0/fail_at = 0, 0/' f.ini
runs 0 "$LF" resume --wait --pipeline f.ini
is "$(count . 'done')" 13 "resume completes them"
is "$(most "$from")" "2 6" "two at once, only what was missing"

# --- submit is killed: the next one keeps the places of what was sent ---
sed -i 's/^train.factor.*/train.factor = 7, 8, 9/' pipeline.ini
hold
for at in 4 9; do
    h=$(history | grep -c ' submit ')
    from=$(history | wc -l)
    "$LF" submit --new >o 2>&1 &
    p=$!
    BG="$BG $p"
    until_true 20 sh -c "[ \$(grep -c ' submit ' $LF_FAKE_DIR/history) -ge $((h + at)) ]"
    kill -9 $p
    wait $p 2>/dev/null
    runs 0 "$LF" resume
    let_go
    runs 0 "$LF" submit --wait
    is "$(count . 'done') $(most "$from")" "19 2 18" "killed at job $at: all done, two at once, nothing twice"
    hold
    sed -i 's/^train.factor.*/train.factor = 1.7, 1.8, 1.9/' pipeline.ini
done

# --- halving: tick decides, and submits what goes on ---
sed -i '/^\[sweep\]/,$d' pipeline.ini
sed -i 's/^step_time.*/steps = 6\nhold = '"$(echo "$HOLD" | sed 's|/|\\/|g')"'\nhold_at = 3/; 0,/^hold = .*/{//d}' pipeline.ini
cat >>pipeline.ini <<'END'
[sweep]
train.factor = 1, 1.9, 2.2, 2.9
metric = train.score min
method = halving
rungs = 3
max_parallel = 2
END
hold
runs 0 "$LF" submit --new
fakeslurm wait 60
is "$(count '^train' pending) $(count '^last' waiting)" "4 4" "all children stop at the rung and wait"
runs 0 "$LF" tick
like out '^rung 1 .step 3.: 4 children were compared' "tick decides"
fakeslurm wait 60
is "$(state train@1) $(state train@2) $(state train@3) $(state train@4)" "ended done done ended" "the better half has gone on to its end"
is "$("$LF" ledger sql "select kept || ended from rung" | tail -1 | tr -d ' ')" "[2,3][4,1]" "the ledger knows"

# --- who waits for the end decides on the way ---
sed -i 's/^rungs.*/rungs = 3, 6/; s/^steps = 6/steps = 9/' pipeline.ini
runs 0 "$LF" submit --new --wait
like out '^rung 1 .step 3.: 4 children' "submit --wait decides the first rung"
like out '^rung 2 .step 6.: 2 children' "and the second"
is "$(state train@1) $(state train@2) $(state train@3) $(state train@4) $(count '^last' 'done')" "ended done ended ended 1" "and stays until the best one is done"
is "$(grep -Ec ': submitted (again )?as job' out) $(ls -d loong-data/*/runs/"$(run_id)"/train@2/[0-9]*.[0-9]* | wc -l)" "15 3" "with one start from rung to rung"
finish 37

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Successive halving: who goes on, ties, what diverges or fails, the bits of a survivor, kill -9 around each decision, two at once.
. "$LF_SRCDIR/tests/flow/lib.sh"
. "$LF_SRCDIR/tests/flow/fakes.sh"
. "$LF_SRCDIR/tests/flow/kill_lib.sh"
mkdir p && cd p || exit 99
hold # a start makes three steps and waits to be stopped
echo "text to read" >in.txt
head_of() {
    cat >pipeline.ini <<END
[pipeline]
name = demo
[stage tokenize]
kind = work
input = in.txt
steps = 2
[stage train]
kind = work
input = \${stage:tokenize}
steps = $1
hold = $HOLD
hold_at = 3
[stage last]
kind = join
parts = \${stage:train.result}
END
}
run_dir() { echo "$PWD"/loong-data/*/runs/"$(run_id)"; }
# rung N: of the newest run: each child with what became of it, from the best to the worst
rung() { tr '{' '\n' <"$(run_dir)/rung.$1.json" | sed -n 's/.*"child":\([0-9]*\),"kept":\([a-z]*\).*/\1:\2/p' | paste -sd' ' -; }
count() { "$LF" status --columns name,state | awk -v n="$1" -v s="$2" '$1 ~ n && $2 == s' | wc -l; }
starts() { ls -d "$(run_dir)/$1"/[0-9]*.[0-9]* 2>/dev/null | wc -l; }

# --- nine children, two rungs: against awk, which knows the metric by its formula ---
head_of 9
cp pipeline.ini one.ini
cat >>pipeline.ini <<'END'
[sweep]
train.factor = 1, 1.5, 1.7, 1.9, 2.1, 2.3, 2.5, 2.9, 1.1
metric = train.score min
method = halving
rungs = 3, 6
keep = 1/3
max_parallel = 3
END
rank() { # rank STEP KEPT CHILDREN: as rung prints it
    awk -v step="$1" -v kept="$2" -v some="$3" 'BEGIN { n = split("1 1.5 1.7 1.9 2.1 2.3 2.5 2.9 1.1", f, " ")
        m = split(some, c, " ")
        for (i = 1; i <= m; i++) printf "%.6f %d\n", (f[c[i]] - 2) ^ 2 + 1 / step, c[i] }' | sort -k1,1n -k2,2n |
        awk -v kept="$2" '{ printf "%d:%s\n", $2, NR <= kept ? "true" : "false" }' | paste -sd' ' -
}
runs 0 "$LF" run
like out '^rung 1 .step 3.: of 9 children go on: 4, 5, 3$' "the best third goes on; of equals the smaller number"
is "$(rung 1)" "$(rank 3 3 '1 2 3 4 5 6 7 8 9')" "the first rung"
is "$(rung 2)" "$(rank 6 1 '3 4 5')" "the second"
is "$(count train 'done') $(count train ended) $(count last ended)" "1 8 8" "one is done, the others ended"
is "$(starts train@1) $(starts train@3) $(starts train@4)" "1 2 3" "nobody ran further than its rung"
runs 0 "$LF" resume
like out 'nothing to do' "nothing is left of the run"
runs 0 "$LF" sweep
is "$(awk '/<- best/ { print $1, $3, $4 }' out)" "4 done 9" "the outcome"
want=$(cat "$(run_dir)"/last@4/*/out/joined/data.txt)
let_go
"$LF" run --quiet --new --set train.factor=1.9 one.ini
is "$(result last joined)" "$want" "a survivor that was stopped twice has the bits of a run that was not"
hold

# --- not finite, failed: behind all others ---
head_of 6
cat >>pipeline.ini <<'END'
[sweep]
train.factor = 2, 2, 2.5, 3
train.note = nan, 0, 0, 0
train.fail_at = 0, 2, 0, 0
zip = train.factor train.note train.fail_at
metric = train.score min
method = halving
rungs = 3
END
runs 0 "$LF" run --new
is "$(rung 1)" "3:true 4:true 1:false 2:false" "half of them goes on: those that have a value"
is "$(state train@1) $(state train@2) $(state train@3) $(state train@4)" "ended ended done done" "a child that failed has ended at its rung"

# --- a stage that hears of the rung some steps behind it ---
head_of 6
cat >>pipeline.ini <<'END'
[sweep]
train.factor = 1, 1.9
metric = train.score min
method = halving
rungs = 2
END
runs 0 "$LF" run --new
like out 'train@1: pending.*at rung 1 \(step 2, stopped at step 3\)' "is told where it stopped"
runs 0 "$LF" status
like out 'train@1 .*ended by rung 1 \(step 2, stopped at step 3\)' "also when the rung has ended it"

# --- mistakes ---
for bad in 's/^rungs.*/rungs = 3, 2/|steps that rise' 's/^rungs.*//|needs rungs' 's/^metric.*//|needs metric' 's/^method.*/keep = 1/|between 0 and 1' \
    's/^method.*/method = grid/|is for method = halving' 's/^train.factor.*/last.note = a, b/|share a stage'; do
    sed "${bad%%|*}" pipeline.ini >bad.ini
    case $bad in *keep*) echo 'method = halving' >>bad.ini ;; *share*) sed -i '/^train\.[fn]/d; /^zip/d; s/^parts.*/&\n/' bad.ini ;; esac
    case $bad in *share*) sed -i 's/^last.note.*/last.parts = "${stage:train.result}", "${stage:tokenize.result}"/' bad.ini ;; esac
    "$LF" validate bad.ini >out 2>err
    like err "${bad#*|}" "refused: ${bad#*|}"
done

# --- kill -9 of the driver around the decision; then two at once ---
head_of 6
cat >>pipeline.ini <<'END'
[sweep]
train.factor = 1, 1.9, 2.1, 2.9
metric = train.score min
method = halving
rungs = 3
keep = 1/4
max_parallel = 4
END
changes 'loong-flow run' "$LF" run --new
ok $? "a run"
before=$(rung 1)
is "$before" "2:true 3:false 4:false 1:false" "its decision"
at=$(sed -n '/rung\.1/s/ .*//p' "$T/changes.log" | head -1)
[ "${at:-0}" -gt 0 ]; ok $? "the decision is a change that can be cut"
last=$(sed -n '/rung\.1/s/ .*//p' "$T/changes.log" | tail -1)
for k in $(seq $((at - 4)) $((last + 2))); do
    killed "$k" 'loong-flow run' "$LF" run --new
    "$LF" resume >o 2>&1 &
    p=$!
    BG="$BG $p"
    "$LF" resume >o2 2>&1
    wait $p
    "$LF" resume >o 2>&1
    want "$?" 0 "resume"
    want "$(rung 1)" "$before" "the decision"
    want "$(count train 'done') $(count train ended)" "1 3" "the states"
    want "$("$LF" ledger sql "select count(*) || kept || ended from rung where run = '$(run_id)'" | tail -1 | tr -d ' ')" '1[2][3,4,1]' "the row of the ledger"
    "$LF" ledger check >check.out 2>&1 || note "ledger check: $(head -2 check.out)"
    point "killed before change $k, then two at once"
done

# --- an edit makes other children, which nobody has compared ---
sed -i 's/^train.factor.*/train.factor = 1.05, 1.9, 2.1, 2.9/' pipeline.ini
let_go
runs 0 "$LF" resume --restart
is "$(state train@1) $(state train@2) $(state train@3) $(state train@4)" "done done ended ended" "what was decided of others says nothing of it"

# --- a training stage, however fast it is, stops at the rung's step ---
mkdir ../real && cd ../real || exit 99
LF=$LF_BUILDDIR/loong-flow LF_MODELS_DIR=$LF_SRCDIR/models OMP_NUM_THREADS=1
export LF_MODELS_DIR OMP_NUM_THREADS
unset LF_LIBEXEC
seq -f 'a line of text with the number %g' 300 >corpus.txt
cat >pipeline.ini <<'END'
[model]
preset = tiny-llama
hidden = 32
vocab = 300
[stage tokenize]
kind = tokenize
inputs = corpus.txt
vocab_size = 300
[stage train]
kind = pretrain
data = ${stage:tokenize.shards}
seq_length = 16
batch = 2
micro_batch = 2
steps = 12
warmup = 1
save_interval = 0
[sweep]
train.lr = 1e-3, 2e-3
metric = train.loss min
method = halving
rungs = 5
END
runs 0 "$LF" run
is "$(grep -cE '^train@[12]: pending.*: at rung 1 .step 5., waits' out) $(count train ended) $(count train 'done')" "2 1 1" "a training stage stops at the step itself" "$(cat out)"
finish 42

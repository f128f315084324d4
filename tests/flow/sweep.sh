#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Sweeps on this machine: values and quotes, what children share, max_parallel, plan's sums, failures, kill -9 of the driver.
. "$LF_SRCDIR/tests/flow/lib.sh"
sweep() { # nine children over one shared stage
    echo "text to read" >in.txt
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
hold = $HOLD
[stage last]
kind = join
parts = \${stage:tokenize.result}
    \${stage:train.result}
[sweep]
train.factor = 1, 2, 3
train.steps = 3..5
max_parallel = 2
END
}
# children PIPELINE_ARGUMENTS: the settings of all children, one a line
children() { "$LF" plan --json "$@" | awk '/"settings": \{/ { on = 1; s = ""; next } on && /\}/ { print s; on = 0 }
    on { gsub(/^ *|,? *$/, ""); s = s (s == "" ? "" : " ") $0 }'; }
starts() { ls -d "$run"/"$1"/[0-9]*.[0-9]* 2>/dev/null | wc -l; }
starts_in() { ls -d loong-data/*/runs/"$(run_id)"/"$1"/[0-9]*.[0-9]* 2>/dev/null | wc -l; } # of the newest run
count() { "$LF" status --columns name,state | awk -v n="$1" -v s="$2" '$1 ~ n && $2 == s' | wc -l; }
is_n() { [ "$(count "$2" "$3")" -eq "$1" ]; } # is_n N NAMES STATE

# --- values ---
sweep
is "$(children --set train.factor=1,2 --set train.steps=4 | tr '\n' ';')" \
    '"train.factor": "1";"train.factor": "2";' "a list of --set is an axis, one value replaces one"
is "$(children --set train.factor=1 --set train.steps=1..9..4 | tr '\n' ';')" \
    '"train.steps": "1";"train.steps": "5";"train.steps": "9";' "a range with steps"
is "$(children --set 'train.note="a,b","say \"c\""' --set train.factor=1 --set train.steps=4 | tr '\n' ';')" \
    '"train.note": "a,b";"train.note": "say \"c\"";' "quoted values hold commas and quotes"
is "$(children --set train.note=a,b | grep -c note)" 0 "a comma in the value of a text is no list"
"$LF" plan --json --set train.note=a,b | grep -q '"children"'; ok $? "and the axes of the file stay"
sed 's/^train.factor.*/train.factor = 1, 2,\n    3\nzip = train.factor train.steps/' pipeline.ini >zip.ini
is "$(children zip.ini | tr '\n' ';')" \
    '"train.factor": "1" "train.steps": "3";"train.factor": "2" "train.steps": "4";"train.factor": "3" "train.steps": "5";' "axes that go together"
for bad in 'train.factor = 1,, 2|a value is empty' 'train.factor = "1, 2|is not closed' 'train.factor = "1" 2|a comma is missing' \
    'train.steps = 9..1|a range goes up' 'train.factr = 1, 2|did you mean "factor"' 'tarin.factor = 1, 2|there is no such section' \
    'pipeline.name = a, b|there is no such section' 'train.factor = 1, 1|the same work' 'max_paralel = 2|did you mean "max_parallel"' \
    'max_parallel = none|a number of stages' 'seeds = train.mode|is no axis' 'metric = trn.loss|there is no .stage trn' \
    'metric = loss|STAGE.KEY' 'train.factor = 1, 77|outside 0 to 10' 'max_children = 8|more than 8 children'; do
    sed '/^\[sweep\]/,$d' pipeline.ini >bad.ini
    printf '[sweep]\n%s\n' "${bad%%|*}" >>bad.ini
    case $bad in train.*) ;; *) printf 'train.steps = 3..11\n' >>bad.ini ;; esac
    "$LF" validate bad.ini >out 2>err
    is $? 2 "refused: ${bad%%|*}"
    like err "${bad#*|}" "and says why"
done
runs 2 "$LF" validate --set train.factor=1,77
is "$(wc -l <err)" 1 "a mistake of several children is one mistake"

# --- what is planned ---
"$LF" plan --rate 1M >plan
is "$(grep -c '^  run ' plan)" 19 "a shared stage is planned once: 1 + 9 x 2"
like plan '^ +9 +train.factor = 3, train.steps = 5$' "the children with their settings"
"$LF" plan --json --rate 1M >js
is "$(awk '/"disk_bytes":/ { sum += last; last = $2 + 0 } END { print sum, last }' js)" "$((10 * 1048576 + 9 * 100)) $((10 * 1048576 + 9 * 100))" "disk"
want=$(awk -v cores="$(getconf _NPROCESSORS_ONLN)" 'BEGIN { printf "%.6g", (2 + 3 * (3 + 4 + 5)) * 1e9 / 1e6 / 3600 * cores }')
is "$(awk '/"core_hours":/ { printf "%.6g", $2 }' js)" "$want" "core hours of all children, the shared stage once"
runs 1 "$LF" plan --rate 1M --set sweep.max_core_hours=1
like out 'refused: --set: the sweep needs about .* core hours, and \[sweep\] max_core_hours is 1' "more core hours than it may take"
runs 1 "$LF" plan --set train.needs_disk=1000T
like out 'refused: the outputs do not fit on the disk' "more disk than there is, all children together"
runs 1 "$LF" run --set train.needs_disk=1000T
[ ! -d .loong ] || [ -z "$(ls loong-data/*/runs 2>/dev/null)" ]; ok $? "and nothing was begun"

# --- nine children, two at once ---
hold
"$LF" run >log 2>&1 &
p=$!
BG="$BG $p"
until_true 20 is_n 2 '^train' running
run=$(echo "$T"/loong-data/*/runs/*)
sleep 1 # a third would have begun
is "$(ls -d "$run"/train@*/[0-9]*.[0-9]* | wc -l) $(state train@1) $(state train@2)" "2 running running" "max_parallel is held, the first children first"
kill -9 $p
wait $p 2>/dev/null
runs 0 "$LF" status
let_go
runs 0 "$LF" resume
is "$(count . 'done')" 19 "a driver that was killed: resume completes the sweep"
is "$(starts tokenize) $(starts train@1) $(starts train@9)" "1 1 1" "what ran goes on, what is shared ran once"
for k in 1 6 9; do
    "$LF" run --new --quiet --set train.factor=$(((k + 2) / 3)) --set train.steps=$((3 + (k + 2) % 3)) >o 2>&1
    cmp -s "$(stage_dir last)/out/joined/data.txt" "$run/last@$k/1.1/out/joined/data.txt"
    ok $? "child $k is the pipeline with its settings" "$(stage_dir last)"
done

# --- more values: what was made is taken over ---
runs 0 "$LF" run --set train.factor=1,2,3,4
is "$(grep -c ': started' out)" 6 "a sweep with one value more runs its three children only"

# --- a name of the pipeline stands for the stages of all children ---
runs 0 "$LF" metrics train --format csv --key score
is "$(tail -n +2 out | cut -d, -f2 | uniq | wc -l)" 12 "metrics train: the curves of all of them"
runs 0 "$LF" metrics latest/train@1 train@12 --format csv --key score
is "$(tail -n +2 out | cut -d, -f2 | uniq | tr '\n' ' ')" "train@1 train@12 " "and of one, whose name begins another's"
runs 0 "$LF" show last
is "$(grep -c '^last@.*: done' out)" 12 "show last: all of them"
runs 0 "$LF" logs train
runs 0 "$LF" run --set train.factor=1,2,3,4 --only train --dry-run
runs 0 "$LF" rerun train@1 train@2 --quiet
is "$(count '^(train|last)@[12]$' 'done') $(starts_in train@1) $(starts_in train@3)" "4 1 0" "rerun makes those that it names"
runs 0 "$LF" rerun train --quiet
is "$(starts_in tokenize) $(starts_in train@1) $(starts_in train@9) $(starts_in last@9)" "0 1 1 1" "rerun train: all of them, and what needs them"
runs 8 "$LF" rerun tran
hold
"$LF" run --new --quiet >o 2>&1 &
p=$!
BG="$BG $p"
until_true 20 is_n 2 '^train' running
until_true 20 sh -c "[ -e $(stage_dir train@1)/out/ck-1 ] && [ -e $(stage_dir train@2)/out/ck-1 ]"
runs 0 "$LF" finish train
is "$(cut -d: -f1 out | tr '\n' ';') $(grep -c 'has not begun' err)" "train@1;train@2; 7" "finish train asks those that run, and tells the others"
let_go
wait $p
is $? 0 "and the sweep goes on to its end"
is "$("$LF" status | grep -c 'ended at 1 of')" 2 "two of nine are shorter"
runs 2 "$LF" finish train
like err 'no stage train@N has anything to end' "then there is none to ask"

# --- a child that fails ---
rm -rf .loong loong-data
sed -i 's/^train.steps.*/train.fail_at = 0, 4/' pipeline.ini
runs 1 "$LF" run
run=$(echo "$T"/loong-data/*/runs/*)
is "$(count '^train' 'done') $(count '^train' failed) $(count '^last' 'done') $(count '^last' waiting)" "3 3 3 3" "children that fail stop nobody else"
runs 1 "$LF" resume
is "$(starts tokenize) $(count '^train' failed)" "1 3" "resume tries them again, and nothing else"
is "$("$LF" ledger check >/dev/null; echo $?)" 0 "the ledger is in order"

# --- the outcome: mean and error over seeds, against awk ---
sed -i '/^\[sweep\]/,$d' pipeline.ini
cat >>pipeline.ini <<'END'
[sweep]
train.factor = 1, 1.9, 2.5
train.note = 1, 4, 6.5
seeds = train.note
metric = train.score min
END
runs 0 "$LF" run --new --quiet
for k in 1 2 3 4 5 6 7 8 9; do
    "$LF" metrics "train@$k" --format csv --key score | awk -F, -v k=$k 'END { print int((k - 1) / 3), $2 }'
done | awk '{ n[$1]++; sum[$1] += $2; x[$1, n[$1]] = $2 }
    END { for (g = 0; g < 3; g++) { m = sum[g] / n[g]; s = 0; for (i = 1; i <= n[g]; i++) s += (x[g, i] - m) ^ 2
        printf "%d %.6g %.6g\n", n[g], m, sqrt(s / (n[g] - 1) / n[g]) } }' >want
runs 0 "$LF" sweep
awk '/SEEDS/ { on = 1; next } on && NF >= 4 { printf "%d %.6g %.6g\n", $2, $3, $4 } on && !NF { exit }' out >got
is "$(tr '\n' ';' <got)" "$(tr '\n' ';' <want)" "seeds: number, mean and standard error"
is "$(sed -n '1s/: .*//p' out)" "run $("$LF" status | awk 'NR == 1 { print $2 }')" "the run by its short name"
is "$(awk '/<- best/ { print $1, $2 }' out | tr '\n' ';')" "4 1.9;1.9 3;" "the best child and the best setting"
is "$(sed -n '/^train.factor$/,/^$/p' out | grep -c '|.*[o*].*|$')" 3 "the plot has a line for each value"
like out '^1.9 \|-?[*]' "with a mark for the best"
"$LF" sweep --json | sed -n '/"groups"/,$p' | awk '/"stderr":/ { printf "%.6g\n", $2 }' >got
is "$(tr '\n' ';' <got)" "$(awk '{ print $3 }' want | tr '\n' ';')" "--json has the same numbers"
"$LF" sweep --help | grep -q -e --goal; ok $? "--help"
is "$("$LF" sweep --goal max | awk '/<- best/ { print $1; exit }')" 3 "more is better, where that is said"
is "$("$LF" sweep --metric train.loss | awk '/<- best/ { print $1; exit }')" 1 "of equals the first"
runs 2 "$LF" sweep --metric trian.loss
runs 2 "$LF" sweep --metric train.losss
like err 'no child has recorded it; .loong-flow metrics train@9 -o all. shows' "a metric that nobody has recorded"
is "$("$LF" sweep --metric last.score | awk '/done/ { print $5, $6, $7, $8; exit }')" "0 0.5 0.5 <-" "a result without steps, as that of eval"
runs 0 "$LF" run --new --quiet --set train.factor=1.9 --set train.note=1,nan
runs 0 "$LF" sweep
like out '^ +2 .* done +1 +nan +1 ' "a child that diverged has no value"
unlike out 'nothing is compared' "which is not that nobody has one"
like out '^ +2 +nan +- ' "and no mean"
is "$(awk '/<- best/ { print $1 }' out)" 1 "and is not the best"
runs 0 "$LF" run --new --quiet --set train.factor=1.9 --set train.note=1,2 --set 'sweep.metric=train.scroe min'
runs 0 "$LF" sweep
like out '^no child has recorded scroe, so nothing is compared; name another metric with --metric$' "a metric of the file that no stage has"
runs 0 "$LF" run --quiet --set train.factor=1.9 --set train.note=1 --set sweep.seeds= --set sweep.metric=train.score
runs 2 "$LF" sweep
like err 'is no sweep' "a run without axes"
finish 109

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# metrics: tables, CSV and plots of one stage and of several runs. The loss of step N is 10 / N.
. "$LF_SRCDIR/tests/flow/lib.sh"
echo text >in.txt
cat >pipeline.ini <<'END'
[pipeline]
name = demo
[stage train]
kind = work
input = in.txt
steps = 60
step_time = 0
valid_every = 17
[stage short]
kind = work
input = in.txt
steps = 1
END
"$LF" run --quiet --new || exit 1
"$LF" run --quiet --new --set train.steps=30 || exit 1
widest() { awk '{ n = length > n ? length : n } END { print n }' "$1"; }
unset COLUMNS

# Rows with a validation are always among those that are shown.
"$LF" metrics demo-1/train --lines 9 >out
is "$(sed -n 1p out | tr -s ' ' | sed 's/^ //')" "step loss (nats) valid_loss (nats)" "a heading with units"
is "$(awk 'NR > 1 && $3 != "-" { printf "%s ", $1 }' out)" "17 34 51 " "all validations"
is "$(sed -n '2p;$p' out | awk '{ printf "%s ", $1 }') $(($(wc -l <out) <= 10))" "1 60  1" "the first and the last, and no more than asked"
is "$(awk 'NR > 1 { if ($1 <= last) bad = 1; last = $1 } END { print bad + 0 }' out)" 0 "by rising step"
is "$("$LF" metrics demo-1/train --lines 4 | awk 'NR > 1 { printf "%s ", $1 }')" "1 17 51 60 " "with little room some validations"
is "$("$LF" metrics demo-1/train --lines 0 | wc -l)" 61 "0 is all"
"$LF" metrics demo-1/train --format csv --lines 9 | cut -d, -f1 >csv
awk '{ print $1 }' out | diff - csv >d
ok $? "--lines means the same for CSV" "$(cat d)"
is "$("$LF" metrics demo-1/train --format csv | wc -l)" 61 "else CSV has all rows"
runs 2 "$LF" metrics --format plot --lines 4
like err '--lines belongs to --format table and csv' "a plot has no lines"

# Metrics by name.
runs 2 "$LF" metrics train --key vald_loss
like err 'there is no metric "vald_loss", did you mean valid_loss\?; stage train has loss, score, valid_loss' "a wrong metric lists what there is"
is "$("$LF" metrics train --key valid_loss,loss --lines 1 | sed -n 1p | tr -s ' ')" "step valid_loss (nats) loss (nats)" "a list, in its order"
is "$("$LF" metrics train --key valid_loss --format csv | sed -n 18p)" "17,1.588235" "CSV of one metric"
"$LF" metrics short >out
like out '^loss +10  nats$' "one record is shown downwards"
COLUMNS=24 "$LF" metrics demo-1/train >out
is "$(widest out) $(grep -c valid_loss out)" "17 0" "what has no room on the screen is left out"
COLUMNS=24 "$LF" metrics demo-1/train -o +valid_loss >out
like out 'valid_loss' "-o shows it"
"$LF" metrics train -o help >out
like out 'valid_loss' "-o help lists it"

# Several runs.
"$LF" metrics demo-1/train demo-2/train --key loss --lines 0 >out
is "$(sed -n '2p;31p;61p' out | tr -s ' ' | tr '\n' ';')" " 1 10 10; 30 0.3333 0.3333; 60 0.1667 -;" "runs side by side"
"$LF" metrics train --run demo-1 --run latest --format csv --key loss >out
is "$(sed -n '1p;$p' out | tr '\n' ' ') $(wc -l <out)" "run,stage,step,loss demo-2,train,30,0.333333  91" "in CSV one behind the other"
"$LF" metrics demo-2 --json >js
like js '"stage": "train"' "a run alone: its longest stage"
"$LF" metrics demo-1/train demo-2/train --json >js
is "$(grep -c '"records"' js) $(grep -c '"curves"' js)" "2 1" "JSON of several"
runs 8 "$LF" metrics nosuch/train
like err 'no run "nosuch"' "a wrong run"
runs 8 "$LF" metrics demo-1/trian
like err 'run demo-1 has no stage "trian"; it has train, short' "a wrong stage"
for command in show samples logs; do
    runs 8 "$LF" $command trian
done
like err 'run demo-2 has no stage "trian"; it has train, short' "the same in logs"
"$LF" metrics demo-1/train demo-1/short --key loss --lines 0 >out
is "$(sed -n '1p;3p' out | tr -s ' ' | tr '\n' ';')" \
    "step demo-1/train loss (nats) demo-1/short loss (nats); 2 5 -;" "stages of one run side by side"
runs 2 "$LF" metrics train --key ''
like err 'names no metric' "an empty list of metrics"
runs 2 "$LF" metrics train --lines -1

# Plots: as wide as the screen, with ticks, all curves in one.
"$LF" metrics demo-1/train --format plot >out
is "$(widest out)" 80 "80 columns"
like out '^loss \(nats\), valid_loss \(nats\) +\* loss +o valid_loss$' "loss and validation in one plot"
is "$(sed 1d out | grep -o o | wc -l) $(grep -c '^ *[0-9.]* +[*.o ]*$' out)" "3 5" "three validations, and ticks at 2, 4, 6, 8 and 10"
COLUMNS=50 "$LF" metrics train --format plot --key loss >out
is "$(widest out) $(grep -c valid out)" "50 0" "50 columns, one metric"
COLUMNS=60 "$LF" metrics demo-1/train demo-2/train --format plot --key loss --key valid_loss >out
is "$(grep -c '^loss (nats) .* demo-1 .* demo-2$' out) $(grep -c '^valid_loss' out)" "1 1" "a plot for each --key"
"$LF" metrics short --format plot >out
is "$(grep -c '^ *10 + *\*$' out)" 1 "one point is a point in the middle"
finish 40

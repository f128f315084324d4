#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The console of run and watch: the live line on a terminal and what fits on it, lines that stay, nothing of it elsewhere.
. "$LF_SRCDIR/tests/flow/lib.sh"
ESC=$(printf '\033')
CR=$(printf '\r')
TERM=xterm
export TERM
unset NO_COLOR COLUMNS
on_tty() { "$LF_BUILDDIR/tests/flow/on_tty" "$@"; }
# The last state of each line of a terminal's bytes: what was redrawn, one a line.
# What an earlier command has drawn is not looked at: a file is empty before a command behind & writes to it.
drawn() { tr '\r' '\n' <"$1" | sed "s/$ESC\[[0-9;]*[A-Za-z]//g"; }
# widest FILE: the longest of them
widest() { drawn "$1" | awk '{ if (length($0) > n) n = length($0) } END { print n + 0 }'; }

cat >pipeline.ini <<'END'
[pipeline]
name = demo
[stage first]
kind = work
steps = 30
step_time = 5
warnings = 1
[stage last]
kind = join
parts = ${stage:first.result}
END

# --- a stage with steps ---
hold
: >tty
on_tty 100 "$LF" run --set "first.hold=$HOLD" --set first.hold_at=12 >tty &
p=$!
BG="$BG $p"
until_true 20 grep -q 'first \[#.*step 12/30' tty
let_go
wait $p
is $? 0 "a run on a terminal"
drawn tty >lines
like lines '^first \[########\.{12}\]  40%.*  step 12/30  loss 0\.8333' "a live line with bar, percent, step and loss"
like tty "$CR$ESC\[K" "which is redrawn in place"
like lines '^  lf-work: warning: 9000 sequences were replaced' "a warning stays"
unlike lines '^  lf-work: step' "lines of the log that the live line stands for do not"
like lines '^first: done in .*s, 1 warning: loss 10 -> 1\.[0-9]*$' "nor does the end of a stage vanish, which has its numbers"
"$LF" show first >shown
like shown '^  result loss 10 -> 1\.[0-9]*$' "show has the same numbers"
like tty "$CR$ESC\[Kfirst: done" "the live line goes with its stage"
is "$(drawn tty | tail -n 2 | head -n 1)" "$(drawn tty | grep "^run .* is done")" "and does not come back"
[ "$(widest tty)" -gt 0 ]; ok $? "something was drawn"

# --- narrow: the bar goes first, then what matters less ---
for w in 60 40 24; do
    hold
    : >tty.$w
    on_tty $w "$LF" run --new --set "first.hold=$HOLD" --set first.hold_at=12 --set first.warnings=0 >tty.$w &
    p=$!
    BG="$BG $p"
    until_true 20 grep -q 'loss 0.8333' tty.$w
    let_go
    wait $p
    drawn tty.$w | grep 'loss 0.8333' | head -1 >lines
    is "$(awk -v w=$w '{ print length($0) < w }' lines)" 1 "$w columns: the line fits: $(cat lines)"
done
drawn tty.60 | grep -q 'step 12/30  loss 0.8333'; ok $? "60 columns: step and loss are there"
drawn tty.40 | grep 'loss 0.8333' >lines
unlike lines '\[' "40 columns: no bar"
drawn tty.24 | grep -q '^first  40%  loss 0.8333'; ok $? "24 columns: percent and loss"

# --- COLUMNS where the terminal does not say, no control sequences where it understands none ---
hold
: >tty
COLUMNS=40 on_tty 0 "$LF" run --new --set "first.hold=$HOLD" --set first.hold_at=12 >tty &
p=$!
BG="$BG $p"
until_true 20 grep -q 'loss 0.8333' tty
let_go
wait $p
drawn tty | grep 'loss 0.8333' | head -1 >lines
is "$(awk '{ print length($0) < 40 }' lines)" 1 "COLUMNS counts where the terminal says nothing"
TERM=dumb on_tty 80 "$LF" run --new >tty
grep -q "$ESC\|$CR" tty
is $? 1 "TERM=dumb: no control sequences"
"$LF" run --new >plain
grep -q "$ESC\|$CR" plain
is $? 1 "not a terminal: none either"
like plain '^  lf-work: step 30 of 30' "and the lines of the log"

# --- a stage without steps says how far its loop is ---
hold
: >tty
on_tty 100 "$LF" run --new --set "last.hold=$HOLD" >tty &
p=$!
BG="$BG $p"
until_true 20 sh -c 'tr "\r" "\n" <tty | grep -q "last .*90/200 rows"'
"$LF" status --json >js
: >watched
on_tty 80 "$LF" watch --interval 1 >watched &
q=$!
BG="$BG $q"
until_true 20 grep -q 'last .*45%' watched
let_go
wait $p $q
drawn tty | grep '90/200' >lines
like lines '^last \[#########\.{11}\]  45%.*joining 90/200 rows' "its bar is that of its loop"
like js '"what": "joining"' "status --json has it too"
drawn watched | grep '45%' >lines
like lines '^  last +running +\[#+\.*\]  45%.*joining 90/200 rows' "and so has watch"
[ "$(widest watched)" -le 80 ]; ok $? "watch fits into 80 columns: $(widest watched)"

# --- the time left of a pipeline: what runs, and what was estimated before its first run ---
mkdir eta
(cd eta && printf '[pipeline]\nname = eta\n[stage a]\nkind = work\nsteps = 30\nstep_time = 1\n[stage b]\nkind = work\nafter = a\nsteps = 1000\n' >pipeline.ini
hold
: >../tty
on_tty 120 "$LF" run --until a --set "a.hold=$HOLD" --set a.hold_at=12 >../tty &
p=$!
until_true 20 grep -q 'step 12/30' ../tty
let_go
wait $p)
drawn tty >lines
unlike lines 'pipeline' "stages that are not wanted do not count"
(cd eta && hold
: >../tty
on_tty 120 "$LF" run --new --set "a.hold=$HOLD" --set a.hold_at=12 --set b.step_time=0 --set b.fail_at=1 >../tty &
p=$!
until_true 20 grep -q 'step 12/30' ../tty
let_go
wait $p)
drawn tty >lines
like lines 'step 12/30 .*  pipeline [0-9ms]+ left' "a stage that waits counts with its estimate"

# --- watch in a narrow terminal keeps loss and step ---
hold
: >plain
"$LF" run --new --set "first.hold=$HOLD" --set first.hold_at=12 >plain &
p=$!
BG="$BG $p"
until_true 20 sh -c "$LF status | grep -q 'running .*12/30'"
: >watched
NO_COLOR=1 on_tty 60 "$LF" watch --interval 1 >watched &
q=$!
BG="$BG $q"
until_true 20 grep -q 'loss 0.8333' watched
let_go
wait $p $q
drawn watched | grep 'first.*loss 0.8333' | head -1 >lines
like lines 'step 12/30  loss 0.8333$' "watch in 60 columns: step and loss stand"
grep -q "$ESC\[[0-9;]*m" watched
is $? 1 "NO_COLOR: no colours"

# --- Ctrl-C twice: what goes on is named ---
hold
: >plain
"$LF" run --new --set "first.hold=$HOLD" --set first.save_time=3000 >plain &
p=$!
BG="$BG $p"
until_true 20 sh -c "$LF status | grep -q 'running .*1/30'"
kill -INT $p
until_true 10 grep -q 'once more' plain
kill -INT $p
wait $p
is $? 75 "Ctrl-C twice: exit 75"
pid=$(pid_in "$(stage_dir first)/stage.json")
like plain "^first: goes on saving \(pid $pid\); .loong-flow watch." "the stage that still saves is named with its pid"
let_go
finish 30

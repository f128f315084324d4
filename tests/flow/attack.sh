#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Found by using it unkindly: names that look like words, bytes that are no text, clocks set back, cancel between stages.
. "$LF_SRCDIR/tests/flow/lib.sh"
cat >pipeline.ini <<'END'
[pipeline]
name = unkind
[template t]
kind = work
input = train
steps = 5
step_time = 5
[stage one]
inherit = t
[stage two]
inherit = t
factor = 2
END

# A file whose name is a word of some other option is a file all the same.
echo first >train
runs 0 "$LF" run
is "$(state one)" done "an input may be called train"
printf 'FIRST\n' >train
"$LF" plan >out
like out '^  run  one' "and its contents count"

# Other contents of the same size with the clock set back are other contents.
printf 'third\n' >train
touch -d '2020-01-01' train
sleep 2.1
"$LF" run >o 2>&1
"$LF" plan >out
like out '^  - +one' "unchanged is done"
printf 'Third\n' >train
touch -d '2020-01-01' train
"$LF" plan >out
like out '^  run  one' "a file is looked at again though its time was set back"

# A last line that is not UTF-8 is still an end record: the class is kept, and nothing is tried again as if it were lost.
"$LF" run --new --only one --set one.fail_at=2 --set one.fail_how=latin >o 2>&1
is "$? $(state one) $(tries one)" "1 failed 1" "a log line that is not UTF-8: failed once"
"$LF" status --json >js
like js 'caf\?.txt' "and its text is shown"

# cancel between two independent stages: the second does not start.
"$LF" run --new --set "template t.steps=100k" >o 2>&1 &
p=$!
BG="$BG $p"
until_true 10 sh -c "$LF status | grep -q 'running .*[0-9]/100000'"
runs 0 "$LF" cancel
wait $p
is "$(state one) $(tries two)" "cancelled 0" "cancel: the driver starts nothing more"
like o 'nothing more is started' "and says so"
runs 0 "$LF" resume --set "template t.steps=6" --accept steps
is "$(state one) $(state two)" "done done" "resume goes on"

# Two at once: one makes the run, the other is told of it or finds it done.
rm -rf .loong loong-data
"$LF" run --set "template t.step_time=100" >o1 2>e1 &
p=$!
"$LF" run --set "template t.step_time=100" >o2 2>e2
wait $p
is "$(ls loong-data/*/runs | wc -l)" 1 "two run commands make one run"
cat o1 o2 e1 e2 >out
like out 'is done; results' "and it is done"

# The driver dies, the settings change, the stage lives on under the old ones: one resume makes the new result.
hold
"$LF" run --new --only one --set "one.hold=$HOLD" >o 2>&1 &
p=$!
BG="$BG $p"
until_true 10 sh -c "$LF status | grep -q 'running .*[0-9]/5'"
kill -9 $p
wait $p 2>/dev/null
: >out
let_go_when 30 grep -q adopted out &
BG="$BG $!"
runs 0 "$LF" resume --only one --set one.steps=6
is "$(state one) $(tries one)" "done 2" "what is adopted under old settings does not count as a try"

# Output that cannot be written is a failure.
"$LF" status >/dev/full 2>err
is "$?" 1 "no room for the output: exit 1"
like err 'cannot write' "and said"

# The project of somebody else runs nothing of mine (only root can make one here).
if [ "$(id -u)" = 0 ]; then
    chown 12345 .loong
    runs 2 "$LF" run --set two.factor=7
    like err 'refused: it belongs to another user' "a foreign .loong is refused"
    chown 0 .loong
fi

# gc: an old run that is kept stands on results of a newer one.
rm -rf .loong loong-data
runs 0 "$LF" run --set two.factor=3
old=$(run_id)
runs 0 "$LF" run --new --set two.factor=4
new=$(run_id)
runs 0 "$LF" run --new --set two.factor=5
runs 0 "$LF" resume "$old" --set two.factor=4
runs 0 "$LF" gc --keep-runs 1 --keep "$old" --yes
"$LF" status "$old" >out
like out "result of run $new" "an old run takes a newer one's result"
unlike out purged "what a kept run took from a newer one stays"
# --- control bytes in paths: refused with the byte, in one line, before anything is made ---
cd "$T" && mkdir bytes && cd bytes || exit 99
echo text >in.txt
printf '[stage first]\nkind = work\ninput = in.txt\nsteps = 2\nstep_time = 1\n' >pipeline.ini
for byte in 012 011 033 177; do
    odd=$(printf "a\\${byte}b") hex=$(printf '0x%02x' "0$byte")
    mkdir "$odd" "in.$odd" && cp pipeline.ini in.txt "$odd"
    echo more >"in.$odd/file" && echo more >"$odd.txt"
    mkdir "list.$byte" && echo more >"list.$byte/$odd"
    for c in validate plan "run --no-check" submit; do
        (cd "$odd" && "$LF" $c >../out 2>../err)
        is "$? $(wc -l <err)" "2 1" "$c in a directory with byte $hex" "$(cat err)"
        like err "control character .byte $hex. in the path" "says so"
    done
    cp pipeline.ini "$odd.ini"
    for c in validate plan run; do
        "$LF" $c "$odd.ini" >out 2>err
        is "$? $(wc -l <err)" "2 1" "$c of a file with byte $hex" "$(cat err)"
        like err "control character .byte $hex. in the path" "says so"
    done
    for set in "first.input=$odd.txt" "first.input=in.$odd" "first.input=list.$byte" "first.input=list.$byte/*" "pipeline.data_dir=$odd"; do
        runs 2 "$LF" run --set "$set"
        # A newline ends one of several inputs, so the first half of such a name is looked for.
        like err "control character .byte $hex. in the path|input = [^ ]*a: there is no such file" "says so" "$set"
    done
    TMPDIR="$T/bytes/$odd" "$LF" plan >out 2>err
    like out "cost unknown: TMPDIR: a control character .byte $hex." "TMPDIR with byte $hex"
done
[ -z "$(find . -name loong-data -o -path './?*/.loong')" ]; ok $? "no run was made, and nothing in such a directory" "$(find . -name .loong)"
runs 0 "$LF" run
cd "$T" || exit 99

# A run under other settings, stopped; the run before has a result of the file's settings, which does not take the place of
# what was saved without a word.
mkdir taken && cd taken && pipeline
sed -i 's/^steps = 30/steps = 8/' pipeline.ini
"$LF" run >o 2>&1
hold
"$LF" run --set first.steps=60 --set "first.hold=$HOLD" --set first.hold_at=5 >o 2>&1 &
p=$!
BG="$BG $p"
until_true 20 sh -c "$LF status | grep -q 'running .* 5/60'"
kill -INT $p
wait $p
let_go
runs 2 "$LF" resume
like err 'first would take over the result of another run and lose [1-9][0-9]* of 60 steps; .*--restart takes the result$' "resume says what would be lost"
is "$(state first)" pending "and loses nothing"
runs 0 "$LF" resume --set first.steps=60 --set "first.hold=$HOLD" --set first.hold_at=5
is "$("$LF" status --columns name,steps | awk '$1 == "first" { print $2 }')" 60 "the settings of before go on"
cd ..

finish_min 132 # two fewer when not root

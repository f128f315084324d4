#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ends of stages: classes of failure, limits of time, memory and disk, cancel.
. "$LF_SRCDIR/tests/flow/lib.sh"
cat >pipeline.ini <<'E'
[stage only]
kind = work
steps = 5
step_time = 5
grace = 2
E

# class HOW CLASS PATTERN
class() {
    "$LF" run --new --set only.fail_at=3 --set only.fail_how="$1" >o 2>&1
    code=$?
    is "$code $(state only) $("$LF" status --columns class | tail -n +2 | head -1)" "1 failed $2" "fail_how = $1 is $2"
    "$LF" status >out
    like out "$3" "and status shows why"
}
class exit unknown 'something'
class abort crash 'SIGABRT'
class disk disk 'No space left'
class utf8 bad_input 'invalid UTF-8'
class nan diverged 'non-finite'
class usage usage '--factor is wrong'
class said config 'steps = 5 does not fit corpus.txt'
"$LF" run --new --set only.fail_at=3 --set only.fail_how=said >o 2>&1
like o 'change what the message names; as it is, it ends so every time' "what ends so every time is not recommended for another try"
unlike o 'tries again' "by any line"

# A rank that is killed.
if "$LF" launch -n 1 -- true 2>err || ! grep -q 'without-pmix' err; then
    "$LF" run --new --set only.ranks=2 --set only.launcher=loong --set only.fail_at=1 --set only.fail_how=rank --set only.retries=0 >o 2>&1
    is "$("$LF" status --columns class | tail -n +2 | head -1)" rank "the class of a rank that was killed"
    "$LF" status >out
    like out 'rank 1 \(host .*, pid [0-9]+\) was ended by signal 9' "and the reason names it"
else
    for what in class reason; do skip "a killed rank: $what" "built --without-pmix"; done
fi
"$LF" run --new --set only.fail_at=3 >o 2>&1
"$LF" status >out
[ -z "$(tr -d '\011\012\040-\176' <out)" ]; ok $? "control bytes of a log do not reach the terminal"

# Time limit: asked to stop before it, killed at it.
"$LF" run --new --set only.steps=100k --set only.time_limit=40 --set only.grace=50 >o 2>&1
is "$? $(state only)" "75 pending" "a time limit stops the stage at a good checkpoint"
like "$(stage_dir only)/end.json" '"class":"timeout"' "and is called a timeout"
runs 0 "$LF" plan --set only.steps=100k --set only.time_limit=40 --set only.grace=50
like out 'asked to stop 20s before its limit of 40s \(measured: a save takes .*, safe points are .* apart\)' "plan tells when, from what was measured"
runs 0 "$LF" plan --new --set only.time_limit=100
like out 'asked to stop 2.0s before its limit of 1m40s \(grace = 2.0s; nothing measured yet\)' "or from the grace"
"$LF" run --new --set only.fail_at=3 --set only.fail_how=deaf --set only.time_limit=20 >o 2>&1
is "$? $("$LF" status --columns class | tail -n +2 | head -1)" "1 timeout" "a stage that does not listen is killed at its limit"

# Ctrl-C with a stage that does not listen: the grace ends.
"$LF" run --new --set only.fail_at=3 --set only.fail_how=deaf >o 2>&1 &
p=$!
BG="$BG $p"
until_true 10 sh -c "$LF status | grep -q 'running .*2/5'"
kill -TERM $p
wait $p
is "$? $(state only)" "75 pending" "SIGTERM: after the grace it is ended, and can be resumed"

# cancel, then resume.
"$LF" run --new --set only.steps=100k >o 2>&1 &
p=$!
BG="$BG $p"
until_true 10 sh -c "$LF status | grep -q 'running .*[0-9]/100000'"
runs 0 "$LF" cancel
wait $p
is "$? $(state only)" "1 cancelled" "cancel stops the stage"
runs 0 "$LF" resume --set only.steps=100k --accept steps --set only.steps=20
is "$(state only)" done "resume continues a cancelled run"

# What cannot fit is refused before anything starts.
runs 1 "$LF" run --new --set only.needs_bytes=900T
like err 'does not fit in memory: it needs 900.0 TiB' "memory"
runs 1 "$LF" plan --new --set only.needs_bytes=2G --set only.memory=1G
like out 'refused: --set: stage only does not fit in memory: it needs 2.0 GiB, and its .memory. is 1.0 GiB' "plan refuses it too"
runs 1 "$LF" plan --new --set only.needs_disk=900T
like out 'refused: the outputs do not fit on the disk' "disk"
runs 1 "$LF" plan --new --set only.needs_disk=900T --set pipeline.data_dir=there
like out 'refused: --set: the outputs do not fit on the disk of data_dir = there' "with the place of data_dir"
runs 2 "$LF" run --new --set pipeline.scheduler=slrm
like err 'scheduler = slrm: there are local, .*; did you mean slurm' "another scheduler is a clear error"
is "$(wc -l <err)" 1 "in one line"

# Files that cannot grow.
before=$("$LF" status --all -n 0 | wc -l)
(ulimit -f 1; exec "$LF" run --new 2>err >out)
is $? 1 "RLIMIT_FSIZE: refused"
is "$(wc -l <err)" 1 "with one message" "$(cat err)"
like err 'File too large' "that names the cause"
is "$("$LF" status --all -n 0 | wc -l)" "$before" "nothing counts as a run"
runs 0 "$LF" run --new
finish 47

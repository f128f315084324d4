#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What can happen to a project between two commands: purge, move, zombies, a ledger that is gone, old, new or read-only.
. "$LF_SRCDIR/tests/flow/lib.sh"
pipeline
sed 's/steps = 30/steps = 8/' pipeline.ini >p && cp p pipeline.ini
runs 0 "$LF" run
ref=$(result last joined)

# A scratch purge takes files and leaves markers.
rm "$(stage_dir first)/out/result/data.txt"
is "$(state first)" purged "a missing file makes a stage purged"
"$LF" status >out
like out 'data.txt' "and status names the file"
runs 0 "$LF" run
is "$(tries first)" 1 "nobody needs it: nothing runs"
rm "$(stage_dir last)/out/joined/data.txt"
runs 0 "$LF" run
is "$(state first) $(state last)" "done done" "a purged result that is needed again is made again, with its inputs"
is "$(result last joined)" "$ref" "with the same contents"
is "$(tries second)" 1 "what was whole did not run"
printf x >>"$(stage_dir second)/out/result/data.txt"
is "$(state second)" purged "a file of another length is no result either"

# A flipped byte is found by who reads it: that result counts no more, and is made again with what read it.
flip() { printf '~' | dd of="$1" bs=1 seek=3 conv=notrunc 2>/dev/null; }
mkdir "$T/flip" && cp "$T/pipeline.ini" "$T/in.txt" "$T/flip" && cd "$T/flip" || exit 99
runs 0 "$LF" run
flip "$(stage_dir first)/out/result/data.txt"
rm "$(stage_dir last)/out/joined/data.txt"
was=$(stage_dir first)
is "$(state first)" done "a flipped byte is not seen from outside"
runs 1 "$LF" run
"$LF" status >out
like out 'result of stage first is damaged and is made again: .*/data.txt' "its reader says which result is damaged"
like "$was/damaged.json" '"output":"result","reason":".*/data.txt: .*"stage":"last"' "which is written beside it"
runs 0 "$LF" resume
is "$(state first) $(state last)" "done done" "resume makes both again"
is "$(result last joined)" "$ref" "with the right contents"
[ "$(stage_dir first)" != "$was" ]; ok $? "the damaged one stands no more for the stage"
# One that nobody made again yet is not adopted by another run.
flip "$(stage_dir second)/out/result/data.txt"
rm "$(stage_dir last)/out/joined/data.txt"
"$LF" run --only last >o 2>&1
like o 'result of stage second is damaged' "a stage alone finds it too"
is "$(state second)" purged "and its producer, which was not asked for, is not whole any more"
"$LF" explain second >out
like out 'not whole any more: output result is damaged, as stage last found: ' "as it says"
runs 0 "$LF" resume
is "$(result last joined)" "$ref" "until all of it is resumed"
# What is whole is not accused, whatever its reader says.
"$LF" run --new --set second.fail_at=3 --set second.fail_how=utf8 >o 2>&1
is "$(state first) $(state second)" "done failed" "a reader that fails over a whole result"
ls "$(stage_dir first)" >o
unlike o damaged "does not damage it"
cd "$T" || exit 99

# Marker, spec id and manifest must all be there.
rm "$(stage_dir second)/done.json"
"$LF" status >/dev/null
[ -e "$(stage_dir second)/done.json" ]; ok $? "a commit that a crash cut in half is finished by the next command"
runs 0 "$LF" run
like out 'nothing to do' "nobody needs it: nothing runs"
is "$(state second)" purged "damage that nobody reads is left alone"

# The whole project moves.
cd .. && mv "$T" "$T.moved" && T=$T.moved && HOLD=$T/hold && cd "$T" || exit 99
is "$(state last)" done "a moved project has the same state"
runs 0 "$LF" run
like out 'nothing to do' "and nothing to do"
runs 0 "$LF" run --new
is "$(result last joined)" "$ref" "and runs in its new place"
"$LF" ledger check >out
ok $? "the ledger is in order there" "$(cat out)"

# The ledger is a view.
cp .loong/ledger.db before.db
"$LF" ledger sql "select run, stage, attempt from attempt order by 1, 2, 3" >rows1
rm .loong/ledger.db .loong/ledger.db.pub
is "$(state last)" done "status needs no ledger"
runs 0 "$LF" ledger rebuild
"$LF" ledger sql "select run, stage, attempt from attempt order by 1, 2, 3" >rows2
cmp -s rows1 rows2; ok $? "a deleted ledger is rebuilt from the run directories"
[ "$(wc -l <rows1)" -gt 6 ]; ok $? "(with something in it)"
runs 2 "$LF" ledger sql "delete from attempt"
like err 'SELECT' "SQL is read-only"
runs 0 "$LF" ledger backup copy.db
runs 1 "$LF" ledger backup copy.db
like err 'exists' "a backup overwrites nothing"

echo "this is not a database, and long enough to be looked at: $(seq 1 200 | tr '\n' ' ')" >.loong/ledger.db
runs 7 "$LF" run --new
like err 'rebuild' "a damaged ledger is named, with what to do"
is "$(wc -l <err)" 1 "in one line"
is "$(state last)" done "and status still works"
runs 0 "$LF" ledger rebuild
cp .loong/ledger.db good.db
printf '\377' | dd of=.loong/ledger.db bs=1 seek=63 conv=notrunc 2>/dev/null # user_version, big-endian at bytes 60 to 63
before=$(cksum <.loong/ledger.db)
runs 7 "$LF" run --new
like err 'newer' "a newer ledger schema is refused"
is "$(cksum <.loong/ledger.db)" "$before" "and left alone"
cp good.db .loong/ledger.db
if [ "$(id -u)" -eq 0 ]; then
    skip "" "read-only ledger: root may write everything"
else
    chmod a-w .loong .loong/ledger.db
    runs 1 "$LF" run --new
    like err 'Permission denied|read-only|cannot' "a read-only ledger refuses before anything starts"
    is "$(state last)" done "status works on a read-only project"
    chmod u+w .loong .loong/ledger.db
fi

# Two at once.
pipeline
hold
"$LF" run --new --set "first.hold=$HOLD" >o1 2>e1 &
p1=$!
BG="$BG $p1"
until_true 10 sh -c "$LF status | grep -q 'running .*[0-9]/30'"
runs 6 "$LF" resume
like err 'driven by another loong-flow' "a second one on the same run is told who drives it"
let_go
"$LF" run --new --set first.factor=3 >o2 2>e2 &
p2=$!
BG="$BG $p2"
wait $p1
is $? 0 "the first one finishes"
wait $p2
is $? 0 "and so does another run of the project at the same time"

"$LF" ledger check >out
ok $? "the ledger has both" "$(cat out)"

# A zombie: the stage of epoch 1 is through, its wrapper is held; a requeue runs as epoch 2 and publishes; the zombie wakes.
hold
"$LF" run --new --only first --set first.steps=6 --set "first.hold=$HOLD" >o 2>&1 &
p=$!
BG="$BG $p"
until_true 10 sh -c "$LF status | grep -q 'running .*[0-9]/6'"
d=$(stage_dir first)
until_true 5 test -e "$d/stage.json"
w=$(pid_in "$d/../epoch.1")
kill -STOP "$w"
let_go
until_true 10 test -e "$d/out/result/manifest.json"
token=$(sed -n 's/.*"token":"\([0-9a-f]*\)".*/\1/p' "$d/../attempt.1.json")
rd=$(cd "$d/../.." && pwd)
runs 0 "$rd/rev.1/bin/loong-flow" exec --run-dir "$rd" --stage first --attempt 1 --token "$token" --project "$T"
[ -e "$rd/first/1.2/done.json" ]; ok $? "the newer start published"
kill -CONT "$w"
wait $p
[ ! -e "$rd/first/1.1/done.json" ]; ok $? "the zombie did not, though its stage had ended well"
like "$rd/first/1.1/end.json" '"class":"superseded"' "and says that it was superseded"
is "$(state first)" done "the stage is done"
runs 1 "$rd/rev.1/bin/loong-flow" exec --run-dir "$rd" --stage first --attempt 1 --token 00 --project "$T"
like err 'token' "a job with a wrong token does nothing"

# Nothing is started from a directory that somebody else may have prepared.
chmod o+w "$rd"
runs 2 "$LF" resume --restart
like err 'nothing is started from it: it is writable by everybody' "a run that anybody may write is not driven"
is "$(state first)" done "but can be read"
chmod o-w "$rd"

# The run is frozen: the executables of the revision are used, not those of today.
mkdir mybin && cp "$LF_LIBEXEC"/lf-* mybin/
hold
LF_LIBEXEC=$T/mybin "$LF" run --new --set "first.hold=$HOLD" >o 2>&1 &
p=$!
BG="$BG $p"
until_true 10 sh -c "$LF status | grep -q 'running .*[0-9]/30'"
for f in mybin/lf-*; do printf '#!/bin/sh\nexit 9\n' >x && chmod +x x && mv -f x "$f"; done
printf '[stage broken\n' >pipeline.ini
let_go
wait $p
is $? 0 "an upgrade or edit during a run does not touch it"
finish_min 70 # two more when not root

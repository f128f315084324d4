#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What people get wrong outside of their settings: commands in the wrong place, files that are gone, projects of others. Each
# row is one message that says what is wrong, where, and what to do.
. "$LF_SRCDIR/tests/flow/lib.sh"

# said NAME CODE WHAT WHERE TODO COMMAND...: the command ends with CODE and says one line that has all three
said() {
    _n=$1 _c=$2 _w=$3 _p=$4 _d=$5
    shift 5
    "$@" >out 2>err
    _code=$?
    [ $_code -eq "$_c" ] && [ "$(wc -l <err)" -eq 1 ] && grep -qE -e "$_w" err && grep -qE -e "$_p" err && grep -qE -e "$_d" err
    ok $? "$_n" "exit $_code, said: $(cat err out)"
}
(said planted 0 x x x true) >planted
like planted '^not ok' "a command that says nothing fails its row"
(said planted 2 'usage' 'pipeline.ini' 'init' sh -c 'echo usage pipeline.ini >&2; exit 2') >planted
like planted '^not ok' "and one that does not say what to do"

# ---- no pipeline, or one already

for command in validate plan run submit; do
    said "$command without a pipeline file" 8 'there is no pipeline file' 'pipeline.ini' '`loong-flow init` writes one' "$LF" $command
done
said "a pipeline file that is not there" 8 'no pipeline file' 'nothere.ini' 'loong-flow init' "$LF" plan nothere.ini
runs 0 "$LF" init
like out '^wrote pipeline.ini for pretrain \(others: tokenize, sft, .*init --list.*loong-flow plan pipeline.ini$' "init tells which use it took, and the others"
said "init over a file" 1 'exists and is left alone' 'pipeline.ini' '-o FILE writes another' "$LF" init
runs 0 "$LF" init sft -o mine.ini
like out '^wrote mine.ini for sft; edit it, then: loong-flow plan mine.ini$' "init with a use says no more than needed"

# ---- places in the file

pipeline
sed 's/^steps = .*/&\nsteps = 31/' pipeline.ini >twice.ini
said "a key set twice" 2 'steps is set twice in .stage first.' 'twice.ini:7:1: ' 'lines 6 and 7' "$LF" validate twice.ini
sed 's/^steps/stepz/' pipeline.ini >key.ini
said "a misspelled key points at the key" 2 'unknown key "stepz"' 'key.ini:6:1: ' 'did you mean "steps"' "$LF" validate key.ini
sed 's/^steps = .*/steps = many/' pipeline.ini >value.ini
said "a wrong value points at the value" 2 'steps: "many" is not' 'value.ini:6:9: ' 'not a count \(like' "$LF" validate value.ini

# ---- somebody else's project

as=
[ "$(id -u)" -ne 0 ] || { as="setpriv --reuid=65534 --clear-groups"; chmod 755 "$T"; }
runs 0 "$LF" run
if [ -n "$as" ] && $as "$LF" --version >/dev/null 2>&1; then
    chmod 700 .loong
    said "another user's project" 1 'is unreadable for you: .*Permission denied' "$T/.loong" 'its owner root can share it with a group \(share = GROUP' $as "$LF" status
    mkdir -p below
    chmod 755 .loong below
    chmod 700 .loong/roots
    said "of which a part can be read, from below" 1 'is unreadable for you' "$T/.loong/roots: " 'share = GROUP' $as sh -c 'cd below && "$0" status' "$LF"
else
    skip_some 2 "no other user can be taken on here"
fi

# ---- results where nothing can be written: the file is named as it was asked for

for words in "init -o" "report -o" "ledger backup"; do
    # shellcheck disable=SC2086
    said "$words FILE in no directory" 8 'cannot create' ' nowhere/x\.y: ' 'No such file or directory$' "$LF" $words nowhere/x.y
done

# ---- what everyone types: --dry-run, rerun, --force

mkdir "$T/typed" && cd "$T/typed" || exit 99
pipeline
for words in "run --dry-run" "run -n" "submit --dry-run"; do
    # shellcheck disable=SC2086
    runs 0 "$LF" $words
    is "$(grep -cE '^  run  (first|second|last) ' out) $(ls -d .loong loong-data 2>/dev/null)" "3 " "$words shows what would run and makes nothing"
done
runs 0 "$LF" run -n --only second
is "$(grep -E '^  (run|-) ' out | awk '{ print $1, $2 }' | tr '\n' ' ')" "- first run second - last " "--dry-run knows --only"
runs 8 "$LF" run -n --only secund
like err 'no stage "secund".*did you mean second' "and what is misspelled"
runs 0 "$LF" run --until second
like out '^run demo-1: what was asked for is done; not run yet: last \(`loong-flow resume`\); results: ' "a run of a part says what is left"
runs 0 "$LF" run
like out '^run demo-1 is done; results: ' "and the whole that it is done"
one=$(run_id)
runs 0 "$LF" run --dry-run --force second
is "$(grep -E '^  (run|-) ' out | awk '{ print $1, $2 }' | tr '\n' ' ')" "- first run second run last " "--force: the stage and what needs it"
runs 0 "$LF" rerun second --quiet
two=$(run_id)
[ "$one" != "$two" ] && [ -d loong-data/*/runs/"$one" ]
ok $? "rerun makes a new run and leaves the old one"
is "$(tries first) $(tries second) $(tries last)" "0 1 1" "which takes over the others"
runs 0 "$LF" run
is "$(grep -c '^nothing to do: every stage is done' out) $(run_id)" "1 $two" "and is what run goes on with" "$(cat out)"
# One that is not finished does not take over the old result later.
runs 0 "$LF" rerun last --only first --quiet
is "$(state last)" pending "rerun of a part: the rest waits"
runs 0 "$LF" resume --quiet
is "$(tries first) $(tries second) $(tries last)" "0 0 1" "and is made by resume, not taken over"
said "rerun of nothing" 2 'which stage' 'rerun' 'STAGE' "$LF" rerun
said "rerun of a stage that is misspelled" 8 'no stage "frist"' 'in the pipeline' 'did you mean first' "$LF" rerun frist
said "--new with --force" 2 'makes all again' '--new' 'leave --force out' "$LF" run --new --force last

# ---- a stage by its plain name

if "$LF" launch -n 2 -- true >/dev/null 2>err; then
    "$LF" launch -n 2 -- lf-work --version >out 2>err
    is "$? $(grep -c '^.[01]. fake' out)" "0 2" "launch finds a stage by its name" "$(cat err)"
    PATH=/usr/bin:/bin "$LF" launch -n 2 -- lf-nothing >out 2>err # a directory that may not be read would make it 126
    is $? 127 "what is no stage either is not found"
else
    skip_some 2 "ranks cannot be started here: $(tail -n 1 err)"
fi

finish 51

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A run, a stage or the data directory taken away by hand: every command says in one line what is gone and what to do, and none
# says that there never was anything.
. "$LF_SRCDIR/tests/tap/shm.sh"
. "$LF_SRCDIR/tests/flow/lib.sh"
cat >pipeline.ini <<'END_INI'
[pipeline]
name = demo
[stage first]
kind = work
steps = 2
step_time = 1
[stage second]
kind = work
input = ${stage:first}
steps = 2
step_time = 1
END_INI
runs 0 "$LF" run
id=$(run_id)
cp -a loong-data keep.data && cp -a .loong keep.loong
afresh() { rm -rf loong-data .loong && cp -a keep.data loong-data && cp -a keep.loong .loong; }

# gone WHAT PATTERN COMMAND...: exit 8, one line with the pattern and a remedy
gone() {
    what=$1 pattern=$2
    shift 2
    timeout 600 "$LF" "$@" >out 2>err
    is "$? $(wc -l <err)" "8 1" "$* without $what: exit 8, one line" "$(cat err)"
    like err "$pattern.*(restore|rebuild|run)" "$* without $what: what is gone and the remedy"
}
each() { # each WHAT PATTERN: all commands that need a run
    for c in "status" "status $id" "show $id" "metrics $id" "report $id -o page.html" "resume $id" "cancel $id" "diff $id last" "note $id text" "tag $id word" \
        "logs --run $id" "artifacts" "tick $id" "explain first --run $id"; do
        case $c in
        logs* | explain*) "$LF" ${c%% *} --help | grep -q -- --run || continue ;; # these name a stage, and take the newest run
        esac
        gone "$1" "$2" $c
    done
}
rm -rf "loong-data/"*"/runs/$id"
each "its run" "the directory of run $id is gone"
gone "its run" "the directory of run $id is gone" logs
runs 1 "$LF" ledger check
like out "^run $id: its directory .*/runs/$id is gone; restore it, or let .loong-flow ledger rebuild. forget the run$" "ledger check names the run and the remedy"
is "$(wc -l <out)" 1 "in one line, whatever was in it" "$(head -3 out)"
runs 0 "$LF" ledger rebuild
"$LF" status >out 2>err
like err 'no runs yet' "the remedy: the ledger has forgotten it" "$(cat err)"
afresh
for what in data runs; do
    afresh
    if [ $what = data ]; then rm -rf loong-data; else rm -rf loong-data/*/runs; fi
    each "its $what" "the data directory .*loong-data.* is gone"
    runs 1 "$LF" ledger check
    is "$(wc -l <out) $(grep -c '^the data directory .*loong-data.* is gone, with the runs in it; mount or restore it;.*ledger rebuild' out)" "1 1" \
        "ledger check without its $what: one line" "$(head -3 out)"
    for c in gc plan; do
        runs 0 "$LF" $c
        like err 'the data directory .*loong-data.* is gone.*mount or restore' "$c says it too"
    done
    runs 0 "$LF" run
    is "$(state second)" "done" "and it can be made again"
done
afresh
rm -rf loong-data && echo text >loong-data
"$LF" status >out 2>err
[ $? -ne 0 ] && [ "$(wc -l <err)" -eq 1 ]; ok $? "a file for a data directory: one error" "$(cat err)"
like err 'data_dir cannot be listed, mount or restore it: .*/loong-data.*Not a directory' "with the remedy"
rm -f loong-data

# --- what a stage has made ---
afresh
rm -rf "loong-data/"*"/runs/$id/first"
"$LF" status >out
like out 'first .*its directory .* was removed; it is made again' "a stage's directory"
"$LF" ledger check >out
is "$(grep -c "^run $id: [0-9]* event files are not there, the first is runs/$id/first/.*; restore them, or let .*ledger rebuild" out) $(wc -l <out)" "1 2" "ledger check counts what it had" "$(cat out)"
like out "^run $id: the artifact runs/$id/first/1.1/out/[a-z]* is not there; restore it, or let .loong-flow resume. make it again" "and says what makes it again"
runs 0 "$LF" resume
is "$(state first)" "done" "and so it is"
afresh
rm -rf "loong-data/"*"/runs/$id/first/1.1"
"$LF" status >out
like out 'first .*what it had made was removed from .*made again' "a start of a stage"
runs 0 "$LF" resume
is "$(state first)" "done" "and it is made again"
afresh
"$LF" plan >out 2>err
unlike out 'was removed' "nothing is called removed that is there"
sed -i 's/^\[stage second\]/[stage third]/' pipeline.ini
"$LF" plan >out 2>err
unlike out 'was removed' "nor what never was"
finish 114

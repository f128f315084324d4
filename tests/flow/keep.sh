#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Many runs: notes and tags, lists with filters, what gc keeps and why, lineage in both directions, and what team mates may
# read.
. "$LF_SRCDIR/tests/flow/lib.sh"
pipeline
sed 's/steps = 30/steps = 3/; s/step_time = 20/step_time = 1/' pipeline.ini >p && cp p pipeline.ini
for f in 1 2 3 4; do
    "$LF" run --new --set second.factor=$f >o 2>&1 || ok 1 "run $f" "$(cat o)"
    eval "r$f=$(run_id)"
done
"$LF" run --new --set first.fail_at=2 >o 2>&1
r5=$(run_id)
# r6 takes "first" and "second" over from r4 (the newest that has them): it has only "last" of its own.
cat >>pipeline.ini <<'END'
[stage more]
kind = work
input = ${stage:last}
steps = 4
END
"$LF" run --set second.factor=4 >o 2>&1
r6=$(run_id)

# Lists
is "$("$LF" status -a -o run | tail -n +2 | wc -l)" 6 "status -a has all runs"
is "$("$LF" status -a -o ids | sed -n 2p)" "$r6" "newest first"
is "$("$LF" status --state failed -o ids | tail -n +2)" "$r5" "runs by state"
is "$("$LF" status -s failed,running -o ids | tail -n +2)" "$r5" "or states"
is "$("$LF" status -a -n 2 -o ids | wc -l)" 3 "-n limits"
runs 2 "$LF" status --state fialed
like err 'did you mean failed' "states are checked"
is "$("$LF" status --since 1h -o ids | wc -l)" 7 "since an hour ago: all"
is "$("$LF" status --since 2100-01-01 -o ids | wc -l)" 1 "since a day to come: none"
runs 2 "$LF" status --since yesterday
like err '2026-11-22' "--since says what it takes"
runs 2 "$LF" status "$r1" --state failed
"$LF" status "$r6" -o jobs >o
like o '^STAGE +STATE +JOB' "a named format"
like o 'more +done' "has rows"

# Notes and tags
runs 0 "$LF" tag "$r2" paper
runs 0 "$LF" tag "$r1" draft
runs 0 "$LF" tag "$r1" draft --remove
runs 0 "$LF" note "$r3" "the learning rate was too $(printf '\302\233')31mhigh"
runs 2 "$LF" tag "$r1" "two words"
runs 8 "$LF" tag zzzz word
runs 8 "$LF" note "$r1" text --stage nosuch
"$LF" tag >o
like o "$r2 +- +paper" "tags are listed"
unlike o draft "those taken off are not"
"$LF" note "$r3" >o
like o 'too .31mhigh' "notes are listed"
! LC_ALL=C grep -q "$(printf '\302\233')" o; ok $? "without control characters"
"$LF" note --json >js
like js '"text": "the learning rate' "in JSON too"
is "$("$LF" status --tag paper -o ids | tail -n +2)" "$r2" "runs by tag"
"$LF" status -a -o +run >o
like o "paper .*$r2" "the list shows tags"
runs 0 "$LF" ledger rebuild
is "$("$LF" status --tag paper -o ids | tail -n +2)" "$r2" "a rebuilt ledger has them"

# gc: newest, tagged, noted, best, what others stand on.
"$LF" gc --keep-runs 1 --keep-best loss=1 >o
like o "keeps run $r6: one of the newest" "the newest is kept"
like o "keeps run $r5: not complete" "what is not complete is kept"
like o "keeps run $r2: tagged paper" "a tagged run is kept"
like o "keeps run $r3: has a note" "a run with a note is kept"
like o "keeps run $r4: run $r6 took results from it" "what a kept run stands on is kept"
like o 'lowest loss of all' "the best run is kept"
"$LF" gc --keep-runs 0 --no-keep-marked --json >js
like js '"bytes": [1-9]' "bytes are counted"
like js '"kept": ' "JSON says what is kept"
"$LF" gc --keep-runs 1 --dry-run >o
like o "would delete .*/$r1/first" "--dry-run shows what would go"
like o 'in all; --yes' "and how much"
runs 2 "$LF" gc --yes --dry-run
runs 2 "$LF" gc --keep-best loss:least
runs 8 "$LF" gc --keep-best nosuchmetric
runs 0 "$LF" gc --keep-runs 1 --yes
is "$("$LF" status "$r1" -o name,state | awk '$2 == "purged"' | wc -l)" 3 "what nobody keeps is gone"
for r in $r2 $r3 $r4 $r6; do
    is "$("$LF" status "$r" -o state | grep -c purged)" 0 "$r is whole"
done
"$LF" gc --keep-runs 0 --older-than 1h >o
like o "keeps run $r3: has a note|keeps run $r3: too young" "--older-than spares the young"
unlike o "would delete" "nothing here is old"
runs 0 "$LF" ledger check

# Lineage, in both directions
d=$("$LF" status "$r4" -o name,dir | awk '$1 == "first" { print $2 }')
"$LF" lineage "$d/out/result/data.txt" >o
like o "made by first \(work\), run $r4" "lineage of a file inside an artifact"
"$LF" lineage --forward "$d/out/result" >o
like o "read by second \(work\), run $r4" "forward: what read it"
like o "read by more \(work\), run $r6" "down to the end, over runs"
like o 'nothing was made from it' "where it ends"
"$LF" lineage --forward in.txt >o
like o "read by first \(work\), run $r4" "an outside file's descendants"
"$LF" lineage --forward "$d/out/result" --json >js
like js '"how": "input"' "forward in JSON"
runs 8 "$LF" lineage --forward nosuch
"$LF" artifacts "$r6" --role output -o where >o
like o 'runs/' "artifacts have named formats"
runs 8 "$LF" artifacts "$r6" --stage nosuch

# A run that is done has nothing to cancel, and nothing is written.
runs 0 "$LF" cancel "$r6"
like out 'nothing of it runs any more' "cancel of a run that is done"
[ ! -e "$(echo loong-data/*/runs/"$r6")/driver.cancel" ]
ok $? "writes nothing"

# What others may read
is "$(stat -c %a .loong)" 700 "share = none: .loong is mine"
is "$(stat -c %a .loong/ledger.db)" 600 "and the ledger"
is "$(stat -c %a .loong/ledger.db.pub)" 600 "and its copy"
if g=$(id -gn 2>/dev/null); then
    runs 0 "$LF" run --new --set pipeline.share="$g"
    is "$(stat -c '%a %G' .loong)" "2750 $g" "share = GROUP: the group may read .loong"
    is "$(stat -c '%a %G' .loong/ledger.db)" "640 $g" "the ledger"
    is "$(stat -c '%a %G' .loong/ledger.db.pub)" "640 $g" "and its copy"
    is "$(stat -c '%a %G' loong-data/*/runs/"$(run_id)")" "2750 $g" "and the run"
    "$LF" run --new --set pipeline.share="$g" --set pipeline.data_dir=shared >o 2>&1
    is "$(stat -c '%a %G' shared shared/* shared/*/runs shared/*/runs/* | sort -u)" "2750 $g" "all the way down to it"
else
    skip_some 6 "group $g has no name"
fi
if [ "$(id -u)" -ne 0 ]; then
    chmod -R a-w .loong loong-data
    "$LF" status >o 2>&1; ok $? "who may only read sees the state" "$(cat o)"
    "$LF" artifacts >o 2>e; ok $? "and the artifacts" "$(cat e)"
    like e 'not up to date' "as far as the ledger knows"
    runs 1 "$LF" note "$r6" "not allowed"
    runs 0 "$LF" cancel "$r6"
    chmod -R u+w .loong loong-data
else
    skip "who may only read sees the state" "root may write everything"
fi
finish_min 74 # four more when not root

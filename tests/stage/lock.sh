#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# One process to an --out, and a process that says who it is.
. "$LF_SRCDIR/tests/flow/lib.sh"
tok=$LF_BUILDDIR/stages/lf-tokenize
awk 'BEGIN { for (i = 0; i < 200000; i++) print "line " i " of a text that is long enough to be read for a moment" }' >in.txt
mkdir ranks
LF_RANKS_DIR=$T/ranks "$tok" --out dst --vocab-size 300 --threads 1 in.txt >o1 2>e1 &
p=$!
BG=$p
until_true 20 test -e dst/.lock && kill -STOP $p
[ -e dst/.lock ]; ok $? "a stage holds its --out"
runs 1 "$tok" --out dst --vocab-size 300 --threads 1 in.txt
like err "dst is in use: .*held by .*pid $p .*lf-tokenize" "a second one is told by whom"
is "$(wc -l <err)" 1 "in one line"
PMIX_RANK=1 "$tok" --out dst --vocab-size 300 --plan in.txt >plan
ok $? "a plan needs no lock"
kill -CONT $p
wait $p
is $? 0 "the first one finishes"
[ -e dst/shards/manifest.json ] && [ ! -e dst/.lock ]; ok $? "and lets go"
like "$(echo ranks/*.$p.json)" "\"pid\":$p,.*\"rank\":\"0\"" "it left its name where the wrapper looks for it"
like "$(echo ranks/*.$p.json)" '"isa":"[a-z0-9]+",.*"processor":"[^"]+",.*"threads":1' "and what it computes on"
like "$(echo ranks/*.$p.json)" '"cpu_s":[0-9.]*[1-9]' "and at its end the processor time that it took"
"$tok" --out dst2 --vocab-size 300 --threads 1 in.txt >o1 2>e1 &
p=$!
BG=$p
until_true 20 test -e dst2/.lock && kill -9 $p
wait $p 2>/dev/null
runs 0 "$tok" --out dst2 --vocab-size 300 --threads 1 in.txt
finish 11

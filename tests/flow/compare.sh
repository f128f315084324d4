#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs side by side: `status --all` has the settings in which they differ, and their values.
. "$LF_SRCDIR/tests/flow/lib.sh"
echo text >in.txt
cat >pipeline.ini <<'END'
[pipeline]
name = demo
[stage first]
kind = work
input = in.txt
steps = 4
step_time = 1
[stage second]
kind = work
input = ${stage:first}
END
new() { "$LF" run --quiet --new "$@" || exit 1; }
new --set second.steps=5
new --set second.steps=8 --set first.factor=2
new --set second.steps=10 --set second.step_time=2
all() { "$LF" status --all "$@" >out 2>err || cat err; }
squeezed() { tr -s ' ' <out | sed 's/ $//'; }

# The loss is 10 / step; factor is 1.5 where nobody says it; step_time is operational.
all
squeezed | sed 's/ 20[0-9-]* [0-9:]*//' >o
cat >want <<'END'
RUN STATE DONE CREATED loss best loss steps factor
demo-3 done 2/2 1 1 10 1.5
demo-2 done 2/2 1.25 1.25 8 2
demo-1 done 2/2 2 2 5 1.5
END
cmp -s o want
ok $? "differing settings, the last and the best loss" "$(cat o)"
is "$(awk '{ print length }' out | sort -n | tail -1 | awk '{ print ($1 <= 80) }')" 1 "in 80 columns"
COLUMNS=60 all
is "$(awk '{ print length }' out | sort -n | tail -1 | awk '{ print ($1 <= 60) }') $(grep -c factor out)" "1 0" "in 60 there are fewer"

all -o label,first.factor,second.step_time,second.loss,min.first.loss,max.loss
squeezed >o
cat >want <<'END'
RUN factor second.step_time second.loss min.first.loss max.loss
demo-3 1.5 2 1 2.5 10
demo-2 2 5 1.25 2.5 10
demo-1 1.5 5 2 2.5 10
END
cmp -s o want
ok $? "any setting, any metric, its smallest and largest value" "$(cat o)"
all -o +first.mode
like out '^RUN .* first.mode$' "one more column"
like out '^demo-1 .* fast$' "with the default"
runs 2 "$LF" status --all -o +first.fctor
like err 'no run shown has a column, setting or metric "first.fctor"; did you mean first.factor\?' "a wrong one names a near one"
runs 2 "$LF" status --all -o +lss
like err 'did you mean loss\?' "also of a metric"
all -o help
like out 'STAGE.OPTION' "help tells what there is"
"$LF" status --all --json >js
is "$(tr -d ' \n' <js | grep -o '"first.factor":"[^"]*"')" '"first.factor":"2"' "JSON has the settings of each run"

# Sorted by any column.
order() { all -o label "$@"; sed 1d out | tr '\n' ' '; }
is "$(order --sort best)" "demo-3 demo-2 demo-1 " "the smallest loss first"
is "$(order --sort=-best)" "demo-1 demo-2 demo-3 " "the largest first"
is "$(order --sort second.steps)" "demo-1 demo-2 demo-3 " "by a setting, as a number"
is "$(order --sort first.factor)" "demo-3 demo-1 demo-2 " "what is equal stays newest first"
is "$(order --sort label)" "demo-1 demo-2 demo-3 " "by a text"
runs 2 "$LF" status --sort bset
like err '^loong-flow status: --sort: no run shown has a column, setting or metric "bset"; did you mean' "by what is there"

# Tags have a column when there are some.
grep -q TAGS o && false; all; grep -q TAGS out
is $? 1 "no tags, no column"
"$LF" tag demo-1 best && all
like out '^demo-1 .* best$' "a tag"
# Without a ledger the last values are there, and nothing fails.
rm .loong/ledger.db*
all -o label,loss,max.loss
is "$(sed -n 2p out | tr -s ' ')" "demo-3 1 1" "without a ledger the last record counts"

# Times are local; --utc and JSON are not.
utc=$(TZ=Asia/Shanghai "$LF" status -a -o created_text --utc | sed -n 2p)
local=$(TZ=Asia/Shanghai "$LF" status -a -o created_text | sed -n 2p)
is "$local" "$(TZ=Asia/Shanghai date -d "$utc" '+%Y-%m-%d %H:%M:%S')" "local times"
is "$(TZ=Asia/Shanghai "$LF" status -a --json | grep -c '"created": [0-9.]*')" 3 "seconds in JSON"

# The curve of a stage that went on has all its attempts.
"$LF" run --new --set second.steps=9 --set "second.note=it's" --set second.fail_at=4 >o 2>&1
like o "resume --set second.steps=9 --set 'second.note=it'.''s' --set second.fail_at=4\`" "settings of the command are said again"
runs 0 "$LF" resume --quiet --set second.steps=9
all -o label,second.loss,max.second.loss,min.second.loss
is "$(squeezed | sed -n 2p)" "demo-4 1.111 10 1.111" "the largest loss of all attempts"

# With more differences than room, those in which most runs stand apart are shown, and what the user names is before them.
mkdir "$T/many" && cp in.txt pipeline.ini "$T/many" && cd "$T/many" || exit 99
for steps in 6 7 8; do new --set second.steps=$steps; done
new --set first.factor=2 --set first.mode=invariant
few() { COLUMNS=68 "$LF" status --all "$@" >out 2>err; sed 1q out | tr -s ' ' | sed 's/.*CREATED //;s/ $//'; }
is "$(few)" "loss best loss steps" "most runs differ in the steps"
is "$(cat err)" "2 more settings differ: -o +first.factor shows the next one, a wider terminal all" "and the number of the others is told"
is "$(few --sort first.factor)" "loss best loss factor" "what the rows are sorted by has its room first"
is "$(few -o +first.mode)" "loss steps mode" "and so has a named column, which is there once"
like err '^1 more settings differ: -o \+first.factor shows' "the others are told then, too"
few -o label,first.mode >/dev/null
none "a list of one's own leaves nothing out" "$(cat err)"
COLUMNS=120 few >/dev/null
is "$(COLUMNS=120 "$LF" status -a 2>&1 | grep -c 'more settings')" 0 "with room for all nothing is told"
finish 34

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A sweep on the imitated OpenPBS: the same queues, in its words.
. "$LF_SRCDIR/tests/flow/lib.sh"
. "$LF_SRCDIR/tests/flow/fakes/pbs/lib.sh"
. "$LF_SRCDIR/tests/flow/pbs_cases.sh"
trap 'pbs_down >/dev/null 2>&1; cleanup' EXIT
pbs_up openpbs kill_delay=10
new_project
pipeline
printf '[sweep]\nsecond.factor = 1, 2, 3\nmax_parallel = 1\n' >>pipeline.ini
runs 0 "$LF" submit --dry-run
like out "^\\$ qsub .*second_1.*-W '?depend=afterok:JOB\\(first\\)'? " "the first child waits for what all share"
like out "^\\$ qsub .*-W '?depend=afterok:JOB\\(first\\),afterany:JOB\\(last@1\\)'? " "the second also for the end of the first"
runs 0 "$LF" submit --wait
is "$("$LF" status --columns name,state | awk '$2 == "done"' | wc -l)" 7 "three children are done"
"$LF" ledger sql "select stage, t_start, t_end from segment where stage like '%@%' order by t_start" >seg
is "$(awk 'NR > 1 && $1 ~ /@/ { if ($2 + 0 < end) bad++; if ($3 + 0 > end) end = $3 + 0; n++ } END { print n, bad + 0 }' seg)" "6 0" "one after the other"
finish 6

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The whole pipeline with the real stages, cut short: kill -9 of everything, of the stage, of the wrapper, of loong-flow, at
# ten points in tokenize and ten in pretrain; SIGTERM. After `loong-flow resume` shards, tokenizer, checkpoint, metrics,
# texts and scores equal those of an uninterrupted run, bit for bit.
#
# A point is the n-th change that the victim makes to its files (tests/fault/fail.c), spread from the first to the last
# (which publishes), or a time, or a file that appears. Under sanitizers fail.so cannot be loaded: times and files only.
. "$LF_SRCDIR/tests/tap/shm.sh"
. "$LF_SRCDIR/tests/flow/lib.sh"
. "$LF_SRCDIR/tests/flow/faults_lib.sh"
cat >>pipeline.ini <<'END_INI'
[kind generate]
threads = 1
[kind eval]
threads = 1
[stage generate]
kind = generate
checkpoint = ${stage:train.checkpoint}
tokenizer = ${stage:tokenize.tokenizer}
prompt = the
    of a
max_tokens = 8
seed = 3
[stage eval]
kind = eval
checkpoint = ${stage:train.checkpoint}
tokenizer = ${stage:tokenize.tokenizer}
data = ${stage:tokenize.shards}
limit = 8
END_INI

# Everything of a run that must repeat. Metrics: the records of all starts; one that was written twice counts once.
results() {
    (cd "$(stage_dir tokenize)/out" && cksum shards/* tokenizer/*)
    "$tool" id "$(stage_dir train)/out/checkpoint"
    for m in "$(stage_dir train)"/../*/metrics; do [ ! -s "$m" ] || "$tool" metrics "$m"; done | sort -n | uniq
    cksum <"$(stage_dir generate)/out/text/out.jsonl"
    grep -v '"source"' "$(stage_dir eval)/out/results/results.json" | cksum
}
# same NAME: resume to the end; all is as in the reference
same() {
    "$LF" resume >o 2>&1
    code=$?
    results >now 2>&1
    [ $code -eq 0 ] && cmp -s ref now
    ok $? "$1" "exit $code; $(diff ref now | head -4 | tr '\n' ' ') $(tail -3 o | tr '\n' ' ')"
}
# faulty ACTION PROGRAM N COMMAND...: the N-th change of the first process whose command line has PROGRAM in it
faulty() {
    _action=$1 _program=$2 _n=$3
    shift 3
    rm -f once
    LD_PRELOAD=$FAIL LF_FAIL_ROOT=$T LF_FAIL_ACTION=$_action LF_FAIL_PROGRAM=$_program LF_FAIL_AFTER=$_n LF_FAIL_ONCE=$T/once \
        "$@" >o 2>&1
    _code=$?
    [ -e once ] || echo "# nothing reached change $_n of $_program"
    [ -e once ] && return $_code
}
# settled STAGE: nobody works on it any more
settled() { until_true 20 sh -c "$LF status --columns name,state | grep -qE '^$1 +(pending|failed|done|waiting)'"; }

runs 0 env LF_FAIL_ROOT="$T" LF_FAIL_PROGRAM=/lf- LF_FAIL_LOG="$T/calls" ${FAIL:+LD_PRELOAD="$FAIL"} "$LF" run
results >ref
[ "$(grep -c '^[0-9]* ' ref)" -gt 40 ] # 13 x 2 shards and more, 30 steps
ok $? "the reference run has shards, a checkpoint and metrics"
grep -q '"kind": *"generate"\|"id"' "$(stage_dir generate)/out/text/out.jsonl"
ok $? "and texts"

# --- the n-th change ---
if [ -n "$FAIL" ]; then
    calls_t=$(grep -c '/tokenize/' calls) calls_p=$(grep -c '/train/' calls)
    echo "# lf-tokenize makes $calls_t changes, lf-pretrain $calls_p"
    # Six runs; each loses everything, or the stage alone, once in tokenize and once in pretrain.
    k=0
    for who in killall kill killall kill killall killall; do
        k=$((k + 1))
        # Fractions of the way, with a pseudo-random offset; the last is within the final publication.
        at_t=$(awk -v k=$k -v n="$calls_t" 'BEGIN { srand(k); print k == 6 ? n - 4 : int(1 + (k - 1 + rand()) * (n - 8) / 5) }')
        at_p=$(awk -v k=$k -v n="$calls_p" 'BEGIN { srand(k + 9); print k == 6 ? n - 4 : int(1 + (k - 1 + rand()) * (n - 8) / 5) }')
        faulty $who lf-tokenize "$at_t" "$LF" run --new
        code=$?
        settled tokenize
        before=$(state tokenize)
        faulty $who lf-pretrain "$at_p" "$LF" resume
        code="$code $?"
        settled train
        [ "$code $before" = "$([ $who = kill ] && echo 1 1 failed || echo 137 137 pending)" ]
        ok $? "$who before change $at_t of tokenize, then $at_p of pretrain" "exits and state $code $before"
        same "resumed: the same bytes"
    done
    # The wrapper alone: before it has claimed an epoch, in its records before the stage, before the commit (a link), and between
    # the commit and its name in the result. The command that runs replaces it each time.
    for c in 3 20 55 58; do
        faulty kill 'exec --run-dir' $c "$LF" run --new
        is $? 0 "the wrapper killed before its change $c"
        same "the same bytes"
    done
    # loong-flow alone: while it freezes the run, which then does not exist yet, and between and behind stages.
    for c in 12 60 75; do
        faulty kill "$LF run" $c "$LF" run --new
        is $? 137 "loong-flow killed before its change $c"
        [ $c -ne 12 ] || "$LF" run --new >/dev/null 2>&1
        same "resumed or adopted: the same bytes"
    done
else
    skip "" "the n-th change of a file: $no_fail"
fi

# --- times and files ---
cut() { # cut WHO STAGE: kill -9 of all, the stage, the wrapper or loong-flow ($p)
    d=$(stage_dir "$2")
    w=$(pid_in "$d/../epoch.$(basename "$d" | sed 's/.*\.//')") s=$(pid_in "$d/stage.json")
    case $1 in
    all) kill -9 "$p" "$w" "$s" ;;
    stage) kill -9 "$s" ;;
    wrapper) kill -9 "$w" ;;
    flow) kill -9 "$p" ;;
    TERM) kill -TERM "$s" ;;
    esac 2>/dev/null
    wait "$p" 2>/dev/null
}
start() { # start STAGE COMMAND...: in the background and slowly, until the stage's process is there
    _stage=$1
    shift
    LD_PRELOAD=$FAIL LF_FAIL_ROOT=$T LF_FAIL_PROGRAM=/lf- LF_FAIL_DELAY=1500 "$@" >o 2>&1 &
    p=$!
    BG="$BG $p"
    until_true 30 sh -c "d=\$($LF status --columns name,dir | awk -v s=$_stage '\$1 == s { print \$2 }'); [ -e \"\$d/stage.json\" ]"
}
# reached STEP: that checkpoint, or a later one, is being written or published, or the stage in $d is over
reached() {
    [ -e "$d/out/checkpoint" ] || ls "$d/out/checkpoints" |
        awk -F- -v n="$1" '$2 + 0 >= n { there = 1 } END { exit !there }'
}
k=0
for who in all stage wrapper flow; do
    k=$((k + 1))
    t=$(awk -v k=$k 'BEGIN { srand(k + 77); printf "%.3f", rand() * 0.06 }')
    start tokenize "$LF" run --new
    sleep "$t"
    cut $who tokenize
    [ $who = wrapper ] || start train "$LF" resume
    d=$(stage_dir train)
    case $k in
    1) until_true 5 reached 3 ;;
    2) until_true 5 test -s "$d/metrics" ;;
    3) until_true 5 reached 15 ;;
    4) until_true 5 test -e "$d/out/checkpoint" ;;
    esac
    cut $who train
    settled train
    same "kill -9 of $who $t s into tokenize, then in pretrain: the same bytes"
done

# --- SIGTERM ---
for program in lf-tokenize lf-pretrain; do
    stage=tokenize
    [ $program = lf-tokenize ] || stage=train
    if [ -n "$FAIL" ]; then
        faulty term "$program" 150 "$LF" run --new
        code=$?
    else
        start $stage "$LF" run --new
        until_true 5 test -s "$(stage_dir $stage)/metrics"
        cut TERM $stage
        code=$?
        if [ $code -eq 0 ]; then # nothing slows the stage down here
            skip "" "SIGTERM of $stage: it had ended before the signal came"
            continue
        fi
    fi
    is $code 75 "SIGTERM of $stage: loong-flow exits with 75"
    like "$(stage_dir $stage)/end.json" '"exit":75' "and so did the stage"
    same "resumed: the same bytes"
done
[ -n "$FAIL" ] || finish 10 # sanitizers keep out faults of single calls
finish_min 19

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A stage of several ranks under the wrapper: started by a launcher, stopped as one, found by host and pid, with the bytes of one.
. "$LF_SRCDIR/tests/flow/lib.sh"
LF=$LF_BUILDDIR/loong-flow
LF_LIBEXEC=$LF_BUILDDIR/stages
LF_MODELS_DIR=$LF_SRCDIR/models
OMP_NUM_THREADS=1
export LF_MODELS_DIR OMP_NUM_THREADS
"$LF" launch -n 2 -- true >/dev/null 2>err || { skip_all "ranks cannot be started here: $(tail -n 1 err)"; }
awk 'BEGIN { x = 7; for (i = 0; i < 3000; i++) { line = ""; m = 5 + i % 23
    for (j = 0; j < m; j++) { x = (x * 16807) % 2147483647; line = line (j ? " " : "") substr("etaoinshrdlu", 1 + x % 9, 2 + x % 3) }
    print line "." } }' >text.txt
cat >pipeline.ini <<'END_INI'
[pipeline]
name = ranks
[model]
preset = tiny-llama
[resources]
grace = 20
launcher = loong
[stage tokenize]
kind = tokenize
inputs = text.txt
doc_split = line
vocab_size = 512
valid_fraction = 0.05
shard_tokens = 12k
threads = 1
[stage train]
kind = pretrain
data = ${stage:tokenize.shards}
seq_length = 64
batch = 4
micro_batch = 1
steps = 30
lr = 2e-3
warmup = 3
valid_interval = 0
save_time = 0
threads = 1
END_INI
# The two ranks train: metrics are written, both have signed in.
training() { _d=$(stage_dir train) && [ "${_d##*/}" = "$1" ] && [ -s "$_d/metrics" ] && [ "$(ls "$_d"/ranks/*.json | wc -l)" -eq 2 ]; }
sums() { (cd "$(stage_dir tokenize)/out" && cksum shards/* tokenizer/*); }
runs 0 "$LF" run --only tokenize
sums >one
runs 0 "$LF" run --new --set tokenize.ranks=2
sums >two
cmp -s one two; ok $? "two ranks of the flow: the bytes of one"
is "$(ls "$(stage_dir tokenize)"/ranks/*.*.json | wc -l)" 2 "each rank has left its host and pid"
grep -h -o '"rank":"[01]"' "$(stage_dir tokenize)/ranks/"* | sort -u | tr '\n' ' ' >ranks
is "$(cat ranks)" '"rank":"0" "rank":"1" ' "and which rank it is"
is "$(ls "$(stage_dir train)"/ranks/*.json | wc -l)" 1 "a stage of one rank needs no launcher"
like "$(stage_dir ../tokenize 2>/dev/null)$(dirname "$(dirname "$(stage_dir tokenize)")")/tokenize/wrapper.1.log" '2 ranks by loong' "the wrapper says who starts them"

# Stopped as one, resumed as one.
"$LF" run --new --set train.ranks=2 --set train.steps=100k >o 2>&1 &
p=$!
BG="$BG $p"
until_true 60 training 1.1
kill -INT $p
wait $p
is "$? $(state train)" "75 pending" "a stop reaches every rank: a good checkpoint"
like "$(stage_dir train)/end.json" '"exit":75' "with the exit code of a stop"
# A rank that is killed takes the others along.
"$LF" resume --set train.ranks=2 --set train.steps=100k >o 2>&1 &
p=$!
BG="$BG $p"
until_true 60 training 2.2
d=$(stage_dir train)
for f in "$d"/ranks/*; do ! grep -q '"rank":"1"' "$f" || victim=$(pid_in "$f"); done
for f in "$d"/ranks/*; do ! grep -q '"rank":"0"' "$f" || other=$(pid_in "$f"); done
kill -9 "$victim"
wait $p
is "$? $(state train)" "1 failed" "a killed rank fails the stage"
like "$d/end.json" '"signal":9' "by the signal that ended it"
until_true 20 sh -c "! kill -0 $other"
ok $? "and no rank is left"

# Rank 1 is killed and rank 0, as a library may, aborts before the launcher has looked: it is stopped until both have ended.
cat >two.sh <<'END_SH'
[ "$PMIX_RANK" = 1 ] || { echo $$ >rank0; exec sleep 60; }
until [ -s rank0 ]; do sleep 0.1; done
kill -STOP $PPID
kill -ABRT "$(cat rank0)"
echo "$PPID $(cat rank0) $$" >ended
kill -9 $$
END_SH
ended() { [ -s ended ] && for _p in $(cut -d ' ' -f 2- ended); do grep -q '^State:.Z' "/proc/$_p/status" || return 1; done; }
"$LF" launch -n 2 -- sh two.sh >o 2>&1 &
p=$!
BG="$BG $p"
until_true 20 ended
ok $? "both ranks have ended"
kill -CONT "$(cut -d ' ' -f 1 ended)"
wait $p
is "$?" 137 "of two that ended together, the killed one is the cause" "$(cat o)"
finish 14

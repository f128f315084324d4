#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Stages on several ranks, started by loong-flow launch: data-parallel training gives the losses of one rank within the
# rounding of f32, its checkpoints go on with any other number of ranks, kills and stops lose nothing; tokenizing,
# evaluating and generating give the bytes of one rank.
. "$LF_SRCDIR/tests/stage/lib.sh"
tokenize=$LF_BUILDDIR/stages/lf-tokenize
with_ranks

need_ranks

"$tool" data "$dir/data" 400 40 || bail "no test data"
cat >"$dir/run.ini" <<END
[stage]
data = $dir/data
steps = 16
mfu = no
seq_length = 64
batch = 16
micro_batch = 2
lr = 5e-3
warmup = 4
save_interval = 4
keep = 9
save_time = 0
valid_interval = 8
log_interval = 8
seed = 5
[model]
family = llama3
layers = 2
hidden = 48
heads = 4
kv_heads = 2
ffn = 96
vocab = 64
max_positions = 64
END
# near A B: the same steps, samples, tokens and rates; losses, validation losses and gradient norms within 1e-5
near() {
    metrics "$1" >"$dir/a"
    metrics "$2" >"$dir/b"
    [ -s "$dir/a" ] && paste "$dir/a" "$dir/b" | awk '
        function far(x, y) { return x == "-" || y == "-" ? x != y : (x - y > 1e-5 * y || y - x > 1e-5 * y) }
        { h = NF / 2; if (h != int(h)) bad = 1
          for (i = 1; i <= h; i++) if (i <= 3 ? $i != $(i + h) : far($i, $(i + h))) { bad = 1; print "# " $0 > "/dev/stderr" } }
        END { exit bad || NR < 1 }'
}

# --- the same run on 1, 2 and 4 ranks ---
for ranks in 1 2 4; do
    on $ranks r$ranks
    is $rc 0 "$ranks ranks"
done
near r1 r2
ok $? "two ranks have the losses of one"
near r1 r4
ok $? "so have four"
is "$(metrics r1 | wc -l | tr -d ' ')" 16 "rank 0 alone writes the metrics: a record per step"
on 2 again
is "$(id again) $(metrics again | cksum)" "$(id r2) $(metrics r2 | cksum)" "two ranks twice: the same bits"
"$tool" state "$dir/r4/out/checkpoint" | grep -q '"ranks":4'
ok $? "the checkpoint says how many there were"
on 3 r3 --steps 4 --save-interval 0
is $rc 0 "eight micro-batches over three ranks"
metrics r1 | awk 'NR <= 3 { print $4 }' >"$dir/one"
metrics r3 | awk 'NR <= 3 { print $4 }' | paste "$dir/one" - | awk '{ if ($1 - $2 > 1e-5 * $1 || $2 - $1 > 1e-5 * $1) bad = 1 } END { exit bad || NR != 3 }'
ok $? "have the losses of one rank too"
on 4 many --micro-batch 8
is $rc 1 "more ranks than micro-batches are refused"
says "work for 2 ranks, there are 4" "in these words"

# --- the plan ---
"$pretrain" --config "$dir/run.ini" --plan --ranks 4 >"$dir/stdout" 2>"$dir/err"
sent=$(sed -n 's/.*"bytes_per_step":\([0-9]*\).*/\1/p' "$dir/stdout")
params=$(sed -n 's/.*"parameters":\([0-9]*\).*/\1/p' "$dir/stdout")
[ "${sent:-0}" -ge $((params * 6)) ] && [ "$sent" -lt $((params * 6 + 20000)) ] && grep -q '"ranks":4' "$dir/stdout"
ok $? "--plan --ranks: three quarters of the gradients, there and back: $sent bytes for $params parameters"

# --- resume on another number ---
# go FROM TO: stop on FROM ranks after step 8 (its checkpoint is all that is left), go on with TO.
go() {
    _name=go$1$2
    mkdir -p "$dir/$_name/out/checkpoints"
    cp -r "$dir/r$1/out/checkpoints/step-00000008" "$dir/$_name/out/checkpoints/"
    cp "$dir/r$1/metrics" "$dir/$_name/metrics"
    on "$2" "$_name"
    is $rc 0 "a checkpoint of $1 ranks goes on with $2"
    says "ranks was $1, is $2" "and it is said that the bits may differ"
    near "$_name" r1
    ok $? "with the losses of the run that was not stopped"
}
go 4 1
go 1 4
go 2 4

# --- kill -9 of a rank, and a stop that reaches one rank ---
long="--schedule constant --save-interval 10 --valid-interval 0 --keep 400"
pids() { ps -eo pid,args | awk -v d="$dir/$1/out" '/lf-[a-z]* / && index($0, d) && !/awk/ && !/launch/ { print $1 }'; }
# begin NAME: a long run of two ranks in the background, with two checkpoints when this returns; its launcher is $pid
begin() {
    mkdir -p "$dir/$1"
    $launch 2 -- "$pretrain" --config "$dir/run.ini" --out "$dir/$1/out" --metrics "$dir/$1/metrics" --steps 4000000 $long >"$dir/stdout" 2>"$dir/err" &
    pid=$!
    tries=0
    while [ ! -e "$dir/$1/out/checkpoints/step-00000020/manifest.json" ] && kill -0 $pid 2>/dev/null && [ $tries -lt 9000 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
}
# proceed NAME: three steps more, and the same without an interruption
proceed() {
    steps=$(ls "$dir/$1/out/checkpoints" | sed -n 's/step-0*//p' | sort -n | tail -n 1)
    steps=$((steps + 13))
    on 2 "$1" $long --steps $steps
    is $rc 0 "the run goes on"
    on 2 "$1-whole" $long --steps $steps
    is "$(id "$1")" "$(id "$1-whole")" "to the checkpoint of a run that was not interrupted"
    is "$(metrics "$1" | cksum)" "$(metrics "$1-whole" | cksum)" "with its metrics"
}
begin kill
kill -9 "$(pids kill | tail -n 1)"
wait $pid
[ $? -ne 0 ]
ok $? "a rank that is killed ends the job with a failure"
tries=0
while [ -n "$(pids kill)" ] && [ $tries -lt 3000 ]; do
    sleep 0.1
    tries=$((tries + 1))
done
is "$(pids kill)" "" "and nothing is left of it"
proceed kill
begin stop
kill -TERM "$(pids stop | tail -n 1)"
wait $pid
is $? 75 "SIGTERM to one rank stops all at a checkpoint: 75"
proceed stop

# --- a step that must not be taken ---
"$tool" poison "$dir/r1/out/checkpoint" "$dir/poisoned"
on 2 nan --init-from "$dir/poisoned"
is $rc 1 "a weight that is no number stops all ranks"
says "diverged at step 1: the loss is not finite" "and it is said why"
is "$("$tool" state "$dir/nan/out/diverged" | grep -o '"documents"' | wc -l | tr -d ' ')" 8 "the micro-batches of all ranks are kept"

# --- ranks that do not belong together ---
cat >"$dir/odd" <<END
#!/bin/sh
for v in \$PMIX_RANK; do [ "\$v" = 0 ] || set -- "\$@" --lr 4e-3; done
exec "$pretrain" "\$@"
END
chmod +x "$dir/odd"
$launch 2 -- "$dir/odd" --config "$dir/run.ini" --out "$dir/odd-out" >"$dir/stdout" 2>"$dir/err"
is $? 1 "ranks with different settings are refused"
says_like "rank 1 .* does not run the same as rank 0 .*schedule" "and it is said what differs"

# --- tokenizing ---
awk 'BEGIN { x = 7; for (i = 0; i < 9000; i++) { line = ""; m = 5 + i % 23;
    for (j = 0; j < m; j++) { x = (x * 16807) % 2147483647; w = ""; k = 2 + x % 5; y = x;
        for (q = 0; q < k; q++) { y = (y * 16807) % 2147483647; w = w substr("etaoinshrdlucmfw", 1 + y % 16, 1) }
        line = line (j ? " " : "") (x % 97 == 0 ? "naïve—" : "") w }
    print line "." } }' >"$dir/text.txt"
for i in 1 2 3 4 5; do cat "$dir/text.txt"; done >"$dir/big.txt"
topts="--doc-split=line --vocab-size=600 --valid-fraction=0.05 --shard-tokens=60k"
tok() { # tok RANKS NAME ARGS...
    _ranks=$1 _name=$2
    shift 2
    $launch "$_ranks" -- "$tokenize" $topts --out "$dir/$_name" "$@" >"$dir/stdout" 2>"$dir/err"
    rc=$?
}
"$tokenize" $topts --out "$dir/tok1" "$dir/big.txt" 2>"$dir/err"
is $? 0 "a run without a launcher"
for ranks in 2 4; do
    tok $ranks tok$ranks "$dir/big.txt"
    [ $rc -eq 0 ] && diff -r "$dir/tok1/shards" "$dir/tok$ranks/shards" >/dev/null &&
        diff -r "$dir/tok1/tokenizer" "$dir/tok$ranks/tokenizer" >/dev/null
    ok $? "$ranks ranks make the same tokenizer and the same shards, bit for bit"
done
tok 2 tok2 "$dir/big.txt"
[ $rc -eq 0 ] && grep -q "nothing to do" "$dir/err"
ok $? "a finished run is left alone"
mkdir -p "$dir/tokkill"
$launch 3 -- "$tokenize" $topts --out "$dir/tokkill/out" "$dir/big.txt" >"$dir/stdout" 2>"$dir/err" &
pid=$!
tries=0
while [ ! -e "$dir/tokkill/out/progress/00001.json" ] && kill -0 $pid 2>/dev/null && [ $tries -lt 60000 ]; do
    tries=$((tries + 1))
    sleep 0.01
done
kill -9 "$(pids tokkill | tail -n 1)" 2>/dev/null
wait $pid
tok 2 tokkill/out "$dir/big.txt"
[ $rc -eq 0 ] && diff -r "$dir/tok1/shards" "$dir/tokkill/out/shards" >/dev/null
ok $? "killed on three ranks and taken up on two: the same shards"
{ head -n 20000 "$dir/big.txt" | sed 's/.*/{"text":"&"}/'; echo '{"txt":1}'; tail -n 20000 "$dir/big.txt" | sed 's/.*/{"text":"&"}/'; } >"$dir/bad.jsonl"
tok 2 tokbad "$dir/bad.jsonl" --tokenizer "$dir/tok1/tokenizer" --vocab-size 600
is $rc 2 "options that contradict each other are a usage error on every rank"
topts="--valid-fraction=0.05 --shard-tokens=60k --tokenizer $dir/tok1/tokenizer"
tok 2 tokbad "$dir/bad.jsonl"
is $rc 1 "a bad line ends the job, whichever rank had it"
says "bad.jsonl:20001" "and is named"
head -n 6000 "$dir/big.txt" | awk 'NR % 3 { print "{\"prompt\":\"" $1 " " $2 "\",\"completion\":\" " $0 "\"}"; next } { print "{\"text\":\"" $0 "\"}" }' >"$dir/pairs.jsonl"
"$tokenize" $topts --shape auto --out "$dir/pair1" "$dir/pairs.jsonl" 2>"$dir/err"
tok 3 pair3 --shape auto "$dir/pairs.jsonl"
[ $rc -eq 0 ] && diff -r "$dir/pair1/shards" "$dir/pair3/shards" >/dev/null
ok $? "prompts and completions: the same loss masks from three ranks"
tok 2 tokstd - </dev/null
is $rc 1 "standard input is for one rank"

# --- evaluation ---
evaluate() { # evaluate RANKS NAME
    $launch "$1" -- "$LF_BUILDDIR/stages/lf-eval" --checkpoint "$dir/r1/out/checkpoint" --data "$dir/data" --split valid --block 3 \
        --out "$dir/$2" --threads 1 >"$dir/stdout" 2>"$dir/err"
}
for ranks in 1 2 4; do
    evaluate $ranks eval$ranks
    is $? 0 "evaluation on $ranks ranks"
    diff -r "$dir/eval1/results" "$dir/eval$ranks/results" >/dev/null
    ok $? "gives the results of one"
done

# --- generation ---
awk 'BEGIN { for (i = 1; i <= 41; i++) printf "{\"id\":\"p%d\",\"prompt\":[%d,%d,%d],\"n\":%d}\n", i, i, 1 + i % 7, 2 + i % 11, 1 + i % 2 }' >"$dir/prompts.jsonl"
generate() { # generate RANKS NAME ARGS...
    _ranks=$1 _name=$2
    shift 2
    $launch "$_ranks" -- "$LF_BUILDDIR/stages/lf-generate" --checkpoint "$dir/r1/out/checkpoint" --prompts "$dir/prompts.jsonl" \
        --max-tokens 12 --out "$dir/$_name" --threads 1 "$@" >"$dir/stdout" 2>"$dir/err"
}
for ranks in 1 2 3; do
    generate $ranks gen$ranks
    is $? 0 "generation on $ranks ranks"
    is "$(cksum <"$dir/gen$ranks/text/out.jsonl")" "$(cksum <"$dir/gen1/text/out.jsonl")" "gives the results of one, in their order"
done
is "$(wc -l <"$dir/gen1/text/out.jsonl" | tr -d " ")" 62 "all of them"
mkdir -p "$dir/gencut/text"
head -n 20 "$dir/gen1/text/out.jsonl" >"$dir/gencut/text/out.jsonl.part"
generate 2 gencut
grep -q "continuing behind 20 of 62" "$dir/err" && cmp -s "$dir/gen1/text/out.jsonl" "$dir/gencut/text/out.jsonl"
ok $? "and goes on behind what one rank left"

finish 60

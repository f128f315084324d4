#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copies of the metrics for other programs: event files of TensorBoard and JSON lines of a run, of one that goes on, and of
# one that cannot write them. The share of the peak that the metrics tell.
# No bit of the training changes. The bytes of events: tests/unit/base_tfevents.
. "$LF_SRCDIR/tests/stage/lib.sh"
pretrain=$stages/lf-pretrain
sft=$stages/lf-sft
unset LF_RUN LF_STAGE

run() { train "$pretrain" "$dir/run.ini" "$@"; } # run NAME ARGS...
events() { find "$1" -name 'events.out.tfevents.*' | sort; }
count() { grep -ao "$1" "$2" | wc -l; } # count TEXT FILE
warned() { grep -c 'goes on without' "$dir/err"; }
# go_back NAME STEP: as if the run had been killed behind that step
go_back() {
    rm -r "$dir/$1/out/checkpoint"
    for d in "$dir/$1/out/checkpoints"/step-*; do
        [ "${d##*step-}" -le "$2" ] || rm -r "$d"
    done
}

"$tool" data "$dir/data" 100 20 || bail "no test data"
cat >"$dir/run.ini" <<END
[stage]
data = $dir/data
steps = 8
seq_length = 64
batch = 4
micro_batch = 4
lr = 5e-3
save_interval = 2
keep = 9
save_time = 0
valid_interval = 4
threads = 1
[model]
family = llama3
layers = 1
hidden = 32
heads = 4
kv_heads = 2
ffn = 64
vocab = 64
max_positions = 64
END

run plain
is $rc 0 "a run without copies"
same=$(id plain)
run both --tensorboard "$dir/tb" --metrics-jsonl "$dir/both.jsonl"
is "$rc $(id both)" "0 $same" "a run with them makes the same checkpoint"
is "$(metrics both)" "$(metrics plain)" "and the same metrics"
is "$(warned)" 0 "without a warning"
is "$(grep -c '^{"step":[0-9]*,"samples".*}$' "$dir/both.jsonl") $(wc -l <"$dir/both.jsonl")" "8 8" "a JSON line a step"
first=$(events "$dir/tb")
is "$(printf '%s\n' "$first" | wc -l)" 1 "one event file"
is "$(count brain.Event:2 "$first") $(count train/loss "$first") $(count valid/loss "$first")" "1 8 2" \
    "which has the version, the losses and those of two validations"

# The share of the peak: one peak for all steps, whatever they took.
ratios() { sed -n 's/.*"model_flops_causal":\([^,]*\),.*"mfu":\([^,]*\),.*/\1 \2/p' "$1" | awk '$2 > 0 { printf "%.6g\n", $1 / $2 }' | sort -u; }
case $(uname -m) in
x86_64 | aarch64) want=1 ;;
*) want=0 ;; # no peak is measured elsewhere
esac
is "$(ratios "$dir/both.jsonl" | wc -l) $(grep -c 'peak flop/s' "$dir/err")" "$want $want" "the flops of every step by its mfu are one number"
if [ $want = 1 ]; then
    echo "$(sed -n 's/.*peak flop.s \([0-9.]*\)G in f32.*/\1/p' "$dir/err") $(ratios "$dir/both.jsonl")" | awk '{ d = $1 - $2 / 1e9; exit !(d < 0.06 && d > -0.06) }'
    ok $? "which the log tells"
else
    skip "which the log tells" "no peak is measured on this processor"
fi
run none --no-mfu --metrics-jsonl "$dir/none.jsonl"
is "$rc $(id none) $(grep -c '"mfu"' "$dir/none.jsonl") $(grep -c 'mfu\|peak flop' "$dir/err")" "0 $same 0 0" "mfu = no measures nothing"

# A start that goes on.
go_back both 0006
printf '{"step":' >>"$dir/both.jsonl"
run both --tensorboard "$dir/tb" --metrics-jsonl "$dir/both.jsonl"
is "$rc $(id both)" "0 $same" "resumed, the same checkpoint"
is "$(tail -n 3 "$dir/both.jsonl" | cut -c 1-26 | tr '\n' ' ')" \
    '{"step":6,"resumed":true} {"step":7,"samples":28,"to {"step":8,"samples":32,"to ' \
    "the JSON lines say where it goes on, on a line of its own"
is "$(events "$dir/tb" | head -n 1)" "$first" "the second event file comes behind the first"
second=$(events "$dir/tb" | sed -n 2p)
is "$(count train/loss "$second")" 2 "it has what is new"
# step 7 (10 07), session_log (3a) of two bytes, status START (08 01)
grep -aqP '\x10\x07\x3a\x02\x08\x01' "$second"
ok $? "and begins with a start at step 7"
grep -aqP '\x10\x01\x3a\x02\x08\x01' "$first"
ok $? "as the first one began with a start at step 1"

# In a run of loong-flow.
LF_RUN=01RUN LF_STAGE=train run flow --tensorboard "$dir/tb2" --steps 1 --save-interval 0
is "$rc $(events "$dir/tb2/01RUN/train" | wc -l)" "0 1" "a run of loong-flow writes below RUN/STAGE"

# What cannot be written.
: >"$dir/file"
run refused --tensorboard "$dir/file" --metrics-jsonl "$dir/nowhere/x.jsonl"
is "$rc $(id refused)" "0 $same" "copies that cannot be opened change nothing"
is "$(warned)" 2 "and are a warning each"
says "tensorboard: cannot make directory $dir/file" "that names the directory"
says "metrics_jsonl: cannot open $dir/nowhere/x.jsonl for writing" "and the file"
if [ -c /dev/full ]; then
    run full --metrics-jsonl /dev/full
    is "$rc $(id full) $(warned)" "0 $same 1" "a full disk is one warning for all steps"
else
    skip "a full disk is one warning for all steps" "no /dev/full"
fi
mkfifo "$dir/pipe"
run fifo --metrics-jsonl "$dir/pipe" --steps 300 --valid-interval 0 --save-interval 0 --log-interval 300
is "$rc $(warned)" "0 1" "a pipe that nobody reads is one when it is full, and holds nothing up"
rm -rf "$dir/tb3" && mkdir "$dir/tb3"
if [ "$(command id -u)" != 0 ] && chmod 500 "$dir/tb3"; then
    run closed --tensorboard "$dir/tb3"
    is "$rc $(id closed) $(warned)" "0 $same 1" "neither does a directory without the right to write"
else
    skip "neither does a directory without the right to write" "root may write everywhere"
fi

# Samples are texts.
grep -v '^valid_interval\|^save' "$dir/run.ini" | sed '/\[model\]/,$d' >"$dir/sft.ini"
train "$sft" "$dir/sft.ini" sampled --init-from "$dir/plain/out/checkpoint" --steps 2 --sample-interval 1 --sample-rows 2 \
    --sample-tokens 3 --tensorboard "$dir/tb4"
is $rc 0 "a stage that generates samples"
is "$(count samples/valid- "$(events "$dir/tb4")")" 4 "shows them in each visit"
train "$sft" "$dir/sft.ini" frozen --init-from "$dir/plain/out/checkpoint" --freeze 'embed*' --steps 2 --metrics-jsonl "$dir/frozen.jsonl"
# The FLOPs of a token, from those of a second and the tokens of one.
per_token() { sed -n '1s/.*"tokens_per_s":\([^,]*\),"model_flops_causal":\([^,]*\),.*/\1 \2/p' "$1" | awk '{ printf "%.0f", $2 / $1 }'; }
train "$sft" "$dir/sft.ini" all --init-from "$dir/plain/out/checkpoint" --steps 1 --metrics-jsonl "$dir/all.jsonl"
train "$sft" "$dir/sft.ini" thin --init-from "$dir/plain/out/checkpoint" --lora-rank 1 --steps 1 --metrics-jsonl "$dir/thin.jsonl"
awk -v a="$(per_token "$dir/all.jsonl")" -v f="$(per_token "$dir/frozen.jsonl")" -v l="$(per_token "$dir/thin.jsonl")" 'BEGIN { exit !(a > 0 && f == a && l > 0.6 * a && l < 0.85 * a) }'
ok $? "an adapter takes fewer FLOPs than all weights: $(per_token "$dir/all.jsonl") a token, $(per_token "$dir/thin.jsonl")"
is "$rc $(grep -c '"mfu"' "$dir/thin.jsonl") $(grep -c '"mfu"' "$dir/frozen.jsonl")" "0 $want $((2 * want))" "and the share of the peak is told with it, as with frozen weights"

finish 28

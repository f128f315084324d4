#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# keep_best and patience in every training stage: what is best and when a run ends follow from the recorded numbers, also
# after kills -9; the metrics that can be chosen; what is refused. Several sets and adapters in lf-sft: sft.sh.
. "$LF_SRCDIR/tests/stage/lib.sh"

# The step of the best value of METRIC in the records of run $1, and the last step: best NAME METRIC lower|higher
records() { grep -ao '{"step":[^}]*}' "$dir/$1/metrics"; }
expected() {
    records "$1" | sed -n 's/{"step":\([0-9]*\),.*"'"$2"'":\([-0-9.e+]*\)[,}].*/\1 \2/p' |
        awk -v h="$3" '{ v = h == "higher" ? -$2 : $2 } NR == 1 || v < b { b = v; s = $1 } END { printf "%d\n", s }'
}
kept() { "$tool" id "$dir/$1/out/best" | awk '{ print $1 }'; }
last() { records "$1" | tail -n 1 | sed 's/{"step":\([0-9]*\),.*/\1/'; }
run() { train "$stages/lf-$stage" "$dir/$stage.ini" "$@"; } # run NAME ARGS...: of stage $stage
killed() { # killed NAME REFERENCE ARGS...
    _k=$1 _ref=$2
    shift 2
    mkdir -p "$dir/$_k"
    killed_often 4 "$dir/$_k/metrics" "$(bytes "$dir/$_ref/metrics")" \
        "$stages/lf-$stage" --config "$dir/$stage.ini" --out "$dir/$_k/out" --metrics "$dir/$_k/metrics" "$@"
    run "$_k" "$@"
    is "$rc $often $(id "$_k") $(id "$_k" best)" "0 1 $(id "$_ref") $(id "$_ref" best)" "lf-$stage: killed $kills times, the same end and the same best"
    is "$(metrics "$_k")" "$(metrics "$_ref")" "and the same records"
}

"$tool" data "$dir/few" 5 0 && "$tool" data "$dir/data" 100 20 && "$tool" pairs "$dir/pairs" 40 16 && "$tool" labels "$dir/labels" 40 16 ||
    bail "no test data"

# ---- lf-pretrain: few documents by heart, others to be measured by
stage=pretrain
cat >"$dir/pretrain.ini" <<END
[stage]
data = $dir/few
valid_data = $dir/data
steps = 60
mfu = no
seq_length = 64
batch = 8
micro_batch = 8
lr = 3e-2
save_interval = 5
save_time = 0
valid_interval = 2
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
run plain --steps 12
run kept --steps 12 --keep-best
is "$rc $(id kept) $(metrics kept)" "0 $(id plain) $(metrics plain)" "keep_best: the same weights and metrics"
[ ! -e "$dir/plain/out/best" ] && [ -d "$dir/kept/out/best" ]
ok $? "and the best beside them"
run kept --steps 12 --keep-best
is "$rc $(grep -c 'in place: nothing to do' "$dir/err")" "0 1" "again: nothing to do"
run plain --steps 12 --keep-best
is $rc 1 "asked of a run that is complete and has none, it is an error"
says "plain/out/checkpoint is in place, made without keep_best: there is no " "which says so"
is "$(kept kept)" "$(expected kept valid_loss lower)" "which is that of the lowest loss that is recorded"
best="--keep-best --patience 3"
run best $best
is "$rc $(kept best)" "0 $(expected best valid_loss lower)" "with patience too: step $(kept best)"
is "$(last best)" "$(($(kept best) + 6))" "the run ends three validations later, of 60 steps"
impatient() { tr -d ' \n' <"$dir/$1/out/checkpoint/manifest.json" | sed -n 's/.*"out_of_patience":{\([^}]*\)}.*/\1/p'; }
is "$(impatient best | tr -d '"' | tr ',' '\n' | sort | tr '\n' ' ')" \
    "at:$(last best) best_step:$(kept best) measurements:validations metric:valid_loss of:60 stale:3 unit:steps " \
    "which the manifest says"
is "$(impatient kept)" "" "and that of a run that came to its length does not"
run best $best
is $rc 0 "the same run again has nothing to do"
killed bestkill best $best
run right $best --best-metric accuracy
is "$rc $(kept right)" "0 $(expected right valid_accuracy higher)" "by accuracy: step $(kept right)"
run no --valid-data "$dir/few" --keep-best
is $rc 1 "without a valid split nothing can be best"
says "few has no valid split" "which is said"
sed '/^valid_data/d' "$dir/pretrain.ini" >"$dir/none.ini"
train "$stages/lf-pretrain" "$dir/none.ini" no --patience 2
is $rc 1 "patience neither"
says "patience compares validations, and no data has a valid split" "which is said"
run no --patience 2 --valid-interval 0
is $rc 2 "patience without an interval is a usage error"

# ---- lf-dpo and lf-rm
sed '/^keep/d' "$dir/pretrain.ini" >"$dir/base.ini"
train "$stages/lf-pretrain" "$dir/base.ini" lm --data "$dir/data" --steps 4 || bail "no base"
stage=dpo
cat >"$dir/dpo.ini" <<END
[stage]
data = $dir/pairs
init_from = $dir/lm/out/checkpoint
steps = 30
mfu = no
seq_length = 64
batch = 8
micro_batch = 8
lr = 2e-2
save_interval = 3
save_time = 0
valid_interval = 2
threads = 1
END
sed 's/^lr.*/lr = 1e-2/' "$dir/dpo.ini" >"$dir/rm.ini"
for stage in dpo rm; do
    run "$stage" $best
    is "$rc $(kept $stage)" "0 $(expected $stage valid_loss lower)" "lf-$stage keeps the best: step $(kept $stage)"
    killed "${stage}kill" $stage $best
    run "${stage}m" --steps 8 --keep-best --best-metric margin
    is "$rc $(kept ${stage}m)" "0 $(expected ${stage}m valid_margin higher)" "by the margin: step $(kept ${stage}m)"
done
run rmplain --steps 8
is "$(id rmplain) $(metrics rmplain)" "$(id rmm) $(metrics rmm)" "keep_best changes no bit of a reward model"
is "$(grep -c '"score": *{' "$dir/rmm/out/best/state.json") $(grep -c '"score": *{' "$dir/rmm/out/checkpoints/step-00000006/state.json")" "1 0" \
    "whose best has the normalisation of its scores, and no other checkpoint but the last"
run rmlora --steps 8 --keep-best --lora-rank 4
is "$rc $("$tool" id "$dir/rmlora/out/best" | awk '{ print $1 }')" "0 $(expected rmlora valid_loss lower)" "the best of an adapter with its head"
stage=dpo
run kto --data "$dir/labels" --loss kto --keep-best --best-metric accuracy
is $rc 2 "kto has no accuracy"
says "best_metric = accuracy: this loss has no accuracy" "and says so"


# ---- lf-ppo: a round is measured by its own completions, which the weights before it made
awk 'BEGIN { for (i = 0; i < 60; i++) printf "the %s cat sat on mat %d.\n\n", i % 3 ? "old" : "new", i % 17 }' >"$dir/text.txt"
awk 'BEGIN { for (a = 0; a < 12; a++) printf "{\"prompt\":\"the %s cat %d\"}\n", a % 2 ? "old" : "new", a }' >"$dir/prompts.jsonl"
must "$stages/lf-tokenize" --inputs "$dir/text.txt" --doc-split blank --vocab-size 270 --out "$dir/tok"
must "$stages/lf-tokenize" --shape prompt --tokenizer "$dir/tok/tokenizer" --out "$dir/prompts" "$dir/prompts.jsonl"
sed 's/^vocab.*/vocab = 270/; /^valid/d' "$dir/base.ini" >"$dir/ppobase.ini"
train "$stages/lf-pretrain" "$dir/ppobase.ini" policy --data "$dir/tok/shards" --steps 2 || bail "no policy"
cat >"$dir/ppo.ini" <<END
[stage]
data = $dir/prompts/shards
tokenizer = $dir/tok/tokenizer
init_from = $dir/policy/out/checkpoint
threads = 1
max_prompt = 24
max_tokens = 8
round_prompts = 4
samples = 2
rounds = 8
lr = 1e-3
minibatch = 4
round_epochs = 2
save_interval = 1
micro_tokens = 48
reward = format:(?s).*[a-f].*
seed = 3
END
stage=ppo
numbers() { records "$1" | sed 's/,"gen_s".*//; s/,"train_s".*//'; }
# The step before the first record of the round with the highest score, of those that are recorded.
round_of() { records "$1" | sed -n 's/{"step":\([0-9]*\),"round":\([0-9]*\).*"'"$2"'":\([-0-9.e+]*\)[,}].*/\1 \2 \3/p' |
    awk '!($2 in seen) { seen[$2] = 1; if (!n++ || $3 > b) { b = $3; s = $1 - 1 } } END { printf "%d\n", s }'; }
run ppoplain
run ppobest --keep-best
is "$rc $(id ppobest) $(numbers ppobest)" "0 $(id ppoplain) $(numbers ppoplain)" "lf-ppo with keep_best: the same weights and metrics"
is "$(kept ppobest)" "$(round_of ppobest score)" "the best are the weights that made the best round: step $(kept ppobest)"
[ "$(kept ppobest)" -gt 0 ] && [ "$(id ppobest best)" = "$("$tool" id "$dir/ppobest/out/best")" ]
ok $? "which are whole"
run ppo --patience 2 --keep-best
rounds=$(records ppo | tail -n 1 | sed 's/.*"round":\([0-9]*\).*/\1/')
[ $rc -eq 0 ] && [ "$rounds" -lt 8 ] && [ "$(records ppo | sed 's/.*"round":\([0-9]*\).*/\1/' | uniq -c | awk '{ print $1 }' | sort -u)" = 4 ]
ok $? "patience ends it behind a whole round, $rounds of 8"
impatient ppo | grep -q '"metric":"score"' && impatient ppo | grep -q "\"at\":$rounds,"
ok $? "as its manifest says"
run ppo --patience 2 --keep-best
is $rc 0 "the same run again has nothing to do"
_k=ppokill
mkdir -p "$dir/$_k"
killed_often 5 "$dir/$_k/metrics" "$(bytes "$dir/ppo/metrics")" "$stages/lf-ppo" --config "$dir/ppo.ini" --out "$dir/$_k/out" --metrics "$dir/$_k/metrics" --patience 2 --keep-best
run $_k --patience 2 --keep-best
is "$rc $often $(id $_k) $(id $_k best) $(numbers $_k)" "0 1 $(id ppo) $(id ppo best) $(numbers ppo)" "killed $kills times, the same end, best and records"
run ppolora --rounds 3 --keep-best --lora-rank 4
[ $rc -eq 0 ] && "$tool" id "$dir/ppolora/out/best" >"$dir/stdout" 2>"$dir/err"
ok $? "the best of an adapter"

finish 40

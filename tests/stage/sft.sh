#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# lf-sft as a user or the flow runs it: options and exit codes, full and adapter runs, frozen parts, exact resume after
# kill -9 of both, an adapter that is offered to other weights, samples while it trains.
. "$LF_SRCDIR/tests/stage/lib.sh"
sft=$LF_BUILDDIR/stages/lf-sft
pretrain=$LF_BUILDDIR/stages/lf-pretrain

run() { train "$sft" "$dir/sft.ini" "$@"; } # run NAME ARGS...
column() { metrics "$1" | awk -v c="$2" -v s="$3" '$1 == s { print $c }'; }
falls() { [ "$(awk -v a="$(column "$1" 4 1)" -v b="$(column "$1" 4 "$2")" 'BEGIN { print (a != "" && b != "" && b < a - 0.02) }')" = 1 ]; }

"$tool" data "$dir/data" 200 20 && "$tool" data "$dir/few" 5 0 || bail "no test data"
cat >"$dir/base.ini" <<END
[stage]
data = $dir/data
steps = 30
seq_length = 64
batch = 8
micro_batch = 8
lr = 1e-2
threads = 1
valid_interval = 0
[model]
family = llama3
layers = 2
hidden = 32
heads = 4
kv_heads = 2
ffn = 64
vocab = 64
max_positions = 64
END
for b in base other; do
    "$pretrain" --config "$dir/base.ini" --out "$dir/$b" --seed "$([ $b = base ] && echo 1 || echo 2)" 2>"$dir/err" ||
        bail "no base"
done
# Few documents, again and again: a model that learnt what all have in common can learn these by heart.
cat >"$dir/sft.ini" <<END
[stage]
data = $dir/few
valid_data = $dir/data
init_from = $dir/base/checkpoint
steps = 24
seq_length = 64
batch = 8
micro_batch = 4
lr = 5e-3
save_interval = 3
save_time = 0
valid_interval = 12
threads = 1
END

# options and exit codes
"$sft" --data "$dir/data" --out "$dir/x" 2>"$dir/err"
is $? 2 "init_from is required"
run usage --lora-rank 4 --lora-targets wq
is $rc 1 "a target that matches nothing is a failure"
says "wq matches no linear layer" "that names it"
run usage --freeze 'layer.*'
is $rc 1 "a pattern that freezes nothing is a failure"
says "freeze = layer" "that names it"
run usage --freeze '*'
is $rc 1 "so is a run in which nothing is trained"
run plan --plan
full=$(sed 's/.*"optimizer":\([0-9.e+]*\).*/\1/' "$dir/stdout")
grep -q '"trained":\([0-9]*\).*' "$dir/stdout"
ok $? "--plan tells what is trained"
run plan --plan --lora-rank 2
thin=$(sed 's/.*"optimizer":\([0-9.e+]*\).*/\1/' "$dir/stdout")
[ "$(awk -v f="$full" -v l="$thin" 'BEGIN { print (l > 0 && l < f / 2) }')" = 1 ]
ok $? "and that an adapter saves moments ($thin of $full bytes)"

# full
run full
is $rc 0 "a full run"
falls full 24
ok $? "its loss falls: $(column full 4 1) to $(column full 4 24)"
run full --freeze 'layers.*'
[ $rc -eq 1 ] && grep -q "made with other options (freeze was not given, is layers" "$dir/err"
ok $? "other options in a finished out are refused by name"
run frozen --freeze 'layers.*' --freeze 'final_norm.*'
is $rc 0 "a run with frozen layers"
falls frozen 24
ok $? "learns with the rest"
"$tool" state "$dir/frozen/out/checkpoint" >"$dir/stdout" 2>/dev/null
[ "$(id frozen)" != "$(id full)" ]
ok $? "to other weights"

# adapters
lora="--lora-rank 8 --lora-targets q --lora-targets v --lora-targets gate_up --lora-targets down --lora-dropout 0.1 --lr 3e-2"
run lora $lora
is $rc 0 "an adapter"
falls lora 24
ok $? "its loss falls: $(column lora 4 1) to $(column lora 4 24)"
[ -d "$dir/lora/out/adapter" ] && [ "$(id lora)" != "$(id full)" ]
ok $? "leaves the adapter and the merged model"
big=$(du -sk "$dir/full/out/checkpoints" | cut -f1)
small=$(du -sk "$dir/lora/out/checkpoints" | cut -f1)
[ "$small" -lt "$big" ]
ok $? "its checkpoints are smaller ($small KiB of $big)"
run merged --steps 1 --init-from "$dir/lora/out/checkpoint"
is $rc 0 "the merged model trains on"
run lora $lora
is $rc 0 "the same run again has nothing to do"

# kill -9, always into the same directory
killed() { # killed NAME REFERENCE ARGS...
    _k=$1 _ref=$2
    shift 2
    mkdir -p "$dir/$_k"
    killed_often 5 "$dir/$_k/metrics" "$(bytes "$dir/$_ref/metrics")" \
        "$sft" --config "$dir/sft.ini" --out "$dir/$_k/out" --metrics "$dir/$_k/metrics" "$@"
    run "$_k" "$@"
    is "$rc $often" "0 1" "$_k: killed $kills times, then run to the end"
    is "$(id "$_k")" "$(id "$_ref")" "$_k: the same bits"
    is "$(metrics "$_k")" "$(metrics "$_ref")" "$_k: the same metrics"
}
killed fullkill full
killed lorakill lora $lora
dora="--lora-rank 8 --lora-targets q --lora-targets v --lora-targets gate_up --lora-targets down --lora-dora --lr 3e-2"
run dora $dora
is $rc 0 "DoRA"
falls dora 24
ok $? "its loss falls: $(column dora 4 1) to $(column dora 4 24)"
is "$(column dora 4 1)" "$(column full 4 1)" "from the base, bit for bit"
[ "$(id dora)" != "$(id lora)" ]
ok $? "and ends elsewhere"
killed dorakill dora $dora
is "$(id dorakill adapter)" "$(id dora adapter)" "and the same adapter"
is "$(id lorakill adapter)" "$(id lora adapter)" "and the same adapter"

# going on with an adapter, ours and PEFT's
run plain --lora-rank 4 --numeric invariant
go="--adapter $dir/plain/out/adapter --numeric invariant --lr 1e-3"
run cont $go
is $rc 0 "a run that goes on with an adapter"
says "going on with the adapter" "says so"
run merged2 --init-from "$dir/plain/out/checkpoint" --numeric invariant --lora-rank 4 --lr 1e-3
[ "$(awk -v a="$(column cont 4 1)" -v b="$(column merged2 4 1)" 'BEGIN { d = a / b - 1; print (a != "" && d < 1e-5 && d > -1e-5) }')" = 1 ]
ok $? "it begins where that ended: $(column cont 4 1), merged $(column merged2 4 1)"
killed contkill cont $go
is "$(id contkill adapter)" "$(id cont adapter)" "and the same adapter"
"$LF_BUILDDIR/stages/lf-convert" --from "$dir/plain/out/adapter" --out "$dir/plain" 2>"$dir/err"
ok $? "as PEFT has it"
run peft --adapter "$dir/plain/peft" --numeric invariant --lr 1e-3
is "$(id peft adapter)" "$(id cont adapter)" "it ends with the same bits"
run nothing --adapter "$dir/plain/peft" --plan
grep -q 'read when the run begins' "$dir/stdout"
ok $? "its plan waits for the files"
run planned $go --plan
grep -q '"trained":' "$dir/stdout"
ok $? "that of ours does not"
run not --adapter "$dir/plain/out/adapter" --init-from "$dir/other/checkpoint"
is $rc 1 "an adapter of another base is refused"
says "other weights" "and says so"
run not --adapter "$dir/plain/out/adapter" --lora-rank 8
is $rc 1 "so is another rank"
says "has rank 4" "by name"
run not --adapter "$dir/plain/out/adapter" --lora-targets q
says "lora_targets are not those" "and other targets"
run not --adapter "$dir/full/out/checkpoint"
says "not an adapter" "and whole weights"
run not --adapter "$dir/nowhere"
is $rc 1 "and nothing at all"

# measured beside its base
evaluate() { "$LF_BUILDDIR/stages/lf-eval" --data "$dir/data" --threads 1 --out "$@" 2>"$dir/err" >/dev/null; }
loss() { sed -n 's/.*"token_loss,none": \([0-9.]*\).*/\1/p' "$dir/$1/results/results.json"; }
near() { [ "$(awk -v a="$1" -v b="$2" 'BEGIN { d = a / b - 1; print (a != "" && d < 1e-6 && d > -1e-6) }')" = 1 ]; }
evaluate "$dir/e1" --checkpoint "$dir/base/checkpoint" --adapter "$dir/plain/out/adapter"
ok $? "lf-eval with an adapter"
evaluate "$dir/e2" --checkpoint "$dir/base/checkpoint" --adapter "$dir/plain/peft"
cmp "$dir/e1/results/samples.jsonl" "$dir/e2/results/samples.jsonl" 2>>"$dir/err"
ok $? "as PEFT has it, the same bytes"
evaluate "$dir/e3" --checkpoint "$dir/plain/out/checkpoint"
evaluate "$dir/e4" --checkpoint "$dir/base/checkpoint"
near "$(loss e1)" "$(loss e3)"
ok $? "it is the merged model: $(loss e1), $(loss e3)"
near "$(loss e1)" "$(loss e4)"
[ $? -ne 0 ]
ok $? "and not the base: $(loss e4)"
echo '{"id":"a","prompt_token_ids":[1,2,3]}' >"$dir/ids.jsonl"
"$LF_BUILDDIR/stages/lf-generate" --checkpoint "$dir/other/checkpoint" --adapter "$dir/plain/out/adapter" --out "$dir/g1" --prompts "$dir/ids.jsonl" 2>"$dir/err"
is $? 1 "lf-generate refuses an adapter of another base"
says "other weights" "and says so"
"$LF_BUILDDIR/stages/lf-generate" --checkpoint "$dir/base/checkpoint" --adapter "$dir/plain/out/adapter" --out "$dir/g1" --prompts "$dir/ids.jsonl" 2>"$dir/err" &&
    "$LF_BUILDDIR/stages/lf-generate" --checkpoint "$dir/base/checkpoint" --adapter "$dir/plain/peft" --out "$dir/g2" --prompts "$dir/ids.jsonl" 2>"$dir/err" &&
    cmp "$dir/g1/text/out.jsonl" "$dir/g2/text/out.jsonl" 2>>"$dir/err"
ok $? "and takes one of this base, ours or PEFT's"

# out for transformers: what generate stops at is the end of a turn, then what ended texts before
mkdir "$dir/kit"
cp "$LF_SRCDIR/tests/golden/chat/tokenizer.json" "$dir/kit"
cp "$LF_SRCDIR/tests/golden/jinja/templates/chatml.jinja" "$dir/kit/chat_template.jinja"
echo '{"eos_token":"<|endoftext|>","pad_token":"<|endoftext|>"}' >"$dir/kit/tokenizer_config.json"
echo '{"eos_token_id":0,"temperature":0.5}' >"$dir/kit/generation_config.json"
special() { tr -d ' \n' <"$dir/$1/model/$2" | sed 's/.*"'"$3"'":\(\[[0-9,]*\]\|[0-9]*\).*/\1/'; }
hf() { _out=$1; shift; "$LF_BUILDDIR/stages/lf-convert" --to hf --out "$dir/$_out" "$@" 2>"$dir/err" >"$dir/stdout"; }
hf x1 --from "$dir/full/out/checkpoint" --tokenizer "$dir/kit"
is "$(special x1 config.json eos_token_id) $(special x1 generation_config.json eos_token_id)" "[7,0] [7,0]" "the end of a turn in the template is an end token"
is "$(special x1 config.json pad_token_id) $(special x1 generation_config.json temperature)" "5 0" "padding is the tokenizer's, and the rest stays"
hf x2 --from "$dir/full/out/checkpoint" --tokenizer "$dir/kit" --eos '<|im_end|>' --pad-token 9
is "$(special x2 config.json eos_token_id) $(special x2 generation_config.json eos_token_id) $(special x2 config.json pad_token_id)" "7 7 9" "unless others are named"
rm "$dir/kit/chat_template.jinja" "$dir/kit/generation_config.json"
hf x3 --from "$dir/full/out/checkpoint" --tokenizer "$dir/kit"
is "$(special x3 generation_config.json eos_token_id)" "5" "without a template it is the tokenizer's"
hf x4 --from "$dir/full/out/checkpoint" --eos 3 --eos 4
is "$(special x4 config.json eos_token_id) $(special x4 generation_config.json eos_token_id)" "[3,4] [3,4]" "and without a tokenizer those named"
hf x5 --from "$dir/full/out/checkpoint" --eos 64
says "vocabulary ends at 63" "one that the model does not have is refused"
hf x6 --from "$dir/full/out/checkpoint" --tokenizer "$dir/kit" --eos '<nothing>'
says "no token '<nothing>'" "and so is one that the tokenizer does not have"

# several validation sets, the best one, patience
"$tool" data "$dir/more" 20 10
best="--valid-data $dir/data --valid-data $dir/more --valid-names seen --valid-names new --valid-interval 2 --keep-best --patience 3 --steps 60 --lr 2e-2"
run usage --valid-names one --valid-names two
is $rc 2 "a name for no data is a usage error"
run best $best
is $rc 0 "a run with patience"
at=$(metrics best | tail -n 1 | cut -d' ' -f1)
top=$("$tool" id "$dir/best/out/best" | awk '{ print $1 }')
[ "$at" -lt 60 ] && [ "$top" -eq $((at - 6)) ]
ok $? "ends three validations after the best, at step $at of 60 (best $top)"
[ -z "$(ls "$dir/best/out" | grep best-step)" ]
ok $? "of what was kept the best remains"
found=0
for k in valid_loss_seen valid_ppl_new valid_accuracy_new accuracy; do
    grep -aq "\"$k\":[0-9]" "$dir/best/metrics" && found=$((found + 1))
done
[ $found -eq 4 ]
ok $? "each set has loss, perplexity and accuracy"
awk -v x="$(grep -ao 'valid_loss_new":[0-9.]*' "$dir/best/metrics" | head -n 1 | cut -d: -f2)" \
    -v y="$(grep -ao 'valid_ppl_new":[0-9.]*' "$dir/best/metrics" | head -n 1 | cut -d: -f2)" 'BEGIN { exit !(x > 0 && y / exp(x) > 0.999 && y / exp(x) < 1.001) }'
ok $? "perplexity is the exponential of the loss"
run best $best
is $rc 0 "the same run again has nothing to do"
killed bestkill best $best
is "$(id bestkill best)" "$(id best best)" "and the same best"
# The start that saw the best validation was cut off; it had kept it, or had published it already.
run cut $best --save-interval 2 --keep 100
mkdir "$dir/kept" "$dir/published"
cp -R "$dir/cut/out/checkpoints" "$dir/kept/"
cp -R "$dir/cut/out/checkpoints" "$dir/cut/out/best" "$dir/published/"
cp -R "$dir/cut/out/best" "$dir/kept/$(printf 'best-step-%08d' "$top")"
for c in kept published; do
    run "go$c" $best --save-interval 2 --resume-from "$dir/$c"
    grep -q "continuing bitwise from $dir/$c/" "$dir/err"
    is "$rc $? $(id go$c best)" "0 0 $(id best best)" "a start behind one that was cut off publishes what that had $c"
done
# Paused between its look at the fence and the removal of one that was replaced; a newer start begins.
slower="${best% --lr*} --lr 1e-4"
if [ -n "$FAIL" ]; then
    mkdir -p "$dir/late"
    LF_FENCE=$dir/next LD_PRELOAD=$FAIL LF_FAIL_ROOT=$dir/late LF_FAIL_ACTION=stop LF_FAIL_AFTER=1 LF_FAIL_MATCH='unlink */best-step-*/manifest.json' \
        LF_FAIL_ONCE=$dir/paused "$sft" --config "$dir/sft.ini" --out "$dir/late/out" --metrics "$dir/late/metrics" $slower --save-interval 7 2>"$dir/err" &
    pid=$!
    until [ -e "$dir/paused" ] || ! kill -0 $pid; do sleep 0.01; done 2>/dev/null
    until stopped $pid || gone $pid; do sleep 0.01; done
    is "$(ls "$dir/late/out" | tr '\n' ' ')" "best-step-00000002 best-step-00000004 best-step-00000006 checkpoints " "two of three kept ones are to be removed"
    : >"$dir/next"
    kill -CONT $pid
    wait $pid
    is $? 75 "the superseded start ends"
    is "$(ls "$dir"/late/out/best-step-*/manifest.json | wc -l | tr -d ' ')" 2 "and has removed no other than the one it was about to"
else
    skip_some 3 "$no_fail"
fi
run bestlora $best ${lora%--lr*}
is $rc 0 "the best of an adapter"
run frombest --steps 1 --init-from "$dir/bestlora/out/best"
is $rc 0 "is a whole model"

# noise on the embeddings
run neftune --neftune-alpha 5
is $rc 0 "NEFTune"
[ "$(id neftune)" != "$(id full)" ]
ok $? "changes the weights"
killed nefkill neftune --neftune-alpha 5
rm -rf "$dir/nefkill/out/checkpoint"
run nefkill --neftune-alpha 6 --steps 25
says "neftune_alpha was 5, is 6" "other noise on resume is told"

# samples while it trains
sampled="--sample-interval 8 --sample-rows 3 --sample-tokens 6"
files() { cat "$dir/$1/samples.jsonl"; }
run sampled $sampled
is "$rc $(id sampled)" "0 $(id full)" "samples leave the trained bits alone"
is "$(metrics sampled)" "$(metrics full)" "and the metrics"
is "$(sed 's/,"prompt.*"id":"\([^"]*\)".*/ \1/; s/{"step"://' "$dir/sampled/samples.jsonl" | tr '\n' ' ')" \
    "8 valid-1 8 valid-2 8 valid-3 16 valid-1 16 valid-2 16 valid-3 24 valid-1 24 valid-2 24 valid-3 " "they lie beside the metrics, a line each"
is "$(grep -c '"prompt_token_ids":\[[0-9].*"token_ids":\[[0-9].*"seed":[0-9]' "$dir/sampled/samples.jsonl")" 9 "with what was asked, and the seed"
[ "$(sed -n '1,3s/{"step":8,//p' "$dir/sampled/samples.jsonl")" != "$(sed -n '7,9s/{"step":24,//p' "$dir/sampled/samples.jsonl")" ]
ok $? "of a model that learns"
is "$(grep -ao '"sample_tokens":[0-9]' "$dir/sampled/metrics" | wc -l) $(grep -ao '"sample_logprob":-' "$dir/sampled/metrics" | wc -l)" "3 3" "the metrics know of them"
killed samplekill full $sampled
is "$(files samplekill)" "$(files sampled)" "and the same samples"
for k in a b c; do echo "{\"id\":\"$k\",\"prompt_token_ids\":[1,2,3],\"stop_token_ids\":[0],\"temperature\":1}"; done >"$dir/ask.jsonl"
ask="--sample-interval 24 --sample-prompts $dir/ask.jsonl --sample-tokens 9"
for k in full lora; do
    [ $k = lora ] && with="--lora-rank 8 --lora-dora --lr 3e-2 --recompute full" || with=
    run ask$k $ask $with --numeric invariant
    [ $k = lora ] && beside="--checkpoint $dir/base/checkpoint --adapter $dir/asklora/out/adapter" || beside="--checkpoint $dir/askfull/out/checkpoint"
    "$LF_BUILDDIR/stages/lf-generate" $beside --prompts "$dir/ask.jsonl" --max-tokens 9 --seed 1 --max-context 64 --out "$dir/gen$k" 2>"$dir/err" &&
        sed 's/^{"step":24,"prompt_token_ids":\[[0-9,]*\],/{/' "$dir/ask$k/samples.jsonl" >"$dir/said" &&
        cmp "$dir/gen$k/text/out.jsonl" "$dir/said" 2>>"$dir/err"
    ok $? "$k: those after the last step are the bytes of lf-generate"
done
echo '{"id":"m","messages":[{"role":"user","content":"a"}]}' >"$dir/talk.jsonl"
run talk --sample-interval 24 --sample-prompts "$dir/talk.jsonl"
[ $rc -eq 1 ] && [ ! -s "$dir/talk/metrics" ]
ok $? "messages need a tokenizer with a chat template"
echo '{"id":"a","prompt_token_ids":[1,99]}' >"$dir/wrong.jsonl"
run wrong --sample-interval 8 --sample-prompts "$dir/wrong.jsonl"
[ $rc -eq 1 ] && [ ! -s "$dir/wrong/metrics" ]
ok $? "a prompt that the model does not know is noticed before the first step"
run usage --sample-rows 3
is $rc 2 "settings of samples without an interval are a usage error"
total() { sed 's/.*"total":\([0-9.e+]*\).*/\1/' "$dir/stdout"; }
run plan --plan
without=$(total)
run plan --plan $sampled
awk -v a="$without" -v b="$(total)" 'BEGIN { exit !(a > 0 && b > a) }'
ok $? "--plan counts their memory: $(total) bytes, $without without"
with_ranks
if have_ranks; then
    train "$launch 2 -- $sft" "$dir/sft.ini" two $sampled
    is "$rc $(wc -l <"$dir/two/samples.jsonl")" "0 9" "two ranks: one of them samples"
else
    skip_some 1 "ranks cannot be started here"
fi

# what does not go together
run lora --lora-rank 8
is $rc 1 "an out that is finished with other settings of the adapter is refused"
says "lora_dropout was 0.1, is 0" "by name"
run lora
is $rc 1 "so is one that is finished with an adapter when none is asked for"
run loramore $lora --steps 25 --resume-from "$dir/lora/out"
is $rc 0 "a longer run of an adapter goes on from one that is over"
says "continuing from $dir/lora/out/checkpoint at step" "behind its last step"
rm -rf "$dir/lora/out/checkpoint" "$dir/lora/out/adapter"
run lora $lora --init-from "$dir/other/checkpoint"
is $rc 1 "an adapter of other weights is refused"
says "other weights" "and says so"
run lora --lora-rank 8
is $rc 1 "so are other settings of the adapter"
says "lora_rank" "by name"
run lora
is $rc 1 "and going on without one"
says "is of an adapter" "which is named"
run lora $lora
is $rc 0 "as it was it goes on"
is "$(id lora)" "$(id lorakill)" "to the same end"

# a model with a head for later tokens, whose adapter covers it
{ cat "$dir/base.ini" && echo mtp_layers = 1; } >"$dir/later.ini"
"$pretrain" --config "$dir/later.ini" --out "$dir/later" --steps 5 2>"$dir/err" || bail "no base with a head"
later="--init-from $dir/later/checkpoint --steps 3"
run laterlora $later --lora-rank 4
is $rc 0 "an adapter of a model with a head for later tokens"
echo '{"id": "1", "prompt": [1, 2, 3]}' >"$dir/later.jsonl"
new=8
texts() { # texts OUT CHECKPOINT ARGS...
    _to=$1 _of=$2
    shift 2
    "$LF_BUILDDIR/stages/lf-generate" --checkpoint "$_of" --prompts "$dir/later.jsonl" --max-tokens "$new" --temperature 0 \
        --threads 1 --out "$dir/$_to" "$@" 2>"$dir/err"
}
texts beside "$dir/later/checkpoint" --adapter "$dir/laterlora/out/adapter" &&
    texts guessed "$dir/later/checkpoint" --adapter "$dir/laterlora/out/adapter" --speculative mtp &&
    cmp -s "$dir/beside/text/out.jsonl" "$dir/guessed/text/out.jsonl"
ok $? "generates beside its base, and its head guesses"
"$LF_BUILDDIR/stages/lf-convert" --from "$dir/laterlora/out/adapter" --base "$dir/later/checkpoint" --to checkpoint \
    --out "$dir/latermerged" 2>"$dir/err" && cmp -s "$dir/latermerged/checkpoint/manifest.json" "$dir/laterlora/out/checkpoint/manifest.json"
ok $? "and is merged to the checkpoint of its run"
run not $later --adapter "$dir/laterlora/out/adapter" --mtp-weight 0
is $rc 1 "a run without heads does not go on with it"
says "mtp_weight above 0" "and says what to do"
run lateronly $later --lora-rank 4 --mtp-weight 0
run laternext $later --adapter "$dir/lateronly/out/adapter"
is $rc 0 "one that leaves the head out goes on with its loss"

# guesses where a sequence grows beyond the short angles of longrope: the row behind is computed with the long ones
{ cat "$dir/later.ini" && printf '%s\n' 'rope_scaling = longrope' 'rope_original_positions = 16' \
    'rope_short_factors = 1,1,1,1' 'rope_long_factors = 20,30,40,50'; } >"$dir/grows.ini"
"$pretrain" --config "$dir/grows.ini" --out "$dir/grows" --steps 40 2>"$dir/err" || bail "no base with longrope"
for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
    echo "{\"id\": \"$i\", \"prompt\": [$i, $((i + 9)), $((i * 3)), 4, $((i * 2 + 1))]}"
done >"$dir/later.jsonl"
new=40 grown="--longrope transformers --logprobs 1"
# shellcheck disable=SC2086
texts short "$dir/grows/checkpoint" $grown && texts grown "$dir/grows/checkpoint" $grown --speculative mtp &&
    cmp -s "$dir/short/text/out.jsonl" "$dir/grown/text/out.jsonl"
ok $? "texts that grow beyond the angles of longrope are those without guesses"

finish 128

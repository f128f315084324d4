#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Models that ranks divide (tensor) generate and are measured: one rank's tokens, and its numbers within the rounding of other sums; with fewer heads of
# keys than ranks, tied weights, ALiBi, positions, experts, bf16, an adapter; groups of ranks share the texts; stopped and killed; planned, as training plans; refused.
. "$LF_SRCDIR/tests/stage/lib.sh"
. "$LF_SRCDIR/tests/stage/layout_lib.sh"
with_ranks
need_ranks

awk 'BEGIN { for (i = 1; i <= 21; i++) printf "{\"id\":\"p%d\",\"prompt_token_ids\":[%d,%d,%d,%d,5],\"n\":%d,\"temperature\":%d}\n", i, i, i * 31 % 900, i * 17 % 900,
    i * 7 % 900, 1 + i % 2, (i % 3 > 0) }' >"$dir/prompts.jsonl"
must "$tool" data "$dir/data" 100 60

# A model of random weights as checkpoint $dir/NAME: made NAME FAMILY VOCAB LINES...
made() {
    _name=$1 _family=$2 _vocab=$3
    shift 3
    model "$_family" "$_vocab" 2 "$@" >"$dir/model.ini"
    must "$infer" ckpt "$dir/$_name" "$dir/model.ini" "$_vocab"
}
prompts=prompts.jsonl
length=10
generate() { # generate RANKS CHECKPOINT NAME ARGS...
    _ranks=$1 _from=$2 _name=$3
    shift 3
    $launch "$_ranks" -- "$stages/lf-generate" --checkpoint "$dir/$_from" --prompts "$dir/$prompts" --out "$dir/$_name" --threads 1 --slots 4 --step-rows 8 \
        --logprobs 1 --max-tokens "$length" "$@" >"$dir/stdout" 2>"$dir/err"
    rc=$?
}
evaluate() { # evaluate RANKS CHECKPOINT NAME ARGS...
    _ranks=$1 _from=$2 _name=$3
    shift 3
    $launch "$_ranks" -- "$stages/lf-eval" --checkpoint "$dir/$_from" --data "$dir/data" --split valid --block 3 --out "$dir/$_name" --threads 1 \
        --micro-tokens 128 "$@" >"$dir/stdout" 2>"$dir/err"
    rc=$?
}
texts() { # texts CHECKPOINT TOLERANCE "LAYOUT ..." ARGS...
    _ckpt=$1 _near=$2 _layouts=$3
    shift 3
    generate 1 "$_ckpt" "$_ckpt.one" "$@"
    for _l in $_layouts; do
        # shellcheck disable=SC2046
        generate "${_l%%:*}" "$_ckpt" "$_ckpt.$_l" $(options "$_l") "$@"
        apart=$(alike "$dir/$_ckpt.one/text/out.jsonl" "$dir/$_ckpt.$_l/text/out.jsonl" "$_near") && [ $rc -eq 0 ]
        ok $? "$_ckpt, $_l: the texts of one rank, apart by $apart" "$(tail -n 3 "$dir/err")"
    done
}

# --- texts ---
made few llama3 1003 "kv_heads = 2" "qk_norm = yes"
made tied gpt2 1000
made alibi bloom 1000
made experts qwen2-moe 1000 "kv_heads = 4" "experts = 4" "experts_per_token = 2" "expert_ffn = 64" "shared_ffn = 64"
made latent llama3 1000 "kv_lora = 16" "nope_dim = 8" "rope_dim = 4" "v_dim = 6"
texts few 4e-6 "2:tensor=2 4:tensor=4"
grep -q 'lf-generate: 4 ranks: tensor 4' "$dir/err"
ok $? "which says how ranks divide it"
generate 4 few groups --tensor 2
is "$(cksum <"$dir/groups/text/out.jsonl")" "$(cksum <"$dir/few.2:tensor=2/text/out.jsonl")" "two groups of two share the texts: the bytes of one group"
texts tied 4e-6 "2:tensor=2"
texts alibi 4e-6 "4:tensor=4"
texts experts 4e-6 "2:tensor=2 2:tensor=2+expert=2"
texts latent 4e-6 "2:tensor=2"
cp -r "$dir/latent" "$dir/absorbed"
texts absorbed 4e-6 "2:tensor=2" --numeric fast
cp -r "$dir/few" "$dir/bf16"
length=1
texts bf16 3e-2 "2:tensor=2" --precision bf16
length=10

# --- numbers ---
evaluate 1 few eval1
evaluate 4 few eval4 --tensor 2
apart=$(alike "$dir/eval1/results/samples.jsonl" "$dir/eval4/results/samples.jsonl" 2e-6) && [ $rc -eq 0 ]
ok $? "evaluation by two groups of two: the numbers of one rank, apart by $apart" "$(tail -n 3 "$dir/err")"
grep -q '"tensor": 2' "$dir/eval4/results/results.json"
ok $? "the results say that they depend on it"

# --- an adapter, with magnitudes and one for a whole group ---
use llama3 1003 2 "kv_heads = 2" "qk_norm = yes"
sed -i '/^\[model\]/,$d' "$dir/run.ini"
echo "init_from = $dir/few" >>"$dir/run.ini"
train "$launch 2 -- $stages/lf-sft" "$dir/run.ini" adapted --lora-rank 4 --lora-dora --lora-targets qkv --lora-targets o \
    --tensor 2
cp -r "$dir/few" "$dir/beside"
texts beside 4e-6 "4:tensor=4" --adapter "$dir/adapted/out/adapter"

# --- samples during training: by the ranks that have the model together ---
use llama3 1003 2 "kv_heads = 2"
trial "samples" pretrain 2e-5 "2:tensor=2 4:tensor=2+zero=3" --sample-interval 2 --sample-tokens 6 --sample-rows 2
drawn() { grep -o '"token_ids":[^]]*' "$dir/$1/samples.jsonl" | cksum; }
is "$(grep -c . "$dir/samples.one/samples.jsonl") $(drawn "samples.4:tensor=2+zero=3")" "4 $(drawn samples.one)" "they are written once, and are those of one rank"
train "$launch 2 -- $stages/lf-pretrain" "$dir/run.ini" none --tensor 2
is "$rc $(id none)" "0 $(id samples.2:tensor=2)" "and change no bit of the training"
refused "--ranks 2 --tensor 2 --sequence-parallel --sample-interval 2 --sample-tokens 6" "sequence_parallel cannot divide"
sed -i '/^\[model\]/,$d' "$dir/run.ini"
echo "init_from = $dir/none/out/checkpoint" >>"$dir/run.ini"
must "$tool" pairs "$dir/pairs" 24 4
trial "scores of pairs" rm 2e-5 "4:tensor=2" --data "$dir/pairs" --valid-tokens 64 --lr 5e-4 --sample-interval 2

# --- stopped, killed ---
many() { generate 2 few "$1" --tensor 2 --ignore-eos; }
length=50
prompts=many.jsonl
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sed "s/\"id\":\"/&$i./" "$dir/prompts.jsonl"; done >"$dir/many.jsonl"
member() { ps -eo pid,args | awk -v d="$dir/cut" '/lf-generate / && index($0, d) && !/awk/ && !/launch/ { print $1 }' | tail -n 1; }
lines() { cat "$dir/cut/text/out.jsonl.part" 2>/dev/null | wc -l; }
# One rank gets SIGNAL when more lines are there.
cut() {
    before=$(lines)
    many cut 2>/dev/null &
    pid=$!
    tries=0
    while [ "$(lines)" -le "$before" ] && kill -0 $pid 2>/dev/null && [ $tries -lt 3000 ]; do
        sleep 0.05
        tries=$((tries + 1))
    done
    kill "-$1" "$(member)"
    wait $pid
}
many whole
is $rc 0 "many texts"
cut TERM
[ "$(lines)" -gt 0 ] && [ ! -e "$dir/cut/text/manifest.json" ]
ok $? "one rank is asked to stop: all do, and what was made stays"
grep -q "lf-generate: stopped" "$dir/err" || [ "$(grep -c 'ended with exit code 75' "$dir/err")" -gt 0 ]
ok $? "which is no failure" "$(tail -n 3 "$dir/err")"
cut KILL
[ ! -e "$dir/cut/text/manifest.json" ]
ok $? "one rank is killed: the other ends"
many cut
is "$rc $(cksum <"$dir/cut/text/out.jsonl")" "0 $(cksum <"$dir/whole/text/out.jsonl")" "the next start goes on to the bytes of an unbroken one"

# --- planned, refused ---
bytes() { "$stages/lf-generate" --checkpoint "$dir/few" --prompts "$dir/prompts.jsonl" --plan "$@" 2>"$dir/err" | tr ',{' '\n\n' | sed -n 's/.*"state": *\([0-9]*\).*/\1/p'; }
one=$(bytes)
is "$(bytes --ranks 2 --tensor 2)" "$((one / 2))" "two ranks have half of the cache each"
bytes --ranks 2 --tensor 2 --expert 2 >/dev/null
says_like "expert = 2 divides experts among ranks, and the model has 0" "and experts only where there are some"
bytes --ranks 4 --tensor 4 --expert 2 >/dev/null
says_like "expert = 2: the ranks that work on the same texts .tensor = 4." "which all of them divide"
bytes --ranks 3 --tensor 2 >/dev/null
says_like "tensor = 2: 3 ranks cannot form such groups" "three ranks form no groups of two"
generate 3 few bad --tensor 2
[ $rc -ne 0 ] && grep -q "tensor = 2: 3 ranks cannot form such groups" "$dir/err"
ok $? "nor do they in a run"
# Communicators take what they take in training, where nothing else of the host depends on the layout when saving takes no snapshots.
use llama3 1003 2 "kv_heads = 2" "qk_norm = yes"
host() { # host STAGE ARGS...
    _kind=$1
    shift
    "$stages/lf-$_kind" --plan "$@" 2>"$dir/err" >"$dir/plan" || { echo 0 && return; }
    tr ',{' '\n\n' <"$dir/plan" | sed -n 's/.*"host": *\([0-9]*\).*/\1/p'
}
more() { # more STAGE LAYOUT ARGS...: what a layout takes more than one rank
    _of=$1 _layout=$2
    shift 2
    _one=$(host "$_of" "$@")
    # shellcheck disable=SC2046
    echo $(($(host "$_of" --ranks "${_layout%%:*}" $(options "$_layout") "$@") - _one))
}
for l in 2:tensor=1 2:tensor=2 4:tensor=2; do
    want=$(more pretrain $l --config "$dir/run.ini" --no-save-async)
    is "$want: $(more generate $l --checkpoint "$dir/few" --prompts "$dir/prompts.jsonl") $(more eval $l --checkpoint "$dir/few" --data "$dir/data") $(
        more score $l --checkpoint "$dir/scores of pairs.one/out/checkpoint" --inputs "$dir/prompts.jsonl" --tokenizer "$dir/few")" "$want: $want $want $want" \
        "$l: communicators of generate, eval and score are planned as those of training"
done
total=$(host eval --checkpoint "$dir/few" --data "$dir/data" --micro-tokens 128 --threads 1 --ranks 4 --tensor 2 >/dev/null
    tr ',{' '\n\n' <"$dir/plan" | awk -F'[: }]+' '/"total"/ { printf "%.1f MiB", $2 / 1048576 }')
evaluate 4 few planned --tensor 2
says_like "planned memory $total" "and told so by a run: $total"
generate 2 few cut --tensor 1 --ignore-eos
[ $rc -ne 0 ] && grep -q "tensor" "$dir/err"
ok $? "a result of another layout is not taken for one of this" "$(tail -n 3 "$dir/err")"

finish 35

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Encoder-decoders: lf-pretrain with objective = span (T5) and denoise (BART) learns; micro-batches, ranks, what is computed again and kills change
# nothing. lf-sft learns answers to sources, lf-generate says them, greedily and by beams, lf-eval measures them; what does not go
# together is refused. engine/train/seq2seq.h
. "$LF_SRCDIR/tests/stage/lib.sh"
with_ranks

# --- corrupted texts: a chain, where three tokens in four follow from the one before ---
"$tool" data "$dir/data" 400 40 || bail "no test data"
stage() {
    printf '[stage]\ndata = %s\nmfu = no\nsteps = 60\nbatch = 8\nmicro_batch = 4\nlr = 1e-2\nschedule = constant\n' "$dir/data"
    printf 'valid_interval = 20\nlog_interval = 20\nsave_time = 0\nseed = 5\nthreads = 1\nsource_length = 48\n'
}
model() { printf '[model]\nfamily = %s\nlayers = 2\nencoder_layers = 2\nhidden = 32\nheads = 4\nffn = 64\nvocab = 96\nmax_positions = 64\n' "$1"; }
{
    stage
    printf 'objective = span\nsentinel_token = 95\nsentinels = 30\nseq_length = 24\n'
    model t5
} >"$dir/run.ini"
{
    stage
    printf 'objective = denoise\nmask_token = 95\nbegin_token = 94\nsentence_ends = 3-9\nseq_length = 48\n'
    model bart
} >"$dir/bart.ini"
falls() { # falls NAME: the loss has fallen
    losses "$1" | awk 'NR == 1 { a = $1 } { b = $1 } END { exit !(NR == 60 && b < a - 0.5) }'
    ok $? "$1: the loss falls" "$(losses "$1" | sed -n '1p;$p')"
}
on1() {
    _n=$1
    shift
    train "$pretrain" "$dir/run.ini" "$_n" "$@"
}
on1 span
falls span
train "$pretrain" "$dir/bart.ini" denoise
falls denoise
train "$pretrain" "$dir/bart.ini" any --mask-random 1 --steps 1
is "$({ losses denoise | head -n 1; losses any; } | sort -u | wc -l)" 2 "any word in place of spans: another loss"
train "$pretrain" "$dir/bart.ini" words --mask-whole-words --steps 1
says "lies none that made it: give tokenizer" "words of a vocabulary that is not there are refused"
on1 again --recompute full --save-async=no
is "$(id again)" "$(id span)" "computed again, the same bits"
mkdir "$dir/kill"
killed_often 1 "$dir/kill/metrics" "$(bytes "$dir/span/metrics")" "$pretrain" --config "$dir/run.ini" --out "$dir/kill/out" --metrics "$dir/kill/metrics" \
    --save-interval 7
on1 kill --save-interval 7
is "$often $(id kill) $(metrics kill | cksum)" "1 $(id span) $(metrics span | cksum)" "killed and continued, the same bits"
near() { # near NAME TEXT: the first ten losses of `span`
    losses span | head -n 10 >"$dir/a"
    losses "$1" | head -n 10 | paste "$dir/a" - | awk '{ d = $1 - $2; if (!(d < 1e-5 && d > -1e-5)) bad = 1 } END { exit bad || NR != 10 }'
    ok $? "$2, the same losses" "$(cat "$dir/err")"
}
on1 small --steps 10 --micro-batch 2
near small "micro-batches of half the size"
if have_ranks; then
    on 2 data --steps 10
    near data "two ranks"
    for part in 1 2 3; do
        on 2 zero$part --steps 10 --zero $part
        near zero$part "and with a part of the state each, zero = $part"
    done
    rm -rf "$dir/kill"
    rank_killed 2 "--zero 3" --save-interval 2
    on 2 rows --steps 10 --tensor 2 --sequence-parallel=yes
    near rows "two ranks that divide matrices and rows"
    on 2 stages --steps 10 --pipeline 2 --pipeline-stages 1,3
    near stages "two ranks with layers of both stacks"
    on 8 mesh --steps 10 --tensor 2 --pipeline 2 --zero 1
    near mesh "a mesh of eight"
    on 2 measured --steps 10 --pipeline 2 --pipeline-cost measured
    near measured "a cut by time"
else
    skip_some 10 "ranks cannot be started here"
fi

# The cut of a pipeline goes by both lengths: with short sources the encoder weighs less.
cut_of() { "$pretrain" --config "$dir/run.ini" --plan --ranks 2 --pipeline 2 --source-length "$1" | grep -o '"layers":\["[^]"]*' | sed 's/.*"//' | tr '\n' ' '; }
is "$(cut_of 48), $(cut_of 8)" "0-1 2-3 , 0-2 3 " "a shorter source moves the cut of a pipeline"

# --- what goes with what ---
refused() { # refused WORDS TEXT ARGS...
    _words=$1 _text=$2
    shift 2
    rm -rf "$dir/refused"
    on1 refused "$@"
    [ $rc -ne 0 ] && grep -qF -- "$_words" "$dir/err"
    ok $? "$_text is refused" "$(cat "$dir/err")"
}
refused "there are sentinels = 2" "more spans than sentinels" --sentinels 2
refused "sentinel_token = 96: the vocabulary has 96" "a sentinel that there is not" --sentinel-token 96
refused "begin_token belongs to objective = denoise" "an option of the other objective" --begin-token 5
refused "source_length = 65 is more than [model] max_positions = 64" "a source beyond the positions" --source-length 65
refused "layer_decay is of models with one stack of layers" "rates by layer, of which there are two stacks" --layer-decay 0.8
refused "packing has no meaning" "whole documents" --packing bfd
grep -v source_length "$dir/run.ini" >"$dir/none.ini"
train "$pretrain" "$dir/none.ini" none
says "objective = span needs source_length" "and a source of no length"
{ stage && printf 'seq_length = 24\n[model]\nfamily = llama\nlayers = 2\nhidden = 32\nheads = 4\nffn = 64\nvocab = 96\nmax_positions = 64\n'; } >"$dir/llama.ini"
train "$pretrain" "$dir/llama.ini" llama
says "source_length = 48 is of encoder-decoders" "and a source of a decoder"
must "$stages/lf-convert" --from "$dir/span/out/checkpoint" --out "$dir/hf"
must "$stages/lf-convert" --verify none --from "$dir/hf/model" --out "$dir/back"
is "$("$tool" moved "$dir/span/out/checkpoint" "$dir/back/checkpoint" 'model/*' | sed 's/ of .*//')" 0 "what was trained goes out and comes in"

# --- answers: the words of a source in the other order ---
awk 'BEGIN { srand(4); split("ban dor fel gim hut jal", w, " ")
    for (i = 0; i < 600; i++) { a = w[1 + int(rand() * 6)]; b = w[1 + int(rand() * 6)]; printf "{\"prompt\":\"%s %s\",\"completion\":\" %s %s\"}\n", a, b, b, a } }' >"$dir/rows.jsonl"
sed 's/.*"prompt":"\([^"]*\)","completion":"\([^"]*\)".*/\1\2/' "$dir/rows.jsonl" >"$dir/text.txt"
must "$stages/lf-tokenize" --doc-split=line --vocab-size 280 --out "$dir/text" "$dir/text.txt"
must "$stages/lf-tokenize" --tokenizer "$dir/text/tokenizer" --shape prompt_completion --out "$dir/qa" "$dir/rows.jsonl"
{
    printf '[stage]\ndata = %s\nsteps = 2\nsource_length = 48\nobjective = span\nsentinel_token = 299\nsentinels = 19\nseq_length = 24\nthreads = 1\n' "$dir/text/shards"
    model t5 | sed 's/vocab = 96/vocab = 300/'
} >"$dir/base.ini"
must "$pretrain" --config "$dir/base.ini" --out "$dir/base"
must "$stages/lf-sft" --data "$dir/qa/shards" --init-from "$dir/base/checkpoint" --source-length 64 --seq-length 64 --steps 400 --batch 4 --micro-batch 4 \
    --lr 1e-2 --threads 1 --out "$dir/sft"
answers() { sed 's/.*"text":" *\([^"]*\)".*/\1/' "$dir/$1/text/out.jsonl"; }
printf '{"prompt":"%s"}\n' "ban dor" "fel gim" "hut ban" "dor dor" >"$dir/ask.jsonl"
must "$stages/lf-generate" --checkpoint "$dir/sft/checkpoint" --tokenizer "$dir/text/tokenizer" --prompts "$dir/ask.jsonl" --temperature 0 --max-tokens 9 --threads 1 --out "$dir/greedy"
is "$(answers greedy | tr '\n' ',')" "dor ban,gim fel,ban hut,dor dor," "answers are generated"
must "$stages/lf-generate" --checkpoint "$dir/sft/checkpoint" --tokenizer "$dir/text/tokenizer" --prompts "$dir/ask.jsonl" --beams 3 --max-tokens 9 --threads 1 --out "$dir/beams"
is "$(answers beams | tr '\n' ',')" "dor ban,gim fel,ban hut,dor dor," "and found by beams"
cp -r "$dir/text/tokenizer" "$dir/said"
end=$(sed -n 's/.*"eos_token_id": *\([0-9]*\).*/\1/p' "$dir/said/generation_config.json" 2>/dev/null)
printf '{"num_beams":3,"max_length":10,"min_length":1,"length_penalty":1.0,"early_stopping":false,"do_sample":false,"eos_token_id":%s}' "${end:-0}" >"$dir/said/generation_config.json"
must "$stages/lf-generate" --checkpoint "$dir/sft/checkpoint" --tokenizer "$dir/said" --prompts "$dir/ask.jsonl" --threads 1 --out "$dir/by_file"
cmp -s "$dir/beams/text/out.jsonl" "$dir/by_file/text/out.jsonl"
ok $? "as generation_config.json says it, whose max_length has the first token of the decoder, the same bytes" "$(head -n 1 "$dir/beams/text/out.jsonl" "$dir/by_file/text/out.jsonl")"
must "$stages/lf-convert" --from "$dir/sft/checkpoint" --tokenizer "$dir/said" --out "$dir/out"
grep -q '"decoder_start_token_id": 0' "$dir/out/model/generation_config.json" && grep -q '"num_beams": 3' "$dir/out/model/generation_config.json"
ok $? "which goes out with the model, and says what the decoder starts with" "$(cat "$dir/out/model/generation_config.json")"
must "$stages/lf-sft" --data "$dir/qa/shards" --init-from "$dir/base/checkpoint" --source-length 64 --seq-length 64 --steps 1 --batch 4 --micro-batch 4 \
    --lora-rank 2 --threads 1 --out "$dir/lora"
must "$stages/lf-convert" --from "$dir/lora/adapter" --out "$dir/peft"
is "$(grep -c '"task_type": "SEQ_2_SEQ_LM"' "$dir/peft/peft/adapter_config.json")" 1 "an adapter goes out as one of a model with sources"
must "$stages/lf-generate" --checkpoint "$dir/sft/checkpoint" --tokenizer "$dir/text/tokenizer" --prompts "$dir/ask.jsonl" --temperature 0 --max-tokens 9 --threads 2 --slots 1 --out "$dir/alone"
cmp -s "$dir/greedy/text/out.jsonl" "$dir/alone/text/out.jsonl"
ok $? "one at a time, the same bytes"
asked() { # asked NAME RANKS ARGS...: the same texts from ranks that divide the model
    _n=$1 _r=$2
    shift 2
    $launch "$_r" -- "$stages/lf-generate" --checkpoint "$dir/sft/checkpoint" --tokenizer "$dir/text/tokenizer" --prompts "$dir/ask.jsonl" --max-tokens 9 \
        --threads 1 --tensor "$_r" --out "$dir/$_n" "$@" 2>"$dir/err"
    is "$(answers "$_n" | tr '\n' ',')" "dor ban,gim fel,ban hut,dor dor," "two ranks that divide it say the same: $_n"
}
if have_ranks; then
    asked both 2 --temperature 0
    asked both-beams 2 --beams 3
else
    skip_some 2 "ranks cannot be started here"
fi
# How likely an answer is, of a model that has not learned much: what generating it found, token by token, over the cache.
must "$stages/lf-sft" --data "$dir/qa/shards" --init-from "$dir/base/checkpoint" --source-length 64 --seq-length 64 --steps 100 --batch 4 --micro-batch 4 \
    --lr 1e-2 --threads 1 --out "$dir/half"
must "$stages/lf-generate" --checkpoint "$dir/half/checkpoint" --tokenizer "$dir/text/tokenizer" --prompts "$dir/ask.jsonl" --temperature 0 --max-tokens 9 --logprobs 1 --threads 1 --out "$dir/likely"
paste -d '|' "$dir/ask.jsonl" "$dir/likely/text/out.jsonl" | sed 's/^{"prompt":"\([^"]*\)"}|.*"text":"\([^"]*\)".*/{"prompt":"\1","completion":"\2"}/' >"$dir/said.jsonl"
score() { # score NAME FILE ARGS...
    _n=$1
    shift
    $prefix "$stages/lf-score" --checkpoint "$dir/half/checkpoint" --tokenizer "$dir/text/tokenizer" --give logprobs --threads 1 --out "$dir/$_n" "$@" 2>"$dir/err"
}
prefix=
score scored "$dir/said.jsonl"
logprobs() { sed 's/.*"logprob":\([^,]*\),.*/\1/' "$dir/$1/scores/scores.jsonl"; }
sum_of() { sed 's/"finish_reason".*//; s/.*"logprobs":\[\([^]]*\)\].*/\1/' "$dir/likely/text/out.jsonl" | tr ',' ' ' | awk '{ s = 0; for (i = 1; i <= NF; i++) s += $i; print s }'; }
logprobs scored >"$dir/a"
sum_of | paste "$dir/a" - | awk '{ d = $1 - $2; if (!(d < 1e-5 && d > -1e-5 && $1 < -0.01)) bad = 1 } END { exit bad || NR != 4 }'
ok $? "lf-score finds how likely answers are" "$(cat "$dir/err" "$dir/scored/scores/scores.jsonl"; head -2 "$dir/likely/text/out.jsonl")"
if have_ranks; then
    prefix="$launch 2 --"
    score shared "$dir/said.jsonl" --tensor 2
    prefix=
    logprobs shared | paste "$dir/a" - | awk '{ d = $1 - $2; if (!(d < 1e-5 && d > -1e-5)) bad = 1 } END { exit bad || NR != 4 }'
    ok $? "and so do two ranks that divide the model" "$(cat "$dir/err")"
else
    skip_some 1 "ranks cannot be started here"
fi
printf '{"text":"ban dor"}\n{"prompt":"","completion":"ban dor"}\n{"prompt":"","chosen":"ban dor","rejected":"gim"}\n' >"$dir/bare.jsonl"
score bare "$dir/bare.jsonl"
[ "$(grep -c "nothing stands before the answer" "$dir/bare/scores/scores.jsonl")" -eq 3 ]
ok $? "and that a text, or an answer, without a source has none" "$(cat "$dir/err" "$dir/bare/scores/scores.jsonl")"
# ours, the answer of another source, and its own words as they stand
printf '{"context":"%s","choices":["%s","%s","%s"],"gold":%s}\n' "ban dor" "dor ban" "gim fel" "ban dor" 0 "hut ban" "jal ban" "ban hut" "hut ban" 1 \
    "fel gim" "fel gim" "dor ban" "gim fel" 2 >"$dir/choice.jsonl"
must "$stages/lf-eval" --checkpoint "$dir/sft/checkpoint" --tokenizer "$dir/text/tokenizer" --multiple-choice "$dir/choice.jsonl" --threads 1 --out "$dir/eval"
grep -A9 '"choice"' "$dir/eval/results/results.json" | grep -q '"acc,none": *1\(\.0*\)\{0,1\}[,}]\{0,1\}$'
ok $? "lf-eval chooses all of them" "$(cat "$dir/eval/results/results.json")"
echo "ban dor fel" >"$dir/plain.txt"
"$stages/lf-eval" --checkpoint "$dir/sft/checkpoint" --tokenizer "$dir/text/tokenizer" --text "$dir/plain.txt" --threads 1 --out "$dir/alone2" 2>"$dir/err"
says "it has no likelihood of a text alone" "and says that a text alone has none"
finish 40

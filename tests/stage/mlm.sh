#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# An encoder of texts that learns to say hidden tokens (lf-pretrain, objective = mlm): it says more of them than the most
# frequent token would; micro-batches, layouts, what is computed again and kills change nothing; what is about next tokens is
# refused, and so are stages that need them. The checkpoint goes out as a masked language model. engine/train/mlm.h
. "$LF_SRCDIR/tests/stage/lib.sh"
with_ranks

# --- a chain: three tokens in four follow from the one before, and so from the one behind ---
"$tool" data "$dir/data" 400 40 || bail "no test data"
stage() {
    cat <<END
[stage]
data = $dir/data
objective = mlm
mask_token = 63
mask_spared = 0
mfu = no
steps = 120
seq_length = 64
batch = 8
micro_batch = 4
lr = 1e-2
schedule = constant
valid_interval = 60
log_interval = 60
save_time = 0
seed = 5
threads = 1
END
}
{
    stage
    printf '[model]\nfamily = modernbert\nlayers = 2\nlayer_mixers = fw\nsliding_window = 4\nhidden = 48\nheads = 4\nffn = 64\n'
    printf 'vocab = 64\nmax_positions = 64\n'
} >"$dir/run.ini"
{
    stage
    printf '[model]\nfamily = bert\nlayers = 2\nhidden = 32\nheads = 4\nffn = 64\nvocab = 64\nmax_positions = 64\n'
} >"$dir/bert.ini"

# --- one rank ---
on1() {
    _n=$1
    shift
    train "$pretrain" "$dir/run.ini" "$_n" "$@"
}
on1 one
is $rc 0 "120 steps"
record=$("$infer" record "$dir/one/metrics" | tail -n 1)
echo "$record" | sed -n 's/.*"valid_accuracy":\([0-9.]*\).*/\1/p' | awk '{ n++; if ($1 > 0.3) good = 1 } END { exit n != 1 || !good }'
ok $? "of hidden tokens of held-out texts it says many (any one word is a sixtieth of them)" "$record"
on1 again --recompute full --save-async=no
is "$(id again)" "$(id one)" "computed again, the same bits"
mkdir "$dir/kill"
killed_often 2 "$dir/kill/metrics" "$(bytes "$dir/one/metrics")" "$pretrain" --config "$dir/run.ini" --out "$dir/kill/out" --metrics "$dir/kill/metrics" \
    --save-interval 17
on1 kill --save-interval 17
is "$often $(id kill) $(metrics kill | cksum)" "1 $(id one) $(metrics one | cksum)" "killed and continued, the same bits"
same() { # same NAME WORDS: the first ten losses of `one`
    losses one | head -n 10 >"$dir/a"
    losses "$1" | paste "$dir/a" - | awk '{ d = $1 - $2; if (!(d < 1e-5 && d > -1e-5)) bad = 1 } END { exit bad || NR != 10 }'
    ok $? "$2, the same losses" "$(cat "$dir/err")"
}
on1 micro --micro-batch 2 --steps 10
same micro "micro-batches of half the size"
on1 other --seed 6 --steps 1
on1 more --mask-share 0.3 --steps 1
on1 all --mask-random 0 --mask-kept 0 --steps 1
is "$({ losses one | head -n 1; losses other; losses more; losses all; } | sort -u | wc -l)" 4 \
    "another seed, twice as many hidden, none kept: other losses"

# --- ranks, two kinds of encoder ---
if have_ranks; then
    on 2 data --steps 10
    same data "two ranks"
    on 2 tensor --steps 10 --tensor 2
    same tensor "matrices on two ranks"
    on 2 rows --steps 10 --tensor 2 --sequence-parallel=yes
    same rows "and rows"
    on 2 context --steps 10 --context 2
    same context "rows of a micro-batch, whose windows reach into those of the other rank"
    on 2 keys --steps 10 --context 2 --context-kind gather
    same keys "and keys and values of all rows for a rank's own"
    on 2 pipe --steps 10 --pipeline 2
    same pipe "a layer on each of two ranks"
    on 2 context --steps 10 --context 2
    same context "half the rows of a sequence on each of two ranks"
    train "$pretrain" "$dir/bert.ini" bert --steps 10
    is $rc 0 "BERT"
    for layout in "--tensor 2 --sequence-parallel=yes" "--pipeline 2" "--context 2" "--context 2 --context-kind gather"; do
        # shellcheck disable=SC2086
        train "$launch 2 -- $pretrain" "$dir/bert.ini" cut --steps 10 $layout
        near_losses bert cut 1e-5 10
        ok $? "$layout, the same losses" "$(cat "$dir/err")"
        rm -rf "$dir/cut"
    done
    sed 's/^family = bert/family = electra\nembed_dim = 16\nembed_narrow = yes/' "$dir/bert.ini" >"$dir/electra.ini"
    train "$pretrain" "$dir/electra.ini" electra --steps 6
    is $rc 0 "ELECTRA's generator"
    for layout in "--tensor 2 --sequence-parallel=yes" "--pipeline 2"; do
        # shellcheck disable=SC2086
        train "$launch 2 -- $pretrain" "$dir/electra.ini" cut --steps 6 $layout
        near_losses electra cut 1e-5 6
        ok $? "$layout, the same losses" "$(cat "$dir/err")"
        rm -rf "$dir/cut"
    done
else
    skip_some 14 "ranks cannot be started here"
fi

# --- what goes with what ---
refused() { # refused WORDS TEXT ARGS...
    _words=$1 _text=$2
    shift 2
    on1 refused "$@"
    [ $rc -ne 0 ] && grep -qF -- "$_words" "$dir/err"
    ok $? "$_text is refused" "$(cat "$dir/err")"
}
refused "mask_token = 64: the vocabulary has 64 words" "a token that there is not" --mask-token 64
refused "sample_order has no meaning" "the order of another program" --sample-order megatron
refused "tokenizer has no meaning with objective = mlm, which hides tokens of texts and predicts none that follow (mask_whole_words reads one)" \
    "a tokenizer for nothing" --tokenizer "$dir/nowhere"
refused "sample_tokens has no meaning with objective = mlm" "the length of samples that there are not" --sample-tokens 4
refused "mask_spared = 3-x" "a range that is none" --mask-spared 3-x
refused "mask_share belongs to objective = mlm" "a share of nothing" --objective next_token --mask-share 0.2 --mask-token 63
refused "lies none that made it: give tokenizer" "words of a vocabulary that is not there" --mask-whole-words
grep -v 'mask_\|objective' "$dir/run.ini" >"$dir/next.ini"
train "$pretrain" "$dir/next.ini" alone --mask-whole-words
says "mask_whole_words belongs to objective = mlm, electra and denoise" "words of nothing are refused"
train "$pretrain" "$dir/next.ini" next
says "its tokens see what follows them" "next tokens of an encoder are refused"
{ grep -v mask_token "$dir/run.ini"; } >"$dir/none.ini"
train "$pretrain" "$dir/none.ini" none
says "objective = mlm needs mask_token" "and hidden tokens that nothing stands for"
sed 's/^family.*/family = llama3/; /^layer_mixers/d; /^sliding/d' "$dir/run.ini" >"$dir/llama.ini"
train "$pretrain" "$dir/llama.ini" llama
says "objective = mlm trains an encoder" "and of a decoder"
echo '{"prompt": [1, 2]}' >"$dir/ask.jsonl"
"$stages/lf-generate" --checkpoint "$dir/one/out/checkpoint" --prompts "$dir/ask.jsonl" --threads 1 --out "$dir/gen" 2>"$dir/err"
says "its tokens see what follows them" "lf-generate says that it cannot"

# --- whole words, by the marks of the tokenizer beside the data ---
awk 'BEGIN { srand(2); for (i = 0; i < 300; i++) { s = ""; for (k = 0; k < 12; k++) s = s (k ? " " : "") "w" int(rand() * 1000); print s } }' >"$dir/text.txt"
must "$stages/lf-tokenize" --doc-split line --special-tokens '<|endoftext|>' --special-tokens '[MASK]' --vocab-size 270 --out "$dir/words" "$dir/text.txt"
sed "s|^data = .*|data = $dir/words/shards|; s/^mask_token = .*/mask_token = 1/; s/^vocab = .*/vocab = 270/; s/^steps = .*/steps = 3/; s/^valid_interval.*/valid_interval = 0/" \
    "$dir/run.ini" >"$dir/words.ini"
train "$pretrain" "$dir/words.ini" tokens
train "$pretrain" "$dir/words.ini" whole --mask-whole-words
is "$rc $(losses whole | wc -l)" "0 3" "whole words"
is "$({ losses tokens | head -n 1; losses whole | head -n 1; } | sort -u | wc -l)" 2 "are other tokens"
cp -R "$dir/words/tokenizer" "$dir/elsewhere"
train "$pretrain" "$dir/words.ini" given --mask-whole-words --tokenizer "$dir/elsewhere" --micro-batch 2
near_losses whole given 1e-5 3
ok $? "of a tokenizer that is given, in micro-batches of half the size, the same" "$(cat "$dir/err")"

# --- out, and in again ---
must "$stages/lf-convert" --from "$dir/one/out/checkpoint" --out "$dir/hf"
grep -q '"ModernBertForMaskedLM"' "$dir/hf/model/config.json" && grep -q '"local_attention": 6' "$dir/hf/model/config.json"
ok $? "the export is a masked language model of transformers"
grep -q '^pipeline_tag: fill-mask$' "$dir/hf/model/README.md" && grep -q 'AutoModelForMaskedLM.from_pretrained' "$dir/hf/model/README.md"
ok $? "and its card says so"
must "$stages/lf-convert" --verify none --from "$dir/hf/model" --out "$dir/back"
is "$("$tool" moved "$dir/one/out/checkpoint" "$dir/back/checkpoint" 'model/*')" "0 of 23" "which comes in with the same weights"
must "$stages/lf-convert" --verify none --from "$LF_SRCDIR/tests/golden/families/roberta" --out "$dir/roberta"
"$stages/lf-convert" --from "$dir/roberta/checkpoint" --pad-token 5 --out "$dir/padded" 2>"$dir/err" >"$dir/stdout"
says "pad_token = 5, but positions of family roberta count from behind the token of padding" \
    "another token of padding, which would move positions, is refused"
finish 40

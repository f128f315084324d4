#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Judged answers and rewards with pictures, on the models that tests/golden/vlm/make_run.py prepared: DPO, SimPO and KTO with the
# losses of make_judged.py; a reward model and a policy that see; the generator's log-probabilities are those of training; ranks,
# runs that are stopped, pictures that are damaged or find no room.
. "$LF_SRCDIR/tests/stage/lib.sh"
golden=$LF_SRCDIR/tests/golden/vlm/run
images=$LF_SRCDIR/tests/golden/media/images
grep -q '^#define HAVE_PNG' "$LF_BUILDDIR/config.h" && grep -q '^#define HAVE_JPEG' "$LF_BUILDDIR/config.h" ||
    skip_all "a decoder of pictures is not built in"
with_ranks

tokenize() { # tokenize MODEL NAME FILE ARGS...
    _model=$1 _name=$2 _file=$3
    shift 3
    "$stages/lf-tokenize" --tokenizer "$golden/$_model" --processor "$golden/$_model" --shape "${shape:-auto}" --unmapped ignore --media-dir "$images" --valid-fraction 0 \
        --out "$dir/$_model.$_name" "$@" "$_file" 2>"$dir/err" >/dev/null
    rc=$?
}
ini() { # ini MODEL DATA BATCH STEPS
    cat <<E2
[stage]
init_from = $dir/$1/checkpoint
data = $dir/$1.$2/shards
mfu = no
seq_length = 256
batch = $3
max_patches = 512
steps = $4
lr = 1e-3
schedule = constant
warmup = 0
beta1 = 0.9
beta2 = 0.95
eps = 1e-8
weight_decay = 0
clip = 0
log_interval = 1
save_time = 0
threads = 1
E2
}
judged() { # judged NAME ARGS...: lf-dpo under $under
    _name=$1
    shift
    train "$under $stages/lf-dpo" "$dir/run.ini" "$_name" "$@"
}
under=
as_reference() { # as_reference NAME MODEL LOSS: within 1e-4
    { losses "$1" | tr '\n' ' ' && echo; } | cat - "$golden/$2/judged" | awk -v l="$3" 'NR == 1 { for (i = 1; i <= NF; i++) x[i] = $i; n = NF }
        NR > 1 && $1 == l { found = 1; for (i = 1; i < NF; i++) { d = x[i] - $(i + 1); if (d < 0) d = -d; if (!(d <= 1e-4)) bad = 1 } }
        NR == 1 && $1 == l { found = 1 } END { exit bad || !found || n != 5 }'
}
policy() { # policy NAME ARGS...: lf-ppo under $under
    _name=$1
    shift
    # shellcheck disable=SC2086
    $under "$stages/lf-ppo" --config "$dir/ppo.ini" --out "$dir/$_name" --metrics "$dir/$_name.m" "$@" 2>"$dir/err" >"$dir/stdout"
    rc=$?
}
member() { "$infer" record "$dir/$1.m" | sed -n "$2"'p' | grep -o "\"$3\":[^,}]*" | sed 's/.*://'; } # member RUN LINE NAME
# All differences between what was drawn and what was trained, of a run.
mismatches() { "$infer" record "$dir/$1.m" | grep -o '"mismatch_max":[^,}]*' | sed 's/.*://' | sort -u | tr '\n' ' ' | sed 's/ $//'; }
near() { echo "$1 $2 $3" | awk '{ d = $1 - $2; print (NF == 3 && d <= $3 && d >= -$3) ? "near" : "apart" }'; }
identity() { grep -o '"identity":"[0-9a-f]*"' "$dir/$1/checkpoint/manifest.json"; }
sed 's/, "chosen".*/, "answer": "a"}/' "$golden/pairs.jsonl" >"$dir/prompts.jsonl"

for model in llava qwen2.5-vl; do
    must "$stages/lf-convert" --from "$golden/$model" --out "$dir/$model" --verify none
    tokenize $model pairs "$golden/pairs.jsonl"
    must test $rc -eq 0
    tokenize $model labels "$golden/labels.jsonl"
    must test $rc -eq 0

    # --- judged answers: all rows of the data are one step ---
    [ $model = llava ] && all=2 || all=3
    ini $model pairs $all 5 >"$dir/run.ini"
    judged $model.dpo
    as_reference $model.dpo $model dpo
    ok $? "$model: five steps of DPO as its formula says"
    judged $model.simpo --loss simpo
    as_reference $model.simpo $model simpo
    ok $? "$model: of SimPO"
    judged $model.kto --data "$dir/$model.labels/shards" --loss kto --batch 2
    as_reference $model.kto $model kto
    ok $? "$model: of KTO, whose strangers' answers are to the pictures of the prompt"
    if [ $model = llava ]; then
        judged $model.again --recompute full
        is "$(id $model.again)" "$(id $model.dpo)" "$model: recomputed, the same bits"
        judged $model.lora --lora-rank 2 --steps 2
        is "$rc $(losses $model.lora | head -n 1 | cut -c 1-8)" "0 0.693147" "$model: an adapter begins at ln 2"
        mkdir "$dir/$model.kill"
        killed_often 2 "$dir/$model.kill/metrics" "$(bytes "$dir/$model.dpo/metrics")" "$stages/lf-dpo" --config "$dir/run.ini" \
            --out "$dir/$model.kill/out" --metrics "$dir/$model.kill/metrics" --save-interval 1
        judged $model.kill --save-interval 1
        is "$often $(id $model.kill)" "1 $(id $model.dpo)" "$model: killed and continued, the same bits"
    fi
    if [ $model = llava ] && have_ranks; then
        judged $model.one --batch 6 --steps 3
        under="$launch 2 --"
        judged $model.two --batch 6 --steps 3
        under=
        near_losses $model.two $model.one 1e-5 3
        ok $? "$model: two ranks share the pairs"
        under="$launch 2 --"
        judged $model.rows --batch 6 --steps 3 --context 2
        under=
        near_losses $model.rows $model.one 1e-5 3
        ok $? "$model: ... divide the rows of their tokens"
    elif [ $model = llava ]; then
        skip_some 2 "ranks cannot be started here"
    fi

    # --- a reward model ---
    ini $model pairs 5 3 | sed 's/^beta.*//; s/^eps.*//' >"$dir/rm.ini"
    train "$stages/lf-rm" "$dir/rm.ini" $model.rm --numeric invariant
    must test $rc -eq 0
    score() { # score NAME ROWS ARGS...
        _name=$1 _rows=$2
        shift 2
        "$stages/lf-score" --checkpoint "$dir/$model.rm/out/checkpoint" --tokenizer "$golden/$model" --processor "$golden/$model" --media-dir "$images" \
            --max-patches "${patches:-512}" --threads 1 --out "$dir/$_name" "$@" "$_rows" 2>"$dir/err" >/dev/null
        rc=$?
    }
    scores() { cat "$dir/$1/scores/scores.jsonl"; }
    score $model.s1 "$golden/pairs.jsonl"
    is "$rc $(scores $model.s1 | grep -c '"chosen":-\{0,1\}[0-9]')" "0 5" "$model: scores of pairs with pictures"
    patches=260 score $model.s2 "$golden/pairs.jsonl" --micro-tokens 256 --block 2
    is "$(scores $model.s2)" "$(scores $model.s1)" "$model: the same in other batches"
    sed 's/444.jpg/420.jpg/' "$golden/pairs.jsonl" >"$dir/other.jsonl"
    score $model.s3 "$dir/other.jsonl"
    is "$(scores $model.s1 | diff - "$dir/$model.s3/scores/scores.jsonl" | grep -c '^>')" 1 "$model: another picture, another score"

    # --- a policy ---
    cat >"$dir/ppo.ini" <<E2
[stage]
data = $dir/$model.prompts/shards
tokenizer = $golden/$model
init_from = $dir/$model/checkpoint
reward = length:4
threads = 1
max_patches = 256
max_prompt = 160
max_tokens = 8
round_prompts = 4
samples = 2
rounds = 2
minibatch = 4
lr = 1e-3
mfu = no
micro_tokens = 256
E2
    shape=prompt tokenize $model prompts "$dir/prompts.jsonl"
    must test $rc -eq 0
    policy $model.grpo --algorithm grpo
    is "$rc $(mismatches $model.grpo) $(member $model.grpo 1 ratio_max)" "0 0 1" \
        "$model: what is drawn has the bits of what is trained, before and after an update"
    policy $model.ppo --algorithm ppo --reward-model "$dir/$model.rm/out/checkpoint"
    is "$rc $(mismatches $model.ppo)" "0 0" "$model: with reference, critic and reward model"
    policy $model.lora --algorithm ppo --lora-rank 2 --lora-targets q --lora-targets 'vision.layers.*.attn.o.weight' --lora-targets 'projector.*'
    is "$rc $(mismatches $model.lora)" "0 0" "$model: with an adapter"
    tokenize $model chat "$golden/train.json"
    must test $rc -eq 0
    policy $model.ptx --algorithm ppo --rounds 1 --minibatch 8 --ptx-data "$dir/$model.chat/shards" --ptx-coef 0.5 --ptx-batch 5
    is "$rc $(mismatches $model.ptx) $(near "$(member $model.ptx 1 ptx_loss)" "$(head -n 1 "$golden/$model/losses")" 1e-5)" "0 0 near" \
        "$model: conversations with pictures beside the rewards have the loss of transformers"
    is "$(grep -c '"hf_config"' "$dir/$model.ppo/checkpoint/state.json") $(grep -c '"hf_config"' "$dir/$model.dpo/out/checkpoint/state.json")" "1 1" \
        "$model: config.json is handed on"
    [ $model = llava ] || break

    # --- kills, other pictures, ranks: one model tells ---
    mkdir "$dir/$model.cut"
    killed_often 2 "$dir/$model.cut.m" "$(bytes "$dir/$model.grpo.m")" "$stages/lf-ppo" --config "$dir/ppo.ini" --algorithm grpo \
        --out "$dir/$model.cut" --metrics "$dir/$model.cut.m" --save-interval 1
    policy $model.cut --algorithm grpo --save-interval 1
    is "$often $(identity $model.cut)" "1 $(identity $model.grpo)" "$model: killed and continued, the same bits"
    sed 's/444.jpg/420.jpg/; s/rgb8.png/444.jpg/' "$dir/prompts.jsonl" >"$dir/elsewhere.jsonl"
    shape=prompt tokenize $model elsewhere "$dir/elsewhere.jsonl"
    policy $model.elsewhere --algorithm grpo --data "$dir/$model.elsewhere/shards"
    [ $rc -eq 0 ] && [ "$(member $model.elsewhere 1 entropy)" != "$(member $model.grpo 1 entropy)" ]
    ok $? "$model: other pictures, another policy"
    echo '{"prompt": "No picture", "answer": "a"}' >"$dir/words.jsonl"
    echo '{"text": "No picture"}' >"$dir/texts.jsonl"
    must "$stages/lf-tokenize" --tokenizer "$golden/$model" --shape prompt --unmapped ignore --valid-fraction 0 --out "$dir/$model.words" "$dir/words.jsonl"
    beside() { # beside NAME ARGS...: prompts of words alone
        _beside=$1
        shift
        policy "$_beside" --algorithm grpo --rounds 1 --round-prompts 1 --minibatch 2 --data "$dir/$model.words/shards" \
            --ptx-data "$dir/$model.chat/shards" --ptx-coef 0.5 --ptx-batch 5 "$@"
    }
    beside $model.beside --max-tokens 64
    is "$rc $(near "$(member $model.beside 1 ptx_loss)" "$(head -n 1 "$golden/$model/losses")" 1e-5)" "0 near" \
        "$model: also beside prompts without any"
    beside $model.short
    says "4 of 5 documents of ptx_data have too many pictures for max_patches and max_tiles, or with these more than" \
        "$model: documents that do not fit whole are left out"
    beside $model.blind --max-patches 0 2>/dev/null
    says "has documents with pictures, and only text is taken here: give max_patches" "$model: and without room for any"
    tokenize $model texts "$dir/texts.jsonl"
    policy $model.texts --algorithm grpo --rounds 1 --round-prompts 1 --minibatch 2 --data "$dir/$model.words/shards" \
        --ptx-data "$dir/$model.texts/shards" --ptx-coef 0.5 --ptx-batch 1 --max-patches 0
    is "$rc" 0 "$model: documents of words need none, whatever they were prepared with"
    if have_ranks; then
        under="$launch 2 --"
        policy $model.ptx2 --algorithm ppo --rounds 1 --minibatch 8 --ptx-data "$dir/$model.chat/shards" --ptx-coef 0.5 --ptx-batch 5
        under=
        is "$rc $(near "$(member $model.ptx2 1 ptx_loss)" "$(member $model.ptx 1 ptx_loss)" 1e-5)" "0 near" "$model: two ranks share the documents"
        under="$launch 2 --"
        policy $model.two --algorithm ppo --rounds 1
        is "$rc $(mismatches $model.two)" "0 0" "$model: two ranks share the prompts"
        policy $model.zero --algorithm ppo --rounds 1 --zero 3
        is "$rc $(mismatches $model.zero)" "0 0" "$model: and their weights"
        policy $model.rows --algorithm ppo --rounds 1 --context 2
        is "$rc" 0 "$model: and the rows of micro-batches"
        under=
        policy $model.one --algorithm ppo --rounds 1
        for n in two zero rows; do
            "$infer" record "$dir/$model.$n.m" | sed 's/,"gen_s":.*//' >"$dir/x"
            "$infer" record "$dir/$model.one.m" | sed 's/,"gen_s":.*//' >"$dir/y"
            alike "$dir/x" "$dir/y" 1e-4
            ok $? "$model: to the numbers of one ($n)"
        done
    else
        skip_some 7 "ranks cannot be started here"
    fi
done

# --- a policy whose prompts see all of themselves ---
must "$stages/lf-convert" --from "$golden/paligemma" --out "$dir/paligemma" --verify none
sed 's/"id": "[^"]*", *//' "$golden/paligemma/prompts.jsonl" >"$dir/asked.jsonl"
shape=prompt tokenize paligemma prompts "$dir/asked.jsonl"
must test $rc -eq 0
sed -i.old "s/qwen2.5-vl/paligemma/" "$dir/ppo.ini"
policy paligemma.grpo --algorithm grpo
is "$rc $(mismatches paligemma.grpo) $(member paligemma.grpo 1 ratio_max)" "0 0 1" "paligemma: what is drawn has the bits of what is trained"
policy paligemma.ppo --algorithm ppo
is "$rc $(mismatches paligemma.ppo)" "0 0" "paligemma: with reference and critic"
mv "$dir/ppo.ini.old" "$dir/ppo.ini"

# --- scans beside pictures, without and with experts; ranks that divide the model ---
for model in qwen3.5-vl qwen3.5-vl-moe; do
    must "$stages/lf-convert" --from "$golden/$model" --out "$dir/$model" --verify none
    tokenize $model pairs "$golden/pairs.jsonl"
    must test $rc -eq 0
    shape=prompt tokenize $model prompts "$dir/prompts.jsonl"
    must test $rc -eq 0
    ini $model pairs 3 5 >"$dir/run.ini"
    judged $model.dpo
    as_reference $model.dpo $model dpo
    ok $? "$model: five steps of DPO as its formula says"
    judged $model.simpo --loss simpo
    as_reference $model.simpo $model simpo
    ok $? "$model: of SimPO"
    sed -i.old "s/qwen2.5-vl/$model/" "$dir/ppo.ini"
    policy $model.grpo --algorithm grpo
    is "$rc $(mismatches $model.grpo) $(member $model.grpo 1 ratio_max)" "0 0 1" "$model: what is drawn has the bits of what is trained"
    if have_ranks; then
        under="$launch 2 --"
        judged $model.pipeline --pipeline 2
        near_losses $model.pipeline $model.dpo 1e-5 5
        ok $? "$model: two stages of a pipeline, judged answers"
        judged $model.tensor --tensor 2
        near_losses $model.tensor $model.dpo 1e-5 5
        ok $? "$model: two ranks divide the matrices, judged answers"
        policy $model.two --algorithm grpo --tensor 2
        apart=$(near "$(member $model.two 1 mismatch_max)" 0 1e-5)
        is "$rc $apart $(near "$(member $model.two 1 entropy)" "$(member $model.grpo 1 entropy)" 1e-5)" "0 near near" \
            "$model: and draw with what they train, but for rounding"
        under=
    else
        skip_some 3 "ranks cannot be started here"
    fi
    mv "$dir/ppo.ini.old" "$dir/ppo.ini"
done

# --- samples while a model is trained, of documents and of requests; scores of a reward model's pairs ---
model=qwen2.5-vl
"$stages/lf-tokenize" --tokenizer "$golden/$model" --processor "$golden/$model" --shape auto --media-dir "$images" --valid-fraction 0.5 \
    --out "$dir/both" "$golden/pairs.jsonl" 2>"$dir/err" >/dev/null
ini $model pairs 3 1 >"$dir/run.ini"
texts() { grep '"step":1,' "$dir/$1/samples.jsonl" | grep -o '"token_ids":\[[0-9,]*\]'; }
sampled() { judged "$@" --valid-data "$dir/both/shards" --sample-interval 1 --sample-tokens 8 --sample-temperature 0 --tokenizer "$golden/$model" --lr 1e-12; }
cp "$golden/prompts.jsonl" "$images/rgb8.png" "$images/444.jpg" "$images/rgba8.png" "$images/420.jpg" "$dir"
sampled requests --sample-prompts "$dir/prompts.jsonl"
head -n 5 "$golden/$model/generated" | cut -d ' ' -f 1-8 | sed 's/ /,/g; s/.*/"token_ids":[&]/' >"$dir/want"
is "$rc $(texts requests)" "0 $(cat "$dir/want")" "samples of requests with pictures are the tokens of transformers"
sampled documents --sample-rows 3
is "$rc $(texts documents | wc -l | tr -d ' ') $(texts documents | head -n 2)" "0 3 $(head -n 2 "$dir/want")" "samples of documents with pictures: of two of them transformers' tokens are known"
train "$stages/lf-rm" "$dir/rm.ini" scored --numeric invariant --valid-data "$dir/both/shards" --sample-interval 3 --sample-rows 2 --tokenizer "$golden/$model"
grep '"step":3,' "$dir/scored/samples.jsonl" | grep -o '"score":[-0-9.e]*' | cut -d : -f 2 >"$dir/seen"
is "$rc $(wc -l <"$dir/seen" | tr -d ' ') $(grep -cwFf "$dir/seen" "$dir/$model.s1/scores/scores.jsonl")" "0 4 2" \
    "a reward model's scores of pairs while it is trained are those of lf-score"

# --- mistakes ---
judged none --max-patches 0 2>/dev/null
says "give max_patches" "pairs with pictures without room for any"
judged few --max-patches 130
says "max_patches = 480 and max_tiles = 4 hold those of each" "a pair whose pictures have no room is told of"
policy none --max-patches 0
says "give max_patches" "prompts with pictures without room for any"
policy few --max-patches 60
says "max_patches = 240 and max_tiles = 2 hold those of each" "pictures of which none has room"
"$stages/lf-score" --checkpoint "$dir/$model.rm/out/checkpoint" --tokenizer "$golden/$model" --threads 1 --out "$dir/blind" "$golden/pairs.jsonl" 2>"$dir/err" >/dev/null
is "$(grep -c 'pictures: give processor' "$dir/blind/scores/scores.jsonl")" 4 "rows with pictures are not scored blind"
for data in pairs prompts; do
    cp -r "$dir/$model.$data" "$dir/bad.$data"
    at=$(LC_ALL=C grep -obUa IHDR "$dir"/bad.$data/shards/train-*.h5 | head -n 1 | cut -d : -f 1)
    printf 'XXXX' | dd of="$(ls "$dir"/bad.$data/shards/train-*.h5)" bs=1 seek=$((at + 30)) conv=notrunc 2>/dev/null
done
judged broken --data "$dir/bad.pairs/shards" --verify-data no
says_like 'error: .*train-00000.h5: document [0-9]*, picture [0-9]*: PNG' "a damaged picture of a pair"
policy broken --data "$dir/bad.prompts/shards"
says_like 'error: .*train-00000.h5: document [0-9]*, picture [0-9]*: PNG' "a damaged picture of a prompt"

# --- a GPU, emulated ---
emulated_gpu
judged gpu --device cuda --steps 1 --loss simpo
{ losses gpu; losses $model.simpo | head -n 1; } | awk '{ x[NR] = $1 } END { d = x[1] - x[2]; exit NR != 2 || d > 1e-4 || d < -1e-4 }'
ok $? "a step of judged answers on a GPU"
policy gpu --algorithm grpo --rounds 1 --round-prompts 1 --minibatch 2 --micro-tokens 64 --max-patches 240 --max-tokens 2 --device cuda
is "$rc $(mismatches gpu)" "0 0" "a round on a GPU"
if have_ranks; then
    emulated_nccl
    under="$launch 2 --"
    judged gpu2 --device cuda --steps 1 --loss simpo --context 2
    under=
    { losses gpu2; losses gpu | head -n 1; } | awk '{ x[NR] = $1 } END { d = x[1] - x[2]; exit NR != 2 || d > 1e-5 || d < -1e-5 }'
    ok $? "and a step on two, which divide the rows of tokens"
else
    skip_some 1 "ranks cannot be started here"
fi
unset LF_CUDA_DRIVER LF_CUBLASLT
finish 67

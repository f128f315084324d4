#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Adapters of encoder and projector: trained as one rank and as two that divide matrices or layers, put into the files of PEFT by its
# names and read back, merged, measured beside their base; what cannot be is named.
. "$LF_SRCDIR/tests/stage/lib.sh"
golden=$LF_SRCDIR/tests/golden/vlm/run
images=$LF_SRCDIR/tests/golden/media/images
grep -q '^#define HAVE_PNG' "$LF_BUILDDIR/config.h" && grep -q '^#define HAVE_JPEG' "$LF_BUILDDIR/config.h" ||
    skip_all "a decoder of pictures is not built in"
with_ranks
convert() { "$stages/lf-convert" --threads 1 "$@" >"$dir/stdout" 2>"$dir/err"; }
# sft NAME ARGS...: four steps over all rows at once, with $under before the command
under=
sft() {
    _name=$1
    shift
    train "$under $stages/lf-sft" "$dir/run.ini" "$_name" "$@"
}
# wet NAME ARGS...: rows apart, with dropout
wet() {
    _name=$1
    shift
    train "$under $stages/lf-sft" "$dir/wet.ini" "$_name" --seq-length 64 --batch 6 "$@"
}
tensors() { head -c 20000 "$1/adapter_model.safetensors" | grep -ao '"base_model[^"]*"' | tr -d '"' | sort; }
measure() { # measure NAME ARGS...: the loss of all tokens
    _name=$1
    shift
    "$stages/lf-eval" --data "$dir/$model.tok/shards" --split train --threads 1 --out "$dir/$_name" "$@" >"$dir/stdout" 2>"$dir/err"
    sed -n 's/.*"token_loss[^:]*": *\([0-9.]*\).*/\1/p' "$dir/$_name/results/results.json" | head -n 1
}
for model in llava qwen2.5-vl; do
    must convert --from "$golden/$model" --out "$dir/$model" --verify none
    must "$stages/lf-tokenize" --tokenizer "$golden/$model" --processor "$golden/$model" --shape auto --media-dir "$images" \
        --valid-fraction 0 --out "$dir/$model.tok" "$golden/train.json"
    cat >"$dir/run.ini" <<E2
[stage]
init_from = $dir/$model/checkpoint
data = $dir/$model.tok/shards
mfu = no
seq_length = 256
batch = 1
max_patches = 512
steps = 4
lr = 1e-2
log_interval = 1
save_time = 0
threads = 1
lora_rank = 2
lora_targets = q
    projector.*
E2
    # modules as each program has them: CLIP with q, k and v apart, Qwen with one for them, and its gate apart
    [ $model = llava ] && parts='attn.[qkvo] mlp.*' moved=16 || parts='attn.qkv attn.o mlp.gate mlp.up mlp.down' moved=25
    set -f
    for p in $parts; do echo "    vision.layers.*.$p.weight"; done >>"$dir/run.ini"
    set +f
    sft $model.one
    losses $model.one | awk '{ x[NR] = $1 } END { exit !(NR == 4 && x[4] < x[1] - 0.1) }'
    ok $? "$model: adapters learn"
    is "$("$tool" moved "$dir/$model/checkpoint" "$dir/$model.one/out/checkpoint" 'model/*' | sed 's/ of .*//')" $moved "$model: and nothing else moves"
    if have_ranks; then
        under="$launch 2 --"
        sft $model.tensor --tensor 2
        near_losses $model.tensor $model.one 1e-5 4
        ok $? "$model: two ranks divide the matrices"
        sft $model.pipeline --pipeline 2
        near_losses $model.pipeline $model.one 1e-5 4
        ok $? "$model: two stages of a pipeline"
        under=
    else
        skip_some 2 "ranks cannot be started here"
    fi
    sft $model.dora --lora-dora
    convert --from "$dir/$model.dora/out/adapter" --out "$dir/$model.dora"
    ok $? "$model: DoRA goes out to PEFT"
    convert --from "$dir/$model.dora/peft" --base "$dir/$model/checkpoint" --out "$dir/$model.back"
    convert --from "$dir/$model.back/adapter" --out "$dir/$model.back"
    cmp "$dir/$model.dora/peft/adapter_model.safetensors" "$dir/$model.back/peft/adapter_model.safetensors" 2>>"$dir/err"
    ok $? "$model: what was written is read again"
    case $model in
    llava) block=model.vision_tower.encoder.layers.1. parts="self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.out_proj mlp.fc1 mlp.fc2" \
        ends="model.multi_modal_projector.linear_1 model.multi_modal_projector.linear_2" ;;
    *) block=model.visual.blocks.1. parts="attn.qkv attn.proj mlp.gate_proj mlp.up_proj mlp.down_proj" ends="model.visual.merger.mlp.0 model.visual.merger.mlp.2" ;;
    esac
    for m in $(for p in $parts; do echo "$block$p"; done) $ends; do
        for t in lora_A.weight lora_B.weight lora_magnitude_vector; do echo "base_model.model.$m.$t"; done
    done | sort >"$dir/names"
    tensors "$dir/$model.dora/peft" | comm -13 - "$dir/names" >"$dir/lacking"
    is "$(wc -l <"$dir/names" | tr -d ' ') $(cat "$dir/lacking")" "$((3 * ($(echo $parts $ends | wc -w)))) " "$model: by the names of PEFT"
    convert --from "$dir/$model.dora/out/adapter" --base "$dir/$model/checkpoint" --to checkpoint --out "$dir/$model.merged"
    grep -q '^MERGED: .* differ by [0-9.]*e-0[6-9]' "$dir/stdout"
    ok $? "$model: merged"
    plain=$(measure $model.m0 --checkpoint "$dir/$model/checkpoint")
    merged=$(measure $model.m1 --checkpoint "$dir/$model.merged/checkpoint")
    beside=$(measure $model.m2 --checkpoint "$dir/$model/checkpoint" --adapter "$dir/$model.back/adapter")
    echo "$plain $merged $beside" | awk '{ d = $2 - $3; exit !(NF == 3 && d < 1e-5 && d > -1e-5 && $1 > $2 + 0.02) }'
    ok $? "$model: pictures are seen with the adapter as with the weights that it was merged into: $plain, $merged, $beside"
    # --- dropout, of adapters of encoder and projector alone: each sample has its own, wherever it stands ---
    sed '/^lora_targets/s/q$/projector.*/; /^    projector/d' "$dir/run.ini" >"$dir/wet.ini"
    echo 'lora_dropout = 0.3' >>"$dir/wet.ini"
    sed -i 's/^max_patches.*/max_patches = 160/' "$dir/wet.ini"
    wet $model.dry --lora-dropout 0
    losses $model.dry >"$dir/dry"
    wet $model.wet
    losses $model.wet | paste -d ' ' - "$dir/dry" | awk '{ d = $1 - $2; d = d < 0 ? -d : d; if (NR == 1 ? d > 0 : d < 1e-3) bad = 1 } END { exit bad || NR != 4 }'
    ok $? "$model: dropout of encoder and projector changes what is learned"
    wet $model.wet.again --recompute full
    is "$(id $model.wet.again)" "$(id $model.wet)" "$model: recomputed, the same is dropped"
    wet $model.wet.micro --micro-batch 3 --max-patches 480
    near_losses $model.wet.micro $model.wet 1e-5 4
    ok $? "$model: in larger micro-batches, too"
    if have_ranks; then
        under="$launch 2 --"
        wet $model.wet.data --micro-batch 3 --max-patches 480
        near_losses $model.wet.data $model.wet 1e-5 4
        ok $? "$model: and where two ranks share the rows"
        wet $model.wet.tensor --tensor 2
        near_losses $model.wet.tensor $model.wet 1e-5 4
        ok $? "$model: ... divide the matrices"
        wet $model.wet.pipeline --pipeline 2
        near_losses $model.wet.pipeline $model.wet 1e-5 4
        ok $? "$model: ... have the layers"
        wet $model.wet.context --context 2 --micro-batch 3 --max-patches 480
        near_losses $model.wet.context $model.wet 1e-5 4
        ok $? "$model: ... divide the rows of tokens, and drop the same of the pictures"
        under=
        wet $model.lengths --lora-dora
        under="$launch 2 --"
        wet $model.lengths2 --lora-dora --tensor 2
        near_losses $model.lengths2 $model.lengths 1e-5 4
        ok $? "$model: ... divide the matrices, whose adapters are DoRA's"
        under=
    else
        skip_some 5 "ranks cannot be started here"
    fi
    emulated_gpu
    wet $model.wet.gpu --device cuda
    near_losses $model.wet.gpu $model.wet 1e-5 4
    ok $? "$model: ... and a GPU drops the same"
    unset LF_CUDA_DRIVER LF_CUBLASLT
done
# encoder alone: without decoder layers among the targets
sed -i '/^lora_targets/s/q$/vision.layers.0.attn.o.weight/; /^    /d' "$dir/run.ini"
sft alone
is "$rc $(ls "$dir/alone/out/adapter" | grep -c h5)" "0 1" "one matrix of the encoder"

# --- what cannot be ---
sft bad --lora-targets 'vision.*.up'
says "vision.layers.0.attn.qkv.weight and projector.fc1.weight" "a pattern that names no layer"
must "$stages/lf-features" --checkpoint "$dir/$model/checkpoint" --data "$dir/$model.tok/shards" --threads 1 --out "$dir/eyes"
wet beside --lora-targets 'projector.*'
wet given --lora-targets 'projector.*' --features "$dir/eyes/features"
near_losses given beside 1e-5 4
ok $? "dropout of a projector whose encoder's rows are given"
sft bad --features "$dir/eyes/features"
says "features are those of an encoder that is not trained" "features of the encoder without it"
finish 40

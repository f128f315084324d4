#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What a rank of each layout of LiBai's benchmark needs, by --plan: its BERT and GPT-2 of 24 layers (48 on 8 stages) of 1,024 channels in bf16 (fp16 takes as many bytes), batches
# and recomputation as there (docs/source/tutorials/get_started/Benchmark.md). With LF_SHOW=1 the table is printed that tests/bench/README.md has. The GPUs of
# that benchmark had 32 GB, as its users found; what fits there fits here.
. "$LF_SRCDIR/tests/stage/lib.sh"
LF_CUDA_DRIVER=$dir/no-driver
export LF_CUDA_DRIVER
must "$tool" data "$dir/data" 20 0

# model NAME LAYERS: $dir/libai.ini
model() {
    printf '[stage]\ndata = %s\nsteps = 10\nprecision = bf16\n' "$dir/data"
    case $1 in
    bert) printf 'objective = mlm\nmask_token = 5\nseq_length = 512\n' && _preset=bert-large ;;
    gpt2) printf 'seq_length = 1024\n' && _preset=gpt2-355m ;;
    esac
    sed "s/^layers = .*/layers = $2/" "$LF_SRCDIR/models/$_preset.ini"
}
largest() { grep -o '"total": *[0-9]*' "$dir/stdout" | grep -o '[0-9]*$' | sort -n | tail -n 1; }
# row MODEL DATA TENSOR PIPELINE MICRO_BATCH GLOBAL_BATCH RECOMPUTE: planned, and $most is what the rank that needs most of all needs
row() {
    _layers=24
    [ "$4" -lt 8 ] || _layers=48
    model "$1" $_layers >"$dir/libai.ini"
    _tensor=
    [ "$3" -eq 1 ] || _tensor="--tensor $3"
    [ "$4" -eq 1 ] || _tensor="$_tensor --pipeline $4"
    # shellcheck disable=SC2086
    "$pretrain" --config "$dir/libai.ini" --plan --ranks $(($2 * $3 * $4)) --micro-batch "$5" --batch "$6" --recompute "$7" $_tensor >"$dir/stdout" 2>"$dir/err"
    rc=$?
    most=$(largest)
}

# fits DATA,TENSOR,PIPELINE BERT: MICRO GLOBAL, GPT-2: MICRO GLOBAL, RECOMPUTE: one row of the table
fits() {
    IFS=, read -r _d _t _p <<END
$1
END
    row bert "$_d" "$_t" "$_p" "$2" "$3" "$6"
    _bert=${most:-0}
    row gpt2 "$_d" "$_t" "$_p" "$4" "$5" "$6"
    _gpt2=${most:-0}
    [ "${LF_SHOW:-0}" = 0 ] || awk -v a="$1 $2/$3 $4/$5 $6" -v b="$_bert" -v g="$_gpt2" 'BEGIN { split(a, w, " "); gsub(",", " x ", w[1])
        printf "| %s | %s | %.1f | %s | %.1f | %s |\n", w[1], w[2], b / 1e9, w[3], g / 1e9, w[4] }'
    [ "$_bert" -gt 0 ] && [ "$_bert" -lt 32000000000 ] && [ "$_gpt2" -gt 0 ] && [ "$_gpt2" -lt 32000000000 ]
    ok $? "data, tensor, pipeline $1: BERT $2 of $3 takes $_bert, GPT-2 $4 of $5 $_gpt2 bytes" "$(cat "$dir/err")"
}
fits 1,1,1 24 24 6 6 none
fits 4,1,1 16 64 4 16 none
fits 8,1,1 16 128 4 32 none
fits 32,1,1 16 512 4 128 none
fits 1,4,1 128 1024 6 6 full
fits 1,8,1 128 1024 8 8 full
fits 1,1,4 128 1024 32 256 full
fits 1,1,8 64 1024 24 384 full
fits 2,2,1 128 2048 32 512 full
fits 8,2,1 128 8192 32 2048 full
fits 2,8,1 128 2048 32 512 full
fits 4,4,1 128 2048 32 512 full
fits 2,1,4 128 2048 32 512 full
fits 8,1,4 128 8192 32 2048 full
fits 2,2,4 128 2048 32 1024 full
fits 4,2,4 192 6144 48 1536 full
fits 2,4,4 256 4096 64 1024 full

# T5 with 24 layers of 1,024 channels on each side at the same layouts, and Swin-B, with and without divided matrices.
t5() { # t5 DATA TENSOR PIPELINE MICRO GLOBAL RECOMPUTE: total in $most
    {
        printf '[stage]\ndata = %s\nsteps = 10\nprecision = bf16\nobjective = span\nseq_length = 512\nsource_length = 512\nsentinel_token = 32099\n' "$dir/data"
        sed 's/^layers = .*/layers = 24/; s/^encoder_layers = .*/encoder_layers = 24/; s/^hidden = .*/hidden = 1024/; s/^heads = .*/heads = 16/; s/^ffn = .*/ffn = 4096/' \
            "$LF_SRCDIR/models/t5-base.ini"
    } >"$dir/libai.ini"
    "$pretrain" --config "$dir/libai.ini" --plan --ranks $(($1 * $2 * $3)) --tensor "$2" --pipeline "$3" --micro-batch "$4" --batch "$5" --recompute "$6" \
        >"$dir/stdout" 2>"$dir/err"
    most=$(largest)
}
swin() { # swin DATA MICRO ZERO RECOMPUTE [TENSOR]
    { printf '[stage]\ndata = %s\nobjective = classes\nsteps = 10\nprecision = bf16\n' "$dir/data"; cat "$LF_SRCDIR/models/swin-base.ini"; } >"$dir/libai.ini"
    "$pretrain" --config "$dir/libai.ini" --plan --ranks $(($1 * ${5:-1})) --tensor "${5:-1}" --micro-batch "$2" --batch $(($1 * $2)) --max-patches $(($2 * 3136)) --max-tiles "$2" --zero "$3" \
        --recompute "$4" >"$dir/stdout" 2>"$dir/err"
    most=$(largest)
}
other() { # other NAME WORDS...: planned, and fits
    _what=$*
    "$@"
    [ "${LF_SHOW:-0}" = 0 ] || awk -v w="$_what" -v b="${most:-0}" 'BEGIN { printf "| %s | %.1f |\n", w, b / 1e9 }'
    [ "${most:-0}" -gt 0 ] && [ "$most" -lt 32000000000 ]
    ok $? "$_what: $most bytes" "$(cat "$dir/err")"
}
other t5 1 1 1 16 16 full
other t5 1 4 1 64 512 full
other t5 1 1 4 64 512 full
other t5 2 2 1 64 1024 full
other t5 2 2 4 64 1024 full
other t5 4 2 4 96 3072 full
other swin 1 32 0 none
other swin 8 32 0 none
other swin 8 32 3 none
other swin 32 128 1 full
other swin 1 64 0 full 4
other swin 2 64 0 full 2

# With everything computed again a layer holds what it reads, of each micro-batch under way, and nothing that ranks sum or gather: 16,384 rows of 1,024 channels in
# bf16, which ranks that divide rows have a quarter of each. Sums in f32 would be two more of them each.
held() { # held MODEL OPTIONS...: bytes of activations of a layer
    _model=$1 _few=
    shift
    for _layers in 4 8; do
        model "$_model" $_layers >"$dir/libai.ini"
        "$pretrain" --config "$dir/libai.ini" --plan --ranks 4 --tensor 4 --seq-length 512 --micro-batch 32 --batch 32 --recompute full "$@" >"$dir/stdout" 2>"$dir/err" || return
        _bytes=$(grep -o '"activations": *[0-9]*' "$dir/stdout" | grep -o '[0-9]*$')
        [ $_layers = 4 ] && _few=$_bytes
    done
    echo $(((_bytes - _few) / 4))
}
for m in bert gpt2; do
    is "$(held $m)" $((16384 * 1024 * 2)) "$m, tensor = 4: a layer more holds its input"
    is "$(held $m --sequence-parallel)" $((16384 * 1024 * 2 / 4)) "  rows divided: a quarter of it"
done
finish 33

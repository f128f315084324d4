#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Sharded state beside the other options of training stages: each line of the table below is one of them, and ranks that divide (zero = 1, 2,
# 3, and in groups) end with the bits of ranks that keep everything: the checkpoint, the metrics, the samples. tests/stage/zero.sh has what
# pretraining does most.
. "$LF_SRCDIR/tests/stage/lib.sh"
with_ranks

need_ranks

must "$tool" data "$dir/data" 200 400
must "$tool" pairs "$dir/pairs" 60 20
must "$tool" labels "$dir/labels" 60 20
cat >"$dir/model.ini" <<END
[stage]
data = $dir/data
steps = 2
seq_length = 32
batch = 2
micro_batch = 1
valid_tokens = 256
lr = 5e-3
threads = 1
mfu = no
[model]
family = llama3
layers = 2
hidden = 64
heads = 4
kv_heads = 2
ffn = 144
vocab = 512
max_positions = 64
END
must "$stages/lf-pretrain" --config "$dir/model.ini" --out "$dir/base"
cat >"$dir/stage.ini" <<END
[stage]
init_from = $dir/base/checkpoint
steps = 3
seq_length = 64
lr = 1e-3
clip = 0.1
save_time = 0
valid_interval = 2
valid_tokens = 256
threads = 1
mfu = no
END
# on RANKS NAME STAGE ARGS...: output below $dir/NAME, exit code in $rc; one micro-batch for each rank
on() {
    _ranks=$1 _name=$2 _stage=$3
    shift 3
    mkdir -p "$dir/$_name"
    _ini=$dir/stage.ini
    [ "$_stage" != pretrain ] || _ini=$dir/model.ini
    $launch "$_ranks" -- "$stages/lf-$_stage" --config "$_ini" --micro-batch 1 --batch "$_ranks" --out "$dir/$_name/out" \
        --metrics "$dir/$_name/metrics" "$@" >"$dir/stdout" 2>"$dir/err"
    rc=$?
}
ends() { # ends NAME: all that a run leaves but times
    id "$1"
    [ ! -e "$dir/$1/out/adapter" ] || id "$1" adapter
    metrics "$1" | cksum
    [ ! -e "$dir/$1/samples.jsonl" ] || cksum <"$dir/$1/samples.jsonl"
}
on 1 first sft --data "$dir/data" --lora-rank 4
is $rc 0 "an adapter to go on with" "$(tail -n 3 "$dir/err")"
divided() { case $1 in */*) echo "--zero ${1%/*} --zero-inner ${1#*/}" ;; *) echo "--zero $1" ;; esac; }
while read -r ranks by zeros stage args; do
    case $ranks in '#'*) continue ;; esac
    args=$(eval "echo \"$args\"")
    # shellcheck disable=SC2046,SC2086
    on "$ranks" whole "$stage" $args $(divided "$by")
    _whole=$rc _bits=$(ends whole)
    for z in $(echo "$zeros" | tr , ' '); do
        # shellcheck disable=SC2046,SC2086
        on "$ranks" part "$stage" $args $(divided "$z")
        is "$_whole $rc $(ends part)" "0 0 $_bits" "$ranks ranks, zero = $z: $stage $(echo "$args" | sed "s,$dir/,,g")" "$(tail -n 3 "$dir/err")"
        rm -rf "$dir/part"
    done
    rm -rf "$dir/whole"
done <<'END'
# RANKS ZERO ZERO,... STAGE ARGS...: the first has the bits of the others; ZERO/INNER: in groups
2 0 1,2,3 rm --data $dir/pairs
2 0 3 rm --data $dir/pairs --precision bf16 --lora-rank 4 --sample-interval 2 --sample-rows 2
4 0 1,2,3 rm --data $dir/pairs --precision bf16 --moments bf16 --masters bf16 --centre 0.1
4 1/2 2/2,3/2 rm --data $dir/pairs
2 0 1,2,3 dpo --data $dir/pairs
4 1/2 2/2,3/2 dpo --data $dir/pairs --lora-rank 4
2 0 3 dpo --data $dir/pairs --loss ipo --precision bf16 --lora-rank 4 --lora-dora --moments bf16
4 0 2,3 dpo --data $dir/pairs --loss orpo --precision bf16 --recompute full --freeze layers.0.*
2 0 1,3 dpo --data $dir/pairs --loss simpo --sample-interval 2 --sample-rows 2 --sample-tokens 8
2 0 1,2,3 dpo --data $dir/labels --loss kto
2 0 1,2,3 sft --data $dir/data --lora-rank 4 --precision bf16 --moments bf16 --lora-targets all
2 0 3 sft --data $dir/data --lora-rank 4 --lora-scaling root --lora-dropout 0.2 --neftune-alpha 5 --precision bf16
2 0 1,2,3 sft --data $dir/data --lora-rank 4 --adapter $dir/first/out/adapter
2 0 2,3 sft --data $dir/data --freeze layers.*.attn.* --moments bf16
2 0 1,2,3 sft --data $dir/data --packing bfd --numeric invariant --precision bf16 --masters bf16 --keep-best --valid-interval 1
2 0 1,2 pretrain --precision fp8
2 0 1,2,3 pretrain --z-loss 1e-3 --schedule wsd --decay 1 --warmup 1
END
on 2 whole sft --data "$dir/data"
_bits=$(ends whole)
on 2 part sft --data "$dir/data" --zero 3 --lr 1.0001e-3
[ "$rc" -eq 0 ] && [ "$(ends part)" != "$_bits" ]
ok $? "a learning rate a little off is seen"
finish 41

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Sharded state on emulated GPUs (zero = 1, 2, 3): the checkpoints and metrics of ranks that keep everything, bit for bit, in f32, bf16
# and fp16, with tied weights, samples and magnitudes of an adapter, in every order in which streams may run, over NCCL and through the host; several micro-batches; groups of
# ranks; resumed with and without it and on other numbers of ranks; a rank that is killed, a collective that fails; memory, what is refused.
. "$LF_SRCDIR/tests/stage/lib.sh"
with_ranks
emulated_gpu
emulated_nccl

need_ranks
"$tool" data "$dir/data" 60 40 || bail "no test data"
cat >"$dir/run.ini" <<EOF
[stage]
data = $dir/data
device = cuda
steps = 3
seq_length = 16
batch = 2
micro_batch = 1
valid_interval = 2
valid_tokens = 48
save_interval = 2
keep = 9
save_time = 0
lr = 5e-3
warmup = 1
clip = 0.1
seed = 5
threads = 1
[model]
family = llama3
layers = 2
hidden = 64
heads = 2
kv_heads = 1
ffn = 128
vocab = 256
max_positions = 16
EOF
step() { sed -n 's/.*"identity": *"\([^"]*\)".*/\1/p' "$dir/$1/out/checkpoints/step-0000000$2/manifest.json"; }
all() { echo "$(id "$1") $(step "$1" 2) $(metrics "$1" | cksum)"; }
# same RANKS STAGES ARGS...: without and with each stage the same checkpoints and metrics; left in w and z
same() {
    _ranks=$1 _stages=$2
    shift 2
    rm -rf "$dir/w"
    on "$_ranks" w "$@"
    _want=$(all w)
    for z in $_stages; do
        rm -rf "$dir/z"
        on "$_ranks" z --zero "$z" "$@"
        is "$rc $(all z)" "0 $_want" "$_ranks GPUs $*, zero = $z: the bits of GPUs that keep everything" "$(tail -n 2 "$dir/err")"
    done
}
# One micro-batch for each rank. The emulated NCCL adds in the order of the ranks, as zero = 2 and 3 do anywhere.
same 4 "1 2 3" --batch 4 --precision bf16
same 2 3 --precision bf16 --moments bf16 --masters bf16 --optimizer-offload 1
same 2 "2 3" --precision fp16 --loss-scale 0 --loss-scale-start 65536
cp "$dir/run.ini" "$dir/llama.ini"
sed -i 's/^family = .*/family = gpt2/; /^kv_heads/d' "$dir/run.ini"
same 2 "2 3" --precision bf16
cp "$dir/llama.ini" "$dir/run.ini"
same 2 "1 2 3"
says_like "step 3/3 .* grad [1-9]" "and their gradients are clipped"
for order in 1 7; do
    LF_EMU_ORDER=$order on 2 o$order --zero 3
    is "$rc $(all o$order)" "0 $_want" "order $order of the streams: the same bits"
done
LF_CUDA_GRAPHS=0 on 2 plain --zero 3
is "$rc $(all plain)" "0 $_want" "and without recorded graphs"
for z in 2 3; do
    LF_COMM=ucx on 2 host$z --zero $z
    is "$rc $(all host$z)" "0 $_want" "zero = $z through memory of the host: the same bits"
done

# --- whole weights: for samples, and for the magnitudes of an adapter ---
mv "$dir/w" "$dir/w.f32"
mv "$dir/z" "$dir/z.f32"
sed -i 's/^layers = .*/layers = 1/; s/^hidden = .*/hidden = 16/; s/^heads = .*/heads = 1/; s/^ffn = .*/ffn = 32/; s/^vocab = .*/vocab = 64/' "$dir/run.ini"
same 2 3 --valid-interval 0 --precision bf16 --sample-interval 3 --sample-rows 2 --sample-tokens 4
cp -r "$dir/w" "$dir/base"
cmp "$dir/z/samples.jsonl" "$dir/w/samples.jsonl" 2>"$dir/err" && [ "$(grep -c '"token_ids":' "$dir/z/samples.jsonl")" -eq 2 ]
ok $? "and the samples of a model that GPU 0 has all of" "$(tail -n 2 "$dir/err")"
pretrain=$stages/lf-sft
sed '/^\[model\]/,$d; /^valid/d' "$dir/llama.ini" >"$dir/run.ini"
echo "init_from = $dir/base/out/checkpoint" >>"$dir/run.ini"
same 2 "1 3" --lora-rank 2 --lora-dora --valid-tokens 48
pretrain=$stages/lf-pretrain
cp "$dir/llama.ini" "$dir/run.ini"
rm -rf "$dir/w" "$dir/z"
mv "$dir/w.f32" "$dir/w"
mv "$dir/z.f32" "$dir/z"

# --- more ranks, orders of streams, precisions and models: cuda_zero_long.sh ---
more=0
if [ -n "${CUDA_ZERO_LONG-}" ]; then
    more=33
    cp -r "$dir/w" "$dir/f32"
    for order in 0 1 3 7; do
        LF_EMU_ORDER=$order
        export LF_EMU_ORDER
        same 4 "2 3" --batch 4
        same 3 "2 3" --batch 3 --precision bf16 --recompute full
    done
    unset LF_EMU_ORDER
    same 2 3 --precision fp16 --recompute full
    same 2 "1 2 3" --precision bf16 --moments bf16 --masters bf16
    LF_CUBLASLT=$LF_CUDA_DRIVER
    same 2 "1 2" --precision fp8
    LF_CUBLASLT=none
    for comm in auto ucx; do LF_COMM=$comm on 4 g$comm --batch 4 --zero 3 --zero-inner 2; done
    is "$rc $(all gucx)" "0 $(all gauto)" "two groups through memory of the host: the same bits"
    sed 's/^family = .*/family = qwen2-moe/' "$dir/llama.ini" >"$dir/run.ini"
    cat >>"$dir/run.ini" <<EOF
experts = 4
experts_per_token = 2
expert_ffn = 32
shared_ffn = 64
router_bias = yes
router_bias_rate = 0.01
router_aux = 0.01
EOF
    same 2 "1 2 3" --precision bf16
    for z in 1 2 3; do on 4 e$z --batch 4 --zero $z --zero-inner 2; done
    is "$rc $(all e2) $(all e3)" "0 $(all e1) $(all e1)" "experts with balanced biases in two groups: the same bits"
    pretrain=$stages/lf-sft
    sed '/^\[model\]/,$d; /^valid/d' "$dir/llama.ini" >"$dir/run.ini"
    echo "init_from = $dir/f32/out/checkpoint" >>"$dir/run.ini"
    same 2 "1 2 3" --lora-rank 4 --lora-dropout 0.1
    same 2 "2 3" --freeze 'layers.0.*' --precision bf16
    pretrain=$stages/lf-pretrain
    cp "$dir/llama.ini" "$dir/run.ini"
    same 2 3
fi

waits() { # waits STEPS: how often the host of rank 0 waits for its GPU
    mkdir -p "$dir/waits$1"
    $launch 2 -- sh -c "LF_EMU_REPORT='$dir/calls'\$PMIX_RANK exec '$pretrain' --config '$dir/run.ini' --out '$dir/waits$1/out' \
        --metrics '$dir/waits$1/metrics' --zero 3 --valid-interval 0 --save-interval 0 --steps $1" 2>"$dir/err"
    sed -n 's/.*"waits": \([0-9]*\).*/\1/p' "$dir/calls0"
}
is $(($(waits 12) - $(waits 6))) 6 "one wait in a step with zero = 3"

# --- several micro-batches, not as many on each rank ---
for z in 0 2 3; do on 2 m$z --batch 5 --zero $z; done
is "$rc $(all m3)" "0 $(all m2)" "a batch of 5: the same bits with zero = 2 and 3"
near_losses m3 m0 1e-5 3
ok $? "and the losses of zero = 0"

# --- groups of ranks ---
on 4 g0 --batch 4
for z in 1 2 3; do on 4 g$z --batch 4 --zero $z --zero-inner 2; done
is "$rc $(all g2) $(all g3)" "0 $(all g1) $(all g1)" "two groups of two GPUs: the same bits with each stage" "$(tail -n 2 "$dir/err")"
near_losses g3 g0 1e-5 3
ok $? "and the losses of four GPUs that have everything"

# --- resumed with it and without, on other numbers of ranks ---
go() { # go FROM RANKS NAME ARGS...: on from step 2
    mkdir -p "$dir/$3/out/checkpoints"
    cp -r "$dir/$1/out/checkpoints/step-00000002" "$dir/$3/out/checkpoints/"
    cp "$dir/$1/metrics" "$dir/$3/metrics"
    shift
    on "$@"
}
go z 2 off
is "$rc $(id off)" "0 $(id w)" "the checkpoint of zero = 3 goes on without it to the bits of a run that was not stopped"
go w 2 to3 --zero 3
is "$rc $(id to3)" "0 $(id w)" "and one without it with zero = 3"
go g3 2 fewer --batch 4 --zero 2
near_losses fewer g0 1e-5 3
is "$rc $?" "0 0" "two GPUs go on from the parts of two groups"
go g3 1 alone --batch 4
near_losses alone g0 1e-5 3
is "$rc $?" "0 0" "and one GPU does"
go m2 4 more --batch 5 --zero 3
near_losses more m0 1e-5 3
is "$rc $?" "0 0" "four GPUs go on from the parts of two"

# --- what fails ---
for z in 2 3; do
    FAKE_NCCL_FAIL=40:1 on 2 refused$z --zero $z
    is $rc 1 "zero = $z: a collective that fails on one GPU ends both with 1"
    says_like "NCCL: .* on rank 1.*internal error" "and is named"
done
on 2 refused3 --zero 3
is "$rc $(id refused3)" "0 $(id w)" "which a new start makes good"
FAKE_NCCL_FAIL=60:1 on 4 refused4 --batch 4 --zero 3 --zero-inner 2
is $rc 1 "in two groups, where the second GPU of each fails"
says_like "NCCL: .* on rank 3.*internal error" "the one of the second group is rank 3"
beyond=1 # steps are slow here
rank_killed 2 "--zero 3" --valid-interval 0

# --- the plan ---
bytes() { # bytes RANKS ZERO KIND ARGS...
    _ranks=$1 _zero=$2 _kind=$3
    shift 3
    "$pretrain" --config "$dir/run.ini" --plan --ranks "$_ranks" --zero "$_zero" "$@" | sed -n "s/.*\"$_kind\":\([0-9]*\)[.,}].*/\1/p"
}
share() { # share KIND STAGE: the GPU of four that has most has about its share of a kind; cuts of a small model are coarse
    _part=$(bytes 4 "$2" "$1" --batch 4) _all=$(bytes 4 0 "$1" --batch 4)
    [ "$_part" -ge $((_all / 8)) ] && [ "$_part" -le $((_all / 2)) ]
    ok $? "four GPUs, zero = $2: $1 of one take $_part bytes of $_all"
}
share optimizer 1
share grads 2
share params 3
moved() { bytes 4 "$1" bytes_per_step --batch 8; }
[ "$(moved 0)" -lt "$(moved 1)" ] && [ "$(moved 2)" -lt "$(moved 3)" ]
ok $? "what moves in a step is in the plan: $(moved 0), $(moved 1), $(moved 2) and $(moved 3) bytes"
refused() { # refused TEXT ARGS...: by name, before a device is opened
    _text=$1
    shift
    LF_EMU_MEMORY=0 on 2 none "$@"
    is $rc 1 "$* is refused"
    says "$_text" "by name"
}
refused "zero = 3 with precision fp8" --precision fp8 --zero 3
refused "zero_inner = 3" --zero 2 --zero-inner 3

# --- a model that does not fit one GPU ---
LF_EMU_MEMORY=-1
for kind in params grads optimizer activations workspace inputs; do LF_EMU_MEMORY=$((LF_EMU_MEMORY + $(bytes 2 0 $kind))); done
export LF_EMU_MEMORY
on 2 small
is $rc 1 "GPUs with a byte less than the model needs do not hold it: $LF_EMU_MEMORY"
says_like "the plan needs .* of its memory" "which is the reason"
on 2 large --zero 3
is "$rc $(all large)" "0 $(all w)" "with zero = 3 they do"
finish $((51 + more))

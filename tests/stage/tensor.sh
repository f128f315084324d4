#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Divided matrices (tensor = 2, 4, 8; with and without sequence_parallel): the losses, norms and validations of one rank, for dense models, few heads of keys,
# tied weights, experts and adapters, in f32, bf16 and fp8, alone and with ranks that share the batch and state; every stage of training; checkpoints resumed on
# other layouts; killed; damaged data; what is planned and what is refused.
. "$LF_SRCDIR/tests/stage/lib.sh"
. "$LF_SRCDIR/tests/stage/layout_lib.sh"
with_ranks
need_ranks

must "$tool" data "$dir/data" 300 1000
must "$tool" pairs "$dir/pairs" 24 4
must "$tool" labels "$dir/labels" 24 4

# --- models ---
use llama3 1000 2 "kv_heads = 2"
saves=2
trial "few heads of keys" pretrain 2e-5 "2:tensor=2 2:tensor=2+sequence-parallel 4:tensor=4+sequence-parallel 4:tensor=2+zero=1 4:tensor=2+zero=2 \
    8:tensor=4+sequence-parallel+zero=3 6:tensor=2 8:tensor=8"
saves=0
trial "bf16" pretrain 2e-2 "2:tensor=2+sequence-parallel 4:tensor=2+zero=1" --precision bf16
# What is rounded to 8 bits differs by the order of sums, and at a rate at which the norm grows fivefold such steps lead apart.
trial "8-bit products" pretrain 2e-2 "2:tensor=2+sequence-parallel" --precision fp8 --fp8-edges 0 --lr 1e-3
trial "recomputation" pretrain 2e-5 "2:tensor=2+sequence-parallel" --recompute full
use gpt2 1000 2
trial "tied weights, positions, biases" pretrain 2e-5 "2:tensor=2+sequence-parallel 4:tensor=4+zero=1"
use qwen2-moe 1000 2 "kv_heads = 4" "experts = 4" "experts_per_token = 2" "expert_ffn = 64" "shared_ffn = 64" "router_aux = 0.01"
trial "experts" pretrain 2e-5 "2:tensor=2+sequence-parallel 4:tensor=2"

# --- other stages, from weights that four ranks have made ---
use llama3 1000 2 "kv_heads = 2"
sed -i '/^\[model\]/,$d' "$dir/run.ini"
_few="few heads of keys"
echo "init_from = $dir/$_few.4:tensor=4+sequence-parallel/out/checkpoint" >>"$dir/run.ini"
trial "an adapter" sft 2e-5 "4:tensor=2+zero=1" --lora-rank 4
magnitudes="--lora-rank 4 --lora-dora --lora-targets qkv --lora-targets o --lora-targets down"
saves=2
# shellcheck disable=SC2086
trial "magnitudes, a fused group" sft 2e-6 "2:tensor=2+sequence-parallel 4:tensor=4+zero=3" $magnitudes
saves=0
_m="magnitudes, a fused group" _from="4:tensor=4+zero=3"
far() { "$tool" distance "$dir/$_m.$_from/out/$1" "$dir/$_m.one/out/$1" | awk '{ print $2 }'; }
echo "$(far adapter) $(far checkpoint)" | awk '{ exit !($1 > 0 && $1 < 1e-4 && $2 > 0 && $2 < 1e-5) }'
ok $? "the adapter is one rank's, apart by $(far adapter), the merged model by $(far checkpoint)"
mkdir -p "$dir/more/out/checkpoints"
cp -r "$dir/$_m.$_from/out/checkpoints/step-00000002" "$dir/more/out/checkpoints/"
cp "$dir/$_m.$_from/metrics" "$dir/more/metrics"
# shellcheck disable=SC2086
train "$launch 2 -- $stages/lf-sft" "$dir/run.ini" more --tensor 2 $magnitudes
[ $rc -eq 0 ] && agree more "$_m.one" 2e-6
ok $? "it goes on from step 2 on two ranks: apart by $apart" "$(tail -n 3 "$dir/err")"
trial "frozen layers" sft 2e-5 "2:tensor=2" --freeze 'layers.0.*'
trial "dpo" dpo 2e-5 "2:tensor=2 4:tensor=2+sequence-parallel" --data "$dir/pairs" --valid-tokens 64
trial "kto" dpo 2e-5 "2:tensor=2" --data "$dir/labels" --loss kto --valid-tokens 64
trial "an adapter, its own reference" dpo 2e-5 "4:tensor=4" --data "$dir/pairs" --lora-rank 4 --valid-tokens 64
trial "rm" rm 2e-5 "2:tensor=2+sequence-parallel 4:tensor=2+zero=1" --data "$dir/pairs" --valid-tokens 64 --lr 5e-4

# --- checkpoints: of any layout, resumed on any other ---
use llama3 1000 2 "kv_heads = 2"
again "$_few.one" 1
again "$_few.one" 8 --tensor 8
again "$_few".4:tensor=4+sequence-parallel 1
again "$_few".4:tensor=4+sequence-parallel 2
again "$_few".4:tensor=4+sequence-parallel 4 --tensor 2 --zero 1
again "$_few".8:tensor=8 3 --zero 2
again "$_few".4:tensor=2+zero=1 4 --tensor 4 --sequence-parallel
again "$_few".2:tensor=2 2 --zero 3
go "$_few.2:tensor=2+sequence-parallel" 2 bitwise --tensor 2 --sequence-parallel
_two=$_few.2:tensor=2+sequence-parallel
is "$rc $(id bitwise) $(metrics bitwise | cksum)" "0 $(id "$_two") $(metrics "$_two" | cksum)" "with the same layout: the same bits"
says "bitwise" "and the log says so"
rank_killed 4 "" --tensor 2 --zero 1 --batch 2
data_damaged 4 --tensor 2 --batch 4

# --- nodes ---
# A stand-in for ssh: a daemon on this machine that takes the name of the host.
mkdir "$dir/bin"
cat >"$dir/bin/ssh" <<'END'
#!/bin/sh
host=$6
shift 6
exec env -i PATH=/usr/bin:/bin HOME="$HOME" TMPDIR="$TMPDIR" SLURMD_NODENAME="$host" sh -c "cd / && $*"
END
chmod 755 "$dir/bin/ssh"
on_nodes() { # on_nodes NODES NAME ARGS...: ranks on these nodes
    _nodes=$1 _name=$2
    shift 2
    train "env PATH=$dir/bin:$PATH $LF_BUILDDIR/loong-flow launch --hosts $_nodes -- $stages/lf-pretrain" "$dir/run.ini" "$_name" "$@"
}
on_nodes a:2,b:2 nodes --tensor 2 --zero 1
_four=$_few.4:tensor=2+zero=1
is "$rc $(id nodes) $(metrics nodes | cksum)" "0 $(id "$_four") $(metrics "$_four" | cksum)" "two nodes: pairs inside of nodes, the same bits" \
    "$(tail -n 3 "$dir/err")"
on_nodes a:2,b:2 wide --tensor 4
is $rc 1 "matrices that two nodes would divide are refused"
says_like 'tensor = 4: ranks 0 and 2 divide matrices and are on two nodes (a, b)' "with the names of both"
on_nodes a:3,b:1 uneven --tensor 2
is $rc 1 "and so are pairs where a node has three ranks"
says_like 'tensor = 2: ranks 2 and 3 divide matrices and are on two nodes (a, b)' "with the pair"

# --- the plan ---
plan() { "$stages/lf-pretrain" --config "$dir/run.ini" --plan --ranks "$@" 2>"$dir/err" | sed -n 's/.*"params":\([0-9]*\)[.,}].*/\1/p'; }
one=$(plan 2) half=$(plan 2 --tensor 2)
[ "$half" -ge $((one / 2)) ] && [ "$half" -le $((one * 6 / 10)) ]
ok $? "two ranks with tensor = 2: weights of a rank take $half bytes of $one"
is "$(plan 4 --tensor 2)" "$half" "and as many where others share the batch"
refused "--ranks 3 --tensor 2" "tensor = 2: 3 ranks cannot form such groups"
refused "--ranks 2 --sequence-parallel" "set tensor to 2 or more"
refused "--ranks 6 --tensor 3" "do not divide among 3 ranks (tensor)"
refused "--ranks 16 --tensor 16" "heads = 8 do not divide among 16 ranks (tensor); take a tensor that divides heads"
refused "--ranks 2 --tensor 2 --sequence-parallel --seq-length 33 --micro-batch 1" "make seq_length a multiple of 2"
"$stages/lf-sft" --plan --data "$dir/data" --init-from "$dir/not-yet" --ranks 4 --tensor 2 --pipeline 2 >"$dir/stdout" 2>"$dir/err"
grep -q '"data":1,"pipeline":2,"sequence":false,"tensor":2' "$dir/stdout" && grep -qF "does not exist yet" "$dir/stdout"
ok $? "axes are planned of a model that is not there yet" "$(cat "$dir/stdout" "$dir/err")"
on 3 three --tensor 2
is $rc 1 "and by a run"
says "tensor = 2: 3 ranks cannot form such groups" "by name"
finish 57

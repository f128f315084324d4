#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Divided matrices (tensor = 2, 4, 8; with and without sequence_parallel): the losses, norms and validations of one rank, for dense models, few heads of keys,
# tied weights, experts and adapters, in f32 and bf16, alone and with ranks that share the batch and state; every stage of training; checkpoints resumed on
# other layouts; killed; damaged data; what is planned and what is refused.
. "$LF_SRCDIR/tests/stage/lib.sh"
infer=$LF_BUILDDIR/tests/stage/infer_tool
with_ranks
need_ranks

must "$tool" data "$dir/data" 300 1000
must "$tool" pairs "$dir/pairs" 24 4
must "$tool" labels "$dir/labels" 24 4
cat >"$dir/head.ini" <<END
[stage]
data = $dir/data
steps = 4
seq_length = 32
batch = 6
micro_batch = 1
lr = 5e-3
warmup = 1
clip = 0.5
save_interval = 2
keep = 9
save_time = 0
valid_interval = 2
valid_tokens = 128
seed = 5
threads = 1
END
model() { # model FAMILY VOCAB LINES...
    printf '[model]\nfamily = %s\nlayers = 2\nhidden = 64\nheads = 8\nffn = 192\nvocab = %s\nmax_positions = 64\n' "$1" "$2"
    shift 2
    [ $# -eq 0 ] || printf '%s\n' "$@"
}
use() { { cat "$dir/head.ini"; model "$@"; } >"$dir/run.ini"; }
records() { "$infer" record "$dir/$1/metrics" | sed 's/,"\(tokens_per_s\|saved\)":.*//' | tr -d '{}"' | tr ',' '\n'; }
# The largest difference of two runs' numbers, relative where they are above 1, to $apart.
agree() { # agree A B TOLERANCE
    records "$1" >"$dir/a"
    records "$2" | paste -d: "$dir/a" - >"$dir/both"
    apart=$(awk -F: -v t="$3" '{ d = $2 - $4; m = $4; if (d < 0) d = -d; if (m < 0) m = -m; if (m > 1) d /= m
            if ($1 != $3 || $2 == "" || $4 == "" || !(d <= t)) { print $0; bad = 1; exit } if (d > worst) { worst = d; at = $1 } }
        END { if (!bad) print NR < 20 ? "too few" : worst + 0 " " at; exit bad || NR < 20 }' "$dir/both")
}
# (and what moved between ranks is what the plan says)
# trial NAME STAGE TOLERANCE "RANKS LAYOUT ..." ARGS...: one rank, then layouts like 4:t2s (4 ranks, tensor = 2, sequence_parallel; z: zero = 1)
trial() {
    _case=$1 _stage=$stages/lf-$2 _near=$3 _layouts=$4
    shift 4
    train "$_stage" "$dir/run.ini" "$_case.one" "$@"
    _one=$rc
    for _l in $_layouts; do
        _t=${_l#*:t} _with=
        case $_l in *s*) _with="--sequence-parallel" ;; esac
        case $_l in *z*) _with="$_with --zero 1" ;; esac
        _t=${_t%%[sz]*}
        # shellcheck disable=SC2086
        train "$launch ${_l%%:*} -- $_stage" "$dir/run.ini" "$_case.$_l" --tensor "$_t" $_with "$@"
        [ "$_one $rc" = "0 0" ] && grep -q 'rank 0 sent .*every rank as planned' "$dir/err" && agree "$_case.$_l" "$_case.one" "$_near"
        ok $? "${_stage##*/}, $_case, $_l: the numbers of one rank, apart by ${apart:-$_one $rc}; bytes moved as planned" "$(tail -n 3 "$dir/err")"
    done
}

# --- models ---
use llama3 1000 "kv_heads = 2"
trial "few heads of keys" pretrain 2e-5 "2:t2 2:t2s 4:t4s 4:t2z 6:t2 8:t8"
trial "bf16" pretrain 2e-2 "2:t2s 4:t2z" --precision bf16
trial "recomputation" pretrain 2e-5 "2:t2s" --recompute full
use gpt2 1000
trial "tied weights, positions, biases" pretrain 2e-5 "2:t2s 4:t4z"
use qwen2-moe 1000 "kv_heads = 4" "experts = 4" "experts_per_token = 2" "expert_ffn = 64" "shared_ffn = 64" "router_aux = 0.01"
trial "experts" pretrain 2e-5 "2:t2 4:t2"

# --- other stages, from weights that one rank and four have made ---
use llama3 1000 "kv_heads = 2"
sed -i '/^\[model\]/,$d' "$dir/run.ini"
echo "init_from = $dir/few heads of keys.4:t4s/out/checkpoint" >>"$dir/run.ini"
trial "an adapter" sft 2e-5 "2:t2s 4:t2z" --lora-rank 4
trial "frozen layers" sft 2e-5 "2:t2" --freeze 'layers.0.*'
trial "dpo" dpo 2e-5 "2:t2 4:t2s" --data "$dir/pairs" --valid-tokens 64
trial "kto" dpo 2e-5 "2:t2" --data "$dir/labels" --loss kto --valid-tokens 64
trial "an adapter, its own reference" dpo 2e-5 "4:t4" --data "$dir/pairs" --lora-rank 4 --valid-tokens 64
trial "rm" rm 2e-5 "2:t2s 4:t2z" --data "$dir/pairs" --valid-tokens 64 --lr 5e-4

# --- checkpoints: of any layout, resumed on any other ---
use llama3 1000 "kv_heads = 2"
go() { # go FROM RANKS NAME ARGS...: from step 2 of FROM
    mkdir -p "$dir/$3/out/checkpoints"
    cp -r "$dir/$1/out/checkpoints/step-00000002" "$dir/$3/out/checkpoints/"
    cp "$dir/$1/metrics" "$dir/$3/metrics"
    _n=$2 _name=$3
    shift 3
    train "$launch $_n -- $stages/lf-pretrain" "$dir/run.ini" "$_name" "$@"
}
_few="few heads of keys"
for a in "one:1" "one:8 --tensor 8" "4.t4s:1" "4.t4s:2" "4.t4s:4 --tensor 2 --zero 1" "8.t8:3 --zero 2" "4.t2z:4 --tensor 4 --sequence-parallel" "2.t2:2 --zero 3"; do
    _from=$_few.$(echo "${a%%:*}" | tr . :)
    _args=${a#*:}
    # shellcheck disable=SC2086
    go "$_from" ${_args%% *} "again $a" $(case $_args in *" "*) echo "${_args#* }" ;; esac)
    [ $rc -eq 0 ] && agree "again $a" "$_few.one" 2e-5
    ok $? "from step 2 of ${a%%:*} with ${a#*:} ranks: the numbers of a run that was not stopped, apart by $apart" "$(tail -n 3 "$dir/err")"
done
go "$_few.2:t2s" 2 bitwise --tensor 2 --sequence-parallel
is "$rc $(id bitwise) $(metrics bitwise | cksum)" "0 $(id "$_few.2:t2s") $(metrics "$_few.2:t2s" | cksum)" "with the same layout: the same bits"
says "bitwise" "and the log says so"

# --- killed ---
on() { # on RANKS NAME ARGS...
    _n=$1 _name=$2
    shift 2
    train "$launch $_n -- $stages/lf-pretrain" "$dir/run.ini" "$_name" "$@"
}
mkdir -p "$dir/kill"
$launch 4 -- "$stages/lf-pretrain" --config "$dir/run.ini" --out "$dir/kill/out" --metrics "$dir/kill/metrics" --tensor 2 --zero 1 --batch 2 \
    --schedule constant --steps 4000 --keep 9000 >"$dir/stdout" 2>"$dir/err" &
pid=$!
tries=0
while [ ! -e "$dir/kill/out/checkpoints/step-00000004/manifest.json" ] && kill -0 $pid 2>/dev/null && [ $tries -lt 3000 ]; do
    sleep 0.1
    tries=$((tries + 1))
done
kill -9 "$(ps -eo pid,args | awk -v d="$dir/kill/out" '/lf-[a-z]* / && index($0, d) && !/awk/ && !/launch/ { print $1 }' | tail -n 1)"
wait $pid
[ $? -ne 0 ]
ok $? "a rank that is killed ends the job"
steps=$(ls "$dir/kill/out/checkpoints" | sed -n 's/step-0*//p' | sort -n | tail -n 1)
steps=$((steps + 3))
on 4 kill --tensor 2 --zero 1 --batch 2 --schedule constant --steps $steps
on 4 unbroken --tensor 2 --batch 2 --schedule constant --steps $steps
is "$(id kill) $(metrics kill | cksum)" "$(id unbroken) $(metrics unbroken | cksum)" "which goes on to the bits of an unbroken run without zero"

# --- a rank that fails within a step: its data is damaged, that of the others is not ---
cp -r "$dir/data" "$dir/bad"
for shard in "$dir"/bad/train-*.h5; do
    printf '\377\377\377\377' | dd of="$shard" bs=1 seek=$(($(wc -c <"$shard") / 8)) conv=notrunc 2>/dev/null
done
on 4 bad --data "$dir/bad" --verify-data no --batch 4 --steps 300 --save-interval 0 --valid-interval 0 --tensor 2
[ $rc -ne 0 ] && grep -q 'error: sample .*damaged shard' "$dir/err"
ok $? "ranks that cannot read a micro-batch say why" "$(tail -n 2 "$dir/err")"
says_like 'error: rank [0-3] (.*) failed' "and the others hear of it and end by themselves"

# --- the plan ---
plan() { "$stages/lf-pretrain" --config "$dir/run.ini" --plan --ranks "$@" 2>"$dir/err" | sed -n 's/.*"params":\([0-9]*\)[.,}].*/\1/p'; }
one=$(plan 2) half=$(plan 2 --tensor 2)
[ "$half" -ge $((one / 2)) ] && [ "$half" -le $((one * 6 / 10)) ]
ok $? "two ranks with tensor = 2: weights of a rank take $half bytes of $one"
is "$(plan 4 --tensor 2)" "$half" "and as many where others share the batch"
refused() { # refused "ARGS" TEXT
    # shellcheck disable=SC2086
    "$stages/lf-pretrain" --config "$dir/run.ini" --plan $1 >"$dir/stdout" 2>"$dir/err"
    _planned=$?
    [ $_planned -ne 0 ] && grep -qF -- "$2" "$dir/err"
    ok $? "refused by the plan: $1" "$(cat "$dir/err")"
}
refused "--ranks 3 --tensor 2" "tensor = 2: 3 ranks cannot form such groups"
refused "--ranks 2 --sequence-parallel" "set tensor to 2 or more"
refused "--ranks 6 --tensor 3" "do not divide among 3 ranks (tensor)"
refused "--ranks 4 --tensor 2 --zero 2" "tensor = 2 with zero = 2"
on 3 three --tensor 2
is $rc 1 "and by a run"
says "tensor = 2: 3 ranks cannot form such groups" "by name"
finish 44

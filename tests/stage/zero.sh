#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Sharded state (zero = 1, 2, 3): the checkpoints and metrics of ranks that keep everything, bit for bit, with f32, bf16 and bf16 state,
# tied weights, experts with balanced biases, adapters, frozen layers and samples; several micro-batches, as many on each rank or not; resumed with and
# without it and on other numbers of ranks; killed; keep_best, and a run that diverges; less memory, as planned; what is refused.
. "$LF_SRCDIR/tests/stage/lib.sh"
with_ranks

need_ranks

"$tool" data "$dir/data" 300 1000 || bail "no test data"
cat >"$dir/run.ini" <<END
[stage]
data = $dir/data
steps = 5
mfu = no
seq_length = 32
batch = 6
micro_batch = 1
lr = 5e-3
warmup = 1
clip = 0.1
save_interval = 2
keep = 9
save_time = 0
valid_interval = 2
valid_tokens = 128
log_interval = 2
seed = 5
threads = 1
[model]
family = llama3
layers = 2
hidden = 64
heads = 4
kv_heads = 2
ffn = 136
vocab = 1040
max_positions = 64
END
# Of that vocabulary the embedding has three blocks of norms, so a cut between ranks may lie within it.
step() { sed -n 's/.*"identity": *"\([^"]*\)".*/\1/p' "$dir/$1/out/checkpoints/step-0000000$2/manifest.json"; }
all() { echo "$(id "$1") $(step "$1" 2) $(metrics "$1" | cksum)"; }
# same RANKS WHAT STAGES ARGS...: without and with each stage, the same final checkpoint, that of step 2 and metrics
same() {
    _n=$1 _what=$2 _stages=$3
    shift 3
    on "$_n" "w$k" "$@"
    _codes=$rc _want=$(all "w$k")
    for z in $_stages; do
        rm -rf "$dir/z$k"
        on "$_n" "z$k" --zero "$z" "$@"
        is "$_codes $rc" "0 0" "$_n ranks, $_what, zero = $z: both run" "$(tail -n 2 "$dir/err")"
        is "$(all "z$k")" "$_want" "the same bits"
    done
    k=$((k + 1))
}
k=1
# Three micro-batches for each rank: the order of their sums is that of zero = 0 and 1, or that of 2 and 3.
same 2 "f32" 1
same 3 "f32, recomputation" 1 --recompute full
same 2 "bf16" 1 --precision bf16
same 3 "bf16, state in bf16, rounded at random" 1 --precision bf16 --moments bf16 --masters bf16
sums() { # sums RANKS BATCH: zero = 2 and 3 alike, and near
    for z in 0 2 3; do on "$1" "s$z" --batch "$2" --zero $z --valid-tokens 160; done
    is "$rc $(id s3) $(metrics s3 | cksum)" "0 $(id s2) $(metrics s2 | cksum)" "$1 ranks, a batch of $2: the same bits with zero = 2 and 3"
    near_losses s2 s0 1e-5 5
    ok $? "and the losses of zero = 0"
    rm -r "$dir"/s?
}
sums 2 6
sums 2 5
sums 3 4

# One micro-batch for each rank.
sed -i 's/^steps = .*/steps = 4/' "$dir/run.ini"
same 2 "f32" "2 3" --batch 2
same 3 "f32, recomputation" "2 3" --batch 3 --recompute full
same 2 "bf16" "2 3" --batch 2 --precision bf16
same 3 "bf16, state in bf16, rounded at random" "2 3" --batch 3 --precision bf16 --moments bf16 --masters bf16
same 2 "samples" "1 2 3" --batch 2 --precision bf16 --sample-interval 2 --sample-rows 3 --sample-tokens 12
w=w$((k - 1)) z=z$((k - 1))
cmp -s "$dir/$z/samples.jsonl" "$dir/$w/samples.jsonl" && [ "$(grep -c '"token_ids":' "$dir/$z/samples.jsonl")" -eq 6 ]
ok $? "with zero = 3 rank 0 draws the samples of a model that it has all of, byte for byte"
cp "$dir/run.ini" "$dir/dense.ini"
sed -i 's/^family = .*/family = gpt2/; /^kv_heads/d' "$dir/run.ini"
same 2 "tied weights, positions and biases" "1 2 3" --batch 2 --precision bf16
sed 's/^family = .*/family = qwen2-moe/' "$dir/dense.ini" >"$dir/run.ini"
cat >>"$dir/run.ini" <<END
experts = 8
experts_per_token = 2
expert_ffn = 64
shared_ffn = 64
router_bias = yes
router_bias_rate = 0.01
router_aux = 0.01
END
same 2 "experts, their biases balanced" "1 2 3" --batch 2 --precision bf16
cp "$dir/dense.ini" "$dir/run.ini"

# --- an adapter, and frozen layers ---
pretrain=$stages/lf-sft
sed '/^\[model\]/,$d' "$dir/dense.ini" >"$dir/run.ini"
echo "init_from = $dir/w1/out/checkpoint" >>"$dir/run.ini"
same 2 "an adapter" "1 2 3" --batch 2 --lora-rank 4 --lora-dropout 0.1
same 2 "frozen layers" "1 2 3" --batch 2 --freeze 'layers.0.*' --precision bf16
same 2 "an adapter with magnitudes" "1 2 3" --batch 2 --lora-rank 4 --lora-dora
same 4 "the same in bf16, with dropout" 3 --batch 4 --lora-rank 4 --lora-dora --lora-dropout 0.1 --precision bf16
pretrain=$stages/lf-pretrain
sed 's/^steps = .*/steps = 5/' "$dir/dense.ini" >"$dir/run.ini"

# --- resumed with it and without, on other numbers of ranks ---
go() { # go RANKS NAME ARGS...: from step 2 of the run of two ranks with zero
    mkdir -p "$dir/$2/out/checkpoints"
    cp -r "$dir/z3/out/checkpoints/step-00000002" "$dir/$2/out/checkpoints/"
    cp "$dir/z3/metrics" "$dir/$2/metrics"
    _name=$2 _n=$1
    shift 2
    on "$_n" "$_name" --precision bf16 "$@"
}
go 2 on --zero 1
is "$rc $(id on)" "0 $(id w3)" "it goes on from its checkpoint to the bits of a run that was not stopped"
go 2 off
is "$rc $(id off)" "0 $(id w3)" "without it, too"
go 3 three --zero 1
go 3 whole
is "$rc $(id three)" "0 $(id whole)" "three ranks go on from the parts of two, and from the whole"
go 1 alone --zero 1
is $rc 0 "so does one, for which there is nothing to divide"
go 2 to3 --zero 3
is $rc 0 "and with zero = 3"
mkdir -p "$dir/from3/out/checkpoints"
cp -r "$dir/to3/out/checkpoints/step-00000004" "$dir/from3/out/checkpoints/"
cp "$dir/to3/metrics" "$dir/from3/metrics"
on 3 from3 --precision bf16
near_losses from3 w3 1e-2 5
is "$rc $?" "0 0" "whose checkpoint goes on without it"

# --- groups of ranks ---
on 4 g0 --batch 4
for z in 1 2 3; do on 4 g$z --batch 4 --zero $z --zero-inner 2; done
is "$rc $(id g2) $(id g3)" "0 $(id g1) $(id g1)" "two groups of two ranks: the same bits with each stage"
near_losses g3 g0 1e-5 5
ok $? "and the losses of four ranks that have everything"
rm -r "$dir/g2/out/checkpoints/step-00000004" "$dir/g2/out/checkpoint"
on 2 g2 --batch 4 --zero 2 --zero-inner 0
near_losses g2 g0 1e-5 5
is "$rc $?" "0 0" "two ranks go on from the parts of two groups"
on 1 g4 --batch 4 --zero 3 --zero-inner 2
near_losses g4 g0 1e-5 5
is "$rc $?" "0 0" "one rank has everything, whatever its group is"
for a in "3 1" "1 2" "2 0"; do
    on 4 "bad$a" --batch 4 --zero-inner "${a% *}" --zero "${a#* }"
    [ $rc -ne 0 ]
    ok $? "zero_inner = ${a% *} with zero = ${a#* } is refused"
    says "zero_inner = ${a% *}: " "by name"
done

# --- eight processes, of which one has two micro-batches and the others one ---
cp "$dir/run.ini" "$dir/four.ini"
sed -i 's/^hidden = .*/hidden = 16/; s/^ffn = .*/ffn = 32/; s/^vocab = .*/vocab = 1040/; s/^heads = .*/heads = 2/; s/^kv_heads = .*/kv_heads = 1/; s/^layers = .*/layers = 1/
    s/^steps = .*/steps = 2/; s/^valid_interval = .*/valid_interval = 0/' "$dir/run.ini"
on 1 eight1 --batch 9
on 8 eight --batch 9 --zero 3
[ $rc -eq 0 ] && grep -q 'every rank as planned' "$dir/err" && near_losses eight eight1 1e-5 2
ok $? "eight processes with zero = 3 have the losses of one, and move what is planned" "$(tail -n 3 "$dir/err")"
cp "$dir/four.ini" "$dir/run.ini"

# --- what was moved is what the plan says, to the byte ---
"$tool" data "$dir/plain" 100 0 || bail "no test data"
# moves RANKS BATCH ARGS...: two steps without anything else; rank 0's collectives, and its bytes where the plan is of rank 0
moves() {
    _n=$1 _batch=$2
    shift 2
    rm -rf "$dir/moves"
    on "$_n" moves --data "$dir/plain" --batch "$_batch" --steps 2 --valid-interval 0 --save-interval 0 "$@"
    _calls=$(sed -n 's/.* rank 0 sent .* bytes in \(.*\) collectives of the plan, .*every rank as planned$/\1/p' "$dir/err")
    _sent=$(sed -n 's/.* rank 0 sent \(.*\) bytes in .* collectives of the plan, .*/\1/p' "$dir/err")
    "$pretrain" --config "$dir/run.ini" --plan --ranks "$_n" --batch "$_batch" "$@" >"$dir/stdout"
    _all=$(sed -n 's/.*"messages_per_step":\([0-9]*\).*/\1/p' "$dir/stdout") _bytes=$(sed -n 's/.*"bytes_per_step":\([0-9]*\)\..*/\1/p' "$dir/stdout")
    grep -q '"rank":[1-9]' "$dir/stdout" && _bytes=$((_sent / 2))
    is "$rc $_calls $_sent" "0 $((2 * _all)) $((2 * _bytes))" "$_n ranks, a batch of $_batch, $*: $_sent bytes in $_calls collectives, as planned" \
        "$(tail -n 4 "$dir/err")"
}
for z in 0 1 2 3; do
    moves 2 5 --zero $z
    moves 3 3 --zero $z --precision bf16
    moves 4 6 --zero $z
done
for z in 1 2 3; do moves 4 8 --zero $z --zero-inner 2; done
# With validation, whose passes gather weights too.
rm -rf "$dir/moves"
on 3 moves --batch 3 --zero 3
says "every rank as planned" "so it is with validation and checkpoints"

# --- the best one, and one that diverges ---
same 2 "keep_best" 3 --batch 2 --precision bf16 --keep-best
same 2 "keep_best" 1 --precision bf16 --keep-best
is "$(ls "$dir/z$((k - 1))/out" | sort)" "$(ls "$dir/w$((k - 1))/out" | sort)" "the same is kept"
on 2 wild --zero 1 --lr 10 --clip 0 --warmup 0 --schedule constant --valid-interval 0 --save-interval 0 --steps 400 --spike-after 1
is $rc 1 "a run that diverges ends with 1"
"$tool" id "$dir/wild/out/diverged" >/dev/null 2>&1 || ls "$dir/wild/out" | grep -q diverged
ok $? "and rank 0 keeps the weights before it"

# --- a checkpoint that cannot be saved ---
mkdir -p "$dir/full/out/checkpoints/step-00000002"
echo "not ours" >"$dir/full/out/checkpoints/step-00000002/data"
on 2 full --zero 1
[ $rc -ne 0 ]
ok $? "where rank 0 cannot save, the job ends: $(tail -n 1 "$dir/err")"
says "step-00000002" "and says where"

mkdir -p "$dir/deaf/metrics"
on 2 deaf --zero 1
[ $rc -ne 0 ] && grep -q '^.1. .*error: rank 0 .*failed' "$dir/err"
ok $? "where rank 0 cannot write its metrics, rank 1 hears of it and ends by itself"
says "deaf/metrics" "and it names the file"

# --- a rank that fails within a step: its data is damaged, that of the others is not ---
data_damaged 2 --batch 4 --zero 2
data_damaged 2 --batch 4 --zero 3

# --- killed ---
rank_killed 2 "--zero 3" --batch 2 --precision bf16

# --- the plan, of a model whose parts are more alike ---
sed -i 's/^hidden = .*/hidden = 128/; s/^ffn = .*/ffn = 272/; s/^vocab = .*/vocab = 1024/' "$dir/run.ini"
bytes() { "$pretrain" --config "$dir/run.ini" --precision bf16 --plan --ranks "$1" --zero "$2" | sed -n "s/.*\"$3\":\([0-9]*\)[.,}].*/\1/p"; }
part() { # part KIND STAGE: the largest rank of 2 or 4 has its share of a kind, and little more
    for n in 2 4; do
        _part=$(bytes $n "$2" "$1") _all=$(bytes $n 0 "$1")
        [ "$_part" -ge $((_all / n * 9 / 10)) ] && [ "$_part" -le $((_all / n * 12 / 10)) ]
        ok $? "$n ranks, zero = $2: $1 of a rank take $_part bytes of $_all"
    done
}
part optimizer 1
part grads 2
part params 3
is "$(bytes 2 1 grads) $(bytes 1 1 optimizer) $(bytes 1 3 params)" "$(bytes 2 0 grads) $(bytes 1 0 optimizer) $(bytes 1 0 params)" \
    "gradients stay whole with 1, and one rank has everything"
# Cuts lie where parameters begin, so ranks differ; the plan is that of the largest.
f32_bytes() { "$pretrain" --config "$dir/run.ini" --plan --ranks 4 --zero "$1" | sed -n "s/.*\"$2\":\([0-9]*\)[.,}].*/\1/p"; }
on 4 first --batch 4 --zero 3 --steps 1 --save-interval 0 --valid-interval 0
first=$(sed -n 's/.*planned memory \(.*\): weights.*/\1/p' "$dir/err")
most=$(f32_bytes 3 total | awk '{ printf "%.1f MiB", $1 / 1048576 }')
is "$(f32_bytes 3 rank) $(f32_bytes 0 rank)" "1 " "four ranks, zero = 3: rank 1 is the largest, and without zero none is"
[ "${most% MiB}" != "${first% MiB}" ] && [ "$(printf '%s\n' "${most% MiB}" "${first% MiB}" | sort -g | head -n 1)" = "${first% MiB}" ]
ok $? "the plan has its $most; rank 0 takes $first"
moved() { bytes 2 "$1" bytes_per_step; } # of 3 micro-batches
[ "$(moved 2)" -gt "$(moved 1)" ] && [ "$(moved 3)" -gt "$(moved 2)" ]
ok $? "what moves in a step is in the plan: $(moved 1), $(moved 2) and $(moved 3) bytes"
"$pretrain" --config "$dir/run.ini" --precision fp8 --plan --ranks 2 --zero 3 >"$dir/stdout" 2>"$dir/err"
[ $? -ne 0 ]
ok $? "fp8 with zero = 3 is refused"
says "take zero = 2" "with what to do"

# --- a model that does not fit one rank ---
sed 's/^layers = .*/layers = 6/; s/^hidden = .*/hidden = 384/; s/^heads = .*/heads = 8/; s/^ffn = .*/ffn = 1032/; s/^steps = .*/steps = 2/
    s/^valid_tokens = .*/valid_tokens = 128/; s/^save_interval = .*/save_interval = 0/' "$dir/run.ini" >"$dir/large.ini"
# shellcheck disable=SC2086
sanitizers || least_room $launch 1 -- "$pretrain" --config "$dir/run.ini" --batch 4 --steps 1 --valid-interval 0 --out "$dir/room"
limited() { # limited RANKS: each with 300 MB of addresses more than a small model needs; one rank needs some 350, four need up to 250
    mkdir -p "$dir/large$1"
    (ulimit -v $((room + 300000)) && whole $launch "$1" -- "$pretrain" --config "$dir/large.ini" --batch 4 --zero 3 --out "$dir/large$1/out" \
        --metrics "$dir/large$1/metrics") >"$dir/stdout" 2>"$dir/err"
    rc=$?
}
# as_planned RANKS ZERO: every rank of the last run took what was planned, and at most 64 MB for libraries
as_planned() {
    _beside=$(sed -n 's/.*peak memory of a rank .*: beside the plan \(.*\) MiB to \(.*\) MiB, which .*/\1 \2/p' "$dir/err")
    echo "$_beside" | awk 'NF == 2 && $1 > 8 && $1 <= $2 && $2 * 1.048576 <= 64 { good = 1 } END { exit !good }'
    ok $? "$1 ranks, zero = $2: each takes what is planned, and ${_beside% *} to ${_beside#* } MiB of libraries" "$(tail -n 2 "$dir/err")"
}
if sanitizers; then
    skip_some 7 "sanitizers need all addresses"
else
    limited 1
    [ $rc -ne 0 ]
    ok $? "a model that does not fit one rank's memory"
    says "memory" "is refused with the reason"
    limited 4
    is $rc 0 "trains on four ranks with zero = 3" "$(tail -n 2 "$dir/err")"
    as_planned 4 3
    cp "$dir/large.ini" "$dir/run.ini"
    for z in 0 1 2; do
        on 2 large$z --batch 2 --zero $z --steps 1 --init-from "$dir/large4/out/checkpoint" # quicker than to draw them
        as_planned 2 $z
        rm -r "$dir/large$z"
    done
fi
finish 138

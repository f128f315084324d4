#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# lf-dpo as a user or the flow runs it: options, the reference policy computed once and refused for other weights or data, ln 2
# at first, every loss, accumulated and full batch, kill -9 and stops, ranks, adapters, units that do not fit.
. "$LF_SRCDIR/tests/stage/lib.sh"
dpo=$LF_BUILDDIR/stages/lf-dpo

run() { train "$dpo" "$dir/run.ini" "$@"; } # run NAME ARGS...
column() { metrics "$1" | awk -v c="$2" -v s="$3" '$1 == s { print $c }'; }
# Are all losses and gradient norms of runs $1 and $2 within $3, relative?
close() {
    metrics "$1" | awk '{ print $4, $6 }' >"$dir/a"
    metrics "$2" | awk '{ print $4, $6 }' >"$dir/b"
    paste -d' ' "$dir/a" "$dir/b" | awk -v t="$3" '{ for (i = 1; i <= 2; i++) { d = ($i - $(i + 2)) / $(i + 2); if (d < 0) d = -d; if (d > m) m = d } }
        END { printf "%g\n", m; exit !(NR > 0 && m <= t) }' >"$dir/worst"
}
LN2=0.69314718055994529

"$tool" pairs "$dir/pairs" 120 40 && "$tool" labels "$dir/labels" 120 40 && "$tool" data "$dir/data" 200 0 ||
    bail "no test data"
cat >"$dir/base.ini" <<END
[stage]
data = $dir/data
steps = 12
seq_length = 64
batch = 8
micro_batch = 4
lr = 5e-3
threads = 1
[model]
family = llama3
layers = 2
hidden = 48
heads = 4
kv_heads = 2
ffn = 96
max_positions = 64
END
"$LF_BUILDDIR/stages/lf-pretrain" --config "$dir/base.ini" --out "$dir/base" 2>"$dir/err" || bail "no base model"
cat >"$dir/run.ini" <<END
[stage]
data = $dir/pairs
init_from = $dir/base/checkpoint
steps = 12
seq_length = 64
batch = 8
micro_batch = 4
lr = 1e-3
numeric = invariant
save_interval = 2
save_time = 0
valid_interval = 6
threads = 1
END

# options
run bad --label-smoothing 0.1 --loss ipo
is $rc 2 "label_smoothing with ipo is a usage error"
run bad --loss orpo --mode reference
is $rc 2 "so is a reference for orpo"
run bad --loss kto --nll 1
is $rc 2 "so is nll with kto"
run bad --weight-good 2
is $rc 2 "so are weights of labels with pairs"
run bad --lora-rank 4 --lora-dropout 0.1
is $rc 2 "so is dropout"
run bad --loss kto
is $rc 1 "pairs are not labelled answers"
says "holds pairs of answers, but answers with a label" "and it says so"
run plan --plan
grep -q '"parameters":47856' "$dir/stdout" && [ ! -e "$dir/plan/out" ]
ok $? "--plan counts the model of init_from and writes nothing"

# a run
run base
is $rc 0 "a run to the end"
is "$(column base 4 1)" $LN2 "the first loss is ln 2, to the last bit"
metrics base | tail -n 1 | awk '{ exit !($4 < 0.66 && $5 < 0.69 && $8 > 0.9 && $9 > 0.05 && $10 > 0.7) }'
ok $? "loss falls, accuracy and margin rise, of held-out pairs too: $(metrics base | tail -n 1)"
base=$(id base)
run base --beta 0.2
[ $rc -eq 1 ] && grep -q "made with other options (beta was not given, is 0.2); use another out" "$dir/err"
ok $? "other options in a finished out are refused by name"
run threads --threads 2
is "$(id threads)" "$base" "two threads: the same bits"

# accumulation
for micro in 1 8; do
    run micro$micro --micro-batch $micro
    close micro$micro base 1e-6
    ok $? "micro-batches of $micro: losses and gradient norms within 1e-6 ($(cat "$dir/worst"))"
done

# the reference as a job of its own
run ref --mode reference
is "$rc $(ls "$dir/ref/out")" "0 reference" "mode = reference makes that alone"
run given --reference "$dir/ref/out/reference"
is "$rc $(id given)" "0 $base" "a run that is given it has the same bits"
[ ! -e "$dir/given/out/reference" ]
ok $? "and computes none"
run other --reference "$dir/ref/out/reference" --init-from "$dir/base/out/checkpoint"
is $rc 1 "for other weights it is refused"
says "of other weights, other data or another seq_length" "and it says why"
run other --reference "$dir/ref/out/reference" --seq-length 48
is $rc 1 "for another seq_length too"
run none --reference "$dir/nowhere"
is $rc 1 "one that is not there is an error"

# stops and kills
touch "$dir/stop-now"
run stop --stop-file "$dir/stop-now"
is "$rc $(ls "$dir/stop/out/reference")" "75 partial.h5" "asked to stop while computing the reference: 75, and what was done is kept"
run stop2 --resume-from "$dir/stop/out"
grep -q 'train split), from sample [1-9]' "$dir/err"
ok $? "the next start goes on from there"
is "$(id stop2)" "$base" "to the same bits"
mkdir -p "$dir/kill"
killed_often 5 "$dir/kill/metrics" "$(bytes "$dir/base/metrics")" \
    "$dpo" --config "$dir/run.ini" --out "$dir/kill/out" --metrics "$dir/kill/metrics"
run kill
is "$rc $often $(id kill)" "0 1 $base" "after $kills kills -9 the run ends with the same bits"
is "$(metrics kill)" "$(metrics base)" "and the same metrics"
mkdir -p "$dir/gone/out"
cp -r "$dir/base/out/checkpoints" "$dir/gone/out/"
run gone
is $rc 1 "a run whose reference is gone does not go on"
says "mode = reference" "and it says how it can"

# ranks
with_ranks
if have_ranks; then
    train "$launch 2 -- $dpo" "$dir/run.ini" two --threads 1 --micro-batch 2
    is "$rc $(column two 4 1)" "0 $LN2" "two ranks begin at ln 2 as well"
    close two base 1e-6
    ok $? "and have the losses and gradient norms of one within 1e-6 ($(cat "$dir/worst"))"
else
    skip_some 2 "ranks cannot be started here"
fi

# the others
for loss in robust hinge ipo orpo simpo; do
    run $loss --loss $loss --reference "$dir/ref/out/reference"
    case $loss in orpo | simpo) run $loss --loss $loss ;; esac
    case $loss in robust) want=$LN2 ;; hinge) want=1 ;; ipo) want=25 ;; *) want=$(column $loss 4 1) ;; esac
    is "$rc $(column $loss 4 1)" "0 $want" "$loss begins at $want"
    metrics $loss | awk '{ v[NR] = $4 } END { exit !(v[NR] < v[1]) }'
    ok $? "and falls to $(column $loss 4 12)"
done
run smooth --label-smoothing 0.1 --nll 0.5 --reference "$dir/ref/out/reference"
awk -v a="$(column smooth 4 1)" -v b=$LN2 'BEGIN { exit !(a > b + 0.2) }'
ok $? "nll is added: $(column smooth 4 1)"
sed "s/pairs/labels/" "$dir/run.ini" >"$dir/kto.ini"
cp "$dir/run.ini" "$dir/pairs.ini"
cp "$dir/kto.ini" "$dir/run.ini"
run kto --loss kto
is "$rc $(column kto 4 1)" "0 0.5" "kto begins at 1/2"
metrics kto | tail -n 1 | awk '{ exit !($4 < 0.49 && $9 > 0.05) }'
ok $? "and falls, with a margin: $(metrics kto | tail -n 1)"
run kto1 --loss kto --micro-batch 1
close kto1 kto 1e-6
ok $? "its z is of the whole step: micro-batches of 1 agree within 1e-6 ($(cat "$dir/worst"))"
if have_ranks; then
    train "$launch 2 -- $dpo" "$dir/run.ini" kto2 --loss kto --threads 1 --micro-batch 2
    is "$rc $(column kto2 4 1)" "0 0.5" "two ranks begin at 1/2 as well"
    close kto2 kto 1e-6
    ok $? "and have one z: losses and gradient norms of one rank within 1e-6 ($(cat "$dir/worst"))"
else
    skip_some 2 "ranks cannot be started here"
fi
cp "$dir/pairs.ini" "$dir/run.ini"

# adapters; what does not fit
run lora --lora-rank 4 --lr 5e-3 --steps 16
is "$rc $(column lora 4 1)" "0 $LN2" "an adapter begins at ln 2: its base is the reference"
metrics lora | awk '{ v[NR] = $4 } END { exit !(v[NR] < 0.67) }' && [ -e "$dir/lora/out/adapter/manifest.json" ]
ok $? "learns, and is there in the end"
run loraon --adapter "$dir/lora/out/adapter" --lr 5e-3
is "$rc $(column loraon 4 1)" "0 $LN2" "one that goes on begins there too: where it begins is the reference"
run loraon2 --adapter "$dir/lora/out/adapter" --lr 5e-3 --reference "$dir/lora/out/reference"
is $rc 1 "the reference of the base alone is refused for it"
sed 's/^max_positions/mlp_dropout = 0.1\nmax_positions/; s/^steps = .*/steps = 1/' "$dir/base.ini" >"$dir/dropped.ini"
"$LF_BUILDDIR/stages/lf-pretrain" --config "$dir/dropped.ini" --out "$dir/dropped" 2>"$dir/err"
run dropped --init-from "$dir/dropped/checkpoint" --steps 1
says "dropout is not applied" "that a model's dropout is left out is told"
run wet --init-from "$dir/dropped/checkpoint" --dropout
[ $rc -eq 0 ] && [ "$(column wet 4 1)" != "$LN2" ] && ! grep -q "dropout is not applied" "$dir/err"
ok $? "unless it is asked for: the first loss is $(column wet 4 1)"
run wet1 --init-from "$dir/dropped/checkpoint" --dropout --micro-batch 1
close wet1 wet 1e-6
ok $? "whatever a step is cut into, within 1e-6 ($(cat "$dir/worst"))"
cp "$dir/kto.ini" "$dir/run.ini"
run ktowet --init-from "$dir/dropped/checkpoint" --dropout --loss kto --save-interval 4 --keep 9
mkdir -p "$dir/ktores/out/checkpoints"
cp -r "$dir/ktowet/out/checkpoints/step-00000004" "$dir/ktores/out/checkpoints/"
cp -r "$dir/ktowet/out/reference" "$dir/ktores/out/"
run ktores --init-from "$dir/dropped/checkpoint" --dropout --loss kto --save-interval 4 --keep 9
is "$rc $(id ktores)" "0 $(id ktowet)" "kto with dropout, whose z is measured with it, goes on from step 4 with the same bits"
cp "$dir/pairs.ini" "$dir/run.ini"
run short --seq-length 26 --steps 2
says "pairs of a train split are longer than seq_length = 26, or empty, and left out" "pairs that do not fit are counted"
is $rc 0 "and left out"

finish 57

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Training what other families ask of the loop with lf-pretrain: prefixes and two positions, a head of unit rows, norms
# behind branches, windows with a theta of their own. They learn, give the same bits with other threads and recomputation,
# and the same losses in other micro-batches.
. "$LF_SRCDIR/tests/stage/lib.sh"
pretrain=$LF_BUILDDIR/stages/lf-pretrain
OMP_WAIT_POLICY=passive
export OMP_WAIT_POLICY

run() { train "$pretrain" "$dir/run.ini" "$@"; } # run NAME ARGS...: output below $dir/NAME

family() { # family NAME PARAMETERS KEYS: the other keys of [model], one a line
    cat >"$dir/run.ini" <<END
[model]
family = $1
$3
layers = 2
hidden = 32
heads = 4
ffn = 64
vocab = 64
max_positions = 64
[stage]
data = $dir/data
steps = 8
mfu = no
seq_length = 64
batch = 8
micro_batch = 4
lr = 5e-3
warmup = 2
save_interval = 8
save_time = 0
log_interval = 8
seed = 5
threads = 1
END
    run "$1.plan" --plan
    grep -q "\"parameters\":$2," "$dir/stdout"
    ok $? "$1: --plan knows its parameters"
    run "$1"
    losses "$1" | awk 'NR == 1 { a = $1 } { b = $1 } END { exit !(NR == 8 && a > 3 && b < a - 0.1) }'
    ok $? "$1: it learns"
    run "$1.again" --threads 2 --recompute full
    [ -n "$(id "$1")" ] && [ "$(id "$1.again")" = "$(id "$1")" ]
    ok $? "$1: two threads and full recomputation give the same bits"
    run "$1.whole" --micro-batch 8
    losses "$1.whole" >"$dir/whole"
    losses "$1" | paste - "$dir/whole" | awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 2e-5 * $1) bad = 1 } END { exit bad || NR != 8 }'
    ok $? "$1: one micro-batch has the losses of two"
}

"$tool" data "$dir/data" 400 40 || bail "no test data"
family chatglm 21248 ""
family baichuan2 24736 ""
family opt 21248 "init_std = 0.2
block = post
final_norm = no
embed_dim = 16"
family gemma3 20800 "kv_heads = 2
sliding_window = 20
layer_mixers = wf*
embed_scale = 5.656854249492381"
# The angles of longrope are of the document, by a table of two parts: where both have plain angles,
# so has the model.
cat >"$dir/run.ini" <<END
[model]
family = phi3
layers = 2
hidden = 32
heads = 4
ffn = 64
vocab = 64
max_positions = 64
[stage]
data = $dir/data
steps = 4
mfu = no
seq_length = 64
batch = 8
lr = 5e-3
save_time = 0
threads = 1
END
run plain
cat >"$dir/longrope.keys" <<END
rope_scaling = longrope
rope_original_positions = 24
rope_attn_factor = 1
rope_short_factors = 1,1,1,1
rope_long_factors = 1,1,1,1
END
sed "/^family/r $dir/longrope.keys" "$dir/run.ini" >"$dir/long.ini" && mv "$dir/long.ini" "$dir/run.ini"
run longrope
losses plain >"$dir/plain.txt"
losses longrope | cmp -s - "$dir/plain.txt" && [ "$(wc -l <"$dir/plain.txt")" -eq 4 ]
ok $? "longrope: without factors every document turns as in a plain model"
sed -i 's/long_factors = 1,1,1,1/long_factors = 2,2,2,2/' "$dir/run.ini"
run longer
losses longer | cmp -s - "$dir/plain.txt"
[ $? -eq 1 ]
ok $? "and documents of more than 24 tokens do not, once their factors differ"
finish 18

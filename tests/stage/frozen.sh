#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Frozen weights in bf16: a copy and no f32 master in memory, their bytes as they came in checkpoints, the same losses and
# bits after kill -9 and on ranks that divide them; a run that goes on with another `freeze`.
. "$LF_SRCDIR/tests/stage/lib.sh"
run() { train "$stages/lf-sft" "$dir/sft.ini" "$@"; } # run NAME ARGS...
moved() { "$tool" moved "$dir/$1/checkpoint" "$dir/$2/out/checkpoint" "$3" 2>&1; }

"$tool" data "$dir/data" 40 0 >/dev/null || bail "no test data"
cat >"$dir/run.ini" <<E2
[stage]
data = $dir/data
steps = 2
seq_length = 64
batch = 8
micro_batch = 4
lr = 1e-2
threads = 1
save_time = 0
valid_interval = 0
[model]
family = llama3
layers = 2
hidden = 32
heads = 4
kv_heads = 2
ffn = 64
vocab = 64
max_positions = 64
E2
train "$pretrain" "$dir/run.ini" f32 && train "$pretrain" "$dir/run.ini" narrow --precision bf16 --masters bf16 || bail "no base"
{
    sed '/^\[model\]/,$d; s/^steps.*/steps = 6/' "$dir/run.ini"
    printf 'init_from = %s\nprecision = bf16\nsave_interval = 2\n' "$dir/f32/out/checkpoint"
} >"$dir/sft.ini"

# --- memory: 2 bytes an element of the 18,432 of these matrices, where trained ones have 4 more ---
params() { sed 's/.*"params":\([0-9]*\).*/\1/' "$dir/stdout"; }
run plan --plan
all=$(params)
run plan --plan --freeze 'layers.*'
is $((all - $(params))) $((4 * 18432)) "the plan of frozen layers has no masters"
is "$(sed 's/.*"disk_bytes":\([0-9]*\).*/\1/' "$dir/stdout")" $((4 * (4 * 22688 + 8 * 4128))) "and four checkpoints, in which they are f32"

# --- checkpoints: what came in goes out, in its type ---
run frozen --freeze 'layers.*'
is "$rc $(moved f32/out frozen 'model/layers.*') $(moved f32/out frozen 'model/embed.*')" "0 0 of 18 1 of 1" "f32 stays f32, bit for bit"
run narrow2 --freeze 'layers.*' --init-from "$dir/narrow/out/checkpoint"
"$tool" types "$dir/narrow2/out/checkpoint" >"$dir/types"
is "$rc $(sed -n 's/^weight 2d bf16 //p' "$dir/types")" "0 14" "bf16 stays bf16"
mkdir "$dir/kill"
killed_often 2 "$dir/kill/metrics" "$(bytes "$dir/frozen/metrics")" "$stages/lf-sft" --config "$dir/sft.ini" --out "$dir/kill/out" \
    --metrics "$dir/kill/metrics" --freeze 'layers.*'
run kill --freeze 'layers.*'
is "$often $(id kill) $(metrics kill | cksum)" "1 $(id frozen) $(metrics frozen | cksum)" "killed and continued, the same bits"
run sync --freeze 'layers.*' --save-async=no
is "$(id sync)" "$(id frozen)" "saved without a snapshot, the same bits"

# --- another freeze in a run that goes on ---
run half --freeze 'layers.*' --steps 4
rm -r "$dir/half/out/checkpoint"
run half --freeze 'layers.0.*' --steps 6
is $rc 1 "a tensor that was frozen has no moments"
says "it was frozen when that was saved" "which is said, with what to do"
run half --freeze 'layers.*' --freeze 'embed.*' --steps 6
is "$rc $(moved frozen/out half 'model/layers.*')" "0 0 of 18" "more that is frozen: the others keep their bits"
run half2 --freeze 'layers.*' --steps 4
rm -r "$dir/half2/out/checkpoint"
cp -r "$dir/half2" "$dir/half3"
run half3 --freeze 'layers.*' --steps 6
is "$rc $(grep -c 'as they were' "$dir/err")" "0 0" "init_from as it was: nothing is said of it"
cp -r "$dir/f32" "$dir/kept" && run thaw --steps 1 && rm -r "$dir/f32/out/checkpoint" && cp -r "$dir/thaw/out/checkpoint" "$dir/f32/out/"
run half2 --freeze 'layers.*' --steps 6
says "(14) are f32 and not what" "another init_from than at first: frozen matrices lose bits, which is said"
rm -r "$dir/f32" && mv "$dir/kept" "$dir/f32"
train "$pretrain" "$dir/run.ini" alone --precision bf16 --save-interval 1
rm -r "$dir/alone/out/checkpoint"
train "$pretrain" "$dir/run.ini" alone --precision bf16 --freeze 'layers.*' --steps 3
says "(14) are f32 and not what" "and where there is none, as one that is gone"
run next --init-from "$dir/frozen/out/checkpoint" --steps 1 --lr 1e-12
is "$rc $(moved frozen/out next 'model/layers.*norm*')" "0 0 of 4" "a stage that trains them begins with all their bits"

# --- ranks ---
with_ranks
if have_ranks; then
    for how in "--zero 3" "--tensor 2" "--pipeline 2"; do
        train "$launch 2 -- $stages/lf-sft" "$dir/sft.ini" "ranks${how% *}" --freeze 'layers.*' $how
        is "$rc $(moved f32/out "ranks${how% *}" 'model/layers.*')" "0 0 of 18" "two ranks, $how: all of it is written"
    done
else
    skip_some 3 "ranks cannot be started here"
fi

finish 16

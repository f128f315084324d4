#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A run that an earlier program began: its checkpoint, with an identity of the first form, is gone on from and
# exported; what is saved has the second form.
. "$LF_SRCDIR/tests/stage/lib.sh"

"$tool" data "$dir/data" 30 3 || bail "no test data"
cat >"$dir/old.ini" <<END
[stage]
data = $dir/data
steps = 4
seq_length = 16
save_interval = 2
save_time = 0
keep = 4
valid_tokens = 16
threads = 1
[model]
family = gpt2
layers = 1
hidden = 8
heads = 1
ffn = 8
vocab = 64
max_positions = 16
END
steps=$dir/run/out/checkpoints
mkdir -p "$steps/step-00000002"
cp "$LF_SRCDIR"/tests/golden/store/ckpt-1/* "$steps/step-00000002"
is "$("$tool" id "$steps/step-00000002")" "2 8d46fce3cd790ff1e265494d9fbaad7b1ef1aaab7855e9ab95edfe13cb22ecbd" "an old checkpoint, verified"
train "$stages/lf-pretrain" "$dir/old.ini" run
is "$rc" 0 "a run goes on from it"
says_like "continuing .*from .*step-00000002 at step 2 of 4" "at its step"
is "$("$tool" id "$dir/run/out/checkpoint" | cut -d ' ' -f 1)" 4 "to the end"
grep -q '"identity_version":2' "$dir/run/out/checkpoint/manifest.json"
ok $? "where the identity has the second form"
cmp -s "$LF_SRCDIR/tests/golden/store/ckpt-1/data-00000.h5" "$steps/step-00000002/data-00000.h5"
ok $? "the old one stays as it was"

# Exported, the old one and one made of it by this program have the same weights.
"$stages/lf-convert" --to hf --threads 1 --out "$dir/hf" --from "$steps/step-00000002" 2>"$dir/err" >/dev/null
is $? 0 "it is exported"
"$stages/lf-convert" --threads 1 --verify none --out "$dir/back" --from "$dir/hf/model" 2>"$dir/err" >/dev/null
is $? 0 "and comes in again"
"$stages/lf-convert" --to hf --threads 1 --out "$dir/hf2" --from "$dir/back/checkpoint" 2>"$dir/err" >/dev/null
cmp -s "$dir/hf/model/model.safetensors" "$dir/hf2/model/model.safetensors"
ok $? "with the same bytes"

# Two ranks that each read and write a part of it.
with_ranks
n=9
if have_ranks; then
    for z in 0 1; do
        mkdir -p "$dir/zero$z/out/checkpoints"
        cp -r "$steps/step-00000002" "$dir/zero$z/out/checkpoints"
        train "$launch 2 -- $stages/lf-pretrain" "$dir/old.ini" "zero$z" --steps 2 --batch 2 --micro-batch 1 --zero "$z"
        is $rc 0 "two ranks take it over, zero = $z"
    done
    is "$(id zero1)" "$(id zero0)" "and hand on the same bytes"
    n=$((n + 3))
fi
finish $n

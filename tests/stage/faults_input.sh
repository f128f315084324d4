#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Damage to what lf-pretrain reads, one flipped byte or a cut: each is named in one line, nothing else is lost. (Texts, tokenizers:
# tests/stage/tokenize.sh, tests/unit/text_corpus.c. Pipelines: tests/flow/ini.sh.)
. "$LF_SRCDIR/tests/stage/lib.sh"
pretrain=$LF_BUILDDIR/stages/lf-pretrain
run() { "$pretrain" --config "$dir/run.ini" --log-level warning "$@" >"$dir/err" 2>&1; rc=$?; }
flip() { printf '\377' | dd of="$1" bs=1 seek=$(($(wc -c <"$1") / 2)) conv=notrunc 2>/dev/null; }

"$tool" data "$dir/data" 100 10 || bail "no test data"
cat >"$dir/run.ini" <<END_INI
[stage]
data = $dir/data
steps = 6
mfu = no
seq_length = 32
batch = 2
micro_batch = 2
save_interval = 2
save_time = 0
keep = 3
threads = 1
[model]
family = llama3
layers = 1
hidden = 16
heads = 1
kv_heads = 1
ffn = 16
vocab = 64
max_positions = 32
END_INI
run --out "$dir/ref"
ok $rc "the reference run"
want=$("$tool" id "$dir/ref/checkpoint")
for file in data-00000.h5 state.json manifest.json; do
    rm -rf "$dir/w" "$dir/i"
    cp -r "$dir/ref" "$dir/w"
    rm -r "$dir/w/checkpoint"
    flip "$dir/w/checkpoints/step-00000004/$file"
    run --out "$dir/w"
    [ $rc -eq 0 ] && [ "$(wc -l <"$dir/err")" -eq 1 ] && grep -q "passing over .*step-00000004.*$file" "$dir/err"
    ok $? "a flipped byte in $file of the newest checkpoint: named and passed over"
    [ "$("$tool" id "$dir/w/checkpoint" 2>&1)" = "$want" ] && [ -d "$dir/w/checkpoints/step-00000004.broken" ]
    ok $? "the run ends with the same bytes; the damaged one is kept aside"
    cp -r "$dir/ref/checkpoint" "$dir/i"
    flip "$dir/i/$file"
    run --out "$dir/x" --init-from "$dir/i"
    [ $rc -eq 1 ] && [ "$(wc -l <"$dir/err")" -eq 1 ] && grep -q "init_from: .*$file" "$dir/err" && [ ! -e "$dir/x/checkpoint" ]
    ok $? "and in init_from it is an error that names $file"
done
cp -r "$dir/data" "$dir/cut"
head -c 2000 "$dir/data/train-00000.h5" >"$dir/cut/train-00000.h5"
run --out "$dir/y" --data "$dir/cut"
[ $rc -eq 1 ] && [ "$(wc -l <"$dir/err")" -eq 1 ] && grep -q 'cut/train-00000.h5 has 2000 bytes, its manifest says [0-9]* (cut short?)' "$dir/err"
ok $? "a shard cut short"
rm "$dir/cut/train-00000.h5"
run --out "$dir/y" --data "$dir/cut"
[ $rc -eq 1 ] && [ "$(wc -l <"$dir/err")" -eq 1 ] && grep -q 'cut/train-00000.h5' "$dir/err"
ok $? "a shard that is gone"
finish 12

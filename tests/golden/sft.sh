#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Conversations through lf-tokenize and lf-sft against trl's SFTTrainer (post/make_sft.py): masks of the assistant's turns, packing by
# best fit or one conversation a sequence, 20 steps of all parameters. Losses, gradient norms and entropies within 1e-4; a setting that differs leaves that.
. "$LF_SRCDIR/tests/stage/lib.sh"
golden=$LF_SRCDIR/tests/golden/post/sft
# run NAME COLUMN LR DECAY ARGS...: trains; $apart is the largest relative difference of losses and norms from that column of the curves and the next,
# and of entropies from the last
run() {
    _name=$1 _column=$2 _lr=$3 _decay=$4
    shift 4
    rm -rf "$dir/$_name" "$dir/$_name.m"
    "$stages/lf-sft" --data "$dir/rows/shards" --init-from "$dir/in/checkpoint" --seq-length 128 --packing bfd --micro-batch 1 --steps 20 --lr "$_lr" \
        --schedule constant --weight-decay "$_decay" --threads 1 --metrics "$dir/$_name.m" --out "$dir/$_name" "$@" >"$dir/stdout" 2>"$dir/err" || { apart=failed; return; }
    "$LF_BUILDDIR/tests/stage/infer_tool" record "$dir/$_name.m" | sed 's/.*"step":\([0-9]*\),.*"loss":\([^,]*\),.*"entropy":\([^,]*\),.*"grad_norm":\([^,]*\),.*/\1 \2 \4 \3/' >"$dir/got"
    apart=$(awk -v c="$_column" 'function d(a, b) { a = (a - b) / b; if (a < 0) a = -a; if (a > worst) worst = a }
        /^#/ { next } NR == FNR { loss[$1] = $c; norm[$1] = $(c + 1); bits[$1] = $6; next }
        { k++; d($2, loss[$1]); d($3, norm[$1]); d($4, bits[$1]) }
        END { if (k == 20) printf "%.2g", worst; else print "steps: " k }' "$golden/curves.txt" "$dir/got")
}
near() { awk -v x="$apart" 'BEGIN { exit !(x ~ /^[0-9.e-]+$/ && x + 0 <= 1e-4) }'; }

mkdir "$dir/tok" && cp "$LF_SRCDIR/tests/golden/chat/tokenizer.json" "$golden/tokenizer_config.json" "$dir/tok" &&
    "$stages/lf-convert" --from "$golden" --verify none --out "$dir/in" >"$dir/stdout" 2>"$dir/err" &&
    "$stages/lf-tokenize" --shape messages --tokenizer "$dir/tok" --out "$dir/rows" "$golden/rows.jsonl" >"$dir/stdout" 2>"$dir/err"
ok $? "model and conversations come in"
bins=$(sed -n '1s/.*; \([0-9]*\) sequences.*/\1/p' "$golden/curves.txt")
run packed 4 2e-3 0.1 --batch "$bins"
near
ok $? "packed as trl packs, $bins sequences: 20 losses, gradient norms and entropies within $apart"
run single 2 2e-3 0.1 --batch 14 --max-docs 2
near
ok $? "one conversation a sequence: within $apart"
sed 's/\(.*\),{"role": *"assistant".*/\1]}/' "$golden/rows.jsonl" | head -n 2 >"$dir/ask.jsonl"
run asked 4 2e-3 0.1 --batch "$bins" --sample-interval 20 --sample-prompts "$dir/ask.jsonl" --sample-tokens 6 --tokenizer "$dir/tok"
near && [ "$(grep -c '^{"step":20,.*"text":"..*"token_ids":\[[0-9]' "$dir/asked.m.samples.jsonl")" = 2 ]
ok $? "asked in conversations while it trains: within $apart"
run rate 4 2.002e-3 0.1 --batch "$bins"
! near && [ "$apart" != failed ]
ok $? "a learning rate 0.1 % off is seen: $apart"
run decay 4 2e-3 0 --batch "$bins"
! near && [ "$apart" != failed ]
ok $? "so is missing weight decay: $apart"
"$stages/lf-tokenize" --shape messages --tokenizer "$dir/tok" --train-turns last --out "$dir/last" "$golden/rows.jsonl" >"$dir/stdout" 2>"$dir/err" &&
    rm -rf "$dir/rows" && mv "$dir/last" "$dir/rows" && run mask 4 2e-3 0.1 --batch "$bins"
! near && [ "$apart" != failed ]
ok $? "so is a mask of the last answer alone: $apart"
finish 7

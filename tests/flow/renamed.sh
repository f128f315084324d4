#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Options that were renamed: results keep their ids, a new pipeline file with an old name is told the new one, and a run that
# was begun with the old name goes on.
. "$LF_SRCDIR/tests/flow/lib.sh"
stages() { # stages NAMES: a pipeline with every renamed option, by their names of today or of before
    rounds=rounds round_prompts=round_prompts round_epochs=round_epochs slots=slots log_samples=log_samples
    warmup_rounds=warmup_rounds decay_rounds=decay_rounds micro_tokens=micro_tokens inputs=inputs simpo_gamma=simpo_gamma
    verify_data=verify_data
    if [ "$1" = before ]; then
        rounds=steps round_prompts=prompts round_epochs=epochs slots=batch log_samples=show
        warmup_rounds=warmup decay_rounds=decay micro_tokens=batch_tokens inputs=data simpo_gamma=gamma
        verify_data=verify
    fi
    cat <<END
[pipeline]
name = renamed
[stage text]
kind = tokenize
inputs = text.txt
vocab_size = 300
[stage base]
kind = pretrain
data = \${stage:text.shards}
seq_length = 32
steps = 2
warmup = 1
$verify_data = yes
[model]
family = llama3
layers = 1
hidden = 16
heads = 2
kv_heads = 1
ffn = 32
max_positions = 64
[stage pairs]
kind = tokenize
inputs = pairs.jsonl
tokenizer = \${stage:text.tokenizer}
[stage simpo]
kind = dpo
data = \${stage:pairs.shards}
init_from = \${stage:base.checkpoint}
loss = simpo
seq_length = 32
steps = 2
$simpo_gamma = 0.75
[stage rl]
kind = ppo
data = \${stage:pairs.shards}
tokenizer = \${stage:text.tokenizer}
init_from = \${stage:simpo.checkpoint}
reward = length:4
max_prompt = 16
max_tokens = 4
$rounds = 3
$round_prompts = 2
$round_epochs = 2
$slots = 4
$log_samples = 1
schedule = wsd
$warmup_rounds = 1
$decay_rounds = 1
[stage texts]
kind = generate
checkpoint = \${stage:rl.checkpoint}
tokenizer = \${stage:text.tokenizer}
prompt = once
$slots = 2
[stage measured]
kind = eval
checkpoint = \${stage:rl.checkpoint}
data = \${stage:text.shards}
$micro_tokens = 128
$slots = 3
[stage scored]
kind = score
checkpoint = \${stage:rl.checkpoint}
tokenizer = \${stage:text.tokenizer}
$inputs = pairs.jsonl
$micro_tokens = 128
END
}
echo 'once upon a time' >text.txt
echo '{"prompt":"a","chosen":"b","rejected":"c"}' >pairs.jsonl
LF_LIBEXEC=$LF_BUILDDIR/stages
stages today >pipeline.ini
runs 0 "$LF_BUILDDIR/loong-flow" plan --json
# What loong-flow said of the same stages before, when they had the old names.
while read -r name id; do
    like out "\"spec_id\": *\"$id\"" "$name keeps its spec id"
done <<'END'
text 48a48f5d0ac6a184de067669ec8e1047a91b89ec75164e2025144f3c689bb184
base 2310aa713b2fe1bdebbecb8e11d1144087fb1d004062c826c9c4f00abaf9b430
pairs 0946f7961da92b134def942e4ed0c1059cc4adc86f7cf2cf6ba7ccb85348f0ea
simpo fdbbe2ff73ad50b367d56775f5fe27303df8cd407de2b21e287bbc643cdd85d3
rl 8ccab8b4d26261997abd5d636ada641169acd7895f78621f2a9fdeae294a1635
texts abcdabca886af60c96020007704c9555b6a95a1d44e4381e36aac20603d15ae4
measured 9e1eeeb2e9e83cc77feb1c80ec8fe5ab839487959b89a7f81c88510f4e257645
scored 2d27159a58b87c03c353b2bf3ff2fd10c730bc21234afc82ca412afc939f59da
END
stages before >old.ini
for pair in base.verify:verify_data simpo.gamma:simpo_gamma rl.steps:rounds rl.prompts:round_prompts rl.epochs:round_epochs \
    rl.batch:slots rl.show:log_samples rl.warmup:warmup_rounds rl.decay:decay_rounds texts.batch:slots measured.batch_tokens:micro_tokens \
    measured.batch:slots scored.data:inputs scored.batch_tokens:micro_tokens; do
    old=${pair%:*}
    "$LF_BUILDDIR/loong-flow" validate --set "$old=1" >out 2>&1
    is $? 2 "$old is refused"
    like out "\"${old#*.}\" of .* is now called \"${pair#*:}\"" "... with the new name"
done
"$LF_BUILDDIR/loong-flow" validate old.ini >out 2>&1
is $? 2 "a pipeline file with the old names is refused"
like out 'old.ini:[0-9]*:[0-9]*: .*is now called' "... with the place of the first one"
"$LF_BUILDDIR/stages/lf-ppo" --warmup 3 >out 2>&1
is $? 2 "the stage refuses an old name too"
like out '"--warmup" of ppo is now called "--warmup-rounds"' "... as it is typed"
LOONG_SITE_CONFIG=site.ini "$LF_BUILDDIR/loong-flow" validate >out 2>&1
is $? 2 "so is a variable of the environment"
like out 'sets LOONG_SITE_CONFIG, which is now called LF_SITE_CONFIG' "... with the new name"
LOONG_COMM=tcp "$LF_BUILDDIR/stages/lf-score" --checkpoint x --tokenizer x --inputs x --out y >out 2>&1
is $? 2 "by stages too" "$(cat out)"
LF_ISA=avx-2 "$LF_BUILDDIR/stages/lf-score" --checkpoint x --tokenizer x --inputs x --out y >out 2>&1
is $? 2 "and an instruction set that is none" "$(cat out)"
like out 'LF_ISA = avx-2; there are plain, (avx2, avx512 and avx512bf16|neon, neonbf16, sve256bf16 and sve512)$' "... with those that there are"

# --- a run from before the option of the test's stage was renamed (fake_tables.c) ---
LF_LIBEXEC=$LF_BUILDDIR/tests/flow/bin
pipeline
sed -i 's/^steps = 30/steps = 5\nfactor = 2.5/; s/^step_time = 20/step_time = 1/' pipeline.ini
runs 0 "$LF" run
records() { grep -rlE '"factor"|"renamed"' loong-data; }
sed -i 's/"renamed":{[^}]*},\{0,1\}//; s/"factor"/"multiplier"/g' $(records)
[ -z "$(records)" ]
ok $? "records as an earlier version wrote them"
runs 0 "$LF" plan
unlike out 'first.*(will run|changed)' "nothing is to be done again"
runs 0 "$LF" run
is "$(tries first)" 1 "the result of before is taken"
runs 0 "$LF" plan --set first.factor=3
like out 'changed.*: factor' "a difference is told by the name of today"
runs 0 "$LF" resume --only first --set first.factor=3 --set first.steps=8 --accept factor --accept steps
like "$(stage_dir first)/log" 'continues at step' "--accept takes the name of today, and goes on from the checkpoint of before"
finish 56

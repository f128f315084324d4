#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# --profile of training and generating stages: files beside the metrics or in out, a table in the log, the same weights, and nothing of it
# when it is off. That its numbers add up: tests/unit/graph_profile.c.
. "$LF_SRCDIR/tests/stage/lib.sh"
pretrain=$LF_BUILDDIR/stages/lf-pretrain generate=$LF_BUILDDIR/stages/lf-generate

has() { # has FILE PATTERN...
    _file=$1
    shift
    for _p in "$@"; do grep -q "$_p" "$_file" || return 1; done
}
run() { train "$pretrain" "$dir/run.ini" "$@"; } # run NAME ARGS...

"$tool" data "$dir/data" 100 40 || bail "no test data"
cat >"$dir/run.ini" <<END
[stage]
data = $dir/data
steps = 4
seq_length = 64
batch = 4
micro_batch = 2
save_interval = 2
save_time = 0
seed = 5
threads = 2
[model]
family = llama3
layers = 2
hidden = 48
heads = 4
kv_heads = 2
ffn = 96
max_positions = 256
END
mkdir "$dir/off" "$dir/on" "$dir/late"
run off
ok $? "training without a profile"
[ -z "$(find "$dir/off" -name 'profile*')" ]
ok $? "leaves no file of one"
! grep -q roofline "$dir/err"
ok $? "and says nothing of one"
run on --profile
ok $? "training with one"
has "$dir/on/profile.json" '"lf_profile":1' '"op":"linear_dw"' '"op":"adamw"' '"graph":"train","layer":1' '"name":"step"' '"name":"next micro-batch"' \
    '"name":"checkpoint"' '"graph":"valid"'
ok $? "profile.json stands beside the metrics: operations, layers, steps, data, checkpoints"
has "$dir/on/profile.trace.json" '"traceEvents"' '"name":"train backward"' '"cat":"checkpoints"' '"cat":"data"' '"cat":"nodes"'
ok $? "profile.trace.json too"
has "$dir/err" 'op  *calls' 'linear_dw' 'roofline'
ok $? "the table is in the log"
id=$("$tool" id "$dir/on/out/checkpoint") && [ "$id" = "$("$tool" id "$dir/off/out/checkpoint")" ]
ok $? "the weights are the same bits"
mkdir "$dir/late/profile.json"
run late --profile
[ $? -eq 1 ] && has "$dir/err" 'profile: .*profile.json'
ok $? "a profile that cannot be written is a failure that names the file"
[ "$("$tool" id "$dir/late/out/checkpoint")" = "$id" ]
ok $? "after the checkpoint was"

# --- lf-ppo: the parts of a round ---
ppo=$LF_BUILDDIR/stages/lf-ppo infer=$LF_BUILDDIR/tests/stage/infer_tool
awk 'BEGIN { for (a = 0; a < 60; a++) for (b = 0; b < 9; b++) print a "+" b "=" a + b }' >"$dir/text.txt"
awk 'BEGIN { for (a = 0; a < 6; a++) printf "{\"prompt\":\"%d+%d=\",\"answer\":\"%d\"}\n", a, a % 7, a + a % 7 }' >"$dir/prompts.jsonl"
{ cat "$LF_SRCDIR/models/tiny-llama.ini"; echo "output = score"; } >"$dir/rm.ini"
"$LF_BUILDDIR/stages/lf-tokenize" --doc-split=line --vocab-size=270 --out "$dir/tok" "$dir/text.txt" 2>"$dir/err" &&
    "$LF_BUILDDIR/stages/lf-tokenize" --shape=prompt --tokenizer "$dir/tok/tokenizer" --unmapped=ignore --out "$dir/asked" "$dir/prompts.jsonl" 2>"$dir/err" &&
    "$infer" ckpt "$dir/lm" "$LF_SRCDIR/models/tiny-llama.ini" 270 && "$infer" ckpt "$dir/rm" "$dir/rm.ini" 270 ||
    bail "no test data for lf-ppo: $(tail -n 1 "$dir/err")"
rl() { # rl NAME ARGS...
    _name=$1
    shift
    "$ppo" --algorithm ppo --data "$dir/asked/shards" --tokenizer "$dir/tok/tokenizer" --init-from "$dir/lm" --reward-model "$dir/rm" --reward 'length:4' \
        --max-prompt 16 --max-tokens 6 --round-prompts 4 --minibatch 2 --round-epochs 3 --rounds 2 --threads 2 --micro-tokens 64 --save-time 0 \
        --out "$dir/$_name" "$@" >"$dir/stdout" 2>"$dir/err"
}
# NAME:COUNT:SECONDS of every phase.
phases() { tr '{' '\n' <"$dir/$1/profile.json" | sed -n 's/^"count":\([0-9]*\),.*"lane":.*"name":"\([^"]*\)","seconds":\([0-9.e-]*\)}.*/\2:\1:\3/p'; }
count() { phases "$1" | sed -n "s/^$2:\([0-9]*\):.*/\1/p"; } # count RUN PHASE
rl rl-off && rl rl --profile
ok $? "two rounds of PPO with a profile"
grep -o '"identity":"[0-9a-f]*"' "$dir/rl/checkpoint/manifest.json" >"$dir/id.on"
grep -o '"identity":"[0-9a-f]*"' "$dir/rl-off/checkpoint/manifest.json" | cmp -s - "$dir/id.on" && [ -s "$dir/id.on" ]
ok $? "end with the weights of two without"
[ "$(count rl round) $(count rl rollout) $(count rl "reward model") $(count rl "rules and command")" = "2 2 2 2" ] &&
    [ "$(count rl reference) $(count rl values) $(count rl advantages) $(count rl "rollout file")" = "2 2 2 2" ]
ok $? "rollout, rewards, reference, values and advantages of each"
[ "$(count rl epoch) $(count rl "update of the actor") $(count rl "update of the critic")" = "6 12 12" ]
ok $? "three epochs in each, of two updates of either model"
[ "$(count rl "generation step")" -ge 12 ] && [ "$(count rl draws)" = "$(count rl "generation step")" ]
ok $? "$(count rl "generation step") steps of generation, with their draws"
phases rl | awk -F: '{ s[$1] = $3 }
    END { in_round = s["rollout"] + s["reward model"] + s["rules and command"] + s["reference"] + s["values"] + s["advantages"] + s["epoch"]
          exit !(s["draws"] > 0 && s["draws"] < s["generation step"] && s["generation step"] < s["rollout"] && s["update of the actor"] + s["update of the critic"] < s["epoch"] &&
                 s["epoch"] > 0 && in_round < s["round"]) }'
ok $? "parts take no longer than what they are parts of"
has "$dir/rl/profile.trace.json" '"name":"generation step","cat":"steps"' '"name":"epoch","cat":"steps"' '"name":"rollout file","cat":"checkpoints"' &&
    has "$dir/err" '^.*rollout  *2 ' '^.*update of the critic  *12 '
ok $? "the trace has them, and the table"

printf '{"prompt_token_ids": [1, 2, 3]}\n{"prompt_token_ids": [4, 5]}\n' >"$dir/prompts"
"$generate" --checkpoint "$dir/on/out/checkpoint" --prompts "$dir/prompts" --max-tokens 4 --ignore-eos --out "$dir/gen" --profile >"$dir/stdout" 2>"$dir/err"
ok $? "generating with one"
has "$dir/gen/profile.json" '"op":"attention_paged"\|"op":"attn_paged"' && [ -s "$dir/gen/profile.trace.json" ]
ok $? "without metrics it stands in out"
"$generate" --checkpoint "$dir/on/out/checkpoint" --prompts "$dir/prompts" --show --profile >"$dir/stdout" 2>"$dir/err"
[ $? -eq 2 ]
ok $? "without both it is a mistake of the command line"
finish 20

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# [layout] of a pipeline, with the real stages: its keys reach the stages that can be divided and no others, names that are kept for later
# are refused, one place says it; two ranks train with it to the bits of two ranks without.
. "$LF_SRCDIR/tests/tap/shm.sh"
. "$LF_SRCDIR/tests/flow/lib.sh"
. "$LF_SRCDIR/tests/stage/light_lib.sh"
light_flow
LF_MODELS_DIR=$LF_SRCDIR/models OMP_NUM_THREADS=1 LF_CUDA_DRIVER=$T/no-driver
export LF_MODELS_DIR OMP_NUM_THREADS LF_CUDA_DRIVER
seq -f 'a line of text with the number %g' 200 >corpus.txt

cat >base.ini <<'END'
[pipeline]
name = laid
[model]
family = llama3
layers = 2
hidden = 64
heads = 4
ffn = 128
vocab = 512
max_positions = 256
[stage tokenize]
kind = tokenize
inputs = corpus.txt
vocab_size = 300
[stage train]
kind = pretrain
data = ${stage:tokenize.shards}
seq_length = 64
batch = 8
micro_batch = 1
steps = 4
lr = 1e-3
warmup = 2
threads = 1
ranks = 2
END
with() { { cat base.ini; cat; } >"$1.ini"; } # with NAME: the pipeline and what comes in
# refused NAME PATTERN: validate says so of the file's line
refused() { runs 2 "$LF" validate "$1.ini"; like err "$1.ini:$2" "  and says where and why"; }

with parts <<END
[layout]
zero = 1
END
runs 0 "$LF" validate parts.ini
runs 0 "$LF" plan parts.ini --json
cp out parts.json
runs 0 "$LF" plan base.ini --json
moments() { tr ',{' '\n\n' <"$1" | sed -n 's/.*"optimizer": *\([0-9]*\).*/\1/p' | sort -n | tail -n 1; }
half=$(moments parts.json) whole=$(moments out)
[ "${half:-0}" -gt 0 ] && [ "$half" -lt $((whole * 6 / 10)) ]
ok $? "the plan has a rank's part of the moments: $half bytes of $whole"

runs 0 "$LF" plan parts.ini
like out 'planned memory of rank [01], the largest, [0-9.]+ MiB: weights' "its table names the rank that needs most"
like out '2 ranks: each sends [0-9.]+ [KM]iB a step in [0-9]+ collectives' "and what it sends"
runs 0 "$LF" plan base.ini
like out 'planned memory of a rank [0-9.]+ MiB: weights' "without zero all need the same"

"$LF" help zero >out
like out '^zero is a key of \[layout\]' "help tells where it stands"

with named <<END
layout = small
[layout small]
zero = 1
END
runs 0 "$LF" plan named.ini --json
is "$(moments out)" "$half" "a stage names its own"
with nowhere <<END
layout = large
[layout small]
zero = 1
END
refused nowhere '[0-9]+:[0-9]+: layout = large: there is no \[layout large\]'
with unused <<END
[layout small]
zero = 1
END
refused unused '[0-9]+:[0-9]+: \[layout small\] is used by no stage; name it with layout = NAME'
with inside <<END
zero = 1
END
refused inside '[0-9]+:[0-9]+: "zero" belongs in \[layout\]'
with within <<END
zero_inner = 2
END
refused within '[0-9]+:[0-9]+: "zero_inner" belongs in \[layout\]'
sed 's/^vocab_size = 300/&\nlayout = small/' base.ini >text.ini
printf '[layout small]\nzero = 1\n' >>text.ini
refused text '[0-9]+:[0-9]+: stages of kind tokenize are not laid out'
with out <<'END'
[stage out]
kind = convert
from = ${stage:train.checkpoint}
to = hf
tokenizer = ${stage:tokenize.tokenizer}
layout = small
[layout small]
zero = 1
END
refused out '[0-9]+:[0-9]+: stages of kind convert are not laid out: a checkpoint is that of the whole model for every layout; remove "layout"'
# What ranks divide matrices, and on how many nodes they are.
divided() { # divided RANKS LINES...: of the stage, then of [layout]
    { sed "s/^ranks = .*/ranks = $1/" base.ini; shift; printf '%s\n' "$@"; } >divided.ini
}
divided 2 '[layout]' 'tensor = 2' 'sequence_parallel = yes'
runs 0 "$LF" validate divided.ini
divided 3 '[layout]' 'tensor = 2'
refused divided '[0-9]+:[0-9]+: tensor = 2: the 3 ranks of \[stage train\] cannot form such groups; set ranks'
for s in slurm pbs torque; do
    divided 3 'nodes = 2' '[site]' "scheduler = $s" '[layout]' 'tensor = 2'
    refused divided "$(grep -n '^tensor' divided.ini | cut -d: -f1):[0-9]+: tensor = 2: the 3 ranks that \\[stage train\\] has on each node are no multiple"
done
divided 3 'nodes = 2' '[site]' 'scheduler = slurm' '[layout]' 'tensor = 2' 'tensor_across_nodes = yes'
runs 0 "$LF" validate divided.ini
# What the stage refuses of a key of [layout] stands at that key.
at_key() { # at_key KEY PATTERN
    refused divided "$(grep -n "^$1 =" divided.ini | tail -n 1 | cut -d: -f1):[0-9]+: stage [a-z]+: $2"
}
divided 2 '[layout]' 'sequence_parallel = yes'
at_key sequence_parallel '.*set tensor to 2 or more'
divided 8 '[layout]' 'tensor = 8'
at_key tensor 'heads = 4 do not divide among 8 ranks'
divided 4 '[layout]' 'context = 2' 'tensor = 2'
runs 0 "$LF" validate divided.ini
divided 3 '[layout]' 'context = 2'
refused divided '[0-9]+:[0-9]+: context = 2: the 3 ranks of \[stage train\] cannot form such groups; set ranks'
divided 6 '[layout]' 'context = 2' 'tensor = 2'
refused divided '[0-9]+:[0-9]+: context x tensor = 4: the 6 ranks of'
divided 4 '[layout]' 'expert = 65536' 'pipeline = 65536' 'context = 65536' 'tensor = 65536'
refused divided '[0-9]+:[0-9]+: pipeline x context x tensor = [0-9]+: the 4 ranks of'
divided 8 '[layout]' 'expert = 65536' 'pipeline = 2' 'context = 2' 'tensor = 2'
refused divided '[0-9]+:[0-9]+: expert x pipeline x tensor = [0-9]+: the 8 ranks of'
divided 8 '[layout]' 'context = 8'
at_key context 'heads = 4 do not divide among 8 ranks .context.'
divided 2 '[layout]' 'context = 2' 'context_kind = ring'
at_key context_kind 'context_kind = ring is not built, because'
divided 4 '[layout]' 'pipeline = 2' 'zero = 2'
at_key zero 'zero = 2 with pipeline = 2: .* take zero = 1'
divided 4 '[layout]' 'pipeline = 4'
at_key pipeline '.*2 layers cannot be cut into 4 pipeline stages'
divided 3 '[layout]' 'zero = 1' 'zero_inner = 2'
at_key zero_inner 'zero_inner = 2: 3 ranks cannot form such groups'
divided 4 '[layout]' 'expert = 3'
refused divided '[0-9]+:[0-9]+: expert = 3: the 4 ranks of \[stage train\] cannot form such groups'
divided 4 '[layout]' 'expert = 2'
at_key expert 'expert = 2 divides experts among ranks, and the model has none'
divided 4 '[layout]' 'expert = 4' 'context = 2' 'expert_room = 1.5' 'zero = 1'
sed -i 's/^family = .*/family = qwen2-moe\nexperts = 4\nexperts_per_token = 2\nexpert_ffn = 64\nshared_ffn = 64/' divided.ini
runs 0 "$LF" plan divided.ini --no-measure
like out '^      4 ranks: data 2 x context 2 x expert 4$' "the plan says who divides experts"
like out 'to experts each sends, evenly chosen, [0-9.]+ [KM]iB a step in [0-9]+ collectives' "and what goes to them"
# So does what follows from no size, of a model that another stage is yet to make.
later() { # later KIND LINES...: of a stage behind it
    kind=$1
    shift
    divided 2 '[stage later]' "kind = $kind" 'data = ${stage:tokenize.shards}' 'init_from = ${stage:train.checkpoint}' 'ranks = 4' 'layout = own' "$@"
}
later sft 'steps = 2' '[layout own]' 'pipeline = 2' 'zero = 3'
at_key zero 'zero = 3 with pipeline = 2: .* take zero = 1'
later sft 'steps = 2' '[layout own]' 'zero = 1' 'zero_inner = 3'
at_key zero_inner 'zero_inner = 3: 4 ranks cannot form such groups'
later sft 'steps = 2' 'seq_length = 33' '[layout own]' 'context = 2'
at_key context 'context = 2: the 33 rows of a micro-batch'
later sft 'steps = 2' '[layout own]' 'expert = 2' 'zero = 3' 'zero_inner = 2'
at_key expert 'expert = 2 with zero_inner = 2: .* leave zero_inner out'
later ppo 'tokenizer = ${stage:tokenize.tokenizer}' 'reward = length:5' 'rounds = 2' 'round_prompts = 4' '[layout own]' 'pipeline = 2'
at_key pipeline 'pipeline: ppo generates with what it trains'
divided 4 '[layout]' 'tensor = 2' 'pipeline = 2' 'pipeline_schedule = zb-h1'
runs 0 "$LF" validate divided.ini
divided 2 '[layout]' 'tensor = 2' 'pipeline = 2'
refused divided '[0-9]+:[0-9]+: .*the 2 ranks of \[stage train\] cannot form such groups'
# What is planned of a layout of three axes: 8 samples of 64 positions for two groups, rows halved.
divided 8 '[layout]' 'tensor = 2' 'pipeline = 2' 'sequence_parallel = yes'
runs 0 "$LF" plan divided.ini --no-measure
like out '^      8 ranks: pipeline 2 x data 2 x tensor 2, rows divided$' "the plan says who divides what"
like out 'along data each sends [0-9.]+ [KM]iB a step in [0-9]+ collective' "what a rank sends to those that share the batch"
like out 'along tensor each sends [0-9.]+ [KM]iB a step in [0-9]+ collectives' "to those that divide matrices"
like out 'along pipeline a rank sends at most 32.0 KiB a step in 4 messages' "and to those with other layers: 4 x 32 x 64 f32"
like out '^      pipeline rank 0: layers 0, planned memory [0-9.]+ MiB' "the layers of the first rank"
like out '^      pipeline rank 1: layers 1, planned memory [0-9.]+ MiB' "and of the second"
like out 'schedule 1f1b: ranks are idle for 20.0 % of a step' "how long ranks wait: one pass of four and one"
like out '^      rank 1  F0 Z0 F1 Z1 F2 Z2 F3 Z3$' "and what they do"
is "$(awk 'length > 100 && !/memory of a rank|parameters,|are estimates/' out)" "" "in lines of 100 columns"
runs 0 "$LF" plan divided.ini --no-measure --json
is "$(tr -d ' \n' <out | grep -o '"axes":{[^}]*}')" '"axes":{"data":2,"pipeline":2,"sequence":true,"tensor":2}' "as JSON: the axes"
like out '"pipeline_bytes_per_step": *32768' "and the bytes of messages"
runs 0 "$LF" plan divided.ini --no-measure --json --set layout.pipeline=1 --set layout.tensor=4
is "$(grep -c pipeline_bytes_per_step out)" 0 "which are of a pipeline alone"
is "$(grep -c 'tied embedding' out)" 0 "no word of an embedding that is not tied"
divided 2 '[layout]' 'pipeline = 2'
runs 0 "$LF" plan divided.ini --no-measure --set model.tied_head=yes
like out '^      a tied embedding sends [0-9.]+ [KM]iB of gradients a step to the first rank, and their sum back$' "what the ends of a pipeline exchange of a tied embedding"
# Layers that are cut by time: where the machine is measured, and where it is not.
divided 2 '[layout]' 'pipeline = 2' 'pipeline_cost = measured'
runs 0 "$LF" plan divided.ini
like out '^      pipeline rank 1: layers 1, planned memory [0-9.]+ MiB, F [0-9.e-]+ ms, B [0-9.e-]+ ms, W [0-9.e-]+ ms$' "a plan that measures tells what layers take"
like out 'schedule 1f1b: ranks are idle for [0-9.]+ % of a step, of [0-9.e-]+ s as measured$' "and a step"
runs 0 "$LF" plan divided.ini --no-measure
like out '^      pipeline rank 1: layers 1, planned memory [0-9.]+ MiB$' "one that does not tells nothing of it"
like out 'pipeline_cost = measured: the run measures its layers' "but that the run will"
# Stages that only run a model forward are divided where they name a layout.
forward() { # forward RANKS LINES...
    {
        cat base.ini
        printf '[stage write]\nkind = generate\ncheckpoint = ${stage:train.checkpoint}\ntokenizer = ${stage:tokenize.tokenizer}\nprompt = a line\nranks = %s\n' "$1"
        shift
        printf '%s\n' "$@"
    } >forward.ini
}
forward 2 'layout = wide' '[layout wide]' 'tensor = 2'
runs 0 "$LF" plan forward.ini --json --no-measure
like out '"tensor": *2' "generation by a group of two ranks"
forward 3 '[layout]' 'zero = 1'
runs 0 "$LF" validate forward.ini
forward 3 'layout = wide' '[layout wide]' 'tensor = 2'
refused forward '[0-9]+:[0-9]+: tensor = 2: the 3 ranks of \[stage write\] cannot form such groups'
forward 2 'layout = wide' '[layout wide]' 'tensor = 2' 'zero = 1'
refused forward '[0-9]+:[0-9]+: "zero" in \[layout wide\] is about training; give \[stage write\]'
forward 2 'tensor = 2'
refused forward '[0-9]+:[0-9]+: "tensor" belongs in \[layout\]'
# Parts of ppo name layouts of their own, of which tensor counts.
policy() { # policy RANKS LINES...: of the stage, then of the layouts
    {
        cat base.ini
        printf '[stage tune]\nkind = ppo\ndata = ${stage:tokenize.shards}\ninit_from = ${stage:train.checkpoint}\ntokenizer = ${stage:tokenize.tokenizer}\n'
        printf 'reward = length:5\nreward_model = ${stage:train.checkpoint}\nrounds = 1\nround_prompts = 4\nmax_prompt = 64\nmax_tokens = 64\nalgorithm = ppo\nnumeric = fast\nranks = %s\n' "$1"
        shift
        printf '%s\n' "$@"
    } >policy.ini
}
policy 4 'rollout_layout = wide' 'reference_layout = one' 'reward_layout = wide' 'critic_layout = wide' '[layout]' 'tensor = 2' 'zero = 1' '[layout wide]' \
    'tensor = 4' '[layout one]' 'tensor = 1'
runs 0 "$LF" validate policy.ini
cp policy.ini laid.ini
policy 4 'rollout_layout = none'
refused policy '[0-9]+:[0-9]+: rollout_layout = none: there is no \[layout none\]'
policy 4 'rollout_layout = wide' '[layout wide]' 'tensor = 4' 'zero = 3'
refused policy '43:1: "zero" in \[layout wide\]: rollout_layout of \[stage tune\] takes tensor alone'
policy 4 'rollout_layout = wide' '[layout wide]' 'pipeline = 2'
refused policy '[0-9]+:[0-9]+: rollout_layout = wide: \[layout wide\] has no tensor'
policy 4 'critic_layout = wide' '[layout wide]' 'tensor = 3'
refused policy '[0-9]+:[0-9]+: tensor = 3: the 4 ranks of \[stage tune\] cannot form such groups'
policy 4 'rollout_tensor = 2'
refused policy '[0-9]+:[0-9]+: "rollout_tensor" is tensor of a \[layout NAME\] with rollout_layout = NAME here'
sed 's/^lr = 1e-3/&\nrollout_layout = wide/' base.ini >pretrain.ini
printf '[layout wide]\ntensor = 2\n' >>pretrain.ini
refused pretrain '[0-9]+:[0-9]+: .*rollout_layout'
divided 8 '[layout]' 'expert = 2' 'tensor = 4' 'expert_tensor = 2'
at_key expert_tensor 'expert_tensor = 2: .* all ranks of tensor .4., or among none'
divided 4 '[layout]' 'expert = 8' 'tensor = 2' 'expert_tensor = 1'
refused divided '[0-9]+:[0-9]+: expert = 8: the 4 ranks of'
with wrong <<END
[layout]
zero = 7
tensr = 2
END
refused wrong '[0-9]+:[0-9]+: unknown key "tensr" in \[layout\]'
like err 'wrong.ini:[0-9]+:[0-9]+: .*zero.*7' "and the value that is none"

if ! "$LF" launch -n 2 -- true >/dev/null 2>err; then
    skip_some 24 "ranks cannot be started here: $(tail -n 1 err)"
else
    runs 0 "$LF" run --quiet parts.ini
    a=$(stage_dir train)
    "$LF" run --quiet --new base.ini >o 2>&1
    b=$(stage_dir train)
    identity() { tr ',' '\n' <"$1/out/checkpoint/manifest.json" | sed -n 's/.*"identity": *"\([^"]*\)".*/\1/p'; }
    is "$(identity "$a")" "$(identity "$b")" "two ranks with their parts: the checkpoint of two ranks without"
    [ -n "$(identity "$a")" ] && [ "$a" != "$b" ]
    ok $? "which is there"
    sed 's#${stage:train.checkpoint}#'"$a"'/out/checkpoint#' laid.ini | grep -v '^reward_' >policy.ini # an lf-rm would have to make that model
    runs 0 "$LF" plan policy.ini --json --no-measure
    like out '"rollout_bytes_most": *[1-9]' "and what comes to rollouts is in the plan"
    runs 0 "$LF" plan policy.ini --no-measure
    like out 'rollouts have weights of their own: at most [0-9.]+ [KM]iB come to a rank before each round$' "its table too"
    runs 0 "$LF" plan policy.ini --json --no-measure
    for part in rollout=4 reference=1 critic=4; do
        like out "\"${part%=*}_tensor\": *${part#*=}" "${part%=*}_layout becomes the option of the stage"
    done

    # A run tells its layout, and what another one changes.
    divided 4 '[layout]' 'tensor = 2' 'pipeline = 2' 'sequence_parallel = yes'
    runs 0 "$LF" run --quiet --new divided.ini
    grep -h 'ranks: pipeline' "$(stage_dir train)/log" >log
    is "$(sed 's/.*lf-pretrain: //' log)" "4 ranks: pipeline 2 (1f1b; layers 1,1) x tensor 2, rows divided" "the log says the layout, once"
    is "$("$LF" status --columns name,layout | sed -n 's/^train  *//p')" "pipeline 2, tensor 2" "status has a column"
    "$LF" status --columns progress >out
    like out '^train .* ([0-9]{1,2}|100) %' "and one of what is exposed of its messages"
    "$LF" show train >out
    like out '^  layout pipeline 2, tensor 2$' "show has a line"
    runs 0 "$LF" resume --quiet --set layout.pipeline=1 --set layout.tensor=1 --set layout.sequence_parallel=no --set train.steps=6 --accept steps
    cat "$(stage_dir train)/log" >log
    like log 'perhaps not bitwise: .*tensor was 2, is 1' "without it: the log says that matrices are whole"
    like log 'perhaps not bitwise: .*sequence was true, is false' "that rows are"
    like log 'perhaps not bitwise: .*pipeline was 2, is 1' "and that the model is"
    like log 'perhaps not bitwise: .*layers was "1,1", is "all"' "with the layers that ranks had"

    # The example for two nodes, on this one.
    mkdir example && sed G corpus.txt >example/corpus.txt && cp "$LF_SRCDIR/examples/parallel/pipeline.ini" example && cd example || exit 99
    runs 0 "$LF" run --quiet --set 'stage train.nodes=1' --set 'stage train.ranks=8' --set 'stage train.steps=5' --set 'stage more.steps=3'
    like "$(stage_dir train)/log" '8 ranks: pipeline 2 \(1f1b; layers 2,2\) x data 2 x tensor 2, rows divided$' "examples/parallel: a layout of three axes"
    like "$(stage_dir more)/log" '2 ranks: data 2$' "and another one goes on from its checkpoint"
fi
finish 154

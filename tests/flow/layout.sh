#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# [layout] of a pipeline, with the real stages: its keys reach the stages that can be divided and no others, names that are kept for later
# are refused, one place says it; two ranks train with it to the bits of two ranks without.
. "$LF_SRCDIR/tests/flow/lib.sh"
LF=$LF_BUILDDIR/loong-flow
unset LF_LIBEXEC
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
# What ranks divide matrices, and on how many nodes they are.
divided() { # divided RANKS LINES...: of the stage, then of [layout]
    { sed "s/^ranks = .*/ranks = $1/" base.ini; shift; printf '%s\n' "$@"; } >divided.ini
}
divided 2 '[layout]' 'tensor = 2' 'sequence_parallel = yes'
runs 0 "$LF" validate divided.ini
divided 3 '[layout]' 'tensor = 2'
refused divided '[0-9]+:[0-9]+: tensor = 2: the 3 ranks of \[stage train\] cannot form such groups; set ranks'
divided 3 'nodes = 2' '[site]' 'scheduler = slurm' '[layout]' 'tensor = 2'
refused divided '[0-9]+:[0-9]+: tensor = 2: the 3 ranks that \[stage train\] has on each node are no multiple'
divided 3 'nodes = 2' '[site]' 'scheduler = slurm' '[layout]' 'tensor = 2' 'tensor_across_nodes = yes'
runs 0 "$LF" validate divided.ini
divided 2 '[layout]' 'sequence_parallel = yes'
refused divided '.*set tensor to 2 or more'
divided 4 '[layout]' 'tensor = 2' 'pipeline = 2' 'pipeline_schedule = zb-h1'
runs 0 "$LF" validate divided.ini
divided 2 '[layout]' 'tensor = 2' 'pipeline = 2'
refused divided '[0-9]+:[0-9]+: .*the 2 ranks of \[stage train\] cannot form such groups'
for key in context context_kind expert expert_tensor; do
    printf '[layout]\n%s = 2\n' $key | with kept
    refused kept "[0-9]+:[0-9]+: \"$key\" is not there yet"
done
with wrong <<END
[layout]
zero = 7
tensr = 2
END
refused wrong '[0-9]+:[0-9]+: unknown key "tensr" in \[layout\]'
like err 'wrong.ini:[0-9]+:[0-9]+: .*zero.*7' "and the value that is none"

if ! "$LF" launch -n 2 -- true >/dev/null 2>err; then
    skip_some 3 "ranks cannot be started here: $(tail -n 1 err)"
else
    runs 0 "$LF" run --quiet parts.ini
    a=$(stage_dir train)
    "$LF" run --quiet --new base.ini >o 2>&1
    b=$(stage_dir train)
    identity() { tr ',' '\n' <"$1/out/checkpoint/manifest.json" | sed -n 's/.*"identity": *"\([^"]*\)".*/\1/p'; }
    is "$(identity "$a")" "$(identity "$b")" "two ranks with their parts: the checkpoint of two ranks without"
    [ -n "$(identity "$a")" ] && [ "$a" != "$b" ]
    ok $? "which is there"
fi
finish 47

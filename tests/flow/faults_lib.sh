# SPDX-License-Identifier: Apache-2.0
# For tests that cut real stages short: source it behind lib.sh. Makes text.txt and a pipeline.ini that tokenizes it and trains a
# small model for 30 steps with a checkpoint every third.
LF_MODELS_DIR=$LF_SRCDIR/models
export LF_MODELS_DIR
tool=$LF_BUILDDIR/tests/stage/train_tool
. "$LF_SRCDIR/tests/fault/lib.sh"
. "$LF_SRCDIR/tests/stage/light_lib.sh"
light_flow

# 3,000 lines of invented words, some 240 KB.
awk 'BEGIN { x = 7; for (i = 0; i < 3000; i++) { line = ""; m = 5 + i % 23
    for (j = 0; j < m; j++) { x = (x * 16807) % 2147483647; w = ""; k = 2 + x % 5; y = x
        for (q = 0; q < k; q++) { y = (y * 16807) % 2147483647; w = w substr("etaoinshrdlucmfw", 1 + y % 16, 1) }
        line = line (j ? " " : "") w (x % 31 == 0 ? "," : "") }
    print line "." } }' >text.txt
cat >pipeline.ini <<'END_INI'
[pipeline]
name = faults
[model]
preset = tiny-llama
[kind tokenize]
threads = 1
[kind pretrain]
threads = 1
[stage tokenize]
kind = tokenize
inputs = text.txt
doc_split = line
vocab_size = 512
valid_fraction = 0.05
shard_tokens = 12k
[stage train]
kind = pretrain
data = ${stage:tokenize.shards}
seq_length = 64
batch = 4
micro_batch = 4
steps = 30
lr = 2e-3
warmup = 3
valid_interval = 10
valid_tokens = 1k
save_interval = 3
save_time = 0
keep = 2
log_interval = 10
END_INI

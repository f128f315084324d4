#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Plans of large models on many GPUs, which nobody starts to find out: 7 billion parameters on 64, 70 on 1,024 and 405 on 16,384. Each is
# whole on the ranks that divide it, and a rank of it fits into 80 GB. A plan binds no memory, whatever it is of.
. "$LF_SRCDIR/tests/stage/lib.sh"
LF_CUDA_DRIVER=$dir/no-driver
export LF_CUDA_DRIVER
must "$tool" data "$dir/data" 20 0

# plan MODEL RANKS OPTIONS...: what --plan prints goes to $dir/stdout
plan() {
    {
        printf '[stage]\ndata = %s\nsteps = 10\nprecision = bf16\nseq_length = 4096\nmicro_batch = 1\n' "$dir/data"
        cat "$LF_SRCDIR/models/$1.ini"
    } >"$dir/large.ini"
    _ranks=$2
    shift 2
    "$pretrain" --config "$dir/large.ini" --plan --ranks "$_ranks" "$@" >"$dir/stdout" 2>"$dir/err"
    rc=$?
}
number() { grep -o "\"$1\": *[0-9]*" "$dir/stdout" | grep -o '[0-9]*$' | head -n 1; }
largest() { grep -o '"total": *[0-9]*' "$dir/stdout" | grep -o '[0-9]*$' | sort -n | tail -n 1; }

# whole MODEL RANKS PARAMETERS PIPELINE DATA TENSOR OPTIONS...
whole() {
    _model=$1 _parameters=$3 _axes="$4 $5 $6" _of=$2
    # shellcheck disable=SC2086
    plan "$1" "$2" --zero 1 --pipeline "$4" --tensor "$6" $7
    is $rc 0 "$_model on $_of GPUs is planned"
    is "$(number parameters) $(number pipeline) $(number data) $(number tensor)" "$_parameters $_axes" "  all of it, on pipeline, data and tensor"
    _most=$(largest)
    [ "${_most:-0}" -gt 10000000000 ] && [ "$_most" -lt 80000000000 ]
    ok $? "  a rank needs less than 80 GB: $_most"
}
whole llama2-7b 64 6738415616 1 32 2 "--batch 1024"
whole llama3-70b 1024 70553706496 4 32 8 "--batch 1024 --sequence-parallel"
whole llama3.1-405b 16384 405853388800 16 128 8 "--batch 4096 --sequence-parallel --recompute full"
is "$(grep -o '"layers":' "$dir/stdout" | wc -l | tr -d ' ')" 16 "sixteen stages of a pipeline have their layers"
plan llama3.1-405b 16384 --batch 4096 --zero 1 --pipeline 16 --tensor 8 --sequence-parallel
_most=$(largest)
[ "${_most:-0}" -gt 80000000000 ]
ok $? "without recomputation it would not fit: $_most"

# The same from a pipeline file: 2,048 nodes of 8. What this machine lacks of them, such as disk, is another matter.
{
    printf '[pipeline]\nname = large\nscheduler = slurm\n[resources]\nmemory = 1T\n[model]\npreset = llama3.1-405b\n'
    printf '[layout]\npipeline = 16\ntensor = 8\nsequence_parallel = yes\nzero = 1\n'
    printf '[stage train]\nkind = pretrain\ndata = %s\nsteps = 10\nbatch = 4096\nmicro_batch = 1\nseq_length = 4096\n' "$dir/data"
    printf 'precision = bf16\nrecompute = full\nnodes = 2048\nranks = 8\n'
} >"$dir/pipeline.ini"
LF_MODELS_DIR=$LF_SRCDIR/models "$LF_BUILDDIR/loong-flow" plan "$dir/pipeline.ini" --no-measure >"$dir/stdout" 2>"$dir/err"
grep -q '405.9G parameters' "$dir/stdout" && grep -q 'pipeline rank 15: layers 119-125' "$dir/stdout"
ok $? "loong-flow plan of 2,048 nodes has all layers"
grep -q '16384 ranks: pipeline 16 x data 128 x tensor 8, rows divided' "$dir/stdout"
ok $? "tells how they divide the model"
finish 13

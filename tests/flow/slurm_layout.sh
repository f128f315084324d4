#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Layouts on a real SLURM of two nodes: ranks that divide matrices share a node and the model is cut across, however ranks are numbered; the numbers are
# those of one rank. A run that is killed goes on with another layout, and so does one whose experts two nodes divide. examples/parallel as it is. What a
# node's ranks cannot be divided into is refused by plan.
. "$LF_SRCDIR/tests/flow/slurm_lib.sh"
LF=$LF_BUILDDIR/loong-flow TRAIN=$LF_BUILDDIR/stages/lf-pretrain
unset LF_LIBEXEC
LF_MODELS_DIR=$LF_SRCDIR/models OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive LF_CUDA_DRIVER=$T/no-driver
export LF_MODELS_DIR OMP_NUM_THREADS OMP_WAIT_POLICY LF_CUDA_DRIVER
need_ranks
slurm_cluster

# ---- a run of one rank
"$LF_BUILDDIR/tests/stage/train_tool" data "$T/data" 100 300 >/dev/null 2>err || bail "$(cat err)"
cat >run.ini <<END
[stage]
data = $T/data
steps = 4
seq_length = 32
batch = 4
micro_batch = 1
lr = 5e-3
warmup = 1
schedule = constant
save_interval = 2
keep = 9000
save_time = 0
seed = 5
threads = 1
[model]
family = llama3
layers = 2
hidden = 64
heads = 4
ffn = 128
vocab = 300
max_positions = 64
END
sed '/^family/,$d' run.ini >experts.ini
printf '%s\n' "family = qwen2-moe" "layers = 2" "hidden = 64" "heads = 4" "ffn = 128" "vocab = 300" "max_positions = 64" "experts = 4" \
    "experts_per_token = 2" "expert_ffn = 32" "shared_ffn = 32" "router_aux = 0.05" >>experts.ini
ini=run.ini
# one NAME STEPS
one() {
    mkdir "$1"
    "$TRAIN" --config $ini --out "$1/out" --metrics "$1/metrics" --steps "$2" >/dev/null 2>err || bail "$(tail -n 3 err)"
}
one one 4

# Steps, losses and norms of a run, one a line.
numbers() {
    "$LF_BUILDDIR/tests/stage/infer_tool" record "$1/metrics" |
        sed -n 's/.*"step":\([0-9]*\),.*"loss":\([^,]*\),.*"grad_norm":\([^,]*\),.*/\1 \2 \3/p'
}
# near NAME OF LAST TEXT: to the steps up to LAST belong the numbers of OF, apart by 1e-5 of them; the first loss by 1e-6.
near() {
    numbers "$1" >a
    numbers "$2" >b
    paste -d' ' a b | awk -v last="$3" 'function far(x, y) { d = x - y; return (d < 0 ? -d : d) / (y > 1 ? y : 1) }
        NF != 6 || $1 != NR || $4 != NR || far($2, $5) > (NR == 1 ? 1e-6 : 1e-5) || far($3, $6) > 1e-5 { print; bad = 1 }
        END { exit bad || NR != last }' >apart
    ok $? "$4" "$(head -n 3 apart | tr '\n' ';')"
}
ask="-p p45 -N2 --ntasks-per-node=2 --mem=400" wait=-W
# across NAME ARGS...: a job of four ranks on two nodes that trains into NAME with them; what it says is in NAME.log
across() {
    _name=$1
    shift
    mkdir -p "$_name"
    cat >job.sh <<END
#!/bin/sh
cd '$T' || exit 99
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive UCX_LOG_LEVEL=$UCX_LOG_LEVEL ASAN_OPTIONS='$ASAN_OPTIONS' LF_CUDA_DRIVER='$LF_CUDA_DRIVER'
exec '$LF' launch -n 4 -- '$TRAIN' --config $ini --out '$T/$_name/out' --metrics '$_name/metrics' $*
END
    # shellcheck disable=SC2086
    sbatch --parsable $wait $ask --export=NONE --propagate=NONE -o "$T/$_name.log" job.sh >id 2>err
    rc=$?
    until_true 10 test -e "$T/$_name.log" # the node may be slower than the answer
}
across block --tensor 2 --pipeline 2
is $rc 0 "four ranks on two nodes" "$(tail -n 3 block.log)"
like block.log '4 ranks: pipeline 2 \(1f1b; layers 1,1\) x tensor 2$' "their layout"
like block.log 'every rank as planned' "moves what was planned"
near block one 4 "a node has a half of the layers: the numbers of one rank"
across wide --tensor 4
[ $rc -ne 0 ]; ok $? "matrices that two nodes would divide are refused"
like wide.log 'tensor = 4: ranks [0-9] and [0-9] divide matrices and are on two nodes \(n[45], n[45]\)' "with the names of both"

if srun --mpi=list 2>&1 | grep -q pmix; then
    mkdir cyclic
    # shellcheck disable=SC2086,SC2016
    SLURM_DISTRIBUTION=cyclic srun --mpi=pmix $ask --export=ALL -n4 -c 1 sh -c 'echo "rank $SLURM_PROCID on $SLURMD_NODENAME" >&2
        exec "$0" "$@"' "$TRAIN" --config run.ini --out cyclic/out --metrics cyclic/metrics --tensor 2 --pipeline 2 >out 2>cyclic.log
    is $? 0 "srun that deals ranks to nodes in turn" "$(tail -n 3 cyclic.log)"
    is "$(sed -n 's/.*rank \([0-9]\) on n5$/\1/p' cyclic.log | sort | tr '\n' ' ')" "1 3 " "as the second node tells"
    near cyclic one 4 "pairs are inside of nodes all the same, with the numbers of one rank"
    is "$(numbers cyclic | cksum)" "$(numbers block | cksum)" "and the bits of the other order"
else
    skip_some 4 "this SLURM has no srun --mpi=pmix"
fi

# ---- killed, and on with another layout
# killed NAME ARGS...: one of four ranks is killed behind step 4
killed() {
    wait=
    across "$@" --steps 4000
    until_true 30 test -e "$1/out/checkpoints/step-00000004/manifest.json"
    rank=$(ps -eo pid,args | awk -v d="$T/$1/out" -v t="$TRAIN" '$2 == t && index($0, d) { print $1 }' | tail -n 1)
    [ -z "$rank" ] || kill -9 "$rank"
    until_true 60 sh -c '[ -z "$(squeue -h -o %i -j "$(cat id)" 2>/dev/null)" ]'
    like "$1.log" 'rank [0-9] .*died' "a rank that is killed ends the job"
    # How far it had come depends on time; what follows does not.
    for d in "$1"/out/checkpoints/step-*; do
        case $d in *-00000004) ;; *) rm -rf "$d" ;; esac
    done
    wait=-W
    mv "$1.log" before.log
}
killed killed --tensor 2 --pipeline 2
across killed --pipeline 2 --pipeline-schedule gpipe --zero 1 --steps 6
is $rc 0 "which goes on with another layout" "$(tail -n 3 killed.log)"
like killed.log 'at step 4 of 6, but perhaps not bitwise: .*tensor was 2, is 1' "and says what differs"
one whole 6
near killed whole 6 "to the numbers of one rank that was not stopped"

# ---- experts of four ranks on two nodes, likewise
ini=experts.ini
one few 6
killed experts --expert 4
like before.log '4 ranks: data 4 \(expert 4\)$' "whose experts two nodes divided"
across experts --expert 2 --tensor 2 --steps 6
is $rc 0 "which goes on with another layout" "$(tail -n 3 experts.log)"
like experts.log 'every rank as planned' "moves what was planned"
near experts few 6 "and has the numbers of one rank that was not stopped"
ini=run.ini

# ---- the example, as it is but for its partition
mkdir example && cp "$LF_SRCDIR/examples/parallel/pipeline.ini" example && cd example || exit 99
awk 'BEGIN { for (i = 1; i <= 400; i++) printf "a line of text with the number %d\n\n", i }' >corpus.txt
slurm_site
LF_LIBEXEC=$LF_BUILDDIR/stages "$LF" submit --wait --set resources.partition=p45 >out 2>err
is $? 0 "examples/parallel, submitted" "$(tail -n 3 err)"
like "$(stage_dir train)/log" '8 ranks: pipeline 2 \(1f1b; layers 2,2\) x data 2 x tensor 2, rows divided$' "eight ranks on two nodes"
like "$(stage_dir train)/log" 'every rank as planned' "move what was planned"
like "$(stage_dir more)/log" '2 ranks: data 2$' "two go on from their checkpoint"
is "$(state eval)" "done" "one evaluates the result"
cd "$T" || exit 99

# ---- refused before it is submitted
cat >wrong.ini <<END
[pipeline]
name = wrong
[site]
scheduler = slurm
[layout]
tensor = 2
[stage train]
kind = pretrain
data = data
steps = 4
seq_length = 32
batch = 12
nodes = 2
ranks = 3
END
sed -n '/^\[model\]/,$p' run.ini >>wrong.ini
runs 2 "$LF" plan wrong.ini
like err 'wrong.ini:6:10: tensor = 2: the 3 ranks that \[stage train\] has on each node are no multiple of it' "with the line"
finish 26

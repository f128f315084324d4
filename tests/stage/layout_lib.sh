# SPDX-License-Identifier: Apache-2.0
# For tests of layouts (tensor.sh, pipeline.sh), behind lib.sh: the same run on one rank and on several. They use $dir/run.ini.

# What every run has; models and data are the caller's.
head_ini() { # head_ini >FILE
    cat <<END
[stage]
data = $dir/data
steps = 4
mfu = no
seq_length = 32
batch = 6
micro_batch = 1
lr = 5e-3
warmup = 1
clip = 0.5
save_interval = 2
keep = 9
save_time = 0
valid_interval = 2
valid_tokens = 128
seed = 5
threads = 1
END
}
model() { # model FAMILY VOCAB LAYERS LINES...
    printf '[model]\nfamily = %s\nlayers = %s\nhidden = 64\nheads = 8\nffn = 192\nvocab = %s\nmax_positions = 64\n' "$1" "$3" "$2"
    shift 3
    [ $# -eq 0 ] || printf '%s\n' "$@"
}
use() { { head_ini; model "$@"; } >"$dir/run.ini"; }
options() { echo "$1" | sed 's/^[0-9]*:/--/; s/+/ --/g; s/=/ /g'; } # options LAYOUT
# Another layout than one rank that runs are compared with.
base=
# Steps between checkpoints of trials: they save at the end alone, but for those from whose step 2 a run goes on, which have 2.
saves=0
# trial NAME STAGE TOLERANCE "LAYOUT ..." ARGS...: one rank, then layouts like 4:tensor=2+zero=1 (ranks, then options): the same numbers, and what
# moved between ranks is what the plan says. "bits" as TOLERANCE: the same bits.
trial() {
    _case=$1 _stage=$stages/lf-$2 _near=$3 _layouts=$4
    shift 4
    # shellcheck disable=SC2046
    train "${base:+$launch ${base%%:*} -- }$_stage" "$dir/run.ini" "$_case.one" $(options "$base") --save-interval $saves "$@"
    _one=$rc
    for _l in $_layouts; do
        # shellcheck disable=SC2046
        train "$launch ${_l%%:*} -- $_stage" "$dir/run.ini" "$_case.$_l" $(options "$_l") --save-interval $saves "$@"
        apart=
        if [ "$_near" = bits ]; then
            [ "$_one $rc $(id "$_case.$_l") $(metrics "$_case.$_l" | cksum)" = "0 0 $(id "$_case.one") $(metrics "$_case.one" | cksum)" ] && apart="not a bit"
        else
            [ "$_one $rc" = "0 0" ] && agree "$_case.$_l" "$_case.one" "$_near" || rc=1
        fi
        # between GPUs only calls are counted, and nothing is told
        [ -n "$apart" ] && [ $rc -eq 0 ] && { [ -n "${LF_CUDA_DRIVER:-}" ] || grep -q 'rank 0 sent .*every rank as planned' "$dir/err"; }
        ok $? "${_stage##*/}, $_case, $_l: the numbers of one rank, apart by ${apart:-much}; bytes moved as planned" "$(tail -n 3 "$dir/err")"
    done
}
# go FROM RANKS NAME ARGS...: a run from step 2 of FROM
go() {
    mkdir -p "$dir/$3/out/checkpoints"
    cp -r "$dir/$1/out/checkpoints/step-00000002" "$dir/$3/out/checkpoints/"
    cp "$dir/$1/metrics" "$dir/$3/metrics"
    shift
    on "$@"
}
# again RUN.LAYOUT RANKS ARGS...: from step 2 of it
again() {
    _from=$1 _ranks=$2
    shift 2
    go "$_from" "$_ranks" "again $_from $_ranks" "$@"
    [ $rc -eq 0 ] && agree "again $_from $_ranks" "${_from%%.*}.one" 2e-5
    ok $? "from step 2 of $_from on $_ranks ranks, $*: the numbers of a run that was not stopped, apart by $apart" "$(tail -n 3 "$dir/err")"
}
refused() { # refused "ARGS" TEXT: by the plan
    # shellcheck disable=SC2086
    "$stages/lf-pretrain" --config "$dir/run.ini" --plan $1 >"$dir/stdout" 2>"$dir/err"
    _planned=$?
    [ $_planned -ne 0 ] && grep -qF -- "$2" "$dir/err"
    ok $? "refused by the plan: $1" "$(cat "$dir/err")"
}
# small FAMILY LINES...: $dir/run.ini for emulated GPUs, which are slow; $shape has the other sizes of the model, $more options
more=
small() {
    _family=$1
    shift
    {
        printf '[stage]\ndata = %s\ndevice = cuda\nsteps = 3\nseq_length = 16\nbatch = 4\nmicro_batch = 1\nvalid_interval = 3\n' "$dir/data"
        printf 'valid_tokens = 32\nsave_interval = 2\nsave_time = 0\nlr = 5e-3\nwarmup = 1\nseed = 5\nthreads = 1\n%s\n' "$more"
        # shellcheck disable=SC2086
        printf '[model]\nfamily = %s\nhidden = 16\nffn = 32\n' "$_family" && printf '%s\n' $shape "$@"
    } >"$dir/run.ini"
}

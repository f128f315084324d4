# SPDX-License-Identifier: Apache-2.0
# For tests of layouts (tensor.sh, pipeline.sh), behind lib.sh: the same run on one rank and on several. They use $dir/run.ini.
infer=$LF_BUILDDIR/tests/stage/infer_tool

# What every run has; models and data are the caller's.
head_ini() { # head_ini >FILE
    cat <<END
[stage]
data = $dir/data
steps = 4
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
records() { "$infer" record "$dir/$1/metrics" | sed 's/,"\(tokens_per_s\|saved\)":.*//' | tr -d '{}"' | tr ',' '\n'; }
# The largest difference of two runs' numbers, relative where they are above 1, to $apart.
agree() { # agree A B TOLERANCE
    records "$1" >"$dir/a"
    records "$2" | paste -d: "$dir/a" - >"$dir/both"
    apart=$(awk -F: -v t="$3" '{ d = $2 - $4; m = $4; if (d < 0) d = -d; if (m < 0) m = -m; if (m > 1) d /= m
            if ($1 != $3 || $2 == "" || $4 == "" || !(d <= t)) { print $0; bad = 1; exit } if (d > worst) { worst = d; at = $1 } }
        END { if (!bad) print NR < 20 ? "too few" : worst + 0 " " at; exit bad || NR < 20 }' "$dir/both")
}
options() { echo "$1" | sed 's/^[0-9]*:/--/; s/+/ --/g; s/=/ /g'; } # options LAYOUT
# Another layout than one rank that runs are compared with.
base=
# trial NAME STAGE TOLERANCE "LAYOUT ..." ARGS...: one rank, then layouts like 4:tensor=2+zero=1 (ranks, then options): the same numbers, and what
# moved between ranks is what the plan says. "bits" as TOLERANCE: the same bits.
trial() {
    _case=$1 _stage=$stages/lf-$2 _near=$3 _layouts=$4
    shift 4
    # shellcheck disable=SC2046
    train "${base:+$launch ${base%%:*} -- }$_stage" "$dir/run.ini" "$_case.one" $(options "$base") "$@"
    _one=$rc
    for _l in $_layouts; do
        # shellcheck disable=SC2046
        train "$launch ${_l%%:*} -- $_stage" "$dir/run.ini" "$_case.$_l" $(options "$_l") "$@"
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
    _n=$2 _name=$3
    shift 3
    train "$launch $_n -- $stages/lf-pretrain" "$dir/run.ini" "$_name" "$@"
}
on() { # on RANKS NAME ARGS...
    _n=$1 _name=$2
    shift 2
    train "$launch $_n -- $stages/lf-pretrain" "$dir/run.ini" "$_name" "$@"
}
# killed RANKS ARGS...: one rank is killed after four steps; a run that goes on ends with the bits of an unbroken one with ARGS
killed() {
    _ranks=$1
    shift
    mkdir -p "$dir/kill"
    $launch "$_ranks" -- "$stages/lf-pretrain" --config "$dir/run.ini" --out "$dir/kill/out" --metrics "$dir/kill/metrics" "$@" \
        --schedule constant --steps 4000 --keep 9000 >"$dir/stdout" 2>"$dir/err" &
    pid=$!
    tries=0
    while [ ! -e "$dir/kill/out/checkpoints/step-00000004/manifest.json" ] && kill -0 $pid 2>/dev/null && [ $tries -lt 3000 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
    kill -9 "$(ps -eo pid,args | awk -v d="$dir/kill/out" '/lf-[a-z]* / && index($0, d) && !/awk/ && !/launch/ { print $1 }' | tail -n 1)"
    wait $pid
    [ $? -ne 0 ]
    ok $? "a rank that is killed ends the job"
    steps=$(ls "$dir/kill/out/checkpoints" | sed -n 's/step-0*//p' | sort -n | tail -n 1)
    steps=$((steps + 3))
    on "$_ranks" kill --schedule constant --steps $steps "$@"
    on "$_ranks" unbroken --schedule constant --steps $steps "$@"
    is "$(id kill) $(metrics kill | cksum)" "$(id unbroken) $(metrics unbroken | cksum)" "which goes on to the bits of an unbroken run"
}
# damaged RANKS ARGS...: a micro-batch that cannot be read
damaged() {
    _ranks=$1
    shift
    cp -r "$dir/data" "$dir/bad"
    for shard in "$dir"/bad/train-*.h5; do
        printf '\377\377\377\377' | dd of="$shard" bs=1 seek=$(($(wc -c <"$shard") / 8)) conv=notrunc 2>/dev/null
    done
    on "$_ranks" damaged --data "$dir/bad" --verify-data no --steps 300 --save-interval 0 --valid-interval 0 "$@"
    [ $rc -ne 0 ] && grep -q 'error: sample .*damaged shard' "$dir/err"
    ok $? "ranks that cannot read a micro-batch say why" "$(tail -n 2 "$dir/err")"
    says_like 'error: rank [0-9] (.*) failed' "and the others hear of it and end by themselves"
}
refused() { # refused "ARGS" TEXT: by the plan
    # shellcheck disable=SC2086
    "$stages/lf-pretrain" --config "$dir/run.ini" --plan $1 >"$dir/stdout" 2>"$dir/err"
    _planned=$?
    [ $_planned -ne 0 ] && grep -qF -- "$2" "$dir/err"
    ok $? "refused by the plan: $1" "$(cat "$dir/err")"
}

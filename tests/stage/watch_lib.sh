# SPDX-License-Identifier: Apache-2.0
# For tests of ranks that come to grief (tests/fault/ranks.c): source it behind tests/stage/lib.sh. Each run has a name: its checkpoints, metrics and
# messages are below $dir/NAME. WATCH_S bounds the seconds from the fault to the end; without it they are only told.
with_ranks
need_ranks
[ -n "$FAIL" ] || skip_all "$no_fail"
hurt=$LF_BUILDDIR/tests/fault/ranks.so
LF_COMM_PATIENCE=${LF_TEST_PATIENCE:-20}
export LF_COMM_PATIENCE
# What the line says of one that is stopped, and of a pass that the watchdog does not call a hang.
stopped='has not been heard of for [0-9]+ s \(stopped, or its node is\)'
slow_ms=$((LF_COMM_PATIENCE * 700))

# settings LAYERS BATCH: $dir/data and $dir/run.ini, four steps of a small model
settings() {
    "$tool" data "$dir/data" 60 0 || bail "no test data"
    cat >"$dir/run.ini" <<END_OF_SETTINGS
[stage]
data = $dir/data
steps = 4
seq_length = 16
batch = $2
micro_batch = 1
lr = 5e-3
warmup = 1
save_interval = 2
save_time = 0
seed = 5
mfu = no
threads = 1
[model]
family = llama3
layers = $1
hidden = 64
heads = 2
kv_heads = 1
ffn = 96
vocab = 512
max_positions = 16
END_OF_SETTINGS
}
# run RANKS NAME ARGS...
run() {
    _ranks=$1 _name=$2
    shift 2
    mkdir -p "$dir/$_name"
    $launch "$_ranks" -- "$pretrain" --config "$dir/run.ini" --out "$dir/$_name/out" --metrics "$dir/$_name/metrics" "$@" \
        >"$dir/$_name/stdout" 2>"$dir/$_name/err"
}
# whole RANKS NAME ARGS...: an undisturbed run, whose bits are wanted of those that follow
whole() {
    run "$@" || bail "$(cat "$dir/$2/err")"
    want="$(id "$2") $(metrics "$2" | cksum)"
}
# start RANKS NAME "RANK DO NTH SEND KIND" AT ARGS...: in the background; the settings of tests/fault/ranks.c
start() {
    _ranks=$1 _name=$2 _fault=$3 _at=$4
    shift 4
    mkdir -p "$dir/$_name"
    (
        read -r LF_HURT_RANK LF_HURT_DO LF_HURT_NTH LF_HURT_SEND LF_HURT_KIND <<END_OF_FAULT
$_fault
END_OF_FAULT
        LD_PRELOAD=$hurt NVTX_INJECTION64_PATH=$hurt LF_HURT_AT=$_at LF_HURT_MARK=$dir/$_name/mark
        export LD_PRELOAD NVTX_INJECTION64_PATH LF_HURT_RANK LF_HURT_DO LF_HURT_AT LF_HURT_NTH LF_HURT_SEND LF_HURT_KIND LF_HURT_MARK
        run "$_ranks" "$_name" "$@"
        echo $? >"$dir/$_name/code.part"
        mv "$dir/$_name/code.part" "$dir/$_name/code"
    ) &
}
left() { ps -eo args | awk -v d="$dir/$1/out" '/lf-pretrain/ && index($0, d) && !/awk/ { n++ } END { print n + 0 }'; }
# ended NAME CODE WHAT: with that code, and nothing is left
ended() {
    tries=0
    until [ -e "$dir/$1/code" ] || [ $tries -ge 6000 ]; do sleep 0.1; tries=$((tries + 1)); done
    _s=$(($(stat -c %Y "$dir/$1/code") - $(stat -c %Y "$dir/$1/mark")))
    _most=${WATCH_S:-$_s}
    [ "$2" -ne 0 ] || _most=$_s
    is "$(cat "$dir/$1/code") $(left "$1") $((_s <= _most))" "$2 0 1" "$1: exit code $2 and no process is left, $_s s after $3" \
        "$(tail -n 3 "$dir/$1/err")"
}
# line NAME RANK PATTERN...: one line of the watchdog, which says so of the rank; the launcher may repeat it
line() {
    _name=$1 _of=$2 _all=$(($# - 2)) _fit=0
    _said=$(grep "^\[[0-9]\] rank $2 (host .*wait" "$dir/$1/err" | grep -v "^\[$2\]")
    shift 2
    for _p in "$@"; do
        _fit=$((_fit + $(echo "$_said" | grep -cE "rank $_of \(host [^,]+, pid [0-9]+\) $_p")))
    done
    is "$_fit $(echo "$_said" | wc -l | tr -d ' ')" "$_all 1" "$_name: one line names it" "$_said"
}
# same NAME TEXT: it has the bits of the undisturbed run
same() { is "$(id "$1") $(metrics "$1" | cksum)" "$want" "$1: $2"; }
# again RANKS NAME ARGS...
again() {
    run "$@" || bail "$(cat "$dir/$2/err")"
    same "$2" "the next start goes on to the bits of an undisturbed run"
}

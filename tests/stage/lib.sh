# SPDX-License-Identifier: Apache-2.0
# For tests of stages: source it first, end with `finish COUNT`. Each test works below $dir, its own. What a command says
# goes to $dir/stdout and $dir/err, its exit code to $rc.
set -u
. "$LF_SRCDIR/tests/tap/shm.sh"
. "$LF_SRCDIR/tests/tap/tap.sh"
own_dir
dir=$T
tap_why=$dir/err
stages=$LF_BUILDDIR/stages
tool=$LF_BUILDDIR/tests/stage/train_tool infer=$LF_BUILDDIR/tests/stage/infer_tool
pretrain=$stages/lf-pretrain
rc=0
. "$LF_SRCDIR/tests/stage/light_lib.sh" # less to load at each start
. "$LF_SRCDIR/tests/fault/lib.sh"

says() { grep -qF -- "$1" "$dir/err"; ok $? "$2"; }
says_like() { grep -q -- "$1" "$dir/err"; ok $? "$2"; } # a regular expression
# must COMMAND...: what every point rests on
must() { "$@" 2>"$dir/err" >/dev/null || { _because "$dir/err"; bail "$*"; }; }

# ---- training stages ----

# train "COMMAND WORDS" INI NAME ARGS...: output below $dir/NAME
train() {
    _command=$1 _ini=$2 _name=$3
    shift 3
    mkdir -p "$dir/$_name"
    # shellcheck disable=SC2086
    $_command --config "$_ini" --out "$dir/$_name/out" --metrics "$dir/$_name/metrics" "$@" 2>"$dir/err" >"$dir/stdout"
    rc=$?
    return $rc
}
id() { "$tool" id "$dir/$1/out/${2:-checkpoint}" 2>&1; }
metrics() { "$tool" metrics "$dir/$1/metrics"; }
losses() { metrics "$1" | awk '{ print $4 }'; }
near_losses() { # near_losses A B TOLERANCE COUNT: the losses of two runs of COUNT lines
    { losses "$1"; losses "$2"; } | awk -v t="$3" -v c="$4" '{ x[NR] = $1 }
        END { for (i = 1; i <= c; i++) { d = x[i] - x[i + c]; if (!(d < t && d > -t)) bad = 1 }; exit bad || NR != 2 * c }'
}
# What a run has recorded but times, a number a line.
records() { "$infer" record "$dir/$1/metrics" | sed 's/,"\(tokens_per_s\|pictures_per_s\|saved\)":.*//' | tr -d '{}"' | tr ',' '\n'; }
# The largest difference of two runs' numbers, relative where they are above 1, to $apart.
agree() { # agree A B TOLERANCE
    records "$1" >"$dir/a"
    records "$2" | paste -d: "$dir/a" - >"$dir/both"
    apart=$(awk -F: -v t="$3" '{ d = $2 - $4; m = $4; if (d < 0) d = -d; if (m < 0) m = -m; if (m > 1) d /= m
            if ($1 != $3 || $2 == "" || $4 == "" || !(d <= t)) { print $0; bad = 1; exit } if (d > worst) { worst = d; at = $1 } }
        END { if (!bad) print NR < 20 ? "too few" : worst + 0 " " at; exit bad || NR < 20 }' "$dir/both")
}

# least_room COMMAND...: to $room, how many KB of addresses it needs, in steps of 20,000. It may write to $dir/room. Most of a small
# model's are libraries', and those differ between machines.
least_room() {
    room=80000
    until rm -rf "$dir/room" && (ulimit -v $room && whole "$@") >"$dir/stdout" 2>"$dir/err"; do
        room=$((room + 20000))
        [ $room -lt 2000000 ] || bail "no room is enough: $*"
    done
}
# whole COMMAND...: with the libraries of the system from the start, which light.sh has loaded where they are called; of limits of
# addresses, of which these take some as soon as they are there.
whole() {
    _libraries=${LD_LIBRARY_PATH#"$LF_BUILDDIR/tests/light"}
    LD_LIBRARY_PATH=${_libraries#:} exec "$@"
}

# ---- ranks ----

# $launch COUNT -- COMMAND... starts ranks here; LF_TEST_LAUNCH names another launcher ("mpirun -n").
with_ranks() {
    launch=${LF_TEST_LAUNCH:-"$LF_BUILDDIR/loong-flow launch -n"}
    OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
    UCX_LOG_LEVEL=${UCX_LOG_LEVEL:-error}
    ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0" # of libpmix and UCX
    # PMIx keeps what it knows in no shared memory: a fifth of what ranks cost. Our launcher is told of two processors where
    # it would look at the machine, and load ten libraries for that, without a use of either; mpirun counts them. The tests
    # of the launcher in tests/flow leave it its ways.
    PMIX_MCA_gds=${PMIX_MCA_gds:-hash}
    if [ -z "${LF_TEST_LAUNCH:-}" ]; then
        HWLOC_COMPONENTS=synthetic,stop HWLOC_SYNTHETIC="core:2 pu:1" HWLOC_PLUGINS_PATH=/nonexistent
        export HWLOC_COMPONENTS HWLOC_SYNTHETIC HWLOC_PLUGINS_PATH
    fi
    # UCX looks at shared memory alone and keeps short queues there: a tenth. The tests of messages in tests/flow try the others.
    UCX_TLS=${UCX_TLS:-posix,cma,self} UCX_POSIX_FIFO_SIZE=${UCX_POSIX_FIFO_SIZE:-64} UCX_POSIX_RX_BUFS_GROW=${UCX_POSIX_RX_BUFS_GROW:-64}
    export OMP_NUM_THREADS OMP_WAIT_POLICY UCX_LOG_LEVEL ASAN_OPTIONS PMIX_MCA_gds
    export UCX_TLS UCX_POSIX_FIFO_SIZE UCX_POSIX_RX_BUFS_GROW
}
have_ranks() { $launch 2 -- true >/dev/null 2>"$dir/err"; }
# Ends the test, skipped, where they cannot be started.
need_ranks() {
    have_ranks || skip_all "ranks cannot be started here: $(tail -n 1 "$dir/err")"
}
# on RANKS NAME ARGS...: $pretrain, which a test may make another stage, with $dir/run.ini
on() {
    _n=$1 _name=$2
    shift 2
    train "$launch $_n -- $pretrain" "$dir/run.ini" "$_name" "$@"
}
# rank_killed RANKS "OPTIONS" ARGS...: one rank is killed after four steps; a run that goes on for $beyond (3) steps ends with the bits of an unbroken
# one without OPTIONS
rank_killed() {
    _ranks=$1 _more=$2
    shift 2
    mkdir -p "$dir/kill"
    # shellcheck disable=SC2086
    $launch "$_ranks" -- "$pretrain" --config "$dir/run.ini" --out "$dir/kill/out" --metrics "$dir/kill/metrics" $_more "$@" \
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
    steps=$((steps + ${beyond:-3}))
    # shellcheck disable=SC2086
    on "$_ranks" kill --schedule constant --steps $steps $_more "$@"
    on "$_ranks" unbroken --schedule constant --steps $steps "$@"
    is "$(id kill) $(metrics kill | cksum)" "$(id unbroken) $(metrics unbroken | cksum)" \
        "which goes on to the bits of an unbroken run${_more:+ without $_more}"
}
# data_damaged RANKS ARGS...: a micro-batch that cannot be read
data_damaged() {
    _ranks=$1
    shift
    rm -rf "$dir/bad" "$dir/damaged"
    cp -r "$dir/data" "$dir/bad"
    for shard in "$dir"/bad/train-*.h5; do
        printf '\377\377\377\377' | dd of="$shard" bs=1 seek=$(($(wc -c <"$shard") / 8)) conv=notrunc 2>/dev/null
    done
    on "$_ranks" damaged --data "$dir/bad" --verify-data no --steps 300 --save-interval 0 --valid-interval 0 "$@"
    [ $rc -ne 0 ] && grep -q 'error: sample .*damaged shard' "$dir/err"
    ok $? "$_ranks ranks, $*: those that cannot read a micro-batch say why" "$(tail -n 2 "$dir/err")"
    says_like 'error: rank [0-9] (.*) failed' "and the others hear of it and end by themselves"
}

# alike A B TOLERANCE: two files have the same words, and numbers with a point that are as near
alike() {
    tr ',:[]{} ' '\n' <"$1" >"$dir/a"
    tr ',:[]{} ' '\n' <"$2" | paste "$dir/a" - | awk -F '\t' -v t="$3" '{ d = $1 - $2; if (d < 0) d = -d
            if ($1 != $2 && !($1 ~ /[0-9]\.[0-9]/ && d <= t * ($1 > 1 || $1 < -1 ? ($1 < 0 ? -$1 : $1) : 1))) { print $0; bad = 1; exit } if (d > worst) worst = d }
        END { if (!bad) print NR < 50 ? "too few" : worst + 0; exit bad || NR < 50 }'
}

# ---- the emulated GPU ----

emulated_gpu() {
    LF_CUDA_DRIVER=$LF_BUILDDIR/tests/libcuemu.so
    LF_CUBLASLT=none # a real one knows no emulated GPU
    export LF_CUDA_DRIVER LF_CUBLASLT
}
# Between ranks of these.
emulated_nccl() {
    LF_NCCL_LIB=$LF_BUILDDIR/tests/libncclemu.so
    LF_CUDART_LIB=$LF_NCCL_LIB
    LF_COMM_PATIENCE=300 # the emulator computes inside of a collective, and machines are busy
    export LF_NCCL_LIB LF_CUDART_LIB LF_COMM_PATIENCE
}

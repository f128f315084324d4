# SPDX-License-Identifier: Apache-2.0
# TAP in shell for tests of stages: source it first, end with `finish COUNT`. Each test works below $dir, its own, which is kept when a point
# failed or LF_KEEP is set. What a command says goes to $dir/stdout and $dir/err, its exit code to $rc.
set -u
stages=$LF_BUILDDIR/stages
tool=$LF_BUILDDIR/tests/stage/train_tool
dir=$(mktemp -d "${TMPDIR:-/tmp}/lf-$(basename "$0" .sh).XXXXXX") || exit 99
n=0
failed=0
rc=0
trap 'test $failed -ne 0 || test -n "${LF_KEEP:-}" || { chmod -R u+w "$dir"; rm -rf "$dir"; }' EXIT

ok() { # ok STATUS NAME [FILE]: FILE, else $dir/err, says why not
    n=$((n + 1))
    if [ "$1" -eq 0 ]; then
        echo "ok $n - $2"
    else
        failed=$((failed + 1))
        echo "not ok $n - $2"
        _why=${3:-"$dir/err"}
        [ ! -f "$_why" ] || sed 's/^/# /' "$_why" | tail -n 12
    fi
}
same() { [ "$1" = "$2" ]; ok $? "$3"; [ "$1" = "$2" ] || printf '%s\n' "# '$1' is not '$2'"; }
says() { grep -qF -- "$1" "$dir/err"; ok $? "$2"; }
says_like() { grep -q -- "$1" "$dir/err"; ok $? "$2"; } # a regular expression
must() { "$@" 2>"$dir/err" >/dev/null || { sed 's/^/# /' "$dir/err"; echo "Bail out! $*"; exit 1; }; }
skip() { # skip COUNT WHY: so many points
    for _ in $(seq "$1"); do
        n=$((n + 1))
        echo "ok $n - # SKIP $2"
    done
}
. "$LF_SRCDIR/tests/tap/plan.sh"
# finish COUNT, finish_min COUNT: the end of a test that makes exactly, or at least, so many points
finish() {
    plan "$@"
    [ $failed -eq 0 ]
    exit
}
finish_min() {
    plan_min "$@"
    [ $failed -eq 0 ]
    exit
}

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

# ---- kills ----

. "$LF_SRCDIR/tests/stage/slowly.sh"
# bytes FILE: how many there are, 0 of none.
bytes() { if [ -f "$1" ]; then wc -c <"$1"; else echo 0; fi; }
# killed_often TIMES FILE WHOLE COMMAND...: starts the command so often, each time until FILE has grown to
# the next share of the WHOLE bytes that it has in the end, and kills it then. $kills: how often it had
# not ended before.
killed_often() {
    _times=$1 _file=$2 _whole=$3
    shift 3
    kills=0
    for _i in $(seq "$_times"); do
        slowly 3000 "$@" >"$dir/stdout" 2>"$dir/err" &
        pid=$!
        _share=$((_whole * _i / (_times + 2)))
        until [ "$(bytes "$_file")" -ge $_share ] || ! kill -0 $pid; do sleep 0.01; done 2>/dev/null
        kill -9 $pid 2>/dev/null
        wait $pid 2>/dev/null
        [ $? -ne 137 ] || kills=$((kills + 1))
    done
}

# ---- ranks ----

# $launch COUNT -- COMMAND... starts ranks here; LF_TEST_LAUNCH names another launcher ("mpirun -n").
with_ranks() {
    launch=${LF_TEST_LAUNCH:-"$LF_BUILDDIR/loong-flow launch -n"}
    OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
    UCX_LOG_LEVEL=${UCX_LOG_LEVEL:-error}
    ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0" # of libpmix and UCX
    export OMP_NUM_THREADS OMP_WAIT_POLICY UCX_LOG_LEVEL ASAN_OPTIONS
}
have_ranks() { $launch 2 -- true >/dev/null 2>"$dir/err"; }
# Ends the test, skipped, where they cannot be started.
need_ranks() {
    have_ranks && return
    echo "1..0 # SKIP ranks cannot be started here: $(tail -n 1 "$dir/err")"
    exit 0
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

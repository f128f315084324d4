# SPDX-License-Identifier: Apache-2.0
# For tests of stages: source it first, end with `finish COUNT`. Each test works below $dir, its own. What a command says
# goes to $dir/stdout and $dir/err, its exit code to $rc.
set -u
. "$LF_SRCDIR/tests/tap/tap.sh"
own_dir
dir=$T
tap_why=$dir/err
stages=$LF_BUILDDIR/stages
tool=$LF_BUILDDIR/tests/stage/train_tool
rc=0
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
    have_ranks || skip_all "ranks cannot be started here: $(tail -n 1 "$dir/err")"
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

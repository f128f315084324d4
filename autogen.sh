#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# ./autogen.sh                      make ./configure (autoreconf)
# ./autogen.sh quickstart [ARG..]   install what is missing, build, run examples/quickstart (ARGs go to its run.sh)
# ./autogen.sh check [ARG..]        install what is missing, build, make check (ARGs go to configure)
# ./autogen.sh --packages           print the package names for each package manager
#
# Exit codes: 0 done, 1 failed, 2 usage, 3 packages are missing and cannot be installed from here.
set -eu
cd "$(dirname "$0")"
top=$(pwd)

apt_build="autoconf automake gcc make pkg-config libc6-dev libhdf5-dev libsqlite3-dev libarchive-dev libssl-dev libpcre2-dev \
libutf8proc-dev libjansson-dev libpmix-dev libucx-dev libdnnl-dev libsnappy-dev libzstd-dev zlib1g-dev \
libjpeg-dev libpng-dev libwebp-dev"
dnf_build="autoconf automake gcc make pkgconf-pkg-config hdf5-devel sqlite-devel libarchive-devel openssl-devel pcre2-devel \
utf8proc-devel jansson-devel pmix-devel ucx-devel onednn-devel snappy-devel libzstd-devel zlib-devel \
libjpeg-turbo-devel libpng-devel libwebp-devel"
spack_build="autoconf automake pkgconf hdf5~mpi sqlite libarchive openssl pcre2 utf8proc jansson pmix ucx onednn snappy zstd zlib \
libjpeg-turbo libpng libwebp"
conda_build="autoconf automake pkg-config c-compiler make hdf5 sqlite libarchive openssl pcre2 libutf8proc jansson libpmix-devel ucx onednn snappy zstd zlib \
libjpeg-turbo libpng libwebp"
apt_text="dict-gcide dict-wn"
# What examples/scenes draws with; its test is skipped where it is missing.
apt_draw="libfreetype-dev fonts-dejavu-core"
# A real SLURM for tests/flow/slurm_*.sh, which are skipped where it is missing.
apt_sched="slurm-wlm munge"
# An MPI as judge of our sums and as another launcher of ranks (tests/flow/ranks_comm.sh skips it where it is missing).
apt_mpi="libopenmpi-dev openmpi-bin"

usage() { sed -n '4,9s/^# \{0,1\}//p' autogen.sh; }

print_packages() {
    echo "Debian, Ubuntu:  apt-get install $1"
    echo "RHEL (CRB and EPEL on):  dnf install $dnf_build"
    echo "Spack:  spack install --add $spack_build && spack load $spack_build"
    echo "conda-forge:  conda install -c conda-forge $conda_build"
}

# Debian packages of $1 that are not installed.
missing_debian() {
    for p in $1; do
        dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'install ok installed' || printf '%s ' "$p"
    done
}
missing_rpm() {
    for p in $1; do rpm -q "$p" >/dev/null 2>&1 || rpm -q --whatprovides "$p" >/dev/null 2>&1 || printf '%s ' "$p"; done
}

agree() { # on a terminal, show and ask
    [ -t 0 ] && [ -t 1 ] || return 0
    printf 'Install: %s\nContinue? [Y/n] ' "$1"
    read -r answer
    case $answer in "" | y* | Y*) return 0 ;; esac
    echo "Nothing installed."
    exit 3
}

# Everything the build needs without a package manager's word (Spack, conda, modules, by hand).
have_tools() { command -v autoreconf >/dev/null && command -v automake >/dev/null && command -v pkg-config >/dev/null && command -v make >/dev/null; }

# Packages of daemons start them when they are installed (invoke-rc.d asks this file first). A machine that only runs our
# tests wants none of the system's munge and SLURM; the tests bring up their own.
no_daemons() {
    policy=/usr/sbin/policy-rc.d made_policy=
    [ ! -e $policy ] || return 0
    made_policy=1
    trap 'daemons_again' EXIT
    trap 'exit 1' HUP INT TERM
    printf '#!/bin/sh\n# written by loong-flow'"'"'s autogen.sh while it installs packages\nexit 101\n' >$policy && chmod 755 $policy
}
daemons_again() {
    [ -z "$made_policy" ] || rm -f $policy
    made_policy=
    trap - EXIT HUP INT TERM
}

install_missing() { # $1: Debian packages, $2: RPM packages
    if command -v dpkg-query >/dev/null && command -v apt-get >/dev/null; then
        need=$(missing_debian "$1") how="apt-get install -y --no-install-recommends"
    elif command -v rpm >/dev/null && command -v dnf >/dev/null; then
        need=$(missing_rpm "$2") how="dnf install -y"
    else
        need= how=
        have_tools || need=unknown
    fi
    [ -n "$need" ] || return 0
    if [ -z "$how" ] || [ "$(id -u)" -ne 0 ]; then
        # Without root the libraries may still be there under other names; configure is the judge of that.
        if [ -n "${LF_NO_INSTALL:-}" ] && have_tools; then return 0; fi
        echo "These packages are missing: $need" >&2
        echo "Run one of these (as root, or in your own Spack or conda), then this command again;" >&2
        echo "LF_NO_INSTALL=1 skips this check when the libraries are there under other names:" >&2
        print_packages "$1" >&2
        exit 3
    fi
    agree "$need"
    case $how in
    apt-get*)
        DEBIAN_FRONTEND=noninteractive
        export DEBIAN_FRONTEND
        apt-get update -q
        no_daemons
        # optional pieces (texts, oneDNN, SLURM) may be absent from a release: try all, then without them
        # shellcheck disable=SC2086
        $how $need || $how $(for p in $need; do case $p in dict-* | libdnnl-dev | libfreetype-dev | fonts-dejavu-core | slurm-wlm | munge | *openmpi*) ;; *) printf '%s ' "$p" ;; esac done)
        daemons_again
        ;;
    *)
        # shellcheck disable=SC2086
        $how $need
        ;;
    esac
}

make_configure() {
    mkdir -p build-aux
    autoreconf --install --force
}

jobs() { getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2; }

build_in() { # $1: build directory; further arguments go to configure
    dir=$1
    shift
    mkdir -p "$dir"
    (cd "$dir" && { [ -f Makefile ] || "$top/configure" "$@"; } && make -s -j"$(jobs)")
}

# The shortest build that runs as fast as any here: kernels of this processor only, no debug information (a fifth of the compiler's
# time). It is not for tests and bundles, so it has a directory of its own; a build that is there already is brought up to date instead.
# Sets dir, and LF_BUILD_TIME for the report at the end of examples/quickstart/run.sh.
quickstart_build() {
    dir=build-quickstart
    [ ! -f build/Makefile ] || dir=build
    if [ -x $dir/loong-flow ]; then forecast 0; else forecast 1; fi
    ! { [ -e /dev/nvidia0 ] || command -v nvidia-smi >/dev/null; } ||
        echo "quickstart: a GPU is here; it is left out, configure --with-cuda builds for it and takes minutes more"
    clock=$(date +%s) mark=$(mktemp)
    times >"$mark"
    cpu=$(cpu_of "$mark")
    [ -x configure ] || make_configure
    CFLAGS=${CFLAGS:--O3} build_in $dir --enable-native
    times >"$mark"
    LF_BUILD_TIME="$(($(date +%s) - clock)) $(($(cpu_of "$mark") - cpu))"
    rm -f "$mark"
    export LF_BUILD_TIME
}

# Tests must not run as root (permission tests would prove nothing): root works on a copy owned by an ordinary user. Before
# it drops to that user, root starts a SLURM whose user is root, so that jobs submitted by somebody else are tested.
check_as_user() { # arguments go to configure
    copy=$(mktemp -d "${TMPDIR:-/tmp}/loong-flow-check.XXXXXX")
    slurm_dir= slurm_conf=
    trap 'stop_slurm; rm -rf "$copy"' EXIT
    trap 'exit 1' HUP INT TERM
    tar -cf - --exclude=./.git --exclude='./build*' --exclude=./autom4te.cache --exclude=./quickstart-run . | (cd "$copy" && tar -xf -)
    [ -d build-aux ] && cp -R build-aux "$copy/"
    chown -R 65534:65534 "$copy"
    chmod 755 "$copy"
    start_slurm
    (cd "$copy" && HOME=$copy TMPDIR=${TMPDIR:-/tmp} setpriv --reuid=65534 --regid=65534 --clear-groups \
        env LF_NO_INSTALL=1 LF_SLURM_SHARED="$slurm_conf" ./autogen.sh check "$@")
}

# Sets slurm_conf to the configuration of a running cluster, or says why there is none (those tests are skipped then).
start_slurm() {
    PATH=$PATH:/usr/sbin:/sbin
    command -v slurmctld >/dev/null && command -v munged >/dev/null || { echo "no slurmctld and munged here: SLURM is not tested"; return 0; }
    slurm_dir=$(mktemp -d "${TMPDIR:-/tmp}/lf-slurm.XXXXXX")
    if LF_SLURM_DIR=$slurm_dir LF_SLURM_NODES=6 LF_SLURM_MEM=4096 LF_SLURM_EXTRA=$top/tests/flow/slurm_parts.conf \
        tests/flow/slurm-up >/dev/null; then
        slurm_conf=$slurm_dir/slurm.conf
    else
        echo "SLURM did not start: a submitter who is not the SLURM user is not tested" >&2
    fi
}
stop_slurm() {
    [ -z "$slurm_dir" ] || LF_SLURM_DIR=$slurm_dir tests/flow/slurm-down || true
    slurm_dir=
}

# How many tests failed, from the logs of what did not pass. A program is counted by its failures;
# the error that follows from them (its exit status) is not one more, and the errors of a program
# without a failure are one.
failures() {
    LC_ALL=C awk '/^(FAIL|XPASS|ERROR): / && NF > 2 {
            if ($1 == "ERROR:") error[$2] = 1; else n[$2]++
        }
        END { for (t in error) if (!n[t]) n[t] = 1
              for (t in n) sum += n[t]
              print sum + 0 }' "$1"
}

# Sum the TAP results, print them, bound the skips.
summary() {
    log=$1/test-suite.log
    [ -f "$log" ] || { echo "the build failed: no test has run" >&2; return 1; }
    count() { LC_ALL=C sed -n "s/^# $1: *//p" "$log" | head -n 1; }
    pass=$(count PASS) fail=$(count FAIL) error=$(count ERROR) skip=$(count SKIP)
    bad=$((${fail:-0} + ${error:-0}))
    [ $bad -eq 0 ] || bad=$(failures "$log")
    # the sum of CPU time and the slowest tests, from what make said
    grep -a '^cpu: ' "$1/check.log" 2>/dev/null || true
    echo "${pass:-0} passed, $bad failed, ${skip:-0} skipped"
    if [ "${skip:-0}" -gt "${LF_MAX_SKIP:-25}" ]; then
        echo "too many skipped tests: ${skip:-0}, at most ${LF_MAX_SKIP:-25} are expected (LF_MAX_SKIP)" >&2
        grep -ah '# SKIP' "$log" >&2 || true
        return 1
    fi
    [ "$bad" -eq 0 ] && [ "${pass:-0}" -gt 0 ]
}

case ${1:-} in
"")
    make_configure
    ;;
--packages)
    print_packages "$apt_build"
    ;;
-h | --help)
    usage
    ;;
quickstart)
    shift
    . examples/common.sh
    install_missing "$apt_build $apt_text" "$dnf_build"
    quickstart_build
    exec sh examples/quickstart/run.sh "$top/$dir" "$@"
    ;;
check)
    shift
    # libraries that inject faults cannot stand before those of sanitizers: another fifteen tests are skipped
    case " $* " in *" --enable-sanitizers "*) LF_MAX_SKIP=${LF_MAX_SKIP:-40} ;; esac
    # without root these are not worth a refusal: what needs them is skipped
    [ "$(id -u)" -eq 0 ] || apt_sched= apt_mpi= apt_draw=
    install_missing "$apt_build $apt_draw $apt_sched $apt_mpi" "$dnf_build"
    if [ "$(id -u)" -eq 0 ]; then
        make_configure
        check_as_user "$@"
        exit
    fi
    [ -x configure ] || make_configure
    build_in build "$@"
    status=0
    # twice as many as cores: tests of schedulers mostly wait
    make -C build -j"$(($(jobs) * 2))" check VERBOSE=1 >build/check.log 2>&1 || status=1
    grep -aE '^(PASS|FAIL|XFAIL|XPASS|SKIP|ERROR): ' build/check.log | grep -av '^PASS' || true
    [ "$status" -eq 0 ] || tail -n 200 build/check.log
    summary build && [ "$status" -eq 0 ]
    ;;
*)
    usage >&2
    exit 2
    ;;
esac

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# All-reduce over 2 and 4 ranks, 4 B to 32 MiB: ours over shared memory, ours over TCP, that with UCX's own segments of 8 KiB, and MPI's where
# mpicc is, one after the other on the same machine. Prints microseconds. Run in the build directory after `make check` built the programs.
src=${LF_SRCDIR:-$(dirname "$0")/../..} build=${LF_BUILDDIR:-$PWD}
launch="$build/loong-flow launch --raw"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mpi=
if command -v mpicc >/dev/null && mpicc -O2 -o "$tmp/comm_mpi" "$src/tests/bench/comm_mpi.c" -lm; then
    mpi="mpirun --oversubscribe"
    [ "$(id -u)" -ne 0 ] || mpi="$mpi --allow-run-as-root"
else
    echo "# no mpicc: no comparison with MPI"
fi
for n in 2 4; do
    $launch -n $n -- "$build/tests/bench/comm_bench" >"$tmp/shm" || exit 1
    UCX_TLS=tcp,self $launch -n $n -- "$build/tests/bench/comm_bench" >"$tmp/tcp" || exit 1
    UCX_TLS=tcp,self UCX_TCP_TX_SEG_SIZE=8k $launch -n $n -- "$build/tests/bench/comm_bench" >"$tmp/short" || exit 1
    : >"$tmp/mpi"
    [ -z "$mpi" ] || OMPI_MCA_mpi_yield_when_idle=1 $mpi -np $n "$tmp/comm_mpi" bench >"$tmp/mpi"
    echo "$n ranks"
    awk -v mpi="$tmp/mpi" -v tcp="$tmp/tcp" -v short="$tmp/short" '
        BEGIN { while ((getline l < mpi) > 0) { split(l, f, " "); m[f[2]] = f[3] }
                while ((getline l < tcp) > 0) { split(l, f, " "); t[f[2]] = f[3] }
                while ((getline l < short) > 0) { split(l, f, " "); s[f[2]] = f[3] }
                printf "%12s %12s %12s %12s %12s\n", "bytes", "shm us", "tcp us", "tcp 8k us", "mpi us" }
        { printf "%12d %12s %12s %12s %12s\n", $2, $3, t[$2], s[$2], ($2 in m) ? m[$2] : "-" }' "$tmp/shm"
done

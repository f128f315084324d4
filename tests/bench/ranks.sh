# SPDX-License-Identifier: Apache-2.0
# Sourced by zero.sh and save.sh, which time lf-pretrain on ranks with one thread each: $tool makes data, $tmp is removed at the end.
build=${LF_BUILDDIR:-$PWD}
tool=$build/tests/stage/train_tool
[ -x "$tool" ] || { echo "make tests/stage/train_tool first" >&2; exit 1; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
LF_LIBEXEC=$build/stages OMP_WAIT_POLICY=passive OMP_NUM_THREADS=1
export LF_LIBEXEC OMP_WAIT_POLICY OMP_NUM_THREADS
load() { cut -d' ' -f1-3 /proc/loadavg; }

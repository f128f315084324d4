#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every CUDA test on GPU 0, then those of tests/op under compute-sanitizer where it is found (memcheck, racecheck). A table at the end,
# which is also written to a file. `make check-gpu` and a bundle's gpu/check-gpu call this.
#
#   check.sh [-e] [-o FILE] PROGRAM...
#
# -e: on the emulator instead of a GPU (what these programs do in `make check`); then nothing is said about a GPU.
# LF_GPU_PART=tests|memcheck|racecheck runs one part. LF_GPU_SANITIZER names compute-sanitizer when it is not in PATH.
# Exit: 0 all passed, 1 something failed or there is no GPU, 2 usage.
set -u
LC_ALL=C
export LC_ALL
emulate= out=check-gpu.txt
while getopts eo: opt; do
    case $opt in
    e) emulate=1 ;;
    o) out=$OPTARG ;;
    *) echo "usage: check.sh [-e] [-o FILE] PROGRAM..." >&2; exit 2 ;;
    esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || { echo "check-gpu: no test programs were given" >&2; exit 2; }
work=$(mktemp -d "${TMPDIR:-/tmp}/check-gpu.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
if [ -n "$emulate" ]; then unset LF_REQUIRE_GPU; else export LF_REQUIRE_GPU=1; fi

# One program: PART COMMAND... -> a line of the table. A part is good when the program ends with 0 and no point of it failed.
failed=0 good=0
one() {
    _part=$1 _name=$2
    shift 2
    _t0=$(date +%s)
    "$@" >"$work/log" 2>&1
    _rc=$?
    _s=$(($(date +%s) - _t0))
    _points=$(grep -c '^ok' "$work/log")
    _bad=$(grep -c '^not ok' "$work/log")
    _skip=$(grep -ci '^ok.*# *skip\|^1\.\.0.*skip' "$work/log")
    if [ $_rc -eq 0 ] && [ "$_bad" -eq 0 ]; then
        _state=passed
        good=$((good + 1))
    else
        _state="FAILED ($_rc)"
        failed=$((failed + 1))
        { echo "---- $_part $_name: exit $_rc"; grep -v '^ok' "$work/log" | tail -n 40; } | tee -a "$work/why"
    fi
    printf '%-10s %-32s %-13s %7d %7d %7d %6d s\n' "$_part" "$_name" "$_state" "$_points" "$_bad" "$_skip" "$_s" >>"$work/table"
    printf '%s %s: %s\n' "$_part" "$_name" "$_state"
}

# Is there a GPU? The first program says so or says why not, in one line.
if [ -z "$emulate" ]; then
    "$1" >"$work/log" 2>&1
    why=$(sed -n 's/^Bail out! *//p' "$work/log" | head -n 1)
    case $why in
    LF_REQUIRE_GPU=1:*) echo "check-gpu: no GPU to test on:${why#LF_REQUIRE_GPU=1:}" >&2; exit 1 ;;
    esac
    device=$(sed -n 's/^# on //p' "$work/log" | head -n 1)
else
    device='the emulator'
fi

wanted() { [ -z "${LF_GPU_PART:-}" ] || [ "$LF_GPU_PART" = "$1" ]; }
if wanted tests; then for p in "$@"; do one tests "${p##*/}" "$p"; done; fi

# The sanitizers look at what a kernel does, not at its speed: small shapes are enough, so tests/op alone.
sanitizer=${LF_GPU_SANITIZER:-$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer /opt/cuda/bin/compute-sanitizer 2>/dev/null | head -n 1)}
note=
if [ -n "$emulate" ]; then
    note='compute-sanitizer: needs a GPU'
elif [ -z "$sanitizer" ]; then
    note='compute-sanitizer: not found (LF_GPU_SANITIZER names it), memcheck and racecheck were not run'
else
    for tool in memcheck racecheck; do
        wanted $tool || continue
        for p in "$@"; do
            case $p in */op/*) one $tool "${p##*/}" "$sanitizer" --tool $tool --error-exitcode 99 --print-limit 20 "$p" ;; esac
        done
    done
fi

{
    echo "check-gpu on ${device:-an unnamed device}, $(date -u +%Y-%m-%dT%H:%M:%SZ)"
    printf '%-10s %-32s %-13s %7s %7s %7s %8s\n' part program result ok 'not ok' skipped time
    cat "$work/table" 2>/dev/null
    [ -z "$note" ] || echo "$note"
    echo "$good passed, $failed failed"
    if [ -s "$work/why" ]; then cat "$work/why"; fi
} >"$work/report"
echo
sed '/^---- /,$d' "$work/report"
cp "$work/report" "$out" || { echo "check-gpu: $out cannot be written" >&2; exit 1; }
echo "written to $out"
[ $failed -eq 0 ] && [ $good -gt 0 ]

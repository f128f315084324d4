#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every CUDA test on GPU 0, then those of tests/op under compute-sanitizer where it is found (memcheck, racecheck). A table at the end.
# `make check-gpu` and a bundle's gpu/check-gpu call this.
#
#   check.sh [-e] [-c] [-t SECONDS] [-o FILE] PROGRAM...
#
# Programs run in order of what they tell: products and attention first, long loss curves last. The table is written anew after each, so
# that who is stopped has what was found. A program that takes longer than LF_GPU_LIMIT (300) seconds is stopped and has failed.
# -t: to be done in so many seconds: tests take 3/5 of them at most, memcheck up to 4/5; what was not begun is listed.
# -c: go on with the table in FILE: what passed there, with these very programs on this device, is not run again.
# -e: on the emulator instead of a GPU (what these programs do in `make check`); then nothing is said about a GPU.
# LF_GPU_PART=tests|memcheck|racecheck runs one part. LF_GPU_SANITIZER names compute-sanitizer when it is not in PATH.
# Exit: 0 all passed, 1 something failed or there is no GPU, 2 usage, 3 nothing failed, but time ran out (-c goes on).
set -u
LC_ALL=C
export LC_ALL
emulate= out=check-gpu.txt seconds= go_on=
usage() { echo "usage: check.sh [-e] [-c] [-t SECONDS] [-o FILE] PROGRAM..." >&2; exit 2; }
while getopts ect:o: opt; do
    case $opt in
    e) emulate=1 ;;
    c) go_on=1 ;;
    t) seconds=$OPTARG ;;
    o) out=$OPTARG ;;
    *) usage ;;
    esac
done
case $seconds in *[!0-9]*) usage ;; esac
shift $((OPTIND - 1))
[ $# -gt 0 ] || { echo "check-gpu: no test programs were given" >&2; exit 2; }
work=$(mktemp -d "${TMPDIR:-/tmp}/check-gpu.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
# shellcheck source=tests/gpu/library.sh
. "$(dirname "$0")/library.sh"
if [ -n "$emulate" ]; then unset LF_REQUIRE_GPU; else export LF_REQUIRE_GPU=1; find_libraries; fi
begun=$(date +%s)
limit=${LF_GPU_LIMIT:-300}
passed() { [ "$(($(date +%s) - begun))" -ge "$1" ]; } # have so many seconds passed?

# ---- order ----

# What a failure of each would mean for the others, and how long it takes.
rank() {
    case $1 in
    *gemm_test) echo 10 ;;
    *attn_test) echo 11 ;;
    *attn_paged_test) echo 12 ;;
    *round_test) echo 13 ;;
    *norm_test | *rope_test | *xent_test | *optim_test) echo 14 ;;
    */op/*) echo 20 ;;
    *generate_test) echo 30 ;;
    *families_test) echo 31 ;;
    *loss_test) echo 40 ;;
    *fp8_test) echo 50 ;;
    *) echo 35 ;;
    esac
}
for p in "$@"; do echo "$(rank "$p") $p"; done | sort -s -n -k 1,1 | cut -d ' ' -f 2- >"$work/order"
sum=$(while read -r p; do cat "$p"; done <"$work/order" | cksum | tr ' ' '-')

# ---- the device ----

# Is there a GPU? A short program says so or says why not, in one line.
if [ -z "$emulate" ]; then
    "$(grep 'round_test$' "$work/order" || head -n 1 "$work/order")" >"$work/log" 2>&1
    why=$(sed -n 's/^Bail out! *//p' "$work/log" | head -n 1)
    case $why in
    LF_REQUIRE_GPU=1:*) echo "check-gpu: no GPU to test on:${why#LF_REQUIRE_GPU=1:}" >&2; exit 1 ;;
    esac
    device=$(sed -n 's/^# on //p' "$work/log" | head -n 1)
else
    device='the emulator'
fi
device=${device:-an unnamed device}

# ---- one program ----

failed=0 good=0 left=0 skipped=0
: >"$work/table"
: >"$work/why"
: >"$work/before"
if [ -n "$go_on" ] && [ -r "$out" ]; then
    if [ "$(sed -n 's/^check-gpu on \(.*\), [^,]*$/\1/p' "$out" | head -n 1)" = "$device" ] && grep -qx "programs $sum" "$out"; then
        grep -E '^(tests|memcheck|racecheck) +[^ ]+ +passed ' "$out" >"$work/before"
    else
        echo "check-gpu: $out is of other programs or another device, everything is run" >&2
    fi
fi
line() { # PART NAME STATE OK BAD SKIPPED SECONDS
    printf '%-10s %-32s %-13s %7s %7s %7s %6s s\n' "$@" >>"$work/table"
    printf '%s %s: %s, %s s\n' "$1" "$2" "$3" "$7"
}
report() { # the table so far
    {
        echo "check-gpu on $device, $(date -u +%Y-%m-%dT%H:%M:%SZ)"
        echo "programs $sum"
        printf '%-10s %-32s %-13s %7s %7s %7s %8s\n' part program result ok 'not ok' skipped time
        cat "$work/table"
        [ -z "$note" ] || echo "$note"
        echo "$good passed, $failed failed$([ $skipped -eq 0 ] || echo ", $skipped skipped")$([ $left -eq 0 ] || echo ", $left not run: no time was left (-c goes on)")"
        cat "$work/why"
    } >"$work/report"
    cp "$work/report" "$out" || { echo "check-gpu: $out cannot be written" >&2; exit 1; }
}
# PART UNTIL COMMAND... (the last word is the program): a line of the table. Good is who ends with 0 and has no failed point.
one() {
    _part=$1 _until=$2
    shift 2
    for _p in "$@"; do :; done
    _name=${_p##*/} _cut=$limit
    if grep -E "^$_part +$_name +passed" "$work/before" >>"$work/table"; then
        good=$((good + 1))
        return
    fi
    if [ -n "$seconds" ]; then
        _rest=$((seconds - ($(date +%s) - begun)))
        if passed "$_until" || [ $_rest -lt 1 ]; then
            left=$((left + 1))
            line "$_part" "$_name" 'not run' - - - -
            report
            return
        fi
        if [ $_rest -lt "$_cut" ]; then _cut=$_rest; fi
    fi
    _t0=$(date +%s)
    $timeout ${timeout:+"$_cut"} "$@" >"$work/log" 2>&1
    _rc=$?
    _s=$(($(date +%s) - _t0))
    _points=$(grep -c '^ok' "$work/log")
    _bad=$(grep -c '^not ok' "$work/log")
    _skip=$(grep -ci '^ok.*# *skip\|^1\.\.0.*skip' "$work/log")
    case $_rc in 124 | 137) _stopped=1 ;; *) _stopped= ;; esac
    if [ $_rc -eq 0 ] && [ "$_bad" -eq 0 ] && [ "$_points" -eq 0 ] && [ "$_skip" -gt 0 ]; then
        skipped=$((skipped + 1))
        _state=skipped
        sed -n 's/^1\.\.0 *# */  /p' "$work/log"
    elif [ $_rc -eq 0 ] && [ "$_bad" -eq 0 ]; then
        good=$((good + 1))
        _state=passed
    elif [ -n "$_stopped" ] && [ "$_bad" -eq 0 ] && [ "$_cut" -lt "$limit" ] && [ $_s -ge "$_cut" ]; then
        left=$((left + 1))
        _state='not run'
    else
        failed=$((failed + 1))
        _state="FAILED ($_rc)"
        { echo "---- $_part $_name: exit $_rc${_stopped:+, stopped after $_s s}"; grep -v '^ok' "$work/log" | tail -n 40; } | tee -a "$work/why"
    fi
    line "$_part" "$_name" "$_state" "$_points" "$_bad" "$_skip" "$_s"
    report
}
timeout=
if command -v timeout >/dev/null; then timeout='timeout -k 10'; fi

# ---- the parts ----

wanted() { [ -z "${LF_GPU_PART:-}" ] || [ "$LF_GPU_PART" = "$1" ]; }
# The sanitizers look at what a kernel does, not at its speed: small shapes are enough, so tests/op alone.
sanitizer=${LF_GPU_SANITIZER:-$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer /opt/cuda/bin/compute-sanitizer 2>/dev/null | head -n 1)}
note=
if [ -n "$emulate" ]; then
    note='compute-sanitizer: needs a GPU'
    sanitizer=
elif [ -z "$sanitizer" ]; then
    note='compute-sanitizer: not found (LF_GPU_SANITIZER names it), memcheck and racecheck were not run'
fi
part() { # PART SHARE COMMAND...: SHARE fifths of the time
    wanted "$1" || return 0
    tool=$1 until=$((${seconds:-0} * $2 / 5))
    shift 2
    while read -r program <&3; do
        case $tool:$program in tests:* | *:*/op/*) one "$tool" $until "$@" "$program" ;; esac
    done 3<"$work/order"
}
report
if [ -z "$sanitizer" ] || [ -n "${LF_GPU_PART:-}" ]; then shares='5 5 5'; else shares='3 4 5'; fi
# shellcheck disable=SC2086
set -- $shares
part tests "$1"
if [ -n "$sanitizer" ]; then
    part memcheck "$2" "$sanitizer" --tool memcheck --error-exitcode 99 --print-limit 20
    part racecheck "$3" "$sanitizer" --tool racecheck --error-exitcode 99 --print-limit 20
fi

report
echo
sed '/^---- /,$d' "$work/report"
echo "written to $out"
[ $failed -eq 0 ] || exit 1
[ $left -eq 0 ] || exit 3
[ $good -gt 0 ]

# SPDX-License-Identifier: Apache-2.0
# Faults for tests in shell (tests/fault/fail.c). Source it where $T is the directory below which changes are counted.
# FAIL is the library, or empty where the sanitizers' own library, which must come first, keeps it out.
FAIL=$LF_BUILDDIR/tests/fault/fail.so
no_fail="fail.so cannot be loaded before the sanitizers' own library"
sanitizers() { grep -q '^#define LF_SANITIZERS' "$LF_BUILDDIR/config.h"; }
if sanitizers || [ ! -r "$FAIL" ]; then FAIL=; fi

# cut_at ACTION N PATTERN READY COMMAND...: the command is ended (ACTION kill or term) by itself, at the N-th of its
# changes that fit the pattern ("name path" of LF_FAIL_MATCH), so it cannot reach its end before. Without fail.so it is
# ended from here, once the command READY succeeds. $rc is its exit status.
cut_at() {
    _action=$1 _nth=$2 _pattern=$3 _ready=$4
    shift 4
    if [ -n "$FAIL" ]; then
        env LD_PRELOAD="$FAIL" LF_FAIL_ROOT="$T" LF_FAIL_ACTION="$_action" LF_FAIL_AFTER="$_nth" \
            LF_FAIL_MATCH="$_pattern" "$@" 2>"$T/err" >"$T/stdout"
        rc=$?
        return
    fi
    "$@" 2>"$T/err" >"$T/stdout" &
    pid=$!
    until eval "$_ready" || ! kill -0 $pid; do sleep 0.01; done 2>/dev/null
    kill -"$([ "$_action" = term ] && echo TERM || echo 9)" $pid 2>/dev/null
    wait $pid 2>/dev/null
    rc=$?
}
# bytes FILE: its length, 0 where there is none
bytes() { if [ -f "$1" ]; then wc -c <"$1"; else echo 0; fi; }
# killed_often TIMES FILE WHOLE COMMAND...: starts the command so often; each start is killed when it writes to FILE and
# FILE has grown to the next share of the WHOLE bytes that it has in the end. $kills counts those that were killed.
# $often is 1 when all of them were; without fail.so, where a start may end before it is killed from here, when one was.
killed_often() {
    _times=$1 _file=$2 _whole=$3
    shift 3
    kills=0
    for _i in $(seq "$_times"); do
        _share=$((_whole * _i / (_times + 2)))
        LF_FAIL_SIZE=$_share
        export LF_FAIL_SIZE
        cut_at kill 1 "*write ${_file#"$T"}" "[ \$(bytes '$_file') -ge $_share ]" "$@"
        unset LF_FAIL_SIZE
        [ $rc -ne 137 ] || kills=$((kills + 1))
    done
    often=$((kills == _times || (${#FAIL} == 0 && kills > 0)))
}
# of a process: whether it has ended, whether SIGSTOP holds it
gone() { ! kill -0 "$1" 2>/dev/null || grep -q '^State:[[:space:]]*Z' "/proc/$1/status" 2>/dev/null; }
stopped() { grep -q '^State:[[:space:]]*T' "/proc/$1/status" 2>/dev/null; }

# SPDX-License-Identifier: Apache-2.0
# For tests of the flow: source it, call ok/is/like/runs, end with `finish COUNT`. Each test works in a directory of its
# own; processes are ended by their ids only.
: "${LF_BUILDDIR:=$PWD}"
. "$LF_SRCDIR/tests/tap/tap.sh"
LF="$LF_BUILDDIR/tests/flow/bin/loong-flow"
LF_SITE_CONFIG= LF_USER_CONFIG= LF_LIBEXEC="$LF_BUILDDIR/tests/flow/bin"
LF_TEMPLATES_DIR="$LF_SRCDIR/templates"
export LF_SITE_CONFIG LF_USER_CONFIG LF_LIBEXEC LF_TEMPLATES_DIR
unset SUDO_UID
own_dir loong-flow-test
cd "$T" || exit 99
LF_CACHE_DIR=$T/cache
export LF_CACHE_DIR
BG= # what may still run at the end
# The number of a process that ended long ago may be another test's by now, so only those are killed whose working
# directory is ours.
end_background() {
    for p in $BG; do
        case $(readlink "/proc/$p/cwd") in "$T" | "$T"/*) kill -9 "$p" ;; esac
    done 2>/dev/null
}
cleanup() {
    end_background
    drop_dir
}
trap cleanup EXIT

# like FILE PATTERN NAME: an extended regular expression matches a line
like() { grep -Eq -e "$2" "$1"; ok $? "$3" "no line like '$2' in: $(head -c 600 "$1" | tr '\n' '~')"; }
unlike() { ! grep -Eq -e "$2" "$1"; ok $? "$3" "a line like '$2' in: $(head -c 600 "$1" | tr '\n' '~')"; }
# runs CODE COMMAND...: exit status; output in out, errors in err
runs() { want=$1; shift; "$@" >out 2>err; got=$?; is $got "$want" "exit $want: ${*##*/} $(head -c 200 err | tr '\n' ' ')"; }
# state STAGE: its state in the newest run
state() { "$LF" status --columns name,state | awk -v s="$1" '$1 == s { print $2 }'; }
tries() { "$LF" status --columns name,attempts | awk -v s="$1" '$1 == s { print $2 }'; }
stage_dir() { "$LF" status --columns name,dir | awk -v s="$1" '$1 == s { print $2 }'; }
run_id() { "$LF" status | awk 'NR == 1 { print $3 }'; }
# until_true SECONDS COMMAND...: poll for an event. A quiet machine needs less than SECONDS; a busy one
# gets minutes, which only a test that fails takes. The pause is an eighth of the time waited so far, from 50 ms to
# a second: most events are seen at once, and few processes are started for one that takes a minute.
until_true() {
    _left=$(((120 + $1 * 10) * 1000)) _pause=50; shift
    while ! "$@" >/dev/null 2>&1; do
        [ $_left -gt 0 ] || return 1
        _left=$((_left - _pause)) _padded=$((1000 + _pause))
        sleep "0.${_padded#1}"
        _pause=$((_pause * 9 / 8 < 999 ? _pause * 9 / 8 : 999))
    done
}
# A start of a stage with `hold = $T/hold` makes one step (or hold_at) and waits while that file is
# there: what a test does meanwhile does not race with the stage's end. It hears stop requests.
# let_go_when SECONDS COMMAND...: the file is taken away behind that event.
HOLD=$T/hold
hold() { : >"$HOLD"; }
let_go() { rm -f "$HOLD"; }
let_go_when() { until_true "$@"; let_go; }
pid_in() { sed -n 's/.*"pid":\([0-9]*\).*/\1/p' "$1" | head -1; }

pipeline() { # three stages in a row
    echo "text to read" >in.txt
    cat >pipeline.ini <<'END'
[pipeline]
name = demo
[stage first]
kind = work
input = in.txt
steps = 30
step_time = 20
[stage second]
kind = work
input = ${stage:first}
[stage last]
kind = join
parts = ${stage:first.result}
    ${stage:second.result}
END
}
result() { cat "$(stage_dir "$1")/out/${2:-result}/data.txt"; }

# Ends the test, skipped, where ranks cannot be started: built without what they need. Sanitizers do not look for leaks of libpmix and UCX then.
need_ranks() {
    UCX_LOG_LEVEL=${UCX_LOG_LEVEL:-error}
    ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0"
    export UCX_LOG_LEVEL ASAN_OPTIONS
    if ! "$LF" launch -n 1 -- true 2>err && grep -q 'without-pmix' err; then
        skip_all "built --without-pmix"
    fi
    if ! "$LF" launch -n 2 -- "$LF_BUILDDIR/tests/unit/comm_ranks" who >out 2>err && grep -q 'without-ucx' err; then
        skip_all "built --without-ucx"
    fi
}

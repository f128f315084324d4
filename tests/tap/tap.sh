# SPDX-License-Identifier: Apache-2.0
# TAP in shell: points, skips, the plan, a directory of one's own. The lib.sh of a folder sources this file; so does
# a script that needs no more. A test ends with `finish COUNT`.
tap_n=0   # points so far
tap_bad=0 # those of them that failed
tap_why=  # a file whose last lines are shown below every point that fails

# _because WHY: comments below a point that failed; WHY is a text, or a file whose last lines are shown
_because() {
    if [ -f "$1" ]; then tail -n 20 "$1"; else printf '%s\n' "$1" | head -n 40; fi | sed 's/^/# /'
}
ok() { # ok STATUS NAME [WHY]: one point, which passes when STATUS is 0
    tap_n=$((tap_n + 1))
    if [ "$1" -eq 0 ]; then
        echo "ok $tap_n - $2"
        return
    fi
    tap_bad=$((tap_bad + 1))
    echo "not ok $tap_n - $2"
    [ -z "${3:-}" ] || _because "$3"
    [ -f "${3:-}" ] || [ ! -f "$tap_why" ] || _because "$tap_why"
}
is() { [ "$1" = "$2" ]; ok $? "$3" "got '$1', want '$2'${4:+: $4}"; } # is GOT WANT NAME [WHY]
none() { [ -z "$2" ]; ok $? "$1" "$2"; }                             # none NAME FINDINGS: there are no findings
skip() { # skip NAME WHY: one point is not tried
    tap_n=$((tap_n + 1))
    echo "ok $tap_n -${1:+ $1} # SKIP $2"
}
skip_some() { # skip_some COUNT WHY: so many points are not tried
    for _ in $(seq "$1"); do skip "" "$2"; done
}
# skip_all WHY: the whole test is not tried; it comes before the first point
skip_all() { echo "1..0 # SKIP $1"; exit 0; }
# bail WORDS: what every point rests on went wrong
bail() { tap_bad=$((tap_bad + 1)); echo "Bail out! $1"; exit 1; }

# own_dir [PREFIX]: makes the directory $T, which goes away at the end, and when a signal ends the test, unless a point
# failed or LF_KEEP is set. It may stand in memory (shm.sh), which nothing else would free.
own_dir() {
    T=$(mktemp -d "${TMPDIR:-/tmp}/${1:-lf-$(basename "$0" .sh)}.XXXXXX") || exit 99
    trap drop_dir EXIT
    trap 'exit 143' HUP INT TERM # some shells do nothing at EXIT when a signal ends them
}
drop_dir() {
    if [ $tap_bad -ne 0 ] || [ -n "${LF_KEEP:-}" ]; then
        echo "# kept $T"
        return
    fi
    chmod -R u+w "$T" 2>/dev/null
    rm -rf "$T"
}

# The test states its number of points: a plan made of the points that were seen would hide that it ended early.
_plan() { # _plan WORDS COUNT OPERATOR
    if [ -z "$2" ]; then
        ok 1 "the test states how many points it makes"
    elif ! [ "$tap_n" "$3" "$2" ]; then
        _seen=$tap_n
        ok 1 "this test makes $1$2 points: $_seen were seen"
    fi
    echo "1..$tap_n"
    exit $((tap_bad > 0))
}
# finish COUNT: the end of a test. When there were not exactly COUNT points, skipped ones too, another one fails.
finish() { _plan "" "${1:-}" -eq; }
# finish_min COUNT: at least so many; only where their number depends on the machine: say there on what of it.
finish_min() { _plan "at least " "${1:-}" -ge; }

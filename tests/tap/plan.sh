# SPDX-License-Identifier: Apache-2.0
# The plan of a test in shell, for scripts and libraries that have an `ok STATUS NAME` counting in $n.
# A plan made of the points that were seen would hide that a test ended early, so the test states it.
_plan() { # _plan WORDS COUNT OPERATOR
    if [ -z "$2" ]; then
        ok 1 "the test states how many points it makes"
    elif ! [ "$n" "$3" "$2" ]; then
        _seen=$n
        ok 1 "this test makes $1$2 points: $_seen were seen"
    fi
    echo "1..$n"
}
# plan COUNT: print the plan; when there were not exactly COUNT points, skipped ones too, another one fails.
plan() { _plan "" "${1:-}" -eq; }
# plan_min COUNT: at least so many; only where their number depends on the machine: say there on what of it.
plan_min() { _plan "at least " "${1:-}" -ge; }

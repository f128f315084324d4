#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The wrapper is killed before each of its changes to files, from the claim of an epoch to the end record. Whatever command comes
# next: what was published stays and is found, what was not is made once, the ledger equals one that is rebuilt.
. "$LF_SRCDIR/tests/tap/shm.sh"
. "$LF_SRCDIR/tests/flow/lib.sh"
. "$LF_SRCDIR/tests/flow/fakes.sh"
. "$LF_SRCDIR/tests/flow/kill_lib.sh"
mkdir p && cd p || exit 99
cat >pipeline.ini <<'END'
[stage only]
kind = work
steps = 3
step_time = 1
END
begin() { until_true 10 rm -rf .loong loong-data; }
dones() { ls loong-data/*/runs/*/only/[0-9]*.[0-9]*/done.json 2>/dev/null | wc -l; }
starts() { ls -d loong-data/*/runs/*/only/[0-9]*.[0-9]* 2>/dev/null | wc -l; }
begin
changes 'exec --run-dir' "$LF" run
ok $? "run" "$(cat o e)"
ref=$(result only)
for k in $(points); do
    begin
    killed "$k" 'exec --run-dir' "$LF" run
    # The stage may still be at work without its wrapper: the next command waits for it or takes over.
    had=$(dones)
    begun=$(starts)
    manifest=$(ls loong-data/*/runs/*/only/[0-9]*.[0-9]*/out/result/manifest.json 2>/dev/null | head -1)
    case $((k % 3)) in
    0) ;;
    1) "$LF" status >/dev/null 2>&1 ;;
    2) "$LF" ledger sync >/dev/null 2>&1 ;;
    esac
    "$LF" run >o 2>e || "$LF" run >o 2>e || note "the next run: $(cat o e)"
    want "$(state only)" "done" "state"
    want "$(result only)" "$ref" "result"
    want "$(dones)" 1 "commit markers"
    [ "$had" -eq 0 ] || want "$(starts)" "$begun" "a committed stage ran again: starts"
    [ -z "$manifest" ] || [ -e "$manifest" ] || note "a published artifact is gone"
    want_ledger
    point "killed before change $k: $(sed -n "s/^$k //p" "$T/changes.log" | head -1)"
done
finish_min 28 # one for each change to a file

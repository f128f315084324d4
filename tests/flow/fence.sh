#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Superseded starts with a real stage. The rank of the first start is stopped (SIGSTOP) after it has looked at the fence: just before
# the link that publishes a checkpoint, or before the removal that prunes one. The next start begins, and the first wakes at the
# worst moment. Nothing goes on from what it published too late, nothing is lost by what it prunes, it ends by itself, and
# result and metrics are those of an undisturbed run.
. "$LF_SRCDIR/tests/tap/shm.sh"
. "$LF_SRCDIR/tests/flow/lib.sh"
. "$LF_SRCDIR/tests/flow/faults_lib.sh"
[ -n "$FAIL" ] || skip_all "$no_fail"
series() { "$LF" metrics train --format csv --lines 0 --key loss | sed '1d; s/,.*//' | sort -n; }

runs 0 "$LF" run
id=$("$tool" id "$(stage_dir train)/out/checkpoint")
echo "$id" | grep -qE '^30 [0-9a-f]{64}$'; ok $? "there is a checkpoint to compare with" "$id"
series >steps.ref
is "$(head -1 steps.ref) $(tail -1 steps.ref)" "1 30" "and its metrics"
is "$(sort -un steps.ref | wc -l | tr -d ' ')" "$(wc -l <steps.ref | tr -d ' ')" "an undisturbed run has each step once"

# held MATCH: a new run whose rank is stopped before that call; sets rd, w (wrapper), r (rank), token
held() {
    rm -f once
    LD_PRELOAD=$FAIL LF_FAIL_ROOT=$T LF_FAIL_ACTION=stop LF_FAIL_PROGRAM=lf-pretrain LF_FAIL_AFTER=1 LF_FAIL_ONCE=$T/once \
        LF_FAIL_MATCH="$1" "$LF" run --new >o 2>&1 &
    driver=$!
    BG="$BG $driver"
    until_true 60 test -e once
    ok $? "a rank is held before: $1" "$(tail -3 o | tr '\n' ' ')"
    d=$(stage_dir train)
    rd=$(cd "$d/../.." && pwd)
    w=$(pid_in "$rd/train/epoch.1") r=$(pid_in "$d/stage.json")
    BG="$BG $w $r"
    token=$(sed -n 's/.*"token":"\([0-9a-f]*\)".*/\1/p' "$rd/train/attempt.1.json")
    until_true 10 stopped "$r"
    # As if it ran on a node that nobody reaches: the wrapper is held too, and its processes are another host's.
    kill -STOP "$w"
    kill -9 "$driver"
    wait "$driver" 2>/dev/null
    for f in "$rd"/train/1.1/stage.json "$rd"/train/1.1/ranks/*.json; do
        sed 's/"host":"[^"]*"/"host":"unreachable"/' "$f" >f.tmp && rm -f "$f" && mv f.tmp "$f"
    done
}
# another CODE [N MATCH]: the next start of the stage; with MATCH it is killed before the N-th call that matches
another() {
    rm -f once2
    (
        # "killall" ends the rank, the wrapper and this shell
        if [ $# -gt 1 ]; then
            LD_PRELOAD=$FAIL LF_FAIL_ROOT=$T LF_FAIL_ACTION=killall LF_FAIL_PROGRAM=lf-pretrain LF_FAIL_AFTER=$2
            LF_FAIL_ONCE=$T/once2 LF_FAIL_MATCH=$3
            export LD_PRELOAD LF_FAIL_ROOT LF_FAIL_ACTION LF_FAIL_PROGRAM LF_FAIL_AFTER LF_FAIL_ONCE LF_FAIL_MATCH
        fi
        "$rd/rev.1/bin/loong-flow" exec --run-dir "$rd" --stage train --attempt 1 --token "$token" --project "$T" >o2 2>&1
        exit $?
    )
    is $? "$1" "the next start ends with $1" "$(tail -3 o2 | tr '\n' ' ')"
}
wakes() { # the first start goes on
    kill -CONT "$r" "$w"
    until_true 60 gone "$r"
    ok $? "the superseded rank ends by itself"
    until_true 60 gone "$w"
    like "$rd/train/1.1/end.json" '"class":"superseded"' "its wrapper says why"
}
whole() { # the run is as if nothing had happened
    is "$(state train)" done "the stage is done"
    is "$("$tool" id "$(stage_dir train)/out/checkpoint")" "$id" "with the bytes of an undisturbed run"
    series >steps.now
    cmp -s steps.ref steps.now; ok $? "and each step once in the metrics" "$(diff steps.ref steps.now | head -3 | tr '\n' ' ')"
    [ ! -e "$(stage_dir train)/from" ] && [ -z "$(find "$rd/train" -maxdepth 1 -name 'from-*')" ]
    ok $? "nothing of what was handed over is left"
}

# --- between the look at the fence and the link: checkpoint 6 appears after the next start has begun ---
held 'link */train/1.1/out/checkpoints/step-00000006/manifest.json'
another 137 1 '*/train/1.2/out/checkpoints'
like "$rd/train/1.2/log" 'continuing bitwise from .*/1.2/from/checkpoints/step-00000003' "the second start goes on from what it took"
[ ! -e "$rd/train/1.1/out/checkpoints/step-00000006/manifest.json" ]; ok $? "before the first has published more"
wakes
[ -e "$rd/train/1.1/out/checkpoints/step-00000006/manifest.json" ]; ok $? "the first, paused behind its look, publishes checkpoint 6"
[ ! -e "$rd/train/1.1/out/checkpoints/step-00000009" ]; ok $? "and no other"
another 0
like "$rd/train/1.3/log" 'continuing bitwise from .*/1.3/from/checkpoints/step-00000003' "the third start does not go on from that"
whole

# --- between the look and the prune: checkpoint 3 goes while the next start needs it ---
held 'unlink */train/1.1/out/checkpoints/step-00000003/manifest.json'
another 137 1 '*/train/1.2/out/checkpoints'
like "$rd/train/1.2/log" 'continuing bitwise from .*/1.2/from/checkpoints/step-00000009' "the second start goes on from the newest"
wakes
[ ! -e "$rd/train/1.1/out/checkpoints/step-00000003/manifest.json" ]; ok $? "the first prunes what it was about to"
[ -e "$rd/train/1.2/from/checkpoints/step-00000003/manifest.json" ]; ok $? "the second has it still"
# The newest two are damaged, so the third start needs what the first has pruned.
for c in 00000006 00000009; do
    for f in "$rd"/train/1.2/from/checkpoints/step-$c/data-*.h5; do printf x | dd of="$f" bs=1 seek=4000 conv=notrunc 2>/dev/null; done
done
another 0
like "$rd/train/1.3/log" 'continuing bitwise from .*/1.3/from/checkpoints/step-00000003' "so the third can go on from there"
whole

# --- a start that dies between its claim and the renaming of what it took ---
held 'link */train/1.1/out/checkpoints/step-00000006/manifest.json'
LD_PRELOAD=$FAIL LF_FAIL_ROOT=$T LF_FAIL_ACTION=kill LF_FAIL_PROGRAM='exec --run-dir' LF_FAIL_AFTER=1 LF_FAIL_ONCE=$T/once3 \
    LF_FAIL_MATCH='rename */train/1.2/from' "$rd/rev.1/bin/loong-flow" exec --run-dir "$rd" --stage train --attempt 1 --token "$token" \
    --project "$T" >o2 2>&1
is $? 137 "the second start dies before it has renamed what it took"
wakes
rm -rf "$rd/train/1.1/out/checkpoints"
another 0
like "$rd/train/1.3/log" 'continuing bitwise from .*/1.3/from/checkpoints/step-00000003' "the third finds what the second had taken"
whole
finish 41

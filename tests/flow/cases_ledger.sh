#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Troubles of the ledger and of files: two clients, torn records, stale locks, clocks that differ, full and read-only disks, many
# attempts, large artifacts.
. "$LF_SRCDIR/tests/flow/lib.sh"
. "$LF_SRCDIR/tests/flow/fakes.sh"
. "$LF_SRCDIR/tests/fault/lib.sh"
cat >pipeline.ini <<'END'
[pipeline]
name = demo
[stage first]
kind = work
steps = 4
step_time = 5
[stage last]
kind = join
parts = ${stage:first.result}
END
run_dir() { ls -d loong-data/*/runs/"$(run_id)"; }
count() { "$LF" ledger sql "select count(*) from $1" | tail -1 | tr -d ' '; }

# --- two clients, one ledger ---
for i in 1 2 3 4 5 6; do
    "$LF" run --new --set first.factor=$i >"o$i" 2>&1 &
    eval "p$i=\$!"
done
for i in 1 2 3 4 5 6 7 8; do "$LF" ledger sync >/dev/null 2>&1; "$LF" status --all -n 0 >/dev/null 2>&1; done
codes=
for i in 1 2 3 4 5 6; do eval "wait \$p$i"; codes="$codes$?"; done
is "$codes" 000000 "six runs and other commands at once" "$(cat o? | grep -i error | head -3)"
is "$(count run)" 6 "all six are in the ledger"
ledger_whole "two clients"

# --- a torn record in the spool, a torn tail of a metrics file ---
runs 0 "$LF" run --new --set first.factor=7
d=$(stage_dir first)
spool=$(ls "$d"/spool/*-start.json | head -1)
printf '{"lf_event":1,"id":"' >"$d/spool/01ARZ3NDEKTSV4RRFFQ69G5FAV-end.json"
: >"$d/spool/01ARZ3NDEKTSV4RRFFQ69G5FAW-note.json"
head -c 40 "$spool" >"$d/spool/01ARZ3NDEKTSV4RRFFQ69G5FAX-start.json"
printf 'torn' >>"$d/metrics"
rm -f .loong/ledger.db*
"$LF" ledger rebuild >out 2>err
[ $? -le 1 ]; ok $? "a rebuild over torn files" "$(cat err)"
is "$(state first)" done "does not change what is done"
is "$(count problem)" 3 "each of them is noted"
is "$(count run)" 7 "and hides nothing else"
"$LF" metrics first --key loss --format csv >out 2>err
is "$(grep -c '^[0-9]' out)" 4 "all whole records of the curve are there" "$(cat out err)"
rm "$d"/spool/01ARZ3NDEKTSV4RRFFQ69G5FA*
runs 0 "$LF" ledger rebuild
is "$(count problem)" 0 "and forgotten when they are gone"

# --- a lock that another host left ---
claim() { # claim HOST AGE: a claim file with a heartbeat of AGE
    printf '{"lf_lock":1,"host":"%s","boot_id":"0","pid":12345,"start":17,"pid_ns":1,"token":"%s","user":"somebody","since":%s,"purpose":"loong-flow run"}' \
        "$1" 0123456789abcdef0123456789abcdef "$(date +%s)" >.loong/lock
    touch -d "$2" .loong/lock
}
claim login9 '3 hours ago'
"$LF" ledger sync >out 2>err
is "$?" 0 "a stale lock of another host is broken" "$(cat err)"
[ ! -e .loong/lock ]; ok $? "and nothing of it stays"
claim login9 now
timeout 600 "$LF" ledger rebuild >out 2>err
is "$?" 6 "a living one is not: exit 6" "$(cat err)"
like err 'somebody@login9.*12345' "with its owner"
is "$(state first)" done "status works meanwhile"
rm -f .loong/lock

# --- clocks that differ by five minutes ---
if [ -n "$FAIL" ]; then
    for off in -300 300; do
        claim login9 now
        LD_PRELOAD=$FAIL LF_FAIL_CLOCK=$off timeout 600 "$LF" ledger rebuild >out 2>err
        is "$?" 6 "a living lock is not broken by a clock that is off by $off s"
        rm -f .loong/lock
        LD_PRELOAD=$FAIL LF_FAIL_CLOCK=$off "$LF" run --new --set first.factor=8 >out 2>err
        is "$?" 0 "a run with a clock that is off by $off s" "$(cat err)"
        is "$(state last)" done "is done for the others"
        LD_PRELOAD=$FAIL LF_FAIL_CLOCK=$((0 - off)) "$LF" status >out 2>&1
        like out 'last +join +done' "and with a clock that is off the other way"
        ledger_whole "clock $off s"
    done
else
    skip "clocks that differ" "$no_fail"
fi

# --- a full disk, at any moment ---
if [ -n "$FAIL" ]; then
    LD_PRELOAD=$FAIL LF_FAIL_ROOT=$T LF_FAIL_PROGRAM=loong-flow LF_FAIL_LOG=$T/calls "$LF" run --new --set first.factor=2.5 >/dev/null 2>&1
    total=$(sed -n 's/^\([0-9]*\) .*/\1/p' calls | sort -n | tail -1)
    echo "# $total changes"
    [ "$total" -gt 40 ]; ok $? "a run makes some changes to files" "$total"
    k=1
    while [ $k -le "$total" ]; do
        LD_PRELOAD=$FAIL LF_FAIL_ROOT=$T LF_FAIL_PROGRAM=loong-flow LF_FAIL_ACTION=enospc LF_FAIL_AFTER=$k \
            "$LF" run --new --set first.factor=2.5 >out 2>err
        code=$?
        [ $code -eq 0 ] || grep -qE 'No space left|cannot|failed' err out
        ok $? "full from change $k on: exit $code, and said" "$(head -c 300 err)"
        "$LF" status >/dev/null 2>&1
        "$LF" run --set first.factor=2.5 >out 2>err
        is "$? $(state last)" "0 done" "and with room again the run ends well" "$(cat err)"
        k=$((k + 1 + total / 9))
    done
    ledger_whole "full disk"
else
    skip "full disk" "$no_fail"
fi

# --- a read-only ledger ---
if [ -n "$FAIL" ]; then
    before=$(ls loong-data/*/runs | wc -l)
    LD_PRELOAD=$FAIL LF_FAIL_ROOT=$T/.loong LF_FAIL_ACTION=erofs LF_FAIL_AFTER=1 "$LF" run --new >out 2>err
    [ $? -ne 0 ]; ok $? "read-only .loong: nothing is run"
    like err 'Read-only file system' "and the cause is named"
    is "$(ls loong-data/*/runs | wc -l)" "$before" "nothing was begun"
    for c in status show artifacts explain; do
        set -- "$c"
        [ "$c" != explain ] || set -- explain first
        LD_PRELOAD=$FAIL LF_FAIL_ROOT=$T/.loong LF_FAIL_ACTION=erofs LF_FAIL_AFTER=1 "$LF" "$@" >out 2>err
        is "$?" 0 "$c works on a read-only project" "$(cat err)"
    done
else
    skip "read-only ledger" "$no_fail"
fi

# --- something else where the ledger should be: one error with the remedy, and the remedy works ---
replace() { # replace WHAT: in place of the ledger
    rm -rf .loong/ledger.db .loong/ledger.db.old .loong/ledger.db.pub*
    case $1 in
    directory) mkdir -p .loong/ledger.db/inside ;;
    link) ln -s "$T/nowhere/at/all" .loong/ledger.db ;;
    pipe) mkfifo .loong/ledger.db ;;
    text) yes "not a database" | head -c 9000 >.loong/ledger.db ;;
    empty) : >.loong/ledger.db ;;
    esac
}
for what in directory link pipe text empty; do
    for c in "run --new" artifacts "ledger check" gc "lineage x"; do
        replace "$what"
        timeout 600 "$LF" $c >out 2>err
        code=$?
        if [ "$what" = empty ]; then
            [ $code -ne 124 ]; ok $? "$c with an empty ledger fills it, or says what it lacks" "exit $code $(cat err)"
            continue
        fi
        is $code 7 "$c with a $what for a ledger" "$(cat err)"
        is "$(grep -c 'ledger.db is .*ledger rebuild' err) $(wc -l <err)" "1 1" "one error with the remedy ($c, $what)" "$(cat err)"
    done
    for c in status "show first" "metrics first" logs; do
        timeout 600 "$LF" $c >out 2>err
        is "$? $(wc -c <err)" "0 0" "$c does not need it ($what)" "$(cat err)"
    done
    timeout 600 "$LF" ledger rebuild >out 2>err
    is $? 0 "the remedy ($what)" "$(cat err)"
    ledger_whole "after a $what"
    [ ! -e .loong/ledger.db.new ]; ok $? "nothing half made is left ($what)"
done

# --- 10 GB in one file: lengths, not bytes, are looked at ---
rm -rf .loong loong-data # runs made by a clock that is ahead count as the newest for a while
runs 0 "$LF" run --new --set first.big_bytes=10G
f=$(stage_dir first)/out/result/big.bin
is "$(stat -c %s "$f")" 10737418240 "an artifact of 10 GiB"
"$LF" artifacts >out
like out '10\.0 ?GiB' "is listed with its size"
is "$("$LF" ledger sql "select max(bytes) from artifact" | tail -1 | tr -d ' ' | cut -c 1-8)" 10737418 "and in the ledger"
is "$(state first)" "done" "done"
truncate -s 10737418239 "$f"
is "$(state first)" purged "one byte less, and it is not"
truncate -s 10737418240 "$f"
is "$(state first)" "done" "whole again"
rm -rf "$(run_dir)"

# --- 2,000 attempts ---
cat >pipeline.ini <<'END'
[stage only]
kind = work
steps = 5
step_time = 0
fail_at = 3
END
rm -rf .loong loong-data
"$LF" run >o 2>&1
d=$(dirname "$(stage_dir only)")
id=$(run_id)
[ -n "$id" ] && [ -e "$d/attempt.1.json" ] && [ -e "$d/1.1/end.json" ] || { ok 1 "a failed attempt to copy"; finish "$tap_n"; }
(cd "$d" && awk 'BEGIN {
    getline a <"attempt.1.json"; getline j <"job.1.json"; getline c <"epoch.1"; getline e <"1.1/end.json"
    match(a, /"token":"[0-9a-f]*"/); token = substr(a, RSTART + 9, RLENGTH - 10)
    for (k = 2; k <= 2000; k++) {
        dir = k "." k
        t = sprintf("%08x", k) substr(token, 9)
        x = a; gsub(token, t, x); gsub(/"attempt":1/, "\"attempt\":" k, x); f = "attempt." k ".json"; print x >f; close(f)
        f = "job." k ".json"; print j >f; close(f)
        x = c; gsub(token, t, x); gsub(/"attempt":1/, "\"attempt\":" k, x); gsub(/"epoch":1/, "\"epoch\":" k, x); f = "epoch." k; print x >f; close(f)
        print dir
    }
}' | xargs mkdir && for k in $(seq 2 2000); do ln 1.1/end.json $k.$k/; done)
is "$(ls "$d" | grep -c '^attempt\.')" 2000 "2,000 attempts"
is "$(state only) $(tries only)" "failed 2000" "status counts them"
runs 0 "$LF" ledger rebuild
runs 1 "$LF" resume
is "$(state only) $(tries only)" "failed 2001" "resume makes one more"
runs 0 "$LF" resume --set only.fail_at=0
is "$(state only) $(tries only)" "done 2002" "and another that ends well"
is "$(run_id)" "$id" "all in one run"
finish_min 78 # sanitizers keep out faults, and a run may make more changes to files

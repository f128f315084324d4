#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# loong-flow cancel is killed before each of its changes to files, while one job runs and one waits. The next cancel finishes it:
# no job is left, none comes back, what was saved stays.
. "$LF_SRCDIR/tests/tap/shm.sh"
. "$LF_SRCDIR/tests/flow/lib.sh"
. "$LF_SRCDIR/tests/flow/fakes.sh"
. "$LF_SRCDIR/tests/flow/kill_lib.sh"
fakes_slurm
mkdir p && cd p || exit 99
cat >pipeline.ini <<'END'
[pipeline]
name = demo
[site]
scheduler = slurm
poll = 1s
settle = 1s
[resources]
time_limit = 10m
[stage first]
kind = work
steps = 2000
step_time = 20
[stage second]
kind = work
input = ${stage:first}
END
begin() {
    fakeslurm clear
    until_true 10 rm -rf .loong loong-data
    : >"$LF_FAKE_DIR/history"
    "$LF" submit >o 2>e || note "submit: $(cat o e)"
    until_true 30 sh -c 'ls loong-data/*/runs/*/first/1.1/out/ck-2' || note "first does not start"
}
begin
changes 'loong-flow cancel' "$LF" cancel
ok $? "cancel" "$(cat o e)"
is "$(state first) $(state second)" "cancelled cancelled" "both are cancelled"
for k in $(points /ledger.db); do # those are in kill_ingest.sh
    begin
    killed "$k" 'loong-flow cancel' "$LF" cancel
    want $? 137 "exit"
    case $((k % 3)) in
    0) ;;
    1) "$LF" status >/dev/null 2>&1 ;;
    2) "$LF" tick >/dev/null 2>&1 ;;
    esac
    "$LF" cancel >o 2>e || note "the next cancel: $(cat o e)"
    fakeslurm wait 10 || note "jobs stay: $(fakeslurm jobs | tr '\n' ';')"
    want "$(state first)" cancelled "state"
    case $(state second) in cancelled | waiting) ;; *) note "second is $(state second)" ;; esac # it never began
    want "$(starts first-) $(starts second-)" "1 0" "jobs that ran"
    [ -e "$(ls -d loong-data/*/runs/*/first/1.1/out/ck-2)" ] || note "what was saved is gone"
    want_ledger
    point "killed before change $k: $(sed -n "s/^$k //p" "$T/changes.log" | head -1)"
done
h=$(starts first-)
runs 0 "$LF" resume --set first.steps=2010 --accept steps
until_true 20 sh -c "[ \$(grep -c ' start .*first-' $LF_FAKE_DIR/history) -gt $h ]"
ok $? "resume submits it again" "$(cat out err)"
finish_min 25 # one for each change to a file

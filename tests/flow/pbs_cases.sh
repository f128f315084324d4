# SPDX-License-Identifier: Apache-2.0
# Cases for PBS of every kind, sourced by pbs.sh (fake OpenPBS), torque.sh (fake Torque) and pbs_real.sh (an OpenPBS that is installed).
# Before it: tests/flow/lib.sh, and a qsub on PATH. SLACK: seconds to wait for what takes no time on a quiet machine.
: "${SLACK:=60}"
LF_CACHE_DIR="$T/cache"
export LF_CACHE_DIR
site() { # site [LINE...]: the site's file; a line replaces what stands here for its key
    {
        printf 'poll = 1s\ncommand_timeout = 20s\nsettle = 0s\nscheduler = pbs\n'
        for l; do echo "$l"; done
    } | awk -F ' = ' '{ v[$1] = $0; if (!($1 in at)) { at[$1] = ++n; key[n] = $1 } }
        END { print "[site]"; for (i = 1; i <= n; i++) print v[key[i]] }' >"$T/site.ini"
    LF_SITE_CONFIG="$T/site.ini"
    export LF_SITE_CONFIG
}
site
new_project() { rm -rf "$T/p"; mkdir "$T/p" && cd "$T/p" || exit 99; }
run_dir() { find "$PWD" -maxdepth 4 -type d -path "*/runs/$(run_id)"; } # of the newest run
stage_is() { [ "$(state "$1")" = "$2" ]; }
# Starts of a stage in the newest run.
incs() { ls "$(run_dir)/$1" | grep -cE '^[0-9]+\.[0-9]+$'; }
job_ids() { tr -d '\n' <"$(run_dir)/$1/job.${2:-1}.json" | sed -n 's/.*"ids":[[:space:]]*\[\([^]]*\)\].*/\1/p' | tr -d '" ' | tr ',' ' '; }
# end_of ID, request_of ID: exit status and nodes as PBS reports it, "" when there is none; nothing_queued: no job of ours waits or runs
full_of() { if qstat --version 2>&1 | grep -qi '^version:'; then qstat -f -1 "$1"; else qstat -x -f -w "$1"; fi 2>/dev/null; }
end_of() { full_of "$1" | sed -n 's/^    [Ee]xit_status = //p'; }
request_of() { full_of "$1" | grep -E '^    Resource_List\.(select|nodes) = '; }
nothing_queued() {
    live=$(qselect -u "$(id -un)" -s QHRET) || return 1
    for j in $(all_ids); do
        for l in $live; do [ "$j" != "$l" ] || return 1; done
    done
}
all_ids() { # of every job that this test has a record of
    find "$T" -name 'job.*.json' | while read -r f; do
        tr -d '\n' <"$f" | sed -n 's/.*"ids":[[:space:]]*\[\([^]]*\)\].*/\1/p' | tr -d '" ' | tr ',' '\n'
        echo
    done
}
# wait_state STAGE STATE NAME
wait_state() { until_true "$SLACK" stage_is "$1" "$2"; is "$(state "$1")" "$2" "$3"; }
ledger_true() { # the ledger says what the directories say
    "$LF" status --json | sed 's/"age_s":[^,}]*//g' >before.json
    "$LF" ledger rebuild >/dev/null 2>rebuild.err
    ok $? "the ledger can be rebuilt" "$(head -c 300 rebuild.err)"
    "$LF" ledger check >check.out 2>&1
    ok $? "and is whole" "$(head -c 300 check.out)"
}

# The same pipeline on this machine: what the results must be.
local_results() {
    mkdir -p "$T/local" && cd "$T/local" || exit 99
    pipeline
    LF_SITE_CONFIG= "$LF" run >local.log 2>&1 || cat local.log
    LF_SITE_CONFIG= result last joined >"$T/want"
}

case_graph() {
    local_results
    new_project
    pipeline
    runs 0 "$LF" submit
    wait_state last done "the whole graph runs through: $1"
    is "$(state first) $(state second)" "done done" "every stage"
    is "$(incs first) $(incs second) $(incs last)" "1 1 1" "each once"
    result last joined | cmp -s - "$T/want"
    ok $? "and its result is that of a local run"
    runs 0 "$LF" submit
    like out 'nothing to do' "again: nothing to do"
    ledger_true
}

chain_pipeline() { # two stages behind one that needs more time than one job gets
    echo text >in.txt
    cat >pipeline.ini <<'P'
[stage first]
kind = work
input = in.txt
steps = 80
step_time = 450
time_limit = 24s
grace = 8s
links = 6
cpus = 2
[stage second]
kind = work
input = ${stage:first}
[stage last]
kind = join
parts = ${stage:first.result}
    ${stage:second.result}
P
}

case_chain() {
    new_project
    chain_pipeline
    runs 0 "$LF" submit
    SLACK=$((SLACK * 3)) wait_state last done "a stage of several walltimes with two stages behind it"
    k=$(incs first)
    ok "$([ "$k" -ge 3 ] && [ "$k" -le 6 ]; echo $?)" "its segments: $k"
    is "$(incs second) $(incs last)" "1 1" "those behind it ran once"
    is "$(job_ids first | wc -w)" 6 "six links"
    for i in $(job_ids first); do echo "$i $(end_of "$i")"; done >ends
    is "$(request_of "${i:-none}" | grep -cE '= 1:(ncpus|ppn)=1$')" 1 "a link that was left over asked for one core in the end"
    is "$(tail -1 ends | cut -d' ' -f2)" 0 "the last link ended well, as those behind it need"
    is "$(grep -c ' 75$' ends) $(grep -c ' 0$' ends)" "$((k - 1)) $((6 - k + 1))" "a link that has work left ends with 75, the others with 0"
    ledger_true
}

case_failure() {
    new_project
    chain_pipeline
    runs 0 "$LF" submit --set first.steps=20 --set first.fail_at=5 --set first.time_limit=60s --set first.links=3
    wait_state first failed "a stage that fails"
    until_true "$SLACK" nothing_queued
    ok $? "no job is left, the links and those behind it are gone" "$(qstat 2>&1 | tail -5)"
    "$LF" tick >/dev/null 2>&1
    is "$(incs first)" 1 "the links behind it did not try again"
    ok "$([ "$(state second)" != done ] && [ "$(state last)" != done ]; echo $?)" "what needs it did not run: $(state second) $(state last)"
    runs 0 "$LF" resume --set first.steps=20 --set first.fail_at=0 --set first.time_limit=60s
    wait_state last done "fixed and resumed"
    is "$(incs first)" 2 "the failed stage ran again"
    ledger_true
}

case_cancel() {
    new_project
    chain_pipeline
    runs 0 "$LF" submit --set first.steps=100k --set first.time_limit=10m
    wait_state first running "a chain that runs"
    runs 0 "$LF" cancel
    until_true "$SLACK" nothing_queued
    ok $? "after cancel no job is left" "$(qstat 2>&1 | tail -5)"
    is "$(state first)" cancelled "and the stage is cancelled"
    like "$(run_dir)/first/1.1/log" 'stopped at step' "it was left the time to save"
    sleep 2
    is "$(incs first) $(nothing_queued && echo none)" "1 none" "nothing comes back"
    runs 0 "$LF" resume --set first.steps=100k --accept steps --set first.steps=30
    wait_state last done "it can be resumed"
    ledger_true
}

# A qsub that does its work at once and answers late from its Nth call on: what is there when submit is killed waiting for it.
slow_qsub() {
    cat >"$T/slow-qsub" <<S
#!/bin/sh
id=\$($(command -v qsub) "\$@") || exit
echo x >>"$T/qsubs"
[ \$(wc -l <"$T/qsubs") -lt $1 ] || sleep 100
echo "\$id"
S
    chmod +x "$T/slow-qsub"
    : >"$T/qsubs"
    site "commands = qsub=$T/slow-qsub" 'command_timeout = 200s'
}
called() { [ "$(wc -l <"$T/qsubs")" -ge "$1" ]; }

case_killed() {
    new_project
    pipeline
    slow_qsub 2
    "$LF" submit >o 2>&1 &
    p=$!
    BG="$BG $p"
    until_true "$SLACK" called 2
    kill -9 $p
    wait $p 2>/dev/null
    site
    is "$(state first)" pending "killed between two qsub calls: nothing runs yet"
    runs 0 "$LF" submit
    like out 'second: adopted' "the next submit finds the job whose id was never heard"
    wait_state last done "and finishes the graph"
    is "$(incs first) $(incs second) $(incs last)" "1 1 1" "nothing ran twice"
    is "$(find "$(run_dir)" -name 'job.*.json' | wc -l)" 3 "each stage has one job"
    ledger_true
}

case_quoting() {
    rm -rf "$T/p"
    mkdir -p "$T/p/it's \$(touch HIT) \"q\"; x & y" && cd "$T/p/it's \$(touch HIT) \"q\"; x & y" || exit 99
    pipeline
    sed -i 's/^\[stage first\]/[stage first]\nprologue = export WORD="a b"/' pipeline.ini
    runs 0 "$LF" submit
    wait_state last done "a project in a directory with a hostile name"
    ok "$([ -z "$(find "$T" -name HIT)" ]; echo $?)" "nothing of it was run"
    runs 2 "$LF" submit --new --set 'first.queue=a;touch HIT'
    runs 2 "$LF" submit --new --set 'first.account=$(touch HIT)'
    runs 2 "$LF" submit --new --set 'first.queue=-Vx'
    cd "$T" || exit 99
}

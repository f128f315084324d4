# SPDX-License-Identifier: Apache-2.0
# Kills in number: source it behind lib.sh. A pipeline trains on two ranks; again and again one of the processes that a backend has is
# killed (-9) at a random moment, and the run is taken up again, until it is done. Then: the bytes and the metrics of an
# undisturbed run, and every start has gone on from what the one before it left, never from a superseded one. Runs follow
# until LF_KILLS victims have died. LF_SEED repeats the choice of victims and moments.
#
# A backend sets the functions begin_run, take_up, pick (prints the process id of a victim and its name) and settle (run after each
# kill: brings back daemons), then calls chaos.
. "$LF_SRCDIR/tests/flow/faults_lib.sh"
sed -i 's/^steps = 30$/steps = 400/; s/^save_interval = 3$/save_interval = 11/; s/^valid_interval = 10$/valid_interval = 100/; s/^micro_batch = 4$/micro_batch = 2/' pipeline.ini
printf 'ranks = 2\n[resources]\nmemory = 400M\ntime_limit = 30m\nretries = 1000\nstall_segments = 1000\nmax_segments = 1000\n' >>pipeline.ini
seed=${LF_SEED:-$(date +%s)}
echo "# LF_SEED=$seed"
# random N: 0 .. N - 1, in $R
random() {
    seed=$(((seed * 16807 + 11) % 2147483647))
    R=$((seed / 7 % $1))
}
series() { "$LF" metrics train --format csv --lines 0 --key loss | sed 1d; }
newest() { ls "$rd/train" 2>/dev/null | sed -n 's/^epoch\.//p' | sort -n | tail -n 1; }
start_dir() { ls -d "$rd/train/"[0-9]*".$(newest)" 2>/dev/null; }
# committed: the newest record is the commit of the start before it.
committed() { grep -q '"lf_done"' "$rd/train/epoch.$(newest)"; }
alive() { [ -n "$1" ] && kill -0 "$1" 2>/dev/null; }
# living: of the victims that it reads, those that are alive and of this test. Records keep the numbers of processes that have ended:
# most of what is drawn would be dead, and a number may be another program's by now.
living() {
    while read -r p what; do
        [ -r "/proc/$p/environ" ] || continue
        cat "/proc/$p/cmdline" "/proc/$p/environ" 2>/dev/null | grep -aqF -e "$T" -e "${LF_SLURM_DIR:-$T}" && echo "$p $what"
    done
}
living_proves() {
    sh -c : & gone=$!
    env -i sleep 1000 & stranger=$!
    sleep 1000 & ours=$!
    wait $gone
    seen() { [ "$(printf '%s sleep\n' $gone $stranger $ours | living)" = "$ours sleep" ]; }
    until_true 20 seen; ok $? "a process that ended and a stranger's are no victims"
    kill $stranger $ours
    wait $stranger $ours 2>/dev/null
}
# Victims that every backend has: ranks, what started them, the wrapper.
common_victims() {
    d=$(start_dir)
    for f in "$d"/ranks/*.json; do [ -e "$f" ] && echo "$(pid_in "$f") rank"; done
    [ -e "$d/stage.json" ] && echo "$(pid_in "$d/stage.json") launcher"
    [ -e "$rd/train/epoch.$(newest)" ] && echo "$(pid_in "$rd/train/epoch.$(newest)") wrapper"
}
# Every claim lists what the start before it had or has published, and the stage has read from what was taken alone.
lists_hold() {
    for e in $(ls "$rd/train" | sed -n 's/^epoch\.//p'); do
        grep -q '"lf_done"' "$rd/train/epoch.$e" && continue
        for p in $(grep -o '"path":"[^"]*"' "$rd/train/epoch.$e" | sed 's/.*:"//; s/"//'); do
            case $p in
            *".$((e - 1))/"* | "from-$((e - 1))-"*) ;;
            *) echo "claim $e lists $p" && return 1 ;;
            esac
        done
        log=$(ls "$rd/train/"[0-9]*".$e/log" 2>/dev/null) || continue
        sed -n 's/.*continuing [a-z ,]*from \([^ ]*\) at step.*/\1/p' "$log" | while read -r f; do
            case $f in */"$(basename "$(dirname "$log")")"/from/*) ;; *) echo "start $e went on from $f" ;; esac
        done | grep . && return 1
    done
    return 0
}
begun() { now=$(run_id) && [ -n "$now" ] && [ "$now" != "$before" ] && [ "$(state train)" != waiting ]; }
chaos() {
    kills=0 runs_done=0 victims=
    living_proves
    while [ $kills -lt "${LF_KILLS:-70}" ]; do
        before=$(run_id)
        begin_run
        until_true 60 begun || { ok 1 "a run begins" "$(tail -3 o)"; return; }
        rd=$(ls -d "$PWD"/loong-data/*/runs/"$(run_id)")
        end=$(($(date +%s) + 1800))
        until [ "$(state train)" = done ] || [ "$(date +%s)" -gt $end ]; do
            random 20
            sleep "$((R / 10)).$((R % 10))"
            pick 2>/dev/null | living >picks
            m=$(wc -l <picks)
            [ "$m" -gt 0 ] || { take_up; continue; }
            random "$m"
            read -r pid what <<END_PICK
$(sed -n "$((R + 1))p" picks)
END_PICK
            if alive "$pid" && kill -9 "$pid" 2>/dev/null; then
                kills=$((kills + 1)) victims="$victims $what"
                settle "$what"
            fi
            take_up
        done
        runs_done=$((runs_done + 1))
        is "$(state train)" done "run $runs_done is done after $kills kills, with $(newest) records" "$("$LF" status 2>&1 | tail -5 | tr '\n' ' ')"
        [ "$("$tool" id "$(stage_dir train)/out/checkpoint")" = "$id" ]; ok $? "the same bytes"
        series >series.now
        cmp -s series.ref series.now; ok $? "the same metrics, no step missing" "$(diff series.ref series.now | head -4 | tr '\n' ' ')"
        lists_hold >lists; ok $? "nothing went on from a superseded start" "$(cat lists)"
        [ "$(date +%s)" -le $end ] || break
    done
    echo "# victims:$(printf '%s\n' $victims | sort | uniq -c | awk '{ printf " %s %s", $1, $2 }')"
}

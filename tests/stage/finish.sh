#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A training stage that ends before its length: on request, at once or after a decay, and when its hours are over. Its
# result has the bits of a run that was given that many steps, on one rank, on two, and after a kill.
. "$LF_SRCDIR/tests/stage/lib.sh"
pretrain=$LF_BUILDDIR/stages/lf-pretrain
ini=$dir/run.ini
"$tool" data "$dir/data" 400 40 || bail "no test data"
cat >"$dir/run.ini" <<END
[stage]
data = $dir/data
steps = 100k
mfu = no
seq_length = 32
batch = 4
micro_batch = 2
lr = 5e-3
warmup = 4
schedule = constant
save_interval = 5
save_time = 0
valid_interval = 20
log_interval = 20
seed = 5
threads = 1
[model]
family = llama3
layers = 1
hidden = 32
heads = 2
ffn = 48
vocab = 64
max_positions = 32
END
wsd="--schedule wsd --decay 6"
run() { train "$pretrain" "$ini" "$@"; } # run NAME ARGS...
state() { "$tool" state "$dir/$1/out/checkpoint"; }
# member NAME KEY: a number of how it ended
member() { state "$1" | sed -n 's/.*"ended":{\([^}]*\)}.*/\1/p' | tr ',' '\n' | sed -n "s/^\"$2\"://p" | tr -d '"'; }
# asked NAME ARGS...: as run, with the request there before it begins
asked() {
    LF_ENDING=$request
    export LF_ENDING
    run "$@"
    unset LF_ENDING
}
request=$dir/request
echo '{"lf_finish":1}' >"$request"
echo '{"lf_finish":1,"decay":true}' >"$dir/decay"

# --- at once ---
asked early --warmup 1
is $rc 0 "a run that is asked to end before its first step ends well"
is "$(member early ended_at_step) $(member early of) $(member early by)" "1 100000 request" "after one step, and says so"
says "ending after step 1 of 100000 (as requested)" "in its log too"
run one --steps 1 --warmup 1
is "$(id early)" "$(id one)" "with the bits of a run of one step"
is "$(metrics early | cut -f 1-7)" "$(metrics one | cut -f 1-7)" "and its metrics, validation too"
grep -q '"ended":{' "$dir/early/out/checkpoint/manifest.json"
ok $? "the manifest says that it ended early"
state one | grep -q '"ended"'
ok $((! $?)) "that of a run to the end does not"
before=$(id early)
asked early --warmup 1
is "$rc $(id early)" "0 $before" "the same run again, still asked, does nothing"
run early --warmup 1
is "$rc $(id early)" "0 $before" "and does not train on when it is not asked any more"

# a request that comes while it trains
{
    n=0
    until [ -e "$dir/live/out/checkpoints/step-00000010/manifest.json" ] || [ $n -gt 600 ]; do
        sleep 0.1
        n=$((n + 1))
    done
    echo '{"lf_finish":1}' >"$dir/later"
} &
request=$dir/later
asked live --keep 100
wait
is $rc 0 "a run that is asked while it trains ends well"
k=$(member live ended_at_step)
run same --steps "$k"
is "$(id live)" "$(id same)" "after step $k, with the bits of a run of that many"
request=$dir/request

# a start that has trained nothing takes what is there
run cut --steps 12 --valid-interval 0
for part in stopped both; do
    mkdir -p "$dir/$part/out/checkpoints"
    cp -r "$dir/live/out/checkpoints/step-00000010" "$dir/$part/out/checkpoints/"
done
asked stopped
is "$rc $(member stopped ended_at_step)" "0 10" "a stopped run that is asked before it goes on ends where it stopped"
run ten --steps 10
is "$(id stopped)" "$(id ten)" "with the bits of a run of that many steps"
is "$(state stopped | tr ',' '\n' | grep '"valid_loss"')" "$(state ten | tr ',' '\n' | grep '"valid_loss"')" "and is validated as its last step is"
: >"$dir/stop"
asked both --stop-file "$dir/stop"
is $rc 75 "where a stop is asked for too, it goes first"
asked both
is "$rc $(id both)" "0 $(id ten)" "and the request is honoured by the next start"
mkdir -p "$dir/longer"
run longer --steps 14 --resume-from "$dir/stopped/out"
run fourteen --steps 14
is "$rc $(id longer)" "0 $(id fourteen)" "a longer run goes on from such a result, bitwise"
state longer | grep -q '"ended"'
ok $((! $?)) "and has not ended early itself"

# --- a stop at a step, which its sweep compares at ---
at_step() { # at_step N COMMAND...
    LF_STOP_STEP=$1
    export LF_STOP_STEP
    shift
    "$@"
    unset LF_STOP_STEP
}
at_step 7 run rung --steps 14 --save-interval 0
is "$rc $(cd "$dir/rung/out/checkpoints" && echo step-*) $(metrics rung | wc -l)" "75 step-00000007 7" "a run stops and saves at the step that it was given"
at_step 12 run rung --steps 14 --save-interval 0
is "$rc $(metrics rung | awk 'END { print $1 }')" "75 12" "it goes on to the next one"
run rung --steps 14 --save-interval 0
is "$rc $(id rung)" "0 $(id fourteen)" "and to its end, with the bits of a run without stops"
at_step 14 run last --steps 14
is "$rc $(id last)" "0 $(id fourteen)" "a stop at the last step is no stop"
at_step 0x run never --steps 14
is "$rc $(ls "$dir/never/out" 2>/dev/null)" "1 " "what is no step is refused"

# --- with a decay ---
request=$dir/decay
mkdir -p "$dir/decayed/out/checkpoints"
# shellcheck disable=SC2086
run from --steps 17 $wsd --keep 9
cp -r "$dir/from/out/checkpoints/step-00000010" "$dir/decayed/out/checkpoints/"
# shellcheck disable=SC2086
asked decayed --steps 100 $wsd --keep 9
is "$rc $(member decayed ended_at_step) $(member decayed of)" "0 17 100" "a request to decay first: it ends after the decay"
is "$(id decayed)" "$(id from)" "with the bits of a run that was given these steps"
# killed in the decay: the checkpoint where it began says so, and nobody asks any more
mkdir -p "$dir/killed/out/checkpoints"
cp -r "$dir/decayed/out/checkpoints/step-00000011" "$dir/killed/out/checkpoints/"
grep -q '"decay_placed"' "$dir/killed/out/checkpoints/step-00000011/state.json"
ok $? "a checkpoint was saved where the decay began and says so"
# shellcheck disable=SC2086
run killed --steps 100 $wsd
is "$rc $(id killed)" "0 $(id from)" "a start that goes on from it has the same bits without being asked"
says "continuing bitwise" "and says that it goes on bitwise"
# shellcheck disable=SC2086
asked young --steps 100 $wsd
is "$(member young ended_at_step)" 10 "asked in the warm-up, it decays behind it"

# who asked for a decay loses patience
echo '{"lf_finish":1,"decay":true}' >"$dir/patience"
request=$dir/patience
{
    n=0
    until grep -qs "decays after" "$dir/err" || [ $n -gt 600 ]; do
        sleep 0.1
        n=$((n + 1))
    done
    echo '{"lf_finish":1}' >"$dir/patience.new"
    mv "$dir/patience.new" "$dir/patience"
} &
asked impatient --schedule wsd --decay 50k
wait
k=$(member impatient ended_at_step)
is "$rc $([ "$k" -lt 50000 ]; echo $?)" "0 0" "an end at once cuts a decay off, here after step $k"

# --- hours ---
run refused --hours 8 --schedule cosine
is $rc 2 "hours with a schedule that follows from the whole length are refused"
says "hours = 8" "with the reason"
run over --hours 1e-6 --steps 40 --resume-from "$dir/cut/out"
is "$rc $(member over ended_at_step) $(member over by)" "0 12 hours" "the time of earlier starts counts: nothing is left, and what is there is taken"
is "$(id over)" "$(id cut)" "with the bits that were there"
run clock --hours 3e-4
k=$(member clock ended_at_step)
is "$rc $(member clock by)" "0 hours" "a run ends by its hours, here after step $k"
run same2 --steps "$k"
is "$(id clock)" "$(id same2)" "with the bits of a run of that many steps"
# shellcheck disable=SC2086
run place --hours 3e-4 $wsd
k=$(member place ended_at_step)
is "$rc $(member place by)" "0 hours" "with wsd too, here after step $k"
# shellcheck disable=SC2086
run same3 --steps "$k" $wsd
is "$(id place)" "$(id same3)" "with a decay before its end, as a run of that many steps has it"

# --- on a GPU the loop runs one step ahead ---
(
    emulated_gpu
    # shellcheck disable=SC2086
    run ahead --device cuda --hours 1e-3 $wsd
    # shellcheck disable=SC2086
    run behind --device cuda --steps "$(member ahead ended_at_step)" $wsd
    at_step 5 run flown --device cuda --steps 14 --save-interval 0
)
is "$(id ahead)" "$(id behind)" "with a step in flight: the bits of a run of $(member ahead ended_at_step) steps"
is "$(cd "$dir/flown/out/checkpoints" && echo step-*) $(metrics flown | awk 'END { print $1 }')" "step-00000005 5" "and a stop at a step is at that step"

# --- ranks ---
with_ranks
points=40
if have_ranks; then
    points=43
    ranks() { # ranks NAME ARGS...
        _name=$1
        shift
        $launch 2 -- "$pretrain" --config "$ini" --out "$dir/$_name/out" "$@" >"$dir/stdout" 2>"$dir/err"
        rc=$?
    }
    LF_ENDING=$dir/request
    export LF_ENDING
    ranks two
    unset LF_ENDING
    is "$rc $(member two ended_at_step)" "0 1" "two ranks end together"
    at_step 3 ranks tworung --steps 14 --save-interval 0
    is "$rc $(cd "$dir/tworung/out/checkpoints" && echo step-*)" "75 step-00000003" "and stop together at a step"
    # shellcheck disable=SC2086
    ranks two2 --hours 3e-4 $wsd
    k=$(member two2 ended_at_step)
    # shellcheck disable=SC2086
    ranks two3 --steps "$k" $wsd
    is "$rc $(id two2)" "0 $(id two3)" "and agree when the decay begins, here to end after step $k"
fi
finish $points

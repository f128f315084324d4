#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checkpoints of sharded state, which every rank writes and reads in part: written by 1 to 4 ranks and read by every other, equal to
# the byte; a disk that fails one rank; kills from the forward pass to the manifest; damage that one rank alone reads; a stop; the memory of a
# snapshot. ZERO_KILLS (1) is how many times a rank is killed in each place; above 1 every pair of numbers of ranks is tried.
. "$LF_SRCDIR/tests/stage/lib.sh"
pretrain=$LF_BUILDDIR/stages/lf-pretrain
with_ranks

need_ranks

"$tool" data "$dir/data" 60 200 || bail "no test data"
cat >"$dir/run.ini" <<END
[stage]
data = $dir/data
seq_length = 16
batch = 4
micro_batch = 1
lr = 5e-3
warmup = 1
save_interval = 2
keep = 9
save_time = 0
valid_interval = 0
valid_tokens = 256
seed = 5
precision = bf16
mfu = no
threads = 1
[model]
family = llama3
layers = 1
hidden = 80
heads = 2
kv_heads = 1
ffn = 80
vocab = 1024
max_positions = 16
tied_head = yes
END
# Here the embedding has more elements than a leaf.
sed "s/^vocab = .*/vocab = 16384/; s/^batch = .*/batch = 8/" "$dir/run.ini" >"$dir/big.ini"
ini=$dir/run.ini
on() { # on RANKS NAME ARGS...: output below $dir/NAME, exit code in $rc
    _ranks=$1 _name=$2
    shift 2
    mkdir -p "$dir/$_name"
    $launch "$_ranks" -- "$pretrain" --config "$ini" --out "$dir/$_name/out" --metrics "$dir/$_name/metrics" "$@" \
        >"$dir/stdout" 2>"$dir/err"
    rc=$?
}
# faulty ACTION PATTERN RANKS NAME ARGS...: the same, with a fault at the first change of a file that fits
faulty() {
    _action=$1 _pattern=$2
    shift 2
    LD_PRELOAD=$FAIL LF_FAIL_ROOT=$dir LF_FAIL_PROGRAM=lf-pretrain LF_FAIL_ACTION=$_action LF_FAIL_AFTER=1 LF_FAIL_MATCH=$_pattern
    export LD_PRELOAD LF_FAIL_ROOT LF_FAIL_PROGRAM LF_FAIL_ACTION LF_FAIL_AFTER LF_FAIL_MATCH
    on "$@"
    unset LD_PRELOAD LF_FAIL_ROOT LF_FAIL_PROGRAM LF_FAIL_ACTION LF_FAIL_AFTER LF_FAIL_MATCH
}
steps() { ls "$dir/$1/out/checkpoints" 2>/dev/null | tr '\n' ' '; }

on 2 whole --steps 5
is "$rc" 0 "two ranks train without it"
want=$(id whole) wanted=$(metrics whole | cksum)
on 2 parts --steps 5 --zero 1 --save-async=no
is "$rc $(id parts) $(metrics parts | cksum)" "0 $want $wanted" "and with it, saving at once"
is "$(ls "$dir/parts/out/checkpoint" | tr '\n' ' ')" "data-00000-00000.h5 data-00001-00000.h5 index.h5 manifest.json state.json " \
    "every rank has written a file"
size() { wc -c <"$dir/parts/out/checkpoint/data-0000$1-00000.h5"; }
[ $(($(size 0) * 10)) -lt $(($(size 1) * 14)) ] && [ $(($(size 1) * 10)) -lt $(($(size 0) * 14)) ]
ok $? "of $(size 0) and $(size 1) bytes"

# --- written by some, read by others: a run that goes on at its last step trains nothing ---
ini=$dir/big.ini
on 2 big --steps 3
from=$dir/big/out/checkpoints/step-00000002
first=$("$tool" id "$from")
bad=
last=whole
hand_on() { # hand_on RANKS ZERO: from $from to a new checkpoint
    rm -rf "$dir/next"
    mkdir -p "$dir/next/out/checkpoints"
    cp -r "$from" "$dir/next/out/checkpoints/step-00000002"
    on "$1" next --steps 2 --zero "$2"
    [ "$rc $(id next)" = "0 $first" ] || bad="$bad $last-to-$1-zero-$2: $rc $(id next);"
    rm -rf "$dir/from"
    mv "$dir/next/out/checkpoint" "$dir/from"
    from=$dir/from last=$1-zero-$2
    files=$(ls "$from" | grep -c '^data')
}
# Ranks that keep everything after parts and before; each number of parts after another, or after every other.
pairs="3:1 2:1 4:1 2:0"
[ "${ZERO_KILLS:-1}" -eq 1 ] || pairs="1:0 2:1 3:1 4:1 3:1 2:1 4:1 2:1 1:1 3:1 1:0 4:1 1:1 4:1 4:0 2:1 2:0 3:1 3:0 8:1 3:1 8:1 1:1"
for to in $pairs; do
    hand_on "${to%:*}" "${to#*:}"
    [ "$files" = "$([ "${to#*:}" = 1 ] && echo "${to%:*}" || echo 1)" ] || bad="$bad $to wrote $files files;"
done
is "$bad" "" "any number of ranks takes over from any other, with it and without, and hands on the same bytes"

ini=$dir/run.ini

# --- other readers: what one rank wrote, two and three ---
from=$dir/parts/out/checkpoints/step-00000004
mkdir -p "$dir/three/out/checkpoints"
cp -r "$from" "$dir/three/out/checkpoints"
on 3 three --steps 4 --zero 3
printf '{"prompt": [5, 9, 11]}\n{"prompt": [1]}\n' >"$dir/prompts.jsonl"
read_by() { # read_by NAME CHECKPOINT: what convert, eval and generate make of it
    "$stages/lf-convert" --to hf --threads 1 --from "$2" --out "$dir/$1.hf" >"$dir/stdout" 2>"$dir/err" &&
        "$stages/lf-eval" --checkpoint "$2" --data "$dir/data" --limit 20 --threads 1 --out "$dir/$1.eval" >"$dir/stdout" 2>"$dir/err" &&
        "$stages/lf-generate" --checkpoint "$2" --prompts "$dir/prompts.jsonl" --max-tokens 8 --threads 1 --out "$dir/$1.text" >"$dir/stdout" 2>"$dir/err"
    echo "$?" # in three lines, and the sums of what they wrote
    cksum <"$dir/$1.hf/model/model.safetensors"
    sed '/"time\|"seconds\|"path/d' "$dir/$1.eval/results/results.json" | cksum
    cksum <"$dir/$1.text/text/out.jsonl"
}
wrote=$(read_by one "$dir/whole/out/checkpoints/step-00000004")
is "$(ls "$dir/three/out/checkpoint" | grep -c '^data')" 3 "three ranks with zero = 3 write three files"
is "$(echo "$wrote" | head -n 1) $(grep -c '"tokens"\|"text"' "$dir/one.text/text/out.jsonl")" "0 2" "lf-convert, lf-eval and lf-generate read what one rank wrote"
is "$(read_by two "$from")" "$wrote" "what two ranks wrote, they read as the same"
is "$(read_by three3 "$dir/three/out/checkpoint")" "$wrote" "and what three ranks wrote"

# --- damage that rank 1 alone reads: of a moment that it keeps ---
mkdir -p "$dir/hurt"
cp -r "$dir/parts/out" "$dir/hurt/out"
rm -r "$dir/hurt/out/checkpoint"
victim=$dir/hurt/out/checkpoints/step-00000004/data-00001-00000.h5
at=$(sed 's/{"dtype"/\n&/g' "${victim%/*}/manifest.json" | grep '"kind":"adam_v"' |
    sed -n 's/.*"data-00001-00000.h5",[^}]*"offset":\([0-9]*\).*/\1/p' | head -n 1)
printf '\377\377\377\377' | dd of="$victim" bs=1 seek="${at:-0}" conv=notrunc 2>/dev/null
on 2 hurt --steps 5 --zero 1 --threads 3
is "$rc $(id hurt)" "0 $want" "a rank that reads damage makes all go on from the checkpoint before"
says_like "passing over .*step-00000004.*adam_v.*damaged" "rank 0 says which tensor"
is "$(steps hurt)" "step-00000002 step-00000004 step-00000004.broken " "and sets it aside"

# --- a stop, and the plan ---
bytes() { "$pretrain" --config "$dir/run.ini" --steps 5 --plan --ranks 2 --zero "$1" | sed -n "s/.*\"$2\":\([0-9]*\)[.,}].*/\1/p"; }
all=$(du -b "$dir/parts/out/checkpoint/"data* | awk '{ n += $1 } END { print n }')
saved=$(($(bytes 0 host) - $(bytes 1 host)))
[ $((saved * 10)) -gt $((all * 4)) ] && [ $((saved * 10)) -lt $((all * 6)) ]
ok $? "the plan takes $saved bytes less for a snapshot of half of $all"

n=13
if [ -n "$FAIL" ]; then
    # --- a disk that fails one rank ---
    faulty eio "pwrite *step-00000002/data-00001*" 2 once --steps 5 --zero 1
    is "$rc $(id once) $(metrics once | cksum)" "0 $want $wanted" "a save that fails on rank 1 costs the run nothing else"
    says_like "step 2 is not saved, and the run goes on: rank 1 (.*data-00001-00000.h5" "rank 0 names the rank and the file"
    is "$(steps once)" "step-00000004 " "nothing of it is left"
    faulty enospc "* *[4t]/data-00001*" 2 full --steps 5 --zero 1
    is "$((rc != 0)) $(ls -d "$dir/full/out/checkpoint" 2>/dev/null) $(steps full)" "1  step-00000002 " "a disk that stays full ends the run at its end"
    says_like "error: checkpoint: rank 1 (.*checkpoint/data-00001-00000.h5.*No space left" "which says so"
    on 2 full --steps 5 --zero 1
    is "$rc $(id full)" "0 $want" "with space it goes on to the same bits"
    faulty eio "link *step-00000002/manifest.json" 2 link --steps 5 --zero 1
    is "$rc $(id link) $(steps link)" "0 $want step-00000004 " "so it is when rank 0 cannot publish"

    # --- without zero, where rank 0 writes alone, it is the same ---
    faulty eio "pwrite *step-00000002/data*" 2 once0 --steps 5
    is "$rc $(id once0) $(metrics once0 | cksum) $(steps once0)" "0 $want $wanted step-00000004 " "without zero, too, the run goes on"
    says_like "step 2 is not saved, and the run goes on: .*step-00000002/data.*h5" "and says which file"
    faulty eio "pwrite *step-00000002/data*" 1 alone --steps 5 --save-async=no
    is "$rc $(steps alone)" "0 step-00000004 " "so does one rank that saves at once"
    faulty enospc "* *[4t]/data*" 2 full0 --steps 5
    is "$((rc != 0)) $(ls -d "$dir/full0/out/checkpoint" 2>/dev/null) $(steps full0)" "1  step-00000002 " "a disk that stays full ends it at its end"
    says_like "step 4 is not saved, and the run goes on: .*No space left" "which it told before"
    says_like "error: checkpoint: .*No space left" "and says again"
    on 2 full0 --steps 5
    is "$rc $(id full0)" "0 $want" "with space it goes on to the same bits"
    LF_STOP_STEP=2
    export LF_STOP_STEP
    faulty eio "pwrite *step-00000002/data*" 2 twice0 --steps 5
    unset LF_STOP_STEP
    is "$rc $(steps twice0)" "75 step-00000002 " "where the last save failed, a stop saves again"

    # --- a stop while parts are written, or behind a save that failed; a newer start ---
    faulty term "pwrite *step-00000002/data-00001*" 2 stop --steps 5 --zero 1
    is "$rc $(steps stop | wc -w | tr -d ' ')" "75 $(find "$dir/stop/out/checkpoints" -name manifest.json | wc -l)" "a stop waits for its checkpoint"
    on 2 stop --steps 5 --zero 1
    is "$rc $(id stop)" "0 $want" "from which the run goes on"
    LF_STOP_STEP=2
    export LF_STOP_STEP
    faulty eio "pwrite *step-00000002/data-00001*" 2 twice --steps 5 --zero 1 --save-async=no
    unset LF_STOP_STEP
    is "$rc $(steps twice)" "75 step-00000002 " "where the last save failed, a stop saves again"
    mkdir -p "$dir/late"
    LF_FENCE=$dir/fence LD_PRELOAD=$FAIL LF_FAIL_ROOT=$dir LF_FAIL_PROGRAM=lf-pretrain LF_FAIL_ACTION=stop LF_FAIL_AFTER=1 \
        LF_FAIL_MATCH="open *step-00000002/state.json" LF_FAIL_ONCE=$dir/paused \
        $launch 2 -- "$pretrain" --config "$ini" --out "$dir/late/out" --metrics "$dir/late/metrics" --steps 5 --zero 1 >"$dir/stdout" 2>"$dir/err" &
    pid=$!
    until [ -e "$dir/paused" ] || gone $pid; do sleep 0.01; done
    : >"$dir/fence"
    until gone $pid; do
        # shellcheck disable=SC2046
        kill -CONT $(ps -eo pid,args | awk -v d="$dir/late/out" '/lf-pretrain/ && index($0, d) && !/awk|launch/ { print $1 }') 2>/dev/null
        sleep 0.02
    done
    wait $pid
    is "$? $(find "$dir/late/out" -name manifest.json)" "75 " "a start that a newer one follows while it publishes ends and publishes nothing"

    # --- kills: in the forward pass, in a collective of the backward pass or of the update, while the snapshot is taken, while parts are
    # written, on the way of a receipt, and while rank 0 publishes ---
    on 2 whole2 --steps 5 --zero 2
    want2="$(id whole2) $(metrics whole2 | cksum)"
    hurt=$LF_BUILDDIR/tests/fault/ranks.so
    # hurt_rank AT NTH SEND KIND ZERO: rank 1 is killed there
    hurt_rank() {
        LD_PRELOAD=$hurt NVTX_INJECTION64_PATH=$hurt LF_HURT_RANK=1 LF_HURT_DO=kill LF_HURT_AT=$1 LF_HURT_NTH=$2 LF_HURT_SEND=$3 LF_HURT_KIND=$4 \
            LF_HURT_MARK=$dir/killed
        export LD_PRELOAD NVTX_INJECTION64_PATH LF_HURT_RANK LF_HURT_DO LF_HURT_AT LF_HURT_NTH LF_HURT_SEND LF_HURT_KIND LF_HURT_MARK
        on 2 kill --steps 5 --zero "$5"
        unset LD_PRELOAD NVTX_INJECTION64_PATH LF_HURT_RANK LF_HURT_DO LF_HURT_AT LF_HURT_NTH LF_HURT_SEND LF_HURT_KIND LF_HURT_MARK
    }
    # kill_at PLACE I: the I-th kill there; the stage of ZeRO is in $z
    kill_at() {
        z=$(($2 % 3 + 1))
        case $1 in
        forward) hurt_rank "train forward" $((($2 - 1) % 10 + 1)) 0 0 $z ;;
        collective)
            if [ $z = 1 ]; then
                hurt_rank optimizer $((($2 - 1) % 5 + 1)) 1 $(($2 % 2 * 2 + 1)) 1 # a sum, or a gather
            else
                hurt_rank "train backward" $((($2 - 1) % 10 + 1)) $(($2 % 2 + 1)) 1 $z
            fi ;;
        snapshot) hurt_rank snapshot $((($2 - 1) % 3 + 1)) $((($2 - 1) % 4 + 1)) 0 $z ;;
        receipt) hurt_rank "" 0 $((($2 - 1) % 3 + 1)) 7 $z ;;
        write)
            set -- $(($2 % 4))
            case $1 in
            0) faulty kill "open *step-00000002/data-00001*" 2 kill --steps 5 --zero $z ;;
            1) faulty kill "pwrite *step-00000004/data-00001*" 2 kill --steps 5 --zero $z ;;
            2) faulty kill "fsync *step-00000004/data-00001*" 2 kill --steps 5 --zero $z ;;
            *) faulty kill "open *out/checkpoint/data-00000*" 2 kill --steps 5 --zero $z ;;
            esac
            touch "$dir/killed" ;;
        publish)
            set -- $(($2 % 3))
            case $1 in
            0) faulty kill "open *step-00000004/state.json" 2 kill --steps 5 --zero $z ;;
            1) faulty kill "link *step-00000004/manifest.json" 2 kill --steps 5 --zero $z ;;
            *) faulty kill "link *out/checkpoint/manifest.json" 2 kill --steps 5 --zero $z ;;
            esac
            touch "$dir/killed" ;;
        esac
    }
    for place in forward collective snapshot write receipt publish; do
        kills=0 bad=
        times=${ZERO_KILLS:-1}
        case $place in write | publish) [ "$times" -gt 1 ] || times=3 ;; esac
        for i in $(seq "$times"); do
            rm -rf "$dir/kill" "$dir/killed"
            kill_at $place "$i"
            [ "$rc" -eq 137 ] && [ -e "$dir/killed" ] && kills=$((kills + 1))
            # Left-overs of more ranks than there are now.
            mkdir -p "$dir/kill/out/checkpoints/step-00000002"
            touch "$dir/kill/out/checkpoints/step-00000002/data-00003-00000.h5"
            find "$dir/kill" -name manifest.json | while read -r m; do
                [ -n "$("$tool" id "$(dirname "$m")" 2>/dev/null)" ] || echo "$m"
            done >"$dir/half"
            [ ! -s "$dir/half" ] || bad="$bad half $(cat "$dir/half")"
            on 2 kill --steps 5 --zero $z
            [ "$rc $(id kill) $(metrics kill | cksum)" = "0 $([ $z = 1 ] && echo "$want $wanted" || echo "$want2")" ] ||
                bad="$bad $i zero $z: $rc $(id kill);"
        done
        is "$kills $bad" "$times " "killed $kills times in: $place; it goes on to the bits of an undisturbed run, and no half checkpoint is believed"
    done
    n=$((n + 25))
fi
finish $n

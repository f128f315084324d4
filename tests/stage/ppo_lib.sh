# SPDX-License-Identifier: Apache-2.0
# For tests of lf-ppo on several ranks (ppo_ranks.sh, ppo_zero.sh, ppo_tensor.sh, ppo_layout.sh),
# behind lib.sh: prompts, a policy, a reward model and a command; runs and their numbers, runs that
# come to grief.
ppo=$LF_BUILDDIR/stages/lf-ppo
tool=$LF_BUILDDIR/tests/stage/infer_tool
with_ranks
need_ranks

# Every rank has a command of its own, one of which does something else at a request.
cat >"$dir/reward.sh" <<'SH'
# reward.sh DIR: DIR/when holds "COUNT ACTION"
dir=$1
count=0
while read -r line; do
    echo x >>"$dir/asked"
    count=$((count + 1))
    action=none
    [ -e "$dir/when" ] && read -r at action <"$dir/when" && { [ "$count" -eq "$at" ] && mkdir "$dir/taken" || action=none; }
    case $action in
    kill) kill -9 "$PPID" ;;
    term) kill -TERM "$PPID"; sleep 5 ;;
    fail) exit 1 ;;
    huge) echo 1.7e308; continue ;; # twice of which is infinite
    esac
    echo "$((${#line} % 5 * 125))e-3"
done
SH
cat >"$dir/base.ini" <<INI
[stage]
data = $dir/prompts/shards
tokenizer = $dir/tok/tokenizer
init_from = $dir/ckpt
threads = 1
algorithm = ppo
samples = 2
max_prompt = 16
max_tokens = 12
round_prompts = 5
rounds = 2
lr = 2e-4
minibatch = 5
round_epochs = 2
save_interval = 1
micro_tokens = 84
mfu = no
reward_command = exec sh $dir/reward.sh $dir/w
reward_retries = 0
INI
awk 'BEGIN { for (a = 0; a < 60; a++) for (b = 0; b < 9; b++) print a "+" b "=" a + b }' >"$dir/text.txt"
awk 'BEGIN { for (a = 0; a < 20; a++) printf "{\"prompt\":\"%d+%d=\",\"answer\":\"%d\"}\n", a, a % 7, a + a % 7 }' >"$dir/prompts.jsonl"
must "$stages/lf-tokenize" --doc-split=line --vocab-size=270 --out "$dir/tok" "$dir/text.txt"
must "$stages/lf-tokenize" --shape=prompt --tokenizer "$dir/tok/tokenizer" --unmapped=ignore --out "$dir/prompts" "$dir/prompts.jsonl"
must "$tool" ckpt "$dir/ckpt" "$LF_SRCDIR/models/tiny-llama.ini" 270

{ cat "$LF_SRCDIR/models/tiny-llama.ini"; echo "output = score"; } >"$dir/rm.ini"
must "$tool" ckpt "$dir/rm" "$dir/rm.ini" 270

# on RANKS NAME ARGS...: out below $dir/NAME, exit code in $rc
on() {
    _ranks=$1 _name=$2
    shift 2
    mkdir -p "$dir/w"
    $launch "$_ranks" -- "$ppo" --config "$dir/base.ini" --out "$dir/$_name" --metrics "$dir/$_name.m" "$@" 2>"$dir/err" >"$dir/stdout"
    rc=$?
}
id() { sed -n 's/.*"identity": *"\([0-9a-f]*\)".*/\1/p' "$dir/$1/manifest.json"; }
numbers() { "$tool" record "$dir/$1.m" | sed 's/,"gen_s":.*//; s/,"train_s":.*//'; }
near() { # near A B: every number within 1e-4 of the larger, or of 1
    for _r in "$1" "$2"; do numbers "$_r" | tr '{},' '   ' | tr ' ' '\n' | grep : | sed 's/.*"\(.*\)":/\1 /' >"$dir/$_r.flat"; done
    paste -d ' ' "$dir/$1.flat" "$dir/$2.flat" | awk 'function abs(x) { return x < 0 ? -x : x }
        { m = abs($2) > abs($4) ? abs($2) : abs($4); if ($1 != $3 || abs($2 - $4) > 1e-4 * (m > 1 ? m : 1)) { bad++; print "#", $0 } rows++ }
        END { exit !(rows > 100 && !bad) }'
}
stopped() { # stopped NAME RANKS COUNT ACTION ARGS...: the run is ended when a rank's command has been asked COUNT times
    _run=$1 _count=$3 _act=$4 _of=$2
    shift 4
    rm -rf "$dir/w"
    mkdir "$dir/w"
    echo "$_count $_act" >"$dir/w/when"
    on "$_of" "$_run" "$@"
    rm -f "$dir/w/when"
}
# faulty ACTION COUNT PATTERN RANKS NAME ARGS...: with a fault at that change of a file that fits
faulty() {
    LD_PRELOAD=$FAIL LF_FAIL_ROOT=$dir LF_FAIL_PROGRAM=lf-ppo LF_FAIL_ACTION=$1 LF_FAIL_AFTER=$2 LF_FAIL_MATCH=$3
    export LD_PRELOAD LF_FAIL_ROOT LF_FAIL_PROGRAM LF_FAIL_ACTION LF_FAIL_AFTER LF_FAIL_MATCH
    shift 3
    on "$@"
    unset LD_PRELOAD LF_FAIL_ROOT LF_FAIL_PROGRAM LF_FAIL_ACTION LF_FAIL_AFTER LF_FAIL_MATCH
}

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A document of 131,072 tokens on eight ranks (context = 8) of each kind: the loss and the gradient's norm of one rank, in no more memory than the
# plan states; within a limit of addresses under which these run, one rank does not. Then a quarter of these tokens and a few more, of which a rank
# has a prime number, so that its last block is shorter. CONTEXT_TOKENS is another length than the first.
. "$LF_SRCDIR/tests/stage/lib.sh"
. "$LF_SRCDIR/tests/stage/layout_lib.sh"
with_ranks
need_ranks
LF_COMM_PATIENCE=3600 # ranks that share a core wait for each other for long
export LF_COMM_PATIENCE

tokens=${CONTEXT_TOKENS:-131072}

# ini HEADS KV_HEADS LINES...: a model whose activations are most of what a rank has
ini() {
    _heads=$1 _kv=$2
    shift 2
    rm -rf "$dir/data"
    must "$tool" long "$dir/data" 2 $((tokens + 1))
    {
        printf '[stage]\ndata = %s\nsteps = 1\nmfu = no\nseq_length = %s\nbatch = 1\nmicro_batch = 1\nlr = 5e-3\n' "$dir/data" "$tokens"
        printf 'save_interval = 0\nsave_time = 0\nvalid_interval = 0\nseed = 5\nthreads = 1\n'
        printf '[model]\nfamily = llama3\nlayers = 1\nhidden = 64\nheads = %s\nkv_heads = %s\nhead_dim = 16\nffn = 512\nvocab = 64\n' "$_heads" "$_kv"
        printf 'max_positions = %s\n' "$tokens"
        [ $# -eq 0 ] || printf '%s\n' "$@"
    } >"$dir/run.ini"
}
# total ARGS...: MiB of a rank, by the plan
total() {
    "$pretrain" --config "$dir/run.ini" --plan "$@" 2>"$dir/err" | sed -n 's/.*"total":\([0-9]*\).*/\1/p' | awk '{ print int($1 / 1048576) + 1 }'
}
# within MIB NAME LAYOUT: a run each of whose ranks has so many addresses
within() {
    _mib=$1 _name=$2 _l=$3
    # shellcheck disable=SC2046
    train "$launch ${_l%%:*} -- sh $dir/limited $_mib" "$dir/run.ini" "$_name" $(options "$_l")
}
printf 'ulimit -v $(($1 * 1024)) || exit 9\nshift\nexec "%s" "$@"\n' "$pretrain" >"$dir/limited"
numbers() { "$infer" record "$dir/$1/metrics" | tr -d '{}"' | tr ',' '\n' | grep -E '^(loss|grad_norm):'; }
# alone CASE: what one rank has, and what it needs
alone() {
    one=$(total)
    within 16000 "$1.one" 1:
    ok $rc "$1, $tokens tokens: one rank, $one MiB planned" "$(tail -n 3 "$dir/err")"
}
# eight CASE KIND: eight ranks have one's numbers
eight() {
    layout=8:context=8+context-kind=$2
    mine=$(total --ranks 8 --context 8 --context-kind "$2")
    # beside the plan, which has no addresses that are not memory: code, files and stacks, and rooms of UCX
    limit=$((mine + ${CONTEXT_BESIDE:-400}))
    within $limit "$1.$2" "$layout"
    apart=$({ numbers "$1.one"; numbers "$1.$2"; } | awk -F: '{ x[NR] = $2 } END { for (i = 1; i <= 2; i++) { d = x[i] / x[i + 2] - 1; if (d < 0) d = -d
        if (d > worst) worst = d }; print worst + 0; exit NR != 4 || !(worst < 1e-5) }')
    [ $? -eq 0 ] && [ $rc -eq 0 ] && grep -q 'rank 0 sent .*every rank as planned' "$dir/err"
    ok $? "$1, $2: its loss and the norm of its gradient, apart by $apart; bytes moved as planned" "$(tail -n 3 "$dir/err")"
    sed -n 's/.*peak memory of a rank .*beside the plan .* to \([0-9.]* [KM]iB\), which reserves \([0-9.]* [KM]iB\) .*/\1 \2/p' "$dir/err" |
        awk '{ for (i = 2; i <= 4; i += 2) if ($i == "KiB") $(i - 1) /= 1024 } END { exit NR != 1 || !($1 <= $3) }'
    ok $? "$1, $2: no rank had more than the $mine MiB that are planned" "$(grep 'peak memory' "$dir/err")"
}
# little CASE KIND: behind eight of these
little() {
    within $limit "$1.$2.little" 1:
    [ $rc -ne 0 ] && grep -q 'error: .*memory' "$dir/err"
    ok $? "$1, $2: within its $limit MiB of addresses one rank does not fit" "$(tail -n 3 "$dir/err")"
}

ini 8 1 "sliding_window = 2048"
alone window
eight window ulysses
little window ulysses
eight window gather
little window gather
ini 2 1
alone whole
eight whole gather
little whole gather
eight whole both
little whole both
tokens=32792 # 8 x 4099
ini 2 2
alone odd
eight odd gather
# their keys come one head after the other, forwards and backwards, and a wait is counted for each
within 16000 odd.profile 8:context=8+context-kind=gather+profile
[ $rc -eq 0 ] && grep -q '"count":4,"kernel_seconds":[^,]*,"lane":"communication","longest":[^,]*,"name":"wait for keys"' "$dir/odd.profile/profile.json"
ok $? "keys of the second head are gathered while the first computes; what is exposed is in the profile" "$(tail -n 3 "$dir/err")"
finish 18

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every stage with the smallest and the largest value of each of its numbers, as the option tables
# have them: a run with a small one ends well or is refused in one line, and so does --plan with a
# large one. None crashes or disturbs a sanitizer, for which this is made: one sees what small values
# leave no room for, the other products that leave 64 bits. Smallest values go into one run as far as
# they can; LF_SIZES=all tries each alone too, with 0 and the next one (minutes).
. "$LF_SRCDIR/tests/stage/lib.sh"
opts=$LF_BUILDDIR/tests/stage/opts_tool
infer=$LF_BUILDDIR/tests/stage/infer_tool

# --- data, tokenizer, models ---
model() { # model VOCAB [LINE]: a description
    printf '[model]\nfamily = llama3\nlayers = 1\nhidden = 16\nheads = 2\nkv_heads = 1\nffn = 32\n'
    printf 'vocab = %s\nmax_positions = 64\n%s\n' "$1" "${2:-}"
}
model 64 >"$dir/lm.ini"
model 320 >"$dir/policy.ini"
model 320 "output = score" >"$dir/rm.ini"
must "$infer" ckpt "$dir/lm" "$dir/lm.ini" 64
must "$infer" ckpt "$dir/policy" "$dir/policy.ini" 320
must "$infer" ckpt "$dir/reward" "$dir/rm.ini" 320
must "$tool" data "$dir/docs" 12 4
must "$tool" pairs "$dir/pairs" 12 4
must "$tool" labels "$dir/labels" 12 4
awk 'BEGIN { for (; a < 200; a++) print "sum " int(a / 5) " and " a % 5 " is " int(a / 5) + a % 5 }' \
    >"$dir/text.txt"
for a in 0 1 2 3; do
    printf '{"prompt":"%d+%d=","answer":"%d"}\n' $a $a $((2 * a)) >>"$dir/prompts.jsonl"
    printf '{"prompt":"%d+%d=","chosen":"%d","rejected":"no"}\n' $a $a $((2 * a)) \
        >>"$dir/judged.jsonl"
done
head -n 3 "$dir/text.txt" >"$dir/few.txt"
echo '{"context": "1+1=", "choices": ["2", "11"], "gold": 0}' >"$dir/choices.jsonl"
echo '{"context": "1+1=", "target": "2"}' >"$dir/asked.jsonl"
must "$stages/lf-tokenize" --doc-split=line --vocab-size=270 --out "$dir/tok" "$dir/text.txt"
must "$stages/lf-tokenize" --shape=prompt --tokenizer "$dir/tok/tokenizer" --unmapped=ignore \
    --out "$dir/prompts" "$dir/prompts.jsonl"

# --- ordinary runs, small in everything: NAME.ini of each ---
ini() { # ini NAME STAGE [FILE]: options from standard input, then FILE
    { echo "[stage]"; cat; [ -z "${3:-}" ] || cat "$3"; } >"$dir/$1.ini"
    runs="$runs $1:$2"
}
runs=
length="seq_length = 32
steps = 2
mfu = no
batch = 2
micro_batch = 2
save_time = 0
threads = 1"
ini pretrain pretrain "$dir/lm.ini" <<END
data = $dir/docs
$length
END
ini megatron pretrain "$dir/lm.ini" <<END
data = $dir/docs
$length
sample_order = megatron
megatron_samples = 8
END
ini sft sft <<END
data = $dir/docs
init_from = $dir/lm
$length
sample_interval = 1
sample_rows = 1
sample_tokens = 2
END
ini tokens sft <<END
data = $dir/docs
init_from = $dir/lm
seq_length = 2
tokens = 8
batch_tokens = 4
max_docs = 1
schedule = wsd
decay = 1
lora_rank = 1
neftune_alpha = 1
save_interval = 1
valid_interval = 1
threads = 1
END
ini rm rm <<END
data = $dir/pairs
init_from = $dir/lm
$length
END
ini dpo dpo <<END
data = $dir/pairs
init_from = $dir/lm
$length
END
ini kto dpo <<END
data = $dir/labels
init_from = $dir/lm
loss = kto
$length
END
rounds="data = $dir/prompts/shards
tokenizer = $dir/tok/tokenizer
init_from = $dir/policy
max_prompt = 8
max_tokens = 4
round_prompts = 2
rounds = 2
micro_tokens = 32
slots = 4
step_rows = 16
save_time = 0
threads = 1"
ini grpo ppo <<END
$rounds
samples = 2
reward = number:answer
overlong_buffer = 1
END
ini ppo ppo <<END
$rounds
algorithm = ppo
samples = 2
reward_command = while read x; do echo 1; done
reward_model = $dir/reward
ptx_data = $dir/tok/shards
ptx_coef = 0.5
END
ini score score <<END
checkpoint = $dir/reward
tokenizer = $dir/tok/tokenizer
inputs = $dir/judged.jsonl
threads = 1
END
ini generate generate <<END
checkpoint = $dir/policy
tokenizer = $dir/tok/tokenizer
prompt = 1+1=
 2+
max_tokens = 4
threads = 1
END
ini eval eval <<END
checkpoint = $dir/policy
tokenizer = $dir/tok/tokenizer
text = $dir/few.txt
multiple_choice = $dir/choices.jsonl
generate = $dir/asked.jsonl
max_tokens = 4
bootstrap = 10
threads = 1
END
ini tokenize tokenize <<END
inputs = $dir/text.txt
doc_split = size
vocab_size = 270
valid_fraction = 0.3
threads = 1
END
ini unigram tokenize <<END
inputs = $dir/text.txt
doc_split = line
vocab_type = unigram
vocab_size = 300
threads = 1
END
ini vocab vocab <<END
base = $dir/tok/tokenizer
text = $dir/text.txt
checkpoint = $dir/policy
new_tokens = 8
threads = 1
END
ini convert convert <<END
from = $dir/policy
tokenizer = $dir/tok/tokenizer
threads = 1
END

# --- one run ---
# Exit code in $rc; "ok", or what was wrong, in $how: a run ends well, or is refused in one line.
judge() {
    how=ok
    [ $rc -le 2 ] || how="exit $rc"
    ! grep -q 'Sanitizer\|runtime error' "$dir/err" || how="a sanitizer"
    [ $rc -eq 0 ] || [ "$(grep -c ': error: ' "$dir/err")" -eq 1 ] || how="exit $rc, not one error"
}
attempt() { # attempt NAME:STAGE ARGS...
    ini=$dir/${1%:*}.ini stage=${1#*:}
    shift
    rm -rf "$dir/out"
    "$stages/lf-$stage" --config "$ini" --out "$dir/out" "$@" >"$dir/stdout" 2>"$dir/err" </dev/null
    rc=$?
    judge
}

# "name smallest largest" of each number but times and fractions; smallest: the first that is not 0
numbers() {
    "$opts" "${1#*:}" | awk '$2 != "float" && $2 != "duration" && $1 != "ranks" {
        print $1, ($3 == "-" || $3 < 1 ? 1 : $3), ($4 == "-" ? "9223372036854775807" : $4) }'
}
# Those whose smallest value contradicts the others in the run, or makes it one that is refused.
apart() {
    case ${1%:*} in
    pretrain) echo expert_tensor separator begin_token ema_start tokens batch_tokens decay fp8_edges megatron_seed megatron_samples max_patches max_tiles mask_ratio mask_token mask_share mask_random mask_kept repeats rand_ops rand_magnitude moco_hidden moco_dim source_length span_length sentinel_token sentinels begin_token ;;
    megatron) echo expert_tensor separator begin_token ema_start tokens batch_tokens decay fp8_edges max_docs max_patches max_tiles mask_ratio mask_token mask_share mask_random mask_kept repeats rand_ops rand_magnitude moco_hidden moco_dim source_length span_length sentinel_token sentinels begin_token ;;
    sft) echo expert_tensor ema_start tokens batch_tokens decay fp8_edges max_patches max_tiles source_length ;;
    tokens)
        echo expert_tensor ema_start steps batch batch_tokens warmup fp8_edges max_patches max_tiles source_length
        echo sample_interval sample_rows sample_tokens
        ;;
    rm) echo expert_tensor ema_start tokens batch_tokens decay seq_length max_patches max_tiles labels separator temperature ;;
    dpo | kto) echo expert_tensor ema_start tokens batch_tokens decay seq_length max_patches max_tiles ;;
    grpo)
        echo expert_tensor samples max_prompt critic_warmup reward_retries ptx_batch max_patches max_tiles
        echo reference_tensor reward_tensor critic_tensor
        ;;
    ppo) echo expert_tensor max_prompt reference_tensor max_patches max_tiles ;;
    generate | eval) echo max_context ;;
    tokenize)
        echo chat_time doctor_memory max_doc_bytes train_bytes limit_bytes
        echo seq_length samples seed show_tokens
        ;;
    unigram)
        echo chat_time doctor_memory train_bytes limit_bytes
        echo doc_bytes vocab_size min_frequency seq_length samples seed show_tokens
        ;;
    convert) echo vocab_size ;;
    esac
}
option() { printf -- '--%s=%s' "$(echo "$1" | tr _ -)" "$2"; }
bad= # what went wrong, a line each
each() { # each RUN ARGS...: adds to $bad
    attempt "$@"
    [ "$how" = ok ] || bad="$bad
$* : $how: $(grep -m 3 'rror' "$dir/err")"
}
verdict() { # verdict NAME
    echo "$bad" >"$dir/bad"
    [ -z "$bad" ]
    ok $? "$1" "$dir/bad"
    bad=
}

for run in $runs; do
    name=${run%:*}
    numbers "$run" >"$dir/numbers"
    attempt "$run"
    is "$rc $how" "0 ok" "$name: an ordinary run"
    set --
    together=0
    while read -r o least most <&3; do
        case " $(apart "$run" | tr '\n' ' ') " in *" $o "*) continue ;; esac
        set -- "$@" "$(option "$o" "$least")"
        together=$((together + 1))
    done 3<"$dir/numbers"
    attempt "$run" "$@"
    [ $together -gt 1 ] && [ "$rc $how" = "0 ok" ]
    ok $? "$name: $together numbers at their smallest"
    alone=$(apart "$run")
    [ "${LF_SIZES:-}" != all ] || alone=$(cut -d' ' -f1 "$dir/numbers")
    while read -r o least most <&3; do
        case " $(echo "$alone" | tr '\n' ' ') " in *" $o "*) ;; *) continue ;; esac
        each "$run" "$(option "$o" "$least")"
        [ "${LF_SIZES:-}" = all ] || continue
        each "$run" "$(option "$o" 0)"
        each "$run" "$(option "$o" $((least + 1)))"
    done 3<"$dir/numbers"
    verdict "$name: smallest numbers alone"
    while read -r o least most <&3; do
        each "$run" "$(option "$o" "$most")" --plan
    done 3<"$dir/numbers"
    verdict "$name: each of $(wc -l <"$dir/numbers") numbers at its largest, planned"
done

# Products.
attempt grpo:ppo --rounds=1000M --round-prompts=1M --samples=100k --round-epochs=10k --plan
is "$rc $how" "2 ok" "lf-ppo: more tokens than can be counted are refused"
says "more than 10^17 tokens" "and it says so"
attempt sft:sft --steps=1000000M --batch=1000M --plan
is "$rc $how" "2 ok" "lf-sft: likewise"
says "more than 10^17 tokens" "and it says so"
attempt sft:sft --batch=50k --micro-batch=50k --plan
is "$rc $how" "0 ok" "a micro-batch of 1.6 million tokens has a plan"
finish 69

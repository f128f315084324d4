#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What people get wrong, with the real stages. `validate` names each mistake before anything runs: what is wrong, the line of
# the user's file, what to do. A setting that is edited later throws no saved step away without a word.
. "$LF_SRCDIR/tests/flow/lib.sh"
LF=$LF_BUILDDIR/loong-flow
unset LF_LIBEXEC
LF_MODELS_DIR=$LF_SRCDIR/models OMP_NUM_THREADS=1 LF_CUDA_DRIVER=$T/no-driver
export LF_MODELS_DIR OMP_NUM_THREADS LF_CUDA_DRIVER
seq -f 'a line of text with the number %g' 200 >corpus.txt
printf '\n\n' >nothing.txt
printf '\177ELF\2\1\1' >program.txt

cat >base.ini <<'END'
[pipeline]
name = mistakes
[model]
family = llama3
layers = 2
hidden = 64
heads = 4
ffn = 128
vocab = 512
max_positions = 256
[stage tokenize]
kind = tokenize
inputs = corpus.txt
vocab_size = 300
[stage train]
kind = pretrain
data = ${stage:tokenize.shards}
seq_length = 64
batch = 8
micro_batch = 4
steps = 20
lr = 1e-3
warmup = 2
[stage eval]
kind = eval
checkpoint = ${stage:train}
data = ${stage:tokenize.shards}
split = train
END
cp base.ini pipeline.ini
runs 0 "$LF" validate
like out 'is valid: 3 stages' "the file without a mistake is valid"

# row NAME EDIT LINE TEXT: the file edited with sed is refused with exactly one message. It stands at the line
# that LINE matches and is like TEXT.
row() {
    sed "$2" base.ini >pipeline.ini
    _line=$(grep -nE -e "$3" pipeline.ini | head -1 | cut -d: -f1)
    "$LF" validate >out 2>err
    _code=$?
    [ $_code -eq 2 ] && [ "$(wc -l <err)" -eq 1 ] && [ -n "$_line" ] &&
        grep -qE -e "^loong-flow validate: pipeline.ini:$_line:[0-9]+: .*$4" err && ! grep -q "loong-plan\|config.ini" err
    ok $? "$1" "exit $_code, line $_line, said: $(cat err out)"
}
while IFS='~' read -r name edit line text; do
    [ -z "$name" ] || row "$name" "$edit" "$line" "$text"
done <<'END'
a vocabulary that is less than the tokenizer's~s/^vocab_size = .*/vocab_size = 4096/~^vocab = ~vocab = 512 .*less than vocab_size = 4096 of stage tokenize.*make vocab 4096, or vocab_size 512
a tokenizer given as a checkpoint~s/^checkpoint = .*/checkpoint = ${stage:tokenize.tokenizer}/~^checkpoint~the tokenizer of stage tokenize is not what it takes: checkpoint
a tokenizer given as data~/^kind = eval/,$s/^data = .*/data = ${stage:tokenize.tokenizer}/~^data = .*tokenizer~not what it takes: shards; did you mean \$\{stage:tokenize.shards\}
a GPU that is not there~s/^lr = .*/&\ndevice = cuda/~^device~device = cuda, and this machine has no CUDA driver that works .*doctor.*leave it out
GPUs that are not there~s/^lr = .*/&\ngpus = a100:4/~^gpus~gpus = a100:4, and this machine has no CUDA driver that works
a warm-up longer than the run~s/^warmup = .*/warmup = 100/~^warmup~warmup = 100 steps is longer than the run of 20
validation without a split~s/^lr = .*/&\nvalid_interval = 5/~^valid_interval~nothing to validate on; give \[stage tokenize\] valid_fraction = 0.01, give valid_data, or leave valid_interval out
a best validation without a split~s/^lr = .*/&\nkeep_best = yes/~^keep_best~keep_best = yes: there is nothing to validate on; give \[stage tokenize\] valid_fraction
more ranks than micro-batches~s/^lr = .*/&\nranks = 3/~^micro_batch~a batch of 8 sequences in micro-batches of 4 has work for 2 ranks, there are 3; take a smaller micro_batch or fewer ranks
a scheduler that there is not~s/^name = .*/&\nscheduler = slrum/~^scheduler~scheduler = slrum: there are local, slurm, pbs, torque; did you mean slurm\?
a group that there is not~s/^name = .*/&\nshare = no-such-group/~^share~share = no-such-group: there is no such group
a page in a directory that there is not~s/^name = .*/&\nreport = nowhere\/r.html/~^report~report = nowhere/r.html: there is no directory /.*/nowhere; make it
a bound that is no time~s/^name = .*/&\non_time_limit = x/~^on_time_limit~on_time_limit = x: a duration
a metric that there is not~s/^split = .*/&\n[sweep]\ntrain.lr = 1e-3, 2e-3\nmetric = train.losss min/~^metric~metric = train.losss min: no metric has this name; did you mean train.loss\?
a rung before the first validation~s/^split = .*/&\n[sweep]\ntrain.lr = 1e-3, 2e-3\nmetric = train.valid_loss min\nmethod = halving\nrungs = 5/~^rungs~before step 5 nothing is validated \(valid_interval = 0 of stage train\)
a rung at the end~s/^split = .*/&\n[sweep]\ntrain.lr = 1e-3, 2e-3\nmetric = train.loss min\nmethod = halving\nrungs = 20/~^rungs~stage train ends with step 20, so a rung at step 20 stops no child
a file as the place of results~s/^name = .*/&\ndata_dir = corpus.txt\/results/~^data_dir~data_dir = corpus.txt/results: /.*/corpus.txt is a file; name a directory
a comment behind a path~s/^inputs = .*/& # of ours/~^inputs~corpus.txt # of ours: there is no such file or directory; a comment stands on a line of its own
quotes around a path~s/^inputs = .*/inputs = "corpus.txt"/~^inputs~there is no such file or directory; a value stands without quotes
quotes around a number~s/^lr = .*/lr = "1e-3"/~^lr~is not a number; a value stands without quotes
a key that begins with a blank~s/^lr = .*/  &/~^steps~"20 lr = 1e-3" is not a count .*; a line that begins with a blank belongs to the value above it
a first key that begins with a blank~s/^family = .*/  &/~^  family~no value above it to continue; keys begin in the first column
a comment behind a value~s/^lr = .*/lr = 1e-3 # peak/~^lr~lr: .1e-3 # peak. is not a number; a comment stands on a line of its own
two values in a line~s/^lr = .*/&\ndata_weights = 3 1/~^data_weights~.3 1. is not a number; give each value a line of its own
an output without its form~/^kind = pretrain/,/^seq/s/^data = .*/data = tokenize.shards/~^data = tok~there is no such file or directory; did you mean \$\{stage:tokenize.shards\}\?
a file that is called like a stage~/^kind = pretrain/,/^seq/s/^data = .*/data = tokenize.jsonl/~^data = tok~there is no such file or directory$
a reference without the word stage~/^kind = pretrain/,/^seq/s/^data = .*/data = ${tokenize.shards}/~^data = ..tok~there is no such key; did you mean \$\{stage:tokenize.shards\}\?
a reference without braces~/^kind = pretrain/,/^seq/s/^data = .*/data = $stage:tokenize.shards/~^data = .stage~there is no such file or directory; did you mean \$\{stage:tokenize.shards\}\?
a sequence longer than the model's~s/^seq_length = .*/seq_length = 512/~^seq_length~seq_length = 512 is more than \[model\] max_positions = 256
a micro-batch beyond any workspace~s/^batch = .*/batch = 1000k/;s/^micro_batch = .*/micro_batch = 1000k/~^micro_batch~too many tokens at once: an operation of graph train needs [0-9.]+ GiB of workspace, target .* allows 4.0 GiB; take a smaller micro_batch
a batch that is no multiple~s/^batch = .*/batch = 12/;s/^micro_batch = .*/micro_batch = 8/~^micro_batch~a batch of 12 sequences is not a multiple of micro_batch = 8
heads that do not divide~s/^hidden = .*/hidden = 65/~^heads~4 heads do not divide hidden = 65; give head_dim
a number that is none, in the model~s/^hidden = .*/hidden = lots/~^hidden~"lots" is not a count
a key of the model that is misspelled~s/^max_positions/max_postions/~^max_postions~unknown key 'max_postions'.*did you mean "max_positions"
a key of the model that is missing~/^ffn/d~^.model.$~needs ffn
no length~/^steps/d~^.stage train.~give one of steps, tokens and epochs
a learning rate that ends above its peak~s/^lr = .*/&\nmin_lr = 1/~^min_lr~min_lr = 1 is not within 0 and lr = 0.001
an option without an effect~s/^lr = .*/&\nmegatron_seed = 5/~^megatron_seed~megatron_seed has no effect together with the others given; leave it out
texts without a tokenizer~s/^split = .*/&\ntext = corpus.txt/~^text~need tokenizer
no artifact~s/^checkpoint = .*/checkpoint = corpus.txt/~^checkpoint~corpus.txt: no complete artifact there
a file of text given as shards~/^kind = pretrain/,/^seq/s/^data = .*/data = corpus.txt/~^data = corpus.txt~data = corpus.txt: no finished shards are there \(no manifest.json\); name the directory `shards`
an input without a document~s/^inputs = .*/inputs = nothing.txt\ndoc_split = line/~^inputs~stage tokenize: the inputs hold no document
an input that is a program~s/^inputs = .*/inputs = program.txt/~^inputs~program.txt is no text: it holds program data; leave it out of the inputs
a file that is not there~s/^inputs = .*/inputs = nothere.txt/~^inputs~there is no such file or directory
a key of another tool~s/^lr = .*/&\nmax_steps = 5/~^max_steps~unknown key "max_steps" in \[stage train\]; here it is "steps"
a key of the model of another tool~s/^hidden = .*/&\nhidden_size = 5/~^hidden_size~unknown key 'hidden_size' in \[model\]; here it is "hidden"
a word of another tool~s/^lr = .*/&\nprecision = bfloat16/~^precision~"bfloat16" is none of f32.bf16.*; did you mean "bf16"\?
memory without its unit~s/^lr = .*/&\nmemory = 4/~^memory~memory = 4: that is 4 B; give a unit, as in 4G
a memory that is too small~s/^lr = .*/&\nmemory = 2M/~^memory~stage train does not fit in memory: it needs [0-9.]+ MiB, and its .memory. is 2.0 MiB
a best that nobody keeps~s/^checkpoint = .*/checkpoint = ${stage:train.best}/~^checkpoint~stage train makes no best without keep_best; set keep_best = yes in \[stage train\]
a best that is not kept~s/^checkpoint = .*/checkpoint = ${stage:train.best}/;s/^lr = .*/&\nkeep_best = no/~^checkpoint~stage train makes no best without keep_best
an adapter that nobody trains~s/^split = .*/&\n[stage tune]\nkind = sft\ninit_from = ${stage:train}\ndata = ${stage:tokenize.shards}\nseq_length = 64\n[stage out]\nkind = convert\nfrom = ${stage:tune.adapter}\nbase = ${stage:train}/~^from~stage tune makes no adapter without lora_rank; set lora_rank
a share in per cent, without what follows from it~s/^vocab_size = .*/&\nvalid_fraction = 2%/;s/^lr = .*/&\nvalid_interval = 5/~^valid_fraction~"2%" is not a number
a size with a comma, without what follows from it~s/^vocab_size = .*/vocab_size = 3,00/~^vocab_size~unknown unit ",00"
a misspelled key~s/^steps/stepz/~^stepz~unknown key "stepz" .*did you mean "steps"
END
(row "planted" "" '^steps' 'unknown key' >planted) # "" edits nothing, so that nothing is said
like planted '^not ok' "a row fails where the text is absent"
(row "planted" 's/^steps/stepz/' '^lr' 'unknown key' >planted)
like planted '^not ok' "and where the place is another"

sed 's/^max_positions/max_postions/' base.ini >pipeline.ini
"$LF" validate >out 2>err
like err "^loong-flow validate: pipeline.ini:$(grep -n '^max_postions' pipeline.ini | cut -d: -f1):1: " "whose place is the key and not its value"

sed 's/^.stage eval.$/[eval]/' base.ini >pipeline.ini
"$LF" validate >out 2>err
like err ': unknown section .eval.; a stage is .stage eval.$' "a section that is a stage"

# The model of a stage by its name, and one that lies over another.
sed 's/^.model.$/[model mine]/;s/^seq_length/model = mine\n&/;s/^hidden = .*/hidden = 65/' base.ini >pipeline.ini
"$LF" validate >out 2>err
like err "^loong-flow validate: pipeline.ini:$(grep -n '^heads' pipeline.ini | cut -d: -f1):" "a key of a model with a name"
sed 's/^family = .*/preset = tiny-llama/;/^ffn/d;s/^hidden = .*/hidden = 65/;/^heads/d' base.ini >pipeline.ini
"$LF" validate >out 2>err
like err "^loong-flow validate: pipeline.ini:$(grep -n '^preset' pipeline.ini | cut -d: -f1):.*heads" "a key of a preset stands where the preset is named"

# An input that cannot be read. For root every file can, so another user looks.
echo secret >private.txt
chmod 000 private.txt
sed 's/^inputs = .*/inputs = private.txt/' base.ini >pipeline.ini
as=
[ "$(id -u)" -ne 0 ] || { as="setpriv --reuid=65534 --clear-groups"; chmod 755 "$T"; }
if $as "$LF" --version >/dev/null 2>&1; then
    $as "$LF" validate --quick >out 2>err
    like err 'pipeline.ini:13:10: inputs = private.txt: it cannot be read: Permission denied' "an input that cannot be read"
    mkdir -m 555 closed
    sed 's,^name = .*,&\ndata_dir = closed/a/b,' base.ini >pipeline.ini
    $as "$LF" validate >out 2>err
    like err '^loong-flow validate: pipeline.ini:3:12: data_dir = closed/a/b: nothing can be written to /.*/closed: Permission denied$' "a place that is not ours"
else
    skip "an input that cannot be read" "no other user can be taken on here"
    skip "a place that is not ours" "no other user can be taken on here"
fi
rm -rf private.txt closed

# An artifact given by its path alone: made here, then damaged in each way that is seen without reading it all.
must() { "$@" >out 2>err || bail "$*: $(cat err)"; }
must "$LF_BUILDDIR/stages/lf-tokenize" --vocab-size 300 --out made corpus.txt
# damaged NAME PATH LINE TEXT: data = PATH is refused by validate, plan and run, in one line
damaged() {
    sed "/^kind = pretrain/,/^seq/s,^data = .*,data = $2," base.ini >pipeline.ini
    "$LF" validate >out 2>err
    _code=$?
    "$LF" run >out 2>err.run
    [ $_code -eq 2 ] && [ $? -eq 0 ] && [ "$(grep -c . err)" -le 2 ] && grep -qE "^loong-flow validate: pipeline.ini:17:8: data = $2: $3" err &&
        grep -qE "pipeline.ini:17:8: data = $2: $3" err.run
    ok $? "$1" "exit $_code, said: $(cat err err.run)"
}
whole() { rm -rf dam; cp -r made dam; }
whole
damaged "the directory above" dam 'no finished shards are there .*; did you mean dam/shards\?'
damaged "another kind of artifact" dam/tokenizer 'that is an artifact of kind tokenizer, needed is one of kind shards'
truncate -s 3000 dam/shards/train-00000.h5
damaged "a file that was cut short" dam/shards 'it is damaged: .*train-00000.h5 has 3000 bytes, its manifest says .*; restore it, or make it again'
rm dam/shards/train-00000.h5
damaged "a file that is gone" dam/shards 'it is damaged: .*train-00000.h5: No such file or directory; restore it'
echo xxx >dam/shards/manifest.json
damaged "a manifest that cannot be read" dam/shards 'it is damaged: .*manifest.json:1:3: .*; restore it, or make it again'
rm dam/shards/manifest.json
damaged "one that is gone" dam/shards 'no finished shards are there'

# All at once, in the order of the file.
sed 's/^name/nmae/;s/^inputs = .*/inputs = nothere.txt/;s/^seq_length = .*/seq_length = 512/;s/^split/splitt/' base.ini >pipeline.ini
runs 2 "$LF" validate
is "$(wc -l <err)" 4 "four mistakes are four lines" "$(cat err)"
is "$(sed 's/.*pipeline.ini:\([0-9]*\):.*/\1/' err | tr '\n' ' ')" "2 13 28 18 " "of the file, then of the stages that can be asked"
printf '[stage a]\nkind = sft\ninit_from = no-a\ndata = no-b\nvalid_data = no-c\ntokenizer = no-d\n' >pipeline.ini
"$LF" validate >out 2>err
is "$(grep -c 'no such file' err)" 4 "four missing files are four lines" "$(cat err)"
sed 's/^seq_length = .*/seq_length = 512/' base.ini >pipeline.ini
runs 0 "$LF" validate --quick
runs 2 "$LF" validate --set train.seq_length=1k
like err '^loong-flow validate: --set: stage train: seq_length = 1000' "a setting of the command line is named as such"

# A vocabulary far above the tokenizer's is a warning: by the file, by the data, and by the stage. Padding is none.
WORDS='warning: pipeline.ini:9:9: vocab = 8000 of the model of stage train is far above vocab_size = 300 of stage tokenize: 96 % .* vocab = 300$'
sed 's/^vocab = .*/vocab = 8000/;s/^steps = .*/steps = 2/;/stage eval/,$d' base.ini >pipeline.ini
runs 0 "$LF" validate
like err "^loong-flow validate: $WORDS" "a vocabulary that is far too large"
runs 0 "$LF" plan
like out "^$WORDS" "plan warns of it, too"
runs 0 "$LF" run --only tokenize
"$LF" plan >out
like out 'note: the model has a vocabulary of 8000, the data one of [0-9]+: 9[0-9] % of the rows .* never trained; give .model. vocab = ' "and with the data there the stage"
runs 0 "$LF" run
like out 'train: done .* warning' "which warns when it runs"
"$LF" logs train >out
like out 'the model has a vocabulary of 8000, the data one of' "in the same words"
sed 's/^vocab = .*/vocab = 1024/' base.ini >pipeline.ini
runs 0 "$LF" validate
none "what padding explains is no warning" "$(cat err)"
rm -rf loong-data .loong

# plan and run say the same, all of it, and make nothing.
sed 's/^seq_length = .*/seq_length = 512/;s/^split = .*/&\ntext = corpus.txt/' base.ini >pipeline.ini
for command in plan run submit; do
    runs 2 "$LF" $command
    is "$(grep -cE 'pipeline.ini:(18|29):[0-9]+: stage (train|eval): ' err)" 2 "$command names both stages with their lines" "$(cat err)"
done
none "and no run was made" "$(ls -d loong-data/*/runs/* 2>/dev/null)"
sed 's/^lr = .*/&\ndevice = cuda/' base.ini >pipeline.ini
"$LF" plan >out 2>err
like out '^refused: pipeline.ini:23:10: stage train: device = cuda' "plan refuses a GPU that is not there"
sed 's/^lr = .*/&\ndevice = cuda/;s/^name = .*/&\nscheduler = slurm/' base.ini >pipeline.ini
runs 0 "$LF" validate

# Threads that wait for each other are told.
cores=$(env -u OMP_NUM_THREADS nproc)
sed "/stage eval/,\$d;s/^lr = .*/&\nthreads = $((2 * cores + 1))/;s/^steps = .*/steps = 2/" base.ini >pipeline.ini
runs 0 "$LF" run
like out "warning: $((2 * cores + 1)) threads .threads, cpus. on [0-9]* processor" "more threads than processors"
rm -rf loong-data .loong

# What ends in the same way each time does not offer to try again.
cat >pipeline.ini <<'END'
[pipeline]
name = short
[stage tokenize]
kind = tokenize
inputs = corpus.txt
min_frequency = 1000000
vocab_size = 300
doctor = no
[stage more]
kind = tokenize
inputs = rows.jsonl
vocab_size = 300
END
echo '{"content":"a text"}' >rows.jsonl
"$LF" run --only more >out 2>err
like out '^run .* trying again would end in the same way: change what stage more names, then `loong-flow resume`' "a row without the field"
is "$(grep -c 'set text_field' out)" 1 "and the error is told once" "$(cat out)"
: >empty.txt
"$LF" run --only tokenize --set tokenize.inputs=empty.txt >out 2>err
like err 'stage tokenize: the inputs hold no document$' "an empty corpus"
unlike out '^run ' "for which no run is made"

# ---- after an edit

rm -rf loong-data .loong
sed 's/^steps = .*/steps = 4000000/;s/^lr = .*/&\nsave_interval = 20/;/stage eval/,$d' base.ini >pipeline.ini
"$LF" run >o 2>&1 &
p=$!
BG="$BG $p"
until_true 20 sh -c 'ls -d loong-data/*/runs/*/train/1.1/out/checkpoints/step-* 2>/dev/null | grep -q .'
kill -INT $p
wait $p 2>/dev/null
is "$(state train)" pending "training was stopped" "$(cat o)"
first_run=$(run_id)
sed 's/^lr = .*/lr = 2e-3/' pipeline.ini >edited && cp edited pipeline.ini
WORDS='^loong-flow [a-z]*: lr \(pipeline.ini:22\) changed: train would start over and lose [1-9][0-9]* of 4000000 steps; --accept lr continues from step [1-9][0-9]*, --restart starts over$'
for command in run submit resume; do
    runs 2 "$LF" $command
    like err "$WORDS" "$command says what an edit would throw away"
done
"$LF" plan >out
like out 'lr \(pipeline.ini:22\) changed: train would start over and lose [1-9][0-9]* of 4000000 steps; --accept lr' "plan says it too"
"$LF" explain train >out
like out 'lr \(pipeline.ini:22\) changed: train would start over' "and so does explain"
is "$(ls loong-data/*/runs | wc -l)" 1 "nothing was made"
runs 2 "$LF" resume --accept learning_rate
like err '--accept learning_rate: that has not changed; changed: lr' "a key that there is not"
runs 2 "$LF" resume --accept lrr
like err '--accept lrr: that has not changed; did you mean lr' "one that is misspelled"
runs 2 "$LF" run --accept warmup
like err '--accept warmup: that has not changed; changed: lr' "one that did not change"
sed 's/^warmup = .*/warmup = 3/' pipeline.ini >edited
cp edited pipeline.ini
runs 2 "$LF" resume --accept lr
like err 'lr .* and warmup .* changed: train would start over .*--accept lr --accept warmup continues' "one word of two is not enough"
sed 's/^warmup = .*/warmup = 2/;s/^steps = .*/steps = 4000001/' pipeline.ini >edited
cp edited pipeline.ini
# goes COMMAND...: until the stage has begun; its log says how
goes() {
    n=$(ls -d loong-data/*/runs/*/train/*.*/ | wc -l)
    "$@" >o 2>&1 &
    p=$!
    BG="$BG $p"
    until_true 20 sh -c "[ \$(ls -d loong-data/*/runs/*/train/*.*/ | wc -l) -gt $n ] && grep -qE 'step [0-9]+/' \$(ls -d loong-data/*/runs/*/train/*.*/ | sort -V | tail -n 1)log"
    kill -INT $p
    wait $p 2>/dev/null
}
goes "$LF" run --accept lr --accept steps
is "$(run_id)" "$first_run" "run with --accept goes on with the same run" "$(cat o)"
like o 'train: started \(attempt 2, continues from what is there\)' "and says that it continues"
goes "$LF" resume
like o 'train: started \(attempt 3, continues from what is there\)' "what was accepted is settled"
sed 's/^layers = .*/layers = 3/' pipeline.ini >edited && cp edited pipeline.ini
runs 2 "$LF" resume
like err '^loong-flow resume: model.layers .pipeline.ini:5. changed: train would start over and lose .* steps; --restart starts over$' "another model offers no --accept"
goes "$LF" resume --restart
like o 'train: started \(attempt 4\)' "--restart starts over"
goes "$LF" resume
like o 'train: started \(attempt 5' "and is settled too"
sed 's/^layers = .*/layers = 2/;s/^lr = .*/lr = 3e-3/' pipeline.ini >edited && cp edited pipeline.ini
goes "$LF" run --restart
is "$(ls loong-data/*/runs | wc -l)" 2 "run --restart makes a new run"
sed 's/^lr = .*/lr = 4e-3/' pipeline.ini >edited && cp edited pipeline.ini
goes "$LF" run --new
is "$(ls loong-data/*/runs | wc -l)" 3 "run --new asks nothing"

# ---- what a stage made of the data

runs 0 "$LF" show shards --sample 0 --show-tokens 5
like out '^  a·\{\+ line· of\+\}$' "show shards finds the stage that made some, and shows tokens"
made=$(cat out)
runs 0 "$LF" show shards "$first_run" --from train --sample 0 --show-tokens 5
is "$(sed -n '/^---/,$p' out)" "$(printf '%s\n' "$made" | sed -n '/^---/,$p')" "those that a stage reads are the same"
runs 0 "$LF" show shards --from tokenize --samples 0 --json
like out '^\{"schema":1,.*"documents":1,' "as JSON"
runs 8 "$LF" show shards --from nowhere
like err 'run .* has no such stage, and there is no such directory' "what is not there"
runs 0 "$LF" doctor --data corpus.txt --tokenizer made/tokenizer --seq-length 100
like out '^  longer than seq_length = 100: 1 rows \(100.0 %\); 20[0-9][0-9] tokens' "doctor --data tells what does not fit"
runs 2 "$LF" show --samples 3
like err '^loong-flow show: --samples is of `loong-flow show shards`$' "its options go with the word"
ckpt=$(ls -d loong-data/*/runs/*/train/*/out/checkpoints/step-* | head -n 1)
"$LF_BUILDDIR/stages/lf-convert" --inspect --from "$ckpt" >out
is "$(sed -n 's/^  "\(form\|family\|parameters\|optimizer_tensors\)": //p' out | tr -d '\n') $(grep -c '"weight"' out) $(grep -c adam out)" \
    '"checkpoint","llama3",147776,42, 21 0' "a checkpoint begins with its summary, and its moments are counted"
"$LF_BUILDDIR/stages/lf-convert" --inspect --moments --from "$ckpt" >out
is "$(grep -c '"weight"' out) $(grep -c adam out)" "21 42" "and listed on demand"
# keep_best and data without a valid split: said by plan as soon as the data is there, not after the start of the stage.
rm -rf loong-data .loong
printf '{"text":"row one"}\n{"text":"row two"}\n' >rows.jsonl
sed '/stage eval/,$d;s/^inputs = .*/inputs = rows.jsonl\nvalid_fraction = 0.01/;s/^lr = .*/&\nkeep_best = yes/' base.ini >pipeline.ini
runs 0 "$LF" plan
like out 'note: valid_fraction = 0.01 of 2 documents: none is kept for validation with a chance of 98 %' "plan says that two rows are few"
runs 0 "$LF" run --only tokenize
like out 'tokenize: done .* warning' "and the stage that none was kept"
for command in plan run; do
    runs 2 "$LF" $command
    like err 'pipeline.ini:24:[0-9]+: stage train: keep_best compares validations, and no data has a valid split' "$command says what the stage would"
done

# An output that was not asked for when its stage ran: the reader is told before it starts.
sed '/stage eval/,$s/^data/limit = 4\n&/;/stage eval/,$s/^split.*//;s/^vocab_size.*/&\nvalid_fraction = 0.2\ndoc_split = line/;s/^steps.*/steps = 3/' base.ini >pipeline.ini
runs 0 "$LF" run
sed -i 's/^lr = .*/&\nkeep_best = yes/;s/^checkpoint = .*/checkpoint = ${stage:train.best}/' pipeline.ini
for command in plan run; do
    runs 2 "$LF" $command
    like err 'pipeline.ini:[0-9]+:[0-9]+: checkpoint = ..stage:train.best.: stage train is done and made no best, .*rerun train. makes it again$' "$command says that the best is not there"
done
is "$(ls -d loong-data/*/runs/* | wc -l)" 2 "and makes no run of it"
runs 0 "$LF" rerun train
runs 0 "$LF" plan
like out '^  -    eval' "made again it is there"

finish 162

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `loong-flow report` about real stages: the model and what it was made of, scores, texts, several
# runs, and numbers that equal those of metrics.
. "$LF_SRCDIR/tests/tap/shm.sh"
. "$LF_SRCDIR/tests/flow/lib.sh"
CHECK=$LF_BUILDDIR/tests/flow/report_check
LF_MODELS_DIR=$LF_SRCDIR/models OMP_NUM_THREADS=2
export LF_MODELS_DIR OMP_NUM_THREADS
. "$LF_SRCDIR/tests/stage/light_lib.sh"
light_flow
awk 'BEGIN { srand(3); for (i = 0; i < 1200; i++) { printf "the %d th line of a text <b> that %d says\n", i % 13, int(rand() * 40); if (i % 6 == 5) print "" } }' >corpus.txt
cat >pipeline.ini <<'END'
[pipeline]
name = real
description = What a page says of a <small> model
[model]
preset = tiny-llama
vocab = 300
layers = 2
[stage tokenize]
kind = tokenize
inputs = corpus.txt
doc_split = blank
vocab_size = 300
valid_fraction = 0.1
[stage train]
kind = pretrain
data = ${stage:tokenize.shards}
seq_length = 32
batch = 4
micro_batch = 4
steps = 12
lr = 1e-3
warmup = 2
valid_interval = 4
save_interval = 6
[stage generate]
kind = generate
checkpoint = ${stage:train.checkpoint}
tokenizer = ${stage:tokenize.tokenizer}
prompt = the <i>line</i> &
max_tokens = 8
[stage eval]
kind = eval
checkpoint = ${stage:train.checkpoint}
tokenizer = ${stage:tokenize.tokenizer}
data = ${stage:tokenize.shards}
limit = 4
END
words() { sed '/<style>/,/<\/style>/d; /<script/,/<\/script>/d; s/<[^>]*>/ /g' "$1" | tr -s ' '; }
whole() { "$CHECK" page "$1" >check.out; ok $? "$2: whole, and nothing is fetched" "$(cat check.out)"; }
same() { # FILE RUN STAGE NAME
    "$LF" metrics "$3" --run "$2" --json >metrics.json && "$CHECK" same "$1" metrics.json >check.out
    ok $? "$4" "$(cat check.out)"
}

"$LF" run >o 2>&1; ok $? "a pipeline of four stages" "$(tail -n 3 o)"
one=$(run_id)
like "$(stage_dir train)/done.json" '"tensors":[1-9][0-9]*[,}]' "the record of a checkpoint has the number of its tensors, and no list"
runs 0 "$LF" report --output r.html
whole r.html "one run"
words r.html >w
like w 'What a page says of a &lt;small&gt; model' "the description"
like w 'llama3, [0-9.]+k parameters' "family and size"
like w '2 layers, hidden [0-9]+, [0-9]+ heads' "shape"
like w '300 entries, tokenizer [0-9a-f]{12}' "vocabulary and tokenizer"
like w 'trained on sequences of 32' "context"
like w '[0-9]+ documents with [0-9.k]+ tokens, [0-9.]+ KiB of text' "corpus"
seen=$("$LF" metrics train --format csv --key tokens | tail -n 1 | cut -d, -f2)
corpus=$(sed -n 's/.*"train":{[^}]*"tokens":\([0-9]*\).*/\1/p' "$(stage_dir tokenize)/out/shards/manifest.json")
like w "$(awk -v s="$seen" -v c="$corpus" 'BEGIN { printf "%.3g", s / c }') passes over the corpus" "how often it was seen: $seen of $corpus"
like w 'f32, master weights f32, moments f32, numeric mode fast' "precision, also what is the default"
like w 'AdamW, beta 0.9 and 0.95' "optimizer"
like w 'cosine, 0.001 after 8 sequences of warm-up' "learning rate"
like w '4 sequences a step, 128 tokens, micro-batch 4' "batch"
cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
[ -z "$cpu" ] || grep -qF "$cpu, kernels cpu-" w; ok $? "processor and instruction set"
like w '1 rank, 2 threads' "ranks and threads"
like w 'tokens a second, .*, the median of the steps' "speed"
# Core time held is twice the time of a stage of two threads; used is what its process took.
d=$(stage_dir train)
like "$(echo "$d"/ranks/*.json)" '"cpu_s":[0-9.]*[1-9].*"threads":2' "the rank has said what it took"
t=$(sed -n 's/.*"t":\([0-9.]*\).*/\1/p' "$d/../epoch.1")
sed -i "s/\"t_end\":[0-9.]*/\"t_end\":$(awk -v t="$t" 'BEGIN { printf "%.6f", t + 100 }')/" "$d/end.json"
sed -i 's/"cpu_s":[0-9.]*/"cpu_s":150/' "$d"/ranks/*.json
runs 0 "$LF" report --output r.html
words r.html >w
like w '1 x 1 x 2 threads [^a-z]*1m40s / no limit 1m40s 2m30s / 3m20s ' "core time used and held"
like r.html '>Bits a byte</td><td class="n" title="[0-9.]+">[0-9.]+ <span class="dim">[^0-9]+[0-9.]+</span></td><td>bits</td><td class="dim">lower</td><td class="dim">8: bytes' "a score with its error, unit, direction and what to compare with"
like r.html '<b class="prompt">the &lt;i&gt;line&lt;/i&gt; &amp;</b>' "the prompt of a generated text, escaped"
text=$(sed -n 's/.*"text":"\([^"\\<&>]*\).*/\1/p' "$(stage_dir generate)/out/text/out.jsonl" | head -c 8)
grep -qF "&amp;</b>$text" r.html; ok $? "and what the model wrote behind it" "$text"
for st in tokenize train eval; do same r.html "$one" $st "$st: numbers of the page are those of metrics"; done
# Hours are those since the start was claimed.
last=$("$LF" metrics train --json | tr ',{}' '\n\n\n' | sed -n 's/^ *"t": *\([0-9.]*\).*/\1/p' | tail -n 1)
hours=$(grep '"stage":"train"' r.html | sed -n 's/.*"hours":\[\([^]]*\)\].*/\1/p' | tr ',' '\n' | tail -n 1)
awk -v h="$hours" -v a="$t" -v b="$last" 'BEGIN { d = h * 3600 - (b - a); exit !(b > a && d < 0.05 && d > -0.05) }'
ok $? "the axis of hours begins with the start" "$hours hours, claimed at $t, last record at $last"
like r.html 'counting words' "the loss has the level of counting words"
unlike r.html 'http-equiv="refresh"' "a page of a run that is over does not reload"

# show and lineage say the same.
runs 0 "$LF" show train
like out '^    model +llama3, [0-9.]+k parameters' "show says the model"
like out '^    precision +f32, master weights f32' "precision"
like out '^    learning rate +cosine, 0.001 after' "and schedule"
like out "^    host +$(hostname)\$" "host"
like out '^    ranks +1 rank, 2 threads' "threads"
like out '^    code +loong-flow [0-9.]+, lf-pretrain [0-9a-f]{12}' "and version"
runs 0 "$LF" show train --json
like out '"precision": *"f32, master' "in JSON too"
runs 0 "$LF" lineage "$(stage_dir train)/out/checkpoint"
like out 'model: llama3, [0-9.]+k parameters' "lineage of a checkpoint says the model"
like out 'ranks: 1 rank, 2 threads' "and on what it was made"
is "$(grep -c 'processor: ' out)" 2 "also of what it was made from"

# Samples while it trained, with bytes that a page cannot show, and a line that is being written.
cat >"$d/samples.jsonl" <<'END'
{"step":4,"prompt":"Once upon","id":"prompt-1","sample":0,"text":" a \u0007bell"}
{"step":8,"prompt":"Once upon","id":"prompt-1","sample":0,"text":" <b>void</b>"}
{"step":4,"resumed":true}
{"step":8,"prompt":"Once upon","id":"prompt-1","sample":0,"text":" a time","finish_reason":"length"}
{"step":8,"prompt":"Once upon","id":"prompt-1","sample":1,"text":" a ti
END
runs 0 "$LF" report --output r.html
words r.html >w
like w 'at step 8' "samples of the last step"
like r.html '<b class="prompt">Once upon</b> a time</pre>' "with the prompt"
like r.html ' a &#x2407;bell' "a control byte is visible"
unlike r.html 'void' "what a later start has replaced is not shown"
is "$(grep -c 'class="prompt">Once' r.html)" 2 "and no line that is not whole"

# What a model saw stands within the page; what is no picture, is too large or is gone is named.
png=$LF_SRCDIR/tests/golden/media/images/rgb8.png
cp "$png" large.png && head -c 300000 /dev/zero >>large.png && echo text >no.png
cat >"$d/samples.jsonl" <<END
{"step":8,"images":["$png","$PWD/large.png","$PWD/no.png","gone<.png"],"prompt":"Seen","id":"prompt-1","sample":0,"text":" it"}
{"step":8,"messages":[{"role":"user","content":[{"type":"image","path":"$png"},{"type":"text","text":"In parts"}]}],"id":"prompt-2","text":" it"}
END
runs 0 "$LF" report --output r.html
whole r.html "pictures"
sed -n 's/.*<img class="seen" src="data:image\/png;base64,\([^"]*\)".*/\1/p' r.html | while read -r l; do echo "$l" | base64 -d | cmp - "$png" && echo same; done >o
is "$(grep -c same o)" 2 "pictures of a prompt, also from the parts of its message"
words r.html >w
like w "$PWD/large.png *$PWD/no.png *gone&lt;.png" "the others are named"
like w 'In parts it' "with the text beside the picture"

# Paths of pictures begin in the folder of the prompts, or in media_dir, wherever the page is asked for.
mkdir asked && cp "$png" asked/seen.png && echo '{"id":"prompt-1","images":["seen.png"],"prompt":"x"}' >asked/prompts.jsonl
done_json=$(stage_dir generate)/done.json
cp "$done_json" kept.json
for media in "" "{\"name\":\"media_dir\",\"path\":\"$PWD/asked\"},"; do
    sed "s|\"inputs\":\[|&$media{\"name\":\"prompts\",\"path\":\"$PWD/asked/prompts.jsonl\"},|" kept.json >"$done_json"
    [ -z "$media" ] || mv asked/prompts.jsonl prompts.jsonl
    [ -z "$media" ] || sed -i "s|asked/prompts.jsonl|prompts.jsonl|" "$done_json"
    runs 0 "$LF" report --output r.html
    is "$(grep -c 'title="seen.png"' r.html)" 1 "a picture beside its prompt${media:+, in media_dir}"
done
# A request without an id is called by its line. The file keeps its length, which its marker has.
out=$(stage_dir generate)/out/text/out.jsonl
cp "$out" kept.jsonl
printf '\n{"images":["seen.png"],"prompt":"the second line asks"}\n' >prompts.jsonl
sed 's/"id":"prompt-1"/"id": "line-2" /' kept.jsonl >"$out"
runs 0 "$LF" report --output r.html
is "$(grep -c 'title="seen.png"' r.html) $(grep -c 'the second line asks' r.html)" "1 1" "a picture beside a prompt without an id"
cp kept.jsonl "$out"
cp kept.json "$done_json"

# A second run with another rate: what changed, and both in one page.
"$LF" run --set train.lr=3e-3 --set train.steps=16 >o 2>&1; ok $? "a second run" "$(tail -n 3 o)"
two=$(run_id)
runs 0 "$LF" report --output r.html
words r.html >w
like w "Changed against the run before it, $("$LF" status "$one" | awk 'NR == 1 { print $2 }')" "what changed against the run before"
like w 'train [^ ]*lr 1e-3 3e-3|train .*lr.* 1e-3 3e-3' "the setting, before and now"
runs 0 "$LF" report "$one" "$two" --output b.html
whole b.html "two runs"
words b.html >w
like w 'train.lr' "the settings that differ are columns"
like w 'train.steps' "all of them"
"$LF" status --all -o label | sed 1d | sort >labels
sed -n '/class="runs"/,/<\/table>/s/.*<tr><td title="[^"]*"><code>\([^<]*\)<.*/\1/p' b.html | sort >shown
is "$(cat shown)" "$(cat labels)" "runs by the names that commands take"
sed -n 's/.*<table class="runs"><tr>\(.*\)<\/tr>.*/\1/p' b.html | grep -o '<th>[a-z]*\.[a-z_]*' | sed 's/.*\.//' >shown
is "$(tr '\n' ' ' <shown)" "$("$LF" status --all | sed -n '1s/.*valid_loss *//p' | tr -s ' ') " "the columns of settings are those of status --all"
unlike w 'train.seq_length' "and no other"
for r in "$one" "$two"; do
    like b.html "title=\"$r\"" "run $r has a row"
    same b.html "$r" train "$r: its numbers are those of metrics"
done
best=$("$LF" metrics train --format csv --key valid_loss | awk -F, 'NR > 1 && $2 != "" && (m == "" || $2 + 0 < m + 0) { m = $2 } END { print m }')
like b.html "<td class=\"n\" title=\"$(printf %.6s "$best")" "the best validation loss ($best)"
is "$(sed -n '/<figure class="plot"/,/<\/figure>/p' b.html | grep -c 'class="line c1"')" "$(grep -c 'data-lines="0[^"]* 1\.' b.html)" "every plot of both has a second line"
[ "$(grep -c 'data-lines="0[^"]* 1\.' b.html)" -ge 4 ]; ok $? "and there are some"
runs 0 "$LF" report --all --output a.html
cmp -s a.html b.html || like a.html "<h1>2 runs</h1>" "--all has both"
runs 2 "$LF" report --all "$one"
like err 'not both' "or some, not both"
finish 82

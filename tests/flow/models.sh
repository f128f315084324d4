#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# models: what is installed, how large it is, and what can be trained in so much memory.
. "$LF_SRCDIR/tests/flow/lib.sh"
F=$LF_BUILDDIR/loong-flow
mkdir models
cp "$LF_SRCDIR/models/tiny-llama.ini" "$LF_SRCDIR/models/tiny-moe.ini" "$LF_SRCDIR/models/gpt2-124m.ini" models
printf '[model]\npreset = gpt2-124m\nlayers = 6\n' >models/gpt2-half.ini
printf '[model]\nfamily = llama3\nlayers = 2\n' >models/no-sizes.ini
LF_LIBEXEC=$LF_BUILDDIR/stages LF_MODELS_DIR=$T/models
export LF_LIBEXEC LF_MODELS_DIR
"$F" models -o name,family,size,layers,hidden,context >out 2>err
is "$(tr -s ' ' <out)" "MODEL FAMILY PARAMETERS LAYERS HIDDEN CONTEXT
no-sizes llama3 - 2 - -
tiny-llama llama3 164.2k 2 64 256
tiny-moe qwen2-moe 307.2k 3 64 256
gpt2-half gpt2 81.9M 6 768 1024
gpt2-124m gpt2 124.4M 12 768 1024" "all models by size, with those that lie over others"
"$F" models -o name,error >out
like out '^no-sizes +.*needs ' "what cannot be planned says why"
# --- what is not trained by next tokens has sizes, too ---
mkdir others
for m in swin-tiny resmlp-12 clip-vit-base-patch32 siglip-base-patch16-224 electra-small bart-base t5-small; do
    cp "$LF_SRCDIR/models/$m.ini" others
done
LF_MODELS_DIR=$T/others "$F" models -o name,family,size,layers,hidden,context >out 2>err
is "$(tr -s ' ' <out)" "MODEL FAMILY PARAMETERS LAYERS HIDDEN CONTEXT
electra-small electra 13.5M 12 256 512
resmlp-12 resmlp 15.4M 12 384 -
swin-tiny swin 28.3M 12 768 -
t5-small t5 60.5M 6 512 512
bart-base bart 139.5M 6 768 1024
clip-vit-base-patch32 clip 151.3M 12 512 77
siglip-base-patch16-224 siglip 203.2M 12 768 64" "encoders, encoder-decoders and pictures"
LF_MODELS_DIR=$T/others "$F" models --json --micro-batch 4 >four
LF_MODELS_DIR=$T/others "$F" models --json >one
of() { tr -d ' \n' <"$1" | grep -o '"memory_bytes":[0-9]*,"name":"swin-tiny"' | grep -o '[0-9]*' | head -1; }
[ "$(of one)" -lt "$(of four)" ]
ok $? "four pictures take more memory than one" "$(of one), $(of four)"
need() { "$F" models --json "$@" | tr -d ' \n' | grep -o '"memory_bytes":[0-9]*,"name":"gpt2-124m"' | grep -o '[0-9]*' | head -1; }
bf16=$(need) short=$(need --moments bf16) full=$(need --recompute full) long=$(need --micro-batch 4)
[ "$short" -lt "$bf16" ] && [ "$full" -lt "$bf16" ] && [ "$long" -gt "$bf16" ]
ok $? "memory follows the settings" "$bf16 bf16, $short moments in bf16, $full recompute, $long four sequences"
"$F" models --fits 1G -o names >out
is "$(tail -n +2 out | tr '\n' ' ')" "tiny-llama tiny-moe " "--fits leaves out what is too large, and what is not known"
"$F" models --fits "$bf16" -o names >out
is "$(tail -1 out)" gpt2-124m "so much memory is enough"
"$F" models --fits $((bf16 - 1)) -o names >out
is "$(tail -1 out)" gpt2-half "a byte less is not"
"$F" models --fits 24 >out
is "$(cat out)" "no model can be trained in 24 B; sizes have units, such as 24G" "no model at all"
"$F" models gpt2-half >out
like out '^# layers = 6$' "one model has its settings"
like out '^81912576 parameters' "and its size"
runs 8 "$F" models gpt2-125m
like err 'there is no model "gpt2-125m"; did you mean gpt2-124m\? `loong-flow models` lists' "a wrong name names a near one"
printf '[model]\npreset = gpt2-125m\n[stage a]\nkind = pretrain\ndata = x\nsteps = 1\n' >pipeline.ini
runs 2 "$F" validate
like err 'pipeline.ini:2:10: .*did you mean gpt2-124m\? `loong-flow models` lists' "in a pipeline, too"
LF_LIBEXEC=/nowhere
runs 0 "$LF" models
like err 'sizes are not known: the executable lf-pretrain' "without lf-pretrain there are names"
runs 8 "$LF" models --fits 1G
LF_MODELS_DIR=$T/empty
runs 8 "$F" models
like err 'no models are installed' "none at all"
# --- ended while stages are asked: nothing stays in TMPDIR, and nobody goes on to answer ---
mkdir hang tmp
printf '#!/bin/sh\necho $$ >"%s/asked"\nexec sleep 600\n' "$T" >hang/lf-pretrain
chmod +x hang/lf-pretrain
LF_MODELS_DIR=$LF_SRCDIR/models LF_LIBEXEC=$T/hang TMPDIR=$T/tmp "$F" models >out 2>err &
asks=$!
BG="$BG $asks"
until_true 10 test -s asked
BG="$BG $(cat asked)"
kill -TERM $asks
wait $asks
is "$? $(ls tmp)" "143 " "a signal ends the question, and its files are gone"
! kill -0 "$(cat asked)" 2>/dev/null
ok $? "the stage that was asked has ended, too"
finish 22

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Matrices of models of pictures, divided (tensor = 2, 4): Swin, Swin v2, ConvNeXt and ViT that tell classes, the two towers of CLIP and SigLIP, masked
# autoencoders and MoCo v3: the losses, norms and gradients of one rank, with ranks that share the batch and state, computed again, checkpoints of one layout
# resumed on another; what moved is what was planned.
. "$LF_SRCDIR/tests/stage/lib.sh"
. "$LF_SRCDIR/tests/stage/layout_lib.sh"
golden=$LF_SRCDIR/tests/golden/vlm/run/llava
images=$LF_SRCDIR/tests/golden/media/images
grep -q '^#define HAVE_PNG' "$LF_BUILDDIR/config.h" && grep -q '^#define HAVE_JPEG' "$LF_BUILDDIR/config.h" ||
    skip_all "a decoder of pictures is not built in"
with_ranks
need_ranks

# --- 24 pictures of 5 x 5 patches, with classes and with captions ---
for i in 0 1 2 3; do
    k=0
    for f in rgb8.png photo.jpg wide.png exif.png grey8.png la8.png; do
        echo "{\"id\": \"$i-$k\", \"images\": [\"$f\"], \"prompt\": \"<image> $i $k\", \"label\": $k}"
        echo "{\"image\": \"$f\", \"text\": \"a picture $k of $i\"}" >&3
        k=$((k + 1))
    done
done >"$dir/rows.jsonl" 3>"$dir/captions.jsonl"
must "$stages/lf-tokenize" --tokenizer "$golden" --processor "$golden" --shape prompt --unmapped ignore --media-dir "$images" --valid-fraction 0.25 \
    --out "$dir/classes" "$dir/rows.jsonl"
must "$stages/lf-tokenize" --tokenizer "$golden" --processor "$golden" --placeholders '{"processor_class": "CLIPProcessor"}' --shape auto \
    --media-dir "$images" --valid-fraction 0.25 --out "$dir/pairs" "$dir/captions.jsonl"

stage() { # stage DATA OBJECTIVE
    printf '[stage]\ndata = %s\nobjective = %s\nbatch = 8\nmicro_batch = 2\nmax_patches = 50\nmax_tiles = 2\nsteps = 4\nlr = 2e-3\n' "$dir/$1/shards" "$2"
    printf 'clip = 0.5\nwarmup = 1\nvalid_interval = 2\nkeep = 9\nsave_time = 0\nseed = 5\nthreads = 1\n'
}
staged() { # staged FAMILY WINDOW: two stages
    printf '[model]\nvision.family = %s\nvision.stage_layers = 2,2\nvision.stage_widths = 16,32\nvision.ffn = 64\nvision.patch_dim = 48\n' "$1"
    printf 'vision.grid = 5\nvision.init_std = 0.2\nclasses.labels = 6\nclasses.read = mean\n'
    [ -z "${2:-}" ] || printf 'vision.stage_heads = 2,4\nvision.window = %s\n' "$2"
}
plain() { # plain FAMILY POSITIONS
    printf 'vision.family = %s\nvision.layers = 2\nvision.hidden = 32\nvision.heads = 4\nvision.ffn = 64\nvision.patch_dim = 48\n' "$1"
    printf 'vision.positions = %s\n' "$2"
}
towers() { # towers FAMILY POSITIONS
    printf '[model]\nfamily = %s\nlayers = 2\nhidden = 32\nheads = 4\nffn = 64\nmax_positions = 24\ndual.dim = 32\n' "$1"
    plain "$1" "$2"
}
# gradients NAME LAYOUT ARGS...: those of the first step, which its first moments are shares of, tensor by tensor
gradients() {
    _case=$1 _layout=$2
    shift 2
    train "$pretrain" "$dir/run.ini" "$_case.first" --steps 1 --valid-interval 0 "$@"
    # shellcheck disable=SC2046
    train "$launch ${_layout%%:*} -- $pretrain" "$dir/run.ini" "$_case.$_layout.first" --steps 1 --valid-interval 0 $(options "$_layout") "$@"
    _far=$("$tool" gradients "$dir/$_case.$_layout.first/out/checkpoint" "$dir/$_case.first/out/checkpoint" 2>&1)
    echo "$_far" | awk '{ exit !(NF == 1 && $1 > 0 && $1 < 1e-5) }'
    ok $? "$_case, $_layout: every gradient that of one rank, apart by $_far" "$(tail -n 3 "$dir/err")"
}

# several NAME "LAYOUT ..." ARGS...: the numbers of one rank, and in the last of the layouts its gradients
several() {
    _who=$1 _several=$2
    shift 2
    trial "$_who" pretrain 2e-5 "$_several" "$@"
    gradients "$_who" "${_several##* }" "$@"
}

saves=2
for m in swin:2 swinv2:4; do
    { stage classes classes && staged "${m%:*}" "${m#*:}"; } >"$dir/run.ini"
    several "${m%:*}" "2:tensor=2 4:tensor=2+zero=1 4:tensor=2+zero=2 4:tensor=2+zero=3" --drop-path 0.2
    again "${m%:*}.one" 2 --tensor 2 --drop-path 0.2
    again "${m%:*}.2:tensor=2" 1 --drop-path 0.2
    again "${m%:*}.4:tensor=2+zero=3" 2 --drop-path 0.2
done
saves=0
{ stage classes classes && staged swin 2; } >"$dir/run.ini"
trial "swin computed again" pretrain 2e-5 "2:tensor=2" --recompute full --drop-path 0.2
is "$(id "swin computed again.2:tensor=2")" "$(id swin.2:tensor=2)" "which changes no bit"
trial "swin in bf16" pretrain 2e-2 "2:tensor=2" --precision bf16
{ stage classes classes && staged convnext; } >"$dir/run.ini"
several convnext "4:tensor=2+zero=1 4:tensor=4"
{ stage classes classes && echo '[model]' && plain vit 26 && echo 'classes.labels = 6'; } >"$dir/run.ini"
several vit "4:tensor=2+zero=3 4:tensor=4"
saves=2
{ stage pairs clip && towers clip 26; } >"$dir/run.ini"
several clip "2:tensor=2 4:tensor=2+zero=3 4:tensor=4"
again clip.one 2 --tensor 2
again clip.2:tensor=2 1
saves=0
{ stage pairs siglip && towers siglip 25; } >"$dir/run.ini"
several siglip "2:tensor=2 4:tensor=2+zero=3 4:tensor=4"
{ stage classes mae && echo '[model]' && plain vit-mae 26 && printf 'mae.layers = 1\nmae.hidden = 32\nmae.heads = 4\n'; } >"$dir/run.ini"
several mae "2:tensor=2 4:tensor=2+zero=3 4:tensor=4"
# Statistics of few pictures magnify the last bits: eight of them here, and a small rate.
{ stage classes moco && printf 'moco_hidden = 48\nmoco_dim = 16\n[model]\nvision.init_std = 0.1\n' && plain vit 26; } |
    sed 's/^lr = .*/lr = 1e-5/; s/^batch = .*/batch = 16/' >"$dir/run.ini"
several moco "4:tensor=2 4:tensor=4"

# --- what cannot be divided ---
{ stage classes classes && staged swin 2; } >"$dir/run.ini"
refused "--ranks 4 --tensor 4" "vision.stage_heads = 2 of stage 1 do not divide among 4 ranks (tensor)"
refused "--ranks 2 --tensor 2 --sequence-parallel" "sequence_parallel: with objective = classes ranks share the batch and divide matrices (tensor) alone"
{ stage pairs clip && towers clip 26 | sed 's/^heads = 4/heads = 1/'; } >"$dir/run.ini"
refused "--ranks 2 --tensor 2" "heads = 1 do not divide among 2 ranks (tensor)"

finish 45

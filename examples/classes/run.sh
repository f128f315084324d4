#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Draws pictures of one thing each, and tells which of 21 it is by a small ViT that learns from 1,050 of them and is asked about 2,000 others.
#
# usage: run.sh BUILD [DIR [swin | mae]]
#   BUILD   the build directory, or the prefix that loong-flow was installed below
#   DIR     where everything goes (default ./classes-run); run again with the same DIR to continue
#   swin    a small Swin in place of the ViT, in a DIR of its own
#   mae     210 labels, larger things: a ViT from scratch, and one that has restored hidden patches of 8,000 pictures; in a DIR of its own
# SEED=K in the environment makes other pictures and other random numbers; ../seeds.sh does that several times. FONT=FILE draws letters of
# another font. It needs a C compiler, FreeType, libpng and DejaVu Sans Bold (Debian: libfreetype-dev libpng-dev fonts-dejavu-core).
# DIR/numbers has the results.
#
# Exit codes: 0 done, and at least half of the answers are right (a guess is right once in 21), with mae more than from
# scratch; 1 failed; 2 usage; 75 stopped at a good checkpoint (run it again).
set -u
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../common.sh"
[ $# -ge 1 ] && [ $# -le 3 ] && case ${3:-swin} in swin | mae) ;; *) false ;; esac || { usage 5 12 >&2; exit 2; }
find_build "$1"
dir=${2:-classes-run} seed=${SEED:-1} pipeline=${3:-pipeline}.ini

for font in ${FONT:+"$FONT"} /usr/share/fonts/truetype/dejavu/DejaVuSans-Bold.ttf /usr/share/fonts/dejavu-sans-fonts/DejaVuSans-Bold.ttf; do
    [ ! -r "$font" ] || break
done
[ -r "$font" ] || die "DejaVuSans-Bold.ttf is not there (Debian: apt-get install fonts-dejavu-core); or name a font: FONT=FILE"
flags=$(pkg-config --cflags --libs freetype2 libpng) ||
    die "FreeType and libpng are needed to draw (Debian: apt-get install pkg-config libfreetype-dev libpng-dev)"
mkdir -p "$dir" && cp "$here/$pipeline" "$dir/pipeline.ini" && cp -R "$here/processor" "$here/processor4" "$dir/" && cd "$dir" || exit 1
times >times.txt
cpu=$(cpu_of times.txt)
if [ ! -f drawn ]; then
    # shellcheck disable=SC2086
    "${CC:-cc}" -std=gnu11 -O2 -o draw "$here/../scenes/draw.c" $flags -lm || die "draw.c could not be compiled"
    if [ "$pipeline" = mae.ini ]; then
        ./draw --large "$font" . "$seed" 8000
    else
        ./draw --classes "$font" . "$seed" 1050
    fi || exit 1
    : >drawn
fi

if [ "$pipeline" = mae.ini ]; then
    "$lf" run pipeline.ini --set "stage eyes.seed=$seed" --set "stage scratch.seed=$seed" --set "stage tuned.seed=$seed" || exit $?
    held="held-scratch held-tuned"
else
    "$lf" run pipeline.ini --set "stage told.seed=$seed" || exit $?
    held=held
fi

times >times.txt
for stage in $held; do
    echo "$stage $(last "$stage" label_accuracy)"
done | awk -v s="$(($(cpu_of times.txt) - cpu))" '
    {
        if ($2 == "") { missing = 1; exit }
        of = $1
        sub(/^held/, "right about unseen pictures", of)
        sub(/-scratch/, ", from scratch", of)
        sub(/-tuned/, ", after restoring", of)
        printf "%s %.1f %%\n", of, 100 * $2
        printf "%s\t%.4f\n", of, $2 >"numbers"
        before = x
        x = $2
    }
    END {
        if (missing) exit 1
        printf "CPU time %dm%02ds\n", s / 60, s % 60
        exit !(NR > 1 ? x > before : x >= 0.5) }' || die "the model has not learned to tell the things apart"

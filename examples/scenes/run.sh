#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Draws 22,000 scenes, makes a model that sees from nothing with the pipeline beside it, and tells how often its answers are right.
#
# usage: run.sh BUILD [DIR]
#   BUILD   the build directory, or the prefix that loong-flow was installed below
#   DIR     where everything goes (default ./scenes-run); run again with the same DIR to continue
# SEED=K in the environment makes other scenes and other random numbers; ../seeds.sh does that several times. FONT=FILE draws letters of
# another font. It needs a C compiler, FreeType, libpng and DejaVu Sans Bold (Debian: libfreetype-dev libpng-dev fonts-dejavu-core).
# DIR/numbers has the results.
#
# Exit codes: 0 done, and the model sees: at least 80 % of the answers are right, at most 35 % without pictures, and with pictures of other
# scenes no more than 5 points beside that; 1 failed; 2 usage; 75 stopped at a good checkpoint (run it again).
set -u
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../common.sh"
[ $# -ge 1 ] && [ $# -le 2 ] || { usage 5 10 >&2; exit 2; }
find_build "$1"
dir=${2:-scenes-run} seed=${SEED:-1}

for font in ${FONT:+"$FONT"} /usr/share/fonts/truetype/dejavu/DejaVuSans-Bold.ttf /usr/share/fonts/dejavu-sans-fonts/DejaVuSans-Bold.ttf; do
    [ ! -r "$font" ] || break
done
[ -r "$font" ] || die "DejaVuSans-Bold.ttf is not there (Debian: apt-get install fonts-dejavu-core); or name a font: FONT=FILE"
flags=$(pkg-config --cflags --libs freetype2 libpng) ||
    die "FreeType and libpng are needed to draw (Debian: apt-get install pkg-config libfreetype-dev libpng-dev)"
mkdir -p "$dir" && cp -R "$here/pipeline.ini" "$here/chat.jinja" "$here/processor" "$dir/" && cd "$dir" || exit 1
times >times.txt
cpu=$(cpu_of times.txt)
if [ ! -f drawn ]; then
    # shellcheck disable=SC2086
    "${CC:-cc}" -std=gnu11 -O2 -o draw "$here/draw.c" $flags -lm || die "draw.c could not be compiled"
    ./draw "$font" . "$seed" || exit 1
    : >drawn
fi

set --
for stage in eyes words alone align find tune; do set -- "$@" --set "stage $stage.seed=$seed"; done
"$lf" run pipeline.ini "$@" || exit $?

# right STAGE FILE: the share of the questions of FILE.jsonl that are answered rightly, and its standard error.
right() { echo "$(last "$1" "$2.exact_match") $(last "$1" "$2.exact_match_stderr")"; }
times >times.txt
# shellcheck disable=SC2046
awk -v s="$(($(cpu_of times.txt) - cpu))" -v held="$(right held held)" -v shuffled="$(right shuffled shuffled)" -v blind="$(right blind held-blind)" '
    function tell(what, text) { printf "%-42s %5.1f %%  (standard error %.1f %%)\n", text, 100 * what[1], 100 * what[2]
        printf "%s\t%.4f\n", text, what[1] >"numbers" }
    BEGIN {
        if (split(held, h, " ") != 2 || split(shuffled, o, " ") != 2 || split(blind, b, " ") != 2) exit 1
        tell(h, "right answers, scenes never trained")
        tell(o, "... with pictures of other scenes")
        tell(b, "... of the decoder without pictures")
        d = o[1] - b[1]
        printf "CPU time %dm%02ds\n", s / 60, s % 60
        exit !(h[1] >= 0.8 && b[1] <= 0.35 && d <= 0.05 && d >= -0.05) }' || die "the model does not see as well as it should"
echo "loong-flow report, in $PWD, writes a page with pictures, questions and answers"

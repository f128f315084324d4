#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What examples/scenes draws: the same bytes for the same seed, answers that are asked for equally often, and no combination that is
# held out among the scenes to train on. tests/lint/examples.sh plans its pipeline; scenes_long.sh runs it.
. "$LF_SRCDIR/tests/stage/lib.sh"
example=$LF_SRCDIR/examples/scenes
flags=$(pkg-config --cflags --libs freetype2 libpng 2>/dev/null) || skip_all "FreeType and libpng are not here to draw with"
font=${FONT:-/usr/share/fonts/truetype/dejavu/DejaVuSans-Bold.ttf}
[ -r "$font" ] || font=/usr/share/fonts/dejavu-sans-fonts/DejaVuSans-Bold.ttf
[ -r "$font" ] || skip_all "DejaVu Sans Bold is not here to draw with"
# shellcheck disable=SC2086
must "${CC:-cc}" -std=gnu11 -O2 -Wall -Wextra -Werror -o "$dir/draw" "$example/draw.c" $flags -lm
draw() { # draw NAME ARGS...
    _name=$1
    shift
    "$dir/draw" "$font" "$dir/$_name" "$@" >"$dir/stdout" 2>"$dir/err"
    rc=$?
}

draw one 1 60
is "$rc $(find "$dir/one/pictures" -name '[0-9]*.png' | wc -l | tr -d ' ') $(find "$dir/one/pictures" -name 'held-*.png' | wc -l | tr -d ' ')" "0 60 2000" \
    "60 scenes to train on, 2,000 that are held out"
draw again 1 60
diff -r "$dir/one" "$dir/again" >"$dir/err" 2>&1
ok $? "the same seed, the same bytes" "$dir/err"
draw other 2 60
[ $rc -eq 0 ] && ! cmp -s "$dir/one/held.jsonl" "$dir/other/held.jsonl" && ! cmp -s "$dir/one/pictures/00000.png" "$dir/other/pictures/00000.png"
ok $? "another seed, other scenes"

# Each kind of question has each of its answers as often as any other, within one.
cat >"$dir/balance.awk" <<'E2'
{ q = $0; sub(/.*"text":"/, "", q); split(q, w, " "); a = $0; sub(/.*"target":"/, "", a); sub(/".*/, "", a)
  last = split(a, v, " "); kind = w[1] " " w[2]; a = w[1] == "How" ? v[3] : w[1] == "Where" ? v[last - 1] " " v[last] : v[last]
  n[kind SUBSEP a]++ }
END { for (k in n) { split(k, p, SUBSEP); answers[p[1]]++; if (!(p[1] in min) || n[k] < min[p[1]]) min[p[1]] = n[k]; if (n[k] > max[p[1]]) max[p[1]] = n[k] }
  for (k in answers) { if (max[k] - min[k] > 1) bad = 1; kinds++ }
  exit bad || kinds != 5 || answers["Which character"] != 18 || answers["What colour"] != 6 }
E2
kinds() { sed 's/.*"text":"//; s/ .*//' "$1" | sort | uniq -c | awk '{ print $2 ":" $1 }' | tr '\n' ' '; }
sed 's/ is red"/ is blue"/' "$dir/one/held.jsonl" >"$dir/planted"
awk -f "$dir/balance.awk" "$dir/one/held.jsonl" && ! awk -f "$dir/balance.awk" "$dir/planted"
ok $? "answers are asked for equally often: $(kinds "$dir/one/held.jsonl")"
sed 's/,"images":\["[^"]*"\]//; s/{"type":"image"},//' "$dir/one/held.jsonl" >"$dir/a"
sed 's/,"images":\["[^"]*"\]//; s/{"type":"image"},//' "$dir/one/shuffled.jsonl" >"$dir/b"
cmp -s "$dir/a" "$dir/b" && cmp -s "$dir/a" "$dir/one/held-blind.jsonl" &&
    [ "$(paste "$dir/one/held.jsonl" "$dir/one/shuffled.jsonl" | grep -c '\(held-[0-9]*\.png\).*\1')" -eq 0 ]
ok $? "the same questions with other pictures, and without"

# Thing, colour and place whose numbers sum to a multiple of six are never trained; draw.c has the order.
cat >"$dir/held.awk" <<'E2'
BEGIN { n = split("circle square triangle A C E F H K L P T U X Y 2 3 4 5 7 9", l, " "); for (i = 1; i <= n; i++) thing[l[i]] = i - 1
  n = split("red green blue yellow purple black", l, " "); for (i = 1; i <= n; i++) colour[l[i]] = i - 1
  place["top left"] = 0; place["top right"] = 1; place["bottom left"] = 2; place["bottom right"] = 3 }
{ s = $0; sub(/.*"assistant","content":"/, "", s); sub(/".*/, "", s); n = split(s, part, ", ")
  for (i = 1; i <= n; i++) {
      m = split(part[i], w, " "); t = c = p = ""
      for (j = 1; j <= m; j++) { if (w[j] in thing) t = w[j]; if (w[j] in colour) c = w[j]; if (w[j] == "at") p = w[j + 2] " " w[j + 3] }
      if (t == "" || c == "" || !(p in place) || (thing[t] + colour[c] + place[p]) % 6 == 0) bad = 1
      seen++
  } }
END { exit bad || seen < NR }
E2
echo '{"role":"assistant","content":"the circle is red at the top left"}' >"$dir/planted"
awk -f "$dir/held.awk" "$dir/one/captions.jsonl" && awk -f "$dir/held.awk" "$dir/one/things.jsonl" && ! awk -f "$dir/held.awk" "$dir/planted"
ok $? "no combination that is held out is trained"
[ "$(wc -l <"$dir/one/captions.jsonl")" -eq 60 ] && [ "$(wc -l <"$dir/one/things.jsonl")" -eq 60 ] && [ "$(wc -l <"$dir/one/blind.jsonl")" -eq 180 ] && ! grep -q image "$dir/one/blind.jsonl"
ok $? "captions with pictures; captions and questions without"

# --- mistakes ---
"$dir/draw" "$example/draw.c" "$dir/bad" >"$dir/stdout" 2>"$dir/err"
rc=$?
is "$rc $(cat "$dir/err")" "1 draw: $example/draw.c: FreeType cannot read it as a font" "a file that is no font"
"$dir/draw" >"$dir/stdout" 2>"$dir/err"
is "$? $(cat "$dir/err")" "2 usage: draw [--classes | --large | --captions] FONT DIR [SEED [SCENES]]" "no arguments"
draw bad 1 0
is "$rc $(cat "$dir/err")" "1 draw: SCENES is 1 to 99999" "no scenes"
sh "$example/run.sh" "$dir/nothing" >"$dir/stdout" 2>"$dir/err"
is "$? $(cat "$dir/err")" "1 scenes: there is no directory $dir/nothing" "run.sh: BUILD is not there"
# --- one thing each, for examples/classes ---
"$dir/draw" --classes "$font" "$dir/told" 1 1100 >"$dir/stdout" 2>"$dir/err"
is "$? $(wc -l <"$dir/told/all.jsonl") $(wc -l <"$dir/told/few.jsonl") $(wc -l <"$dir/told/held.jsonl")" "0 1100 1050 2000" \
    "1,100 pictures of one thing, 1,050 of them with labels to learn from, 2,000 that are held out"
is "$(sed 's/.*"label"://; s/}//' "$dir/told/few.jsonl" | sort | uniq -c | awk '{ print $1 }' | sort -u) $(sed 's/.*"label"://; s/}//' "$dir/told/held.jsonl" | sort -u | wc -l)" \
    "50 21" "each of 21 things equally often"

finish 13

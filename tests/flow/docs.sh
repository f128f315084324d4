#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What is made from the option tables: man page and completion files know every command, option and exit code, and shells
# can use them.
. "$LF_SRCDIR/tests/flow/lib.sh"
F=$LF_BUILDDIR/loong-flow
"$F" completion man >part
awk -v part=part '$0 == "@COMMANDS@" { while ((getline line < part) > 0) print line; next } { print }' \
    "$LF_SRCDIR/flow/loong-flow.1.in" >want.1
cmp -s want.1 "$LF_BUILDDIR/flow/loong-flow.1"
ok $? "the built man page is what the program prints between its prose"
sed 's/\\-/-/g; s/\\(aq/'"'"'/g; s/\\fR//g; s/\\fB//g' want.1 >m
for c in $("$F" --help | sed -n 's/^  \([a-z]*\) .*/\1/p'); do
    missing=
    grep -q "^.SS $c" m || missing=" (its section)"
    for o in $("$F" "$c" --help | sed -n 's/^  \(--[a-z-]*\).*/\1/p'); do
        sed -n "/^.SS $c\( \|\$\)/,/^.S[SH]/p" m | grep -q "^.B $o\( \|\$\)" ||
            sed -n '/^.SH COMMON OPTIONS/,/^.SH EXIT/p' m | grep -q "^.B $o\( \|\$\)" || missing="$missing $o"
    done
    [ -z "$missing" ]; ok $? "man page: $c" "missing:$missing"
done
# Help: every command says what its words are and shows how to use it; options of stages stand in groups.
lacking=
for c in $("$F" --help | sed -n 's/^  \([a-z]*\) .*/\1/p'); do
    "$F" "$c" --help >h
    [ "$c" = version ] || grep -q "^    loong-flow $c" h || lacking="$lacking $c (example)"
    ! head -1 h | grep -q '[A-Z]' || grep -q '^Words:' h || lacking="$lacking $c (words)"
done
is "$lacking" "" "each command has examples, and tells its words"
"$F" launch --help >h
unlike h '--(daemon|node|probe)( |$)' "options between programs are not shown"
unlike h '\(-n\).*\(-n\)' "a short name stands once"
"$F" status --help >h
like h '^  --since WHEN ' "a text has a word for what it is"
is "$("$LF_BUILDDIR/stages/lf-pretrain" --help | sed -n 's/^\([A-Z][a-z ]*\):$/\1/p' | tr '\n' ',')" \
    "Data,Model,Objective,Length and batch,Learning rate and optimizer,Precision and memory,Averages of weights,Validation and logs,Saving,Samples while training,Running,Command line," \
    "options of a stage by groups"
"$F" help pretrain >h
"$LF_BUILDDIR/stages/lf-pretrain" --help | cmp -s - h
ok $? "help of a kind is the --help of its program"
"$F" help lr >h
is "$(grep -c '^kind =.* pretrain' h) $(grep -c '^  --lr=X ' h) $(grep -c '^  Identity: ' h)" "1 5 5" "help of an option, once for each meaning"
"$F" help seq-length >h
like h '^kind = pretrain sft rm dpo$' "with the kinds that share it"
runs 2 "$F" help max_steps
like err 'is no command, kind of stage, option or key; here it is "steps"' "and knows names of others"
"$F" help memory >h
like h '^memory is a key of \[resources\], \[stage NAME\]; `man loong-flow`' "a key of a section"
"$F" help keep >h
is "$(grep -c '^kind = ' h) $(grep -c '^keep is a key of \[sweep\]' h)" "1 1" "one that is an option, too"
runs 2 "$F" help shceduler
like err 'did you mean "scheduler"\?' "and one that is misspelled"
runs 2 "$F" completion man nothing
for e in 0 1 2 4 5 6 7 8 9 75; do
    sed -n '/^.SH EXIT/,/^.SH FILES/p' m | grep -q "^.B $e\$" || missing="$missing $e"
done
[ -z "$missing" ]; ok $? "man page: exit codes" "missing:$missing"
"$F" --help >h
like h '^  75 +stopped' "--help lists them too"

"$F" completion >c.bash
cmp -s c.bash "$LF_BUILDDIR/flow/loong-flow.bash"; ok $? "the built bash file is what the program prints"
if command -v bash >/dev/null; then
    # In a project with runs: what is in it is completed, too.
    mkdir -p comp bin && ln -s "$LF" bin/loong-flow
    (cd comp && pipeline && "$LF" run --quiet && "$LF" run --quiet --set first.factor=2 && "$LF" tag latest best) || exit 1
    cat >try.bash <<'END'
. ../c.bash
t() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _loong_flow loong-flow; echo "${COMPREPLY[*]}"; }
t loong-flow stat
t loong-flow status --col
t loong-flow metrics --format pl
t loong-flow status demo
t loong-flow gc --keep ""
t loong-flow metrics ""
t loong-flow metrics demo-1/s
t loong-flow metrics first --key ""
t loong-flow logs --run demo-1 l
t loong-flow logs --run = demo-1 l
t loong-flow metrics first --key = l
t loong-flow metrics first --key =
t loong-flow metrics first --key score,l
t loong-flow status --all -o +first.fac
t loong-flow run --until s
t loong-flow run --set second.fac
t loong-flow resume demo-1 --accept fac
t loong-flow init p
t loong-flow status --state pu
t loong-flow help fact
t loong-flow finish s
t loong-flow rerun last s
t loong-flow sweep demo-2
t loong-flow run pipe
t loong-flow status nothing
t loong-flow nothing ""
cd / && t loong-flow metrics ""
END
    (cd comp && PATH=$T/bin:$PATH bash ../try.bash) >o 2>&1
    cat >want <<'END'
status
--columns
plot
demo-1 demo-2
demo-1 demo-2 latest best
demo-1 demo-2 latest best first second last
demo-1/second
loss score
last
last
loss
loss score
score,loss
+first.factor
second
second.factor=
factor
pretrain
purged
factor
second
second
demo-2
pipeline.ini



END
    sort_words() { awk '{ n = split($0, w, " "); for (i = 1; i <= n; i++) for (k = i + 1; k <= n; k++) if (w[k] < w[i]) { x = w[i]; w[i] = w[k]; w[k] = x } line = ""; for (i = 1; i <= n; i++) line = line " " w[i]; print line }' "$1"; }
    sort_words o >o.sorted
    sort_words want | diff - o.sorted >d
    ok $? "bash completes commands, options, choices, runs, stages, metrics, settings, uses and files" "$(cat d)"
else
    skip "bash completes commands, options, choices, runs, stages, metrics, settings, uses and files" "no bash"
fi
"$F" completion zsh >c.zsh
if command -v zsh >/dev/null; then zsh -n c.zsh; ok $? "zsh can read its file"; else skip "zsh can read its file" "no zsh"; fi
"$F" completion fish >c.fish
if command -v fish >/dev/null; then fish -n c.fish; ok $? "fish can read its file"; else skip "fish can read its file" "no fish"; fi
for f in c.zsh c.fish; do
    missing=
    for c in $("$F" --help | sed -n 's/^  \([a-z]*\) .*/\1/p'); do grep -q "[ ']$c[ :')]" $f || missing="$missing $c"; done
    [ -z "$missing" ]; ok $? "$f has every command" "missing:$missing"
done
is "$(sed "s/'\\\\''//g" c.zsh | tr -cd "'" | wc -c | awk '{ print $1 % 2 }')" 0 "quotes in the zsh file come in pairs"
runs 2 "$F" completion tcsh
finish 57

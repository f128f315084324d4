#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# README.md, CONTRIBUTING.md, SECURITY.md and docs/: every code block carries a tag and does what
# its tag says (book.awk lists the tags); every link between Markdown files leads somewhere;
# README.md stays short.
#
# Blocks of one page that run do so in one scratch directory, in their order, each in the directory
# where the one before it ended. Tests have seconds, readers have minutes: the settings of
# book.smaller go to `loong-flow` as --set. `given` below makes what a page asks a reader to bring.
# LF_PAGES="README.md docs/guide.md" looks at these pages only.
. "$LF_SRCDIR/tests/tap/shm.sh"
. "$LF_SRCDIR/tests/flow/lib.sh"
. "$LF_SRCDIR/tests/stage/light_lib.sh"
light_flow
AWK=$LF_SRCDIR/tests/flow/book.awk
REAL=$LF
LF_MODELS_DIR=$LF_SRCDIR/models OMP_NUM_THREADS=1
export LF_MODELS_DIR OMP_NUM_THREADS

# ---- the place that pages call PREFIX

PREFIX=$T/prefix
mkdir -p "$PREFIX/bin" "$PREFIX/share/loong-flow" "$PREFIX/libexec/loong-flow"
for d in examples models; do ln -s "$LF_SRCDIR/$d" "$PREFIX/share/loong-flow/$d"; done
for p in "$LF_LIBEXEC"/lf-*; do
    [ ! -x "$p" ] || ln -s "$p" "$PREFIX/libexec/loong-flow/"
done
# Commands that take --set get the settings of book.smaller for this pipeline. Its lines are: the
# name of a pipeline, a section (with : for the blank), KEY=VALUE.
cat >"$PREFIX/bin/loong-flow" <<'EOF'
#!/bin/sh
case ${1:-} in
run | plan | validate | submit | resume | explain)
    while read -r pipeline section setting; do
        section=$(echo "$section" | tr : ' ')
        grep -qx "name = $pipeline" pipeline.ini && grep -qxF "[$section]" pipeline.ini &&
            set -- "$@" --set "$section.$setting"
    done <"$LF_SRCDIR/tests/flow/book.smaller"
    ;;
esac
exec "$REAL" "$@"
EOF
chmod 755 "$PREFIX/bin/loong-flow"
export PREFIX REAL

text() { # text LINES: something that a model can learn from
    awk -v n="$1" 'BEGIN {
        split("the a one this that", d); split("river house light stone bird", s)
        split("holds finds leaves follows keeps", v); srand(7)
        for (i = 1; i <= n; i++) {
            printf "%s %s %s %s %s.\n", d[r()], s[r()], v[r()], d[r()], s[r()]
            if (i % 4 == 0) print ""
        }
    }
    function r() { return 1 + int(rand() * 5) }'
}
# A pipeline that INI pieces are laid over, with the stages that pages speak of.
mkdir "$T/piece"
text 40 >"$T/piece/corpus.txt"
cat >"$T/piece/base.ini" <<'EOF'
[model]
preset = tiny-llama
vocab = 512
[stage tokenize]
kind = tokenize
inputs = corpus.txt
doc_split = blank
vocab_size = 512
[stage train]
kind = pretrain
data = ${stage:tokenize.shards}
seq_length = 64
batch = 8
micro_batch = 1
steps = 4
lr = 1e-3
[stage generate]
kind = generate
checkpoint = ${stage:train.checkpoint}
tokenizer = ${stage:tokenize.tokenizer}
prompt = the
[stage eval]
kind = eval
checkpoint = ${stage:train.checkpoint}
tokenizer = ${stage:tokenize.tokenizer}
data = ${stage:tokenize.shards}
split = train
EOF
# given PAGE: what its reader is asked to bring, in the current directory.
jsonl() { awk -v RS= '{ gsub(/\n/, " "); printf "{\"text\": \"%s\"}\n", $0 }'; }
# A run that is done, with its export in the form of Hugging Face; made once.
first() {
    [ ! -d "$T/first" ] || return 0
    mkdir "$T/first" && cp "$T/piece/corpus.txt" "$T/first/" || return
    { printf '[pipeline]\nname = first\n'; cat "$T/piece/base.ini"; cat <<'EOF'
[stage out]
kind = convert
from = ${stage:train.checkpoint}
to = hf
tokenizer = ${stage:tokenize.tokenizer}
EOF
    } >"$T/first/pipeline.ini"
    (cd "$T/first" && "$REAL" run --until out --set 'stage train.steps=2')
}
given() {
    case $1 in
    docs/tutorial-pretrain.md)
        mkdir books notes
        text 2000 | jsonl >books/1.jsonl
        text 1000 | jsonl >notes/1.jsonl
        ;;
    docs/tutorial-finetune.md)
        first || return
        out=$(cd "$T/first" && "$REAL" status -o name,dir | awk '$1 == "out" { print $2 }')
        cp -R "$out/out/model" model
        chmod -R u+w model
        cat >model/chat_template.jinja <<'EOF'
{%- for m in messages %}{{ m.role + ': ' + m.content + '<|endoftext|>' }}{% endfor %}
{%- if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}
EOF
        mkdir texts && text 400 >texts/a.txt
        ;;
    docs/tutorial-preferences.md)
        text 2000 | sed 's/\.$//' | awk '
            NF { printf "w%s\n   n 1: %s and %s\n", substr("abcdefgh", 1 + NR % 8, 1), $0, $0 }' \
            >words.dict
        ;;
    docs/tutorial-pictures.md)
        cp -R "$LF_SRCDIR/tests/golden/vlm/run/llava" model && chmod -R u+w model && mkdir pictures || return
        cp "$LF_SRCDIR/tests/golden/media/images/rgb8.png" pictures/a.png
        cp "$LF_SRCDIR/tests/golden/media/images/444.jpg" pictures/b.jpg
        ;;
    docs/tutorial-evaluate.md) first && cp -R "$T/first" first ;;
    *) text 4000 >corpus.txt ;;
    esac
}

# ---- the stand-ins that check commands without doing anything

STUB=$T/stub
mkdir -p "$STUB/bin" "$STUB/home"
mine="PATH=$PATH; complain() { echo \"\$*\" >>\"\$STUB/complaints\"; exit 0; }"
# Options are judged by the program's own parser, which prints its help where all of them are right.
for p in "$REAL" "$PREFIX"/libexec/loong-flow/lf-*; do
    cat >"$STUB/bin/${p##*/}" <<EOF
#!/bin/sh
$mine
said="${p##*/} \$*" help=--help
for w in "\$@"; do
    shift
    [ "\$w" != -- ] || { set -- "\$@" \$help; help=; }
    set -- "\$@" "\$w"
done
"$p" "\$@" \$help >"\$STUB/out" 2>&1 </dev/null || complain "\$said: \$(head -n 1 "\$STUB/out")"
EOF
done
cat >"$STUB/bin/make" <<EOF
#!/bin/sh
$mine
while [ \$# -gt 0 ]; do
    case \$1 in
    -C) shift ;;
    -* | *=*) ;;
    *) grep -q "^\$1: *" "\$LF_BUILDDIR/Makefile" || complain "make: no target \$1" ;;
    esac
    shift
done
EOF
cat >"$STUB/autogen.sh" <<EOF
#!/bin/sh
$mine
case \${1:-} in
"" | --packages | -h | --help) ;;
quickstart | check)
    for o in "\$@"; do
        case \$o in
        --enable-* | --with*)
            grep -q -e "^ *\$o" "\$STUB/configure.help" || complain "configure: no option \$o"
            ;;
        -*)
            grep -q -e "\$o" "\$LF_SRCDIR/examples/quickstart/run.sh" ||
                complain "quickstart: no option \$o"
            ;;
        esac
    done
    ;;
*) complain "autogen.sh: no command \$1" ;;
esac
EOF
cat >"$STUB/configure" <<EOF
#!/bin/sh
$mine
for o in "\$@"; do
    case \$o in
    --prefix=* | [A-Z]*=*) ;;
    *) grep -q -e "^ *\${o%%=*}" "\$STUB/configure.help" || complain "configure: no option \$o" ;;
    esac
done
EOF
"$LF_SRCDIR/configure" --help 2>/dev/null |
    sed 's/^\( *--\)with-\([a-z]*\)/&\n\1without-\2/' >"$STUB/configure.help"
# Tools of others that pages name; what they do is no promise of ours.
for c in apt-get cat cp git h5dump ln module mv python3 rm sh; do
    printf '#!/bin/sh\n' >"$STUB/bin/$c"
done
printf '#!/bin/sh\nexec %s -p "$@"\n' "$(command -v mkdir)" >"$STUB/bin/mkdir"
chmod 755 "$STUB"/bin/* "$STUB/autogen.sh" "$STUB/configure"
export STUB

# parse_sh BODY: complaints about its commands, nothing when they are well.
parse_sh() {
    rm -f "$STUB/complaints"
    (cd "$STUB" && HOME=$STUB/home PATH=$STUB/bin /bin/sh -eu "$1") >"$T/parse.out" 2>&1 ||
        head -n 3 "$T/parse.out"
    [ ! -f "$STUB/complaints" ] || cat "$STUB/complaints"
}

# parse_ini BODY ARGUMENT: complaints of validate.
parse_ini() {
    cd "$T/piece" || return
    if [ "$2" = site.ini ]; then
        cp "$1" site.ini && cp base.ini pipeline.ini
        LF_SITE_CONFIG=$T/piece/site.ini "$REAL" validate pipeline.ini >out 2>&1 || cat out
    else
        if grep -q '^\[pipeline\]' "$1"; then
            sed 's/^\[pipeline\]$/&\ninclude = base.ini/' "$1" >pipeline.ini
        else
            { printf '[pipeline]\ninclude = base.ini\n'; cat "$1"; } >pipeline.ini
        fi
        "$REAL" validate pipeline.ini >out 2>&1 || cat out
    fi
    cd "$T" || exit 99
}

# ---- one page

# blocks PAGE_FILE NAME: the index of its blocks, bodies below $T/blocks.
blocks() {
    rm -rf "$T/blocks" && mkdir "$T/blocks" || return
    awk -v out="$T/blocks" -v page="$2" -f "$AWK" "$1"
}
# links PAGE_FILE NAME ROOT: links that lead nowhere.
links() {
    awk '/^```/ { code = !code; next } !code' "$1" | grep -o '](\([^)]*\))' |
        sed 's/^](//; s/)$//; s/ ".*//' | while read -r l; do
            case $l in http://* | https://* | mailto:*) continue ;; esac
            file=${l%%#*} anchor=
            case $l in *"#"*) anchor=${l#*#} ;; esac
            target=$3/$(dirname "$2")/$file
            [ -n "$file" ] || target=$1
            [ -e "$target" ] || { echo "$2: $l: no such file"; continue; }
            [ -z "$anchor" ] || [ -d "$target" ] || slugs "$target" | grep -qx -e "$anchor" ||
                echo "$2: $l: no such heading"
        done
}
# The anchors that forges make of headings.
slugs() {
    awk '/^```/ { code = !code; next }
        !code && /^#+ / { sub(/^#+ /, ""); print tolower($0) }' "$1" |
        sed 's/[^a-z0-9 _-]//g; s/ /-/g'
}

# run_block N LINE: a shell block, in the directory where the block before it ended.
run_block() {
    { echo "trap 'pwd >$T/here' EXIT"; cat "$T/blocks/$1.body"; } >"$T/run.sh"
    (
        PATH=$PREFIX/bin:$PREFIX/libexec/loong-flow:$PATH
        cd "$(cat "$T/here")" && sh -eu "$T/run.sh"
    ) >"$T/run.out" 2>&1 </dev/null
    got=$?
    ok $got "$PAGE:$2: runs" "exit $got: $(tail -n 5 "$T/run.out" | tr '\n' '~')"
}
have_slurm() {
    (
        PATH=$PATH:/usr/sbin:/sbin
        for p in slurmctld slurmd munged sbatch; do command -v $p || exit 1; done
    ) >/dev/null
}
slurm_dir=
slurm_end() { LF_SLURM_DIR=$slurm_dir "$LF_SRCDIR/tests/flow/slurm-down" >/dev/null 2>&1; }
slurm_block() { # the same with a SLURM of two nodes
    if ! have_slurm; then
        skip "$PAGE:$2: runs under SLURM" "no SLURM here"
        return
    fi
    PATH=$PATH:/usr/sbin:/sbin
    if [ -z "$slurm_dir" ]; then
        slurm_dir=$(mktemp -d "${TMPDIR:-/tmp}/lf-slurm.XXXXXX") || exit 99
        trap 'slurm_end; cleanup' EXIT
        trap 'exit 143' HUP INT TERM
        env=$(LF_SLURM_DIR=$slurm_dir "$LF_SRCDIR/tests/flow/slurm-up" 2>"$T/slurm.log") || {
            skip "$PAGE:$2: runs under SLURM" "$(tail -n 1 "$T/slurm.log")"
            slurm_dir=
            return
        }
        eval "$env"
    fi
    run_block "$1" "$2"
}

n_run=0 n_parse=0 n_slurm=0 n_shown=0
page() { # page NAME
    PAGE=$1
    mkdir -p "$T/pages/$1" && (cd "$T/pages/$1" && given "$1") >"$T/given.out" 2>&1
    ok $? "$1: what its reader brings" "$(tail -n 3 "$T/given.out" | tr '\n' '~')"
    echo "$T/pages/$1" >"$T/here"
    blocks "$LF_SRCDIR/$1" "$1" >"$T/index"
    is "$(sed -n 's/^BAD.//p' "$T/index")" "" "$1: blocks have tags, lines have at most 100 columns"
    is "$(links "$LF_SRCDIR/$1" "$1" "$LF_SRCDIR")" "" "$1: links lead somewhere"
    grep -v '^BAD' "$T/index" >"$T/blocks/index"
    tab=$(printf '\t')
    while IFS=$tab read -r i line lang tag arg; do
        case $tag-$arg in
        run-- | slurm-- | parse-* | shown-*) ;;
        *) cp "$T/blocks/$i.body" "$(cat "$T/here")/$arg"; continue ;;
        esac
        case $tag in
        run) n_run=$((n_run + 1)); run_block "$i" "$line" ;;
        slurm) n_slurm=$((n_slurm + 1)); slurm_block "$i" "$line" ;;
        parse)
            n_parse=$((n_parse + 1))
            case $lang in
            sh) is "$(parse_sh "$T/blocks/$i.body")" "" "$1:$line: commands and options exist" ;;
            ini) is "$(parse_ini "$T/blocks/$i.body" "$arg")" "" "$1:$line: settings are valid" ;;
            esac
            ;;
        shown) n_shown=$((n_shown + 1)); echo "# shown only, $1:$line: $arg" ;;
        esac
    done <"$T/blocks/index"
}

# ---- the checks see what is planted

mkdir "$T/planted"
cat >"$T/planted/bad.md" <<'EOF'
# Bad

```sh
loong-flow status
```

<!-- perhaps -->
```sh
loong-flow status
```

    loong-flow status

<!-- shown -->
```text
nothing
```

[a](none.md) [b](#bad) [c](#worse) [d](bad.md#bad)
EOF
blocks "$T/planted/bad.md" bad.md >"$T/index"
is "$(sed -n 's/^BAD.bad.md:\([0-9]*\): \(.*\)/\1 \2/p' "$T/index" | sort -n)" \
    "3 a block without a tag on the line before it
8 a block without a tag on the line before it
12 a block by indentation: use a fence
15 shown without a reason" "blocks without a tag are seen"
is "$(links "$T/planted/bad.md" bad.md "$T/planted")" "bad.md: none.md: no such file
bad.md: #worse: no such heading" "links that lead nowhere are seen"
cat >"$T/planted/bad.sh" <<'EOF'
loong-flow status --all # this is right
loong-flow statsu
loong-flow status --al
lf-pretrain --stesp 3
make nothing
./autogen.sh chekc
./configure --without-nothing
EOF
is "$(parse_sh "$T/planted/bad.sh" | wc -l | tr -d ' ')" 6 \
    "commands and options that do not exist are seen"
echo 'no-such-tool' >"$T/planted/bad.sh"
is "$(parse_sh "$T/planted/bad.sh" | grep -c 'not found')" 1 "so is a program that nobody knows"
printf '[stage train]\nstesp = 3\n' >"$T/planted/bad.ini"
is "$(parse_ini "$T/planted/bad.ini" - | grep -c 'did you mean "steps"')" 1 \
    "so is a key that does not exist"

# ---- the book

book="README.md CONTRIBUTING.md SECURITY.md $(cd "$LF_SRCDIR" && ls docs/*.md)"
for p in ${LF_PAGES:-$book}; do page "$p"; done
echo "# blocks: $n_run run, $n_slurm slurm, $n_parse parsed, $n_shown shown"
if [ -z "${LF_PAGES:-}" ]; then
    [ "$(wc -l <"$LF_SRCDIR/README.md")" -le 120 ]; ok $? "README.md has at most 120 lines"
    (cd "$LF_SRCDIR" && find . -name .git -prune -o -name '*.md' -print) | sed 's/^\.\///' |
        while read -r p; do
            case $p in README.md | CONTRIBUTING.md | SECURITY.md | docs/* | *.*/*) continue ;; esac
            [ ! -e "$LF_SRCDIR/${p%%/*}/config.status" ] || continue # a build directory
            links "$LF_SRCDIR/$p" "$p" "$LF_SRCDIR"
        done >"$T/nowhere"
    is "$(cat "$T/nowhere")" "" "links of all other Markdown files lead somewhere"
fi
finish 116

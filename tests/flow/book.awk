# SPDX-License-Identifier: Apache-2.0
# The code blocks of one Markdown page, for tests/flow/book.sh.
#   awk -v out=DIR -v page=NAME -f book.awk PAGE.md
# DIR/N.body is the text of block N. Standard output has one line for each block, in columns that a
# tab separates: N, line of the fence, language, tag, argument.
# A page that breaks a rule gives lines "BAD<tab>PAGE:LINE: reason".
#
# The tag is an HTML comment on the line before the fence; forges do not show it:
#   <!-- run -->              a shell block that is executed
#   <!-- run: FILE -->        the text of FILE, for the blocks that are executed behind it
#   <!-- slurm -->            executed where a SLURM can be started
#   <!-- parse -->            a shell block whose commands are checked, or INI that is validated
#   <!-- parse: site.ini -->  INI that is validated as a site file
#   <!-- shown: REASON -->    neither; counted and printed
function bad(text) { printf "BAD\t%s:%d: %s\n", page, NR, text }
function tag_of(comment) {
    tag = arg = ""
    if (!match(comment, /^<!-- .* -->$/)) return
    comment = substr(comment, 6, length(comment) - 9)
    tag = comment
    sub(/:.*/, "", tag)
    if (comment ~ /: /) { arg = comment; sub(/^[^:]*: /, "", arg) }
    if (tag !~ /^(run|slurm|parse|shown)$/) tag = ""
}
inside && /^```/ { inside = 0; close(body); last = ""; next }
inside { print > body; next }
/^```/ {
    inside = 1
    n++
    body = out "/" n ".body"
    printf "" > body
    lang = substr($0, 4)
    tag_of(last)
    if (tag == "") bad("a block without a tag on the line before it")
    if (tag == "shown" && arg == "") bad("shown without a reason")
    if (lang == "") bad("a block without a language")
    if (tag == "parse" && lang !~ /^(sh|ini)$/) bad("only sh and ini can be parsed, not " lang)
    if (tag ~ /^(run|slurm)$/ && arg == "" && lang != "sh")
        bad("only sh can be executed, not " lang)
    printf "%d\t%d\t%s\t%s\t%s\n", n, NR, lang, tag, arg == "" ? "-" : arg
    next
}
/^~~~/ || /^ +```/ { bad("a fence is three backquotes at the beginning of a line") }
/^(    |\t)/ { bad("a block by indentation: use a fence") }
length($0) > 100 { bad("longer than 100 columns") }
{ last = $0 }
END { if (inside) bad("a fence that is not closed") }

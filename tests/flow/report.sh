#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `loong-flow report`: one page, whole, escaped, with the numbers that the other commands print.
. "$LF_SRCDIR/tests/flow/lib.sh"

# Elements that must be closed are; nothing is fetched; the file stands alone.
whole() { # FILE NAME
    for e in html body svg table details pre section div code h1 h2 h3 path; do
        open=$(grep -o "<$e[ >]" "$1" | wc -l) closed=$(($(grep -o "</$e>" "$1" | wc -l) + $(grep -o "<$e [^>]*/>" "$1" | wc -l)))
        [ "$open" -eq "$closed" ] || { ok 1 "$2: <$e> is closed" "$open opened, $closed closed"; return; }
    done
    ok 0 "$2: what is opened is closed"
    ! grep -Eq '(src|href) *=|url\(|@import|https?://|<script|<link' "$1"
    ok $? "$2: nothing is fetched"
    ! grep -Eq '(x|y|width|height|d|cx|cy)="[^"]*(nan|inf)' "$1"
    ok $? "$2: every coordinate is a number"
    if command -v xmllint >/dev/null; then
        xmllint --html --noout "$1" 2>&1 | grep -v 'Tag \(svg\|g\|path\|rect\|text\|title\|section\|tspan\|circle\|details\|summary\)' | grep -q 'error'
        [ $? -ne 0 ]; ok $? "$2: xmllint finds no error"
    fi
}
# What people read, without style and tags.
words() { sed 's/<style>.*<\/style>//; s/<[^>]*>/ /g' "$1" | tr -s ' '; }

pipeline
sed -i 's/^steps = 30/steps = 8/' pipeline.ini
"$LF" run >/dev/null 2>&1
runs 0 "$LF" report --output r.html
whole r.html "a finished run"
"$LF" plan --new >planned
size=$(sed -n 's/.*planned memory \([^:,]*\).*/\1/p' planned | head -1)
grep -q 'planned memory<th' r.html && grep -q "<td class=\"n\">$size</td>" r.html
ok $? "the planned memory is that of plan: $size"
words r.html >w
like w "run $(run_id)" "it names the run"
like w '3 of 3 stages done' "and counts its stages"
for s in first second last; do like w "$s" "stage $s is there"; done
last=$("$LF" metrics first --format csv | tail -n 1 | cut -d, -f2)
[ -n "$last" ] && grep -Eq "(^| )$last( |\$)" w
ok $? "the last value of a curve is the one that metrics prints ($last)"
sha=$(sed -n 's/.*"manifest_sha256":"\([0-9a-f]*\)".*/\1/p' loong-data/*/runs/*/first/1.1/done.json | head -n 1)
[ -n "$sha" ] && grep -q "$sha" r.html; ok $? "lineage has the manifest's hash"
sha=$(sed -n 's/.*"inputs":\[{[^]]*"sha256":"\([0-9a-f]*\)".*/\1/p' loong-data/*/runs/*/first/1.1/done.json | head -n 1)
[ -n "$sha" ] && grep -q "$sha" r.html; ok $? "and that of what it read"
like w 'steps = 8' "settings are the frozen ones"
runs 0 "$LF" report --output - ; cmp -s out r.html || grep -q '<svg' out; ok $? "- is standard output"

# A run that failed says so first, with the reason and what to do, and trusts no text.
"$LF" run --new --set first.fail_at=3 >o 2>&1
runs 0 "$LF" report --output f.html
whole f.html "a failed run"
words f.html >w
like w 'first: failed' "what failed"
like w 'loong-flow logs first' "where to look"
like f.html '&lt;b&gt;failed' "log text is escaped"
unlike f.html '<b>failed' "and never raw"
fail=$(grep -n 'class="card' f.html | head -n 1 | cut -d: -f1) graph=$(grep -n 'stage graph' f.html | head -n 1 | cut -d: -f1)
[ -n "$fail" ] && [ "$fail" -lt "$graph" ]; ok $? "before anything else"

# A changed setting is shown against the revision before.
"$LF" resume --set first.fail_at=0 --set first.note='a <i> & "b"' >o 2>&1
runs 0 "$LF" report --output c.html
whole c.html "a changed run"
like c.html 'Changed by revision 2' "what the second revision changed"
like c.html 'a &lt;i&gt; &amp; &quot;b&quot;' "values are escaped"

# Fifty stages, fan-out and fan-in, edges over many columns.
mkdir many && cd many || exit 99
{
    echo x >in.txt
    printf '[pipeline]\nname = many\njobs = 4\n[resources]\ntime_limit = 1h\nmemory = 1G\n[kind work]\nsteps = 1\nstep_time = 0\n[stage s0]\nkind = work\ninput = in.txt\n'
    i=1
    while [ $i -lt 50 ]; do
        printf '[stage s%d]\nkind = work\ninput = ${stage:s%d}\n    ${stage:s0.result}\n' $i $(((i - 1) / 2))
        i=$((i + 1))
    done
} >pipeline.ini
"$LF" validate >/dev/null 2>err; ok $? "fifty stages are valid" "$(cat err)"
"$LF" run --until s4 >/dev/null 2>&1
runs 0 "$LF" report --output r.html
whole r.html "fifty stages"
is "$(grep -c 'class="box s-' r.html | awk '{ print ($1 >= 50) }')" 1 "all have a box"
words r.html >w
like w '/ 1h00m' "the time that was asked for is beside the time that was used"
like w '/ 1.0 GiB' "and the memory"
# No two boxes of the graph lie over each other.
dup=$(sed -n '/stage graph/,/<\/svg>/p' r.html | grep -o '<rect class="box[^>]*' | sed 's/.*x="\([0-9]*\)" y="\([0-9]*\)".*/\1 \2/' | sort | uniq -d | wc -l)
is "$dup" 0 "no box covers another"
finish_min 40 # one fewer for each page without xmllint

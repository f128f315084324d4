#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `loong-flow report`: one page, whole, escaped, with the numbers that the other commands print.
. "$LF_SRCDIR/tests/flow/lib.sh"

CHECK=$LF_BUILDDIR/tests/flow/report_check
# Elements are closed in their order, nothing is fetched, the file stands alone.
whole() { # FILE NAME
    "$CHECK" page "$1" >check.out; ok $? "$2: whole, and nothing is fetched" "$(cat check.out)"
    # xmllint is older than some elements of HTML
    if command -v xmllint >/dev/null; then
        xmllint --html --noout "$1" 2>&1 | grep -v 'Tag \(svg\|g\|path\|rect\|text\|title\|section\|tspan\|circle\|details\|summary\|figure\|figcaption\)' | grep -q 'error'
        [ $? -ne 0 ]; ok $? "$2: xmllint finds no error"
    fi
}
# The numbers of a stage are those that metrics prints.
same() { # FILE STAGE NAME
    "$LF" metrics "$2" --json >metrics.json && "$CHECK" same "$1" metrics.json >check.out
    ok $? "$3" "$(cat check.out)"
}
# What people read, without style and tags.
words() { sed '/<style>/,/<\/style>/d; /<script/,/<\/script>/d; s/<[^>]*>/ /g' "$1" | tr -s ' '; }

pipeline
sed -i 's/^steps = 30/steps = 8/' pipeline.ini
"$LF" run >/dev/null 2>&1
runs 0 "$LF" report --output r.html
whole r.html "a finished run"
"$LF" plan --new >planned
size=$(sed -n 's/.*planned memory \([^:,]*\).*/\1/p' planned | head -1)
grep -q 'planned memory</th>' r.html && grep -q "<td class=\"n\">$size</td>" r.html
ok $? "the planned memory is that of plan: $size"
words r.html >w
like w "run demo-1 \( $(run_id) \)" "it names the run"
like w 'loong-flow resume demo-1 ' "and how to go on with it"
like w '3 of 3 stages done' "and counts its stages"
for s in first second last; do like w "$s" "stage $s is there"; done
for s in first second last; do same r.html "$s" "$s: the data of the page are the numbers of metrics"; done
last=$("$LF" metrics first --format csv | tail -n 1 | cut -d, -f2)
[ -n "$last" ] && grep -Eq "(^| )$last( |\$)" w
ok $? "the last value of a curve is the one that metrics prints ($last)"
sha=$(sed -n 's/.*"manifest_sha256":"\([0-9a-f]*\)".*/\1/p' loong-data/*/runs/*/first/1.1/done.json | head -n 1)
[ -n "$sha" ] && grep -q "$sha" r.html; ok $? "lineage has the manifest's hash"
sha=$(sed -n 's/.*"inputs":\[{[^]]*"sha256":"\([0-9a-f]*\)".*/\1/p' loong-data/*/runs/*/first/1.1/done.json | head -n 1)
[ -n "$sha" ] && grep -q "$sha" r.html; ok $? "and that of what it read"
like w 'steps = 8' "settings are the frozen ones"
runs 0 "$LF" report --output - ; cmp -s out r.html || grep -q '<svg' out; ok $? "- is standard output"

# The checks see what is planted.
sed 's/"v":\[10,/"v":[10.000001,/' r.html >p.html
"$LF" metrics first --json >metrics.json && ! "$CHECK" same p.html metrics.json >check.out
ok $? "a changed number is seen" "$(cat check.out)"
like check.out 'loss, row 0, value: 10.000000999999999 in the page, 10 by' "with its place"
for bad in '<img src="x.png">' '<p class="dim"><b>' '</div>' 'a & b' '<a href="x">' '<i style="left:nan%"></i>' '<style>@import "x"</style>'; do
    awk -v bad="$bad" '{ print } /<body>/ { gsub(/&/, "\\\\&", bad); print bad }' r.html >p.html
    ! "$CHECK" page p.html >check.out; ok $? "planted and seen: $bad"
done

# What ran on which machine, and core time by the word of the ranks; without it nobody says 1 core.
words r.html | grep -q '1 x 1 - *- / -' || words r.html | grep -q -e '- / -'
ok $? "core time of a stage whose threads nobody knows is not told"
d=$(stage_dir first)
mkdir -p "$d/ranks"
echo '{"rank":"0","host":"node7","processor":"Toy 9000 <b>","isa":"avx2","threads":4,"cpu_s":3661.5}' >"$d/ranks/node7.1.json"
echo 'NVIDIA H200, driver 13.0' >"$d/ranks/gpu.node7.1"
runs 0 "$LF" report --output r.html
words r.html >w
like w '1 x 1 x 4 threads' "ranks and threads"
like w '1h01m' "the processor time that they took"
like w 'Toy 9000 &lt;b&gt; *, kernels avx2|Toy 9000 &lt;b&gt;, kernels avx2' "the processor and its instruction set"
like w '1 x NVIDIA H200, driver 13.0' "the GPU"
like w '1.235M parameters' "the size of the model"
"$LF" tag "$(run_id)" good >/dev/null
"$LF" note "$(run_id)" 'higher lr & <more> steps' >/dev/null
runs 0 "$LF" report --output r.html
like r.html 'class="tag label">good<' "tags"
like r.html 'higher lr &amp; &lt;more&gt; steps' "and notes"

# Contrast by WCAG: text and legends have 4.5 to 1 against the page, lines of axes and boxes 3 to 1,
# text on tints 7 to 1, in light and in dark.
contrast() { # FILE: what is too weak
    awk '
    function lin(h,   v) { v = (index("0123456789abcdef", substr(h, 1, 1)) - 1) * 16 + index("0123456789abcdef", substr(h, 2, 1)) - 1; v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ^ 2.4 }
    function lum(c) { if (length(c) == 4) c = "#" substr(c, 2, 1) substr(c, 2, 1) substr(c, 3, 1) substr(c, 3, 1) substr(c, 4, 1) substr(c, 4, 1); return 0.2126 * lin(substr(c, 2, 2)) + 0.7152 * lin(substr(c, 4, 2)) + 0.0722 * lin(substr(c, 6, 2)) }
    function ratio(a, b,   x, y) { x = lum(a); y = lum(b); return x > y ? (x + 0.05) / (y + 0.05) : (y + 0.05) / (x + 0.05) }
    function need(a, b, least) { n++; if (!(a in c) || !(b in c) || ratio(c[a], c[b]) < least) print mode ": " a " on " b ": " ratio(c[a], c[b]) }
    function check(   i) {
        need("fg", "bg", 7); need("dim", "bg", 4.5); need("dim", "card", 4.5); need("alert", "bg", 4.5); need("edge", "bg", 3)
        for (i = 0; i < 8; i++) need("c" i, "bg", 4.5)
        need("fg", "done", 7); need("fg", "bad", 7); need("fg", "run", 7); need("fg", "wait", 7); need("fg", "warn", 7)
    }
    BEGIN { mode = "light" }
    /prefers-color-scheme: dark/ { check(); mode = "dark" }
    { while (match($0, /--[a-z0-9]+: #[0-9a-f]+/)) { split(substr($0, RSTART + 2, RLENGTH - 2), kv, ": "); c[kv[1]] = kv[2]; $0 = substr($0, RSTART + RLENGTH) } }
    END { check(); if (n != 36) print n " pairs" }' "$1"
}
contrast "$LF_SRCDIR/flow/report/page.css" >weak; is "$(cat weak)" "" "contrast of the page"
sed 's/--c6: #7a5c00/--c6: #b9a050/' "$LF_SRCDIR/flow/report/page.css" >weak.css
contrast weak.css >weak; like weak '^light: c6 on bg' "a planted weak colour is seen"

# Many records: rows with mean, lowest and highest, by the same numbers.
awk 'BEGIN { for (i = 1; i <= 2503; i++) printf "{\"step\":%d,\"loss\":%.7f%s,\"t\":%d}\n", i, 10 / i + (i % 7) / 100, i % 50 ? "" : ",\"valid_loss\":" 9 / i ",\"</script><b>\":" i, 1000 + i }' |
    { rm -f "$d/metrics"; "$CHECK" frames "$d/metrics"; }
runs 0 "$LF" report --output m.html
whole m.html "2503 records"
same m.html first "rows of six records have their mean, lowest and highest value"
like m.html '"records":2503,"bucket":6,' "as the data say"
is "$(grep -c '</script><b>' m.html)" 0 "no name of a metric ends the script"
[ "$(wc -c <m.html)" -lt 200000 ]; ok $? "and the file stays small" "$(wc -c <m.html) bytes"

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

# A page that is renewed while the run goes on, and is whole at every moment.
hold
"$LF" run --new --set first.fail_at=0 --set first.hold="$HOLD" --set pipeline.report=end.html >o 2>&1 &
BG="$BG $!" driver=$!
goes() { [ "$(state first)" = running ] && [ -s "$(stage_dir first)/metrics" ]; }
until_true 20 goes
"$LF" report --every 1s --output live.html >live.out 2>&1 &
BG="$BG $!" pager=$!
until_true 20 grep -q 'http-equiv="refresh" content="1"' live.html; ok $? "a page of a run that goes on reloads itself"
whole live.html "a run that goes on"
like live.html 'renewed every 1 seconds while the run goes on' "and says so"
like live.html 's-running' "with the state as it is"
n=$(stat -c %i live.html)
other() { [ "$(stat -c %i live.html)" != "$n" ]; }
until_true 20 other; ok $? "it is written again, in the place of the old one"
let_go
wait $driver; ok $? "the run ends"
wait $pager; ok $? "and so does the command"
unlike live.html 'http-equiv="refresh"' "the last page does not reload"
like live.html 'class="tag s-done"' "and says that the run is done"
like o "^report: $T/end.html\$" "run says where the page is that [pipeline] report asked for"
whole end.html "that page"
"$LF" run --new --set first.fail_at=2 >o 2>&1
like o '^a page about it: .loong-flow report.$' "else it says how to get one"
runs 2 "$LF" report --every 1s --output -
like err 'give --output a path' "a page on standard output cannot be renewed"
# Asked to stop, it leaves a page that does not reload.
hold
"$LF" run --new --set first.hold="$HOLD" >o 2>&1 &
BG="$BG $!" driver=$!
rm -f live.html
until_true 20 goes
"$LF" report --every 1h --output live.html >live.out 2>&1 &
BG="$BG $!" pager=$!
until_true 20 test -s live.html
kill -INT $pager
kill -TERM $pager
wait $pager; ok $? "a stop ends it at once"
unlike live.html 'http-equiv="refresh"' "with a last page that does not reload"
let_go
wait $driver

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
is "$(sed -n '/svg class="graph broad/,/<\/svg>/p' r.html | grep -c 'class="box s-')" 50 "all have a box"
words r.html >w
like w '/ 1h00m' "the time that was asked for is beside the time that was used"
like w '/ 1.0 GiB' "and the memory"
# No two boxes of the graph lie over each other.
for g in broad narrow; do
dup=$(sed -n "/svg class=\"graph $g/,/<\/svg>/p" r.html | grep -o '<rect class="box[^>]*' | sed 's/.*x="\([0-9]*\)" y="\([0-9]*\)".*/\1 \2/' | sort | uniq -d | wc -l)
is "$dup" 0 "no box covers another ($g)"
done
mkdir page
runs 2 "$LF" report -o page
like err 'page is a directory; name a file, such as page/report.html' "a directory is no place for a page"
[ -z "$(ls -A page)" ]
ok $? "and nothing was left in it"
finish_min 82 # one fewer for each page without xmllint

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The pages of `loong-flow report` in a browser without a screen: pictures at 1400 and 500 pixels,
# light and dark, that are not empty; no element is wider than the page but tables in a box of their
# own; the script runs without an error, draws again, shows values and switches axes. LF_LOOK=DIR
# keeps the pictures.
. "$LF_SRCDIR/tests/flow/lib.sh"
browser=
for b in chromium chromium-browser google-chrome google-chrome-stable; do
    [ -n "$browser" ] || browser=$(command -v $b)
done
[ -n "$browser" ] || { echo "1..0 # SKIP no chromium"; exit 0; }
see() { # ARGUMENTS...
    timeout 120 "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars \
        --user-data-dir="$T/browser" --enable-logging=stderr --v=0 "$@" 2>console
}

# A run with everything that a page can have: curves of many points, texts, a failure, tags.
pipeline
sed -i 's/^steps = 30/steps = 8/' pipeline.ini
"$LF" run >/dev/null 2>&1
d=$(stage_dir first)
awk 'BEGIN { for (i = 1; i <= 2400; i++) printf "{\"step\":%d,\"loss\":%.5f,\"valid_loss\":%.5f,\"grad_norm\":%.5f,\"tokens\":%d,\"tokens_per_s\":%d,\"t\":%d}\n", i, 2 + 9 / (i + 1) + (i * 7919 % 101) / 300, 2.2 + 9 / (i + 1), 1 + (i * 31 % 17) / 9, i * 512, 40000 + i % 900, 1000 + i }' |
    { rm -f "$d/metrics"; "$LF_BUILDDIR/tests/flow/report_check" frames "$d/metrics"; }
mkdir -p "$d/ranks"
echo '{"rank":"0","host":"a-node-with-a-long-name.of.a.cluster.example.org","processor":"A Processor With A Long Name 9000X 128-Core @ 2.40GHz","isa":"avx512","threads":64,"cpu_s":12345}' >"$d/ranks/n.1.json"
printf '{"step":8,"id":"a","text":"%s"}\n' "$(printf 'word %.0s' $(seq 120)) $(printf 'x%.0s' $(seq 300))" >"$d/samples.jsonl"
"$LF" tag last 'a-tag' >/dev/null
"$LF" note last "$(printf 'a note that goes on %.0s' $(seq 12))" >/dev/null
"$LF" report --output one.html >/dev/null
"$LF" run --new --set first.steps=9 --set second.fail_at=1 >/dev/null 2>&1
"$LF" report --output failed.html >/dev/null
"$LF" report --all --output all.html >/dev/null

# What the page says of itself once its script has run, as attributes of <html>.
cat >probe <<'END'
<script>
addEventListener("error", function (e) { document.documentElement.dataset.error = e.message; });
addEventListener("load", function () {
  var root = document.documentElement, wide = [], f = document.querySelector("figure.plot");
  document.querySelectorAll("body *").forEach(function (e) {
    var r = e.getBoundingClientRect();
    if (r.right > innerWidth + 1 && !e.closest(".wide") && !e.closest("svg")) wide.push(e.tagName + "." + e.className);
    if (e.tagName === "svg" && r.right > innerWidth + 1) wide.push("svg");
  });
  root.dataset.wide = wide.slice(0, 5).join(" ");
  root.dataset.page = root.scrollWidth + " " + innerWidth;
  var s = document.querySelector("#controls select"), svg = f && f.querySelector("svg"), r = svg && svg.getBoundingClientRect();
  if (!s) return;
  root.dataset.lines = f.querySelectorAll("path.line").length;
  svg.dispatchEvent(new PointerEvent("pointermove", { clientX: r.left + r.width / 2, clientY: r.top + 9 }));
  root.dataset.tip = f.querySelector(".tip-box").textContent;
  s.value = "tokens"; s.dispatchEvent(new Event("change"));
  root.dataset.axis = svg.textContent.indexOf("tokens") >= 0;
  var range = document.querySelector("#controls input[type=range]");
  range.value = .9; range.dispatchEvent(new Event("input"));
  root.dataset.smooth = f.querySelectorAll("path.raw").length;
  var keep = URL.createObjectURL, saved;
  URL.createObjectURL = function (blob) { saved = blob; return keep.call(URL, blob); };
  HTMLAnchorElement.prototype.click = function () { root.dataset.file = this.download; };
  document.querySelector("#controls button").click();
  root.dataset.bytes = saved.size;
  root.dataset.kept = sessionStorage.getItem("loong-flow");
});
</script>
END
fact() { sed -n "s/.*<html[^>]* data-$1=\"\([^\"]*\)\".*/\1/p" dom | head -n 1; }
look() { # PAGE WIDTH
    sed '/<\/head><body>/r probe' "$1.html" >probed.html
    see --window-size="$2,1000" --dump-dom "file://$T/probed.html" >dom
    ! grep -q 'CONSOLE.*\(Uncaught\|Refused\|rror\)' console; ok $? "$1 at $2: the script has no error" "$(grep CONSOLE console | head -n 3)"
    is "$(fact error)" "" "$1 at $2: and none was thrown"
    is "$(fact wide)" "" "$1 at $2: nothing is wider than the page"
    is "$(fact page)" "$2 $2" "$1 at $2: the page does not scroll sideways"
}
for w in 1400 500; do
    look one $w
    [ "$(fact lines)" -ge 2 ]; ok $? "one at $w: two lines in the first plot"
    case $(fact tip) in 'step '*training*validation*) v=0 ;; *) v=1 ;; esac
    ok $v "one at $w: values under the pointer" "$(fact tip)"
    is "$(fact axis) $(fact smooth)" "true 2" "one at $w: the axis is tokens, both lines are smoothed"
    [ "$(fact file)" = report.csv ] && [ "$(fact bytes)" -gt 50000 ]; ok $? "one at $w: the data are saved as CSV" "$(fact file) $(fact bytes)"
    case $(fact kept) in *tokens*0.9*) v=0 ;; *) v=1 ;; esac
    ok $v "one at $w: a page that reloads keeps axis and smoothing" "$(fact kept)"
    look all $w
    [ "$(fact lines)" -ge 1 ]; ok $? "all at $w: lines"
    look failed $w
done
# The check sees an element that is too wide, and an error of a script.
sed 's/<h1>/<div style="width:3000px;height:1px">wide<\/div><script>nothing_of_this_name();<\/script><h1>/' one.html >bad.html
sed '/<\/head><body>/r probe' bad.html >probed.html
see --window-size=500,1000 --dump-dom "file://$T/probed.html" >dom
like console 'CONSOLE.*Uncaught' "a planted error is seen"
case $(fact wide) in DIV*) v=0 ;; *) v=1 ;; esac
ok $v "and a planted element that is too wide" "$(fact wide)"

# Pictures. An empty page of this size has under 15 kB.
for p in one all; do
    for w in 1400 500; do
        for mode in light dark; do
            flag=--blink-settings=preferredColorScheme=1
            [ $mode = light ] || flag=--blink-settings=preferredColorScheme=0
            see --window-size=$w,3000 $flag --screenshot="$T/$p-$w-$mode.png" "file://$T/$p.html"
            n=$(wc -c <"$p-$w-$mode.png" 2>/dev/null || echo 0)
            [ "$n" -gt 40000 ]; ok $? "a picture: $p, $w pixels, $mode" "$n bytes"
            [ -z "${LF_LOOK:-}" ] || cp "$p-$w-$mode.png" "$LF_LOOK/"
        done
        cmp -s "$p-$w-light.png" "$p-$w-dark.png"; is $? 1 "$p at $w: dark is another picture"
    done
done
finish 50

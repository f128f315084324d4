#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Short names of runs: NAME-N, `latest`, tags, ids and parts of them; every command takes them all.
. "$LF_SRCDIR/tests/flow/lib.sh"
cat >pipeline.ini <<'END'
[pipeline]
name = my demo
[stage first]
kind = work
input = in.txt
steps = 2
END
echo text >in.txt
new() { "$LF" run --quiet --new "$@" || exit 1; }
id() { "$LF" status "$1" --json | sed -n 's/^ *"run": "\([^"]*\)".*/\1/p' | head -1; }
new
new --set first.factor=2
new --set first.factor=3
"$LF" status --all --columns label,run >out
like out '^my_demo-3 ' "runs of a pipeline are counted, and odd characters are written _"
is "$(awk '{ print $1 }' out | tr '\n' ' ')" "RUN my_demo-3 my_demo-2 my_demo-1 " "the newest has the highest number"
one=$(awk '$1 == "my_demo-1" { print $2 }' out) two=$(awk '$1 == "my_demo-2" { print $2 }' out) three=$(awk '$1 == "my_demo-3" { print $2 }' out)
"$LF" status >out
like out "^run my_demo-3  $three  done" "status begins with the short name"
"$LF" status --json >js
like js '"short_name": "my_demo-3"' "JSON has it"

runs 0 "$LF" tag my_demo-2 best
for word in my_demo-2 best "$two" "$(echo "$two" | tail -c 9)" "$(echo "$two" | tr A-Z a-z)"; do
    is "$(id "$word")" "$two" "a run by $word"
done
is "$(id latest) $(id last) $(id my_demo)" "$three $three $three" "latest, last, and the name of the pipeline are the newest run"

# Each command that takes a run takes a short name.
for cmd in "show my_demo-1" "show my_demo-1 first" "logs first --run my_demo-1" "metrics first --run my_demo-1" \
    "artifacts my_demo-1" "diff my_demo-1 best" "note my_demo-1" "tag my_demo-1" "watch my_demo-1" "report my_demo-1" \
    "cancel my_demo-1" "resume my_demo-1 --set first.factor=1 --restart" "gc --keep my_demo-1 --keep best"; do
    "$LF" $cmd >out 2>err
    ok $? "loong-flow $cmd" "$(cat err)"
done
runs 8 "$LF" status my_demo-33
like err 'there is no run "my_demo-33".*did you mean my_demo-' "a wrong number names a near one"
runs 8 "$LF" gc --keep nosuch
like err '^loong-flow gc: --keep: there is no run "nosuch"' "gc keeps nothing silently"
runs 2 "$LF" tag my_demo-1 latest
for tag in my_demo-3 my_demo-33; do
    runs 2 "$LF" tag my_demo-1 $tag
    like err "\"$tag\" is the short name of a run, or of one to come.*my_demo-N; take another tag" "a tag that looks like a run is refused"
done
for tag in other-3 my_demo-x my_demo; do
    runs 0 "$LF" tag my_demo-1 $tag
    runs 0 "$LF" tag my_demo-1 $tag --remove
done
runs 0 "$LF" tag my_demo-1 my_demo-3 --remove
runs 0 "$LF" tag my_demo-1 best
runs 2 "$LF" status best
like err '"best" fits several runs \(my_demo-[12], my_demo-[12]\)' "a tag of two runs names both"
runs 2 "$LF" status "$(echo "$one" | head -c 4)"
like err 'give more characters' "a short part of an id fits all"

# A name stays: with the next revision, with another name in the file, and when runs are removed.
runs 0 "$LF" resume my_demo-2 --quiet --set first.factor=7 --restart
is "$(id my_demo-2) $("$LF" status my_demo-2 --json | grep -c '"rev": 2')" "$two 1" "a new revision keeps the name"
rm -rf "$("$LF" status --all --columns run,dir | awk -v r="$three" '$1 == r { print $2 }')"
runs 8 "$LF" status my_demo-3
like err "the directory of run $three is gone" "the name of a removed run still means it"
is "$(id my_demo)" "$two" "the pipeline's name means the newest that is there"
new --set first.factor=4
is "$("$LF" status --all --columns label | sed -n 2p)" my_demo-4 "no number is given twice"
sed 's/my demo/other/' pipeline.ini >p && cp p pipeline.ini
new --set first.factor=5
is "$("$LF" status --all --columns label | sed -n 2p)" other-1 "another pipeline counts for itself"

# Two at once get two numbers.
"$LF" run --quiet --new --set first.factor=6 & a=$!
"$LF" run --quiet --new --set first.factor=8 & b=$!
wait $a && wait $b
ok $? "two runs at once"
is "$("$LF" status --all --columns label | sed -n '2,3p' | sort | tr '\n' ' ')" "other-2 other-3 " "with two names"
finish 54

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# lf-convert is killed, and its disk fills up or fails, at changes that it makes to files, importing (every second, every fourth) and exporting (every): nothing that is
# half there is published, and started again, in the same place or in a new one beside it, it ends with the same bytes.
. "$LF_SRCDIR/tests/stage/lib.sh"
LC_ALL=C
export LC_ALL
bin=$LF_BUILDDIR/stages/lf-convert golden=$LF_SRCDIR/tests/golden/families/gpt2
convert() { # convert WAY WHERE
    mkdir -p "$2"
    case $1 in
    in) set -- "$2" --from "$golden" --verify none ;;
    out) set -- "$2" --from "$dir/in/out/checkpoint" --tokenizer "$dir/in/out/tokenizer" ;;
    esac
    w=$1
    shift
    [ -z "${RESUME:-}" ] || set -- "$@" --resume_from "$RESUME"
    "$bin" --threads 1 --log-level ${LEVEL:-error} --max_file 20000 --out "$w/out" "$@" >"$w.out" 2>"$w.err"
}
faulty() { # faulty ACTION N WAY WHERE
    mkdir -p "$4"
    LD_PRELOAD=$FAIL LF_FAIL_ROOT=$4 LF_FAIL_ACTION=$1 LF_FAIL_AFTER=$2 LF_FAIL_LOG=${LOG:-/dev/null} convert "$3" "$4"
}
# A note in .partial of what is done that cannot be written costs work after a kill and nothing else: no error (eio passes it over).
# Left by the call that was hit, and of no meaning: temporary names, the mark of a directory that became complete.
result() { (cd "$1/out" && find . -type f ! -name '.lock*' ! -name '*.tmp' ! -name .lf-convert-unfinished | sort | xargs cksum); }
# A manifest that is there has all its files, with the bytes it says.
whole() {
    for m in "$1"/out/*/manifest.json; do
        [ ! -f "$m" ] || "$bin" --from "$(dirname "$m")" --inspect >/dev/null 2>&1 || return 1
        [ ! -f "$m" ] || (cd "$(dirname "$m")" && grep -o '"bytes":[0-9]*,"path":"[^"]*"' manifest.json | tr -d '"' | sed 's/bytes://; s/,path:/ /' |
            while read -r b p; do [ "$(wc -c <"$p")" -eq "$b" ] || exit 1; done) || return 1
    done
}
sweep() { # sweep WAY ACTION EXIT
    tried=0 bad=0 reused=0 w=$dir/w
    for i in $(awk -v a="$2" 'a != "enospc" || $2 != "unlink" { k++; if (!($2 == "unlink" && $3 ~ "/.lock") && !(a == "eio" && $2 == "write" && $3 ~ "/.partial$")) print (a == "enospc" ? k : $1) }' "$dir/$1.calls"); do
        case $1$2 in inkill) step=2 ;; outkill) step=1 ;; *) step=4 ;; esac
        [ $((i % step)) -eq 0 ] || continue
        tried=$((tried + 1))
        rm -rf "$w"
        faulty "$2" "$i" "$1" "$w"
        code=$?
        whole "$w" || code=half
        cp "$w.err" "$w.err1"
        now=$w
        if [ "$2" = kill ] && [ $((i / step % 2)) -eq 0 ]; then # as another start of the attempt
            now=$dir/w2
            rm -rf "$now"
            RESUME=$w/out LEVEL=info convert "$1" "$now"
        else
            LEVEL=info convert "$1" "$now"
        fi
        again=$?
        grep -q 'were in place already' "$now.err" && reused=$((reused + 1))
        result "$now" >"$dir/now"
        if [ "$code" != "$3" ] || { [ "$3" = 1 ] && [ "$(wc -l <"$w.err1")" -ne 1 ]; } || [ $again -ne 0 ] || ! cmp -s "$dir/$1.ref" "$dir/now"; then
            bad=$((bad + 1))
            [ $bad -gt 8 ] || echo "# $1, $2 at $i: exit $code ($(head -c 200 "$w.err1")), then $again ($(head -c 200 "$now.err")): $(diff "$dir/$1.ref" "$dir/now" | head -3 | tr '\n' '~')"
        fi
    done
    [ $bad -eq 0 ] && [ $tried -gt 5 ]
    ok $? "$1, $2 at each of $tried changes: nothing half there, then the same bytes ($bad are not so)"
    if [ "$2" = kill ]; then
        [ $reused -gt 2 ]
        ok $? "$1: $reused of $tried went on with what the killed one had written"
    fi
}
[ -n "$FAIL" ] || skip_all "$no_fail"
for way in in out; do
    LOG=$dir/$way.calls faulty none 0 $way "$dir/$way"
    ok $? "$way without faults"
    result "$dir/$way" >"$dir/$way.ref"
    sweep $way kill 137
    sweep $way enospc 1
    sweep $way eio 1
done
finish 10

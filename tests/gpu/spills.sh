#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Device functions that spills.txt lists keep their registers: ptxas reports, which the build writes beside each fat binary, tell no
# spill, on any architecture or on the one that a line names; and products of a warpgroup (wgmma) run asynchronously: ptxas says nothing of
# serialized ones, and of no setmaxnreg that it ignores. Where configure found no nvcc there is nothing to read.
set -u
src=${LF_SRCDIR:-.} build=${LF_BUILDDIR:-.}
list=$src/tests/gpu/spills.txt
. "$src/tests/tap/tap.sh"
own_dir
# "ARCH FUNCTION BYTES" of every function in report $1.
functions() {
    awk '/Compiling entry function/ { f = $0; sub(/^[^\047]*\047/, "", f); sub(/\047.*/, "", f); a = $0; sub(/.*for \047/, "", a); sub(/\047.*/, "", a) }
        /bytes spill stores/ { for (i = 1; i < NF; i++) if ($(i + 1) == "bytes" && $(i + 2) == "spill") s += $i; print a, f, s + 0; s = 0 }' "$1"
}
spilled() { # REPORT PATTERN [ARCH]: functions that spill
    functions "$1" | awk -v p="$2" -v a="${3:-}" '$2 ~ p && $3 > 0 && (a == "" || a == $1) { print $2 " on " $1 ": " $3 " bytes" }'
}
hampered() { # REPORT: what ptxas says when it makes wgmma wait, or registers stay as they are
    grep -i -e 'wgmma.*serializ' -e 'setmaxnreg.*ignored' "$1"
}
ls "$build"/kernels/cuda/*.fatbin >/dev/null 2>&1 || skip_all "no nvcc: not configured --with-cuda"
grep -v '^#' "$list" >"$T/text"
while read -r file pattern arch; do
    if [ -z "$pattern" ]; then ok 1 "$file" "spills.txt: a line is FILE PATTERN [ARCH]"; continue; fi
    report=$build/kernels/cuda/$file.fatbin.log
    if [ -f "$report" ] && ! grep -q 'Compiling entry function' "$report"; then
        # A wrapper that keeps compilations by their input gives the binary back and is silent.
        skip "$file" "nvcc said nothing (a kept compilation?): $report"
        continue
    fi
    if [ ! -f "$report" ]; then
        ok 1 "$file" "no ptxas report $report: remove kernels/cuda/$file.fatbin and run make"
        continue
    fi
    found=$(functions "$report" | awk -v p="$pattern" '$2 ~ p' | wc -l)
    [ "$found" -gt 0 ]
    ok $? "$file: $found functions match $pattern" "the pattern matches no function: $(functions "$report" | awk '{ print $2 }' | sort -u | tr '\n' ' ')"
    bad=$(spilled "$report" "$pattern" "$arch")
    none "$file: no registers are spilled" "$bad"
    bad=$(hampered "$report")
    [ -z "$bad" ] || ok 1 "$file: products of a warpgroup are asynchronous" "$bad"
done <"$T/text"
cat >"$T/text" <<'END'
ptxas info    : Compiling entry function 'good' for 'sm_80'
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Compiling entry function 'bad' for 'sm_90'
    48 bytes stack frame, 32 bytes spill stores, 16 bytes spill loads
END
[ "$(spilled "$T/text" .)" = "bad on sm_90: 48 bytes" ]
ok $? "a planted spill is noticed" "$(spilled "$T/text" .)"
[ -z "$(spilled "$T/text" . sm_80)" ] && [ -n "$(spilled "$T/text" . sm_90)" ]
ok $? "on the architecture that is asked for" "$(spilled "$T/text" . sm_80)"
cat >"$T/text" <<'END'
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to non wgmma instructions defining accumulator registers of a wgmma between start and end of the pipeline stage in the function 'bad'
END
hampered "$T/text" >/dev/null
ok $? "planted serialized products are noticed"
finish_min 4 # as many as spills.txt has lines, whose reports a kept compilation may lack

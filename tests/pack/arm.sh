#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# AArch64 where there is none: everything is built by a cross compiler, and a user-mode emulator runs it on processors
# that differ in what kernels they get. Programs start, units, kernels and small models are right, stages learn, go on
# and say which kernels computed, and NEON's bits do not depend on the length of SVE's registers.
# LF_ARM_SYSROOT: a root with libraries for AArch64 (arm_root.sh makes one). LF_ARM_BUILD: a folder to build in, which is
# kept and built on. LF_ARM_TESTS: programs of tests to run in the place of all that fit. LF_ARM_CC, LF_ARM_EMULATOR:
# others than aarch64-linux-gnu-gcc and qemu-aarch64. LF_ARM_CFLAGS: others than -O2.
. "$LF_SRCDIR/tests/pack/lib.sh"
root=${LF_ARM_SYSROOT:-}
[ -n "$root" ] || skip_all "LF_ARM_SYSROOT names no root with libraries for AArch64 (tests/README.md)"
cc=${LF_ARM_CC:-aarch64-linux-gnu-gcc} qemu=${LF_ARM_EMULATOR:-qemu-aarch64}
needs "${cc%% *}" "$qemu" pkg-config
root=$(cd "$root" && pwd) || bail "LF_ARM_SYSROOT = $LF_ARM_SYSROOT is no folder"
emulator="$qemu -L $root"
B=${LF_ARM_BUILD:-$T/build}
mkdir -p "$B" && cd "$B" && B=$(pwd) || exit 99
: >"$T/log"
jobs=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)

# --- built ---
for d in "$root"/usr/lib/*/pkgconfig "$root/usr/share/pkgconfig"; do
    PKG_CONFIG_LIBDIR=${PKG_CONFIG_LIBDIR:+$PKG_CONFIG_LIBDIR:}$d
done
PKG_CONFIG_SYSROOT_DIR=$root
export PKG_CONFIG_LIBDIR PKG_CONFIG_SYSROOT_DIR
if [ ! -e config.status ]; then
    "$LF_SRCDIR/configure" --host=aarch64-linux-gnu --without-cuda CC="$cc --sysroot=$root" CFLAGS="${LF_ARM_CFLAGS:--O2}" \
        LF_EMULATOR="$emulator" >"$T/log" 2>&1
fi
[ -e config.status ]; ok $? "configure for another machine" "$(last "$T/log")"
"$MAKE" -j"$jobs" all >"$T/log" 2>&1; ok $? "everything is built" "$(last "$T/log")"
foreign=$(for f in loong-flow stages/lf-*; do
    case $f in *.*) continue ;; esac
    [ "$(od -An -tu2 -j18 -N2 "$f" | tr -d ' ')" = 183 ] || echo "$f"
done)
is "$foreign" "" "each program is one of AArch64"
for i in NEON NEONBF16 SVE256BF16 SVE512; do
    grep -q "^#define HAVE_ISA_$i 1" config.h; ok $? "with kernels for $i"
done

# --- the processors ---
# A name for the emulator, and the kernels that such a processor gets: without SVE and BF16, and with registers of 128 bits
# (Grace, Graviton 4), of 256 (Graviton 3) and of 512 (A64FX, which has no BF16).
processors="neoverse-n1:neon max,sve-default-vector-length=16:neonbf16 max,sve-default-vector-length=32:sve256bf16 a64fx:sve512"
run() { # run PROCESSOR PROGRAM...
    _processor=$1
    shift
    QEMU_CPU=$_processor $emulator "$@"
}
for p in $processors; do
    got=$(run "${p%:*}" stages/lf-pretrain --version 2>&1 | sed -n 's/^runs here: //p')
    is "$got" "${p##*:}" "${p%:*} gets the kernels ${p##*:}"
done
got=$(LF_ISA=neon run max stages/lf-pretrain --version 2>&1 | sed -n 's/^runs here: //p')
is "$got" neon "LF_ISA limits them"
for s in loong-flow stages/lf-*; do
    case $s in *.*) continue ;; esac
    run max "$s" --version >"$T/log" 2>&1; ok $? "${s##*/} starts" "$(last "$T/log")"
done

# --- programs of tests ---
# emulated PROCESSOR TESTS WORDS: those programs, all of whose points pass
emulated() {
    QEMU_CPU=$1 "$MAKE" -k -j"$jobs" check-emulated LF_ONE_PROGRAM="$2" >"$T/log" 2>&1
    ok $? "$3" "$(grep -E '^(# (TOTAL|FAIL|ERROR)|(FAIL|ERROR|XPASS): |make.*Error)' "$T/log" | head -n 30)"
    sed -n 's/^# \(TOTAL\|PASS\|SKIP\|FAIL\|ERROR\): */# \1 /p' "$T/log" | tr '\n' ' '
    echo
}
all=${LF_ARM_TESTS:-$(printf 'include Makefile\nlf-programs:\n\t@echo $(LF_ONE_PROGRAM)\n' >"$T/list.mk"
    "$MAKE" -s -f "$T/list.mk" lf-programs)}
ops=$(echo "$all" | tr ' ' '\n' | grep '^tests/op/' | tr '\n' ' ')
others=$(echo "$all" | tr ' ' '\n' | grep -v '^tests/op/' | tr '\n' ' ')
# A test of kernels tries every set that the processor has: these two have all of them between them.
for p in max,sve-default-vector-length=32 a64fx; do
    emulated $p "$ops" "kernels on $p"
done
# The bits that are written down, wherever a set runs: none depends on the length of SVE's registers but by its name.
for p in neoverse-n1 max,sve-default-vector-length=16 max,sve-default-vector-length=64; do
    emulated $p tests/op/bits_test "bits on $p"
done
emulated max,sve-default-vector-length=32 "$others" "units and small models"

# --- stages ---
# A folder like that of a build, whose programs are scripts that start the real ones: what starts stages by name runs
# through them.
W=$T/w
mkdir -p "$W/stages" "$W/tests/stage"
cp config.h "$W"
"$MAKE" -j"$jobs" tests/stage/train_tool tests/stage/infer_tool tests/stage/shards_tool >"$T/log" 2>&1
ok $? "tools of the stages' tests are built" "$(last "$T/log")"
for f in loong-flow stages/lf-* tests/stage/train_tool tests/stage/infer_tool tests/stage/shards_tool; do
    case $f in *.*) continue ;; esac
    printf '#!/bin/sh\nexec %s %s "$@"\n' "$emulator" "$B/$f" >"$W/$f"
    chmod +x "$W/$f"
done
train_tool=$W/tests/stage/train_tool
QEMU_CPU=max,sve-default-vector-length=32
export QEMU_CPU
cd "$T" && "$train_tool" data data 400 40 >"$T/log" 2>&1; ok $? "data of a training" "$(last "$T/log")"
cat >run.ini <<END
[stage]
data = $T/data
steps = 4
mfu = no
seq_length = 64
batch = 2
micro_batch = 1
lr = 5e-3
schedule = constant
warmup = 2
save_interval = 2
save_time = 0
valid_interval = 0
log_interval = 1
seed = 5
threads = 2
[model]
family = llama3
layers = 2
hidden = 48
heads = 4
kv_heads = 2
ffn = 96
vocab = 64
max_positions = 64
END
# trained NAME PROCESSOR ARGS...: lf-pretrain on it
trained() {
    _name=$1 QEMU_CPU=$2
    shift 2
    "$W/stages/lf-pretrain" --config run.ini --out "$_name/out" --metrics "$_name/metrics" "$@" >"$T/log" 2>&1
    ok $? "trained: $_name" "$(last "$T/log")"
}
id() { "$train_tool" id "$1/out/checkpoint" 2>&1; }
first() { "$train_tool" metrics "$1/metrics" | awk 'NR == 1 { print $4 }'; }
said() { "$train_tool" state "$1/out/checkpoint" 2>&1 | tr -d ' \n' | sed -n 's/.*"kernels":"\([^"]*\)".*/\1/p'; }
for p in $processors; do
    trained "${p##*:}" "${p%:*}"
    is "$(said "${p##*:}")" "cpu-${p##*:}" "its checkpoint says what computed"
done
near=$(for p in $processors; do first "${p##*:}"; done | awk 'NR == 1 { a = $1 } { d = $1 - a; if (d > 1e-4 || d < -1e-4) bad = 1 }
    END { print(NR == 4 && a > 1 && !bad ? "near" : "apart") }')
is "$near" near "the loss of the first step is the same but for rounding" "$(for p in $processors; do first "${p##*:}"; done)"
LF_ISA=neonbf16
export LF_ISA
for vl in 32 64; do
    trained neonbf16-$vl max,sve-default-vector-length=$vl
    is "$(id neonbf16-$vl)" "$(id neonbf16)" "NEON where registers of SVE have $((8 * vl)) bits: the bits of 128"
done
unset LF_ISA
trained further max,sve-default-vector-length=32 --resume-from "$T/neonbf16/out" --steps 6
grep -q 'perhaps not bitwise: .*kernels was "cpu-neonbf16", is "cpu-sve256bf16"' log
ok $? "continued by other kernels, it says so" "$(last log)"

# --- text, and what doctor says ---
# A pipeline is not run: its jobs start copies of loong-flow, which the system must know how to start.
i=0
while [ $i -lt 60 ]; do
    echo "The $i quick brown foxes jump over lazy dog number $((i * 79 % 100))."
    i=$((i + 1))
done >text.txt
"$W/stages/lf-tokenize" --inputs text.txt --doc-split line --vocab-size 300 --out tokens >log 2>&1
ok $? "a tokenizer is trained" "$(last log)"
[ -s tokens/shards/manifest.json ]; ok $? "and shards are written" "$(ls tokens/shards)"
LF_LIBEXEC=$W/stages LF_SITE_CONFIG='' LF_USER_CONFIG='' LF_CACHE_DIR=$T/cache
export LF_LIBEXEC LF_SITE_CONFIG LF_USER_CONFIG LF_CACHE_DIR
"$W/loong-flow" doctor --scheduler local >log 2>&1
grep -q '^ok .*processor: .*; kernels sve256bf16$' log; ok $? "doctor says which kernels run" "$(grep processor log)"
finish 51

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Time that submitting a pipeline takes outside the scheduler's commands: submit.sh [STAGES], as designed 50. The scheduler is
# a script that gives numbers and writes down how long it took; stages are those of tests/flow.
set -eu
build=${LF_BUILDDIR:-$PWD} n=${1:-50}
lf=$build/tests/flow/bin/loong-flow
dir=$(mktemp -d "${TMPDIR:-/tmp}/loong-submit-bench.XXXXXX")
trap 'rm -rf "$dir"' EXIT
cd "$dir"
mkdir bin
cat >bin/sbatch <<'END'
#!/bin/sh
t0=$(date +%s%N)
[ "${1:-}" != --version ] || { echo "slurm 22.05.8"; exit 0; }
i=$(($(cat "$DIR/n" 2>/dev/null || echo 0) + 1))
echo $i >"$DIR/n"
echo $i
echo $(($(date +%s%N) - t0)) >>"$DIR/spent"
END
printf '#!/bin/sh\n[ "$1" != --version ] || echo "slurm 22.05.8"\n' >bin/squeue
cp bin/squeue bin/sacct
cp bin/squeue bin/scontrol
cp bin/squeue bin/scancel
chmod +x bin/*
DIR=$dir PATH=$dir/bin:$PATH LF_LIBEXEC=$build/tests/flow/bin LF_USER_CONFIG= LF_SITE_CONFIG=$dir/site.ini
LF_CACHE_DIR=$dir/cache
export DIR PATH LF_LIBEXEC LF_USER_CONFIG LF_SITE_CONFIG LF_CACHE_DIR
[ -z "${LF_SRCDIR:-}" ] || { LF_TEMPLATES_DIR=$LF_SRCDIR/templates; export LF_TEMPLATES_DIR; }
printf '[site]\nscheduler = slurm\nsettle = 0\n' >site.ini
echo text >in.txt
{
    printf '[pipeline]\nname = bench\n[stage s1]\nkind = work\ninput = in.txt\n'
    i=2
    while [ $i -le "$n" ]; do
        printf '[stage s%d]\nkind = work\ninput = ${stage:s%d}\n' $i $((i - 1))
        i=$((i + 1))
    done
} >pipeline.ini
cpu() { # cpu TEXT COMMAND...: CPU seconds of the command with its children
    _text=$1
    shift
    ( "$@" >out 2>&1 || cat out >&2; times ) | awk -v text="$_text" 'END { split($1, u, /[ms]/); split($2, s, /[ms]/)
        printf "%s: %.2f s of CPU time\n", text, 60 * (u[1] + s[1]) + u[2] + s[2] }'
}
cpu "validate of $n stages" "$lf" validate
cpu "submit of $n stages with the scheduler's commands" "$lf" submit
rm -f spent
[ "$n" -le 50 ] || exit 0
for try in 1 2 3; do
    rm -f spent
    t0=$(date +%s%N)
    "$lf" submit --new >out 2>&1 || { cat out; exit 1; }
    total=$(($(date +%s%N) - t0))
    [ "$(wc -l <spent)" -eq "$n" ] || { echo "not every stage was submitted"; cat out; exit 1; }
    awk -v total=$total '{ s += $1 } END { printf "submit of %d stages: %.0f ms, of them %.0f ms in sbatch: %.0f ms are ours   (wanted: below 1000)\n",
        NR, total / 1e6, s / 1e6, (total - s) / 1e6 }' spent
done

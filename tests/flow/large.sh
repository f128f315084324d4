#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Four times the stages are four times the work: what validate, plan, submit, resume and status do is counted (tests/fault/count.c:
# comparisons, look-ups, files, forks, SQL), never timed. The scheduler is a script that gives numbers.
. "$LF_SRCDIR/tests/tap/shm.sh"
. "$LF_SRCDIR/tests/flow/lib.sh"
COUNT=$LF_BUILDDIR/tests/fault/count.so
if grep -q '^#define LF_SANITIZERS' "$LF_BUILDDIR/config.h" || [ ! -r "$COUNT" ]; then
    skip_all "count.so cannot be loaded before the sanitizers' own library"
fi
SMALL=40 LARGE=160 # stages

mkdir bin
cat >bin/sbatch <<'END_SH'
#!/bin/sh
[ "${1:-}" != --version ] || { echo "slurm 22.05.8"; exit 0; }
for word in "$@"; do case $word in --job-name=*) name=${word#--job-name=} ;; esac; done
read -r i 2>/dev/null <number || i=0
i=$((i + 1))
echo $i >number
echo "$i|PENDING|Resources|N/A|N/A|2026-01-01T00:00:00|p||$name|" >>queue
echo $i
END_SH
cat >bin/squeue <<'END_SH'
#!/bin/sh
[ "${1:-}" != --version ] || { echo "slurm 22.05.8"; exit 0; }
[ ! -e queue ] || exec cat queue
END_SH
printf '#!/bin/sh\n[ "$1" != --version ] || echo "slurm 22.05.8"\n' >bin/sacct
cp bin/sacct bin/scontrol
cp bin/sacct bin/scancel
chmod +x bin/*
# The commands lie beside the pipelines, and answer for the one they are called for.
sed -i "s|number|$T/\$NUMBER.number|g; s|queue|$T/\$NUMBER.queue|g" bin/sbatch bin/squeue
PATH=$T/bin:$PATH LF_SITE_CONFIG=$T/site.ini
export PATH LF_SITE_CONFIG
printf '[site]\nscheduler = slurm\nsettle = 0\n' >site.ini

# graph SHAPE N: a chain, or stages that all read the first and one that reads them all
graph() {
    echo text >in.txt
    printf '[pipeline]\nname = large\n[stage s1]\nkind = work\ninput = in.txt\n'
    i=2
    while [ $i -lt "$2" ]; do
        if [ "$1" = chain ]; then from=$((i - 1)); else from=1; fi
        printf '[stage s%d]\nkind = work\ninput = ${stage:s%d}\n' $i $from
        i=$((i + 1))
    done
    printf '[stage all]\nkind = join\nparts = ${stage:s%d.result}\n' $((i - 1))
    while [ "$1" = wide ] && [ $i -gt 2 ]; do
        i=$((i - 1))
        printf '    ${stage:s%d.result}\n' $i
    done
}
# counted NAME COMMAND...: its counts are in NAME.count
counted() {
    _name=$1
    shift
    LD_PRELOAD=$COUNT LF_COUNT_PROGRAM=loong-flow LF_COUNT_LOG=$_name.count "$@" >out 2>err || echo "# $_name: exit $? $(head -1 err)"
}
# All five commands over one pipeline, in a directory of its own.
measure() { # measure SHAPE N
    mkdir "$1.$2" && cd "$1.$2" || exit 99
    NUMBER=$1.$2 LF_CACHE_DIR=$T/cache.$1.$2 # what is known of the queue is shared for a minute
    export NUMBER LF_CACHE_DIR
    graph "$1" "$2" >pipeline.ini
    for command in validate plan submit status resume; do counted $command "$LF" $command; done
    "$LF" status --columns name,state >states
    "$LF" submit --new >again.out 2>&1
    counted second "$LF" plan # what an older run has made is looked for too
    cd "$T" || exit 99
}
# linear SHAPE COMMAND: no count has grown by more than a little over four
linear() {
    awk -v what="$2 ($1)" 'NR == FNR { for (k = 2; k <= NF; k += 2) a[$(k - 1)] = $k; next }
        { for (k = 2; k <= NF; k += 2) { name = $(k - 1); ratio = $k / (a[name] > 0 ? a[name] : 1)
              printf "# %s: %s %d to %d, %.2f times\n", what, name, a[name], $k, ratio
              if (ratio > 4.2 && $k > 50) bad = 1 } n++ }
        END { exit bad || n != 1 }' "$1.$SMALL/$2.count" "$1.$LARGE/$2.count" >report
    _code=$?
    ok $_code "$2 of four times the stages is four times the work ($1)" "$(tr '\n' ' ' <report)"
}

for shape in chain wide; do
    measure $shape $SMALL
    measure $shape $LARGE
    is "$(awk '$2 == "pending" || $2 == "waiting"' $shape.$LARGE/states | wc -l)" $LARGE "all stages of the large one are with the scheduler ($shape)"
    like $shape.$LARGE/again.out "$LARGE submitted" "and a second run of it can be made ($shape)"
    for command in validate plan submit status resume second; do linear $shape $command; done
done

# The ledger's statements are parsed once, however many rows they write.
parsed() { awk '{ print $NF }' "$1"; }
few=$(parsed wide.$SMALL/submit.count) many=$(parsed wide.$LARGE/submit.count)
[ "$few" -gt 10 ] && [ $((many - few)) -lt 10 ]
ok $? "submit of four times the stages parses no more SQL" "$few and $many statements"

# Six files are made for each stage, and read back; what else is opened or looked at for each is bounded too.
of_a_stage() { # of_a_stage NAME: in NAME.SMALL and NAME.LARGE, by which their counts of files differ
    awk -v stages=$((LARGE - SMALL)) '{ for (k = 2; k <= NF; k += 2) if ($(k - 1) == "files") n[NR] = $k }
        END { printf "%.1f\n", (n[2] - n[1]) / stages }' "$1.$SMALL/submit.count" "$1.$LARGE/submit.count"
}
few_files() { awk -v n="$(of_a_stage "$1")" 'BEGIN { exit !(n > 20 && n <= 40) }'; }
few_files wide
ok $? "submit opens or looks at 40 files for a stage, or fewer" "$(of_a_stage wide)"

# The checker sees what is not linear.
mkdir twice.$SMALL twice.$LARGE
echo "texts 100 json 100 files 100 forks 1" >twice.$SMALL/validate.count
echo "texts 400 json 500 files 400 forks 1" >twice.$LARGE/validate.count
(linear twice validate) | grep -q '^not ok'
ok $? "five times the look-ups are seen"
echo "texts 1 files 2106" >twice.$SMALL/submit.count
echo "texts 1 files 7986" >twice.$LARGE/submit.count
! few_files twice
ok $? "and so are 49 files for a stage" "$(of_a_stage twice)"
finish 20

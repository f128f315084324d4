#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Job scripts: what is asked for reaches the script byte for byte; templates of projects and sites; settings that are refused.
. "$LF_SRCDIR/tests/flow/lib.sh"
echo hi >in.txt
cat >pipeline.ini <<'END'
[pipeline]
name = demo
scheduler = slurm
[resources]
partition = long,main
account = p42:sub
time_limit = 2h30m
mail = a.b@c.org
mail_type = end fail
prologue = export OMP_PROC_BIND=close
    ulimit -c 0
[kind work]
cpus = 8
[stage first]
kind = work
input = in.txt
nodes = 2
ranks = 4
gpus = a100:4
memory = 81921M
constraint = (a100&nvlink)|h100
qos = high
reservation = res.1
exclusive = yes
modules = cuda/12.4 gcc
extra = --hint=nomultithread
    --licenses=x:1
grace = 5m
[stage second]
kind = work
input = ${stage:first}
queue = short
time_limit = 40
END
runs 0 "$LF" submit --dry-run
grep -v '^# ' out | sed -n '/^#!/,/^exec/p' | sed '/^exec/q' >got
cat >want <<'END'
#!/bin/sh
#
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --mem=81921M
#SBATCH --gpus-per-node=a100:4
#SBATCH --time=0-02:30:00
#SBATCH --signal=B:USR2@300
#SBATCH --partition=long,main
#SBATCH --account=p42:sub
#SBATCH --qos=high
#SBATCH --constraint='(a100&nvlink)|h100'
#SBATCH --reservation=res.1
#SBATCH --exclusive
#SBATCH --mail-user=a.b@c.org
#SBATCH --mail-type=END,FAIL
#SBATCH --hint=nomultithread
#SBATCH --licenses=x:1

trap '' USR2

PATH=${PATH:-/usr/local/bin:/usr/bin:/bin}
export PATH

command -v module >/dev/null 2>&1 || . /etc/profile
module load cuda/12.4
module load gcc
export OMP_PROC_BIND=close
ulimit -c 0

exec "$@"
END
cmp -s got want; ok $? "every setting is in the script" "$(diff got want | tr '\n' '~')"
sed -n '/^== second/,$p' out >second
like second '^#SBATCH --partition=short$' "the stage's own value wins; queue is partition"
like second '^#SBATCH --cpus-per-task=8$' "a value of the kind"
like second '^#SBATCH --signal=B:USR2@20$' "a warning that fits a short limit"
unlike second '#SBATCH --(nodes=2|mem|gpus|qos|exclusive)' "what was not given is not there"
like second '^\$ sbatch .* .--dependency=afterok:JOB\(first\). --kill-on-invalid-dep=yes RUN/second/script.1 RUN/rev.1/bin/loong-flow exec --run-dir RUN --stage second --attempt 1 --token TOKEN' "its command"
sh -n want; ok $? "a shell can read it"
"$LF" plan >out
like out 'asks for 2 nodes, 4 ranks per node, 8 cpus per rank, 4 gpus a100 per node' "plan tells what is asked for"
"$LF" plan --json >js
like js '"partition": "long,main"' "and --json has it"
[ ! -e .loong ]; ok $? "nothing was made"

# --- what fits is decided by what a node has, not by this machine ---
runs 0 "$LF" submit -n --set first.needs_bytes=900T --set first.memory=4000T
unlike out 'does not fit' "more memory than this machine has, for a node of the batch system"
runs 1 "$LF" submit -n --set first.needs_bytes=1T
like err 'stage first does not fit in memory: it needs 4.0 TiB for the ranks of a node' "less memory than its ranks need"
runs 0 "$LF" submit -n --set second.needs_bytes=900T
unlike out 'does not fit' "no memory asked for: nobody knows"
[ ! -e .loong ]; ok $? "nothing was made by that either"
runs 0 "$LF" submit -n --set first.needs_gpu_bytes=900T
unlike out 'GPU' "memory of a GPU that nobody told: nobody knows"
runs 1 "$LF" submit -n --set first.needs_gpu_bytes=81G --set first.gpu_memory=80G
like err 'stage first does not fit on a GPU: a rank needs 81.0 GiB, and one has 80.0 GiB' "a rank that needs more than a GPU has"
runs 0 "$LF" submit -n --set first.needs_gpu_bytes=41G --set first.gpu_memory=80G
runs 1 "$LF" submit -n --set first.needs_gpu_bytes=41G --set first.gpu_memory=80G --set first.gpus=2
like err 'the ranks that share one need 82.0 GiB' "two ranks on one GPU"
runs 0 "$LF" submit -n --set first.needs_gpu_bytes=900T --set first.gpu_memory=80G --set first.device=cpu
runs 0 "$LF" submit -n --set second.needs_gpu_bytes=900T --set second.gpu_memory=80G
unlike out 'GPU' "no GPU asked for: none is planned for"
"$LF" plan --set first.needs_gpu_bytes=41G --set first.gpu_memory=80G >out
like out 'planned GPU memory 41.0 GiB of 80.0 GiB \(gpu_memory\)' "plan tells what lies on a GPU"
like out '4 gpus a100 per node, 80.0 GiB per gpu' "of those that are asked for"

# --- templates ---
mkdir -p .loong/templates/slurm site/slurm
cp "$LF_TEMPLATES_DIR/slurm/job.sh.in" site/slurm/job.sh.in
sed -i '1a # of the site' site/slurm/job.sh.in
printf '[site]\ntemplates = %s/site\n' "$T" >site.ini
export LF_SITE_CONFIG="$T/site.ini"
runs 0 "$LF" submit -n
like out '^# of the site$' "a site's template"
printf '#!/bin/sh\n#SBATCH --mem=@MEMROY_MIB@M\nexec "$@@"\n' >.loong/templates/slurm/job.sh.in
runs 2 "$LF" submit -n
like err 'stage first: .*/.loong/templates/slurm/job.sh.in:2: unknown placeholder @MEMROY_MIB@; did you mean @MEMORY_MIB@\?' \
    "a project's template; an unknown placeholder has file, line and the nearest name"
printf '#!/bin/sh\nexec "$@@"\n' >.loong/templates/slurm/job.sh.in
runs 0 "$LF" submit -n
like out '^exec "\$@"$' "@@ is one @"
chmod o+w .loong/templates/slurm/job.sh.in
runs 2 "$LF" submit -n
like err 'refused: it is writable by everybody' "a template that anybody can change is refused"
rm -r .loong
if [ "$(id -u)" = 0 ]; then
    chown 12345 site/slurm/job.sh.in
    runs 2 "$LF" submit -n
    like err 'it belongs to another user' "and one of somebody else"
fi
LF_SITE_CONFIG=

# --- settings ---
bad() { # bad SETTING PATTERN
    runs 2 "$LF" plan --set "$1"
    like err "$2" "$1"
}
bad first.nodes=0 'a number from 1'
bad first.nodes=two 'nodes'
bad first.memory=80Q 'memory'
bad first.gpus=a100 'NUMBER'
bad first.gpus='a b:4' 'TYPE:NUMBER'
bad first.launcher=ssh 'one of auto'
bad first.chain=always 'one of auto'
bad first.mail_type=sometimes 'the words are'
bad first.mail='a b@c' 'not an address'
bad first.partition='x y' 'not beginning with'
bad first.account=-A 'not beginning with'
bad first.constraint='a$(id)' 'only'
bad first.time_limit=0 'more than nothing'
bad first.nodez=2 'did you mean "nodes"'
bad resources.mem=4G 'unknown key'
bad site.poll=often 'poll'
bad site.templates=here 'absolute'
bad site.commands=sbatch 'NAME=/PATH'
runs 2 "$LF" plan --set second.partition=x
like err 'two names of one key' "partition and queue at once"
runs 2 "$LF" plan --set pipeline.scheduler=local
like err 'pipeline.ini:[0-9]+:[0-9]+: nodes = 2: scheduler = local has one node' "two nodes on this machine"
runs 2 "$LF" run
like err 'asks for 2 nodes; this machine is one' "also with run"
runs 2 "$LF" submit -n --set pipeline.scheduler=local --set first.nodes=1
like err 'has no job scripts' "the local scheduler has no scripts"
finish_min 82 # two fewer when not root

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# doctor: what it finds on this machine, in directories that are no good, with schedulers that are out of reach or set up so that
# jobs would come to harm. The schedulers are a few lines of shell here; slurm_user.sh asks a real one.
. "$LF_SRCDIR/tests/flow/lib.sh"
mkdir bin
PATH=$T/bin:/usr/bin:/bin
fake() { cat >"bin/$1" && chmod +x "bin/$1"; } # fake NAME: the script is on stdin
# finds VERDICT CHECK PATTERN NAME: a finding in `out`
finds() { like out "^$1 +$2: .*$3" "$4"; }
advised() { like out "^ +-> .*$1" "$2"; }

# ---- this machine
pipeline
runs 0 "$LF" doctor --scheduler local
finds ok 'project' 'none here yet' "no project is no failure"
finds '(ok|warn)' data_dir ' on ' "the filesystem is named"
finds ok data_dir 'publishing .* works' "publishing was tried"
finds ok 'project directory' 'record locks keep a second process out' "locks were tried with a second process"
finds ok data_dir 'clock agrees' "the file server's clock was read"
finds ok 'lf-work' 'starts' "stages were started"
echo '{"text":"caf\u00c3\u00a9"}' >odd.jsonl
LF_LIBEXEC=$LF_BUILDDIR/stages "$LF" doctor --data odd.jsonl >out 2>err
is $? 0 "doctor --data examines a data set"
like out 'mojibake: 1 rows' "and says what it found"
LF_LIBEXEC=$LF_BUILDDIR/stages "$LF" doctor --data odd.jsonl --json >out 2>err
like out '"rows": 1' "as JSON too"
for data in '' '{"text":\n' '{"nothing":"of use"}\n' '{"text":"one row"}\n{"nothing":1}\n'; do
    printf "$data" >odd.jsonl
    LF_LIBEXEC=$LF_BUILDDIR/stages "$LF" doctor --data odd.jsonl >out 2>err
    echo "$? $(sed -n 's/.*error: //p' err)"
    cat out >&3
done >codes 3>tables
is "$(cut -d' ' -f1 codes | tr '\n' ' ')" "1 1 1 0 " "nothing, or no row that can be used, is a failure; one good row is none"
like codes '^1 the data has no rows$' "which says so"
is "$(grep -cE '^(lengths|longest|found)' tables) $(grep -c '^0 rows' tables)" "5 1" "and has no tables of what is not there" "$(cat tables)"
like codes 'no row of the data can be used; the first trouble: the columns \(nothing\)' "and says what came first"
printf 'PAR1xxxxPAR1' >broken.parquet
LF_LIBEXEC=$LF_BUILDDIR/stages "$LF" doctor --data broken.parquet --json >out 2>err
is $? 1 "as is a file that cannot be read"
like out '"unreadable": \[' "after its report"
rm odd.jsonl broken.parquet
if [ -e "$LF_BUILDDIR/tests/libcuemu.so" ]; then
    LF_CUDA_DRIVER=$LF_BUILDDIR/tests/libcuemu.so "$LF" doctor --scheduler local >gpus 2>&1
    grep -q 'CUDA driver 13.0 shows 2 GPUs; this build carries' gpus &&
        grep -q 'GPU 1: emulated GPU, compute capability 9.0, 8 GiB' gpus
    is $? 0 "doctor tells of GPUs"
fi
# kernels: those that run here, those that LF_ISA leaves, and what another lf-pretrain would make of it
LF_LIBEXEC=$LF_BUILDDIR/stages "$LF" doctor --scheduler local >out 2>err
kernels=$("$LF_BUILDDIR/stages/lf-pretrain" --version | sed -n "s/^runs here: //p")
case $kernels in
plain) finds warn processor "no kernels of this build but plain C" "the processor, and that plain C runs on it" ;;
*) finds ok processor "; kernels $kernels\$" "the processor, and the kernels that run on it" ;;
esac
LF_ISA=plain LF_LIBEXEC=$LF_BUILDDIR/stages "$LF" doctor --scheduler local >out 2>err
finds ok processor "kernels plain, limited by LF_ISA = plain" "LF_ISA is told"
# decoders of pictures: those of this build, then what another library would make lf-tokenize say
LF_LIBEXEC=$LF_BUILDDIR/stages "$LF" doctor --scheduler local >out 2>err
is "$(grep -cE '^ok +pictures: (JPEG|PNG|WebP) \((no\) not built in|[0-9.]+\) reads)' out)" 3 "each decoder is told, and is right" "$(cat out)"
cp -R "$LF_LIBEXEC" media
printf "#!/bin/sh\necho name\necho runs here: plain\n" >media/lf-pretrain && chmod +x media/lf-pretrain
fake ../media/lf-tokenize <<'END'
#!/bin/sh
[ "$1" != --decoders ] || printf 'JPEG\t9.1\tdiffers\nPNG\tno\tabsent\nWebP\t1.0\tfails\n'
END
LF_LIBEXEC=$T/media runs 1 "$LF" doctor --scheduler local
finds warn processor "no kernels of this build but plain C run on it" "kernels of plain C alone are a warning"
advised "without --enable-native" "with what to do"
finds warn pictures 'JPEG \(9.1\) the library rounds otherwise' "a library with other pixels is a warning"
advised 'on one machine alone' "with what to do"
finds ok pictures 'PNG \(no\) not built in' "one that is missing is told"
finds fail pictures 'WebP \(1.0\) the library refuses' "one that fails is a failure"
for answer in 'exit 3' 'echo what' 'printf "JPEG\\t1\\tgood\\n"'; do
    printf '#!/bin/sh\n%s\n' "$answer" >media/lf-tokenize
    printf "#!/bin/sh\n%s\n" "$answer" >media/lf-pretrain
    LF_LIBEXEC=$T/media "$LF" doctor --scheduler local >out 2>err
    finds warn pictures '--decoders gives no answer' "no answer: $answer"
    finds warn processor "--version does not name its kernels" "... of kernels"
done
rm -r media
runs 0 "$LF" doctor --scheduler local --json
python=$(tr -d ' \n' <out)
case $python in *'"failures":0'*'"ok":true'*) ;; *) false ;; esac
ok $? "JSON says so too" "$python"
like out '"schema": 1' "with a schema number"
is "$(grep -c '"verdict"' out)" "$(grep -c '"text"' out)" "each finding has a verdict and a text"
is "$(find . -name '.doctor*')" "" "nothing is left behind"

# ---- directories
runs 1 "$LF" doctor --scheduler local --data-dir in.txt/data
finds fail data_dir 'Not a directory' "a directory that cannot be made"
advised 'name another' "with what to do"
if [ "$(id -u)" -ne 0 ]; then # root may write everywhere
    mkdir closed && chmod 500 closed
    runs 1 "$LF" doctor --scheduler local --data-dir closed
    finds fail data_dir 'cannot be written' "a directory that cannot be written"
    advised 'right to write' "with what to do"
    chmod 700 closed
fi
if [ "$(stat -f -c %T /dev/shm 2>/dev/null)" = tmpfs ] && [ -w /dev/shm ]; then
    runs 0 "$LF" doctor --scheduler local --data-dir /dev/shm/lf-doctor
    finds warn data_dir 'tmpfs: gone after a restart' "a directory in memory"
else
    echo "# no /dev/shm to look at"
fi
. "$LF_SRCDIR/tests/fault/lib.sh"
if [ -n "$FAIL" ]; then
    LD_PRELOAD=$FAIL LF_FAIL_ROOT=$T LF_FAIL_LOCKS=1 "$LF" doctor --scheduler local >out 2>&1
    finds warn 'project directory' 'record locks .* do not work: No locks available' "a filesystem without record locks"
    advised 'ledger_locks = no' "with what to do"
    LD_PRELOAD=$FAIL LF_FAIL_ROOT=$T LF_FAIL_AFTER=1 LF_FAIL_ACTION=enospc "$LF" doctor --scheduler local >out 2>&1
    is $? 1 "a full disk is a failure"
    finds fail data_dir 'No space left on device' "and named"
fi
(ulimit -n 100 && "$LF" doctor --scheduler local) >out
finds warn limits 'open files is limited to 100' "a low limit of open files"
advised 'ulimit -n' "with what to do"
(ulimit -f 1000 && "$LF" doctor --scheduler local) >out
finds warn limits 'size of a file is limited' "a limit of file sizes"

# ---- programs
cp -R "$LF_LIBEXEC" lib && rm lib/lf-join && printf '#!/bin/sh\nexit 127\n' >lib/lf-work
LF_LIBEXEC=$T/lib runs 1 "$T/lib/loong-flow" doctor --scheduler local
finds fail lf-join '' "a stage that is not installed"
finds fail lf-work 'does not start' "a stage that does not start"

# ---- SLURM
fake sbatch <<'END'
#!/bin/sh
[ "$1" != --version ] || { echo "slurm-wlm 22.05.8"; exit 0; }
echo "$@" >>"$FAKE/sbatch.args"
. "$FAKE/sbatch.do"
END
fake scontrol <<'END'
#!/bin/sh
case "$*" in
ping) cat "$FAKE/ping" ;;
"show config") cat "$FAKE/config" ;;
"show partition -o") cat "$FAKE/partitions" ;;
*) echo "invalid: $*" >&2; exit 1 ;;
esac
END
fake srun <<'END'
#!/bin/sh
[ "$*" = --mpi=list ] || exit 1
printf 'MPI plugin types are...\n\tpmix\n\tnone\n' >&2
END
fake squeue <<'END'
#!/bin/sh
echo "PENDING Resources"
END
fake scancel <<'END'
#!/bin/sh
echo "$@" >>"$FAKE/cancelled"
END
FAKE=$T
export FAKE
echo "Slurmctld(primary) at ctl is UP" >ping
cat >config <<'END'
Configuration data as of 2026-11-22T06:00:00
AccountingStorageType   = accounting_storage/slurmdbd
KillWait                = 30 sec
MaxArraySize            = 1001
MaxJobCount             = 10000
MinJobAge               = 300 sec
RequeueExit             = (null)
RequeueExitHold         = (null)
END
cat >partitions <<'END'
PartitionName=main AllowGroups=ALL Default=YES GraceTime=0 MaxNodes=UNLIMITED MaxTime=1-00:00:00 PreemptMode=OFF State=UP
PartitionName=spare AllowGroups=ALL Default=NO GraceTime=0 MaxNodes=4 MaxTime=02:00:00 PreemptMode=REQUEUE State=UP
END
runs 0 "$LF" doctor
finds ok scheduler 'slurm-wlm 22.05.8, the controller answers' "SLURM is found without being named, with its version"
finds ok partition 'main \(yours\): UP, longest job 1-00:00:00' "limits of the partition"
finds ok scheduler 'MaxArraySize 1001' "limits of the cluster"
finds ok launch 'srun lists PMIx' "what srun offers"
finds warn data_dir 'jobs on other nodes may not see it|gone after a restart|FUSE|unknown kind' "a local disk is doubted where jobs run elsewhere"
runs 0 "$LF" doctor --partition spare
finds warn partition 'spare: jobs may be preempted, with GraceTime 0 s' "preemption without time to save"
runs 1 "$LF" doctor --partition gone
finds fail partition 'there is no partition gone' "a partition that is not there"
printf '[resources]\ntime_limit = 3h\n' >>pipeline.ini
runs 1 "$LF" doctor --partition spare
finds fail partition 'spare: its longest job is 02:00:00, shorter than the time_limit' "a time limit that the partition refuses"
runs 0 "$LF" doctor
sed -i 's/^RequeueExit .*/RequeueExit             = 3,70-80/; s/^KillWait .*/KillWait                = 5 sec/' config
runs 1 "$LF" doctor
finds fail scheduler 'RequeueExit = 3,70-80' "a site that would requeue our stopped jobs"
advised 'chain = links' "with what to do"
finds warn scheduler 'KillWait: 5 s' "little time between TERM and KILL"
sed -i 's/^RequeueExit .*/RequeueExit             = (null)/; s/slurmdbd/none/; s/^MinJobAge .*/MinJobAge               = 10 sec/' config
runs 0 "$LF" doctor
finds warn scheduler 'forgotten after 10 s' "no accounting, and a short memory"
echo "Slurmctld(primary) at ctl is DOWN" >ping
runs 1 "$LF" doctor
finds fail scheduler 'controller is down' "a controller that is down"
rm ping
runs 1 "$LF" doctor
finds fail scheduler 'scontrol ping: .*No such file' "a command that fails is quoted"
echo "Slurmctld(primary) at ctl is UP" >ping

# ---- a real start of a job
cat >sbatch.do <<'END'
for a; do script=$a; done
(env -i PATH="$PATH" HOME="$HOME" sh "$script" >"$FAKE/job.log" 2>&1 &)
echo "site chatter"
echo "42;cluster"
END
"$LF" doctor --launch --wait 60s --partition main --account me >out 2>err
finds ok launch 'job 42 ran on .* came back' "a job ran and its answer came back"
like sbatch.args '--propagate=NONE' "it runs under the limits of the node"
like sbatch.args '--partition main --account me' "in the partition that was asked for"
finds '(ok|warn)' 'node limits' '' "the limits of the node were read"
finds '(ok|warn|fail)' launch 'launcher' "the launcher was tried there"
is "$(find . -name '.doctor*')" "" "nothing is left behind"
echo 'echo 43' >sbatch.do
runs 0 "$LF" doctor --launch --wait 1s
finds warn launch 'no answer of job 43 within 1 s \(PENDING Resources\)' "a job that does not start"
like cancelled '^43$' "is cancelled"
cat >sbatch.do <<'END'
prev=
for a; do [ "$prev" != --output ] || echo "error while loading shared libraries: libjansson.so.4" >"$a"; prev=$a; done
echo 44
END
runs 1 "$LF" doctor --launch --wait 1s
finds fail launch 'job 44 ran and sent no answer: error while loading shared libraries' "a node without our libraries"
echo 'echo "sbatch: error: invalid account" >&2; exit 1' >sbatch.do
runs 1 "$LF" doctor --launch --wait 1s
finds fail launch 'refused: .*invalid account' "a job that is refused"
advised '--account' "with what to do"

# ---- PBS and Torque
fake qstat <<'END'
#!/bin/sh
case "$*" in
--version) cat "$FAKE/version" ;;
"-B -f") cat "$FAKE/server" ;;
"-Q -f") cat "$FAKE/queues" ;;
*) exit 2 ;;
esac
END
echo "pbs_version = 23.06.06" >version
printf 'Server: pbs0\n    server_state = Active\n    job_history_enable = True\n' >server
printf 'Queue: workq\n    queue_type = Execution\n    enabled = True\n    started = True\n\nQueue: long\n    queue_type = Execution\n    resources_max.walltime = 48:00:00\n    enabled = True\n    started = False\n' >queues
runs 0 "$LF" doctor --scheduler pbs
finds ok scheduler 'pbs_version = 23.06.06, the server answers' "PBS with its version"
finds ok scheduler 'job history is on' "history"
finds ok queue 'long: Execution, closed or stopped, longest job 48:00:00' "queues and their limits"
runs 0 "$LF" doctor --scheduler pbs --partition long
finds warn queue 'long \(yours\)' "a queue that is stopped"
sed -i 's/^time_limit = 3h/time_limit = 50h/' pipeline.ini
runs 1 "$LF" doctor --scheduler pbs --partition long
finds fail queue 'long: its longest job is 48:00:00, shorter than the time_limit' "a time limit that the queue refuses"
runs 1 "$LF" doctor --scheduler pbs --partition lon
finds fail queue 'there is no queue lon' "a queue that is not there"
runs 0 "$LF" doctor --scheduler torque
finds warn scheduler 'configured is torque, but qstat says: pbs_version' "another flavour than is configured"
advised 'scheduler = pbs' "with what to do"
echo "Version: 6.1.2" >version
printf 'Server: t0\n    keep_completed = 300\n' >server
runs 0 "$LF" doctor --scheduler torque
finds ok scheduler 'ended jobs stay known for 300 s' "Torque"
rm server
runs 1 "$LF" doctor --scheduler torque
finds fail scheduler 'qstat -B -f' "a server that is out of reach"
finish_min 101 # root, sanitizers and a machine without /dev/shm have fewer

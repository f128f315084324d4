# SPDX-License-Identifier: Apache-2.0
# Imitated schedulers on PATH, for tests: source it behind lib.sh. See fakes/slurm/README.md.

fakes_slurm() { # a cluster of its own in $T/slurm
    LF_FAKE_DIR=$T/slurm
    export LF_FAKE_DIR
    mkdir -p "$LF_FAKE_DIR/knobs" "$LF_FAKE_DIR/bin"
    for _name in sbatch squeue sacct scontrol scancel srun sinfo fakeslurm; do
        ln -s "$LF_BUILDDIR/tests/flow/fakes/slurm/fakeslurm" "$LF_FAKE_DIR/bin/$_name"
    done
    PATH=$LF_FAKE_DIR/bin:$PATH
    export PATH
    # Sanitizers' options are part of every shell here.
    [ -z "${ASAN_OPTIONS:-}${UBSAN_OPTIONS:-}" ] || knob login_env "ASAN_OPTIONS=${ASAN_OPTIONS:-}
UBSAN_OPTIONS=${UBSAN_OPTIONS:-}"
    trap 'fakeslurm stop; cleanup' EXIT
}
knob() { # knob NAME VALUE: set; knob NAME: take away. In one step: the controller reads it all the time.
    if [ $# -gt 1 ]; then
        printf '%s\n' "$2" >"$LF_FAKE_DIR/knob.tmp"
        mv "$LF_FAKE_DIR/knob.tmp" "$LF_FAKE_DIR/knobs/$1"
    else rm -f "$LF_FAKE_DIR/knobs/$1"; fi
}
calls() { grep -c -e " $1" "$LF_FAKE_DIR/calls"; }        # calls NAME: how many times a command was called
starts() { grep -c " start .*$1" "$LF_FAKE_DIR/history"; } # starts TEXT: of jobs with it in name or comment
submits() { grep -c " submit .*$1" "$LF_FAKE_DIR/history"; }

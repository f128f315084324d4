# SPDX-License-Identifier: Apache-2.0
# A PBS or Torque for a test: source after tests/flow/lib.sh.
# pbs_nameless: why nothing of PBS can be tried here, or nothing. Sourced before the first point, the whole test is skipped then.
pbs_nameless() { id -un >/dev/null 2>&1 || echo "PBS asks for jobs by the name of their user, and $(id -u) has none"; }
[ "$tap_n" -gt 0 ] || [ -z "$(pbs_nameless)" ] || skip_all "$(pbs_nameless)"
# pbs_up FLAVOUR [KEY=VALUE...]: openpbs or torque; its commands come first on PATH, its state lies in $T/pbs.
pbs_up() {
    LF_FAKE_DIR="$T/pbs"
    export LF_FAKE_DIR
    mkdir -p "$LF_FAKE_DIR/knobs" "$LF_FAKE_DIR/spool" "$LF_FAKE_DIR/aux" "$LF_FAKE_DIR/scripts" "$LF_FAKE_DIR/home" "$LF_FAKE_DIR/bin"
    {
        echo "flavour=$1"
        echo "bin=$LF_FAKE_DIR/bin"
        echo "home=$LF_FAKE_DIR/home"
        echo "user=$(id -un)"
        shift
        for kv; do echo "$kv"; done
    } >"$LF_FAKE_DIR/conf"
    for c in qsub qstat qselect qdel qalter qsig qrls qmove pbs_server; do ln -sf "$LF_BUILDDIR/tests/flow/fakes/pbs/fakepbs" "$LF_FAKE_DIR/bin/$c"; done
    case ":$PATH:" in *":$LF_FAKE_DIR/bin:"*) ;; *) PATH="$LF_FAKE_DIR/bin:$PATH"; export PATH ;; esac
}
# pbs_server_up: from now on nothing is answered and started but by a server, which can be killed and brought back by this
pbs_server_up() {
    pbs_conf server_process=1
    until_true 20 "$LF_FAKE_DIR/bin/pbs_server" && until_true 20 qselect # one that was killed holds its lock for a moment
}
pbs_server_pid() { cat "$LF_FAKE_DIR/server.pid" 2>/dev/null; }
# pbs_conf KEY=VALUE: change a setting (the last line wins)
pbs_conf() { echo "$1" >>"$LF_FAKE_DIR/conf"; }
# pbs_knob NAME TIMES [VALUE]: make a trouble, TIMES -1 = until told otherwise, 0 = no more
pbs_knob() { printf '%s\n%s\n' "$2" "${3:-}" >"$LF_FAKE_DIR/knobs/$1"; }
pbs_calls() { grep -c "^$1\\>" "$LF_FAKE_DIR/calls"; }
# pbs_attr ID NAME: of a job, from the state itself; pbs_jobs: ids of all jobs that are not over
pbs_attr() { qstat $(pbs_hist) "$1" 2>/dev/null | sed -n "s/^    $2 = //p"; }
pbs_hist() { if grep -q '^flavour=torque' "$LF_FAKE_DIR/conf"; then echo "-f -1"; else echo "-x -f -w"; fi; }
pbs_jobs() { qselect; }
pbs_idle() { [ -z "$(qselect -s QHRE)" ]; }
# pbs_down: end what still runs (its own moms and jobs only)
pbs_down() {
    pbs_conf scheduling=0
    pbs_conf server_process=0
    [ ! -e "$LF_FAKE_DIR/server.pid" ] || kill -9 "$(pbs_server_pid)" 2>/dev/null
    ids=$(qselect) && [ -z "$ids" ] || qdel $ids
    pbs_conf kill_delay=0
    until_true 20 pbs_idle
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The launchers' argv, frames and the proof of the key.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/net.h"
#include "flow/launch/job.h"
#include "flow/launch/launch.h"
#include "flow/launch/message.h"
#include "tests/tap/tap.h"

static lf_err err = LF_ERR_INIT;

static void joined(const lf_launch_plan *p, char *out, size_t cap)
{
    out[0] = '\0';
    for (char **a = p->argv; a != NULL && *a != NULL; a++) {
        size_t n = strlen(out);
        snprintf(out + n, cap - n, "%s%s", n > 0 ? " " : "", *a);
    }
}

static void is_plan(const lf_launch_req *q, enum lf_launcher want, const char *argv,
                    const char *name)
{
    lf_launch_plan p;
    char got[1000];
    tap_rc(lf_launch_plan_make(&p, q, &err), 0, &err, NULL, name);
    joined(&p, got, sizeof got);
    tap_str(got, argv, name);
    tap_i64(p.launcher, want, name);
    tap_i64(p.omp_threads, q->cpus, name);
    lf_launch_plan_fini(&p);
}

static void refused(const lf_launch_req *q, int rc, const char *text, const char *name)
{
    lf_launch_plan p;
    tap_rc(lf_launch_plan_make(&p, q, &err), rc, &err, text, name);
    tap_ok(p.argv == NULL, "%s: nothing to execute", name);
}

/* An executable on a PATH of our own. */
static void fake(const char *name, const char *body)
{
    char *path = lf_path_join(tap_tmpdir(), name, NULL);
    unlink(path);
    if (lf_io_publish(path, body, strlen(body), 0700, &err) < 0)
        tap_bail("%s", err.text);
    free(path);
}

static void test_plans(void)
{
    const char *const argv[] = {"lf-pretrain", "--config", "c.ini", NULL}, *const prefix[] = {
                                                                               "numactl", "-l",
                                                                               NULL};
    lf_launch_req q = {.nodes = 1, .ranks = 1, .cpus = 4, .self = "/x/loong-flow", .argv = argv};
    unsetenv("SLURM_JOB_ID");
    unsetenv("SLURM_STEP_ID");
    setenv("PATH", tap_tmpdir(), 1);
    is_plan(&q, LF_LAUNCH_NONE, "lf-pretrain --config c.ini", "one rank");
    q.prefix = prefix;
    is_plan(&q, LF_LAUNCH_NONE, "numactl -l lf-pretrain --config c.ini",
            "one rank behind a prefix");
    q.ranks = 2;
    q.nodes = 3;
    q.launcher = LF_LAUNCH_NONE;
    refused(&q, LF_EINVAL, "6 are asked for", "none with six ranks");
    q.launcher = LF_LAUNCH_SRUN;
    refused(&q, LF_ENOTSUP, "no SLURM job", "srun outside of SLURM");
    q.launcher = LF_LAUNCH_MPIRUN;
    refused(&q, LF_ENOTSUP, "not on PATH", "mpirun that is not there");
    q.ranks = 0;
    refused(&q, LF_EINVAL, "0 ranks", "no ranks");
    q.ranks = 2;
#ifdef HAVE_PMIX
    q.launcher = LF_LAUNCH_AUTO;
    is_plan(&q, LF_LAUNCH_LOONG,
            "/x/loong-flow launch --ranks 6 --nodes 3 --cpus 4 -- numactl -l lf-pretrain --config "
            "c.ini",
            "auto: our own");
#else
    tap_skip(4, "built without PMIx");
#endif
    fake("mpirun", "#!/bin/sh\n");
    q.launcher = LF_LAUNCH_MPIRUN;
    is_plan(
        &q, LF_LAUNCH_MPIRUN,
        getuid() == 0
            ? "mpirun --allow-run-as-root -np 6 --map-by ppr:2:node --oversubscribe --bind-to none "
              "--tag-output "
              "--mca orte_abort_on_non_zero_status 0 numactl -l lf-pretrain --config c.ini"
            : "mpirun -np 6 --map-by ppr:2:node --oversubscribe --bind-to none --tag-output --mca "
              "orte_abort_on_non_zero_status 0 numactl -l lf-pretrain --config c.ini",
        "mpirun");
    fake("srun", "#!/bin/sh\nexit 0\n");
    setenv("SLURM_JOB_ID", "7", 1);
    q.launcher = LF_LAUNCH_AUTO;
    is_plan(&q, LF_LAUNCH_SRUN,
            "srun --mpi=pmix --export=ALL --nodes=3 --ntasks=6 --ntasks-per-node=2 -c 4 "
            "--kill-on-bad-exit=0 --label "
            "numactl -l lf-pretrain --config c.ini",
            "auto in a SLURM job whose srun works");
    setenv("SLURM_STEP_ID", "1", 1);
    q.launcher = LF_LAUNCH_SRUN;
    q.cpus = 0;
    is_plan(&q, LF_LAUNCH_SRUN,
            "srun --mpi=pmix --export=ALL --nodes=3 --ntasks=6 --ntasks-per-node=2 -c 1 "
            "--kill-on-bad-exit=0 --label "
            "--overlap numactl -l lf-pretrain --config c.ini",
            "a step inside a step");
    unsetenv("SLURM_STEP_ID");
}

static void test_probe(void)
{
    fake("srun", "#!/bin/sh\necho 'srun: error: mpi/pmix: no such plugin' >&2\nexit 1\n");
    tap_rc(lf_launch_probe(LF_LAUNCH_SRUN, "/x/loong-flow", 2, 1, 20, &err), LF_ECOMM, &err,
           "no such plugin", "a probe that fails says why");
    fake("srun", "#!/bin/sh\necho waiting; exec /bin/sleep 300\n");
    tap_rc(lf_launch_probe(LF_LAUNCH_SRUN, "/x/loong-flow", 2, 1, 0.5, &err), LF_EBUSY, &err,
           "waiting", "a probe that hangs is ended");
#ifdef HAVE_PMIX
    const char *const argv[] = {"x", NULL};
    const lf_launch_req q = {
        .nodes = 2, .ranks = 1, .self = "/x/loong-flow", .argv = argv, .probe_s = 0.5};
    lf_launch_plan p;
    tap_rc(lf_launch_plan_make(&p, &q, &err), 0, &err, NULL, "auto where srun hangs");
    tap_i64(p.launcher, LF_LAUNCH_LOONG, "takes our own");
    tap_ok(strstr(p.why, "our own") != NULL && strstr(p.why, "srun") != NULL, "and says why: %s",
           p.why);
    lf_launch_plan_fini(&p);
#else
    tap_skip(3, "built without PMIx");
#endif
    unsetenv("SLURM_JOB_ID");
}

static void test_scrub(void)
{
    setenv("PMIX_NAMESPACE", "x", 1);
    setenv("PMIX_MCA_gds", "hash", 1);
    setenv("PMI_RANK", "0", 1);
    setenv("SLURM_STEP_NUM_TASKS", "4", 1);
    setenv("PMIXED", "y", 1);
    lf_launch_scrub();
    tap_ok(getenv("PMIX_NAMESPACE") == NULL && getenv("PMI_RANK") == NULL &&
               getenv("SLURM_STEP_NUM_TASKS") == NULL,
           "what another launcher left is gone");
    tap_ok(getenv("PMIX_MCA_gds") != NULL && getenv("PMIXED") != NULL, "what the user set is not");
    tap_i64(lf_launcher_find("prterun"), LF_LAUNCH_PRTERUN, "a launcher by name");
    tap_i64(lf_launcher_find("magic"), -1, "an unknown one");
}

static int task(const char *first, int node)
{
    struct lf_task t;
    char text[300];
    snprintf(text, sizeof text,
             "{\"ns\":\"n\",\"hosts\":[\"a\",\"b\"],\"first\":[%s],\"argv\":[\"true\"],"
             "\"cpus\":1,\"bind\":false,\"node\":%d}",
             first, node);
    lf_err_clear(&err);
    int rc = lf_task_read(&t, text, strlen(text), &err);
    lf_task_fini(&t);
    return rc;
}

/* A description of a job that ranges of ranks are made from. */
static void test_tasks(void)
{
    tap_rc(task("0, 2, 3", 1), 0, &err, NULL, "two nodes with ranks");
    tap_rc(task("0, 0, 3", 0), 0, &err, NULL, "one has none");
    tap_rc(task("0, 3, 2", 0), LF_EFORMAT, &err, "node 2", "fewer than none");
    tap_rc(task("1, 2, 3", 0), LF_EFORMAT, &err, "node 0", "a rank of nobody");
    tap_rc(task("0, 2, 4294967296", 0), LF_EFORMAT, &err, "node 2", "more than an int");
    tap_rc(task("0, 2", 0), LF_EFORMAT, &err, "description", "too few numbers");
    tap_rc(task("0, 2, 3", 2), LF_EFORMAT, &err, "node 2 of 2", "a node of nobody");
}

static void test_frames(void)
{
    int sv[2];
    lf_wire a, b;
    struct lf_frame_head h;
    const char *data = NULL;
    char big[100000];
    memset(big, 'x', sizeof big);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, sv) < 0)
        tap_bail("socketpair");
    lf_wire_init(&a, sv[0]);
    lf_wire_init(&b, sv[1]);
    tap_i64(lf_wire_next(&b, &h, &data, &err), 0, "nothing yet");
    lf_wire_put(&a, (struct lf_frame_head){LF_FRAME_OUT, 3, 1, 9, 5}, "hello");
    lf_wire_put(&a, (struct lf_frame_head){LF_FRAME_EXIT, 4, -7, 0, 0}, NULL);
    lf_wire_put(&a, (struct lf_frame_head){LF_FRAME_OUT, 5, 2, 0, sizeof big}, big);
    int n = 0, whole = 0;
    for (int i = 0; i < 1000 && n < 3; i++) {
        if (lf_wire_send(&a, &err) < 0 || lf_wire_recv(&b, &err) < 0)
            tap_bail("%s", err.text);
        for (; lf_wire_next(&b, &h, &data, &err) == 1; n++)
            whole += n == 0 ? h.type == LF_FRAME_OUT && h.rank == 3 && h.id == 9 && h.len == 5 &&
                                  memcmp(data, "hello", 5) == 0
                     : n == 1
                         ? h.type == LF_FRAME_EXIT && h.rank == 4 && h.status == -7 && h.len == 0
                         : h.rank == 5 && h.len == sizeof big && memcmp(data, big, sizeof big) == 0;
    }
    tap_i64(whole, 3, "frames arrive whole and in order");
    const unsigned char bad[24] = {99};
    tap_ok(write(sv[0], bad, sizeof bad) == sizeof bad, "rubbish is sent");
    tap_rc(lf_wire_recv(&b, &err), 0, &err, NULL, "and received");
    tap_rc(lf_wire_next(&b, &h, &data, &err), LF_EFORMAT, &err, "not a frame",
           "rubbish is no frame");
    lf_wire_fini(&a);
    tap_rc(lf_wire_recv(&b, &err), LF_ECOMM, &err, "gone", "the end is noticed");
    lf_wire_fini(&b);
}

/* A daemon with `key` at the door of a hub with another or the same. Returns what the hub thinks,
 * *code what the daemon. */
static int at_the_door(const char *hub_key, const char *daemon_key, int *code)
{
    uint16_t port = 0;
    struct lf_auth hub, daemon;
    lf_net_names none = {.n = 0};
    lf_wire w;
    int fd = lf_net_listen(false, &port, &err), st = 0, rc = 0;
    if (fd < 0 || lf_key_parse(hub.key, hub_key, &err) < 0 ||
        lf_key_parse(daemon.key, daemon_key, &err) < 0)
        tap_bail("%s", err.text);
    pid_t pid = fork();
    if (pid == 0) {
        int s = lf_net_connect(&none, true, port, 120000, &err);
        _exit(s >= 0 && lf_auth_answer(&daemon, s, 120000, &err) == 0 ? 0 : 1);
    }
    int s = -1;
    for (int i = 0; i < 24000 && s < 0; i++, usleep(5000))
        s = accept(fd, NULL, NULL);
    lf_wire_init(&w, s);
    if (s < 0 || lf_auth_ask(&hub, &w, &err) < 0)
        tap_bail("%s", err.text);
    for (int i = 0; i < 24000 && rc == 0; i++, usleep(5000)) {
        lf_wire_send(&w, &err);
        if (lf_wire_recv(&w, &err) < 0)
            break;
        rc = lf_auth_check(&hub, &w, &err);
    }
    if (rc == 1)
        lf_wire_send(&w, &err);
    lf_wire_fini(&w);
    close(fd);
    waitpid(pid, &st, 0);
    *code = WEXITSTATUS(st);
    return rc;
}

static void test_key(void)
{
    const char *a = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
    const char *b = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeefe";
    uint8_t key[LF_KEY_BYTES];
    int code = -1;
    tap_i64(at_the_door(a, a, &code), 1, "a daemon with the key is let in");
    tap_i64(code, 0, "and knows that it is the right hub");
    tap_rc(at_the_door(a, b, &code), LF_ECOMM, &err, "does not know the key",
           "one with another key is not");
    tap_i64(code, 1, "and does not trust it either");
    tap_rc(lf_key_parse(key, "abc", &err), LF_EFORMAT, &err, "hex", "a short key");
    tap_rc(
        lf_key_parse(key, "zz112233445566778899aabbccddeeff00112233445566778899aabbccddeeff", &err),
        LF_EFORMAT, &err, "hex", "a key that is not hex");
}

/* ---- fences ---- */

static char told[400];

static void tell(void *arg, int node, uint32_t id, const char *data, size_t len)
{
    (void)arg;
    size_t n = strlen(told);
    snprintf(told + n, sizeof told - n, "%d:%u:%.*s ", node, id, (int)len, data);
}

static int come(struct lf_fences *f, int node, uint32_t id, const char *ranks, const char *text)
{
    char frame[64];
    uint32_t n = (uint32_t)strlen(ranks), r;
    size_t at = sizeof n;
    memcpy(frame, &n, sizeof n);
    for (const char *p = ranks; *p != '\0'; p++, at += sizeof r) {
        r = (uint32_t)(*p - '0');
        memcpy(frame + at, &r, sizeof r);
    }
    memcpy(frame + at, text, strlen(text));
    const struct lf_frame_head h = {LF_FRAME_FENCE, 0, 0, id, at + strlen(text)};
    return lf_fences_add(f, node, &h, frame, tell, NULL, &err);
}

static void test_fences(void)
{
    struct lf_launch_node nodes[3] = {
        {.first = 0, .n = 2}, {.first = 2, .n = 1}, {.first = 3, .n = 2}};
    const struct lf_launch_job j = {.ranks = 5, .node = nodes, .nodes = 3};
    struct lf_fences *f = lf_fences_create(&j, &err);
    told[0] = '\0';
    tap_i64(lf_launch_node_of(&j, 2), 1, "the node of a rank");
    tap_i64(lf_launch_node_of(&j, 5), -1, "of one there is not");
    tap_i64(come(f, 2, 7, "", "c"), 0, "the last node comes first");
    tap_i64(come(f, 0, 3, "", "a"), 0, "then the first");
    tap_i64(come(f, 0, 4, "", "A"), 0, "which is quick and comes again");
    tap_i64(come(f, 0, 5, "03", "x"), 0, "with a fence of two ranks as well");
    tap_str(told, "", "nobody has been told anything");
    tap_i64(come(f, 1, 1, "", "b"), 0, "the second comes");
    tap_str(told, "0:3:abc 1:1:abc 2:7:abc ",
            "the first fence: all data in the order of the nodes");
    told[0] = '\0';
    tap_i64(come(f, 2, 9, "03", ""), 0, "the other of the two ranks");
    tap_str(told, "0:5:x 2:9:x ", "needs only their nodes");
    told[0] = '\0';
    come(f, 1, 2, "", "B");
    come(f, 2, 8, "", "C");
    tap_str(told, "0:4:ABC 1:2:ABC 2:8:ABC ", "the second fence of all");
    const struct lf_frame_head bad = {LF_FRAME_FENCE, 0, 0, 0, 6};
    tap_rc(lf_fences_add(f, 0, &bad, "\2\0\0\0xx", tell, NULL, &err), LF_EFORMAT, &err,
           "cannot be read", "a short frame");
    come(f, 1, 2, "", "left open");
    lf_fences_destroy(f);
}

int main(void)
{
    TAP(32, test_plans());
    TAP(13, test_fences());
    TAP(5, test_probe());
    TAP(4, test_scrub());
    TAP(7, test_tasks());
    TAP(6, test_frames());
    TAP(6, test_key());
    return tap_done();
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Start-up alone, and as two ranks of a PMIx server that this test plays itself.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/comm/comm.h"
#include "tests/tap/tap.h"

static lf_err err = LF_ERR_INIT;

/* What srun without --mpi=pmix leaves. */
static void test_strangers(void)
{
    setenv("SLURM_STEP_NUM_TASKS", "2", 1);
    tap_rc(lf_boot_create(&err) ? 0 : err.rc, LF_ECOMM, &err, "--mpi=pmix",
           "several processes without PMIx are refused");
    setenv("SLURM_STEP_NUM_TASKS", "1", 1);
    lf_boot *b = lf_boot_create(&err);
    tap_ok(b != NULL, "one process started by srun is alone");
    lf_boot_destroy(b);
    unsetenv("SLURM_STEP_NUM_TASKS");
#ifdef HAVE_PMIX
    int status = 0;
    pid_t pid = fork(); /* a client that failed leaves libpmix in no state to become a server */
    if (pid == 0) {
        setenv("PMIX_NAMESPACE", "gone", 1);
        setenv("PMIX_RANK", "0", 1);
        _exit(lf_boot_create(&err) == NULL && err.rc == LF_ECOMM && strstr(err.text, "gone") ? 0
                                                                                             : 1);
    }
    tap_ok(waitpid(pid, &status, 0) == pid && status == 0,
           "a server that does not answer is an error");
#endif
}

static void test_single(void)
{
    char buf[8] = {0};
    size_t len = 9;
    lf_boot *b = lf_boot_create(&err);
    tap_ok(b && lf_boot_info(b)->size == 1 && lf_boot_info(b)->rank == 0, "alone without a server");
    tap_rc(lf_boot_put(b, "addr", "abc", 4, &err), 0, &err, NULL, "put");
    tap_rc(lf_boot_fence(b, &err), 0, &err, NULL, "fence");
    tap_rc(lf_boot_get(b, 0, "addr", buf, sizeof buf, &len, &err), 0, &err, NULL, "get");
    tap_ok(len == 4 && strcmp(buf, "abc") == 0, "what was put");
    tap_rc(lf_boot_get(b, 0, "addr", buf, 2, &len, &err), LF_EINVAL, &err, "room",
           "too little room");
    tap_rc(lf_boot_get(b, 0, "none", buf, 2, &len, &err), LF_ENOENT, &err, "none", "never put");
    tap_rc(lf_boot_get(b, 1, "addr", buf, 8, &len, &err), LF_ENOENT, &err, "rank 1",
           "no such rank");
    lf_comm *c = lf_comm_create(b, &err);
    float x = 3;
    tap_ok(c && lf_comm_all_reduce(c, &x, 1, LF_COMM_F32, LF_COMM_SUM, &err) == 0 && x > 2 && x < 4,
           "a sum over one rank");
    tap_ok(c && lf_comm_barrier(c, &err) == 0, "a barrier of one");
    tap_rc(lf_comm_send(c, "", 1, 0, 0, &err), LF_EINVAL, &err, "rank 0", "no message to oneself");
    tap_rc(lf_comm_broadcast(c, &x, sizeof x, 1, &err), LF_EINVAL, &err, "rank 1",
           "no broadcast from a rank there is not");
    lf_comm_destroy(c);
    lf_boot_destroy(b);
}

/* Two ranks exchange a word, and add theirs. Exit code 0 when all is well. */
static int child(void)
{
    lf_boot *b = lf_boot_create(&err);
    if (!b)
        return 10;
    const struct lf_boot_info *i = lf_boot_info(b);
    int me = i->rank, got = -1, mine = 100 + me;
    size_t len = 0;
    if (i->size != 2 || i->local_rank != me || strcmp(i->how, "pmix") != 0)
        return 11;
    if (lf_boot_put(b, "word", &mine, sizeof mine, &err) || lf_boot_fence(b, &err) ||
        lf_boot_get(b, 1 - me, "word", &got, sizeof got, &len, &err))
        return 12;
    if (got != 101 - me || len != sizeof got)
        return 13;
    if (lf_boot_put(b, "word", &mine, sizeof mine, &err) != LF_EEXIST)
        return 14;
    lf_err_clear(&err);
    lf_comm *c = lf_comm_create(b, &err);
    int64_t sum = mine;
#ifdef HAVE_UCX
    if (!c || lf_comm_all_reduce(c, &sum, 1, LF_COMM_I64, LF_COMM_SUM, &err) || sum != 201)
        return 15;
#else
    if (c || err.rc != LF_ENOTSUP || sum != mine)
        return 15;
#endif
    lf_comm_destroy(c);
    lf_boot_destroy(b);
    return 0;
}

#if defined(HAVE_PMIX) && !defined(LF_SANITIZERS) /* the server library's own leaks would count */
#include <pmix_server.h>

static pmix_status_t connected(const pmix_proc_t *proc, void *object, pmix_op_cbfunc_t cb,
                               void *data)
{
    (void)proc;
    (void)object;
    if (cb)
        cb(PMIX_SUCCESS, data);
    return PMIX_SUCCESS;
}

static pmix_status_t fence_nb(const pmix_proc_t procs[], size_t n, const pmix_info_t info[],
                              size_t ninfo, char *data, size_t ndata, pmix_modex_cbfunc_t cb,
                              void *cbdata)
{
    (void)procs;
    (void)n;
    (void)info;
    (void)ninfo;
    cb(PMIX_SUCCESS, data, ndata, cbdata, NULL,
       NULL); /* all ranks are on this node: what came is all there is */
    return PMIX_SUCCESS;
}

static int done;
static void op_done(pmix_status_t st, void *data)
{
    (void)data;
    __atomic_store_n(&done, st == PMIX_SUCCESS ? 1 : 2, __ATOMIC_RELEASE);
}

static bool waited(pmix_status_t st)
{
    if (st == PMIX_OPERATION_SUCCEEDED)
        return true;
    for (int i = 0; st == PMIX_SUCCESS && i < 24000 && !__atomic_load_n(&done, __ATOMIC_ACQUIRE);
         i++)
        usleep(5000);
    int d = __atomic_exchange_n(&done, 0, __ATOMIC_ACQ_REL);
    return st == PMIX_SUCCESS && d == 1;
}

static bool register_job(const char *ns)
{
    uint32_t two = 2;
    pmix_info_t info[5];
    char *nodes = NULL, *procs = NULL;
    char host[256] = "localhost";
    gethostname(host, sizeof host - 1);
    if (PMIx_generate_regex(host, &nodes) != PMIX_SUCCESS ||
        PMIx_generate_ppn("0,1", &procs) != PMIX_SUCCESS)
        return false;
    PMIX_INFO_LOAD(&info[0], PMIX_JOB_SIZE, &two, PMIX_UINT32);
    PMIX_INFO_LOAD(&info[1], PMIX_LOCAL_SIZE, &two, PMIX_UINT32);
    PMIX_INFO_LOAD(&info[2], PMIX_NODE_MAP, nodes, PMIX_STRING);
    PMIX_INFO_LOAD(&info[3], PMIX_PROC_MAP, procs, PMIX_STRING);
    PMIX_INFO_LOAD(&info[4], PMIX_UNIV_SIZE, &two, PMIX_UINT32);
    pmix_nspace_t n;
    PMIX_LOAD_NSPACE(n, ns);
    bool ok = waited(PMIx_server_register_nspace(n, 2, info, 5, op_done, NULL));
    free(nodes);
    free(procs);
    return ok;
}

static void test_pmix(const char *self)
{
    static pmix_server_module_t module = {
        .client_connected = connected, .client_finalized = connected, .fence_nb = fence_nb};
    pmix_info_t info;
    PMIX_INFO_LOAD(&info, PMIX_SERVER_TMPDIR, tap_tmpdir(), PMIX_STRING);
    if (PMIx_server_init(&module, &info, 1) != PMIX_SUCCESS) {
        tap_skip(2, "no PMIx server can be started here");
        return;
    }
    const char *ns = "loong-flow-test";
    tap_ok(register_job(ns), "the server knows the job");
    pid_t pid[2] = {-1, -1};
    int bad = 0;
    for (int r = 0; r < 2; r++) {
        pmix_proc_t p;
        char **env = NULL;
        PMIX_LOAD_PROCID(&p, ns, (pmix_rank_t)r);
        if (!waited(PMIx_server_register_client(&p, getuid(), getgid(), NULL, op_done, NULL)) ||
            PMIx_server_setup_fork(&p, &env) != PMIX_SUCCESS)
            tap_bail("the server refuses rank %d", r);
        pid[r] = fork();
        if (pid[r] == 0) {
            for (char **e = env; e && *e; e++)
                putenv(*e);
            execl(self, self, "rank", (char *)NULL);
            _exit(99);
        }
    }
    for (int r = 0; r < 2; r++) {
        int st = -1;
        if (waitpid(pid[r], &st, 0) != pid[r] || !WIFEXITED(st) || WEXITSTATUS(st)) {
            bad++;
            tap_diag("rank %d ended with %d", r, WIFEXITED(st) ? WEXITSTATUS(st) : -1);
        }
    }
    tap_i64(bad, 0, "two ranks found each other and exchanged a word");
    PMIx_server_finalize();
}
#else
static void test_pmix(const char *self)
{
    (void)self;
    tap_skip(2, "built without PMIx or with sanitizers");
}
#endif

int main(int argc, char **argv)
{
    if (argc > 1)
        return child();
    TAP(12, test_single());
    TAP(3, test_strangers());
    TAP(2, test_pmix(argv[0]));
    return tap_done();
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The PMIx server of a node, on plain libpmix: what ranks ask about the job, fences, direct
 * exchange of data, abort. Upcalls come on PMIx's own thread; requests that wait for other nodes
 * lie in two tables until the hub's answer.
 */
#include "config.h"

#include "flow/launch/job.h"

#ifdef HAVE_PMIX
#include <pmix.h>
#include <pmix_server.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/mem.h"
#include "engine/base/str.h"

struct waiting {
    pmix_modex_cbfunc_t done;
    void *arg;
};

struct table {
    struct waiting *at;
    size_t n, cap;
};

struct lf_pserver {
    struct lf_pserver_calls calls;
    pmix_nspace_t ns;
    int node, nodes;
    int first, n; /* ranks of this node */
    pthread_mutex_t lock;
    struct table fences, modexes;
};

static struct lf_pserver *the_server; /* PMIx's upcalls carry no argument of ours */

static int failed(lf_err *err, const char *what, pmix_status_t st)
{
    return lf_fail(err, LF_ECOMM, "PMIx server: %s: %s (%d)", what, PMIx_Error_string(st), (int)st);
}

static bool good(pmix_status_t st)
{
    return st == PMIX_SUCCESS || st == PMIX_OPERATION_SUCCEEDED;
}

/* ---- tables of waiting requests ---- */

static int64_t remember(struct lf_pserver *s, struct table *t, pmix_modex_cbfunc_t done, void *arg)
{
    int64_t id = -1;
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < t->n && id < 0; i++)
        if (t->at[i].done == NULL)
            id = (int64_t)i;
    if (id < 0 && lf_grow(&t->at, &t->cap, t->n, sizeof *t->at, NULL) == 0)
        id = (int64_t)t->n++;
    if (id >= 0)
        t->at[id] = (struct waiting){done, arg};
    pthread_mutex_unlock(&s->lock);
    return id;
}

static struct waiting recall(struct lf_pserver *s, struct table *t, uint32_t id)
{
    struct waiting w = {NULL, NULL};
    pthread_mutex_lock(&s->lock);
    if (id < t->n) {
        w = t->at[id];
        t->at[id].done = NULL;
    }
    pthread_mutex_unlock(&s->lock);
    return w;
}

static void answer(struct waiting w, int status, const char *data, size_t len)
{
    char *copy = NULL;
    if (w.done == NULL)
        return;
    if (len > 0 && (copy = malloc(len)) != NULL)
        memcpy(copy, data, len);
    if (len > 0 && copy == NULL)
        status = PMIX_ERR_NOMEM;
    w.done(status, copy, copy != NULL ? len : 0, w.arg, free, copy);
}

/* ---- upcalls ---- */

static bool is_here(const struct lf_pserver *s, uint32_t rank)
{
    return rank >= (uint32_t)s->first && rank < (uint32_t)(s->first + s->n);
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* The ranks of a fence, sorted, so that every node names it alike; n 0: all. */
static uint32_t *fence_ranks(const pmix_proc_t *procs, size_t n, uint32_t *n_out)
{
    uint32_t *r = lf_calloc(n + 1, sizeof *r, NULL);
    *n_out = 0;
    for (size_t i = 0; r != NULL && i < n; i++) {
        if (procs[i].rank == PMIX_RANK_WILDCARD) {
            *n_out = 0;
            return r;
        }
        r[(*n_out)++] = procs[i].rank;
    }
    if (r != NULL)
        qsort(r, *n_out, sizeof *r, by_number);
    return r;
}

static pmix_status_t on_fence(const pmix_proc_t procs[], size_t nprocs, const pmix_info_t info[],
                              size_t ninfo, char *data, size_t ndata, pmix_modex_cbfunc_t done,
                              void *arg)
{
    struct lf_pserver *s = the_server;
    (void)info;
    (void)ninfo;
    uint32_t n = 0, *ranks = fence_ranks(procs, nprocs, &n);
    if (ranks == NULL)
        return PMIX_ERR_NOMEM;
    bool local = s->nodes == 1 || n > 0;
    for (uint32_t i = 0; i < n; i++)
        local = local && is_here(s, ranks[i]);
    if (local) { /* what came is all there is */
        free(ranks);
        done(PMIX_SUCCESS, data, ndata, arg, free, data);
        return PMIX_SUCCESS;
    }
    int64_t id = remember(s, &s->fences, done, arg);
    if (id >= 0)
        s->calls.fence(s->calls.arg, (uint32_t)id, ranks, n, data, ndata);
    free(ranks);
    free(data); /* ours by the upcall's contract */
    return id >= 0 ? PMIX_SUCCESS : PMIX_ERR_NOMEM;
}

static pmix_status_t on_modex(const pmix_proc_t *proc, const pmix_info_t info[], size_t ninfo,
                              pmix_modex_cbfunc_t done, void *arg)
{
    struct lf_pserver *s = the_server;
    (void)info;
    (void)ninfo;
    int64_t id = remember(s, &s->modexes, done, arg);
    if (id < 0)
        return PMIX_ERR_NOMEM;
    s->calls.modex(s->calls.arg, (uint32_t)id, proc->rank);
    return PMIX_SUCCESS;
}

static pmix_status_t on_connect(const pmix_proc_t *proc, void *object, pmix_op_cbfunc_t done,
                                void *arg)
{
    struct lf_pserver *s = the_server;
    (void)object;
    s->calls.joined(s->calls.arg, proc->rank);
    if (done != NULL)
        done(PMIX_SUCCESS, arg);
    return PMIX_SUCCESS;
}

static pmix_status_t on_finalize(const pmix_proc_t *proc, void *object, pmix_op_cbfunc_t done,
                                 void *arg)
{
    (void)proc;
    (void)object;
    if (done != NULL)
        done(PMIX_SUCCESS, arg);
    return PMIX_SUCCESS;
}

static pmix_status_t on_abort(const pmix_proc_t *proc, void *object, int status, const char msg[],
                              pmix_proc_t procs[], size_t nprocs, pmix_op_cbfunc_t done, void *arg)
{
    struct lf_pserver *s = the_server;
    (void)object;
    (void)procs; /* all ranks stand and fall together */
    (void)nprocs;
    s->calls.abort(s->calls.arg, proc->rank, status, msg != NULL ? msg : "");
    if (done != NULL)
        done(PMIX_SUCCESS, arg);
    return PMIX_SUCCESS;
}

static pmix_server_module_t module = {.client_connected = on_connect,
                                      .client_finalized = on_finalize,
                                      .abort = on_abort,
                                      .fence_nb = on_fence,
                                      .direct_modex = on_modex};

/* ---- what the ranks may ask about the job ---- */

#ifdef PMIX_REGEX
#define MAP_TYPE PMIX_REGEX
#else
#define MAP_TYPE PMIX_STRING /* PMIx 3 */
#endif

static void describe_rank(pmix_info_t *slot, const struct lf_pserver_job *j, int rank, int node)
{
    pmix_info_t *a = NULL;
    pmix_rank_t r = (pmix_rank_t)rank;
    uint16_t local = (uint16_t)(rank - j->first[node]);
    uint32_t node_id = (uint32_t)node, app = 0;
    PMIX_INFO_CREATE(a, 6);
    PMIX_INFO_LOAD(&a[0], PMIX_RANK, &r, PMIX_PROC_RANK);
    PMIX_INFO_LOAD(&a[1], PMIX_LOCAL_RANK, &local, PMIX_UINT16);
    PMIX_INFO_LOAD(&a[2], PMIX_NODE_RANK, &local, PMIX_UINT16);
    PMIX_INFO_LOAD(&a[3], PMIX_NODEID, &node_id, PMIX_UINT32);
    PMIX_INFO_LOAD(&a[4], PMIX_APPNUM, &app, PMIX_UINT32);
    PMIX_INFO_LOAD(&a[5], PMIX_HOSTNAME, j->hosts[node], PMIX_STRING);
    pmix_data_array_t array = {.type = PMIX_INFO, .size = 6, .array = a};
    PMIX_INFO_LOAD(slot, PMIX_PROC_DATA, &array, PMIX_DATA_ARRAY);
    PMIX_INFO_FREE(a, 6);
}

/* "a,b" of the nodes, "0,1;2,3" of their ranks, and the ranks of this node. */
static int name_maps(const struct lf_pserver_job *j, char **nodes, char **procs, lf_buf *peers,
                     lf_err *err)
{
    lf_buf names, ranks;
    lf_buf_init(&names);
    lf_buf_init(&ranks);
    for (int k = 0; k < j->nodes; k++) {
        lf_buf_addf(&names, "%s%s", k > 0 ? "," : "", j->hosts[k]);
        if (k > 0)
            lf_buf_addc(&ranks, ';');
        for (int r = j->first[k]; r < j->first[k + 1]; r++) {
            lf_buf_addf(&ranks, "%s%d", r > j->first[k] ? "," : "", r);
            if (k == j->node)
                lf_buf_addf(peers, "%s%d", r > j->first[k] ? "," : "", r);
        }
    }
    int rc = lf_buf_check(&names, err);
    if (rc == 0)
        rc = lf_buf_check(&ranks, err);
    if (rc == 0)
        rc = lf_buf_check(peers, err);
    pmix_status_t st = rc == 0 ? PMIx_generate_regex(names.data, nodes) : PMIX_ERROR;
    if (st == PMIX_SUCCESS)
        st = PMIx_generate_ppn(ranks.data, procs);
    lf_buf_fini(&names);
    lf_buf_fini(&ranks);
    return rc < 0 ? rc : st == PMIX_SUCCESS ? 0 : failed(err, "names of nodes", st);
}

static int register_job(struct lf_pserver *s, const struct lf_pserver_job *j, lf_err *err)
{
    char *nodes = NULL, *procs = NULL;
    uint32_t size = (uint32_t)j->ranks, local = (uint32_t)s->n, n_nodes = (uint32_t)j->nodes,
             one = 1;
    lf_buf peers;
    lf_buf_init(&peers);
    int rc = name_maps(j, &nodes, &procs, &peers, err);
    pmix_info_t *info = NULL;
    const size_t fixed = 10, n = fixed + (size_t)j->ranks;
    if (rc == 0) {
        PMIX_INFO_CREATE(info, n);
        PMIX_INFO_LOAD(&info[0], PMIX_JOB_SIZE, &size, PMIX_UINT32);
        PMIX_INFO_LOAD(&info[1], PMIX_UNIV_SIZE, &size, PMIX_UINT32);
        PMIX_INFO_LOAD(&info[2], PMIX_MAX_PROCS, &size, PMIX_UINT32);
        PMIX_INFO_LOAD(&info[3], PMIX_LOCAL_SIZE, &local, PMIX_UINT32);
        PMIX_INFO_LOAD(&info[4], PMIX_NUM_NODES, &n_nodes, PMIX_UINT32);
        PMIX_INFO_LOAD(&info[5], PMIX_LOCAL_PEERS, peers.data, PMIX_STRING);
        PMIX_INFO_LOAD(&info[6], PMIX_NODE_MAP, nodes, MAP_TYPE);
        PMIX_INFO_LOAD(&info[7], PMIX_PROC_MAP, procs, MAP_TYPE);
        PMIX_INFO_LOAD(&info[8], PMIX_JOBID, j->ns, PMIX_STRING);
        PMIX_INFO_LOAD(&info[9], PMIX_JOB_NUM_APPS, &one, PMIX_UINT32);
        for (int k = 0; k < j->nodes; k++)
            for (int r = j->first[k]; r < j->first[k + 1]; r++)
                describe_rank(&info[fixed + (size_t)r], j, r, k);
        pmix_status_t st = PMIx_server_register_nspace(s->ns, s->n, info, n, NULL, NULL);
        rc = good(st) ? 0 : failed(err, "the job", st);
        PMIX_INFO_FREE(info, n);
    }
    free(nodes);
    free(procs);
    lf_buf_fini(&peers);
    return rc;
}

/* ---- the server ---- */

struct lf_pserver *lf_pserver_create(const struct lf_pserver_job *j,
                                     const struct lf_pserver_calls *calls, lf_err *err)
{
    struct lf_pserver *s = lf_calloc(1, sizeof *s, err);
    if (s == NULL)
        return NULL;
    s->calls = *calls;
    s->node = j->node;
    s->nodes = j->nodes;
    s->first = j->first[j->node];
    s->n = j->first[j->node + 1] - s->first;
    PMIX_LOAD_NSPACE(s->ns, j->ns);
    pthread_mutex_init(&s->lock, NULL);
    the_server = s;
    char server_ns[PMIX_MAX_NSLEN + 1];
    snprintf(server_ns, sizeof server_ns, "%s.server", j->ns);
    pmix_rank_t me = (pmix_rank_t)j->node;
    pmix_info_t info[4];
    PMIX_INFO_LOAD(&info[0], PMIX_SERVER_TMPDIR, j->tmp, PMIX_STRING);
    PMIX_INFO_LOAD(&info[1], PMIX_HOSTNAME, j->host, PMIX_STRING);
    PMIX_INFO_LOAD(&info[2], PMIX_SERVER_NSPACE, server_ns, PMIX_STRING);
    PMIX_INFO_LOAD(&info[3], PMIX_SERVER_RANK, &me, PMIX_PROC_RANK);
    pmix_status_t st = PMIx_server_init(&module, info, 4);
    for (int i = 0; i < 4; i++)
        PMIX_INFO_DESTRUCT(&info[i]);
    if (st != PMIX_SUCCESS) {
        failed(err, "start", st);
        free(s);
        the_server = NULL;
        return NULL;
    }
    if (register_job(s, j, err) < 0) {
        lf_pserver_destroy(s);
        return NULL;
    }
    return s;
}

void lf_pserver_destroy(struct lf_pserver *s)
{
    if (s == NULL)
        return;
    PMIx_server_finalize();
    the_server = NULL;
    pthread_mutex_destroy(&s->lock);
    free(s->fences.at);
    free(s->modexes.at);
    free(s);
}

int lf_pserver_add(struct lf_pserver *s, int rank, char ***env, lf_err *err)
{
    pmix_proc_t p;
    PMIX_LOAD_PROCID(&p, s->ns, (pmix_rank_t)rank);
    pmix_status_t st = PMIx_server_register_client(&p, getuid(), getgid(), NULL, NULL, NULL);
    if (good(st))
        st = PMIx_server_setup_fork(&p, env);
    return good(st) ? 0 : failed(err, "a rank", st);
}

void lf_pserver_fence_done(struct lf_pserver *s, uint32_t id, int status, const char *data,
                           size_t len)
{
    answer(recall(s, &s->fences, id), status, data, len);
}

void lf_pserver_modex_done(struct lf_pserver *s, uint32_t id, int status, const char *data,
                           size_t len)
{
    answer(recall(s, &s->modexes, id), status, data, len);
}

struct ask {
    struct lf_pserver *s;
    uint32_t node, id;
};

static void have_data(pmix_status_t st, char *data, size_t len, void *arg)
{
    struct ask *q = arg;
    q->s->calls.modex_data(q->s->calls.arg, q->node, q->id, st, data, len);
    free(q);
}

void lf_pserver_modex_ask(struct lf_pserver *s, uint32_t node, uint32_t id, uint32_t rank)
{
    struct ask *q = lf_calloc(1, sizeof *q, NULL);
    pmix_proc_t p;
    if (q == NULL) {
        s->calls.modex_data(s->calls.arg, node, id, PMIX_ERR_NOMEM, NULL, 0);
        return;
    }
    *q = (struct ask){s, node, id};
    PMIX_LOAD_PROCID(&p, s->ns, rank);
    pmix_status_t st = PMIx_server_dmodex_request(&p, have_data, q);
    if (st != PMIX_SUCCESS)
        have_data(st, NULL, 0, q);
}

#else

struct lf_pserver *lf_pserver_create(const struct lf_pserver_job *j,
                                     const struct lf_pserver_calls *calls, lf_err *err)
{
    (void)j;
    (void)calls;
    lf_fail(err, LF_ENOTSUP, "this loong-flow was built --without-pmix and cannot start ranks");
    return NULL;
}

void lf_pserver_destroy(struct lf_pserver *s)
{
    (void)s;
}

int lf_pserver_add(struct lf_pserver *s, int rank, char ***env, lf_err *err)
{
    (void)s;
    (void)env;
    return lf_fail(err, LF_ENOTSUP, "rank %d: built --without-pmix", rank);
}

void lf_pserver_fence_done(struct lf_pserver *s, uint32_t id, int status, const char *data,
                           size_t len)
{
    (void)s, (void)id, (void)status, (void)data, (void)len;
}

void lf_pserver_modex_done(struct lf_pserver *s, uint32_t id, int status, const char *data,
                           size_t len)
{
    (void)s, (void)id, (void)status, (void)data, (void)len;
}

void lf_pserver_modex_ask(struct lf_pserver *s, uint32_t node, uint32_t id, uint32_t rank)
{
    (void)s, (void)node, (void)id, (void)rank;
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Start-up under a PMIx server (PMIx 3.2 and later): rank, sizes, nodes, exchange of small blobs,
 * abort.
 *
 * PMIx_Get does not wait for a key: once its owner has committed anything, a key that was not in it
 * is "not found" at once. So a rank commits only in a fence, everything at once, and reads only
 * after it.
 */
#include "config.h"

#ifdef HAVE_PMIX
#include <pmix.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/comm/boot_priv.h"

/* A rank that never comes is found within a minute; a job of a thousand ranks starts more
 * slowly. */
#define START_S      50.0
#define START_RANK_S 0.05

struct pmix {
    struct lf_boot base;
    pmix_proc_t me;
    double patience_s;
    pmix_info_t collect;
    pthread_mutex_t lock; /* of met and met_status */
    pthread_cond_t cond;
    bool met;
    pmix_status_t met_status;
};

static int failed(lf_err *err, const char *what, pmix_status_t st)
{
    return lf_fail(err, LF_ECOMM, "PMIx: %s: %s (%d)", what, PMIx_Error_string(st), (int)st);
}

static int put_one(const struct lf_boot_blob *s, lf_err *err)
{
    pmix_value_t v;
    PMIX_VALUE_CONSTRUCT(&v);
    v.type = PMIX_BYTE_OBJECT;
    v.data.bo.bytes = s->data; /* copied by PMIx_Put */
    v.data.bo.size = s->len;
    pmix_status_t st = PMIx_Put(PMIX_GLOBAL, s->key, &v);
    return st == PMIX_SUCCESS ? 0 : failed(err, s->key, st);
}

static void met(pmix_status_t st, void *arg)
{
    struct pmix *p = arg;
    pthread_mutex_lock(&p->lock);
    p->met = true;
    p->met_status = st;
    pthread_cond_signal(&p->cond);
    pthread_mutex_unlock(&p->lock);
}

/* The fence of all ranks, with patience: nobody watches over ranks that have not met yet. */
static int meet(struct pmix *p, lf_err *err)
{
    pmix_proc_t all = p->me;
    all.rank = PMIX_RANK_WILDCARD;
    bool collect = true;
    PMIX_INFO_LOAD(&p->collect, PMIX_COLLECT_DATA, &collect, PMIX_BOOL); /* must outlive the call */
    p->met = false;
    pmix_status_t st = PMIx_Fence_nb(&all, 1, &p->collect, 1, met, p);
    if (st != PMIX_SUCCESS)
        return st == PMIX_OPERATION_SUCCEEDED ? 0 : failed(err, "fence", st);
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += (time_t)p->patience_s;
    int timed_out = 0;
    pthread_mutex_lock(&p->lock);
    while (!p->met && timed_out == 0)
        timed_out = pthread_cond_timedwait(&p->cond, &p->lock, &end);
    const bool done = p->met;
    st = p->met_status;
    pthread_mutex_unlock(&p->lock);
    if (!done)
        return lf_fail(err, LF_ECOMM,
                       "rank %d (host %s) has waited %.0f s for the other ranks to start "
                       "(LF_COMM_START: other seconds)",
                       p->base.info.rank, p->base.host, p->patience_s);
    return st == PMIX_SUCCESS ? 0 : failed(err, "fence", st);
}

static int pmix_fence(lf_boot *b, lf_err *err)
{
    for (size_t i = b->published; i < b->n; i++) {
        int rc = put_one(&b->blob[i], err);
        if (rc != 0)
            return rc;
    }
    pmix_status_t st = b->n > b->published ? PMIx_Commit() : PMIX_SUCCESS;
    if (st != PMIX_SUCCESS)
        return failed(err, "commit", st);
    return meet((struct pmix *)b, err);
}

static int pmix_get(lf_boot *b, int rank, const char *key, void *data, size_t cap, size_t *len,
                    lf_err *err)
{
    pmix_value_t *v = NULL;
    pmix_proc_t who = ((struct pmix *)b)->me;
    who.rank = (pmix_rank_t)rank;
    if (rank < 0 || rank >= b->info.size)
        return lf_fail(err, LF_ENOENT, "there is no rank %d of %d to have put %s", rank,
                       b->info.size, key);
    pmix_status_t st = PMIx_Get(&who, key, NULL, 0, &v);
    if (st == PMIX_ERR_NOT_FOUND)
        return lf_fail(err, LF_ENOENT, "rank %d has put no start-up blob %s", rank, key);
    if (st != PMIX_SUCCESS)
        return failed(err, key, st);
    int rc = 0;
    if (v->type != PMIX_BYTE_OBJECT)
        rc = lf_fail(err, LF_EINVAL, "start-up blob %s of rank %d is not bytes", key, rank);
    else if (v->data.bo.size > cap)
        rc = lf_fail(err, LF_EINVAL,
                     "start-up blob %s of rank %d has %zu bytes, there is room for %zu", key, rank,
                     v->data.bo.size, cap);
    if (rc == 0) {
        if (v->data.bo.size)
            memcpy(data, v->data.bo.bytes, v->data.bo.size);
        *len = v->data.bo.size;
    }
    PMIX_VALUE_RELEASE(v);
    return rc;
}

static void pmix_abort(lf_boot *b, int code, const char *text)
{
    (void)b;
    PMIx_Abort(code, text, NULL, 0);
}

static void pmix_destroy(lf_boot *b)
{
    (void)b;
    PMIx_Finalize(NULL, 0);
}

static const struct lf_boot_ops pmix_ops = {pmix_fence, pmix_get, pmix_abort, pmix_destroy};

/* Servers disagree about integer types (SLURM gives some as signed), so any is taken. */
static int to_int(const pmix_value_t *v)
{
    uint64_t u = UINT64_MAX;
    switch (v->type) {
    case PMIX_UINT8:
        u = v->data.uint8;
        break;
    case PMIX_UINT16:
        u = v->data.uint16;
        break;
    case PMIX_UINT32:
        u = v->data.uint32;
        break;
    case PMIX_UINT64:
        u = v->data.uint64;
        break;
    case PMIX_UINT:
        u = v->data.uint;
        break;
    case PMIX_SIZE:
        u = v->data.size;
        break;
    case PMIX_PROC_RANK:
        u = v->data.rank;
        break;
    case PMIX_INT8:
        u = (uint64_t)v->data.int8;
        break;
    case PMIX_INT16:
        u = (uint64_t)v->data.int16;
        break;
    case PMIX_INT32:
        u = (uint64_t)v->data.int32;
        break;
    case PMIX_INT64:
        u = (uint64_t)v->data.int64;
        break;
    case PMIX_INT:
        u = (uint64_t)v->data.integer;
        break;
    default:
        break;
    }
    return u <= INT32_MAX ? (int)u : -1;
}

/* A number the server holds about the job (wildcard) or about a rank; -1 when it does not. */
static int number(const struct pmix *p, pmix_rank_t of, const char *key)
{
    pmix_proc_t who = p->me;
    pmix_value_t *v = NULL;
    who.rank = of;
    if (PMIx_Get(&who, key, NULL, 0, &v) != PMIX_SUCCESS || !v)
        return -1;
    int n = to_int(v);
    PMIX_VALUE_RELEASE(v);
    return n;
}

/* SLURM names its nodes, others the host; without an answer the host's own name. */
static void host_name(struct pmix *p)
{
    pmix_value_t *v = NULL;
    if (PMIx_Get(&p->me, PMIX_HOSTNAME, NULL, 0, &v) == PMIX_SUCCESS && v &&
        v->type == PMIX_STRING && v->data.string)
        strncpy(p->base.host, v->data.string, sizeof p->base.host - 1);
    else if (gethostname(p->base.host, sizeof p->base.host - 1))
        p->base.host[0] = '\0';
    if (v)
        PMIX_VALUE_RELEASE(v);
}

static int read_info(struct pmix *p, lf_err *err)
{
    const pmix_rank_t job = PMIX_RANK_WILDCARD, me = p->me.rank;
    host_name(p);
    /* The universe (PMIX_UNIV_SIZE) counts slots, not ranks. */
    struct lf_boot_info i = {.rank = (int)me,
                             .size = number(p, job, PMIX_JOB_SIZE),
                             .local_rank = number(p, me, PMIX_LOCAL_RANK),
                             .local_size = number(p, job, PMIX_LOCAL_SIZE),
                             .node = number(p, me, PMIX_NODEID),
                             .nodes = number(p, job, PMIX_NUM_NODES),
                             .host = p->base.host,
                             .how = "pmix"};
    if (i.nodes < 1)
        i.nodes = 1;
    if (i.node < 0 || i.node >= i.nodes)
        i.node = 0;
    if (i.size < 1 || i.local_rank < 0 || i.rank < 0 || i.rank >= i.size)
        return lf_fail(
            err, LF_ECOMM,
            "PMIx: the server does not tell the job's size or this process's local rank");
    if (i.local_size < 1)
        i.local_size = i.nodes == 1 ? i.size : 1;
    p->base.info = i;
    if (!(p->patience_s > 0))
        p->patience_s = START_S + START_RANK_S * i.size;
    return 0;
}

lf_boot *lf_boot_create_pmix(lf_err *err)
{
    struct pmix *p = lf_calloc(1, sizeof *p, err);
    if (!p)
        return NULL;
    const char *start = getenv("LF_COMM_START");
    p->patience_s = 0; /* read_info knows the size */
    if (start && (lf_parse_f64(&p->patience_s, start, NULL) || p->patience_s < 1)) {
        lf_fail(err, LF_EINVAL, "LF_COMM_START=%s: seconds, at least 1", start);
        free(p);
        return NULL;
    }
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->cond, NULL);
    pmix_status_t st = PMIx_Init(&p->me, NULL, 0);
    if (st != PMIX_SUCCESS) {
        if (st == PMIX_ERR_UNREACH)
            lf_fail(err, LF_ECOMM,
                    "PMIx: the server that PMIX_NAMESPACE=%s names does not answer (%d); to run "
                    "alone, unset the PMIX_* variables",
                    getenv("PMIX_NAMESPACE"), (int)st);
        else
            failed(err, "init", st);
        free(p);
        return NULL;
    }
    p->base.ops = &pmix_ops;
    if (read_info(p, err)) {
        PMIx_Finalize(NULL, 0);
        free(p);
        return NULL;
    }
    return &p->base;
}
#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Start-up under a PMIx server (PMIx 3.2 and later): rank, sizes and the exchange of small blobs.
 */
#include "config.h"

#ifdef HAVE_PMIX
#include <pmix.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/comm/boot_priv.h"

struct pmix {
    struct lf_boot base;
    pmix_proc_t me;
};

static int failed(lf_err *err, const char *what, pmix_status_t st)
{
    return lf_fail(err, LF_ECOMM, "PMIx: %s: %s", what, PMIx_Error_string(st));
}

static int pmix_put(lf_boot *b, const char *key, const void *data, size_t len, lf_err *err)
{
    (void)b;
    pmix_value_t v;
    PMIX_VALUE_CONSTRUCT(&v);
    v.type = PMIX_BYTE_OBJECT;
    v.data.bo.bytes = lf_malloc(1, len, err); /* freed by the destructor */
    if (!v.data.bo.bytes)
        return LF_ENOMEM;
    if (len)
        memcpy(v.data.bo.bytes, data, len);
    v.data.bo.size = len;
    pmix_status_t st = PMIx_Put(PMIX_GLOBAL, key, &v);
    PMIX_VALUE_DESTRUCT(&v);
    if (st == PMIX_SUCCESS)
        st = PMIx_Commit();
    return st == PMIX_SUCCESS ? 0 : failed(err, "put", st);
}

static int pmix_fence(lf_boot *b, lf_err *err)
{
    (void)b;
    pmix_info_t info;
    bool collect = true;
    PMIX_INFO_CONSTRUCT(&info);
    PMIX_INFO_LOAD(&info, PMIX_COLLECT_DATA, &collect, PMIX_BOOL);
    pmix_status_t st = PMIx_Fence(NULL, 0, &info, 1);
    PMIX_INFO_DESTRUCT(&info);
    return st == PMIX_SUCCESS ? 0 : failed(err, "fence", st);
}

static int pmix_get(lf_boot *b, int rank, const char *key, void *data, size_t cap, size_t *len, lf_err *err)
{
    struct pmix *p = (struct pmix *)b;
    pmix_value_t *v = NULL;
    pmix_proc_t who = p->me;
    who.rank = (pmix_rank_t)rank;
    pmix_status_t st = PMIx_Get(&who, key, NULL, 0, &v);
    int rc = 0;
    if (st == PMIX_ERR_NOT_FOUND)
        return lf_fail(err, LF_ENOENT, "rank %d has put no start-up blob %s", rank, key);
    if (st != PMIX_SUCCESS)
        return failed(err, key, st);
    if (v->type != PMIX_BYTE_OBJECT || v->data.bo.size > cap)
        rc = lf_fail(err, LF_EINVAL, "start-up blob %s of rank %d has %zu bytes, there is room for %zu", key, rank,
                     v->type == PMIX_BYTE_OBJECT ? v->data.bo.size : 0, cap);
    if (!rc) {
        if (v->data.bo.size)
            memcpy(data, v->data.bo.bytes, v->data.bo.size);
        *len = v->data.bo.size;
    }
    PMIX_VALUE_RELEASE(v);
    return rc;
}

static void pmix_destroy(lf_boot *b)
{
    PMIx_Finalize(NULL, 0);
    free(b);
}

static const struct lf_boot_ops pmix_ops = {pmix_put, pmix_fence, pmix_get, pmix_destroy};

/* A number the server holds about the job (wildcard) or about me; -1 when it does not. */
static int number(const pmix_proc_t *who, const char *key)
{
    pmix_value_t *v = NULL;
    int n = -1;
    if (PMIx_Get(who, key, NULL, 0, &v) != PMIX_SUCCESS)
        return -1;
    if (v->type == PMIX_UINT32 && v->data.uint32 <= INT32_MAX)
        n = (int)v->data.uint32;
    else if (v->type == PMIX_UINT16)
        n = (int)v->data.uint16;
    PMIX_VALUE_RELEASE(v);
    return n;
}

lf_boot *lf_boot_create_pmix(lf_err *err)
{
    struct pmix *p = lf_calloc(1, sizeof *p, err);
    if (!p)
        return NULL;
    pmix_status_t st = PMIx_Init(&p->me, NULL, 0);
    if (st != PMIX_SUCCESS) {
        failed(err, "init", st);
        free(p);
        return NULL;
    }
    pmix_proc_t job = p->me;
    job.rank = PMIX_RANK_WILDCARD;
    p->base.ops = &pmix_ops;
    p->base.info = (struct lf_boot_info){.rank = (int)p->me.rank,
                                         .size = number(&job, PMIX_JOB_SIZE),
                                         .local_rank = number(&p->me, PMIX_LOCAL_RANK),
                                         .local_size = number(&job, PMIX_LOCAL_SIZE),
                                         .how = "pmix"};
    if (p->base.info.size < 1 || p->base.info.local_rank < 0 || p->base.info.rank >= p->base.info.size) {
        lf_fail(err, LF_ECOMM, "PMIx: the server does not tell the job's size or this process's local rank");
        pmix_destroy(&p->base);
        return NULL;
    }
    return &p->base;
}
#endif

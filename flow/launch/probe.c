/* SPDX-License-Identifier: Apache-2.0
 *
 * Does a launcher's PMIx work? A rank that tries what a stage needs: size, one exchange, one fence.
 */
#include "config.h"

#include "flow/launch/probe.h"

#ifdef HAVE_PMIX
#include <pmix.h>
#include <stdio.h>
#include <string.h>

static int failed(lf_err *err, const char *what, pmix_status_t st)
{
    return lf_fail(err, LF_ECOMM, "PMIx does not work under this launcher: %s: %s (%d)", what,
                   PMIx_Error_string(st), (int)st);
}

static int job_size(const pmix_proc_t *me)
{
    pmix_proc_t job = *me;
    pmix_value_t *v = NULL;
    int n = -1;
    job.rank = PMIX_RANK_WILDCARD;
    if (PMIx_Get(&job, PMIX_JOB_SIZE, NULL, 0, &v) != PMIX_SUCCESS || v == NULL)
        return -1;
    if (v->type == PMIX_UINT32)
        n = (int)v->data.uint32;
    else if (v->type == PMIX_INT || v->type == PMIX_INT32)
        n = v->data.integer;
    else if (v->type == PMIX_UINT16)
        n = v->data.uint16;
    PMIX_VALUE_RELEASE(v);
    return n;
}

static int exchange(const pmix_proc_t *me, int ranks, lf_err *err)
{
    pmix_proc_t all = *me;
    pmix_info_t info;
    bool collect = true;
    pmix_value_t v;
    PMIX_VALUE_CONSTRUCT(&v);
    v.type = PMIX_UINT32;
    v.data.uint32 = me->rank + 1000;
    pmix_status_t st = PMIx_Put(PMIX_GLOBAL, "lf.probe", &v);
    if (st == PMIX_SUCCESS)
        st = PMIx_Commit();
    all.rank = PMIX_RANK_WILDCARD;
    PMIX_INFO_LOAD(&info, PMIX_COLLECT_DATA, &collect, PMIX_BOOL);
    if (st == PMIX_SUCCESS)
        st = PMIx_Fence(&all, 1, &info, 1);
    PMIX_INFO_DESTRUCT(&info);
    if (st != PMIX_SUCCESS)
        return failed(err, "exchange", st);
    for (int r = 0; r < ranks; r++) {
        pmix_proc_t who = *me;
        pmix_value_t *got = NULL;
        who.rank = (pmix_rank_t)r;
        st = PMIx_Get(&who, "lf.probe", NULL, 0, &got);
        const bool good = st == PMIX_SUCCESS && got->type == PMIX_UINT32 &&
                          got->data.uint32 == (uint32_t)r + 1000;
        if (got != NULL)
            PMIX_VALUE_RELEASE(got);
        if (!good)
            return failed(err, "what another rank put", st);
    }
    return 0;
}

int lf_launch_be_probed(int ranks, lf_err *err)
{
    pmix_proc_t me;
    pmix_status_t st = PMIx_Init(&me, NULL, 0);
    if (st != PMIX_SUCCESS)
        return failed(
            err, st == PMIX_ERR_UNREACH ? "it started this process without a server" : "start", st);
    const int size = job_size(&me);
    int rc = ranks == 0 || size == ranks
                 ? exchange(&me, size, err)
                 : lf_fail(err, LF_ECOMM, "PMIx says %d ranks, %d were asked for", size, ranks);
    PMIx_Finalize(NULL, 0);
    if (rc == 0 && me.rank == 0)
        printf("%d ranks found each other\n", size);
    return rc;
}

#else

int lf_launch_be_probed(int ranks, lf_err *err)
{
    return lf_fail(err, LF_ENOTSUP,
                   "this loong-flow was built --without-pmix: no probe of %d ranks", ranks);
}

#endif

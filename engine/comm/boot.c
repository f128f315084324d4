/* SPDX-License-Identifier: Apache-2.0
 *
 * Start-up of a process that is alone, the choice between that and PMIx, and the blobs a rank has
 * put.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/comm/boot_priv.h"

static const struct lf_boot_blob *find_blob(const lf_boot *b, const char *key)
{
    for (size_t i = 0; i < b->n; i++)
        if (strcmp(b->blob[i].key, key) == 0)
            return &b->blob[i];
    return NULL;
}

static int single_fence(lf_boot *b, lf_err *err)
{
    (void)b;
    (void)err;
    return 0;
}

static int single_get(lf_boot *b, int rank, const char *key, void *data, size_t cap, size_t *len,
                      lf_err *err)
{
    const struct lf_boot_blob *s = rank == 0 ? find_blob(b, key) : NULL;
    if (!s || s >= b->blob + b->published)
        return lf_fail(err, LF_ENOENT, "rank %d has put no start-up blob %s", rank, key);
    if (s->len > cap)
        return lf_fail(err, LF_EINVAL, "start-up blob %s has %zu bytes, there is room for %zu", key,
                       s->len, cap);
    if (s->len)
        memcpy(data, s->data, s->len);
    *len = s->len;
    return 0;
}

static void single_abort(lf_boot *b, int code, const char *text)
{
    (void)b;
    (void)code;
    (void)text;
}

static void single_destroy(lf_boot *b)
{
    (void)b;
}

static const struct lf_boot_ops single_ops = {single_fence, single_get, single_abort,
                                              single_destroy};

/* What starters of several processes leave in the environment of each when they are no PMIx
 * servers. */
static int refuse_strangers(lf_err *err)
{
    static const struct {
        const char *name, *who, *advice;
    } starters[] = {
        {"SLURM_STEP_NUM_TASKS", "srun",
         "srun --mpi=pmix, or loong-flow launch where srun has no pmix"},
        {"PMI_SIZE", "a launcher without PMIx", "loong-flow launch"},
        {"OMPI_COMM_WORLD_SIZE", "mpirun", "loong-flow launch"},
    };
    for (size_t i = 0; i < sizeof starters / sizeof starters[0]; i++) {
        const char *v = getenv(starters[i].name);
        int64_t n = 0;
        if (v && !lf_parse_i64(&n, v, NULL) && n > 1)
            return lf_fail(err, LF_ECOMM,
                           "%s started %lld processes without PMIx (%s): each would take itself "
                           "for the only one; use %s",
                           starters[i].who, (long long)n, starters[i].name, starters[i].advice);
    }
    return 0;
}

static lf_boot *create_single(lf_err *err)
{
    if (refuse_strangers(err))
        return NULL;
    lf_boot *b = lf_calloc(1, sizeof *b, err);
    if (!b)
        return NULL;
    b->ops = &single_ops;
    b->info = (struct lf_boot_info){
        .size = 1, .local_size = 1, .nodes = 1, .host = b->host, .how = "single"};
    if (gethostname(b->host, sizeof b->host - 1))
        b->host[0] = '\0';
    return b;
}

lf_boot *lf_boot_create(lf_err *err)
{
    if (!getenv("PMIX_NAMESPACE"))
        return create_single(err);
#ifdef HAVE_PMIX
    return lf_boot_create_pmix(err);
#else
    lf_fail(err, LF_ENOTSUP,
            "a PMIx server started this process, but this build is --without-pmix; start it "
            "without one");
    return NULL;
#endif
}

void lf_boot_destroy(lf_boot *b)
{
    if (!b)
        return;
    b->ops->destroy(b);
    for (size_t i = 0; i < b->n; i++) {
        free(b->blob[i].key);
        free(b->blob[i].data);
    }
    free(b->blob);
    free(b);
}

const struct lf_boot_info *lf_boot_info(const lf_boot *b)
{
    return &b->info;
}

int lf_boot_put(lf_boot *b, const char *key, const void *data, size_t len, lf_err *err)
{
    if (find_blob(b, key))
        return lf_fail(err, LF_EEXIST, "start-up blob %s was put before", key);
    int rc = lf_grow(&b->blob, &b->cap, b->n, sizeof *b->blob, err);
    if (rc != 0)
        return rc;
    struct lf_boot_blob *s = &b->blob[b->n];
    s->key = lf_strdup(key, err);
    s->data = lf_malloc(1, len, err);
    s->len = len;
    if (!s->key || !s->data) {
        free(s->key);
        free(s->data);
        return LF_ENOMEM;
    }
    if (len)
        memcpy(s->data, data, len);
    b->n++;
    return 0;
}

int lf_boot_fence(lf_boot *b, lf_err *err)
{
    int rc = b->ops->fence(b, err);
    if (rc == 0)
        b->published = b->n;
    return rc;
}

int lf_boot_get(lf_boot *b, int rank, const char *key, void *data, size_t cap, size_t *len,
                lf_err *err)
{
    b->info.reads++;
    return b->ops->get(b, rank, key, data, cap, len, err);
}

void lf_boot_abort(lf_boot *b, int code, const char *text)
{
    b->ops->end_all(b, code, text);
}

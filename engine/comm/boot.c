/* SPDX-License-Identifier: Apache-2.0
 *
 * Start-up of a process that is alone, and the choice between that and PMIx.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/comm/boot_priv.h"

enum { MAX_BLOBS = 64 };

struct single {
    struct lf_boot base;
    struct {
        char *key;
        void *data;
        size_t len;
    } blob[MAX_BLOBS];
    size_t n;
};

static int single_put(lf_boot *b, const char *key, const void *data, size_t len, lf_err *err)
{
    struct single *s = (struct single *)b;
    if (s->n == MAX_BLOBS)
        return lf_fail(err, LF_EINVAL, "more than %d start-up blobs", MAX_BLOBS);
    s->blob[s->n].key = lf_strdup(key, err);
    s->blob[s->n].data = lf_malloc(1, len, err);
    if (!s->blob[s->n].key || !s->blob[s->n].data) {
        free(s->blob[s->n].key);
        free(s->blob[s->n].data);
        return LF_ENOMEM;
    }
    if (len)
        memcpy(s->blob[s->n].data, data, len);
    s->blob[s->n++].len = len;
    return 0;
}

static int single_fence(lf_boot *b, lf_err *err)
{
    (void)b;
    (void)err;
    return 0;
}

static int single_get(lf_boot *b, int rank, const char *key, void *data, size_t cap, size_t *len, lf_err *err)
{
    const struct single *s = (const struct single *)b;
    for (size_t i = s->n; rank == 0 && i-- > 0;) {
        if (strcmp(s->blob[i].key, key) != 0)
            continue;
        if (s->blob[i].len > cap)
            return lf_fail(err, LF_EINVAL, "start-up blob %s has %zu bytes, there is room for %zu", key, s->blob[i].len,
                           cap);
        if (s->blob[i].len)
            memcpy(data, s->blob[i].data, s->blob[i].len);
        *len = s->blob[i].len;
        return 0;
    }
    return lf_fail(err, LF_ENOENT, "rank %d has put no start-up blob %s", rank, key);
}

static void single_destroy(lf_boot *b)
{
    struct single *s = (struct single *)b;
    for (size_t i = 0; i < s->n; i++) {
        free(s->blob[i].key);
        free(s->blob[i].data);
    }
    free(s);
}

static const struct lf_boot_ops single_ops = {single_put, single_fence, single_get, single_destroy};

lf_boot *lf_boot_create(lf_err *err)
{
    if (getenv("PMIX_NAMESPACE")) {
#ifdef HAVE_PMIX
        return lf_boot_create_pmix(err);
#else
        lf_fail(err, LF_ENOTSUP,
                "a PMIx server started this process, but this build is --without-pmix; start it without one");
        return NULL;
#endif
    }
    struct single *s = lf_calloc(1, sizeof *s, err);
    if (!s)
        return NULL;
    s->base.ops = &single_ops;
    s->base.info = (struct lf_boot_info){.rank = 0, .size = 1, .local_rank = 0, .local_size = 1, .how = "single"};
    return &s->base;
}

void lf_boot_destroy(lf_boot *b)
{
    if (b)
        b->ops->destroy(b);
}

const struct lf_boot_info *lf_boot_info(const lf_boot *b)
{
    return &b->info;
}

int lf_boot_put(lf_boot *b, const char *key, const void *data, size_t len, lf_err *err)
{
    return b->ops->put(b, key, data, len, err);
}

int lf_boot_fence(lf_boot *b, lf_err *err)
{
    return b->ops->fence(b, err);
}

int lf_boot_get(lf_boot *b, int rank, const char *key, void *data, size_t cap, size_t *len, lf_err *err)
{
    return b->ops->get(b, rank, key, data, cap, len, err);
}

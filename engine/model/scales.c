/* SPDX-License-Identifier: Apache-2.0
 *
 * Companions of 8-bit weights from checkpoint to checkpoint. */
#include "engine/model/scales.h"

#include <string.h>

/* The values of one, in memory as in a file. */
struct held {
    size_t elem;
    char data[];
};

static int fill(void *user, int64_t first, int64_t n, void *dst, lf_err *err)
{
    const struct held *h = user;
    (void)err;
    memcpy(dst, h->data + (size_t)first * h->elem, (size_t)n * h->elem);
    return 0;
}

bool lf_scales_is(const lf_ckpt_entry *e)
{
    return strcmp(e->kind, LF_SCALES_KIND) == 0 || strcmp(e->kind, LF_CODES_KIND) == 0;
}

static int read_one(lf_ckpt_tensor *t, const lf_ckpt *c, const lf_ckpt_entry *e, lf_arena *a,
                    lf_err *err)
{
    const size_t elem = lf_h5_type_bytes(e->dtype);
    int64_t n = 1;
    for (int k = 0; k < e->ndim; k++)
        n *= e->shape[k];
    struct held *h = lf_arena_alloc(a, sizeof *h + (size_t)n * elem, 1, err);
    *t = (lf_ckpt_tensor){.name = lf_arena_strdup(a, e->name, err),
                          .kind = lf_arena_strdup(a, e->kind, err),
                          .dtype = e->dtype,
                          .ndim = e->ndim,
                          .fill = fill,
                          .user = h};
    memcpy(t->shape, e->shape, sizeof t->shape);
    if (!h || !t->name || !t->kind)
        return LF_ENOMEM;
    h->elem = elem;
    return lf_ckpt_read_flat(c, e, 0, n, h->data, err);
}

int lf_scales_read(struct lf_scales *out, const lf_ckpt *c, lf_arena *a, lf_err *err)
{
    struct lf_scales s = {0};
    json_t *state = json_object_get(lf_ckpt_state(c), LF_SCALES_STATE);
    size_t n = 0;
    for (size_t i = 0; i < lf_ckpt_n_entries(c) && state; i++)
        n += lf_scales_is(lf_ckpt_entry_at(c, i));
    if (!(s.tensors = lf_arena_alloc(a, n + 1, sizeof *s.tensors, err)))
        return LF_ENOMEM;
    int rc = 0;
    for (size_t i = 0; i < lf_ckpt_n_entries(c) && s.n < n && rc == 0; i++)
        if (lf_scales_is(lf_ckpt_entry_at(c, i)))
            rc = read_one(&s.tensors[s.n++], c, lf_ckpt_entry_at(c, i), a, err);
    if (rc != 0)
        return rc;
    s.state = json_incref(state);
    lf_scales_fini(out);
    *out = s;
    return 0;
}

void lf_scales_fini(struct lf_scales *s)
{
    json_decref(s->state);
    *s = (struct lf_scales){0};
}

int lf_scales_append(const struct lf_scales *s, const lf_ckpt_tensor **t, size_t *n, lf_arena *a,
                     lf_err *err)
{
    if (!s->n)
        return 0;
    lf_ckpt_tensor *all = lf_arena_alloc(a, *n + s->n, sizeof *all, err);
    if (!all)
        return LF_ENOMEM;
    if (*n)
        memcpy(all, *t, *n * sizeof *all);
    memcpy(all + *n, s->tensors, s->n * sizeof *all);
    *t = all;
    *n += s->n;
    return 0;
}

int lf_scales_tell(const struct lf_scales *s, json_t *state)
{
    return s->state && json_object_set(state, LF_SCALES_STATE, s->state);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoint tensors from the parameter store, and back. */
#include "engine/model/weights.h"

#include <stdlib.h>
#include <string.h>

static const enum lf_pkind stored[] = {LF_P_MASTER, LF_P_M, LF_P_V};
#define N_STORED 3

/* Which tensors of a store, and what their names begin with. */
struct choice {
    bool adapter, moments;
    const char *prefix;
};

static int tensors_of(lf_ckpt_tensor **out, size_t *n, const lf_pstore *ps, const struct choice *w,
                      lf_arena *a, lf_err *err)
{
    int count = lf_pstore_count(ps);
    lf_ckpt_tensor *t = lf_arena_alloc(a, (size_t)count * N_STORED, sizeof(*t), err);
    if (!t)
        return LF_ENOMEM;
    size_t k = 0;
    for (int i = 0; i < count; i++) {
        if (lf_pstore_desc(ps, i)->adapter != w->adapter)
            continue;
        char *name = lf_arena_printf(a, err, "%s%s", w->prefix, lf_pstore_desc(ps, i)->name);
        if (!name)
            return LF_ENOMEM;
        for (size_t j = 0; j < (w->moments ? N_STORED : 1); j++) {
            struct lf_pview v;
            const enum lf_pkind kind =
                stored[j] == LF_P_MASTER ? lf_pstore_weights(ps, i) : stored[j];
            int rc = lf_pstore_view(ps, i, kind, &v);
            if (rc == 0 && stored[j] != LF_P_MASTER)
                continue; /* frozen, or balanced and not optimized */
            if (rc != 1 || (v.dtype != LF_F32 && v.dtype != LF_BF16))
                return lf_fail(err, LF_EINVAL, "%s has no weights in f32 or bf16 in memory to save",
                               name);
            t[k] = (lf_ckpt_tensor){.name = name,
                                    .kind = lf_pkind_name(stored[j]),
                                    .dtype = v.dtype == LF_F32 ? LF_H5_F32 : LF_H5_BF16,
                                    .ndim = v.ndim,
                                    .data = v.data};
            if (!lf_pstore_on_host(ps)) {
                t[k].fetch = lf_pstore_fetch;
                memcpy(&t[k].user, &ps, sizeof ps); /* handed back as const */
            }
            for (int d = 0; d < v.ndim; d++)
                t[k].shape[d] = v.dims[d];
            k++;
        }
    }
    *out = t;
    *n = k;
    return 0;
}

size_t lf_weights_bytes(const lf_pstore *ps, bool adapter)
{
    size_t sum = 0;
    for (int i = 0; i < lf_pstore_count(ps); i++)
        if (lf_pstore_desc(ps, i)->adapter == adapter)
            sum += lf_pstore_planned(ps, i, lf_pstore_weights(ps, i)) +
                   lf_pstore_planned(ps, i, LF_P_M) + lf_pstore_planned(ps, i, LF_P_V);
    return sum;
}

int lf_weights_tensors(lf_ckpt_tensor **out, size_t *n, const lf_pstore *ps, const char *prefix,
                       bool moments, lf_arena *a, lf_err *err)
{
    return tensors_of(out, n, ps, &(struct choice){false, moments, prefix}, a, err);
}

int lf_weights_adapter_tensors(lf_ckpt_tensor **out, size_t *n, const lf_pstore *ps,
                               const char *prefix, bool moments, lf_arena *a, lf_err *err)
{
    return tensors_of(out, n, ps, &(struct choice){true, moments, prefix}, a, err);
}

static void shape_text(lf_buf *b, const int64_t *dims, int n)
{
    for (int i = 0; i < n; i++)
        lf_buf_addf(b, "%s%lld", i ? ", " : "[", (long long)dims[i]);
    lf_buf_addc(b, ']');
}

static int check_shape(const lf_ckpt_entry *e, const struct lf_param_desc *d, const char *where,
                       lf_err *err)
{
    bool same = e->ndim == d->ndim;
    for (int i = 0; i < d->ndim && same; i++)
        same = e->shape[i] == d->dims[i];
    if (same)
        return 0;
    lf_buf b;
    lf_buf_init(&b);
    shape_text(&b, e->shape, e->ndim);
    lf_buf_adds(&b, " there, but the model wants ");
    shape_text(&b, d->dims, d->ndim);
    int rc = lf_buf_check(&b, err);
    if (rc == 0)
        rc = lf_fail(err, LF_EINVAL, "%s: %s is %s", where, e->name, b.data);
    lf_buf_fini(&b);
    return rc;
}

int lf_weights_read(lf_pstore *ps, int i, const lf_ckpt *c, const lf_ckpt_entry *e,
                    enum lf_pkind kind, lf_err *err)
{
    const enum lf_dtype type = e->dtype == LF_H5_F32 ? LF_F32 : LF_BF16;
    if (e->dtype != LF_H5_F32 && e->dtype != LF_H5_BF16)
        return lf_fail(err, LF_EFORMAT, "%s: %s (%s) is %s; weights and moments are f32 or bf16",
                       lf_ckpt_dir(c), e->name, e->kind, lf_h5_type_name(e->dtype));
    size_t n = 1;
    for (int k = 0; k < e->ndim; k++) /* the shape is the model's: checked */
        n *= (size_t)e->shape[k];
    void *buf = lf_malloc(n, lf_h5_type_bytes(e->dtype), err);
    if (!buf)
        return LF_ENOMEM;
    int rc = lf_ckpt_read(c, e, NULL, NULL, buf, err);
    if (rc == 0 && kind == LF_P_MASTER)
        rc = lf_pstore_write(ps, i, type, buf, err);
    else if (rc == 0)
        rc = lf_pstore_write_kind(ps, i, kind, type, buf, err);
    free(buf);
    return rc;
}

/* Which tensors of a store a checkpoint fills. */
enum part { BASE, TRUNK, ADAPTER };

bool lf_weights_is_head(const char *name)
{
    return strncmp(name, "head.", 5) == 0 || strcmp(name, "score.weight") == 0;
}

/* Is a tensor of the store there for this part of it? What is trained whole beside an adapter
 * begins as the base's. */
static bool fills(const struct lf_param_desc *d, enum part part)
{
    return d->adapter == (part == ADAPTER) || d->whole;
}

/* Every tensor of the file under prefix must be one of the store's. */
static int check_visited(const lf_pstore *ps, enum part part, const lf_ckpt *c, const char *prefix,
                         lf_err *err)
{
    size_t skip = strlen(prefix);
    for (size_t i = 0; i < lf_ckpt_n_entries(c); i++) {
        const lf_ckpt_entry *e = lf_ckpt_entry_at(c, i);
        if (strncmp(e->name, prefix, skip) != 0 ||
            (part == TRUNK && lf_weights_is_head(e->name + skip)))
            continue;
        const int at = lf_pstore_find(ps, e->name + skip);
        if (at < 0 || !fills(lf_pstore_desc(ps, at), part))
            return lf_fail(err, LF_EINVAL, "%s: %s is not a tensor of this model", lf_ckpt_dir(c),
                           e->name);
    }
    return 0;
}

static int load_all(lf_pstore *ps, enum part part, const lf_ckpt *c, const char *prefix,
                    bool moments, lf_err *err)
{
    int rc = check_visited(ps, part, c, prefix, err);
    for (int i = 0; i < lf_pstore_count(ps) && rc == 0; i++) {
        const struct lf_param_desc *d = lf_pstore_desc(ps, i);
        if (!fills(d, part) || (part == TRUNK && lf_weights_is_head(d->name)))
            continue;
        lf_buf name;
        lf_buf_init(&name);
        lf_buf_addf(&name, "%s%s", prefix, d->name);
        rc = lf_buf_check(&name, err);
        for (size_t j = 0;
             j < (moments && !d->frozen && !(d->balance_rate > 0) ? N_STORED : 1) && rc == 0; j++) {
            const lf_ckpt_entry *e = lf_ckpt_find(c, name.data, lf_pkind_name(stored[j]));
            if (!e)
                rc = lf_fail(err, LF_EINVAL, "%s holds no %s of %s", lf_ckpt_dir(c),
                             lf_pkind_name(stored[j]), name.data);
            if (rc == 0)
                rc = check_shape(e, d, lf_ckpt_dir(c), err);
            if (rc == 0)
                rc = lf_weights_read(ps, i, c, e, stored[j], err);
        }
        lf_buf_fini(&name);
    }
    return rc;
}

int lf_weights_load(lf_pstore *ps, const lf_ckpt *c, const char *prefix, bool moments, lf_err *err)
{
    return load_all(ps, BASE, c, prefix, moments, err);
}

int lf_weights_load_below(lf_pstore *ps, int output, const lf_ckpt *c, const char *prefix,
                          lf_err *err)
{
    lf_model_config is;
    int rc = lf_weights_config(&is, c, err);
    return rc != 0 ? rc : load_all(ps, is.output == output ? BASE : TRUNK, c, prefix, false, err);
}

int lf_weights_load_adapter(lf_pstore *ps, const lf_ckpt *c, const char *prefix, bool moments,
                            lf_err *err)
{
    return load_all(ps, ADAPTER, c, prefix, moments, err);
}

int lf_weights_config(lf_model_config *out, const lf_ckpt *c, lf_err *err)
{
    json_t *o = NULL;
    int rc = lf_json_get_object(&o, lf_ckpt_state(c), "model", true, lf_ckpt_dir(c), err);
    return rc != 0 ? rc : lf_model_config_from_json(out, o, lf_ckpt_dir(c), err);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Logical tensors, their groups, where each kind of them lies, and host access to them. Weights
 * change through this file or through a kernel; either way the version moves, and copies and panels
 * made from an older one are stale.
 */
#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/back/back.h"
#include "engine/base/bf16.h"
#include "engine/base/f16.h"
#include "engine/base/rng.h"
#include "engine/graph/priv.h"

enum { CHUNK = 2048, STAGE = 1 << 20 }; /* elements converted, drawn at a time */

const char *lf_pkind_name(enum lf_pkind kind)
{
    static const char *const names[LF_P_ALL] = {"weight",    "grad",       "adam_m", "adam_v",
                                                "ema",       "copy",       "fp8",    "fp8_t",
                                                "fp8_scale", "fp8_scale_t"};
    return (unsigned)kind < LF_P_ALL ? names[kind] : "?";
}

enum lf_dtype lf_pstore_type(const lf_pstore *ps, enum lf_pkind kind)
{
    return kind == LF_P_COPY                  ? ps->copy_type
           : kind == LF_P_M || kind == LF_P_V ? ps->moment_type
                                              : LF_F32;
}

size_t lf_align_up(size_t x, size_t align)
{
    return (x + align - 1) / align * align;
}

uint32_t lf_name_site(const char *name)
{
    uint32_t h = 2166136261u;
    for (const unsigned char *c = (const unsigned char *)name; *c; c++)
        h = (h ^ *c) * 16777619u;
    return h;
}

lf_pstore *lf_pstore_create(lf_err *err)
{
    lf_pstore *ps = lf_calloc(1, sizeof *ps, err);
    if (!ps)
        return NULL;
    ps->arena = lf_arena_create(err);
    if (!ps->arena) {
        free(ps);
        return NULL;
    }
    ps->version = 1;
    ps->copy_type = LF_BF16;
    return ps;
}

void lf_pstore_destroy(lf_pstore *ps)
{
    if (!ps)
        return;
    free(ps->p);
    free(ps->g);
    free(ps->ad);
    free(ps->slot);
    lf_arena_destroy(ps->arena);
    free(ps);
}

/* ---- names ---- */

/* A table of 1 + index by the hash of the name, at most half full; 0: free. */
static size_t slot_of(const lf_pstore *ps, const char *name)
{
    size_t at = lf_name_site(name) & (ps->n_slots - 1);
    while (ps->slot[at] && strcmp(ps->p[ps->slot[at] - 1].d.name, name) != 0)
        at = (at + 1) & (ps->n_slots - 1);
    return at;
}

/* Room for one more name. */
static int grow_slots(lf_pstore *ps, lf_err *err)
{
    enum { LEAST = 64 }; /* a power of two, as every number of slots */
    if (2 * (ps->n_p + 1) <= ps->n_slots)
        return 0;
    const size_t n = ps->n_slots ? 2 * ps->n_slots : LEAST;
    int32_t *slot = lf_calloc(n, sizeof *slot, err);
    if (!slot)
        return LF_ENOMEM;
    free(ps->slot);
    ps->slot = slot;
    ps->n_slots = n;
    for (size_t i = 0; i < ps->n_p; i++)
        ps->slot[slot_of(ps, ps->p[i].d.name)] = (int32_t)i + 1;
    return 0;
}

int lf_pstore_find(const lf_pstore *ps, const char *name)
{
    const int32_t found = ps->n_slots ? ps->slot[slot_of(ps, name)] : 0;
    return found ? found - 1 : LF_ENOENT;
}

int32_t lf_pstore_group(const lf_pstore *ps, const char *name)
{
    for (size_t i = 0; i < ps->n_g; i++)
        if (strcmp(ps->g[i].name, name) == 0)
            return (int32_t)i;
    return -1;
}

static int check_desc(const lf_pstore *ps, const struct lf_param_desc *d, lf_err *err)
{
    if (ps->back)
        return lf_fail(err, LF_EBUSY, "parameter %s: the store's memory is bound already", d->name);
    if (d->ndim < 1 || d->ndim > 3)
        return lf_fail(err, LF_EINVAL, "parameter %s: %d dimensions (1 to 3)", d->name, d->ndim);
    size_t n = sizeof(double);
    for (int i = 0; i < d->ndim; i++)
        if (d->dims[i] < 1 || !lf_size_mul(&n, n, (size_t)d->dims[i]) || n > SIZE_MAX / 16)
            return lf_fail(err, LF_EINVAL, "parameter %s: dimension %d is %lld", d->name, i,
                           (long long)d->dims[i]);
    if (d->balance_rate > 0 && (d->ndim != 1 || d->group || d->frozen))
        return lf_fail(err, LF_EINVAL,
                       "parameter %s: only a trained vector in no group can be balanced", d->name);
    if (lf_pstore_find(ps, d->name) >= 0)
        return lf_fail(err, LF_EEXIST, "parameter %s is declared twice", d->name);
    return 0;
}

/* A tensor as the matrix that a graph sees. */
struct matrix {
    int64_t rows, cols;
};

static struct matrix matrix_of(int ndim, const int64_t *dims)
{
    return (struct matrix){ndim == 3 ? dims[0] * dims[1] : ndim == 2 ? dims[0] : 1, dims[ndim - 1]};
}

static struct matrix box_matrix(const struct lf_param *p)
{
    int64_t dims[3];
    for (int k = 0; k < 3; k++)
        dims[k] = p->box.hi[k] - p->box.lo[k];
    return matrix_of(p->d.ndim, dims);
}

static uint8_t place_of(const lf_pstore *ps, const struct lf_param_desc *d)
{
    return ps->layout.tensor <= 1 || (ps->layout.folded && d->experts)    ? LF_PL_SAME
           : d->shard == LF_SHARD_ROWS || d->shard == LF_SHARD_VOCABULARY ? LF_PL_ROWS
           : d->shard == LF_SHARD_COLS                                    ? LF_PL_COLS
                                                                          : LF_PL_SAME;
}

static int join_group(lf_pstore *ps, const struct lf_param *p, int32_t *out, lf_err *err)
{
    const struct lf_param_desc *d = &p->d;
    const char *name = d->group ? d->group : d->name;
    int32_t gi = lf_pstore_group(ps, name);
    /* A graph knows the experts of its rank alone. */
    const int64_t dims[3] = {p->box.hi[0] - p->box.lo[0], d->dims[1], d->dims[2]};
    const bool experts = ps->layout.expert > 1 && d->experts;
    const struct matrix all = matrix_of(d->ndim, experts ? dims : d->dims), mine = box_matrix(p);
    if (gi < 0) {
        int rc = lf_grow(&ps->g, &ps->cap_g, ps->n_g, sizeof *ps->g, err);
        if (rc != 0)
            return rc;
        char *copy = lf_arena_strdup(ps->arena, name, err);
        if (!copy)
            return LF_ENOMEM;
        gi = (int32_t)ps->n_g++;
        ps->g[gi] = (struct lf_pgroup){.name = copy,
                                       .first = (int32_t)ps->n_p,
                                       .count = 1,
                                       .ndim = d->ndim,
                                       .rows = mine.rows,
                                       .cols = mine.cols,
                                       .all_rows = all.rows,
                                       .all_cols = all.cols,
                                       .place = place_of(ps, d),
                                       .experts = experts,
                                       .frozen = d->frozen,
                                       .fp8 = d->fp8,
                                       .elsewhere = d->elsewhere,
                                       .balanced = d->balance_rate > 0};
        *out = gi;
        return 0;
    }
    struct lf_pgroup *g = &ps->g[gi];
    if (g->first + g->count != (int32_t)ps->n_p)
        return lf_fail(err, LF_EINVAL,
                       "parameter %s: members of group %s must be declared one after another",
                       d->name, name);
    if (g->ndim != d->ndim || (d->ndim >= 2 && g->all_cols != all.cols))
        return lf_fail(err, LF_EINVAL, "parameter %s: shape does not fit group %s of %lld columns",
                       d->name, name, (long long)g->all_cols);
    if (g->place != place_of(ps, d) || g->experts != experts)
        return lf_fail(err, LF_EINVAL, "parameter %s: a layout divides group %s in another way",
                       d->name, name);
    if (g->frozen != d->frozen)
        return lf_fail(err, LF_EINVAL,
                       "parameter %s: group %s must be frozen or trained as a whole", d->name,
                       name);
    g->fp8 = g->fp8 && d->fp8;
    g->elsewhere = g->elsewhere && d->elsewhere;
    if (d->ndim >= 2) {
        g->rows += mine.rows;
        g->all_rows += all.rows;
    } else {
        g->cols += mine.cols;
        g->all_cols += all.cols;
    }
    g->count++;
    *out = gi;
    return 0;
}

int lf_pstore_add(lf_pstore *ps, const struct lf_param_desc *d, lf_err *err)
{
    int32_t gi = -1;
    int rc = check_desc(ps, d, err);
    if (rc == 0)
        rc = lf_grow(&ps->p, &ps->cap_p, ps->n_p, sizeof *ps->p, err);
    if (rc == 0)
        rc = grow_slots(ps, err);
    if (rc != 0)
        return rc;
    struct lf_param *p = &ps->p[ps->n_p];
    memset(p, 0, sizeof *p);
    p->d = *d;
    p->d.name = lf_arena_strdup(ps->arena, d->name, err);
    if (!p->d.name)
        return LF_ENOMEM;
    rc = lf_box_find(ps, d, &p->box, err);
    if (rc == 0)
        rc = join_group(ps, p, &gi, err);
    if (rc != 0)
        return rc;
    const struct lf_pgroup *g = &ps->g[gi];
    const struct matrix mine = box_matrix(p);
    p->d.group = g->name;
    if (p->d.lr_scale == 0.0f) /* exactly the documented "not given" */
        p->d.lr_scale = 1.0f;
    p->group = gi;
    p->n = mine.rows * mine.cols;
    p->offset = g->rows * g->cols - p->n;
    p->spread_at = -1;
    ps->slot[slot_of(ps, p->d.name)] = (int32_t)ps->n_p + 1;
    return (int)ps->n_p++;
}

/* A group follows its members; mixed groups are refused when planned. */
static void settle_groups(lf_pstore *ps)
{
    for (size_t i = 0; i < ps->n_g; i++) {
        struct lf_pgroup *g = &ps->g[i];
        g->frozen = g->fp8 = g->elsewhere = true;
        for (int32_t k = 0; k < g->count; k++) {
            g->frozen = g->frozen && ps->p[g->first + k].d.frozen;
            g->fp8 = g->fp8 && ps->p[g->first + k].d.fp8;
            g->elsewhere = g->elsewhere && ps->p[g->first + k].d.elsewhere;
        }
    }
}

int lf_pstore_freeze(lf_pstore *ps, const char *prefix, bool frozen)
{
    int n = 0;
    size_t len = strlen(prefix);
    for (size_t i = 0; i < ps->n_p; i++)
        if (strncmp(ps->p[i].d.name, prefix, len) == 0) {
            ps->p[i].d.frozen = frozen;
            n++;
        }
    settle_groups(ps);
    return n;
}

int lf_pstore_leave(lf_pstore *ps, const char *prefix)
{
    const size_t len = strlen(prefix);
    for (size_t i = 0; i < ps->n_p; i++)
        if (strncmp(ps->p[i].d.name, prefix, len) == 0)
            ps->p[i].d.elsewhere = true;
    return lf_pstore_freeze(ps, prefix, true);
}

int lf_pstore_freeze_matching(lf_pstore *ps, const char *pattern, bool frozen)
{
    int n = 0;
    for (size_t i = 0; i < ps->n_p; i++)
        if (fnmatch(pattern, ps->p[i].d.name, 0) == 0) {
            ps->p[i].d.frozen = frozen;
            n++;
        }
    settle_groups(ps);
    return n;
}

int lf_pstore_lr_matching(lf_pstore *ps, const struct lf_lr_scale *s)
{
    int n = 0;
    for (size_t i = 0; i < ps->n_p; i++)
        if (fnmatch(s->pattern, ps->p[i].d.name, 0) == 0) {
            ps->p[i].d.lr_scale = (float)s->factor;
            n++;
        }
    return n;
}

void lf_pstore_set_lr(lf_pstore *ps, int i, double factor)
{
    ps->p[i].d.lr_scale = (float)factor;
}

int lf_pstore_count(const lf_pstore *ps)
{
    return (int)ps->n_p;
}

const struct lf_param_desc *lf_pstore_desc(const lf_pstore *ps, int i)
{
    return i >= 0 && (size_t)i < ps->n_p ? &ps->p[i].d : NULL;
}

int64_t lf_pstore_elements(const lf_pstore *ps)
{
    int64_t n = 0;
    for (size_t i = 0; i < ps->n_p; i++)
        n += lf_logical(&ps->p[i].d);
    return n;
}

int64_t lf_pstore_elements_trained(const lf_pstore *ps)
{
    int64_t n = 0;
    for (size_t i = 0; i < ps->n_p; i++)
        n += ps->p[i].d.frozen ? 0 : lf_logical(&ps->p[i].d);
    return n;
}

int lf_pstore_fp8_matching(lf_pstore *ps, const char *pattern, bool fp8)
{
    int n = 0;
    for (size_t i = 0; i < ps->n_p; i++) {
        struct lf_param_desc *d = &ps->p[i].d;
        if (d->ndim != 2 || d->adapter || fnmatch(pattern, d->name, 0) != 0)
            continue;
        d->fp8 = fp8;
        n++;
    }
    settle_groups(ps);
    return n;
}

static size_t kind_bytes(const lf_pstore *ps, const struct lf_pgroup *g, int kind)
{
    const size_t n = (size_t)(g->part[kind] ? g->own1 - g->own0 : g->rows * g->cols);
    switch (kind) {
    case LF_P_Q:
    case LF_P_QT:
        return n;
    case LF_P_QS:
        return (size_t)lf_fp8_scales(g->rows, g->cols, ps->fp8_scaling) * sizeof(float);
    case LF_P_QTS:
        return (size_t)lf_fp8_scales(g->cols, g->rows, ps->fp8_scaling) * sizeof(float);
    default:
        return n * lf_dtype_size(lf_pstore_type(ps, (enum lf_pkind)kind));
    }
}

static void place_kind(lf_pstore *ps, struct lf_pgroup *g, int kind, size_t align)
{
    size_t *bytes = g->host[kind] ? &ps->host_bytes[kind] : &ps->bytes[kind];
    g->off[kind] = *bytes;
    if (g->need[kind])
        *bytes += lf_align_up(kind_bytes(ps, g, kind), align);
}

void lf_pstore_layout(lf_pstore *ps, size_t align)
{
    memset(ps->bytes, 0, sizeof ps->bytes);
    memset(ps->host_bytes, 0, sizeof ps->host_bytes);
    ps->pack_bytes = 0;
    for (size_t i = 0; i < ps->n_g; i++) {
        struct lf_pgroup *g = &ps->g[i];
        for (int k = 0; k < LF_P_ALL; k++)
            if (!g->part[k])
                place_kind(ps, g, k, align);
        g->pack_off = ps->pack_bytes;
        if (g->need_pack)
            ps->pack_bytes += lf_align_up(g->pack_bytes, align);
    }
    for (size_t i = 0; i < ps->n_g; i++) /* behind them, so that what is whole lies together */
        for (int k = 0; k < LF_P_ALL; k++)
            if (ps->g[i].part[k] && !(k < LF_P_KINDS && ps->g[i].window[k]))
                place_kind(ps, &ps->g[i], k, align);
}

size_t lf_pstore_bytes(const lf_pstore *ps)
{
    size_t sum = ps->pack_bytes;
    for (int k = 0; k < LF_P_ALL; k++)
        sum += ps->bytes[k];
    return sum;
}

size_t lf_pstore_host_bytes(const lf_pstore *ps)
{
    size_t sum = 0;
    for (int k = 0; k < LF_P_ALL; k++)
        sum += ps->host_bytes[k];
    return sum;
}

int lf_pstore_bind(lf_pstore *ps, struct lf_back *b, char *memory, char *host, lf_err *err)
{
    if (ps->back)
        return lf_fail(err, LF_EBUSY, "the parameter store is bound to an executor already");
    for (int k = 0; k < LF_P_ALL; k++) {
        ps->data[k] = memory;
        memory += ps->bytes[k];
        ps->host_data[k] = host;
        host += host ? ps->host_bytes[k] : 0;
    }
    ps->pack = memory;
    ps->back = b;
    ps->copy_version = ps->pack_version = 0;
    return 0;
}

void *lf_pgroup_data(const lf_pstore *ps, const struct lf_pgroup *g, int kind)
{
    char *block = g->host[kind] ? ps->host_data[kind] : ps->data[kind];
    return g->need[kind] && block ? block + g->off[kind] : NULL;
}

bool lf_store_quantise(const lf_pstore *ps, const struct lf_pgroup *g, struct lf_k_quantise *out)
{
    const int from = g->need[LF_P_MASTER] ? LF_P_MASTER : LF_P_COPY;
    *out = (struct lf_k_quantise){.rows = g->rows,
                                  .cols = g->cols,
                                  .ldx = g->cols,
                                  .x = lf_pgroup_data(ps, g, from),
                                  .q = lf_pgroup_data(ps, g, LF_P_Q),
                                  .qt = lf_pgroup_data(ps, g, LF_P_QT),
                                  .scale = lf_pgroup_data(ps, g, LF_P_QS),
                                  .scale_t = lf_pgroup_data(ps, g, LF_P_QTS),
                                  .x_type = (uint8_t)lf_pstore_type(ps, (enum lf_pkind)from),
                                  .q_type = LF_E4M3,
                                  .scaling = (uint8_t)ps->fp8_scaling};
    return g->need[LF_P_Q] || g->need[LF_P_QT];
}

void lf_pstore_unbind(lf_pstore *ps)
{
    memset(ps->data, 0, sizeof ps->data);
    memset(ps->host_data, 0, sizeof ps->host_data);
    ps->pack = NULL;
    ps->back = NULL;
}

void *lf_pstore_data(const lf_pstore *ps, const struct lf_param *p, enum lf_pkind kind)
{
    const struct lf_pgroup *g = &ps->g[p->group];
    char *group = lf_pgroup_data(ps, g, kind);
    int64_t at = p->offset, n;
    if (g->part[kind]) {
        lf_param_own(ps, p, &at, &n);
        at = n ? p->offset + at - g->own0 : 0;
    }
    return group ? group + (size_t)at * lf_dtype_size(lf_pstore_type(ps, kind)) : NULL;
}

size_t lf_pgroup_grads(const struct lf_pgroup *g)
{
    return (size_t)(g->part[LF_P_GRAD] ? g->own1 - g->own0 : g->rows * g->cols);
}

size_t lf_pstore_planned(const lf_pstore *ps, int i, enum lf_pkind kind)
{
    const struct lf_param *p = &ps->p[i];
    return ps->g[p->group].need[kind] ? (size_t)p->n * lf_dtype_size(lf_pstore_type(ps, kind)) : 0;
}

bool lf_pstore_sharded(const lf_pstore *ps, int i, enum lf_pkind kind)
{
    return ps->g[ps->p[i].group].part[kind];
}

void lf_pstore_own(const lf_pstore *ps, int i, enum lf_pkind kind, int64_t own[2])
{
    const struct lf_param *p = &ps->p[i];
    const struct lf_pgroup *g = &ps->g[p->group];
    int64_t first = 0, n = g->need[kind] ? p->n : 0;
    if (n && g->part[kind])
        lf_param_own(ps, p, &first, &n);
    own[0] = first;
    own[1] = first + n;
}

enum lf_pkind lf_pstore_weights(const lf_pstore *ps, int i)
{
    const struct lf_pgroup *g = &ps->g[ps->p[i].group];
    return g->need[LF_P_MASTER] || !g->need[LF_P_COPY] ? LF_P_MASTER : LF_P_COPY;
}

int lf_pstore_view(const lf_pstore *ps, int i, enum lf_pkind kind, struct lf_pview *out)
{
    if (i < 0 || (size_t)i >= ps->n_p || (unsigned)kind >= LF_P_KINDS)
        return LF_EINVAL;
    const struct lf_param *p = &ps->p[i];
    const struct lf_pgroup *g = &ps->g[p->group];
    if (!ps->back || !g->need[kind])
        return 0;
    enum lf_dtype dt = lf_pstore_type(ps, kind);
    int64_t own[2];
    lf_pstore_own(ps, i, kind, own);
    *out = (struct lf_pview){.name = p->d.name,
                             .kind = kind,
                             .dtype = dt,
                             .ndim = p->d.ndim,
                             .data = lf_pstore_data(ps, p, kind),
                             .row_stride = p->d.ndim >= 2 ? box_matrix(p).cols : 1,
                             .first = own[0],
                             .count = own[1] - own[0],
                             .bytes = (size_t)(own[1] - own[0]) * lf_dtype_size(dt)};
    for (int k = 0; k < 3; k++)
        out->dims[k] = p->box.hi[k] - p->box.lo[k];
    return 1;
}

void lf_pstore_block(const lf_pstore *ps, enum lf_pkind kind, bool host, void **data, size_t *bytes)
{
    *data = host ? ps->host_data[kind] : ps->data[kind];
    *bytes = !ps->back ? 0 : host ? ps->host_bytes[kind] : ps->bytes[kind];
}

/* What this rank keeps of elements [at, at + n) of a tensor: *lo elements into them, *n of them. */
static void clip(const struct lf_pview *v, int64_t at, size_t *lo, size_t *n)
{
    const int64_t end = at + (int64_t)*n, from = at > v->first ? at : v->first,
                  to = end < v->first + v->count ? end : v->first + v->count;
    *lo = from < to ? (size_t)(from - at) : 0;
    *n = from < to ? (size_t)(to - from) : 0;
}

/* n elements of f32 at element `at` of the tensor: to master and copy, as far as they exist. */
static int write_chunk(lf_pstore *ps, int i, int64_t at, const float *src, size_t n, lf_err *err)
{
    struct lf_pview v;
    size_t lo, k = n;
    int rc = 0;
    if (lf_pstore_view(ps, i, LF_P_MASTER, &v) == 1) {
        clip(&v, at, &lo, &k);
        if (k)
            rc = ps->back->ops->copy_in(ps->back, (float *)v.data + (at + (int64_t)lo - v.first),
                                        src + lo, k * sizeof *src, err);
    }
    k = n;
    if (rc == 0 && lf_pstore_view(ps, i, LF_P_COPY, &v) == 1) {
        uint16_t h[CHUNK];
        clip(&v, at, &lo, &k);
        for (size_t e = 0; e < k; e++)
            h[e] = ps->copy_type == LF_F16 ? lf_f16_of(src[lo + e]) : lf_bf16_of(src[lo + e]);
        if (k)
            rc = ps->back->ops->copy_in(ps->back, (uint16_t *)v.data + (at + (int64_t)lo - v.first),
                                        h, k * sizeof *h, err);
    }
    return rc;
}

static int check_bound(const lf_pstore *ps, int i, const char *what, lf_err *err)
{
    if (i < 0 || (size_t)i >= ps->n_p)
        return lf_fail(err, LF_EINVAL, "%s: there is no parameter number %d", what, i);
    if (!ps->back)
        return lf_fail(err, LF_EINVAL, "%s %s: the store has no memory yet", what, ps->p[i].d.name);
    return 0;
}

static int write_weights(lf_pstore *ps, int i, enum lf_dtype dtype, const void *src,
                         const int64_t range[2], lf_err *err)
{
    int rc = 0;
    ps->version++;
    for (int64_t at = range[0]; at < range[1] && rc == 0; at += CHUNK) {
        float f[CHUNK];
        const size_t n = (size_t)(range[1] - at < CHUNK ? range[1] - at : CHUNK),
                     from = (size_t)(at - range[0]);
        for (size_t e = 0; e < n; e++)
            f[e] = dtype == LF_F32 ? ((const float *)src)[from + e]
                                   : lf_f32_of_bf16(((const uint16_t *)src)[from + e]);
        rc = write_chunk(ps, i, at, f, n, err);
    }
    return rc;
}

/* n elements of one type from host memory to element `to` of memory of another, f32 or bf16,
 * rounded to nearest even. */
static int write_cast(lf_pstore *ps, const struct lf_pview *v, int64_t to, const void *src,
                      int64_t n, lf_err *err)
{
    const size_t size = lf_dtype_size(v->dtype);
    const bool widen = v->dtype == LF_F32;
    int rc = 0;
    for (int64_t at = 0; at < n && rc == 0; at += CHUNK) {
        float wide[CHUNK];
        uint16_t half[CHUNK];
        const int64_t k = n - at < CHUNK ? n - at : CHUNK;
        for (int64_t e = 0; e < k; e++)
            if (widen)
                wide[e] = lf_f32_of_bf16(((const uint16_t *)src)[at + e]);
            else
                half[e] = lf_bf16_of(((const float *)src)[at + e]);
        rc = ps->back->ops->copy_in(ps->back, (char *)v->data + (size_t)(to + at) * size,
                                    widen ? (void *)wide : (void *)half, (size_t)k * size, err);
    }
    return rc;
}

/* As far as this rank keeps them. */
static int write_moments(lf_pstore *ps, const struct lf_pview *v, enum lf_dtype dtype,
                         const void *src, const int64_t range[2], lf_err *err)
{
    const int64_t end = v->first + v->count, from = range[0] > v->first ? range[0] : v->first,
                  n = (range[1] < end ? range[1] : end) - from;
    if (n <= 0)
        return 0;
    src = (const char *)src + (size_t)(from - range[0]) * lf_dtype_size(dtype);
    if (dtype != v->dtype)
        return write_cast(ps, v, from - v->first, src, n, err);
    const size_t size = lf_dtype_size(dtype);
    return ps->back->ops->copy_in(ps->back, (char *)v->data + (size_t)(from - v->first) * size, src,
                                  (size_t)n * size, err);
}

int lf_pstore_write_part(lf_pstore *ps, int i, enum lf_pkind kind, enum lf_dtype dtype,
                         const void *src, const int64_t range[2], lf_err *err)
{
    struct lf_pview v;
    const bool weights = kind == LF_P_MASTER;
    int rc = check_bound(ps, i, weights ? "write parameter" : "write moments of", err);
    if (rc != 0)
        return rc;
    const char *name = ps->p[i].d.name;
    if (!weights && kind != LF_P_M && kind != LF_P_V && kind != LF_P_EMA)
        return lf_fail(err, LF_EINVAL, "write moments of %s: kind %s is not a moment", name,
                       lf_pkind_name(kind));
    if (dtype != LF_F32 && dtype != LF_BF16)
        return lf_fail(err, LF_EINVAL, "write %s %s: only f32 and bf16 are taken",
                       weights ? "parameter" : "moments of", name);
    if (range[0] < 0 || range[0] > range[1] || range[1] > ps->p[i].n)
        return lf_fail(err, LF_EINVAL, "write elements %lld to %lld of %s, which has %lld",
                       (long long)range[0], (long long)range[1], name, (long long)ps->p[i].n);
    if (weights)
        rc = write_weights(ps, i, dtype, src, range, err);
    else if (lf_pstore_view(ps, i, kind, &v) != 1)
        rc = lf_fail(err, LF_ENOENT, "parameter %s has no %s in this plan", name,
                     lf_pkind_name(kind));
    else
        rc = write_moments(ps, &v, dtype, src, range, err);
    return rc != 0 ? rc : ps->back->ops->sync(ps->back, err);
}

/* All elements of the box of tensor i, where there is one. */
static void whole(const lf_pstore *ps, int i, int64_t range[2])
{
    range[0] = 0;
    range[1] = i >= 0 && (size_t)i < ps->n_p ? ps->p[i].n : 0;
}

/* Writes a kind from a whole logical tensor. */
static int write_whole(lf_pstore *ps, int i, enum lf_pkind kind, enum lf_dtype dtype,
                       const void *src, lf_err *err)
{
    int64_t range[2];
    void *box = NULL;
    whole(ps, i, range);
    if (range[1] && range[1] != lf_logical(&ps->p[i].d)) {
        const size_t size = lf_dtype_size(dtype);
        box = lf_malloc((size_t)range[1], size, err);
        if (!box)
            return LF_ENOMEM;
        for (int64_t e = 0, run; e < range[1]; e += run) {
            run = lf_box_run(&ps->p[i], e, range[1]);
            memcpy((char *)box + (size_t)e * size,
                   (const char *)src + (size_t)lf_box_element(&ps->p[i], e) * size,
                   (size_t)run * size);
        }
    }
    const int rc = lf_pstore_write_part(ps, i, kind, dtype, box ? box : src, range, err);
    free(box);
    return rc;
}

int lf_pstore_write(lf_pstore *ps, int i, enum lf_dtype dtype, const void *src, lf_err *err)
{
    return write_whole(ps, i, LF_P_MASTER, dtype, src, err);
}

int lf_pstore_write_kind(lf_pstore *ps, int i, enum lf_pkind kind, enum lf_dtype dtype,
                         const void *src, lf_err *err)
{
    if (kind == LF_P_MASTER)
        return lf_fail(err, LF_EINVAL, "write moments: kind %s is not a moment",
                       lf_pkind_name(kind));
    return write_whole(ps, i, kind, dtype, src, err);
}

int lf_pstore_read(const lf_pstore *ps, int i, enum lf_pkind kind, void *dst, size_t bytes,
                   lf_err *err)
{
    struct lf_pview v;
    int rc = check_bound(ps, i, "read parameter", err);
    if (rc != 0)
        return rc;
    if (lf_pstore_view(ps, i, kind, &v) != 1)
        return lf_fail(err, LF_ENOENT, "parameter %s has no %s in this plan", ps->p[i].d.name,
                       lf_pkind_name(kind));
    if (bytes != v.bytes)
        return lf_fail(err, LF_EINVAL, "read parameter %s: room for %zu bytes, it has %zu", v.name,
                       bytes, v.bytes);
    return ps->back->ops->copy_out(ps->back, dst, v.data, bytes, err);
}

bool lf_pstore_on_host(const lf_pstore *ps)
{
    return !ps->back || ps->back->ops->host_visible;
}

int lf_pstore_fetch(void *ps, void *dst, const void *src, size_t bytes, lf_err *err)
{
    lf_back *b = ((lf_pstore *)ps)->back;
    return b->ops->copy_out(b, dst, src, bytes, err);
}

int lf_pstore_host(const lf_pstore *ps, int i, enum lf_pkind kind, const void **data, void **copy,
                   lf_err *err)
{
    struct lf_pview v;
    void *m = NULL;
    int rc = lf_pstore_view(ps, i, kind, &v) == 1
                 ? 0
                 : lf_fail(err, LF_ENOENT, "a tensor without %s in memory", lf_pkind_name(kind));
    if (rc == 0 && !lf_pstore_on_host(ps)) {
        m = lf_malloc(v.bytes, 1, err);
        rc = m ? lf_pstore_read(ps, i, kind, m, v.bytes, err) : LF_ENOMEM;
    }
    if (rc != 0) {
        free(m);
        return rc;
    }
    *copy = m;
    *data = m ? m : v.data;
    return 0;
}

/* Element (row, column) of a table of positions: see pstore.h. */
static float sincos_value(const struct lf_param_desc *d, int64_t row, int64_t col)
{
    const int64_t side = (int64_t)sqrt((double)d->dims[0]), quarter = d->dims[1] / 4,
                  at = row - (side * side < d->dims[0]), part = col / quarter;
    if (at < 0)
        return 0;
    const double w = pow(10000, -(double)(col % quarter) / (double)quarter),
                 a = (double)(part < 2 ? at % side : at / side) * w;
    return (float)(part % 2 ? cos(a) : sin(a));
}

/* The number x whose softplus, log(1 + e^x), is y. */
static double softplus_inverse(double y)
{
    return y + log(-expm1(-y));
}

static float init_value(const struct lf_param_desc *d, uint64_t seed, uint32_t site, int64_t e)
{
    if (d->init == LF_INIT_UNIFORM)
        return (float)((double)d->init_std * (2 * lf_rng_f64(seed, site, (uint64_t)e) - 1));
    if (d->init == LF_INIT_NORMAL)
        return (float)((double)d->init_std * lf_rng_normal(seed, site, (uint64_t)e));
    if (d->init == LF_INIT_VALUE)
        return d->init_std;
    if (d->init == LF_INIT_SINCOS)
        return sincos_value(d, e / d->dims[1], e % d->dims[1]);
    if (d->init == LF_INIT_DECAY)
        return (float)log(1 + 15 * lf_rng_f64(seed, site, (uint64_t)e));
    if (d->init == LF_INIT_STEP)
        return (float)softplus_inverse(0.001 * pow(100, lf_rng_f64(seed, site, (uint64_t)e)));
    return d->init == LF_INIT_ONE ? 1.0f : 0.0f;
}

struct draw {
    uint64_t seed;
    uint32_t site;
};

/* Elements [k, k + n) of a logical tensor. Neighbours share a draw. */
static void init_run(float *out, const struct lf_param_desc *d, const struct draw *w, int64_t k,
                     int64_t n)
{
    for (int64_t e = 0; e < n; e++) {
        if (d->init == LF_INIT_NORMAL && (k + e) % 2 == 0 && e + 1 < n) {
            double two[2];
            lf_rng_normal_pair(two, w->seed, w->site, (uint64_t)(k + e) / 2);
            out[e++] = (float)((double)d->init_std * two[0]);
            out[e] = (float)((double)d->init_std * two[1]);
        } else {
            out[e] = init_value(d, w->seed, w->site, k + e);
        }
    }
}

/* Elements [at, at + n) of what this rank holds. */
static void init_values(float *out, const struct lf_param *p, const struct draw *w, int64_t at,
                        int64_t n)
{
    for (int64_t e = 0, run; e < n; e += run) {
        run = lf_box_run(p, at + e, at + n);
        init_run(out + e, &p->d, w, lf_box_element(p, at + e), run);
    }
}

/* Values are drawn by all threads into a staging block, then written in order: element e is the
 * same whoever draws it.
 */
static int init_weights(lf_pstore *ps, int i, uint64_t seed, float *stage, lf_err *err)
{
    const struct lf_param *p = &ps->p[i];
    const struct draw w = {seed, lf_name_site(p->d.name)};
    for (int64_t at = 0; at < p->n; at += STAGE) {
        int64_t n = p->n - at < STAGE ? p->n - at : STAGE;
#pragma omp parallel for schedule(static) num_threads(ps->back->threads)
        for (int64_t k = 0; k < n; k += CHUNK)
            init_values(stage + k, p, &w, at + k, n - k < CHUNK ? n - k : CHUNK);
        for (int64_t k = 0; k < n; k += CHUNK) {
            int rc =
                write_chunk(ps, i, at + k, stage + k, (size_t)(n - k < CHUNK ? n - k : CHUNK), err);
            if (rc != 0)
                return rc;
        }
    }
    return 0;
}

static int init_moments(lf_pstore *ps, int i, lf_err *err)
{
    for (int k = LF_P_M; k <= LF_P_V; k++) {
        struct lf_pview v;
        if (lf_pstore_view(ps, i, (enum lf_pkind)k, &v) != 1)
            continue;
        int rc = ps->back->ops->fill(ps->back, v.data, 0, v.bytes, err);
        if (rc != 0)
            return rc;
    }
    return 0;
}

int lf_pstore_init_rest(lf_pstore *ps, uint64_t seed,
                        bool (*given)(void *user, const struct lf_param_desc *d), void *user,
                        lf_err *err)
{
    float *stage = lf_malloc(STAGE, sizeof *stage, err);
    int rc = stage ? 0 : LF_ENOMEM;
    for (size_t i = 0; i < ps->n_p && rc == 0; i++) {
        rc = check_bound(ps, (int)i, "initialise", err);
        if (rc == 0 && !ps->p[i].d.elsewhere && !(given && given(user, &ps->p[i].d)))
            rc = init_weights(ps, (int)i, seed, stage, err);
        if (rc == 0)
            rc = init_moments(ps, (int)i, err);
    }
    free(stage);
    if (rc != 0)
        return rc;
    ps->version++;
    return ps->back ? ps->back->ops->sync(ps->back, err) : 0;
}

/* Elements [first, first + n) of both views, which are f32 or, of the weights, bf16. */
static int average_part(lf_pstore *ps, const struct lf_pview *to, const struct lf_pview *w,
                        int64_t first, int64_t n, lf_err *err)
{
    float wide[CHUNK];
    uint16_t half[CHUNK];
    const bool narrow = w->dtype == LF_BF16;
    const char *from = (const char *)w->data + (size_t)(first - w->first) * lf_dtype_size(w->dtype);
    int rc = ps->back->ops->copy_out(ps->back, narrow ? (void *)half : (void *)wide, from,
                                     (size_t)n * lf_dtype_size(w->dtype), err);
    for (int64_t e = 0; narrow && e < n; e++)
        wide[e] = lf_f32_of_bf16(half[e]);
    return rc != 0 ? rc
                   : ps->back->ops->copy_in(ps->back, (float *)to->data + (first - to->first), wide,
                                            (size_t)n * sizeof *wide, err);
}

int lf_pstore_average_begin(lf_pstore *ps, lf_err *err)
{
    int rc = 0;
    for (int i = 0; i < (int)ps->n_p && rc == 0; i++) {
        struct lf_pview to, w;
        if (lf_pstore_view(ps, i, LF_P_EMA, &to) != 1)
            continue;
        if (lf_pstore_view(ps, i, lf_pstore_weights(ps, i), &w) != 1 || to.first < w.first ||
            to.first + to.count > w.first + w.count)
            LF_BUG("%s: an average of weights that are elsewhere", to.name);
        for (int64_t at = 0; at < to.count && rc == 0; at += CHUNK)
            rc = average_part(ps, &to, &w, to.first + at,
                              to.count - at < CHUNK ? to.count - at : CHUNK, err);
    }
    return rc != 0 || !ps->back ? rc : ps->back->ops->sync(ps->back, err);
}

int lf_pstore_init(lf_pstore *ps, uint64_t seed, lf_err *err)
{
    return lf_pstore_init_rest(ps, seed, NULL, NULL, err);
}

void lf_pstore_touch(lf_pstore *ps)
{
    ps->version++;
}

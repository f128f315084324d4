/* SPDX-License-Identifier: Apache-2.0
 *
 * Boxes: which part of a logical tensor a rank of the tensor axis has.
 */
#include "engine/graph/priv.h"

int lf_pstore_set_layout(lf_pstore *ps, const struct lf_layout *l, lf_err *err)
{
    if (l->expert < 0 || l->expert_rank < 0 || l->expert_rank >= (l->expert ? l->expert : 1) ||
        l->expert_room < 0)
        return lf_fail(err, LF_EINVAL, "layout: there is no rank %d of %d on the expert axis",
                       l->expert_rank, l->expert);
    if (l->folded && (l->expert <= 1 || l->tensor <= 1))
        return lf_fail(err, LF_EINVAL, "layout: folded without ranks on both axes");
    if (l->tensor < 0 || l->tensor_rank < 0 || l->tensor_rank >= (l->tensor ? l->tensor : 1))
        return lf_fail(err, LF_EINVAL, "layout: there is no rank %d of %d on the tensor axis",
                       l->tensor_rank, l->tensor);
    if (l->context < 0 || l->context_rank < 0 || l->context_rank >= (l->context ? l->context : 1))
        return lf_fail(err, LF_EINVAL, "layout: there is no rank %d of %d on the context axis",
                       l->context_rank, l->context);
    if (l->context_gather && l->context_heads > 1 && l->context % l->context_heads)
        return lf_fail(
            err, LF_EINVAL,
            "layout: groups of %d ranks that exchange heads do not make up the %d of the "
            "context axis",
            l->context_heads, l->context);
    if (ps->n_p)
        return lf_fail(err, LF_EINVAL, "layout: the store has tensors already");
    ps->layout = *l;
    return 0;
}

const struct lf_layout *lf_pstore_layout_of(const lf_pstore *ps)
{
    return &ps->layout;
}

static bool by_experts(const lf_pstore *ps, const struct lf_param_desc *d)
{
    return ps->layout.expert > 1 && d->experts;
}

/* The dimension that a rule divides; -1: none. */
static int divided(const lf_pstore *ps, const struct lf_param_desc *d)
{
    if (ps->layout.folded && by_experts(ps, d))
        return -1;
    switch (d->shard) {
    case LF_SHARD_ROWS:
    case LF_SHARD_VOCABULARY:
        return d->ndim < 2 ? 0 : d->ndim - 2;
    case LF_SHARD_COLS:
        return d->ndim - 1;
    default:
        return -1;
    }
}

/* Does the tensor axis divide the tensor? */
static bool by_tensor(const lf_pstore *ps, const struct lf_param *p)
{
    const int k = ps->layout.tensor > 1 ? divided(ps, &p->d) : -1;
    return k >= 0 && p->box.hi[k] - p->box.lo[k] != p->d.dims[k];
}

bool lf_pstore_experts(const lf_pstore *ps, int i)
{
    return by_experts(ps, &ps->p[i].d);
}

/* The experts of this rank. */
static int find_experts(const lf_pstore *ps, const struct lf_param_desc *d, struct lf_box *box,
                        lf_err *err)
{
    const int64_t ranks = ps->layout.expert, n = d->dims[0] / (ranks > 1 ? ranks : 1);
    if (!by_experts(ps, d))
        return 0;
    if (d->dims[0] % ranks)
        return lf_fail(err, LF_EINVAL,
                       "expert = %lld: the %lld experts of %s do not divide among so many ranks; "
                       "take a divisor of their number",
                       (long long)ranks, (long long)d->dims[0], d->name);
    box->lo[0] = ps->layout.expert_rank * n;
    box->hi[0] = box->lo[0] + n;
    return 0;
}

int64_t lf_vocabulary_rows(int64_t n, int64_t ranks)
{
    const int64_t each = (n + ranks - 1) / ranks;
    for (int64_t unit = 64; unit >= 1; unit /= 2) {
        const int64_t rows = (each + unit - 1) / unit * unit;
        if (rows * (ranks - 1) < n)
            return rows;
    }
    return 0;
}

int64_t lf_logical(const struct lf_param_desc *d)
{
    int64_t n = 1;
    for (int k = 0; k < d->ndim; k++)
        n *= d->dims[k];
    return n;
}

int lf_box_find(const lf_pstore *ps, const struct lf_param_desc *d, struct lf_box *box, lf_err *err)
{
    const int64_t ranks = ps->layout.tensor, rank = ps->layout.tensor_rank;
    const int k = ranks > 1 ? divided(ps, d) : -1;
    *box = (struct lf_box){.hi = {1, 1, 1}, .replicas = 1};
    for (int i = 0; i < d->ndim; i++)
        box->hi[i] = d->dims[i];
    if (find_experts(ps, d, box, err))
        return LF_EINVAL;
    if (k < 0)
        return 0;
    const int64_t rows = lf_vocabulary_rows(d->dims[k], ranks);
    if (d->shard == LF_SHARD_VOCABULARY && rows) {
        box->lo[k] = rank * rows;
        box->hi[k] = rank < ranks - 1 ? (rank + 1) * rows : d->dims[k];
        return 0;
    }
    const int64_t n = d->dims[k], parts = d->shard_parts ? d->shard_parts : n;
    const bool shared = d->shard_shared && ranks % parts == 0;
    if (n % parts || (parts % ranks && !shared))
        return lf_fail(err, LF_EINVAL,
                       "parameter %s: its %lld elements in %lld parts do not divide among %lld "
                       "ranks (tensor)",
                       d->name, (long long)n, (long long)parts, (long long)ranks);
    box->replicas = parts < ranks ? (int)(ranks / parts) : 1;
    box->replica = (int)(rank % box->replicas);
    const int64_t each = n / (parts < ranks ? parts : ranks);
    box->lo[k] = rank / box->replicas * each;
    box->hi[k] = box->lo[k] + each;
    return 0;
}

void lf_pstore_box(const lf_pstore *ps, int i, struct lf_box *box)
{
    *box = ps->p[i].box;
}

bool lf_pstore_divided(const lf_pstore *ps, int i, const int64_t **lo, const int64_t **hi)
{
    const struct lf_param *p = &ps->p[i];
    if (p->n == lf_logical(&p->d))
        return false;
    *lo = p->box.lo;
    *hi = p->box.hi;
    return true;
}

void lf_box_runs(const struct lf_param *p, struct lf_box_runs *r)
{
    int64_t inner = 1;
    *r = (struct lf_box_runs){0};
    for (int k = p->d.ndim - 1; k >= 0; k--) {
        const int64_t n = p->box.hi[k] - p->box.lo[k];
        if (n != p->d.dims[k] && r->run) /* experts: whole blocks of such runs */
            r->base += p->box.lo[k] * inner;
        else if (n != p->d.dims[k])
            *r = (struct lf_box_runs){p->box.lo[k] * inner, n * inner, p->d.dims[k] * inner};
        inner *= p->d.dims[k];
    }
}

int64_t lf_box_most(const lf_pstore *ps, const struct lf_param *p)
{
    int64_t n = 1;
    for (int k = 0; k < p->d.ndim; k++)
        n *= p->d.shard == LF_SHARD_VOCABULARY && ps->layout.tensor > 1 && k == divided(ps, &p->d)
                 ? lf_vocabulary_rows(p->d.dims[k], ps->layout.tensor)
                 : p->box.hi[k] - p->box.lo[k];
    return n;
}

int64_t lf_box_count(const lf_pstore *ps, const struct lf_param *p)
{
    return (by_tensor(ps, p) ? ps->layout.tensor / p->box.replicas : 1) *
           (by_experts(ps, &p->d) ? ps->layout.expert : 1);
}

int64_t lf_box_number(const lf_pstore *ps, const struct lf_param *p)
{
    const int64_t parts = by_tensor(ps, p) ? ps->layout.tensor / p->box.replicas : 1,
                  part = parts > 1 ? ps->layout.tensor_rank / p->box.replicas : 0;
    return (by_experts(ps, &p->d) ? ps->layout.expert_rank * parts : 0) + part;
}

void lf_box_rows(const lf_pstore *ps, const struct lf_pgroup *g, int32_t k, int64_t *first,
                 int64_t *n)
{
    const struct lf_param *p = &ps->p[g->first + k];
    const int dim = g->ndim < 2 ? 0 : g->ndim - 2;
    *first = p->box.lo[dim];
    *n = p->box.hi[dim] - p->box.lo[dim];
    for (int32_t i = 0; i < k; i++)
        *first += ps->p[g->first + i].d.dims[dim];
}

void lf_pstore_part(lf_pstore *ps)
{
    ps->part = true;
}

bool lf_pstore_has_part(const lf_pstore *ps)
{
    return ps->part;
}

void lf_pstore_tie(lf_pstore *ps, int i, bool owner)
{
    ps->p[i].tied = true;
    ps->p[i].lent = !owner;
}

void lf_pstore_spread_all(lf_pstore *ps, int64_t elements)
{
    ps->spread = elements;
}

void lf_pstore_spread(lf_pstore *ps, int i, bool owner, int64_t at)
{
    ps->p[i].spread_at = at;
    ps->p[i].lent = !owner;
}

size_t lf_pstore_tied_bytes(const lf_pstore *ps)
{
    size_t n = 0;
    for (size_t i = 0; i < ps->n_p; i++)
        n += ps->p[i].tied && !ps->p[i].d.frozen ? (size_t)ps->p[i].n : 0;
    return n * sizeof(float);
}

bool lf_box_owner(const lf_pstore *ps, const struct lf_param *p)
{
    if (p->lent)
        return false;
    if (ps->layout.folded && by_experts(ps, &p->d)) /* whoever keeps an element */
        return true;
    return by_tensor(ps, p) ? p->box.replica == 0 : ps->layout.tensor_rank == 0;
}

void lf_pstore_written(const lf_pstore *ps, int i, enum lf_pkind kind, struct lf_pstore_share *out)
{
    const struct lf_param *p = &ps->p[i];
    *out = (struct lf_pstore_share){
        .box = p->box, .owner = lf_box_owner(ps, p), .experts = lf_pstore_experts(ps, i)};
    lf_pstore_own(ps, i, kind, out->flat);
    if (p->d.elsewhere)
        out->flat[1] = p->n;
    out->shared = out->flat[0] < out->flat[1] && !lf_pstore_sharded(ps, i, kind);
    if (!out->owner)
        out->flat[1] = out->flat[0];
}

int64_t lf_box_element(const struct lf_param *p, int64_t e)
{
    struct lf_box_runs r;
    lf_box_runs(p, &r);
    return r.run ? r.base + e / r.run * r.period + e % r.run : e;
}

int64_t lf_box_run(const struct lf_param *p, int64_t e, int64_t end)
{
    struct lf_box_runs r;
    lf_box_runs(p, &r);
    const int64_t n = r.run ? r.run - e % r.run : end - e;
    return n < end - e ? n : end - e;
}

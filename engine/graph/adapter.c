/* SPDX-License-Identifier: Apache-2.0
 *
 * Adapters: their tensors in the store, and the linear layer with one. The products of members are
 * written side by side into one tensor, with the base's product as the addend of each, so that
 * whoever reads the group finds it whole.
 */
#include "engine/graph/adapter.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/back/back.h"
#include "engine/graph/priv.h"

/* "layers.0.attn.q.weight" -> "layers.0.attn.q": what the names of an adapter begin with. */
static void stem(char *buf, size_t cap, const char *name)
{
    const size_t n = strlen(name), tail = strlen(".weight");
    const bool weight = n > tail && strcmp(name + n - tail, ".weight") == 0;
    snprintf(buf, cap, "%.*s", (int)(weight ? n - tail : n), name);
}

static const struct lf_padapter *adapter_of(const lf_pstore *ps, int32_t group)
{
    for (size_t i = 0; i < ps->n_ad; i++)
        if (ps->ad[i].group == group)
            return &ps->ad[i];
    return NULL;
}

bool lf_pstore_adapted(const lf_pstore *ps, const char *group)
{
    const int32_t g = lf_pstore_group(ps, group);
    return g >= 0 && adapter_of(ps, g);
}

/* A layout divides A by columns as it does the weight, and B and magnitudes by rows. What one
 * adapter has for all members of a group stays whole: a rank's rows of it would be several runs,
 * and it is small. */
static void divide(struct lf_param_desc *d, const struct lf_param_desc *of, bool a)
{
    if (of->shard == (a ? LF_SHARD_COLS : LF_SHARD_ROWS)) {
        d->shard = of->shard;
        d->shard_parts = of->shard_parts;
        d->shard_shared = of->shard_shared;
    }
}

/* One tensor "STEM.part" beside `of`, of [rows, cols] or as many for each expert; group:
 * "GROUP.part" or NULL. */
static int declare(lf_pstore *ps, const struct lf_param_desc *of, const char *part,
                   const char *group, int64_t rows, int64_t cols, lf_err *err)
{
    char name[192], joint[192], base[160];
    struct lf_param_desc d = {
        .name = name, .ndim = 2, .dims = {rows, cols}, .decay = true, .adapter = true};
    if (of->ndim == 3) {
        d.ndim = 3;
        d.dims[0] = of->dims[0];
        d.dims[1] = rows;
        d.dims[2] = cols;
        d.experts = of->experts;
    }
    divide(&d, of, strcmp(part, "lora_A") == 0);
    stem(base, sizeof base, of->name);
    snprintf(name, sizeof name, "%s.%s", base, part);
    if (group) {
        stem(base, sizeof base, group);
        snprintf(joint, sizeof joint, "%s.%s", base, part);
        d.group = joint;
    }
    if (strcmp(part, "lora_A") == 0) {
        d.init = LF_INIT_UNIFORM;
        d.init_std = (float)(1 / sqrt((double)cols));
    }
    const int rc = lf_pstore_add(ps, &d, err);
    return rc < 0 ? rc : 0;
}

static int declare_magnitude(lf_pstore *ps, const struct lf_param_desc *of, int64_t rows,
                             lf_err *err)
{
    char name[192], base[160];
    stem(base, sizeof base, of->name);
    snprintf(name, sizeof name, "%s.lora_magnitude", base);
    struct lf_param_desc d = {.name = name,
                              .ndim = 1,
                              .dims = {rows},
                              .init = LF_INIT_ONE,
                              .decay = true,
                              .adapter = true};
    divide(&d, of, false);
    const int rc = lf_pstore_add(ps, &d, err);
    return rc < 0 ? rc : 0;
}

int lf_pstore_adapter_first(const lf_pstore *ps, int i)
{
    const struct lf_padapter *a = adapter_of(ps, ps->p[i].group);
    const int k = i - (a ? ps->g[a->group].first : 0);
    if (a && a->reads != a->group)
        return ps->g[a->reads].first;
    return a && a->members >> k & 1 ? ps->g[a->group].first + a->first[k] : -1;
}

/* false: a set is empty, or one has a member that another has or the group has not. */
static bool take_sets(struct lf_padapter *a, const struct lf_pgroup *g, const uint32_t *sets, int n)
{
    for (int i = 0; i < n; i++) {
        if (!sets[i] || sets[i] & a->members || (uint64_t)sets[i] >> g->count)
            return false;
        a->members |= sets[i];
        for (int k = g->count - 1, first = 0; k >= 0; k--)
            if (sets[i] >> k & 1) {
                for (first = 0; !(sets[i] >> first & 1); first++)
                    ;
                a->first[k] = (uint8_t)first;
            }
    }
    return true;
}

static int declare_members(lf_pstore *ps, const struct lf_pgroup *g, const struct lf_padapter *a,
                           lf_err *err)
{
    const struct lf_adapter_desc *ad = &a->d;
    const uint32_t members = a->members;
    const int64_t rank = ad->rank;
    int rc = 0;
    for (int part = 0; part < 2; part++) /* all A first: they are one group */
        for (int32_t k = 0; k < g->count && rc == 0; k++) {
            const struct lf_param_desc d =
                ps->p[g->first + k].d; /* a copy: adding moves the array */
            if (members >> k & 1 && (part || a->first[k] == k))
                rc = part == 0 ? declare(ps, &d, "lora_A", g->name, rank, d.dims[1], err)
                               : declare(ps, &d, "lora_B", NULL, d.dims[0], rank, err);
            if (rc == 0 && part == 1 && ad->magnitude && (members >> k & 1))
                rc = declare_magnitude(ps, &d, d.dims[0], err);
        }
    return rc;
}

int lf_pstore_adapt(lf_pstore *ps, const char *group, const uint32_t *sets, int n_sets,
                    const struct lf_adapter_desc *d, lf_err *err)
{
    const int32_t gi = lf_pstore_group(ps, group);
    if (gi < 0)
        return lf_fail(err, LF_ENOENT, "adapter: there is no parameter group %s", group);
    if (adapter_of(ps, gi))
        return lf_fail(err, LF_EEXIST, "adapter: group %s has one already", group);
    const struct lf_pgroup g = ps->g[gi];
    struct lf_padapter a = {.group = gi, .reads = gi, .d = *d};
    const bool experts = g.ndim == 3 && g.count == 1 && !d->magnitude;
    if ((g.ndim != 2 && !experts) || d->rank < 1 || g.count > LF_ADAPTER_MEMBERS ||
        !take_sets(&a, &g, sets, n_sets))
        return lf_fail(err, LF_EINVAL,
                       "adapter of %s: it needs matrices [out, in], or without magnitudes those of "
                       "experts, sets of members that are there, each once, and a rank of at least "
                       "1",
                       group);
    int rc = lf_grow(&ps->ad, &ps->cap_ad, ps->n_ad, sizeof *ps->ad, err);
    if (rc != 0)
        return rc;
    if (g.count == 1)
        a.members = 0;
    if (a.members) {
        rc = declare_members(ps, &g, &a, err);
    } else {
        struct lf_param_desc of = ps->p[g.first].d; /* a copy: adding moves the array */
        of.name = g.name;
        if (g.count > 1 && of.shard == LF_SHARD_ROWS)
            of.shard = LF_SHARD_NONE;
        const int64_t rows = experts ? of.dims[1] : g.all_rows;
        rc = declare(ps, &of, "lora_A", NULL, d->rank, g.all_cols, err);
        if (rc == 0)
            rc = declare(ps, &of, "lora_B", NULL, rows, d->rank, err);
        if (rc == 0 && d->magnitude)
            rc = declare_magnitude(ps, &of, g.all_rows, err);
    }
    if (rc == 0)
        ps->ad[ps->n_ad++] = a;
    return rc;
}

int lf_pstore_adapt_like(lf_pstore *ps, const char *group, const char *like, lf_err *err)
{
    const int32_t gi = lf_pstore_group(ps, group), of = lf_pstore_group(ps, like);
    const struct lf_padapter *a = of < 0 ? NULL : adapter_of(ps, of);
    if (gi < 0 || !a || a->reads != of || adapter_of(ps, gi) || ps->g[gi].ndim != 3 ||
        ps->g[of].ndim != 3 || ps->g[gi].count != 1 || ps->g[gi].all_cols != ps->g[of].all_cols ||
        ps->p[ps->g[gi].first].d.dims[0] != ps->p[ps->g[of].first].d.dims[0])
        return lf_fail(err, LF_EINVAL, "adapter: %s cannot read what that of %s has read", group,
                       like);
    const struct lf_padapter mine = {.group = gi, .reads = of, .d = a->d};
    const struct lf_param_desc d = ps->p[ps->g[gi].first].d; /* a copy: adding moves the array */
    int rc = lf_grow(&ps->ad, &ps->cap_ad, ps->n_ad, sizeof *ps->ad, err);
    if (rc == 0)
        rc = declare(ps, &d, "lora_B", NULL, d.dims[1], mine.d.rank, err);
    if (rc == 0)
        ps->ad[ps->n_ad++] = mine;
    return rc;
}

int lf_pstore_adapt_whole(lf_pstore *ps, const char *name, lf_err *err)
{
    const int i = lf_pstore_find(ps, name);
    if (i < 0)
        return lf_fail(err, LF_ENOENT, "adapter: there is no tensor %s to train whole", name);
    if (ps->g[ps->p[i].group].count != 1)
        return lf_fail(err, LF_EINVAL, "adapter: %s is one of a group and cannot be trained apart",
                       name);
    ps->p[i].d.adapter = ps->p[i].d.whole = true;
    ps->p[i].d.frozen = ps->g[ps->p[i].group].frozen = false;
    return 0;
}

/* ---- magnitudes ---- */

/* Rows of an adapted weight, of c elements on this rank, in memory of the backend. */
struct measured {
    const char *of; /* whose adapter's magnitude they give */
    const char *w;
    int64_t rows, c;
    enum lf_dtype type;
    struct lf_exchange *with;      /* NULL: rows are whole */
    const struct lf_pgroup *whole; /* NULL; else the magnitude is of all rows of this group */
};

static int call(const lf_pstore *ps, enum lf_kernel_id id, const void *args, const char *name,
                lf_err *err)
{
    const struct lf_kernel_row *k = &lf_kernel_table[id];
    const struct lf_kernels *of = ps->back->kernels;
    return k->check(of, args) == LF_K_OK && k->call(of, ps->back->queue, args) == LF_K_OK
               ? 0
               : lf_fail(err, LF_ENOTSUP, "magnitude %s: %s has no kernel for it", name,
                         of->family);
}

static int add_up(const struct measured *r, float *x, int64_t n, const char *name, lf_err *err)
{
    return r->with->sum
               ? r->with->sum(r->with->user, x, (size_t)n, err)
               : lf_fail(err, LF_EINVAL, "magnitude %s: nothing connects the ranks that divide %s",
                         name, r->of);
}

/* The lengths of the rows. */
static int measure(const lf_pstore *ps, const struct measured *r, float *norm, const char *name,
                   lf_err *err)
{
    const bool parts = r->with != NULL;
    const struct lf_k_dora_norm squares = {.rows = r->rows,
                                           .c = r->c,
                                           .w = r->w,
                                           .norm = norm,
                                           .squares = parts,
                                           .w_type = (uint8_t)r->type};
    const struct lf_k_root root = {.n = r->rows, .x = norm, .y = norm};
    int rc = call(ps, LF_KID_dora_norm, &squares, name, err);
    if (rc == 0 && parts)
        rc = add_up(r, norm, r->rows, name, err);
    return rc != 0 || !parts ? rc : call(ps, LF_KID_root, &root, name, err);
}

/* Those of all rows of a group, of which each rank measures its own: zeros elsewhere, and the first
 * of the ranks that have the same rows gives them. */
static int measure_whole(const lf_pstore *ps, const struct measured *r, float *norm,
                         const char *name, lf_err *err)
{
    const struct lf_pgroup *g = r->whole;
    struct lf_back *back = ps->back;
    int rc = back->ops->fill(back, norm, 0, (size_t)g->all_rows * sizeof *norm, err);
    for (int32_t k = 0; k < g->count && rc == 0; k++) {
        const struct lf_param *p = &ps->p[g->first + k];
        struct measured own = {.of = r->of, .c = r->c, .type = r->type};
        int64_t first;
        lf_box_rows(ps, g, k, &first, &own.rows);
        own.w = r->w + (size_t)p->offset * lf_dtype_size(r->type);
        if (p->box.replica == 0)
            rc = measure(ps, &own, norm + first, name, err);
    }
    return rc != 0 ? rc : add_up(r, norm, g->all_rows, name, err);
}

/* What was measured, of which this rank keeps a part. */
static int keep_part(lf_pstore *ps, int i, const float *all, const int64_t range[2], lf_err *err)
{
    const struct lf_back_ops *o = ps->back->ops;
    const size_t bytes = (size_t)range[1] * sizeof *all;
    float *host = o->host_visible ? NULL : lf_malloc((size_t)range[1], sizeof *host, err);
    int rc = o->host_visible ? 0 : host ? o->copy_out(ps->back, host, all, bytes, err) : LF_ENOMEM;
    if (rc == 0)
        rc = lf_pstore_write_part(ps, i, LF_P_MASTER, LF_F32, host ? host : all, range, err);
    free(host);
    return rc;
}

static int start_rows(lf_pstore *ps, const struct measured *r, lf_err *err)
{
    char name[192], base[160];
    struct lf_pview m;
    stem(base, sizeof base, r->of);
    snprintf(name, sizeof name, "%s.lora_magnitude", base);
    const int i = lf_pstore_find(ps, name);
    if (!r->w || lf_pstore_view(ps, i, LF_P_MASTER, &m) != 1)
        return lf_fail(err, LF_EINVAL, "magnitude %s: weights and magnitude are not in memory",
                       name);
    const int64_t range[2] = {0, r->whole ? r->whole->all_rows : r->rows};
    const bool part = m.count < range[1];
    const size_t bytes = (size_t)range[1] * sizeof(float);
    float *all = part ? ps->back->ops->alloc(ps->back, bytes, err) : m.data;
    int rc = !all       ? LF_ENOMEM
             : r->whole ? measure_whole(ps, r, all, name, err)
                        : measure(ps, r, all, name, err);
    if (rc == 0 && part)
        rc = keep_part(ps, i, all, range, err);
    if (part && all)
        ps->back->ops->release(ps->back, all, bytes);
    return rc;
}

/* Has a rank some of the rows of a group, and all of what one adapter has for them? */
static bool takes_own(const lf_pstore *ps, const struct lf_padapter *a)
{
    const struct lf_pgroup *g = &ps->g[a->group];
    return ps->layout.tensor > 1 && g->place == LF_PL_ROWS && g->count > 1 && !a->members;
}

int lf_adapter_measure(lf_pstore *ps, const struct lf_padapter *a, const char *w,
                       enum lf_dtype type, struct lf_exchange *with, lf_err *err)
{
    const struct lf_pgroup *g = &ps->g[a->group];
    const bool own = takes_own(ps, a);
    struct measured r = {.of = g->name,
                         .w = w,
                         .rows = g->rows,
                         .c = g->cols,
                         .type = type,
                         .with = own || g->place == LF_PL_COLS ? with : NULL,
                         .whole = own ? g : NULL};
    if (!a->members)
        return start_rows(ps, &r, err);
    int rc = 0;
    for (int32_t k = 0; k < g->count && rc == 0; k++) {
        const struct lf_param *p = &ps->p[g->first + k];
        r.of = p->d.name;
        r.w = w ? w + (size_t)p->offset * lf_dtype_size(type) : NULL;
        r.rows = p->box.hi[0] - p->box.lo[0];
        if (a->members >> k & 1)
            rc = start_rows(ps, &r, err);
    }
    return rc;
}

/* ---- in a graph ---- */

static lf_val param_of(lf_graph *g, const char *of, const char *part)
{
    char base[160];
    stem(base, sizeof base, of);
    return lf_paramf(g, "%s.%s", base, part);
}

/* The same of the group as a whole: this rank's rows, or elements, where ranks divide those of the
 * group. */
static lf_val param_of_group(lf_graph *g, const struct lf_padapter *a, const char *part)
{
    const lf_val p = param_of(g, g->ps->g[a->group].name, part);
    const struct lf_attr attr = {.at = a->group};
    return takes_own(g->ps, a) ? lf_graph_op(g, LF_OP_TP_OWN, &p.id, 1, &attr) : p;
}

struct columns {
    lf_val of;
    int64_t first, n;
};

/* A node that writes columns. */
static void write_part(lf_graph *g, const struct columns *to, enum lf_op op, const int32_t *in,
                       int n_in, const struct lf_attr *attr)
{
    const int32_t part = lf_tensor_view(g, to->of.id, to->first, to->n),
                  i = part ? lf_node_raw(g, op, g->block) : -1;
    if (i < 0)
        return;
    g->t[part].part = true;
    g->t[part].producer = i;
    memcpy(g->n[i].in, in, (size_t)n_in * sizeof *in);
    if (attr)
        g->n[i].a = *attr;
    g->n[i].out[0] = part;
}

/* A layer that is being built. */
struct layer {
    lf_graph *g;
    const struct lf_padapter *a;
    lf_val w, bias;
    lf_val base, down; /* x W^T + bias; scale x A^T */
    lf_val rest;       /* what dropout kept from base; LF_NONE: nothing */
};

/* A member of the group: its columns of what is written, and what its A gave of x. */
struct member {
    const struct lf_param_desc *d;
    int64_t col;
    lf_val down; /* LF_NONE: it has no adapter */
    int64_t at;  /* where its A begins in those of the group */
};

/* Columns [col, ...) of y = those of base, with down_k B_k^T added where the member is adapted. */
static void write_member(const struct layer *l, lf_val y, const struct member *m)
{
    lf_graph *g = l->g;
    const struct columns to = {y, m->col, m->d->dims[0]};
    const lf_val old = lf_slice(g, l->base, m->col, m->d->dims[0]);
    if (m->down.id) {
        const int32_t in[] = {m->down.id, param_of(g, m->d->name, "lora_B").id, 0, old.id};
        write_part(g, &to, LF_OP_LINEAR, in, 4, NULL);
    } else {
        write_part(g, &to, LF_OP_COPY, &old.id, 1, NULL);
    }
}

/* Rows of a layer's weight that have magnitudes of their own, and the columns that they give. */
struct dora {
    lf_val b, m;             /* B, and the magnitudes */
    int64_t row, at;         /* where they begin, and those of their A */
    lf_val base, down, rest; /* as in struct layer */
};

/* Where ranks have some columns of the weight and of A, their squares add up. */
static lf_val lengths(const struct layer *l, const struct dora *m, const struct lf_attr *of)
{
    lf_graph *g = l->g;
    const struct lf_pgroup *group = &g->ps->g[l->a->group];
    struct lf_attr a = *of;
    a.squares = g->ps->layout.tensor > 1 && group->place == LF_PL_COLS;
    const int32_t in[] = {l->w.id, param_of(g, group->name, "lora_A").id, m->b.id};
    const lf_val norm = lf_graph_op(g, LF_OP_DORA_NORM, in, 3, &a);
    if (!a.squares)
        return norm;
    const lf_val all = lf_tp_leave(g, norm);
    return lf_graph_op(g, LF_OP_ROOT, &all.id, 1, NULL);
}

/* What gives them their trained lengths. */
static void dora_operands(const struct layer *l, const struct dora *m, int32_t in[6],
                          struct lf_attr *attr)
{
    const lf_val lora = lf_linear(l->g, m->down, m->b, LF_NONE);
    *attr = (struct lf_attr){
        .scale = l->a->d.scale, .pos_offset = (int32_t)m->row, .at = (int32_t)m->at};
    const int32_t all[] = {m->base.id, lora.id, m->rest.id,
                           l->bias.id, m->m.id, lengths(l, m, attr).id};
    memcpy(in, all, sizeof all);
}

/* The same with magnitudes. A member without an adapter gets what dropout kept from it back. */
static void write_dora(const struct layer *l, lf_val y, const struct member *m)
{
    lf_graph *g = l->g;
    struct lf_attr attr = {0};
    const int64_t rows = m->d->dims[0];
    const struct columns to = {y, m->col, rows};
    const lf_val old = lf_slice(g, l->base, m->col, rows),
                 rest = l->rest.id ? lf_slice(g, l->rest, m->col, rows) : LF_NONE;
    int32_t in[6] = {old.id, 0, rest.id};
    if (m->down.id) {
        const struct dora of = {.b = param_of(g, m->d->name, "lora_B"),
                                .m = param_of(g, m->d->name, "lora_magnitude"),
                                .row = m->col,
                                .at = m->at,
                                .base = old,
                                .down = m->down,
                                .rest = rest};
        dora_operands(l, &of, in, &attr);
    }
    if (m->down.id || rest.id)
        write_part(g, &to, LF_OP_DORA, in, 6, &attr);
    else
        write_part(g, &to, LF_OP_COPY, in, 1, NULL);
}

static lf_val all_members(const struct layer *l)
{
    lf_graph *g = l->g;
    const struct lf_pgroup *pg = &g->ps->g[l->a->group];
    lf_val y = {lf_tensor_new(g, LF_F32, LF_ROLE_ACT, g->t[l->base.id].rows, pg->all_rows,
                              "adapted.%zu", g->n_n)};
    struct member m[LF_ADAPTER_MEMBERS];
    int64_t col = 0, at = 0;
    for (int32_t k = 0; k < pg->count && !g->err.rc; k++) {
        m[k] = (struct member){.d = &g->ps->p[pg->first + k].d, .col = col, .at = at};
        if (l->a->members >> k & 1 && l->a->first[k] != k) {
            m[k].down = m[l->a->first[k]].down;
            m[k].at = m[l->a->first[k]].at;
        } else if (l->a->members >> k & 1) {
            m[k].down = lf_slice(g, l->down, at, l->a->d.rank);
            at += l->a->d.rank;
        }
        (l->a->d.magnitude ? write_dora : write_member)(l, y, &m[k]);
        col += m[k].d->dims[0];
    }
    return g->err.rc ? LF_NONE : y;
}

/* The group as a whole. */
static lf_val one_module(const struct layer *l)
{
    lf_graph *g = l->g;
    const lf_val b = param_of_group(g, l->a, "lora_B");
    if (!l->a->d.magnitude)
        return lf_add(g, l->base, lf_linear(g, l->down, b, LF_NONE));
    int32_t in[6];
    struct lf_attr attr;
    const struct dora m = {.b = b,
                           .m = param_of_group(g, l->a, "lora_magnitude"),
                           .base = l->base,
                           .down = l->down,
                           .rest = l->rest};
    dora_operands(l, &m, in, &attr);
    const int32_t i = g->err.rc ? -1 : lf_node_new(g, LF_OP_DORA, in, 6, &attr);
    return i < 0 ? LF_NONE : (lf_val){g->n[i].out[0]};
}

static const struct lf_padapter *adapter_of_weight(const lf_graph *g, lf_val w)
{
    return g->err.rc || !w.id || g->t[w.id].group < 0 ? NULL : adapter_of(g->ps, g->t[w.id].group);
}

/* scale x A^T of the experts that rows chose. Another adapter may read the same A of the same x. */
static lf_val moe_down(lf_graph *g, lf_val x, lf_val a, float scale, const struct lf_routes *r)
{
    for (size_t i = 1; i < g->n_n && !g->err.rc; i++) {
        const struct lf_node *n = &g->n[i], *p = &g->n[i - 1];
        if (n->op == LF_OP_SCALE && p->op == LF_OP_MOE_LINEAR && n->in[0] == p->out[0] &&
            p->in[MOEL_X] == x.id && p->in[MOEL_W] == a.id && p->in[MOEL_OFFSETS] == r->offsets.id)
            return (lf_val){n->out[0]};
    }
    return lf_scale(g, lf_moe_linear(g, x, a, LF_NONE, r), scale);
}

lf_val lf_moe_linear_adapted(lf_graph *g, lf_val x, lf_val w, lf_val bias,
                             const struct lf_routes *r)
{
    const lf_val base = lf_moe_linear(g, x, w, bias, r);
    const struct lf_padapter *a = adapter_of_weight(g, w);
    if (!a)
        return base;
    const lf_val down =
        moe_down(g, x, param_of(g, g->ps->g[a->reads].name, "lora_A"), a->d.scale, r);
    const lf_val b = param_of(g, g->ps->g[a->group].name, "lora_B");
    return lf_add(g, base, lf_moe_linear(g, down, b, LF_NONE, r));
}

lf_val lf_linear_adapted(lf_graph *g, lf_val x, lf_val w, lf_val bias,
                         const struct lf_adapter_drop *drop)
{
    const struct lf_padapter *a = adapter_of_weight(g, w);
    if (!a)
        return lf_linear(g, x, w, bias);
    struct layer l = {.g = g, .a = a, .w = w, .bias = bias};
    const char *group = g->ps->g[a->group].name;
    const bool apart =
        a->d.magnitude && drop && drop->p > 0; /* the magnitude changes what dropout leaves */
    char site[192];
    snprintf(site, sizeof site, "%s.lora", group);
    if (!apart)
        l.base = lf_linear(g, x, w, bias);
    lf_val read = drop ? lf_dropout(g, x, drop->p, site, drop->sample, drop->position) : x;
    if (apart) {
        l.base = lf_linear(g, read, w, bias);
        l.rest = lf_linear(g, lf_add(g, x, lf_scale(g, read, -1)), w, LF_NONE);
    }
    l.down = lf_scale(g, lf_linear(g, read, param_of(g, group, "lora_A"), LF_NONE), a->d.scale);
    return g->err.rc ? LF_NONE : a->members ? all_members(&l) : one_module(&l);
}

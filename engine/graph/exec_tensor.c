/* SPDX-License-Identifier: Apache-2.0
 *
 * What the optimizer's segment sums over the ranks of the tensor axis: gradients of what every rank
 * has and each has used on a part (lf_layout_check), and those of boxes that several ranks share,
 * such as heads of keys that are fewer than ranks. And what ranks sum that have other layers.
 *
 * Also what nodes of a layout do while a segment runs. On a GPU all of it is queued on the second
 * stream, as everything that ranks do, so that every rank has the calls of all communicators in one
 * order; the computation waits for each.
 */
#include <stdlib.h>

#include "engine/graph/exec_priv.h"
#include "engine/graph/experts.h"
#include "engine/graph/profile_priv.h"

/* ---- what nodes do ---- */

static int ended(const lf_exec *ex, int rc, lf_err *err)
{
    return rc != 0 ? rc : lf_exec_comm_end(ex, err);
}

/* What is exposed of the context axis: on a CPU how long the host waits. */
static int waited(const lf_exec *ex, const char *what, struct lf_profile_mark m, int rc,
                  lf_err *err)
{
    rc = ended(ex, rc, err);
    lf_profile_end(ex->o.profile, LF_LANE_COMM, what, m);
    return rc;
}

static int sum(void *user, float *data, size_t n, lf_err *err)
{
    const lf_exec *ex = user;
    const int rc = lf_exec_comm_begin(ex, err);
    return ended(ex, rc != 0 ? rc : ex->comm.tensor_sum(ex->comm_user, data, n, err), err);
}

static int gather(void *user, void *all, size_t bytes, lf_err *err)
{
    const lf_exec *ex = user;
    const int rc = lf_exec_comm_begin(ex, err);
    return ended(ex, rc != 0 ? rc : ex->comm.tensor_gather(ex->comm_user, all, bytes, err), err);
}

static int scatter(void *user, float *out, const float *data, size_t n, lf_err *err)
{
    const lf_exec *ex = user;
    const int rc = lf_exec_comm_begin(ex, err);
    return ended(ex, rc != 0 ? rc : ex->comm.tensor_scatter(ex->comm_user, out, data, n, err), err);
}

static int context_swap(void *user, void *out, const void *in, size_t bytes, lf_err *err)
{
    const lf_exec *ex = user;
    const struct lf_profile_mark m = lf_profile_begin(ex->o.profile);
    int rc = lf_exec_comm_begin(ex, err);
    if (rc == 0)
        rc = ex->comm.context_swap(ex->comm_user, out, in, bytes, err);
    return waited(ex, "exchange rows for heads, or gradients of keys", m, rc, err);
}

static int context_gather(void *user, void *all, size_t bytes, lf_err *err)
{
    const lf_exec *ex = user;
    const struct lf_profile_mark m = lf_profile_begin(ex->o.profile);
    int rc = lf_exec_comm_begin(ex, err);
    if (rc == 0)
        rc = ex->comm.context_gather(ex->comm_user, all, bytes, err);
    return waited(ex, "gather keys", m, rc, err);
}

static int context_begin(void *user, void *all, size_t bytes, lf_err *err)
{
    lf_exec *ex = user;
    return ex->comm.context_begin(ex->comm_user, &ex->keys, all, bytes, err);
}

static int context_finish(void *user, lf_err *err)
{
    lf_exec *ex = user;
    const struct lf_profile_mark m = lf_profile_begin(ex->o.profile);
    const int rc = ex->comm.finish(ex->comm_user, &ex->keys, err);
    lf_profile_end(ex->o.profile, LF_LANE_COMM, "wait for keys", m);
    return rc;
}

static int context_among(void *user, void *out, const void *in, size_t bytes,
                         const struct lf_rank_group *g, lf_err *err)
{
    const lf_exec *ex = user;
    const struct lf_profile_mark m = lf_profile_begin(ex->o.profile);
    int rc = lf_exec_comm_begin(ex, err);
    if (rc == 0)
        rc = ex->comm.context_among(ex->comm_user, out, in, bytes, g, err);
    return waited(ex, "exchange among some ranks of context", m, rc, err);
}

static int context_parts(void *user, void *out, const size_t *from, const void *in,
                         const size_t *to, lf_err *err)
{
    const lf_exec *ex = user;
    const struct lf_profile_mark m = lf_profile_begin(ex->o.profile);
    int rc = lf_exec_comm_begin(ex, err);
    if (rc == 0)
        rc = ex->comm.context_parts(ex->comm_user, out, from, in, to, err);
    return waited(ex, "exchange keys of windows", m, rc, err);
}

static int move_bytes(void *user, void *to, const void *from, size_t bytes, lf_err *err)
{
    const lf_exec *ex = user;
    return ex->b->ops->move(ex->b, to, from, bytes, err);
}

static int clear_bytes(void *user, void *data, size_t bytes, lf_err *err)
{
    const lf_exec *ex = user;
    return ex->b->ops->fill(ex->b, data, 0, bytes, err);
}

/* For kernels, which have no place for an error. */
static int gather_parts(void *user, void *all, size_t bytes)
{
    lf_exec *ex = user;
    return gather(ex, all, bytes, &ex->exchange.err);
}

void lf_exec_connect_tensor(lf_exec *ex)
{
    struct lf_experts *experts = ex->exchange.experts;
    ex->exchange = (struct lf_exchange){.sum = ex->comm.tensor_sum ? sum : NULL,
                                        .gather = ex->comm.tensor_gather ? gather : NULL,
                                        .scatter = ex->comm.tensor_scatter ? scatter : NULL,
                                        .move = move_bytes,
                                        .clear = clear_bytes,
                                        .user = ex,
                                        .rank = ex->p->ps->layout.tensor_rank,
                                        .context_rank = ex->p->ps->layout.context_rank,
                                        .context_ranks = ex->p->ps->layout.context,
                                        .experts = experts};
    if (ex->comm.context_swap && ex->comm.context_gather) {
        ex->exchange.context_swap = context_swap;
        ex->exchange.context_gather = context_gather;
        ex->exchange.context_among = ex->comm.context_among ? context_among : NULL;
        ex->exchange.context_parts = ex->comm.context_parts ? context_parts : NULL;
        ex->exchange.context_begin =
            ex->comm.context_begin && ex->comm.finish ? context_begin : NULL;
        ex->exchange.context_finish = context_finish;
    }
    lf_exec_connect_experts(ex);
    ex->with.gather = ex->comm.tensor_gather ? gather_parts : NULL;
    ex->with.user = ex;
}

/* ---- what the optimizer's segment sums ---- */

/* The gradients that this rank has of a box: elements [own[0], own[1]) of it, from `data` on. */
struct mine {
    const struct lf_param *q;
    float *data;
    int64_t own[2];
};

/* Elements [from, to) of the logical tensor, in `scratch`. */
struct span {
    float *scratch;
    int64_t from, to;
};

/* Those of a span that this rank has, moved between its memory and the span's. */
static int move(const lf_exec *ex, const struct mine *m, const struct span *s, bool out,
                lf_err *err)
{
    const struct lf_param *q = m->q;
    struct lf_box_runs r;
    lf_box_runs(q, &r);
    const int64_t run = r.run ? r.run : q->n; /* one head, which every rank has */
    int rc = 0;
    for (int64_t e = 0; e < q->n && rc == 0; e += run) {
        const int64_t shift = lf_box_element(q, e) - e; /* from the box to the logical tensor */
        int64_t lo = e > m->own[0] ? e : m->own[0], hi = e + run < m->own[1] ? e + run : m->own[1];
        lo = lo > s->from - shift ? lo : s->from - shift;
        hi = hi < s->to - shift ? hi : s->to - shift;
        if (lo >= hi)
            continue;
        float *mine = m->data + (lo - m->own[0]), *other = s->scratch + (lo + shift - s->from);
        rc = ex->b->ops->move(ex->b, out ? other : mine, out ? mine : other,
                              (size_t)(hi - lo) * sizeof *mine, err);
    }
    return rc;
}

/* Each rank gives its elements of the whole tensor and zeros elsewhere, so that the sum of an
 * element is that of the ranks that have it. */
static int sum_replicas(lf_exec *ex, const struct lf_param *q, lf_err *err)
{
    struct mine m = {.q = q, .data = lf_pstore_data(ex->p->ps, q, LF_P_GRAD)};
    struct span s = {.scratch = (float *)(void *)ex->arena};
    const int64_t all = lf_logical(&q->d);
    int rc = 0;
    lf_pstore_own(ex->p->ps, (int)(q - ex->p->ps->p), LF_P_GRAD, m.own);
    for (; s.from < all && rc == 0 && m.own[0] < m.own[1]; s.from = s.to) {
        s.to = all - s.from < LF_TENSOR_SCRATCH ? all : s.from + LF_TENSOR_SCRATCH;
        const size_t n = (size_t)(s.to - s.from);
        rc = ex->b->ops->fill(ex->b, s.scratch, 0, n * sizeof *s.scratch, err);
        if (rc == 0)
            rc = move(ex, &m, &s, true, err);
        if (rc == 0)
            rc = sum(ex, s.scratch, n, err);
        if (rc == 0)
            rc = move(ex, &m, &s, false, err);
    }
    return rc;
}

/* The tied tensor of which this rank makes gradients: a model has one at most. */
static const struct lf_param *tied_of(const lf_pstore *ps)
{
    for (size_t i = 0; i < ps->n_p; i++)
        if (ps->p[i].tied && ps->g[ps->p[i].group].need[LF_P_GRAD])
            return &ps->p[i];
    return NULL;
}

int lf_exec_begin_tied(lf_exec *ex, bool made, lf_err *err)
{
    const struct lf_param *q = tied_of(ex->p->ps);
    return q && q->lent == made && ex->comm.tied_begin
               ? ex->comm.tied_begin(ex->comm_user, lf_pstore_data(ex->p->ps, q, LF_P_GRAD),
                                     (size_t)q->n, err)
               : 0;
}

/* The owner's sum is there for the norm. What goes back goes beside the norm and the update, unless
 * other sums take it up. */
static int sum_tied(lf_exec *ex, lf_err *err)
{
    const lf_plan *p = ex->p;
    const struct lf_param *q = tied_of(p->ps);
    const bool more = p->n_buckets || p->ranks.groups > 1 || p->ps->layout.tensor > 1 || !p->n_sums;
    if (!q)
        return 0;
    struct lf_profile_mark m = lf_profile_begin(ex->o.profile);
    int rc =
        ex->comm.tied_sum(ex->comm_user, lf_pstore_data(p->ps, q, LF_P_GRAD), (size_t)q->n, err);
    ex->tied = rc == 0 && ex->comm.tied_end ? q->lent ? LF_TIED_LENT : LF_TIED_OWN : LF_TIED_NONE;
    if (more)
        rc = rc != 0 ? rc : lf_exec_end_tied(ex, ex->tied, err);
    lf_profile_end(ex->o.profile, LF_LANE_COMM, "sum tied gradients", m);
    return rc;
}

/* A spread tensor's gradient between memory and `all`. */
static int move_spread(lf_exec *ex, double *all, float *part, bool out, lf_err *err)
{
    const lf_pstore *ps = ex->p->ps;
    const struct lf_back_ops *o = ex->b->ops;
    int rc = 0;
    for (size_t i = 0; i < ps->n_p && rc == 0; i++) {
        const struct lf_param *q = &ps->p[i];
        if (q->spread_at < 0 || !ps->g[q->group].need[LF_P_GRAD])
            continue;
        float *grad = lf_pstore_data(ps, q, LF_P_GRAD);
        const size_t bytes = (size_t)q->n * sizeof *part;
        for (int64_t k = 0; k < q->n && !out; k++)
            part[k] = (float)all[q->spread_at + k];
        rc = out ? o->copy_out(ex->b, part, grad, bytes, err)
                 : o->copy_in(ex->b, grad, part, bytes, err);
        for (int64_t k = 0; k < q->n && out && rc == 0; k++)
            all[q->spread_at + k] = (double)part[k];
    }
    return rc;
}

/* Tensors of several stages are small: each rank gives the gradients that it has, and zeros for
 * those that it lacks, and all get the sum. */
static int sum_spread(lf_exec *ex, lf_err *err)
{
    const size_t n = (size_t)ex->p->ps->spread;
    if (!n)
        return 0;
    struct lf_profile_mark m = lf_profile_begin(ex->o.profile);
    double *all = lf_calloc(n, sizeof *all, err);
    float *part = all ? lf_malloc(n, sizeof *part, err) : NULL;
    int rc = part ? move_spread(ex, all, part, true, err) : LF_ENOMEM;
    if (rc == 0)
        rc = ex->comm.pipeline_add(ex->comm_user, all, n, err);
    if (rc == 0)
        rc = move_spread(ex, all, part, false, err);
    free(all);
    free(part);
    lf_profile_end(ex->o.profile, LF_LANE_COMM, "sum tables of stages", m);
    return rc;
}

int lf_exec_end_tied(lf_exec *ex, enum lf_exec_tied of, lf_err *err)
{
    if (ex->tied == LF_TIED_NONE || ex->tied != of)
        return 0;
    ex->tied = LF_TIED_NONE;
    return ex->comm.tied_end(ex->comm_user, err);
}

/* Sums of a rank's layers become one number, and that of all layers takes its place. */
static int add_layers(const lf_exec *ex, double *sums, lf_err *err)
{
    double all = 0;
    for (size_t i = 0; i < ex->p->n_sums; i++) {
        all += ex->p->n_opt_tensors ? sums[i] : 0; /* nobody else has written them */
        sums[i] = 0;
    }
    sums[0] = all;
    return ex->comm.pipeline_add(ex->comm_user, sums, 1, err);
}

int lf_exec_add_layers(const lf_exec *ex, double *sums, lf_err *err)
{
    const struct lf_back_ops *o = ex->b->ops;
    const size_t bytes = ex->p->n_sums * sizeof *sums;
    if (o->host_visible)
        return add_layers(ex, sums, err);
    double *here = lf_malloc(bytes, 1, err);
    int rc = here ? o->copy_out(ex->b, here, sums, bytes, err) : LF_ENOMEM;
    if (rc == 0)
        rc = add_layers(ex, here, err);
    if (rc == 0)
        rc = o->copy_in(ex->b, sums, here, bytes, err);
    free(here);
    return rc;
}

/* With zero = 2 and 3 a rank has a part of the gradients, the same one as the ranks that it sums
 * with. */
static int sum_group(lf_exec *ex, const struct lf_pgroup *g, lf_err *err)
{
    const size_t n = lf_pgroup_grads(g);
    return g->sum[LF_AXIS_TENSOR] && n ? sum(ex, lf_pgroup_data(ex->p->ps, g, LF_P_GRAD), n, err)
                                       : 0;
}

int lf_exec_sum_tensor(lf_exec *ex, lf_err *err)
{
    const lf_pstore *ps = ex->p->ps;
    int rc = 0;
    if (ex->p->ranks.pipeline > 1) {
        if (!ex->comm.tied_sum || !ex->comm.pipeline_add)
            return lf_fail(err, LF_EINVAL,
                           "executor: nothing connects the %d ranks that have other layers",
                           ex->p->ranks.pipeline);
        rc = sum_tied(ex, err);
        if (rc == 0)
            rc = sum_spread(ex, err);
    }
    if (ps->layout.tensor <= 1 || rc != 0)
        return rc;
    if (!ex->comm.tensor_sum || !ex->comm.tensor_add)
        return lf_fail(err, LF_EINVAL,
                       "executor: nothing connects the %d ranks that divide matrices",
                       ps->layout.tensor);
    for (size_t i = 0; i < ps->n_g && rc == 0; i++) {
        const struct lf_pgroup *g = &ps->g[i];
        if (!g->need[LF_P_GRAD])
            continue;
        rc = sum_group(ex, g, err);
        for (int32_t k = 0; k < g->count && rc == 0; k++)
            if (ps->p[g->first + k].box.replicas > 1)
                rc = sum_replicas(ex, &ps->p[g->first + k], err);
    }
    return rc;
}

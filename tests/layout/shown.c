/* SPDX-License-Identifier: Apache-2.0
 *
 * What ranks show of a run: elements of tensors, at their places in the whole tensor, numbers, and
 * what was moved. Ranks that have the same are compared bit for bit.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/bf16.h"
#include "engine/graph/priv.h"
#include "tests/layout/rig_priv.h"
#include "tests/tap/tap.h"

static void note(char *text, size_t cap, const char *what, const char *name)
{
    if (!text[0])
        snprintf(text, cap, "%s of %s on rank %d", what, name, rig_rank);
}

static const char *const kind_names[] = {"first weights", "first m", "first v", "first gradient",
                                         "last weights",  "m",       "v",       "copy"};

/* ---- tensors ---- */

/* The elements of the box of tensor i that this rank answers for. */
static void answers_for(const lf_trainer *t, int i, const struct lf_pview *v, int64_t own[2])
{
    const struct lf_plan *p = t->m.plan;
    const struct lf_param *q = &t->m.ps->p[i];
    own[0] = v->first;
    own[1] = v->first + v->count;
    if (v->kind == LF_P_GRAD && !lf_pstore_sharded(t->m.ps, i, v->kind) && p->sharded &&
        t->m.ps->g[q->group].unit >= 0) {
        lf_param_own(t->m.ps, q, &own[0], &own[1]); /* the sum is its owner's alone */
        own[1] += own[0];
    }
}

static float value(const struct lf_pview *v, int64_t e)
{
    return v->dtype == LF_F32 ? ((const float *)v->data)[e]
                              : lf_f32_of_bf16(((const uint16_t *)v->data)[e]);
}

static struct rig_tensor *find(const struct rig_seen *s, const char *name)
{
    for (int i = 0; i < s->n; i++)
        if (strcmp(s->t[i].name, name) == 0)
            return &s->t[i];
    return NULL;
}

/* c: from which element of the view, to which of the tensor, how many. */
static void show_run(struct rig *g, struct rig_tensor *x, enum rig_kind kind,
                     const struct lf_pview *v, const int64_t c[3])
{
    uint8_t *times = x->times[kind] + c[1];
    float *to = x->v[kind] + c[1];
    for (int64_t e = 0; e < c[2]; e++) {
        const float y = value(v, c[0] + e);
        if (times[e]++ == 0)
            to[e] = y;
        else if (memcmp(&to[e], &y, sizeof y) != 0)
            note(g->s->apart, sizeof g->s->apart, kind_names[kind], x->name);
    }
}

static void show(struct rig *g, const lf_trainer *t, int i, enum rig_kind kind,
                 const struct lf_pview *v)
{
    const struct lf_param *q = &t->m.ps->p[i];
    struct rig_tensor *x = find(g->s, q->d.name);
    const bool whole = q->n == x->n;
    int64_t own[2];
    answers_for(t, i, v, own);
    if (!x->v[kind]) {
        x->v[kind] = calloc((size_t)x->n, sizeof(float));
        x->times[kind] = calloc((size_t)x->n, 1);
        if (!x->v[kind] || !x->times[kind])
            tap_bail("out of memory");
    }
    for (int64_t e = own[0], n; e < own[1]; e += n) {
        const int64_t at = whole ? e : lf_box_element(q, e);
        n = whole ? own[1] - e : lf_box_run(q, e, own[1]);
        show_run(g, x, kind, v, (int64_t[]){e - v->first, at, n});
    }
}

void rig_show(struct rig *g, const lf_trainer *t, enum rig_kind kind)
{
    static const enum lf_pkind kinds[RIG_KINDS] = {
        [RIG_BEFORE_M] = LF_P_M, [RIG_BEFORE_V] = LF_P_V, [RIG_GRAD] = LF_P_GRAD,
        [RIG_M] = LF_P_M,        [RIG_V] = LF_P_V,        [RIG_COPY] = LF_P_COPY};
    for (int i = 0; i < lf_pstore_count(t->m.ps); i++) {
        struct lf_pview v;
        const bool weights = kind == RIG_BEFORE || kind == RIG_AFTER;
        const enum lf_pkind of = weights ? lf_pstore_weights(t->m.ps, i) : kinds[kind];
        if (lf_pstore_view(t->m.ps, i, of, &v) == 1)
            show(g, t, i, kind, &v);
    }
}

/* How many ranks of the pipeline axis have a tensor: of a table that all layers of a stack share
 * those with such layers, of a tied embedding both ends. */
static int stages_with(const lf_trainer *t, const struct lf_param *q)
{
    const struct lf_train_cut *k = &t->m.cut;
    const bool source = strncmp(q->d.name, "encoder.", 8) == 0;
    unsigned ranks = 0;
    for (int s = 0; s < k->spec.ranks * k->spec.chunks && q->spread_at >= 0; s++) {
        const struct lf_decoder_chunk part = lf_train_part(k, s);
        int rank, chunk;
        lf_pipe_place(&rank, &chunk, &k->spec, s);
        if (lf_decoder_has_layers(&t->mc, &part, source))
            ranks |= 1u << rank;
    }
    return ranks ? __builtin_popcount(ranks) : q->tied ? 2 : 1;
}

void rig_show_names(struct rig *g, const lf_trainer *t)
{
    const lf_pstore *ps = t->m.ps;
    const int most = g->s->n + lf_pstore_count(ps);
    /* one more, since the first ranks may have no tensor, and realloc to no bytes frees */
    struct rig_tensor *all = realloc(g->s->t, ((size_t)most + 1) * sizeof *all);
    if (!all)
        tap_bail("out of memory");
    g->s->t = all;
    for (int i = 0; i < lf_pstore_count(ps); i++) {
        const struct lf_param *q = &ps->p[i];
        if (find(g->s, q->d.name))
            continue;
        struct rig_tensor *x = &all[g->s->n++];
        *x = (struct rig_tensor){.n = lf_logical(&q->d)};
        snprintf(x->name, sizeof x->name, "%s", q->d.name);
        x->experts = lf_pstore_experts(ps, i);
        x->folded = x->experts && ps->layout.folded;
        x->copies = (x->folded ? 1
                     : lf_box_count(ps, q) > (x->experts ? ps->layout.expert : 1)
                         ? q->box.replicas
                         : rig_tensor_ranks(&g->k->layout)) *
                    stages_with(t, q);
    }
}

static int by_name(const void *a, const void *b)
{
    const struct rig_tensor *x = a, *y = b;
    return strcmp(x->name, y->name);
}

void rig_sort(struct rig_seen *s)
{
    if (s->n)
        qsort(s->t, (size_t)s->n, sizeof *s->t, by_name);
}

void rig_find_missing(struct rig_seen *s, const struct rig_layout *l)
{
    const int groups = l->zero_inner ? rig_sharers(l) / l->zero_inner : 1;
    for (int i = 0; i < s->n; i++)
        for (int k = 0; k < RIG_KINDS; k++) {
            const uint8_t *times = s->t[i].times[k];
            const int copies = s->t[i].copies, ranks = rig_sharers(l) *
                                                       (s->t[i].folded ? rig_tensor_ranks(l) : 1) /
                                                       (s->t[i].experts ? rig_expert_ranks(l) : 1);
            bool whole = true, parts = true;
            for (int64_t e = 0; times && e < s->t[i].n; e++) {
                whole = whole && times[e] == copies * ranks;
                parts = parts && l->zero > 0 && times[e] == copies * groups;
            }
            if (!whole && !parts && !s->missing[0])
                snprintf(s->missing, sizeof s->missing, "%s of %s", kind_names[k], s->t[i].name);
        }
}

/* ---- numbers ---- */

void rig_show_number(struct rig *g, double *all, double mine, const char *what, int step)
{
    if (isnan(all[step]))
        all[step] = mine;
    else if (memcmp(&all[step], &mine, sizeof mine) != 0)
        note(g->s->apart, sizeof g->s->apart, what, step == 0 ? "step 1" : "a later step");
}

void rig_show_told(struct rig *g, const struct lf_train_step *st)
{
    const double told[RIG_TOLD] = {st->accuracy,      st->entropy,        st->z,
                                   st->router_aux,    st->router_entropy, st->router_load,
                                   st->router_dropped};
    for (int i = 0; i < RIG_TOLD; i++)
        rig_show_number(g, &g->s->told[i], told[i], "a metric", 0);
    g->s->trained = (double)st->trained;
}

/* ---- what is moved ---- */

static void count_comm(struct rig_moved *m, const lf_comm *c, int sign)
{
    const uint64_t k = sign < 0 ? UINT64_MAX : 1; /* modulo 2^64 */
    if (!c)
        return;
    m->calls += k * (c->counts.planned.calls + c->counts.message.calls);
    m->bytes += k * (c->counts.planned.bytes_sent + c->counts.message.bytes_sent);
}

void rig_count_moved(struct rig_seen *s, const lf_trainer *t, int sign)
{
    const uint64_t k = sign < 0 ? UINT64_MAX : 1;
    count_comm(&s->moved[RIG_DATA], t->dev.comm, sign);
    count_comm(&s->moved[RIG_DATA], t->dev.inner, sign);
    count_comm(&s->moved[RIG_DATA], t->dev.outer, sign);
    count_comm(&s->moved[RIG_TENSOR], t->dev.tensor, sign);
    count_comm(&s->moved[RIG_PIPELINE], t->dev.pipeline, sign);
    count_comm(&s->moved[RIG_CONTEXT], t->dev.context, sign);
    count_comm(&s->moved[RIG_EXPERT], t->dev.experts, sign);
    count_comm(&s->moved[RIG_EXPERT], t->dev.same, sign);
    if (!t->dev.experts)
        return;
    const struct lf_comm_counts *c = &t->dev.experts->counts;
    s->rows.calls += k * (c->collective.calls - c->planned.calls);
    s->rows.bytes += k * (c->collective.bytes_sent - c->planned.bytes_sent);
}

static void add_planned(struct rig_moved *m, const struct lf_plan_moved *more, int64_t times)
{
    m->planned_calls += (uint64_t)(times * more->messages);
    m->planned_bytes += (double)times * more->bytes;
}

void rig_count_planned(struct rig_seen *s, const lf_trainer *t)
{
    struct lf_plan_comm pc;
    const int64_t samples = t->c->ramp->samples, rounds = lf_train_rounds(t, samples),
                  passes =
                      lf_deal_count(samples, t->c->micro_batch, t->who.data, t->who.data_ranks);
    lf_plan_comm(t->m.plan, &pc);
    add_planned(&s->moved[RIG_DATA], &(struct lf_plan_moved){pc.messages, pc.sent_bytes}, 1);
    add_planned(&s->moved[RIG_DATA], &(struct lf_plan_moved){pc.micro_messages, pc.micro_bytes},
                rounds);
    add_planned(&s->moved[RIG_TENSOR], &pc.tensor, 1);
    add_planned(&s->moved[RIG_TENSOR], &pc.micro_tensor, passes);
    add_planned(&s->moved[RIG_CONTEXT], &pc.micro_context, passes);
    add_planned(&s->moved[RIG_EXPERT], &pc.same, 1);
    add_planned(&s->moved[RIG_EXPERT], &pc.micro_same, rounds);
    add_planned(&s->moved[RIG_EXPERT], &pc.micro_counts, rounds);
    add_planned(&s->rows, &pc.micro_rows, rounds);
    if (!lf_train_is_cut(&t->m.cut))
        return;
    /* Every pipeline stage has a neighbour on either side, but for the first and the last. In a V
     * these two are on the first rank, and on the last one two are neighbours of each other. */
    const int ends = (t->who.pipeline == 0) + (t->who.pipeline == t->who.pipeline_ranks - 1),
              sides = 2 * t->m.cut.n_chunks - (lf_pipe_in_v(&t->m.cut.spec) ? 2 * ends : ends);
    add_planned(&s->moved[RIG_PIPELINE],
                &(struct lf_plan_moved){2 * sides, (double)sides * (double)t->m.cut.message},
                passes);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights as a whole where ranks divide them (zero = 3), for chains that one rank may run alone,
 * such as those of generation. Which steps a rank makes there depends on its own tokens, so no step
 * may need the others. All units that such chains read lie one after the other in the arena, in
 * bytes that training has at other times. lf_exec_hold gathers them.
 */
#include <stdlib.h>

#include "engine/graph/priv.h"

static void mark(lf_plan *p, const struct lf_chain *c)
{
    const lf_graph *g = c->g;
    for (size_t i = 0; i < g->n_n; i++)
        for (int k = 0; k < LF_MAX_IN; k++) {
            const struct lf_tensor *t = &g->t[g->t[g->n[i].in[k]].root];
            if (!g->n[i].in[k] || t->role != LF_ROLE_PARAM || t->pkind >= LF_P_KINDS)
                continue;
            const struct lf_pgroup *of = &p->ps->g[t->group];
            if (of->window[t->pkind])
                p->unit[of->unit].held[t->pkind] = true;
        }
}

/* lf_exec_adapter_start looks at one unit at a time. */
static void lay_start(lf_plan *p)
{
    for (size_t i = 0; i < p->ps->n_ad; i++) {
        const struct lf_pgroup *g = &p->ps->g[p->ps->ad[i].group];
        const int kind = g->need[LF_P_COPY] ? LF_P_COPY : LF_P_MASTER;
        if (!p->ps->ad[i].d.magnitude || !g->window[kind])
            continue;
        const size_t bytes = p->unit[g->unit].bytes[kind];
        p->start_bytes = bytes > p->start_bytes ? bytes : p->start_bytes;
    }
}

void lf_plan_whole(lf_plan *p)
{
    for (size_t i = 0; i < p->n_c; i++)
        if (p->c[i].o.whole) {
            mark(p, &p->c[i]);
            p->whole_eras |= p->c[i].o.eras;
        }
    for (size_t i = 0; i < p->n_units; i++)
        for (int k = 0; k < LF_P_KINDS; k++)
            if (p->unit[i].held[k]) {
                p->unit[i].whole[k] = p->whole_bytes;
                p->whole_bytes += p->unit[i].bytes[k];
            }
    lay_start(p);
}

/* Bytes of a group in front of those of rank r. */
static size_t cut_of(const lf_plan *p, const struct lf_pgroup *g, int r, size_t size)
{
    const size_t cut = p->unit[g->unit].cut[r], n = (size_t)(g->rows * g->cols);
    return (cut < g->pos ? 0 : cut - g->pos > n ? n : cut - g->pos) * size;
}

int lf_plan_pieces(const lf_plan *p, enum lf_pkind kind, bool host,
                   int (*fn)(void *user, const struct lf_plan_piece *q, lf_err *err), void *user,
                   lf_err *err)
{
    const lf_pstore *ps = p->ps;
    const size_t size = lf_dtype_size(lf_pstore_type(ps, kind));
    size_t *cut = lf_calloc((size_t)p->ranks.ranks + 2, sizeof *cut, err);
    int rc = cut ? 0 : LF_ENOMEM;
    for (size_t i = 0; i < ps->n_g && rc == 0; i++) {
        const struct lf_pgroup *g = &ps->g[i];
        if (!g->need[kind] || g->host[kind] != host)
            continue;
        struct lf_plan_piece q = {.data = lf_pgroup_data(ps, g, kind),
                                  .bytes = (size_t)(g->rows * g->cols) * size};
        q.gap = lf_align_up(q.bytes, p->o.target->align) - q.bytes;
        for (int r = 0; g->part[kind] && r <= p->ranks.ranks; r++)
            cut[r] = cut_of(p, g, r, size);
        q.cut = g->part[kind] ? cut : NULL;
        rc = fn(user, &q, err);
    }
    free(cut);
    return rc;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Chunks of a cut model in one plan, and backward passes in two segments: what is refused, and what
 * several chunks have together.
 */
#include "engine/graph/priv.h"

int lf_plan_check_chunk(const lf_graph *g, const struct lf_chain_opts *o, lf_err *err)
{
    if (o->chunk < 0 || (o->split && !o->train))
        return lf_fail(err, LF_EINVAL,
                       "graph %s: chunks count from 1, and only a backward pass can be split",
                       g->name);
    if (o->split && o->recompute == LF_RECOMPUTE_FULL)
        return lf_fail(err, LF_ENOTSUP,
                       "graph %s: recompute = full with a split backward pass, both parts of which "
                       "would need what is computed again; take selective or none",
                       g->name);
    return 0;
}

/* Windows are about one chain with one backward pass. */
static int check_chunks(const lf_plan *p, lf_err *err)
{
    for (size_t i = 0; i < p->n_c && p->ranks.ranks > 1 && p->ranks.zero >= 2; i++)
        if (p->c[i].o.split || p->c[i].o.chunk)
            return lf_fail(err, LF_ENOTSUP,
                           "plan: zero = %d with pipeline chunks or a split backward pass (graph "
                           "%s); take zero = 1",
                           p->ranks.zero, p->c[i].g->name);
    return 0;
}

/* The highest chunk that writes the gradient of a group, which overwrites it; 0: none does. */
static int first_chunk(const lf_plan *p, int32_t group)
{
    int chunk = 0;
    for (size_t i = 0; i < p->n_c; i++) {
        const struct lf_chain *c = &p->c[i];
        for (size_t t = 1; t < c->g->n_t && c->o.chunk > chunk && c->o.train; t++)
            if (c->g->t[t].role == LF_ROLE_GRAD && c->g->t[t].group == group)
                chunk = c->o.chunk;
    }
    return chunk;
}

/* Chunks add to gradients that a later chunk writes too. */
static int share_gradients(lf_plan *p, lf_err *err)
{
    for (size_t i = 0; i < p->n_c; i++) {
        struct lf_chain *c = &p->c[i];
        for (size_t n = 0; n < c->g->n_n && c->o.chunk && c->o.train; n++) {
            int own = -1;
            for (int k = 0; k < LF_MAX_OUT && c->first_writer[n]; k++) {
                const struct lf_tensor *t = &c->g->t[c->g->n[n].out[k]];
                if (!c->g->n[n].out[k] || t->role != LF_ROLE_GRAD)
                    continue;
                const int mine = first_chunk(p, t->group) == c->o.chunk;
                if (own >= 0 && own != mine)
                    return lf_fail(err, LF_ENOTSUP,
                                   "graph %s: %s shares one of its two parameters with another "
                                   "chunk, the other not",
                                   c->g->name, lf_op_table[c->g->n[n].op].name);
                own = mine;
            }
            c->first_writer[n] = c->first_writer[n] && own != 0;
        }
    }
    return 0;
}

int lf_plan_chunks(lf_plan *p, lf_err *err)
{
    const int rc = check_chunks(p, err);
    return rc != 0 ? rc : share_gradients(p, err);
}

void lf_plan_live(const lf_plan *p, const struct lf_chain *c, size_t *saved, size_t *live)
{
    size_t rest = c->rest_live;
    *saved = c->saved_live;
    *live = c->live_max - c->rest_live;
    for (size_t i = 0; i < p->n_c; i++) {
        const struct lf_chain *o = &p->c[i];
        if (o == c || !lf_chains_share(o, c))
            continue;
        *saved += o->saved_live;
        *live += o->live_max - o->rest_live;
        rest = o->rest_live > rest ? o->rest_live : rest;
    }
    *live += rest;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights as a whole where ranks divide them (plan_whole.c), and the magnitudes of adapters, which
 * are measured on them.
 */
#include "engine/graph/adapter.h"
#include "engine/graph/exec_priv.h"

void *lf_exec_whole_addr(const lf_exec *ex, const struct lf_chain *c, int32_t t)
{
    const struct lf_tensor *r = &c->g->t[c->g->t[t].root];
    if (!t || r->role != LF_ROLE_PARAM || r->pkind >= LF_P_KINDS)
        return NULL;
    const struct lf_pgroup *g = &ex->p->ps->g[r->group];
    return g->window[r->pkind]
               ? ex->arena + ex->p->unit[g->unit].whole[r->pkind] + g->at[r->pkind] +
                     (size_t)c->g->t[t].root_col * lf_dtype_size((enum lf_dtype)c->g->t[t].dtype)
               : NULL;
}

int lf_exec_check_held(lf_exec *ex, const struct lf_chain *c, lf_err *err)
{
    if (!c->o.whole)
        ex->held = 0;
    return !c->o.whole || !ex->p->whole_bytes || ex->held == ex->p->ps->version
               ? 0
               : lf_fail(err, LF_EINVAL, "graph %s: its weights are not there as a whole",
                         c->g->name);
}

int lf_exec_hold(lf_exec *ex, lf_err *err)
{
    const lf_plan *p = ex->p;
    if (!p->whole_bytes)
        return 0;
    int rc = ex->o.no_refresh ? 0 : lf_exec_refresh(ex, err);
    ex->held = 0;
    for (size_t i = 0; i < p->n_units; i++)
        for (int k = 0; k < LF_P_KINDS && rc == 0; k++)
            if (p->unit[i].held[k])
                rc = lf_exec_gather_unit(ex, i, k, p->unit[i].whole[k], err);
    if (rc == 0)
        ex->held = p->ps->version;
    return rc;
}

/* Of the adapters' groups: what is gathered at the start of the arena. */
struct gathered {
    int32_t unit;
    enum lf_pkind kind;
};

static int start(lf_exec *ex, const struct lf_padapter *a, struct gathered *have, lf_err *err)
{
    lf_pstore *ps = ex->p->ps;
    const struct lf_pgroup *g = &ps->g[a->group];
    const enum lf_pkind kind = g->need[LF_P_COPY] ? LF_P_COPY : LF_P_MASTER;
    const char *w = lf_pgroup_data(ps, g, kind);
    int rc = 0;
    if (g->part[kind]) {
        w = ex->arena + g->at[kind];
        if (have->unit != g->unit || have->kind != kind)
            rc = lf_exec_gather_unit(ex, (size_t)g->unit, kind, 0, err);
        *have = (struct gathered){g->unit, kind};
    }
    return rc != 0 ? rc
                   : lf_adapter_measure(ps, a, w, lf_pstore_type(ps, kind), &ex->exchange, err);
}

int lf_exec_adapter_start(lf_exec *ex, lf_err *err)
{
    lf_pstore *ps = ex->p->ps;
    struct gathered have = {.unit = -1};
    bool any = false;
    int rc = 0;
    ex->held = 0;
    for (size_t i = 0; i < ps->n_ad && rc == 0; i++)
        if (ps->ad[i].d.magnitude) {
            rc = start(ex, &ps->ad[i], &have, err);
            any = true;
        }
    if (rc != 0 || !any)
        return rc;
    lf_pstore_touch(ps);
    return ps->back->ops->sync(ps->back, err);
}

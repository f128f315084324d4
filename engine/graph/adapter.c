/* SPDX-License-Identifier: Apache-2.0
 *
 * Adapters: their tensors in the store, and the linear layer with one. The products of members are written side by side
 * into one tensor, with the base's product as the addend of each, so that whoever reads the group finds it whole.
 */
#include "engine/graph/adapter.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

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

/* One tensor "STEM.part"; group: "GROUP.part" or NULL. */
static int declare(lf_pstore *ps, const char *of, const char *part, const char *group, int64_t rows, int64_t cols,
                   lf_err *err)
{
    char name[192], joint[192], base[160];
    struct lf_param_desc d = {.name = name, .ndim = 2, .dims = {rows, cols}, .decay = true, .adapter = true};
    stem(base, sizeof base, of);
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

static int declare_members(lf_pstore *ps, const struct lf_pgroup *g, uint32_t members, int64_t rank, lf_err *err)
{
    int rc = 0;
    for (int part = 0; part < 2; part++) /* all A first: they are one group */
        for (int32_t k = 0; k < g->count && !rc; k++) {
            const struct lf_param_desc d = ps->p[g->first + k].d; /* a copy: adding moves the array */
            if (members >> k & 1)
                rc = part == 0 ? declare(ps, d.name, "lora_A", g->name, rank, d.dims[1], err)
                               : declare(ps, d.name, "lora_B", NULL, d.dims[0], rank, err);
        }
    return rc;
}

int lf_pstore_adapt(lf_pstore *ps, const char *group, uint32_t members, const struct lf_adapter_desc *d, lf_err *err)
{
    const int32_t gi = lf_pstore_group(ps, group);
    if (gi < 0)
        return lf_fail(err, LF_ENOENT, "adapter: there is no parameter group %s", group);
    if (adapter_of(ps, gi))
        return lf_fail(err, LF_EEXIST, "adapter: group %s has one already", group);
    const struct lf_pgroup g = ps->g[gi];
    if (g.ndim != 2 || d->rank < 1 || (g.count < 32 && members >> g.count))
        return lf_fail(err, LF_EINVAL, "adapter of %s: it needs matrices [out, in], members that are there and a rank of at least 1",
                       group);
    int rc = lf_grow(&ps->ad, &ps->cap_ad, ps->n_ad, sizeof *ps->ad, err);
    if (rc)
        return rc;
    if (g.count == 1)
        members = 0;
    if (members) {
        rc = declare_members(ps, &g, members, d->rank, err);
    } else {
        rc = declare(ps, g.name, "lora_A", NULL, d->rank, g.cols, err);
        if (!rc)
            rc = declare(ps, g.name, "lora_B", NULL, g.rows, d->rank, err);
    }
    if (!rc)
        ps->ad[ps->n_ad++] = (struct lf_padapter){.group = gi, .members = members, .d = *d};
    return rc;
}

/* ---- in a graph ---- */

static lf_val param_of(lf_graph *g, const char *of, const char *part)
{
    char base[160];
    stem(base, sizeof base, of);
    return lf_paramf(g, "%s.%s", base, part);
}

/* A node that writes columns [col, col + its own) of y. */
static void write_part(lf_graph *g, lf_val y, int64_t col, int64_t cols, enum lf_op op, const int32_t in[4])
{
    const int32_t part = lf_tensor_view(g, y.id, col, cols), i = part ? lf_node_raw(g, op, g->block) : -1;
    if (i < 0)
        return;
    g->t[part].part = true;
    g->t[part].producer = i;
    memcpy(g->n[i].in, in, 4 * sizeof *in);
    g->n[i].out[0] = part;
}

/* y = base, with down_k B_k^T added to the columns of each adapted member. */
static lf_val add_members(lf_graph *g, const struct lf_padapter *a, lf_val base, lf_val down)
{
    const struct lf_pgroup *pg = &g->ps->g[a->group];
    lf_val y = {lf_tensor_new(g, LF_F32, LF_ROLE_ACT, g->t[base.id].rows, pg->rows, "adapted.%zu", g->n_n)};
    int64_t col = 0, at = 0;
    for (int32_t k = 0; k < pg->count && !g->err.rc; k++) {
        const struct lf_param_desc *d = &g->ps->p[pg->first + k].d;
        const lf_val old = lf_slice(g, base, col, d->dims[0]);
        if (a->members >> k & 1) {
            const int32_t in[4] = {lf_slice(g, down, at, a->d.rank).id, param_of(g, d->name, "lora_B").id, 0, old.id};
            write_part(g, y, col, d->dims[0], LF_OP_LINEAR, in);
            at += a->d.rank;
        } else {
            const int32_t in[4] = {old.id};
            write_part(g, y, col, d->dims[0], LF_OP_COPY, in);
        }
        col += d->dims[0];
    }
    return g->err.rc ? LF_NONE : y;
}

lf_val lf_linear_adapted(lf_graph *g, lf_val x, lf_val w, lf_val bias, const struct lf_adapter_drop *drop)
{
    const struct lf_padapter *a =
        g->err.rc || !w.id || g->t[w.id].group < 0 ? NULL : adapter_of(g->ps, g->t[w.id].group);
    lf_val y = lf_linear(g, x, w, bias);
    if (!a || g->err.rc)
        return y;
    const char *group = g->ps->g[a->group].name;
    char site[192];
    snprintf(site, sizeof site, "%s.lora", group);
    if (drop)
        x = lf_dropout(g, x, drop->p, site, drop->sample, drop->position);
    lf_val down = lf_scale(g, lf_linear(g, x, param_of(g, group, "lora_A"), LF_NONE), a->d.scale);
    return a->members ? add_members(g, a, y, down) : lf_add(g, y, lf_linear(g, down, param_of(g, group, "lora_B"), LF_NONE));
}

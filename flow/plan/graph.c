/* SPDX-License-Identifier: Apache-2.0
 *
 * The stage graph: edges from inputs and `after`, an order in which stages can run (the order of
 * the file where it is free), and cycles reported by the names on them.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "flow/plan/pipeline_priv.h"

struct graph {
    lf_doc *d;
    size_t n;
    unsigned char *mark; /* 0 unseen, 1 on the path, 2 placed */
    size_t *path, n_path;
    size_t *next;           /* of each stage on the path: which of its deps is looked at next */
    size_t *order, n_order; /* the places of the stages that are placed */
};

static const char *name_of(const struct graph *g, size_t i)
{
    return g->d->stages.v[i].name;
}

static int add_dep(lf_texts *deps, lf_names *seen, const char *name, lf_err *err)
{
    if (lf_names_find(seen, name, "") != LF_NAMES_NONE)
        return 0;
    int rc = lf_names_put(seen, name, "", 0, err);
    return rc == 0 ? lf_texts_add(deps, name, err) : rc;
}

static int collect_deps(lf_doc_stage *stage, lf_err *err)
{
    int rc = 0;
    lf_names seen = {NULL, 0, 0};
    stage->deps.given = true;
    for (size_t i = 0; i < stage->inputs.n; i++) {
        const lf_doc_input *in = &stage->inputs.v[i];
        for (size_t k = 0; rc == 0 && k < in->refs.n; k++)
            rc = add_dep(&stage->deps, &seen, in->refs.v[k].stage, err);
    }
    for (size_t i = 0; rc == 0 && i < stage->after.n; i++)
        rc = add_dep(&stage->deps, &seen, stage->after.v[i], err);
    lf_names_fini(&seen);
    return rc;
}

static int cycle(const struct graph *g, size_t again, lf_err *err)
{
    lf_buf b;
    lf_buf_init(&b);
    bool in = false;
    for (size_t i = 0; i < g->n_path; i++) {
        in = in || g->path[i] == again;
        if (in)
            lf_buf_addf(&b, "%s -> ", name_of(g, g->path[i]));
    }
    lf_buf_adds(&b, name_of(g, again));
    const lf_doc_stage *st = &g->d->stages.v[again];
    int rc = lf_fail(err, LF_EINVAL, "%s:%d:1: stages depend on each other in a cycle: %s",
                     st->path, (int)st->line.v, b.data);
    lf_buf_fini(&b);
    return rc;
}

static int enter(struct graph *g, size_t i, lf_err *err)
{
    if (g->mark[i] == 1)
        return cycle(g, i, err);
    if (g->mark[i] == 0) {
        g->mark[i] = 1;
        g->path[g->n_path] = i;
        g->next[g->n_path++] = 0;
    }
    return 0;
}

/* Depth first without calls: a chain may be longer than the stack is deep. */
static int visit(struct graph *g, size_t start, lf_err *err)
{
    int rc = enter(g, start, err);
    while (rc == 0 && g->n_path > 0) {
        size_t at = g->path[g->n_path - 1];
        const lf_texts *deps = &g->d->stages.v[at].deps;
        size_t *next = &g->next[g->n_path - 1];
        if (*next < deps->n) {
            rc = enter(g, lf_names_find(&g->d->names, deps->v[(*next)++], ""), err);
            continue;
        }
        g->n_path--;
        g->mark[at] = 2;
        g->order[g->n_order++] = at;
    }
    return rc;
}

/* Puts the stages into the order that was found. */
static int reorder(struct graph *g, lf_err *err)
{
    lf_doc_stage *sorted = lf_calloc(g->n + 1, sizeof *sorted, err);
    if (sorted == NULL)
        return LF_ENOMEM;
    for (size_t i = 0; i < g->n_order; i++)
        sorted[i] = g->d->stages.v[g->order[i]];
    free(g->d->stages.v);
    g->d->stages.v = sorted;
    g->d->stages.cap = g->n + 1;
    return lf_doc_index(g->d, err);
}

int lf_pipeline_order(lf_doc *d, lf_err *err)
{
    struct graph g = {.d = d, .n = d->stages.n};
    int rc = lf_doc_index(d, err);
    for (size_t i = 0; rc == 0 && i < g.n; i++)
        rc = collect_deps(&d->stages.v[i], err);
    if (rc < 0)
        return rc;
    g.mark = lf_calloc(g.n + 1, 1, err);
    g.path = lf_calloc(g.n + 1, sizeof *g.path, err);
    g.next = lf_calloc(g.n + 1, sizeof *g.next, err);
    g.order = lf_calloc(g.n + 1, sizeof *g.order, err);
    if (g.mark == NULL || g.path == NULL || g.next == NULL || g.order == NULL)
        rc = lf_fail(err, LF_ENOMEM, "out of memory");
    for (size_t i = 0; rc == 0 && i < g.n; i++)
        rc = visit(&g, i, err);
    if (rc == 0)
        rc = reorder(&g, err);
    free(g.mark);
    free(g.path);
    free(g.next);
    free(g.order);
    return rc;
}

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
    json_t *stages;
    size_t n;
    unsigned char *mark; /* 0 unseen, 1 on the path, 2 placed */
    size_t *path, n_path;
    size_t *next; /* of each stage on the path: which of its deps is looked at next */
    lf_names names;
    json_t *sorted;
};

static const char *name_of(const struct graph *g, size_t i)
{
    return json_string_value(json_object_get(json_array_get(g->stages, i), "name"));
}

static int add_dep(json_t *deps, lf_names *seen, const char *name, lf_err *err)
{
    if (lf_names_find(seen, name, "") != LF_NAMES_NONE)
        return 0;
    int rc = lf_names_put(seen, name, "", 0, err);
    return rc == 0 ? lf_json_push_new(deps, json_string(name), err) : rc;
}

static int collect_deps(json_t *stage, lf_err *err)
{
    json_t *deps = json_array();
    int rc = lf_json_set_new(stage, "deps", deps, err);
    json_t *inputs = json_object_get(stage, "inputs"), *after = json_object_get(stage, "after");
    lf_names seen = {NULL, 0, 0};
    for (size_t i = 0; rc == 0 && i < json_array_size(inputs); i++) {
        json_t *refs = json_object_get(json_array_get(inputs, i), "refs");
        for (size_t k = 0; rc == 0 && k < json_array_size(refs); k++)
            rc = add_dep(deps, &seen,
                         json_string_value(json_object_get(json_array_get(refs, k), "stage")), err);
    }
    for (size_t i = 0; rc == 0 && i < json_array_size(after); i++)
        rc = add_dep(deps, &seen, json_string_value(json_array_get(after, i)), err);
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
    json_t *st = json_array_get(g->stages, again);
    int rc = lf_fail(err, LF_EINVAL, "%s:%d:1: stages depend on each other in a cycle: %s",
                     json_string_value(json_object_get(st, "path")),
                     (int)json_integer_value(json_object_get(st, "line")), b.data);
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
        json_t *stage = json_array_get(g->stages, at);
        const char *dep = json_string_value(
            json_array_get(json_object_get(stage, "deps"), g->next[g->n_path - 1]++));
        if (dep != NULL) {
            rc = enter(g, lf_names_find(&g->names, dep, ""), err);
            continue;
        }
        g->n_path--;
        g->mark[at] = 2;
        rc = lf_json_push_new(g->sorted, json_incref(stage), err);
    }
    return rc;
}

int lf_pipeline_order(json_t *doc, lf_err *err)
{
    struct graph g = {.stages = json_object_get(doc, "stages")};
    g.n = json_array_size(g.stages);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < g.n; i++)
        rc = collect_deps(json_array_get(g.stages, i), err);
    if (rc < 0)
        return rc;
    g.mark = lf_calloc(g.n + 1, 1, err);
    g.path = lf_calloc(g.n + 1, sizeof *g.path, err);
    g.next = lf_calloc(g.n + 1, sizeof *g.next, err);
    g.sorted = json_array();
    if (g.mark == NULL || g.path == NULL || g.next == NULL || g.sorted == NULL)
        rc = lf_fail(err, LF_ENOMEM, "out of memory");
    if (rc == 0)
        rc = lf_names_of_stages(&g.names, doc, err);
    for (size_t i = 0; rc == 0 && i < g.n; i++)
        rc = visit(&g, i, err);
    if (rc == 0)
        rc = lf_json_set_new(doc, "stages", json_incref(g.sorted), err);
    json_decref(g.sorted);
    free(g.mark);
    free(g.path);
    free(g.next);
    lf_names_fini(&g.names);
    return rc;
}

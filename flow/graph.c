/* SPDX-License-Identifier: Apache-2.0
 *
 * The stage graph: edges from inputs and `after`, an order in which stages can run (the order of the file where it is
 * free), and cycles reported by the names on them.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "flow/pipeline_priv.h"

struct graph {
    json_t *stages;
    size_t n;
    unsigned char *mark; /* 0 unseen, 1 on the path, 2 placed */
    size_t *path, n_path;
    json_t *sorted;
};

static const char *name_of(const struct graph *g, size_t i)
{
    return json_string_value(json_object_get(json_array_get(g->stages, i), "name"));
}

static size_t index_of(const struct graph *g, const char *name)
{
    for (size_t i = 0; i < g->n; i++)
        if (strcmp(name_of(g, i), name) == 0)
            return i;
    return g->n;
}

static int add_dep(json_t *deps, const char *name, lf_err *err)
{
    for (size_t i = 0; i < json_array_size(deps); i++)
        if (strcmp(json_string_value(json_array_get(deps, i)), name) == 0)
            return 0;
    return lf_json_push_new(deps, json_string(name), err);
}

static int collect_deps(json_t *stage, lf_err *err)
{
    json_t *deps = json_array();
    int rc = lf_json_set_new(stage, "deps", deps, err);
    json_t *inputs = json_object_get(stage, "inputs"), *after = json_object_get(stage, "after");
    for (size_t i = 0; rc == 0 && i < json_array_size(inputs); i++) {
        json_t *refs = json_object_get(json_array_get(inputs, i), "refs");
        for (size_t k = 0; rc == 0 && k < json_array_size(refs); k++)
            rc = add_dep(deps, json_string_value(json_object_get(json_array_get(refs, k), "stage")), err);
    }
    for (size_t i = 0; rc == 0 && i < json_array_size(after); i++)
        rc = add_dep(deps, json_string_value(json_array_get(after, i)), err);
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

static int visit(struct graph *g, size_t i, lf_err *err)
{
    if (g->mark[i] == 2)
        return 0;
    if (g->mark[i] == 1)
        return cycle(g, i, err);
    g->mark[i] = 1;
    g->path[g->n_path++] = i;
    json_t *deps = json_object_get(json_array_get(g->stages, i), "deps");
    int rc = 0;
    for (size_t k = 0; rc == 0 && k < json_array_size(deps); k++)
        rc = visit(g, index_of(g, json_string_value(json_array_get(deps, k))), err);
    g->n_path--;
    g->mark[i] = 2;
    if (rc == 0)
        rc = lf_json_push_new(g->sorted, json_incref(json_array_get(g->stages, i)), err);
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
    g.sorted = json_array();
    if (g.mark == NULL || g.path == NULL || g.sorted == NULL)
        rc = lf_fail(err, LF_ENOMEM, "out of memory");
    for (size_t i = 0; rc == 0 && i < g.n; i++)
        rc = visit(&g, i, err);
    if (rc == 0)
        rc = lf_json_set_new(doc, "stages", json_incref(g.sorted), err);
    json_decref(g.sorted);
    free(g.mark);
    free(g.path);
    return rc;
}

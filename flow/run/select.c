/* SPDX-License-Identifier: Apache-2.0
 *
 * Choosing stages along the edges of the graph. Stages lie in running order, so one pass in one
 * direction follows them all.
 */
#include "config.h"

#include "flow/run/select.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/str.h"

static const char *name_of(const lf_run_view *v, size_t i)
{
    return v->stages[i].plan->name;
}

int lf_select_index(size_t *out, const lf_run_view *v, const char *name, lf_err *err)
{
    const char *names[512];
    size_t n = 0;
    size_t at = lf_names_find(&v->run.plan->names, name, "");
    if (at < v->n) {
        *out = at;
        return 0;
    }
    for (size_t i = 0; i < v->n && n < sizeof names / sizeof names[0]; i++)
        names[n++] = name_of(v, i);
    const char *near = lf_nearest(name, names, n);
    return lf_fail(err, LF_EINVAL, "there is no stage \"%s\" in this run%s%s%s", name,
                   near != NULL ? "; did you mean " : "", near != NULL ? near : "",
                   near != NULL ? "?" : "");
}

void lf_select_after(bool *out, const lf_run_view *v, size_t from)
{
    for (size_t i = from + 1; i < v->n; i++)
        for (size_t k = 0; k < v->stages[i].n_deps; k++) {
            size_t d = v->stages[i].deps[k];
            out[i] = out[i] || d == from || (d > from && out[d]);
        }
}

static void select_needs(bool *out, const lf_run_view *v, size_t until)
{
    out[until] = true;
    for (size_t i = until + 1; i-- > 0;)
        for (size_t k = 0; out[i] && k < v->stages[i].n_deps; k++)
            out[v->stages[i].deps[k]] = true;
}

void lf_select_force(lf_run_view *v, const lf_select *s)
{
    for (size_t i = 0; i < v->n; i++) {
        v->stages[i].forced = s->until != NULL && strcmp(s->until, name_of(v, i)) == 0;
        for (size_t k = 0; k < s->n_only; k++)
            v->stages[i].forced = v->stages[i].forced || strcmp(s->only[k], name_of(v, i)) == 0;
    }
}

int lf_select_stages(bool *out, const lf_run_view *v, const lf_select *s, lf_err *err)
{
    size_t at = 0;
    int rc = 0;
    bool *after = lf_calloc(v->n + 1, sizeof *after, err);
    if (after == NULL)
        return LF_ENOMEM;
    for (size_t i = 0; i < v->n; i++)
        out[i] = s->n_only == 0 && s->until == NULL;
    for (size_t i = 0; rc == 0 && i < s->n_only; i++)
        if ((rc = lf_select_index(&at, v, s->only[i], err)) == 0)
            out[at] = true;
    if (rc == 0 && s->until != NULL && (rc = lf_select_index(&at, v, s->until, err)) == 0)
        select_needs(out, v, at);
    if (rc == 0 && s->from != NULL && (rc = lf_select_index(&at, v, s->from, err)) == 0) {
        after[at] = true;
        lf_select_after(after, v, at);
        for (size_t i = 0; i < v->n; i++)
            out[i] = out[i] && after[i];
    }
    free(after);
    return rc;
}

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
#include "flow/plan/sweep.h"

static const char *name_of(const lf_run_view *v, size_t i)
{
    return v->stages[i].plan->name;
}

static int no_such(const lf_run_view *v, const char *name, lf_err *err)
{
    const char *names[512];
    size_t n = 0;
    for (size_t i = 0; i < v->n && n < sizeof names / sizeof names[0]; i++)
        names[n++] = name_of(v, i);
    const char *near = lf_nearest(name, names, n);
    return lf_fail(err, LF_ENOENT, "there is no stage \"%s\" in this run%s%s%s", name,
                   near != NULL ? "; did you mean " : "", near != NULL ? near : "",
                   near != NULL ? "?" : "");
}

int lf_select_named(bool *out, const lf_run_view *v, const char *name, lf_err *err)
{
    bool any = false;
    for (size_t i = 0; i < v->n; i++)
        if (lf_sweep_named(name_of(v, i), name))
            out[i] = any = true;
    return any ? 0 : no_such(v, name, err);
}

int lf_select_after(bool *out, const lf_run_view *v, const char *name, lf_err *err)
{
    bool *from = lf_calloc(v->n + 1, sizeof *from, err);
    int rc = from == NULL ? LF_ENOMEM : lf_select_named(from, v, name, err);
    for (size_t i = 0; rc == 0 && i < v->n; i++)
        for (size_t k = 0; k < v->stages[i].n_deps && !lf_sweep_named(name_of(v, i), name); k++)
            if (from[v->stages[i].deps[k]])
                out[i] = from[i] = true;
    free(from);
    return rc;
}

/* Mark what a name stands for and everything that it needs. */
static int select_needs(bool *out, const lf_run_view *v, const char *name, lf_err *err)
{
    int rc = lf_select_named(out, v, name, err);
    for (size_t i = v->n; rc == 0 && i-- > 0;)
        for (size_t k = 0; out[i] && k < v->stages[i].n_deps; k++)
            out[v->stages[i].deps[k]] = true;
    return rc;
}

void lf_select_force(lf_run_view *v, const lf_select *s)
{
    for (size_t i = 0; i < v->n; i++) {
        v->stages[i].forced = s->until != NULL && lf_sweep_named(name_of(v, i), s->until);
        for (size_t k = 0; k < s->n_only; k++)
            v->stages[i].forced = v->stages[i].forced || lf_sweep_named(name_of(v, i), s->only[k]);
    }
}

int lf_select_stages(bool *out, const lf_run_view *v, const lf_select *s, lf_err *err)
{
    int rc = 0;
    bool *these = lf_calloc(v->n + 1, sizeof *these, err);
    if (these == NULL)
        return LF_ENOMEM;
    for (size_t i = 0; i < v->n; i++)
        out[i] = s->n_only == 0 && s->until == NULL;
    if (s->until != NULL)
        rc = select_needs(out, v, s->until, err);
    for (size_t i = 0; rc == 0 && i < s->n_only; i++)
        rc = lf_select_named(out, v, s->only[i], err);
    if (rc == 0 && s->from != NULL)
        rc = lf_select_named(these, v, s->from, err);
    if (rc == 0 && s->from != NULL)
        rc = lf_select_after(these, v, s->from, err);
    for (size_t i = 0; rc == 0 && s->from != NULL && i < v->n; i++)
        out[i] = out[i] && these[i];
    free(these);
    return rc;
}

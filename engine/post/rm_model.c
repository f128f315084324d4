/* SPDX-License-Identifier: Apache-2.0
 *
 * A reward model from its checkpoint. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/graph/plan.h"
#include "engine/infer/loaded.h"
#include "engine/model/label_names.h"
#include "engine/post/rm_score.h"

struct lf_rm {
    lf_loaded m;
    struct lf_rm_scorer_opts o;
    lf_rm_norm norm; /* of the checkpoint; with an adapter what its run measured */
    lf_rm_scorer *scorer;
    json_t *names; /* of labels; NULL: none */
};

/* ---- normalisation ---- */

json_t *lf_rm_norm_json(const lf_rm_norm *n, lf_err *err)
{
    json_t *o =
        json_pack("{s:f,s:f,s:I}", "mean", n->mean, "std", n->std, "count", (json_int_t)n->count);
    if (!o)
        lf_fail(err, LF_ENOMEM, "normalisation of scores: out of memory");
    return o;
}

int lf_rm_norm_read(lf_rm_norm *out, json_t *state, const char *where, lf_err *err)
{
    lf_rm_norm n = {false, 0, 1, 0};
    json_t *o = NULL;
    int rc = lf_json_get_object(&o, state, "score", false, where, err);
    if (rc == 0 && o)
        rc = lf_json_get_f64(&n.mean, o, "mean", true, where, err);
    if (rc == 0 && o)
        rc = lf_json_get_f64(&n.std, o, "std", true, where, err);
    if (rc == 0 && o)
        rc = lf_json_get_i64(&n.count, o, "count", false, where, err);
    if (rc == 0 && !(isfinite(n.mean) && isfinite(n.std) && n.std > 0 && n.count >= 0))
        rc = lf_fail(err, LF_EFORMAT, "%s: scores of mean %g and standard deviation %g cannot be",
                     where, n.mean, n.std);
    n.stored = o != NULL;
    if (rc == 0)
        *out = n;
    return rc;
}

double lf_rm_normalized(const lf_rm_norm *n, double score)
{
    return n->stored ? (score - n->mean) / n->std : score;
}

/* ---- model ---- */

static int add_chain(void *user, lf_loaded *m, lf_err *err)
{
    lf_rm *r = user;
    /* texts are as long as a batch holds, or are cut */
    if (lf_model_classifies(&m->model) || lf_model_is_dual(&m->model))
        m->o.max_context = r->o.rows;
    r->o.max_context = m->o.max_context;
    if (!m->model.vision.family) /* bounds are for models that see */
        r->o.patches = r->o.tiles = 0;
    return lf_rm_scorer_plan(&r->scorer, m->plan, m->ps, m->dec, &r->o, err);
}

static int read_state(void *user, json_t *state, const char *where, lf_err *err)
{
    lf_rm *r = user;
    json_t *names = lf_label_names(state, lf_label_count(&r->m.model));
    if (names) {
        json_decref(r->names);
        r->names = names;
    }
    return lf_rm_norm_read(&r->norm, state, where, err);
}

static lf_rm *create(const struct lf_rm_opts *o, struct lf_loaded_parts *parts, lf_err *err)
{
    lf_rm *r = lf_calloc(1, sizeof *r, err);
    if (!r)
        return NULL;
    r->o = (struct lf_rm_scorer_opts){.rows = o->rows,
                                      .docs = o->docs,
                                      .patches = o->patches,
                                      .tiles = o->tiles,
                                      .reading = o->reading};
    r->m.o = (struct lf_loaded_opts){.adapter = o->adapter,
                                     .averages = o->averages,
                                     .threads = o->threads,
                                     .device = o->device,
                                     .rank = o->rank,
                                     .local_rank = o->local_rank,
                                     .with = o->with,
                                     .compute = o->compute,
                                     .fast = o->fast,
                                     .max_context = o->max_context,
                                     .profile = o->profile,
                                     .label = o->label};
    *parts = (struct lf_loaded_parts){.user = r,
                                      .scores = !o->reading.answers,
                                      .classes = o->reading.labels,
                                      .chains = add_chain,
                                      .state = read_state};
    return r;
}

json_t *lf_rm_plan(const lf_model_config *c, const struct lf_rm_opts *o, lf_err *err)
{
    struct lf_loaded_parts parts;
    lf_rm *r = create(o, &parts, err);
    if (!r)
        return NULL;
    r->m.model = *c;
    json_t *j = lf_loaded_plan(&r->m, &parts, err) == 0 ? lf_plan_json(r->m.plan, err) : NULL;
    lf_rm_close(r);
    return j;
}

int lf_rm_plan_bytes(struct lf_plan_bytes *out, const lf_model_config *c,
                     const struct lf_rm_opts *o, lf_err *err)
{
    struct lf_loaded_parts parts;
    lf_rm *r = create(o, &parts, err);
    if (!r)
        return LF_ENOMEM;
    r->m.model = *c;
    int rc = lf_loaded_plan(&r->m, &parts, err);
    if (rc == 0 && lf_plan_bytes(r->m.plan, out))
        rc = lf_fail(err, LF_EINVAL, "the plan of the reward model has no sizes");
    lf_rm_close(r);
    return rc;
}

int lf_rm_open(lf_rm **out, const char *dir, const struct lf_rm_opts *o, lf_err *err)
{
    struct lf_loaded_parts parts;
    lf_rm *r = create(o, &parts, err);
    if (!r)
        return LF_ENOMEM;
    int rc = lf_loaded_open(&r->m, dir, &parts, err);
    if (rc != 0) {
        lf_rm_close(r);
        return rc;
    }
    *out = r;
    return 0;
}

void lf_rm_close(lf_rm *r)
{
    if (!r)
        return;
    lf_rm_scorer_destroy(r->scorer);
    lf_loaded_fini(&r->m);
    json_decref(r->names);
    free(r);
}

const lf_model_config *lf_rm_config(const lf_rm *r)
{
    return &r->m.model;
}

const json_t *lf_rm_label_names(const lf_rm *r)
{
    return r->names;
}

int64_t lf_rm_max_context(const lf_rm *r)
{
    return r->m.o.max_context;
}

struct lf_plan_memory lf_rm_planned(const lf_rm *r)
{
    return lf_plan_process(r->m.plan);
}

const char *lf_rm_identity(const lf_rm *r)
{
    return r->m.identity;
}

const lf_rm_norm *lf_rm_norm_of(const lf_rm *r)
{
    return &r->norm;
}

json_t *lf_rm_fingerprint(lf_rm *r, lf_err *err)
{
    return lf_exec_fingerprint(r->m.exec, err);
}

int lf_rm_see(lf_rm *r, const lf_pictures *from, lf_err *err)
{
    if (!r->o.patches)
        return lf_fail(err, LF_EINVAL, "the reward model sees no pictures, or max_patches is 0");
    lf_rm_scorer_see(r->scorer, from);
    return 0;
}

int lf_rm_classes(lf_rm *r, const float *w, int64_t n, json_t *names, lf_err *err)
{
    json_decref(r->names);
    r->names = names;
    return lf_rm_scorer_classes(r->scorer, w, n, err);
}

int64_t lf_rm_width(const lf_rm *r)
{
    return lf_rm_scorer_width(r->scorer);
}

int lf_rm_score(lf_rm *r, const lf_rm_text *texts, size_t n, float *score, bool (*stop)(void),
                lf_err *err)
{
    return lf_rm_scorer_run(r->scorer, r->m.exec, texts, n, score, stop, err);
}

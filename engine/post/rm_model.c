/* SPDX-License-Identifier: Apache-2.0
 *
 * A reward model from its checkpoint. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/hash.h"
#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/graph/exec.h"
#include "engine/model/adapter.h"
#include "engine/model/decoder.h"
#include "engine/model/weights.h"
#include "engine/post/rm_score.h"
#include "engine/store/ckpt.h"

struct lf_rm {
    lf_model_config model;
    struct lf_rm_opts o;
    lf_rm_norm norm;
    char identity[LF_HASH_HEX];
    struct lf_adapter_config adapter; /* with o.adapter */
    lf_decoder *dec;
    lf_pstore *ps;
    lf_plan *plan;
    lf_back *back;
    lf_exec *exec;
    lf_rm_scorer *scorer;
};

/* ---- normalisation ---- */

json_t *lf_rm_norm_json(const lf_rm_norm *n, lf_err *err)
{
    json_t *o = json_pack("{s:f,s:f,s:I}", "mean", n->mean, "std", n->std, "count", (json_int_t)n->count);
    if (!o)
        lf_fail(err, LF_ENOMEM, "normalisation of scores: out of memory");
    return o;
}

int lf_rm_norm_read(lf_rm_norm *out, json_t *state, const char *where, lf_err *err)
{
    lf_rm_norm n = {false, 0, 1, 0};
    json_t *o = NULL;
    int rc = lf_json_get_object(&o, state, "score", false, where, err);
    if (!rc && o)
        rc = lf_json_get_f64(&n.mean, o, "mean", true, where, err);
    if (!rc && o)
        rc = lf_json_get_f64(&n.std, o, "std", true, where, err);
    if (!rc && o)
        rc = lf_json_get_i64(&n.count, o, "count", false, where, err);
    if (!rc && !(isfinite(n.mean) && isfinite(n.std) && n.std > 0 && n.count >= 0))
        rc =
            lf_fail(err, LF_EFORMAT, "%s: scores of mean %g and standard deviation %g cannot be", where, n.mean, n.std);
    n.stored = o != NULL;
    if (!rc)
        *out = n;
    return rc;
}

double lf_rm_normalized(const lf_rm_norm *n, double score)
{
    return n->stored ? (score - n->mean) / n->std : score;
}

/* ---- model ---- */

static int settle(lf_rm *r, lf_err *err)
{
    int rc = r->o.adapter ? lf_adapter_config_of(&r->adapter, r->o.adapter, err) : 0;
    if (!rc && r->o.adapter)
        rc = lf_adapter_model(&r->model, &r->adapter, err);
    if (rc)
        return rc;
    if (!r->o.max_context)
        r->o.max_context = r->model.max_positions;
    if (r->o.max_context < 1 || r->o.max_context > r->model.max_positions)
        return lf_fail(err, LF_EINVAL, "texts of %lld tokens do not fit the model: it has %lld positions",
                       (long long)r->o.max_context, (long long)r->model.max_positions);
    return 0;
}

/* Everything that needs no device. */
static int make_plan(lf_rm *r, lf_err *err)
{
    const struct lf_plan_opts po = {.target = lf_target_device(r->o.device),
                                    .threads = r->o.threads, .compute = r->o.compute, .mode = r->o.fast ? LF_FAST : LF_INVARIANT};
    int rc = settle(r, err);
    if (rc)
        return rc;
    const struct lf_rm_scorer_opts so = {r->o.max_context, r->o.rows, r->o.docs, 0};
    r->dec = lf_decoder_create(&r->model, r->o.max_context, err);
    r->ps = r->dec ? lf_pstore_create(err) : NULL;
    if (!r->ps)
        return LF_EINVAL;
    rc = lf_decoder_declare(r->dec, r->ps, err);
    if (!rc && r->o.adapter && (rc = lf_decoder_adapt(r->dec, r->ps, &r->adapter, err)))
        lf_err_prefix(err, "%s", r->o.adapter);
    if (!rc && !(r->plan = lf_plan_create(r->ps, &po, err)))
        rc = LF_ENOMEM;
    if (!rc)
        rc = lf_rm_scorer_plan(&r->scorer, r->plan, r->ps, r->dec, &so, err);
    return rc ? rc : lf_plan_finish(r->plan, err);
}

json_t *lf_rm_plan(const lf_model_config *c, const struct lf_rm_opts *o, lf_err *err)
{
    json_t *j = NULL;
    lf_rm *r = lf_calloc(1, sizeof *r, err);
    if (!r)
        return NULL;
    r->model = *c;
    r->o = *o;
    if (make_plan(r, err) == 0)
        j = lf_plan_json(r->plan, err);
    lf_rm_close(r);
    return j;
}

int lf_rm_plan_bytes(struct lf_plan_bytes *out, const lf_model_config *c, const struct lf_rm_opts *o, lf_err *err)
{
    lf_rm *r = lf_calloc(1, sizeof *r, err);
    if (!r)
        return LF_ENOMEM;
    r->model = *c;
    r->o = *o;
    int rc = make_plan(r, err);
    if (!rc && lf_plan_bytes(r->plan, out))
        rc = lf_fail(err, LF_EINVAL, "the plan of the reward model has no sizes");
    lf_rm_close(r);
    return rc;
}

/* The adapter upon the weights of dir; what its run measured of the scores counts. */
static int load_adapter(lf_rm *r, const char *dir, lf_err *err)
{
    char base[LF_HASH_HEX], *path = lf_path_join(r->o.adapter, "state.json", err);
    json_t *state = path ? lf_json_load_file(path, (size_t)64 << 20, err) : NULL;
    int rc = state ? lf_rm_norm_read(&r->norm, state, r->o.adapter, err) : err && err->rc ? err->rc : LF_EFORMAT;
    memcpy(base, r->identity, sizeof base);
    if (!rc)
        rc = lf_adapter_load(r->ps, &r->adapter, r->o.adapter, base, dir, r->o.threads, r->identity, err);
    json_decref(state);
    free(path);
    return rc;
}

static int load(lf_rm *r, const char *dir, lf_err *err)
{
    const struct lf_device_opts d = {
        .device = r->o.device, .rank = r->o.rank, .local_rank = r->o.local_rank, .threads = r->o.threads};
    lf_ckpt *c;
    int rc = lf_ckpt_open(&c, dir, r->o.threads, err);
    if (rc)
        return rc;
    lf_hash_hex(r->identity, lf_ckpt_identity(c));
    rc = lf_weights_config(&r->model, c, err);
    if (!rc)
        rc = lf_rm_norm_read(&r->norm, lf_ckpt_state(c), dir, err);
    if (!rc && (rc = make_plan(r, err)))
        lf_err_prefix(err, "%s", dir);
    if (!rc && !(r->back = lf_back_create(&d, err)))
        rc = LF_ENOTSUP;
    if (!rc && !(r->exec = lf_exec_create(r->plan, r->back, &(struct lf_exec_opts){.profile = r->o.profile, .label = r->o.label}, err)))
        rc = LF_EINVAL;
    if (!rc)
        rc = lf_weights_load_below(r->ps, r->model.output, c, LF_WEIGHTS_PREFIX, err);
    if (!rc && r->o.adapter)
        rc = load_adapter(r, dir, err);
    lf_ckpt_close(c);
    return rc;
}

int lf_rm_open(lf_rm **out, const char *dir, const struct lf_rm_opts *o, lf_err *err)
{
    lf_rm *r = lf_calloc(1, sizeof *r, err);
    if (!r)
        return LF_ENOMEM;
    r->o = *o;
    int rc = load(r, dir, err);
    if (rc) {
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
    lf_exec_destroy(r->exec);
    lf_back_destroy(r->back);
    lf_plan_destroy(r->plan);
    lf_pstore_destroy(r->ps);
    lf_decoder_destroy(r->dec);
    free(r);
}

const lf_model_config *lf_rm_config(const lf_rm *r)
{
    return &r->model;
}

int64_t lf_rm_max_context(const lf_rm *r)
{
    return r->o.max_context;
}

const char *lf_rm_identity(const lf_rm *r)
{
    return r->identity;
}

const lf_rm_norm *lf_rm_norm_of(const lf_rm *r)
{
    return &r->norm;
}

json_t *lf_rm_fingerprint(lf_rm *r, lf_err *err)
{
    return lf_exec_fingerprint(r->exec, err);
}

int lf_rm_score(lf_rm *r, const lf_rm_text *texts, size_t n, float *score, bool (*stop)(void), lf_err *err)
{
    return lf_rm_scorer_run(r->scorer, r->exec, texts, n, score, stop, err);
}

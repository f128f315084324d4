/* SPDX-License-Identifier: Apache-2.0
 *
 * Graphs, plan, executor and weights of a decoder for inference: see runner.h.
 */
#include "engine/infer/runner.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/artifact.h"
#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/graph/exec.h"
#include "engine/infer/paged.h"
#include "engine/model/adapter.h"
#include "engine/model/weights.h"
#include "engine/store/ckpt.h"

struct lf_runner {
    lf_model_config model;
    struct lf_runner_opts o;
    char identity[LF_HASH_HEX];
    struct lf_adapter_config adapter; /* with o.adapter */
    lf_decoder *dec;
    lf_pstore *ps;
    lf_plan *plan;
    lf_back *back;
    lf_exec *exec;
    lf_paged *paged;       /* NULL: no generation */
    int score_chain;       /* -1: none */
    int32_t *score_prefix; /* [score_docs], then turns and blocks [2, score_rows], with mask = prefix */
};

/* Fill in defaults and refuse what cannot be. */
static int settle(lf_runner *r, lf_err *err)
{
    struct lf_runner_opts *o = &r->o;
    if (o->max_context == 0)
        o->max_context = r->model.max_positions;
    if (o->max_context < 2 || o->max_context > r->model.max_positions)
        return lf_fail(err, LF_EINVAL, "a context of %lld does not fit the model: it has %lld positions", (long long)o->max_context,
                       (long long)r->model.max_positions);
    if (o->score_rows > 0 && o->score_rows < o->max_context)
        o->score_rows = o->max_context;
    return 0;
}

static int add_generation(lf_runner *r, lf_err *err)
{
    const struct lf_runner_opts *o = &r->o;
    const struct lf_paged_opts p = {.context = o->max_context,
                                    .slots = o->slots,
                                    .max_rows = o->max_rows,
                                    .kv_tokens = o->kv_tokens,
                                    .page_tokens = o->page_tokens,
                                    .cache = o->compute,
                                    .profile = o->profile};
    return lf_paged_plan(&r->paged, r->plan, r->ps, r->dec, &p, err);
}

static int add_score(lf_runner *r, lf_err *err)
{
    struct lf_decoder_rows rows = {
        .rows = r->o.score_rows, .n_docs = r->o.score_docs, .max_doc = r->o.max_context};
    lf_graph *g = lf_decoder_score_graph(r->dec, r->ps, "score", &rows, err);
    if (!g)
        return LF_EINVAL;
    r->score_chain = lf_plan_add(r->plan, g, &(struct lf_chain_opts){.eras = LF_PAGED_NEXT_ERA}, err);
    lf_graph_destroy(g);
    return r->score_chain < 0 ? r->score_chain : 0;
}

/* Everything that needs no device. */
static int make_plan(lf_runner *r, lf_err *err)
{
    struct lf_plan_opts po = {.target = lf_target_device(r->o.device), .threads = r->o.threads, .compute = r->o.compute,
                              .mode = r->o.fast ? LF_FAST : LF_INVARIANT};
    int rc = settle(r, err);
    if (rc)
        return rc;
    r->dec = lf_decoder_create(&r->model, r->o.max_context, err);
    r->ps = r->dec ? lf_pstore_create(err) : NULL;
    if (!r->ps)
        return LF_EINVAL;
    rc = lf_decoder_declare(r->dec, r->ps, err);
    if (rc == 0 && r->o.adapter)
        rc = lf_adapter_config_of(&r->adapter, r->o.adapter, err);
    if (rc == 0 && r->o.adapter && lf_decoder_adapt(r->dec, r->ps, &r->adapter, err))
        rc = lf_err_prefix(err, "%s", r->o.adapter);
    if (rc == 0 && !(r->plan = lf_plan_create(r->ps, &po, err)))
        rc = LF_EINVAL;
    if (rc == 0 && r->o.slots > 0)
        rc = add_generation(r, err);
    if (rc == 0 && r->o.score_rows > 0)
        rc = add_score(r, err);
    return rc ? rc : lf_plan_finish(r->plan, err);
}

int lf_runner_config(lf_model_config *out, const char *dir, lf_err *err)
{
    lf_artifact a = {0};
    json_t *state = NULL;
    char *path = lf_path_join(dir, "state.json", err);
    int rc = path ? lf_artifact_load(&a, dir, "checkpoint", err) : LF_ENOMEM;
    if (rc == 0 && !(state = lf_json_load_file(path, (size_t)64 << 20, err)))
        rc = LF_EFORMAT;
    if (rc == 0)
        rc = lf_model_config_from_json(out, json_object_get(state, "model"), path, err);
    json_decref(state);
    lf_artifact_fini(&a);
    free(path);
    return rc;
}

json_t *lf_runner_plan(const lf_model_config *c, const struct lf_runner_opts *o, lf_err *err)
{
    json_t *j = NULL;
    lf_runner *r = lf_calloc(1, sizeof *r, err);
    if (!r)
        return NULL;
    r->model = *c;
    r->o = *o;
    r->score_chain = -1;
    if (make_plan(r, err) == 0)
        j = lf_plan_json(r->plan, err);
    lf_runner_close(r);
    return j;
}

static int load(lf_runner *r, const char *dir, lf_err *err)
{
    const struct lf_device_opts d = {
        .device = r->o.device, .rank = r->o.rank, .local_rank = r->o.local_rank, .threads = r->o.threads};
    lf_ckpt *c;
    int rc = lf_ckpt_open(&c, dir, r->o.threads, err);
    if (rc)
        return rc;
    lf_hash_hex(r->identity, lf_ckpt_identity(c));
    rc = lf_weights_config(&r->model, c, err);
    if (rc == 0)
        rc = make_plan(r, err);
    if (rc == 0 && !(r->back = lf_back_create(&d, err)))
        rc = LF_ENOTSUP;
    if (rc == 0 && !(r->exec = lf_exec_create(r->plan, r->back, &(struct lf_exec_opts){.profile = r->o.profile}, err)))
        rc = LF_EINVAL;
    if (rc == 0)
        rc = lf_weights_load(r->ps, c, LF_WEIGHTS_PREFIX, false, err);
    if (rc == 0 && r->o.adapter) {
        char base[LF_HASH_HEX];
        memcpy(base, r->identity, sizeof base);
        rc = lf_adapter_load(r->ps, &r->adapter, r->o.adapter, base, dir, r->o.threads, r->identity, err);
    }
    lf_ckpt_close(c);
    return rc;
}

int lf_runner_open(lf_runner **out, const char *dir, const struct lf_runner_opts *o, lf_err *err)
{
    lf_runner *r = lf_calloc(1, sizeof *r, err);
    if (!r)
        return LF_ENOMEM;
    r->o = *o;
    r->score_chain = -1;
    int rc = load(r, dir, err);
    if (rc == 0 && r->paged)
        rc = lf_paged_bind(r->paged, r->exec, r->back, err);
    if (rc == 0 && r->model.mask == LF_MASK_PREFIX) {
        r->score_prefix = lf_calloc((size_t)(r->o.score_docs + 2 * r->o.score_rows) + 1, sizeof *r->score_prefix, err);
        rc = r->score_prefix ? 0 : LF_ENOMEM;
    }
    if (rc) {
        lf_runner_close(r);
        return rc;
    }
    *out = r;
    return 0;
}

void lf_runner_close(lf_runner *r)
{
    if (!r)
        return;
    lf_paged_destroy(r->paged);
    lf_exec_destroy(r->exec);
    lf_back_destroy(r->back);
    lf_plan_destroy(r->plan);
    lf_pstore_destroy(r->ps);
    lf_decoder_destroy(r->dec);
    free(r->score_prefix);
    free(r);
}

const char *lf_runner_identity(const lf_runner *r) { return r->identity; }

json_t *lf_runner_fingerprint(lf_runner *r, lf_err *err) { return lf_exec_fingerprint(r->exec, err); }

/* ---- generation --------------------------------------------------------------------------------------------------------- */

static int write_i32(lf_runner *r, int chain, const char *name, const int32_t *v, int64_t n, lf_err *err)
{
    return lf_exec_write(r->exec, chain, 0, name, v, (size_t)n * sizeof *v, err);
}

int lf_runner_gen_model(lf_runner *r, lf_gen_model *out, lf_err *err)
{
    if (!r->paged)
        return lf_fail(err, LF_EINVAL, "the runner was opened without generation");
    lf_paged_model(r->paged, out);
    return 0;
}

/* ---- scoring -------------------------------------------------------------------------------------------------------------- */

/* The prefix of a document is what stands before the first token that predicts a scored one. */
static int write_score_prefixes(lf_runner *r, const int32_t *target, const int32_t *cu, lf_err *err)
{
    const int64_t docs = r->o.score_docs, rows = r->o.score_rows;
    int32_t *prefix = r->score_prefix, *turns = prefix + docs, *blocks = turns + rows;
    lf_decoder_prefixes(target, cu, docs, prefix);
    int rc = write_i32(r, r->score_chain, "prefix", prefix, docs, err);
    if (rc || r->model.position != LF_POS_ROPE2D)
        return rc;
    lf_decoder_turns(cu, docs, prefix, rows, turns, blocks);
    rc = write_i32(r, r->score_chain, "turns", turns, rows, err);
    return rc ? rc : write_i32(r, r->score_chain, "blocks", blocks, rows, err);
}

static int forward(void *ctx, const int32_t *token, const int32_t *target, const int32_t *position, const int32_t *cu,
                   int64_t n_docs, float *loss, int32_t *argmax, lf_err *err)
{
    lf_runner *r = ctx;
    int64_t rows = r->o.score_rows;
    size_t bytes = (size_t)rows * sizeof(float);
    (void)n_docs; /* unused entries of cu repeat the last: empty documents */
    int rc = write_i32(r, r->score_chain, "tokens", token, rows, err);
    if (rc == 0)
        rc = write_i32(r, r->score_chain, "targets", target, rows, err);
    if (rc == 0)
        rc = write_i32(r, r->score_chain, "positions", position, rows, err);
    if (rc == 0)
        rc = write_i32(r, r->score_chain, "cu_seqlens", cu, r->o.score_docs + 1, err);
    if (rc == 0 && r->score_prefix)
        rc = write_score_prefixes(r, target, cu, err);
    if (rc == 0)
        rc = lf_exec_record_write(r->exec, &(struct lf_step_record){.loss_scale = 1, .inv_tokens = 1}, err);
    if (rc == 0)
        rc = lf_exec_run(r->exec, r->score_chain, LF_FWD, 0, LF_FIRST, err);
    if (rc == 0)
        rc = lf_exec_read(r->exec, r->score_chain, 0, "loss", loss, bytes, err);
    if (rc == 0)
        rc = lf_exec_read(r->exec, r->score_chain, 0, "argmax", argmax, bytes, err);
    return rc;
}

int lf_runner_score_model(lf_runner *r, lf_score_model *out, lf_err *err)
{
    if (r->score_chain < 0)
        return lf_fail(err, LF_EINVAL, "the runner was opened without scoring");
    *out = (lf_score_model){r, r->o.score_rows, r->o.max_context, r->o.score_docs, r->model.vocab, forward};
    return 0;
}

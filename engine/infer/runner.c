/* SPDX-License-Identifier: Apache-2.0
 *
 * Generation and scoring by a decoder from its checkpoint: see runner.h.
 */
#include "engine/infer/runner.h"
#include "engine/graph/plan.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/artifact.h"
#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/infer/loaded.h"
#include "engine/infer/look.h"
#include "engine/infer/paged.h"

struct lf_runner {
    lf_loaded m;
    struct lf_runner_opts o;
    lf_paged *paged; /* NULL: no generation */
    lf_look *look;   /* NULL: prompts have no pictures */
    int score_chain; /* -1: none */
    int32_t
        *score_prefix; /* [score_docs], then turns and blocks [2, score_rows], with mask = prefix */
};

static int add_generation(lf_runner *r, lf_err *err)
{
    const struct lf_runner_opts *o = &r->o;
    const struct lf_paged_opts p = {.context = r->m.o.max_context,
                                    .slots = o->slots,
                                    .max_rows = o->max_rows,
                                    .kv_tokens = o->kv_tokens,
                                    .page_tokens = o->page_tokens,
                                    .cache = o->compute,
                                    .switching = o->switching,
                                    .speculative = o->speculative,
                                    .profile = o->profile};
    const struct lf_look_opts look = {.patches = o->max_patches,
                                      .tiles = o->max_tiles,
                                      .tokens = r->m.o.max_context,
                                      .eras = LF_PAGED_NEXT_ERA};
    const int rc = lf_paged_plan(&r->paged, r->m.plan, r->m.ps, r->m.dec, &p, err);
    return rc != 0 || !o->max_patches || !lf_decoder_config(r->m.dec)->vision.family
               ? rc
               : lf_look_plan(&r->look, r->m.plan, r->m.ps, r->m.dec, &look, err);
}

static int add_score(lf_runner *r, lf_err *err)
{
    const int64_t context = r->m.o.max_context;
    struct lf_decoder_rows rows = {
        .rows = r->o.score_rows, .n_docs = r->o.score_docs, .max_doc = context};
    if (lf_model_is_seq2seq(lf_decoder_config(r->m.dec))) {
        rows.source_rows = r->o.score_rows;
        rows.max_source = context;
    }
    lf_graph *g = lf_model_need_next(lf_decoder_config(r->m.dec), err)
                      ? NULL
                      : lf_decoder_score_graph(r->m.dec, r->m.ps, "score", &rows, err);
    if (!g)
        return LF_EINVAL;
    r->score_chain =
        lf_plan_add(r->m.plan, g, &(struct lf_chain_opts){.eras = LF_PAGED_NEXT_ERA}, err);
    lf_graph_destroy(g);
    return r->score_chain < 0 ? r->score_chain : 0;
}

/* Segments of generation, and one that scores. */
static int add_chains(void *user, lf_loaded *m, lf_err *err)
{
    lf_runner *r = user;
    if (m->o.max_context < 2)
        return lf_fail(err, LF_EINVAL, "a context of %lld leaves nothing to predict: it takes 2",
                       (long long)m->o.max_context);
    if (r->o.score_rows > 0 && r->o.score_rows < m->o.max_context)
        r->o.score_rows = m->o.max_context;
    int rc = r->o.slots > 0 ? add_generation(r, err) : 0;
    return rc || r->o.score_rows <= 0 ? rc : add_score(r, err);
}

static lf_runner *create(const struct lf_runner_opts *o, struct lf_loaded_parts *parts, lf_err *err)
{
    lf_runner *r = lf_calloc(1, sizeof *r, err);
    if (!r)
        return NULL;
    r->o = *o;
    r->score_chain = -1;
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
                                     .profile = o->profile};
    *parts = (struct lf_loaded_parts){.user = r, .chains = add_chains};
    return r;
}

int lf_runner_description(lf_model_config *out, const char *dir, lf_err *err)
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

int lf_runner_config(lf_model_config *out, const char *dir, lf_err *err)
{
    int rc = lf_runner_description(out, dir, err);
    if (rc == 0 &&
        ((rc = lf_model_need_text(out, err)) != 0 || (rc = lf_model_need_next(out, err)) != 0))
        lf_err_prefix(err, "%s", dir);
    return rc;
}

json_t *lf_runner_plan(const lf_model_config *c, const struct lf_runner_opts *o, lf_err *err)
{
    struct lf_loaded_parts parts;
    lf_runner *r = create(o, &parts, err);
    if (!r)
        return NULL;
    r->m.model = *c;
    json_t *j = lf_loaded_plan(&r->m, &parts, err) == 0 ? lf_plan_json(r->m.plan, err) : NULL;
    lf_runner_close(r);
    return j;
}

int lf_runner_open(lf_runner **out, const char *dir, const struct lf_runner_opts *o, lf_err *err)
{
    struct lf_loaded_parts parts;
    lf_runner *r = create(o, &parts, err);
    if (!r)
        return LF_ENOMEM;
    int rc = lf_loaded_open(&r->m, dir, &parts, err);
    if (rc == 0 && r->paged)
        rc = lf_paged_bind(r->paged, r->m.exec, r->m.back, err);
    if (rc == 0 && r->look)
        lf_look_bind(r->look, r->m.exec);
    if (rc == 0 && r->m.model.mask == LF_MASK_PREFIX) {
        r->score_prefix = lf_calloc(lf_decoder_prefix_room(r->o.score_docs, r->o.score_rows) + 1,
                                    sizeof *r->score_prefix, err);
        rc = r->score_prefix ? 0 : LF_ENOMEM;
    }
    if (rc != 0) {
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
    lf_look_destroy(r->look);
    lf_loaded_fini(&r->m);
    free(r->score_prefix);
    free(r);
}

struct lf_plan_memory lf_runner_planned(const lf_runner *r)
{
    return lf_plan_process(r->m.plan);
}

const char *lf_runner_identity(const lf_runner *r)
{
    return r->m.identity;
}

json_t *lf_runner_fingerprint(lf_runner *r, lf_err *err)
{
    return lf_exec_fingerprint(r->m.exec, err);
}

/* ---- generation ------------------------------------------------------------------------------ */

static int write_i32(lf_runner *r, int chain, const char *name, const int32_t *v, int64_t n,
                     lf_err *err)
{
    return lf_exec_write(r->m.exec, chain, 0, name, v, (size_t)n * sizeof *v, err);
}

static int features(void *look, const lf_gen_job *job, float *out, lf_err *err)
{
    return lf_look_run(look, job->media->pictures, out, err);
}

int lf_runner_gen_model(lf_runner *r, lf_gen_model *out, lf_err *err)
{
    if (!r->paged)
        return lf_fail(err, LF_EINVAL, "the runner was opened without generation");
    lf_paged_model(r->paged, out);
    out->look = r->look;
    out->features = r->look ? features : NULL;
    return 0;
}

/* ---- scoring --------------------------------------------------------------------------------- */

static int write_score_source(lf_runner *r, const struct lf_score_rows *in, lf_err *err)
{
    const int64_t rows = r->o.score_rows;
    int rc = write_i32(r, r->score_chain, "source_tokens", in->source_token, rows, err);
    if (rc == 0)
        rc = write_i32(r, r->score_chain, "source_positions", in->source_position, rows, err);
    return rc != 0 ? rc
                   : write_i32(r, r->score_chain, "source_cu_seqlens", in->source_cu_seqlens,
                               r->o.score_docs + 1, err);
}

static int forward(void *ctx, const struct lf_score_rows *in, float *loss, int32_t *argmax,
                   lf_err *err)
{
    lf_runner *r = ctx;
    int64_t rows = r->o.score_rows;
    size_t bytes = (size_t)rows * sizeof(float);
    int rc = write_i32(r, r->score_chain, "tokens", in->token, rows, err);
    if (rc == 0)
        rc = write_i32(r, r->score_chain, "targets", in->target, rows, err);
    if (rc == 0)
        rc = write_i32(r, r->score_chain, "positions", in->position, rows, err);
    if (rc == 0)
        rc = write_i32(r, r->score_chain, "cu_seqlens", in->cu_seqlens, r->o.score_docs + 1, err);
    if (rc == 0 && lf_model_is_seq2seq(&r->m.model))
        rc = write_score_source(r, in, err);
    const struct lf_decoder_docs docs = {
        .cu_seqlens = in->cu_seqlens, .n = r->o.score_docs, .rows = rows};
    if (rc == 0)
        rc = lf_decoder_write_turns(r->m.dec, r->m.exec, r->score_chain, &docs, err);
    /* what stands before the first token that predicts a scored one */
    if (rc == 0)
        rc = lf_decoder_write_prefixes(r->m.dec, r->m.exec, r->score_chain, &docs, in->target,
                                       r->score_prefix, err);
    if (rc == 0)
        rc = lf_exec_record_write(r->m.exec,
                                  &(struct lf_step_record){.loss_scale = 1, .inv_tokens = 1}, err);
    if (rc == 0)
        rc = lf_exec_run(r->m.exec, r->score_chain, LF_FWD, 0, LF_FIRST, err);
    if (rc == 0)
        rc = lf_exec_read(r->m.exec, r->score_chain, 0, "loss", loss, bytes, err);
    if (rc == 0)
        rc = lf_exec_read(r->m.exec, r->score_chain, 0, "argmax", argmax, bytes, err);
    return rc;
}

int lf_runner_score_model(lf_runner *r, lf_score_model *out, lf_err *err)
{
    if (r->score_chain < 0)
        return lf_fail(err, LF_EINVAL, "the runner was opened without scoring");
    *out = (lf_score_model){.ctx = r,
                            .rows = r->o.score_rows,
                            .max_context = r->m.o.max_context,
                            .max_docs = r->o.score_docs,
                            .vocab = r->m.model.vocab,
                            .forward = forward};
    if (lf_model_is_seq2seq(&r->m.model)) {
        out->source_rows = r->o.score_rows;
        out->decoder_start = (int32_t)r->m.model.decoder_start;
    }
    return 0;
}

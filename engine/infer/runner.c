/* SPDX-License-Identifier: Apache-2.0
 *
 * Graphs, plan, executor and weights of a decoder for inference: see runner.h.
 */
#include "engine/infer/runner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/artifact.h"
#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/graph/exec.h"
#include "engine/model/decoder.h"
#include "engine/model/weights.h"
#include "engine/store/ckpt.h"

#define MAX_BUCKETS 24

struct lf_runner {
    lf_model_config model;
    struct lf_runner_opts o;
    char identity[LF_HASH_HEX];
    lf_decoder *dec;
    lf_pstore *ps;
    lf_plan *plan;
    lf_back *back;
    lf_exec *exec;
    int n_buckets;
    int64_t bucket_rows[MAX_BUCKETS], bucket_select[MAX_BUCKETS];
    int bucket_chain[MAX_BUCKETS];
    int score_chain; /* -1: none */
    int64_t n_pages, max_pages;
    int32_t *tok, *pos, *seq, *select; /* [largest bucket] */
    int32_t *prefix;                   /* [slots] with mask = prefix, else NULL */
    int32_t *turns;                    /* [2, largest bucket] with rope2d: turns, then blocks */
    int32_t *score_prefix;             /* [score_docs], then turns and blocks [2, score_rows] */
    float *lse;                        /* likewise */
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
    if (o->slots > 0) {
        if (o->page_tokens < LF_ATTN_TILE || o->page_tokens % LF_ATTN_TILE)
            return lf_fail(err, LF_EINVAL, "a page of %lld positions: it must be a multiple of %d", (long long)o->page_tokens,
                           LF_ATTN_TILE);
        if (o->max_rows < o->slots)
            o->max_rows = o->slots;
        r->max_pages = (o->max_context + o->page_tokens - 1) / o->page_tokens;
        int64_t tokens = o->kv_tokens > 0 ? o->kv_tokens : o->slots * r->max_pages * o->page_tokens;
        r->n_pages = (tokens + o->page_tokens - 1) / o->page_tokens;
    }
    if (o->score_rows > 0 && o->score_rows < o->max_context)
        o->score_rows = o->max_context;
    return 0;
}

static int add_bucket(lf_runner *r, int64_t rows, lf_err *err)
{
    char name[32];
    int k = r->n_buckets;
    int64_t select = rows < r->o.slots ? rows : r->o.slots;
    struct lf_decoder_paged p = {rows, r->o.slots, r->max_pages, r->n_pages, r->o.page_tokens, select,
                                 r->o.bf16 ? LF_BF16 : LF_F32, false};
    if (k == MAX_BUCKETS)
        return lf_fail(err, LF_EINVAL, "%lld rows in a step are too many", (long long)r->o.max_rows);
    snprintf(name, sizeof name, "step%lld", (long long)rows);
    lf_graph *g = lf_decoder_paged_graph(r->dec, r->ps, name, &p, err);
    if (!g)
        return LF_EINVAL;
    int chain = lf_plan_add(r->plan, g, &(struct lf_chain_opts){.eras = 1u << k, .packed = true}, err);
    lf_graph_destroy(g);
    if (chain < 0)
        return chain;
    r->bucket_rows[k] = rows;
    r->bucket_select[k] = select;
    r->bucket_chain[k] = chain;
    r->n_buckets++;
    return 0;
}

static int add_score(lf_runner *r, lf_err *err)
{
    struct lf_decoder_rows rows = {
        .rows = r->o.score_rows, .n_docs = r->o.score_docs, .max_doc = r->o.max_context};
    lf_graph *g = lf_decoder_score_graph(r->dec, r->ps, "score", &rows, err);
    if (!g)
        return LF_EINVAL;
    r->score_chain = lf_plan_add(r->plan, g, &(struct lf_chain_opts){.eras = 1u << MAX_BUCKETS}, err);
    lf_graph_destroy(g);
    return r->score_chain < 0 ? r->score_chain : 0;
}

/* Everything that needs no device. */
static int make_plan(lf_runner *r, lf_err *err)
{
    struct lf_plan_opts po = {.threads = r->o.threads, .compute = r->o.bf16 ? LF_BF16 : LF_F32,
                              .mode = r->o.fast ? LF_FAST : LF_INVARIANT};
    int rc = settle(r, err);
    if (rc)
        return rc;
    r->dec = lf_decoder_create(&r->model, r->o.max_context, err);
    r->ps = r->dec ? lf_pstore_create(err) : NULL;
    if (!r->ps)
        return LF_EINVAL;
    rc = lf_decoder_declare(r->dec, r->ps, err);
    if (rc == 0 && !(r->plan = lf_plan_create(r->ps, &po, err)))
        rc = LF_EINVAL;
    for (int64_t rows = 1; rc == 0 && r->o.slots > 0; rows *= 2) {
        rc = add_bucket(r, rows < r->o.max_rows ? rows : r->o.max_rows, err);
        if (rows >= r->o.max_rows)
            break;
    }
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
    lf_ckpt *c;
    int rc = lf_ckpt_open(&c, dir, r->o.threads, err);
    if (rc)
        return rc;
    lf_hash_hex(r->identity, lf_ckpt_identity(c));
    rc = lf_weights_config(&r->model, c, err);
    if (rc == 0)
        rc = make_plan(r, err);
    if (rc == 0 && !(r->back = lf_back_cpu_create(lf_target_host()->isa, r->o.threads, err)))
        rc = LF_ENOTSUP;
    if (rc == 0 && !(r->exec = lf_exec_create(r->plan, r->back, &(struct lf_exec_opts){0}, err)))
        rc = LF_EINVAL;
    if (rc == 0)
        rc = lf_weights_load(r->ps, c, LF_WEIGHTS_PREFIX, false, err);
    lf_ckpt_close(c);
    return rc;
}

static int prefix_buffers(lf_runner *r, size_t rows, lf_err *err)
{
    r->prefix = lf_calloc((size_t)r->o.slots + 1, sizeof *r->prefix, err);
    r->turns = lf_calloc(2 * rows, sizeof *r->turns, err);
    r->score_prefix = lf_calloc((size_t)(r->o.score_docs + 2 * r->o.score_rows) + 1, sizeof *r->score_prefix, err);
    return r->prefix && r->turns && r->score_prefix ? 0 : LF_ENOMEM;
}

int lf_runner_open(lf_runner **out, const char *dir, const struct lf_runner_opts *o, lf_err *err)
{
    lf_runner *r = lf_calloc(1, sizeof *r, err);
    if (!r)
        return LF_ENOMEM;
    r->o = *o;
    r->score_chain = -1;
    int rc = load(r, dir, err);
    size_t rows = rc == 0 && r->n_buckets ? (size_t)r->bucket_rows[r->n_buckets - 1] : 1;
    if (rc == 0) {
        r->tok = lf_calloc(rows, sizeof *r->tok, err);
        r->pos = lf_calloc(rows, sizeof *r->pos, err);
        r->seq = lf_calloc(rows, sizeof *r->seq, err);
        r->select = lf_calloc(rows, sizeof *r->select, err);
        r->lse = lf_calloc(rows, sizeof *r->lse, err);
        if (!r->tok || !r->pos || !r->seq || !r->select || !r->lse)
            rc = LF_ENOMEM;
    }
    if (rc == 0 && r->model.mask == LF_MASK_PREFIX)
        rc = prefix_buffers(r, rows, err);
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
    lf_exec_destroy(r->exec);
    lf_back_destroy(r->back);
    lf_plan_destroy(r->plan);
    lf_pstore_destroy(r->ps);
    lf_decoder_destroy(r->dec);
    free(r->tok);
    free(r->pos);
    free(r->seq);
    free(r->select);
    free(r->lse);
    free(r->prefix);
    free(r->turns);
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

/* Prefixes of the sequences, and where rope2d counts from. */
static int write_step_prefixes(lf_runner *r, int k, lf_err *err)
{
    const int64_t cap = r->bucket_rows[k];
    const int chain = r->bucket_chain[k];
    int rc = write_i32(r, chain, "prefix", r->prefix, r->o.slots, err);
    if (rc || r->model.position != LF_POS_ROPE2D)
        return rc;
    for (int64_t i = 0; i < cap; i++)
        lf_decoder_turn(r->pos[i], r->seq[i] < 0 ? 0 : r->prefix[r->seq[i]], &r->turns[i], &r->turns[cap + i]);
    rc = write_i32(r, chain, "turns", r->turns, cap, err);
    return rc ? rc : write_i32(r, chain, "blocks", r->turns + cap, cap, err);
}

/* Inputs of a step, padded to the bucket: unused rows have sequence -1, unused selections repeat row 0. */
static int write_step(lf_runner *r, int k, int64_t rows, const int32_t *token, const int32_t *pos, const int32_t *seq,
                      const int32_t *table, int64_t n_want, const int32_t *want, lf_err *err)
{
    int64_t cap = r->bucket_rows[k];
    int chain = r->bucket_chain[k];
    for (int64_t i = 0; i < cap; i++) {
        r->tok[i] = i < rows ? token[i] : 0;
        r->pos[i] = i < rows ? pos[i] : 0;
        r->seq[i] = i < rows ? seq[i] : -1;
    }
    for (int64_t i = 0; i < r->bucket_select[k]; i++)
        r->select[i] = i < n_want ? want[i] : 0;
    int rc = write_i32(r, chain, "tokens", r->tok, cap, err);
    if (rc == 0)
        rc = write_i32(r, chain, "positions", r->pos, cap, err);
    if (rc == 0)
        rc = write_i32(r, chain, "seq", r->seq, cap, err);
    if (rc == 0)
        rc = write_i32(r, chain, "table", table, r->o.slots * r->max_pages, err);
    if (rc == 0)
        rc = write_i32(r, chain, "select", r->select, r->bucket_select[k], err);
    if (rc == 0 && r->prefix)
        rc = write_step_prefixes(r, k, err);
    return rc;
}

static int step(void *ctx, int64_t rows, const int32_t *token, const int32_t *pos, const int32_t *seq, const int32_t *table,
                int64_t n_want, const int32_t *want, struct lf_gen_logits *result, lf_err *err)
{
    lf_runner *r = ctx;
    int k = 0;
    while (k < r->n_buckets && (r->bucket_rows[k] < rows || r->bucket_select[k] < n_want))
        k++;
    if (k == r->n_buckets)
        return lf_fail(err, LF_EINVAL, "a step of %lld rows is beyond the largest of %lld", (long long)rows, (long long)r->o.max_rows);
    int rc = write_step(r, k, rows, token, pos, seq, table, n_want, want, err);
    if (rc == 0)
        rc = lf_exec_run(r->exec, r->bucket_chain[k], LF_FWD, 0, LF_FIRST, err);
    if (rc)
        return rc;
    float *out = lf_exec_host_ptr(r->exec, r->bucket_chain[k], 0, "logits");
    if (!out)
        return lf_fail(err, LF_ENOTSUP, "logits are not in host memory on this backend");
    struct lf_k_logit_stats s = {.rows = n_want,
                                .v_real = r->model.vocab,
                                .ldz = r->model.vocab,
                                .z = out,
                                .lse = r->lse,
                                .softcap = (float)r->model.logit_softcap};
    if (r->back->kernels->logit_stats.run(r->back->queue, &s) != LF_K_OK)
        return lf_fail(err, LF_EINVAL, "log-probabilities of %lld rows could not be computed", (long long)n_want);
    *result = (struct lf_gen_logits){out, r->model.vocab, r->lse};
    return 0;
}

int lf_runner_gen_model(lf_runner *r, lf_gen_model *out, lf_err *err)
{
    if (r->n_buckets == 0)
        return lf_fail(err, LF_EINVAL, "the runner was opened without generation");
    *out = (lf_gen_model){r, r->model.vocab, r->o.max_context, r->o.slots, r->o.max_rows, r->o.page_tokens,
                          r->n_pages, r->max_pages, r->prefix, step};
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

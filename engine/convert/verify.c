/* SPDX-License-Identifier: Apache-2.0
 *
 * A checkpoint against expected logits, of a reward model every token's score: the model in f32,
 * one sequence at a time. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/convert/priv.h"
#include "engine/convert/verify_sight.h"
#include "engine/graph/exec.h"
#include "engine/model/decoder.h"
#include "engine/model/weights.h"
#include "engine/store/safetensors.h"

#define FORMAT "lf-expected-1"

struct verify {
    lf_st *expected;
    const lf_st_entry *ids, *logits, *prefix;
    int64_t batch, length, vocab; /* vocab: of the model */
    int64_t width;                /* of a row of the file: vocab, or 1: a score for each token */
    lf_decoder *dec;
    lf_pstore *ps;
    lf_plan *plan;
    lf_back *back;
    lf_exec *exec;
    int chain;
    bool sees;
    struct lf_verify_sight sight;
    double max, most, sum, sum_ref;
};

/* ---- the file ---- */

static int bad_file(const char *path, const char *what, lf_err *err)
{
    return lf_fail(err, LF_EFORMAT, "%s: %s; such a file is written by expected.py", path, what);
}

static int open_expected(struct verify *v, const char *path, lf_err *err)
{
    int rc = lf_st_open(&v->expected, path, err);
    if (rc != 0)
        return rc;
    const char *format = lf_st_meta(v->expected, "format");
    v->ids = lf_st_find(v->expected, "input_ids");
    v->logits = lf_st_find(v->expected, "logits");
    v->prefix = lf_st_find(v->expected, "prefix");
    if (!format || strcmp(format, FORMAT) != 0)
        return bad_file(path, "its metadata does not say format = " FORMAT, err);
    if (!v->ids || v->ids->dtype != LF_ST_I64 || v->ids->ndim != 2)
        return bad_file(path, "there is no input_ids, I64 [batch, length]", err);
    v->batch = v->ids->shape[0];
    v->length = v->ids->shape[1];
    if (!v->logits || (v->logits->dtype != LF_ST_F64 && v->logits->dtype != LF_ST_F32) ||
        v->logits->ndim != 3 || v->logits->shape[0] != v->batch ||
        v->logits->shape[1] != v->length || v->logits->elems == 0)
        return bad_file(path,
                        "there is no logits, F64 or F32 [batch, length, vocabulary], of a reward "
                        "model [batch, length, 1]",
                        err);
    if (v->prefix &&
        (v->prefix->dtype != LF_ST_I64 || v->prefix->ndim != 1 || v->prefix->shape[0] != v->batch))
        return bad_file(path, "prefix is not I64 [batch]", err);
    v->width = v->logits->shape[2];
    return 0;
}

/* ---- the model ---- */

/* The rows of the file must be those that the model has. */
static int check_width(struct verify *v, const lf_model_config *c, lf_err *err)
{
    const bool score = c->output == LF_OUTPUT_SCORE;
    v->vocab = c->vocab;
    if (score && v->width != 1)
        return lf_fail(err, LF_EINVAL,
                       "the model gives one score a token, but the file has %lld numbers",
                       (long long)v->width);
    if (!score && v->width != c->vocab)
        return lf_fail(err, LF_EINVAL, "the expected logits are of %lld tokens, the model has %lld",
                       (long long)v->width, (long long)c->vocab);
    return 0;
}

static int open_model(struct verify *v, const char *dir, int threads, lf_err *err)
{
    lf_ckpt *ck = NULL;
    lf_model_config c;
    struct lf_decoder_rows rows = {.rows = v->length, .n_docs = 1};
    struct lf_plan_opts po = {.threads = threads, .compute = LF_F32, .mode = LF_INVARIANT};
    int rc = lf_ckpt_open(&ck, dir, threads, err);
    if (rc == 0)
        rc = lf_weights_config(&c, ck, err);
    if (rc == 0)
        rc = check_width(v, &c, err);
    if (rc == 0 && (c.mask == LF_MASK_PREFIX) !=
                       (v->prefix != NULL)) /* never compared as if there were none */
        rc = lf_fail(
            err, LF_EINVAL,
            v->prefix
                ? "the expected logits are of a prefix mask, which the model has not"
                : "the model has a prefix mask, and the expected logits do not say the prefixes");
    if (rc == 0 &&
        (!(v->dec = lf_decoder_create(&c, v->length, err)) || !(v->ps = lf_pstore_create(err))))
        rc = LF_EINVAL;
    v->sees = rc == 0 && c.vision.family;
    if (v->sees)
        rc = lf_verify_sight_open(&v->sight, v->expected, lf_decoder_config(v->dec), v->batch,
                                  v->length, err);
    rows.media = v->sees ? &v->sight.media : NULL;
    if (rc == 0)
        rc = lf_decoder_declare(v->dec, v->ps, err);
    if (rc == 0 && !(v->plan = lf_plan_create(v->ps, &po, err)))
        rc = LF_ENOMEM;
    lf_graph *g = rc != 0 ? NULL
                  : c.output == LF_OUTPUT_SCORE
                      ? lf_decoder_heads_graph(v->dec, v->ps, "verify", &rows,
                                               &(struct lf_decoder_heads){.score = true}, err)
                      : lf_decoder_logits_graph(v->dec, v->ps, "verify", &rows, err);
    if (rc == 0)
        rc = v->chain =
            g ? lf_plan_add(v->plan, g, &(struct lf_chain_opts){.eras = 1}, err) : LF_EINVAL;
    lf_graph_destroy(g);
    if (rc >= 0)
        rc = lf_plan_finish(v->plan, err);
    if (rc == 0 && !(v->back = lf_back_cpu_create(lf_target_host()->isa, threads, err)))
        rc = LF_ENOTSUP;
    if (rc == 0 && !(v->exec = lf_exec_create(v->plan, v->back, &(struct lf_exec_opts){0}, err)))
        rc = LF_EINVAL;
    if (rc == 0)
        rc = lf_weights_load(v->ps, ck, LF_WEIGHTS_PREFIX, false, err);
    lf_ckpt_close(ck);
    return rc;
}

static int write_i32(struct verify *v, const char *name, const int32_t *x, int64_t n, lf_err *err)
{
    return lf_exec_write(v->exec, v->chain, 0, name, x, (size_t)n * sizeof *x, err);
}

/* What models with a prefix mask and with two positions read besides. work: 2 * length integers. */
static int feed_prefix(struct verify *v, int64_t b, const int32_t *cu, int32_t *work, lf_err *err)
{
    int64_t n = 0;
    const lf_model_config *c = lf_decoder_config(v->dec);
    int rc = v->prefix ? lf_st_read(v->expected, v->prefix, b, 1, &n, err) : 0;
    int32_t prefix = (int32_t)n;
    if (rc == 0 && (n < 0 || n > v->length))
        rc = lf_fail(err, LF_EFORMAT, "prefix holds %lld, which does not fit %lld tokens",
                     (long long)n, (long long)v->length);
    if (rc == 0 && c->mask == LF_MASK_PREFIX)
        rc = write_i32(v, "prefix", &prefix, 1, err);
    if (rc != 0 || c->position != LF_POS_ROPE2D)
        return rc;
    lf_decoder_turns(cu, 1, &prefix, v->length, work, work + v->length);
    rc = write_i32(v, "turns", work, v->length, err);
    return rc != 0 ? rc : write_i32(v, "blocks", work + v->length, v->length, err);
}

/* Inputs of sequence b; work: 2 * length integers. */
static int feed(struct verify *v, int64_t b, int64_t *ids, int32_t *work, lf_err *err)
{
    int32_t cu[2] = {0, (int32_t)v->length}, *pos = work + v->length;
    int rc = lf_st_read(v->expected, v->ids, b * v->length, v->length, ids, err);
    for (int64_t t = 0; t < v->length && rc == 0; t++) {
        const bool picture = v->sees && ids[t] == v->sight.c->image_token;
        if (!picture && (ids[t] < 0 || ids[t] >= v->vocab))
            rc = lf_fail(err, LF_EFORMAT,
                         "input_ids holds %lld, which is no token of a vocabulary of %lld",
                         (long long)ids[t], (long long)v->vocab);
        work[t] = (int32_t)ids[t];
        pos[t] = (int32_t)t;
    }
    const struct lf_verify_in in = {v->exec, v->chain, work, pos};
    if (rc == 0)
        rc = v->sees ? lf_verify_sight_feed(&v->sight, b, &in, err)
                     : write_i32(v, "tokens", work, v->length, err);
    if (rc == 0)
        rc = write_i32(v, "positions", pos, v->length, err);
    if (rc == 0)
        rc = write_i32(v, "cu_seqlens", cu, 2, err);
    if (rc == 0)
        rc = lf_decoder_write_turns(
            v->dec, v->exec, v->chain,
            &(struct lf_decoder_docs){
                .cu_seqlens = cu, .n = 1, .rows = v->length, .pictures = v->sees},
            err);
    return rc != 0 ? rc : feed_prefix(v, b, cu, work, err);
}

static int compare_row(struct verify *v, int64_t b, float *got, double *want, lf_err *err)
{
    const bool score = lf_decoder_config(v->dec)->output == LF_OUTPUT_SCORE;
    int64_t n = v->length * v->width;
    int rc = lf_exec_read(v->exec, v->chain, 0, score ? "score" : "logits", got,
                          (size_t)n * sizeof *got, err);
    if (rc != 0)
        return rc;
    if (!score)
        lf_decoder_softcap(lf_decoder_config(v->dec), got, n);
    rc = lf_st_read(v->expected, v->logits, b * n, n, want, err);
    if (rc == 0 && v->logits->dtype == LF_ST_F32) /* widen in place, from the end */
        for (int64_t i = n - 1; i >= 0; i--) {
            float f;
            memcpy(&f, (const char *)want + i * 4, 4);
            want[i] = (double)f;
        }
    for (int64_t i = 0; i < n && rc == 0; i++) {
        double d = fabs((double)got[i] - want[i]);
        if (!isfinite(got[i]) || !isfinite(want[i]))
            return lf_fail(err, LF_ENUMERIC, "a logit of sequence %lld is not finite",
                           (long long)b);
        v->max = fmax(v->max, d);
        v->most = fmax(v->most, fabs(want[i]));
        v->sum += d * d;
        v->sum_ref += want[i] * want[i];
    }
    return rc;
}

static int run_all(struct verify *v, lf_err *err)
{
    int64_t n = v->length * v->width;
    int64_t *ids = lf_malloc((size_t)v->length, sizeof *ids, err);
    int32_t *work = lf_malloc((size_t)v->length, 2 * sizeof *work, err);
    float *got = lf_malloc((size_t)n, sizeof *got, err);
    double *want = lf_malloc((size_t)n, sizeof *want, err);
    int rc = ids && work && got && want ? 0 : LF_ENOMEM;
    for (int64_t b = 0; b < v->batch && rc == 0; b++) {
        rc = feed(v, b, ids, work, err);
        if (rc == 0)
            rc = lf_exec_run(v->exec, v->chain, LF_FWD, 0, LF_FIRST, err);
        if (rc == 0)
            rc = compare_row(v, b, got, want, err);
    }
    free(ids);
    free(work);
    free(got);
    free(want);
    return rc;
}

int lf_convert_verify(const char *checkpoint, const char *expected, int threads,
                      struct lf_convert_verdict *out, lf_err *err)
{
    struct verify v = {.chain = -1};
    int rc = open_expected(&v, expected, err);
    if (rc == 0)
        rc = open_model(&v, checkpoint, threads, err);
    if (rc == 0)
        rc = run_all(&v, err);
    if (rc == 0) {
        const struct lf_hf_family *f = lf_hf_family_for(lf_decoder_config(v.dec), NULL, NULL);
        *out = (struct lf_convert_verdict){.max = v.most > 0 ? v.max / v.most : v.max,
                                           .rms = v.sum_ref > 0 ? sqrt(v.sum / v.sum_ref)
                                                                : sqrt(v.sum),
                                           .tol_max = f ? f->tol_max : LF_HF_TOL_MAX,
                                           .tol_rms = f ? f->tol_rms : LF_HF_TOL_RMS,
                                           .tokens = v.batch * v.length};
    }
    lf_exec_destroy(v.exec);
    lf_back_destroy(v.back);
    lf_plan_destroy(v.plan);
    lf_pstore_destroy(v.ps);
    lf_decoder_destroy(v.dec);
    lf_verify_sight_close(&v.sight);
    lf_st_close(v.expected);
    return rc;
}

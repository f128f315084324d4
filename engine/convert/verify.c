/* SPDX-License-Identifier: Apache-2.0
 *
 * A checkpoint against expected logits, of a reward model every token's score: the model in f32,
 * one sequence at a time. Encoders of pictures without a decoder of text are in verify_lone.c,
 * towers of pictures and texts in verify_dual.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/convert/priv.h"
#include "engine/convert/verify.h"
#include "engine/convert/verify_sight.h"
#include "engine/model/weights.h"
#include "engine/store/safetensors.h"

#define FORMAT "lf-expected-1"

struct verify {
    const lf_st *expected; /* borrowed */
    const lf_st_entry *ids, *logits, *prefix, *types, *sources, *lengths;
    int64_t batch, length, vocab; /* vocab: of the model */
    int64_t width;                /* of a row of the file: vocab, or 1: a score for each token */
    struct lf_verify_model m;
    bool sees;
    struct lf_verify_sight sight;
    struct lf_verify_sum sum;
    /* of encoder-decoders: all sources behind each other and their places, and the longest */
    int32_t *source, *place;
    int64_t *starts; /* [batch + 1] */
    int64_t longest;
};

/* ---- what encoders share ---- */

int lf_verify_bad_file(const char *path, const char *what, lf_err *err)
{
    return lf_fail(err, LF_EFORMAT, "%s: %s; such a file is written by expected.py", path, what);
}

bool lf_verify_is_numbers(const lf_st_entry *e)
{
    return e && (e->dtype == LF_ST_F64 || e->dtype == LF_ST_F32) && e->ndim == 3 && e->elems > 0;
}

int lf_verify_declare(struct lf_verify_model *m, const lf_model_config *c, int64_t positions,
                      lf_err *err)
{
    m->chain = -1;
    if (!(m->dec = lf_decoder_create(c, positions, err)) || !(m->ps = lf_pstore_create(err)))
        return LF_EINVAL;
    return lf_decoder_declare(m->dec, m->ps, err);
}

int lf_verify_bind(struct lf_verify_model *m, lf_graph *g, const lf_ckpt *ck, int threads,
                   lf_err *err)
{
    const struct lf_plan_opts po = {.threads = threads, .compute = LF_F32, .mode = LF_INVARIANT};
    int rc = g ? 0 : LF_EINVAL;
    if (rc == 0 && !(m->plan = lf_plan_create(m->ps, &po, err)))
        rc = LF_ENOMEM;
    if (rc == 0)
        rc = m->chain = lf_plan_add(m->plan, g, &(struct lf_chain_opts){.eras = 1}, err);
    lf_graph_destroy(g);
    if (rc >= 0)
        rc = lf_plan_finish(m->plan, err);
    if (rc == 0 && !(m->back = lf_back_cpu_create(lf_target_host()->isa, threads, err)))
        rc = LF_ENOTSUP;
    if (rc == 0 && !(m->exec = lf_exec_create(m->plan, m->back, &(struct lf_exec_opts){0}, err)))
        rc = LF_EINVAL;
    return rc != 0 ? rc : lf_weights_load(m->ps, ck, LF_WEIGHTS_PREFIX, false, err);
}

void lf_verify_model_fini(struct lf_verify_model *m)
{
    lf_exec_destroy(m->exec);
    lf_back_destroy(m->back);
    lf_plan_destroy(m->plan);
    lf_pstore_destroy(m->ps);
    lf_decoder_destroy(m->dec);
}

int lf_verify_read(const lf_st *st, const lf_st_entry *e, int64_t first, int64_t n, double *out,
                   lf_err *err)
{
    const int rc = lf_st_read(st, e, first, n, out, err);
    if (rc == 0 && e->dtype == LF_ST_F32) /* widen in place, from the end */
        for (int64_t i = n - 1; i >= 0; i--) {
            float f;
            memcpy(&f, (const char *)out + i * 4, 4);
            out[i] = (double)f;
        }
    return rc;
}

int lf_verify_read_i32(const lf_st *st, const lf_st_entry *e, int64_t b, int32_t *out, lf_err *err)
{
    const int64_t n = e->elems / e->shape[0];
    int64_t *wide = lf_malloc((size_t)n, sizeof *wide, err);
    int rc = wide ? lf_st_read(st, e, b * n, n, wide, err) : LF_ENOMEM;
    for (int64_t i = 0; i < n && rc == 0; i++) {
        if (wide[i] < 0 || wide[i] > 1 << 20)
            rc = lf_fail(err, LF_EFORMAT, "%s holds %lld", e->name, (long long)wide[i]);
        out[i] = (int32_t)wide[i];
    }
    free(wide);
    return rc;
}

int lf_verify_compare(struct lf_verify_sum *s, const float *got, const double *want, int64_t n,
                      lf_err *err)
{
    for (int64_t i = 0; i < n; i++) {
        const double d = fabs((double)got[i] - want[i]);
        if (!isfinite(got[i]) || !isfinite(want[i]))
            return lf_fail(err, LF_ENUMERIC, "number %lld of %lld is not finite", (long long)i,
                           (long long)n);
        s->max = fmax(s->max, d);
        s->most = fmax(s->most, fabs(want[i]));
        s->sum += d * d;
        s->sum_ref += want[i] * want[i];
    }
    return 0;
}

/* ---- the file ---- */

static int find_tensors(struct verify *v, const char *path, lf_err *err)
{
    v->ids = lf_st_find(v->expected, "input_ids");
    v->logits = lf_st_find(v->expected, "logits");
    v->prefix = lf_st_find(v->expected, "prefix");
    v->types = lf_st_find(v->expected, "token_type_ids");
    v->sources = lf_st_find(v->expected, "source_ids");
    v->lengths = lf_st_find(v->expected, "source_lengths");
    if (!v->ids || v->ids->dtype != LF_ST_I64 || v->ids->ndim != 2)
        return lf_verify_bad_file(path, "there is no input_ids, I64 [batch, length]", err);
    v->batch = v->ids->shape[0];
    v->length = v->ids->shape[1];
    if (!lf_verify_is_numbers(v->logits) || v->logits->shape[0] != v->batch ||
        v->logits->shape[1] != v->length)
        return lf_verify_bad_file(
            path,
            "there is no logits, F64 or F32 [batch, length, vocabulary], of a reward "
            "model [batch, length, 1]",
            err);
    if (v->prefix &&
        (v->prefix->dtype != LF_ST_I64 || v->prefix->ndim != 1 || v->prefix->shape[0] != v->batch))
        return lf_verify_bad_file(path, "prefix is not I64 [batch]", err);
    if (v->types && (v->types->dtype != LF_ST_I64 || v->types->ndim != 2 ||
                     v->types->shape[0] != v->batch || v->types->shape[1] != v->length))
        return lf_verify_bad_file(path, "token_type_ids is not I64 [batch, length]", err);
    if (v->sources &&
        (v->sources->dtype != LF_ST_I64 || v->sources->ndim != 1 || !v->lengths ||
         v->lengths->dtype != LF_ST_I64 || v->lengths->ndim != 1 || v->lengths->elems != v->batch))
        return lf_verify_bad_file(
            path, "source_ids and source_lengths are not I64 [all sources] and [batch]", err);
    v->width = v->logits->shape[2];
    return 0;
}

/* ---- the model ---- */

/* The rows of the file must be those that the model has. */
static int check_width(struct verify *v, const lf_model_config *c, lf_err *err)
{
    const bool score = c->output != LF_OUTPUT_TOKENS;
    v->vocab = c->vocab;
    if (score && v->width != lf_model_scores(c))
        return lf_fail(
            err, LF_EINVAL,
            c->output == LF_OUTPUT_LABELS
                ? "the model gives %lld labels a token, but the file has %lld numbers"
                : "the model gives one score a token (%lld), but the file has %lld numbers",
            (long long)lf_model_scores(c), (long long)v->width);
    if (!score && v->width != c->vocab)
        return lf_fail(err, LF_EINVAL, "the expected logits are of %lld tokens, the model has %lld",
                       (long long)v->width, (long long)c->vocab);
    return 0;
}

static int check_prefix(const struct verify *v, const lf_model_config *c, lf_err *err)
{
    if ((c->mask == LF_MASK_PREFIX) == (v->prefix != NULL))
        return 0;
    return lf_fail(/* never compared as if there were none */
                   err, LF_EINVAL,
                   v->prefix ? "the expected logits are of a prefix mask, which the model has not"
                             : "the model has a prefix mask, and the expected logits do not say "
                               "the prefixes");
}

/* Where each source begins; they must cover source_ids. */
static int place_sources(struct verify *v, const char *name, lf_err *err)
{
    int rc = lf_st_read(v->expected, v->lengths, 0, v->batch, v->starts + 1, err);
    for (int64_t b = 1; b <= v->batch && rc == 0; b++) {
        if (v->starts[b] < 1 || v->starts[b] > v->sources->elems - v->starts[b - 1])
            rc = lf_fail(err, LF_EFORMAT, "%s holds %lld, which does not fit %lld tokens", name,
                         (long long)v->starts[b], (long long)v->sources->elems);
        v->longest = v->starts[b] > v->longest ? v->starts[b] : v->longest;
        v->starts[b] += v->starts[b - 1];
    }
    return rc;
}

/* The sources of an encoder-decoder. */
static int read_sources(struct verify *v, const lf_model_config *c, lf_err *err)
{
    if (lf_model_is_seq2seq(c) != (v->sources != NULL))
        return lf_fail(err, LF_EINVAL,
                       v->sources ? "the expected logits are of targets with sources, and the "
                                    "model is no encoder-decoder"
                                  : "the model is an encoder-decoder, and the expected logits do "
                                    "not say the sources (source_ids, source_lengths)");
    if (!v->sources)
        return 0;
    const int64_t n = v->sources->elems;
    v->starts = lf_calloc((size_t)v->batch + 1, sizeof *v->starts, err);
    v->source = v->starts ? lf_calloc((size_t)n, sizeof *v->source, err) : NULL;
    v->place = v->source ? lf_calloc((size_t)n, sizeof *v->place, err) : NULL;
    int64_t *ids = v->place ? lf_malloc((size_t)n, sizeof *ids, err) : NULL;
    int rc = ids ? place_sources(v, v->lengths->name, err) : LF_ENOMEM;
    rc = rc != 0 ? rc : lf_st_read(v->expected, v->sources, 0, n, ids, err);
    for (int64_t i = 0, b = 0; i < n && rc == 0; i++) {
        b += i == v->starts[b + 1] && b + 1 < v->batch;
        if (ids[i] < 0 || ids[i] >= c->vocab)
            rc = lf_fail(err, LF_EFORMAT,
                         "source_ids holds %lld, which is no token of a vocabulary of %lld",
                         (long long)ids[i], (long long)c->vocab);
        v->source[i] = (int32_t)ids[i];
        v->place[i] = (int32_t)(i - v->starts[b]);
    }
    free(ids);
    return rc;
}

static int open_model(struct verify *v, const lf_ckpt *ck, const lf_model_config *c, int threads,
                      lf_err *err)
{
    struct lf_decoder_rows rows = {.rows = v->length, .n_docs = 1};
    int rc = check_width(v, c, err);
    if (rc == 0)
        rc = read_sources(v, c, err);
    rows.source_rows = v->longest;
    if (rc == 0)
        rc = check_prefix(v, c, err);
    if (rc == 0)
        rc = lf_verify_declare(&v->m, c, v->length, err);
    v->sees = rc == 0 && c->vision.family;
    if (v->sees)
        rc = lf_verify_sight_open(&v->sight, v->expected, lf_decoder_config(v->m.dec), v->batch,
                                  v->length, err);
    if (rc != 0)
        return rc;
    rows.media = v->sees ? &v->sight.media : NULL;
    lf_graph *g = c->output != LF_OUTPUT_TOKENS
                      ? lf_decoder_heads_graph(v->m.dec, v->m.ps, "verify", &rows,
                                               &(struct lf_decoder_heads){.score = true}, err)
                      : lf_decoder_logits_graph(v->m.dec, v->m.ps, "verify", &rows, err);
    return lf_verify_bind(&v->m, g, ck, threads, err);
}

static int write_i32(struct verify *v, const char *name, const int32_t *x, int64_t n, lf_err *err)
{
    return lf_exec_write(v->m.exec, v->m.chain, 0, name, x, (size_t)n * sizeof *x, err);
}

/* What models with a prefix mask and with two positions read besides. work: 2 * length integers. */
static int feed_prefix(struct verify *v, int64_t b, const int32_t *cu, int32_t *work, lf_err *err)
{
    int64_t n = 0;
    const lf_model_config *c = lf_decoder_config(v->m.dec);
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

/* Turns, runs and types of sequence b; work: length integers. */
static int feed_turns(struct verify *v, int64_t b, const int32_t *cu, int32_t *work, lf_err *err)
{
    const int64_t kinds = lf_decoder_config(v->m.dec)->token_types;
    int rc = v->types ? lf_verify_read_i32(v->expected, v->types, b, work, err) : 0;
    for (int64_t t = 0; v->types && t < v->length && rc == 0; t++)
        if (work[t] >= kinds)
            rc = lf_fail(err, LF_EFORMAT, "token_type_ids holds %d, and the model has %lld types",
                         (int)work[t], (long long)kinds);
    const struct lf_decoder_docs docs = {.cu_seqlens = cu,
                                         .n = 1,
                                         .rows = v->length,
                                         .pictures = v->sees,
                                         .types = v->types ? work : NULL};
    return rc != 0 ? rc : lf_decoder_write_turns(v->m.dec, v->m.exec, v->m.chain, &docs, err);
}

/* The source of target b; rows behind it are of no document. */
static int feed_source(struct verify *v, int64_t b, lf_err *err)
{
    if (!v->sources)
        return 0;
    const int64_t first = v->starts[b], n = v->starts[b + 1] - first;
    const int32_t cu[2] = {0, (int32_t)n};
    int32_t *rows = lf_calloc((size_t)v->longest, 2 * sizeof *rows, err),
            *places = rows ? rows + v->longest : NULL;
    int rc = rows ? 0 : LF_ENOMEM;
    if (rc == 0) {
        memcpy(rows, v->source + first, (size_t)n * sizeof *rows);
        memcpy(places, v->place + first, (size_t)n * sizeof *rows);
        rc = write_i32(v, "source_tokens", rows, v->longest, err);
    }
    rc = rc != 0 ? rc : write_i32(v, "source_positions", places, v->longest, err);
    rc = rc != 0 ? rc : write_i32(v, "source_cu_seqlens", cu, 2, err);
    free(rows);
    return rc;
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
    const struct lf_verify_feed in = {v->m.exec, v->m.chain, work, pos};
    if (rc == 0)
        rc = v->sees ? lf_verify_sight_feed(&v->sight, b, &in, err)
                     : write_i32(v, "tokens", work, v->length, err);
    if (rc == 0)
        rc = write_i32(v, "positions", pos, v->length, err);
    if (rc == 0)
        rc = write_i32(v, "cu_seqlens", cu, 2, err);
    if (rc == 0)
        rc = feed_source(v, b, err);
    if (rc == 0)
        rc = feed_turns(v, b, cu, work, err);
    return rc != 0 ? rc : feed_prefix(v, b, cu, work, err);
}

static int compare_row(struct verify *v, int64_t b, float *got, double *want, lf_err *err)
{
    const lf_model_config *c = lf_decoder_config(v->m.dec);
    const bool score = c->output != LF_OUTPUT_TOKENS;
    const int64_t n = v->length * v->width;
    int rc = lf_exec_read(v->m.exec, v->m.chain, 0, score ? "score" : "logits", got,
                          (size_t)n * sizeof *got, err);
    if (rc != 0)
        return rc;
    if (!score)
        lf_decoder_softcap(c, got, n);
    rc = lf_verify_read(v->expected, v->logits, b * n, n, want, err);
    return rc != 0 ? rc : lf_verify_compare(&v->sum, got, want, n, err);
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
            rc = lf_exec_run(v->m.exec, v->m.chain, LF_FWD, 0, LF_FIRST, err);
        if (rc == 0)
            rc = compare_row(v, b, got, want, err);
    }
    free(ids);
    free(work);
    free(got);
    free(want);
    return rc;
}

/* Logits of tokens. */
static int verify_text(struct lf_verify_in *in, struct lf_convert_verdict *out, lf_err *err)
{
    struct verify v = {.expected = in->expected};
    int rc = find_tensors(&v, in->path, err);
    if (rc == 0)
        rc = open_model(&v, in->ck, &in->config, in->threads, err);
    if (rc == 0)
        rc = run_all(&v, err);
    *out = (struct lf_convert_verdict){.of = "tokens", .rows = v.batch * v.length};
    in->sum = v.sum;
    lf_verify_model_fini(&v.m);
    lf_verify_sight_close(&v.sight);
    free(v.source);
    free(v.place);
    free(v.starts);
    return rc;
}

static int open_expected(lf_st **st, const char *path, lf_err *err)
{
    const int rc = lf_st_open(st, path, err);
    if (rc != 0)
        return rc;
    const char *format = lf_st_meta(*st, "format");
    return format && strcmp(format, FORMAT) == 0
               ? 0
               : lf_verify_bad_file(path, "its metadata does not say format = " FORMAT, err);
}

int lf_convert_verify(const char *checkpoint, const char *expected, int threads,
                      struct lf_convert_verdict *out, lf_err *err)
{
    lf_st *st = NULL;
    lf_ckpt *ck = NULL;
    struct lf_verify_in in = {.path = expected, .threads = threads};
    int rc = open_expected(&st, expected, err);
    if (rc == 0)
        rc = lf_ckpt_open(&ck, checkpoint, threads, err);
    if (rc == 0)
        rc = lf_weights_config(&in.config, ck, err);
    in.expected = st;
    in.ck = ck;
    if (rc == 0)
        rc = lf_model_is_dual(&in.config) ? lf_verify_dual(&in, out, err)
             : in.config.vocab            ? verify_text(&in, out, err)
                                          : lf_verify_lone(&in, out, err);
    if (rc == 0) {
        const struct lf_hf_family *f = lf_hf_family_for(&in.config, NULL, NULL);
        const struct lf_verify_sum *s = &in.sum;
        out->max = s->most > 0 ? s->max / s->most : s->max;
        out->rms = s->sum_ref > 0 ? sqrt(s->sum / s->sum_ref) : sqrt(s->sum);
        out->tol_max = f ? f->tol_max : LF_HF_TOL_MAX;
        out->tol_rms = f ? f->tol_rms : LF_HF_TOL_RMS;
    }
    lf_ckpt_close(ck);
    lf_st_close(st);
    return rc;
}

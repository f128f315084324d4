/* SPDX-License-Identifier: Apache-2.0
 *
 * Two towers: description, parameters, graph, and the rows that pictures and texts are read at. */
#include "engine/model/dual.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/bf16.h"
#include "engine/base/mem.h"
#include "engine/model/config_priv.h"
#include "engine/model/decoder_priv.h"
#include "engine/model/sight_priv.h"

static bool attends(const lf_model_config *c)
{
    return c->dual.read == LF_DUAL_ATTENTION;
}

/* ---- description ---- */

static int refuse(const lf_model_config *c, const char *key, const char *why, lf_err *err)
{
    return lf_fail(err, LF_EINVAL, "%s: [model] %s: %s", lf_model_origin(c, key), key, why);
}

/* What a text tower has not so far, or has not at all. */
static int check_text(const lf_model_config *c, lf_err *err)
{
    static const char head[] =
        "the text tower of a model with dual.dim has no head over words: say "
        "tied_head = yes, and no head_bias and head_transform";
    const struct {
        const char *key;
        bool set;
        const char *why;
    } without[] = {
        {"tied_head", !c->tied_head, head},
        {"head_bias", c->head_bias, head},
        {"head_transform", c->head_transform, head},
        {"output", c->output != LF_OUTPUT_TOKENS, "texts become vectors (dual.dim); leave it out"},
        {"mask", c->mask != LF_MASK_CAUSAL && c->mask != LF_MASK_BOTH,
         "the tokens of texts see those before them or all: causal or both"},
        {"position", c->position != LF_POS_LEARNED,
         "the text tower of a model with dual.dim has learned positions"},
        {"token_types", c->token_types > 0, "a text is read alone, and has no types"},
        {"sliding_window", c->sliding_window > 0 || c->attn_chunk > 0, "texts are read whole"},
        {"embed_dim", c->embed_dim > 0, "the embedding of texts is as wide as the stream"},
        {"experts", c->experts > 0, "the text tower of a model with dual.dim has none so far"},
        {"mtp_layers", c->mtp_layers > 0, "texts predict no tokens"},
        {"encoder_layers", c->encoder_layers > 0, "the text tower is one stack"},
        {"embed_dropout", lf_decoder_has_dropout(c),
         "two passes over a text are compared, so nothing is left out at random: leave dropout "
         "out"},
    };
    for (size_t i = 0; i < sizeof without / sizeof *without; i++)
        if (without[i].set)
            return refuse(c, without[i].key, without[i].why, err);
    return lf_model_recurs(c) ? refuse(c, "layer_mixers", "the layers of texts attend", err) : 0;
}

int lf_dual_check(const lf_model_config *c, lf_err *err)
{
    const lf_vision_config *v = &c->vision;
    if (!attends(c) && !v->class_token)
        return refuse(c, "dual.read",
                      "this encoder has no class token (vision.class_token); say dual.read = "
                      "attention",
                      err);
    if (attends(c) && c->dual.dim != v->hidden)
        return refuse(c, "dual.dim",
                      "with dual.read = attention pictures are as wide as their encoder "
                      "(vision.hidden)",
                      err);
    if (attends(c) && v->mlp != LF_MLP_PLAIN)
        return refuse(c, "vision.mlp", "dual.read = attention has an MLP without a gate", err);
    if (v->distill_token || v->taps.n || v->read_states.n ||
        (v->read_layers && v->read_layers != v->layers))
        return refuse(c,
                      v->distill_token   ? "vision.distill_token"
                      : v->taps.n        ? "vision.taps"
                      : v->read_states.n ? "vision.read_states"
                                         : "vision.read_layers",
                      "pictures are read behind all layers of the encoder (dual.dim)", err);
    if (c->dual.padded && c->vocab && c->dual.pad_token >= c->vocab)
        return refuse(c, "dual.pad_token", "it is no word of the vocabulary", err);
    if (c->vocab && c->dual.end_token >= c->vocab)
        return refuse(c, "dual.end_token",
                      "it is no word of the vocabulary, so no text would be read at it", err);
    return check_text(c, err);
}

/* ---- parameters ---- */

enum kind { MATRIX, GAIN, VECTOR, NUMBER };

struct params {
    lf_pstore *ps; /* NULL: they are counted */
    double std, number;
    int64_t count;
    lf_err *err;
    int rc;
};

static void add(struct params *t, enum kind kind, const char *name, int64_t rows, int64_t cols)
{
    char whole[96];
    snprintf(whole, sizeof whole, "dual.%s", name);
    const struct lf_param_desc d = {.name = whole,
                                    .ndim = kind == MATRIX ? 2 : 1,
                                    .dims = {rows, kind == MATRIX ? cols : 0},
                                    .init = kind == MATRIX   ? LF_INIT_NORMAL
                                            : kind == GAIN   ? LF_INIT_ONE
                                            : kind == NUMBER ? LF_INIT_VALUE
                                                             : LF_INIT_ZERO,
                                    .init_std = (float)(kind == NUMBER ? t->number : t->std),
                                    .decay = kind == MATRIX};
    t->count += rows * (kind == MATRIX ? cols : 1);
    const int rc = t->rc || !t->ps ? t->rc : lf_pstore_add(t->ps, &d, t->err);
    t->rc = rc < 0 ? rc : 0;
}

static void add_linear(struct params *t, const char *name, int64_t rows, int64_t cols, bool bias)
{
    char whole[64];
    snprintf(whole, sizeof whole, "%s.weight", name);
    add(t, MATRIX, whole, rows, cols);
    snprintf(whole, sizeof whole, "%s.bias", name);
    if (bias)
        add(t, VECTOR, whole, rows, 0);
}

static void add_all(struct params *t, const lf_model_config *c)
{
    static const char *const heads[] = {"pool.q", "pool.k", "pool.v", "pool.o"};
    const int64_t C = c->vision.hidden;
    t->std = c->vision.init_std;
    if (!attends(c))
        add_linear(t, "image", c->dual.dim, C, false);
    if (attends(c)) {
        add(t, MATRIX, "pool.probe.weight", 1, C);
        for (int i = 0; i < 4; i++)
            add_linear(t, heads[i], C, C, true);
        add(t, GAIN, "pool.norm.weight", C, 0);
        add(t, VECTOR, "pool.norm.bias", C, 0);
        add_linear(t, "pool.up", c->vision.ffn, C, true);
        add_linear(t, "pool.down", C, c->vision.ffn, true);
    }
    t->std = c->init_std;
    add_linear(t, "text", c->dual.dim, c->hidden, c->dual.text_bias);
    t->number = c->dual.scale_init;
    add(t, NUMBER, "scale", 1, 0);
    t->number = c->dual.bias_init;
    if (c->dual.bias)
        add(t, NUMBER, "bias", 1, 0);
}

int64_t lf_dual_param_count(const lf_model_config *c)
{
    struct params t = {0};
    add_all(&t, c);
    return t.count;
}

int lf_dual_declare(const lf_model_config *c, lf_pstore *ps, lf_err *err)
{
    struct params t = {.ps = ps, .err = err};
    add_all(&t, c);
    return t.rc;
}

static int read_number(const lf_pstore *ps, const char *name, double *v, bool *kept, lf_err *err)
{
    const int i = lf_pstore_find(ps, name);
    struct lf_pview view;
    const void *data = NULL;
    void *copy = NULL;
    *v = 0;
    *kept = i >= 0 && lf_pstore_view(ps, i, lf_pstore_weights(ps, i), &view) == 1 && view.count;
    const int rc = *kept ? lf_pstore_host(ps, i, lf_pstore_weights(ps, i), &data, &copy, err) : 0;
    if (*kept && rc == 0 && view.dtype == LF_F32) {
        float x;
        memcpy(&x, data, sizeof x);
        *v = (double)x;
    } else if (*kept && rc == 0) {
        uint16_t x;
        memcpy(&x, data, sizeof x);
        *v = (double)lf_f32_of_bf16(x);
    }
    free(copy);
    return rc;
}

int lf_dual_numbers(const lf_pstore *ps, double v[2], bool kept[2], lf_err *err)
{
    static const char *const names[] = {"dual.scale", "dual.bias"};
    bool is[2];
    int rc = read_number(ps, names[0], &v[0], &is[0], err);
    if (rc == 0)
        rc = read_number(ps, names[1], &v[1], &is[1], err);
    if (kept)
        memcpy(kept, is, sizeof is);
    return rc;
}

/* ---- the graph ---- */

struct lf_dual_rows lf_dual_bounds(const lf_model_config *c, int64_t patches, int64_t tiles)
{
    struct lf_dual_rows r = {.media = lf_sight_bounds(c, patches, tiles, 1)};
    r.pairs = r.media.vision.images - 1;
    return r;
}

static int64_t text_rows(const lf_model_config *c, const struct lf_dual_rows *r)
{
    return r->pairs * c->max_positions;
}

/* Texts, and as many pieces of what is left of their rows. */
static int64_t text_docs(const struct lf_dual_rows *r)
{
    return 2 * r->pairs;
}

static lf_val linear(lf_graph *g, lf_val x, bool bias, const char *name)
{
    lf_val w = lf_paramf(g, "dual.%s.weight", name);
    return lf_linear(g, x, w, bias ? lf_paramf(g, "dual.%s.bias", name) : LF_NONE);
}

/* A learned query looks at all rows of its picture (Lee et al. 2019, arXiv:1810.00825). */
static lf_val pool(lf_graph *g, const lf_model_config *c, const struct lf_dual_rows *r, lf_val h)
{
    const lf_vision_config *v = &c->vision;
    const struct lf_mix probe = lf_mix_input(g, "dual.probe", r->pairs, 1, r->pairs);
    const struct lf_attn_opts o = {
        .heads = (int)v->heads,
        .groups = (int)v->heads,
        .scale = (float)(1 / sqrt((double)v->head_dim)),
        .max_doc = r->media.vision.max_image,
        .cu_queries = lf_input(g, "dual.queries", LF_I32, r->media.vision.images + 1, 1)};
    lf_val q = linear(g, lf_mix_rows(g, lf_param(g, "dual.pool.probe.weight"), &probe), true,
                      "pool.q"),
           k = linear(g, h, true, "pool.k"), x = linear(g, h, true, "pool.v");
    lf_val images = lf_input(g, "vision.cu_seqlens", LF_I32, r->media.vision.images + 1, 1);
    lf_val a = linear(g, lf_attention(g, q, k, x, images, LF_NONE, &o), true, "pool.o");
    const struct lf_norm_opts norm = {.eps = (float)v->norm_eps, .layer = true};
    lf_val n = lf_norm(g, a, lf_param(g, "dual.pool.norm.weight"),
                       lf_param(g, "dual.pool.norm.bias"), &norm);
    lf_val u = lf_act(g, linear(g, n, true, "pool.up"), (enum lf_act)v->activation);
    return lf_add(g, a, linear(g, u, true, "pool.down"));
}

static void output(lf_graph *g, lf_val x, bool train, const char *name)
{
    char grad[16];
    snprintf(grad, sizeof grad, "d%s", name);
    lf_pin_f32(g, x);
    if (train)
        lf_output_grad(g, x, name, grad);
    else
        lf_output(g, x, name);
}

static void see(lf_graph *g, const lf_decoder *d, const struct lf_dual_rows *r, bool train)
{
    const lf_model_config *c = &d->c;
    lf_val h = lf_vision_encode(d->vision, g, &r->media.vision, NULL, 0, NULL);
    if (attends(c)) {
        output(g, pool(g, c, r, h), train, "image");
        return;
    }
    const struct lf_mix read =
        lf_mix_input(g, "dual.read", r->pairs, r->media.vision.rows, r->pairs);
    output(g, linear(g, lf_mix_rows(g, h, &read), false, "image"), train, "image");
}

static void read_texts(lf_graph *g, const lf_model_config *c, const struct lf_dual_rows *r,
                       lf_val x, bool train)
{
    const struct lf_mix end = lf_mix_input(g, "dual.end", r->pairs, text_rows(c, r), r->pairs);
    output(g, linear(g, lf_mix_rows(g, x, &end), c->dual.text_bias, "text"), train, "text");
}

/* A parameter of one number, in f32 whatever the compute type is. */
static void number(lf_graph *g, const char *name, bool train)
{
    const struct lf_mix one = lf_mix_input(g, "dual.one", 1, 1, 1);
    output(g, lf_mix_rows(g, lf_paramf(g, "dual.%s", name), &one), train, name);
}

lf_graph *lf_dual_graph(const lf_decoder *d, lf_pstore *ps, const char *name,
                        const struct lf_dual_rows *r, bool train, lf_err *err)
{
    const lf_model_config *c = &d->c;
    const struct lf_decoder_rows rows = {
        .rows = text_rows(c, r), .n_docs = text_docs(r), .max_doc = c->max_positions};
    lf_val x = LF_NONE;
    if (!lf_model_is_dual(c)) {
        lf_fail(err, LF_EINVAL,
                "the model has no towers of pictures and texts: describe them with dual.dim, "
                "vision.family and the keys of a text model in [model]");
        return NULL;
    }
    lf_graph *g = r->no_texts ? lf_graph_create(ps, name, err)
                              : lf_dec_documents(d, ps, name, &rows, train, &x, err);
    if (!g)
        return NULL;
    if (!r->no_pictures)
        see(g, d, r, train);
    if (!r->no_texts)
        read_texts(g, c, r, x, train);
    if (!r->no_pictures && !r->no_texts) {
        number(g, "scale", train);
        if (c->dual.bias)
            number(g, "bias", train);
    }
    if (!lf_graph_check(g, err))
        return g;
    lf_graph_destroy(g);
    return NULL;
}

/* ---- pictures and texts as inputs ---- */

struct lf_dual_sight {
    lf_model_config c;
    struct lf_dual_rows r;
    lf_sight *sight;
    struct lf_sight_matrix read, probe, end, one;
    int32_t *queries;                 /* [images + 1] */
    int32_t *tokens, *positions, *cu; /* of texts */
    char *block;
};

static size_t lay_out(lf_dual_sight *s, struct lf_sight_block *b)
{
    const struct lf_vision_rows *v = &s->r.media.vision;
    const int64_t P = s->r.pairs, T = text_rows(&s->c, &s->r);
    if (attends(&s->c))
        lf_sight_carve_matrix(b, &s->probe, "dual.probe", P, 1, P);
    else
        lf_sight_carve_matrix(b, &s->read, "dual.read", P, v->rows, P);
    lf_sight_carve_matrix(b, &s->end, "dual.end", P, T, P);
    lf_sight_carve_matrix(b, &s->one, "dual.one", 1, 1, 1);
    s->queries = lf_sight_carve(b, v->images + 1, sizeof *s->queries);
    s->tokens = lf_sight_carve(b, T, sizeof *s->tokens);
    s->positions = lf_sight_carve(b, T, sizeof *s->positions);
    s->cu = lf_sight_carve(b, text_docs(&s->r) + 1, sizeof *s->cu);
    return b->used;
}

size_t lf_dual_sight_bytes(const lf_model_config *c, const struct lf_dual_rows *r)
{
    lf_dual_sight s = {.c = *c, .r = *r};
    struct lf_sight_block b = {0};
    return lay_out(&s, &b) + sizeof s + lf_sight_bytes(c, &r->media, 1);
}

lf_dual_sight *lf_dual_sight_create(const lf_model_config *c, const struct lf_dual_rows *r,
                                    lf_err *err)
{
    lf_dual_sight *s = lf_calloc(1, sizeof *s, err);
    if (!s)
        return NULL;
    struct lf_sight_block b = {0};
    s->c = *c;
    s->r = *r;
    s->block = lf_calloc(lay_out(s, &b), 1, err);
    s->sight = lf_sight_create(c, &r->media, 1, err);
    if (!s->block || !s->sight) {
        lf_dual_sight_destroy(s);
        return NULL;
    }
    b = (struct lf_sight_block){.at = s->block};
    lay_out(s, &b);
    lf_sight_begin(&s->one);
    lf_sight_entry(&s->one, 0, 1);
    lf_sight_end_row(&s->one);
    lf_sight_finish(&s->one);
    return s;
}

void lf_dual_sight_destroy(lf_dual_sight *s)
{
    if (!s)
        return;
    lf_sight_destroy(s->sight);
    free(s->block);
    free(s);
}

/* Which rows n pictures are read at. Queries that are none look at what is behind them. */
static int add_pictures(lf_dual_sight *s, int32_t n, int rc)
{
    struct lf_sight_matrix *m = attends(&s->c) ? &s->probe : &s->read;
    if (rc != 0)
        return rc;
    lf_sight_begin(m);
    for (int32_t i = 0; i < n; i++) {
        lf_sight_entry(m, attends(&s->c) ? 0 : s->sight->images[i], 1);
        lf_sight_end_row(m);
    }
    lf_sight_finish(m);
    for (int64_t i = 0; i <= s->r.media.vision.images; i++)
        s->queries[i] = (int32_t)(i <= n ? i : s->r.pairs);
    return 0;
}

int lf_dual_sight_fill(lf_dual_sight *s, const struct lf_sight_batch *b, lf_err *err)
{
    return add_pictures(s, b->n_tiles, lf_sight_rows(s->sight, b, err));
}

int lf_dual_sight_fill_media(lf_dual_sight *s, const struct lf_sight_media *in, lf_err *err)
{
    return add_pictures(s, in->media->n_tiles, lf_sight_fill_encoder(s->sight, in, err));
}

static int check_text_tokens(const lf_dual_sight *s, const struct lf_dual_text *t, int64_t i,
                             lf_err *err)
{
    if (t->n < 1)
        return lf_fail(err, LF_EINVAL, "text %lld has no tokens", (long long)i);
    for (int64_t k = 0; k < t->n; k++)
        if (t->tokens[k] < 0 || t->tokens[k] >= s->c.vocab)
            return lf_fail(err, LF_EINVAL,
                           "text %lld: token %d is outside the model's vocabulary of %lld",
                           (long long)i, t->tokens[k], (long long)s->c.vocab);
    return 0;
}

/* Where a text is read whose n tokens stand from row `at` on. */
static int64_t read_at(const lf_dual_sight *s, int64_t at, int64_t n)
{
    for (int64_t k = 0; k < n && s->c.dual.end_token >= 0; k++)
        if (s->tokens[at + k] == s->c.dual.end_token)
            return at + k;
    return at + n - 1;
}

/* Appends a text at row `at`, cut or filled up; returns the row behind it. */
static int64_t add_text(lf_dual_sight *s, const struct lf_dual_text *t, int64_t at)
{
    const int64_t most = s->c.max_positions, there = t->n < most ? t->n : most,
                  all = s->c.dual.padded ? most : there;
    for (int64_t k = 0; k < all; k++) {
        s->tokens[at + k] = k >= there      ? (int32_t)s->c.dual.pad_token
                            : k + 1 < there ? t->tokens[k]
                                            : t->tokens[t->n - 1];
        s->positions[at + k] = (int32_t)k;
    }
    lf_sight_entry(&s->end, read_at(s, at, all), 1);
    lf_sight_end_row(&s->end);
    return at + all;
}

/* What is left of the rows is texts that nobody reads, none longer than others are. */
static void pad_texts(lf_dual_sight *s, int64_t n, int64_t at)
{
    const int64_t rows = text_rows(&s->c, &s->r), most = s->c.max_positions;
    for (int64_t k = at; k < rows; k++) {
        s->tokens[k] = 0;
        s->positions[k] = (int32_t)((k - at) % most);
    }
    for (int64_t i = n; i < text_docs(&s->r); i++) {
        at = at + most < rows ? at + most : rows;
        s->cu[i + 1] = (int32_t)at;
    }
}

int lf_dual_sight_texts(lf_dual_sight *s, const struct lf_dual_text *texts, int64_t n, lf_err *err)
{
    int64_t at = 0;
    int rc = 0;
    if (n > s->r.pairs)
        return lf_fail(err, LF_EINVAL, "%lld texts, but there is room for %lld", (long long)n,
                       (long long)s->r.pairs);
    for (int64_t i = 0; i < n && rc == 0; i++)
        rc = check_text_tokens(s, &texts[i], i, err);
    if (rc != 0)
        return rc;
    lf_sight_begin(&s->end);
    s->cu[0] = 0;
    for (int64_t i = 0; i < n; i++) {
        at = add_text(s, &texts[i], at);
        s->cu[i + 1] = (int32_t)at;
    }
    lf_sight_finish(&s->end);
    pad_texts(s, n, at);
    return 0;
}

const int32_t *lf_dual_sight_order(const lf_dual_sight *s)
{
    return lf_sight_patch_order(s->sight);
}

int lf_dual_sight_write_pixels(const lf_dual_sight *s, lf_exec *ex, int chain, int slot,
                               lf_err *err)
{
    return lf_sight_write_pixels(s->sight, ex, chain, slot, err);
}

static int write_pictures(const lf_dual_sight *s, const struct lf_sight_at *a, lf_err *err)
{
    const size_t queries = (size_t)(s->r.media.vision.images + 1) * sizeof *s->queries;
    int rc = lf_sight_write_encoder(s->sight, a->ex, a->chain, a->slot, err);
    if (rc != 0 || !attends(&s->c))
        return rc != 0 ? rc : lf_sight_write_matrix(a, &s->read, err);
    rc = lf_exec_write(a->ex, a->chain, a->slot, "dual.queries", s->queries, queries, err);
    return rc != 0 ? rc : lf_sight_write_matrix(a, &s->probe, err);
}

static int write_texts(const lf_dual_sight *s, const struct lf_sight_at *a, lf_err *err)
{
    const size_t i32 = sizeof(int32_t), rows = (size_t)text_rows(&s->c, &s->r) * i32;
    int rc = lf_exec_write(a->ex, a->chain, a->slot, "tokens", s->tokens, rows, err);
    if (rc == 0)
        rc = lf_exec_write(a->ex, a->chain, a->slot, "positions", s->positions, rows, err);
    if (rc == 0)
        rc = lf_exec_write(a->ex, a->chain, a->slot, "cu_seqlens", s->cu,
                           (size_t)(text_docs(&s->r) + 1) * i32, err);
    return rc != 0 ? rc : lf_sight_write_matrix(a, &s->end, err);
}

int lf_dual_sight_write(const lf_dual_sight *s, lf_exec *ex, int chain, int slot, lf_err *err)
{
    const struct lf_sight_at a = {ex, chain, slot};
    int rc = s->r.no_pictures ? 0 : write_pictures(s, &a, err);
    if (rc == 0 && !s->r.no_texts)
        rc = write_texts(s, &a, err);
    return rc != 0 || s->r.no_texts || s->r.no_pictures ? rc
                                                        : lf_sight_write_matrix(&a, &s->one, err);
}

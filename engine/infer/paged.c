/* SPDX-License-Identifier: Apache-2.0
 *
 * Segments of generation and their step function: see paged.h.
 */
#include "engine/infer/paged.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/graph/layout.h"
#include "engine/infer/paged_draw.h"

struct lf_paged {
    struct lf_paged_opts o;
    const lf_decoder *dec;
    const lf_model_config *mc;
    lf_exec *ex;
    lf_back *back;
    int n_buckets, chain[LF_PAGED_MAX_BUCKETS];
    int64_t rows[LF_PAGED_MAX_BUCKETS], select_rows[LF_PAGED_MAX_BUCKETS];
    int64_t n_pages, max_pages, most; /* most: wanted rows of a step */
    struct lf_paged_drafts {
        int chain[LF_PAGED_MAX_BUCKETS];
        int64_t row_bytes;                /* of what the final norm gives */
        unsigned char *hidden, *gathered; /* [largest bucket, row_bytes] */
        float *lse;
        int32_t *argmax;               /* [slots], memory of the plan on a device */
    } draft;                           /* with o.speculative */
    int32_t *tok, *pos, *seq, *select; /* [largest bucket] */
    float *lse;                        /* likewise */
    float *z;                          /* [slots, vocab] and */
    float *dev_lse; /* [slots]: where the host does not see logits, copies and memory of the plan */
    lf_paged_draw *draw; /* NULL: the host draws */
    int32_t *prefix;     /* [slots] with mask = prefix, else NULL */
    int32_t
        *turns; /* [2, largest bucket] with rope2d: turns, then blocks; with longrope the first */
    uint8_t *is_long; /* [slots] with longrope, else NULL */
    float *feature;   /* [largest bucket, widest input] of a model that sees, else NULL */
    int32_t *places;  /* [largest bucket, 3] with M-RoPE, else NULL */
    int32_t *runs;    /* [largest bucket, 2] with mask = image_blocks, else NULL */
    struct lf_paged_sources {
        int n_buckets, chain[LF_PAGED_MAX_BUCKETS];
        int64_t rows[LF_PAGED_MAX_BUCKETS]; /* the last holds the longest source */
        int64_t max_pages;
        int32_t *length;            /* [slots] tokens of a slot's source */
        int32_t *table;             /* [slots, max_pages]: pages of a source belong to its slot */
        int32_t *last;              /* [largest bucket] */
        int32_t *token, *pos, *seq; /* [longest source] */
        int32_t *cu;                /* [slots + 1] */
    } source;                       /* of an encoder-decoder */
};

#define LSE   "lse"   /* states of the plan: dev_lse; */
#define DRAFT "draft" /* lse and argmax of drafts */

/* ---- plan ---- */

static int settle(lf_paged *p, lf_err *err)
{
    struct lf_paged_opts *o = &p->o;
    if (o->page_tokens < LF_ATTN_TILE || o->page_tokens % LF_ATTN_TILE)
        return lf_fail(err, LF_EINVAL, "a page of %lld positions: it must be a multiple of %d",
                       (long long)o->page_tokens, LF_ATTN_TILE);
    p->most = o->speculative ? 2 * o->slots : o->slots;
    if (o->max_rows < p->most)
        o->max_rows = p->most;
    p->max_pages = (o->context + o->page_tokens - 1) / o->page_tokens;
    p->source.max_pages = lf_model_is_seq2seq(p->mc) ? p->max_pages : 0;
    int64_t tokens = o->kv_tokens > 0 ? o->kv_tokens : o->slots * p->max_pages * o->page_tokens;
    p->n_pages = (tokens + o->page_tokens - 1) / o->page_tokens;
    return 0;
}

/* Adds the graph g as the chain *chain of bucket k. */
static int add_chain(int *chain, lf_plan *plan, lf_graph *g, int k, lf_err *err)
{
    if (!g)
        return err && err->rc ? err->rc : LF_EINVAL;
    *chain = lf_plan_add(
        plan, g,
        &(struct lf_chain_opts){.eras = 1u << k, .packed = true, .whole = true, .no_fp8 = true},
        err);
    lf_graph_destroy(g);
    return *chain < 0 ? *chain : 0;
}

/* A graph for sources of up to so many tokens, as one more time of the plan. */
static int add_source(lf_paged *p, lf_plan *plan, lf_pstore *ps, int64_t rows, lf_err *err)
{
    struct lf_paged_sources *s = &p->source;
    const struct lf_decoder_paged d = {.n_seq = p->o.slots,
                                       .page_tokens = p->o.page_tokens,
                                       .cache = p->o.cache,
                                       .mode = lf_plan_mode(plan),
                                       .source_rows = rows,
                                       .n_source_pages = p->o.slots * s->max_pages,
                                       .max_source_pages = s->max_pages};
    char name[32];
    const int k = s->n_buckets, era = p->n_buckets + k;
    if (era >= LF_PAGED_MAX_BUCKETS)
        return lf_fail(err, LF_EINVAL, "sources of %lld tokens are too many", (long long)rows);
    snprintf(name, sizeof name, "source%lld", (long long)rows);
    const int rc =
        add_chain(&s->chain[k], plan, lf_decoder_source_graph(p->dec, ps, name, &d, err), era, err);
    s->rows[k] = rows;
    s->n_buckets += rc == 0;
    return rc;
}

enum { SHORT_SOURCE = 32 }; /* the least bucket */

static int plan_sources(lf_paged *p, lf_plan *plan, lf_pstore *ps, lf_err *err)
{
    struct lf_paged_sources *s = &p->source;
    const size_t slots = (size_t)p->o.slots, longest = (size_t)p->o.context;
    int rc = 0;
    for (int64_t rows = SHORT_SOURCE; rows < p->o.context && rc == 0; rows *= 2)
        rc = add_source(p, plan, ps, rows, err);
    if (rc == 0)
        rc = add_source(p, plan, ps, p->o.context, err);
    if (rc != 0)
        return rc;
    s->length = lf_calloc(slots, sizeof *s->length, err);
    s->table = lf_calloc(slots * (size_t)s->max_pages, sizeof *s->table, err);
    s->last = lf_calloc((size_t)p->o.max_rows, sizeof *s->last, err);
    s->token = lf_calloc(longest, sizeof *s->token, err);
    s->pos = lf_calloc(longest, sizeof *s->pos, err);
    s->seq = lf_calloc(longest, sizeof *s->seq, err);
    s->cu = lf_calloc(slots + 1, sizeof *s->cu, err);
    return s->length && s->table && s->last && s->token && s->pos && s->seq && s->cu ? 0
                                                                                     : LF_ENOMEM;
}

static int add_bucket(lf_paged *p, lf_plan *plan, lf_pstore *ps, int64_t rows, lf_err *err)
{
    char name[32];
    int k = p->n_buckets;
    int64_t select = rows < p->most ? rows : p->most;
    struct lf_decoder_paged d = {.rows = rows,
                                 .n_seq = p->o.slots,
                                 .max_pages = p->max_pages,
                                 .n_pages = p->n_pages,
                                 .page_tokens = p->o.page_tokens,
                                 .n_select = select,
                                 .cache = p->o.cache,
                                 .mode = lf_plan_mode(plan),
                                 .media = p->mc->vision.family != 0,
                                 .latent = !lf_plan_target(plan)->sm &&
                                           lf_decoder_keeps_latents(p->dec, ps, lf_plan_mode(plan)),
                                 .hidden = p->o.speculative,
                                 .source_rows = p->source.max_pages * p->o.page_tokens,
                                 .n_source_pages = p->o.slots * p->source.max_pages,
                                 .max_source_pages = p->source.max_pages};
    if (k == LF_PAGED_MAX_BUCKETS)
        return lf_fail(err, LF_EINVAL, "%lld rows in a step are too many",
                       (long long)p->o.max_rows);
    snprintf(name, sizeof name, "step%lld", (long long)rows);
    int rc =
        add_chain(&p->chain[k], plan, lf_decoder_paged_graph(p->dec, ps, name, &d, err), k, err);
    if (rc == 0 && p->o.speculative) {
        d.n_select = rows < p->o.slots ? rows : p->o.slots;
        snprintf(name, sizeof name, "draft%lld", (long long)rows);
        rc = add_chain(&p->draft.chain[k], plan, lf_decoder_draft_graph(p->dec, ps, name, &d, err),
                       k, err);
    }
    p->rows[k] = rows;
    p->select_rows[k] = select;
    p->n_buckets += rc == 0;
    return rc;
}

/* Of the inputs media.features and media.deep.N. */
static int64_t widest(const lf_model_config *c)
{
    const int64_t e = lf_model_embed_width(c);
    return e > c->hidden ? e : c->hidden;
}

int64_t lf_paged_feature_width(const lf_model_config *c)
{
    return c->vision.family ? lf_model_embed_width(c) + c->vision.taps.n * c->hidden : 0;
}

static int take_buffers(lf_paged *p, lf_err *err)
{
    size_t cap = (size_t)p->o.max_rows;
    p->tok = lf_calloc(cap, sizeof *p->tok, err);
    p->pos = lf_calloc(cap, sizeof *p->pos, err);
    p->seq = lf_calloc(cap, sizeof *p->seq, err);
    p->select = lf_calloc(cap, sizeof *p->select, err);
    p->lse = lf_calloc(cap, sizeof *p->lse, err);
    if (!p->tok || !p->pos || !p->seq || !p->select || !p->lse)
        return LF_ENOMEM;
    const int64_t wide = widest(p->mc);
    if (p->mc->vision.family && !(p->feature = lf_calloc(cap * (size_t)wide, sizeof(float), err)))
        return LF_ENOMEM;
    if (p->mc->rope_sections.n && !(p->places = lf_calloc(cap * 3, sizeof *p->places, err)))
        return LF_ENOMEM;
    if (p->mc->mask == LF_MASK_IMAGE_BLOCKS &&
        !(p->runs = lf_calloc(cap * 2, sizeof *p->runs, err)))
        return LF_ENOMEM;
    if (lf_decoder_switch(p->dec)) {
        p->is_long = lf_calloc((size_t)p->o.slots, sizeof *p->is_long, err);
        p->turns = lf_calloc(cap, sizeof *p->turns, err);
        return p->is_long && p->turns ? 0 : LF_ENOMEM;
    }
    if (p->mc->mask != LF_MASK_PREFIX)
        return 0;
    p->prefix = lf_calloc((size_t)p->o.slots, sizeof *p->prefix, err);
    p->turns = lf_calloc(2 * cap, sizeof *p->turns, err);
    return p->prefix && p->turns ? 0 : LF_ENOMEM;
}

/* What a step gives the head that drafts, and what that gives. */
static int take_drafts(lf_paged *p, bool device, lf_err *err)
{
    struct lf_paged_drafts *f = &p->draft;
    const size_t cap = (size_t)p->o.max_rows, slots = (size_t)p->o.slots;
    f->row_bytes = p->mc->hidden * (int64_t)lf_dtype_size(p->o.cache);
    f->hidden = lf_calloc(cap, (size_t)f->row_bytes, err);
    f->gathered = lf_calloc(cap, (size_t)f->row_bytes, err);
    if (!f->hidden || !f->gathered)
        return LF_ENOMEM;
    if (device)
        return 0; /* memory of the plan */
    f->lse = lf_calloc(slots, sizeof *f->lse, err);
    f->argmax = lf_calloc(slots, sizeof *f->argmax, err);
    return f->lse && f->argmax ? 0 : LF_ENOMEM;
}

/* Memory of the plan for what the head that drafts gives. */
static int plan_drafts(const lf_paged *p, lf_plan *plan, lf_pstore *ps, lf_err *err)
{
    if (lf_pstore_layout_of(ps)->tensor > 1)
        return lf_fail(err, LF_ENOTSUP,
                       "speculative = mtp: the head that drafts is not divided among ranks; take "
                       "tensor = 1, or leave speculative out");
    return lf_plan_target(plan)->sm
               ? lf_plan_state(plan, DRAFT, (size_t)p->o.slots * (sizeof(float) + sizeof(int32_t)),
                               err)
               : 0;
}

static struct lf_paged_draw_size draw_size(const lf_paged *p)
{
    return (struct lf_paged_draw_size){p->most, p->o.max_rows, p->mc->vocab};
}

int lf_paged_plan(lf_paged **out, lf_plan *plan, lf_pstore *ps, const lf_decoder *d,
                  const struct lf_paged_opts *o, lf_err *err)
{
    lf_paged *p = lf_calloc(1, sizeof *p, err);
    if (!p)
        return LF_ENOMEM;
    p->o = *o;
    p->dec = d;
    p->mc = lf_decoder_config(d);
    int rc = settle(p, err);
    const struct lf_paged_draw_size size = draw_size(p);
    for (int64_t rows = 1; rc == 0; rows *= 2) {
        rc = add_bucket(p, plan, ps, rows < p->o.max_rows ? rows : p->o.max_rows, err);
        if (rows >= p->o.max_rows)
            break;
    }
    if (rc == 0 && lf_plan_target(plan)->sm)
        rc = lf_plan_state(plan, LSE, (size_t)p->most * sizeof *p->dev_lse, err);
    if (rc == 0 && p->o.speculative)
        rc = plan_drafts(p, plan, ps, err);
    if (rc == 0 && p->o.speculative)
        rc = take_drafts(p, lf_plan_target(plan)->sm != 0, err);
    if (rc == 0 && lf_model_is_seq2seq(p->mc))
        rc = plan_sources(p, plan, ps, err);
    if (rc == 0)
        rc = lf_paged_draw_plan(plan, &size, err);
    if (rc == 0)
        rc = take_buffers(p, err);
    if (rc != 0)
        lf_paged_destroy(p);
    else
        *out = p;
    return rc;
}

void lf_paged_destroy(lf_paged *p)
{
    if (!p)
        return;
    lf_paged_draw_destroy(p->draw);
    const bool host = !p->dev_lse;
    void *const drafts[] = {p->draft.hidden, p->draft.gathered, host ? p->draft.lse : NULL,
                            host ? p->draft.argmax : NULL};
    for (size_t i = 0; i < sizeof drafts / sizeof drafts[0]; i++)
        free(drafts[i]);
    void *const blocks[] = {p->tok,           p->pos,          p->seq,
                            p->select,        p->lse,          p->z,
                            p->prefix,        p->turns,        p->is_long,
                            p->feature,       p->places,       p->runs,
                            p->source.length, p->source.table, p->source.last,
                            p->source.token,  p->source.pos,   p->source.seq,
                            p->source.cu};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
        free(blocks[i]);
    free(p);
}

int lf_paged_bind(lf_paged *p, lf_exec *ex, lf_back *back, lf_err *err)
{
    p->ex = ex;
    p->back = back;
    if (back->ops->host_visible)
        return 0;
    p->z = lf_malloc((size_t)p->most, (size_t)p->mc->vocab * sizeof *p->z, err);
    if (!p->z)
        return LF_ENOMEM;
    p->dev_lse = lf_exec_state(ex, LSE);
    if (!p->dev_lse)
        return lf_fail(err, LF_EINVAL, "generation was planned for the host, not for this device");
    if (p->o.speculative) {
        p->draft.lse = lf_exec_state(ex, DRAFT);
        p->draft.argmax = (int32_t *)(void *)(p->draft.lse + p->o.slots);
    }
    const struct lf_paged_draw_size size = draw_size(p);
    return lf_paged_draw_bind(&p->draw, ex, back, &size, p->n_buckets, err);
}

/* ---- a step ---- */

static int write_i32(lf_paged *p, int k, const char *name, const int32_t *v, int64_t n, lf_err *err)
{
    return lf_exec_write(p->ex, p->chain[k], 0, name, v, (size_t)n * sizeof *v, err);
}

/* Prefixes of the sequences, and where rope2d counts from. */
static int write_prefixes(lf_paged *p, int k, lf_err *err)
{
    const int64_t cap = p->rows[k];
    int rc = write_i32(p, k, "prefix", p->prefix, p->o.slots, err);
    if (rc != 0 || p->mc->position != LF_POS_ROPE2D)
        return rc;
    for (int64_t i = 0; i < cap; i++)
        lf_decoder_turn(p->pos[i], p->seq[i] < 0 ? 0 : p->prefix[p->seq[i]], &p->turns[i],
                        &p->turns[cap + i]);
    rc = write_i32(p, k, "turns", p->turns, cap, err);
    return rc != 0 ? rc : write_i32(p, k, "blocks", p->turns + cap, cap, err);
}

static int write_tables(lf_paged *p, int k, lf_err *err)
{
    for (int64_t i = 0; i < p->rows[k]; i++)
        p->turns[i] =
            lf_decoder_table_row(p->dec, p->pos[i], p->seq[i] >= 0 && p->is_long[p->seq[i]]);
    return write_i32(p, k, "turns", p->turns, p->rows[k], err);
}

/* One input of features: `width` floats of each row from `first` on; other rows are zeros. */
static int write_feature(lf_paged *p, int k, const char *name, const struct lf_gen_rows *in,
                         const int64_t part[2], lf_err *err)
{
    const int64_t cap = p->rows[k], first = part[0], width = part[1];
    memset(p->feature, 0, (size_t)(cap * width) * sizeof *p->feature);
    for (int64_t i = 0; in->feature && i < in->n; i++)
        if (in->feature[i])
            memcpy(p->feature + i * width, in->feature[i] + first,
                   (size_t)width * sizeof *p->feature);
    return lf_exec_write(p->ex, p->chain[k], 0, name, p->feature,
                         (size_t)(cap * width) * sizeof *p->feature, err);
}

/* Features of this step. Buckets share memory, so zeros are written too. */
static int write_features(lf_paged *p, int k, const struct lf_gen_rows *in, lf_err *err)
{
    const int64_t E = lf_model_embed_width(p->mc), C = p->mc->hidden;
    int rc = write_feature(p, k, "media.features", in, (int64_t[]){0, E}, err);
    for (int64_t t = 0; t < p->mc->vision.taps.n && rc == 0; t++) {
        char name[32];
        snprintf(name, sizeof name, "media.deep.%lld", (long long)t);
        rc = write_feature(p, k, name, in, (int64_t[]){E + t * C, C}, err);
    }
    return rc;
}

static int write_places(lf_paged *p, int k, const struct lf_gen_rows *in, lf_err *err)
{
    for (int64_t i = 0; i < 3 * p->rows[k]; i++)
        p->places[i] = i < 3 * in->n ? in->places[i] : 0;
    return write_i32(p, k, "places", p->places, 3 * p->rows[k], err);
}

static int write_runs(lf_paged *p, int k, const struct lf_gen_rows *in, lf_err *err)
{
    for (int64_t i = 0; i < 2 * p->rows[k]; i++)
        p->runs[i] = i < 2 * in->n ? in->runs[i] : 0;
    return write_i32(p, k, "runs", p->runs, 2 * p->rows[k], err);
}

/* The sources of this step's rows. */
static int write_sources(lf_paged *p, int k, lf_err *err)
{
    struct lf_paged_sources *s = &p->source;
    for (int64_t i = 0; i < p->rows[k]; i++)
        s->last[i] = p->seq[i] < 0 ? -1 : s->length[p->seq[i]] - 1;
    const int rc = write_i32(p, k, "source_last", s->last, p->rows[k], err);
    return rc != 0 ? rc : write_i32(p, k, "source_table", s->table, p->o.slots * s->max_pages, err);
}

/* Inputs of a step, padded to the bucket: unused rows have sequence -1, unused selections repeat
 * row 0. */
static int write_step(lf_paged *p, int k, const struct lf_gen_rows *in, lf_err *err)
{
    const int64_t cap = p->rows[k];
    bool drawn = false; /* tokens that the host does not know */
    for (int64_t i = 0; i < cap; i++) {
        p->tok[i] = i < in->n ? in->token[i] : 0;
        p->pos[i] = i < in->n ? in->pos[i] : 0;
        p->seq[i] = i < in->n ? in->seq[i] : -1;
        drawn = drawn || (p->tok[i] < 0 && p->tok[i] != LF_GEN_PICTURE);
    }
    for (int64_t i = 0; i < cap && !drawn; i++)
        p->tok[i] = p->tok[i] < 0 ? -1 : p->tok[i];
    for (int64_t i = 0; i < p->select_rows[k]; i++)
        p->select[i] = i < in->n_want ? in->want[i] : 0;
    int rc = drawn ? lf_paged_draw_tokens(p->draw, lf_exec_ptr(p->ex, p->chain[k], 0, "tokens"),
                                          p->tok, cap, err)
                   : write_i32(p, k, "tokens", p->tok, cap, err);
    if (rc == 0)
        rc = write_i32(p, k, "positions", p->pos, cap, err);
    if (rc == 0)
        rc = write_i32(p, k, "seq", p->seq, cap, err);
    if (rc == 0 && lf_model_attends(p->mc))
        rc = write_i32(p, k, "table", in->table, p->o.slots * p->max_pages, err);
    if (rc == 0)
        rc = write_i32(p, k, "select", p->select, p->select_rows[k], err);
    if (rc == 0 && p->is_long)
        rc = write_tables(p, k, err);
    if (rc == 0 && p->feature)
        rc = write_features(p, k, in, err);
    if (rc == 0 && p->places)
        rc = write_places(p, k, in, err);
    if (rc == 0 && p->runs)
        rc = write_runs(p, k, in, err);
    if (rc == 0 && p->source.n_buckets)
        rc = write_sources(p, k, err);
    return rc || !p->prefix ? rc : write_prefixes(p, k, err);
}

/* Logits and lse of the wanted rows that the host draws from, of all where nobody else can. */
static int copy_logits(lf_paged *p, const float *z, int64_t n_want, lf_err *err)
{
    const struct lf_back_ops *o = p->back->ops;
    const struct lf_sample_out *out = p->draw ? lf_paged_draw_asked(p->draw)->out : NULL;
    const int64_t v = p->mc->vocab;
    bool any = false;
    int rc = 0;
    for (int64_t i = 0, n; i < n_want && rc == 0;
         i += n + 1) { /* n rows in a piece, and the drawn one behind them */
        for (n = 0; i + n < n_want && !(out && out[i + n].token >= LF_SAMPLE_EMPTY); n++)
            any = true;
        if (n)
            rc = o->copy_out(p->back, p->z + i * v, z + i * v, (size_t)(n * v) * sizeof *z, err);
    }
    return rc || !any
               ? rc
               : o->copy_out(p->back, p->lse, p->dev_lse, (size_t)n_want * sizeof *p->lse, err);
}

static int stats_alone(const lf_paged *p, const struct lf_k_logit_stats *s, lf_err *err)
{
    const struct lf_kernels *k = p->back->kernels;
    if (k->logit_stats.run && k->logit_stats.check(s) == LF_K_OK &&
        k->logit_stats.run(p->back->queue, s) == LF_K_OK)
        return 0;
    return lf_fail(err, LF_EINVAL, "log-probabilities of %lld rows could not be computed on %s",
                   (long long)s->rows, k->family);
}

static struct lf_k_logit_stats stats_of(lf_paged *p, int k, int64_t n_want)
{
    return (struct lf_k_logit_stats){.rows = p->draw ? p->select_rows[k] : n_want,
                                     .v_real = p->mc->vocab,
                                     .ldz = p->mc->vocab,
                                     .z = lf_exec_ptr(p->ex, p->chain[k], 0, "logits"),
                                     .lse = p->dev_lse ? p->dev_lse : p->lse,
                                     .softcap = (float)p->mc->logit_softcap,
                                     .inv_temperature =
                                         p->o.temperature > 0 ? (float)(1 / p->o.temperature) : 0};
}

static int no_logits(const lf_paged *p, int k, lf_err *err)
{
    return lf_fail(err, LF_EINVAL, "the step of %lld rows has no logits", (long long)p->rows[k]);
}

static int finish_logits(lf_paged *p, int k, int64_t n_want, struct lf_gen_logits *out, lf_err *err)
{
    const struct lf_k_logit_stats s = stats_of(p, k, n_want);
    float *z = s.z;
    *out = (struct lf_gen_logits){p->dev_lse ? p->z : z, p->mc->vocab, p->lse};
    if (!n_want)
        return 0;
    if (!z)
        return no_logits(p, k, err);
    int rc = p->draw ? lf_paged_draw_run(p->draw, k, &s, n_want, err) : stats_alone(p, &s, err);
    return rc || !p->dev_lse ? rc : copy_logits(p, z, n_want, err);
}

/* The least bucket for so many rows; n_buckets: there is none. */
static int bucket_of(const lf_paged *p, int64_t rows, int64_t n_want)
{
    int k = 0;
    while (k < p->n_buckets && (p->rows[k] < rows || p->select_rows[k] < n_want))
        k++;
    return k;
}

static int too_many(const lf_paged *p, int64_t rows, lf_err *err)
{
    return lf_fail(err, LF_EINVAL, "a step of %lld rows is beyond the largest of %lld",
                   (long long)rows, (long long)p->o.max_rows);
}

/* Up to the logits; *bucket is the one that was run. */
static int run_rows(lf_paged *p, const struct lf_gen_rows *in, int *bucket, lf_err *err)
{
    const int k = bucket_of(p, in->n, in->n_want);
    if (k == p->n_buckets)
        return too_many(p, in->n, err);
    *bucket = k;
    int rc = write_step(p, k, in, err);
    if (rc == 0)
        rc = lf_exec_run(p->ex, p->chain[k], LF_FWD, 0, LF_FIRST, err);
    return rc != 0 || !p->o.speculative
               ? rc
               : lf_exec_read(p->ex, p->chain[k], 0, "hidden", p->draft.hidden,
                              (size_t)(p->rows[k] * p->draft.row_bytes), err);
}

static int step(void *ctx, const struct lf_gen_rows *in, struct lf_gen_logits *out, lf_err *err)
{
    int k = 0, rc = run_rows(ctx, in, &k, err);
    return rc != 0 ? rc : finish_logits(ctx, k, in->n_want, out, err);
}

/* ---- sources ---- */

static int write_source(lf_paged *p, int k, const char *name, const int32_t *v, int64_t n,
                        lf_err *err)
{
    return lf_exec_write(p->ex, p->source.chain[k], 0, name, v, (size_t)n * sizeof *v, err);
}

/* The graph's documents are the source, and padding. */
static int write_encoded(lf_paged *p, int k, int64_t slot, int64_t n, lf_err *err)
{
    struct lf_paged_sources *s = &p->source;
    const int64_t cap = s->rows[k];
    for (int64_t i = 0; i < cap; i++) {
        s->token[i] = i < n ? s->token[i] : 0;
        s->pos[i] = (int32_t)(i < n ? i : i - n);
        s->seq[i] = i < n ? (int32_t)slot : -1;
    }
    for (int64_t i = 0; i <= p->o.slots; i++)
        s->cu[i] = (int32_t)(i == 0 ? 0 : i == 1 ? n : cap);
    int rc = write_source(p, k, "source_tokens", s->token, cap, err);
    rc = rc != 0 ? rc : write_source(p, k, "source_positions", s->pos, cap, err);
    rc = rc != 0 ? rc : write_source(p, k, "source_seq", s->seq, cap, err);
    rc = rc != 0 ? rc : write_source(p, k, "source_cu_seqlens", s->cu, p->o.slots + 1, err);
    return rc != 0 ? rc
                   : write_source(p, k, "source_table", s->table, p->o.slots * s->max_pages, err);
}

static int encode(void *ctx, int64_t slot, int64_t n, const int32_t *source, size_t n_source,
                  lf_err *err)
{
    lf_paged *p = ctx;
    struct lf_paged_sources *s = &p->source;
    int k = 0;
    for (int64_t i = slot; i < slot + n; i++) {
        s->length[i] = (int32_t)n_source;
        for (int64_t page = 0; page < s->max_pages; page++)
            s->table[i * s->max_pages + page] = (int32_t)(slot * s->max_pages + page);
    }
    while (s->rows[k] < (int64_t)n_source)
        k++;
    memcpy(s->token, source, n_source * sizeof *source);
    const int rc = write_encoded(p, k, slot, (int64_t)n_source, err);
    return rc != 0 ? rc : lf_exec_run(p->ex, s->chain[k], LF_FWD, 0, LF_FIRST, err);
}

/* ---- drafts ---- */

static int write_draft(lf_paged *p, int k, const char *name, const int32_t *v, int64_t n,
                       lf_err *err)
{
    return lf_exec_write(p->ex, p->draft.chain[k], 0, name, v, (size_t)n * sizeof *v, err);
}

/* Inputs of the head, padded to the bucket. Its memory is that of the step, whose results are taken
 * first. */
static int write_drafts(lf_paged *p, int k, const struct lf_gen_drafts *in, lf_err *err)
{
    struct lf_paged_drafts *f = &p->draft;
    const int64_t cap = p->rows[k], select = cap < p->o.slots ? cap : p->o.slots;
    const size_t each = (size_t)f->row_bytes;
    memset(f->gathered, 0, (size_t)cap * each);
    for (int64_t i = 0; i < cap; i++) {
        p->tok[i] = i < in->n ? in->token[i] : 0;
        p->pos[i] = i < in->n ? in->pos[i] : 0;
        p->seq[i] = i < in->n ? in->seq[i] : -1;
        if (i < in->n)
            memcpy(f->gathered + (size_t)i * each, f->hidden + (size_t)in->from[i] * each, each);
    }
    for (int64_t i = 0; i < select; i++)
        p->select[i] = i < in->n_want ? in->want[i] : 0;
    int rc = write_draft(p, k, "tokens", p->tok, cap, err);
    rc = rc != 0 ? rc : write_draft(p, k, "positions", p->pos, cap, err);
    rc = rc != 0 ? rc : write_draft(p, k, "seq", p->seq, cap, err);
    rc = rc != 0 ? rc : write_draft(p, k, "table", in->table, p->o.slots * p->max_pages, err);
    rc = rc != 0 ? rc : write_draft(p, k, "select", p->select, select, err);
    if (rc == 0 && p->is_long) {
        for (int64_t i = 0; i < cap; i++)
            p->turns[i] =
                lf_decoder_table_row(p->dec, p->pos[i], p->seq[i] >= 0 && p->is_long[p->seq[i]]);
        rc = write_draft(p, k, "turns", p->turns, cap, err);
    }
    return rc != 0 ? rc
                   : lf_exec_write(p->ex, f->chain[k], 0, "hidden", f->gathered, (size_t)cap * each,
                                   err);
}

static int draft(void *ctx, const struct lf_gen_drafts *in, int32_t *token, lf_err *err)
{
    lf_paged *p = ctx;
    struct lf_paged_drafts *f = &p->draft;
    const int k = bucket_of(p, in->n, 0);
    if (k == p->n_buckets)
        return too_many(p, in->n, err);
    int rc = write_drafts(p, k, in, err);
    if (rc == 0)
        rc = lf_exec_run(p->ex, f->chain[k], LF_FWD, 0, LF_FIRST, err);
    if (rc != 0 || !in->n_want)
        return rc;
    const struct lf_k_logit_stats s = {.rows = in->n_want,
                                       .v_real = p->mc->vocab,
                                       .ldz = p->mc->vocab,
                                       .z = lf_exec_ptr(p->ex, f->chain[k], 0, "logits"),
                                       .lse = f->lse,
                                       .argmax = f->argmax,
                                       .softcap = (float)p->mc->logit_softcap};
    if (!s.z)
        return no_logits(p, k, err);
    rc = stats_alone(p, &s, err);
    return rc != 0 ? rc
                   : p->back->ops->copy_out(p->back, token, f->argmax,
                                            (size_t)in->n_want * sizeof *token, err);
}

static int begin(void *ctx, const struct lf_gen_rows *in, lf_err *err)
{
    lf_paged *p = ctx;
    int k = 0, rc = run_rows(p, in, &k, err);
    if (rc != 0)
        return rc;
    const struct lf_k_logit_stats s = stats_of(p, k, in->n_want);
    return in->n_want && !s.z ? no_logits(p, k, err)
                              : lf_paged_draw_begin(p->draw, k, &s, in->n_want, err);
}

static int end(void *ctx, struct lf_sample_out *out, lf_err *err)
{
    return lf_paged_draw_end(((lf_paged *)ctx)->draw, out, err);
}

void lf_paged_model(lf_paged *p, lf_gen_model *out)
{
    const bool ahead = p->draw && lf_paged_draw_ahead(p->draw);
    *out = (lf_gen_model){.ctx = p,
                          .profile = p->o.profile,
                          .vocab = p->mc->vocab,
                          .max_context = p->o.context,
                          .slots = p->o.slots,
                          .max_rows = p->o.max_rows,
                          .max_want = p->most,
                          .draft = p->o.speculative ? draft : NULL,
                          .page_tokens = p->o.page_tokens,
                          .n_pages = p->n_pages,
                          .max_pages = p->max_pages,
                          .prefix = p->prefix,
                          .prefix_last = p->mc->prefix_last,
                          .switch_at = lf_decoder_switch(p->dec),
                          .is_long = p->is_long,
                          .switching = p->o.switching,
                          .feature_width = lf_paged_feature_width(p->mc),
                          .places = p->places != NULL,
                          .recurrent = lf_model_recurs(p->mc),
                          .runs = p->runs != NULL,
                          .max_source = p->source.n_buckets ? p->o.context : 0,
                          .decoder_start = (int32_t)p->mc->decoder_start,
                          .encode = p->source.n_buckets ? encode : NULL,
                          .draws = p->draw ? lf_paged_draw_asked(p->draw) : NULL,
                          .step = step,
                          .begin = ahead ? begin : NULL,
                          .end = ahead ? end : NULL};
}

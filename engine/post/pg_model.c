/* SPDX-License-Identifier: Apache-2.0
 *
 * A model of reinforcement learning over packed documents: see pg_model.h. */
#include "engine/post/pg_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/infer/look.h"
#include "engine/infer/paged.h"
#include "engine/model/sight.h"
#include "engine/model/weights.h"

#define SCORE_WEIGHT "score.weight"

struct lf_pg_model {
    lf_model_config mc;
    struct lf_pg_model_spec s;
    lf_decoder *dec;
    lf_pstore *ps;
    lf_plan *plan;
    lf_back *back; /* borrowed */
    lf_exec *ex;
    /* packed */
    int chain, base, lm; /* base: without the adapter; lm: at temperature 1 */
    int64_t docs;
    int32_t *tokens, *targets, *positions, *cu, *reach, *prefixes;
    float *lp;       /* [3, rows]: log-probabilities, entropies, scores */
    float *dlp;      /* [3, rows]: their gradients */
    lf_arena *arena; /* of mine; NULL: no ranks divide rows */
    struct lf_own_rows mine;
    double scale;    /* of the loss */
    int passes;      /* of the micro-batch under way that have run: 1 forward, 2 both */
    bool broken;     /* one has failed, so this rank cannot do its part for the others */
    lf_paged *paged; /* NULL: it does not generate */
    /* pictures; seen NULL: there are none in packed documents */
    struct lf_decoder_media media;
    const lf_pictures *from;
    lf_seen *seen;
    lf_look *look; /* NULL: there are none in prompts */
};

static struct lf_decoder_rows rows_of(const lf_pg_model *m)
{
    return (struct lf_decoder_rows){.rows = m->mine.own,
                                    .n_docs = m->docs,
                                    .max_doc = m->s.context,
                                    .media = m->s.patches ? &m->media : NULL};
}

static int add_packed(lf_pg_model *m, lf_err *err)
{
    const struct lf_decoder_rows r = rows_of(m);
    struct lf_decoder_heads h = {.train = m->s.train,
                                 .logp = m->s.logp,
                                 .entropy = m->s.entropy,
                                 .score = m->s.score,
                                 .inv_temperature = 1 / m->s.temperature};
    lf_graph *g = lf_decoder_heads_graph(m->dec, m->ps, m->s.name, &r, &h, err);
    if (!g)
        return err && err->rc ? err->rc : LF_EINVAL;
    m->chain = lf_plan_add(m->plan, g,
                           &(struct lf_chain_opts){.train = m->s.train,
                                                   .recompute = m->s.recompute,
                                                   .slots = 1,
                                                   .eras = LF_PAGED_NEXT_ERA},
                           err);
    lf_graph_destroy(g);
    return m->chain < 0 ? m->chain : 0;
}

/* At temperature 1 the chain of the policy will do; otherwise there is one more, which gives to the
 * same gradients. */
static int add_lm(lf_pg_model *m, lf_err *err)
{
    const struct lf_decoder_rows r = rows_of(m);
    struct lf_decoder_heads h = {.train = true, .logp = true, .inv_temperature = 1};
    if (!(m->s.temperature < 1) && !(m->s.temperature > 1)) {
        m->lm = m->chain;
        return 0;
    }
    lf_graph *g = lf_decoder_heads_graph(m->dec, m->ps, "lm", &r, &h, err);
    if (!g)
        return err && err->rc ? err->rc : LF_EINVAL;
    m->lm = lf_plan_add(
        m->plan, g,
        &(struct lf_chain_opts){
            .train = true, .recompute = m->s.recompute, .slots = 1, .eras = LF_PAGED_NEXT_ERA << 2},
        err);
    lf_graph_destroy(g);
    return m->lm < 0 ? m->lm : 0;
}

/* Log-probabilities of the weights below the adapter. */
static int add_base(lf_pg_model *m, lf_err *err)
{
    struct lf_decoder_rows r = rows_of(m);
    struct lf_decoder_heads h = {.logp = true, .inv_temperature = 1 / m->s.temperature};
    r.adapter_off = true;
    lf_graph *g = lf_decoder_heads_graph(m->dec, m->ps, "base", &r, &h, err);
    if (!g)
        return err && err->rc ? err->rc : LF_EINVAL;
    m->base = lf_plan_add(m->plan, g,
                          &(struct lf_chain_opts){.slots = 1, .eras = LF_PAGED_NEXT_ERA << 1}, err);
    lf_graph_destroy(g);
    return m->base < 0 ? m->base : 0;
}

static int add_generation(lf_pg_model *m, lf_err *err)
{
    const struct lf_paged_opts p = {.context = m->s.context,
                                    .slots = m->s.slots,
                                    .max_rows = m->s.step_rows,
                                    .kv_tokens = m->s.kv_tokens,
                                    .page_tokens = m->s.page_tokens,
                                    .cache = m->s.compute,
                                    .temperature = m->s.temperature,
                                    .profile = m->s.profile};
    const struct lf_look_opts look = {.patches = m->s.prompt.patches,
                                      .tiles = m->s.prompt.tiles,
                                      .tokens = m->s.prompt.tokens,
                                      .eras = LF_PAGED_NEXT_ERA << 3};
    int rc = lf_paged_plan(&m->paged, m->plan, m->ps, m->dec, &p, err);
    return rc != 0 || !look.patches ? rc
                                    : lf_look_plan(&m->look, m->plan, m->ps, m->dec, &look, err);
}

static int features(void *look, const lf_gen_job *job, float *out, lf_err *err)
{
    return lf_look_run(look, job->media->pictures, out, err);
}

int lf_pg_model_gen(lf_pg_model *m, lf_gen_model *out, lf_err *err)
{
    if (!m->paged)
        return lf_fail(err, LF_EINVAL, "%s was planned without generation", m->s.name);
    lf_paged_model(m->paged, out);
    out->look = m->look;
    out->features = m->look ? features : NULL;
    return 0;
}

int lf_pg_model_hold(lf_pg_model *m, lf_err *err)
{
    return lf_exec_hold(m->ex, err);
}

/* The tensors of the model and its adapter, as a rank of this layout has them. */
static int declare(const lf_pg_model *m, lf_pstore *ps, const struct lf_layout *l, lf_err *err)
{
    int rc = lf_pstore_set_layout(ps, l, err);
    if (rc == 0)
        rc = lf_decoder_declare(m->dec, ps, err);
    if (rc == 0 && m->s.adapter)
        rc = lf_decoder_adapt(m->dec, ps, m->s.adapter, err);
    return rc;
}

static int make_plan(lf_pg_model *m, lf_err *err)
{
    struct lf_plan_opts po = {.target = lf_target_device(m->s.device),
                              .threads = m->s.threads,
                              .compute = m->s.compute,
                              .mode = m->s.fast ? LF_FAST : LF_INVARIANT,
                              .keep_master = m->s.train && !m->s.adapter};
    int rc = lf_model_heads_fit(&m->mc, po.target->head_dim, po.target->name, err);
    if (rc != 0)
        return rc;
    m->dec = lf_decoder_create(&m->mc, m->s.context, err);
    m->ps = m->dec ? lf_pstore_create(err) : NULL;
    if (!m->ps)
        return err && err->rc ? err->rc : LF_EINVAL;
    rc = declare(m, m->ps, &m->s.layout, err);
    for (size_t i = 0; i < m->s.n_freeze && rc == 0; i++)
        if (lf_pstore_freeze_matching(m->ps, m->s.freeze[i], true) == 0)
            rc = lf_fail(
                err, LF_EINVAL,
                "freeze = %s matches no tensor of the model; names are like layers.0.attn.q.weight",
                m->s.freeze[i]);
    for (size_t i = 0; i < m->s.n_lr_scale && rc == 0; i++)
        if (lf_pstore_lr_matching(m->ps, &m->s.lr_scale[i]) == 0)
            rc = lf_fail(err, LF_EINVAL, "lr_scale: %s matches no tensor of the model",
                         m->s.lr_scale[i].pattern);
    if (rc == 0 && !m->s.patches) { /* prompts have no pictures, so nothing reads these */
        lf_pstore_freeze(m->ps, "vision.", true);
        lf_pstore_freeze(m->ps, "projector.", true);
    }
    if (rc == 0 && !(m->plan = lf_plan_create(m->ps, &po, err)))
        rc = err && err->rc ? err->rc : LF_ENOMEM;
    if (rc == 0 && m->s.rows > 0)
        rc = add_packed(m, err);
    if (rc == 0 && m->s.lm)
        rc = add_lm(m, err);
    if (rc == 0 && m->s.reference)
        rc = add_base(m, err);
    if (rc == 0 && m->s.slots > 0)
        rc = add_generation(m, err);
    if (rc == 0 && m->s.train)
        rc = lf_plan_optimizer(m->plan, &m->s.adam, err);
    if (rc == 0 && (m->s.ranks.ranks > 1 || m->s.layout.tensor > 1))
        rc = lf_plan_data_parallel(m->plan, &m->s.ranks, err);
    return rc != 0 ? rc : lf_plan_finish(m->plan, err);
}

static int buffers(lf_pg_model *m, lf_err *err)
{
    size_t rows = (size_t)m->s.rows;
    m->tokens = lf_calloc(rows, sizeof *m->tokens, err);
    m->targets = lf_calloc(rows, sizeof *m->targets, err);
    m->positions = lf_calloc(rows, sizeof *m->positions, err);
    m->cu = lf_calloc((size_t)m->docs + 1, sizeof *m->cu, err);
    m->reach = lf_calloc((size_t)m->docs, sizeof *m->reach, err);
    m->prefixes = lf_calloc(lf_decoder_prefix_room(m->docs, m->s.rows), sizeof *m->prefixes, err);
    m->lp = lf_calloc(3 * rows, sizeof *m->lp, err);
    m->dlp = lf_calloc(3 * rows, sizeof *m->dlp, err);
    if (!m->tokens || !m->targets || !m->positions || !m->cu || !m->reach || !m->prefixes ||
        !m->lp || !m->dlp)
        return LF_ENOMEM;
    m->mine.layout = lf_pstore_layout_of(m->ps);
    if (m->s.layout.context > 1 && !(m->arena = lf_arena_create(err)))
        return LF_ENOMEM;
    if (m->arena && lf_own_rows_open(&m->mine, m->arena, 3 * sizeof(int32_t), sizeof(float), err))
        return LF_ENOMEM;
    return m->s.patches && rows ? lf_seen_create(&m->seen, &m->mc, &m->media, m->s.rows, err) : 0;
}

int lf_pg_model_create(lf_pg_model **out, const lf_model_config *mc,
                       const struct lf_pg_model_spec *s, lf_err *err)
{
    lf_pg_model *m = lf_calloc(1, sizeof *m, err);
    if (!m)
        return LF_ENOMEM;
    m->mc = *mc;
    m->s = *s;
    m->base = m->lm = -1;
    m->scale = 1;
    if (s->score) /* one number per token in the place of the head over the vocabulary */
        m->mc.output = LF_OUTPUT_SCORE;
    m->docs = s->rows / 2 < 1024 ? s->rows / 2 + 1 : 1024;
    const int context = s->layout.context > 1 ? s->layout.context : 1;
    m->mine = (struct lf_own_rows){.all = s->rows,
                                   .own = s->rows / context,
                                   .n_docs = m->docs,
                                   .causal = m->mc.mask != LF_MASK_BOTH};
    if (s->patches)
        m->media = lf_sight_bounds(&m->mc, s->patches, s->tiles, s->rows);
    m->media.own_rows = context > 1 ? m->mine.own : 0;
    int rc = make_plan(m, err);
    if (rc == 0)
        rc = buffers(m, err);
    if (rc != 0) {
        lf_err_prefix(err, "%s", s->name);
        lf_pg_model_destroy(m);
        return rc;
    }
    *out = m;
    return 0;
}

void lf_pg_model_destroy(lf_pg_model *m)
{
    if (!m)
        return;
    lf_paged_destroy(m->paged);
    lf_look_destroy(m->look);
    lf_seen_destroy(m->seen);
    lf_exec_destroy(m->ex);
    lf_plan_destroy(m->plan);
    lf_pstore_destroy(m->ps);
    lf_decoder_destroy(m->dec);
    void *blocks[] = {m->tokens, m->targets,  m->positions, m->cu,
                      m->reach,  m->prefixes, m->lp,        m->dlp};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        free(blocks[i]);
    lf_arena_destroy(m->arena);
    free(m);
}

int lf_pg_model_bind(lf_pg_model *m, lf_back *b, lf_err *err)
{
    m->back = b;
    m->ex = lf_exec_create(
        m->plan, b, &(struct lf_exec_opts){.profile = m->s.profile, .label = m->s.name}, err);
    if (m->ex && m->look)
        lf_look_bind(m->look, m->ex);
    if (m->ex && (!m->paged || !lf_paged_bind(m->paged, m->ex, b, err)))
        return 0;
    return err && err->rc ? lf_err_prefix(err, "%s", m->s.name) : LF_ENOMEM;
}

void lf_pg_model_share(lf_pg_model *m, lf_comm *context)
{
    m->mine.comm = context;
}

void lf_pg_model_see(lf_pg_model *m, const lf_pictures *from)
{
    m->from = from;
}

size_t lf_pg_model_host_bytes(const lf_pg_model *m)
{
    return m->seen ? lf_seen_bytes(&m->mc, &m->media, m->s.rows) : 0;
}

lf_pstore *lf_pg_model_store(const lf_pg_model *m)
{
    return m->ps;
}
lf_pstore *lf_pg_model_boxes(const lf_pg_model *m, const struct lf_layout *l, lf_err *err)
{
    lf_pstore *ps = lf_pstore_create(err);
    int rc = ps ? declare(m, ps, l, err) : LF_ENOMEM;
    if (rc == 0)
        return ps;
    lf_pstore_destroy(ps);
    return NULL;
}
lf_plan *lf_pg_model_get_plan(const lf_pg_model *m)
{
    return m->plan;
}
lf_exec *lf_pg_model_exec(const lf_pg_model *m)
{
    return m->ex;
}
/* ---- weights ---- */

static int load_kind(lf_pg_model *m, int i, const lf_ckpt *c, const char *name, enum lf_pkind kind,
                     lf_err *err)
{
    const lf_ckpt_entry *e = lf_ckpt_find(c, name, lf_pkind_name(kind));
    const struct lf_param_desc *d = lf_pstore_desc(m->ps, i);
    int64_t n = 1, have = 1;
    for (int k = 0; k < d->ndim; k++)
        n *= d->dims[k];
    for (int k = 0; e && k < e->ndim; k++)
        have *= e->shape[k];
    if (!e && kind == LF_P_MASTER &&
        strcmp(d->name, SCORE_WEIGHT) ==
            0) { /* a policy becomes a critic: its head begins at zero */
        float *zero = lf_calloc((size_t)n, sizeof *zero, err);
        int rc = zero ? lf_pstore_write(m->ps, i, LF_F32, zero, err) : LF_ENOMEM;
        free(zero);
        return rc;
    }
    if (!e)
        return lf_fail(err, LF_EINVAL, "%s holds no %s of %s", lf_ckpt_dir(c), lf_pkind_name(kind),
                       name);
    if (have != n)
        return lf_fail(err, LF_EINVAL, "%s: %s has another shape than the model", lf_ckpt_dir(c),
                       name);
    return lf_weights_read(m->ps, i, c, e, kind, err);
}

int lf_pg_model_load(lf_pg_model *m, const lf_ckpt *c, const char *prefix, bool moments,
                     lf_err *err)
{
    int rc = 0;
    for (int i = 0; i < lf_pstore_count(m->ps) && rc == 0; i++) {
        const struct lf_param_desc *d = lf_pstore_desc(m->ps, i);
        bool optimized = moments && m->s.train && !d->frozen && !(d->balance_rate > 0);
        if (d->adapter) /* lf_weights_load_adapter */
            continue;
        lf_buf name;
        lf_buf_init(&name);
        lf_buf_addf(&name, "%s%s", prefix, d->name);
        rc = lf_buf_check(&name, err);
        if (rc == 0)
            rc = load_kind(m, i, c, name.data, LF_P_MASTER, err);
        if (rc == 0 && optimized)
            rc = load_kind(m, i, c, name.data, LF_P_M, err);
        if (rc == 0 && optimized)
            rc = load_kind(m, i, c, name.data, LF_P_V, err);
        lf_buf_fini(&name);
    }
    return rc;
}

int lf_pg_model_init(lf_pg_model *m, uint64_t seed, lf_err *err)
{
    return lf_pstore_init(m->ps, seed, err);
}

int lf_pg_model_adapter_start(lf_pg_model *m, lf_err *err)
{
    return lf_exec_adapter_start(m->ex, err);
}

/* ---- packed documents ---- */

struct by_length {
    size_t n;
    uint32_t at;
};

static int longer_first(const void *a, const void *b)
{
    const struct by_length *x = a, *y = b;
    if (x->n != y->n)
        return x->n < y->n ? 1 : -1;
    return x->at < y->at ? -1 : 1;
}

/* Tiles that a micro-batch holds; what is left of the patches is an image of its own. */
static int64_t most_tiles(const lf_pg_model *m)
{
    return m->media.vision.images ? m->media.vision.images - 1 : 0;
}

struct bin {
    int64_t used, docs, patches, tiles;
};

static bool fits(const lf_pg_model *m, const struct bin *b, const struct lf_pg_doc *d)
{
    return b->used + (int64_t)d->n <= m->s.rows && b->docs < m->docs &&
           b->patches + d->patches <= m->media.vision.patches &&
           b->tiles + d->tiles <= most_tiles(m);
}

/* The bin of each document, the longest first into the first bin with room. Returns the number of
 * bins. */
static int64_t choose_bins(const lf_pg_model *m, const struct lf_pg_doc *docs,
                           const struct by_length *d, size_t n, struct bin *bins, uint32_t *bin_of)
{
    int64_t n_bins = 0;
    for (size_t i = 0; i < n; i++) {
        const struct lf_pg_doc *x = &docs[d[i].at];
        int64_t b = 0;
        while (b < n_bins && !fits(m, &bins[b], x))
            b++;
        if (b == n_bins)
            bins[n_bins++] = (struct bin){0};
        bins[b].used += (int64_t)x->n;
        bins[b].patches += x->patches;
        bins[b].tiles += x->tiles;
        bins[b].docs++;
        bin_of[d[i].at] = (uint32_t)b;
    }
    return n_bins;
}

int64_t lf_pg_pack(const lf_pg_model *m, const struct lf_pg_doc *docs, size_t n, uint32_t *order,
                   uint32_t *start, lf_err *err)
{
    struct by_length *d = lf_calloc(n + 1, sizeof *d, err);
    struct bin *bins = lf_calloc(n + 1, sizeof *bins, err);
    uint32_t *bin_of = lf_calloc(n + 1, sizeof *bin_of, err);
    int64_t n_bins = d && bins && bin_of ? 0 : LF_ENOMEM;
    for (size_t i = 0; i < n && n_bins >= 0; i++) {
        d[i] = (struct by_length){docs[i].n, (uint32_t)i};
        if ((int64_t)docs[i].n > m->s.rows || (int64_t)docs[i].n > m->s.context)
            n_bins = lf_fail(err, LF_EINVAL,
                             "a sequence of %zu tokens does not fit the %lld of a micro-batch and "
                             "the %lld of a sequence",
                             docs[i].n, (long long)m->s.rows, (long long)m->s.context);
    }
    if (n_bins == 0) {
        qsort(d, n, sizeof *d, longer_first);
        n_bins = choose_bins(m, docs, d, n, bins, bin_of);
        size_t k = 0;
        for (int64_t b = 0; b < n_bins; b++) {
            start[b] = (uint32_t)k;
            for (size_t i = 0; i < n; i++)
                if (bin_of[i] == (uint32_t)b)
                    order[k++] = (uint32_t)i;
        }
        start[n_bins] = (uint32_t)k;
    }
    free(d);
    free(bins);
    free(bin_of);
    return n_bins;
}

/* Returns how many rows the documents take. */
static size_t fill(lf_pg_model *m, struct lf_pg_doc *docs, const uint32_t *order, size_t n)
{
    size_t at = 0, rows = (size_t)m->s.rows;
    for (size_t k = 0; k < n; k++) {
        struct lf_pg_doc *d = &docs[order[k]];
        d->row = at;
        for (size_t t = 0; t < d->n; t++, at++) {
            m->tokens[at] = d->tokens[t];
            m->positions[at] = (int32_t)t;
            m->targets[at] = t + 1 < d->n && t + 1 >= d->trained ? d->tokens[t + 1] : -1;
        }
        m->cu[k + 1] = (int32_t)at;
        m->reach[k] = (int32_t)(d->reach ? d->reach : d->n);
    }
    for (size_t k = n + 1; k <= (size_t)m->docs; k++)
        m->cu[k] = (int32_t)at; /* empty documents: rows behind the last one are padding */
    for (size_t pad = at; pad < rows; pad++) {
        m->tokens[pad] = m->positions[pad] = 0;
        m->targets[pad] = -1;
    }
    return at;
}

/* Numbers of 4 bytes, one for each row: this rank's of them to an input, or an output of all. */
static int write_rows(const lf_pg_model *m, int chain, const char *name, const void *all,
                      lf_err *err)
{
    const struct lf_row_value v = {m->ex, chain, 0, name, sizeof(int32_t)};
    return lf_own_rows_write(&m->mine, &v, all, err);
}

static int read_rows(const lf_pg_model *m, int chain, const char *name, float *all, lf_err *err)
{
    const struct lf_row_value v = {m->ex, chain, 0, name, sizeof *all};
    return lf_own_rows_read(&m->mine, &v, all, 0, err);
}

/* Tokens, and the pictures of the documents that have some. */
static int write_tokens(lf_pg_model *m, int chain, const struct lf_pg_doc *docs,
                        const uint32_t *order, size_t n, lf_err *err)
{
    int rc = 0;
    if (!m->seen)
        return write_rows(m, chain, "tokens", m->tokens, err);
    lf_seen_begin(m->seen, m->from);
    for (size_t k = 0; k < n && rc == 0; k++)
        if (docs[order[k]].sees)
            rc = lf_seen_add(m->seen, docs[order[k]].doc, m->tokens, (int64_t)docs[order[k]].row,
                             err);
    const struct lf_seen_rows r = {m->tokens, m->positions, &m->mine};
    return rc != 0 ? rc : lf_seen_write(m->seen, m->ex, chain, &r, err);
}

/* A pass of the micro-batch under way. */
static int pass(lf_pg_model *m, int chain, enum lf_segment seg, enum lf_variant v, lf_err *err)
{
    const int rc = lf_exec_run(m->ex, chain, seg, 0, v, err);
    m->passes += rc == 0;
    m->broken = m->broken || rc != 0;
    return rc;
}

/* Is there something of pictures that is as long as the rows? Then it would be cut with these. */
static bool as_long_as_rows(const lf_pg_model *m)
{
    const struct lf_decoder_media *d = &m->media;
    const int64_t n[] = {d->vision.patches, d->vision.rows, d->vision.taps, d->features,
                         d->selected};
    bool is = false;
    for (size_t i = 0; m->seen && i < sizeof n / sizeof *n; i++)
        is = is || n[i] == m->s.rows;
    return is;
}

static int run_packed(lf_pg_model *m, int chain, struct lf_pg_doc *docs, const uint32_t *order,
                      size_t n, enum lf_variant v, lf_err *err)
{
    const int64_t live = (int64_t)fill(m, docs, order, n);
    if (!m->mine.row && !as_long_as_rows(m)) /* every rank has rows of its own, be they padding */
        lf_exec_live_rows(m->ex, chain, m->s.rows, live);
    int rc = lf_own_rows_find(&m->mine, m->cu, err);
    if (rc == 0)
        rc = write_tokens(m, chain, docs, order, n, err);
    if (rc == 0)
        rc = write_rows(m, chain, "positions", m->positions, err);
    if (rc == 0 && m->s.logp)
        rc = write_rows(m, chain, "targets", m->targets, err);
    if (rc == 0)
        rc = lf_own_rows_write_blocks(&m->mine, m->ex, chain, 0, err);
    if (rc == 0)
        rc = lf_exec_write(m->ex, chain, 0, "cu_seqlens", m->cu,
                           ((size_t)m->docs + 1) * sizeof *m->cu, err);
    const struct lf_decoder_docs d = {.cu_seqlens = m->cu,
                                      .n = m->docs,
                                      .rows = m->s.rows,
                                      .own = m->mine.row,
                                      .own_rows = m->mine.own,
                                      .pictures = m->seen != NULL,
                                      .reach = m->reach};
    rc = rc != 0 ? rc : lf_decoder_write_turns(m->dec, m->ex, chain, &d, err);
    rc = rc != 0
             ? rc
             : lf_decoder_write_prefixes(m->dec, m->ex, chain, &d, m->targets, m->prefixes, err);
    rc = rc != 0 ? rc
                 : lf_exec_record_write(m->ex,
                                        &(struct lf_step_record){.loss_scale = (float)m->scale,
                                                                 .inv_tokens = 1,
                                                                 .inv_batches = 1},
                                        err);
    if (m->mine.row) /* the others would wait within the pass for a rank that has failed */
        rc = lf_comm_agree_ok(m->mine.comm, rc, err);
    return rc != 0 ? rc : pass(m, chain, LF_FWD, v, err);
}

int lf_pg_forward_base(lf_pg_model *m, struct lf_pg_doc *docs, const uint32_t *order, size_t n,
                       lf_err *err)
{
    if (m->base < 0)
        return lf_fail(err, LF_EINVAL, "%s was planned without its base", m->s.name);
    int rc = run_packed(m, m->base, docs, order, n, LF_FIRST, err);
    return rc != 0 ? rc : read_rows(m, m->base, "lp", m->lp, err);
}

int lf_pg_forward_lm(lf_pg_model *m, struct lf_pg_doc *docs, const uint32_t *order, size_t n,
                     lf_err *err)
{
    if (m->lm < 0)
        return lf_fail(err, LF_EINVAL, "%s was planned without documents (lm)", m->s.name);
    int rc = run_packed(m, m->lm, docs, order, n, LF_ACCUM, err);
    return rc != 0 ? rc : read_rows(m, m->lm, "lp", m->lp, err);
}

void lf_pg_model_scale(lf_pg_model *m, double scale)
{
    m->scale = scale;
}

static void scale_gradients(lf_pg_model *m)
{
    for (size_t i = 0; i < 3 * (size_t)m->s.rows && (m->scale < 1 || m->scale > 1); i++)
        m->dlp[i] = (float)((double)m->dlp[i] * m->scale);
}

int lf_pg_backward_lm(lf_pg_model *m, enum lf_variant v, lf_err *err)
{
    if (m->lm == m->chain)
        return lf_pg_backward(m, v, err);
    scale_gradients(m);
    int rc = write_rows(m, m->lm, "dlp", m->dlp, err);
    return rc != 0 ? rc : pass(m, m->lm, LF_BWD, v, err);
}

int lf_pg_forward(lf_pg_model *m, struct lf_pg_doc *docs, const uint32_t *order, size_t n,
                  enum lf_variant v, lf_err *err)
{
    const size_t rows = (size_t)m->s.rows;
    int rc = run_packed(m, m->chain, docs, order, n, v, err);
    if (rc == 0 && m->s.logp)
        rc = read_rows(m, m->chain, "lp", m->lp, err);
    if (rc == 0 && m->s.entropy)
        rc = read_rows(m, m->chain, "entropy", m->lp + rows, err);
    if (rc == 0 && m->s.score)
        rc = read_rows(m, m->chain, "score", m->lp + 2 * rows, err);
    return rc;
}

const float *lf_pg_lp(const lf_pg_model *m)
{
    return m->s.logp ? m->lp : NULL;
}
const float *lf_pg_entropy(const lf_pg_model *m)
{
    return m->s.entropy ? m->lp + m->s.rows : NULL;
}
const float *lf_pg_score(const lf_pg_model *m)
{
    return m->s.score ? m->lp + 2 * m->s.rows : NULL;
}
float *lf_pg_dlp(lf_pg_model *m)
{
    return m->s.logp ? m->dlp : NULL;
}
float *lf_pg_dentropy(lf_pg_model *m)
{
    return m->s.entropy ? m->dlp + m->s.rows : NULL;
}
float *lf_pg_dscore(lf_pg_model *m)
{
    return m->s.score ? m->dlp + 2 * m->s.rows : NULL;
}

void lf_pg_zero_gradients(lf_pg_model *m)
{
    memset(m->dlp, 0, 3 * (size_t)m->s.rows * sizeof *m->dlp);
}

int lf_pg_backward(lf_pg_model *m, enum lf_variant v, lf_err *err)
{
    const size_t rows = (size_t)m->s.rows;
    scale_gradients(m);
    int rc = m->s.logp ? write_rows(m, m->chain, "dlp", m->dlp, err) : 0;
    if (rc == 0 && m->s.entropy)
        rc = write_rows(m, m->chain, "dentropy", m->dlp + rows, err);
    if (rc == 0 && m->s.score)
        rc = write_rows(m, m->chain, "dscore", m->dlp + 2 * rows, err);
    return rc != 0 ? rc : pass(m, m->chain, LF_BWD, v, err);
}

/* ---- in step with other ranks ---- */

static int chain_of(const lf_pg_model *m, enum lf_pg_chain which)
{
    return which == LF_PG_LM ? m->lm : which == LF_PG_BASE ? m->base : m->chain;
}

struct lf_plan_moved lf_pg_micro_tensor(const lf_pg_model *m)
{
    return lf_plan_pass_axis(m->plan, LF_AXIS_TENSOR, m->chain, true);
}

struct lf_plan_moved lf_pg_micro_context(const lf_pg_model *m)
{
    return lf_plan_pass_axis(m->plan, LF_AXIS_CONTEXT, m->chain, true);
}

double lf_pg_forward_bytes(const lf_pg_model *m, enum lf_pg_chain which)
{
    return lf_plan_pass_comm(m->plan, chain_of(m, which), false, false).bytes;
}

void lf_pg_micro_begin(lf_pg_model *m)
{
    m->passes = 0;
}

/* Gradients of zero, of a micro-batch without documents. */
static int nothing(lf_pg_model *m, lf_err *err)
{
    const uint32_t none = 0;
    int rc = lf_pg_forward(m, NULL, &none, 0, LF_FIRST, err);
    lf_pg_zero_gradients(m);
    return rc != 0 ? rc : lf_pg_backward(m, LF_FIRST, err);
}

int lf_pg_micro_end(lf_pg_model *m, enum lf_pg_chain which, bool train, enum lf_variant v, int rc,
                    lf_err *err)
{
    const int chain = chain_of(m, which);
    lf_err *why = rc != 0 ? NULL : err;
    int other = 0;
    if (m->broken || m->s.ranks.ranks <= 1)
        return rc;
    if (m->s.ranks.zero < 2) /* gradients are summed after the last micro-batch */
        return rc != 0 || !train || v != LF_FIRST || m->passes ? rc : nothing(m, err);
    if (m->passes < 1)
        other = lf_exec_idle(m->ex, chain, LF_FWD, v, why);
    if (other == 0 && train && m->passes < 2)
        other = lf_exec_idle(m->ex, chain, LF_BWD, v, why);
    return rc != 0 ? rc : other;
}

int lf_pg_step(lf_pg_model *m, const struct lf_adamw_opts *adam, int64_t n, double lr, double clip,
               struct lf_pg_step_result *out, lf_err *err)
{
    struct lf_step_record rec = {.step = (uint64_t)(n - 1),
                                 .seed = m->s.seed,
                                 .lr = (float)lr,
                                 .bias_corr1 = (float)(1 - pow((double)adam->beta1, (double)n)),
                                 .bias_corr2 = (float)(1 - pow((double)adam->beta2, (double)n)),
                                 .clip_norm = (float)clip,
                                 .loss_scale = (float)m->scale,
                                 .inv_tokens = 1,
                                 .inv_batches = 1};
    int rc = lf_exec_record_write(m->ex, &rec, err);
    if (rc == 0)
        rc = lf_exec_run(m->ex, LF_CHAIN_OPT, LF_OPT, 0, LF_FIRST, err);
    if (rc == 0)
        rc = lf_exec_record_read(m->ex, &rec, err);
    if (rc == 0)
        *out = (struct lf_pg_step_result){(double)rec.grad_norm, rec.skip != 0};
    return rc;
}

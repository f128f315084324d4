/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of the objective: see electra.h. */
#include "engine/train/electra.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/rng.h"
#include "engine/model/electra.h"

/* Rows of the head that are computed at once: their logits are in memory. */
enum { SAID = 128 };

enum { HIDDEN, GENERATOR, TOKENS, DISCRIMINATOR, RIGHT, REPLACED, N_SUMS };

struct lf_electra_train {
    struct lf_electra_train_opts o;
    lf_objective objective;
    const lf_decoder *d; /* of the graphs; borrowed */
    lf_electra *model;
    int read[2], say; /* chains: the generator in validation and in training; its head */
    int64_t rows, vocab, width;
    float *hidden;     /* [rows, width] of the generator */
    float *some;       /* [SAID, width] of those that are hidden */
    float *logits;     /* [SAID, vocab] */
    int64_t *at;       /* [rows] the hidden ones of them */
    int32_t *tokens;   /* [rows] with draws */
    bool *replaced;    /* [rows] */
    float *lp, *score; /* [rows], and in their place the slopes */
};

/* ---- numbers ---- */

int32_t lf_electra_draw(const float *logits, int64_t n, double u)
{
    double most = -INFINITY, all = 0, sum = 0;
    int64_t w = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, (double)logits[i]);
    for (int64_t i = 0; i < n; i++)
        all += exp((double)logits[i] - most);
    for (; w < n - 1; w++) {
        sum += exp((double)logits[w] - most);
        if (sum > u * all)
            break;
    }
    return (int32_t)w;
}

double lf_electra_chance(uint64_t seed, bool valid, int64_t sample, int64_t place)
{
    uint32_t r[4];
    lf_philox(r, seed, LF_SITE_ELECTRA + valid, (uint64_t)sample, (uint32_t)place);
    return ((double)(r[0] >> 5) * 67108864.0 + (double)(r[1] >> 6)) / 9007199254740992.0;
}

double lf_electra_loss(double z, bool replaced, double *slope)
{
    const double far = exp(-fabs(z)), p = z >= 0 ? 1 / (1 + far) : far / (1 + far);
    *slope = p - replaced;
    return fmax(z, 0) + log1p(far) - (replaced ? z : 0);
}

/* ---- the model ---- */

static int declare(void *user, const lf_decoder *d, lf_pstore *ps, lf_err *err)
{
    lf_electra_train *t = user;
    if (t->d != d) {
        lf_electra_destroy(t->model);
        t->d = d;
        t->model = lf_electra_create(d, t->o.seq_length, err);
    }
    return t->model ? lf_electra_declare(t->model, ps, err) : LF_EINVAL;
}

static void drop(lf_electra_train *t)
{
    void *const all[] = {t->hidden, t->some,     t->logits, t->at,
                         t->tokens, t->replaced, t->lp,     t->score};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    t->hidden = t->some = t->logits = t->lp = t->score = NULL;
    t->at = NULL;
    t->tokens = NULL;
    t->replaced = NULL;
}

static int make_room(lf_electra_train *t, lf_err *err)
{
    const size_t rows = (size_t)t->rows, width = (size_t)t->width;
    drop(t);
    t->hidden = lf_calloc(rows * width, sizeof *t->hidden, err);
    t->some = lf_calloc(SAID * width, sizeof *t->some, err);
    t->logits = lf_calloc(SAID * (size_t)t->vocab, sizeof *t->logits, err);
    t->at = lf_calloc(rows, sizeof *t->at, err);
    t->tokens = lf_calloc(rows, sizeof *t->tokens, err);
    t->replaced = lf_calloc(rows, sizeof *t->replaced, err);
    t->lp = lf_calloc(rows, sizeof *t->lp, err);
    t->score = lf_calloc(rows, sizeof *t->score, err);
    return t->hidden && t->some && t->logits && t->at && t->tokens && t->replaced && t->lp &&
                   t->score
               ? 0
               : LF_ENOMEM;
}

static size_t host_bytes(void *user)
{
    const lf_electra_train *t = user;
    return (size_t)t->rows *
               ((size_t)t->width * sizeof *t->hidden + sizeof *t->at + sizeof *t->tokens +
                sizeof *t->replaced + sizeof *t->lp + sizeof *t->score) +
           SAID * (size_t)(t->width + t->vocab) * sizeof(float);
}

static lf_graph *graph(void *user, const lf_decoder *d, lf_pstore *ps, const char *name,
                       const struct lf_decoder_rows *r, bool train, lf_err *err)
{
    lf_electra_train *t = user;
    t->rows = r->rows;
    t->vocab = lf_decoder_config(d)->vocab;
    t->width = lf_electra_width(t->model);
    return lf_electra_graph(t->model, ps, name, r, train, err);
}

static int add(int *chain, lf_plan *plan, lf_graph *g, lf_err *err)
{
    if (!g)
        return err ? err->rc : LF_EINVAL;
    *chain = lf_plan_add(plan, g, &(struct lf_chain_opts){.eras = LF_TRAIN_ERA_OBJECTIVE}, err);
    lf_graph_destroy(g);
    return *chain < 0 ? *chain : 0;
}

/* The passes that the draws come from. */
static int plan(void *user, lf_pstore *ps, lf_plan *p, const struct lf_decoder_rows *r, bool valid,
                lf_err *err)
{
    lf_electra_train *t = user;
    int rc = add(&t->say, p, lf_electra_say_graph(t->model, ps, "say", SAID, err), err);
    for (int train = !valid; train < 2 && rc == 0; train++)
        rc = add(&t->read[train], p,
                 lf_electra_read_graph(t->model, ps, train ? "read" : "read valid", r, train, err),
                 err);
    return rc;
}

/* ---- a micro-batch ---- */

/* Of n hidden rows a word for each. */
static int draw_some(lf_electra_train *t, const struct lf_train_view *v, const int64_t *at,
                     int64_t n, lf_err *err)
{
    const lf_loader_batch *b = v->batch;
    const size_t each = (size_t)t->width * sizeof *t->some;
    for (int64_t i = 0; i < n; i++)
        memcpy(t->some + i * t->width, t->hidden + at[i] * t->width, each);
    memset(t->some + n * t->width, 0, (size_t)(SAID - n) * each);
    int rc = lf_exec_write(v->ex, t->say, 0, "hidden", t->some, SAID * each, err);
    if (rc == 0)
        rc = lf_exec_run(v->ex, t->say, LF_FWD, 0, LF_FIRST, err);
    if (rc == 0)
        rc = lf_exec_read(v->ex, t->say, 0, "logits", t->logits,
                          SAID * (size_t)t->vocab * sizeof *t->logits, err);
    if (rc != 0)
        return rc;
#pragma omp parallel for schedule(static) num_threads(t->o.threads)
    for (int64_t i = 0; i < n; i++) {
        const int64_t r = at[i];
        const double u =
            lf_electra_chance(t->o.seed, v->valid_split, b->sample_ids[r / b->T], r % b->T);
        t->tokens[r] = lf_electra_draw(t->logits + i * t->vocab, t->vocab, u);
        t->replaced[r] = t->tokens[r] != b->targets[r];
    }
    return 0;
}

/* The generator reads the micro-batch, and its draws stand for what is hidden. */
static int draw(lf_electra_train *t, const struct lf_train_view *v, lf_err *err)
{
    const int chain = t->read[v->train];
    const lf_loader_batch *b = v->batch;
    int64_t n = 0;
    int rc = lf_train_view_inputs(v, chain, false, err);
    if (rc == 0)
        rc = lf_exec_run(v->ex, chain, LF_FWD, 0, LF_FIRST, err);
    if (rc == 0)
        rc = lf_exec_read(v->ex, chain, 0, "hidden", t->hidden,
                          (size_t)(t->rows * t->width) * sizeof *t->hidden, err);
    for (int64_t r = 0; r < t->rows; r++) {
        t->tokens[r] = b->tokens[r];
        t->replaced[r] = false;
        if (b->targets[r] >= 0)
            t->at[n++] = r;
    }
    for (int64_t first = 0; first < n && rc == 0; first += SAID)
        rc = draw_some(t, v, t->at + first, n - first < SAID ? n - first : SAID, err);
    return rc;
}

static int inputs(void *user, const struct lf_train_view *v, lf_err *err)
{
    lf_electra_train *t = user;
    const size_t bytes = (size_t)t->rows * sizeof *t->tokens;
    int rc = t->hidden ? 0 : make_room(t, err);
    if (rc == 0)
        rc = draw(t, v, err);
    if (rc == 0)
        rc = lf_train_view_inputs(v, v->chain, true, err);
    if (rc == 0)
        rc = lf_exec_write(v->ex, v->chain, v->slot, "hidden_tokens", v->batch->tokens, bytes, err);
    return rc != 0 ? rc : lf_exec_write(v->ex, v->chain, v->slot, "tokens", t->tokens, bytes, err);
}

/* The rows of a document. */
static void add_document(lf_electra_train *t, const struct lf_train_view *v, int32_t s,
                         double *sums)
{
    const lf_loader_batch *b = v->batch;
    double slope;
    for (int64_t r = b->cu_seqlens[s]; r < b->cu_seqlens[s + 1]; r++) {
        const double z = (double)t->score[r];
        if (b->targets[r] >= 0) {
            sums[HIDDEN] += 1;
            sums[GENERATOR] -= (double)t->lp[r];
        }
        sums[TOKENS] += 1;
        sums[DISCRIMINATOR] += lf_electra_loss(z, t->replaced[r], &slope);
        sums[RIGHT] += (z > 0) == t->replaced[r];
        sums[REPLACED] += t->replaced[r];
        t->lp[r] = (float)(b->targets[r] >= 0 ? -v->inv_trained : 0);
        t->score[r] = (float)(t->o.weight * v->inv_units * slope);
    }
}

static int after_forward(void *user, const struct lf_train_view *v, double *sums, double *tops,
                         lf_err *err)
{
    lf_electra_train *t = user;
    const lf_loader_batch *b = v->batch;
    const size_t bytes = (size_t)t->rows * sizeof *t->lp;
    (void)tops;
    int rc = lf_exec_read(v->ex, v->chain, v->slot, "lp", t->lp, bytes, err);
    if (rc == 0)
        rc = lf_exec_read(v->ex, v->chain, v->slot, "score", t->score, bytes, err);
    for (int32_t s = 0; s < b->n_segs && rc == 0; s++) {
        const int64_t first = b->cu_seqlens[s], n = b->cu_seqlens[s + 1] - first;
        if (b->seg_doc[s] >= 0) {
            add_document(t, v, s, sums);
            continue;
        }
        memset(t->lp + first, 0, (size_t)n * sizeof *t->lp);
        memset(t->score + first, 0, (size_t)n * sizeof *t->score);
    }
    if (rc != 0 || !v->train)
        return rc;
    rc = lf_exec_write(v->ex, v->chain, v->slot, "dlp", t->lp, bytes, err);
    return rc != 0 ? rc : lf_exec_write(v->ex, v->chain, v->slot, "dscore", t->score, bytes, err);
}

static void means(void *user, const double *sums, const double *tops, double *out)
{
    const lf_electra_train *t = user;
    (void)tops;
    out[1] = sums[GENERATOR] / sums[HIDDEN];
    out[2] = sums[DISCRIMINATOR] / sums[TOKENS];
    out[0] = out[1] + t->o.weight * out[2];
    out[3] = sums[RIGHT] / sums[TOKENS];
    out[4] = sums[REPLACED] / sums[TOKENS];
}

/* ---- the object ---- */

#define MEASURES(b)                                                                                \
    {                                                                                              \
        b "loss", b "generator_loss", b "discriminator_loss", b "accuracy", b "replaced"           \
    }
enum { N_METRICS = 5 };
static const char *const metrics[N_METRICS] = MEASURES("");
static const char *const valid_metrics[N_METRICS] = MEASURES("valid_");

lf_electra_train *lf_electra_train_create(const struct lf_electra_train_opts *o, lf_err *err)
{
    lf_electra_train *t = lf_calloc(1, sizeof *t, err);
    if (!t)
        return NULL;
    t->o = *o;
    t->objective = (lf_objective){
        .user = t,
        .rows = LF_ROWS_PLAIN,
        .units = "tokens",
        .dropout = true,
        .declare = declare,
        .graph = graph,
        .plan = plan,
        .inputs = inputs,
        .host_bytes = host_bytes,
        .after_forward = after_forward,
        .n_sums = N_SUMS,
        .means = means,
        .metrics = metrics,
        .valid_metrics = valid_metrics,
        .n_metrics = N_METRICS,
        .n_shown = N_METRICS - 1,
        .identity = json_pack("{s:s, s:f}", "loss", "electra", "discriminator_weight", o->weight)};
    if (!t->objective.identity) {
        lf_fail(err, LF_ENOMEM, "out of memory");
        lf_electra_train_destroy(t);
        return NULL;
    }
    return t;
}

const lf_objective *lf_electra_train_objective(const lf_electra_train *t)
{
    return &t->objective;
}

void lf_electra_train_destroy(lf_electra_train *t)
{
    if (!t)
        return;
    json_decref(t->objective.identity);
    drop(t);
    lf_electra_destroy(t->model);
    free(t);
}

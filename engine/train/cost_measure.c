/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts of a model against the clock: see cost.h.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/rng.h"
#include "engine/base/sys.h"
#include "engine/train/cost.h"
#include "engine/train/pipe.h"

/* Rounds of a part: the first ones touch memory, and on a GPU record what later ones replay. */
enum { WARM = 1, WARM_GPU = 3, LEAST = 3, MOST = 25 };
#define ENOUGH_S 0.4 /* of measured rounds */

/* F B W, F Z, and the optimizer. */
enum { T_F, T_B, T_W, T_Z, T_UPDATE, TIMES };

/* The settings of a run whose pipeline stages are the parts. */
struct bench {
    struct lf_train_config c;
    const lf_model_config *mc;
    struct lf_train_who who; /* .pipeline: the part */
    const lf_comm *comm;
    lf_ramp_row batch;
    char *stages;       /* "0,1,1,0", owned */
    int32_t *prefix;    /* lf_trainer.prefix_buf, owned; NULL: the model has none */
    lf_loader_batch mb; /* owned arrays */
    char *in, *out;     /* messages: what a pass gets and what it gives, owned */
    size_t message;
    bool split;
};

/* ---- a micro-batch ---- */

/* The first b->mb.B documents have length rows each, the others none. */
static void fill_documents(const struct bench *b, int32_t *cu, size_t docs, int32_t length)
{
    for (size_t d = 0; d <= docs; d++)
        cu[d] = (int32_t)(d < (size_t)b->mb.B ? d : (size_t)b->mb.B) * length;
}

/* Of an encoder-decoder: a source for each document. */
static int make_sources(struct bench *b, size_t docs, lf_err *err)
{
    lf_loader_batch *mb = &b->mb;
    mb->S = b->c.seq2seq.source_length;
    const size_t rows = (size_t)mb->B * (size_t)mb->S;
    if (!rows)
        return 0;
    mb->source_tokens = lf_calloc(rows, sizeof *mb->source_tokens, err);
    mb->source_positions = lf_calloc(rows, sizeof *mb->source_positions, err);
    mb->source_cu_seqlens = lf_calloc(docs + 1, sizeof *mb->source_cu_seqlens, err);
    if (!mb->source_tokens || !mb->source_positions || !mb->source_cu_seqlens)
        return LF_ENOMEM;
    for (size_t r = 0; r < rows; r++) {
        mb->source_tokens[r] = (int32_t)(lf_rng_u32(3, 0, r) % (uint64_t)b->mc->vocab);
        mb->source_positions[r] = (int32_t)(r % (size_t)mb->S);
    }
    fill_documents(b, mb->source_cu_seqlens, docs, mb->S);
    return 0;
}

/* Sequences of one document each, of random tokens that are all trained. */
static int make_batch(struct bench *b, const struct lf_train_model *m, lf_err *err)
{
    const size_t rows = (size_t)m->rows, docs = (size_t)m->n_docs;
    lf_loader_batch *mb = &b->mb;
    *mb = (lf_loader_batch){.B = b->c.micro_batch, .T = b->c.seq_length, .n_segs = (int32_t)docs};
    mb->tokens = lf_calloc(rows, sizeof *mb->tokens, err);
    mb->targets = lf_calloc(rows, sizeof *mb->targets, err);
    mb->positions = lf_calloc(rows, sizeof *mb->positions, err);
    mb->cu_seqlens = lf_calloc(docs + 1, sizeof *mb->cu_seqlens, err);
    if (!mb->tokens || !mb->targets || !mb->positions || !mb->cu_seqlens ||
        make_sources(b, docs, err))
        return LF_ENOMEM;
    for (size_t r = 0; r < rows; r++) {
        mb->tokens[r] = (int32_t)(lf_rng_u32(1, 0, r) % (uint64_t)b->mc->vocab);
        mb->targets[r] = (int32_t)(lf_rng_u32(2, 0, r) % (uint64_t)b->mc->vocab);
        mb->positions[r] = (int32_t)(r % (size_t)mb->T);
    }
    fill_documents(b, mb->cu_seqlens, docs, mb->T);
    b->prefix = b->mc->mask == LF_MASK_PREFIX
                    ? lf_calloc(lf_decoder_prefix_room(m->n_docs, m->rows), sizeof *b->prefix, err)
                    : NULL;
    if (b->mc->mask == LF_MASK_PREFIX && !b->prefix)
        return LF_ENOMEM;
    b->message = m->cut.message;
    b->in = lf_calloc(b->message, 1, err);
    b->out = lf_calloc(b->message, 1, err);
    return b->in && b->out ? 0 : LF_ENOMEM;
}

static void bench_fini(struct bench *b)
{
    free(b->mb.tokens);
    free(b->mb.targets);
    free(b->mb.positions);
    free(b->mb.cu_seqlens);
    free(b->mb.source_tokens);
    free(b->mb.source_positions);
    free(b->mb.source_cu_seqlens);
    free(b->in);
    free(b->out);
    free(b->stages);
    free(b->prefix);
}

/* ---- ranks that are not there ---- */

static int sum_floats(void *user, float *data, size_t n, lf_err *err)
{
    (void)user, (void)data, (void)n, (void)err;
    return 0;
}
static int sum_doubles(void *user, double *data, size_t n, lf_err *err)
{
    (void)user, (void)data, (void)n, (void)err;
    return 0;
}
static int gather(void *user, void *all, size_t bytes, lf_err *err)
{
    (void)user, (void)all, (void)bytes, (void)err;
    return 0;
}
static int scatter(void *user, float *out, const float *data, size_t n, lf_err *err)
{
    (void)user, (void)err;
    (void)out, (void)data, (void)n;
    return 0;
}

/* The passes of one rank are timed, so nothing is sent. */
static const struct lf_exec_comm nobody = {.tensor_sum = sum_floats,
                                           .tensor_gather = gather,
                                           .tensor_scatter = scatter,
                                           .tensor_add = sum_doubles,
                                           .tied_sum = sum_floats,
                                           .pipeline_add = sum_doubles};

/* ---- passes ---- */

static int pass(struct bench *b, lf_trainer *t, enum lf_segment seg, lf_err *err)
{
    const struct lf_train_chunk *h = &t->m.cut.chunk[0];
    const bool f = seg == LF_FWD;
    struct lf_train_side s = {h->train, 0, f ? LF_PIPE_ACTIVATION : LF_PIPE_GRADIENT, false};
    const struct lf_train_inputs in = {h->train, 0, &h->part, NULL, true};
    int rc = f ? lf_train_write_inputs(t, &in, &b->mb, err) : 0;
    if (rc == 0 && seg != LF_BWD_WEIGHT)
        rc = lf_train_pipe_copy(t, b->in, &s, err);
    if (rc == 0)
        rc = lf_exec_run(t->m.ex, h->train, seg, 0, LF_ACCUM, err);
    s.out = true;
    return rc == 0 && seg != LF_BWD_WEIGHT ? lf_train_pipe_copy(t, b->out, &s, err) : rc;
}

/* Sets *s to what a pass takes. */
static int timed(double *s, struct bench *b, lf_trainer *t, enum lf_segment seg, lf_err *err)
{
    const double t0 = lf_now_s();
    int rc = seg == LF_OPT ? lf_exec_run(t->m.ex, LF_CHAIN_OPT, LF_OPT, 0, LF_FIRST, err)
                           : pass(b, t, seg, err);
    if (rc == 0 && t->m.back->ops->sync)
        rc = t->m.back->ops->sync(t->m.back, err);
    *s = lf_now_s() - t0;
    return rc;
}

/* Passes alone, as they follow each other in a step. What is frozen has no backward pass, as in the
 * run. */
static int go_round(double s[TIMES], struct bench *b, lf_trainer *t, lf_err *err)
{
    const bool back = !t->m.cut.chunk[0].part.frozen;
    memset(s, 0, TIMES * sizeof *s);
    int rc = timed(&s[T_F], b, t, LF_FWD, err);
    if (rc == 0 && back && b->split) {
        rc = timed(&s[T_B], b, t, LF_BWD_INPUT, err);
        if (rc == 0)
            rc = timed(&s[T_W], b, t, LF_BWD_WEIGHT, err);
        if (rc == 0)
            rc = pass(b, t, LF_FWD, err);
    }
    if (rc == 0 && back)
        rc = timed(&s[T_Z], b, t, LF_BWD, err);
    if (back && !b->split)
        s[T_B] = s[T_W] = s[T_Z] / 2;
    return rc;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double (*s)[TIMES], int n, int which)
{
    double v[MOST];
    for (int i = 0; i < n; i++)
        v[i] = s[i][which];
    qsort(v, (size_t)n, sizeof *v, by_size);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static int time_part(struct lf_train_cost *out, struct bench *b, lf_trainer *t, lf_err *err)
{
    const struct lf_step_record rec = {.lr = 1e-6f,
                                       .bias_corr1 = 1,
                                       .bias_corr2 = 1,
                                       .clip_norm = 1,
                                       .loss_scale = 1,
                                       .inv_tokens = 1 / (float)t->m.rows,
                                       .inv_batches = 1,
                                       .seed = b->c.seed};
    const int warm = lf_plan_target(t->m.plan)->sm ? WARM_GPU : WARM;
    double s[MOST][TIMES], spent = 0;
    int n = 0, rc = lf_exec_record_write(t->m.ex, &rec, err);
    for (int i = 0; i < warm && rc == 0; i++)
        rc = go_round(s[0], b, t, err);
    for (; rc == 0 && n < MOST && (n < LEAST || spent < ENOUGH_S); n++) {
        const double t0 = lf_now_s();
        rc = go_round(s[n], b, t, err);
        spent += lf_now_s() - t0;
    }
    const int updates = lf_pstore_elements_trained(t->m.ps) > 0 ? warm + LEAST : 0;
    for (int i = 0; i < updates && rc == 0; i++)
        rc = timed(&s[i > warm ? i - warm : 0][T_UPDATE], b, t, LF_OPT, err);
    if (rc == 0)
        *out = (struct lf_train_cost){.f_s = median(s, n, T_F),
                                      .b_s = median(s, n, T_B),
                                      .w_s = median(s, n, T_W),
                                      .z_s = median(s, n, T_Z),
                                      .update_s = median(s, LEAST, T_UPDATE)};
    return rc;
}

/* ---- parts ---- */

/* The first part makes what the others read; later ones keep it. */
static void keep_message(struct bench *b, int part)
{
    if (part == 0)
        memcpy(b->in, b->out, b->message);
}

static int measure_part(struct lf_train_cost *out, struct bench *b, int part, lf_err *err)
{
    lf_trainer t = {.c = &b->c, .mc = *b->mc};
    b->who.pipeline = part;
    int rc = lf_train_model_plan(&t.m, &b->c, b->mc, false, &b->who, err);
    if (rc == 0)
        rc = lf_train_model_bind(&t.m, &b->c, b->comm, err);
    if (rc == 0)
        rc = lf_pstore_init(t.m.ps, b->c.seed, err);
    if (rc == 0 && !b->in)
        rc = make_batch(b, &t.m, err);
    t.prefix_buf = b->prefix;
    if (rc == 0) {
        lf_train_own(&t); /* which are all */
        lf_exec_set_comm(t.m.ex, &nobody, NULL);
        rc = time_part(out, b, &t, err);
    }
    if (rc == 0)
        keep_message(b, part);
    lf_train_model_fini(&t.m);
    return rc;
}

/* The cut of a bench: no layer beside the embedding, one each, none beside the head. */
static char *stages_of(int layers, lf_err *err)
{
    lf_buf text;
    lf_buf_init(&text);
    lf_buf_addf(&text, "0");
    for (int l = 0; l < layers; l++)
        lf_buf_addf(&text, ",1");
    lf_buf_addf(&text, ",0");
    char *out = lf_buf_check(&text, err) == 0 ? lf_strdup(text.data, err) : NULL;
    lf_buf_fini(&text);
    return out;
}

static int bench_open(struct bench *b, const struct lf_train_config *c,
                      const struct lf_train_who *who, lf_err *err)
{
    const int layers = (int)lf_model_depth(b->mc);
    b->c = *c;
    b->batch = (lf_ramp_row){.samples = c->micro_batch};
    b->c.ramp = &b->batch;
    b->c.n_ramp = 1;
    b->c.guest = NULL;
    b->c.profile = NULL;
    b->c.poison = false;
    b->c.costs = NULL;
    b->c.zero = (struct lf_zero){0};
    b->split = c->recompute != LF_RECOMPUTE_FULL;
    b->c.axes.schedule = 1 + (b->split ? LF_PIPE_ZB_H1 : LF_PIPE_1F1B);
    b->c.axes.chunks = 1;
    b->c.axes.measured = 0;
    b->who = *who;
    b->who.data = 0;
    b->who.data_ranks = 1;
    b->who.context = 0; /* all rows, of which a rank's take their part of the time */
    b->who.context_ranks = 1;
    b->who.expert = 0; /* a layer takes as long where ranks divide its experts */
    b->who.expert_ranks = 1;
    b->who.folded = false;
    b->who.pipeline_ranks = b->c.axes.pipeline = layers + 2;
    b->c.axes.stages = b->stages = stages_of(layers, err);
    return b->stages ? 0 : LF_ENOMEM;
}

/* Is layer l like one of its stack that was measured? What is frozen, and what is not in 8 bits at
 * the ends, can be any layer. */
static int alike(const double *flops, const struct bench *b, int layers, int l)
{
    const struct lf_train_config *c = &b->c;
    const int encoder = (int)b->mc->encoder_layers;
    for (int k = l < encoder ? 0 : encoder; k < l && c->n_freeze == 0; k++) {
        const int edge = c->fp8 ? (int)c->fp8_layers.edges : 0;
        const bool ends = (l < edge || l >= layers - edge) == (k < edge || k >= layers - edge);
        if (ends && flops[l] <= flops[k] && flops[l] >= flops[k])
            return k;
    }
    return -1;
}

static int measure_all(struct lf_train_costs *out, struct bench *b, lf_err *err)
{
    const int layers = out->n - 2;
    double *flops = lf_calloc((size_t)layers + 1, sizeof *flops, err);
    const struct lf_model_lengths of = {b->c.seq_length, b->c.seq2seq.source_length};
    int rc = flops ? lf_model_layer_flops(flops, b->mc, of, lf_train_mtp(&b->c), err) : LF_ENOMEM;
    for (int i = 0; i < out->n && rc == 0; i++) {
        const int as = i > 0 && i <= layers ? alike(flops, b, layers, i - 1) : -1;
        if (as >= 0)
            out->part[i] = out->part[as + 1];
        else
            rc = measure_part(&out->part[i], b, i, err);
    }
    free(flops);
    return rc;
}

/* What is measured has all rows of a micro-batch, and all of the optimizer's state. */
static void take_share(struct lf_train_cost *of, const struct lf_train_config *c,
                       const struct lf_train_who *who)
{
    const double rows = who->context_ranks;
    of->f_s /= rows;
    of->b_s /= rows;
    of->w_s /= rows;
    of->z_s /= rows;
    if (c->zero.stage > 0)
        of->update_s /= lf_zero_inner(&c->zero, lf_axes_sharers(who));
}

int lf_train_cost_measure(struct lf_train_costs *out, const struct lf_train_config *c,
                          const lf_model_config *mc, const struct lf_train_who *who,
                          const lf_comm *comm, lf_err *err)
{
    struct bench b = {.mc = mc, .comm = comm};
    *out = (struct lf_train_costs){.n = (int)lf_model_depth(mc) + 2};
    out->part = lf_calloc((size_t)out->n, sizeof *out->part, err);
    int rc = out->part ? bench_open(&b, c, who, err) : LF_ENOMEM;
    if (rc == 0)
        rc = measure_all(out, &b, err);
    for (int i = 0; i < out->n && rc == 0; i++)
        take_share(&out->part[i], c, who);
    bench_fini(&b);
    if (rc != 0)
        lf_train_costs_fini(out);
    return rc != 0 ? lf_err_prefix(err, "measuring the layers (pipeline_cost)") : 0;
}

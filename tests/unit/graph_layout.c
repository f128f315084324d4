/* SPDX-License-Identifier: Apache-2.0
 *
 * Layouts that divide matrices: t ranks, each a thread with its own store, plan and executor, give
 * the gradients of one rank. What one rank has whole is added up from the boxes of all. Tensors
 * that every rank has are bit-equal on all of them. And what each gradient is summed over is the
 * table that the check after differentiation derives (tests/golden/layout).
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/rng.h"
#include "engine/graph/exec.h"
#include "engine/graph/priv.h"
#include "engine/model/decoder.h"
#include "engine/model/sight.h"
#include "tests/tap/tap.h"
#include "tests/unit/graph_layout_rows.h"

enum { STEPS = 3, R = 40, SOURCES = 32, DOCS = 3, V = 45, MAX_RANKS = 8 };

enum { N_ROWS = sizeof rows / sizeof *rows };

/* ---- ranks ---- */

/* Sums over the ranks that a layer norm of divided channels needs. */
enum part_sum { NO_SUM, SUMS, SQUARES, DOTS };

struct world {
    int n;
    pthread_barrier_t barrier;
    float *data[MAX_RANKS];
    double *added[MAX_RANKS];
    void *part[MAX_RANKS];
    double *logical[256]; /* gradient of every tensor, from all boxes */
    float *same[256];     /* of tensors that all ranks have: rank 0's */
    bool replicas;        /* the others have its bits */
    int rounded;          /* addends of sums in the forward pass that are not f32 */
    double loss[MAX_RANKS], norm[MAX_RANKS];
    double *weight[256]; /* of every tensor after STEPS steps, from all boxes */
    bool trained;        /* run steps, not one pass */
    bool sequence;
    char *table;
    int skip;            /* tests of tests: this rank gives nothing to sums; -1: none */
    enum part_sum apart; /* these are a rank's own */
    char error[1100];
};

struct rank {
    struct world *w;
    const struct row *row;
    int r;
    size_t rows;  /* of pictures */
    int of_parts; /* sums of parts of these rows so far: of x, of squares, of x, ... */
};

/* Two pictures of 2 x 2 patches. */
static struct lf_decoder_media media_of(const lf_model_config *c)
{
    return lf_sight_bounds(c, 8, 2, R);
}

static bool has_pictures(const struct row *row)
{
    return row->set[0] && strncmp(row->set[0], "vision.family", 13) == 0;
}

/* Is it the sum over parts of rows that is left out? */
static bool left_out(struct rank *k, size_t n)
{
    switch (k->w->apart) {
    case SUMS:
    case SQUARES:
        return n == k->rows && k->of_parts++ % 2 == (k->w->apart == SQUARES);
    case DOTS:
        return n == 2 * k->rows;
    default:
        return false;
    }
}

/* In the order of ranks, on each of them. */
static int tensor_sum(void *user, float *data, size_t n, lf_err *err)
{
    struct rank *k = user;
    struct world *w = k->w;
    if (left_out(k, n))
        return 0;
    float *sum = lf_calloc(n, sizeof *sum, err);
    if (!sum)
        tap_bail("%s", err->text);
    w->data[k->r] = data;
    pthread_barrier_wait(&w->barrier);
    for (int r = 0; r < w->n; r++)
        for (size_t i = 0; i < n && r != w->skip; i++)
            sum[i] += w->data[r][i];
    pthread_barrier_wait(&w->barrier);
    memcpy(data, sum, n * sizeof *sum);
    free(sum);
    return 0;
}

static int tensor_add(void *user, double *sums, size_t n, lf_err *err)
{
    struct rank *k = user;
    struct world *w = k->w;
    double *sum = lf_calloc(n, sizeof *sum, err);
    if (!sum)
        tap_bail("%s", err->text);
    w->added[k->r] = sums;
    pthread_barrier_wait(&w->barrier);
    for (int r = 0; r < w->n; r++)
        for (size_t i = 0; i < n; i++)
            sum[i] += w->added[r][i];
    pthread_barrier_wait(&w->barrier);
    memcpy(sums, sum, n * sizeof *sum);
    free(sum);
    return 0;
}

static int tensor_scatter(void *user, float *out, const float *data, size_t n, lf_err *err)
{
    struct rank *k = user;
    struct world *w = k->w;
    (void)err;
    w->part[k->r] = (void *)(uintptr_t)data;
    pthread_barrier_wait(&w->barrier);
    for (size_t i = 0; i < n; i++) {
        float sum = 0;
        for (int r = 0; r < w->n; r++)
            sum += r == w->skip ? 0 : ((const float *)w->part[r])[(size_t)k->r * n + i];
        out[i] = sum;
    }
    pthread_barrier_wait(&w->barrier);
    return 0;
}

static int tensor_gather(void *user, void *all, size_t bytes, lf_err *err)
{
    struct rank *k = user;
    struct world *w = k->w;
    (void)err;
    w->part[k->r] = all;
    pthread_barrier_wait(&w->barrier);
    for (int r = 0; r < w->n; r++)
        if (r != k->r)
            memcpy((char *)all + (size_t)r * bytes, (char *)w->part[r] + (size_t)r * bytes, bytes);
    pthread_barrier_wait(&w->barrier);
    return 0;
}

static void configure(const struct row *row, lf_model_config *c)
{
    static const char *const base[] = {"layers=2", "hidden=32", "heads=8",          "kv_heads=2",
                                       "ffn=64",   "vocab=48",  "max_positions=64", "init_std=0.3"};
    lf_err err = LF_ERR_INIT;
    lf_model_config_defaults(c);
    if (lf_model_config_family(c, "llama", "test", &err))
        tap_bail("%s", err.text);
    for (size_t i = 0; i < sizeof base / sizeof *base + MAX_SET; i++) {
        const size_t n = sizeof base / sizeof *base;
        const char *set = i < n ? base[i] : row->set[i - n];
        char key[48];
        if (!set)
            break;
        const char *eq = strchr(set, '=');
        snprintf(key, sizeof key, "%.*s", (int)(eq - set), set);
        if (lf_model_config_set(c, key, eq + 1, "test", &err))
            tap_bail("%s", err.text);
    }
    if (lf_model_config_finish(c, &err))
        tap_bail("%s", err.text);
}

static void write_input(lf_exec *ex, const char *name, const void *src, size_t bytes)
{
    lf_err err = LF_ERR_INIT;
    const int rc = lf_exec_write(ex, 0, 0, name, src, bytes, &err);
    if (rc != 0 && rc != LF_ENOENT)
        tap_bail("%s", err.text);
}

/* In the first and the second document. tokens are those of the text beside them. */
static void write_pictures(lf_exec *ex, const lf_model_config *c, int32_t *tokens,
                           const int32_t *positions)
{
    static const struct lf_sight_tile tiles[] = {{2, 2}, {2, 2}};
    static const struct lf_sight_picture pictures[] = {{.tiles = 1}, {.tile = 1, .tiles = 1}};
    lf_err err = LF_ERR_INIT;
    float pixels[8 * 12];
    const struct lf_decoder_media m = media_of(c);
    const struct lf_sight_batch b = {.n_tiles = 2,
                                     .n_pictures = 2,
                                     .tile = tiles,
                                     .picture = pictures,
                                     .merge = 1,
                                     .rows = R,
                                     .tokens = tokens,
                                     .positions = positions};
    for (int i = 0; i < 4; i++)
        tokens[1 + i] = tokens[13 + i] = (int32_t)c->image_token;
    for (size_t i = 0; i < sizeof pixels / sizeof *pixels; i++)
        pixels[i] = (float)(lf_rng_f64(5, 3, i) - 0.5);
    lf_sight *s = lf_sight_create(c, &m, R, &err);
    if (!s || lf_sight_fill(s, &b, &err) || lf_sight_write(s, ex, 0, 0, &err))
        tap_bail("%s", err.text);
    write_input(ex, "vision.pixels", pixels, sizeof pixels);
    memcpy(tokens, lf_sight_token_rows(s), R * sizeof *tokens);
    lf_sight_destroy(s);
}

/* What the encoder of an encoder-decoder reads, of the same documents. */
static void write_sources(lf_exec *ex)
{
    static const int32_t cu[DOCS + 1] = {0, 9, 17, 30};
    int32_t tokens[SOURCES], positions[SOURCES] = {0}, offsets[SOURCES];
    int64_t samples[SOURCES];
    for (int i = 0; i < SOURCES; i++) {
        int d = 0;
        while (d < DOCS - 1 && i >= cu[d + 1])
            d++;
        tokens[i] = (int32_t)(lf_rng_f64(5, 4, (uint64_t)i) * V);
        positions[i] = i < cu[DOCS] ? i - cu[d] : 0;
        offsets[i] = i;
        samples[i] = 100 + d;
    }
    write_input(ex, "source_tokens", tokens, sizeof tokens);
    write_input(ex, "source_positions", positions, sizeof positions);
    write_input(ex, "source_cu_seqlens", cu, sizeof cu);
    write_input(ex, "source_offsets", offsets, sizeof offsets);
    write_input(ex, "source_samples", samples, sizeof samples);
}

static void write_inputs(lf_exec *ex, const lf_model_config *c)
{
    static const int32_t cu[DOCS + 1] = {0, 11, 30, 37};
    int32_t tokens[R], positions[R] = {0}, targets[R], offsets[R], prefix[DOCS] = {0};
    int64_t samples[R];
    for (int i = 0; i < R; i++) {
        int d = 0;
        while (d < DOCS - 1 && i >= cu[d + 1])
            d++;
        tokens[i] = (int32_t)(lf_rng_f64(5, 1, (uint64_t)i) * V);
        targets[i] = i >= cu[DOCS] || i - cu[d] < 3 || i % 5 == 4
                         ? -1
                         : (int32_t)(lf_rng_f64(5, 2, (uint64_t)i) * V);
        positions[i] = i < cu[DOCS] ? i - cu[d] : 0;
        offsets[i] = i;
        samples[i] = 100 + d;
    }
    lf_decoder_prefixes(targets, cu, DOCS, false, prefix);
    if (c->vision.family)
        write_pictures(ex, c, tokens, positions);
    write_input(ex, "tokens", tokens, sizeof tokens);
    write_input(ex, "positions", positions, sizeof positions);
    write_input(ex, "targets", targets, sizeof targets);
    write_input(ex, "cu_seqlens", cu, sizeof cu);
    write_input(ex, "prefix", prefix, sizeof prefix);
    write_input(ex, "offsets", offsets, sizeof offsets);
    write_input(ex, "samples", samples, sizeof samples);
    if (lf_model_is_seq2seq(c))
        write_sources(ex);
}

static bool latent(const struct row *row)
{
    bool yes = false;
    for (int i = 0; i < MAX_SET && row->set[i]; i++)
        yes = yes || strncmp(row->set[i], "kv_lora=", 8) == 0;
    return yes;
}

static void adapt(lf_pstore *ps, const struct row *row)
{
    lf_err err = LF_ERR_INIT;
    const struct lf_adapter_desc d = {
        .rank = abs(row->lora), .scale = 2, .magnitude = row->lora < 0};
    lf_pstore_freeze(ps, "", true);
    for (int l = 0; l < 2; l++)
        for (int k = 0; k < 4; k++) {
            const bool kv = latent(row);
            const char *const of[] = {kv ? "attn.kv_b" : "attn.qkv", "attn.o", "mlp.gate_up",
                                      "mlp.down"};
            const uint32_t members = row->fused ? 0
                                     : k == 0   ? (kv ? 3 : 5)
                                     : k == 2   ? 3
                                                : 0,
                           apart[] = {members & 1, members & ~1u},
                           *sets = row->joined ? &members : apart;
            char name[64];
            snprintf(name, sizeof name, "layers.%d.%s.weight", l, of[k]);
            if (lf_pstore_adapt(ps, name, sets, members ? 2 - row->joined : 0, &d, &err))
                tap_bail("%s", err.text);
        }
}

/* The gradient of tensor i joins those of the other ranks. */
static void collect(struct world *w, const lf_pstore *ps, int i, int r)
{
    const struct lf_param *p = &ps->p[i];
    const struct lf_pgroup *g = &ps->g[p->group];
    struct lf_pview v;
    int64_t n = 1;
    if (lf_pstore_view(ps, i, LF_P_GRAD, &v) != 1)
        return;
    for (int k = 0; k < p->d.ndim; k++)
        n *= p->d.dims[k];
    if (!w->logical[i])
        w->logical[i] = calloc((size_t)n, sizeof(double));
    const float *d = v.data;
    if (g->place == LF_PL_SAME && !g->sum[LF_AXIS_TENSOR]) {
        if (!w->same[i]) {
            w->same[i] = malloc((size_t)n * sizeof(float));
            memcpy(w->same[i], d, (size_t)n * sizeof(float));
            for (int64_t e = 0; e < n; e++)
                w->logical[i][e] = (double)d[e];
        }
        w->replicas = w->replicas && memcmp(w->same[i], d, (size_t)n * sizeof(float)) == 0;
        return;
    }
    (void)r;
    for (int64_t e = 0; e < p->n; e++)
        w->logical[i][lf_box_element(p, e)] += (double)d[e];
}

/* Steps with clipping. */
static void train(struct rank *k, lf_exec *ex, lf_pstore *ps)
{
    struct world *w = k->w;
    lf_err err = LF_ERR_INIT;
    struct lf_step_record rec = {0};
    for (int s = 0; s < STEPS; s++) {
        rec = (struct lf_step_record){.step = (uint64_t)s,
                                      .seed = 3,
                                      .lr = 0.01f,
                                      .bias_corr1 = 1 - powf(0.9f, (float)(s + 1)),
                                      .bias_corr2 = 1 - powf(0.99f, (float)(s + 1)),
                                      .clip_norm = 0.5f,
                                      .loss_scale = 1,
                                      .inv_tokens = 1.0f / 30,
                                      .inv_batches = 1};
        if (lf_exec_record_write(ex, &rec, &err) || lf_exec_run(ex, 0, LF_FWD, 0, LF_FIRST, &err) ||
            lf_exec_run(ex, 0, LF_BWD, 0, LF_FIRST, &err) ||
            lf_exec_run(ex, LF_CHAIN_OPT, LF_OPT, 0, LF_FIRST, &err) ||
            lf_exec_record_read(ex, &rec, &err))
            tap_bail("%s", err.text);
        if (s == 0)
            w->norm[k->r] = (double)rec.grad_norm;
    }
    for (int i = 0; i < lf_pstore_count(ps); i++) {
        struct lf_pview v;
        if (ps->p[i].d.frozen || lf_pstore_view(ps, i, LF_P_MASTER, &v) != 1)
            continue;
        pthread_barrier_wait(&w->barrier);
        if (k->r == 0)
            w->weight[i] = calloc((size_t)lf_pstore_elements(ps), sizeof(double));
        pthread_barrier_wait(&w->barrier);
        for (int64_t e = 0; e < ps->p[i].n; e++)
            w->weight[i][lf_box_element(&ps->p[i], e)] = (double)((const float *)v.data)[e];
    }
}

/* "name  place  sums", a line for each trained tensor of the last layer and outside of layers. */
static char *table_of(const lf_pstore *ps)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    for (size_t i = 0; i < ps->n_p; i++) {
        const struct lf_param *p = &ps->p[i];
        const struct lf_pgroup *g = &ps->g[p->group];
        if (p->d.frozen || strncmp(p->d.name, "layers.0", 8) == 0)
            continue;
        fprintf(f, "%s: %s; summed over%s%s%s\n", p->d.name, lf_place_name((enum lf_place)g->place),
                g->sum[LF_AXIS_TENSOR] ? " tensor x" : "", p->box.replicas > 1 ? " replicas x" : "",
                g->sum[LF_AXIS_DATA] ? " data" : " ?");
    }
    fclose(f);
    return text;
}

/* The forward node that writes t. */
static const struct lf_node *writer_of(const lf_graph *g, int32_t t)
{
    for (size_t i = 0; i < g->n_fwd; i++)
        for (int k = 0; k < LF_MAX_OUT; k++)
            if (g->n[i].out[k] && g->t[g->n[i].out[k]].root == g->t[t].root)
                return &g->n[i];
    return NULL;
}

static bool is_rounded_product(const lf_graph *g, int32_t t)
{
    const struct lf_node *w = writer_of(g, t);
    return w && w->op == LF_OP_LINEAR && g->t[t].dtype != LF_F32;
}

/* Products that are rounded before the ranks add them up, or before another product is added. */
static int rounded(const lf_plan *p)
{
    const lf_graph *g = p->c[0].g;
    int n = 0;
    for (size_t i = 0; i < g->n_fwd; i++) {
        const struct lf_node *w = g->n[i].op == LF_OP_TP_LEAVE ? writer_of(g, g->n[i].in[0]) : NULL;
        if (!w)
            continue;
        n += is_rounded_product(g, g->n[i].in[0]);
        if (w->op == LF_OP_LINEAR && w->in[LINEAR_RES])
            n += is_rounded_product(g, w->in[LINEAR_RES]);
        const int addends = w->op == LF_OP_ADD ? 2 : w->op == LF_OP_DORA ? DORA_REST + 1 : 0;
        for (int k = 0; k < addends; k++)
            n += is_rounded_product(g, w->in[k]);
    }
    return n;
}

/* Biases and B of adapters begin as zeros, with which nothing would show that counts one twice. */
static void draw_zeros(lf_pstore *ps)
{
    struct lf_pview v;
    for (int i = 0; i < lf_pstore_count(ps); i++) {
        const struct lf_param *p = &ps->p[i];
        if ((!strstr(p->d.name, ".bias") && !strstr(p->d.name, ".lora_B")) ||
            lf_pstore_view(ps, i, LF_P_MASTER, &v) != 1)
            continue;
        const uint32_t site = lf_name_site(p->d.name);
        for (int64_t e = 0; e < p->n; e++)
            ((float *)v.data)[e] =
                (float)(lf_rng_f64(7, site, (uint64_t)lf_box_element(p, e)) - 0.5);
    }
    lf_pstore_touch(ps);
}

static void run(struct rank *k, lf_pstore *ps, const lf_decoder *d)
{
    struct world *w = k->w;
    lf_err err = LF_ERR_INIT;
    const lf_model_config *c = lf_decoder_config(d);
    const struct lf_decoder_media media = media_of(c);
    const struct lf_decoder_rows dims = {.rows = R,
                                         .n_docs = DOCS,
                                         .media = c->vision.family ? &media : NULL,
                                         .source_rows = lf_model_is_seq2seq(c) ? SOURCES : 0};
    const struct lf_plan_opts o = {.threads = 1, .compute = k->row->compute};
    k->rows = (size_t)media.vision.rows;
    lf_graph *g = lf_decoder_loss_graph(d, ps, "train", &dims, true, &err);
    lf_plan *p = lf_plan_create(ps, &o, &err);
    lf_back *b = lf_back_cpu_create(lf_target_host()->isa, 1, &err);
    const struct lf_chain_opts chain = {.train = true, .recompute = k->row->recompute};
    const struct lf_adamw_opts adamw = {
        .beta1 = 0.9f, .beta2 = 0.99f, .eps = 1e-8f, .moments = LF_F32, .masters = LF_F32};
    lf_exec *ex = NULL;
    if (g && p && b && lf_plan_add(p, g, &chain, &err) == 0 &&
        !lf_plan_optimizer(p, &adamw, &err) && !lf_plan_finish(p, &err))
        ex = lf_exec_create(p, b, &(struct lf_exec_opts){.poison = true}, &err);
    if (k->r == 0 && ex)
        w->rounded = rounded(p);
    if (!ex) {
        snprintf(w->error, sizeof w->error, "%s", err.text);
        goto out;
    }
    const struct lf_exec_comm comm = {.tensor_sum = tensor_sum,
                                      .tensor_scatter = tensor_scatter,
                                      .tensor_add = tensor_add,
                                      .tensor_gather = tensor_gather};
    struct lf_step_record rec = {
        .seed = 3, .lr = 0.1f, .loss_scale = 1, .inv_tokens = 1.0f / 30, .inv_batches = 1};
    lf_exec_set_comm(ex, &comm, k);
    if (lf_pstore_init(ps, 11, &err) || lf_exec_adapter_start(ex, &err) ||
        lf_exec_record_write(ex, &rec, &err))
        tap_bail("%s", err.text);
    draw_zeros(ps);
    write_inputs(ex, c);
    if (w->trained) {
        train(k, ex, ps);
        goto out;
    }
    if (lf_exec_run(ex, 0, LF_FWD, 0, LF_FIRST, &err) ||
        lf_exec_run(ex, 0, LF_BWD, 0, LF_FIRST, &err) || lf_exec_record_read(ex, &rec, &err))
        tap_bail("%s", err.text);
    w->loss[k->r] = rec.loss_sum;
    for (int r = 0; r < w->n; r++) { /* one after the other */
        pthread_barrier_wait(&w->barrier);
        for (int i = 0; r == k->r && i < lf_pstore_count(ps); i++)
            collect(w, ps, i, r);
    }
    if (k->r == 0)
        w->table = table_of(ps);
out:
    lf_exec_destroy(ex);
    lf_plan_destroy(p);
    lf_graph_destroy(g);
    lf_back_destroy(b);
}

static void *rank_main(void *arg)
{
    struct rank *k = arg;
    lf_err err = LF_ERR_INIT;
    lf_model_config c;
    configure(k->row, &c);
    lf_decoder *d = lf_decoder_create(&c, 48, &err);
    lf_pstore *ps = lf_pstore_create(&err);
    const struct lf_layout l = {.tensor = k->w->n, .tensor_rank = k->r, .sequence = k->w->sequence};
    if (!d || !ps || lf_pstore_set_layout(ps, &l, &err))
        tap_bail("%s", err.text);
    if (lf_decoder_declare(d, ps, &err)) {
        snprintf(k->w->error, sizeof k->w->error, "%s", err.text);
    } else {
        if (k->row->lora)
            adapt(ps, k->row);
        run(k, ps, d);
    }
    lf_pstore_destroy(ps);
    lf_decoder_destroy(d);
    return NULL;
}

struct mode {
    int skip;
    bool trained, sequence;
    enum part_sum apart;
};

static void launch(struct world *w, const struct row *row, int n, struct mode m)
{
    pthread_t thread[MAX_RANKS];
    struct rank rank[MAX_RANKS];
    memset(w, 0, sizeof *w);
    w->n = n;
    w->skip = m.skip;
    w->trained = m.trained;
    w->sequence = m.sequence;
    w->apart = m.apart;
    w->replicas = true;
    pthread_barrier_init(&w->barrier, NULL, (unsigned)n);
    for (int r = 0; r < n; r++) {
        rank[r] = (struct rank){.w = w, .row = row, .r = r};
        if (pthread_create(&thread[r], NULL, rank_main, &rank[r]))
            tap_bail("no thread");
    }
    for (int r = 0; r < n; r++)
        pthread_join(thread[r], NULL);
    pthread_barrier_destroy(&w->barrier);
}

static void forget(struct world *w)
{
    for (int i = 0; i < 256; i++) {
        free(w->logical[i]);
        free(w->same[i]);
        free(w->weight[i]);
    }
    free(w->table);
}

/* ---- tests ---- */

/* The largest error of a tensor, relative to its norm; of gradients, or of weights. */
static double worst(const struct world *one, const struct world *many, const struct row *row,
                    char name[96])
{
    double *const *was = one->trained ? one->weight : one->logical;
    double *const *is = one->trained ? many->weight : many->logical;
    lf_err err = LF_ERR_INIT;
    lf_model_config c;
    double largest = 0, most = 0;
    configure(row, &c);
    lf_decoder *d = lf_decoder_create(&c, 48, &err);
    lf_pstore *ps = lf_pstore_create(&err);
    if (!d || !ps || lf_decoder_declare(d, ps, &err))
        tap_bail("%s", err.text);
    if (row->lora)
        adapt(ps, row);
    for (int i = 0; i < 2 * lf_pstore_count(ps); i++) { /* first the largest norm of all */
        const int at = i % lf_pstore_count(ps);
        const struct lf_param_desc *p = lf_pstore_desc(ps, at);
        double diff = 0, norm = 0;
        int64_t n = 1;
        for (int k = 0; k < p->ndim; k++)
            n *= p->dims[k];
        if (!was[at] != !is[at])
            tap_bail("%s has a gradient on one side alone", p->name);
        for (int64_t e = 0; was[at] && e < n; e++) {
            const double a = was[at][e], b = is[at][e];
            diff += (a - b) * (a - b);
            norm += a * a;
        }
        most = norm > most ? norm : most;
        if (i < lf_pstore_count(ps))
            continue;
        /* the bias of keys has none but for rounding, which AdamW makes a step of */
        const bool nothing = strstr(p->name, ".k.bias") != NULL;
        if (nothing && one->trained)
            continue;
        const double error = sqrt(diff / (nothing ? most : fmax(norm, 1e-6 * most)));
        if (error > largest || !(error == error)) {
            largest = error == error ? error : (double)INFINITY;
            snprintf(name, 96, "%s", p->name);
        }
    }
    lf_pstore_destroy(ps);
    lf_decoder_destroy(d);
    return largest;
}

static bool experts(const struct row *row)
{
    return row->set[0] && strncmp(row->set[0], "experts", 7) == 0;
}

static bool two_stacks(const struct row *row)
{
    return row->set[0] && strncmp(row->set[0], "encoder_layers", 14) == 0;
}

/* In bf16 ranks round what one rank does not round, and the other way round, but never before they
 * add up. With experts each rank rounds what it has of a row, and with an adapter what its columns
 * give of the few numbers between A and B. Rows of pictures, and of sources, go through twice as
 * many layers. */
static double bound_of(const struct row *row)
{
    return row->compute != LF_BF16                ? 1e-5
           : experts(row) || row->lora            ? 8e-2
           : has_pictures(row) || two_stacks(row) ? 3e-2
                                                  : 1.5e-2;
}

static void test_row(const struct row *row, int n, bool sequence)
{
    struct world one, many;
    char name[96] = "";
    launch(&one, row, 1, (struct mode){.skip = -1});
    launch(&many, row, n, (struct mode){.skip = -1, .sequence = sequence});
    const bool ran = !one.error[0] && !many.error[0];
    if (tap_ok(ran, "%s, %d ranks%s: plans and runs%s%s%s", row->name, n,
               sequence ? ", rows divided" : "", ran ? "" : ": ", one.error, many.error)) {
        const double error = worst(&one, &many, row, name), bound = bound_of(row);
        tap_ok(error <= bound, "every gradient within %g of one rank's: %.2g, %s", bound, error,
               name);
        tap_ok(many.replicas && many.rounded == 0,
               "what all ranks have is bit-equal on all; %d products are rounded before a sum",
               many.rounded);
        tap_ok(fabs(many.loss[n - 1] - one.loss[0]) <=
                       (row->compute == LF_BF16 ? 1e-2 : 1e-5) * fabs(one.loss[0]) &&
                   one.loss[0] > 0,
               "the loss too: %.9g, %.9g", many.loss[n - 1], one.loss[0]);
    } else {
        for (int i = 0; i < 3; i++)
            tap_ok(0, "not run");
    }
    forget(&one);
    forget(&many);
}

/* After steps with clipping: norm and weights. */
static void test_steps(const struct row *row, int n, bool sequence)
{
    struct world one, many;
    char name[96] = "";
    launch(&one, row, 1, (struct mode){.skip = -1, .trained = true});
    launch(&many, row, n, (struct mode){.skip = -1, .trained = true, .sequence = sequence});
    if (one.error[0] || many.error[0])
        tap_bail("%s%s", one.error, many.error);
    double norms = 0;
    for (int r = 0; r < n; r++)
        norms = tap_worse(norms, fabs(many.norm[r] / one.norm[0] - 1));
    tap_ok(one.norm[0] > 0.5 && norms < 1e-5, "%s, %d ranks: the norm within 1e-5 on all: %.2g",
           row->name, n, norms);
    const double error = worst(&one, &many, row, name);
    tap_ok(error < 1e-4, "after %d steps weights within 1e-4: %.2g, %s", STEPS, error, name);
    forget(&one);
    forget(&many);
}

/* The test sees a rank whose part is missing from the sums. */
static void test_can_fail(void)
{
    struct world one, many;
    char name[96] = "";
    launch(&one, &rows[0], 1, (struct mode){.skip = -1});
    launch(&many, &rows[0], 2, (struct mode){.skip = 1});
    tap_ok(worst(&one, &many, &rows[0], name) > 1e-2, "a rank that is left out of sums shows");
    forget(&one);
    forget(&many);
}

static const struct row *row_of(const char *name)
{
    for (int i = 0; i < N_ROWS; i++)
        if (strcmp(rows[i].name, name) == 0)
            return &rows[i];
    tap_bail("no row %s", name);
}

/* It sees that ranks which have some channels of a layer norm keep what is of their own. */
static void test_parts_apart(void)
{
    static const char *const what[] = {
        [SUMS] = "means", [SQUARES] = "variances", [DOTS] = "the means of gradients"};
    const struct row *row = row_of("pictures");
    struct world one, many;
    char name[96] = "";
    launch(&one, row, 1, (struct mode){.skip = -1});
    for (int k = SUMS; k <= DOTS; k++) {
        launch(&many, row, 2, (struct mode){.skip = -1, .apart = (enum part_sum)k});
        const double error = worst(&one, &many, row, name);
        tap_ok(error > 1e-2, "%s of a rank's own channels show: %.2g, %s", what[k], error, name);
        forget(&many);
    }
    forget(&one);
}

/* ---- what the check refuses ---- */

/* x [R, 32] from an embedding, and a product of two matrices that two ranks divide. */
struct small {
    lf_pstore *ps;
    lf_graph *g;
    lf_val x, up, down;
};

static struct small small_of(bool sequence)
{
    lf_err err = LF_ERR_INIT;
    struct small s = {.ps = lf_pstore_create(&err)};
    static const struct lf_param_desc d[] = {
        {.name = "embed", .ndim = 2, .dims = {V, 32}},
        {.name = "up", .ndim = 2, .dims = {64, 32}, .shard = LF_SHARD_ROWS},
        {.name = "down", .ndim = 2, .dims = {32, 64}, .shard = LF_SHARD_COLS},
        {.name = "bias", .ndim = 1, .dims = {32}},
        {.name = "norm", .ndim = 1, .dims = {32}},
        {.name = "wide", .ndim = 1, .dims = {64}},
        {.name = "wide part", .ndim = 1, .dims = {64}, .shard = LF_SHARD_ROWS, .shard_parts = 4},
    };
    const struct lf_layout l = {.tensor = 2, .tensor_rank = 1, .sequence = sequence};
    if (lf_pstore_set_layout(s.ps, &l, &err))
        tap_bail("%s", err.text);
    for (size_t i = 0; i < sizeof d / sizeof *d; i++)
        if (lf_pstore_add(s.ps, &d[i], &err) < 0)
            tap_bail("%s", err.text);
    s.g = lf_graph_create(s.ps, "small", &err);
    s.x = lf_embed(s.g, lf_input(s.g, "tokens", LF_I32, R, 1), LF_NONE, lf_param(s.g, "embed"),
                   LF_NONE, 1, 0);
    s.up = lf_param(s.g, "up");
    s.down = lf_param(s.g, "down");
    return s;
}

static struct small small(void)
{
    return small_of(false);
}

/* x [R, 32] with its rows mixed by a matrix [R, R]. */
static lf_val mixed(lf_graph *g, lf_val x)
{
    static const char *const names[] = {"start", "index", "weight", "tstart", "tindex", "tweight"};
    lf_val v[6];
    for (int k = 0; k < 6; k++)
        v[k] = lf_input(g, names[k], k % 3 == 2 ? LF_F32 : LF_I32, k % 3 ? R : R + 1, 1);
    return lf_mix_rows(g, x, &(struct lf_mix){v[0], v[1], v[2], v[3], v[4], v[5]});
}

static int finish(struct small *s, lf_val y, void (*change)(lf_graph *g), lf_err *err)
{
    lf_xent(s->g, y, lf_param(s->g, "embed"), LF_NONE, lf_input(s->g, "targets", LF_I32, R, 1),
            &(struct lf_xent_opts){0});
    int rc = lf_graph_check(s->g, err);
    if (rc == 0)
        rc = lf_layout_localise(s->g, err);
    s->g->n_fwd = s->g->n_n;
    if (rc == 0)
        rc = lf_autodiff(s->g, err);
    if (rc == 0 && change)
        change(s->g);
    if (rc == 0)
        rc = lf_layout_check(s->g, err);
    lf_graph_destroy(s->g);
    lf_pstore_destroy(s->ps);
    return rc;
}

/* The backward of lf_tp_enter sums over the ranks; here it copies. */
static void forget_sum(lf_graph *g)
{
    for (size_t i = g->n_fwd; i < g->n_n; i++)
        if (g->n[i].op == LF_OP_TP_LEAVE)
            g->n[i].op = LF_OP_COPY;
}

static void test_refused(void)
{
    const struct lf_norm_opts rms = {.eps = 1e-5f};
    lf_err err = LF_ERR_INIT;
    struct small s = small();
    lf_val h = lf_linear(s.g, lf_tp_enter(s.g, s.x), s.up, LF_NONE);
    lf_val y = lf_tp_leave(s.g, lf_linear(s.g, h, s.down, lf_param(s.g, "bias")));
    tap_rc(finish(&s, lf_add(s.g, s.x, y), NULL, &err), 0, &err, NULL, "as it should be");

    s = small();
    h = lf_linear(s.g, s.x, s.up, LF_NONE);
    tap_rc(finish(&s, lf_tp_leave(s.g, lf_linear(s.g, h, s.down, LF_NONE)), NULL, &err), LF_EINVAL,
           &err, "linear does not add up on the tensor axis of the layout: embed.0 is same, up is",
           "a product that nothing enters");

    s = small();
    h = lf_linear(s.g, lf_tp_enter(s.g, s.x), s.up, LF_NONE);
    y = lf_norm(s.g, lf_linear(s.g, h, s.down, LF_NONE), lf_param(s.g, "norm"), LF_NONE, &rms);
    tap_rc(finish(&s, y, NULL, &err), LF_EINVAL, &err, "norm does not add up",
           "a norm of a partial sum");

    for (int whole = 0; whole < 2; whole++) {
        const struct lf_norm_opts groups = {.eps = 1e-5f, .heads = 4, .each = true};
        s = small();
        h = lf_linear(s.g, lf_tp_enter(s.g, s.x), s.up, LF_NONE);
        h = lf_norm(s.g, h, lf_param(s.g, whole ? "wide" : "wide part"), LF_NONE, &groups);
        y = lf_tp_leave(s.g, lf_linear(s.g, h, s.down, LF_NONE));
        tap_rc(finish(&s, y, NULL, &err), whole ? LF_EINVAL : 0, &err,
               whole ? "norm does not add up" : NULL,
               whole ? "groups that ranks divide, under weights that they do not"
                     : "groups and their weights are divided alike");
    }

    s = small();
    h = lf_linear(s.g, lf_tp_enter(s.g, s.x), s.up, LF_NONE);
    y = lf_add(s.g, s.x, lf_linear(s.g, h, s.down, LF_NONE));
    tap_rc(finish(&s, lf_tp_leave(s.g, y), NULL, &err), LF_EINVAL, &err, "add does not add up",
           "what every rank has, added to a partial sum: it would count twice");

    s = small();
    h = lf_linear(s.g, lf_tp_enter(s.g, s.x), s.up, LF_NONE);
    y = lf_tp_leave(s.g, lf_linear(s.g, h, s.down, LF_NONE));
    tap_rc(finish(&s, lf_add(s.g, s.x, y), forget_sum, &err), LF_EINVAL, &err, "does not add up",
           "a gradient that is not summed over the ranks");

    s = small();
    lf_norm(s.g, s.x, lf_param(s.g, "norm"), LF_NONE, &rms);
    h = lf_linear(s.g, lf_norm(s.g, lf_tp_enter(s.g, s.x), lf_param(s.g, "norm"), LF_NONE, &rms),
                  s.up, LF_NONE);
    y = lf_tp_leave(s.g, lf_linear(s.g, h, s.down, LF_NONE));
    y = lf_norm(s.g, y, lf_param(s.g, "norm"), LF_NONE, &rms);
    tap_rc(finish(&s, y, NULL, &err), LF_EINVAL, &err, "another node wrote",
           "a parameter before and behind the sum: half of its gradient would count twice");

    s = small_of(true);
    h = lf_linear(s.g, lf_tp_enter(s.g, s.x), s.up, LF_NONE);
    y = lf_tp_leave(s.g, lf_linear(s.g, h, s.down, LF_NONE));
    lf_moe_route(s.g, lf_linear(s.g, y, lf_param(s.g, "embed"), LF_NONE), LF_NONE,
                 &(struct lf_route_opts){.k = 2});
    tap_rc(finish(&s, s.x, NULL, &err), LF_EINVAL, &err, "moe_route does not add up",
           "experts that are chosen for a rank's rows alone");

    s = small();
    h = lf_linear(s.g, lf_tp_enter(s.g, s.x), s.up, LF_NONE);
    y = lf_tp_leave(s.g, lf_linear(s.g, h, s.down, LF_NONE));
    tap_rc(finish(&s, lf_add(s.g, mixed(s.g, s.x), lf_col_gate(s.g, y, lf_param(s.g, "norm"))),
                  NULL, &err),
           0, &err, NULL, "rows mixed and columns weighed where every rank has them whole");

    s = small_of(true);
    h = lf_linear(s.g, lf_tp_enter(s.g, s.x), s.up, LF_NONE);
    y = lf_tp_leave(s.g, lf_linear(s.g, h, s.down, LF_NONE));
    tap_rc(finish(&s, mixed(s.g, y), NULL, &err), LF_EINVAL, &err, "mix_rows does not add up",
           "rows that other ranks have cannot be mixed");

    s = small_of(true);
    h = lf_linear(s.g, lf_tp_enter(s.g, s.x), s.up, LF_NONE);
    y = lf_tp_leave(s.g, lf_linear(s.g, h, s.down, LF_NONE));
    tap_rc(finish(&s, lf_fold_rows(s.g, y, 1), NULL, &err), LF_EINVAL, &err,
           "fold_rows does not add up", "nor laid beside each other");

    s = small();
    h = lf_linear(s.g, lf_tp_enter(s.g, s.x), s.up, LF_NONE);
    y = lf_col_gate(s.g, lf_linear(s.g, h, s.down, LF_NONE), lf_param(s.g, "norm"));
    tap_rc(finish(&s, lf_tp_leave(s.g, y), NULL, &err), 0, &err, NULL,
           "a partial sum may be weighed: its gradient is one, too");
}

/* Sizes that ranks cannot divide are refused where they are declared. */
static void test_sizes(void)
{
    lf_err err = LF_ERR_INIT;
    lf_pstore *ps = lf_pstore_create(&err);
    struct lf_param_desc d = {
        .name = "q", .ndim = 2, .dims = {24, 8}, .shard = LF_SHARD_ROWS, .shard_parts = 3};
    tap_rc(lf_pstore_set_layout(ps, &(struct lf_layout){.tensor = 2, .tensor_rank = 2}, &err),
           LF_EINVAL, &err, "no rank 2 of 2", "a rank that is not there");
    tap_rc(lf_pstore_set_layout(ps, &(struct lf_layout){.tensor = 2, .tensor_rank = 1}, &err), 0,
           &err, NULL, "two ranks");
    tap_rc(lf_pstore_add(ps, &d, &err), LF_EINVAL, &err, "24 elements in 3 parts do not divide",
           "three heads and two ranks");
    d.shard_parts = 4;
    tap_rc(lf_pstore_add(ps, &d, &err), 0, &err, NULL, "four heads");
    struct lf_box box;
    lf_pstore_box(ps, 0, &box);
    tap_ok(box.lo[0] == 12 && box.hi[0] == 24 && box.lo[1] == 0 && box.hi[1] == 8 &&
               box.replicas == 1,
           "the second has the last two");
    tap_rc(lf_pstore_set_layout(ps, &(struct lf_layout){0}, &err), LF_EINVAL, &err,
           "has tensors already", "too late");
    lf_pstore_destroy(ps);
    ps = lf_pstore_create(&err);
    d.shard_parts = 2;
    tap_rc(lf_pstore_set_layout(ps, &(struct lf_layout){.tensor = 4, .tensor_rank = 3}, &err), 0,
           &err, NULL, "four ranks");
    tap_rc(lf_pstore_add(ps, &d, &err), LF_EINVAL, &err, "24 elements in 2 parts do not divide",
           "two heads of queries and four ranks, two of which would count them twice");
    d.shard_shared = true;
    tap_rc(lf_pstore_add(ps, &d, &err), 0, &err, NULL, "heads of keys are shared");
    lf_pstore_box(ps, 0, &box);
    tap_ok(box.lo[0] == 12 && box.hi[0] == 24 && box.replicas == 2 && box.replica == 1,
           "the last two have the second one");
    lf_pstore_destroy(ps);
}

static char *golden(const char *file)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/tests/golden/layout/%s", getenv("LF_SRCDIR"), file);
    FILE *f = fopen(path, "r");
    char *text = calloc(1, 1 << 16);
    if (!f || !text || !fread(text, 1, (1 << 16) - 1, f))
        tap_bail("%s cannot be read", path);
    fclose(f);
    return text;
}

static void test_table(const char *name, int n, bool sequence)
{
    const struct row *row = row_of(name);
    char file[64];
    struct world w;
    launch(&w, row, n, (struct mode){.skip = -1, .sequence = sequence});
    snprintf(file, sizeof file, "%.40s-t%d%s.txt", name, n, sequence ? "-rows" : "");
    for (char *c = file; *c; c++)
        *c = *c == ' ' ? '-' : *c;
    if (getenv("LF_GOLDEN_WRITE")) {
        char path[4096];
        snprintf(path, sizeof path, "%s/tests/golden/layout/%s", getenv("LF_SRCDIR"), file);
        FILE *f = fopen(path, "w");
        if (!f || fputs(w.table ? w.table : w.error, f) < 0)
            tap_bail("%s", path);
        fclose(f);
    }
    char *want = golden(file);
    tap_str(w.table ? w.table : w.error, want, file);
    free(want);
    forget(&w);
}

int main(void)
{
    TAP(1, test_can_fail());
    TAP(3, test_parts_apart());
    TAP(13, test_refused());
    TAP(10, test_sizes());
    for (int i = 0; i < N_ROWS; i++)
        TAP(4, test_row(&rows[i], i % 3 == 2 ? 4 : 2, false));
    for (int i = 0; i < N_ROWS; i++)
        if (!has_pictures(&rows[i])) /* whose rows are not divided */
            TAP(4, test_row(&rows[i], i % 3 == 2 ? 2 : 4, true));
    TAP(4, test_row(&rows[0], 8, false)); /* four ranks have one head of keys */
    for (int i = 0; i < N_ROWS; i++)
        if (!rows[i].compute && !rows[i].recompute)
            TAP(2, test_steps(&rows[i], i % 2 ? 4 : 2, i % 4 < 2 && !has_pictures(&rows[i])));
    TAP(2, test_steps(&rows[0], 8, true));
    static const char *const tables[] = {"biases", "gpt2", "qk_norm",   "shared expert",
                                         "lora",   "dora", "fused dora"};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        TAP(1, test_table(tables[i], 2, false));
    TAP(1, test_table("lora", 4, false));
    TAP(1, test_table("gpt2", 2, true));
    TAP(1, test_table("qk_norm", 2, true));
    TAP(1, test_table("lora", 2, true));
    TAP(1, test_table("shared expert", 2, true));
    return tap_done();
}

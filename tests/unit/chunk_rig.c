/* SPDX-License-Identifier: Apache-2.0
 *
 * A decoder cut into chunks, in one process. */
#include "tests/unit/chunk_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/rng.h"
#include "engine/graph/priv.h"
#include "tests/tap/tap.h"

void rig_configure(const struct rig_model *m, lf_model_config *c)
{
    static const char *const base[] = {"layers=4", "hidden=32", "heads=4",          "kv_heads=2",
                                       "ffn=48",   "vocab=48",  "max_positions=64", "init_std=0.3"};
    const size_t n = sizeof base / sizeof *base;
    lf_err err = LF_ERR_INIT;
    lf_model_config_defaults(c);
    if (lf_model_config_family(c, m->family ? m->family : "llama", "test", &err))
        tap_bail("%s", err.text);
    for (size_t i = 0; i < n + RIG_SET; i++) {
        const char *set = i < n ? base[i] : m->set[i - n];
        char key[48];
        if (!set)
            break;
        const char *eq = strchr(set, '=');
        snprintf(key, sizeof key, "%.*s", (int)(eq - set), set);
        if (lf_model_config_set(c, key, eq + 1, "test", &err))
            tap_bail("%s: %s", m->name, err.text);
    }
    if (lf_model_config_finish(c, &err))
        tap_bail("%s: %s", m->name, err.text);
}

int rig_cut(const struct rig_way *w, int frozen, struct lf_decoder_chunk out[RIG_CHUNKS])
{
    const int n = w->n ? w->n : 1;
    for (int k = 0; k < n; k++)
        out[k] = (struct lf_decoder_chunk){.begin = k ? w->end[k - 1] : 0,
                                           .end = w->n ? w->end[k] : RIG_LAYERS,
                                           .first = k == 0,
                                           .last = k == n - 1,
                                           .frozen_before = k <= frozen && frozen > 0};
    return n;
}

/* ---- planning ---- */

static void adapt(const struct rig_model *m, struct rig_rank *k)
{
    lf_err err = LF_ERR_INIT;
    struct lf_adapter_config a = {.rank = abs(m->lora),
                                  .alpha = 6,
                                  .dora = m->lora < 0,
                                  .dropout = m->lora_dropout,
                                  .head = m->head == RIG_SCORE,
                                  .mtp = m->mtp};
    if (m->targets) {
        a.n_targets = 1;
        snprintf(a.target[0], sizeof a.target[0], "%s", m->targets);
    }
    if (m->lora && lf_decoder_adapt(k->d, k->ps, &a, &err))
        tap_bail("%s", err.text);
    if (m->freeze)
        lf_pstore_freeze_matching(k->ps, m->freeze, true);
}

bool rig_trains(const struct rig *g)
{
    return g->m->head != RIG_SCORING && g->m->head != RIG_LOGITS;
}

static lf_graph *graph_of(const struct rig *g, struct rig_rank *k, int i, lf_err *err)
{
    const bool two = lf_model_is_seq2seq(lf_decoder_config(k->d));
    const struct lf_decoder_rows rows = {.rows = RIG_ROWS,
                                         .source_rows = two ? RIG_SOURCES : 0,
                                         .n_docs = RIG_DOCS,
                                         .noise = g->m->noise,
                                         .chunk = g->w->n ? &g->chunk[i] : NULL};
    const struct lf_decoder_heads heads = {.train = true,
                                           .dropout = true,
                                           .logp = g->m->head == RIG_LOGP,
                                           .entropy = g->m->head == RIG_LOGP,
                                           .score = g->m->head == RIG_SCORE};
    char name[16];
    snprintf(name, sizeof name, "chunk%d", i);
    switch (g->m->head) {
    case RIG_LOSS:
        return lf_decoder_loss_graph(k->d, k->ps, name, &rows, true, err);
    case RIG_SCORING:
        return lf_decoder_score_graph(k->d, k->ps, name, &rows, err);
    case RIG_LOGITS:
        return lf_decoder_logits_graph(k->d, k->ps, name, &rows, err);
    default:
        return lf_decoder_heads_graph(k->d, k->ps, name, &rows, &heads, err);
    }
}

/* Tensors that begin as zeros, such as B of adapters, would hide what they multiply. */
static void warm(lf_pstore *ps)
{
    lf_err err = LF_ERR_INIT;
    for (int i = 0; i < lf_pstore_count(ps); i++) {
        const struct lf_param_desc *d = lf_pstore_desc(ps, i);
        int64_t n = 1;
        for (int k = 0; k < d->ndim; k++)
            n *= d->dims[k];
        if (!d->adapter || d->init != LF_INIT_ZERO)
            continue;
        float *x = lf_calloc((size_t)n, sizeof *x, &err);
        for (int64_t e = 0; x && e < n; e++)
            x[e] = 0.3f * (float)lf_rng_normal(4, lf_name_site(d->name), (uint64_t)e);
        if (!x || lf_pstore_write(ps, i, LF_F32, x, &err))
            tap_bail("%s", err.text);
        free(x);
    }
}

/* The store of some chunks. */
static bool declare(const struct rig *g, struct rig_rank *k, int i, int n, lf_err *err)
{
    lf_model_config c;
    rig_configure(g->m, &c);
    const struct lf_fp8_layers marks = {.attention = true, .mlp = true, .edges = g->w->fp8_edges};
    k->d = lf_decoder_create(&c, 48, err);
    k->ps = lf_pstore_create(err);
    const struct lf_layout l = {.tensor = g->w->tensor > 1 ? g->w->tensor : 1,
                                .tensor_rank = g->tensor_rank,
                                .sequence = g->w->sequence};
    if (k->d && g->m->mtp)
        lf_decoder_train_mtp(k->d);
    if (!k->d || !k->ps || lf_pstore_set_layout(k->ps, &l, err) ||
        lf_decoder_declare_chunks(k->d, k->ps, &g->chunk[i], n, err))
        return false;
    adapt(g->m, k);
    return !g->w->fp8 || !lf_decoder_mark_fp8(k->d, k->ps, &marks, err);
}

static bool add_chunk(struct rig *g, struct rig_rank *k, int i, lf_err *err)
{
    const struct rig_way *w = g->w;
    struct rig_part *p = &g->part[i];
    const bool train = rig_trains(g) && i >= g->r->frozen;
    p->on = k;
    p->slots = w->in_flight ? g->n - i + w->split : 1;
    const struct lf_chain_opts o = {.train = train,
                                    .split = w->split && train,
                                    .recompute = w->recompute,
                                    .slots = p->slots,
                                    .chunk = w->n && !w->plain ? i + 1 : 0};
    lf_graph *graph = graph_of(g, k, i, err);
    p->chain = graph ? lf_plan_add(k->p, graph, &o, err) : -1;
    lf_graph_destroy(graph);
    return p->chain >= 0;
}

/* The plan of chunks [i, i + n). */
static bool plan_rank(struct rig *g, struct rig_rank *k, int i, int n, lf_err *err)
{
    const struct rig_way *w = g->w;
    const struct lf_plan_opts o = {.target = w->open ? lf_target_find("sm_90") : NULL,
                                   .threads = 1,
                                   .compute = w->compute,
                                   .fp8 = w->fp8,
                                   .no_reuse = w->no_reuse};
    k->p = lf_plan_create(k->ps, &o, err);
    k->b = w->open ? w->open(1, err) : lf_back_cpu_create(lf_target_host()->isa, 1, err);
    bool good = k->p && k->b;
    for (int c = i; c < i + n && good; c++)
        good = add_chunk(g, k, c, err);
    const struct lf_plan_ranks two = {.ranks = 2, .bucket_bytes = 4096, .zero = w->zero};
    const struct lf_adamw_opts adamw = {
        .beta1 = 0.9f, .beta2 = 0.99f, .eps = 1e-8f, .moments = LF_F32, .masters = LF_F32};
    if (good && (w->zero || w->reduce))
        good = !lf_plan_optimizer(k->p, &adamw, err) && !lf_plan_data_parallel(k->p, &two, err);
    return good && !lf_plan_finish(k->p, err);
}

/* ---- ranks of the tensor axis ---- */

/* Shows this rank's memory to the other; returns that of rank `of`. */
static void *shown(struct rig *g, const void *mine, int of)
{
    memcpy(&g->world->part[g->tensor_rank], &mine, sizeof mine);
    pthread_barrier_wait(&g->world->barrier);
    return g->world->part[of];
}

static int tensor_sum(void *user, float *data, size_t n, lf_err *err)
{
    struct rig *g = user;
    float *sum = lf_calloc(n, sizeof *sum, err);
    const float *a = shown(g, data, 0), *b = g->world->part[1];
    for (size_t i = 0; sum && i < n; i++)
        sum[i] = a[i] + b[i];
    pthread_barrier_wait(&g->world->barrier);
    if (sum)
        memcpy(data, sum, n * sizeof *sum);
    free(sum);
    return sum ? 0 : LF_ENOMEM;
}

static int tensor_scatter(void *user, float *out, const float *data, size_t n, lf_err *err)
{
    struct rig *g = user;
    const size_t at = (size_t)g->tensor_rank * n;
    const float *a = shown(g, data, 0), *b = g->world->part[1];
    (void)err;
    for (size_t i = 0; i < n; i++)
        out[i] = a[at + i] + b[at + i];
    pthread_barrier_wait(&g->world->barrier);
    return 0;
}

static int tensor_gather(void *user, void *all, size_t bytes, lf_err *err)
{
    struct rig *g = user;
    const int other = 1 - g->tensor_rank;
    const char *from = shown(g, all, other);
    (void)err;
    memcpy((char *)all + (size_t)other * bytes, from + (size_t)other * bytes, bytes);
    pthread_barrier_wait(&g->world->barrier);
    return 0;
}

const struct lf_exec_comm rig_comm = {
    .tensor_sum = tensor_sum, .tensor_scatter = tensor_scatter, .tensor_gather = tensor_gather};

static bool bind_rank(struct rig *g, struct rig_rank *k, lf_err *err)
{
    const struct lf_step_record rec = {.seed = 3,
                                       .loss_scale = 1,
                                       .lr = 0.01f,
                                       .bias_corr1 = 0.1f,
                                       .bias_corr2 = 0.01f,
                                       .inv_tokens = 1.0f / 30,
                                       .more_inv = 0.3f / 30,
                                       .inv_batches = 1.0f / (float)g->micro};
    k->ex = lf_exec_create(k->p, k->b, &(struct lf_exec_opts){.poison = !g->w->open && !g->w->few},
                           err);
    if (!k->ex || lf_pstore_init(k->ps, 11, err))
        return false;
    const struct lf_exec_comm data = {.reduce = g->w->reduce, .early = g->w->early};
    if (g->w->reduce)
        lf_exec_set_comm(k->ex, &data, k->b);
    else
        lf_exec_set_comm(k->ex, &rig_comm, g);
    warm(k->ps);
    return !lf_exec_adapter_start(k->ex, err) && !lf_exec_record_write(k->ex, &rec, err);
}

static void close_rank(struct rig_rank *k)
{
    lf_exec_destroy(k->ex);
    lf_plan_destroy(k->p);
    lf_back_destroy(k->b);
    lf_pstore_destroy(k->ps);
    lf_decoder_destroy(k->d);
}

/* Has chunk i nothing to train? */
static bool frozen(const struct rig *g, int i)
{
    lf_err err = LF_ERR_INIT;
    struct rig_rank k = {0};
    const bool yes = declare(g, &k, i, 1, &err) && lf_pstore_elements_trained(k.ps) == 0;
    close_rank(&k);
    return yes;
}

static bool open_ranks(struct rig *g, lf_err *err)
{
    const int each = g->w->together ? g->n : 1;
    bool good = true;
    while (g->r->frozen < g->n - 1 && frozen(g, g->r->frozen))
        g->r->frozen++;
    rig_cut(g->w, g->r->frozen, g->chunk);
    for (int i = 0; i < g->n && good; i += each) {
        struct rig_rank *k = &g->rank[g->ranks++];
        good = declare(g, k, i, each, err) && plan_rank(g, k, i, each, err) && bind_rank(g, k, err);
    }
    return good;
}

/* ---- results ---- */

static void collect(struct rig *g, const struct rig_rank *k, int chunk)
{
    struct rig_result *r = g->r;
    lf_err err = LF_ERR_INIT;
    struct lf_step_record rec;
    if (lf_exec_record_read(k->ex, &rec, &err))
        tap_bail("%s", err.text);
    r->rec.loss_sum += rec.loss_sum;
    r->rec.tokens += rec.tokens;
    r->rec.correct += rec.correct;
    for (int h = 0; h < LF_MORE_HEADS; h++) {
        r->rec.more_loss[h] += rec.more_loss[h];
        r->rec.more_tokens[h] += rec.more_tokens[h];
        r->rec.more_correct[h] += rec.more_correct[h];
    }
    r->rec.router_aux += rec.router_aux;
    r->rec.router_entropy += rec.router_entropy;
    r->rec.router_load += rec.router_load;
    r->rec.router_seen += rec.router_seen;
    for (int i = 0; i < lf_pstore_count(k->ps); i++) {
        struct lf_pview v;
        if (lf_pstore_view(k->ps, i, LF_P_GRAD, &v) != 1)
            continue;
        struct rig_tensor *t = &r->t[r->n_t++];
        snprintf(t->name, sizeof t->name, "%s", v.name);
        t->chunk = chunk;
        t->n = v.count;
        t->grad = lf_calloc((size_t)v.count, sizeof *t->grad, &err);
        if (!t->grad || lf_pstore_read(k->ps, i, LF_P_GRAD, t->grad, v.bytes, &err))
            tap_bail("%s", err.text);
    }
}

const struct rig_tensor *rig_find(const struct rig_result *r, const char *name, bool last)
{
    const struct rig_tensor *found = NULL;
    for (int i = 0; i < r->n_t; i++)
        if (strcmp(r->t[i].name, name) == 0 && (last || !found))
            found = &r->t[i];
    return found;
}

/* All chunks of one rank of the tensor axis. */
static void run_rank(struct rig *g)
{
    lf_err err = LF_ERR_INIT;
    struct rig_result *r = g->r;
    memset(r, 0, sizeof *r);
    r->exact = g->w->together && !g->w->in_flight;
    g->micro = g->w->micro ? g->w->micro : 1;
    g->n = rig_cut(g->w, 0, g->chunk);
    const bool good = open_ranks(g, &err);
    if (good)
        rig_run_all(g);
    else
        snprintf(r->error, sizeof r->error, "%s", err.text);
    for (int i = 0; i < g->n && good; i++)
        lf_plan_cost(g->part[i].on->p, g->part[i].chain, &r->cost[i]);
    r->hash = good ? lf_plan_hash(g->rank[0].p) : 0;
    for (int i = 0; i < g->ranks; i++) {
        if (good) {
            collect(g, &g->rank[i], i);
            lf_plan_bytes(g->rank[i].p, &r->bytes[i]);
        }
        close_rank(&g->rank[i]);
    }
}

static void *thread_main(void *rig)
{
    run_rank(rig);
    return NULL;
}

void rig_run(const struct rig_model *m, const struct rig_way *w, struct rig_result *r)
{
    lf_err err = LF_ERR_INIT;
    const int n = w->tensor > 1 ? w->tensor : 1;
    struct rig_world world;
    pthread_t thread[2];
    struct rig *g = lf_calloc((size_t)n, sizeof *g, &err);
    if (!g || n > 2)
        tap_bail("%d ranks", n);
    pthread_barrier_init(&world.barrier, NULL, (unsigned)n);
    for (int k = 0; k < n; k++) {
        g[k].m = m;
        g[k].w = w;
        g[k].r = &r[k];
        g[k].tensor_rank = k;
        g[k].world = &world;
        if (pthread_create(&thread[k], NULL, thread_main, &g[k]))
            tap_bail("no thread");
    }
    for (int k = 0; k < n; k++)
        pthread_join(thread[k], NULL);
    pthread_barrier_destroy(&world.barrier);
    free(g);
}

void rig_forget(struct rig_result *r)
{
    for (int i = 0; i < r->n_t; i++)
        free(r->t[i].grad);
    r->n_t = 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Adapters of a decoder: an untrained one changes no bit, a trained one is the merged model, its
 * gradients are those of differences, decoding has the bits of training, and the base takes no room
 * for training. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/rng.h"
#include "engine/graph/exec.h"
#include "engine/model/adapter.h"
#include "tests/tap/tap.h"

enum { T = 40, DOCS = 3, PAGE = LF_ATTN_TILE };

struct rig {
    lf_decoder *d;
    lf_pstore *ps;
    lf_plan *plan;
    lf_back *back;
    lf_exec *ex;
    int train, logits, off, paged;
    int64_t vocab, pages;
    int32_t tokens[T], targets[T], positions[T], offsets[T], cu[DOCS + 1];
    int64_t samples[T];
};

static void load(lf_model_config *c, const char *name)
{
    char path[4096];
    lf_err err = LF_ERR_INIT;
    snprintf(path, sizeof path, "%s/models/%s", getenv("LF_SRCDIR"), name);
    if (lf_model_config_load(c, path, &err))
        tap_bail("%s", err.text);
    c->init_std = 0.2;
}

/* tiny-llama with such mixers. */
static void with(lf_model_config *c, const char *const set[8])
{
    lf_err err = LF_ERR_INIT;
    load(c, "tiny-llama.ini");
    for (int i = 0; i < 8 && set[i]; i++) {
        char key[48];
        const char *eq = strchr(set[i], '=');
        snprintf(key, sizeof key, "%.*s", (int)(eq - set[i]), set[i]);
        if (lf_model_config_set(c, key, eq + 1, "mixers", &err))
            tap_bail("%s", err.text);
    }
    if (lf_model_config_finish(c, &err))
        tap_bail("%s", err.text);
}

static int add(struct rig *r, lf_graph *g, bool train, enum lf_recompute how)
{
    lf_err err = LF_ERR_INIT;
    if (!g)
        tap_bail("a graph was refused");
    int k =
        lf_plan_add(r->plan, g, &(struct lf_chain_opts){.train = train, .recompute = how}, &err);
    if (k < 0)
        tap_bail("%s", err.text);
    lf_graph_destroy(g);
    return k;
}

static void batch(struct rig *r)
{
    static const int32_t cu[DOCS + 1] = {0, 23, 37, 37};
    memcpy(r->cu, cu, sizeof cu);
    for (int i = 0; i < T; i++) {
        r->tokens[i] = (int32_t)(lf_rng_u32(1, 2, (uint64_t)i) % (uint32_t)r->vocab);
        r->targets[i] =
            i < 5 || i >= 37 ? -1 : (int32_t)(lf_rng_u32(1, 3, (uint64_t)i) % (uint32_t)r->vocab);
        r->positions[i] = i < 23 ? i : i < 37 ? i - 23 : 0;
        r->offsets[i] = i;
        r->samples[i] = 7;
    }
}

static const char *frozen_but; /* pattern: everything else is frozen */

/* a NULL: no adapter. */
static void open_rig(struct rig *r, const lf_model_config *c, const struct lf_adapter_config *a,
                     enum lf_dtype compute, enum lf_recompute how)
{
    lf_err err = LF_ERR_INIT;
    const struct lf_plan_opts po = {.threads = 2, .compute = compute, .mode = LF_INVARIANT};
    struct lf_decoder_rows rows = {.rows = T, .n_docs = DOCS};
    memset(r, 0, sizeof *r);
    r->vocab = c->vocab;
    r->pages = (T + PAGE - 1) / PAGE;
    const struct lf_decoder_paged paged = {.rows = 1,
                                           .mode = LF_INVARIANT,
                                           .n_seq = 1,
                                           .max_pages = r->pages,
                                           .n_pages = r->pages,
                                           .page_tokens = PAGE,
                                           .n_select = 1,
                                           .cache = compute};
    r->d = lf_decoder_create(c, T, &err);
    r->ps = lf_pstore_create(&err);
    if (!r->d || !r->ps || lf_decoder_declare(r->d, r->ps, &err) ||
        (a && lf_decoder_adapt(r->d, r->ps, a, &err)) ||
        !(r->plan = lf_plan_create(r->ps, &po, &err)))
        tap_bail("%s", err.text);
    if (frozen_but && (!lf_pstore_freeze(r->ps, "", true) ||
                       !lf_pstore_freeze_matching(r->ps, frozen_but, false)))
        tap_bail("nothing to freeze");
    r->train = add(r, lf_decoder_loss_graph(r->d, r->ps, "train", &rows, true, &err), true, how);
    r->logits = add(r, lf_decoder_logits_graph(r->d, r->ps, "logits", &rows, &err), false, 0);
    r->paged = add(r, lf_decoder_paged_graph(r->d, r->ps, "paged", &paged, &err), false, 0);
    rows.adapter_off = true;
    r->off = add(r, lf_decoder_logits_graph(r->d, r->ps, "off", &rows, &err), false, 0);
    const struct lf_adamw_opts adam = {.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f};
    if (lf_plan_optimizer(r->plan, &adam, &err) || lf_plan_finish(r->plan, &err) ||
        !(r->back = lf_back_cpu_create(lf_target_host()->isa, 2, &err)) ||
        !(r->ex = lf_exec_create(r->plan, r->back, NULL, &err)) || lf_pstore_init(r->ps, 3, &err) ||
        lf_exec_adapter_start(r->ex, &err))
        tap_bail("%s", err.text);
    batch(r);
}

static void close_rig(struct rig *r)
{
    lf_exec_destroy(r->ex);
    lf_back_destroy(r->back);
    lf_plan_destroy(r->plan);
    lf_pstore_destroy(r->ps);
    lf_decoder_destroy(r->d);
}

static void feed(struct rig *r, int chain)
{
    lf_err err = LF_ERR_INIT;
    int rc = lf_exec_write(r->ex, chain, 0, "tokens", r->tokens, sizeof r->tokens, &err);
    rc = rc ? rc
            : lf_exec_write(r->ex, chain, 0, "positions", r->positions, sizeof r->positions, &err);
    rc = rc ? rc : lf_exec_write(r->ex, chain, 0, "cu_seqlens", r->cu, sizeof r->cu, &err);
    if (!rc && chain == r->train)
        rc = lf_exec_write(r->ex, chain, 0, "targets", r->targets, sizeof r->targets, &err);
    if (!rc && chain == r->train && lf_decoder_is_random(r->d)) {
        rc = lf_exec_write(r->ex, chain, 0, "samples", r->samples, sizeof r->samples, &err);
        rc = rc ? rc
                : lf_exec_write(r->ex, chain, 0, "offsets", r->offsets, sizeof r->offsets, &err);
    }
    if (rc)
        tap_bail("%s", err.text);
}

static float *logits(struct rig *r, int chain)
{
    lf_err err = LF_ERR_INIT;
    float *z = malloc((size_t)(T * r->vocab) * sizeof *z);
    feed(r, chain);
    if (lf_exec_run(r->ex, chain, LF_FWD, 0, LF_FIRST, &err) ||
        lf_exec_read(r->ex, chain, 0, "logits", z, (size_t)(T * r->vocab) * sizeof *z, &err))
        tap_bail("%s", err.text);
    return z;
}

static double loss(struct rig *r, uint64_t seed, bool backward)
{
    lf_err err = LF_ERR_INIT;
    struct lf_step_record rec = {.loss_scale = 1, .inv_tokens = 1.0f / 32, .seed = seed};
    feed(r, r->train);
    if (lf_exec_record_write(r->ex, &rec, &err) ||
        lf_exec_run(r->ex, r->train, LF_FWD, 0, LF_FIRST, &err) ||
        (backward && lf_exec_run(r->ex, r->train, LF_BWD, 0, LF_FIRST, &err)) ||
        lf_exec_record_read(r->ex, &rec, &err))
        tap_bail("%s", err.text);
    return rec.loss_sum / 32;
}

static float *read(struct rig *r, int i, enum lf_pkind kind, int64_t *n)
{
    lf_err err = LF_ERR_INIT;
    const struct lf_param_desc *d = lf_pstore_desc(r->ps, i);
    *n = d->dims[0] * (d->ndim > 1 ? d->dims[1] : 1) * (d->ndim > 2 ? d->dims[2] : 1);
    float *x = malloc((size_t)*n * sizeof *x);
    if (lf_pstore_read(r->ps, i, kind, x, (size_t)*n * sizeof *x, &err))
        tap_bail("%s", err.text);
    return x;
}

/* Give every B something to say, and every magnitude. */
static void stir(struct rig *r)
{
    lf_err err = LF_ERR_INIT;
    for (int i = 0; i < lf_pstore_count(r->ps); i++) {
        const struct lf_param_desc *d = lf_pstore_desc(r->ps, i);
        int64_t n;
        const bool m = strstr(d->name, "lora_magnitude");
        if (!strstr(d->name, "lora_B") && !m)
            continue;
        float *x = read(r, i, LF_P_MASTER, &n);
        for (int64_t k = 0; k < n; k++) {
            const float noise = 0.1f * (float)lf_rng_normal(9, lf_name_site(d->name), (uint64_t)k);
            x[k] = m ? x[k] * (1 + noise) : noise;
        }
        if (lf_pstore_write(r->ps, i, LF_F32, x, &err))
            tap_bail("%s", err.text);
        free(x);
    }
}

/* ---- the merged model ---- */

/* The A of the adapter "of", or that which tensor i shares with others. */
static int find_a(struct rig *r, int i, const char *of)
{
    char name[128];
    const int first = lf_pstore_adapter_first(r->ps, i);
    const char *shared = first < 0 ? NULL : lf_pstore_desc(r->ps, first)->name;
    snprintf(name, sizeof name, "%s.lora_B", of);
    if (lf_pstore_find(r->ps, name) < 0)
        return -1;
    snprintf(name, sizeof name, "%.*s.lora_A",
             shared ? (int)(strlen(shared) - strlen(".weight")) : (int)strlen(of),
             shared ? shared : of);
    return lf_pstore_find(r->ps, name);
}

/* w of tensor i plus the rows [row, ...) of scale B A of the adapter "of". */
static void merge_rows(struct rig *r, int i_w, float *w, const char *of, int64_t row, double scale)
{
    const struct lf_param_desc *d = lf_pstore_desc(r->ps, i_w);
    const int ia = find_a(r, i_w, of);
    char name[128];
    int64_t n;
    if (ia < 0)
        return;
    const bool experts = d->ndim == 3; /* matrices behind each other, with an A each */
    const int64_t rank = lf_pstore_desc(r->ps, ia)->dims[experts], cols = d->dims[1 + experts],
                  rows = experts ? d->dims[0] * d->dims[1] : d->dims[0];
    float *a = read(r, ia, LF_P_MASTER, &n);
    snprintf(name, sizeof name, "%s.lora_B", of);
    float *b = read(r, lf_pstore_find(r->ps, name), LF_P_MASTER, &n);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < cols; k++) {
            const int64_t at = experts ? i / d->dims[1] * rank : 0;
            double s = 0;
            for (int64_t j = 0; j < rank; j++)
                s += (double)b[(row + i) * rank + j] * (double)a[(at + j) * cols + k];
            w[i * cols + k] += (float)(scale * s);
        }
    free(a);
    free(b);
    snprintf(name, sizeof name, "%s.lora_magnitude", of);
    const int im = lf_pstore_find(r->ps, name);
    if (im < 0)
        return;
    float *m = read(r, im, LF_P_MASTER, &n);
    for (int64_t i = 0; i < d->dims[0]; i++) {
        double s = 0;
        for (int64_t k = 0; k < cols; k++)
            s += (double)w[i * cols + k] * (double)w[i * cols + k];
        for (int64_t k = 0; k < cols; k++)
            w[i * cols + k] = (float)((double)w[i * cols + k] * (double)m[row + i] / sqrt(s));
    }
    free(m);
}

/* The base in m becomes r's base with its adapter inside. */
static void merge(struct rig *m, struct rig *r, double scale)
{
    lf_err err = LF_ERR_INIT;
    for (int i = 0; i < lf_pstore_count(m->ps); i++) {
        const struct lf_param_desc *d = lf_pstore_desc(m->ps, i);
        int64_t n, row = 0;
        char of[128];
        float *w = read(m, i, LF_P_MASTER, &n);
        snprintf(of, sizeof of, "%.*s", (int)(strlen(d->name) - strlen(".weight")), d->name);
        if (d->ndim >= 2)
            merge_rows(r, i, w, of, 0, scale);
        for (int k = i; k > 0 && strcmp(lf_pstore_desc(m->ps, k - 1)->group, d->group) == 0; k--)
            row += lf_pstore_desc(m->ps, k - 1)->dims[0];
        snprintf(of, sizeof of, "%.*s", (int)(strlen(d->group) - strlen(".weight")), d->group);
        if (d->ndim == 2 && strcmp(d->group, d->name) != 0)
            merge_rows(r, i, w, of, row, scale);
        if (lf_pstore_write(m->ps, i, LF_F32, w, &err))
            tap_bail("%s", err.text);
        free(w);
    }
}

static double difference(const float *a, const float *b, int64_t n)
{
    double worst = 0, top = 0;
    for (int64_t i = 0; i < n; i++) {
        worst = tap_worse(worst, fabs((double)a[i] - (double)b[i]));
        top = tap_worse(top, fabs((double)a[i]));
    }
    return worst / top;
}

/* ---- gradients ---- */

/* Lengths of the rows of W + scale B A of the adapter whose tensor i is, by its store's weights.
 * Owned. */
static double *lengths(struct rig *r, int i, double scale, int64_t *rows)
{
    char name[160], stem[128];
    const char *adapter = lf_pstore_desc(r->ps, i)->name;
    int64_t n, at = 0;
    snprintf(stem, sizeof stem, "%.*s", (int)(strrchr(adapter, '.') - adapter), adapter);
    snprintf(name, sizeof name, "%s.lora_B", stem);
    const int ib = lf_pstore_find(r->ps, name);
    snprintf(name, sizeof name, "%s.lora_A", stem);
    const int ia = lf_pstore_find(r->ps, name);
    snprintf(name, sizeof name, "%s.weight", stem);
    *rows = lf_pstore_desc(r->ps, ib)->dims[0];
    const int64_t rank = lf_pstore_desc(r->ps, ib)->dims[1],
                  cols = lf_pstore_desc(r->ps, ia)->dims[1];
    float *a = read(r, ia, LF_P_MASTER, &n), *b = read(r, ib, LF_P_MASTER, &n);
    double *out = calloc((size_t)*rows, sizeof *out);
    for (int k = 0; k < lf_pstore_count(r->ps);
         k++) { /* the tensor of that name, or those of that group */
        const struct lf_param_desc *d = lf_pstore_desc(r->ps, k);
        if (strcmp(d->name, name) != 0 && strcmp(d->group, name) != 0)
            continue;
        float *w = read(r, k, LF_P_MASTER, &n);
        for (int64_t e = 0; e < n; e++) {
            double s = 0;
            for (int64_t j = 0; j < rank; j++)
                s += (double)b[(at + e / cols) * rank + j] * (double)a[j * cols + e % cols];
            out[at + e / cols] += pow((double)w[e] + scale * s, 2);
        }
        at += d->dims[0];
        free(w);
    }
    for (int64_t k = 0; k < *rows; k++)
        out[k] = sqrt(out[k]);
    free(a);
    free(b);
    return out;
}

/* The magnitude beside tensor i times now / before: what keeps the lengths a constant. */
static void hold(struct rig *r, int i, double *before, double *now)
{
    lf_err err = LF_ERR_INIT;
    char name[160];
    const char *adapter = lf_pstore_desc(r->ps, i)->name;
    int64_t n;
    snprintf(name, sizeof name, "%.*s.lora_magnitude", (int)(strrchr(adapter, '.') - adapter),
             adapter);
    const int im = lf_pstore_find(r->ps, name);
    float *m = read(r, im, LF_P_MASTER, &n);
    for (int64_t k = 0; k < n; k++)
        m[k] = (float)((double)m[k] * now[k] / before[k]);
    if (lf_pstore_write(r->ps, im, LF_F32, m, &err))
        tap_bail("%s", err.text);
    free(m);
}

static double held_scale; /* of an adapter with magnitudes, else 0 */

/* The loss with x in tensor i, lengths of the weights being what they were. */
static double loss_at(struct rig *r, int i, const float *x)
{
    lf_err err = LF_ERR_INIT;
    const bool held = held_scale > 0 && !strstr(lf_pstore_desc(r->ps, i)->name, "lora_magnitude");
    int64_t rows;
    double *before = held ? lengths(r, i, held_scale, &rows) : NULL;
    if (lf_pstore_write(r->ps, i, LF_F32, x, &err))
        tap_bail("%s", err.text);
    double *now = held ? lengths(r, i, held_scale, &rows) : NULL;
    if (held)
        hold(r, i, before, now);
    const double l = loss(r, 5, false);
    if (held)
        hold(r, i, now, before);
    free(before);
    free(now);
    return l;
}

static double slope(struct rig *r, int i, const float *w, const float *d, int64_t n, double h)
{
    lf_err err = LF_ERR_INIT;
    double side[2];
    float *x = malloc((size_t)n * sizeof *x);
    for (int s = 0; s < 2; s++) {
        for (int64_t k = 0; k < n; k++)
            x[k] = w[k] + (float)(s ? h : -h) * d[k];
        side[s] = loss_at(r, i, x);
        if (lf_pstore_write(r->ps, i, LF_F32, w, &err))
            tap_bail("%s", err.text);
    }
    free(x);
    return (side[1] - side[0]) / (2 * h);
}

/* Along its own gradient the slope of the loss is the gradient's length. Worst relative error over
 * the adapter. */
static double gradient_error(struct rig *r, int *tensors)
{
    double worst = 0;
    *tensors = 0;
    for (int i = 0; i < lf_pstore_count(r->ps); i++) {
        int64_t n;
        if (!lf_pstore_desc(r->ps, i)->adapter)
            continue;
        loss(r, 5, true);
        float *g = read(r, i, LF_P_GRAD, &n), *w = read(r, i, LF_P_MASTER, &n);
        double len = 0;
        for (int64_t k = 0; k < n; k++)
            len += (double)g[k] * (double)g[k];
        len = sqrt(len);
        for (int64_t k = 0; k < n; k++)
            g[k] = (float)((double)g[k] / (len > 0 ? len : 1));
        const double h = len < 0.1 ? 3e-2 : 3e-3; /* longer where rounding would be seen */
        worst = tap_worse(worst, len > 0 ? fabs(slope(r, i, w, g, n, h) / len - 1) : 1);
        ++*tensors;
        free(g);
        free(w);
    }
    return worst;
}

/* ---- the base ---- */

static bool base_is_frozen(const struct rig *r, bool *any_master)
{
    struct lf_pview v;
    bool frozen = true;
    *any_master = false;
    for (int i = 0; i < lf_pstore_count(r->ps); i++) {
        const struct lf_param_desc *d = lf_pstore_desc(r->ps, i);
        const bool trained = lf_pstore_view(r->ps, i, LF_P_GRAD, &v) == 1 &&
                             lf_pstore_view(r->ps, i, LF_P_M, &v) == 1 &&
                             lf_pstore_view(r->ps, i, LF_P_V, &v) == 1;
        const bool none = !lf_pstore_view(r->ps, i, LF_P_GRAD, &v) &&
                          !lf_pstore_view(r->ps, i, LF_P_M, &v) &&
                          !lf_pstore_view(r->ps, i, LF_P_V, &v);
        frozen = frozen &&
                 (d->adapter ? trained && lf_pstore_view(r->ps, i, LF_P_MASTER, &v) == 1 : none);
        *any_master = *any_master || (!d->adapter && d->ndim == 2 && !strstr(d->name, "embed") &&
                                      lf_pstore_view(r->ps, i, LF_P_MASTER, &v) == 1);
    }
    return frozen;
}

/* ---- decoding ---- */

/* The first document fed token by token through the cache: the largest number of a row's logits
 * that differ. */
static bool decodes_alike(struct rig *r, const float *z)
{
    lf_err err = LF_ERR_INIT;
    float *got = malloc((size_t)r->vocab * sizeof *got);
    int32_t *table = calloc((size_t)r->pages, sizeof *table), zero = 0;
    bool same = true;
    for (int32_t p = 0; p < (int32_t)r->pages; p++)
        table[p] = p;
    for (int32_t i = 0; i < r->cu[1]; i++) {
        if (lf_exec_write(r->ex, r->paged, 0, "tokens", &r->tokens[i], 4, &err) ||
            lf_exec_write(r->ex, r->paged, 0, "positions", &i, 4, &err) ||
            lf_exec_write(r->ex, r->paged, 0, "seq", &zero, 4, &err) ||
            lf_exec_write(r->ex, r->paged, 0, "select", &zero, 4, &err) ||
            lf_exec_write(r->ex, r->paged, 0, "table", table, (size_t)r->pages * 4, &err) ||
            lf_exec_run(r->ex, r->paged, LF_FWD, 0, LF_FIRST, &err) ||
            lf_exec_read(r->ex, r->paged, 0, "logits", got, (size_t)r->vocab * 4, &err))
            tap_bail("%s", err.text);
        same = same && memcmp(got, z + i * r->vocab, (size_t)r->vocab * 4) == 0;
    }
    free(got);
    free(table);
    return same;
}

/* Freezing takes work away and changes no bit of the gradients that remain. */
static void test_frozen(const lf_model_config *c)
{
    lf_err err = LF_ERR_INIT;
    struct rig full, part;
    bool same = true;
    int compared = 0;
    open_rig(&full, c, NULL, LF_F32, LF_RECOMPUTE_NONE);
    frozen_but = "layers.1.mlp.*";
    open_rig(&part, c, NULL, LF_F32, LF_RECOMPUTE_NONE);
    frozen_but = NULL;
    loss(&full, 5, true);
    loss(&part, 5, true);
    for (int i = 0; i < lf_pstore_count(part.ps); i++) {
        struct lf_pview v;
        int64_t n;
        const bool trained = lf_pstore_view(part.ps, i, LF_P_GRAD, &v) == 1;
        same = same &&
               trained == (strncmp(lf_pstore_desc(part.ps, i)->name, "layers.1.mlp.", 13) == 0);
        if (!trained)
            continue;
        float *x = read(&full, i, LF_P_GRAD, &n), *y = read(&part, i, LF_P_GRAD, &n);
        same = same && memcmp(x, y, (size_t)n * sizeof *x) == 0;
        compared++;
        free(x);
        free(y);
    }
    tap_ok(same && compared == 3,
           "gradients of what is not frozen are those of the whole model (%d tensors)", compared);
    tap_ok(lf_pstore_freeze_matching(part.ps, "layer.*", true) == 0,
           "a pattern that matches nothing says so%s", err.text);
    close_rig(&part);
    close_rig(&full);
}

static void set_targets(struct lf_adapter_config *a, const char *text)
{
    char buf[256];
    snprintf(buf, sizeof buf, "%s", text);
    a->n_targets = 0;
    for (char *save = NULL, *s = strtok_r(buf, " ", &save); s; s = strtok_r(NULL, " ", &save))
        snprintf(a->target[a->n_targets++], sizeof a->target[0], "%s", s);
}

static void test_targets(const lf_model_config *c, const char *targets, int want_tensors, bool dora)
{
    struct lf_adapter_config a = {
        .rank = 3, .alpha = 6, .rank_stabilised = strstr(targets, "qkv") != NULL, .dora = dora};
    struct rig r, m;
    int tensors = 0;
    set_targets(&a, targets);
    held_scale = dora ? lf_adapter_scale(&a) : 0;
    tap_diag("targets: %s%s", targets, dora ? ", DoRA" : "");
    open_rig(&r, c, &a, LF_F32, LF_RECOMPUTE_NONE);
    open_rig(&m, c, NULL, LF_F32, LF_RECOMPUTE_NONE);
    const size_t bytes = (size_t)(T * r.vocab) * sizeof(float);
    float *base = logits(&m, m.logits), *on = logits(&r, r.logits);
    tap_mem(on, base, bytes, "an untrained adapter changes no bit");
    free(on);
    stir(&r);
    on = logits(&r, r.logits);
    float *off = logits(&r, r.off);
    tap_mem(off, base, bytes, "switched off, the base remains");
    tap_ok(difference(on, base, T * r.vocab) > 1e-2, "a trained one speaks");
    merge(&m, &r, lf_adapter_scale(&a));
    float *merged = logits(&m, m.logits);
    double d = difference(on, merged, T * r.vocab);
    tap_ok(d < 1e-5, "it is the merged model (%.2g)", d);
    tap_ok(decodes_alike(&r, on), "decoding has the same bits");
    d = gradient_error(&r, &tensors);
    tap_ok(d < 2e-3, "gradients are those of differences (%.2g)", d);
    tap_i64(tensors, want_tensors, "of so many tensors");
    free(base);
    free(on);
    free(off);
    free(merged);
    close_rig(&m);
    close_rig(&r);
}

static void test_recompute(const lf_model_config *c, bool dora)
{
    struct lf_adapter_config a = {.rank = 4, .alpha = 8, .dropout = 0.3, .dora = dora};
    struct rig r[3];
    double l[3];
    bool same = true, any;
    set_targets(&a, "q v gate_up o down");
    held_scale = dora ? lf_adapter_scale(&a) : 0;
    for (int k = 0; k < 3; k++) {
        open_rig(&r[k], c, &a, LF_F32, (enum lf_recompute)k);
        stir(&r[k]);
        l[k] = loss(&r[k], 5, true);
        int64_t n;
        for (int i = 0; i < lf_pstore_count(r[k].ps) && k; i++) {
            if (!lf_pstore_desc(r[k].ps, i)->adapter)
                continue;
            float *x = read(&r[0], i, LF_P_GRAD, &n), *y = read(&r[k], i, LF_P_GRAD, &n);
            same = same && memcmp(x, y, (size_t)n * 4) == 0;
            free(x);
            free(y);
        }
    }
    tap_ok(same && memcmp(&l[0], &l[1], 8) == 0 && memcmp(&l[0], &l[2], 8) == 0,
           "recomputation changes no bit");
    const double other = loss(&r[0], 6, false), again = loss(&r[0], 5, false);
    tap_ok(fabs(other - again) > 1e-6 && memcmp(&again, &l[0], 8) == 0,
           "dropout depends on the seed alone");
    int n;
    const double d = gradient_error(&r[0], &n);
    tap_ok(d < 2e-3, "gradients with dropout (%.2g)", d);
    tap_ok(base_is_frozen(&r[0], &any) && any, "the base has neither gradient nor moments");
    for (int k = 0; k < 3; k++)
        close_rig(&r[k]);
}

static void test_bf16(const lf_model_config *c, bool dora)
{
    struct lf_adapter_config a = {.rank = 4, .alpha = 8, .dora = dora};
    struct rig r;
    bool any;
    open_rig(&r, c, &a, LF_BF16, LF_RECOMPUTE_NONE);
    tap_ok(base_is_frozen(&r, &any) && !any,
           "in bf16 the adapter has f32 masters, the base's matrices have none");
    stir(&r);
    tap_ok(isfinite(loss(&r, 1, true)), "and it trains");
    close_rig(&r);
}

static void refuse(const lf_model_config *c, const char *targets, int rank, int want,
                   const char *contains)
{
    lf_err err = LF_ERR_INIT;
    struct lf_adapter_config a = {.rank = rank, .alpha = 1};
    lf_decoder *d = lf_decoder_create(c, T, &err);
    lf_pstore *ps = lf_pstore_create(&err);
    set_targets(&a, targets);
    if (!d || !ps || lf_decoder_declare(d, ps, &err))
        tap_bail("%s", err.text);
    tap_rc(lf_decoder_adapt(d, ps, &a, &err), want, &err, contains, targets);
    lf_pstore_destroy(ps);
    lf_decoder_destroy(d);
}

static void test_json(void)
{
    lf_err err = LF_ERR_INIT;
    struct lf_adapter_config a = {.rank = 4,
                                  .alpha = 8.5,
                                  .dropout = 0.25,
                                  .rank_stabilised = true,
                                  .dora = true,
                                  .labels = 3,
                                  .labels_of = LF_LABELS_OF_TOKEN},
                             b;
    set_targets(&a, "q layers.*.mlp.*");
    json_t *o = lf_adapter_to_json(&a, &err);
    tap_ok(o && !lf_adapter_from_json(&b, o, "test", &err) && memcmp(&a, &b, sizeof a) == 0,
           "a description survives JSON");
    json_object_set_new(o, "labels_of", json_integer(3));
    tap_rc(lf_adapter_from_json(&b, o, "here", &err), LF_EFORMAT, &err, "here: the labels",
           "labels of nothing are refused");
    json_object_set_new(o, "labels_of", json_integer(0));
    json_object_set_new(o, "head", json_true());
    tap_rc(lf_adapter_from_json(&b, o, "here", &err), LF_EFORMAT, &err, "here: the labels",
           "and a head of scores beside them");
    json_object_del(o, "head");
    json_object_set_new(o, "rank", json_integer(0));
    tap_rc(lf_adapter_from_json(&b, o, "here", &err), LF_EINVAL, &err, "here",
           "a damaged one is refused");
    json_decref(o);
}

/* Where a cache may keep latents: in fast numerics, at a width that attention takes, without an
 * adapter on kv_b of any layer. */
static void test_latents(const lf_model_config *c)
{
    lf_err err = LF_ERR_INIT;
    lf_model_config odd = *c;
    const struct lf_adapter_desc a = {.rank = 2, .scale = 1};
    char group[64];
    odd.kv_lora++;
    lf_decoder *d = lf_decoder_create(c, T, &err), *e = lf_decoder_create(&odd, T, &err);
    lf_pstore *ps = lf_pstore_create(&err);
    if (!d || !e || !ps || lf_decoder_declare(d, ps, &err))
        tap_bail("%s", err.text);
    const bool may = lf_decoder_keeps_latents(d, ps, LF_FAST),
               not = !lf_decoder_keeps_latents(d, ps, LF_INVARIANT) &&
                     !lf_decoder_keeps_latents(e, ps, LF_FAST);
    snprintf(group, sizeof group, "layers.%lld.attn.kv_b.weight", (long long)c->layers - 1);
    if (lf_pstore_adapt(ps, group, NULL, 0, &a, &err))
        tap_bail("%s", err.text);
    tap_ok(may && not &&!lf_decoder_keeps_latents(d, ps, LF_FAST),
           "an adapter on kv_b keeps latents out of the cache, as invariant numerics do");
    lf_pstore_destroy(ps);
    lf_decoder_destroy(d);
    lf_decoder_destroy(e);
}

int main(void)
{
    lf_model_config c, moe, latent;
    load(&c, "tiny-llama.ini");
    const int layers = (int)c.layers;
    TAP(7, test_targets(&c, "all", 14 * layers, false));
    TAP(7, test_targets(&c, "q v", 4 * layers, false));
    TAP(7, test_targets(&c, "k down", 4 * layers, false));
    TAP(7, test_targets(&c, "qkv gate_up", 4 * layers, false));
    TAP(7, test_targets(&c, "layers.0.attn.o.weight layers.1.mlp.up.*", 4, false));
    TAP(7, test_targets(&c, "k o gate_up", 9 * layers, true));
    TAP(7, test_targets(&c, "q+v k layers.*.mlp.gate+up.weight", 8 * layers, false));
    lf_model_config mixes[3];
    static const char *const mixers[3][8] = {
        {"layer_mixers=gf*", "scan_heads=4", "scan_key_dim=8", "scan_value_dim=6", "scan_conv=4",
         "scan_gate=silu", "scan_norm=before_gate"},
        {"layer_mixers=kf*", "scan_heads=3", "scan_key_dim=8", "scan_value_dim=6", "scan_rank=5",
         "scan_gate=sigmoid"},
        {"layer_mixers=cf*", "scan_conv=3"}};
    for (int k = 0; k < 3; k++)
        with(&mixes[k], mixers[k]);
    /* of scans q k v z a b o, of KDA q k v b f_a g_a f_b g_b o, of convolutions b c x o */
    TAP(7, test_targets(&mixes[0], "all", 2 * 10 + 14 * (layers - 1), false));
    TAP(7, test_targets(&mixes[0], "in", 2, false));
    TAP(7, test_targets(&mixes[0], "layers.*.scan.v+z.weight", 3, false));
    TAP(7, test_targets(&mixes[1], "all", 2 * 12 + 14 * (layers - 1), false));
    TAP(7, test_targets(&mixes[1], "fg_a g_b", 4, false));
    TAP(7, test_targets(&mixes[2], "all", 2 * 7 + 14 * (layers - 1), false));
    TAP(7, test_targets(&mixes[2], "in", 3, true));
    for (int dora = 0; dora < 2; dora++) {
        TAP(4, test_recompute(&c, dora));
        TAP(2, test_bf16(&c, dora));
    }
    TAP(2, test_frozen(&c));
    load(&moe, "tiny-moe.ini");
    TAP(1, refuse(&c, "wq", 2, LF_EINVAL, "wq matches no linear layer"));
    TAP(1, refuse(&c, "wq", 2, LF_EINVAL,
                  "known are all, q, qkv, k, v, o, gate, gate_up, up, down and"));
    load(&latent, "tiny-llama.ini");
    latent.kv_lora = 8, latent.nope_dim = 4, latent.rope_dim = 4, latent.v_dim = 6;
    latent.head_dim = 8, latent.kv_heads = latent.heads;
    TAP(1, test_latents(&latent));
    TAP(1, refuse(&latent, "k", 2, LF_EINVAL, "known are all, q, kv_a, k_b, kv_b, v_b, o, gate,"));
    TAP(1, refuse(&c, "q qkv", 2, LF_EINVAL, "as a whole and by its parts"));
    TAP(1, refuse(&c, "q+v v", 2, LF_EINVAL, "named twice, joined with others and not"));
    TAP(1, refuse(&c, "q+v k+v", 2, LF_EINVAL, "named twice"));
    TAP(1, refuse(&c, "q+z", 2, LF_EINVAL, "q+z matches no linear layer"));
    TAP(1, refuse(&c, "embed.weight", 2, LF_EINVAL, "matches no"));
    TAP(1, refuse(&c, "q", 0, LF_EINVAL, "lora_rank"));
    TAP(7, test_targets(&moe, "layers.*.moe.experts.*", 2 * 6, false));
    TAP(7, test_targets(&moe, "q layers.*.moe.experts.gate+up.weight", 2 * 3 + 3 * 2, false));
    TAP(1, refuse(&moe, "layers.*.moe.experts.gate+up.weight gate", 2, LF_EINVAL,
                  "are named twice, joined with others and not"));
    TAP(1, refuse(&moe, "layers.*.moe.experts.gate+down.weight", 2, LF_EINVAL,
                  "gate+down.weight matches no linear layer"));
    TAP(1, refuse(&moe, "layers.*.moe.experts.gate+up+down.weight", 2, LF_EINVAL,
                  "gate+up+down.weight matches no linear layer"));
    moe.expert_bias = true; /* [E, N], and no matrix of a layer */
    TAP(1, refuse(&moe, "layers.*.moe.experts.gate.bias", 2, LF_EINVAL, "matches no linear layer"));
    TAP(4, test_json());
    return tap_done();
}

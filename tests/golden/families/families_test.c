/* SPDX-License-Identifier: Apache-2.0
 *
 * Every family against its reference in f64 (README.md beside this): imported from the published
 * form, logits, every gradient, ten AdamW steps, bf16, and back out byte for byte; and the proof
 * that these comparisons can fail: each switch flipped, each pair of same-shaped tensors and of
 * experts swapped.
 *
 * Built with PART of PARTS it takes every PARTS-th family, so that several run side by side; with
 * arguments, the families named. LF_TABLE=FILE adds one line per family for make_table.py,
 * LF_EXPORT=DIR keeps what was exported there.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/base/io.h"
#include "engine/base/str.h"
#include "engine/convert/convert.h"
#include "engine/convert/map.h"
#include "engine/convert/priv.h"
#include "engine/store/safetensors.h"
#include "tests/golden/families/family.h"
#include "tests/tap/tap.h"
#ifdef FAMILY_CUDA
#include "tests/golden-gpu/device.h"
#endif

/* What the table says. */
struct measured {
    double f32, grad, bf16, adamw, flips, swaps;
    int n_flips, n_swaps;
};

static void *need(void *p)
{
    if (!p)
        tap_bail("no memory");
    return p;
}

static void open_or_bail(rig *r, const family *f, enum lf_dtype compute, enum lf_numeric mode,
                         bool train)
{
    lf_err err = LF_ERR_INIT;
    if (rig_open(r, f, &f->config, compute, mode, train, &err))
        tap_bail("%s: %s", f->name, err.text);
    if (family_load(f, r->ps))
        tap_bail("%s: the import lacks a tensor that the model declares", f->name);
}

/* ---- forward ---- */

static void test_forward(const family *f, struct measured *m)
{
    lf_err err = LF_ERR_INIT;
    double e = 0, rms = 0;
    if (family_measure(f, &f->config, LF_F32, LF_INVARIANT, &e, NULL, &err))
        tap_bail("%s: %s", f->name, err.text);
    tap_ok(e <= FAMILY_F32, "%s: f32 logits, invariant: relative error %.2g", f->name, e);
    m->f32 = e;
    family_measure(f, &f->config, LF_F32, LF_FAST, &e, NULL, &err);
    tap_ok(e <= FAMILY_F32, "%s: f32 logits, fast: relative error %.2g", f->name, e);
    m->f32 = tap_worse(m->f32, e);
    family_measure(f, &f->config, LF_BF16, LF_INVARIANT, &e, &rms, &err);
    m->bf16 = rms / f->bf16_rms;
    tap_ok(m->bf16 <= 1.5, "%s: bf16 rms error %.3g, %.2f of the reference's own", f->name, rms,
           m->bf16);
}

/* Tokens of documents that see both ways: another one at position p changes logits on both sides of
 * it, and no bit of the other document. */
static void test_both(const family *f)
{
    rig r;
    size_t n = (size_t)(f->rows * f->vocab), doc = (size_t)(f->length * f->vocab),
           p = (size_t)(f->length / 2), row = (size_t)f->vocab;
    float *a = need(calloc(n, 4)), *b = need(calloc(n, 4));
    int32_t *tok = need(calloc((size_t)f->rows, 4));
    open_or_bail(&r, f, LF_F32, LF_FAST, false);
    rig_logits(&r, f, NULL, a);
    memcpy(tok, f->tokens, (size_t)f->rows * 4);
    tok[p] = (tok[p] + 17) % (int32_t)f->vocab;
    rig_logits(&r, f, tok, b);
    bool before = memcmp(a + (p - 1) * row, b + (p - 1) * row, row * 4) != 0,
         after = memcmp(a + (p + 1) * row, b + (p + 1) * row, row * 4) != 0,
         other = memcmp(a + doc, b + doc, (n - doc) * 4) == 0;
    tap_ok(before && after && other,
           "%s: a changed token changes logits before and behind it, and none of another document",
           f->name);
    rig_close(&r);
    free(a);
    free(b);
    free(tok);
}

/* Another token anywhere in a source changes each logit row of its document, and no bit of another
 * document's. */
static bool sees_source(const family *f, const rig *r, const float *was, float *out)
{
    const size_t row = (size_t)f->vocab;
    int32_t *tok = need(calloc((size_t)f->source_rows, 4));
    bool good = true;
    for (int64_t d = 0; d < f->docs; d++)
        for (int64_t p = f->source_cu[d]; p < f->source_cu[d + 1]; p += 4) {
            memcpy(tok, f->source_tokens, (size_t)f->source_rows * 4);
            tok[p] = (tok[p] + 17) % (int32_t)f->vocab;
            rig_logits_of(r, f, NULL, tok, out);
            for (int64_t i = 0; i < f->rows; i++)
                good = good && (memcmp(was + (size_t)i * row, out + (size_t)i * row, row * 4) !=
                                0) == (i / f->length == d);
        }
    free(tok);
    return good;
}

/* No token sees the future: other tokens behind position p leave the bits of every logit of the
 * document up to p alone, and those behind move. A prefix sees itself, so p begins at its end. */
static void test_causal(const family *f)
{
    rig r;
    size_t n = (size_t)(f->rows * f->vocab);
    float *a = need(calloc(n, 4)), *b = need(calloc(n, 4));
    int32_t *tok = need(calloc((size_t)f->rows, 4));
    open_or_bail(&r, f, LF_F32, LF_FAST, false);
    rig_logits(&r, f, NULL, a);
    bool past = true, future = true;
    for (int64_t p = f->prefix ? f->prefix[0] : 3; p < f->length - 2; p += 5) {
        for (int64_t t = 0; t < f->rows; t++)
            tok[t] =
                t <= p || t >= f->length ? f->tokens[t] : (f->tokens[t] + 17) % (int32_t)f->vocab;
        rig_logits(&r, f, tok, b);
        size_t upto = (size_t)((p + 1) * f->vocab), doc = (size_t)(f->length * f->vocab);
        past = past && memcmp(a, b, upto * 4) == 0 && memcmp(a + doc, b + doc, (n - doc) * 4) == 0;
        future = future && memcmp(a + upto, b + upto, (doc - upto) * 4) != 0;
    }
    const bool source = !f->source_rows || sees_source(f, &r, a, b);
    tap_ok(past && future && source,
           "%s: a changed token changes later logits of its document, and no other bit%s", f->name,
           f->source_rows ? "; one of a source all of its document, and no other" : "");
    rig_close(&r);
    free(a);
    free(b);
    free(tok);
}

/* ---- gradients and optimizer ---- */

/* A key bias adds the same number to every score of a query unless keys turn with their position:
 * softmax does not see it, and its gradient is exactly 0. */
static bool without_effect(const family *f, const char *name)
{
    return (lf_map_when("position!=rope position!=rope2d", &f->config) &&
            lf_str_has_suffix(name, "attn.k.bias")) ||
           lf_str_has_suffix(name, "cross.k.bias");
}

static double square(const float *v, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++)
        s += (double)v[i] * (double)v[i];
    return s;
}

/* Where the gradient is 0 in exact arithmetic, the query bias's is the scale. */
static double gradient_error(const family *f, const lf_pstore *ps, int i)
{
    const struct lf_param_desc *d = lf_pstore_desc(ps, i);
    int64_t n = family_elements(d);
    float *want = need(calloc((size_t)n, 4)), *got = need(calloc((size_t)n, 4));
    lf_err err = LF_ERR_INIT;
    double sq = 0, ref;
    if (!family_tensor(f, FAMILY_GRADS, d->name, want, n, family_columns(d)) ||
        lf_pstore_read(ps, i, LF_P_GRAD, got, (size_t)n * 4, &err))
        tap_bail("%s: %s: no gradient: %s", f->name, d->name, err.text);
    for (int64_t e = 0; e < n; e++)
        sq += ((double)got[e] - (double)want[e]) * ((double)got[e] - (double)want[e]);
    ref = square(want, n);
    if (without_effect(f, d->name)) {
        char name[200];
        snprintf(name, sizeof name, "%.*sq.bias", (int)(strlen(d->name) - strlen("k.bias")),
                 d->name);
        int64_t nq = f->config.heads * f->config.head_dim;
        float *q = need(calloc((size_t)nq, 4));
        if (!family_tensor(f, FAMILY_GRADS, name, q, nq, 1))
            tap_bail("%s: no gradient of %s", f->name, name);
        ref = square(q, nq);
        free(q);
    }
    free(want);
    free(got);
    return sq > 0 ? sqrt(sq / ref) : 0;
}

static void test_training(const family *f, struct measured *m)
{
    rig r;
    open_or_bail(&r, f, LF_F32, LF_FAST, true);
    double loss = rig_step(&r, f, 0), norms = 0;
    tap_ok(fabs(loss - f->loss) <= FAMILY_F32 * f->loss, "%s: loss %.9g, reference %.9g", f->name,
           loss, f->loss);
    const char *name = "";
    for (int i = 0; i < lf_pstore_count(r.ps); i++) {
        if (lf_pstore_desc(r.ps, i)->frozen) /* biases of routers have none, here and there */
            continue;
        double e = gradient_error(f, r.ps, i);
        if (!(e <= m->grad)) {
            m->grad = e;
            name = lf_pstore_desc(r.ps, i)->name;
        }
    }
    tap_ok(m->grad <= FAMILY_F32, "%s: %d gradients, worst relative error %.2g (%s)", f->name,
           lf_pstore_count(r.ps), m->grad, name);
    for (int s = 0; s < FAMILY_STEPS; s++) {
        if (s > 0)
            loss = rig_step(&r, f, s);
        norms = tap_worse(norms, fabs(rig_update(&r) - f->norms[s]) / f->norms[s]);
        m->adamw = tap_worse(m->adamw, fabs(loss - f->losses[s]) / f->losses[s]);
    }
    tap_ok(m->adamw <= 1e-4 && norms <= 1e-3,
           "%s: ten AdamW steps, worst relative error of the loss %.2g, of the gradient norm %.2g",
           f->name, m->adamw, norms);
    rig_close(&r);
}

/* bf16 compute trains too: ten steps stay near the curve. */
static void test_training_bf16(const family *f)
{
    rig r;
    open_or_bail(&r, f, LF_BF16, LF_FAST, true);
    double worst = 0;
    for (int s = 0; s < FAMILY_STEPS; s++) {
        worst = tap_worse(worst, fabs(rig_step(&r, f, s) - f->losses[s]) / f->losses[0]);
        rig_update(&r);
    }
    tap_ok(worst <= 0.03, "%s: bf16: ten AdamW steps stay within 3 %% of the f64 curve: %.2g",
           f->name, worst);
    rig_close(&r);
}

#ifndef FAMILY_CUDA /* from here on: what these tests notice does not depend on the device */
/* ---- swaps ---- */

/* n elements at `at` of tensor a with those at `bt` of tensor b. */
static void swap(lf_pstore *ps, int a, int64_t at, int b, int64_t bt, int64_t n)
{
    lf_err err = LF_ERR_INIT;
    int64_t na = family_elements(lf_pstore_desc(ps, a)),
            nb = family_elements(lf_pstore_desc(ps, b));
    float *x = need(malloc((size_t)na * 4)), *y = a == b ? x : need(malloc((size_t)nb * 4));
    int rc = lf_pstore_read(ps, a, LF_P_MASTER, x, (size_t)na * 4, &err);
    rc = rc || a == b ? rc : lf_pstore_read(ps, b, LF_P_MASTER, y, (size_t)nb * 4, &err);
    for (int64_t i = 0; i < n && !rc; i++) {
        float t = x[at + i];
        x[at + i] = y[bt + i];
        y[bt + i] = t;
    }
    rc = rc ? rc : lf_pstore_write(ps, a, LF_F32, x, &err);
    rc = rc || a == b ? rc : lf_pstore_write(ps, b, LF_F32, y, &err);
    if (rc)
        tap_bail("swap: %s", err.text);
    free(x);
    if (y != x)
        free(y);
}

static void try_swap(const family *f, const rig *r, struct measured *m, int *unseen, int a,
                     int64_t at, int b, int64_t bt, int64_t n, float *out)
{
    swap(r->ps, a, at, b, bt, n);
    rig_logits(r, f, NULL, out);
    double e = family_error(f, out, NULL);
    swap(r->ps, a, at, b, bt, n);
    m->n_swaps++;
    m->swaps = fmin(m->swaps, e);
    if (e > FAMILY_SEEN)
        return;
    ++*unseen;
    tap_diag("%s: %s and %s swapped: %.2g", f->name, lf_pstore_desc(r->ps, a)->name,
             lf_pstore_desc(r->ps, b)->name, e);
}

static bool same_shape(const struct lf_param_desc *x, const struct lf_param_desc *y)
{
    return x->ndim == y->ndim && memcmp(x->dims, y->dims, (size_t)x->ndim * sizeof x->dims[0]) == 0;
}

/* Swapped without a trace by the mathematics: key biases that softmax does not see; the two biases
 * that one parallel block adds to the same sum; norms of queries and keys behind the positions; the
 * two factors of what a short convolution filters. */
static bool alike(const family *f, const char *x, const char *y)
{
    if (without_effect(f, x) && without_effect(f, y))
        return true;
    /* where nothing turns behind them their weights multiply the same channels of every score */
    const char *q = strstr(x, ".attn.q_norm."), *k = strstr(y, ".attn.k_norm.");
    long long l = 0;
    if (q && k && q - x == k - y && strncmp(x, y, (size_t)(q - x)) == 0 &&
        sscanf(x, "layers.%lld.", &l) == 1)
        return f->config.qk_norm_after_rope ||
               lf_model_layer_position(&f->config, l) == LF_TURN_NONE;
    const char *one = strstr(x, ".conv.b.weight"), *other = strstr(y, ".conv.x.weight");
    if (one && other && one - x == other - y && strncmp(x, y, (size_t)(one - x)) == 0)
        return !f->config.scan_bias;
    const char *o = strstr(x, ".attn.o.bias"), *down = strstr(y, ".mlp.down.bias");
    return f->config.parallel_block != LF_PARALLEL_NO && o && down && o - x == down - y &&
           strncmp(x, y, (size_t)(o - x)) == 0;
}

static void test_swaps(const family *f, struct measured *m)
{
    rig r;
    int unseen = 0;
    float *out = need(calloc((size_t)(f->rows * f->vocab), sizeof *out));
    m->swaps = HUGE_VAL;
    open_or_bail(&r, f, LF_F32, LF_INVARIANT, false);
    for (int a = 0; a < lf_pstore_count(r.ps); a++) {
        const struct lf_param_desc *x = lf_pstore_desc(r.ps, a);
        for (int b = a + 1; b < lf_pstore_count(r.ps); b++) {
            const struct lf_param_desc *y = lf_pstore_desc(r.ps, b);
            if (same_shape(x, y) && !alike(f, x->name, y->name))
                try_swap(f, &r, m, &unseen, a, 0, b, 0, family_elements(x), out);
        }
        int64_t one = x->ndim > 2 ? family_elements(x) / x->dims[0] : 0;
        for (int64_t e = 1; one && e < x->dims[0]; e++) /* two experts of one tensor */
            try_swap(f, &r, m, &unseen, a, 0, a, e * one, one, out);
    }
    tap_ok(m->n_swaps > 20 && unseen == 0,
           "%s: each of %d pairs of same-shaped tensors swapped is noticed, least %.2g", f->name,
           m->n_swaps, m->swaps);
    rig_logits(&r, f, NULL, out);
    tap_ok(family_error(f, out, NULL) <= FAMILY_F32, "%s: and all swapped back is right again",
           f->name);
    rig_close(&r);
    free(out);
}

/* ---- export ---- */

static char *text(const char *a, const char *b)
{
    size_t n = strlen(a) + strlen(b) + 2;
    char *s = need(malloc(n));
    snprintf(s, n, "%s/%s", a, b);
    return s;
}

/* The same names, types, shapes and bytes. */
static bool same_tensors(const family *f, const lf_st *x, const lf_st *y)
{
    bool same = lf_st_n_entries(x) == lf_st_n_entries(y);
    for (size_t i = 0; i < lf_st_n_entries(x); i++) {
        const lf_st_entry *a = lf_st_entry_at(x, i), *b = lf_st_find(y, a->name);
        lf_err err = LF_ERR_INIT;
        if (!b || a->dtype != b->dtype || a->ndim != b->ndim ||
            memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof a->shape[0]) != 0) {
            tap_diag("%s: %s is not as it was", f->name, a->name);
            same = false;
            continue;
        }
        char *u = need(malloc((size_t)a->bytes)), *v = need(malloc((size_t)a->bytes));
        if (lf_st_read(x, a, 0, a->elems, u, &err) || lf_st_read(y, b, 0, b->elems, v, &err))
            tap_bail("%s: %s", f->name, err.text);
        if (memcmp(u, v, (size_t)a->bytes) != 0) {
            tap_diag("%s: %s has other bytes", f->name, a->name);
            same = false;
        }
        free(u);
        free(v);
    }
    return same;
}

static char *export_to(const family *f)
{
    const char *keep = getenv("LF_EXPORT");
    if (!keep)
        return text(f->tmp, "export");
    if (mkdir(keep, 0777) && errno != EEXIST)
        tap_bail("cannot make %s", keep);
    return text(keep, f->name);
}

static void test_export(const family *f)
{
    lf_err err = LF_ERR_INIT;
    struct lf_convert_result res;
    lf_st *x = NULL, *y = NULL;
    json_t *config = NULL;
    lf_model_config back;
    const char *key = "nothing";
    char *ckpt = text(f->tmp, "checkpoint"), *out = export_to(f), *json = text(out, "config.json");
    struct lf_convert_opts o = {.from = ckpt, .out = out, .threads = 1};
    if (lf_convert_export(&o, &res, &err) || lf_st_open(&x, f->dir, &err) ||
        lf_st_open(&y, out, &err))
        tap_bail("%s: export: %s", f->name, err.text);
    tap_ok(same_tensors(f, x, y), "%s: exported, %zu tensors, bytes equal to the source's", f->name,
           lf_st_n_entries(x));
    const struct lf_hf_family *hf = NULL;
    if (!(config = lf_hf_read_json(out, "config.json", &err)) ||
        !(hf = lf_hf_family_of(config, json, &err)) ||
        lf_hf_config_read(&back, hf, config, json, &err) || lf_hf_settle_tie(&back, hf, y, &err))
        tap_bail("%s: %s", f->name, err.text);
    family_quiet(&back);
    tap_ok(lf_model_config_equal(&f->config, &back, &key),
           "%s: the exported config.json means the same model (%s)", f->name, key ? key : "");
    json_decref(config);
    lf_st_close(x);
    lf_st_close(y);
    free(ckpt);
    free(out);
    free(json);
}

/* ---- the table ---- */

/* README.md says which switches each family has; what was measured differs from machine to machine,
 * so the test reads only these. */
static void test_table(const family *f, const struct measured *m)
{
    const char *src = getenv("LF_SRCDIR"), *table = getenv("LF_TABLE");
    lf_err err = LF_ERR_INIT;
    lf_buf readme, row;
    char path[4096], *switches = family_switches(f);
    lf_buf_init(&readme);
    lf_buf_init(&row);
    lf_buf_addf(&row, "| %s | %s |", f->name, switches);
    if (table) {
        FILE *out = need(fopen(table, "a"));
        fprintf(out, "%s %.1e | %.1e | %.2f | %.1e | %d, %.1e | %d, %.1e |\n", row.data, m->f32,
                m->grad, m->bf16, m->adamw, m->n_flips, m->flips, m->n_swaps, m->swaps);
        fclose(out);
    } else {
        snprintf(path, sizeof path, "%s/tests/golden/families/README.md", src ? src : ".");
        if (lf_io_read_file(path, 1 << 20, &readme, &err))
            tap_bail("%s", err.text);
        tap_ok(strstr(readme.data, row.data) != NULL, "%s: README.md has the row \"%s\"", f->name,
               row.data);
    }
    lf_buf_fini(&readme);
    lf_buf_fini(&row);
    free(switches);
}

#endif

#ifdef FAMILY_CUDA
enum { POINTS = 8 };
#else
enum { POINTS = 14 };
#endif

static void test_family(const char *name)
{
    struct measured m = {0};
    family *f = family_open(name);
    test_forward(f, &m);
    if (f->config.mask == LF_MASK_BOTH)
        test_both(f);
    else
        test_causal(f);
    test_training(f, &m);
    test_training_bf16(f);
#ifndef FAMILY_CUDA
    m.flips = family_flips(f, &m.n_flips);
    test_swaps(f, &m);
    test_export(f);
    test_table(f, &m);
#endif
    family_close(f);
}

#ifdef FAMILY_CUDA
/* GPUs have no kernels for attention of encoder-decoders: seq2seq_test.c holds them to saying so */
static bool on_gpus(const char *name)
{
    static const char *const not [] = {"t5", "t5-v1.1", "mt5", "umt5", "bart"};
    bool yes = true;
    for (size_t i = 0; i < sizeof not / sizeof *not ; i++)
        yes = yes && strcmp(name, not [i]) != 0;
    return yes;
}
#endif

int main(int argc, char **argv)
{
    for (int i = 0; family_names[i]; i++) {
#ifdef FAMILY_CUDA /* on the emulator the two whose blocks differ most */
        bool mine = argc < 2 && on_gpus(family_names[i]) &&
                    (golden_on_gpu() || !strcmp(family_names[i], "llama") ||
                     !strcmp(family_names[i], "gpt2"));
#else
        bool mine = argc < 2 && i % PARTS == PART;
#endif
        for (int a = 1; a < argc; a++)
            mine = mine || strcmp(argv[a], family_names[i]) == 0;
        if (mine)
            TAP(POINTS, test_family(family_names[i]));
    }
    return tap_done();
}

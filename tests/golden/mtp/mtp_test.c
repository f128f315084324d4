/* SPDX-License-Identifier: Apache-2.0
 *
 * Heads that predict later tokens: files of five forms, imported and trained, against the paper's
 * formulas in f64 (make_mtp.py): loss of the model and of each head, and every gradient of the sum.
 * The other order of embedding and hidden state fails. An export has the bytes of the file, and
 * what a file lacks or has beyond its config.json is told or refused.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/base/json.h"
#include "engine/convert/convert.h"
#include "engine/model/weights.h"
#include "engine/store/safetensors.h"
#include "tests/golden/families/family.h"
#include "tests/tap/tap.h"

enum { MOST_ROWS = 256 };

struct wanted {
    family f; /* name, dir, tmp, documents, sets, config */
    double loss, mtp[LF_MORE_HEADS], weight;
};

/* What a run gave. */
struct got {
    double loss, mtp[LF_MORE_HEADS], worst; /* error of a gradient */
    char where[96];
};

static char *path_of(const char *dir, const char *name)
{
    const size_t n = strlen(dir) + strlen(name) + 2;
    char *s = malloc(n);
    if (!s)
        tap_bail("no memory");
    snprintf(s, n, "%s/%s", dir, name);
    return s;
}

static void read_f64(const lf_st *s, const char *name, double *v, int64_t n)
{
    lf_err err = LF_ERR_INIT;
    const lf_st_entry *e = lf_st_find(s, name);
    if (!e || e->dtype != LF_ST_F64 || e->elems != n || lf_st_read(s, e, 0, n, v, &err))
        tap_bail("expected.safetensors: %s: %s", name, err.text);
}

static void read_tokens(family *f, const lf_st *s)
{
    lf_err err = LF_ERR_INIT;
    int64_t ids[MOST_ROWS];
    const lf_st_entry *e = lf_st_find(s, "input_ids");
    if (!e || e->elems > MOST_ROWS || lf_st_read(s, e, 0, e->elems, ids, &err))
        tap_bail("input_ids: %s", err.text);
    f->docs = e->shape[0];
    f->length = e->shape[1];
    f->rows = e->elems;
    f->tokens = calloc((size_t)f->rows, 4);
    f->targets = calloc((size_t)f->rows, 4);
    f->positions = calloc((size_t)f->rows, 4);
    f->cu_seqlens = calloc((size_t)f->docs + 1, 4);
    if (!f->tokens || !f->targets || !f->positions || !f->cu_seqlens)
        tap_bail("no memory");
    for (int64_t i = 0; i < f->rows; i++) {
        f->tokens[i] = (int32_t)ids[i];
        f->positions[i] = (int32_t)(i % f->length);
        f->targets[i] = (i + 1) % f->length ? (int32_t)ids[i + 1] : -1;
    }
    for (int64_t d = 0; d <= f->docs; d++)
        f->cu_seqlens[d] = (int32_t)(d * f->length);
}

static void open_wanted(struct wanted *w, const char *name)
{
    lf_err err = LF_ERR_INIT;
    lf_st *s = NULL;
    const char *src = getenv("LF_SRCDIR");
    char *root = path_of(src ? src : ".", "tests/golden/mtp");
    *w = (struct wanted){.f = {.name = strdup(name), .dir = path_of(root, name)}};
    w->f.tmp = path_of(tap_tmpdir(), name);
    char *expected = path_of(w->f.dir, "expected.safetensors");
    if (mkdir(w->f.tmp, 0777) || lf_st_open(&s, expected, &err))
        tap_bail("%s: %s", name, err.text);
    read_tokens(&w->f, s);
    w->f.set[FAMILY_WEIGHTS] = family_import(&w->f, w->f.dir, "checkpoint");
    char *grads = family_write_grads(&w->f, s);
    w->f.set[FAMILY_GRADS] = family_import(&w->f, grads, "gradients");
    if (lf_weights_config(&w->f.config, w->f.set[FAMILY_WEIGHTS], &err))
        tap_bail("%s: %s", name, err.text);
    family_quiet(&w->f.config);
    read_f64(s, "loss", &w->loss, 1);
    read_f64(s, "weight", &w->weight, 1);
    read_f64(s, "mtp.loss", w->mtp, w->f.config.mtp_layers);
    lf_st_close(s);
    free(grads);
    free(expected);
    free(root);
}

static void close_wanted(struct wanted *w)
{
    for (int i = 0; i < FAMILY_SETS; i++)
        lf_ckpt_close(w->f.set[i]);
    free(w->f.tokens);
    free(w->f.targets);
    free(w->f.positions);
    free(w->f.cu_seqlens);
    free(w->f.name);
    free(w->f.dir);
    free(w->f.tmp);
}

/* ---- a training step ---- */

struct run {
    lf_decoder *dec;
    lf_pstore *ps;
    lf_plan *plan;
    lf_back *back;
    lf_exec *ex;
    int chain;
};

static void open_run(struct run *r, const struct wanted *w, const lf_model_config *c,
                     enum lf_recompute recompute)
{
    lf_err err = LF_ERR_INIT;
    const struct lf_plan_opts po = {.threads = 1, .compute = LF_F32, .mode = LF_INVARIANT};
    const struct lf_decoder_rows rows = {
        .rows = w->f.rows, .n_docs = w->f.docs, .max_doc = w->f.length};
    lf_model_config held = *c;
    lf_model_config_set(&held, "router_bias_rate", "0", "test", NULL);
    *r = (struct run){.chain = -1};
    r->dec = lf_decoder_create(&held, w->f.length, &err);
    if (!r->dec)
        tap_bail("%s", err.text);
    lf_decoder_train_mtp(r->dec);
    r->ps = lf_pstore_create(&err);
    if (!r->ps || lf_decoder_declare(r->dec, r->ps, &err) ||
        !(r->plan = lf_plan_create(r->ps, &po, &err)))
        tap_bail("%s", err.text);
    lf_graph *g = lf_decoder_loss_graph(r->dec, r->ps, "train", &rows, true, &err);
    if (!g ||
        (r->chain = lf_plan_add(
             r->plan, g, &(struct lf_chain_opts){.train = true, .eras = 1, .recompute = recompute},
             &err)) < 0)
        tap_bail("%s", err.text);
    lf_graph_destroy(g);
    if (lf_plan_finish(r->plan, &err) ||
        !(r->back = lf_back_cpu_create(lf_target_host()->isa, 1, &err)) ||
        !(r->ex = lf_exec_create(r->plan, r->back, &(struct lf_exec_opts){0}, &err)))
        tap_bail("%s", err.text);
}

static void close_run(struct run *r)
{
    lf_exec_destroy(r->ex);
    lf_back_destroy(r->back);
    lf_plan_destroy(r->plan);
    lf_pstore_destroy(r->ps);
    lf_decoder_destroy(r->dec);
}

static void put(const struct run *r, const char *name, const int32_t *v, int64_t n)
{
    lf_err err = LF_ERR_INIT;
    if (lf_exec_write(r->ex, r->chain, 0, name, v, (size_t)n * 4, &err))
        tap_bail("%s: %s", name, err.text);
}

static void feed(const struct run *r, const family *f)
{
    put(r, "tokens", f->tokens, f->rows);
    put(r, "positions", f->positions, f->rows);
    put(r, "targets", f->targets, f->rows);
    put(r, "cu_seqlens", f->cu_seqlens, f->docs + 1);
    for (int64_t k = 1; k <= lf_decoder_mtp(r->dec); k++) {
        int32_t ahead[MOST_ROWS];
        char name[32];
        lf_decoder_ahead(f->tokens, f->cu_seqlens, f->docs, f->rows, k, 0, ahead);
        snprintf(name, sizeof name, "mtp.%lld.tokens", (long long)k);
        put(r, name, ahead, f->rows);
        lf_decoder_ahead(f->targets, f->cu_seqlens, f->docs, f->rows, k, -1, ahead);
        snprintf(name, sizeof name, "mtp.%lld.targets", (long long)k);
        put(r, name, ahead, f->rows);
    }
}

/* |got - want| / |want|; of a gradient of zeros |got|. */
static double error_of(const float *got, const float *want, int64_t n)
{
    double diff = 0, norm = 0;
    for (int64_t e = 0; e < n; e++) {
        diff += ((double)got[e] - (double)want[e]) * ((double)got[e] - (double)want[e]);
        norm += (double)want[e] * (double)want[e];
    }
    return sqrt(norm > 0 ? diff / norm : diff);
}

static void compare_grads(const struct run *r, const family *f, struct got *g)
{
    lf_err err = LF_ERR_INIT;
    for (int i = 0; i < lf_pstore_count(r->ps); i++) {
        const struct lf_param_desc *d = lf_pstore_desc(r->ps, i);
        const int64_t n = family_elements(d);
        float *is = calloc((size_t)n, sizeof *is), *want = calloc((size_t)n, sizeof *want);
        if (!is || !want)
            tap_bail("no memory");
        if (d->frozen) { /* biases of routers: zero in the reference */
            free(is);
            free(want);
            continue;
        }
        if (lf_pstore_read(r->ps, i, LF_P_GRAD, is, (size_t)n * 4, &err) ||
            !family_tensor(f, FAMILY_GRADS, d->name, want, n, family_columns(d)))
            tap_bail("gradient of %s: %s", d->name, err.text);
        const double x = error_of(is, want, n);
        if (!(x <= g->worst)) {
            g->worst = x;
            snprintf(g->where, sizeof g->where, "%s", d->name);
        }
        free(is);
        free(want);
    }
}

static struct got train(const struct wanted *w, const lf_model_config *c,
                        enum lf_recompute recompute)
{
    struct run r;
    struct got g = {0};
    lf_err err = LF_ERR_INIT;
    const double trained = (double)(w->f.docs * (w->f.length - 1));
    struct lf_step_record rec = {.loss_scale = 1,
                                 .inv_tokens = (float)(1 / trained),
                                 .inv_batches = 1,
                                 .more_inv = (float)(w->weight / (double)c->mtp_layers / trained)};
    open_run(&r, w, c, recompute);
    if (family_load(&w->f, r.ps))
        tap_bail("%s: the file lacks tensors of the model", w->f.name);
    feed(&r, &w->f);
    if (lf_exec_record_write(r.ex, &rec, &err) ||
        lf_exec_run(r.ex, r.chain, LF_FWD, 0, LF_FIRST, &err) ||
        lf_exec_run(r.ex, r.chain, LF_BWD, 0, LF_FIRST, &err) ||
        lf_exec_record_read(r.ex, &rec, &err))
        tap_bail("%s", err.text);
    g.loss = rec.loss_sum / trained;
    for (int64_t k = 0; k < c->mtp_layers; k++) {
        if (rec.more_tokens[k] != w->f.docs * (w->f.length - 2 - k))
            tap_bail("head %lld has %lld targets", (long long)k + 1, (long long)rec.more_tokens[k]);
        g.mtp[k] = rec.more_loss[k] / (double)rec.more_tokens[k];
    }
    compare_grads(&r, &w->f, &g);
    close_run(&r);
    return g;
}

/* ---- points ---- */

static void test_numbers(const struct wanted *w)
{
    const struct got g = train(w, &w->f.config, LF_RECOMPUTE_NONE),
                     again = train(w, &w->f.config, LF_RECOMPUTE_FULL);
    double off = fabs(g.loss - w->loss);
    for (int64_t k = 0; k < w->f.config.mtp_layers; k++)
        off = tap_worse(off, fabs(g.mtp[k] - w->mtp[k]));
    tap_ok(off <= 1e-5, "%s: losses of the model and of %lld heads are those of the reference",
           w->f.name, (long long)w->f.config.mtp_layers);
    tap_ok(g.worst <= FAMILY_F32, "every gradient is within 1e-5");
    tap_diag("losses %.1e, gradients %.1e (%s)", off, g.worst, g.where);
    tap_ok(again.worst == g.worst && again.mtp[0] == g.mtp[0], "recomputed, too");
}

static void test_order(const struct wanted *w)
{
    lf_model_config c = w->f.config;
    c.mtp_join = c.mtp_join == LF_MTP_EMBED_HIDDEN ? LF_MTP_HIDDEN_EMBED : LF_MTP_EMBED_HIDDEN;
    const struct got g = train(w, &c, LF_RECOMPUTE_NONE);
    tap_ok(fabs(g.mtp[0] - w->mtp[0]) > 1e-3 && g.worst > 0.1 && fabs(g.loss - w->loss) < 1e-5,
           "the other order of embedding and hidden state gives other losses of heads alone");
}

static bool same_file(const char *a, const char *b)
{
    lf_err err = LF_ERR_INIT;
    lf_st *s = NULL, *t = NULL;
    bool same = !lf_st_open(&s, a, &err) && !lf_st_open(&t, b, &err) &&
                lf_st_n_entries(s) == lf_st_n_entries(t);
    for (size_t i = 0; same && i < lf_st_n_entries(s); i++) {
        const lf_st_entry *e = lf_st_entry_at(s, i), *o = lf_st_find(t, e->name);
        char *x = calloc(1, (size_t)e->bytes), *y = calloc(1, (size_t)e->bytes);
        same = x && y && o && o->bytes == e->bytes && o->dtype == e->dtype &&
               !lf_st_read(s, e, 0, e->elems, x, &err) && !lf_st_read(t, o, 0, o->elems, y, &err) &&
               memcmp(x, y, (size_t)e->bytes) == 0;
        if (!same)
            tap_diag("%s: %s", e->name, err.text);
        free(x);
        free(y);
    }
    lf_st_close(s);
    lf_st_close(t);
    return same;
}

static void test_export(const struct wanted *w)
{
    lf_err err = LF_ERR_INIT;
    struct lf_convert_result res;
    char *from = path_of(w->f.tmp, "checkpoint"), *out = path_of(w->f.tmp, "export"),
         *json = path_of(out, "config.json");
    const struct lf_convert_opts o = {.from = from, .out = out, .threads = 1, .pad_token = -1};
    const int rc = lf_convert_export(&o, &res, &err);
    tap_rc(rc, 0, &err, NULL, "it is exported");
    tap_ok(rc == 0 && same_file(w->f.dir, out), "with the bytes of every tensor of the file");
    json_t *c = rc == 0 ? lf_json_load_file(json, 1 << 20, &err) : NULL;
    tap_i64(json_integer_value(json_object_get(c, "num_nextn_predict_layers")),
            w->f.config.mtp_layers, "config.json says how many heads there are");
    json_decref(c);
    free(from);
    free(out);
    free(json);
}

/* Of a file: a tensor of a head, or its matrix alone. */
static bool of_head(const struct wanted *w, const char *name)
{
    if (strncmp(name, "model.mtp_", 10) == 0 || strncmp(name, "mtp.", 4) == 0)
        return true;
    return strncmp(name, "model.layers.", 13) == 0 &&
           strtoll(name + 13, NULL, 10) >= w->f.config.layers;
}

static bool is_join(const struct wanted *w, const char *name)
{
    return of_head(w, name) && (strstr(name, "eh_proj") || strstr(name, "input_proj") ||
                                strstr(name, "mtp.fc") || strstr(name, "linear_proj"));
}

static bool is_none(const struct wanted *w, const char *name)
{
    (void)w, (void)name;
    return false;
}

/* Copies the folder without some tensors, and says `heads` in config.json. */
static char *change(const struct wanted *w, const char *what,
                    bool (*without)(const struct wanted *, const char *), int heads)
{
    lf_err err = LF_ERR_INIT;
    lf_st *s = NULL;
    lf_st_writer *wr = NULL;
    char *dir = path_of(w->f.tmp, what), *was = path_of(w->f.dir, "config.json"),
         *is = path_of(dir, "config.json");
    json_t *c = lf_json_load_file(was, 1 << 20, &err);
    if (!c || mkdir(dir, 0777) || lf_st_open(&s, w->f.dir, &err) ||
        json_object_set_new(c, "num_nextn_predict_layers", json_integer(heads)) ||
        json_dump_file(c, is, 0))
        tap_bail("%s: %s", dir, err.text);
    lf_st_decl *decl = calloc(lf_st_n_entries(s), sizeof *decl);
    size_t n = 0;
    for (size_t i = 0; decl && i < lf_st_n_entries(s); i++) {
        const lf_st_entry *e = lf_st_entry_at(s, i);
        if (without(w, e->name))
            continue;
        decl[n] = (lf_st_decl){.name = e->name, .dtype = e->dtype, .ndim = e->ndim};
        memcpy(decl[n++].shape, e->shape, sizeof e->shape);
    }
    if (!decl || lf_st_writer_create(&wr, dir, decl, n, NULL, &err))
        tap_bail("%s", err.text);
    for (size_t i; (i = lf_st_writer_next(wr)) < n;) {
        const lf_st_entry *e = lf_st_find(s, decl[i].name);
        char *v = malloc((size_t)e->bytes);
        if (!v || lf_st_read(s, e, 0, e->elems, v, &err) ||
            lf_st_writer_put(wr, v, (size_t)e->bytes, &err))
            tap_bail("%s", err.text);
        free(v);
    }
    if (lf_st_writer_finish(wr, NULL, NULL, &err))
        tap_bail("%s", err.text);
    lf_st_writer_destroy(wr);
    lf_st_close(s);
    json_decref(c);
    free(decl);
    free(was);
    free(is);
    return dir;
}

static void hear(void *arg, const char *line)
{
    *(int *)arg += strstr(line, "heads of multi-token prediction") != NULL;
}

/* Heads that the file has and config.json does not tell of are left out, which is told; those that
 * transformers dropped are none; half of a head is refused. */
static void test_lacking(const struct wanted *w)
{
    struct lf_convert_result res;
    const bool all = w->f.config.mtp_layers == 1 || strcmp(w->f.name, "mimo") == 0;
    int told = 0;
    lf_err err = LF_ERR_INIT;
    char *dir = change(w, "beyond", is_none, 0), *out = path_of(w->f.tmp, "beyond-out");
    struct lf_convert_opts o = {.from = dir, .out = out, .threads = 1, .warn = hear, .arg = &told};
    int rc = lf_convert_import(&o, &res, &err);
    tap_ok(all ? rc == 0 && told == 1 : rc == LF_EINVAL && strstr(err.text, "no place"),
           "heads beyond config.json are left out, layers behind them refused: %s", err.text);
    free(dir);
    free(out);
    lf_ckpt *ck = NULL;
    lf_model_config c;
    dir = change(w, "dropped", of_head, (int)w->f.config.mtp_layers);
    out = path_of(w->f.tmp, "dropped-out");
    o = (struct lf_convert_opts){.from = dir, .out = out, .threads = 1};
    err = (lf_err)LF_ERR_INIT;
    tap_ok(!lf_convert_import(&o, &res, &err) && !lf_ckpt_open(&ck, out, 1, &err) &&
               !lf_weights_config(&c, ck, &err) && c.mtp_layers == 0,
           "heads that were dropped are none %s", err.text);
    lf_ckpt_close(ck);
    free(dir);
    free(out);
    dir = change(w, "half", is_join, (int)w->f.config.mtp_layers);
    out = path_of(w->f.tmp, "half-out");
    o = (struct lf_convert_opts){.from = dir, .out = out, .threads = 1};
    err = (lf_err)LF_ERR_INIT;
    tap_ok(lf_convert_import(&o, &res, &err) == LF_EINVAL && strstr(err.text, "missing: "),
           "half of a head is refused: %s", err.text);
    free(dir);
    free(out);
}

static void all(const char *name)
{
    struct wanted w;
    open_wanted(&w, name);
    test_numbers(&w);
    test_order(&w);
    test_export(&w);
    test_lacking(&w);
    close_wanted(&w);
}

int main(void)
{
    TAP(10, all("deepseek-v3"));
    TAP(10, all("ernie4.5-moe"));
    TAP(10, all("exaone-moe"));
    TAP(10, all("glm4.5"));
    TAP(10, all("glm4.7-flash"));
    TAP(10, all("mimo"));
    TAP(10, all("qwen3-next"));
    return tap_done();
}

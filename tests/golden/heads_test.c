/* SPDX-License-Identifier: Apache-2.0
 *
 * Models with labels (engine/model/labels.c) against transformers in f64 (heads/make_heads.py):
 * what they say of each token of packed texts, every gradient of a weighed sum of that, the export
 * byte for byte, and that a head read otherwise is seen.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/convert/convert.h"
#include "engine/graph/exec.h"
#include "engine/model/decoder.h"
#include "engine/model/weights.h"
#include "engine/store/safetensors.h"
#include "tests/tap/tap.h"

enum { B = 3, T = 12, ROWS = B * T, MOST = 5 };

static const struct kind {
    const char *name, *class;
    int64_t labels;
    int of, row, head;
    bool bias;
} all[] = {
    {"bert-text", "BertForSequenceClassification", 3, LF_LABELS_OF_TEXT, LF_LABEL_FIRST,
     LF_LABEL_TANH, true},
    {"bert-token", "BertForTokenClassification", 5, LF_LABELS_OF_TOKEN, LF_LABEL_LAST,
     LF_LABEL_PLAIN, true},
    {"bert-span", "BertForQuestionAnswering", 2, LF_LABELS_OF_SPAN, LF_LABEL_LAST, LF_LABEL_PLAIN,
     true},
    {"roberta-text", "RobertaForSequenceClassification", 1, LF_LABELS_OF_TEXT, LF_LABEL_FIRST,
     LF_LABEL_TANH, true},
    {"roberta-token", "RobertaForTokenClassification", 4, LF_LABELS_OF_TOKEN, LF_LABEL_LAST,
     LF_LABEL_PLAIN, true},
    {"electra-text", "ElectraForSequenceClassification", 3, LF_LABELS_OF_TEXT, LF_LABEL_FIRST,
     LF_LABEL_GELU, true},
    {"electra-token", "ElectraForTokenClassification", 4, LF_LABELS_OF_TOKEN, LF_LABEL_LAST,
     LF_LABEL_PLAIN, true},
    {"electra-span", "ElectraForQuestionAnswering", 2, LF_LABELS_OF_SPAN, LF_LABEL_LAST,
     LF_LABEL_PLAIN, true},
    {"electra-replaced", "ElectraForPreTraining", 1, LF_LABELS_OF_TOKEN, LF_LABEL_LAST,
     LF_LABEL_GELU, true},
    {"distilbert-text", "DistilBertForSequenceClassification", 2, LF_LABELS_OF_TEXT, LF_LABEL_FIRST,
     LF_LABEL_RELU, true},
    {"distilbert-span", "DistilBertForQuestionAnswering", 2, LF_LABELS_OF_SPAN, LF_LABEL_LAST,
     LF_LABEL_PLAIN, true},
    {"modernbert-text", "ModernBertForSequenceClassification", 3, LF_LABELS_OF_TEXT, LF_LABEL_FIRST,
     LF_LABEL_TRANSFORM, true},
    {"modernbert-token", "ModernBertForTokenClassification", 4, LF_LABELS_OF_TOKEN, LF_LABEL_LAST,
     LF_LABEL_TRANSFORM, true},
    {"qwen2-text", "Qwen2ForSequenceClassification", 3, LF_LABELS_OF_TEXT, LF_LABEL_LAST,
     LF_LABEL_PLAIN, false},
};
#define N_KINDS (sizeof all / sizeof *all)

static struct lf_convert_opts options(const char *from, const char *out)
{
    return (struct lf_convert_opts){.from = from, .out = out, .threads = 1, .pad_token = -1};
}

static void import(char out[4096], const char *dir)
{
    lf_err err = LF_ERR_INIT;
    struct lf_convert_result res;
    snprintf(out, 4096, "%s/%s-in", tap_tmpdir(), strrchr(dir, '/') + 1);
    const struct lf_convert_opts o = options(dir, out);
    if (lf_convert_import(&o, &res, &err))
        tap_bail("%s: %s", dir, err.text);
}

/* ---- the model at work ---- */

struct rig {
    lf_decoder *dec;
    lf_pstore *ps;
    lf_plan *plan;
    lf_back *back;
    lf_exec *ex;
    int chain;
    const struct kind *k;
    lf_st *st;
};

static void *read_as(const struct rig *r, const char *name, enum lf_st_dtype type, int64_t n)
{
    lf_err err = LF_ERR_INIT;
    const lf_st_entry *e = lf_st_find(r->st, name);
    void *to = calloc((size_t)n, 8);
    if (!to || !e || e->dtype != type || e->elems != n || lf_st_read(r->st, e, 0, n, to, &err))
        tap_bail("expected.safetensors has no %s as it should be: %s", name, err.text);
    return to;
}

static void open_rig(struct rig *r, const char *checkpoint, const lf_model_config *as)
{
    static const struct lf_plan_opts po = {.threads = 1, .compute = LF_F32, .mode = LF_INVARIANT};
    static const struct lf_adamw_opts adam = {
        .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f};
    const struct lf_decoder_rows rows = {.rows = ROWS, .n_docs = B, .max_doc = T};
    const struct lf_decoder_heads heads = {.train = true, .score = true};
    lf_err err = LF_ERR_INIT;
    lf_ckpt *ck = NULL;
    lf_model_config c;
    if (lf_ckpt_open(&ck, checkpoint, 1, &err) || lf_weights_config(&c, ck, &err))
        tap_bail("%s", err.text);
    c = as ? *as : c;
    if (!(r->dec = lf_decoder_create(&c, T, &err)) || !(r->ps = lf_pstore_create(&err)) ||
        lf_decoder_declare(r->dec, r->ps, &err) || !(r->plan = lf_plan_create(r->ps, &po, &err)))
        tap_bail("%s", err.text);
    lf_graph *g = lf_decoder_heads_graph(r->dec, r->ps, "train", &rows, &heads, &err);
    r->chain = g ? lf_plan_add(r->plan, g, &(struct lf_chain_opts){.train = true}, &err) : -1;
    lf_graph_destroy(g);
    if (r->chain < 0 || lf_plan_optimizer(r->plan, &adam, &err) || lf_plan_finish(r->plan, &err) ||
        !(r->back = lf_back_cpu_create(lf_target_host()->isa, 1, &err)) ||
        !(r->ex = lf_exec_create(r->plan, r->back, NULL, &err)) ||
        lf_weights_load(r->ps, ck, LF_WEIGHTS_PREFIX, false, &err))
        tap_bail("%s", err.text);
    lf_ckpt_close(ck);
}

static void close_rig(struct rig *r)
{
    lf_exec_destroy(r->ex);
    lf_back_destroy(r->back);
    lf_plan_destroy(r->plan);
    lf_pstore_destroy(r->ps);
    lf_decoder_destroy(r->dec);
}

static void put(struct rig *r, const char *name, const void *v, int64_t n)
{
    lf_err err = LF_ERR_INIT;
    if (lf_exec_write(r->ex, r->chain, 0, name, v, (size_t)n * 4, &err))
        tap_bail("%s: %s", name, err.text);
}

static void narrow(int32_t *to, int64_t *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = (int32_t)from[i];
    free(from);
}

/* The labels of all tokens, of all texts in one pass; [ROWS, labels]. */
static void forward(struct rig *r, float *out)
{
    static int32_t tok[ROWS], pos[ROWS], types[ROWS];
    static const int32_t cu[B + 1] = {0, T, 2 * T, 3 * T};
    const struct lf_step_record rec = {.clip_norm = 1, .loss_scale = 1, .inv_tokens = 1};
    const bool typed = lf_st_find(r->st, "token_type_ids") != NULL;
    lf_err err = LF_ERR_INIT;
    narrow(tok, read_as(r, "input_ids", LF_ST_I64, ROWS), ROWS);
    if (typed)
        narrow(types, read_as(r, "token_type_ids", LF_ST_I64, ROWS), ROWS);
    for (int i = 0; i < ROWS; i++)
        pos[i] = i % T;
    put(r, "tokens", tok, ROWS);
    put(r, "positions", pos, ROWS);
    put(r, "cu_seqlens", cu, B + 1);
    const struct lf_decoder_docs docs = {
        .cu_seqlens = cu, .n = B, .rows = ROWS, .types = typed ? types : NULL};
    if (lf_decoder_write_turns(r->dec, r->ex, r->chain, &docs, &err) ||
        lf_exec_record_write(r->ex, &rec, &err) ||
        lf_exec_run(r->ex, r->chain, LF_FWD, 0, LF_FIRST, &err) ||
        lf_exec_read(r->ex, r->chain, 0, "score", out, (size_t)(ROWS * r->k->labels) * 4, &err))
        tap_bail("%s: %s", r->k->name, err.text);
}

/* The largest error over the largest label. */
static double labels_off(struct rig *r)
{
    float got[ROWS * MOST];
    const int64_t n = ROWS * r->k->labels;
    double *want = read_as(r, "logits", LF_ST_F64, n), off = 0, most = 0;
    forward(r, got);
    for (int64_t i = 0; i < n; i++) {
        off = tap_worse(off, fabs((double)got[i] - want[i]));
        most = tap_worse(most, fabs(want[i]));
    }
    free(want);
    return off / most;
}

/* Squares of tensor i's error and of what it should be. */
static void gradient_error(const struct rig *r, const lf_ckpt *want, int i, double *sq, double *ref)
{
    lf_err err = LF_ERR_INIT;
    char name[200];
    const struct lf_param_desc *d = lf_pstore_desc(r->ps, i);
    const int64_t n = d->dims[0] * (d->ndim > 1 ? d->dims[1] : 1);
    float *a = calloc((size_t)n, 4), *b = calloc((size_t)n, 4);
    snprintf(name, sizeof name, LF_WEIGHTS_PREFIX "%s", d->name);
    const lf_ckpt_entry *e = lf_ckpt_find(want, name, "weight");
    if (!a || !b || !e || lf_ckpt_read(want, e, NULL, NULL, b, &err) ||
        lf_pstore_read(r->ps, i, LF_P_GRAD, a, (size_t)n * 4, &err))
        tap_bail("no gradient of %s: %s", d->name, err.text);
    *sq = *ref = 0;
    for (int64_t k = 0; k < n; k++) {
        *sq += ((double)a[k] - (double)b[k]) * ((double)a[k] - (double)b[k]);
        *ref += (double)b[k] * (double)b[k];
    }
    free(a);
    free(b);
}

/* Biases of keys have none: next to that of the whole model they are measured. */
static double gradients_off(struct rig *r, const char *dir)
{
    lf_err err = LF_ERR_INIT;
    char from[4096 + 8], path[4096];
    float d[ROWS * MOST];
    const int64_t n = ROWS * r->k->labels;
    double *w = read_as(r, "weights", LF_ST_F64, n), worst = 0, whole = 0, sq, ref;
    lf_ckpt *want = NULL;
    for (int64_t i = 0; i < n; i++)
        d[i] = (float)w[i];
    free(w);
    put(r, "dscore", d, n);
    snprintf(from, sizeof from, "%s-grad", dir);
    import(path, from);
    if (lf_exec_run(r->ex, r->chain, LF_BWD, 0, LF_FIRST, &err) ||
        lf_ckpt_open(&want, path, 1, &err))
        tap_bail("%s", err.text);
    for (int i = 0; i < lf_pstore_count(r->ps); i++) {
        gradient_error(r, want, i, &sq, &ref);
        whole += ref;
    }
    for (int i = 0; i < lf_pstore_count(r->ps); i++) {
        gradient_error(r, want, i, &sq, &ref);
        worst = tap_worse(worst, sqrt(sq / (ref > 1e-8 * whole ? ref : 1e-4 * whole)));
    }
    lf_ckpt_close(want);
    return worst;
}

/* ---- out again ---- */

static bool same_file(const char *a, const char *b, const char *name)
{
    lf_err err = LF_ERR_INIT;
    char x[8192], y[8192];
    lf_buf p, q;
    lf_buf_init(&p);
    lf_buf_init(&q);
    snprintf(x, sizeof x, "%s/%s", a, name);
    snprintf(y, sizeof y, "%s/%s", b, name);
    if (lf_io_read_file(x, 1 << 22, &p, &err) || lf_io_read_file(y, 1 << 22, &q, &err))
        tap_bail("%s", err.text);
    const bool same = p.len == q.len && memcmp(p.data, q.data, p.len) == 0;
    lf_buf_fini(&p);
    lf_buf_fini(&q);
    return same;
}

static void exports(const struct kind *k, const char *dir, const char *checkpoint)
{
    lf_err err = LF_ERR_INIT;
    char out[4096], config[8192], again[4096];
    struct lf_convert_result res;
    struct rig r = {.k = k};
    snprintf(out, sizeof out, "%s/%s-out", tap_tmpdir(), k->name);
    struct lf_convert_opts o = options(checkpoint, out);
    tap_rc(lf_convert_export(&o, &res, &err), 0, &err, NULL, "it goes out");
    tap_ok(same_file(out, dir, "model.safetensors") && same_file(out, dir, "config.json"),
           "%s: as it came, byte for byte", k->name);
    /* With a new type config.json is written from our description. */
    snprintf(out, sizeof out, "%s/%s-new", tap_tmpdir(), k->name);
    o.dtype = LF_CONVERT_F32;
    o.pad_token = 1;
    if (k->row != LF_LABEL_LAST || k->of != LF_LABELS_OF_TEXT)
        o.pad_token = -1;
    tap_rc(lf_convert_export(&o, &res, &err), 0, &err, NULL, "and from the description");
    snprintf(config, sizeof config, "%s/config.json", out);
    json_t *j = lf_json_load_file(config, 1 << 20, &err);
    const char *class = json_string_value(json_array_get(json_object_get(j, "architectures"), 0));
    tap_ok(class && strcmp(class, k->class) == 0 &&
               json_object_size(json_object_get(j, "id2label")) == (size_t)k->labels,
           "%s: the class and its labels", k->name);
    json_decref(j);
    import(again, out);
    char path[8192];
    snprintf(path, sizeof path, "%s/expected.safetensors", dir);
    if (lf_st_open(&r.st, path, &err))
        tap_bail("%s", err.text);
    open_rig(&r, again, NULL);
    const double off = labels_off(&r);
    tap_ok(off < 1e-5, "%s: out and in again, off by %.2g", k->name, off);
    close_rig(&r);
    lf_st_close(r.st);
}

/* Another activation before the last matrix is another model. */
static void flipped(struct rig *r, const char *checkpoint)
{
    lf_model_config c = *lf_decoder_config(r->dec);
    struct rig other = {.k = r->k, .st = r->st};
    if (!lf_model_label_inner(&c))
        return;
    c.label_head = c.label_head == LF_LABEL_TANH ? LF_LABEL_RELU : LF_LABEL_TANH;
    open_rig(&other, checkpoint, &c);
    const double off = labels_off(&other);
    tap_ok(off > 1e-2, "%s: another activation is seen (%.2g)", r->k->name, off);
    close_rig(&other);
}

static void one(const struct kind *k)
{
    lf_err err = LF_ERR_INIT;
    char dir[4096], checkpoint[4096], path[8192];
    struct rig r = {.k = k};
    snprintf(dir, sizeof dir, "%s/tests/golden/heads/%s", getenv("LF_SRCDIR"), k->name);
    snprintf(path, sizeof path, "%s/expected.safetensors", dir);
    if (lf_st_open(&r.st, path, &err))
        tap_bail("%s", err.text);
    import(checkpoint, dir);
    open_rig(&r, checkpoint, NULL);
    const lf_model_config *c = lf_decoder_config(r.dec);
    tap_ok(c->output == LF_OUTPUT_LABELS && c->labels == k->labels && c->labels_of == k->of &&
               c->label_row == k->row && c->label_head == k->head && c->label_bias == k->bias,
           "%s: the head that the class has", k->name);
    double off = labels_off(&r);
    tap_ok(off < 1e-5, "%s: labels of transformers, off by %.2g", k->name, off);
    off = gradients_off(&r, dir);
    tap_ok(off < 1e-5, "%s: %d gradients, worst relative error %.2g", k->name,
           lf_pstore_count(r.ps), off);
    exports(k, dir, checkpoint);
    flipped(&r, checkpoint);
    close_rig(&r);
    lf_st_close(r.st);
}

/* Labels of a text that are read from a mean of its tokens. */
static void refused(void)
{
    lf_err err = LF_ERR_INIT;
    char dir[4096], path[8192], from[8192], out[8192];
    struct lf_convert_result res;
    snprintf(dir, sizeof dir, "%s/mean", tap_tmpdir());
    snprintf(from, sizeof from, "%s/tests/golden/heads/modernbert-text/config.json",
             getenv("LF_SRCDIR"));
    json_t *j = lf_json_load_file(from, 1 << 20, &err);
    json_object_set_new(j, "classifier_pooling", json_string("mean"));
    char *text = json_dumps(j, 0);
    snprintf(path, sizeof path, "%s/config.json", dir);
    if (!text || lf_io_mkdirs(dir, 0777, &err) ||
        lf_io_write_file(path, text, strlen(text), 0666, &err))
        tap_bail("%s", err.text);
    snprintf(out, sizeof out, "%s/mean-in", tap_tmpdir());
    const struct lf_convert_opts o = options(dir, out);
    tap_rc(lf_convert_import(&o, &res, &err), LF_ENOTSUP, &err, "classifier_pooling = mean",
           "another pooling is refused");
    free(text);
    json_decref(j);
}

int main(void)
{
    for (size_t i = 0; i < N_KINDS; i++) {
        const bool inner = all[i].head != LF_LABEL_PLAIN && all[i].head != LF_LABEL_TRANSFORM;
        TAP(8 + inner, one(&all[i]));
    }
    TAP(1, refused());
    return tap_done();
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Reward models against transformers and the maths of trl's RewardTrainer (post/make_rm.py):
 * sequence classifiers come in with equal scores and go out byte for byte; loss, gradients and 20
 * AdamW steps of pairs, with margin and centring. Adapters of such a model as PEFT saves them
 * (post/make_rm_adapter.py): scores, 20 steps, merged, in and out.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/str.h"
#include "engine/convert/convert.h"
#include "engine/convert/peft.h"
#include "engine/graph/exec.h"
#include "engine/model/decoder.h"
#include "engine/model/merge.h"
#include "engine/model/weights.h"
#include "engine/post/bt_loss.h"
#include "engine/post/rm_score.h"
#include "engine/store/safetensors.h"
#include "tests/tap/tap.h"

enum { PAIRS = 12, TEXTS = 2 * PAIRS, BATCH = 4, STEPS = 20, MAX_TOKENS = 1024, LONGEST = 24 };
#define CENTRE 0.01

struct golden {
    char dir[4096], checkpoint[4096], adapter[4096]; /* adapter: "": none */
    int64_t length[TEXTS];
    int32_t tokens[MAX_TOKENS];
    lf_rm_text text[TEXTS];
    double margin[PAIRS], score[TEXTS];
    lf_st *st;
};

static void read_as(const lf_st *s, const char *name, enum lf_st_dtype type, int64_t n, void *dst)
{
    lf_err err = LF_ERR_INIT;
    const lf_st_entry *e = lf_st_find(s, name);
    if (!e || e->dtype != type || (n && e->elems != n) || e->elems > MAX_TOKENS ||
        lf_st_read(s, e, 0, e->elems, dst, &err))
        tap_bail("expected.safetensors has no %s as it should be: %s", name, err.text);
}

static struct lf_convert_opts options(const char *from, const char *out)
{
    return (struct lf_convert_opts){.from = from, .out = out, .threads = 1, .pad_token = -1};
}

static void import(char out[4096], const char *dir)
{
    lf_err err = LF_ERR_INIT;
    struct lf_convert_result res;
    snprintf(out, 4096, "%s/%s-checkpoint", tap_tmpdir(), strrchr(dir, '/') + 1);
    const struct lf_convert_opts o = options(dir, out);
    if (lf_convert_import(&o, &res, &err))
        tap_bail("%s", err.text);
}

static void open_golden(struct golden *g, const char *name)
{
    static int64_t ids[MAX_TOKENS];
    lf_err err = LF_ERR_INIT;
    char path[4096 + 32];
    snprintf(g->dir, sizeof g->dir, "%s/tests/golden/post/%s", getenv("LF_SRCDIR"), name);
    snprintf(path, sizeof path, "%s/expected.safetensors", g->dir);
    if (lf_st_open(&g->st, path, &err))
        tap_bail("%s", err.text);
    read_as(g->st, "tokens", LF_ST_I64, 0, ids);
    read_as(g->st, "lengths", LF_ST_I64, TEXTS, g->length);
    read_as(g->st, "margin", LF_ST_F64, PAIRS, g->margin);
    read_as(g->st, "scores", LF_ST_F64, TEXTS, g->score);
    for (int i = 0; i < MAX_TOKENS; i++)
        g->tokens[i] = (int32_t)ids[i];
    for (int t = 0, at = 0; t < TEXTS; t++) {
        g->text[t] = (lf_rm_text){.tokens = g->tokens + at, .n = (size_t)g->length[t]};
        at += (int)g->length[t];
    }
    import(g->checkpoint, g->dir);
}

/* ---- scores ---- */

static double scores_off(const struct golden *g, const char *checkpoint, const char *adapter)
{
    lf_err err = LF_ERR_INIT;
    lf_rm *r = NULL;
    float got[TEXTS];
    double worst = 0;
    const struct lf_rm_opts o = {.adapter = *adapter ? adapter : NULL,
                                 .threads = 2,
                                 .max_context = LONGEST,
                                 .rows = 100,
                                 .docs = 8};
    if (lf_rm_open(&r, checkpoint, &o, &err) || lf_rm_score(r, g->text, TEXTS, got, NULL, &err))
        tap_bail("%s", err.text);
    for (int t = 0; t < TEXTS; t++)
        worst = tap_worse(worst, fabs((double)got[t] - g->score[t]));
    lf_rm_close(r);
    return worst;
}

static void scores(const struct golden *g, const char *checkpoint, const char *what)
{
    const double worst = scores_off(g, checkpoint, "");
    tap_ok(worst < 1e-5, "%s: scores of transformers, off by %.2g", what, worst);
}

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
    bool same = p.len == q.len && memcmp(p.data, q.data, p.len) == 0;
    lf_buf_fini(&p);
    lf_buf_fini(&q);
    return same;
}

static void exports(const struct golden *g, const char *name)
{
    lf_err err = LF_ERR_INIT;
    char out[4096], config[8192], again[4096];
    struct lf_convert_result res;
    snprintf(out, sizeof out, "%s/%s-out", tap_tmpdir(), name);
    struct lf_convert_opts o = options(g->checkpoint, out);
    tap_rc(lf_convert_export(&o, &res, &err), 0, &err, NULL, "it goes out");
    tap_ok(same_file(out, g->dir, "model.safetensors") && same_file(out, g->dir, "config.json"),
           "%s: as it came, byte for byte", name);
    /* With a new type config.json is written from our description. */
    snprintf(out, sizeof out, "%s/%s-new", tap_tmpdir(), name);
    o.dtype = LF_CONVERT_F32;
    tap_rc(lf_convert_export(&o, &res, &err), 0, &err, NULL, "and from the description");
    snprintf(config, sizeof config, "%s/config.json", out);
    json_t *j = lf_json_load_file(config, 1 << 20, &err);
    const char *class = json_string_value(json_array_get(json_object_get(j, "architectures"), 0));
    tap_ok(class && lf_str_has_suffix(class, "ForSequenceClassification"),
           "%s: the class has a score", name);
    tap_ok(json_integer_value(json_object_get(j, "num_labels")) == 1 &&
               json_object_size(json_object_get(j, "id2label")) == 1 &&
               json_integer_value(json_object_get(j, "pad_token_id")) == 1,
           "one label, and a padding token that is not the end");
    json_decref(j);
    import(again, out);
    scores(g, again, "out and in again");
    o.pad_token = 2;
    snprintf(out, sizeof out, "%s/%s-pad", tap_tmpdir(), name);
    o.out = out;
    tap_rc(lf_convert_export(&o, &res, &err), LF_EINVAL, &err, "is the end token",
           "the end token pads nothing");
}

/* A head of two labels is no reward model: the file would have two rows. */
static void labels(const struct golden *g)
{
    lf_err err = LF_ERR_INIT;
    char dir[4096], to[8192], from[8192], out[4096 + 8];
    struct lf_convert_result res;
    lf_buf text;
    lf_buf_init(&text);
    snprintf(dir, sizeof dir, "%s/two", tap_tmpdir());
    snprintf(to, sizeof to, "%s/config.json", dir);
    snprintf(from, sizeof from, "%s/config.json", g->dir);
    json_t *j = lf_json_load_file(from, 1 << 20, &err);
    json_object_set_new(json_object_get(j, "id2label"), "1", json_string("LABEL_1"));
    char *made = json_dumps(j, 0);
    if (lf_io_mkdirs(dir, 0777, &err) || lf_io_write_file(to, made, strlen(made), 0666, &err))
        tap_bail("%s", err.text);
    snprintf(out, sizeof out, "%s-out", dir);
    const struct lf_convert_opts o = options(dir, out);
    snprintf(to, sizeof to, "%s/model.safetensors", dir);
    snprintf(from, sizeof from, "%s/model.safetensors", g->dir);
    if (lf_io_read_file(from, 1 << 22, &text, &err) ||
        lf_io_write_file(to, text.data, text.len, 0666, &err))
        tap_bail("%s", err.text);
    tap_rc(lf_convert_import(&o, &res, &err), LF_EINVAL, &err, "score.weight",
           "two labels that the file has no rows for");
    free(made);
    json_decref(j);
    lf_buf_fini(&text);
}

/* ---- training ---- */

struct rig {
    lf_decoder *dec;
    lf_pstore *ps;
    lf_plan *plan;
    lf_back *back;
    lf_exec *ex;
    int chain;
    int64_t rows, texts;
};

/* Beside the weights of ck, which it is for. */
static void adapt(struct rig *r, const char *adapter, const lf_ckpt *ck)
{
    lf_err err = LF_ERR_INIT;
    struct lf_adapter_config ac;
    char base[LF_HASH_HEX];
    lf_hash_hex(base, lf_ckpt_identity(ck));
    if (lf_adapter_config_of(&ac, adapter, &err) ||
        lf_adapter_load(r->ps, &ac, adapter, &(struct lf_adapter_base){base, "the base"}, 1, NULL,
                        &err))
        tap_bail("%s", err.text);
}

static void declare_adapter(struct rig *r, const char *adapter)
{
    lf_err err = LF_ERR_INIT;
    struct lf_adapter_config ac;
    if (lf_adapter_config_of(&ac, adapter, &err) || lf_decoder_adapt(r->dec, r->ps, &ac, &err))
        tap_bail("%s", err.text);
}

static void rig_open(struct rig *r, const char *checkpoint, const char *adapter, int64_t texts)
{
    static const struct lf_adamw_opts adam = {
        .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f};
    lf_err err = LF_ERR_INIT;
    lf_ckpt *ck = NULL;
    lf_model_config c;
    const struct lf_plan_opts po = {.threads = 2, .compute = LF_F32, .mode = LF_INVARIANT};
    *r = (struct rig){.rows = texts * LONGEST, .texts = texts};
    const struct lf_decoder_rows rows = {.rows = r->rows, .n_docs = texts + 1, .max_doc = LONGEST};
    const struct lf_decoder_heads heads = {.train = true, .score = true};
    if (lf_ckpt_open(&ck, checkpoint, 1, &err) || lf_weights_config(&c, ck, &err) ||
        !(r->dec = lf_decoder_create(&c, LONGEST, &err)) || !(r->ps = lf_pstore_create(&err)) ||
        lf_decoder_declare(r->dec, r->ps, &err))
        tap_bail("%s", err.text);
    if (*adapter)
        declare_adapter(r, adapter);
    if (!(r->plan = lf_plan_create(r->ps, &po, &err)))
        tap_bail("%s", err.text);
    lf_graph *g = lf_decoder_heads_graph(r->dec, r->ps, "train", &rows, &heads, &err);
    r->chain = g ? lf_plan_add(r->plan, g, &(struct lf_chain_opts){.train = true}, &err) : -1;
    lf_graph_destroy(g);
    if (r->chain < 0 || lf_plan_optimizer(r->plan, &adam, &err) || lf_plan_finish(r->plan, &err) ||
        !(r->back = lf_back_cpu_create(lf_target_host()->isa, 2, &err)) ||
        !(r->ex = lf_exec_create(r->plan, r->back, NULL, &err)) ||
        lf_weights_load(r->ps, ck, LF_WEIGHTS_PREFIX, false, &err))
        tap_bail("%s", err.text);
    if (*adapter)
        adapt(r, adapter, ck);
    lf_ckpt_close(ck);
}

static void rig_close(struct rig *r)
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

/* Both sides of n pairs from `first` on in one forward pass, and the gradient of the mean loss. */
static lf_bt_means step(struct rig *r, const struct golden *g, int first, int n, bool margins,
                        double centre, int number)
{
    static int32_t tok[TEXTS * LONGEST], pos[TEXTS * LONGEST], cu[TEXTS + 2], last[TEXTS];
    static float score[TEXTS * LONGEST], d[TEXTS * LONGEST];
    float c[PAIRS], rj[PAIRS], m[PAIRS], dc[PAIRS], dr[PAIRS];
    lf_err err = LF_ERR_INIT;
    int at = 0;
    memset(tok, 0, sizeof tok);
    memset(pos, 0, sizeof pos);
    memset(d, 0, sizeof d);
    for (int t = 0; t < 2 * n; t++) {
        const lf_rm_text *x = &g->text[2 * first + t];
        for (size_t i = 0; i < x->n; i++, at++) {
            tok[at] = x->tokens[i];
            pos[at] = (int32_t)i;
        }
        cu[t + 1] = at;
        last[t] = at - 1;
    }
    cu[2 * n + 1] = (int32_t)r->rows;
    for (int64_t i = at; i < r->rows; i++)
        pos[i] = (int32_t)((i - at) % LONGEST);
    struct lf_step_record rec = {.step = (uint64_t)number,
                                 .lr = 2e-3f,
                                 .bias_corr1 = (float)(1 - pow(0.9, number + 1)),
                                 .bias_corr2 = (float)(1 - pow(0.95, number + 1)),
                                 .clip_norm = 1,
                                 .loss_scale = 1,
                                 .inv_tokens = 1};
    put(r, "tokens", tok, r->rows);
    put(r, "positions", pos, r->rows);
    put(r, "cu_seqlens", cu, r->texts + 2);
    if (lf_exec_record_write(r->ex, &rec, &err) ||
        lf_exec_run(r->ex, r->chain, LF_FWD, 0, LF_FIRST, &err) ||
        lf_exec_read(r->ex, r->chain, 0, "score", score, (size_t)r->rows * 4, &err))
        tap_bail("%s", err.text);
    for (int k = 0; k < n; k++) {
        c[k] = score[last[2 * k]];
        rj[k] = score[last[2 * k + 1]];
        m[k] = margins ? (float)g->margin[first + k] : 0;
    }
    lf_bt_sums sums = {0};
    lf_bt_means means;
    lf_bt_loss(&sums, &(struct lf_bt_pairs){c, rj, m, n}, centre,
               &(struct lf_bt_slopes){dc, dr, 1. / n});
    for (int k = 0; k < n; k++) {
        d[last[2 * k]] = dc[k];
        d[last[2 * k + 1]] = dr[k];
    }
    put(r, "dscore", d, r->rows);
    if (lf_exec_run(r->ex, r->chain, LF_BWD, 0, LF_FIRST, &err))
        tap_bail("%s", err.text);
    lf_bt_sums_means(&means, &sums);
    return means;
}

static double expected(const struct golden *g, const char *name)
{
    double v;
    read_as(g->st, name, LF_ST_F64, 1, &v);
    return v;
}

static double gradient_error(const struct rig *r, const lf_ckpt *want, int i)
{
    lf_err err = LF_ERR_INIT;
    char name[200];
    const struct lf_param_desc *d = lf_pstore_desc(r->ps, i);
    const int64_t n = d->dims[0] * (d->ndim > 1 ? d->dims[1] : 1);
    float *a = calloc((size_t)n, 4), *b = calloc((size_t)n, 4);
    double sq = 0, ref = 0;
    snprintf(name, sizeof name, LF_WEIGHTS_PREFIX "%s", d->name);
    const lf_ckpt_entry *e = lf_ckpt_find(want, name, "weight");
    if (!a || !b || !e || lf_ckpt_read(want, e, NULL, NULL, b, &err) ||
        lf_pstore_read(r->ps, i, LF_P_GRAD, a, (size_t)n * 4, &err))
        tap_bail("no gradient of %s: %s", d->name, err.text);
    for (int64_t k = 0; k < n; k++) {
        sq += ((double)a[k] - (double)b[k]) * ((double)a[k] - (double)b[k]);
        ref += (double)b[k] * (double)b[k];
    }
    free(a);
    free(b);
    return sqrt(sq / ref);
}

static void gradients(const struct golden *g)
{
    lf_err err = LF_ERR_INIT;
    char from[4096 + 8], path[4096];
    struct rig r;
    lf_ckpt *want = NULL;
    double worst = 0;
    snprintf(from, sizeof from, "%s-grad", g->dir);
    import(path, from);
    if (lf_ckpt_open(&want, path, 1, &err))
        tap_bail("%s", err.text);
    rig_open(&r, g->checkpoint, "", TEXTS);
    tap_f64(step(&r, g, 0, PAIRS, false, 0, 0).loss, expected(g, "loss.plain"), 1e-6, "loss");
    tap_f64(step(&r, g, 0, PAIRS, true, 0, 0).loss, expected(g, "loss.margin"), 1e-6,
            "loss with margins");
    tap_f64(step(&r, g, 0, PAIRS, true, CENTRE, 0).loss, expected(g, "loss.centre"), 1e-6,
            "loss with margins and centring");
    for (int i = 0; i < lf_pstore_count(r.ps); i++)
        worst = tap_worse(worst, gradient_error(&r, want, i));
    tap_ok(worst < 1e-5, "%d gradients, worst relative error %.2g", lf_pstore_count(r.ps), worst);
    lf_ckpt_close(want);
    rig_close(&r);
}

static void trajectory(const struct golden *g)
{
    lf_err err = LF_ERR_INIT;
    double loss[STEPS], norm[STEPS], accuracy[STEPS], worst = 0, norms = 0, right = 0;
    struct rig r;
    struct lf_step_record rec;
    read_as(g->st, "train.loss", LF_ST_F64, STEPS, loss);
    read_as(g->st, "train.norm", LF_ST_F64, STEPS, norm);
    read_as(g->st, "train.accuracy", LF_ST_F64, STEPS, accuracy);
    rig_open(&r, g->checkpoint, g->adapter, 2 * BATCH);
    for (int s = 0; s < STEPS; s++) {
        const lf_bt_means m = step(&r, g, s * BATCH % PAIRS, BATCH, true, CENTRE, s);
        if (lf_exec_run(r.ex, LF_CHAIN_OPT, LF_OPT, 0, LF_FIRST, &err) ||
            lf_exec_record_read(r.ex, &rec, &err))
            tap_bail("%s", err.text);
        worst = tap_worse(worst, fabs(m.loss - loss[s]));
        norms = tap_worse(norms, fabs((double)rec.grad_norm - norm[s]) / norm[s]);
        right = tap_worse(right, fabs(m.accuracy - accuracy[s]));
    }
    tap_ok(worst < 1e-4 && norms < 1e-3 && right < 1e-9,
           "20 steps: loss off by %.2g, gradient norm by %.2g of it, accuracy by %.2g", worst,
           norms, right);
    rig_close(&r);
}

/* ---- adapters ---- */

static void open_adapter(struct golden *g, const struct golden *base, const char *name)
{
    lf_err err = LF_ERR_INIT;
    char path[4096 + 32];
    struct lf_convert_result res;
    *g = *base;
    for (int t = 0; t < TEXTS; t++)
        g->text[t].tokens = g->tokens + (base->text[t].tokens - base->tokens);
    snprintf(g->dir, sizeof g->dir, "%s/tests/golden/post/%s", getenv("LF_SRCDIR"), name);
    snprintf(g->adapter, sizeof g->adapter, "%s/%s-adapter", tap_tmpdir(), name);
    snprintf(path, sizeof path, "%s/expected.safetensors", g->dir);
    const struct lf_peft_opts o = {
        .from = g->dir, .out = g->adapter, .base = base->checkpoint, .threads = 1};
    if (lf_st_open(&g->st, path, &err) || lf_peft_import(&o, &res, &err))
        tap_bail("%s", err.text);
    read_as(g->st, "scores", LF_ST_F64, TEXTS, g->score);
}

static void adapter(const struct golden *base, const char *name)
{
    static struct golden g;
    lf_err err = LF_ERR_INIT;
    char out[4096];
    struct lf_convert_result res;
    double off;
    open_adapter(&g, base, name);
    off = scores_off(&g, g.checkpoint, g.adapter);
    tap_ok(off < 1e-5, "%s: scores of PEFT, off by %.2g", name, off);
    off = scores_off(&g, g.checkpoint, "");
    tap_ok(off > 0.1, "%s: and not those of the base, which are off by %.2g", name, off);
    snprintf(out, sizeof out, "%s/%s-merged", tap_tmpdir(), name);
    const struct lf_merge_opts mo = {
        .base = g.checkpoint, .adapter = g.adapter, .out = out, .threads = 1};
    tap_rc(lf_adapter_merge(&mo, NULL, &err), 0, &err, NULL, "it is merged");
    off = scores_off(&g, out, "");
    tap_ok(off < 1e-5, "%s: merged it has the same scores, off by %.2g", name, off);
    snprintf(out, sizeof out, "%s/%s-peft", tap_tmpdir(), name);
    const struct lf_peft_opts po = {.from = g.adapter, .out = out, .threads = 1};
    tap_rc(lf_peft_export(&po, &res, &err), 0, &err, NULL, "it goes out");
    tap_ok(same_file(out, g.dir, "adapter_model.safetensors"), "%s: as it came, byte for byte",
           name);
    trajectory(&g);
    lf_st_close(g.st);
}

int main(void)
{
    static struct golden qwen, gpt;
    open_golden(&qwen, "rm-qwen2");
    open_golden(&gpt, "rm-gpt2");
    TAP(1, scores(&qwen, qwen.checkpoint, "qwen2"));
    TAP(1, scores(&gpt, gpt.checkpoint, "gpt2"));
    TAP(7, exports(&qwen, "qwen2"));
    TAP(7, exports(&gpt, "gpt2"));
    TAP(1, labels(&qwen));
    TAP(4, gradients(&qwen));
    TAP(1, trajectory(&qwen));
    TAP(7, adapter(&qwen, "rm-lora"));
    TAP(7, adapter(&qwen, "rm-dora"));
    lf_st_close(qwen.st);
    lf_st_close(gpt.st);
    return tap_done();
}

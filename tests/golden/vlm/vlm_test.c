/* SPDX-License-Identifier: Apache-2.0
 *
 * Models that see against transformers in f64 (make_vlm.py): imported, run, exported. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/str.h"
#include "engine/convert/convert.h"
#include "engine/store/safetensors.h"
#include "tests/golden/vlm/vlm.h"
#include "tests/tap/tap.h"

static void *need(void *p)
{
    if (!p)
        tap_bail("no memory");
    return p;
}

static float *floats(const vlm *v)
{
    return need(calloc((size_t)(v->f.rows * v->f.vocab), sizeof(float)));
}

static void open_or_bail(vlm_rig *r, const vlm *v, enum lf_dtype compute, bool train)
{
    lf_err err = LF_ERR_INIT;
    if (vlm_rig_open(r, v, &v->f.config, compute, train, &err))
        tap_bail("%s: %s", v->f.name, err.text);
    if (family_load(&v->f, r->ps))
        tap_bail("%s: the import lacks a tensor that the model declares", v->f.name);
}

/* ---- forward ---- */

static void test_forward(const vlm *v)
{
    vlm_rig r;
    float *out = floats(v);
    double rms = 0;
    open_or_bail(&r, v, LF_F32, false);
    tap_ok(lf_pstore_elements(r.ps) == lf_model_param_count(&v->f.config),
           "%s: as many parameters as were counted", v->f.name);
    vlm_logits(&r, v, out);
    vlm_rig_close(&r);
    const double e = family_error(&v->f, out, NULL);
    tap_ok(e <= FAMILY_F32, "%s: f32 logits: relative error %.2g", v->f.name, e);
    open_or_bail(&r, v, LF_BF16, false);
    vlm_logits(&r, v, out);
    vlm_rig_close(&r);
    family_error(&v->f, out, &rms);
    tap_ok(rms <= 1.5 * v->f.bf16_rms, "%s: bf16 rms error %.3g, %.2f of the reference's own",
           v->f.name, rms, rms / v->f.bf16_rms);
    free(out);
}

/* ---- gradients ---- */

static double square(const float *x, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++)
        s += (double)x[i] * (double)x[i];
    return s;
}

/* Of the gradient of a key bias without effect, that of the query bias is the scale. */
static double scale(const vlm *v, const struct lf_param_desc *d, const float *want)
{
    char name[200];
    const int64_t n = family_elements(d);
    if (!vlm_without_effect(v, d->name))
        return square(want, n);
    float *q = need(calloc((size_t)n, 4));
    snprintf(name, sizeof name, "%.*sq.bias", (int)(strlen(d->name) - strlen("k.bias")), d->name);
    if (!family_tensor(&v->f, FAMILY_GRADS, name, q, n, 1))
        tap_bail("%s: no gradient of %s", v->f.name, name);
    const double s = square(q, n);
    free(q);
    return s;
}

/* 0 too for a tensor that nothing reads: it is frozen, and the reference's gradient is 0. */
static double gradient_error(const vlm *v, const lf_pstore *ps, int i)
{
    const struct lf_param_desc *d = lf_pstore_desc(ps, i);
    const int64_t n = family_elements(d);
    float *want = need(calloc((size_t)n, 4)), *got = need(calloc((size_t)n, 4));
    lf_err err = LF_ERR_INIT;
    if (!family_tensor(&v->f, FAMILY_GRADS, d->name, want, n, family_columns(d)) ||
        (!d->frozen && lf_pstore_read(ps, i, LF_P_GRAD, got, (size_t)n * 4, &err)))
        tap_bail("%s: %s: no gradient: %s", v->f.name, d->name, err.text);
    double sq = 0;
    for (int64_t e = 0; e < n; e++)
        sq += ((double)got[e] - (double)want[e]) * ((double)got[e] - (double)want[e]);
    const double ref = scale(v, d, want);
    free(want);
    free(got);
    return sq > 0 ? sqrt(sq / ref) : 0;
}

static void test_gradients(const vlm *v)
{
    vlm_rig r;
    const char *name = "";
    double worst = 0;
    open_or_bail(&r, v, LF_F32, true);
    const double loss = vlm_step(&r, v);
    tap_ok(fabs(loss - v->f.loss) <= FAMILY_F32 * v->f.loss, "%s: loss %.9g, reference %.9g",
           v->f.name, loss, v->f.loss);
    for (int i = 0; i < lf_pstore_count(r.ps); i++) {
        const double e = gradient_error(v, r.ps, i);
        if (e <= worst)
            continue;
        worst = e;
        name = lf_pstore_desc(r.ps, i)->name;
    }
    tap_ok(worst <= FAMILY_F32, "%s: %d gradients, worst relative error %.2g (%s)", v->f.name,
           lf_pstore_count(r.ps), worst, name);
    vlm_rig_close(&r);
}

/* ---- what these comparisons notice ---- */

static void test_notice(const vlm *v)
{
    int n = 0;
    double least = 0;
    int unseen = vlm_flips(v, &n, &least);
    tap_ok(n > 40 && unseen == 0, "%s: each of %d switches flipped is noticed, least %.2g",
           v->f.name, n, least);
    unseen = vlm_swaps(v, &n, &least);
    tap_ok(n > 80 && unseen == 0,
           "%s: each of %d pairs of same-shaped tensors swapped is noticed, least %.2g", v->f.name,
           n, least);
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
static bool same_tensors(const char *x, const char *y)
{
    lf_err err = LF_ERR_INIT;
    lf_st *s = NULL, *t = NULL;
    if (lf_st_open(&s, x, &err) || lf_st_open(&t, y, &err))
        tap_bail("%s", err.text);
    bool same = lf_st_n_entries(s) == lf_st_n_entries(t);
    for (size_t i = 0; i < lf_st_n_entries(s) && same; i++) {
        const lf_st_entry *a = lf_st_entry_at(s, i), *b = lf_st_find(t, a->name);
        char *u = need(malloc((size_t)a->bytes)), *w = need(malloc((size_t)a->bytes));
        same = b && a->dtype == b->dtype && a->ndim == b->ndim &&
               memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof a->shape[0]) == 0 &&
               lf_st_read(s, a, 0, a->elems, u, &err) == 0 &&
               lf_st_read(t, b, 0, b->elems, w, &err) == 0 && memcmp(u, w, (size_t)a->bytes) == 0;
        if (!same)
            tap_diag("%s is not as it was %s", a->name, err.text);
        free(u);
        free(w);
    }
    lf_st_close(s);
    lf_st_close(t);
    return same;
}

static bool same_file(const char *x, const char *y, const char *name)
{
    lf_err err = LF_ERR_INIT;
    lf_buf a, b;
    char *p = text(x, name), *q = text(y, name);
    lf_buf_init(&a);
    lf_buf_init(&b);
    const bool same = lf_io_read_file(p, 1 << 20, &a, &err) == 0 &&
                      lf_io_read_file(q, 1 << 20, &b, &err) == 0 && a.len == b.len &&
                      memcmp(a.data, b.data, a.len) == 0;
    lf_buf_fini(&a);
    lf_buf_fini(&b);
    free(p);
    free(q);
    return same;
}

/* tokenizer: a directory of tmp, or NULL. */
static char *export_to(const vlm *v, const char *from, const char *to, int dtype,
                       const char *tokenizer)
{
    lf_err err = LF_ERR_INIT;
    struct lf_convert_result res;
    char *ckpt = text(v->f.tmp, from), *out = text(v->f.tmp, to),
         *files = tokenizer ? text(v->f.tmp, tokenizer) : NULL;
    struct lf_convert_opts o = {.from = ckpt,
                                .out = out,
                                .threads = 1,
                                .dtype = dtype,
                                .pad_token = -1,
                                .tokenizer = files};
    if (lf_convert_export(&o, &res, &err))
        tap_bail("%s: export: %s", v->f.name, err.text);
    free(ckpt);
    free(files);
    return out;
}

static json_t *config_of(const char *dir)
{
    lf_err err = LF_ERR_INIT;
    char *path = text(dir, "config.json");
    json_t *o = lf_json_load_file(path, 1 << 20, &err);
    if (!o)
        tap_bail("%s", err.text);
    free(path);
    return o;
}

static int read_config(lf_model_config *c, json_t *o, lf_err *err)
{
    const struct lf_hf_family *f = lf_hf_family_of(o, "config.json", err);
    return f ? lf_hf_config_read(c, f, o, "config.json", err) : err->rc;
}

static void test_export(const vlm *v)
{
    lf_err err = LF_ERR_INIT;
    lf_model_config back;
    const char *key = "";
    char *out = export_to(v, "checkpoint", "export", LF_CONVERT_KEEP, NULL);
    tap_ok(same_tensors(v->f.dir, out) && same_file(v->f.dir, out, "config.json"),
           "%s: exported as it came, every byte", v->f.name);
    free(out);
    /* In another type the file changes, and says everything else again. */
    out = export_to(v, "checkpoint", "bf16", LF_CONVERT_BF16, NULL);
    json_t *was = config_of(v->f.dir), *is = config_of(out);
    tap_ok(strcmp(json_string_value(json_object_get(is, "dtype")), "bfloat16") == 0 &&
               json_object_del(is, "dtype") == 0 && json_equal(was, is),
           "%s: in bf16, with the same config.json but for dtype", v->f.name);
    json_decref(is);
    json_decref(was);
    free(out);
    /* By the tables alone, as for a model that was made here. */
    const struct lf_hf_family *f = lf_hf_family_for(&v->f.config, NULL, &err);
    is = f ? lf_hf_config_write(f, &v->f.config, "float32", &err) : NULL;
    const int rc = is ? read_config(&back, is, &err) : err.rc;
    tap_ok(rc == 0 && lf_model_config_equal(&v->f.config, &back, &key),
           "%s: its config.json by the tables means the same model (%s%s)", v->f.name, key,
           err.text);
    json_decref(is);
}

/* ---- other forms of the same files ---- */

static const struct {
    const char *name, *from, *to;
} forms[] = {
    {"llava", "language_model.model.", "model.language_model."},
    {"llava", "language_model.lm_head.", "lm_head."},
    {"llava", "vision_tower.vision_model.", "model.vision_tower.vision_model."},
    {"llava", "multi_modal_projector.", "model.multi_modal_projector."},
    {"llava-next", "vision_tower.vision_model.", "model.vision_tower."},
    {"llava-next", "image_newline", "model.image_newline"},
    {"llava-next", "language_model.model.", "model.language_model."},
    {"vipllava", "multi_modal_projector.", "model.multi_modal_projector."},
    {"vipllava", "vision_tower.vision_model.", "vision_tower."},
    {"gemma3", "language_model.model.", "model.language_model."},
    {"gemma3", "vision_tower.vision_model.", "model.vision_tower.vision_model."},
    {"gemma3", "multi_modal_projector.", "model.multi_modal_projector."},
    {"internvl", "vision_tower.", "model.vision_tower."},
    {"internvl", "language_model.model.", "model.language_model."},
    {"qwen2-vl", "visual.", "model.visual."},
    {"qwen2-vl", "model.", "model.language_model."},
    {"qwen2.5-vl", "model.visual.", "visual."},
    {"qwen2.5-vl", "model.language_model.", "model."},
    {"pixtral", "vision_tower.", "model.vision_tower."},
    {"pixtral", "language_model.model.", "model.language_model."},
    {"mistral3", "language_model.lm_head.", "lm_head."},
    {"mistral3", "multi_modal_projector.", "model.multi_modal_projector."},
};

static void other_name(char *out, size_t cap, const vlm *v, const char *name)
{
    snprintf(out, cap, "%s", name);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (strcmp(forms[i].name, v->f.name) == 0 && lf_str_has_prefix(name, forms[i].from)) {
            snprintf(out, cap, "%s%s", forms[i].to, name + strlen(forms[i].from));
            return;
        }
}

/* The experts of Qwen3-VL are turned in the published form, and not in the other. */
static bool is_turned(const vlm *v, const lf_st_entry *e)
{
    return strcmp(v->f.name, "qwen3-vl-moe") == 0 && strstr(e->name, ".mlp.experts.") &&
           e->ndim == 3;
}

static void turn(float *x, const lf_st_entry *e)
{
    const int64_t rows = e->shape[1], cols = e->shape[2];
    float *was = need(malloc((size_t)e->bytes));
    memcpy(was, x, (size_t)e->bytes);
    for (int64_t i = 0; i < e->elems; i++) {
        const int64_t k = i % (rows * cols);
        x[i - k + k % cols * rows + k / cols] = was[i];
    }
    free(was);
}

/* The same tensors under other names, or turned. */
static char *write_other(const vlm *v)
{
    lf_err err = LF_ERR_INIT;
    lf_st *s = NULL;
    lf_st_writer *w = NULL;
    char *dir = text(v->f.tmp, "other");
    if (mkdir(dir, 0777) || lf_st_open(&s, v->f.dir, &err))
        tap_bail("%s: %s", dir, err.text);
    family_describe(&v->f, dir);
    const size_t n = lf_st_n_entries(s);
    lf_st_decl *decl = need(calloc(n, sizeof *decl));
    char(*name)[200] = need(calloc(n, sizeof *name));
    for (size_t i = 0; i < n; i++) {
        const lf_st_entry *e = lf_st_entry_at(s, i);
        other_name(name[i], sizeof *name, v, e->name);
        decl[i] = (lf_st_decl){.name = name[i], .dtype = e->dtype, .ndim = e->ndim};
        memcpy(decl[i].shape, e->shape, sizeof e->shape);
        if (is_turned(v, e)) {
            decl[i].shape[1] = e->shape[2];
            decl[i].shape[2] = e->shape[1];
        }
    }
    if (lf_st_writer_create(&w, dir, decl, n, NULL, &err))
        tap_bail("%s", err.text);
    for (size_t i; (i = lf_st_writer_next(w)) < n;) {
        const lf_st_entry *e = lf_st_entry_at(s, i);
        float *x = need(malloc((size_t)e->bytes));
        if (lf_st_read(s, e, 0, e->elems, x, &err))
            tap_bail("%s", err.text);
        if (is_turned(v, e))
            turn(x, e);
        if (lf_st_writer_put(w, x, (size_t)e->bytes, &err))
            tap_bail("%s", err.text);
        free(x);
    }
    if (lf_st_writer_finish(w, NULL, NULL, &err))
        tap_bail("%s", err.text);
    lf_st_writer_destroy(w);
    lf_st_close(s);
    free(decl);
    free(name);
    return dir;
}

/* What a processor of pictures reads beside the weights. */
static const char *const beside[] = {"preprocessor_config.json", "video_preprocessor_config.json",
                                     "processor_config.json", "chat_template.json"};
enum { BESIDE = sizeof beside / sizeof *beside };

/* As lf-convert takes them: a tokenizer artifact of an import, which an export is given. */
static void write_beside(const vlm *v, const char *dir)
{
    lf_err err = LF_ERR_INIT;
    bool has = false;
    char *out = text(v->f.tmp, "other-files");
    for (int i = 0; i < BESIDE; i++) {
        char *path = text(dir, beside[i]);
        if (lf_io_write_file(path, beside[i], strlen(beside[i]), 0666, &err))
            tap_bail("%s", err.text);
        free(path);
    }
    if (lf_convert_tokenizer(dir, out, &has, &err))
        tap_bail("%s", err.text);
    free(out);
}

static void test_forms(const vlm *v)
{
    char *dir = write_other(v);
    write_beside(v, dir);
    lf_ckpt *c = family_import(&v->f, dir, "other-checkpoint");
    char *out = export_to(v, "other-checkpoint", "other-export", LF_CONVERT_KEEP, "other-files");
    bool same = lf_ckpt_n_entries(c) == lf_ckpt_n_entries(v->f.set[FAMILY_WEIGHTS]);
    for (size_t i = 0; i < lf_ckpt_n_entries(c) && same; i++) {
        uint8_t a[LF_HASH_BYTES], b[LF_HASH_BYTES];
        const lf_ckpt_entry *e = lf_ckpt_entry_at(c, i),
                            *o = lf_ckpt_find(v->f.set[FAMILY_WEIGHTS], e->name, e->kind);
        same = o && lf_ckpt_tensor_tree_hash(c, e, a) &&
               lf_ckpt_tensor_tree_hash(v->f.set[FAMILY_WEIGHTS], o, b) &&
               memcmp(a, b, sizeof a) == 0;
    }
    tap_ok(same && same_tensors(dir, out),
           "%s: under other names the same model, and exported under them", v->f.name);
    for (int i = 0; i < BESIDE; i++)
        same = same && same_file(dir, out, beside[i]);
    tap_ok(same, "%s: with the files of its processor", v->f.name);
    lf_ckpt_close(c);
    free(dir);
    free(out);
}

int main(int argc, char **argv)
{
    for (int i = 0; vlm_names[i]; i++) {
        bool mine = argc < 2;
        for (int a = 1; a < argc; a++)
            mine = mine || strcmp(argv[a], vlm_names[i]) == 0;
        if (!mine)
            continue;
        vlm *v = vlm_open(vlm_names[i]);
        TAP(3, test_forward(v));
        TAP(2, test_gradients(v));
        TAP(2, test_notice(v));
        TAP(3, test_export(v));
        TAP(2, test_forms(v));
        TAP(3, vlm_verify(v));
        vlm_close(v);
    }
    return tap_done();
}

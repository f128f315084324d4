/* SPDX-License-Identifier: Apache-2.0
 *
 * An adapter of ours as PEFT keeps it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/str.h"
#include "engine/convert/peft_priv.h"
#include "engine/model/weights.h"
#include "engine/store/safetensors.h"

/* "model.layers.0.self_attn.q_proj" -> "q_proj" */
static const char *last(const char *module)
{
    const char *dot = strrchr(module, '.');
    return dot ? dot + 1 : module;
}

/* Has every module of that short name an adapter? A number is the name of layers, too. */
static bool all_have(const struct lf_peft *p, const char *name)
{
    char end[128];
    size_t units = 0, modules = 0;
    if (strspn(name, "0123456789") == strlen(name))
        return false;
    snprintf(end, sizeof end, ".%s.weight", name);
    for (size_t k = 0; k < p->n; k++)
        units += strcmp(last(p->unit[k].module), name) == 0;
    for (size_t k = 0; k < p->map.n_items; k++)
        modules += lf_str_has_suffix(p->map.items[k].name, end);
    return units == modules;
}

/* Short names where every such module has an adapter, else whole ones: PEFT would put new adapters
 * on the others. */
static json_t *targets(const struct lf_peft *p)
{
    json_t *t = json_array();
    for (size_t k = 0; t && k < p->n; k++) {
        const char *name = last(p->unit[k].module);
        bool seen = false, all = all_have(p, name);
        for (size_t j = 0; j < k && all; j++)
            seen = seen || strcmp(last(p->unit[j].module), name) == 0;
        if (!seen && json_array_append_new(t, json_string(all ? name : p->unit[k].module))) {
            json_decref(t);
            return NULL;
        }
    }
    return t;
}

/* The parameters of experts, as short as every layer with experts has one. NULL: out of memory. */
static json_t *parameters(const struct lf_peft *p)
{
    json_t *t = json_array();
    for (size_t k = 0; t && k < p->n_stacks; k++) {
        char name[160];
        bool seen = false;
        snprintf(name, sizeof name, "experts.%s", p->stack[k].param);
        for (size_t j = 0; j < json_array_size(t) && !seen; j++)
            seen = strcmp(json_string_value(json_array_get(t, j)), name) == 0;
        if (!seen && json_array_append_new(t, json_string(name))) {
            json_decref(t);
            return NULL;
        }
    }
    return t;
}

static json_t *number(double x)
{
    return x == floor(x) && fabs(x) < 1e15 ? json_integer((json_int_t)x) : json_real(x);
}

/* PEFT has a class for each kind of model; that for generation takes models that generate alone. */
static const char *task_of(const struct lf_peft *p)
{
    static const char *const labels[] = {[LF_LABELS_OF_TEXT] = "SEQ_CLS",
                                         [LF_LABELS_OF_TOKEN] = "TOKEN_CLS",
                                         [LF_LABELS_OF_SPAN] = "QUESTION_ANS"};
    const lf_model_config *c = lf_decoder_config(p->dec);
    return p->ac.head                      ? "SEQ_CLS"
           : c->output == LF_OUTPUT_LABELS ? labels[c->labels_of]
           : lf_model_is_seq2seq(c)        ? "SEQ_2_SEQ_LM"
           : c->mask == LF_MASK_BOTH       ? "FEATURE_EXTRACTION"
                                           : "CAUSAL_LM";
}

static int write_config(const struct lf_peft *p, const char *dir, lf_artifact *a, lf_err *err)
{
    bool turned = false;
    for (size_t k = 0; k < p->n; k++)
        turned = turned || p->unit[k].turned;
    json_t *o = json_pack("{s:s,s:s,s:n,s:I,s:o,s:o,s:o,s:b,s:s,s:b,s:b,s:b,s:b}", "peft_type",
                          "LORA", "task_type", task_of(p), "base_model_name_or_path", "r",
                          (json_int_t)p->ac.rank, "lora_alpha", number(p->ac.alpha), "lora_dropout",
                          number(p->ac.dropout), "target_modules", targets(p), "fan_in_fan_out",
                          turned, "bias", "none", "use_rslora", p->ac.rank_stabilised, "use_dora",
                          p->ac.dora, "inference_mode", true, "init_lora_weights", true);
    if (o && p->n_stacks && json_object_set_new(o, "target_parameters", parameters(p))) {
        json_decref(o);
        o = NULL;
    }
    if (o && p->ac.head &&
        json_object_set_new(o, "modules_to_save", json_pack("[s,s]", "classifier", "score"))) {
        json_decref(o);
        o = NULL;
    }
    char *text = o ? json_dumps(o, JSON_INDENT(2) | JSON_SORT_KEYS) : NULL,
         *path = lf_path_join(dir, LF_PEFT_CONFIG, err);
    int rc = text && path ? lf_io_write_file(path, text, strlen(text), LF_ARTIFACT_MODE, err)
                          : lf_fail(err, LF_ENOMEM, "out of memory");
    if (rc == 0)
        rc = lf_artifact_add_hashed(a, dir, LF_PEFT_CONFIG, err);
    free(text);
    free(path);
    json_decref(o);
    return rc;
}

/* Declarations each * k ... are those of unit k. */
static lf_st_decl *declarations(struct lf_peft *p, lf_err *err)
{
    const size_t each = (size_t)lf_peft_each(p), n = lf_peft_count(p);
    lf_st_decl *d = lf_arena_alloc(p->arena, n, sizeof *d, err);
    for (size_t i = 0; d && i < n; i++) {
        if (lf_peft_is_head(p, i)) {
            const int64_t cols = lf_model_embed_width(lf_decoder_config(p->dec));
            d[i] = (lf_st_decl){
                .name = LF_PEFT_HEAD, .dtype = LF_ST_F32, .ndim = 2, .shape = {1, cols}};
            continue;
        }
        size_t k;
        const int which = lf_peft_of_stack(p, i, &k);
        if (which >= 0) {
            d[i] = (lf_st_decl){.name = lf_peft_stack_name(p, &p->stack[k], which, err),
                                .dtype = LF_ST_F32,
                                .ndim = 2};
            lf_peft_stack_shape(p, &p->stack[k], which, d[i].shape);
            if (!d[i].name)
                return NULL;
            continue;
        }
        const struct lf_peft_unit *u = &p->unit[i / each];
        const struct lf_peft_shape s = lf_peft_shape(p, u, (int)(i % each));
        char *name = lf_arena_printf(p->arena, err, LF_PEFT_BEFORE "%s.%s", u->module,
                                     lf_peft_tensors[i % each].theirs);
        if (!name)
            return NULL;
        d[i] = (lf_st_decl){
            .name = name, .dtype = LF_ST_F32, .ndim = s.cols ? 2 : 1, .shape = {s.rows, s.cols}};
    }
    return d;
}

/* One of our tensors, of a shape that is known; cols 0: a vector. */
static int read_tensor(const lf_ckpt *ck, const char *name, int64_t rows, int64_t cols, float *x,
                       lf_err *err)
{
    const lf_ckpt_entry *e = lf_ckpt_find(ck, name, "weight");
    if (!e || e->dtype != LF_H5_F32 || e->ndim != (cols ? 2 : 1) || e->shape[0] != rows ||
        (cols && e->shape[1] != cols))
        return lf_fail(err, LF_EFORMAT, "%s: %s is missing or not f32 [%lld, %lld]",
                       lf_ckpt_dir(ck), name, (long long)rows, (long long)cols);
    return lf_ckpt_read(ck, e, NULL, NULL, x, err);
}

static int put_head(const lf_ckpt *ck, int64_t cols, lf_st_writer *w, lf_err *err)
{
    float *x = lf_malloc((size_t)cols, sizeof *x, err);
    int rc = x ? read_tensor(ck, LF_WEIGHTS_PREFIX LF_PEFT_SCORE, 1, cols, x, err) : LF_ENOMEM;
    rc = rc != 0 ? rc : lf_st_writer_put(w, x, (size_t)cols * sizeof *x, err);
    free(x);
    return rc;
}

/* One of their tensors, its rows in their order. */
static int put_unit(const struct lf_peft *p, const struct lf_peft_unit *u, int which,
                    const lf_ckpt *ck, lf_st_writer *w, lf_err *err)
{
    const struct lf_peft_shape s = lf_peft_shape(p, u, which);
    const int64_t cols = s.cols ? s.cols : 1;
    float *x = lf_malloc((size_t)(s.rows * cols), sizeof *x, err);
    int rc = x ? 0 : LF_ENOMEM;
    for (int k = 0; k < lf_peft_parts(u, which) && rc == 0; k++) {
        const struct lf_peft_part of = lf_peft_part(p, u, which, k);
        char name[256];
        snprintf(name, sizeof name, LF_WEIGHTS_PREFIX "%s.%s", of.stem,
                 lf_peft_tensors[which].ours);
        rc = read_tensor(ck, name, of.rows, s.cols, x + of.at * cols, err);
    }
    for (int64_t r = 0; r < s.rows && rc == 0; r++)
        rc = lf_st_writer_put(w, x + (s.permuted ? u->row[r] : r) * cols, (size_t)cols * sizeof *x,
                              err);
    free(x);
    return rc;
}

/* One of a stacked parameter of experts. */
static int put_stack(const struct lf_peft *p, const struct lf_peft_experts *x, int which,
                     const lf_ckpt *ck, lf_st_writer *w, lf_err *err)
{
    int64_t shape[2], at = 0;
    lf_peft_stack_shape(p, x, which, shape);
    const size_t n = (size_t)(shape[0] * shape[1]);
    float *ours = lf_malloc(2 * n, sizeof *ours, err), *theirs = ours ? ours + n : NULL;
    int rc = ours ? 0 : LF_ENOMEM;
    for (int k = 0; k < (which ? x->n : 1) && rc == 0; k++) {
        char name[256];
        snprintf(name, sizeof name, LF_WEIGHTS_PREFIX "%s.%s", x->stem[k],
                 lf_peft_tensors[which].ours);
        const lf_ckpt_entry *e = lf_ckpt_find(ck, name, "weight");
        const int64_t rows = which ? x->rows[k] : p->ac.rank, cols = which ? p->ac.rank : x->cols;
        if (!e || e->dtype != LF_H5_F32 || e->ndim != 3 || e->shape[0] != x->experts ||
            e->shape[1] != rows || e->shape[2] != cols)
            rc = lf_fail(err, LF_EFORMAT, "%s: %s is missing or not f32 [%lld, %lld, %lld]",
                         lf_ckpt_dir(ck), name, (long long)x->experts, (long long)rows,
                         (long long)cols);
        else
            rc = lf_ckpt_read(ck, e, NULL, NULL, ours + at, err);
        at += x->experts * rows * cols;
    }
    if (rc == 0)
        lf_peft_stack_turn(p, x, which, ours, theirs, false);
    rc = rc != 0 ? rc : lf_st_writer_put(w, theirs, n * sizeof *theirs, err);
    free(ours);
    return rc;
}

static int put_nth(const struct lf_peft *p, const lf_ckpt *ck, size_t i, lf_st_writer *w,
                   lf_err *err)
{
    const size_t each = (size_t)lf_peft_each(p);
    size_t k;
    const int which = lf_peft_of_stack(p, i, &k);
    if (which >= 0)
        return put_stack(p, &p->stack[k], which, ck, w, err);
    if (lf_peft_is_head(p, i))
        return put_head(ck, lf_model_embed_width(lf_decoder_config(p->dec)), w, err);
    return put_unit(p, &p->unit[i / each], (int)(i % each), ck, w, err);
}

static int write_tensors(struct lf_peft *p, const lf_ckpt *ck, const char *dir, lf_artifact *a,
                         lf_err *err)
{
    const lf_st_write_options wo = {.stem = "adapter_model"};
    lf_st_writer *w = NULL;
    lf_st_written *files = NULL;
    size_t n = 0, k;
    const size_t all = lf_peft_count(p);
    lf_st_decl *d = declarations(p, err);
    int rc = d ? lf_st_writer_create(&w, dir, d, all, &wo, err) : LF_ENOMEM;
    while (rc == 0 && (k = lf_st_writer_next(w)) < all)
        rc = put_nth(p, ck, k, w, err);
    if (rc == 0)
        rc = lf_st_writer_finish(w, &files, &n, err);
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = lf_artifact_add(a, files[i].name, files[i].bytes, files[i].sha256, err);
    lf_st_written_free(files, n);
    lf_st_writer_destroy(w);
    return rc;
}

int lf_peft_export(const struct lf_peft_opts *o, struct lf_convert_result *res, lf_err *err)
{
    struct lf_peft p = {0};
    lf_model_config mc;
    lf_ckpt *ck = NULL;
    lf_artifact a = {0};
    int rc = lf_ckpt_open(&ck, o->from, o->threads, err);
    if (rc == 0)
        rc = lf_weights_config(&mc, ck, err);
    if (rc == 0)
        rc = lf_adapter_config(&p.ac, ck, err);
    if (rc == 0 && p.ac.labels)
        rc = lf_fail(err, LF_ENOTSUP,
                     "%s has labels beside the adapter, whose matrices PEFT keeps by the names of "
                     "each class; write the checkpoint that lf-rm made of it and its base",
                     o->from);
    if (rc == 0)
        rc = lf_peft_open(&p, &mc, NULL, err);
    if (rc == 0)
        rc = lf_peft_units(&p, err);
    if (rc == 0)
        rc = lf_artifact_init(&a, "peft", err);
    if (rc == 0)
        rc = lf_hf_begin_dir(o->out, err);
    if (rc == 0)
        rc = write_config(&p, o->out, &a, err);
    if (rc == 0)
        rc = write_tensors(&p, ck, o->out, &a, err);
    if (rc == 0)
        rc = lf_hf_finish_dir(&a, o->out, err);
    if (rc == 0) {
        *res = (struct lf_convert_result){.tensors = (int64_t)lf_peft_count(&p)};
        snprintf(res->family, sizeof res->family, "%s", p.family->name);
        memcpy(res->identity, lf_ckpt_identity(ck), sizeof res->identity);
        for (size_t i = 0; i < a.n_files; i++)
            res->bytes += a.files[i].bytes;
    }
    lf_artifact_fini(&a);
    lf_peft_close(&p);
    lf_ckpt_close(ck);
    return rc;
}

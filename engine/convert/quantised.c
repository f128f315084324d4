/* SPDX-License-Identifier: Apache-2.0
 *
 * From companions, or by a rule, to decls of 8-bit floats and scales. */
#include "engine/convert/quantised.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/model/scales.h"

#define NEW_BLOCK 128 /* of what was not quantised: the size of DeepSeek-V3 */

/* How it is done in this export. */
struct plan {
    const struct lf_quantised_opts *how;
    int64_t rows, cols;
    int dims;                /* of scales of one number */
    enum lf_st_dtype powers; /* of scales of one byte */
    bool fresh;              /* no companions tell which: the rule does */
    lf_st_decl *decls;
    json_t *others; /* modules_to_not_convert of a fresh config; borrowed */
};

/* ---- one weight ---- */

static const lf_ckpt_entry *companion(const struct plan *p, const char *at, const char *name,
                                      const char *kind)
{
    lf_buf b;
    lf_buf_init(&b);
    lf_buf_addf(&b, "%s%s", at, name);
    const lf_ckpt_entry *e =
        lf_buf_check(&b, NULL) == 0 ? lf_ckpt_find(p->how->ckpt, b.data, kind) : NULL;
    lf_buf_fini(&b);
    return e;
}

static bool has_shape(const lf_ckpt_entry *e, int ndim, const int64_t *shape)
{
    return e->ndim == ndim && memcmp(e->shape, shape, (size_t)ndim * sizeof *shape) == 0;
}

/* The type that scales go out in, as they came; 0: nothing that an import keeps. */
static enum lf_st_dtype scale_type(const struct plan *p, const lf_ckpt_entry *scales)
{
    switch (scales ? scales->dtype : LF_H5_F32) {
    case LF_H5_F32:
        return LF_ST_F32;
    case LF_H5_BF16:
        return LF_ST_BF16;
    case LF_H5_U8:
        return p->powers;
    default:
        return 0;
    }
}

/* Has the weight one scale for all of it? */
static bool is_one(const struct plan *p, const lf_st_decl *d)
{
    return p->rows == LF_ST_WHOLE && d->ndim == 2;
}

/* Names the next decl of scales: `len` characters of that of decl k, and an end. */
static int declare(struct lf_quantised *q, const struct plan *p, size_t k, int len, const char *end,
                   lf_err *err)
{
    lf_buf name;
    lf_buf_init(&name);
    lf_buf_addf(&name, "%.*s%s", len, p->decls[k].name, end);
    p->decls[q->n + q->n_scales].name = q->names[q->n_scales] = lf_buf_steal(&name, err);
    q->weight[q->n_scales++] = k;
    return p->decls[q->n + q->n_scales - 1].name ? 0 : LF_ENOMEM;
}

/* The scale of what decl k multiplies, where one came: training does not know it anew. */
static int add_act(struct lf_quantised *q, const struct plan *p, size_t k, lf_err *err)
{
    const char *of = p->decls[k].name;
    const int stem = (int)(strlen(of) - strlen(LF_ST_WEIGHT));
    char name[LF_ST_MAX_NAME + 32];
    if (!lf_str_has_suffix(of, LF_ST_WEIGHT))
        return 0;
    snprintf(name, sizeof name, "%.*s" LF_ST_ACT_SCALE, stem, of);
    const lf_ckpt_entry *e = companion(p, LF_SCALES_AT, name, LF_SCALES_KIND);
    if (!e)
        return 0;
    if (e->ndim != 1 || e->shape[0] != 1 || e->dtype == LF_H5_U8 || !scale_type(p, e))
        return lf_fail(err, LF_EFORMAT, "%s: %s is not one number", lf_ckpt_dir(p->how->ckpt),
                       e->name);
    p->decls[q->n + q->n_scales] =
        (lf_st_decl){.dtype = scale_type(p, e), .ndim = p->dims, .shape = {1}};
    q->act[q->n_scales] = e;
    return declare(q, p, k, stem, LF_ST_ACT_SCALE, err);
}

/* Where the companions do not fit, as rows have been added, there are none of the old ones. */
static int add(struct lf_quantised *q, const struct plan *p, size_t k, const lf_ckpt_entry *scales,
               lf_err *err)
{
    lf_st_decl *d = &p->decls[k], *s = &p->decls[q->n + q->n_scales];
    struct lf_requant *r = q->of[k] = lf_calloc(1, sizeof *r, err);
    if (!r)
        return LF_ENOMEM;
    r->ckpt = p->how->ckpt;
    r->type = scale_type(p, scales);
    if (!r->type || !lf_f8_grid_of(&r->grid, d->ndim, d->shape, p->rows, p->cols))
        return lf_fail(err, LF_EFORMAT, "%s: %s has scales that are none of its blocks",
                       lf_ckpt_dir(r->ckpt), d->name);
    *s = (lf_st_decl){.dtype = r->type, .ndim = d->ndim};
    lf_f8_scales_shape(&r->grid, d->ndim, s->shape);
    if (is_one(p, d) && (!scales || scales->ndim == 1))
        *s = (lf_st_decl){.dtype = r->type, .ndim = p->dims, .shape = {1}};
    d->dtype = LF_ST_F8_E4M3;
    if (scales && has_shape(scales, s->ndim ? s->ndim : 1, s->shape))
        r->scales = scales;
    const lf_ckpt_entry *codes = companion(p, LF_CODES_AT, d->name, LF_CODES_KIND);
    if (r->scales && codes && codes->dtype == LF_H5_U8 && has_shape(codes, d->ndim, d->shape))
        r->codes = codes;
    const int rc = declare(q, p, k, (int)strlen(d->name), LF_HF_SCALE_AFTER, err);
    return rc == 0 && is_one(p, d) ? add_act(q, p, k, err) : rc;
}

/* ---- the rule ---- */

/* Is it the matrix of a linear layer of attention, an MLP or an expert, and nothing else? */
static bool is_linear(const struct lf_map *map, const struct lf_map_item *it)
{
    static const char *const parts[] = {".attn.", ".mlp.", ".moe.experts.", ".moe.shared."};
    bool linear =
        it->ndim == 2 && lf_str_has_suffix(it->name, ".weight") &&
        (it->kind == LF_MAP_COPY || it->kind == LF_MAP_STACK || it->kind == LF_MAP_EXPERT);
    for (int i = 0; i < it->n_ours && linear; i++) {
        const char *name = map->ours[it->ours[i]].name;
        linear = false;
        for (size_t k = 0; k < sizeof parts / sizeof *parts; k++)
            linear = linear || strstr(name, parts[k]);
        linear = linear && lf_str_has_suffix(name, ".weight");
    }
    return linear;
}

/* Names a module that stays as it is: of experts the list of all, which are one module there. */
static int tell_other(const struct plan *p, const lf_st_decl *d, lf_err *err)
{
    static const char weight[] = ".weight", experts[] = ".experts.";
    const char *list = strstr(d->name, experts);
    const size_t n = json_array_size(p->others);
    if (d->ndim < 2 || !lf_str_has_suffix(d->name, weight))
        return 0;
    const size_t len =
        list ? (size_t)(list - d->name) + strlen(experts) - 1 : strlen(d->name) - strlen(weight);
    json_t *name = json_stringn(d->name, len);
    if (n && json_equal(name, json_array_get(p->others, n - 1))) {
        json_decref(name);
        return 0;
    }
    return json_array_append_new(p->others, name) ? lf_fail(err, LF_ENOMEM, "out of memory") : 0;
}

static bool becomes_new(const struct plan *p, size_t k)
{
    const lf_st_decl *d = &p->decls[k];
    return k < p->how->n_items && is_linear(p->how->map, &p->how->map->items[p->how->items[k]]) &&
           d->shape[0] % NEW_BLOCK == 0 && d->shape[1] % NEW_BLOCK == 0;
}

/* ---- all weights ---- */

static int declare_all(struct lf_quantised *q, struct plan *p, lf_err *err)
{
    int rc = 0;
    for (size_t k = 0; k < q->n && rc == 0; k++) {
        const lf_ckpt_entry *scales =
            p->fresh ? NULL : companion(p, LF_SCALES_AT, p->decls[k].name, LF_SCALES_KIND);
        if (p->fresh ? becomes_new(p, k) : scales != NULL)
            rc = add(q, p, k, scales, err);
        else if (p->fresh)
            rc = tell_other(p, &p->decls[k], err);
    }
    if (rc == 0 && q->n_scales == 0 && p->fresh)
        rc = lf_fail(err, LF_EINVAL,
                     "quantize = fp8: the model has no matrix whose sides %d divides", NEW_BLOCK);
    return rc;
}

static int read_state(struct plan *p, json_t *state, lf_err *err)
{
    const char *powers = json_string_value(json_object_get(state, "powers"));
    p->rows = json_integer_value(json_object_get(state, "rows"));
    p->cols = json_integer_value(json_object_get(state, "cols"));
    p->dims = json_integer_value(json_object_get(state, "dims")) == 1;
    if (powers && lf_st_dtype_parse(&p->powers, powers, err))
        return LF_EFORMAT;
    const bool whole = p->rows == LF_ST_WHOLE && p->cols == LF_ST_WHOLE;
    return (!whole && (p->rows < 1 || p->cols < 1 || p->rows > 1 << 20 || p->cols > 1 << 20)) ||
                   !json_is_object(json_object_get(state, "config")) ||
                   (powers && (!lf_f8_is_scale(p->powers) || lf_st_dtype_bytes(p->powers) != 1))
               ? lf_fail(err, LF_EFORMAT,
                         "%s: member \"" LF_SCALES_STATE "\" of its state is damaged",
                         lf_ckpt_dir(p->how->ckpt))
               : 0;
}

json_t *lf_quantised_state(const lf_ckpt *ckpt, const char *family, const struct lf_convert_opts *o)
{
    json_t *state = json_object_get(lf_ckpt_state(ckpt), LF_SCALES_STATE);
    const char *of = json_string_value(json_object_get(state, "family"));
    if (!state || o->quantize == LF_QUANTIZE_BF16 ||
        (o->quantize == LF_QUANTIZE_KEEP && o->dtype != LF_CONVERT_KEEP))
        return NULL;
    if (of && strcmp(of, family) == 0)
        return state;
    if (o->warn)
        o->warn(o->arg, "the scales of the checkpoint are of another form than the one that is "
                        "written, and are left out");
    return NULL;
}

/* Room for two scales of each weight. */
static int make_room(struct lf_quantised *q, struct plan *p, lf_st_decl **decls, lf_err *err)
{
    q->of = lf_calloc(q->n + 1, sizeof *q->of, err);
    q->weight = lf_calloc(2 * q->n + 1, sizeof *q->weight, err);
    q->act = lf_calloc(2 * q->n + 1, sizeof *q->act, err);
    q->names = lf_calloc(2 * q->n + 1, sizeof *q->names, err);
    p->decls = lf_calloc(3 * q->n + 1, sizeof *p->decls, err);
    if (!q->of || !q->weight || !q->act || !q->names || !p->decls) {
        free(p->decls);
        return LF_ENOMEM;
    }
    if (q->n)
        memcpy(p->decls, *decls, q->n * sizeof **decls);
    free(*decls);
    *decls = p->decls;
    return 0;
}

int lf_quantised_declare(struct lf_quantised *q, const struct lf_quantised_opts *how,
                         lf_st_decl **decls, size_t *n, lf_err *err)
{
    struct plan p = {.how = how, .rows = NEW_BLOCK, .cols = NEW_BLOCK};
    json_t *state = how->state;
    *q = (struct lf_quantised){.n = *n};
    if (!state && how->o->quantize != LF_QUANTIZE_FP8)
        return 0;
    p.fresh = !state;
    q->config = state ? json_incref(json_object_get(state, "config"))
                      : json_pack("{s:s, s:s, s:s, s:[i,i], s:[]}", "quant_method", "fp8", "fmt",
                                  "e4m3", "activation_scheme", "dynamic", "weight_block_size",
                                  NEW_BLOCK, NEW_BLOCK, "modules_to_not_convert");
    p.others = json_object_get(q->config, "modules_to_not_convert");
    int rc = q->config || state ? 0 : lf_fail(err, LF_ENOMEM, "out of memory");
    if (rc == 0 && state)
        rc = read_state(&p, state, err);
    if (rc == 0)
        rc = make_room(q, &p, decls, err);
    if (rc == 0)
        rc = declare_all(q, &p, err);
    *n = q->n + q->n_scales;
    return rc;
}

void lf_quantised_fini(struct lf_quantised *q)
{
    for (size_t k = 0; k < q->n && q->of; k++) {
        if (q->of[k])
            lf_requant_fini(q->of[k]);
        free(q->of[k]);
    }
    for (size_t k = 0; k < q->n_scales; k++)
        free(q->names[k]);
    free(q->of);
    free(q->weight);
    free(q->act);
    free(q->names);
    json_decref(q->config);
    *q = (struct lf_quantised){0};
}

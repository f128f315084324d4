/* SPDX-License-Identifier: Apache-2.0
 *
 * Hugging Face to checkpoint: every tensor of ours is asked for block by block by the checkpoint
 * writer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/convert/companions.h"
#include "engine/convert/priv.h"
#include "engine/model/scales.h"
#include "engine/model/weights.h"

#define COMPARE_ELEMS ((int64_t)1 << 18)

/* One tensor of ours on its way. */
struct lane {
    struct import *im;
    struct lf_move move;
};

struct import {
    const struct lf_convert_opts *o;
    struct lf_hf_model m;
    struct lf_convert_left left;
    struct lf_move_source from;  /* src: items of the map */
    struct lf_move_source as_is; /* src: entries of st */
    struct lane *lanes;          /* [n] */
    lf_ckpt_tensor *tensors;     /* [n + companions.n] */
    size_t n;                    /* map.n_ours, and behind them what is kept for an export */
    struct lf_companions companions;
    struct kept {
        struct lf_map_seg seg;
        struct lf_map_parts parts;
    } * kept; /* [n - map.n_ours] */
    double total;
    atomic_llong done;
};

static enum lf_st_dtype item_dtype(void *ctx, int src)
{
    struct import *im = ctx;
    return lf_st_entry_at(im->m.st, (size_t)im->m.map.items[src].source)->dtype;
}

static int item_read(void *ctx, int src, int64_t first, int64_t n, void *dst, lf_err *err)
{
    struct import *im = ctx;
    return lf_st_read(im->m.st, lf_st_entry_at(im->m.st, (size_t)im->m.map.items[src].source),
                      first, n, dst, err);
}

static enum lf_st_dtype entry_dtype(void *ctx, int src)
{
    struct import *im = ctx;
    return lf_st_entry_at(im->m.st, (size_t)src)->dtype;
}

static int entry_read(void *ctx, int src, int64_t first, int64_t n, void *dst, lf_err *err)
{
    struct import *im = ctx;
    return lf_st_read(im->m.st, lf_st_entry_at(im->m.st, (size_t)src), first, n, dst, err);
}

/* Called by the threads of the checkpoint writer. */
static int fill(void *user, int64_t first, int64_t n, void *dst, lf_err *err)
{
    struct lane *l = user;
    const struct lf_convert_opts *o = l->im->o;
    if (o->stop && o->stop())
        return lf_fail(err, LF_EINTR,
                       "stopped on request; what is written is kept for the next run");
    int rc = lf_move_block(&l->move, first, n, dst, err);
    long long done =
        atomic_fetch_add(&l->im->done, n * (long long)lf_st_dtype_bytes(l->move.dtype));
    if (rc == 0 && o->progress)
        o->progress(o->arg, (double)done, l->im->total);
    return rc;
}

/* ---- types ---- */

/* The type a tensor gets: by the option, or the widest of its parts; F16 is kept as F32. */
static int pick_dtype(const struct import *im, const struct lf_move *m, enum lf_st_dtype *out,
                      lf_err *err)
{
    const struct lf_map_parts *p = m->parts;
    enum lf_st_dtype t = 0;
    for (size_t k = 0; k < p->n; k++) {
        enum lf_st_dtype have = m->from->dtype(m->from->ctx, p->segs[k].src);
        if (have != LF_ST_F32 && have != LF_ST_BF16 && have != LF_ST_F16 && have != LF_ST_F64)
            return lf_fail(
                err, LF_ENOTSUP, "tensor %s is of type %s; quantised weights are not imported",
                m->from == &im->as_is ? lf_st_entry_at(im->m.st, (size_t)p->segs[k].src)->name
                                      : im->m.map.items[p->segs[k].src].name,
                lf_st_dtype_name(have));
        t = !t || t == have ? have : LF_ST_F32;
    }
    t = lf_convert_target(im->o->dtype, t);
    *out = t == LF_ST_F16 || t == LF_ST_F64 ? LF_ST_F32 : t;
    return 0;
}

static int make_lane(struct import *im, size_t i, lf_err *err)
{
    const struct lf_map_ours *t = &im->m.map.ours[i];
    struct lf_move *mv = &im->lanes[i].move;
    im->lanes[i].im = im;
    mv->from = &im->from;
    lf_move_to_ours(mv, &im->m.map, i);
    int rc = pick_dtype(im, mv, &mv->dtype, err);
    char *name =
        rc != 0 ? NULL : lf_arena_printf(im->m.map.arena, err, LF_WEIGHTS_PREFIX "%s", t->name);
    if (!name)
        return rc != 0 ? rc : LF_ENOMEM;
    im->tensors[i] = (lf_ckpt_tensor){.name = name,
                                      .kind = "weight",
                                      .dtype = lf_hf_h5_type(mv->dtype),
                                      .ndim = t->ndim,
                                      .fill = fill,
                                      .user = &im->lanes[i]};
    memcpy(im->tensors[i].shape, t->shape, (size_t)t->ndim * sizeof t->shape[0]);
    im->total += (double)mv->elems * (double)lf_st_dtype_bytes(mv->dtype);
    return 0;
}

/* Is entry e of the file of no part of the model, but kept? Positions that count from 0 are what
 * every class makes itself. */
static bool is_kept(const struct import *im, const lf_st_entry *e)
{
    return !lf_map_find(&im->m.map, e->name) && lf_map_keeps(&im->m.form, e->name) &&
           !lf_str_has_suffix(e->name, ".position_ids");
}

/* Tensor i of ours is entry e of the file as it is. */
static int make_kept(struct import *im, size_t i, size_t e, lf_err *err)
{
    const lf_st_entry *t = lf_st_entry_at(im->m.st, e);
    struct kept *k = &im->kept[i - im->m.map.n_ours];
    struct lf_move *mv = &im->lanes[i].move;
    int64_t n = 1;
    for (int d = 0; d < t->ndim; d++)
        n *= t->shape[d];
    k->seg = (struct lf_map_seg){0, n, (int)e, 0, 1, n, n};
    k->parts = (struct lf_map_parts){.segs = &k->seg, .n = 1, .cap = 1, .width = 1};
    im->lanes[i].im = im;
    mv->from = &im->as_is;
    mv->parts = &k->parts;
    mv->elems = n;
    int rc = pick_dtype(im, mv, &mv->dtype, err);
    char *name =
        rc != 0 ? NULL : lf_arena_printf(im->m.map.arena, err, LF_CONVERT_KEPT "/%s", t->name);
    if (!name)
        return rc != 0 ? rc : LF_ENOMEM;
    im->tensors[i] = (lf_ckpt_tensor){.name = name,
                                      .kind = LF_CONVERT_KEPT,
                                      .dtype = lf_hf_h5_type(mv->dtype),
                                      .ndim = 1,
                                      .shape = {n},
                                      .fill = fill,
                                      .user = &im->lanes[i]};
    im->total += (double)n * (double)lf_st_dtype_bytes(mv->dtype);
    return 0;
}

static int make_lanes(struct import *im, lf_err *err)
{
    const size_t ours = im->m.map.n_ours, entries = lf_st_n_entries(im->m.st);
    size_t kept = 0;
    for (size_t e = 0; e < entries; e++)
        kept += is_kept(im, lf_st_entry_at(im->m.st, e));
    im->from = (struct lf_move_source){im, item_dtype, item_read};
    im->as_is = (struct lf_move_source){im, entry_dtype, entry_read};
    im->n = ours + kept;
    if (!(im->lanes = lf_calloc(im->n, sizeof *im->lanes, err)) ||
        !(im->tensors = lf_calloc(im->n + im->companions.n, sizeof *im->tensors, err)) ||
        !(im->kept = lf_calloc(kept + 1, sizeof *im->kept, err)))
        return LF_ENOMEM;
    int rc = 0;
    for (size_t i = 0; i < ours && rc == 0; i++)
        rc = make_lane(im, i, err);
    for (size_t e = 0, i = ours; e < entries && rc == 0; e++)
        if (is_kept(im, lf_st_entry_at(im->m.st, e)))
            rc = make_kept(im, i++, e, err);
    if (im->companions.n)
        memcpy(im->tensors + im->n, im->companions.tensors, im->companions.n * sizeof *im->tensors);
    return rc;
}

/* ---- second copies ---- */

/* A tied model has one matrix: a file with two different ones is not what its config.json says. */
static int compare(struct import *im, int item, lf_err *err)
{
    const struct lf_map_item *it = &im->m.map.items[item];
    struct lf_move a = im->lanes[it->ours[0]].move, b = a;
    int64_t n = a.elems, k;
    int rc = 0;
    a.dtype = b.dtype = LF_ST_F32;
    struct lf_map_seg one = {0, n, item, 0, 1, n, n};
    struct lf_map_parts parts = {.segs = &one, .n = 1, .cap = 1, .width = 1};
    b.parts = &parts;
    char *x = lf_malloc(COMPARE_ELEMS, 8, err), *y = x ? x + COMPARE_ELEMS * 4 : NULL;
    if (!x)
        return LF_ENOMEM;
    for (int64_t at = 0; at < n && rc == 0; at += k) {
        k = n - at < COMPARE_ELEMS ? n - at : COMPARE_ELEMS;
        rc = lf_move_block(&a, at, k, x, err);
        if (rc == 0)
            rc = lf_move_block(&b, at, k, y, err);
        if (rc == 0 && memcmp(x, y, (size_t)k * 4) != 0)
            rc =
                lf_fail(err, LF_EINVAL,
                        "%s differs from %s, though config.json ties them (tie_word_embeddings): "
                        "one of the two is wrong",
                        it->name, im->m.map.items[im->m.map.of_ours[it->ours[0]].segs[0].src].name);
    }
    free(x);
    return rc;
}

static int compare_tied(struct import *im, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < im->m.map.n_items && rc == 0; i++)
        if (im->m.map.items[i].kind == LF_MAP_TIED && im->m.map.items[i].source >= 0)
            rc = compare(im, (int)i, err);
    return rc;
}

/* ---- what the checkpoint keeps of its origin ---- */

/* The type that most outside tensors have, and the names of those that have another. */
static int dtypes_of(const struct import *im, json_t *hf)
{
    size_t count[LF_ST_N_DTYPES] = {0}, best = LF_ST_F32;
    json_t *other = json_object();
    for (size_t i = 0; i < lf_st_n_entries(im->m.st); i++)
        count[lf_st_entry_at(im->m.st, i)->dtype]++;
    for (size_t t = 0; t < LF_ST_N_DTYPES; t++)
        if (count[t] > count[best])
            best = t;
    int bad = !other;
    for (size_t i = 0; i < lf_st_n_entries(im->m.st) && !bad; i++) {
        const lf_st_entry *e = lf_st_entry_at(im->m.st, i);
        if ((size_t)e->dtype != best)
            bad = json_object_set_new(other, e->name, json_string(lf_st_dtype_name(e->dtype)));
    }
    return bad ||
           json_object_set_new(hf, "dtype",
                               json_string(lf_st_dtype_name((enum lf_st_dtype)best))) ||
           json_object_set_new(hf, "dtypes", other);
}

/* The shape of every tensor that is kept, by its name. */
static int kept_of(const struct import *im, json_t *hf)
{
    json_t *o = json_object();
    int bad = !o;
    for (size_t i = 0; i < im->n - im->m.map.n_ours && !bad; i++) {
        const lf_st_entry *e = lf_st_entry_at(im->m.st, (size_t)im->kept[i].seg.src);
        json_t *shape = json_array();
        bad = !shape;
        for (int d = 0; d < e->ndim && !bad; d++)
            bad = json_array_append_new(shape, json_integer((json_int_t)e->shape[d]));
        bad = bad || json_object_set(o, e->name, shape);
        json_decref(shape);
    }
    bad = bad || (im->n > im->m.map.n_ours && json_object_set(hf, LF_CONVERT_KEPT, o));
    json_decref(o);
    return bad;
}

/* Mean and std of its scores, where config.json has them. */
static int add_norm(const struct import *im, json_t *state)
{
    if (im->m.config.output != LF_OUTPUT_SCORE)
        return 0;
    json_t *o = lf_hf_parse_json(im->m.config_text, strlen(im->m.config_text), LF_HF_CONFIG, NULL);
    json_t *mean = json_object_get(o, "mean"), *std = json_object_get(o, "std");
    int bad = 0;
    if (json_is_number(mean) && json_is_number(std))
        bad =
            json_object_set_new(state, "score", json_pack("{s:O, s:O}", "mean", mean, "std", std));
    json_decref(o);
    return bad;
}

/* Training hands on what is told of companions, and nothing else of the origin: the types of all
 * other tensors too. */
static int add_quant(const struct import *im, json_t *state, json_t *hf)
{
    json_t *quant = im->companions.state;
    return json_object_set(quant, "dtype", json_object_get(hf, "dtype")) ||
           json_object_set(quant, "dtypes", json_object_get(hf, "dtypes")) ||
           json_object_set(state, LF_SCALES_STATE, quant);
}

static json_t *make_state(const struct import *im, lf_err *err)
{
    const struct lf_hf_model *m = &im->m;
    json_t *model = lf_model_config_to_json(&m->config, err), *tied = json_array();
    json_t *hf = json_pack("{s:s, s:s}", "family", m->family->name, "config",
                           m->config_text ? m->config_text : "");
    int bad = !model || !tied || !hf || lf_hf_form_save(&m->form, m->family, hf);
    for (size_t i = 0; i < m->map.n_items && !bad; i++)
        if (m->map.items[i].kind == LF_MAP_TIED && m->map.items[i].source >= 0)
            bad = json_array_append_new(tied, json_string(m->map.items[i].name));
    bad = bad || json_object_set(hf, "tied", tied) || dtypes_of(im, hf) || kept_of(im, hf);
    json_t *state = bad ? NULL : json_pack("{s:i, s:O}", "step", 0, "model", model);
    if (state && m->config_text &&
        (json_object_set(state, "hf", hf) ||
         add_norm(im, state))) { /* only what has a config.json goes out as it came */
        json_decref(state);
        state = NULL;
    }
    if (state && im->companions.state && add_quant(im, state, hf)) {
        json_decref(state);
        state = NULL;
    }
    if (!state)
        lf_fail(err, LF_EFORMAT, "config.json is not valid UTF-8, or out of memory");
    json_decref(model);
    json_decref(tied);
    json_decref(hf);
    return state;
}

static void warn_nonfinite(const struct import *im, struct lf_convert_result *res)
{
    lf_buf b;
    for (size_t i = 0; i < im->m.map.n_ours; i++) {
        long long n = atomic_load(&im->lanes[i].move.nonfinite);
        if (!n)
            continue;
        res->nonfinite += n;
        lf_buf_init(&b);
        lf_buf_addf(&b, "%s holds %lld values that are NaN or infinite", im->m.map.ours[i].name, n);
        if (im->o->warn)
            im->o->warn(im->o->arg, b.data);
        lf_buf_fini(&b);
    }
}

/* Weights that the model does without: nobody loses them unawares. */
static void warn_left_out(const struct import *im)
{
    lf_buf b;
    for (size_t i = 0; i < im->m.map.n_items && im->o->warn; i++) {
        const struct lf_map_item *it = &im->m.map.items[i];
        if (!it->left)
            continue;
        lf_buf_init(&b);
        lf_buf_addf(&b, "left out: %lld tensors %s* (%s); an export will not have them",
                    (long long)it->left, it->name, it->row->ours);
        im->o->warn(im->o->arg, b.data);
        lf_buf_fini(&b);
    }
}

/* Whoever asked for a part is told what it is a part of. */
static void warn_parts(const struct import *im)
{
    lf_buf b;
    lf_buf_init(&b);
    lf_buf_addf(&b, "parts = text: left out are %s", im->m.left_out);
    if (im->o->warn)
        im->o->warn(im->o->arg, b.data);
    lf_buf_fini(&b);
}

static void warn_quantised(const struct import *im)
{
    char text[200], what[64] = "4-bit floats (mxfp4)";
    if (im->m.quant.rows == LF_ST_WHOLE)
        snprintf(what, sizeof what, "8-bit floats with a scale for each weight");
    else if (!im->m.quant.mxfp4)
        snprintf(what, sizeof what, "8-bit floats with a scale for each block of %lld x %lld",
                 (long long)im->m.quant.rows, (long long)im->m.quant.cols);
    snprintf(text, sizeof text, "weights of %s become bf16, and an export is %s", what,
             im->companions.n ? "quantised again" : "not quantised");
    if (im->o->warn)
        im->o->warn(im->o->arg, text);
}

static int write_checkpoint(struct import *im, struct lf_convert_result *res, lf_err *err)
{
    lf_ckpt_writer *w = NULL;
    lf_ckpt_options o = {
        .threads = im->o->threads, .file_bytes = im->o->file_bytes, .resume = im->left.resume};
    lf_ckpt_result r = {0};
    json_t *state = make_state(im, err);
    int rc = state ? lf_ckpt_writer_create(&w, im->tensors, im->n + im->companions.n, &o, err)
                   : LF_EFORMAT;
    if (rc == 0)
        rc = lf_ckpt_save_begin(w, im->o->out, state, err);
    if (rc == 0 && (rc = lf_ckpt_save_wait(w, &r, err)) == 1)
        rc = 0;
    lf_ckpt_writer_destroy(w);
    json_decref(state);
    if (rc != 0)
        return rc;
    res->bytes = r.bytes;
    res->reused = r.reused_bytes;
    memcpy(res->identity, r.identity, sizeof res->identity);
    return 0;
}

int lf_convert_import(const struct lf_convert_opts *o, struct lf_convert_result *res, lf_err *err)
{
    struct import im = {.o = o};
    struct lf_convert_result r = {0};
    if (o->dtype == LF_CONVERT_F16)
        return lf_fail(err, LF_EINVAL, "checkpoints hold f32 or bf16; dtype = f16 is for exports");
    if (o->quantize == LF_QUANTIZE_FP8)
        return lf_fail(err, LF_EINVAL,
                       "checkpoints hold f32 or bf16; quantize = fp8 is for exports");
    int rc = lf_convert_left_begin(&im.left, o, err);
    if (rc == 0)
        rc = lf_hf_model_open(&im.m, o->from, o->parts, err);
    if (rc == 0 && o->quantize == LF_QUANTIZE_BF16)
        rc = lf_hf_forget_quant(&im.m, err);
    else if (rc == 0)
        rc = lf_companions_of(&im.companions, &im.m, err);
    if (rc == 0 && (im.m.quant.rows || im.m.quant.mxfp4))
        warn_quantised(&im);
    if (rc == 0)
        rc = lf_convert_import_key(im.left.key, &im.m, o->dtype, err);
    if (rc == 0)
        rc = make_lanes(&im, err);
    if (rc == 0)
        rc = compare_tied(&im, err);
    if (rc == 0)
        rc = write_checkpoint(&im, &r, err);
    if (rc == 0) {
        memcpy(r.family, im.m.config.family, sizeof r.family);
        r.tensors = (int64_t)(im.n + im.companions.n);
        warn_nonfinite(&im, &r);
        warn_left_out(&im);
        if (im.m.left_out)
            warn_parts(&im);
        *res = r;
    }
    free(im.lanes);
    free(im.tensors);
    free(im.kept);
    lf_companions_fini(&im.companions);
    lf_hf_model_fini(&im.m);
    lf_convert_left_end(&im.left);
    return rc;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Scales and codes of a quantised release, as tensors of a checkpoint. */
#include "engine/convert/companions.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/str.h"
#include "engine/model/scales.h"
#include "engine/store/f8_blocks.h"

struct one {
    const lf_st *st;
    const lf_st_entry *e; /* the scales, or the weight whose codes these are */
    bool codes;
};

/* What a companion is called: of a weight, or of what it multiplies. */
static const char *name_of(const struct lf_hf_model *m, const char *name, const struct one *of,
                           lf_err *err)
{
    const bool act = lf_str_has_suffix(of->e->name, LF_ST_ACT_SCALE);
    const size_t stem = strlen(name) - (act ? strlen(LF_ST_WEIGHT) : 0);
    return lf_arena_printf(m->map.arena, err, "%s%.*s%s", of->codes ? LF_CODES_AT : LF_SCALES_AT,
                           (int)stem, name, act ? LF_ST_ACT_SCALE : "");
}

static int fill(void *user, int64_t first, int64_t n, void *dst, lf_err *err)
{
    const struct one *o = user;
    return o->codes ? lf_st_read_codes(o->st, o->e, first, n, dst, err)
                    : lf_st_read(o->st, o->e, first, n, dst, err);
}

static int add(struct lf_companions *c, const struct lf_hf_model *m, const char *name,
               const struct one *of, lf_err *err)
{
    const enum lf_st_dtype t = of->codes ? LF_ST_U8 : of->e->dtype;
    lf_ckpt_tensor *to = &c->tensors[c->n++];
    struct one *mine = lf_arena_alloc(m->map.arena, 1, sizeof *mine, err);
    *to = (lf_ckpt_tensor){.name = name_of(m, name, of, err),
                           .kind = of->codes ? LF_CODES_KIND : LF_SCALES_KIND,
                           .dtype = t == LF_ST_F32    ? LF_H5_F32
                                    : t == LF_ST_BF16 ? LF_H5_BF16
                                                      : LF_H5_U8,
                           .ndim = of->e->ndim,
                           .fill = fill,
                           .user = mine};
    memcpy(to->shape, of->e->shape, (size_t)of->e->ndim * sizeof of->e->shape[0]);
    if (to->ndim == 0)
        to->shape[to->ndim++] = 1;
    if (!mine || !to->name)
        return LF_ENOMEM;
    *mine = *of;
    c->bytes += of->e->elems * (int64_t)lf_st_dtype_bytes(t);
    return 0;
}

/* Do the codes follow from the values with these scales? */
static int look(bool *plain, const lf_st *st, const lf_st_entry *scales, lf_err *err)
{
    void *x = lf_malloc((size_t)scales->elems, lf_st_dtype_bytes(scales->dtype), err);
    const int rc = x ? lf_st_read(st, scales, 0, scales->elems, x, err) : LF_ENOMEM;
    *plain = true;
    for (int64_t i = 0; i < scales->elems && rc == 0 && *plain; i++)
        *plain = lf_f8_scale_is_plain(lf_f8_scale_of(scales->dtype, x, i));
    free(x);
    return rc;
}

/* Scales of one byte have one type in a release. */
static int tell_powers(json_t *state, const lf_st_entry *scales, lf_err *err)
{
    const char *was = json_string_value(json_object_get(state, "powers")),
               *is = lf_st_dtype_name(scales->dtype);
    if (lf_st_dtype_bytes(scales->dtype) != 1 || (was && strcmp(was, is) == 0))
        return 0;
    if (was)
        return lf_fail(
            err, LF_ENOTSUP,
            "%s is of type %s, scales before it are of type %s; one or the other is read",
            scales->name, is, was);
    return json_object_set_new(state, "powers", json_string(is))
               ? lf_fail(err, LF_ENOMEM, "out of memory")
               : 0;
}

/* So have scales of one number of dimensions; those of blocks have what their weight has. */
static int tell_dims(json_t *state, const lf_st_entry *scale, lf_err *err)
{
    json_t *was = json_object_get(state, "dims");
    if (!scale || scale->ndim > 1 || (was && json_integer_value(was) == scale->ndim))
        return 0;
    if (was)
        return lf_fail(err, LF_ENOTSUP,
                       "%s has %d dimensions, scales before it have not; one or the other is read",
                       scale->name, scale->ndim);
    return json_object_set_new(state, "dims", json_integer(scale->ndim))
               ? lf_fail(err, LF_ENOMEM, "out of memory")
               : 0;
}

/* e: a weight; name: how an export calls it. */
static int take(struct lf_companions *c, const struct lf_hf_model *m, const lf_st_entry *e,
                const char *name, lf_err *err)
{
    const lf_st_entry *scales = lf_st_scales_of(e), *act = lf_st_act_scale_of(e);
    bool plain = true;
    if (!scales)
        return 0;
    int rc = tell_powers(c->state, scales, err);
    rc = rc != 0 ? rc : tell_dims(c->state, scales, err);
    rc = rc != 0 ? rc : tell_dims(c->state, act, err);
    if (rc == 0)
        rc = add(c, m, name, &(struct one){m->st, scales, false}, err);
    if (rc == 0)
        rc = look(&plain, m->st, scales, err);
    if (rc == 0 && !plain)
        rc = add(c, m, name, &(struct one){m->st, e, true}, err);
    if (rc == 0 && act)
        rc = add(c, m, name, &(struct one){m->st, act, false}, err);
    return rc;
}

static json_t *make_state(const struct lf_hf_model *m, lf_err *err)
{
    json_t *config = lf_hf_parse_json(m->config_text, strlen(m->config_text), LF_HF_CONFIG, err);
    json_t *o = config ? json_pack("{s:s,s:I,s:I,s:O}", "family", m->family->name, "rows",
                                   (json_int_t)m->quant.rows, "cols", (json_int_t)m->quant.cols,
                                   "config", json_object_get(config, LF_HF_QUANT))
                       : NULL;
    if (config && !o)
        lf_fail(err, LF_ENOMEM, "out of memory");
    json_decref(config);
    return o;
}

int lf_companions_of(struct lf_companions *out, const struct lf_hf_model *m, lf_err *err)
{
    const size_t entries = m->quant.rows ? lf_st_n_entries(m->st) : 0;
    struct lf_companions c = {0};
    *out = c;
    if (!entries)
        return 0;
    c.tensors = lf_arena_alloc(m->map.arena, 3 * entries, sizeof *c.tensors, err);
    c.state = make_state(m, err);
    int rc = c.tensors && c.state ? 0 : LF_ENOMEM;
    for (size_t i = 0; i < m->map.n_items && rc == 0; i++) {
        const struct lf_map_item *it = &m->map.items[i];
        if (it->source >= 0 && it->kind != LF_MAP_IGNORED)
            rc = take(&c, m, lf_st_entry_at(m->st, (size_t)it->source), it->name, err);
    }
    for (size_t i = 0; i < entries && rc == 0; i++) {
        const lf_st_entry *e = lf_st_entry_at(m->st, i);
        if (!lf_map_find(&m->map, e->name) && lf_map_keeps(&m->form, e->name))
            rc = take(&c, m, e, e->name, err);
    }
    if (rc == 0)
        *out = c;
    else
        json_decref(c.state);
    return rc;
}

void lf_companions_fini(struct lf_companions *c)
{
    json_decref(c->state);
    *c = (struct lf_companions){0};
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Merging: every weight of the base is copied in blocks; those of adapted layers get their product
 * added on the way. What was trained whole beside the adapter comes from there. */
#include "engine/model/merge.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/bf16.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/model/scales.h"
#include "engine/model/weights.h"

/* One weight of the base, and what is added to it. */
struct part {
    const struct merge *m;
    const lf_ckpt *from; /* the base; of what is trained whole the adapter */
    const lf_ckpt_entry *e;
    const float *a, *b;    /* [rank, cols], [rows of the weight, rank]; NULL: nothing */
    const float *m_of_row; /* [rows of the weight]: magnitudes; NULL: none */
    int64_t cols, rows;    /* of a matrix, of which there may be one for each expert */
};

struct merge {
    const struct lf_merge_opts *o;
    lf_ckpt *base, *adapter;
    lf_decoder *dec;
    lf_pstore *ps;
    struct lf_adapter_config ac;
    lf_arena *arena;
    struct part *parts;
    struct lf_scales scales; /* of the base */
    lf_ckpt_tensor *tensors;
    size_t n;
};

/* Elements [first, first + n) of the base's weight. */
static int read_base(const struct part *p, int64_t first, int64_t n, double *w, lf_err *err)
{
    const bool half = p->e->dtype == LF_H5_BF16;
    void *src = lf_malloc((size_t)n, half ? 2 : 4, err);
    int rc = src ? lf_ckpt_read_flat(p->from, p->e, first, n, src, err) : LF_ENOMEM;
    for (int64_t i = 0; i < n && rc == 0; i++)
        w[i] = (double)(half ? lf_f32_of_bf16(((uint16_t *)src)[i]) : ((float *)src)[i]);
    free(src);
    return rc;
}

/* + scale B A */
static void add_product(const struct part *p, int64_t first, int64_t n, double *w)
{
    const int64_t rank = p->m->ac.rank;
    const double scale = lf_adapter_scale(&p->m->ac);
    for (int64_t i = 0; i < n; i++) {
        const int64_t row = (first + i) / p->cols;
        const float *b = p->b + row * rank,
                    *a = p->a + row / p->rows * rank * p->cols + (first + i) % p->cols;
        double s = 0;
        for (int64_t j = 0; j < rank; j++)
            s += (double)b[j] * (double)a[j * p->cols];
        w[i] += scale * s;
    }
}

/* Whole rows from row on get their lengths; one without a direction stays. */
static void set_lengths(const struct part *p, int64_t row, int64_t rows, double *w)
{
    for (int64_t r = 0; r < rows; r++, w += p->cols) {
        double s = 0;
        for (int64_t c = 0; c < p->cols; c++)
            s += w[c] * w[c];
        const double to = s > 0 ? (double)p->m_of_row[row + r] / sqrt(s) : 1;
        for (int64_t c = 0; c < p->cols; c++)
            w[c] *= to;
    }
}

/* lf_ckpt_tensor's fill: elements [first, first + n). Lengths are of whole rows, so those are
 * made. */
static int fill(void *user, int64_t first, int64_t n, void *dst, lf_err *err)
{
    const struct part *p = user;
    const int64_t from = p->m_of_row ? first / p->cols * p->cols : first,
                  to = p->m_of_row ? (first + n + p->cols - 1) / p->cols * p->cols : first + n;
    double *w = lf_malloc((size_t)(to - from), sizeof *w, err);
    int rc = w ? read_base(p, from, to - from, w, err) : LF_ENOMEM;
    if (rc == 0 && p->a)
        add_product(p, from, to - from, w);
    if (rc == 0 && p->m_of_row)
        set_lengths(p, from / p->cols, (to - from) / p->cols, w);
    for (int64_t i = 0; i < n && rc == 0; i++) {
        const float f = (float)w[first - from + i];
        if (p->m->o->bf16)
            ((uint16_t *)dst)[i] = lf_bf16_of(f);
        else
            ((float *)dst)[i] = f;
    }
    free(w);
    return rc;
}

/* What a tensor of an adapter is: [rows, cols], or so for each expert; cols 0: a vector. */
struct factor {
    const char *name, *what;
    int64_t experts, rows, cols; /* experts 0: of a layer that has none */
};

static bool fits(const lf_ckpt_entry *e, const struct factor *f)
{
    const int64_t dims[] = {f->experts, f->rows, f->cols};
    const int from = f->experts ? 0 : 1, n = 3 - from - (f->cols ? 0 : 1);
    bool is = e && e->ndim == n && e->dtype == LF_H5_F32;
    for (int k = 0; k < n && is; k++)
        is = e->shape[k] == dims[from + k];
    return is;
}

/* The whole of it. */
static int read_factor(struct merge *m, const struct factor *f, const float **out, lf_err *err)
{
    char *full = lf_arena_printf(m->arena, err, LF_WEIGHTS_PREFIX "%s.%s", f->name, f->what);
    if (!full)
        return LF_ENOMEM;
    const lf_ckpt_entry *e = lf_ckpt_find(m->adapter, full, "weight");
    if (!fits(e, f))
        return lf_fail(err, LF_EINVAL, "%s: %s is missing or not f32 [%lld, %lld]%s", m->o->adapter,
                       full, (long long)f->rows, (long long)f->cols,
                       f->experts ? " for each expert" : "");
    const int64_t n = (f->experts ? f->experts : 1) * f->rows * (f->cols ? f->cols : 1);
    float *x = lf_arena_alloc(m->arena, (size_t)n, sizeof *x, err);
    *out = x;
    return x ? lf_ckpt_read(m->adapter, e, NULL, NULL, x, err) : LF_ENOMEM;
}

/* Whose A and whose B, of so many rows, of which the weight's begin at row. */
struct factors {
    const char *a, *b;
    int64_t row, rows;
    int64_t experts; /* that have such matrices each; 0: none */
};

static int read_factors(struct merge *m, struct part *p, const struct factors *f, lf_err *err)
{
    const struct factor a = {f->a, "lora_A", f->experts, m->ac.rank, p->cols},
                        b = {f->b, "lora_B", f->experts, f->rows, m->ac.rank},
                        magnitude = {f->b, "lora_magnitude", 0, f->rows, 0};
    int rc = read_factor(m, &a, &p->a, err);
    if (rc == 0)
        rc = read_factor(m, &b, &p->b, err);
    if (rc == 0 && m->ac.dora)
        rc = read_factor(m, &magnitude, &p->m_of_row, err);
    if (rc != 0)
        return rc;
    p->b += f->row * m->ac.rank;
    p->m_of_row = p->m_of_row ? p->m_of_row + f->row : NULL;
    return 0;
}

/* "layers.0.attn.q.weight" without its ending. */
static char *stem(struct merge *m, const char *name, lf_err *err)
{
    const size_t n = strlen(name), tail = strlen(".weight");
    return lf_arena_printf(m->arena, err, "%.*s", (int)(n > tail ? n - tail : n), name);
}

/* What is added to tensor i of the store: the adapter of its own, or its rows of that of its
 * group. */
static int find_factors(struct merge *m, int i, struct part *p, lf_err *err)
{
    const struct lf_param_desc *d = lf_pstore_desc(m->ps, i);
    char name[192];
    char *own = stem(m, d->name, err), *group = stem(m, d->group, err);
    if (!own || !group)
        return LF_ENOMEM;
    p->cols = d->dims[d->ndim - 1];
    p->rows = d->ndim == 3 ? d->dims[1] : INT64_MAX; /* members of a group share an A */
    const int first = lf_pstore_adapter_first(m->ps, i), experts = d->ndim == 3;
    if (first >= 0 || experts) {
        const char *a = first < 0 ? own : stem(m, lf_pstore_desc(m->ps, first)->name, err);
        const struct factors f = {a, own, 0, d->dims[experts], experts ? d->dims[0] : 0};
        return a ? read_factors(m, p, &f, err) : LF_ENOMEM;
    }
    int64_t row = 0, rows = d->dims[0];
    for (int k = i - 1; k >= 0 && strcmp(lf_pstore_desc(m->ps, k)->group, d->group) == 0; k--)
        row += lf_pstore_desc(m->ps, k)->dims[0];
    for (int k = i + 1;
         k < lf_pstore_count(m->ps) && strcmp(lf_pstore_desc(m->ps, k)->group, d->group) == 0; k++)
        rows += lf_pstore_desc(m->ps, k)->dims[0];
    snprintf(name, sizeof name, "%s.lora_B", group);
    if (lf_pstore_find(m->ps, name) < 0) /* members of the group have some, this one has none */
        return 0;
    return read_factors(m, p, &(struct factors){group, group, row, row + rows, 0}, err);
}

static int add_tensor(struct merge *m, int i, lf_err *err)
{
    const struct lf_param_desc *d = lf_pstore_desc(m->ps, i);
    struct part *p = &m->parts[m->n];
    char *name = lf_arena_printf(m->arena, err, LF_WEIGHTS_PREFIX "%s", d->name);
    if (!name)
        return LF_ENOMEM;
    *p = (struct part){.m = m, .from = d->whole ? m->adapter : m->base};
    p->e = lf_ckpt_find(p->from, name, "weight");
    if (!p->e || (p->e->dtype != LF_H5_F32 && p->e->dtype != LF_H5_BF16) || p->e->ndim != d->ndim)
        return lf_fail(err, LF_EFORMAT, "%s: no weight %s as the model has it",
                       lf_ckpt_dir(p->from), name);
    lf_ckpt_tensor *t = &m->tensors[m->n++];
    *t = (lf_ckpt_tensor){.name = name,
                          .kind = "weight",
                          .dtype = m->o->bf16 ? LF_H5_BF16 : LF_H5_F32,
                          .ndim = d->ndim,
                          .fill = fill,
                          .user = p};
    for (int k = 0; k < d->ndim; k++) {
        if (p->e->shape[k] != d->dims[k])
            return lf_fail(err, LF_EFORMAT, "%s: %s has not the shape that the model gives it",
                           lf_ckpt_dir(p->from), name);
        t->shape[k] = d->dims[k];
    }
    return lf_pstore_adapted(m->ps, d->group) ? find_factors(m, i, p, err) : 0;
}

static int declare(struct merge *m, lf_err *err)
{
    lf_model_config mc;
    int rc = lf_weights_config(&mc, m->base, err);
    if (rc == 0)
        rc = lf_adapter_config(&m->ac, m->adapter, err);
    if (rc == 0)
        rc = lf_adapter_check_base(m->adapter, m->base, err);
    if (rc == 0)
        rc = lf_adapter_model(&mc, &m->ac, err);
    if (rc != 0)
        return rc;
    m->dec = lf_decoder_create(&mc, 1, err);
    m->ps = m->dec ? lf_pstore_create(err) : NULL;
    rc = m->ps ? lf_decoder_declare(m->dec, m->ps, err) : err ? err->rc : LF_ENOMEM;
    if (rc == 0)
        rc = lf_decoder_adapt(m->dec, m->ps, &m->ac, err);
    const size_t count = rc != 0 ? 0 : (size_t)lf_pstore_count(m->ps);
    m->parts = rc != 0 ? NULL : lf_arena_alloc(m->arena, count, sizeof *m->parts, err);
    m->tensors = rc != 0 ? NULL : lf_arena_alloc(m->arena, count, sizeof *m->tensors, err);
    if (rc == 0 && (!m->parts || !m->tensors))
        rc = LF_ENOMEM;
    for (int i = 0; i < (int)count && rc == 0; i++)
        if (!lf_pstore_desc(m->ps, i)->adapter || lf_pstore_desc(m->ps, i)->whole)
            rc = add_tensor(m, i, err);
    return rc;
}

/* The adapter's state as that of whole weights. Owned. */
static json_t *merged_state(const struct merge *m, lf_err *err)
{
    char hex[LF_HASH_HEX];
    json_t *s = json_copy(m->o->state ? m->o->state : lf_ckpt_state(m->adapter));
    lf_hash_hex(hex, lf_ckpt_identity(m->adapter));
    json_t *from = json_pack("{s:O?,s:s}", "base",
                             json_object_get(lf_ckpt_state(m->adapter), "base"), "adapter", hex);
    if (!s || !from || json_object_set(s, "merged", from) || lf_scales_tell(&m->scales, s)) {
        json_decref(s);
        s = NULL;
        lf_fail(err, LF_ENOMEM, "state of the merged model: out of memory");
    }
    json_decref(from);
    json_object_del(s, "adapter");
    json_object_del(s, "base");
    return s;
}

static int write_out(struct merge *m, uint8_t *identity, lf_err *err)
{
    lf_ckpt_writer *w = NULL;
    lf_ckpt_result r;
    const lf_ckpt_options wo = {.threads = m->o->threads};
    json_t *state = merged_state(m, err);
    const lf_ckpt_tensor *all = m->tensors;
    int rc = state ? lf_scales_append(&m->scales, &all, &m->n, m->arena, err) : LF_ENOMEM;
    if (rc == 0)
        rc = lf_ckpt_writer_create(&w, all, m->n, &wo, err);
    if (rc == 0)
        rc = lf_ckpt_save_begin(w, m->o->out, state, err);
    if (rc == 0)
        rc = lf_ckpt_save_wait(w, &r, err);
    lf_ckpt_writer_destroy(w);
    json_decref(state);
    if (rc < 0)
        return rc;
    if (identity)
        memcpy(identity, r.identity, sizeof r.identity);
    return 0;
}

int lf_adapter_merge(const struct lf_merge_opts *o, uint8_t identity[LF_HASH_BYTES], lf_err *err)
{
    struct merge m = {.o = o, .arena = lf_arena_create(err)};
    int rc = m.arena ? lf_ckpt_open(&m.adapter, o->adapter, o->threads, err) : LF_ENOMEM;
    if (rc == 0)
        rc = lf_ckpt_open(&m.base, o->base, o->threads, err);
    if (rc == 0)
        rc = declare(&m, err);
    if (rc == 0)
        rc = lf_scales_read(&m.scales, m.base, m.arena, err);
    if (rc == 0)
        rc = write_out(&m, identity, err);
    lf_ckpt_close(m.base);
    lf_ckpt_close(m.adapter);
    lf_scales_fini(&m.scales);
    lf_pstore_destroy(m.ps);
    lf_decoder_destroy(m.dec);
    lf_arena_destroy(m.arena);
    return rc;
}

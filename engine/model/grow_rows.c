/* SPDX-License-Identifier: Apache-2.0
 *
 * Growing checkpoints. See grow_rows.h.
 */
#include "config.h"

#include "engine/model/grow_rows.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/bf16.h"
#include "engine/base/mem.h"
#include "engine/base/rng.h"
#include "engine/model/scales.h"
#include "engine/model/weights.h"

#define BLOCK_BYTES ((int64_t)1 << 22)

/* One tensor on its way; rows only where it grows. */
typedef struct source {
    const lf_ckpt *c;
    const lf_ckpt_entry *e;
    const lf_rows_plan *p; /* NULL: copied as it is */
    int64_t width;         /* elements of a row */
    uint32_t site;         /* of its random numbers */
    float *mean;           /* [width], owned */
} source;

int64_t lf_rows_padded(int64_t used, int64_t n_new, int64_t rows_before, int64_t pad_to)
{
    int64_t need = used + n_new, rows = (need + pad_to - 1) / pad_to * pad_to;
    return rows > rows_before ? rows : rows_before;
}

/* Old rows [lo, lo + n) as f32; raw is scratch of n * width elements. */
static int read_rows(const source *s, int64_t lo, int64_t n, float *out, void *raw, lf_err *err)
{
    const int64_t from[2] = {lo, 0}, to[2] = {lo + n, s->width};
    if (s->e->dtype == LF_H5_F32)
        return lf_ckpt_read(s->c, s->e, from, to, out, err);
    int rc = lf_ckpt_read(s->c, s->e, from, to, raw, err);
    for (int64_t i = 0; i < n * s->width && rc == 0; i++)
        out[i] = lf_f32_of_bf16(((const uint16_t *)raw)[i]);
    return rc;
}

static int find_mean(source *s, lf_err *err)
{
    int64_t most = BLOCK_BYTES / (4 * s->width) + 1;
    double *sum = lf_calloc((size_t)s->width, sizeof(*sum), err);
    float *rows = lf_malloc((size_t)(most * s->width), sizeof(*rows), err);
    void *raw = lf_malloc((size_t)(most * s->width), 2, err);
    s->mean = lf_malloc((size_t)s->width, sizeof(*s->mean), err);
    int rc = sum && rows && raw && s->mean ? 0 : LF_ENOMEM;
    for (int64_t r = 0; r < s->p->used && rc == 0; r += most) {
        int64_t n = s->p->used - r < most ? s->p->used - r : most;
        rc = read_rows(s, r, n, rows, raw, err);
        for (int64_t i = 0; i < n && rc == 0; i++)
            for (int64_t k = 0; k < s->width; k++)
                sum[k] += (double)rows[i * s->width + k];
    }
    for (int64_t k = 0; k < s->width && rc == 0; k++)
        s->mean[k] = (float)(sum[k] / (double)s->p->used);
    free(raw);
    free(rows);
    free(sum);
    return rc;
}

/* ---- rows ---- */

static int mean_of(const source *s, const uint32_t *ids, size_t n, float *out, float *row,
                   void *raw, lf_err *err)
{
    int rc = 0;
    for (int64_t k = 0; k < s->width; k++)
        out[k] = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = read_rows(s, ids[i], 1, row, raw, err);
        for (int64_t k = 0; k < s->width && rc == 0; k++)
            out[k] += row[k] / (float)n;
    }
    return rc;
}

/* Row r of the grown tensor, r >= used. row and raw: scratch. */
static int make_row(const source *s, int64_t r, float *out, float *row, void *raw, lf_err *err)
{
    const lf_rows_plan *p = s->p;
    int64_t i = r - p->used;
    if (i >= p->n_new && r < s->e->shape[0])
        return read_rows(s, r, 1, out, raw, err);
    const bool of_all = i >= p->n_new || (p->init == LF_ROWS_GAUSSIAN && s->e->ndim == 1) ||
                        (p->init == LF_ROWS_SUBTOKENS && p->n_old[i] == 0);
    enum lf_rows_init init = of_all ? LF_ROWS_MEAN : p->init;
    switch (init) {
    case LF_ROWS_SUBTOKENS:
        return mean_of(s, p->old[i], p->n_old[i], out, row, raw, err);
    case LF_ROWS_LAST:
        return read_rows(s, p->used - 1, 1, out, raw, err);
    case LF_ROWS_GAUSSIAN:
        for (int64_t k = 0; k < s->width; k++)
            out[k] =
                (float)(p->std * lf_rng_normal(p->seed, s->site, (uint64_t)(i * s->width + k)));
        return 0;
    case LF_ROWS_MEAN:
    default:
        memcpy(out, s->mean, (size_t)s->width * sizeof(*out));
        return 0;
    }
}

/* Elements [first, first + n) behind the old tokens' rows. */
static int fill_new(const source *s, int64_t first, int64_t n, uint8_t *dst, lf_err *err)
{
    size_t width = (size_t)s->width, elem = lf_h5_type_bytes(s->e->dtype);
    float *out = lf_malloc(width, 2 * sizeof(*out), err);
    void *raw = lf_malloc(width, 2, err);
    int rc = out && raw ? 0 : LF_ENOMEM;
    for (int64_t at = first; at < first + n && rc == 0;) {
        int64_t r = at / s->width, from = at % s->width;
        int64_t k = s->width - from < first + n - at ? s->width - from : first + n - at;
        rc = make_row(s, r, out, out + width, raw, err);
        if (rc == 0 && elem == 4)
            memcpy(dst, out + from, (size_t)k * elem);
        for (int64_t j = 0; j < k && rc == 0 && elem == 2; j++)
            ((uint16_t *)(void *)dst)[j] = lf_bf16_of(out[from + j]);
        dst += (size_t)k * elem;
        at += k;
    }
    free(raw);
    free(out);
    return rc;
}

static int fill(void *user, int64_t first, int64_t n, void *dst, lf_err *err)
{
    const source *s = user;
    int64_t kept = s->p ? s->p->used * s->width : INT64_MAX;
    int64_t old = first < kept ? (kept - first < n ? kept - first : n) : 0;
    int rc = old ? lf_ckpt_read_flat(s->c, s->e, first, old, dst, err) : 0;
    if (rc == 0 && old < n)
        rc = fill_new(s, first + old, n - old,
                      (uint8_t *)dst + (size_t)old * lf_h5_type_bytes(s->e->dtype), err);
    return rc;
}

/* ---- the checkpoint ---- */

/* A table that has rows for some tokens alone has none for new ones. */
static bool grows(const lf_model_config *m, const char *name)
{
    static const char *const names[] = {"embed.weight", "head.weight", "head.bias",
                                        "per_layer.embed.weight"};
    size_t skip = strlen(LF_WEIGHTS_PREFIX);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) - (m->per_layer_vocab > 0); i++)
        if (strncmp(name, LF_WEIGHTS_PREFIX, skip) == 0 && strcmp(name + skip, names[i]) == 0)
            return true;
    return false;
}

static int open_source(source *s, lf_ckpt_tensor *t, const lf_ckpt *c, const lf_ckpt_entry *e,
                       const lf_rows_plan *p, const lf_model_config *m, lf_err *err)
{
    *s = (source){.c = c, .e = e, .width = 1};
    *t = (lf_ckpt_tensor){.name = e->name,
                          .kind = e->kind,
                          .dtype = e->dtype,
                          .ndim = e->ndim,
                          .fill = fill,
                          .user = s};
    memcpy(t->shape, e->shape, sizeof(t->shape));
    if (!grows(m, e->name))
        return 0;
    if (e->ndim > 2 || e->shape[0] != m->vocab)
        return lf_fail(err, LF_EINVAL, "%s: %s has %lld rows, its model a vocabulary of %lld",
                       lf_ckpt_dir(c), e->name, (long long)e->shape[0], (long long)m->vocab);
    if (e->dtype != LF_H5_F32 && e->dtype != LF_H5_BF16)
        return lf_fail(err, LF_EFORMAT, "%s: %s is %s; weights are f32 or bf16", lf_ckpt_dir(c),
                       e->name, lf_h5_type_name(e->dtype));
    s->p = p;
    s->width = e->ndim == 2 ? e->shape[1] : 1;
    for (const char *q = e->name; *q; q++) /* FNV-1a */
        s->site = (s->site ^ (uint8_t)*q) * 16777619u;
    t->shape[0] = p->rows;
    return find_mean(s, err);
}

static int check_plan(const lf_rows_plan *p, const lf_ckpt *c, int64_t vocab, lf_err *err)
{
    if (p->used < 1 || p->used > vocab)
        return lf_fail(
            err, LF_EINVAL,
            "%s: the model has %lld rows, the tokenizer %lld tokens; they do not belong together",
            lf_ckpt_dir(c), (long long)vocab, (long long)p->used);
    if (p->rows < vocab || p->rows < p->used + p->n_new)
        return lf_fail(err, LF_EINVAL, "%lld rows do not hold a model of %lld and %lld tokens",
                       (long long)p->rows, (long long)vocab, (long long)(p->used + p->n_new));
    for (int64_t i = 0; i < p->n_new; i++)
        for (size_t k = 0; k < p->n_old[i]; k++)
            if (p->old[i][k] >= (uint64_t)p->used)
                return lf_fail(err, LF_EINVAL,
                               "new token %lld is made of %u, which is no old token", (long long)i,
                               (unsigned)p->old[i][k]);
    return 0;
}

static json_t *make_state(const lf_ckpt *from, const lf_model_config *c, json_t *grown, lf_err *err)
{
    json_t *model = lf_model_config_to_json(c, err);
    json_t *o = model ? json_pack("{s:I,s:o,s:O}", "step", (json_int_t)lf_ckpt_step(from), "model",
                                  model, "grown", grown)
                      : NULL;
    json_t *sha =
        json_object_get(grown, "tokenizer_sha256"); /* where pretrain keeps and looks for it */
    json_t *quant = json_object_get(lf_ckpt_state(from), LF_SCALES_STATE);
    if (!o || (sha && json_object_set(o, "tokenizer_sha256", sha)) ||
        (quant && json_object_set(o, LF_SCALES_STATE, quant))) {
        json_decref(o);
        lf_fail(err, LF_ENOMEM, "no memory for the state of the grown checkpoint");
        return NULL;
    }
    return o;
}

int lf_rows_grow(const char *dir, const lf_ckpt *from, const lf_rows_plan *p, json_t *grown,
                 int threads, lf_ckpt_result *out, lf_err *err)
{
    lf_model_config mc;
    lf_ckpt_writer *w = NULL;
    lf_ckpt_options o = {.threads = threads};
    json_t *state = NULL;
    size_t n = lf_ckpt_n_entries(from), k = 0, n_grown = 0;
    source *s = lf_calloc(n, sizeof(*s), err);
    lf_ckpt_tensor *t = lf_calloc(n, sizeof(*t), err);
    int rc = s && t ? lf_weights_config(&mc, from, err) : LF_ENOMEM;
    if (rc == 0)
        rc = check_plan(p, from, mc.vocab, err);
    for (size_t i = 0; i < n && rc == 0; i++) {
        const lf_ckpt_entry *e = lf_ckpt_entry_at(from, i);
        if (strcmp(e->kind, "weight") != 0 && !lf_scales_is(e))
            continue;
        rc = open_source(&s[k], &t[k], from, e, p, &mc, err);
        n_grown += s[k++].p != NULL;
    }
    if (rc == 0 && n_grown == 0)
        rc = lf_fail(err, LF_EINVAL, "%s has no %sembed.weight to grow", lf_ckpt_dir(from),
                     LF_WEIGHTS_PREFIX);
    mc.vocab = p->rows;
    if (rc == 0)
        rc = (state = make_state(from, &mc, grown, err)) ? 0 : LF_ENOMEM;
    if (rc == 0)
        rc = lf_ckpt_writer_create(&w, t, k, &o, err);
    if (rc == 0)
        rc = lf_ckpt_save_begin(w, dir, state, err);
    if (rc == 0 && lf_ckpt_save_wait(w, out, err) < 0)
        rc = err && err->rc ? err->rc : LF_EIO;
    lf_ckpt_writer_destroy(w);
    json_decref(state);
    for (size_t i = 0; i < k; i++)
        free(s[i].mean);
    free(t);
    free(s);
    return rc;
}

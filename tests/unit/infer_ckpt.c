/* SPDX-License-Identifier: Apache-2.0
 *
 * Small checkpoints for tests: see infer_ckpt.h.
 */
#include "tests/unit/infer_ckpt.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/rng.h"
#include "engine/model/decoder.h"
#include "engine/model/weights.h"
#include "engine/store/ckpt.h"

void infer_ckpt_hot(void *arg, const struct lf_param_desc *d, float *dst, int64_t rows,
                    int64_t cols)
{
    uint64_t seed = *(const uint64_t *)arg;
    uint32_t site = lf_name_site(d->name);
    bool norm = strstr(d->name, "norm") != NULL, embed = strstr(d->name, "embed") != NULL;
    bool qk = strstr(d->name, "attn.q.") != NULL || strstr(d->name, "attn.k.") != NULL;
    double std = d->ndim == 1 ? 0.3 : embed ? 0.3 : (qk ? 1.6 : 1.1) / sqrt((double)cols);
    double mean = norm && strstr(d->name, "weight") ? 1 : 0;
    for (int64_t i = 0; i < rows * cols; i++)
        dst[i] = (float)(mean + std * lf_rng_normal(seed, site, (uint64_t)i));
}

static int describe(lf_ckpt_tensor *t, lf_arena *a, const struct lf_param_desc *d,
                    infer_ckpt_fill fill, void *arg, lf_err *err)
{
    int64_t cols = d->ndim > 1 ? d->dims[d->ndim - 1] : 1,
            rows = d->dims[0] * (d->ndim == 3 ? d->dims[1] : 1);
    float *data = lf_arena_alloc(a, (size_t)(rows * cols), sizeof *data, err);
    *t = (lf_ckpt_tensor){.name = lf_arena_printf(a, err, LF_WEIGHTS_PREFIX "%s", d->name),
                          .kind = "weight",
                          .dtype = LF_H5_F32,
                          .ndim = d->ndim,
                          .shape = {d->dims[0], d->dims[1], d->dims[2]},
                          .data = data};
    if (!data || !t->name)
        return LF_ENOMEM;
    fill(arg, d, data, rows, cols);
    return 0;
}

/* ac NULL: of the whole model, else of an adapter of the weights with that identity. */
static int write_ckpt(const char *dir, const lf_model_config *c, const struct lf_adapter_config *ac,
                      const char *base, infer_ckpt_fill fill, void *arg, lf_err *err)
{
    lf_decoder *dec = lf_decoder_create(c, c->max_positions, err);
    lf_pstore *ps = lf_pstore_create(err);
    lf_arena *a = lf_arena_create(err);
    lf_ckpt_writer *w = NULL;
    json_t *state = NULL, *model = lf_model_config_to_json(c, err),
           *adapter = ac ? lf_adapter_to_json(ac, err) : NULL;
    int rc = dec && ps && a && model ? lf_decoder_declare(dec, ps, err) : LF_ENOMEM;
    if (rc == 0 && ac)
        rc = lf_decoder_adapt(dec, ps, ac, err);
    size_t n = rc ? 0 : (size_t)lf_pstore_count(ps), used = 0;
    lf_ckpt_tensor *t = rc ? NULL : lf_arena_alloc(a, n, sizeof *t, err);
    if (rc == 0 && !t)
        rc = LF_ENOMEM;
    for (size_t i = 0; i < n && rc == 0; i++)
        if (lf_pstore_desc(ps, (int)i)->adapter == (ac != NULL))
            rc = describe(&t[used++], a, lf_pstore_desc(ps, (int)i), fill, arg, err);
    if (rc == 0 && !(state = json_pack("{s:i,s:O,s:O*,s:s*}", "step", 0, "model", model, "adapter",
                                       adapter, "base", base)))
        rc = lf_fail(err, LF_ENOMEM, "out of memory");
    if (rc == 0)
        rc = lf_ckpt_writer_create(&w, t, used, &(lf_ckpt_options){.threads = 1}, err);
    if (rc == 0)
        rc = lf_ckpt_save_begin(w, dir, state, err);
    if (rc == 0)
        rc = lf_ckpt_save_wait(w, NULL, err);
    lf_ckpt_writer_destroy(w);
    json_decref(state);
    json_decref(model);
    json_decref(adapter);
    lf_arena_destroy(a);
    lf_pstore_destroy(ps);
    lf_decoder_destroy(dec);
    return rc < 0 ? rc : 0;
}

int infer_ckpt_write(const char *dir, const lf_model_config *c, infer_ckpt_fill fill, void *arg,
                     lf_err *err)
{
    return write_ckpt(dir, c, NULL, NULL, fill, arg, err);
}

int infer_ckpt_write_adapter(const char *dir, const lf_model_config *c,
                             const struct lf_adapter_config *ac, const char *base,
                             infer_ckpt_fill fill, void *arg, lf_err *err)
{
    lf_ckpt *ck = NULL;
    char id[LF_HASH_HEX];
    int rc = lf_ckpt_open(&ck, base, 1, err);
    if (rc)
        return rc;
    lf_hash_hex(id, lf_ckpt_identity(ck));
    lf_ckpt_close(ck);
    return write_ckpt(dir, c, ac, id, fill, arg, err);
}

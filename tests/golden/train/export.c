/* SPDX-License-Identifier: Apache-2.0
 *
 * train_export DIR: what make_train.py trains in PyTorch, as DIR/train.h5: the initial weights
 * (/weights/<name>), every batch of the run in the loader's order (/tokens, /targets, /positions
 * [step, row, T]; /segments: which document piece a token belongs to), and the settings as
 * attributes. A development tool: `make tests/golden/train_export`.
 */
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/rng.h"
#include "engine/model/decoder.h"
#include "tests/golden/train/case.h"

enum { ROWS = CASE_STEPS * CASE_BATCH, TOKENS = ROWS * CASE_T };

struct arrays {
    int32_t *tokens, *targets, *positions, *segments;
};

static int collect(void *arg, int64_t index, const lf_loader_batch *b, lf_err *err)
{
    (void)err;
    struct arrays *a = arg;
    int64_t at = index * b->B * b->T;
    size_t n = (size_t)b->B * (size_t)b->T * sizeof(int32_t);
    memcpy(a->tokens + at, b->tokens, n);
    memcpy(a->targets + at, b->targets, n);
    memcpy(a->positions + at, b->positions, n);
    for (int32_t s = 0; s < b->n_segs; s++)
        for (int32_t i = b->cu_seqlens[s]; i < b->cu_seqlens[s + 1]; i++)
            a->segments[at + i] = s;
    return 0;
}

static void put(hid_t file, const char *name, hid_t type, int ndim, const hsize_t *dims,
                const void *data)
{
    hid_t s = H5Screate_simple(ndim, dims, NULL), l = H5Pcreate(H5P_LINK_CREATE);
    H5Pset_create_intermediate_group(l, 1);
    hid_t d = H5Dcreate2(file, name, type, s, l, H5P_DEFAULT, H5P_DEFAULT);
    if (d < 0 || H5Dwrite(d, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0)
        exit(1);
    H5Dclose(d);
    H5Pclose(l);
    H5Sclose(s);
}

static void attribute(hid_t file, const char *name, double v)
{
    hid_t s = H5Screate(H5S_SCALAR),
          a = H5Acreate2(file, name, H5T_NATIVE_DOUBLE, s, H5P_DEFAULT, H5P_DEFAULT);
    if (a < 0 || H5Awrite(a, H5T_NATIVE_DOUBLE, &v) < 0)
        exit(1);
    H5Aclose(a);
    H5Sclose(s);
}

/* Initial values by the rule of lf_pstore_init. */
static int put_weights(hid_t file, const train_case *t, lf_err *err)
{
    lf_decoder *dec = lf_decoder_create(&t->c.model, CASE_T, err);
    lf_pstore *ps = lf_pstore_create(err);
    int rc = dec && ps ? lf_decoder_declare(dec, ps, err) : LF_ENOMEM;
    for (int i = 0; rc == 0 && i < lf_pstore_count(ps); i++) {
        const struct lf_param_desc *d = lf_pstore_desc(ps, i);
        int64_t n = d->dims[0] * (d->ndim == 2 ? d->dims[1] : 1);
        hsize_t dims[2] = {(hsize_t)d->dims[0], (hsize_t)d->dims[1]};
        float *v = calloc((size_t)n, sizeof *v);
        char name[256];
        if (!v)
            exit(1);
        for (int64_t e = 0; e < n; e++)
            v[e] = d->init == LF_INIT_NORMAL
                       ? (float)((double)d->init_std *
                                 lf_rng_normal(t->c.seed, lf_name_site(d->name), (uint64_t)e))
                       : (float)(d->init == LF_INIT_ONE);
        snprintf(name, sizeof name, "weights/%s", d->name);
        put(file, name, H5T_NATIVE_FLOAT, d->ndim, dims, v);
        free(v);
    }
    lf_pstore_destroy(ps);
    lf_decoder_destroy(dec);
    return rc;
}

static void put_settings(hid_t file, const struct lf_train_config *c, const char *digest)
{
    attribute(file, "heads", (double)c->model.heads);
    attribute(file, "kv_heads", (double)c->model.kv_heads);
    attribute(file, "rope_theta", c->model.rope_theta);
    attribute(file, "norm_eps", c->model.norm_eps);
    attribute(file, "lr", c->lr);
    attribute(file, "min_lr", c->min_lr);
    attribute(file, "warmup_steps", (double)c->warmup_steps);
    attribute(file, "beta1", 0.9);
    attribute(file, "beta2", 0.95);
    attribute(file, "eps", 1e-8);
    attribute(file, "weight_decay", 0.1);
    attribute(file, "clip", c->clip);
    hsize_t n = LF_HASH_HEX - 1;
    put(file, "digest", H5T_NATIVE_CHAR, 1, &n, digest);
}

int main(int argc, char **argv)
{
    lf_err err = LF_ERR_INIT;
    static train_case t;
    char path[4096], digest[LF_HASH_HEX];
    static int32_t space[4][TOKENS];
    struct arrays a = {space[0], space[1], space[2], space[3]};
    if (argc != 2)
        return 2;
    int rc = case_write_data(argv[1], &err);
    if (rc == 0)
        rc = case_config(&t, argv[1], &err);
    if (rc == 0)
        rc = case_batches(&t, collect, &a, &err);
    if (rc == 0)
        rc = case_digest(digest, &t, &err);
    if (rc == 0) {
        hsize_t dims[3] = {CASE_STEPS, CASE_BATCH, CASE_T};
        snprintf(path, sizeof path, "%.4000s/train.h5", argv[1]);
        hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
        put(file, "tokens", H5T_NATIVE_INT32, 3, dims, a.tokens);
        put(file, "targets", H5T_NATIVE_INT32, 3, dims, a.targets);
        put(file, "positions", H5T_NATIVE_INT32, 3, dims, a.positions);
        put(file, "segments", H5T_NATIVE_INT32, 3, dims, a.segments);
        rc = put_weights(file, &t, &err);
        put_settings(file, &t.c, digest);
        H5Fclose(file);
    }
    if (rc)
        fprintf(stderr, "train_export: %s\n", err.text);
    return rc != 0;
}

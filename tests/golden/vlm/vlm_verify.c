/* SPDX-License-Identifier: Apache-2.0
 *
 * The first document of a golden directory as the file of expected logits that lf-convert takes. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/convert/convert.h"
#include "engine/store/safetensors.h"
#include "tests/golden/vlm/vlm.h"
#include "tests/tap/tap.h"

enum { IDS, LOGITS, PIXELS, TILES, PICTURES, MERGE, PREFIX, TENSORS };

struct file {
    lf_st_decl decl[TENSORS];
    void *data[TENSORS];
    size_t n;
};

static void add(struct file *f, const char *name, enum lf_st_dtype dtype, const int64_t *shape,
                int ndim, const void *data)
{
    size_t bytes = lf_st_dtype_bytes(dtype);
    f->decl[f->n] = (lf_st_decl){.name = name, .dtype = dtype, .ndim = ndim};
    for (int k = 0; k < ndim; k++) {
        f->decl[f->n].shape[k] = shape[k];
        bytes *= (size_t)shape[k];
    }
    if (!(f->data[f->n] = malloc(bytes)))
        tap_bail("no memory");
    memcpy(f->data[f->n++], data, bytes);
}

static void add_i32(struct file *f, const char *name, const int64_t *shape, int ndim,
                    const int32_t *data)
{
    int64_t wide[4096], n = 1;
    for (int k = 0; k < ndim; k++)
        n *= shape[k];
    for (int64_t i = 0; i < n; i++)
        wide[i] = data[i];
    add(f, name, LF_ST_I64, shape, ndim, wide);
}

/* The pictures of the first document are those whose tokens it has: in all folders the first. */
static void make(struct file *f, const vlm *v, bool pictures, int32_t off)
{
    const int64_t T = v->f.cu_seqlens[1], V = v->f.vocab, K = v->patch_dim;
    const struct lf_sight_picture *p = v->picture;
    int32_t tile[64], *ids = v->f.tokens;
    int64_t P = 0;
    for (int32_t i = 0; i < p->tiles; i++) {
        tile[2 * i] = v->tile[i].h;
        tile[2 * i + 1] = v->tile[i].w;
        P += (int64_t)v->tile[i].h * v->tile[i].w;
    }
    tile[0] += off;
    add_i32(f, "input_ids", (int64_t[]){1, T}, 2, ids);
    add(f, "logits", LF_ST_F64, (int64_t[]){1, T, V}, 3, v->f.logits);
    if (v->f.prefix)
        add_i32(f, "prefix", (int64_t[]){1}, 1, v->f.prefix);
    if (!pictures)
        return;
    add(f, "pixels", LF_ST_F32, (int64_t[]){1, P, K}, 3, v->pixels);
    add_i32(f, "tiles", (int64_t[]){1, p->tiles, 2}, 3, tile);
    add_i32(f, "pictures", (int64_t[]){1, 1, 6}, 3,
            (int32_t[]){p->tile, p->tiles, p->cols, p->rows, p->from_w, p->from_h});
    add_i32(f, "merge", (int64_t[]){1}, 1, &v->batch.merge);
}

static int verify(const vlm *v, const char *name, bool pictures, int32_t off,
                  struct lf_convert_verdict *out, lf_err *err)
{
    char dir[3000], ckpt[3000];
    struct file f = {.n = 0};
    lf_st_writer *w = NULL;
    snprintf(dir, sizeof dir, "%s/%s", v->f.tmp, name);
    snprintf(ckpt, sizeof ckpt, "%s/checkpoint", v->f.tmp);
    make(&f, v, pictures, off);
    if (mkdir(dir, 0777) ||
        lf_st_writer_create(&w, dir, f.decl, f.n, &(lf_st_write_options){.format = "lf-expected-1"},
                            err))
        tap_bail("%s: %s", dir, err->text);
    for (size_t i; (i = lf_st_writer_next(w)) < f.n;) {
        size_t bytes = lf_st_dtype_bytes(f.decl[i].dtype);
        for (int k = 0; k < f.decl[i].ndim; k++)
            bytes *= (size_t)f.decl[i].shape[k];
        if (lf_st_writer_put(w, f.data[i], bytes, err))
            tap_bail("%s", err->text);
        free(f.data[i]);
    }
    if (lf_st_writer_finish(w, NULL, NULL, err))
        tap_bail("%s", err->text);
    lf_st_writer_destroy(w);
    return lf_convert_verify(ckpt, dir, 1, out, err);
}

void vlm_verify(const vlm *v)
{
    lf_err err = LF_ERR_INIT;
    struct lf_convert_verdict d = {0};
    int rc = verify(v, "expected", true, 0, &d, &err);
    tap_ok(rc == 0 && d.max <= FAMILY_F32 && d.rms <= FAMILY_F32,
           "%s: proved with a picture: %.2g, %.2g %s", v->f.name, d.max, d.rms, err.text);
    lf_err_clear(&err);
    rc = verify(v, "of-text", false, 0, &d, &err);
    tap_ok(rc == LF_EFORMAT && strstr(err.text, "nothing of its encoder"),
           "%s: text alone proves nothing: %s", v->f.name, err.text);
    lf_err_clear(&err);
    rc = verify(v, "other-tile", true, 2, &d, &err);
    tap_ok(rc < 0, "%s: a tile of other sides: %s", v->f.name, err.text);
}

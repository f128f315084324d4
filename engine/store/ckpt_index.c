/* SPDX-License-Identifier: Apache-2.0
 *
 * index.h5: every global tensor of a checkpoint as a virtual dataset over the pieces, for h5py,
 * h5dump and the like. Our own reader never opens it: HDF5 shows zeros where a source file is
 * missing.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/store/ckpt_priv.h"

struct blocks {
    lf_h5_block *b;
    size_t n, cap;
    int ndim;
    const int64_t *lo, *hi; /* the box of the piece */
    lf_h5_block proto;      /* file, name, source shape; lo and count are scratch */
    int64_t src;            /* elements of the source used up */
};

static int add_block(struct blocks *bs, int dim, int64_t lo, int64_t count, int64_t volume,
                     lf_err *err)
{
    int rc = lf_grow(&bs->b, &bs->cap, bs->n, sizeof *bs->b, err);
    if (rc < 0)
        return rc;
    lf_h5_block *b = &bs->b[bs->n++];
    *b = bs->proto;
    b->lo[dim] = bs->lo[dim] + lo;
    b->count[dim] = count;
    for (int k = dim + 1; k < bs->ndim; k++) {
        b->lo[k] = bs->lo[k];
        b->count[k] = bs->hi[k] - bs->lo[k];
    }
    b->src_first = bs->src;
    bs->src += volume;
    return 0;
}

/* Elements [a, b) of the box over dimensions dim .. ndim - 1 as boxes of the tensor: a ragged head,
 * whole rows, a tail.
 */
static int flat_blocks(struct blocks *bs, int dim, int64_t a, int64_t b, lf_err *err)
{
    int64_t row = 1;
    int rc = 0;
    for (int k = dim + 1; k < bs->ndim; k++)
        row *= bs->hi[k] - bs->lo[k];
    bs->proto.count[dim] = 1;
    while (a < b && rc == 0) {
        int64_t r = a / row, end = (r + 1) * row;
        bs->proto.lo[dim] = bs->lo[dim] + r;
        if (a % row != 0 || b < end) {
            end = end < b ? end : b;
            rc = flat_blocks(bs, dim + 1, a - r * row, end - r * row, err);
            bs->proto.count[dim] = 1;
        } else {
            end = b / row * row;
            rc = add_block(bs, dim, r, end / row - r, end - a, err);
        }
        a = end;
    }
    return rc;
}

static int index_tensor(lf_h5 *f, const struct lf_ckpt_rec *r, lf_err *err)
{
    struct blocks bs = {.ndim = r->e.ndim};
    lf_buf dst;
    int rc = 0;
    lf_buf_init(&dst);
    lf_buf_addf(&dst, "%s/%s", r->kind, r->name);
    char **owned = lf_calloc(r->n_pieces, sizeof *owned, err);
    if (!owned)
        rc = LF_ENOMEM;
    for (size_t k = 0; k < r->n_pieces && rc == 0; k++) {
        const struct lf_ckpt_piece *p = &r->pieces[k];
        if (!(owned[k] = lf_ckpt_dataset_name(r, k, err))) {
            rc = LF_ENOMEM;
            break;
        }
        bs.proto = (lf_h5_block){.file = p->file, .name = owned[k], .src_ndim = 1};
        bs.proto.src_dims[0] = p->flat[1] - p->flat[0];
        bs.lo = p->lo;
        bs.hi = p->hi;
        if (lf_ckpt_one_piece(r)) {
            bs.proto.src_ndim = r->e.ndim;
            memcpy(bs.proto.src_dims, r->e.shape, sizeof r->e.shape);
        }
        bs.src = 0;
        rc = flat_blocks(&bs, 0, p->flat[0], p->flat[1], err);
    }
    if (rc == 0 && (rc = lf_buf_check(&dst, err)) == 0) {
        const struct lf_h5_virtual v = {dst.data, r->e.dtype, r->e.ndim, r->e.shape, bs.b, bs.n};
        rc = lf_h5_put_virtual(f, &v, err);
    }
    for (size_t k = 0; owned && k < r->n_pieces; k++)
        free(owned[k]);
    free(owned);
    free(bs.b);
    lf_buf_fini(&dst);
    return rc;
}

int lf_ckpt_make_index(const struct lf_ckpt_meta *m, const char *dir, lf_err *err)
{
    lf_h5 *f = NULL;
    char *path = lf_path_join(dir, LF_CKPT_INDEX, err);
    int rc = path ? lf_h5_create(&f, path, err) : LF_ENOMEM;
    for (size_t i = 0; i < m->n_recs && rc == 0; i++)
        rc = index_tensor(f, &m->recs[i], err);
    int rc2 = lf_h5_close(f, rc < 0 ? NULL : err);
    free(path);
    return rc < 0 ? rc : rc2;
}

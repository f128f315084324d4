/* SPDX-License-Identifier: Apache-2.0
 *
 * The one gateway to HDF5: no other file includes hdf5.h. Object times and file locking are off,
 * the format is pinned to what HDF5 1.10 reads (and checksums), filter plugins are never loaded,
 * errors become lf_err text and are never printed. The library is not re-entrant, so every call
 * here takes one process-wide lock.
 *
 * HDF5 makes the structure; bulk bytes go by pread/pwrite at the extents reported here, from any
 * thread.
 *
 * Files that are read are not trusted: soft, external and user-defined links, virtual and
 * externally stored datasets, filters and foreign types are LF_EFORMAT, and every extent is checked
 * against the length of the file. All numbers are little-endian.
 */
#ifndef LF_STORE_H5_H
#define LF_STORE_H5_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"

#define LF_H5_MAX_DIMS 8
#define LF_H5_MAX_STR  60000 /* bytes of a string attribute */

/* LF_H5_BF16 is an HDF5 float of 1 sign, 8 exponent and 7 mantissa bits; h5py reads it as
 * float32. */
enum lf_h5_type {
    LF_H5_U8 = 1,
    LF_H5_U16,
    LF_H5_U32,
    LF_H5_U64,
    LF_H5_I32,
    LF_H5_I64,
    LF_H5_BF16,
    LF_H5_F32,
    LF_H5_F64
};

size_t lf_h5_type_bytes(enum lf_h5_type t);     /* 0 for an unknown value */
const char *lf_h5_type_name(enum lf_h5_type t); /* "u16", "bf16", ... */
int lf_h5_type_parse(enum lf_h5_type *out, const char *name, lf_err *err);

typedef struct lf_h5 lf_h5; /* an open file */

/* A new file (LF_EEXIST when the path exists), mode 0640. */
int lf_h5_create(lf_h5 **out, const char *path, lf_err *err);
/* An existing file, read only. */
int lf_h5_open(lf_h5 **out, const char *path, lf_err *err);
/* Write out what HDF5 holds and close; reports what failed. Durability is the caller's (fsync).
 * close(NULL) is fine. */
int lf_h5_close(lf_h5 *f, lf_err *err);

/* Attributes of the root group. Strings: fixed length, UTF-8. */
int lf_h5_put_attr_str(lf_h5 *f, const char *name, const char *value, lf_err *err);
int lf_h5_put_attr_i64(lf_h5 *f, const char *name, int64_t value, lf_err *err);
int lf_h5_get_attr_str(lf_h5 *f, const char *name, char **out, lf_err *err); /* returns owned */
int lf_h5_get_attr_i64(lf_h5 *f, const char *name, int64_t *out, lf_err *err);

/* A contiguous dataset whose space is allocated at once and not filled; groups in `name`
 * ("weight/model/x") are made. *offset is the file position of its first byte: write it with pwrite
 * after closing f. Empty shapes are refused. */
int lf_h5_put_extent(lf_h5 *f, const char *name, enum lf_h5_type type, int ndim,
                     const int64_t *dims, uint64_t *offset, lf_err *err);
/* A 1-D contiguous dataset with its contents (n may be 0). */
int lf_h5_put(lf_h5 *f, const char *name, enum lf_h5_type type, const void *data, size_t n,
              lf_err *err);
/* A 1-D chunked dataset that grows by appending; one at a time per file. */
int lf_h5_begin_growing(lf_h5 *f, const char *name, enum lf_h5_type type, size_t chunk_elems,
                        lf_err *err);
int lf_h5_append(lf_h5 *f, const void *data, size_t n, lf_err *err);

/* A virtual dataset over datasets of other files (paths relative to this file's directory). Each
 * block takes the elements [src_first, src_first + volume) of the source, flattened, to the box
 * [lo, lo + count) of this dataset. */
typedef struct lf_h5_block {
    const char *file, *name;
    int src_ndim;
    int64_t src_dims[LF_H5_MAX_DIMS]; /* shape of the source; whole source when src_ndim > 1 */
    int64_t src_first;
    int64_t lo[LF_H5_MAX_DIMS], count[LF_H5_MAX_DIMS];
} lf_h5_block;
struct lf_h5_virtual {
    const char *name;
    enum lf_h5_type type;
    int ndim;
    const int64_t *dims;
    const lf_h5_block *blocks;
    size_t n_blocks;
};
int lf_h5_put_virtual(lf_h5 *f, const struct lf_h5_virtual *v, lf_err *err);

/* A run of elements of a dataset that lies in one piece in the file. */
typedef struct lf_h5_extent {
    uint64_t first;  /* index of the first element, row-major */
    uint64_t n;      /* elements */
    uint64_t offset; /* file position in bytes */
} lf_h5_extent;

typedef struct lf_h5_dataset {
    enum lf_h5_type type;
    int ndim;
    int64_t dims[LF_H5_MAX_DIMS];
    uint64_t n_elems;
    lf_h5_extent *extents; /* in element order, covering 0 .. n_elems; owned */
    size_t n_extents;
} lf_h5_dataset;

/* Type, shape and place of a dataset (contiguous, or 1-D chunked). LF_EFORMAT when there is none of
 * that name. */
int lf_h5_stat(lf_h5 *f, const char *name, lf_h5_dataset *out, lf_err *err);
/* Is there anything of that name in the root group? An attribute of it? */
bool lf_h5_has(lf_h5 *f, const char *name);
bool lf_h5_has_attr(lf_h5 *f, const char *name);
void lf_h5_dataset_fini(lf_h5_dataset *d);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The only interface to HDF5: no file but h5*.c includes hdf5.h. Object times and file locking are
 * off. The format is the one that HDF5 1.10 reads, with checksums. Filter plugins are never loaded.
 * Errors become the text of an lf_err and are never printed. The library is not re-entrant, so
 * every call here takes one process-wide lock.
 *
 * HDF5 makes the structure. The bulk of the bytes is transferred by pread and pwrite at the extents
 * that these functions report, from any thread.
 *
 * Files that are read are not trusted. Soft, external and user-defined links, virtual and
 * externally stored datasets, filters and foreign types are LF_EFORMAT. Every extent is checked
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

/* Creates a file with mode 0640. LF_EEXIST: the path exists. */
int lf_h5_create(lf_h5 **out, const char *path, lf_err *err);
/* Opens an existing file, read only. */
int lf_h5_open(lf_h5 **out, const char *path, lf_err *err);
/* Writes what HDF5 holds, and closes f. The caller makes the file durable (fsync). f may be
 * NULL. */
int lf_h5_close(lf_h5 *f, lf_err *err);

/* Attributes of the root group. Strings have a fixed length and are UTF-8. */
int lf_h5_put_attr_str(lf_h5 *f, const char *name, const char *value, lf_err *err);
int lf_h5_put_attr_i64(lf_h5 *f, const char *name, int64_t value, lf_err *err);
int lf_h5_get_attr_str(lf_h5 *f, const char *name, char **out, lf_err *err); /* returns owned */
int lf_h5_get_attr_i64(lf_h5 *f, const char *name, int64_t *out, lf_err *err);

/* Makes a contiguous dataset whose space is allocated at once and not filled. Groups in `name`
 * ("weight/model/x") are made. *offset becomes the file position of its first byte; the caller
 * writes the bytes with pwrite after closing f. Empty shapes are refused. */
int lf_h5_put_extent(lf_h5 *f, const char *name, enum lf_h5_type type, int ndim,
                     const int64_t *dims, uint64_t *offset, lf_err *err);
/* Writes a 1-D contiguous dataset of n elements; n may be 0. */
int lf_h5_put(lf_h5 *f, const char *name, enum lf_h5_type type, const void *data, size_t n,
              lf_err *err);
/* Makes a 1-D chunked dataset that grows by lf_h5_append. A file has one such dataset at a time. */
int lf_h5_begin_growing(lf_h5 *f, const char *name, enum lf_h5_type type, size_t chunk_elems,
                        lf_err *err);
int lf_h5_append(lf_h5 *f, const void *data, size_t n, lf_err *err);

/* One block of a virtual dataset over datasets of other files, whose paths are relative to the
 * directory of this file. It maps the elements [src_first, src_first + volume) of the flattened
 * source to the box [lo, lo + count) of the virtual dataset. */
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

/* A run of elements of a dataset that is contiguous in the file. */
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

/* Finds type, shape and place of a dataset, contiguous or 1-D chunked. LF_EFORMAT: there is no such
 * dataset. */
int lf_h5_stat(lf_h5 *f, const char *name, lf_h5_dataset *out, lf_err *err);
/* Does the root group have a member, or an attribute, of that name? */
bool lf_h5_has(lf_h5 *f, const char *name);
bool lf_h5_has_attr(lf_h5 *f, const char *name);
void lf_h5_dataset_fini(lf_h5_dataset *d);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * A set of named tensors on disk, whatever the files are: the one view that safetensors.h,
 * torch_file.h and megatron.h open and that a converter reads. Opening reads and checks structure
 * only (names, types, shapes, where the bytes lie, every length against its file); bytes are read
 * in ranges, from any thread, so that a set larger than memory is used with the memory of one
 * range.
 *
 * A tensor is read as if it were one row-major array of its shape, little-endian. Where the file
 * has it otherwise (the strides of a PyTorch view, the shards of several Megatron ranks),
 * lf_st_read puts it together.
 *
 * Ownership: a set owns everything it returns; names and entries are borrowed until lf_st_close.
 */
#ifndef LF_STORE_TENSORS_H
#define LF_STORE_TENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"

#define LF_ST_MAX_DIMS 8
#define LF_ST_MAX_TENSORS                                                                          \
    ((size_t)1 << 20)       /* of one set: ten times the largest published checkpoint */
#define LF_ST_MAX_NAME 4096 /* bytes of a tensor's name */

/* In the order in which the safetensors library lays tensors out (it begins with the last); see
 * safetensors.h. */
enum lf_st_dtype {
    LF_ST_BOOL = 1, /* one byte, 0 or 1 */
    LF_ST_U8,
    LF_ST_I8,
    LF_ST_F8_E5M2, /* read and copied as raw bytes */
    LF_ST_F8_E4M3, /* the same */
    LF_ST_I16,
    LF_ST_U16,
    LF_ST_F16,
    LF_ST_BF16,
    LF_ST_I32,
    LF_ST_U32,
    LF_ST_F32,
    LF_ST_F64,
    LF_ST_I64,
    LF_ST_U64,
    LF_ST_N_DTYPES
};

size_t lf_st_dtype_bytes(enum lf_st_dtype t);     /* 0 for an unknown value */
const char *lf_st_dtype_name(enum lf_st_dtype t); /* "BF16", as safetensors spells it */
int lf_st_dtype_parse(enum lf_st_dtype *out, const char *name, lf_err *err);

typedef struct lf_st lf_st;

typedef struct lf_st_entry {
    const char *name;
    enum lf_st_dtype dtype;
    int ndim; /* 0: a scalar, one element */
    int64_t shape[LF_ST_MAX_DIMS];
    int64_t elems;  /* product of shape (1 for a scalar, 0 when a dimension is 0) */
    int64_t bytes;  /* elems * bytes of an element */
    int file;       /* where it begins: index of lf_st_file_at */
    int64_t offset; /* of its first byte in that file; -1 when it is not one run of bytes there */
    /* index of an earlier entry with the very same bytes and shape (tied weights), -1: none */
    int alias_of;
} lf_st_entry;

void lf_st_close(lf_st *s); /* close(NULL) is legal */

/* In the order of the files, and of the bytes in each: the order in which a disk is read
 * fastest. */
size_t lf_st_n_entries(const lf_st *s);
const lf_st_entry *lf_st_entry_at(const lf_st *s, size_t i);
const lf_st_entry *lf_st_find(const lf_st *s, const char *name); /* NULL: none */

/* Files the bytes come from: paths as opened, for messages and reports. */
size_t lf_st_n_files(const lf_st *s);
const char *lf_st_file_at(const lf_st *s, size_t i);

/* Text that came with the tensors ("format" = "pt"), or NULL. Of several files the first that has
 * the key. */
const char *lf_st_meta(const lf_st *s, const char *key);

/* Elements [first, first + n) of the tensor, in row-major order and its own dtype, to dst (n *
 * bytes of an element). Thread-safe. LF_EINVAL: outside the tensor; LF_EFORMAT, LF_EIO: named with
 * file and tensor. */
int lf_st_read(const lf_st *s, const lf_st_entry *e, int64_t first, int64_t n, void *dst,
               lf_err *err);

/* How many of n values are NaN or infinite; 0 for types that have neither. data need not be
 * aligned. */
int64_t lf_st_count_nonfinite(enum lf_st_dtype t, const void *data, int64_t n);

/* ---- files that others wrote ----
 *
 * A file of a model directory is named by one plain component (no '/', not "." or "..") and must be
 * a regular file. A symbolic link is followed only where it is the link that the Hugging Face cache
 * makes: its text is "../../blobs/NAME" and NAME there is a regular file. Any other link is
 * refused, because a downloaded directory must not choose what else of this machine is read. The
 * directory itself, as the user typed it, may be reached by links. */

/* Open dir/name for reading: a descriptor (close it) or a negative lf_rc; LF_ENOENT when it is not
 * there. */
int lf_st_open_file(const char *dir, const char *name, lf_err *err);

#endif

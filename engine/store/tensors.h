/* SPDX-License-Identifier: Apache-2.0
 *
 * A set of named tensors on disk, whatever the form of the files. safetensors.h, torch_file.h and
 * megatron_ckpt.h open such a set, and a converter reads it. Opening reads and checks structure
 * only: names, types, shapes, places of the bytes, and every length against its file. Bytes are
 * read in ranges, from any thread, so a set larger than memory takes the memory of one range.
 *
 * A tensor is read as one row-major, little-endian array of its shape. Where a file holds it
 * otherwise (the strides of a PyTorch view, the parts of several Megatron ranks), lf_st_read puts
 * it together.
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
    ((size_t)1 << 20)       /* of one set; ten times those of the largest published checkpoint */
#define LF_ST_MAX_NAME 4096 /* bytes of a tensor's name */

/* The reverse of the order in which the safetensors library lays tensors out (safetensors.h). */
enum lf_st_dtype {
    LF_ST_BOOL = 1, /* one byte, 0 or 1 */
    LF_ST_U8,
    LF_ST_I8,
    LF_ST_F8_E5M2, /* read and copied as raw bytes */
    LF_ST_F8_E4M3, /* the same */
    LF_ST_F8_E8M0, /* the same: powers of two (base/f8.h) */
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
    int file;       /* the file where it begins: an index for lf_st_file_at */
    int64_t offset; /* of its first byte in that file; -1 when it is not one run of bytes there */
    /* index of an earlier entry with the same place and shape (tied weights); -1: none */
    int alias_of;
} lf_st_entry;

void lf_st_close(lf_st *s); /* close(NULL) is legal */

/* The entries in the order of the files and of the bytes in each file, in which a disk is read
 * fastest. */
size_t lf_st_n_entries(const lf_st *s);
const lf_st_entry *lf_st_entry_at(const lf_st *s, size_t i);
const lf_st_entry *lf_st_find(const lf_st *s, const char *name); /* NULL: none */

/* The files of the set: paths as they were opened, for messages and reports. */
size_t lf_st_n_files(const lf_st *s);
const char *lf_st_file_at(const lf_st *s, size_t i);

/* Returns the text that came with the tensors under `key` ("format": "pt"), or NULL. Of several
 * files the first that has the key counts. */
const char *lf_st_meta(const lf_st *s, const char *key);

/* Reads elements [first, first + n) of the tensor, in row-major order and in its dtype, to dst (n *
 * bytes of an element). Thread-safe. LF_EINVAL: the range is outside the tensor. LF_EFORMAT,
 * LF_EIO: the message names file and tensor. */
int lf_st_read(const lf_st *s, const lf_st_entry *e, int64_t first, int64_t n, void *dst,
               lf_err *err);

/* Makes matrices of 8-bit floats (F8_E4M3) be read as BF16: every such tensor NAME, [R, C] or
 * matrices behind each other [E, R, C], has a tensor NAME + suffix of scales beside it, of ceil(R /
 * rows) x ceil(C / cols) for each matrix, which is no entry of the set any more. Scales are F32,
 * BF16, or powers of two of one byte (F8_E8M0, or U8 of the same bits). Element (r, c) is the f32
 * product q(r, c) * scale(r / rows, c / cols), rounded to bf16 (DeepSeek-AI 2024, DeepSeek-V3, 3.3;
 * there the suffix is "_scale_inv", though one multiplies by it). LF_EFORMAT: a tensor has no
 * scales, or they have another shape or type. Entries change: it comes right after opening. */
int lf_st_scale_blocks(lf_st *s, const char *suffix, int64_t rows, int64_t cols, lf_err *err);
/* rows and cols of weights whose scale is one number of no or one dimension. NAME.activation_scale
 * is then the scale of what NAME.weight multiplies, and no entry any more either. */
#define LF_ST_WHOLE ((int64_t)1 << 40)
/* The scales of an entry that is read as bf16 through the function above, for lf_st_read: they are
 * no entry of the set. NULL: it has none. */
const lf_st_entry *lf_st_scales_of(const lf_st_entry *e);
/* The same of the scale of what it multiplies. */
const lf_st_entry *lf_st_act_scale_of(const lf_st_entry *e);
#define LF_ST_WEIGHT    ".weight"
#define LF_ST_ACT_SCALE ".activation_scale"
/* Reads the 8-bit floats themselves, elements [first, first + n) of such an entry. */
int lf_st_read_codes(const lf_st *s, const lf_st_entry *e, int64_t first, int64_t n, void *dst,
                     lf_err *err);

/* Makes 4-bit floats in blocks of 32 with a common exponent (OCP Microscaling Formats, v1.0: MXFP4)
 * be read as BF16: every U8 tensor NAME + blocks of shape [..., n, 16] has a U8 tensor NAME +
 * scales [..., n] beside it, which is no entry of the set any more, and becomes BF16 [..., 32 n].
 * A byte has two numbers e2m1, the first in its low half. Element i is q(i) * 2^(scale(i / 32) -
 * 127), which is exact in bf16 but where it is beyond its largest; a scale of 255 is NaN.
 * LF_EFORMAT: a tensor has no scales, or either has another shape or type. Entries change: it comes
 * right after opening. */
int lf_st_unpack_mxfp4(lf_st *s, const char *blocks, const char *scales, lf_err *err);

/* How the names of some tensors begin, and what stands there instead. */
struct lf_st_prefix {
    const char *from, *to;
};
/* The first of n whose `from` begins the name; NULL: none. */
const struct lf_st_prefix *lf_st_prefix_of(const struct lf_st_prefix *p, size_t n,
                                           const char *name);
/* Keeps the tensors whose names begin so, under their other names, and no others. LF_EFORMAT: two
 * tensors have one name then. Entries change: it comes right after opening. */
int lf_st_keep(lf_st *s, const struct lf_st_prefix *p, size_t n, lf_err *err);

/* Counts the NaN and infinite values of n values; 0 for types that have neither. data need not be
 * aligned. */
int64_t lf_st_count_nonfinite(enum lf_st_dtype t, const void *data, int64_t n);

/* ---- files that others wrote ----
 *
 * The name of a file of a model directory is one plain component (no '/', not "." or ".."), and the
 * file is a regular file. A symbolic link is followed only when it is one that the Hugging Face
 * cache makes: its text is "../../blobs/NAME", and NAME there is a regular file. Any other link is
 * refused, because a downloaded directory must not decide which other files of this machine are
 * read. The path of the directory itself, as the user typed it, may hold links. */

/* Opens dir/name for reading. Returns a descriptor, which the caller closes, or a negative lf_rc.
 * LF_ENOENT: there is no such file. */
int lf_st_open_file(const char *dir, const char *name, lf_err *err);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Megatron-LM indexed datasets, both ways. NAME.bin holds token ids back to back. NAME.idx
 * describes them (Megatron core's IndexedDataset, version 1; everything little-endian):
 *
 *   offset          size    content
 *   0               9       "MMIDIDX" 00 00
 *   9               8       u64 version = 1
 *   17              1       u8 dtype: 1 u8, 2 i8, 3 i16, 4 i32, 5 i64, 6 f64, 7 f32, 8 u16
 *   18              8       u64 n, sequences
 *   26              8       u64 m, entries of the document index = documents + 1
 *   34              4n      i32 length of each sequence, in tokens
 *   34 + 4n         8n      i64 position of each sequence in NAME.bin, in bytes
 *   34 + 12n        8m      i64 document index: document d is sequences [doc[d], doc[d + 1]);
 *                           doc[0] = 0, doc[m - 1] = n
 *   34 + 12n + 8m   n       i8 mode of each sequence; only in multimodal data
 *
 * The reader trusts nothing. It checks lengths, positions, the document index and the end of both
 * files at open, and every id when it is read. The .idx is held in memory (20 bytes a sequence).
 * The .bin is read by pread, from any number of threads.
 */
#ifndef LF_STORE_MEGATRON_DATA_H
#define LF_STORE_MEGATRON_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"

enum lf_megatron_dtype {
    LF_MEGATRON_U8 = 1,
    LF_MEGATRON_I8,
    LF_MEGATRON_I16,
    LF_MEGATRON_I32,
    LF_MEGATRON_I64,
    LF_MEGATRON_F64,
    LF_MEGATRON_F32,
    LF_MEGATRON_U16
};

size_t lf_megatron_dtype_bytes(enum lf_megatron_dtype t); /* 0 for an unknown code */
const char *lf_megatron_dtype_name(enum lf_megatron_dtype t);
/* The dtype that Megatron takes for a vocabulary: u16 below 65,500 ids, else i32. */
enum lf_megatron_dtype lf_megatron_dtype_for(int64_t vocab_size);

/* ---- reading ---- */
typedef struct lf_megatron_data lf_megatron_data;

typedef struct lf_megatron_info {
    enum lf_megatron_dtype dtype;
    uint64_t n_seqs, n_docs, n_tokens;
    const int32_t *lengths; /* [n_seqs] */
    const int64_t *docs;    /* [n_docs + 1] */
    const int8_t *modes;    /* [n_seqs], NULL without them */
    /* the sequences fill the .bin in order, without gaps, so a copy has the same bytes */
    bool packed;
} lf_megatron_info;

/* path is NAME.idx, NAME.bin or NAME. */
int lf_megatron_open(lf_megatron_data **out, const char *path, lf_err *err);
void lf_megatron_close(lf_megatron_data *d);
const lf_megatron_info *lf_megatron_get_info(const lf_megatron_data *d); /* borrowed until close */
/* Tokens [first, first + n) of a sequence as ids. LF_EFORMAT when one of them is negative or above
 * 2^31 - 1, or when the dtype is a float. Thread-safe. */
int lf_megatron_read_ids(const lf_megatron_data *d, uint64_t seq, uint64_t first, size_t n,
                         uint32_t *dst, lf_err *err);

/* ---- writing ---- */
typedef struct lf_megatron_writer lf_megatron_writer;

/* Create NAME.bin and NAME.idx. LF_EEXIST when one is there. The dtype is an integer. */
int lf_megatron_create(lf_megatron_writer **out, const char *name, enum lf_megatron_dtype dtype,
                       bool modes, lf_err *err);
/* Append a sequence to the open document. LF_EINVAL when an id does not fit the dtype. mode is used
 * in files with modes. */
int lf_megatron_append(lf_megatron_writer *w, const uint32_t *ids, size_t n, int8_t mode,
                       lf_err *err);
/* Append n more tokens to the sequence of the last append. */
int lf_megatron_extend(lf_megatron_writer *w, const uint32_t *ids, size_t n, lf_err *err);
int lf_megatron_end_document(lf_megatron_writer *w, lf_err *err);
/* Complete and fsync both files and close them. Frees w in every case. Unlinks both files on
 * failure. LF_EINVAL: there are sequences after the last end of a document. */
int lf_megatron_finish(lf_megatron_writer *w, lf_err *err);
void lf_megatron_abort(lf_megatron_writer *w); /* unlinks both files; abort(NULL) is legal */

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Declarations that the files of the safetensors writer share.
 */
#ifndef LF_STORE_SAFETENSORS_PRIV_H
#define LF_STORE_SAFETENSORS_PRIV_H

#include "engine/base/str.h"
#include "engine/store/safetensors.h"
#include "engine/store/sink.h"
#include "engine/store/tensors_priv.h"

struct lf_st_out_tensor {
    lf_st_decl d; /* name is owned */
    int64_t bytes;
    size_t file;
    bool known; /* its hash is known */
};

struct lf_st_out_file {
    char *name, *path, *tmp;
    size_t first, end;       /* a range of w->order */
    bool written, published; /* states (3), (4) */
    int64_t bytes;
    uint8_t sha256[LF_HASH_BYTES];
};

struct lf_st_writer {
    char *dir, *stem, *format;
    struct lf_st_out_tensor *tensors; /* [n], as declared */
    struct lf_st_out_tensor **order;  /* [n], as written */
    size_t n;
    struct lf_st_out_file *files;
    size_t n_files;
    struct lf_st_out_file index; /* used with several files */
    bool hash_tensors, finished, failed;
    uint8_t (*hashes)[LF_HASH_BYTES]; /* [n] when hash_tensors */
    lf_tree_hash *hash;
    size_t at;    /* index in order of the next tensor */
    int64_t done; /* bytes of that tensor so far */
    lf_sink *sink;
    size_t file;  /* the file that sink writes */
    int progress; /* -1: no record is kept */
    bool keep;
    int64_t reused; /* bytes */
};

/* Takes over what an earlier writer has left of the planned files, and begins a record. */
int lf_st_resume_begin(lf_st_writer *w, const lf_resume *r, lf_err *err);

/* Appends length and padded header of f to the empty b. The bytes of the tensors follow them in the
 * file. */
int lf_st_header_text(lf_buf *b, const lf_st_writer *w, const struct lf_st_out_file *f,
                      lf_err *err);
int lf_st_index_text(lf_buf *b, const lf_st_writer *w, lf_err *err);

#endif

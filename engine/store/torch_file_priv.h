/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts of the reader of torch files that the Megatron reader uses too.
 */
#ifndef LF_STORE_TORCH_FILE_PRIV_H
#define LF_STORE_TORCH_FILE_PRIV_H

#include "engine/store/tensors_priv.h"
#include "engine/store/torch_file.h"
#include "engine/store/torch_pickle.h"

/* The objects of one file; every storage that they name has its place in the file. fini(zeroed) is
 * legal. */
struct lf_torch {
    lf_pickle *pickle;
    char *text; /* of the pickle, which borrows it */
};
void lf_torch_fini(struct lf_torch *t);

/* Read the objects of the file open at fd (taken), which becomes a file of s. */
int lf_torch_load(struct lf_torch *out, lf_st *s, int fd, const char *path, lf_err *err);
/* An entry for tensor t of that file. */
int lf_torch_add_tensor(lf_st *s, const char *name, const struct lf_pv_tensor *t, lf_err *err);

typedef int (*lf_torch_emit)(void *user, const char *name, const struct lf_pv_tensor *t,
                             lf_err *err);
/* Call emit for every tensor that root reaches through dictionaries and lists; names are keys
 * joined by '.'. other (may be NULL): gets the names of what is no tensor, the first few hundred
 * bytes of them. Bounded in depth and in visits.
 */
int lf_torch_walk(const lf_pv *root, lf_torch_emit emit, void *user, lf_buf *other, lf_err *err);

/* Is every byte of [offset, offset + bytes) in the file? */
static inline bool lf_torch_inside(const struct lf_st_file *f, int64_t offset, int64_t bytes)
{
    return offset >= 0 && bytes >= 0 && offset <= f->bytes && bytes <= f->bytes - offset;
}

/* ---- zip ---- */

struct lf_zip_record {
    const char *name; /* in the directory's text, not terminated */
    uint32_t name_len;
    int64_t header, bytes; /* of its local header in the file; stored bytes */
    uint32_t crc;
    bool stored;
};

struct lf_zip {
    char *dir;                     /* text of the directory */
    struct lf_zip_record *records; /* sorted by name */
    size_t n;
    int64_t end; /* where the directory begins: no record reaches beyond */
};
void lf_zip_fini(struct lf_zip *z);
/* Read and check the directory of f. */
int lf_zip_load(struct lf_zip *out, const struct lf_st_file *f, lf_err *err);
const struct lf_zip_record *lf_zip_find(const struct lf_zip *z, const char *name, size_t len);
/* Where the bytes of a record begin; checks its local header. */
int lf_zip_data(const struct lf_zip *z, const struct lf_zip_record *r, const struct lf_st_file *f,
                int64_t *offset, lf_err *err);
/* CRC-32 as zip has it. */
uint32_t lf_zip_crc(const void *data, size_t n);

/* ---- the two forms ---- */

/* Objects of a zip file, and of the older form; file: index in s. */
int lf_torch_load_zip(struct lf_torch *out, lf_st *s, int file, lf_err *err);
int lf_torch_load_legacy(struct lf_torch *out, lf_st *s, int file, lf_err *err);

#endif

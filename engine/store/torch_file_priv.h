/* SPDX-License-Identifier: Apache-2.0
 *
 * The reader of torch files; the Megatron reader uses it too.
 */
#ifndef LF_STORE_TORCH_FILE_PRIV_H
#define LF_STORE_TORCH_FILE_PRIV_H

#include "engine/store/tensors_priv.h"
#include "engine/store/torch_file.h"
#include "engine/store/torch_pickle.h"

/* The objects of one file. Every storage that they name has its place in the file. lf_torch_fini
 * takes a zeroed struct too. */
struct lf_torch {
    lf_pickle *pickle;
    char *text; /* text of the pickle, which borrows it */
};
void lf_torch_fini(struct lf_torch *t);

/* Reads the objects of the file open at fd, whose ownership is taken. The file becomes one of s. */
int lf_torch_load(struct lf_torch *out, lf_st *s, int fd, const char *path, lf_err *err);
/* Adds an entry for tensor t of that file to s. */
int lf_torch_add_tensor(lf_st *s, const char *name, const struct lf_pv_tensor *t, lf_err *err);

typedef int (*lf_torch_emit)(void *user, const char *name, const struct lf_pv_tensor *t,
                             lf_err *err);
/* Calls emit for every tensor that root reaches through dictionaries and lists; its name is the
 * keys joined by '.'. other (may be NULL) gets the first few hundred bytes of the names of other
 * objects. Depth and number of visits are bounded.
 */
int lf_torch_walk(const lf_pv *root, lf_torch_emit emit, void *user, lf_buf *other, lf_err *err);

/* Is every byte of [offset, offset + bytes) in the file? */
static inline bool lf_torch_inside(const struct lf_st_file *f, int64_t offset, int64_t bytes)
{
    return offset >= 0 && bytes >= 0 && offset <= f->bytes && bytes <= f->bytes - offset;
}

/* ---- zip ---- */

struct lf_zip_record {
    const char *name; /* points into the text of the directory, not terminated */
    uint32_t name_len;
    int64_t header, bytes; /* file offset of its local header; stored bytes */
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
/* Reads and checks the directory of f. */
int lf_zip_load(struct lf_zip *out, const struct lf_st_file *f, lf_err *err);
const struct lf_zip_record *lf_zip_find(const struct lf_zip *z, const char *name, size_t len);
/* Finds where the bytes of a record begin, and checks its local header. */
int lf_zip_data(const struct lf_zip *z, const struct lf_zip_record *r, const struct lf_st_file *f,
                int64_t *offset, lf_err *err);
/* The CRC-32 of zip. */
uint32_t lf_zip_crc(const void *data, size_t n);

/* ---- the two forms ---- */

/* Read the objects of a zip file, and of a file of the older form. `file` is its index in s. */
int lf_torch_load_zip(struct lf_torch *out, lf_st *s, int file, lf_err *err);
int lf_torch_load_legacy(struct lf_torch *out, lf_st *s, int file, lf_err *err);

#endif

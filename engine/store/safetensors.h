/* SPDX-License-Identifier: Apache-2.0
 *
 * safetensors files: read as a set of tensors (tensors.h), written with the bytes that the
 * safetensors library writes.
 *
 *     offset  size
 *     0       8     N, unsigned little-endian: bytes of the header, at most 100,000,000
 *     8       N     JSON, UTF-8, begins with '{', padded with spaces:
 *                   {"__metadata__":{"format":"pt"},
 *                   "NAME":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}, ...}
 *     8 + N   ...   the tensors, row-major, little-endian; data_offsets count from here
 *
 * The tensors tile the data: sorted by offset each begins where the one before ends, the first at
 * 0, the last ends with the file. (So a file cannot hide bytes, nor can two names share bytes.)
 *
 * A model in several files is a directory with model.safetensors.index.json:
 *
 *     {"metadata": {"total_size": 123}, "weight_map": {"NAME": "model-00001-of-00002.safetensors",
 *     ...}}
 */
#ifndef LF_STORE_SAFETENSORS_H
#define LF_STORE_SAFETENSORS_H

#include "engine/base/hash.h"
#include "engine/store/partial.h"
#include "engine/store/tensors.h"

#define LF_SAFETENSORS_MAX_HEADER 100000000
#define LF_SAFETENSORS_FILE       "model.safetensors"
#define LF_SAFETENSORS_INDEX      "model.safetensors.index.json"

/* Open path: a .safetensors file, an .index.json file, or a directory that holds model.safetensors
 * or its index (both: LF_EINVAL, name the one you mean). A file that is typed by name may be a
 * link; what an index names may not (lf_st_open_file). Everything is checked but the bytes of the
 * tensors.
 *
 * LF_ENOENT: no such path, or a directory without either file, or the index names a file that is
 * not there (told apart by the text). LF_EFORMAT: the text names the file and the tensor: header
 * longer than the file or than its cap, not UTF-8, not JSON, a name twice, unknown dtype, shape
 * against data_offsets, holes, overlaps, bytes after the last tensor, a truncated file, a tensor of
 * the index that its file does not have (and where it is instead), a tensor of a file that the
 * index does not list. */
int lf_st_open(lf_st **out, const char *path, lf_err *err);

/* ---- writing ----
 *
 * All tensors are declared first, then their bytes come, front to back, in the order that the
 * library's files have (lf_st_writer_next says which). For equal tensors the files are byte for
 * byte those that safetensors' save_file writes with metadata {"format": "pt"}: in a file, types in
 * the order of enum lf_st_dtype from its end, names in byte order inside a type, compact JSON,
 * spaces up to a multiple of 8. Files are cut as the Hugging Face hub library cuts them: declared
 * order, a file ends before the tensor that would take it above max_file, a tensor larger than that
 * has a file of its own. One file: STEM.safetensors; n: STEM-00001-of-0000n.safetensors and
 * STEM.safetensors.index.json.
 *
 * Files are written under temporary names (NAME.tmp) and linked to their own by
 * lf_st_writer_finish, the index last; no file is ever written over. With resume.key, files that an
 * earlier, unfinished writer of the same bytes has completed are taken over as links after their
 * bytes were hashed again; lf_st_writer_next passes over their tensors. */

typedef struct lf_st_decl {
    const char *name;
    enum lf_st_dtype dtype;
    int ndim;
    int64_t shape[LF_ST_MAX_DIMS];
} lf_st_decl;

typedef struct lf_st_write_options {
    const char *stem;   /* NULL: "model" */
    const char *format; /* "format" of the metadata; NULL: "pt"; "": no metadata */
    int64_t max_file;   /* bytes of tensors in a file; 0: one file */
    bool hash_tensors;  /* make the tree hash of each tensor as well, on the caller's thread */
    lf_resume resume;   /* key NULL: nothing is taken over; borrowed by create */
} lf_st_write_options;

typedef struct lf_st_written {
    char *name; /* of the file, without directory */
    int64_t bytes;
    uint8_t sha256[LF_HASH_BYTES]; /* tree hash */
} lf_st_written;

typedef struct lf_st_writer lf_st_writer;

/* Declarations are copied. LF_EINVAL: a name twice, "__metadata__", an unknown type or too many
 * dimensions; LF_EEXIST: a file of one of the names is there already. dir must exist. o may be
 * NULL. */
int lf_st_writer_create(lf_st_writer **out, const char *dir, const lf_st_decl *tensors, size_t n,
                        const lf_st_write_options *o, lf_err *err);
/* The declared tensor whose bytes come next; n when all have been written. */
size_t lf_st_writer_next(const lf_st_writer *w);
/* The next bytes of that tensor: all of them or a part. LF_EINVAL when there are more than it has
 * left. */
int lf_st_writer_put(lf_st_writer *w, const void *data, size_t bytes, lf_err *err);
/* The tree hash of this tensor is known (its bytes were checked against it): take it instead of
 * making it again. */
void lf_st_writer_know(lf_st_writer *w, size_t tensor, const uint8_t sha256[LF_HASH_BYTES]);
/* Tree hash of a tensor that was written in full (with hash_tensors); borrowed. */
const uint8_t *lf_st_writer_hash(const lf_st_writer *w, size_t tensor);
/* fsync, publish; LF_EINVAL when bytes are missing. files (may be NULL): owned array of what was
 * written, free with lf_st_written_free. w is still to be destroyed. */
int lf_st_writer_finish(lf_st_writer *w, lf_st_written **files, size_t *n_files, lf_err *err);
/* Bytes of tensors that need not come: they were taken over. */
int64_t lf_st_writer_reused(const lf_st_writer *w);
/* To be gone on with: destroy leaves the files that are complete, and their record. */
void lf_st_writer_keep(lf_st_writer *w);
/* Before a successful finish: removes everything that was written. destroy(NULL) is legal. */
void lf_st_writer_destroy(lf_st_writer *w);
void lf_st_written_free(lf_st_written *files, size_t n);

#endif

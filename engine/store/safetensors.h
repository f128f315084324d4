/* SPDX-License-Identifier: Apache-2.0
 *
 * safetensors files. They are read as a set of tensors (tensors.h) and written with the same bytes
 * as the safetensors library writes.
 *
 *     offset  size
 *     0       8     N, unsigned little-endian: bytes of the header, at most 100,000,000
 *     8       N     JSON, UTF-8, begins with '{', padded with spaces:
 *                   {"__metadata__":{"format":"pt"},
 *                   "NAME":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}, ...}
 *     8 + N   ...   the tensors, row-major, little-endian; data_offsets count from here
 *
 * The tensors tile the data. Sorted by offset, the first begins at 0, each begins where the one
 * before it ends, and the last ends with the file. So a file cannot hide bytes, and two names
 * cannot share bytes.
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

/* Opens path: a .safetensors file, an .index.json file, or a directory that holds model.safetensors
 * or its index. A file that path names may be a link; a file that an index names may not
 * (lf_st_open_file). Everything but the bytes of the tensors is checked.
 *
 * LF_EINVAL: a directory holds both; the user names the one to read. LF_ENOENT: there is no such
 * path, the directory has neither file, or the index names a missing file; the message tells which.
 * LF_EFORMAT: the header is longer than the file or than its cap, is not UTF-8 or not JSON, has a
 * name twice or an unknown dtype; a shape does not fit its data_offsets; there are holes, overlaps
 * or bytes after the last tensor; the file is truncated; a tensor of the index is not in its file
 * (the message says where it is instead); the index does not list a tensor of a file. The message
 * names the file and the tensor. */
int lf_st_open(lf_st **out, const char *path, lf_err *err);

/* ---- writing ----
 *
 * All tensors are declared first. Then the caller gives their bytes, front to back, in the order of
 * the library's files (lf_st_writer_next tells the next tensor). For equal tensors the files are
 * byte for byte those that safetensors' save_file writes with metadata {"format": "pt"}: in a file,
 * types in the order of enum lf_st_dtype from its end, names in byte order inside a type, compact
 * JSON, spaces up to a multiple of 8. The tensors are divided into files as the Hugging Face hub
 * library does it: in declared order, a file ends before the tensor that would take it above
 * max_file, and a larger tensor has a file of its own. A single file is STEM.safetensors. n files
 * are STEM-00001-of-0000n.safetensors and so on, with STEM.safetensors.index.json.
 *
 * Files are written under temporary names (NAME.tmp). lf_st_writer_finish links them to their own
 * names, the index last. No file is ever written over. With resume.key the writer takes over, as
 * links, the files that an earlier, unfinished writer of the same bytes has completed, after
 * hashing their bytes again; lf_st_writer_next skips their tensors. */

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
    bool hash_tensors;  /* compute the tree hash of each tensor too, on the caller's thread */
    lf_resume resume;   /* key NULL: nothing is taken over; borrowed by create */
} lf_st_write_options;

typedef struct lf_st_written {
    char *name; /* of the file, without directory */
    int64_t bytes;
    uint8_t sha256[LF_HASH_BYTES]; /* tree hash */
} lf_st_written;

typedef struct lf_st_writer lf_st_writer;

/* The declarations are copied. dir must exist. o may be NULL. LF_EINVAL: a name occurs twice or is
 * "__metadata__", or a tensor has an unknown type or too many dimensions. LF_EEXIST: a file of one
 * of the names exists. */
int lf_st_writer_create(lf_st_writer **out, const char *dir, const lf_st_decl *tensors, size_t n,
                        const lf_st_write_options *o, lf_err *err);
/* Returns the index of the tensor whose bytes come next, or n when all are written. */
size_t lf_st_writer_next(const lf_st_writer *w);
/* Writes the next bytes of that tensor, all of them or a part. LF_EINVAL: the tensor has fewer
 * bytes left. */
int lf_st_writer_put(lf_st_writer *w, const void *data, size_t bytes, lf_err *err);
/* Gives the tree hash of this tensor, against which the caller has checked the bytes, so that it is
 * not computed again. */
void lf_st_writer_know(lf_st_writer *w, size_t tensor, const uint8_t sha256[LF_HASH_BYTES]);
/* Returns the tree hash of a tensor that is written in full (with hash_tensors); borrowed. */
const uint8_t *lf_st_writer_hash(const lf_st_writer *w, size_t tensor);
/* fsyncs and publishes the files. LF_EINVAL: bytes are missing. files (may be NULL) becomes an
 * array of what was written; the caller frees it with lf_st_written_free. The caller still destroys
 * w. */
int lf_st_writer_finish(lf_st_writer *w, lf_st_written **files, size_t *n_files, lf_err *err);
/* Returns the bytes of the tensors that were taken over and need not be written. */
int64_t lf_st_writer_reused(const lf_st_writer *w);
/* Makes destroy leave the complete files and their record, so that a later writer can continue. */
void lf_st_writer_keep(lf_st_writer *w);
/* Frees w; without a successful finish it removes everything that was written. w may be NULL. */
void lf_st_writer_destroy(lf_st_writer *w);
void lf_st_written_free(lf_st_written *files, size_t n);

#endif

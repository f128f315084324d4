/* SPDX-License-Identifier: Apache-2.0
 *
 * Artifacts: a directory whose manifest.json is published last. Until the manifest exists, the
 * artifact does not exist; once it exists, every file it lists was durable before it. The manifest:
 *
 *     {"lf_manifest":1, "kind":"shards",
 *      "files":[{"path":"train-00000.h5","bytes":123,"tree_sha256":"<64 hex>"}, ...],     sorted by
 *        path
 *      "meta":{...}}                                                                      belongs
 *        to the kind
 *
 * File paths are relative to the artifact's directory: components of printable characters separated
 * by '/', none of them empty, "." or ".."; a symbolic link anywhere below the directory is refused
 * (openat, O_NOFOLLOW). Linked into libbase, because the flow asks whether artifacts exist.
 */
#ifndef LF_BASE_ARTIFACT_H
#define LF_BASE_ARTIFACT_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "engine/base/err.h"
#include "engine/base/hash.h"

#define LF_ARTIFACT_MANIFEST     "manifest.json"
#define LF_ARTIFACT_MAX_FILES    1000000
#define LF_ARTIFACT_MAX_MANIFEST ((size_t)256 << 20) /* bytes of manifest.json */
#define LF_ARTIFACT_MODE         0640 /* of files; share settings of the flow may change it */

typedef struct lf_artifact_file {
    char *path;                    /* relative to the artifact's directory */
    int64_t bytes;                 /* its length */
    uint8_t sha256[LF_HASH_BYTES]; /* tree hash */
} lf_artifact_file;

/* A manifest in memory, being made or as read. The fields may be read by anyone. */
typedef struct lf_artifact {
    char *kind; /* "shards", "tokenizer", "checkpoint", ... */
    lf_artifact_file *files;
    size_t n_files, cap_files;
    /* object, never NULL after init or load; change it with json_object_set_new before
     * publishing */
    json_t *meta;
} lf_artifact;

enum lf_artifact_state {
    LF_ARTIFACT_ABSENT,  /* no manifest: never finished, or never begun */
    LF_ARTIFACT_PRESENT, /* manifest valid, every file there with its length */
    LF_ARTIFACT_PURGED,  /* manifest valid, a file is missing */
    LF_ARTIFACT_BROKEN   /* manifest unreadable or invalid, or a file has another length */
};

/* An empty manifest of this kind. fini(zeroed) is legal. */
int lf_artifact_init(lf_artifact *a, const char *kind, lf_err *err);
void lf_artifact_fini(lf_artifact *a);

/* Add one file whose length and tree hash are known. LF_EINVAL: bad path; LF_EEXIST: listed
 * already. */
int lf_artifact_add(lf_artifact *a, const char *path, int64_t bytes,
                    const uint8_t sha256[LF_HASH_BYTES], lf_err *err);
/* The same for a file that lies below dir, reading it to find both. */
int lf_artifact_add_hashed(lf_artifact *a, const char *dir, const char *path, lf_err *err);

/* Commit: check that every file is there with its length, fsync the files and their directories,
 * then write dir/manifest.json durably with link(2). dir itself is durable when lf_io_mkdirs made
 * it. LF_EEXIST when dir holds a manifest already (it is left alone). LF_EBUSY when a newer start
 * of the stage has begun (fence.h): nothing is published. */
int lf_artifact_publish(lf_artifact *a, const char *dir, lf_err *err);

/* Make the artifact `from` available as `to` too: its files become hard links, or copies where
 * links are refused, its manifest last. So nothing that happens to `from` later, its removal
 * included, can take it away. sha256, when not NULL: what the bytes of the manifest must hash to.
 * `to` must not exist (LF_EEXIST). LF_ENOENT: there is no such artifact (any more), or one of its
 * files is gone; then `to` does not exist either. */
int lf_artifact_take(const char *from, const char *to, const uint8_t sha256[LF_HASH_BYTES],
                     lf_err *err);
/* SHA-256 of the bytes of dir/manifest.json. LF_ENOENT: there is none. */
int lf_artifact_manifest_hash(uint8_t out[LF_HASH_BYTES], const char *dir, lf_err *err);

/* Read and validate dir/manifest.json. kind NULL: any. Does not look at the files. LF_ENOENT: no
 * manifest. */
int lf_artifact_load(lf_artifact *out, const char *dir, const char *kind, lf_err *err);

/* Which state the artifact in dir is in; the reason of PURGED and BROKEN goes to err (which stays
 * otherwise empty). Only an error of the operating system other than a missing file is returned as
 * negative: unknown is not absence. */
int lf_artifact_state(enum lf_artifact_state *out, const char *dir, lf_err *err);

/* Every listed file is there with its length: LF_OK, LF_ENOENT (missing, named), LF_EFORMAT (other
 * length, named). */
int lf_artifact_check_lengths(const lf_artifact *a, const char *dir, lf_err *err);
/* The same, and every tree hash is right; files are read by `threads` threads (0 = all
 * processors). */
int lf_artifact_check_hashes(const lf_artifact *a, const char *dir, int threads, lf_err *err);

/* Length and tree hash of files below dir, with threads as above. */
typedef struct lf_artifact_hash_job {
    const char *path;              /* in, borrowed */
    int64_t bytes;                 /* out */
    uint8_t sha256[LF_HASH_BYTES]; /* out */
} lf_artifact_hash_job;
int lf_artifact_hash_files(const char *dir, lf_artifact_hash_job *jobs, size_t n, int threads,
                           lf_err *err);

/* The reverse of lf_hash_hex: exactly 64 lower-case digits, or LF_EFORMAT. */
int lf_artifact_parse_hex(uint8_t out[LF_HASH_BYTES], const char *hex, lf_err *err);

/* Listed file by path, or NULL. */
const lf_artifact_file *lf_artifact_find(const lf_artifact *a, const char *path);

/* Identity of the contents: SHA-256 over kind, then path, length and hash of every file. meta is
 * not part of it. */
int lf_artifact_id(const lf_artifact *a, uint8_t out[LF_HASH_BYTES], lf_err *err);

/* Open a file of an artifact for reading; refuses paths and links that lead elsewhere. Returns a
 * descriptor (close it) or a negative lf_rc. */
int lf_artifact_open_file(const char *dir, const char *path, lf_err *err);

/* Delete an artifact so that a crash leaves it absent, never half there: the manifest first
 * (directory fsynced), then the files and the directory. A missing directory is fine. */
int lf_artifact_remove(const char *dir, lf_err *err);

#endif

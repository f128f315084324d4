/* SPDX-License-Identifier: Apache-2.0
 *
 * An artifact is a directory whose manifest.json is published last. The artifact exists once its
 * manifest does. Every file that the manifest lists is durable before the manifest is. The
 * manifest:
 *
 *     {"lf_manifest":1, "kind":"shards",
 *      "files":[{"path":"train-00000.h5","bytes":123,"tree_sha256":"<64 hex>"}, ...],
 *      "meta":{...}}
 *
 * "files" is sorted by path. What "meta" holds depends on the kind.
 *
 * File paths are relative to the artifact's directory. A path consists of components of printable
 * characters, separated by '/'. No component is empty, "." or "..". A symbolic link anywhere below
 * the directory is refused (openat, O_NOFOLLOW). This code belongs to libbase, because the flow
 * asks whether artifacts exist.
 */
#ifndef LF_BASE_ARTIFACT_H
#define LF_BASE_ARTIFACT_H

#include <jansson.h>
#include <stdbool.h>
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
    bool synced;                   /* whoever wrote it has fsynced it */
} lf_artifact_file;

/* A manifest in memory: one that is being made, or one that was read. Callers may read the
 * fields. */
typedef struct lf_artifact {
    char *kind; /* "shards", "tokenizer", "checkpoint", ... */
    lf_artifact_file *files;
    size_t n_files, cap_files;
    /* a JSON object, never NULL after init or load; json_object_set_new changes it before
     * publishing */
    json_t *meta;
} lf_artifact;

enum lf_artifact_state {
    LF_ARTIFACT_ABSENT,  /* no manifest: never finished, or never begun */
    LF_ARTIFACT_PRESENT, /* manifest valid, every file there with its length */
    LF_ARTIFACT_PURGED,  /* manifest valid, a file is missing */
    LF_ARTIFACT_BROKEN   /* manifest unreadable or invalid, or a file has another length */
};

/* Makes an empty manifest of this kind. lf_artifact_fini takes a zeroed struct too. */
int lf_artifact_init(lf_artifact *a, const char *kind, lf_err *err);
void lf_artifact_fini(lf_artifact *a);

/* Adds one file whose length and tree hash are known. LF_EINVAL: the path is not allowed.
 * LF_EEXIST: the file is listed already. */
int lf_artifact_add(lf_artifact *a, const char *path, int64_t bytes,
                    const uint8_t sha256[LF_HASH_BYTES], lf_err *err);
/* Adds a file that its writer, perhaps on another machine, has fsynced: publishing checks its
 * length alone. */
int lf_artifact_add_synced(lf_artifact *a, const char *path, int64_t bytes,
                           const uint8_t sha256[LF_HASH_BYTES], lf_err *err);
/* Adds a file that lies below dir. Its length and tree hash are found by reading it. */
int lf_artifact_add_hashed(lf_artifact *a, const char *dir, const char *path, lf_err *err);

/* Publishes the artifact. It checks that every file is there with its length, fsyncs the files that
 * are not and their directories, and writes dir/manifest.json durably with link(2). dir itself is
 * durable when lf_io_mkdirs made it. LF_EEXIST: dir holds a manifest already, which is left alone.
 * LF_EBUSY: a newer start of the stage has begun (fence.h), and nothing is published. */
int lf_artifact_publish(lf_artifact *a, const char *dir, lf_err *err);

/* Makes the artifact `from` available as `to` too. The files of `to` are hard links, or copies
 * where links are refused; its manifest is made last. So `to` stays whole whatever happens to
 * `from`, its removal included. sha256, when not NULL, is what the bytes of the manifest must hash
 * to. LF_EEXIST: `to` exists already. LF_ENOENT: the artifact `from` does not exist, or one of its
 * files is gone; then `to` does not exist either. */
int lf_artifact_take(const char *from, const char *to, const uint8_t sha256[LF_HASH_BYTES],
                     lf_err *err);
/* Computes the SHA-256 of the bytes of dir/manifest.json. LF_ENOENT: there is no such file. */
int lf_artifact_manifest_hash(uint8_t out[LF_HASH_BYTES], const char *dir, lf_err *err);

/* Reads and validates dir/manifest.json. kind NULL accepts any kind. The files themselves are not
 * looked at. LF_ENOENT: there is no manifest. */
int lf_artifact_load(lf_artifact *out, const char *dir, const char *kind, lf_err *err);

/* Finds the state of the artifact in dir. The reason for PURGED or BROKEN goes to err, which is
 * empty otherwise. The function fails only when the operating system reports something else than a
 * missing file, because then the state is unknown. */
int lf_artifact_state(enum lf_artifact_state *out, const char *dir, lf_err *err);

/* Checks that every listed file is there with its length. LF_ENOENT: a file is missing. LF_EFORMAT:
 * a file has another length. The message names the file. */
int lf_artifact_check_lengths(const lf_artifact *a, const char *dir, lf_err *err);
/* Checks lengths and tree hashes. `threads` threads read the files; 0 means all processors. */
int lf_artifact_check_hashes(const lf_artifact *a, const char *dir, int threads, lf_err *err);

/* Computes length and tree hash of n files below dir, with threads as above. */
typedef struct lf_artifact_hash_job {
    const char *path;              /* in, borrowed */
    int64_t bytes;                 /* out */
    uint8_t sha256[LF_HASH_BYTES]; /* out */
} lf_artifact_hash_job;
int lf_artifact_hash_files(const char *dir, lf_artifact_hash_job *jobs, size_t n, int threads,
                           lf_err *err);

/* Reverses lf_hash_hex. LF_EFORMAT: hex is not exactly 64 lower-case digits. */
int lf_artifact_parse_hex(uint8_t out[LF_HASH_BYTES], const char *hex, lf_err *err);

/* Returns the listed file with this path, borrowed, or NULL. */
const lf_artifact_file *lf_artifact_find(const lf_artifact *a, const char *path);

/* Computes the identity of the contents: a SHA-256 over the kind, then path, length and hash of
 * every file. meta is not part of it. */
int lf_artifact_id(const lf_artifact *a, uint8_t out[LF_HASH_BYTES], lf_err *err);

/* Opens a file of an artifact for reading. Paths and links that lead out of dir are refused.
 * Returns a descriptor, which the caller closes, or a negative lf_rc. */
int lf_artifact_open_file(const char *dir, const char *path, lf_err *err);

/* Deletes an artifact. The manifest goes first and the directory is fsynced; then the files and the
 * directory go. So a crash leaves the artifact absent and never in part. A missing directory is no
 * error. */
int lf_artifact_remove(const char *dir, lf_err *err);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The record of an output that is not finished, so that the next start need not make all of it
 * again. It is the text file DIR/.partial:
 *
 *     lf-partial-1 KEY    KEY (hex) stands for what decides every byte of the output: sources,
 *                         settings, layout
 *     3 5b41...           part 3 is written; 5b41... is the SHA-256 (or tree hash) of its bytes
 *
 * The record is not trusted: whoever takes a part over hashes it again. So lines need no fsync. A
 * line that is torn, or a part whose bytes never reached the disk, costs that part only.
 */
#ifndef LF_STORE_PARTIAL_H
#define LF_STORE_PARTIAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/base/hash.h"

#define LF_PARTIAL_FILE ".partial"

typedef struct lf_partial_part {
    bool have;
    uint8_t sha256[LF_HASH_BYTES];
} lf_partial_part;

/* What a writer gets to know of earlier starts that did not finish. */
typedef struct lf_resume {
    /* hex, stands for sources and settings; NULL: no record is kept, nothing is taken over */
    const char *key;
    /* where those starts wrote; a directory may be absent or have another key */
    const char *const *dirs;
    size_t n_dirs;
} lf_resume;

/* Finds the directory of r that has most parts under `key`, the later one on a tie, and sets
 * parts[n]. *dir is borrowed from r; it is NULL when no directory has any part. */
void lf_partial_find(const char **dir, lf_partial_part *parts, size_t n, const lf_resume *r,
                     const char *key);
/* Begins the record of dir with the parts that exist. *fd is for lf_partial_add; the caller closes
 * it. */
int lf_partial_begin(int *fd, const char *dir, const char *key, const lf_partial_part *parts,
                     size_t n, lf_err *err);
/* Adds a part to the record, from any thread. A line that cannot be written is no failure: the part
 * will be made again. */
void lf_partial_add(int fd, size_t part, const uint8_t sha256[LF_HASH_BYTES]);
/* Removes the record, as the output is complete. */
int lf_partial_end(const char *dir, lf_err *err);

/* Renames an unfinished output (with a record, without a manifest) in dir to DIR.left, so that dir
 * is free. *left is that name; the caller frees it. */
int lf_partial_set_aside(char **left, const char *dir, lf_err *err);
/* Makes a hard link `to`/name of the file `from`/name. false: the file is missing, or links are
 * refused.
 */
bool lf_partial_link(const char *from, const char *to, const char *name);

#endif

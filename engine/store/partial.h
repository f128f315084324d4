/* SPDX-License-Identifier: Apache-2.0
 *
 * What is in place of an output that was not finished, so that the next run need not make it again:
 * DIR/.partial, text.
 *
 *     lf-partial-1 KEY        KEY (hex) says what decides every byte of the output: sources,
 *                             settings, layout
 *     3 5b41...                part 3 was written, and this is the SHA-256 (or tree hash) of its
 *                              bytes
 *
 * Nothing in it is believed: whoever takes a part over hashes it again. So lines need no fsync, and
 * one that is torn, or whose bytes never reached the disk, costs that part only.
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

/* What a writer is told of earlier, unfinished runs. */
typedef struct lf_resume {
    /* hex, of the sources and settings; NULL: no progress is kept, nothing is taken over */
    const char *key;
    const char *const *dirs; /* where those runs wrote; any may be absent or of another key */
    size_t n_dirs;
} lf_resume;

/* The parts of the directory of r that has most of them under `key` (equal: the later); *dir is
 * borrowed from r, NULL when none has any. parts [n]. */
void lf_partial_find(const char **dir, lf_partial_part *parts, size_t n, const lf_resume *r,
                     const char *key);
/* Start the record of dir with the parts that are there; *fd is for lf_partial_add and close(). */
int lf_partial_begin(int *fd, const char *dir, const char *key, const lf_partial_part *parts,
                     size_t n, lf_err *err);
/* From any thread. A line that cannot be written is no failure: the part is made again. */
void lf_partial_add(int fd, size_t part, const uint8_t sha256[LF_HASH_BYTES]);
/* The output is complete: no record. */
int lf_partial_end(const char *dir, lf_err *err);

/* A left-over (with a record, without manifest) in `dir` becomes DIR.left, *left (owned); dir is
 * free then. */
int lf_partial_set_aside(char **left, const char *dir, lf_err *err);
/* Give name from one directory the same name in another as a second link. false: it is not there,
 * or links cannot be.
 */
bool lf_partial_link(const char *from, const char *to, const char *name);

#endif

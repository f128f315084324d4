/* SPDX-License-Identifier: Apache-2.0
 *
 * A new file written from front to back at the speed of the disk: bytes are put into one of a few
 * blocks; one thread writes full blocks and starts their way to the disk at once (so that the fsync
 * at the end has little left), another makes the tree hash of the file (base/hash.h) from the same
 * blocks. Memory: LF_SINK_BLOCKS * LF_SINK_BLOCK bytes, whatever the file's length. Where the hash
 * is slower than the disk, the hash is the limit.
 */
#ifndef LF_STORE_SINK_H
#define LF_STORE_SINK_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "engine/base/err.h"
#include "engine/base/hash.h"

#define LF_SINK_BLOCK  ((size_t)4 << 20)
#define LF_SINK_BLOCKS 6

typedef struct lf_sink lf_sink;

/* A new file at path (LF_EEXIST when there is one). */
int lf_sink_create(lf_sink **out, const char *path, mode_t mode, lf_err *err);
/* Append n bytes; they are copied. Waits while all blocks are busy. A failure of the threads is
 * told here or at the end. */
int lf_sink_put(lf_sink *k, const void *data, size_t n, lf_err *err);
/* The same without a copy: *room gets the place where the next bytes go, *n how many fit (at least
 * 1, at most LF_SINK_BLOCK); write there, then add as many as were written. */
int lf_sink_room(lf_sink *k, void **room, size_t *n, lf_err *err);
void lf_sink_add(lf_sink *k, size_t n);
/* Write and hash what is left, fsync, close. bytes, sha256: of the whole file. k is spent whatever
 * happens: on failure the file is removed. */
int lf_sink_finish(lf_sink *k, int64_t *bytes, uint8_t sha256[LF_HASH_BYTES], lf_err *err);
/* Give up: stop and remove the file. destroy(NULL) is legal. */
void lf_sink_destroy(lf_sink *k);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes a new file from front to back at the speed of the disk. The caller fills blocks. One
 * thread writes full blocks and starts their transfer to the disk at once, so that the fsync at the
 * end has little to do. Another thread computes the tree hash of the file (base/hash.h) from the
 * same blocks. A sink takes LF_SINK_BLOCKS * LF_SINK_BLOCK bytes of memory, whatever the length of
 * the file. The slower of disk and hash limits the speed.
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

/* Creates a file at path. LF_EEXIST: path exists. */
int lf_sink_create(lf_sink **out, const char *path, mode_t mode, lf_err *err);
/* Appends a copy of n bytes. Waits while all blocks are busy. A failure of the threads is returned
 * here or by lf_sink_finish. */
int lf_sink_put(lf_sink *k, const void *data, size_t n, lf_err *err);
/* Appends without a copy. lf_sink_room sets *room to the place of the next bytes and *n to how many
 * fit (1 to LF_SINK_BLOCK). The caller writes bytes there and then adds as many with
 * lf_sink_add. */
int lf_sink_room(lf_sink *k, void **room, size_t *n, lf_err *err);
void lf_sink_add(lf_sink *k, size_t n);
/* Writes and hashes what is left, fsyncs and closes. *bytes and sha256 are those of the whole file.
 * k is freed in every case; on failure the file is removed. */
int lf_sink_finish(lf_sink *k, int64_t *bytes, uint8_t sha256[LF_HASH_BYTES], lf_err *err);
/* Stops, removes the file and frees k. k may be NULL. */
void lf_sink_destroy(lf_sink *k);

#endif

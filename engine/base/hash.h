/* SPDX-License-Identifier: Apache-2.0
 *
 * SHA-256 (libcrypto) and the tree hash of large byte ranges.
 *
 * Tree hash: leaf_i = SHA-256(bytes [64 MiB * i, ...)); root = SHA-256("lf-tree-1" || u64le length
 * || leaf_0 || ...). The leaves are independent of each other. So writers hash each range while it
 * is still in memory, and readers use threads.
 */
#ifndef LF_BASE_HASH_H
#define LF_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"

#define LF_HASH_BYTES 32
#define LF_HASH_HEX   65 /* with NUL */
#define LF_HASH_LEAF  ((size_t)64 << 20)

typedef struct lf_hash lf_hash; /* streaming SHA-256 */
lf_hash *lf_hash_create(lf_err *err);
void lf_hash_destroy(lf_hash *h);
void lf_hash_update(lf_hash *h, const void *data, size_t n);
void lf_hash_final(lf_hash *h, uint8_t out[LF_HASH_BYTES]); /* h starts afresh */
void lf_hash_hex(char out[LF_HASH_HEX], const uint8_t digest[LF_HASH_BYTES]);
int lf_hash_buf(uint8_t out[LF_HASH_BYTES], const void *data, size_t n, lf_err *err);

typedef struct lf_tree_hash lf_tree_hash; /* streaming tree hash, bytes in order */
lf_tree_hash *lf_tree_hash_create(lf_err *err);
void lf_tree_hash_destroy(lf_tree_hash *h);
int lf_tree_hash_update(lf_tree_hash *h, const void *data, size_t n, lf_err *err);
int lf_tree_hash_final(lf_tree_hash *h, uint8_t out[LF_HASH_BYTES], lf_err *err);
/* Computes the root from leaves that the caller has hashed: n_leaves digests in order, contiguous.
 * 0 bytes have no leaf. */
int lf_tree_hash_root(uint8_t out[LF_HASH_BYTES], uint64_t bytes, const uint8_t *leaves,
                      size_t n_leaves, lf_err *err);
/* Hashes the file `path`. OpenMP threads read the leaves. bytes may be NULL. */
int lf_tree_hash_file(uint8_t out[LF_HASH_BYTES], int64_t *bytes, const char *path, lf_err *err);

#endif

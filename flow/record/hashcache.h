/* SPDX-License-Identifier: Apache-2.0
 *
 * PROJECT/.loong/hashcache.json: hashes of outside files by path. It saves time only: one that
 * cannot be read is empty, and one that cannot be written is left as it is.
 */
#ifndef LF_FLOW_HASHCACHE_H
#define LF_FLOW_HASHCACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/base/hash.h"

typedef struct lf_hashcache lf_hashcache;

/* What a file was when it was hashed. */
typedef struct lf_hashed {
    int64_t size, mtime_ns, ctime_ns, inode;
    double at; /* when it was hashed, seconds since the epoch */
    char sha256[LF_HASH_HEX];
} lf_hashed;

/* path NULL, or no such file: an empty one. NULL with err. */
lf_hashcache *lf_hashcache_load(const char *path, lf_err *err);
void lf_hashcache_free(lf_hashcache *c); /* NULL is legal */
/* false: it does not know this file. */
bool lf_hashcache_find(lf_hashed *out, const lf_hashcache *c, const char *file);
int lf_hashcache_put(lf_hashcache *c, const char *file, const lf_hashed *h, lf_err *err);
/* Write it again when something was put into it. */
void lf_hashcache_save(const lf_hashcache *c, const char *path);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Checked sizes, heap blocks that report failure, an arena for objects made at set-up, and page
 * blocks for planned memory. A training step calls none of these functions.
 */
#ifndef LF_BASE_MEM_H
#define LF_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"

/* *out = a * b or a + b; true on success, false (and *out untouched) on overflow. */
bool lf_size_mul(size_t *out, size_t a, size_t b);
bool lf_size_add(size_t *out, size_t a, size_t b);

/* These return a heap block of n * size bytes, which the caller frees; lf_calloc zeroes it. NULL
 * with err set: the size overflows, or memory is exhausted. n * size == 0 gives a valid pointer. */
void *lf_calloc(size_t n, size_t size, lf_err *err);
void *lf_malloc(size_t n, size_t size, lf_err *err);
/* Changes the block *p to n * size bytes. On failure *p is unchanged. */
int lf_realloc(void *p_ptr, size_t n, size_t size, lf_err *err);
/* Makes room for one more element. *p_ptr holds *cap elements of `size` bytes, of which `used` are
 * in use. A full block doubles. */
int lf_grow(void *p_ptr, size_t *cap, size_t used, size_t size, lf_err *err);
char *lf_strdup(const char *s, lf_err *err);
char *lf_strndup(const char *s, size_t n, lf_err *err);

/* Blocks of an arena live until the arena is destroyed. They are zeroed and aligned to 16 bytes.
 * lf_arena_destroy takes NULL too. */
typedef struct lf_arena lf_arena;
lf_arena *lf_arena_create(lf_err *err);
void lf_arena_destroy(lf_arena *a);
void *lf_arena_alloc(lf_arena *a, size_t n, size_t size, lf_err *err);
char *lf_arena_strdup(lf_arena *a, const char *s, lf_err *err);
char *lf_arena_printf(lf_arena *a, lf_err *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns a block of anonymous zero pages, aligned to 2 MiB. Huge pages are requested with madvise
 * where the system offers them, for each 2 MiB that the block fills. The caller gives the block
 * back with lf_pages_free and the same size. */
void *lf_pages_alloc(size_t bytes, lf_err *err);
void lf_pages_free(void *p, size_t bytes);

#endif

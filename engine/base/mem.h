/* SPDX-License-Identifier: Apache-2.0
 *
 * Checked sizes, heap blocks that report failure, a bump arena for set-up objects and page blocks
 * for planned memory. Nothing here is called inside a training step.
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

/* Heap block of n * size bytes (zeroed by calloc); NULL with err set on overflow or exhaustion. n *
 * size == 0 gives a valid pointer. Returns owned: free() it. */
void *lf_calloc(size_t n, size_t size, lf_err *err);
void *lf_malloc(size_t n, size_t size, lf_err *err);
/* *p grows to n * size bytes; on failure *p is unchanged. */
int lf_realloc(void *p_ptr, size_t n, size_t size, lf_err *err);
/* Make room for one more element: *p_ptr holds *cap elements of `size` bytes, `used` of them in
 * use. Doubles. */
int lf_grow(void *p_ptr, size_t *cap, size_t used, size_t size, lf_err *err);
char *lf_strdup(const char *s, lf_err *err);
char *lf_strndup(const char *s, size_t n, lf_err *err);

/* Arena: blocks live until the arena is destroyed. 16-byte aligned, zeroed. destroy(NULL) is
 * legal. */
typedef struct lf_arena lf_arena;
lf_arena *lf_arena_create(lf_err *err);
void lf_arena_destroy(lf_arena *a);
void *lf_arena_alloc(lf_arena *a, size_t n, size_t size, lf_err *err);
char *lf_arena_strdup(lf_arena *a, const char *s, lf_err *err);
char *lf_arena_printf(lf_arena *a, lf_err *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Page block: anonymous zero pages, 2 MiB aligned, huge pages asked for (madvise) where the system
 * offers them. Returns owned; give back with lf_pages_free and the same size. */
void *lf_pages_alloc(size_t bytes, lf_err *err);
void lf_pages_free(void *p, size_t bytes);

#endif

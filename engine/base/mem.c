/* SPDX-License-Identifier: Apache-2.0
 *
 * Checked sizes, heap blocks, the arena and page blocks.
 */
#include "engine/base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ARENA_ALIGN = 16, ARENA_BLOCK = 32 * 1024 };
#define HUGE_PAGE    ((size_t)2 << 20)
#define LARGEST_PAGE ((size_t)64 << 10) /* of the pages that systems have ordinarily */

bool lf_size_mul(size_t *out, size_t a, size_t b)
{
    size_t r;
    if (__builtin_mul_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

bool lf_size_add(size_t *out, size_t a, size_t b)
{
    size_t r;
    if (__builtin_add_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

static int checked_size(size_t *out, size_t n, size_t size, lf_err *err)
{
    /* Above PTRDIFF_MAX pointer differences are undefined, so such a size is an overflow as
     * well. */
    if (!lf_size_mul(out, n, size) || *out > (size_t)PTRDIFF_MAX)
        return lf_fail(err, LF_ENOMEM, "size overflow: %zu elements of %zu bytes", n, size);
    return 0;
}

void *lf_calloc(size_t n, size_t size, lf_err *err)
{
    size_t bytes;
    if (checked_size(&bytes, n, size, err) < 0)
        return NULL;
    void *p = calloc(1, bytes ? bytes : 1);
    if (!p)
        lf_fail(err, LF_ENOMEM, "no memory for %zu bytes", bytes);
    return p;
}

void *lf_malloc(size_t n, size_t size, lf_err *err)
{
    size_t bytes;
    if (checked_size(&bytes, n, size, err) < 0)
        return NULL;
    void *p = malloc(bytes ? bytes : 1);
    if (!p)
        lf_fail(err, LF_ENOMEM, "no memory for %zu bytes", bytes);
    return p;
}

int lf_realloc(void *p_ptr, size_t n, size_t size, lf_err *err)
{
    size_t bytes;
    void *old, *p;
    if (checked_size(&bytes, n, size, err) < 0)
        return LF_ENOMEM;
    memcpy(&old, p_ptr,
           sizeof old); /* p_ptr is a T **: copied, because T * and void * may not alias */
    p = realloc(old, bytes ? bytes : 1);
    if (!p)
        return lf_fail(err, LF_ENOMEM, "no memory for %zu bytes", bytes);
    memcpy(p_ptr, &p, sizeof p);
    return 0;
}

int lf_grow(void *p_ptr, size_t *cap, size_t used, size_t size, lf_err *err)
{
    if (used < *cap)
        return 0;
    size_t want = *cap < 8 ? 8 : *cap, next;
    if (!lf_size_mul(&next, want, *cap < 8 ? 1 : 2))
        return lf_fail(err, LF_ENOMEM, "size overflow: %zu elements of %zu bytes", used, size);
    if (next <= used && !lf_size_add(&next, used, 1))
        return lf_fail(err, LF_ENOMEM, "size overflow: %zu elements of %zu bytes", used, size);
    int rc = lf_realloc(p_ptr, next, size, err);
    if (rc == 0)
        *cap = next;
    return rc;
}

char *lf_strndup(const char *s, size_t n, lf_err *err)
{
    size_t len = strnlen(s, n), bytes;
    if (!lf_size_add(&bytes, len, 1)) {
        lf_fail(err, LF_ENOMEM, "size overflow: string of %zu bytes", len);
        return NULL;
    }
    char *p = lf_malloc(bytes, 1, err);
    if (p) {
        memcpy(p, s, len);
        p[len] = '\0';
    }
    return p;
}

char *lf_strdup(const char *s, lf_err *err)
{
    return lf_strndup(s, strlen(s), err);
}

/* Blocks form a list; the newest has the room. A large request gets a block of its own behind the
 * newest, so that the room left in the newest is not lost. */
struct arena_block {
    struct arena_block *next;
    size_t used, cap;
    _Alignas(ARENA_ALIGN) unsigned char data[];
};

struct lf_arena {
    struct arena_block *head;
};

lf_arena *lf_arena_create(lf_err *err)
{
    return lf_calloc(1, sizeof(lf_arena), err);
}

void lf_arena_destroy(lf_arena *a)
{
    if (!a)
        return;
    int saved = errno;
    for (struct arena_block *b = a->head, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    free(a);
    errno = saved;
}

void *lf_arena_alloc(lf_arena *a, size_t n, size_t size, lf_err *err)
{
    size_t bytes, need, total;
    if (checked_size(&bytes, n, size, err) < 0)
        return NULL;
    if (!lf_size_add(&need, bytes, ARENA_ALIGN - 1)) {
        lf_fail(err, LF_ENOMEM, "size overflow: %zu elements of %zu bytes", n, size);
        return NULL;
    }
    need = bytes ? need & ~(size_t)(ARENA_ALIGN - 1) : ARENA_ALIGN;
    struct arena_block *b = a->head;
    if (!b || b->cap - b->used < need) {
        size_t cap = need > ARENA_BLOCK / 4 ? need : ARENA_BLOCK;
        if (!lf_size_add(&total, cap, sizeof *b)) {
            lf_fail(err, LF_ENOMEM, "size overflow: %zu elements of %zu bytes", n, size);
            return NULL;
        }
        b = lf_calloc(1, total, err);
        if (!b)
            return NULL;
        b->cap = cap;
        struct arena_block **at = cap == ARENA_BLOCK || !a->head ? &a->head : &a->head->next;
        b->next = *at;
        *at = b;
    }
    void *p = b->data + b->used;
    b->used += need;
    return p;
}

char *lf_arena_strdup(lf_arena *a, const char *s, lf_err *err)
{
    size_t n = strlen(s) + 1;
    char *p = lf_arena_alloc(a, n, 1, err);
    return p ? memcpy(p, s, n) : NULL;
}

char *lf_arena_printf(lf_arena *a, lf_err *err, const char *fmt, ...)
{
    va_list ap, ap2;
    va_start(ap, fmt);
    va_copy(ap2, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *p = NULL;
    if (n < 0)
        lf_fail(err, LF_EINVAL, "cannot format a string");
    else if ((p = lf_arena_alloc(a, (size_t)n + 1, 1, err)))
        vsnprintf(p, (size_t)n + 1, fmt, ap2);
    va_end(ap2);
    return p;
}

void *lf_pages_alloc(size_t bytes, lf_err *err)
{
    size_t rounded, mapped;
    if (bytes == 0)
        bytes = 1;
    if (!lf_size_add(&rounded, bytes, LARGEST_PAGE - 1) ||
        !lf_size_add(&mapped, rounded & ~(LARGEST_PAGE - 1), HUGE_PAGE)) {
        lf_fail(err, LF_ENOMEM, "size overflow: %zu bytes of pages", bytes);
        return NULL;
    }
    rounded &= ~(LARGEST_PAGE - 1);
    unsigned char *p =
        mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        lf_fail(err, LF_ENOMEM, "no memory for %zu bytes of pages", bytes);
        return NULL;
    }
    /* Keep the aligned middle. */
    size_t lead = (HUGE_PAGE - ((uintptr_t)p & (HUGE_PAGE - 1))) & (HUGE_PAGE - 1);
    if (lead)
        munmap(p, lead);
    if (mapped - lead > rounded)
        munmap(p + lead + rounded, mapped - lead - rounded);
    p += lead;
#ifdef MADV_HUGEPAGE
    /* What is left behind the last whole one takes ordinary pages: the system clears a huge page
     * when its first byte is touched, which is most of what a small model would cost. Advice: a
     * kernel without huge pages answers EINVAL, which costs only speed. */
    if (bytes >= HUGE_PAGE)
        madvise(p, bytes & ~(HUGE_PAGE - 1), MADV_HUGEPAGE);
#endif
    return p;
}

void lf_pages_free(void *p, size_t bytes)
{
    if (!p)
        return;
    int saved = errno;
    munmap(p, ((bytes ? bytes : 1) + LARGEST_PAGE - 1) & ~(LARGEST_PAGE - 1));
    errno = saved;
}

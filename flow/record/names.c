/* SPDX-License-Identifier: Apache-2.0
 *
 * Places by name: open addressing, linear probing.
 */
#include "config.h"

#include "flow/record/names.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"

#define FIRST_CAP 64

struct lf_name {
    const char *a, *b; /* a is NULL in an empty entry */
    uint64_t hash;
    size_t place;
};

/* FNV-1a; the byte between the two texts is in neither of them. */
static uint64_t hash_of(const char *a, const char *b)
{
    uint64_t h = 14695981039346656037u;
    for (const char *p = a; *p != '\0'; p++)
        h = (h ^ (unsigned char)*p) * 1099511628211u;
    h *= 1099511628211u;
    for (const char *p = b; *p != '\0'; p++)
        h = (h ^ (unsigned char)*p) * 1099511628211u;
    return h ^ (h >> 32);
}

/* The entry of a name, or the empty one where it belongs. */
static struct lf_name *entry_of(const lf_names *t, uint64_t hash, const char *a, const char *b)
{
    size_t i = (size_t)hash & (t->cap - 1);
    for (;; i = (i + 1) & (t->cap - 1)) {
        struct lf_name *e = &t->entries[i];
        if (e->a == NULL || (e->hash == hash && strcmp(e->a, a) == 0 && strcmp(e->b, b) == 0))
            return e;
    }
}

static int grow(lf_names *t, lf_err *err)
{
    lf_names bigger = {.entries = NULL, .n = t->n, .cap = t->cap == 0 ? FIRST_CAP : 2 * t->cap};
    bigger.entries = lf_calloc(bigger.cap, sizeof *bigger.entries, err);
    if (bigger.entries == NULL)
        return LF_ENOMEM;
    for (size_t i = 0; i < t->cap; i++)
        if (t->entries[i].a != NULL)
            *entry_of(&bigger, t->entries[i].hash, t->entries[i].a, t->entries[i].b) =
                t->entries[i];
    free(t->entries);
    *t = bigger;
    return 0;
}

int lf_names_put(lf_names *t, const char *a, const char *b, size_t place, lf_err *err)
{
    int rc = 2 * (t->n + 1) > t->cap ? grow(t, err) : 0;
    if (rc < 0)
        return rc;
    uint64_t hash = hash_of(a, b);
    struct lf_name *e = entry_of(t, hash, a, b);
    if (e->a == NULL) {
        *e = (struct lf_name){.a = a, .b = b, .hash = hash, .place = place};
        t->n++;
    }
    return 0;
}

size_t lf_names_find(const lf_names *t, const char *a, const char *b)
{
    if (t->n == 0)
        return LF_NAMES_NONE;
    const struct lf_name *e = entry_of(t, hash_of(a, b), a, b);
    return e->a != NULL ? e->place : LF_NAMES_NONE;
}

void lf_names_fini(lf_names *t)
{
    free(t->entries);
    memset(t, 0, sizeof *t);
}

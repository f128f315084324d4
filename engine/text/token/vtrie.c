/* SPDX-License-Identifier: Apache-2.0
 *
 * See vtrie.h.
 */
#include "config.h"

#include "engine/text/token/vtrie.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"

static void put_edge(lf_vtrie *t, uint32_t key, uint32_t to)
{
    uint32_t i = (key * 0x9E3779B1u) >> 7 & t->mask;
    while (t->edges[i].key)
        i = (i + 1) & t->mask;
    t->edges[i].key = key;
    t->edges[i].to = to;
}

/* Edges at most half of the slots: one edge for each node but the root. */
static int grow(lf_vtrie *t, lf_err *err)
{
    uint32_t cap = t->cap ? t->cap * 2 : 256;
    if (t->n >= LF_VTRIE_NODES_MAX)
        return lf_fail(err, LF_EFORMAT, "the vocabulary's texts need more than %u trie nodes",
                       LF_VTRIE_NODES_MAX);
    struct lf_vtrie_edge *old = t->edges, *more = lf_calloc((size_t)cap * 2, sizeof(*more), err);
    int rc = more ? lf_realloc(&t->value, cap, sizeof(*t->value), err) : LF_ENOMEM;
    if (rc != 0) {
        free(more);
        return rc;
    }
    size_t n_old = old ? (size_t)t->mask + 1 : 0;
    t->edges = more;
    t->mask = cap * 2 - 1;
    t->cap = cap;
    for (size_t i = 0; i < n_old; i++)
        if (old[i].key)
            put_edge(t, old[i].key, old[i].to);
    free(old);
    return 0;
}

int lf_vtrie_add(lf_vtrie *t, const uint8_t *p, size_t len, int32_t value, lf_err *err)
{
    uint32_t node = 0;
    if (t->n == 0) {
        int rc = grow(t, err);
        if (rc != 0)
            return rc;
        t->value[t->n++] = -1;
    }
    for (size_t i = 0; i < len; i++) {
        uint32_t next = lf_vtrie_step(t, node, p[i]);
        if (next == 0) {
            int rc = t->n == t->cap ? grow(t, err) : 0;
            if (rc != 0)
                return rc;
            next = t->n++;
            t->value[next] = -1;
            put_edge(t, (node << 8 | p[i]) + 1, next);
        }
        node = next;
    }
    t->value[node] = value;
    return 0;
}

void lf_vtrie_fini(lf_vtrie *t)
{
    free(t->edges);
    free(t->value);
    memset(t, 0, sizeof(*t));
}

int32_t lf_vtrie_find(const lf_vtrie *t, const uint8_t *p, size_t len)
{
    uint32_t node = 0;
    for (size_t i = 0; i < len; i++)
        if (t->n == 0 || (node = lf_vtrie_step(t, node, p[i])) == 0)
            return -1;
    return t->n && len ? t->value[node] : -1;
}

size_t lf_vtrie_longest(const lf_vtrie *t, const uint8_t *p, size_t len, int32_t *value)
{
    uint32_t node = 0;
    size_t best = 0;
    for (size_t i = 0; i < len && t->n && (node = lf_vtrie_step(t, node, p[i])) != 0; i++) {
        if (t->value[node] >= 0) {
            best = i + 1;
            *value = t->value[node];
        }
    }
    return best;
}

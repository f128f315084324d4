/* SPDX-License-Identifier: Apache-2.0
 *
 * A trie over bytes for vocabularies (Unigram, WordPiece, user-defined symbols). Nodes are numbers,
 * and node 0 is the root. Edges live in one open-addressing table of 8-byte slots, so a step is
 * usually one probe.
 */
#ifndef LF_TEXT_VTRIE_H
#define LF_TEXT_VTRIE_H

#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"

#define LF_VTRIE_NODES_MAX ((uint32_t)1 << 24)

typedef struct lf_vtrie {
    struct lf_vtrie_edge {
        uint32_t key; /* node << 8 | byte, plus 1; 0: free */
        uint32_t to;
    } * edges; /* owned, power of two */
    uint32_t mask;
    int32_t *value; /* owned, [cap], -1: no entry ends here */
    uint32_t n, cap;
} lf_vtrie;

/* Zero-initialise the trie, add entries, call fini. A value is >= 0; adding the same bytes again
 * replaces it. */
int lf_vtrie_add(lf_vtrie *t, const uint8_t *p, size_t len, int32_t value, lf_err *err);
void lf_vtrie_fini(lf_vtrie *t);

/* Returns the node behind byte b, or 0 when there is none, as no edge leads to the root. The trie
 * must not be empty. */
static inline uint32_t lf_vtrie_step(const lf_vtrie *t, uint32_t node, uint8_t b)
{
    uint32_t key = (node << 8 | b) + 1;
    for (uint32_t i = (key * 0x9E3779B1u) >> 7 & t->mask;; i = (i + 1) & t->mask) {
        if (t->edges[i].key == key)
            return t->edges[i].to;
        if (t->edges[i].key == 0)
            return 0;
    }
}

/* Returns the value of exactly these bytes, or -1. */
int32_t lf_vtrie_find(const lf_vtrie *t, const uint8_t *p, size_t len);
/* Finds the longest entry that p begins with. Returns its length (0: none) and its value. */
size_t lf_vtrie_longest(const lf_vtrie *t, const uint8_t *p, size_t len, int32_t *value);

#endif

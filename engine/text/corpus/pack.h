/* SPDX-License-Identifier: Apache-2.0
 *
 * Packing index: which pieces of which documents make up each training sequence of T tokens. A pure
 * function of the document lengths and four settings, so it is built at start and a new T needs no
 * new tokenization.
 *
 *   concat   documents one after the other, cut where a sequence ends. The rest of a document
 *            begins the next sequence as a segment of its own: positions restart, and attention
 *            does not look back
 *   bfd      best fit decreasing: documents of at most T tokens stay whole, longer ones are cut
 *            into pieces of T
 *
 * A sequence holds at most max_segs segments, counting the padding (if any) as one. Empty documents
 * are skipped. Every token of every document is in exactly one sequence.
 */
#ifndef LF_TEXT_PACK_H
#define LF_TEXT_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"

enum lf_pack_policy { LF_PACK_CONCAT, LF_PACK_BFD };

typedef struct lf_pack_seg {
    uint64_t doc;
    uint64_t first; /* token of the document */
    uint32_t len;
    bool last; /* ends its document: its last token has no target */
} lf_pack_seg;

typedef struct lf_pack lf_pack;

/* Length of document d, for building: a callback, so that lengths need not be copied. */
typedef uint64_t (*lf_pack_len_fn)(const void *user, uint64_t doc);

struct lf_pack_docs {
    uint64_t n;
    lf_pack_len_fn len;
    const void *user; /* of len; borrowed while the index lives */
};

/* T: 2 .. 2^24; max_segs: 2 .. T. */
int lf_pack_build(lf_pack **out, enum lf_pack_policy policy, uint32_t T, uint32_t max_segs,
                  const struct lf_pack_docs *docs, lf_err *err);
void lf_pack_destroy(lf_pack *p);
uint64_t lf_pack_count(const lf_pack *p); /* sequences */
uint32_t lf_pack_max_segs(const lf_pack *p);
size_t lf_pack_bytes(const lf_pack *p); /* memory held */
/* At most so many bytes will an index over so many documents and tokens hold. */
size_t lf_pack_bytes_most(enum lf_pack_policy policy, uint32_t T, uint32_t max_segs, uint64_t docs,
                          uint64_t tokens);
/* The segments of sequence i in order into segs[max_segs]; returns how many (padding is not
 * listed). No allocation. The callback given at build time is called again, so its data must live
 * as long. */
uint32_t lf_pack_get(const lf_pack *p, uint64_t i, lf_pack_seg *segs);
/* Tokens of sequence i without padding; *trained (may be NULL): its targets that are trained, which
 * is every token but the last of each document. */
uint32_t lf_pack_tokens(const lf_pack *p, uint64_t i, uint32_t *trained);

#endif

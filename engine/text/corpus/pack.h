/* SPDX-License-Identifier: Apache-2.0
 *
 * The packing index: the segments of documents that make up each training sequence of T tokens. It
 * is a pure function of the lengths of the documents and four settings. So it is built at start,
 * and a new T needs no new tokenization.
 *
 *   concat   documents one after the other, cut where a sequence ends. The rest of a document
 *            begins the next sequence as a segment of its own: positions restart, and attention
 *            does not reach the part before
 *   bfd      best fit decreasing: documents of at most T tokens stay whole, longer ones are cut
 *            into segments of T
 *   ffd      first fit decreasing over several axes, of which tokens are the first: every document
 *            stays whole and goes into the first sequence that has room for it on each axis, those
 *            with the largest share of a sequence on any axis first. A document that has no tokens,
 *            or that no sequence holds, is left out
 *
 * A sequence holds at most max_segs segments, counting the padding (if any) as one. Empty documents
 * are skipped. Every token of every document that is not left out is in exactly one sequence.
 */
#ifndef LF_TEXT_PACK_H
#define LF_TEXT_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"

enum lf_pack_policy { LF_PACK_CONCAT, LF_PACK_BFD, LF_PACK_FFD };
/* ffd: axes besides tokens */
enum { LF_PACK_AXES = 2 };

typedef struct lf_pack_seg {
    uint64_t doc;
    uint64_t first; /* token of the document */
    uint32_t len;
    bool last; /* ends its document: its last token has no target */
} lf_pack_seg;

typedef struct lf_pack lf_pack;

/* Returns the length of document d. It is a callback so that lengths need not be copied. */
typedef uint64_t (*lf_pack_len_fn)(const void *user, uint64_t doc);

struct lf_pack_docs {
    uint64_t n;
    lf_pack_len_fn len;
    const void *user; /* of len; borrowed while the index lives */
    /* ffd: what a document weighs on the other axes, and how much a sequence holds of each */
    void (*weigh)(const void *user, uint64_t doc, uint64_t weight[LF_PACK_AXES]);
    uint32_t most[LF_PACK_AXES];
};

/* T: 2 .. 2^24; max_segs: 2 .. T. */
int lf_pack_build(lf_pack **out, enum lf_pack_policy policy, uint32_t T, uint32_t max_segs,
                  const struct lf_pack_docs *docs, lf_err *err);
void lf_pack_destroy(lf_pack *p);
uint64_t lf_pack_count(const lf_pack *p); /* sequences */
uint32_t lf_pack_max_segs(const lf_pack *p);
size_t lf_pack_bytes(const lf_pack *p); /* memory held */
/* Returns the most bytes that an index over that number of documents and tokens holds. */
size_t lf_pack_bytes_most(enum lf_pack_policy policy, uint32_t T, uint32_t max_segs, uint64_t docs,
                          uint64_t tokens);
/* Writes the segments of sequence i in order to segs[max_segs] and returns their number; padding is
 * not among them. It does not allocate. It calls the callback of the build again, so the callback's
 * data must live as long as the index. */
uint32_t lf_pack_get(const lf_pack *p, uint64_t i, lf_pack_seg *segs);
/* Returns the tokens of sequence i without padding. *trained (may be NULL) becomes the number of
 * its trained tokens, which is every token but the last of each document. */
uint32_t lf_pack_tokens(const lf_pack *p, uint64_t i, uint32_t *trained);

#endif

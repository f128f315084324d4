/* SPDX-License-Identifier: Apache-2.0
 *
 * The representation of the packing index, for pack.c (concat), pack_bfd.c and pack_ffd.c.
 */
#ifndef LF_TEXT_PACK_PRIV_H
#define LF_TEXT_PACK_PRIV_H

#include "engine/text/corpus/pack.h"

/* concat: the place where a sequence begins. */
struct lf_pack_start {
    uint64_t doc, first;
};

/* bfd, ffd: piece k of a document is its tokens [k * T, (k + 1) * T). */
struct lf_pack_item {
    uint64_t doc;
    uint32_t piece, len;
};

struct lf_pack {
    enum lf_pack_policy policy;
    uint32_t T, max_segs;
    uint64_t n_docs, n; /* n: sequences */
    lf_pack_len_fn len;
    const void *user;
    struct lf_pack_start *starts; /* concat [n] */
    struct lf_pack_item *items;   /* bfd, ffd: sequence by sequence */
    uint64_t *first_item;         /* bfd, ffd [n + 1] */
};

int lf_pack_build_bfd(lf_pack *p, lf_err *err);
int lf_pack_build_ffd(lf_pack *p, const struct lf_pack_docs *docs, lf_err *err);

#endif

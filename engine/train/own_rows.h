/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of a micro-batch that ranks of the context axis divide (graph/layout.h). Every rank knows
 * all of the micro-batch, and each gives a graph its own rows: successive ones, or where keys are
 * gathered blocks, which are dealt anew for each micro-batch (graph/deal.c). Outputs of all rows
 * come together again in their order.
 */
#ifndef LF_TRAIN_OWN_ROWS_H
#define LF_TRAIN_OWN_ROWS_H

#include "engine/base/mem.h"
#include "engine/comm/comm.h"
#include "engine/graph/exec.h"
#include "engine/graph/layout.h"
#include "engine/model/sight.h"

struct lf_own_rows {
    const struct lf_layout *layout; /* borrowed */
    lf_comm *comm;                  /* of the context axis; borrowed */
    int64_t all, own;               /* rows of a micro-batch, and this rank's */
    int64_t n_docs;
    bool causal;     /* a row sees those before it, else its whole document */
    int32_t *row;    /* [own] their places in the micro-batch; NULL: ranks do not divide rows */
    int32_t *blocks; /* of lf_context_deal, where keys are gathered; else NULL */
    char *buf;       /* [own, `in`] */
    char *gathered;  /* [all, `out`] by rank; NULL: no outputs are read */
    size_t *part;    /* [ranks] bytes of each */
};

/* Takes memory of `a` for inputs of up to `in` bytes a row, and outputs of up to `out`; 0: none are
 * read. Members up to causal are set. Where one rank has all rows it takes none. */
int lf_own_rows_open(struct lf_own_rows *r, lf_arena *a, size_t in, size_t out, lf_err *err);
/* Finds which rows are this rank's, in row and blocks. cu_seqlens: [n_docs + 1] of the micro-batch.
 * LF_ENOMEM. */
int lf_own_rows_find(const struct lf_own_rows *r, const int32_t *cu_seqlens, lf_err *err);
/* These rows, of `each` bytes, of `all`; valid until the next call. */
const void *lf_own_rows_of(const struct lf_own_rows *r, const void *all, size_t each);

/* An input or an output of a chain. */
struct lf_row_value {
    lf_exec *ex;
    int chain, slot;
    const char *name;
    size_t each; /* bytes of a row */
};
/* Writes this rank's rows of `all` to an input. Errors of lf_exec_write. */
int lf_own_rows_write(const struct lf_own_rows *r, const struct lf_row_value *v, const void *all,
                      lf_err *err);
/* Writes where blocks are to a slot of a chain, where keys are gathered. */
int lf_own_rows_write_blocks(const struct lf_own_rows *r, lf_exec *ex, int chain, int slot,
                             lf_err *err);
/* The pictures of a micro-batch, whose features each rank has, and puts into its own rows. */
struct lf_own_sight {
    lf_exec *ex;
    int chain, slot;
    lf_sight *sight;       /* filled from the micro-batch */
    const int32_t *tokens; /* [all] -1 where a picture's row goes */
    bool inner; /* of a chunk that is not the first, which takes no tokens and pictures */
};
/* Writes them, this rank's tokens, and the places and runs of its rows. Errors of lf_exec_write. */
int lf_own_rows_write_sight(const struct lf_own_rows *r, const struct lf_own_sight *v, lf_err *err);
/* Reads an output of all rows in their order. Collective: a rank that has failed (rc), or has no
 * memory for them (dst NULL), meets the others. Returns rc, LF_ENOMEM, errors of lf_exec_read,
 * LF_ECOMM. */
int lf_own_rows_read(const struct lf_own_rows *r, const struct lf_row_value *v, void *dst, int rc,
                     lf_err *err);

#endif

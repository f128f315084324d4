/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of pg_model.c and pg_gen.c. */
#ifndef LF_POST_PG_MODEL_PRIV_H
#define LF_POST_PG_MODEL_PRIV_H

#include "engine/post/pg_model.h"

#define LF_PG_MAX_BUCKETS 24
#define LF_PG_ERA_PACKED (1u << LF_PG_MAX_BUCKETS)

struct lf_pg_model {
    lf_model_config mc;
    struct lf_pg_model_spec s;
    lf_decoder *dec;
    lf_pstore *ps;
    lf_plan *plan;
    lf_back *back; /* borrowed */
    lf_exec *ex;
    /* packed */
    int chain;
    int64_t docs;
    int32_t *tokens, *targets, *positions, *cu;
    float *lp;  /* [3, rows]: log-probabilities, entropies, scores */
    float *dlp; /* [3, rows]: their gradients */
    /* generation */
    int n_buckets, bucket_chain[LF_PG_MAX_BUCKETS];
    int64_t bucket_rows[LF_PG_MAX_BUCKETS], bucket_select[LF_PG_MAX_BUCKETS];
    int64_t n_pages, max_pages;
    int32_t *row_tok, *row_pos, *row_seq, *select;
    float *lse;
};

int lf_pg_gen_plan(lf_pg_model *m, lf_err *err);

#endif

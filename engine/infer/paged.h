/* SPDX-License-Identifier: Apache-2.0
 *
 * Generation in anybody's plan: one segment per bucket of rows (1, 2, 4, ... max_rows) over one
 * paged cache, and the step function of gen.h over them; a step takes the smallest bucket that
 * holds its rows. Weights are the plan's, as they are when a step runs.
 *
 * Logits come back multiplied by 1/temperature, with their logsumexp: a draw from them as they are
 * is a draw at the temperature, and logit - lse has the bits of the training graph's
 * log-probability at it (lf_logp).
 */
#ifndef LF_INFER_PAGED_H
#define LF_INFER_PAGED_H

#include "engine/back/back.h"
#include "engine/graph/exec.h"
#include "engine/infer/gen.h"
#include "engine/model/decoder.h"

#define LF_PAGED_MAX_BUCKETS 24
/* Buckets take the eras below: never live together. The plan's other chains have this one and those
 * above. */
#define LF_PAGED_NEXT_ERA (1u << LF_PAGED_MAX_BUCKETS)

struct lf_paged_opts {
    int64_t context;            /* positions of a sequence */
    int64_t slots;              /* sequences at a time, >= 1 */
    int64_t max_rows;           /* of a step; raised to slots */
    int64_t kv_tokens;          /* positions in the cache, 0: slots * context */
    int64_t page_tokens;        /* multiple of LF_ATTN_TILE */
    enum lf_dtype cache;        /* the compute type */
    double temperature;         /* 0 means 1 */
    bool switching;             /* of gen.h */
    struct lf_profile *profile; /* of the executor; NULL: none */
};

typedef struct lf_paged lf_paged;

/* Add the segments to a plan that is not finished. d outlives the result. LF_EINVAL: page_tokens,
 * or too many rows. */
int lf_paged_plan(lf_paged **out, lf_plan *plan, lf_pstore *ps, const lf_decoder *d,
                  const struct lf_paged_opts *o, lf_err *err);
void lf_paged_destroy(lf_paged *p); /* destroy(NULL) is legal */
/* Once the plan has memory: both are borrowed. */
int lf_paged_bind(lf_paged *p, lf_exec *ex, lf_back *back, lf_err *err);
/* For lf_gen_run; valid until destroy. */
void lf_paged_model(lf_paged *p, lf_gen_model *out);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Generation as part of any plan: one chain per bucket of rows (1, 2, 4, ... max_rows) over one
 * paged cache, and the step function of gen.h over them. A step takes the smallest bucket that
 * holds its rows. It uses the current weights of the plan.
 *
 * Logits are returned multiplied by 1/temperature, with their logsumexp. So a plain draw from them
 * is a draw at the temperature, and logit - lse has the bits of the training graph's
 * log-probability at that temperature (lf_logp).
 */
#ifndef LF_INFER_PAGED_H
#define LF_INFER_PAGED_H

#include "engine/back/back.h"
#include "engine/graph/exec.h"
#include "engine/infer/gen.h"
#include "engine/model/decoder.h"

#define LF_PAGED_MAX_BUCKETS 24
/* Buckets use the eras below this bit, so they are never live together. Other chains of the plan
 * use this era and those above. */
#define LF_PAGED_NEXT_ERA (1u << LF_PAGED_MAX_BUCKETS)

struct lf_paged_opts {
    int64_t context;            /* positions of a sequence */
    int64_t slots;              /* sequences at a time, >= 1 */
    int64_t max_rows;           /* rows of a step; at least slots */
    int64_t kv_tokens;          /* positions in the cache, 0: slots * context */
    int64_t page_tokens;        /* multiple of LF_ATTN_TILE */
    enum lf_dtype cache;        /* the compute type */
    double temperature;         /* 0 means 1 */
    bool switching;             /* of gen.h */
    bool speculative;           /* the first head of mtp_layers drafts (gen.h) */
    struct lf_profile *profile; /* of the executor; NULL: none */
};

typedef struct lf_paged lf_paged;

/* Adds the chains to a plan that is not finished. d outlives *out. LF_EINVAL: page_tokens is not
 * possible, there are too many rows, or the model has no head that drafts. LF_ENOTSUP: ranks divide
 * a model that drafts. */
int lf_paged_plan(lf_paged **out, lf_plan *plan, lf_pstore *ps, const lf_decoder *d,
                  const struct lf_paged_opts *o, lf_err *err);
void lf_paged_destroy(lf_paged *p); /* destroy(NULL) is legal */
/* Called when the plan has memory. ex and back are borrowed. */
int lf_paged_bind(lf_paged *p, lf_exec *ex, lf_back *back, lf_err *err);
/* Floats of a picture's row: features, then what each tap gives; 0: the model sees nothing. */
int64_t lf_paged_feature_width(const lf_model_config *c);
/* Fills out for lf_gen_run, but lf_gen_model.features; it is valid until destroy. */
void lf_paged_model(lf_paged *p, lf_gen_model *out);

#endif

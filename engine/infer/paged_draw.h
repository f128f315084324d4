/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of a step of generation on a device: log-probabilities (lf_k_logit_stats), then the
 * tokens (lf_k_sample). The calls of a bucket are recorded when it runs the second time, and
 * replayed from then on. The requests of a step lie in device memory, so that they can change while
 * the recording stays; a few bytes for each row go there and come back. Only the changes of a list
 * go there; the kernel itself adds the tokens that it drew (LF_SAMPLE_NOTE).
 *
 * The next step can take its tokens from the place where they were drawn (lf_paged_draw_tokens).
 * The answers can be read while it runs (lf_paged_draw_begin, lf_paged_draw_end: at most
 * LF_GEN_AHEAD of them).
 */
#ifndef LF_INFER_PAGED_DRAW_H
#define LF_INFER_PAGED_DRAW_H

#include "engine/back/back.h"
#include "engine/graph/exec.h"
#include "engine/infer/gen.h"

typedef struct lf_paged_draw lf_paged_draw;

/* The limits of a step: sequences, rows, and logits of a row. */
struct lf_paged_draw_size {
    int64_t slots, max_rows, vocab;
};

/* Adds the device memory for drawing to the plan, as state (some 140 KiB a slot). It adds nothing
 * where the target of the plan cannot draw tokens of such a vocabulary. */
int lf_paged_draw_plan(lf_plan *plan, const struct lf_paged_draw_size *size, lf_err *err);
/* Called when the plan has memory, with the size that was planned. *out is NULL where nothing was
 * planned. ex and back are borrowed. */
int lf_paged_draw_bind(lf_paged_draw **out, lf_exec *ex, lf_back *back,
                       const struct lf_paged_draw_size *size, int buckets, lf_err *err);
void lf_paged_draw_destroy(lf_paged_draw *d); /* destroy(NULL) is legal */
/* The place where lf_gen_run writes its requests and reads the answers. */
lf_gen_draws *lf_paged_draw_asked(lf_paged_draw *d);
/* Answers the requests of the rows below n_want. stats covers all rows of the bucket and is the
 * same in every call with this bucket. */
int lf_paged_draw_run(lf_paged_draw *d, int bucket, const struct lf_k_logit_stats *stats,
                      int64_t n_want, lf_err *err);

/* Can the answers of all slots be read later? */
bool lf_paged_draw_ahead(const lf_paged_draw *d);
/* Like lf_paged_draw_run, but lf_paged_draw_end reads the answers, the oldest first. n_want 0:
 * nothing is drawn and nothing is read; stats may be NULL then. */
int lf_paged_draw_begin(lf_paged_draw *d, int bucket, const struct lf_k_logit_stats *stats,
                        int64_t n_want, lf_err *err);
int lf_paged_draw_end(lf_paged_draw *d, struct lf_sample_out *out, lf_err *err);
/* Writes to[rows] in device memory: token[r], or, where that is negative, the token that was drawn
 * last for wanted row -1 - token[r]; -1 for LF_GEN_PICTURE. */
int lf_paged_draw_tokens(lf_paged_draw *d, int32_t *to, const int32_t *token, int64_t rows,
                         lf_err *err);

#endif

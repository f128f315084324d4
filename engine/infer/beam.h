/* SPDX-License-Identifier: Apache-2.0
 *
 * Beam search over a model with a paged cache, as transformers' generate does it: `n` sequences are
 * held; each step takes the most likely (1 + number of end tokens) n continuations of all of them,
 * at least 2 n, by the sum of their log-probabilities. Of these the first n that do not end are
 * held next. One of the first n that ends, or has reached max_tokens, is a result with the score
 *
 *   sum of log-probabilities / tokens^length_penalty,
 *
 * and the n best results are kept. The search ends with max_tokens, or once there are n results and
 * early_stopping says so: yes, at once; no, when the best sequence held would have a score below
 * them if it ended here; never, when it would if it had max_tokens (with a length_penalty above 0).
 *
 * Sequences held share the full pages of what they have in common. One that goes on beside another
 * from the same past computes the tokens of the last page again, which has the same bits, so no
 * page is ever copied.
 */
#ifndef LF_INFER_BEAM_H
#define LF_INFER_BEAM_H

#include "engine/infer/gen.h"

/* LF_EINVAL: a job with beams asks for what they cannot do, or more of them than the model has room
 * for. */
int lf_beam_check(const lf_gen_model *m, const lf_gen_job *j, lf_err *err);
/* As lf_gen_run, of jobs which all have beams and were checked. Jobs with the same request number
 * follow each other, and get the results of one search, the best first. Adds to *stats. */
int lf_beam_run(const lf_gen_model *m, const struct lf_gen_work *w, struct lf_gen_stats *stats,
                lf_err *err);

#endif

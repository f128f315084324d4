/* SPDX-License-Identifier: Apache-2.0
 *
 * Vectors of pictures and texts by two towers (engine/model/dual.h), for rm_score.h: a chain for
 * each tower, so that neither runs for the other. A text that sees is a picture, and its tokens are
 * not read. Vectors have length 1 with `unit`, or become what zero-shot classification gives: of
 * class k the mean w_k of the vectors of its descriptions, and
 *
 *     z_k = e^s cos(v, w_k) + b
 */
#ifndef LF_POST_TOWER_SCORE_H
#define LF_POST_TOWER_SCORE_H

#include "engine/post/rm_score.h"

typedef struct lf_tower_scorer lf_tower_scorer;

/* Of o rows, docs, patches, tiles and eras are read. Everything is borrowed, d until destroy. */
int lf_tower_scorer_plan(lf_tower_scorer **out, lf_plan *plan, lf_pstore *ps, const lf_decoder *d,
                         const struct lf_rm_scorer_opts *o, lf_err *err);
void lf_tower_scorer_destroy(lf_tower_scorer *s);
/* From now on pictures and texts get numbers of n classes; w [n, D] is copied, NULL: vectors. */
int lf_tower_scorer_classes(lf_tower_scorer *s, const float *w, int64_t n, lf_err *err);
int64_t lf_tower_scorer_width(const lf_tower_scorer *s); /* D, or n */
/* Where pictures come from; borrowed. */
void lf_tower_scorer_see(lf_tower_scorer *s, const lf_pictures *from);
/* Scores as lf_rm_scorer_run does. */
int lf_tower_scorer_run(lf_tower_scorer *s, lf_exec *ex, const lf_rm_text *texts, size_t n,
                        float *out, bool (*stop)(void), lf_err *err);

#endif

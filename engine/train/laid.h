/* SPDX-License-Identifier: Apache-2.0
 *
 * The layout of a run, told: in a line of the log, as members of --plan, and as what a checkpoint
 * says of the ranks that wrote it. Where no model is cut, k is NULL.
 */
#ifndef LF_TRAIN_LAID_H
#define LF_TRAIN_LAID_H

#include <jansson.h>

#include "engine/base/str.h"
#include "engine/train/cut.h"

/* Adds "8 ranks: pipeline 2 (1f1b; layers 4,4) x data 2 x tensor 2, rows divided". An axis of one
 * rank is left out, and layers are those of each pipeline stage. One rank adds nothing. The caller
 * asks lf_buf_check. */
void lf_laid_line(lf_buf *out, const struct lf_axes *a, const struct lf_train_who *w,
                  const struct lf_train_cut *k);

/* {"pipeline", "data", "tensor", "sequence"}: ranks of each axis, and whether rows are divided;
 * "context" and "expert" where several ranks are on these; owned, NULL: out of memory. */
json_t *lf_laid_axes(const struct lf_axes *a, const struct lf_train_who *w);

/* What --plan has of a run whose model another stage is yet to make: "axes", which depend on the
 * ranks alone, and a note that sizes are not known. LF_ENOMEM. */
int lf_laid_sizeless(json_t *plan, const struct lf_axes *a, const struct lf_train_who *w,
                     lf_err *err);

/* Adds to a fingerprint what bits depend on: "tensor" and "sequence" where matrices are divided,
 * "context" where rows are, and "context_kind" where it is not ulysses, "expert" where experts are,
 * "pipeline" and "layers" ("4,4", of each pipeline stage) where the model is cut, and "placement"
 * ("v") where ranks do not have these in turns. An absent member says that one rank does it all.
 * LF_ENOMEM. */
int lf_laid_sign(json_t *fingerprint, const struct lf_axes *a, const struct lf_train_who *w,
                 const struct lf_train_cut *k, lf_err *err);
/* A copy of a fingerprint in which no member of lf_laid_sign is absent; owned, NULL: out of memory,
 * or it is none. */
json_t *lf_laid_whole(const json_t *fingerprint);

/* Messages that a rank sends along the pipeline axis in a step of so many micro-batches, each of
 * k->message bytes: of the rank that sends most. With m micro-batches and one chunk the first and
 * the last rank send m, those between them 2 m. */
int64_t lf_laid_messages(const struct lf_train_cut *k, int micro_batches);

#endif

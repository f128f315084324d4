/* SPDX-License-Identifier: Apache-2.0
 *
 * Zero-shot classification by lf-score (Radford et al. 2021, arXiv:2103.00020, section 3.1): the
 * names of classes become captions by templates, and a class is told by the mean of the vectors of
 * its captions, each of length 1. */
#ifndef LF_STAGES_SCORE_CLASSES_H
#define LF_STAGES_SCORE_CLASSES_H

#include "engine/post/rm_score.h"
#include "engine/text/token/tokenizer.h"

struct lf_score_classes {
    const char *file;           /* a name on each line; blank lines are skipped */
    const char *const *caption; /* [n_captions] with {} for the name; none: "a photo of a {}." */
    size_t n_captions;
    const lf_tokenizer *tok;
    unsigned flags; /* LF_TOK_TEMPLATE ... */
    int64_t eos;    /* ends captions; below 0: nothing does */
};
/* Gives rm its classes. LF_EINVAL: the file has fewer than two names, a name comes twice, or a
 * caption has no {}. */
int lf_score_add_classes(lf_rm *rm, const struct lf_score_classes *c, lf_err *err);

#endif

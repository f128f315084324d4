/* SPDX-License-Identifier: Apache-2.0
 *
 * Next sentence prediction (Devlin et al. 2019, BERT, section 3.1): a document of a row becomes a
 * pair of texts
 *
 *     begin A separator B separator
 *
 * of which B follows A in half of the pairs, and is of another document of the same data in the
 * others. The model says which (engine/model/nsp.c). A is the beginning of what the row has of the
 * document, up to a place that is drawn, with `ends` among those behind a token that ends a
 * sentence; a stranger's B then begins behind such a token, too. The three further tokens take the
 * place of tokens of the document, of which three at most are not read; tokens begin and separator
 * of the documents themselves are left out.
 *
 * What is drawn is a function of seed, global sample and number of the document in it, as of the
 * tokens that are hidden then (mlm.h): neither ranks nor micro-batches nor resumes change it.
 */
#ifndef LF_TRAIN_NSP_H
#define LF_TRAIN_NSP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"

/* Philox sites: where A ends and whether B follows; whose B it is otherwise. Those of validation
 * are the next numbers. */
#define LF_SITE_NSP       0x4E535000u
#define LF_SITE_NSP_OTHER 0x4E535010u

/* Tokens of a pair that are of no text; and the shortest piece of a document that is a pair. */
enum { LF_NSP_FORMAT = 3, LF_NSP_LEAST = LF_NSP_FORMAT + 2 };
/* What is said of a pair; -1: there is none. */
enum lf_nsp_class { LF_NSP_NONE = -1, LF_NSP_FOLLOWS, LF_NSP_OTHER };

typedef struct lf_nsp {
    int32_t begin, separator; /* [CLS] and [SEP] */
    /* [n_ends] tokens that end a sentence, in ascending order; none: a text may end anywhere */
    const int32_t *ends;
    size_t n_ends;
} lf_nsp;

/* LF_EINVAL: tokens that a vocabulary of so many words (0: unknown) lacks, or one for both. */
int lf_nsp_check(const lf_nsp *p, int64_t vocab, lf_err *err);
/* Leaves begin and separator out of n tokens, in place; returns how many stay. */
int32_t lf_nsp_strip(const lf_nsp *p, int32_t *tokens, int32_t n);
/* Returns the place behind the first token of n that ends a sentence; 0: none does. */
int32_t lf_nsp_sentence(const lf_nsp *p, const int32_t *tokens, int32_t n);
/* Where A ends of a piece of n >= 2 tokens: in [1, n), by a random number. */
int32_t lf_nsp_split(const lf_nsp *p, const int32_t *tokens, int32_t n, uint32_t random);

#endif

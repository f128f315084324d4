/* SPDX-License-Identifier: Apache-2.0
 *
 * From the texts that a model made to their match with a target, after lm-evaluation-harness:
 * filters, then exact match.
 *
 * A filter is a list of steps, each {"function": NAME, ...}. It begins with the list of a
 * document's texts.
 *     regex              {"regex_pattern", "group_select": 0, "fallback": "[invalid]"}: of each
 *                        text the match with number group_select (negative: from the end),
 *                        stripped; of several groups the first that is not empty
 *     remove_whitespace  strips
 *     lowercase
 *     map                {"mapping_dict", "default_value"}
 *     majority_vote      the most frequent text; on a tie the first
 *     take_first_k       {"k"}
 *     take_first         a text
 * LF_ENOTSUP: a step is another one; the message names it.
 */
#ifndef LF_INFER_FILTER_H
#define LF_INFER_FILTER_H

#include <jansson.h>
#include <stdbool.h>

#include "engine/base/err.h"

typedef struct lf_filter lf_filter;

/* Creates a filter from the JSON list of steps. The caller owns it. One thread at a time uses
 * it. */
lf_filter *lf_filter_create(json_t *steps, lf_err *err);
void lf_filter_destroy(lf_filter *f);
/* Applies a filter to a list of texts. Returns a text, or a list where no take_first ends the
 * filter, which the caller owns; NULL on failure. */
json_t *lf_filter_apply(lf_filter *f, json_t *texts, lf_err *err);

/* Exact match of two texts. Before the comparison both are treated alike: regexes_to_ignore are
 * removed in turn, then ignore_case, ignore_punctuation (ASCII) and ignore_numbers (ASCII digits)
 * apply. */
typedef struct lf_match lf_match;
/* options is an object or NULL. The caller owns the match. LF_ENOTSUP: a member is unknown. */
lf_match *lf_match_create(json_t *options, lf_err *err);
void lf_match_destroy(lf_match *m);
int lf_match_equal(lf_match *m, const char *a, const char *b, bool *equal, lf_err *err);

#endif

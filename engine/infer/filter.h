/* SPDX-License-Identifier: Apache-2.0
 *
 * What lies between the texts that a model made and their score, after lm-evaluation-harness:
 * filters, then exact match.
 *
 * A filter is a list of steps, each {"function": NAME, ...}; it starts from the list of a
 * document's texts:
 *     regex              {"regex_pattern", "group_select": 0, "fallback": "[invalid]"}: of each
 *                        text the match (negative: from the end), of several groups the first that
 *                        is not empty, stripped
 * *     remove_whitespace  stripped          lowercase
 *     map                {"mapping_dict", "default_value"}
 *     majority_vote      the most frequent text, the first of several           take_first_k {"k"}
 *                        take_first: a text
 * Anything else is LF_ENOTSUP naming it.
 */
#ifndef LF_INFER_FILTER_H
#define LF_INFER_FILTER_H

#include <jansson.h>
#include <stdbool.h>

#include "engine/base/err.h"

typedef struct lf_filter lf_filter;

/* steps: the JSON list. Returns owned. Not for several threads at once. */
lf_filter *lf_filter_create(json_t *steps, lf_err *err);
void lf_filter_destroy(lf_filter *f);
/* texts: a list. Returns owned: a text, or a list where no take_first ends the filter; NULL on
 * failure. */
json_t *lf_filter_apply(lf_filter *f, json_t *texts, lf_err *err);

/* Exact match of two texts behind the same treatment of both: regexes_to_ignore are removed in
 * turn, then ignore_case, ignore_punctuation (ASCII's), ignore_numbers (ASCII digits). */
typedef struct lf_match lf_match;
lf_match *lf_match_create(
    json_t *options,
    lf_err *err); /* an object, or NULL; an unknown member is LF_ENOTSUP. Returns owned */
void lf_match_destroy(lf_match *m);
int lf_match_equal(lf_match *m, const char *a, const char *b, bool *equal, lf_err *err);

#endif

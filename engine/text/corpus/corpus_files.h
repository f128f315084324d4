/* SPDX-License-Identifier: Apache-2.0
 *
 * The files that the inputs of a corpus name, in their order.
 */
#ifndef LF_TEXT_CORPUS_FILES_H
#define LF_TEXT_CORPUS_FILES_H

#include "engine/text/corpus/corpus.h"

typedef struct lf_corpus_list {
    lf_corpus_source *v;
    size_t n, cap;
} lf_corpus_list;

/* Appends the files of one input: the file itself, those in a directory, or those that a glob
 * matches. */
int lf_corpus_list_add(lf_corpus_list *l, const char *input, lf_err *err);
void lf_corpus_list_fini(lf_corpus_list *l);

#endif

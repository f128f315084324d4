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
    const lf_energon_opts *energon; /* borrowed; NULL: folders of Energon are an error */
    bool classes;                   /* an input is a folder of classes (class_mark) */
    int64_t class_number;           /* of files that are added */
    lf_energon **folders;           /* of the files, owned */
    size_t n_folders, cap_folders;
} lf_corpus_list;

/* Appends the files of one input: the file itself, those in a directory, or those that a glob
 * matches; of a directory that Energon prepared the archives of the split. */
int lf_corpus_list_add(lf_corpus_list *l, const char *input, lf_err *err);
void lf_corpus_list_fini(lf_corpus_list *l);

#endif

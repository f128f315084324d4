/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of rm_rows share. */
#ifndef LF_POST_RM_ROWS_PRIV_H
#define LF_POST_RM_ROWS_PRIV_H

#include "engine/base/mem.h"
#include "engine/post/rm_rows.h"
#include "engine/text/corpus/rowfile.h"

#define LF_RM_MAX_ID 1024 /* bytes; longer ones are no ids */

struct lf_rm_row {
    char *text; /* the row's bytes, a record of this form */
    size_t len;
    enum lf_corpus_form form;
    const char *where, *id, *subset; /* subset NULL: none */
    size_t texts;                    /* of the block being scored: 0 (error), 1 or 2 */
    const char *error;               /* NULL: none */
    double label;                    /* column "label", where it is a number; NAN: none */
    bool pictures;                   /* it names some */
};

struct lf_rm_rows {
    struct lf_rm_rows_opts o;
    lf_arena *arena; /* rows' texts and names */
    struct lf_rm_row *rows;
    size_t n, cap;
    lf_tok_state *tok;
    lf_rowdocs docs;
};

#endif

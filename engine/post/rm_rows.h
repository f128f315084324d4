/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON lines scored by a reward model, one result line for each row, in their order:
 *
 *     a text, a prompt with its completion, a conversation:
 *         {"id":"a","score":1.25,"tokens":14}
 *     a preference:
 *         {"id":"b","chosen":1.25,"rejected":-0.5,"correct":true,"tokens":[14,17]}
 *     a row that cannot be scored:
 *         {"id":"c","error":"too_long: ..."}
 *
 * id is the row's member of that name (text or integer), else "line-N"; rows of several samples of
 * one request may share one. Members "subset" of rows are kept. Scores are written so that they
 * come back exactly; with invariant kernels a line depends on its row and the model alone, so a run
 * that was stopped goes on behind its last whole line.
 */
#ifndef LF_POST_RM_ROWS_H
#define LF_POST_RM_ROWS_H

#include <jansson.h>

#include "engine/post/rm_score.h"
#include "engine/text/corpus/rowdocs.h"

struct lf_rm_rows_opts {
    lf_rowdocs_opts docs; /* tokenizer, template, EOS; max_length and truncate are set here */
    lf_shape_opts shape;  /* other columns than its own are passed over */
    int64_t max_context;  /* rows of more tokens cannot be scored */
    bool normalized;      /* (score - mean) / std of the model */
    bool ids;             /* "token_ids" too: of a text, or of chosen and rejected */
};

typedef struct lf_rm_rows lf_rm_rows;

/* Everything o points to is borrowed until destroy. */
lf_rm_rows *lf_rm_rows_create(const struct lf_rm_rows_opts *o, lf_err *err);
void lf_rm_rows_destroy(lf_rm_rows *r);
/* Take the rows of a file; blank lines are passed over. */
int lf_rm_rows_add_file(lf_rm_rows *r, const char *path, lf_err *err);
size_t lf_rm_rows_n(const lf_rm_rows *r);

/* Score rows [first, first + n) and append their lines to out. LF_EINVAL: normalized, and the model
 * has no normalisation; rows with turns and no template. LF_EINTR as lf_rm_score. */
int lf_rm_rows_score(lf_rm_rows *r, lf_rm *rm, size_t first, size_t n, lf_buf *out,
                     bool (*stop)(void), lf_err *err);
/* Is this the line of row `index`? LF_EFORMAT otherwise. */
int lf_rm_rows_check_line(const lf_rm_rows *r, size_t index, const char *line, size_t len,
                          lf_err *err);

/* From a complete file of lines: {"rows","errors","scores":{"n","mean","std","min","max"},
 * "pairs":{"n","accuracy", "accuracy_stderr","margin"},"subsets":{name:{"n","accuracy",
 * "accuracy_stderr","margin"}}}; parts without rows are left out; accuracy counts chosen >
 * rejected. Owned. */
json_t *lf_rm_rows_results(const lf_rm_rows *r, const char *path, lf_err *err);
/* The best of rows that share an id, by the lines of path: each such row as it came with "score"
 * added, in the order in which ids first appear; the first wins ties. Rows without a score are
 * never the best. Appended to out. */
int lf_rm_rows_best(const lf_rm_rows *r, const char *path, lf_buf *out, lf_err *err);

#endif

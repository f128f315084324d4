/* SPDX-License-Identifier: Apache-2.0
 *
 * Scores JSON lines with a reward model. Each row gets one result line, in the same order:
 *
 *     a text, a prompt with its completion, a conversation:
 *         {"id":"a","score":1.25,"tokens":14}
 *     a preference:
 *         {"id":"b","chosen":1.25,"rejected":-0.5,"correct":true,"tokens":[14,17]}
 *     a text, by a model with labels (with the class of several), or that finds answers:
 *         {"id":"a","labels":[-0.5,2.25],"class":1,"tokens":14}
 *         {"id":"a","labels":[-0.5,2.25],"class":1,"name":"dog","tokens":14}    where it has names
 *         {"id":"a","span":[3,5],"tokens":14}
 *     a text with an answer, by a model that predicts tokens; answer: tokens of it. Preferences are
 *     as above, with log-probabilities in the place of scores:
 *         {"id":"a","logprob":-3.25,"answer":4,"tokens":14}
 *     a text, as a vector:
 *         {"id":"a","embedding":[0.125,-0.5],"tokens":14}
 *     a row that cannot be scored:
 *         {"id":"c","error":"too_long: ..."}
 *
 * id is the member of that name (text or integer), else "line-N"; rows of several samples of one
 * request may share an id. Members "subset" of rows are kept. The text of a score reads back to
 * exactly that score. With invariant kernels a line depends on its row and the model alone, so a
 * stopped run continues behind its last whole line.
 */
#ifndef LF_POST_RM_ROWS_H
#define LF_POST_RM_ROWS_H

#include <jansson.h>

#include "engine/post/rm_score.h"
#include "engine/text/corpus/rowdocs.h"
#include "engine/text/corpus/rowfile.h"
#include "engine/text/corpus/rowjson.h"

/* What reads rows with pictures; the functions are about the row that `row` read last. */
struct lf_rm_rows_media {
    void *arg;
    const lf_processor *processor;
    const lf_expand *expand;
    int64_t image_token;
    /* in the place of lf_row_shape */
    int (*row)(void *arg, lf_row *out, const lf_shape_opts *o, const lf_corpus_record *r,
               const char *where, lf_err *err);
    /* finds the placeholders in its documents; LF_EFORMAT: they are not those of its pictures */
    int (*place)(void *arg, const lf_rowdocs *d, lf_err *err);
    /* how many pictures each of its documents has: those of document k from (*v)[k * n] on, without
     * bytes; these one after the other at *bytes */
    size_t (*pictures)(void *arg, const lf_shard_picture **v, const char **bytes);
};

struct lf_rm_rows_opts {
    lf_rowdocs_opts docs; /* tokenizer, template, EOS; max_length and truncate are set here */
    lf_shape_opts shape;  /* unknown columns are ignored */
    int64_t max_context;  /* longer rows are not scored */
    const lf_glue *glue;  /* files are those of a task of GLUE (glue.h); borrowed; NULL: not */
    bool normalized;      /* (score - mean) / std of the model */
    bool ids;             /* adds "token_ids": of a text, or of chosen and rejected */
    const struct lf_rm_rows_media *media; /* NULL: rows have no pictures */
    int64_t patches, tiles;               /* rows with more of them are not scored */
    bool one_answer; /* the model is an encoder-decoder: what is said stands at the end of a row */
    /* the model sees: rows with pictures are not scored without media */
    bool sees;
    /* What the model gives: scores, labels, the tokens of an answer, or a vector */
    enum lf_rm_gives {
        LF_RM_GIVES_SCORE = 0,
        LF_RM_GIVES_LABELS,
        LF_RM_GIVES_SPAN,
        LF_RM_GIVES_VECTOR,
        LF_RM_GIVES_LOGPROB
    } gives;
};

typedef struct lf_rm_rows lf_rm_rows;

/* Everything that o points to is borrowed until destroy. */
lf_rm_rows *lf_rm_rows_create(const struct lf_rm_rows_opts *o, lf_err *err);
void lf_rm_rows_destroy(lf_rm_rows *r);
/* Adds the rows of a file; blank lines are skipped. */
int lf_rm_rows_add_file(lf_rm_rows *r, const char *path, lf_err *err);
size_t lf_rm_rows_n(const lf_rm_rows *r);

/* Scores rows [first, first + n) and appends their lines to out. LF_EINVAL: `normalized` is set and
 * the model has no normalisation, or rows have turns and there is no template. LF_EINTR as in
 * lf_rm_score. */
int lf_rm_rows_score(lf_rm_rows *r, lf_rm *rm, size_t first, size_t n, lf_buf *out,
                     bool (*stop)(void), lf_err *err);
/* Checks that this is the line of row `index`. LF_EFORMAT: it is not. */
int lf_rm_rows_check_line(const lf_rm_rows *r, size_t index, const char *line, size_t len,
                          lf_err *err);

/* Makes the results of a complete file of lines, which the caller owns:
 *     {"rows","errors",
 *      "scores":{"n","mean","std","min","max"} (of log-probabilities: "logprobs", with "tokens",
 *      those of answers, and "perplexity", exp(-sum / tokens)),
 *      "pairs":{"n","accuracy","accuracy_stderr","margin"},
 *      "labels":{"n","accuracy","f1","macro_f1","matthews"} or {"n","pearson","spearman"},
 *      "label_subsets":{name: the same of these rows},
 *      "subsets":{name:{"n","accuracy","accuracy_stderr","margin"}}}
 * Parts without rows are left out. accuracy counts chosen > rejected; labels is of rows whose
 * column "label" says what is right, a class or a number (label_metrics.h); f1, of class 1, is
 * there of two classes. */
json_t *lf_rm_rows_results(const lf_rm_rows *r, const char *path, lf_err *err);
/* Appends, for each id, the row with the best score by the lines of path, as it came and with
 * "score" added. Ids come in the order of their first row; on a tie the first row counts. Rows
 * without a score are never the best. */
int lf_rm_rows_best(const lf_rm_rows *r, const char *path, lf_buf *out, lf_err *err);

#endif

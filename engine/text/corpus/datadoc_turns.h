/* SPDX-License-Identifier: Apache-2.0
 *
 * The doctor's look at rows that are more than a text: conversations, pairs, prompts with answers.
 *
 *   repeated_prompts  the prompt came before: the prompt column, what both sides of a pair begin
 *                     with, or the turns in front of the first answer. Several pairs of one prompt
 *                     are usual, so that this is no fault
 *   same_answers      the better and the worse answer are the same
 *   empty_turns       a turn, or a text of a pair, is white space only; a turn that is more than a
 *                     text (tool_calls) is not
 *   turn_order        roles in an order that no dialogue has (lf_chat_check_order)
 *   unknown_columns   columns that mean nothing to any shape, by name
 *
 * Memory: 32 bytes for each prompt up to max_bytes; beyond that prompts are sampled by their hash
 * and their number is an estimate.
 */
#ifndef LF_TEXT_DATADOC_TURNS_H
#define LF_TEXT_DATADOC_TURNS_H

#include <jansson.h>

#include "engine/text/chat/shape.h"
#include "engine/text/corpus/datadoc.h"
#include "engine/text/token/tokenizer.h"

typedef struct lf_docturns_opts {
    const lf_shape_opts *shape; /* borrowed */
    lf_tok_state *tok;          /* borrowed; NULL: lengths are counted in characters */
    unsigned flags;             /* of encoding */
    size_t max_bytes;
    json_t *(*place)(const void *arg, uint64_t row); /* where a row stands, a new reference */
    const void *arg;
    const lf_datadoc_reader *reader; /* borrowed; NULL: rows are their columns */
} lf_docturns_opts;

/* Appends what a turn says: its text, or the texts among its parts with a line end behind each. */
void lf_docturns_say(lf_buf *b, const lf_turn *t);

struct lf_docturns;
struct lf_docturns *lf_docturns_create(const lf_docturns_opts *o, lf_err *err);
void lf_docturns_destroy(struct lf_docturns *d);
/* Row number n, counted from 0. Rows of the shapes text and tokens count for unknown columns
 * alone. */
int lf_docturns_row(struct lf_docturns *d, const lf_row *row, uint64_t n, lf_err *err);
/* A column that was passed over unread in so many rows. */
void lf_docturns_passed(struct lf_docturns *d, const char *column, int64_t rows);
/* Adds the member "conversations" to the report, where there were such rows or unknown columns.
 * *odd is set when something is a fault.
 *
 *   {"rows","unit","turns":LENGTHS,"parts":{name:LENGTHS},
 *    "positions":[{"turn","rows","mean","max"}],
 *    "found":{name:{"rows","first":[at or {"at","same_as"}]}},
 *    "unknown_columns":{name:rows}}
 *
 * LENGTHS are those of lengths.h. Parts are the roles, whose lengths are those of turns, and
 * prompt, completion, chosen and rejected. Positions are 1 to 8 and 9 for all later turns. */
int lf_docturns_report(const struct lf_docturns *d, json_t *report, bool *odd, lf_err *err);
/* Appends that member as text for people. */
void lf_docturns_text(const json_t *conversations, lf_buf *out);

#endif

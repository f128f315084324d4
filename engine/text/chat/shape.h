/* SPDX-License-Identifier: Apache-2.0
 *
 * The shapes in which JSON lines of training data come. A row is recognised by its columns and
 * brought to one form.
 *
 *   shape              columns (* needed)                 contents
 *   text               text*                              a document
 *   prompt_completion  prompt* completion*                each a text or a list of messages
 *   messages           messages* tools                    [{role, content, ...}]
 *   sharegpt           conversations* system tools        [{from, value}]
 *   alpaca             instruction* output* input         prompt = instruction, newline, input
 *                      system history
 *   preference         chosen* rejected* prompt margin;   chosen, rejected: a text, a message, or
 *                      also with conversations system     a list of messages
 *                      tools;
 *                      or context* completions*           completions: [{rank, completion}], a
 *                                                         lower rank is better
 *   unpaired           prompt* completion* label*;        label: true for a good answer
 *                      or kto_tag* with messages*,
 *                      conversations* or instruction*
 *                      output*
 *   prompt             prompt*                            other columns are kept for a reward
 *                                                         function
 *   tokens             input_ids* labels attention_mask   labels: -100, or the token itself
 *
 * A row is recognised when its columns are those of one shape. Columns of two shapes, or a column
 * of no shape, are an error that names them. Nothing is guessed and nothing is dropped without a
 * word. The same holds for the members of a turn: role, content, name, tool_calls, tool_call_id,
 * function_call, reasoning_content, reasoning, thinking, train, weight, loss, and those that the
 * chat template reads. Columns may be renamed (such as "prompt" to "question"; in lists "role" and
 * "content" too), and so may roles.
 */
#ifndef LF_TEXT_SHAPE_H
#define LF_TEXT_SHAPE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/base/str.h"

enum lf_shape {
    LF_SHAPE_AUTO,
    LF_SHAPE_TEXT,
    LF_SHAPE_PROMPT_COMPLETION,
    LF_SHAPE_MESSAGES,
    LF_SHAPE_SHAREGPT,
    LF_SHAPE_ALPACA,
    LF_SHAPE_PREFERENCE,
    LF_SHAPE_UNPAIRED,
    LF_SHAPE_PROMPT,
    LF_SHAPE_TOKENS,
    LF_SHAPES
};
const char *lf_shape_name(enum lf_shape s); /* "auto", "text", "prompt_completion", ... */

enum lf_role {
    LF_ROLE_SYSTEM,
    LF_ROLE_USER,
    LF_ROLE_ASSISTANT,
    LF_ROLE_TOOL,
    LF_ROLE_FUNCTION_CALL
};
/* "system", "user", "assistant", "tool", "function_call" */
const char *lf_role_name(enum lf_role r);

enum lf_turn_train { LF_TURN_UNSAID, LF_TURN_NOT_TRAINED, LF_TURN_TRAINED };

/* One turn of a conversation. text is NULL where the content is no string, such as a list of parts,
 * or null beside tool_calls. json is the whole message with all its members (tool_calls,
 * reasoning_content, name). Its members have the names role and content, and the role is that of
 * `role` or "developer". json is NULL for turns that came from plain columns. */
typedef struct lf_turn {
    enum lf_role role;
    /* how the turn itself is marked: "train", "loss" (true, false), "weight" (0, 1) */
    enum lf_turn_train train;
    const char *text;
    size_t len;
    json_t *json; /* borrowed from the row */
} lf_turn;

/* Is the turn one of the assistant? A function call is. */
static inline bool lf_turn_is_answer(const lf_turn *t)
{
    return t->role == LF_ROLE_ASSISTANT || t->role == LF_ROLE_FUNCTION_CALL;
}

/* A member of a row that keeps what is made of its turns, and is no column of it. */
#define LF_ROWMEDIA_OWN "\x01turns"

/* Rewrites a text before it is tokenized, as the marks of pictures become placeholders. part: it is
 * the beginning of a text, not all of it. place[n_place] are offsets in the text, ascending, which
 * move with what they stand at. A failure is the row's fault. */
typedef struct lf_rewrite {
    int (*fn)(const void *arg, lf_buf *text, size_t *place, size_t n_place, bool part, lf_err *err);
    const void *arg;
    bool apart; /* a prompt and its completion are tokenized apart, with the prompt rewritten */
    /* pictures are beside the text: nothing of it stands for them, and it may be empty. A prompt is
     * a caption then, and ends as texts do */
    bool beside;
} lf_rewrite;

/* A text (turns is NULL), or turns (text is NULL), or nothing (both are NULL). */
typedef struct lf_piece {
    const char *text;
    size_t len;
    lf_turn *turns;
    size_t n_turns;
} lf_piece;

/* A row in its one form, which chat templates take:
 *   text               prompt: the document
 *   prompt_completion  prompt, completion
 *   messages, sharegpt prompt: all turns, with the system column as the first
 *   alpaca             prompt: the turns system, history and the last question; completion: the
 *                      last answer, as turns
 *   preference         prompt (may be absent), completion: chosen, rejected
 *   unpaired           prompt (absent for whole conversations: then completion has all turns),
 *                      completion, label
 *   prompt             prompt
 *   tokens             ids, mask */
typedef struct lf_row {
    enum lf_shape shape;
    lf_piece prompt, completion, rejected;
    json_t *tools;             /* list or text as in the row, borrowed; NULL: none */
    json_t *rest;              /* prompt: the whole object, borrowed */
    const lf_rewrite *rewrite; /* set by the caller, borrowed; NULL: none */
    bool has_margin, label;
    double margin;
    uint32_t *ids; /* [n_ids] */
    uint8_t *mask; /* [n_ids] 0 where the label is -100; NULL without labels */
    size_t n_ids;
    json_t *root;           /* owns the texts */
    struct lf_arena *arena; /* owns the rest */
} lf_row;

/* "name=other" pairs; borrowed. */
typedef struct lf_shape_opts {
    enum lf_shape shape; /* AUTO: by the columns */
    /* "prompt=question": the data calls our column prompt question */
    const char *const *columns;
    size_t n_columns;
    const char *const *roles; /* "human=user": the data calls our role user human */
    size_t n_roles;
    bool ignore_unmapped; /* unknown columns and members of turns are ignored instead of refused */
    /* Does the chat template read this member of a turn? NULL: unknown; then only the usual members
     * are known. */
    bool (*reads)(const void *arg, const char *member);
    const void *reads_arg;
    bool strict; /* a line that is not UTF-8 is an error; otherwise it is repaired with U+FFFD */
    /* "a, b": columns that the data has beside those of the row, for messages; NULL: none */
    const char *passed;
} lf_shape_opts;

/* Checks that columns and roles are known and given once. Messages use the names of the options. */
int lf_shape_check(const lf_shape_opts *o, lf_err *err);

/* Brings a line to its form. where is "file:line", for messages. *replaced grows by the number of
 * U+FFFD put in. On success the caller owns *out (lf_row_fini). Thread-safe. LF_EFORMAT: the line
 * is no JSON object, its columns fit no shape or two, a column is unknown, or a type is wrong. */
int lf_shape_row(lf_row *out, const lf_shape_opts *o, const char *raw, size_t len,
                 const char *where, uint64_t *replaced, lf_err *err);
/* lf_shape_row for an object. The call takes the object, also when it fails. */
int lf_shape_object(lf_row *out, const lf_shape_opts *o, json_t *root, const char *where,
                    lf_err *err);
void lf_row_fini(lf_row *r); /* r may be zeroed */

/* A line of JSON; borrowed. */
typedef struct lf_shape_line {
    const char *raw;
    size_t len;
    bool strict; /* not UTF-8 is an error, else repaired */
    bool nul;    /* texts may hold NULs */
} lf_shape_line;
/* The line as an object, owned: json_decref. */
int lf_shape_json(json_t **out, const lf_shape_line *line, const char *where, uint64_t *replaced,
                  lf_err *err);
/* "a, b, c": the names of an object's members, for messages; those that have room. */
void lf_shape_column_list(char *buf, size_t cap, json_t *root);
/* Every column that a shape may have, under our names; *n of them. */
const char *const *lf_shape_known(size_t *n);
/* What our column `name` is called in the data. */
const char *lf_shape_column(const lf_shape_opts *o, const char *name);

#endif

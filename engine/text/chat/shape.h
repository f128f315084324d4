/* SPDX-License-Identifier: Apache-2.0
 *
 * The shapes of JSON lines that training data comes in, recognised by their columns and brought to
 * one form.
 *
 *   shape              columns (* needed)                                  what it is
 *   text               text*                                               a document
 *   prompt_completion  prompt* completion*                                 each a text or a list of
 * messages messages           messages* tools                                     [{role, content,
 * ...}] sharegpt           conversations* system tools                         [{from, value}]
 *   alpaca             instruction* output* input system history           prompt = instruction,
 * newline, input preference         chosen* rejected* prompt margin; also with          chosen,
 * rejected: text, a message, or a list of them; conversations system tools; or context*
 * completions* completions: [{rank, completion}], lower is better unpaired           prompt*
 * completion* label*; or messages*,            label: true for a good answer conversations* or
 * instruction* output* with kto_tag* prompt             prompt* other columns are kept for a reward
 * function tokens             input_ids* labels attention_mask                    labels: -100, or
 * the token itself
 *
 * A row is recognised when its columns are those of one shape; columns of two, or a column that
 * belongs to none, is an error that names them: nothing is guessed and nothing dropped in silence.
 * So it is with the members of a turn: role, content, name, tool_calls, tool_call_id,
 * function_call, reasoning_content, reasoning, thinking, train, weight, loss, and what the chat
 * template reads. Columns may be renamed ("prompt" is called "question" here; in lists "role" and
 * "content" too), and so may the speakers.
 */
#ifndef LF_TEXT_SHAPE_H
#define LF_TEXT_SHAPE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"

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

/* One turn of a conversation. text is NULL where the content is no string (a list of parts, or null
 * beside tool_calls): what it is then stands in `json`, the whole message with whatever else it has
 * (tool_calls, reasoning_content, name), under the names role and content, the role as `role` says
 * or "developer"; NULL for turns that came from plain columns. */
typedef struct lf_turn {
    enum lf_role role;
    /* what the turn itself says: "train", "loss" (true, false), "weight" (0, 1) */
    enum lf_turn_train train;
    const char *text;
    size_t len;
    json_t *json; /* borrowed from the row */
} lf_turn;

/* Is it of the assistant? A function call is. */
static inline bool lf_turn_is_answer(const lf_turn *t)
{
    return t->role == LF_ROLE_ASSISTANT || t->role == LF_ROLE_FUNCTION_CALL;
}

/* A text (turns NULL), or turns (text NULL), or neither: absent. */
typedef struct lf_piece {
    const char *text;
    size_t len;
    lf_turn *turns;
    size_t n_turns;
} lf_piece;

/* A row in its one form, what a chat template takes:
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
    json_t *tools; /* list or text as it stands there, borrowed; NULL: none */
    json_t *rest;  /* prompt: the whole object, borrowed */
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
    /* "prompt=question": our column prompt is called question in the data */
    const char *const *columns;
    size_t n_columns;
    const char *const *roles; /* "human=user": the data's human is our user */
    size_t n_roles;
    bool ignore_unmapped; /* columns, and members of turns, of no meaning are passed over instead of
                             refused */
    /* Does the chat template read this member of a turn? NULL: not known; then only the usual ones
     * have a meaning. */
    bool (*reads)(const void *arg, const char *member);
    const void *reads_arg;
    bool strict; /* a line that is not UTF-8 is an error, else repaired with U+FFFD */
} lf_shape_opts;

/* Columns and roles that are known and given once. Worded with the names of the options. */
int lf_shape_check(const lf_shape_opts *o, lf_err *err);

/* Bring a line to its form. where: "file:line", for messages. Thread-safe. *replaced is raised by
 * the U+FFFD put in. Owned on success: lf_row_fini. LF_EFORMAT: no JSON object, no shape, two
 * shapes, a column of no meaning, a wrong type. */
int lf_shape_row(lf_row *out, const lf_shape_opts *o, const char *raw, size_t len,
                 const char *where, uint64_t *replaced, lf_err *err);
/* The same of an object, which is taken, also on failure. */
int lf_shape_object(lf_row *out, const lf_shape_opts *o, json_t *root, const char *where,
                    lf_err *err);
void lf_row_fini(lf_row *r); /* a zeroed one is fine */

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

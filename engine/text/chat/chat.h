/* SPDX-License-Identifier: Apache-2.0
 *
 * Conversations to text and to token ids with the model's own chat template (jinja/jinja.h), as
 * transformers does it:
 *
 *   template   of a tokenizer's directory: chat_template.jinja, else "chat_template" in
 * tokenizer_config.json (a text, or a list of {name, template}, or an object of templates by name;
 * null is none); or a file of the user's. Of several the one called "default" counts, and
 * "tool_use" for rows with tools variables  messages, tools, documents (none),
 * add_generation_prompt, bos_token eos_token unk_token sep_token pad_token cls_token mask_token
 * (those that the tokenizer has), and what the user adds (enable_thinking, ...), which wins
 * messages   as they stand in the row, without members that are null; reasoning_content, thinking
 * and reasoning stand in for each other. A function_call turn becomes an assistant's tool_calls
 *
 * Which tokens are the assistant's is told by rendering prefixes. For the assistant's turn i of
 * messages m
 *
 *     P = render(m[: i], with generation prompt)     Q = render(m[: i + 1])     F = render(m)
 *     trained are tokens [ |tok(P)|, |tok(Q)| ) of tok(F)
 *
 * provided that P and Q begin F as text and tok(P), tok(Q) begin tok(F) as ids. A row where they do
 * not is refused (an end-of-text token that the template puts behind a whole conversation is left
 * off Q first). Templates with
 * {% generation %} say it themselves: trained are the tokens that a block has a part in, as in
 * transformers' assistant_masks, and no row is refused for where the blocks are.
 *
 * The text is tokenized in one piece and nothing is added: a template writes its own BOS. Two of
 * them are refused.
 */
#ifndef LF_TEXT_CHAT_H
#define LF_TEXT_CHAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/base/str.h"
#include "engine/text/chat/shape.h"
#include "engine/text/token/tokenizer.h"
#include "engine/text/token/tokenizer_files.h"

#define LF_CHAT_FILE "chat_template.jinja"

typedef struct lf_chat lf_chat;

typedef struct lf_chat_opts {
    const char *file; /* template of the user's; NULL: the tokenizer's */
    const char *name; /* which of several; NULL: "default", or "tool_use" */
    const char *vars; /* a JSON object of further variables; NULL: none */
    /* seconds since 1970 for strftime_now; 0: a template that asks for the date is refused,
     * because the same data would become other tokens on another day */
    int64_t now;
} lf_chat_opts;

/* Both return owned, NULL on failure; LF_ENOENT: the tokenizer has no template and none is given.
 * path: file or directory of the tokenizer tok (borrowed until destroy). o may be NULL. Immutable
 * afterwards, for any number of threads. */
lf_chat *lf_chat_load(const char *path, const lf_tokenizer *tok, const lf_chat_opts *o,
                      lf_err *err);
lf_chat *lf_chat_from_files(const lf_tok_files *f, const char *path, const lf_tokenizer *tok,
                            const lf_chat_opts *o, lf_err *err);
/* A template as text, with the tokens that tok itself knows; name is for messages. */
lf_chat *lf_chat_from_text(const char *source, size_t len, const char *name,
                           const lf_tokenizer *tok, const lf_chat_opts *o, lf_err *err);
void lf_chat_destroy(lf_chat *c);
/* Is member a word of its templates? For lf_shape_opts.reads; chat is an lf_chat. */
bool lf_chat_reads(const void *chat, const char *member);
/* SHA-256, in hex, of everything that makes its texts: templates, tokens, variables, time;
 * borrowed. */
const char *lf_chat_sha256(const lf_chat *c);

/* Append the text of a conversation to out. tools: a list, a JSON text of one, or NULL. LF_EINVAL:
 * the template raised, with its name, line and column; LF_EFORMAT: no turns, tools or a function
 * call that cannot be read. */
int lf_chat_render(const lf_chat *c, const lf_turn *turns, size_t n, json_t *tools,
                   bool generation_prompt, lf_buf *out, lf_err *err);

/* Append the ids of a prompt: rendered with the generation prompt, no EOS. */
int lf_chat_prompt(const lf_chat *c, lf_tok_state *t, const lf_turn *turns, size_t n, json_t *tools,
                   lf_ids *out, lf_err *err);

/* Roles in an order that a dialogue can have: a system turn only in front; then user first, an
 * answer after a user or tool turn, a tool turn after an answer or another tool turn. LF_EFORMAT
 * names the turn. */
int lf_chat_check_order(const lf_turn *turns, size_t n, lf_err *err);

/* *id: the special token that ends a turn of the assistant, as the template writes one; -1: it
 * writes none. It is what generation has to stop at, and often not the tokenizer's EOS. */
int lf_chat_turn_end(const lf_chat *c, int64_t *id, lf_err *err);

/* ---- ids and loss mask ---- */

enum lf_chat_mask { LF_CHAT_MASK_AUTO, LF_CHAT_MASK_PREFIX, LF_CHAT_MASK_GENERATION };

typedef struct lf_chat_train {
    enum lf_chat_mask mask; /* AUTO: GENERATION when the template has marks, else PREFIX */
    bool last_only;         /* train the last assistant turn only */
    /* the last special token of a turn, and what follows it in the turn, is not trained */
    bool no_end;
    size_t first; /* turns before this one are not trained (the prompt of a completion) */
    /* find the spans of assistant turns that are not trained too, where they can be found */
    bool all_spans;
} lf_chat_train;

/* An assistant's turn in the tokens. */
typedef struct lf_chat_span {
    size_t begin, end;
    bool trained;
} lf_chat_span;

enum lf_chat_fault {
    LF_CHAT_FINE,
    LF_CHAT_BROKEN,     /* the template raised, two BOS, tools that cannot be read, ... */
    LF_CHAT_NON_PREFIX, /* the prefix property does not hold */
    LF_CHAT_NO_TARGET   /* no assistant turn to train */
};

/* Zero-initialise; lf_chat_doc_fini. Used again and again by one thread. */
typedef struct lf_chat_doc {
    lf_ids ids;
    uint8_t *mask; /* [ids.n] 0 or 1: trained; [0] is 0 */
    lf_chat_span *spans;
    size_t n_spans;
    lf_buf text; /* F */
    enum lf_chat_fault fault;
    /* inside */
    size_t cap_mask, cap_spans, cap_ends;
    size_t *ends; /* of tokens, in bytes of the text */
    lf_buf part;
    lf_ids part_ids;
} lf_chat_doc;
void lf_chat_doc_init(lf_chat_doc *d);
void lf_chat_doc_fini(lf_chat_doc *d);

/* What was said, and the tools that the template is told of (NULL: none); borrowed. */
struct lf_conversation {
    const lf_turn *turns;
    size_t n;
    json_t *tools;
};

/* Fill d. A turn that says of itself that it is not trained is not; one that says that it is, is
 * with last_only too. LF_EFORMAT or LF_EINVAL with d->fault set: this row is at fault; with fault
 * FINE: another failure (memory). */
int lf_chat_encode(lf_chat_doc *d, const lf_chat *c, lf_tok_state *t,
                   const struct lf_conversation *said, const lf_chat_train *o, lf_err *err);

#endif

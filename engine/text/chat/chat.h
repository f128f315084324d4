/* SPDX-License-Identifier: Apache-2.0
 *
 * Conversations to text and to token ids, with the chat template of the model (jinja/jinja.h), as
 * transformers does it.
 *
 *   template    of a tokenizer's directory: chat_template.jinja, else "chat_template" in
 *               tokenizer_config.json (a text, a list of {name, template}, or an object of
 *               templates by name; null means none); or a file of the user's. Of several templates
 *               "default" counts, and "tool_use" for rows with tools
 *   variables   messages, tools, documents (none), add_generation_prompt; bos_token eos_token
 *               unk_token sep_token pad_token cls_token mask_token, as far as the tokenizer has
 *               them; and the user's (enable_thinking, ...), which take precedence
 *   messages    as they stand in the row, without members that are null. reasoning_content,
 *               thinking and reasoning replace each other. A function_call turn becomes tool_calls
 *               of an assistant
 *
 * Rendering prefixes finds the tokens of the assistant. For the assistant's turn i of messages m
 *
 *     P = render(m[: i], with generation prompt)     Q = render(m[: i + 1])     F = render(m)
 *     trained are tokens [ |tok(P)|, |tok(Q)| ) of tok(F)
 *
 * provided that P and Q begin F as text, and tok(P) and tok(Q) begin tok(F) as ids. A row where
 * they do not is refused. (A template may put an end-of-text token behind a whole conversation; it
 * is removed from Q first.) A template with {% generation %} marks the answers itself: as in
 * transformers' assistant_masks, the tokens that overlap a marked block are trained, and no row is
 * refused because of its blocks.
 *
 * The text is tokenized in one piece and nothing is added, because a template writes its own BOS.
 * Two BOS are refused.
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
    const char *file; /* the user's template; NULL: that of the tokenizer */
    const char *name; /* which one of several; NULL: "default", or "tool_use" */
    const char *vars; /* a JSON object of further variables; NULL: none */
    /* seconds since 1970 for strftime_now; 0: a template that uses the date is refused, because the
     * same data would become other tokens on another day */
    int64_t now;
} lf_chat_opts;

/* Both return a template that the caller owns, or NULL. path is the file or directory of the
 * tokenizer tok, which is borrowed until destroy. o may be NULL. A template is immutable; any
 * number of threads may use it. LF_ENOENT: the tokenizer has no template and none is given. */
lf_chat *lf_chat_load(const char *path, const lf_tokenizer *tok, const lf_chat_opts *o,
                      lf_err *err);
lf_chat *lf_chat_from_files(const lf_tok_files *f, const char *path, const lf_tokenizer *tok,
                            const lf_chat_opts *o, lf_err *err);
/* Makes a template from text, with the tokens that tok itself knows. name is for messages. */
lf_chat *lf_chat_from_text(const char *source, size_t len, const char *name,
                           const lf_tokenizer *tok, const lf_chat_opts *o, lf_err *err);
void lf_chat_destroy(lf_chat *c);
/* Do the templates of chat, an lf_chat, have member as a word? For lf_shape_opts.reads. */
bool lf_chat_reads(const void *chat, const char *member);
/* Returns the SHA-256, in hex, of everything that its texts depend on: templates, tokens,
 * variables, time. Borrowed. */
const char *lf_chat_sha256(const lf_chat *c);

/* Appends the text of a conversation to out. tools is a list, a JSON text of one, or NULL.
 * LF_EINVAL: the template raised; the message has its name, line and column. LF_EFORMAT: there are
 * no turns, or tools or a function call cannot be read. */
int lf_chat_render(const lf_chat *c, const lf_turn *turns, size_t n, json_t *tools,
                   bool generation_prompt, lf_buf *out, lf_err *err);

/* The turns of a conversation, the tools for the template (NULL: none), and what is done to each
 * rendered text before it is tokenized (NULL: nothing); borrowed. */
struct lf_conversation {
    const lf_turn *turns;
    size_t n;
    json_t *tools;
    const lf_rewrite *rewrite;
};

/* Appends the ids of a prompt, rendered with the generation prompt and without EOS. */
int lf_chat_prompt(const lf_chat *c, lf_tok_state *t, const struct lf_conversation *said,
                   lf_ids *out, lf_err *err);

/* Checks the order of roles: a system turn stands only in front, a user turn begins, an answer
 * follows a user or tool turn, and a tool turn follows an answer or another tool turn. LF_EFORMAT:
 * the message names the turn. */
int lf_chat_check_order(const lf_turn *turns, size_t n, lf_err *err);

/* Sets *id to the special token with which the template ends a turn of the assistant, or -1.
 * Generation stops at this token, which is often not the tokenizer's EOS. */
int lf_chat_turn_end(const lf_chat *c, int64_t *id, lf_err *err);

/* ---- ids and loss mask ---- */

enum lf_chat_mask { LF_CHAT_MASK_AUTO, LF_CHAT_MASK_PREFIX, LF_CHAT_MASK_GENERATION };

typedef struct lf_chat_train {
    enum lf_chat_mask mask; /* AUTO: GENERATION when the template has marks, else PREFIX */
    bool last_only;         /* train the last assistant turn only */
    /* the last special token of a turn and what follows it in the turn are not trained */
    bool no_end;
    size_t first; /* turns before this one are not trained (the prompt of a completion) */
    /* also find the spans of assistant turns that are not trained, where that is possible */
    bool all_spans;
} lf_chat_train;

/* The tokens [begin, end) of an assistant's turn. */
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

/* The result of lf_chat_encode, which one thread reuses. lf_chat_doc_init, or zeroed;
 * lf_chat_doc_fini. */
typedef struct lf_chat_doc {
    lf_ids ids;
    uint8_t *mask; /* [ids.n] 0 or 1: trained; [0] is 0 */
    lf_chat_span *spans;
    size_t n_spans;
    lf_buf text; /* F */
    enum lf_chat_fault fault;
    /* private */
    size_t cap_mask, cap_spans, cap_ends;
    size_t *ends; /* ends of tokens, in bytes of the text */
    lf_buf part;
    lf_ids part_ids;
} lf_chat_doc;
void lf_chat_doc_init(lf_chat_doc *d);
void lf_chat_doc_fini(lf_chat_doc *d);

/* Fills d. A turn that is marked as not trained is not trained; one that is marked as trained is
 * trained with last_only too. LF_EFORMAT or LF_EINVAL with d->fault set: the row is at fault. An
 * error with fault FINE is another failure, such as memory. */
int lf_chat_encode(lf_chat_doc *d, const lf_chat *c, lf_tok_state *t,
                   const struct lf_conversation *said, const lf_chat_train *o, lf_err *err);

#endif

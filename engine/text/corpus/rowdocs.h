/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows to documents: the ids and the loss mask that training reads of a row of any shape.
 *
 *   shape                        becomes
 *   text                         the text and EOS, all trained
 *   prompt_completion of texts   both texts tokenized in one piece, and EOS. The tokens behind
 *                                those of tok(prompt) are trained. Where tok(prompt) does not
 *                                begin the whole, the token that crosses the seam is trained
 *   prompt_completion of turns,  a conversation (chat.h)
 *   messages, sharegpt, alpaca
 *   preference                   two documents, better and worse, whose answers are trained.
 *                                Without a prompt the prompt is the common beginning: turns, or
 *                                tokens of texts
 *   unpaired                     a document and its label; of a whole conversation the last answer
 *                                is trained
 *   prompt                       the ids up to the place where an answer begins, without EOS, and
 *                                the other columns of the row
 *   tokens                       the ids as they stand
 *
 * Judged answers (preference, unpaired) end where a generated answer ends: what the template puts
 * behind the end of the last turn, such as a line end, is cut off. A text that does not end with
 * EOS gets one. The first token of a document with a mask is never trained, because nothing
 * predicts it. A row can be left out for the reasons of lf_row_fate; the caller counts such rows
 * or makes them errors.
 *
 * `truncate` decides about documents longer than max_length: keep the start, drop the row, or share
 * the room between prompts and answers as LLaMA-Factory does (infer_seqlen). That goes turn by
 * turn; it begins with the last turn when only that is trained. Pairs and prompts are always
 * dropped, because half an answer is not the answer that was judged; and so are rows that are
 * rewritten (lf_row.rewrite), because half a picture is none.
 */
#ifndef LF_TEXT_ROWDOCS_H
#define LF_TEXT_ROWDOCS_H

#include "engine/text/chat/chat.h"

enum lf_row_fate {
    LF_ROW_KEPT,
    LF_ROW_EMPTY, /* no text at all */
    /* not readable, without turns, roles in a wrong order, a template that raised, or two equal
     * answers */
    LF_ROW_BROKEN,
    LF_ROW_NON_PREFIX, /* the prefix property does not hold */
    LF_ROW_NO_TARGET,  /* no answer to train */
    LF_ROW_TOO_LONG,   /* too long, and truncation is not allowed */
    LF_ROW_ALL_MASKED, /* truncation left no trained token */
    LF_ROW_FATES
};
const char *lf_row_fate_name(enum lf_row_fate f); /* "kept", "empty", "broken", "non_prefix", ... */

enum lf_truncate { LF_TRUNCATE_END, LF_TRUNCATE_DROP, LF_TRUNCATE_BUDGET };

enum lf_row_kind {
    LF_ROW_PLAIN,
    LF_ROW_PAIR,
    LF_ROW_UNPAIRED,
    LF_ROW_PROMPT
}; /* in the order of enum lf_rows (store/shard.h) */

typedef struct lf_rowdocs_opts {
    const lf_tokenizer *tok;
    const lf_chat *chat;        /* NULL: rows with turns fail */
    const char *no_chat;        /* why there is no template, for the message; NULL: unknown */
    const lf_shape_opts *shape; /* for the name of the prompt's column; NULL: "prompt" */
    unsigned flags;             /* lf_tok_flags of texts; those of conversations are fixed */
    int64_t eos_id;             /* EOS behind texts; -1: none */
    lf_chat_train train;        /* of conversations */
    bool any_order;             /* roles are not checked */
    bool train_prompt; /* prompts are trained like answers, but not in pairs and labelled rows */
    const uint32_t *untrained; /* ids that are never trained; borrowed */
    size_t n_untrained;
    size_t max_length; /* tokens of a document; 0: no limit */
    enum lf_truncate truncate;
} lf_rowdocs_opts;

/* The encoder of one thread: lf_rowdocs_init, any number of lf_rowdocs_encode, lf_rowdocs_fini. */
typedef struct lf_rowdocs {
    enum lf_row_fate fate;
    lf_err why; /* of BROKEN, NON_PREFIX */
    enum lf_row_kind kind;
    size_t n_docs, len[2]; /* documents and their tokens in ids; 0 unless kept */
    lf_ids ids;
    lf_buf mask;    /* [ids.n] 0 or 1 */
    bool masked;    /* some token is not trained */
    size_t trained; /* targets */
    bool has_margin, label;
    float margin;
    lf_buf text; /* identifies the row: the rendered texts, or the ids */
    lf_buf rest; /* prompt: the other columns as JSON */
    /* findings about rows that are kept */
    bool truncated, double_bos, seam; /* seam: tok(prompt) does not begin the whole */
    /* the last trained turn, or the document, ends without an EOS or another special token */
    bool no_eos;
    bool empty_answer; /* a trained or judged answer is white space only */
    bool bare_answer;  /* an answer has no token before it, so that its first one is not trained */
    /* the two answers of a pair belong to different prompts, as far as the row shows */
    bool other_prompt;
    uint64_t replaced;
    /* inside */
    lf_chat_doc chat;
    lf_ids part;
    lf_turn *turns;
    lf_chat_span *spans; /* of the current document */
    size_t n_turns, cap_turns, n_spans, cap_spans;
} lf_rowdocs;
void lf_rowdocs_init(lf_rowdocs *d);
void lf_rowdocs_fini(lf_rowdocs *d);

/* Encodes a row. On 0 d->fate tells what became of it. LF_EINVAL: the row has turns and there is no
 * template. LF_ENOMEM. */
int lf_rowdocs_encode(lf_rowdocs *d, const lf_rowdocs_opts *o, lf_tok_state *t, const lf_row *row,
                      lf_err *err);

/* Shortens *prompt and *answer so that both fit in `room` tokens. An answer of less than half the
 * room is kept whole; so is a prompt of less than half of it. Otherwise both shrink in
 * proportion. */
void lf_truncate_budget(size_t *prompt, size_t *answer, size_t room);

#endif

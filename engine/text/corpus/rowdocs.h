/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows to documents: what training reads of a row of any shape, as ids and loss mask.
 *
 *   shape                       becomes
 *   text                        the text and EOS, all trained
 *   prompt_completion of texts  both tokenized in one piece, EOS; trained is what tok(prompt) does
 *                               not begin with.
 * Where tok(prompt) does not begin the whole, a token that reaches over the seam is trained with
 * turns, messages, a
 * conversation (chat.h) sharegpt, alpaca preference                  two documents, better and
 *   worse; trained are the
 * answers. Without a prompt it is what both have in common in front: turns, or tokens of texts
 * unpaired a document and
 * its label; of whole conversations the last answer is trained prompt                      ids up
 *   to the place where an
 * answer begins, no EOS, and the row's other columns tokens                      as it stands
 *
 * Of judged answers (preference, unpaired) what the template puts behind the end of the last turn,
 * a line end, is cut off: they end where a generated answer does. EOS is put behind texts that do
 * not end with it. The first token of a document with a mask is never trained: nothing predicts it.
 * A row can be left out for the reasons of lf_row_fate; the caller counts them or makes them
 * errors.
 *
 * Longer than max_length, by `truncate`: keep the start; drop the row; or share the room between
 * prompts and answers as LLaMA-Factory does (infer_seqlen), turn by turn, the last one first when
 * only it is trained. Pairs and prompts are dropped in any case: half an answer is not the answer
 * that was judged.
 */
#ifndef LF_TEXT_ROWDOCS_H
#define LF_TEXT_ROWDOCS_H

#include "engine/text/chat/chat.h"

enum lf_row_fate {
    LF_ROW_KEPT,
    LF_ROW_EMPTY, /* no text at all */
    /* not readable, no turns, wrong order of roles, the template raised, answers that are the
     * same */
    LF_ROW_BROKEN,
    LF_ROW_NON_PREFIX, /* the prefix property does not hold */
    LF_ROW_NO_TARGET,  /* no answer that is to be trained */
    LF_ROW_TOO_LONG,   /* and not to be truncated */
    LF_ROW_ALL_MASKED, /* nothing is left to train on after truncation */
    LF_ROW_FATES
};
const char *lf_row_fate_name(enum lf_row_fate f); /* "kept", "empty", "broken", "non_prefix", ... */

enum lf_truncate { LF_TRUNCATE_END, LF_TRUNCATE_DROP, LF_TRUNCATE_BUDGET };

enum lf_row_kind {
    LF_ROW_PLAIN,
    LF_ROW_PAIR,
    LF_ROW_UNPAIRED,
    LF_ROW_PROMPT
}; /* in the order of the store's lf_rows */

typedef struct lf_rowdocs_opts {
    const lf_tokenizer *tok;
    const lf_chat *chat;        /* NULL: rows with turns fail */
    const char *no_chat;        /* why there is none, for the message; NULL: not known */
    const lf_shape_opts *shape; /* for the name of the prompt's column; NULL: it is called prompt */
    unsigned flags;             /* lf_tok_flags of texts (conversations know their own) */
    int64_t eos_id;             /* behind texts; -1: none */
    lf_chat_train train;        /* of conversations */
    bool any_order;             /* roles are not checked */
    bool train_prompt; /* prompts are trained like answers, but not in pairs and labelled rows */
    size_t max_length; /* tokens of a document; 0: no limit */
    enum lf_truncate truncate;
} lf_rowdocs_opts;

/* One thread's; lf_rowdocs_init, then encode again and again, lf_rowdocs_fini. */
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
    lf_buf text; /* what identifies the row: rendered texts, or ids */
    lf_buf rest; /* prompt: the other columns as JSON */
    /* findings about rows that are kept */
    bool truncated, double_bos, seam; /* seam: tok(prompt) does not begin the whole */
    /* the last trained turn, or the document, ends without an EOS or another special token */
    bool no_eos;
    bool empty_answer; /* an answer that is to be trained or judged is white space only */
    bool other_prompt; /* the two answers of a pair are to different prompts, as far as the row
                          tells */
    uint64_t replaced;
    /* inside */
    lf_chat_doc chat;
    lf_ids part;
    lf_turn *turns;
    lf_chat_span *spans; /* of the document being made */
    size_t n_turns, cap_turns, n_spans, cap_spans;
} lf_rowdocs;
void lf_rowdocs_init(lf_rowdocs *d);
void lf_rowdocs_fini(lf_rowdocs *d);

/* 0: d says what became of the row. LF_EINVAL: it has turns and there is no template; LF_ENOMEM. */
int lf_rowdocs_encode(lf_rowdocs *d, const lf_rowdocs_opts *o, lf_tok_state *t, const lf_row *row,
                      lf_err *err);

/* How much of a prompt and of its answer is kept in `room` tokens: an answer of less than half the
 * room is kept whole, so is a prompt of less than half of it, else both give way in proportion. */
void lf_truncate_budget(size_t *prompt, size_t *answer, size_t room);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * A template with its variables. chat_file.c makes it, chat.c renders it, chat_encode.c turns its
 * text into ids and masks.
 */
#ifndef LF_TEXT_CHAT_PRIV_H
#define LF_TEXT_CHAT_PRIV_H

#include "engine/base/hash.h"
#include "engine/text/chat/chat.h"
#include "engine/text/jinja/jinja.h"

struct lf_chat {
    const lf_tokenizer *tok;
    lf_jinja *main, *tools; /* tools: for rows with tools; NULL: main */
    bool marks, tools_marks;
    json_t *vars; /* tokens and the user's variables; never changed once made */
    int64_t now;
    char *sources; /* texts of the templates, for lf_chat_reads; owned */
    char sha256[LF_HASH_HEX];
};

/* As lf_chat_render, with the spans of generation blocks in bytes from the beginning of the new
 * text. spans may be NULL.
 */
int lf_chat_render_spans(const lf_chat *c, const struct lf_conversation *said,
                         bool generation_prompt, lf_buf *out, lf_jinja_spans *spans, lf_err *err);

#endif

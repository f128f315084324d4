/* SPDX-License-Identifier: Apache-2.0
 *
 * A template with its variables: made by chat_file.c, rendered by chat.c, turned into ids and masks
 * by chat_encode.c.
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
    json_t *vars; /* tokens and what the user adds; never changed after it was made */
    int64_t now;
    char *sources; /* templates, for what they read; owned */
    char sha256[LF_HASH_HEX];
};

/* As lf_chat_render, with the spans of generation blocks (NULL: not wanted), in bytes from the
 * begin of the new text.
 */
int lf_chat_render_spans(const lf_chat *c, const struct lf_conversation *said,
                         bool generation_prompt, lf_buf *out, lf_jinja_spans *spans, lf_err *err);

#endif

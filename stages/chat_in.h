/* SPDX-License-Identifier: Apache-2.0
 *
 * Conversations in requests (engine/infer/request.h): their messages through the tokenizer's chat
 * template. */
#ifndef LF_STAGES_CHAT_IN_H
#define LF_STAGES_CHAT_IN_H

#include "engine/infer/request.h"
#include "engine/text/chat/chat.h"

struct lf_chat_in {
    const char *tokenizer_path; /* these are the caller's */
    lf_chat_opts opts;
    const lf_tokenizer *tok;
    lf_chat *chat; /* NULL: no template */
};

/* Sets d->chat, to nothing where the tokenizer has no template: that is fine while no request has
 * messages. c and tok outlive d. */
int lf_chat_in_load(struct lf_chat_in *c, const lf_tokenizer *tok, lf_gen_defaults *d, lf_err *err);
void lf_chat_in_fini(struct lf_chat_in *c);

#endif

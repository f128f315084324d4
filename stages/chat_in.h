/* SPDX-License-Identifier: Apache-2.0
 *
 * Conversations in requests (engine/infer/request.h). The tokenizer's chat template turns their
 * messages into a prompt.
 */
#ifndef LF_STAGES_CHAT_IN_H
#define LF_STAGES_CHAT_IN_H

#include "engine/infer/request.h"
#include "engine/text/chat/chat.h"

struct lf_chat_in {
    const char *tokenizer_path; /* borrowed from the caller */
    lf_chat_opts opts;
    const lf_tokenizer *tok;
    lf_chat *chat; /* NULL: the tokenizer has no template */
};

/* Sets d->chat. It is left empty when the tokenizer has no template, which is an error only once a
 * request has messages. c and tok outlive d. */
int lf_chat_in_load(struct lf_chat_in *c, const lf_tokenizer *tok, lf_gen_defaults *d, lf_err *err);
void lf_chat_in_fini(struct lf_chat_in *c);

#endif

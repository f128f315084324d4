/* SPDX-License-Identifier: Apache-2.0
 *
 * Samples while lf-sft trains: turns its sample_ options into engine/post/samples.h.
 */
#ifndef LF_STAGES_SFT_SAMPLES_H
#define LF_STAGES_SFT_SAMPLES_H

#include "engine/post/samples.h"
#include "stages/chat_in.h"
#include "stages/train_common.h"

struct sft_samples {
    int64_t interval; /* 0: none */
    const char *prompts, *tokenizer;
    int64_t rows, tokens;
    double temperature;
    lf_tokenizer *tok;
    struct lf_chat_in chat;
    int32_t *end;
    lf_samples *samples;
};

/* Checks the options; call it after lf_optset_fill. */
int sft_samples_check(const struct sft_samples *q, const lf_optset *o, lf_err *err);
/* Makes the guest of c, which must be complete. With `run` the tokenizer is read. */
int sft_samples_open(struct sft_samples *q, struct lf_train_config *c, bool run, lf_err *err);
void sft_samples_close(struct sft_samples *q);

#endif

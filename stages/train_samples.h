/* SPDX-License-Identifier: Apache-2.0
 *
 * Samples while a stage trains: turns the rows LF_TRAIN_SAMPLE_ROWS into engine/post/samples.h. The
 * stage's struct has the member `samples`, which the rows fill.
 */
#ifndef LF_STAGES_TRAIN_SAMPLES_H
#define LF_STAGES_TRAIN_SAMPLES_H

#include "engine/post/samples.h"
#include "stages/chat_in.h"
#include "stages/train_common.h"

struct lf_train_samples {
    int64_t interval; /* 0: none */
    const char *prompts, *tokenizer;
    lf_opt_list texts;
    int64_t rows, tokens;
    double temperature;
    lf_tokenizer *tok; /* NULL: ids */
    char *found;       /* the tokenizer beside the data; owned */
    struct lf_chat_in chat;
    int32_t *end;
    lf_samples *samples;
};

/* The option of samples, besides their interval, that was given, and with tokenizer that one too;
 * NULL: none. */
const char *lf_train_samples_given(const struct lf_train_samples *q, const lf_optset *o,
                                   bool tokenizer);
/* Checks the options; call it after lf_optset_fill. tokenizer: the stage has the row
 * LF_TRAIN_TOKENIZER_ROW, and for samples alone. */
int lf_train_samples_check(const struct lf_train_samples *q, const lf_optset *o, bool tokenizer,
                           lf_err *err);
/* Makes the guest of c, which must be complete. With `run` the tokenizer is read: the one that was
 * given, else the one beside the data, if that made it. */
int lf_train_samples_open(struct lf_train_samples *q, struct lf_train_config *c, bool run,
                          lf_err *err);
/* The options as engine/post takes them, without tokenizer and end tokens; context is the most that
 * a prompt and its sample may take. */
struct lf_samples_opts lf_train_samples_opts(const struct lf_train_samples *q, int64_t context,
                                             enum lf_dtype compute, uint64_t seed);
/* Reads q->tok as lf_train_samples_open does, for a stage that generates nothing. */
int lf_train_samples_tokenizer(struct lf_train_samples *q, const struct lf_train_config *c,
                               lf_err *err);
/* The same without a word where there is none: q->tok is NULL then. */
int lf_train_samples_find_tokenizer(struct lf_train_samples *q, const struct lf_train_config *c,
                                    lf_err *err);
void lf_train_samples_close(struct lf_train_samples *q);

#endif

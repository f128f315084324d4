/* SPDX-License-Identifier: Apache-2.0
 *
 * What a reward model says while it is trained, as a guest of the loop (engine/train/guest.h): the
 * scores of the first pairs of the validation data, by one more chain of the run's plan
 * (rm_score.h), which shares the memory of training. Each answer is one line of the file of samples
 * (engine/train/sample_file.h):
 *
 *     {"step":N,"prompt":TEXT,"id":"valid-1","sample":0,"answer":"chosen","prompt_tokens":N,
 *      "text":TEXT,"token_ids":[...],"score":X}
 *
 * sample 1 is the rejected one. Without a tokenizer "prompt_token_ids" stand in the place of
 * "prompt", and text is empty. Pairs with an answer that is empty or longer than a sequence are
 * passed over.
 *
 * Metrics: sample_accuracy (share of these pairs whose chosen answer has the higher score),
 * sample_margin (mean of chosen - rejected).
 */
#ifndef LF_POST_SCORED_H
#define LF_POST_SCORED_H

#include "engine/text/token/tokenizer.h"
#include "engine/train/guest.h"

struct lf_scored_opts {
    int64_t rows;            /* pairs */
    int64_t interval;        /* steps, >= 1 */
    int64_t context;         /* tokens of the longest answer with its prompt */
    int64_t patches, tiles;  /* most of the pictures of a pass; 0: answers are to text */
    const lf_tokenizer *tok; /* NULL: ids */
};

typedef struct lf_scored lf_scored;

/* tok is borrowed. */
lf_scored *lf_scored_create(const struct lf_scored_opts *o, lf_err *err);
void lf_scored_destroy(lf_scored *s);
const struct lf_train_guest *lf_scored_guest(const lf_scored *s); /* owned by s */

#endif

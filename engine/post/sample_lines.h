/* SPDX-License-Identifier: Apache-2.0
 *
 * What guests that write samples share: the prompt in a line, and where lines go. A line is one
 * JSON object with "step", "id", "prompt" or "prompt_token_ids", and "text" (docs/files.md).
 */
#ifndef LF_POST_SAMPLE_LINES_H
#define LF_POST_SAMPLE_LINES_H

#include "engine/text/token/tokenizer.h"
#include "engine/train/run.h"

#define LF_SAMPLES_SHOWN 240 /* bytes of a prompt's end, and of what follows it, in the log */

/* Appends ,"prompt":TEXT, or ,"prompt_token_ids":[...] where tok is NULL. */
int lf_sample_add_prompt(lf_buf *out, const lf_tokenizer *tok, const int32_t *ids, size_t n,
                         lf_err *err);
/* Writes whole lines to the file of samples. Their texts also go to the dashboard as samples/ID,
 * with .N behind it for sample N > 0. Prompts and texts go to the log, without control characters
 * and cut to LF_SAMPLES_SHOWN, where they are no ids. Rank 0. */
int lf_sample_write(lf_run *r, int64_t step, const lf_buf *lines, lf_err *err);

#endif

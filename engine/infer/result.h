/* SPDX-License-Identifier: Apache-2.0
 *
 * Results of generation as JSON lines, in the order of the requests (request.h).
 *
 * A request in our own shape gets n lines:
 *     {"id","sample","prompt_tokens","text","token_ids","logprobs","finish_reason",
 *      "stop_reason"?,"top_logprobs"?,"prompt_logprobs"?,"prompt_top_logprobs"?,"seed"}
 * stop_reason is the stop string, or the token of stop_token_ids. Only the first sample has the
 * log-probabilities of the prompt; that of its first token is null. With best_of the lines come in
 * the order of falling summed log-probability, otherwise in that of the samples.
 *
 * An OpenAI batch request gets one line, as `vllm run-batch` writes it:
 *     {"id","custom_id","response":{"status_code","request_id","body"},"error"}
 * Ids are made of custom_id and `created` is 0, so the same requests give the same bytes. A request
 * that could not be run has status 400, body null and error {"message","type","code"}.
 */
#ifndef LF_INFER_RESULT_H
#define LF_INFER_RESULT_H

#include "engine/infer/request.h"

typedef struct lf_gen_writer lf_gen_writer;

/* jobs, which lf_gen_jobs_fit has checked, and tok are borrowed. model is the name for batch
 * requests that give none. */
lf_gen_writer *lf_gen_writer_create(const lf_gen_jobs *jobs, const lf_tokenizer *tok,
                                    const char *model, lf_err *err);
void lf_gen_writer_destroy(lf_gen_writer *w);
/* The next results belong to requests from `request` on; the first `skip` lines of that request are
 * left out. */
void lf_gen_writer_seek(lf_gen_writer *w, size_t request, size_t skip);
/* Takes the result of the next job and appends the lines that are complete to out. */
int lf_gen_writer_take(lf_gen_writer *w, const lf_gen_result *r, lf_buf *out, lf_err *err);
/* Appends the lines of the requests before `request` that have no jobs. */
int lf_gen_writer_pass(lf_gen_writer *w, size_t request, lf_buf *out, lf_err *err);

/* Checks that this is the result line with this index. LF_EFORMAT: it is not. */
int lf_gen_line_check(const lf_gen_jobs *jobs, size_t index, const char *line, size_t len,
                      lf_err *err);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Results of generation as JSON lines, in the order of the requests (request.h).
 *
 * Of a request in our shape n lines:
 *     {"id","sample","prompt_tokens","text","token_ids",
 *     "logprobs","finish_reason","stop_reason"?,"top_logprobs"?,
 *      "prompt_logprobs"?,"prompt_top_logprobs"?,"seed"}
 * stop_reason: the stop string, or the token of stop_token_ids; the first sample alone has the
 * prompt's log-probabilities (null: nothing is before the first token). With best_of the lines come
 * in order of falling summed log-probability, else of the sample.
 *
 * Of an OpenAI batch request one line, as `vllm run-batch` writes it:
 * {"id","custom_id","response":{"status_code","request_id","body"}, "error"}. Ids are made of
 * custom_id and `created` is 0, so the same requests give the same bytes. Of one that could not be
 * run: status 400, body null, error {"message","type","code"}.
 */
#ifndef LF_INFER_RESULT_H
#define LF_INFER_RESULT_H

#include "engine/infer/request.h"

typedef struct lf_gen_writer lf_gen_writer;

/* jobs (with fit done) and tok are borrowed; model names what answers a batch request that names
 * none. */
lf_gen_writer *lf_gen_writer_create(const lf_gen_jobs *jobs, const lf_tokenizer *tok,
                                    const char *model, lf_err *err);
void lf_gen_writer_destroy(lf_gen_writer *w);
/* Requests are to come from `request` on; of the first, `skip` lines are not wanted. */
void lf_gen_writer_seek(lf_gen_writer *w, size_t request, size_t skip);
/* The result of the next job; the lines that are complete are appended to out. */
int lf_gen_writer_take(lf_gen_writer *w, const lf_gen_result *r, lf_buf *out, lf_err *err);
/* Lines of the requests before `request` that have no jobs. */
int lf_gen_writer_pass(lf_gen_writer *w, size_t request, lf_buf *out, lf_err *err);

/* Is this a line of the request, its offset-th? LF_EFORMAT: no. */
int lf_gen_line_check(const lf_gen_jobs *jobs, size_t index, const char *line, size_t len,
                      lf_err *err);

#endif

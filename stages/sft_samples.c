/* SPDX-License-Identifier: Apache-2.0
 *
 * See sft_samples.h. */
#include "stages/sft_samples.h"

#include <stdlib.h>

#include "engine/model/same_tokenizer.h"
#include "stages/infer_common.h"

#define PROMPT_TOKENS 512 /* of which memory is planned for, where sequences are as long */

int sft_samples_check(const struct sft_samples *q, const lf_optset *o, lf_err *err)
{
    const void *const rest[] = {&q->prompts, &q->rows, &q->tokens, &q->temperature, &q->tokenizer};
    for (size_t i = 0; i < sizeof rest / sizeof *rest && !q->interval; i++)
        if (lf_optset_given(o, rest[i]))
            return lf_fail(err, LF_EINVAL,
                           "%s belongs to samples, of which there are none: give sample_interval",
                           lf_optset_given(o, rest[i]));
    return q->prompts && lf_optset_given(o, &q->rows)
               ? lf_fail(err, LF_EINVAL, "give one of sample_prompts and sample_rows")
               : 0;
}

int sft_samples_open(struct sft_samples *q, struct lf_train_config *c, bool run, lf_err *err)
{
    const int64_t most = PROMPT_TOKENS + q->tokens;
    struct lf_samples_opts o = {.out = c->out,
                                .prompts = q->prompts,
                                .rows = q->rows,
                                .interval = q->interval,
                                .context = c->seq_length < most ? c->seq_length : most,
                                .compute = c->compute,
                                .defaults = {.params = LF_SAMPLE_DEFAULTS,
                                             .n = 1,
                                             .max_tokens = q->tokens,
                                             .prompt_logprobs = -1,
                                             .skip_special = true,
                                             .seed = c->seed}};
    o.defaults.params.temperature = q->temperature;
    if (!q->interval)
        return 0;
    int rc = run && q->tokenizer ? lf_infer_tokenizer(&q->tok, q->tokenizer, err) : 0;
    for (size_t i = 0; rc == 0 && q->tok && i < c->n_sources; i++)
        rc = lf_same_tokenizer_made(c->sources[i].dir, lf_tokenizer_sha256(q->tok), q->tokenizer,
                                    err);
    if (rc == 0 && q->tok)
        rc = lf_infer_end_tokens(&q->end, &o.defaults.n_end, q->tok, q->tokenizer, NULL, 0, err);
    q->chat.tokenizer_path = q->tokenizer;
    if (rc == 0 && q->tok)
        rc = lf_chat_in_load(&q->chat, q->tok, &o.defaults, err);
    o.tok = q->tok;
    o.defaults.end = q->end;
    if (rc == 0 && !(q->samples = lf_samples_create(&o, err)))
        rc = err && err->rc ? err->rc : LF_ENOMEM;
    if (rc == 0)
        c->guest = lf_samples_guest(q->samples);
    return rc;
}

void sft_samples_close(struct sft_samples *q)
{
    lf_samples_destroy(q->samples);
    lf_chat_in_fini(&q->chat);
    lf_tokenizer_destroy(q->tok);
    free(q->end);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * See train_samples.h. */
#include "stages/train_samples.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/artifact.h"
#include "engine/base/io.h"
#include "engine/base/sys.h"
#include "engine/model/same_tokenizer.h"
#include "stages/infer_common.h"

#define PROMPT_TOKENS 512 /* of which memory is planned for, where sequences are as long */

const char *lf_train_samples_given(const struct lf_train_samples *q, const lf_optset *o,
                                   bool tokenizer)
{
    const void *const rest[] = {&q->prompts, &q->texts,       &q->rows,
                                &q->tokens,  &q->temperature, &q->tokenizer};
    const size_t n = sizeof rest / sizeof *rest - (tokenizer ? 0 : 1);
    for (size_t i = 0; i < n; i++)
        if (lf_optset_given(o, rest[i]))
            return lf_optset_given(o, rest[i]);
    return NULL;
}

int lf_train_samples_check(const struct lf_train_samples *q, const lf_optset *o, bool tokenizer,
                           lf_err *err)
{
    const char *given = q->interval ? NULL : lf_train_samples_given(q, o, tokenizer);
    if (given)
        return lf_fail(err, LF_EINVAL,
                       "%s belongs to samples, of which there are none: give sample_interval",
                       given);
    return (q->prompts || q->texts.n) && lf_optset_given(o, &q->rows)
               ? lf_fail(err, LF_EINVAL,
                         "sample_rows counts documents: leave it out with sample_prompts and "
                         "sample_prompt")
               : 0;
}

/* The tokenizer that lf-tokenize left beside the shards in data, if it is what made them. */
static int look_beside(struct lf_train_samples *q, const char *data, lf_err *err)
{
    lf_artifact a = {0};
    char *path = lf_path_join(data, "../tokenizer", err);
    if (!path)
        return LF_ENOMEM;
    const char *made_by = lf_artifact_load(&a, data, "shards", NULL)
                              ? NULL
                              : json_string_value(json_object_get(a.meta, "tokenizer_sha256"));
    lf_tokenizer *t = made_by && lf_io_exists(path) ? lf_tokenizer_load(path, NULL) : NULL;
    if (t && strcmp(lf_tokenizer_sha256(t), made_by) == 0)
        q->tok = t;
    else
        lf_tokenizer_destroy(t);
    lf_artifact_fini(&a);
    q->found = q->tok ? path : NULL;
    if (!q->tok)
        free(path);
    return 0;
}

int lf_train_samples_find_tokenizer(struct lf_train_samples *q, const struct lf_train_config *c,
                                    lf_err *err)
{
    if (q->tok)
        return 0;
    if (!q->tokenizer)
        return look_beside(q, c->sources[0].dir, err);
    int rc = lf_infer_tokenizer(&q->tok, q->tokenizer, err);
    for (size_t i = 0; rc == 0 && i < c->n_sources; i++)
        rc = lf_same_tokenizer_made(c->sources[i].dir, lf_tokenizer_sha256(q->tok), q->tokenizer,
                                    err);
    return rc;
}

int lf_train_samples_tokenizer(struct lf_train_samples *q, const struct lf_train_config *c,
                               lf_err *err)
{
    int rc = lf_train_samples_find_tokenizer(q, c, err);
    if (rc == 0 && !q->tok && q->texts.n)
        rc = lf_fail(err, LF_EINVAL,
                     "sample_prompt is text, and beside %s lies no tokenizer that made it: give "
                     "tokenizer",
                     c->sources[0].dir);
    if (rc == 0 && !q->tok)
        lf_log(2, "samples are ids: no tokenizer is given, and none that made %s lies beside it",
               c->sources[0].dir);
    return rc;
}

/* End tokens and chat template of q->tok, which lies at path. */
static int take_tokenizer(struct lf_train_samples *q, const char *path, lf_gen_defaults *d,
                          lf_err *err)
{
    int rc = q->tok ? lf_infer_end_tokens(&q->end, &d->n_end, q->tok, path, NULL, 0, err) : 0;
    q->chat.tokenizer_path = path;
    if (rc == 0)
        rc = lf_chat_in_load(&q->chat, q->tok, d, err);
    d->end = q->end;
    return rc;
}

struct lf_samples_opts lf_train_samples_opts(const struct lf_train_samples *q, int64_t context,
                                             enum lf_dtype compute, uint64_t seed)
{
    const int64_t most = PROMPT_TOKENS + q->tokens;
    struct lf_samples_opts o = {.prompts = q->prompts,
                                .texts = q->texts.v,
                                .n_texts = q->texts.n,
                                .rows = q->rows,
                                .interval = q->interval,
                                .context = context < most ? context : most,
                                .compute = compute,
                                .defaults = {.params = LF_SAMPLE_DEFAULTS,
                                             .n = 1,
                                             .max_tokens = q->tokens,
                                             .prompt_logprobs = -1,
                                             .skip_special = true,
                                             .seed = seed}};
    o.defaults.params.temperature = q->temperature;
    return o;
}

int lf_train_samples_open(struct lf_train_samples *q, struct lf_train_config *c, bool run,
                          lf_err *err)
{
    struct lf_samples_opts o = lf_train_samples_opts(q, c->seq_length, c->compute, c->seed);
    o.patches = c->max_patches;
    o.tiles = c->max_tiles;
    if (!q->interval)
        return 0;
    int rc = run ? lf_train_samples_tokenizer(q, c, err) : 0;
    if (rc == 0 && q->tok)
        rc = take_tokenizer(q, q->tokenizer ? q->tokenizer : q->found, &o.defaults, err);
    o.tok = q->tok;
    if (rc == 0 && !(q->samples = lf_samples_create(&o, err)))
        rc = err && err->rc ? err->rc : LF_ENOMEM;
    if (rc == 0)
        c->guest = lf_samples_guest(q->samples);
    return rc;
}

void lf_train_samples_close(struct lf_train_samples *q)
{
    lf_samples_destroy(q->samples);
    lf_chat_in_fini(&q->chat);
    lf_tokenizer_destroy(q->tok);
    free(q->end);
    free(q->found);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Rollouts in memory: see rollout.h. */
#include "engine/post/rollout.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"

int lf_rollout_init(lf_rollout *r, const char *sources, size_t n_sources, size_t group, lf_err *err)
{
    *r = (lf_rollout){.n_sources = n_sources, .group = group};
    r->sources = lf_strdup(sources, err);
    r->offsets = lf_calloc(1, sizeof *r->offsets, err);
    r->first = lf_calloc(1, sizeof *r->first, err);
    if (r->sources && r->offsets && r->first)
        return 0;
    lf_rollout_fini(r);
    return LF_ENOMEM;
}

void lf_rollout_fini(lf_rollout *r)
{
    void *blocks[] = {r->sources, r->offsets, r->first,  r->prompt_len, r->prompt, r->doc,
                      r->seed,    r->ended,   r->source, r->score,      r->reward, r->tokens,
                      r->logprob, r->ref,     r->value,  r->adv,        r->ret};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        free(blocks[i]);
    *r = (lf_rollout){0};
}

static int more_sequences(lf_rollout *r, lf_err *err)
{
    size_t cap = r->cap ? 2 * r->cap : 64, k = r->n_sources ? r->n_sources : 1;
    if (r->n < r->cap)
        return 0;
    int rc = lf_realloc(&r->offsets, cap + 1, sizeof *r->offsets, err);
    if (rc == 0)
        rc = lf_realloc(&r->first, cap + 1, sizeof *r->first, err);
    if (rc == 0)
        rc = lf_realloc(&r->prompt_len, cap, sizeof *r->prompt_len, err);
    if (rc == 0)
        rc = lf_realloc(&r->prompt, cap, sizeof *r->prompt, err);
    if (rc == 0)
        rc = lf_realloc(&r->doc, cap, sizeof *r->doc, err);
    if (rc == 0)
        rc = lf_realloc(&r->seed, cap, sizeof *r->seed, err);
    if (rc == 0)
        rc = lf_realloc(&r->ended, cap, sizeof *r->ended, err);
    if (rc == 0)
        rc = lf_realloc(&r->source, cap * k, sizeof *r->source, err);
    if (rc == 0)
        rc = lf_realloc(&r->score, cap, sizeof *r->score, err);
    if (rc == 0)
        rc = lf_realloc(&r->reward, cap, sizeof *r->reward, err);
    r->cap = rc != 0 ? r->cap : cap;
    return rc;
}

static int more_of(void *block, size_t *cap, size_t need, lf_err *err)
{
    size_t want = *cap ? *cap : 1024;
    while (want < need)
        want *= 2;
    int rc = want > *cap ? lf_realloc(block, want, sizeof(int32_t), err) : 0;
    *cap = rc != 0 ? *cap : want;
    return rc;
}

int lf_rollout_add(lf_rollout *r, const struct lf_rollout_seq *s, lf_err *err)
{
    size_t at = r->offsets[r->n], len = s->n_prompt + s->n_completion, c = (size_t)r->first[r->n];
    int rc = more_sequences(r, err);
    if (rc == 0)
        rc = more_of(&r->tokens, &r->cap_tokens, at + len, err);
    if (rc == 0)
        rc = more_of(&r->logprob, &r->cap_completion, c + s->n_completion, err);
    if (rc != 0)
        return rc;
    memcpy(r->tokens + at, s->prompt, s->n_prompt * sizeof *r->tokens);
    memcpy(r->tokens + at + s->n_prompt, s->completion, s->n_completion * sizeof *r->tokens);
    memcpy(r->logprob + c, s->logprob, s->n_completion * sizeof *r->logprob);
    r->prompt_len[r->n] = (uint32_t)s->n_prompt;
    r->prompt[r->n] = s->number;
    r->doc[r->n] = s->doc;
    r->seed[r->n] = s->seed;
    r->ended[r->n] = s->ended;
    for (size_t k = 0; k < r->n_sources; k++)
        r->source[r->n * r->n_sources + k] = 0;
    r->score[r->n] = r->reward[r->n] = 0;
    r->n++;
    r->offsets[r->n] = at + len;
    r->first[r->n] = (int64_t)(c + s->n_completion);
    return 0;
}

int lf_rollout_columns(lf_rollout *r, bool ref, bool value, lf_err *err)
{
    size_t n = (size_t)r->first[r->n];
    free(r->ref);
    free(r->value);
    free(r->adv);
    free(r->ret);
    r->ref = ref ? lf_calloc(n + 1, sizeof *r->ref, err) : NULL;
    r->value = value ? lf_calloc(n + 1, sizeof *r->value, err) : NULL;
    r->adv = lf_calloc(n + 1, sizeof *r->adv, err);
    r->ret = lf_calloc(n + 1, sizeof *r->ret, err);
    return r->adv && r->ret && (r->ref || !ref) && (r->value || !value) ? 0 : LF_ENOMEM;
}

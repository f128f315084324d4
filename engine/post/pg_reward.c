/* SPDX-License-Identifier: Apache-2.0
 *
 * The sources of a reward, in the order of lf_rollout.source: rules, command, reward model. */
#include <stdio.h>
#include <stdlib.h>

#include "engine/base/json.h"
#include "engine/infer/group.h"
#include "engine/post/pg_priv.h"

int lf_pg_reward_open(lf_pg *p, lf_err *err)
{
    const struct lf_pg_config *c = p->c;
    lf_buf names;
    lf_buf_init(&names);
    for (size_t i = 0; i < c->n_rules; i++) {
        size_t before = 0;
        for (size_t k = 0; k < i; k++)
            before += lf_rule_name(c->rules[k]) == lf_rule_name(c->rules[i]);
        lf_buf_addf(&names, "%s%s", names.len ? "," : "", lf_rule_name(c->rules[i]));
        if (before)
            lf_buf_addf(&names, "-%zu", before + 1);
    }
    if (c->command)
        lf_buf_addf(&names, "%scommand", names.len ? "," : "");
    if (c->reward_model)
        lf_buf_addf(&names, "%smodel", names.len ? "," : "");
    p->n_sources = c->n_rules + (c->command != NULL) + (c->reward_model != NULL);
    p->sources = lf_buf_check(&names, err) ? NULL : lf_buf_steal(&names, err);
    lf_buf_fini(&names);
    if (!p->sources)
        return LF_ENOMEM;
    if (c->command && !(p->command = lf_cmd_create(c->command, err)))
        return LF_ENOMEM;
    return 0;
}

struct lf_rm_opts lf_pg_reward_opts(const lf_pg *p)
{
    return (struct lf_rm_opts){.threads = p->c->threads,
                               .device = p->c->device,
                               .rank = p->run.rank,
                               .with = p->reward_with.layout.tensor > 1 ? &p->reward_with : NULL,
                               .local_rank = p->run.comm ? p->run.comm->local_rank : 0,
                               .compute = p->c->compute,
                               .max_context = p->context,
                               .rows = p->rows,
                               .docs = 256,
                               .patches = p->c->max_patches,
                               .tiles = p->c->max_tiles,
                               .profile = p->c->profile,
                               .label = "reward"};
}

int lf_pg_reward_model(lf_pg *p, lf_err *err)
{
    const struct lf_rm_opts o = lf_pg_reward_opts(p);
    int rc = lf_rm_open(&p->reward_model, p->c->reward_model, &o, err);
    if (rc != 0)
        return lf_err_prefix(err, "reward_model");
    if (p->c->reward_normalized && !lf_rm_norm_of(p->reward_model)->stored)
        return lf_fail(err, LF_EINVAL,
                       "reward_normalized: %s has no mean and deviation stored with it",
                       p->c->reward_model);
    if (lf_rm_config(p->reward_model)->vocab < p->mc.vocab)
        return lf_fail(err, LF_EINVAL, "the reward model knows %lld tokens, the policy %lld",
                       (long long)lf_rm_config(p->reward_model)->vocab, (long long)p->mc.vocab);
    return lf_pg_see_reward(p, err);
}

int lf_pg_score_model(lf_pg *p, lf_rollout *r, size_t from, const bool *wanted, lf_err *err)
{
    const size_t n = r->n - from, column = p->n_sources - 1;
    size_t k = 0;
    if (!p->c->reward_model)
        return 0;
    lf_rm_text *texts = lf_calloc(n + 1, sizeof *texts, err);
    float *score = lf_calloc(n + 1, sizeof *score, err);
    int rc = texts && score ? 0 : LF_ENOMEM;
    for (size_t i = 0; i < n && rc == 0; i++)
        if (wanted[i]) {
            const uint64_t doc = r->doc[from + i];
            texts[k++] = (lf_rm_text){.tokens = r->tokens + r->offsets[from + i],
                                      .n = lf_rollout_len(r, from + i),
                                      .sees = lf_pg_sees(p, doc),
                                      .doc = doc};
        }
    if (rc == 0 && k)
        rc = lf_rm_score(p->reward_model, texts, k, score, lf_group_stop, err);
    for (size_t i = k = 0; i < n && rc == 0; i++)
        if (wanted[i]) {
            double x = (double)score[k++];
            r->source[(from + i) * p->n_sources + column] =
                p->c->reward_normalized ? lf_rm_normalized(lf_rm_norm_of(p->reward_model), x) : x;
        }
    free(texts);
    free(score);
    return rc;
}

double lf_pg_source_weight(const lf_pg *p, size_t k)
{
    if (k < p->c->n_rules)
        return lf_rule_weight(p->c->rules[k]);
    return k == p->c->n_rules && p->c->command ? p->c->command_weight : p->c->reward_model_weight;
}

static int decode(lf_buf *out, const lf_pg *p, const int32_t *tokens, size_t n, bool skip_special,
                  lf_err *err)
{
    lf_tok_stream s = {0};
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0 && p->c->tokenizer; i++)
        if (tokens[i] < (int32_t)lf_tokenizer_vocab_size(
                            p->c->tokenizer)) /* a padded vocabulary has ids without text */
            rc = lf_tok_stream_push(&s, p->c->tokenizer, (uint32_t)tokens[i], skip_special, out,
                                    err);
    if (rc == 0 && p->c->tokenizer)
        rc = lf_tok_stream_finish(&s, p->c->tokenizer, out, err);
    else
        lf_tok_stream_drop(&s);
    return rc != 0 ? rc : lf_buf_check(out, err);
}

int lf_pg_text(const lf_pg *p, const lf_rollout *r, size_t i, lf_buf *out, lf_err *err)
{
    return decode(out, p, r->tokens + r->offsets[i] + r->prompt_len[i],
                  lf_rollout_len(r, i) - r->prompt_len[i], true, err);
}

static int all_sources(lf_pg *p, const struct lf_reward_item *it, double *score, lf_err *err)
{
    int rc = 0;
    for (size_t k = 0; k < p->c->n_rules && rc == 0; k++)
        rc = lf_rule_score(p->c->rules[k], it, &score[k], err);
    if (rc == 0 && p->command)
        rc = lf_cmd_score(p->command, it, &score[p->c->n_rules], err);
    return rc;
}

int lf_pg_score_one(lf_pg *p, const lf_rollout *r, size_t i, double *score, lf_err *err)
{
    const int32_t *tokens = r->tokens + r->offsets[i];
    size_t n = lf_rollout_len(r, i), n_prompt = r->prompt_len[i], rest_len = 0;
    lf_buf prompt, completion;
    char id[64];
    json_t *rest = NULL;
    lf_buf_init(&prompt);
    lf_buf_init(&completion);
    snprintf(id, sizeof id, "prompt %llu sample %zu", (unsigned long long)r->prompt[i],
             i % r->group);
    int rc = decode(&prompt, p, tokens, n_prompt, false, err);
    if (rc == 0)
        rc = lf_pg_text(p, r, i, &completion, err);
    const char *text = lf_shardset_get_info(p->data)->rows == LF_ROWS_PROMPTS
                           ? lf_shardset_rest(p->data, r->doc[i], &rest_len)
                           : NULL;
    if (rc == 0 && text && rest_len && !(rest = lf_json_load_text(text, rest_len, id, err)))
        rc = LF_EFORMAT;
    struct lf_reward_item it = {id,          prompt.data, completion.data, (int64_t)(n - n_prompt),
                                r->ended[i], rest};
    if (rc == 0)
        rc = all_sources(p, &it, score, err);
    json_decref(rest);
    lf_buf_fini(&prompt);
    lf_buf_fini(&completion);
    return rc;
}

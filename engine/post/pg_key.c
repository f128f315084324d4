/* SPDX-License-Identifier: Apache-2.0
 *
 * The key of a round: a hash of all that its sequences, scores and advantages follow from. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/post/pg_priv.h"

/* Every setting that a published round depends on, as text. */
static void describe(lf_buf *b, const lf_pg *p)
{
    const struct lf_pg_config *c = p->c;
    char id[LF_HASH_HEX];
    lf_hash_hex(id, lf_shardset_id(p->data));
    lf_buf_addf(b,
                "lf-pg-1 data %s seed %" PRIu64 " round %" PRId64 " prompt %" PRId64
                " prompts %" PRId64 " samples %" PRId64 " max_prompt %" PRId64
                " max_tokens %" PRId64 " T %.17g dynamic %d %" PRId64 "\n",
                id, c->seed, p->s.round + 1, p->s.prompts, c->prompts, c->samples, c->max_prompt,
                c->max_tokens, c->temperature, c->dynamic_sampling, c->dynamic_rounds);
    if (c->compute != LF_F32) /* f32 came first: its keys stay what they were */
        lf_buf_addf(b, "compute %s\n", c->compute == LF_BF16 ? "bf16" : "fp16");
    for (size_t i = 0; i < c->n_end; i++)
        lf_buf_addf(b, "end %d\n", (int)c->end[i]);
    for (size_t i = 0; i < c->n_rules; i++)
        lf_buf_addf(b, "rule %s\n", lf_rule_spec(c->rules[i]));
    if (c->command)
        lf_buf_addf(b, "command %.17g %s\n", c->command_weight, c->command->command);
    if (c->reward_model)
        lf_buf_addf(b, "model %.17g %d %s\n", c->reward_model_weight, c->reward_normalized,
                    c->reward_model);
    lf_buf_addf(b, "advantage %d %.17g %.17g %.17g whiten %d %d %d kl %d %.17g %d %d %.17g %.17g\n",
                (int)c->advantage, c->gamma, c->lambda, c->group_eps, c->whiten, c->whiten_biased,
                c->whiten_rewards, c->kl_in_reward, p->s.beta, (int)c->kl_est.kind,
                c->kl_est.straight, c->kl_est.clamp_in, c->kl_est.clamp_out);
    const struct lf_shaping *s = &c->shaping;
    lf_buf_addf(
        b,
        "shape %d %.17g %" PRId64 " %" PRId64 " %.17g %d %.17g running %" PRId64 " %.17g %.17g\n",
        (int)s->missing, s->missing_value, s->overlong_max, s->overlong_buffer, s->overlong_factor,
        s->scale, s->clip, p->s.scores.n, p->s.scores.mean, p->s.scores.m2);
    lf_buf_addf(b, "replay %s\n", c->replay ? c->replay : "");
}

static int describe_adapter(lf_buf *b, const lf_pg *p, lf_err *err)
{
    json_t *o = p->c->adapter ? lf_adapter_to_json(p->c->adapter, err) : NULL;
    char *text = o ? json_dumps(o, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    if (text)
        lf_buf_addf(b, "adapter %s of %s\n", text, p->run.base);
    int rc =
        p->c->adapter && !text ? lf_fail(err, LF_ENOMEM, "key of the round: out of memory") : 0;
    free(text);
    json_decref(o);
    return rc;
}

static int hash_block(lf_hash *h, lf_pstore *ps, enum lf_pkind kind, bool host, lf_err *err)
{
    void *data = NULL, *copy = NULL;
    size_t bytes = 0;
    lf_pstore_block(ps, kind, host, &data, &bytes);
    if (bytes && !lf_pstore_on_host(ps)) {
        copy = lf_malloc(bytes, 1, err);
        int rc = copy ? lf_pstore_fetch(ps, copy, data, bytes, err) : LF_ENOMEM;
        if (rc != 0) {
            free(copy);
            return rc;
        }
    }
    lf_hash_update(h, copy ? copy : data, bytes);
    free(copy);
    return 0;
}

/* masters bf16: weights are in the copies too. */
static int hash_weights(lf_hash *h, const lf_pg *p, const lf_pg_model *m, lf_err *err)
{
    lf_pstore *ps = m ? lf_pg_model_store(m) : NULL;
    int rc = ps ? hash_block(h, ps, LF_P_MASTER, false, err) : 0;
    if (rc == 0 && ps)
        rc = hash_block(h, ps, LF_P_MASTER, true, err);
    return rc || !ps || p->c->adam.masters != LF_BF16 ? rc
                                                      : hash_block(h, ps, LF_P_COPY, false, err);
}

int lf_pg_key(char key[LF_HASH_HEX], const lf_pg *p, lf_err *err)
{
    uint8_t digest[LF_HASH_BYTES];
    lf_buf b;
    lf_hash *h = lf_hash_create(err);
    lf_buf_init(&b);
    describe(&b, p);
    int rc = h ? describe_adapter(&b, p, err) : LF_ENOMEM;
    if (rc == 0)
        rc = lf_buf_check(&b, err);
    if (rc == 0) {
        lf_hash_update(h, b.data, b.len);
        rc = hash_weights(h, p, p->actor, err);
    }
    if (rc == 0)
        rc = hash_weights(h, p, p->critic, err);
    if (rc == 0) {
        lf_hash_final(h, digest);
        lf_hash_hex(key, digest);
    }
    lf_hash_destroy(h);
    lf_buf_fini(&b);
    return rc;
}

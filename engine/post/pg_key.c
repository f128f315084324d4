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
    if (p->eyes) /* a bound decides which prompts there are */
        lf_buf_addf(b, "pictures patches %" PRId64 " tiles %" PRId64 "\n", c->max_patches,
                    c->max_tiles);
    if (c->fast)
        lf_buf_addf(b, "fast\n");
    for (int i = 0; i < LF_PG_PLACES; i++)
        if (lf_pg_own_tensor(p, i))
            lf_buf_addf(b, "layout %d tensor %d\n", i, p->at[i].axes.tensor);
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

/* ---- weights ---- */

#define CHUNK ((size_t)1 << 20) /* bytes that ranks give each other at once */

struct hashing {
    lf_hash *h;
    lf_pstore *ps;
    lf_comm *comm; /* of the ranks that divide the weights */
    char *buf;     /* [CHUNK] */
    size_t *bytes; /* [ranks] of a chunk */
};

static size_t between(size_t x, size_t low, size_t high)
{
    return x < low ? low : x > high ? high : x;
}

/* Bytes [at, at + n) of a piece that ranks divide, on all of them. */
static int gather_chunk(const struct hashing *g, const struct lf_plan_piece *q, size_t at, size_t n,
                        lf_err *err)
{
    const int me = g->comm->rank;
    for (int r = 0; r < g->comm->size; r++)
        g->bytes[r] = between(q->cut[r + 1], at, at + n) - between(q->cut[r], at, at + n);
    const size_t from = between(q->cut[me], at, at + n);
    int rc = g->bytes[me]
                 ? lf_pstore_fetch(g->ps, g->buf + (from - at),
                                   (const char *)q->data + (from - q->cut[me]), g->bytes[me], err)
                 : 0;
    return rc != 0 ? rc : lf_comm_all_gather(g->comm, g->buf, g->bytes, err);
}

static int hash_piece(void *user, const struct lf_plan_piece *q, lf_err *err)
{
    static const char zeros[256];
    struct hashing *g = user;
    int rc = 0;
    for (size_t at = 0, n; at < q->bytes && rc == 0; at += n) {
        n = q->bytes - at < CHUNK ? q->bytes - at : CHUNK;
        if (q->cut)
            rc = gather_chunk(g, q, at, n, err);
        else if (!lf_pstore_on_host(g->ps))
            rc = lf_pstore_fetch(g->ps, g->buf, (const char *)q->data + at, n, err);
        if (rc == 0)
            lf_hash_update(
                g->h, q->cut || !lf_pstore_on_host(g->ps) ? g->buf : (const char *)q->data + at, n);
    }
    for (size_t at = 0, n; at < q->gap && rc == 0; at += n) {
        n = q->gap - at < sizeof zeros ? q->gap - at : sizeof zeros;
        lf_hash_update(g->h, zeros, n);
    }
    return rc;
}

/* masters bf16: weights are in the copies too. */
static int hash_weights(struct hashing *g, const lf_pg *p, const lf_pg_model *m, lf_err *err)
{
    const lf_plan *plan = lf_pg_model_get_plan(m);
    g->ps = lf_pg_model_store(m);
    int rc = lf_plan_pieces(plan, LF_P_MASTER, false, hash_piece, g, err);
    if (rc == 0)
        rc = lf_plan_pieces(plan, LF_P_MASTER, true, hash_piece, g, err);
    return rc || p->c->adam.masters != LF_BF16
               ? rc
               : lf_plan_pieces(plan, LF_P_COPY, false, hash_piece, g, err);
}

/* The weights of one model, of which this rank has a part. */
static int hash_model(lf_hash *h, const lf_pg *p, const lf_pg_model *m, lf_err *err)
{
    const struct lf_devcomm *dev = lf_pg_dev(p, m);
    struct hashing g = {.h = h, .comm = dev->inner ? dev->inner : lf_pg_comms(p, m)->data};
    g.buf = lf_malloc(CHUNK, 1, err);
    g.bytes = lf_calloc((size_t)p->run.ranks, sizeof *g.bytes, err);
    int rc = lf_run_agree(&p->run, g.buf && g.bytes ? 0 : LF_ENOMEM, err);
    if (rc == 0)
        rc = hash_weights(&g, p, m, err);
    free(g.buf);
    free(g.bytes);
    return rc;
}

/* Ranks that divide matrices have hashed what each of them has. */
static int join_digests(uint8_t digest[LF_HASH_BYTES], const struct lf_axes_comms *comms,
                        lf_err *err)
{
    struct lf_comm_blobs all = {0};
    if (!comms->tensor)
        return 0;
    int rc = lf_comm_gather_blobs(comms->tensor, (const char *)digest, LF_HASH_BYTES, &all, err);
    if (rc == 0)
        rc = lf_hash_buf(digest, all.data, all.offset[comms->tensor->size], err);
    lf_comm_blobs_fini(&all);
    return rc;
}

/* A critic whose ranks are not the actor's is joined by itself. */
static int hash_critic(lf_hash *h, const lf_pg *p, lf_err *err)
{
    uint8_t digest[LF_HASH_BYTES];
    if (!p->critic || !p->at[LF_PG_CRITIC].own)
        return p->critic ? hash_model(h, p, p->critic, err) : 0;
    lf_hash *own = lf_hash_create(err);
    int rc = lf_run_agree(&p->run, own ? 0 : LF_ENOMEM, err);
    if (rc == 0)
        rc = hash_model(own, p, p->critic, err);
    if (rc == 0) {
        lf_hash_final(own, digest);
        rc = join_digests(digest, lf_pg_comms(p, p->critic), err);
    }
    if (rc == 0)
        lf_hash_update(h, digest, sizeof digest);
    lf_hash_destroy(own);
    return rc;
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
    rc = lf_run_agree(&p->run, rc, err);
    if (rc == 0) {
        lf_hash_update(h, b.data, b.len);
        rc = hash_model(h, p, p->actor, err);
    }
    if (rc == 0)
        rc = hash_critic(h, p, err);
    if (rc == 0) {
        lf_hash_final(h, digest);
        rc = join_digests(digest, &p->comms, err);
        lf_hash_hex(key, digest);
    }
    lf_hash_destroy(h);
    lf_buf_fini(&b);
    return rc;
}

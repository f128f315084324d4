/* SPDX-License-Identifier: Apache-2.0
 *
 * What the ranks of a run do together. Each has all weights, or with zero its parts of them, and
 * the whole of every round; it generates and scores its prompts (lf_pg_mine), and runs its
 * micro-batches of every forward pass and update. What one rank alone may find (a failure, a stop,
 * the time) is agreed upon before anything depends on it; everything else is a function of what all
 * have. */
#include <stdlib.h>
#include <string.h>

#include "engine/post/pg_priv.h"

int lf_pg_same(const lf_pg *p, bool done, lf_err *err)
{
    char key[LF_HASH_HEX];
    if (!p->run.comm)
        return 0;
    json_t *mine = lf_pg_key(key, p, err) ? NULL : lf_pg_state_json(p, err);
    if (mine && (json_object_set_new(mine, "weights, prompts and settings", json_string(key)) ||
                 json_object_set_new(mine, "over", json_boolean(done)))) {
        json_decref(mine);
        mine = NULL;
    }
    return lf_run_same(&p->run, mine, err);
}

/* ---- sequences ---- */

struct head {
    uint64_t index, n, ended;
};

static void pack(lf_buf *b, const lf_pg *p, const lf_pg_part *part, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) {
        const struct lf_pg_part_seq *s = lf_pg_part_at(part, i);
        if (!s || !lf_pg_mine(p, i))
            continue;
        struct head h = {i, s->n, s->ended};
        lf_buf_add(b, &h, sizeof h);
        lf_buf_add(b, s->tokens, s->n * sizeof *s->tokens);
        lf_buf_add(b, s->logprob, s->n * sizeof *s->logprob);
    }
}

int lf_pg_unpack(const lf_pg *p, lf_pg_part *part, size_t from, size_t to,
                 const struct lf_pg_message *m, lf_err *err)
{
    const char *data = m->data;
    const size_t bytes = m->bytes;
    const int rank = m->rank;
    const uint64_t each = sizeof(int32_t) + sizeof(float);
    int rc = 0;
    for (size_t at = 0; at < bytes && rc == 0;) {
        struct head h = {0};
        if (bytes - at < sizeof h)
            return lf_fail(err, LF_EFORMAT,
                           "rank %d sent %zu bytes of sequences, which end inside of a header",
                           rank, bytes);
        memcpy(&h, data + at, sizeof h);
        at += sizeof h;
        if (h.index < from || h.index >= to || lf_pg_owner(p, (size_t)h.index) != rank)
            return lf_fail(err, LF_EFORMAT,
                           "rank %d sent sequence %llu, which is not one of its own in [%zu, %zu)",
                           rank, (unsigned long long)h.index, from, to);
        if (h.n > (uint64_t)p->c->max_tokens || h.n > (bytes - at) / each)
            return lf_fail(err, LF_EFORMAT,
                           "rank %d sent sequence %llu with a length of %llu tokens: max_tokens is "
                           "%lld, %zu bytes follow",
                           rank, (unsigned long long)h.index, (unsigned long long)h.n,
                           (long long)p->c->max_tokens, bytes - at);
        const size_t n = (size_t)h.n;
        rc = lf_pg_part_know(part, (size_t)h.index, data + at, data + at + n * sizeof(int32_t), n,
                             h.ended != 0, err);
        at += n * each;
    }
    return rc;
}

/* Has every sequence of [from, to) come? */
static int complete(const lf_pg *p, const lf_pg_part *part, size_t from, size_t to, lf_err *err)
{
    for (size_t i = from; i < to; i++)
        if (!lf_pg_part_at(part, i))
            return lf_fail(err, LF_EFORMAT, "rank %d did not send sequence %zu", lf_pg_owner(p, i),
                           i);
    return 0;
}

int lf_pg_share_sequences(lf_pg *p, lf_pg_part *part, size_t from, size_t to, lf_err *err)
{
    const struct lf_pg_place *at = &p->at[LF_PG_ROLLOUT];
    struct lf_comm_blobs all = {0};
    lf_buf b;
    if (!at->comms.data)
        return 0;
    lf_buf_init(&b);
    pack(&b, p, part, from, to);
    int rc = lf_run_agree(&p->run, lf_buf_check(&b, err), err);
    rc = rc != 0 ? rc : lf_comm_gather_blobs(at->comms.data, b.len ? b.data : "", b.len, &all, err);
    for (int r = 0; r < at->who.data_ranks && rc == 0; r++) {
        const struct lf_pg_message m = {r, all.data + all.offset[r],
                                        all.offset[r + 1] - all.offset[r]};
        rc = r == at->who.data ? 0 : lf_pg_unpack(p, part, from, to, &m, err);
    }
    if (rc == 0)
        rc = complete(p, part, from, to, err);
    lf_comm_blobs_fini(&all);
    lf_buf_fini(&b);
    rc = lf_run_agree(&p->run, rc, err);
    return rc != 0 ? rc
                   : lf_comm_all_reduce(at->comms.data, &p->gen_tokens, 1, LF_COMM_I64, LF_COMM_SUM,
                                        err);
}

/* ---- scores ---- */

static int share_counts(lf_pg *p, lf_err *err)
{
    if (!p->command)
        return 0;
    p->asked = *lf_cmd_get_counts(p->command);
    return p->run.comm
               ? lf_comm_all_reduce(p->run.comm, &p->asked, sizeof p->asked / sizeof(int64_t),
                                    LF_COMM_I64, LF_COMM_SUM, err)
               : 0;
}

int lf_pg_share_scores(lf_pg *p, size_t from, const bool *wanted, size_t index0, lf_err *err)
{
    const struct lf_axes_comms *comms = &p->at[LF_PG_ROLLOUT].comms;
    const size_t k = p->n_sources, n = p->r.n - from;
    int rc = share_counts(p, err);
    if (!comms->data || rc != 0)
        return rc;
    double *all = lf_calloc(n * k + 1, sizeof *all, err), *to = p->r.source + from * k;
    rc = lf_run_agree(&p->run, all ? 0 : LF_ENOMEM, err);
    if (rc == 0 && comms->tensor) /* a command need not give the same twice */
        rc = lf_comm_broadcast(comms->tensor, to, n * k * sizeof *to, 0, err);
    for (size_t i = 0; i < n && rc == 0; i++)
        if (wanted[i] && lf_pg_mine(p, index0 + i))
            memcpy(all + i * k, to + i * k, k * sizeof *all);
    if (rc == 0)
        rc = lf_comm_all_reduce(comms->data, all, n * k, LF_COMM_F64, LF_COMM_SUM, err);
    for (size_t i = 0; i < n && rc == 0; i++)
        if (wanted[i])
            memcpy(to + i * k, all + i * k, k * sizeof *all);
    free(all);
    return rc;
}

int lf_pg_share_model(lf_pg *p, size_t from, const bool *wanted, size_t index0, lf_err *err)
{
    const struct lf_pg_place *at = &p->at[LF_PG_REWARD];
    const size_t k = p->n_sources, n = p->r.n - from;
    double *to = p->r.source + from * k + k - 1;
    if (!p->reward_model || at->who.data_ranks == p->at[LF_PG_ROLLOUT].who.data_ranks)
        return 0;
    double *all = lf_calloc(n + 1, sizeof *all, err);
    int rc = lf_run_agree(&p->run, all ? 0 : LF_ENOMEM, err);
    for (size_t i = 0; i < n && rc == 0; i++)
        if (wanted[i] && lf_pg_owner_at(p, LF_PG_REWARD, index0 + i) == at->who.data)
            all[i] = to[i * k];
    if (rc == 0)
        rc = lf_comm_all_reduce(at->comms.data, all, n, LF_COMM_F64, LF_COMM_SUM, err);
    for (size_t i = 0; i < n && rc == 0; i++)
        if (wanted[i])
            to[i * k] = all[i];
    free(all);
    return rc;
}

int lf_pg_share_floats(const lf_pg *p, const lf_pg_model *m, float *x, size_t n, lf_err *err)
{
    lf_comm *data = lf_pg_comms(p, m)->data;
    if (lf_pg_who(p, m)->context > 0) /* the first of those that divide rows has the same */
        memset(x, 0, n * sizeof *x);
    return data ? lf_comm_all_reduce(data, x, n, LF_COMM_F32, LF_COMM_SUM, err) : 0;
}

/* ---- sums of an update ---- */

/* Ranks that divide the rows of a model's micro-batches all have the sums of these, of which the
 * first one's count. */
static int add_up(const lf_pg *p, const lf_pg_model *m, double *x, size_t n, lf_err *err)
{
    if (lf_pg_who(p, m)->context > 0)
        memset(x, 0, n * sizeof *x);
    return lf_comm_all_reduce(lf_pg_comms(p, m)->data, x, n, LF_COMM_F64, LF_COMM_SUM, err);
}

/* Over the ranks that shared the micro-batches of the critic. */
static int share_values(const lf_pg *p, struct lf_value_sums *v, lf_err *err)
{
    double x[] = {v->loss, v->clipped, v->value, (double)v->tokens};
    int rc = p->critic ? add_up(p, p->critic, x, sizeof x / sizeof *x, err) : 0;
    if (rc != 0)
        return rc;
    v->loss = x[0];
    v->clipped = x[1];
    v->value = x[2];
    v->tokens = (int64_t)x[3];
    return 0;
}

int lf_pg_share_sums(const lf_pg *p, struct lf_pg_update *u, lf_err *err)
{
    if (!p->comms.data)
        return 0;
    struct lf_pg_sums *s = &u->pg;
    double *sums[] = {&s->loss,     &s->pg,        &s->kl,        &s->entropy,   &s->ratio,
                      &s->ratio_sq, &s->approx_kl, &s->diff,      &s->mult,      &s->gen_kl,
                      &s->js,       &s->clip_low,  &s->clip_high, &s->clip_dual, &u->ptx};
    enum { N = sizeof sums / sizeof *sums };
    double x[N + 1], top[] = {-s->ratio_min, s->ratio_max, s->diff_max};
    for (int i = 0; i < N; i++)
        x[i] = *sums[i];
    x[N] = (double)s->tokens; /* below 2^53: exact */
    int rc = add_up(p, p->actor, x, N + 1, err);
    if (rc == 0)
        rc = lf_comm_all_reduce(p->comms.data, top, 3, LF_COMM_F64, LF_COMM_MAX, err);
    if (rc == 0)
        rc = share_values(p, &u->value, err);
    if (rc != 0)
        return rc;
    for (int i = 0; i < N; i++)
        *sums[i] = x[i];
    s->tokens = (int64_t)x[N];
    s->ratio_min = -top[0];
    s->ratio_max = top[1];
    s->diff_max = top[2];
    return 0;
}

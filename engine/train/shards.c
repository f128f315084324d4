/* SPDX-License-Identifier: Apache-2.0
 *
 * Sharded state (zero) and checkpoints: rank 0 writes whole tensors, so the others give it their
 * parts when it copies a tensor into the memory of the snapshot.
 *
 * Rank 0 may come to a place where it saves and not save (its last save failed, the checkpoint is
 * there already). So it tells the others at each such place, once: 1 with the first tensor that it
 * takes, or 0 at the end. The parts follow in the order of the writer, and of ranks.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/model/weights.h"
#include "engine/train/loop_priv.h"

struct lf_shard {
    lf_trainer *t;
    int param;
    enum lf_pkind kind;
    int64_t (*part)[2]; /* [ranks] first element and number of elements; rank 0 */
};

bool lf_train_sharded(const lf_trainer *t)
{
    return t->c->zero > 0 && t->run.ranks > 1;
}

/* The kind of a checkpoint's tensor in the store. */
static enum lf_pkind kind_of(const lf_pstore *ps, int param, const char *kind)
{
    for (int k = LF_P_M; k <= LF_P_V; k++)
        if (strcmp(kind, lf_pkind_name((enum lf_pkind)k)) == 0)
            return (enum lf_pkind)k;
    return lf_pstore_weights(ps, param);
}

/* As the writer sorts them. */
static int by_kind_and_name(const void *a, const void *b)
{
    const lf_ckpt_tensor *x = a, *y = b;
    const int kinds = strcmp(x->kind, y->kind);
    return kinds ? kinds : strcmp(x->name, y->name);
}

/* Takes what the ranks say that they have of tensor i, in their order. The parts tile it. */
static int take_parts(lf_trainer *t, size_t i, const struct lf_comm_blobs *all, lf_err *err)
{
    struct lf_shard *s = &t->shard[i];
    const struct lf_param_desc *d = lf_pstore_desc(t->m.ps, s->param);
    const size_t ranks = (size_t)t->run.ranks, each = sizeof *s->part;
    int64_t at = 0, n = 1;
    for (int k = 0; k < d->ndim; k++)
        n *= d->dims[k];
    s->part = lf_arena_alloc(t->run.arena, ranks, each, err);
    if (!s->part)
        return LF_ENOMEM;
    for (size_t r = 0; r < ranks; r++) {
        if (all->offset[r + 1] - all->offset[r] != t->n_shards * each)
            return lf_fail(err, LF_ECOMM, "rank %zu keeps parts of other tensors than rank 0", r);
        memcpy(s->part[r], all->data + all->offset[r] + i * each, each);
        const int64_t first = s->part[r][0], count = s->part[r][1];
        if (count < 0 || count > n - at || (count > 0 && first != at))
            return lf_fail(err, LF_ECOMM, "rank %zu keeps another part of %s than is its own", r,
                           d->name);
        at += count;
    }
    return at == n ? 0
                   : lf_fail(err, LF_ECOMM, "the ranks keep %lld of %lld elements of %s",
                             (long long)at, (long long)n, d->name);
}

/* Rank 0 learns who has what of every tensor in parts. rc: how this rank fared so far. */
static int share_parts(lf_trainer *t, int rc, lf_err *err)
{
    const size_t n = t->n_shards;
    struct lf_comm_blobs all = {0};
    int64_t(*mine)[2] = rc == 0 ? lf_calloc(n + 1, sizeof *mine, err) : NULL;
    rc = lf_train_agree(t, rc != 0 || mine ? rc : LF_ENOMEM, err);
    for (size_t i = 0; i < n && rc == 0; i++) {
        struct lf_pview v = {0};
        lf_pstore_view(t->m.ps, t->shard[i].param, t->shard[i].kind, &v);
        mine[i][0] = v.first;
        mine[i][1] = v.count;
    }
    if (rc == 0)
        rc = lf_comm_gather_blobs(t->run.comm, mine, n * sizeof *mine, &all, err);
    for (size_t i = 0; i < n && rc == 0 && lf_train_first_rank(t); i++)
        rc = take_parts(t, i, &all, err);
    lf_comm_blobs_fini(&all);
    free(mine);
    return lf_train_agree(t, rc, err);
}

/* Takes a tensor of all ranks into dst. */
static int fetch(void *user, void *dst, const void *src, size_t bytes, lf_err *err)
{
    struct lf_shard *s = user;
    lf_trainer *t = s->t;
    struct lf_pview v;
    int64_t go = 1;
    int rc = t->shards_told ? 0 : lf_comm_broadcast(t->run.comm, &go, sizeof go, 0, err);
    (void)src;
    (void)bytes;
    t->shards_told = true;
    if (lf_pstore_view(t->m.ps, s->param, s->kind, &v) != 1)
        return lf_fail(err, LF_EINVAL, "a part of a tensor is not in memory");
    const size_t size = lf_dtype_size(v.dtype);
    if (rc == 0 && v.count)
        rc = lf_pstore_read(t->m.ps, s->param, s->kind, (char *)dst + (size_t)v.first * size,
                            v.bytes, err);
    for (int r = 1; r < t->run.ranks && rc == 0; r++) {
        lf_comm_req q = {0};
        if (s->part[r][1])
            rc = lf_comm_irecv(t->run.comm, (char *)dst + (size_t)s->part[r][0] * size,
                               (size_t)s->part[r][1] * size, r, lf_comm_tag(LF_COMM_PLAIN, 0), &q,
                               err);
        if (rc == 0)
            rc = lf_comm_wait(&q, err);
    }
    return rc;
}

static int find_shards(lf_trainer *t, lf_ckpt_tensor *tensors, size_t n, lf_err *err)
{
    const size_t skip = strlen(LF_WEIGHTS_PREFIX);
    t->shard = lf_arena_alloc(t->run.arena, n + 1, sizeof *t->shard, err);
    if (!t->shard)
        return LF_ENOMEM;
    qsort(tensors, n, sizeof *tensors, by_kind_and_name);
    for (size_t i = 0; i < n; i++) {
        const int param = lf_pstore_find(t->m.ps, tensors[i].name + skip);
        const enum lf_pkind kind = kind_of(t->m.ps, param, tensors[i].kind);
        if (!lf_pstore_sharded(t->m.ps, param, kind))
            continue;
        struct lf_shard *s = &t->shard[t->n_shards++];
        *s = (struct lf_shard){.t = t, .param = param, .kind = kind};
        tensors[i].fetch = fetch;
        tensors[i].user = s;
    }
    return 0;
}

int lf_train_shards_open(lf_trainer *t, lf_ckpt_tensor *tensors, size_t n, int rc, lf_err *err)
{
    if (!lf_train_sharded(t))
        return rc;
    return share_parts(t, rc != 0 ? rc : find_shards(t, tensors, n, err), err);
}

void lf_train_shards_begin(lf_trainer *t)
{
    t->shards_told = false;
}

static int send_parts(lf_trainer *t, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < t->n_shards && rc == 0; i++) {
        const struct lf_shard *s = &t->shard[i];
        struct lf_pview v;
        const void *data = NULL;
        void *copy = NULL;
        if (lf_pstore_view(t->m.ps, s->param, s->kind, &v) != 1 || !v.count)
            continue;
        rc = lf_pstore_host(t->m.ps, s->param, s->kind, &data, &copy, err);
        lf_comm_req q = {0};
        if (rc == 0)
            rc = lf_comm_isend(t->run.comm, data, v.bytes, 0, lf_comm_tag(LF_COMM_PLAIN, 0), &q,
                               err);
        if (rc == 0)
            rc = lf_comm_wait(&q, err);
        free(copy);
    }
    return rc;
}

int lf_train_shards_end(lf_trainer *t, int rc, lf_err *err)
{
    int64_t go = 0;
    if (!lf_train_sharded(t))
        return rc;
    if (lf_train_first_rank(t)) {
        if (t->shards_told)
            return rc;
        t->shards_told = true;
        const int told = lf_comm_broadcast(t->run.comm, &go, sizeof go, 0, rc != 0 ? NULL : err);
        return rc != 0 ? rc : told;
    }
    lf_run_phase(&t->run, "saving");
    const int told = lf_comm_broadcast(t->run.comm, &go, sizeof go, 0, err);
    return told != 0 || !go ? told : send_parts(t, err);
}

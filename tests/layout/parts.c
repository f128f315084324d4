/* SPDX-License-Identifier: Apache-2.0
 *
 * A checkpoint that all ranks of a mesh write together: each its boxes, and of them its range, as
 * lf_pstore_written says. What all ranks of the data axis have they share out.
 */
#include <string.h>

#include "engine/graph/layout.h"
#include "tests/layout/rig_priv.h"

struct parts {
    const struct rig_mesh *m;
    const lf_trainer *t;
    lf_ckpt_tensor *own; /* what this rank writes, in the trainer's arena */
    size_t n_own;
    lf_ckpt_entry *all; /* every tensor of the model */
    size_t n_all;
};

/* The range of a box that this rank of the data axis writes; empty: none. */
static void share(const struct parts *p, const struct lf_pstore_share *s, const lf_ckpt_entry *e,
                  int64_t flat[2])
{
    const int inner = lf_zero_inner(&p->t->c->zero, p->m->data->size), rank = p->m->data->rank,
              ranks = p->m->data->size;
    const int64_t n = s->flat[1] - s->flat[0];
    flat[0] = s->flat[0];
    flat[1] = s->flat[1];
    if (s->shared && s->owner)
        for (int k = 0; k < 2; k++)
            flat[k] = lf_ckpt_cut(e->ndim, e->shape, s->box.lo, s->box.hi, n * (rank + k) / ranks);
    else if (rank >= inner) /* the first group has the same parts */
        flat[1] = flat[0];
}

static void add(struct parts *p, int i, enum lf_pkind kind, const lf_ckpt_entry *e)
{
    struct lf_pstore_share s;
    struct lf_pview v;
    int64_t flat[2];
    lf_pstore_written(p->t->m.ps, i, kind, &s);
    share(p, &s, e, flat);
    if (flat[0] == flat[1] || lf_pstore_view(p->t->m.ps, i, kind, &v) != 1)
        return;
    lf_ckpt_tensor *t = &p->own[p->n_own++];
    *t = (lf_ckpt_tensor){.name = e->name,
                          .kind = e->kind,
                          .dtype = e->dtype,
                          .ndim = e->ndim,
                          .flat = {flat[0], flat[1]}};
    memcpy(t->shape, e->shape, sizeof t->shape);
    memcpy(t->lo, s.box.lo, (size_t)e->ndim * sizeof *t->lo);
    memcpy(t->hi, s.box.hi, (size_t)e->ndim * sizeof *t->hi);
    t->data = (const char *)v.data + (size_t)(flat[0] - v.first) * lf_dtype_size(v.dtype);
}

/* Kind `of` of a checkpoint of tensor i, which the store has as `kind`. */
static int add_kind(struct parts *p, int i, enum lf_pkind of, enum lf_pkind kind, lf_err *err)
{
    const lf_pstore *ps = p->t->m.ps;
    const struct lf_param_desc *d = lf_pstore_desc(ps, i);
    lf_ckpt_entry *e = &p->all[p->n_all];
    if (!lf_pstore_planned(ps, i, kind))
        return 0;
    *e = (lf_ckpt_entry){.name = lf_arena_printf(p->t->run.arena, err, "model/%s", d->name),
                         .kind = lf_pkind_name(of),
                         .dtype = lf_pstore_type(ps, kind) == LF_F32 ? LF_H5_F32 : LF_H5_BF16,
                         .ndim = d->ndim};
    if (!e->name)
        return LF_ENOMEM;
    for (int k = 0; k < d->ndim; k++)
        e->shape[k] = d->dims[k];
    p->n_all++;
    add(p, i, kind, e);
    return 0;
}

static int find_parts(struct parts *p, lf_err *err)
{
    const lf_pstore *ps = p->t->m.ps;
    const size_t most = 3 * (size_t)lf_pstore_count(ps);
    p->own = lf_arena_alloc(p->t->run.arena, most, sizeof *p->own, err);
    p->all = lf_arena_alloc(p->t->run.arena, most, sizeof *p->all, err);
    int rc = p->own && p->all ? 0 : LF_ENOMEM;
    for (int i = 0; i < lf_pstore_count(ps) && rc == 0; i++) {
        rc = add_kind(p, i, LF_P_MASTER, lf_pstore_weights(ps, i), err);
        for (int k = LF_P_M; k <= LF_P_V && rc == 0; k++)
            rc = add_kind(p, i, (enum lf_pkind)k, (enum lf_pkind)k, err);
    }
    return rc;
}

/* Rank 0, with what every rank has said. */
static int publish(const struct parts *p, const char *dir, const struct lf_comm_blobs *said,
                   const json_t *state, lf_err *err)
{
    const char *receipts[LOCAL_RANKS];
    const size_t n = (size_t)p->m->world->size;
    for (size_t r = 0; r < n; r++)
        receipts[r] = said->data + said->offset[r];
    const struct lf_ckpt_parts all = {.receipts = receipts,
                                      .n = n,
                                      .state = state,
                                      .tensors = p->all,
                                      .n_tensors = p->n_all,
                                      .threads = 1};
    return p->m->world->rank == 0 ? lf_ckpt_publish(dir, &all, NULL, err) : 0;
}

/* This rank's files, and with several the receipt for them. */
static int write_own(const struct parts *p, lf_ckpt_writer *w, const char *dir, const json_t *state,
                     lf_err *err)
{
    lf_comm *world = p->m->world;
    struct lf_comm_blobs said = {0};
    int rc = lf_ckpt_save_begin(w, dir, state, err);
    rc = rc != 0 ? rc : lf_ckpt_save_wait(w, NULL, err);
    rc = lf_comm_agree_ok(world, rc < 0 ? rc : 0, err);
    const char *receipt = rc == 0 ? lf_ckpt_save_receipt(w) : NULL;
    if (rc != 0 || !receipt)
        return rc;
    rc = lf_comm_gather_blobs(world, receipt, strlen(receipt) + 1, &said, err);
    if (rc == 0)
        rc = lf_comm_agree_ok(world, publish(p, dir, &said, state, err), err);
    lf_comm_blobs_fini(&said);
    return rc;
}

int rig_save_parts(const struct rig_mesh *m, const lf_trainer *t, const char *dir, lf_err *err)
{
    struct parts p = {.m = m, .t = t};
    const int ranks = m->world->size;
    const lf_ckpt_options o = {.part = m->world->rank, .parts = ranks, .run = 1};
    lf_ckpt_writer *w = NULL;
    json_t *state = lf_train_state_json(t, err);
    int rc = state ? find_parts(&p, err) : LF_ENOMEM;
    if (rc == 0)
        rc = lf_ckpt_writer_create(&w, p.own, p.n_own, &o, err);
    rc = lf_comm_agree_ok(m->world, rc, err);
    if (rc == 0)
        rc = write_own(&p, w, dir, state, err);
    lf_ckpt_writer_destroy(w);
    json_decref(state);
    return rc;
}

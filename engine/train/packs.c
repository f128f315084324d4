/* SPDX-License-Identifier: Apache-2.0
 *
 * What an objective reads and writes of whole micro-batches, of whose rows ranks have some each:
 * see objective.h. These ranks gather what each has of an output, in the order of ranks, and put it
 * in that of rows. Each finds the gradients of all rows and keeps those of its own.
 */
#include <string.h>

#include "engine/train/loop_priv.h"

int64_t lf_train_all_rows(const lf_pstore *ps, const struct lf_decoder_rows *r)
{
    const int ranks = lf_pstore_layout_of(ps)->context;
    return ranks > 1 ? r->rows * ranks : r->rows;
}

int lf_train_pack_buffers(lf_trainer *t, lf_err *err)
{
    const lf_objective *o = t->c->objective;
    const size_t ranks = (size_t)t->who.context_ranks;
    if (!o || ranks <= 1)
        return 0;
    t->packs_buf = lf_arena_alloc(t->run.arena, (size_t)t->m.rows, o->row_bytes, err);
    t->packs_part = lf_arena_alloc(t->run.arena, ranks, sizeof *t->packs_part, err);
    return t->packs_buf && t->packs_part ? 0 : LF_ENOMEM;
}

/* Where row `at` of the rows of all ranks stands in the micro-batch. */
static int64_t row_of(const lf_trainer *t, int64_t at)
{
    return lf_context_row(lf_pstore_layout_of(t->m.ps), t->m.own_rows, t->blocks_buf, at);
}

int lf_train_view_read(const struct lf_train_view *v, const char *name, void *dst, size_t each,
                       lf_err *err)
{
    lf_trainer *t = v->trainer;
    const size_t part = (size_t)t->m.own_rows * each;
    if (!t->packs_buf && !dst)
        return LF_ENOMEM;
    if (!t->packs_buf)
        return lf_exec_read(v->ex, v->chain, v->slot, name, dst, (size_t)v->rows * each, err);
    for (int r = 0; r < t->who.context_ranks; r++)
        t->packs_part[r] = part;
    int rc = dst ? lf_train_find_rows(t, v->batch, err) : LF_ENOMEM;
    if (rc == 0)
        rc = lf_exec_read(v->ex, v->chain, v->slot, name,
                          t->packs_buf + (size_t)t->who.context * part, part, err);
    /* the others wait for this rank, be its part there or not */
    const int met =
        lf_comm_all_gather(t->comms.context, t->packs_buf, t->packs_part, rc != 0 ? NULL : err);
    for (int64_t at = 0; at < t->m.rows && rc == 0 && met == 0; at++)
        memcpy((char *)dst + (size_t)row_of(t, at) * each, t->packs_buf + (size_t)at * each, each);
    return rc != 0 ? rc : met;
}

int lf_train_view_write(const struct lf_train_view *v, const char *name, const void *src,
                        size_t each, lf_err *err)
{
    lf_trainer *t = v->trainer;
    if (!t->packs_buf)
        return lf_exec_write(v->ex, v->chain, v->slot, name, src, (size_t)v->rows * each, err);
    const int rc = lf_train_find_rows(t, v->batch, err);
    for (int64_t r = 0; r < t->m.own_rows && rc == 0; r++)
        memcpy(t->packs_buf + (size_t)r * each, (const char *)src + (size_t)t->own_rows[r] * each,
               each);
    return rc != 0 ? rc
                   : lf_exec_write(v->ex, v->chain, v->slot, name, t->packs_buf,
                                   (size_t)t->m.own_rows * each, err);
}

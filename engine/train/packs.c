/* SPDX-License-Identifier: Apache-2.0
 *
 * What an objective reads and writes of whole micro-batches, of whose rows ranks have some each:
 * see objective.h. Each rank finds the gradients of all rows and keeps those of its own.
 */
#include "engine/train/loop_priv.h"

int64_t lf_train_all_rows(const lf_pstore *ps, const struct lf_decoder_rows *r)
{
    const int ranks = lf_pstore_layout_of(ps)->context;
    return ranks > 1 ? r->rows * ranks : r->rows;
}

size_t lf_train_pack_bytes(const struct lf_train_config *c, const struct lf_train_model *m,
                           const struct lf_train_who *who)
{
    return c->objective && who->context_ranks > 1 ? (size_t)m->rows * c->objective->row_bytes : 0;
}

/* The rows of this micro-batch that are this rank's: those with which its inputs were written. */
static int find_rows(lf_trainer *t, const lf_loader_batch *b, lf_err *err)
{
    const int rc = t->mine.row ? lf_train_find_texts(t, b, err) : 0;
    return rc != 0 || !t->mine.row
               ? rc
               : lf_own_rows_find(&t->mine, t->texts_cu ? t->texts_cu : b->cu_seqlens, err);
}

int lf_train_view_read(const struct lf_train_view *v, const char *name, void *dst, size_t each,
                       lf_err *err)
{
    lf_trainer *t = v->trainer;
    const struct lf_row_value of = {v->ex, v->chain, v->slot, name, each};
    return lf_own_rows_read(&t->mine, &of, dst, dst ? find_rows(t, v->batch, err) : LF_ENOMEM, err);
}

int lf_train_view_write(const struct lf_train_view *v, const char *name, const void *src,
                        size_t each, lf_err *err)
{
    lf_trainer *t = v->trainer;
    const struct lf_row_value of = {v->ex, v->chain, v->slot, name, each};
    const int rc = find_rows(t, v->batch, err);
    return rc != 0 ? rc : lf_own_rows_write(&t->mine, &of, src, err);
}

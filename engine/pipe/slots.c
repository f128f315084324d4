/* SPDX-License-Identifier: Apache-2.0
 *
 * Slots: where a chunk saves what the backward pass of a micro-batch needs. The lowest free number
 * is taken, so that a chunk has as many slots as micro-batches are alive in it at once.
 */
#include <stdlib.h>

#include "engine/base/mem.h"
#include "engine/pipe/pipe_priv.h"

/* Takes the lowest of `most` slots that is free, marks it and returns it. */
static int take(bool *used, int most)
{
    int slot = 0;
    while (slot < most && used[slot])
        slot++;
    used[slot] = true;
    return slot;
}

/* One chunk of one list. slot_of has room for the slot of each micro-batch. */
static int give_chunk(const struct lf_pipe_list *l, bool forward, int chunk, int *slot_of,
                      bool *used)
{
    int most = 0;
    for (int i = 0; i < l->n; i++) {
        struct lf_pipe_item *it = &l->item[i];
        if (it->chunk != chunk)
            continue;
        if (it->op == LF_PIPE_F) {
            slot_of[it->micro] = take(used, most);
            most = slot_of[it->micro] == most ? most + 1 : most;
        }
        it->slot = slot_of[it->micro];
        /* W is behind its B in all lists, and F is the last where they only go forwards. */
        if (forward || it->op == LF_PIPE_W || it->op == LF_PIPE_Z)
            used[it->slot] = false;
    }
    return most;
}

int lf_pipe_give_slots(struct lf_pipe *p, lf_err *err)
{
    const size_t m = (size_t)p->spec.micro_batches;
    int *slot_of = lf_calloc(m, sizeof *slot_of, err);
    bool *used = slot_of ? lf_calloc(m, sizeof *used, err) : NULL;
    int rc = used ? 0 : LF_ENOMEM;
    for (int r = 0; rc == 0 && r < p->spec.ranks; r++)
        for (int c = 0; c < p->spec.chunks; c++)
            p->slots[lf_pipe_at(&p->spec, r, c)] =
                give_chunk(&p->list[r], p->spec.forward, c, slot_of, used);
    free(used);
    free(slot_of);
    return rc;
}

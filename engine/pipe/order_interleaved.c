/* SPDX-License-Identifier: Apache-2.0
 *
 * Interleaved 1F1B. Forward passes go group by group, each group through chunk 0, 1, ..; backward
 * passes too, from the last chunk to chunk 0. And lists that only go forwards, in the same order.
 */
#include "engine/pipe/pipe_priv.h"

/* Appends the k-th forward or backward pass. Only the last group can be shorter than N. */
static void push_kth(struct lf_pipe_list *l, enum lf_pipe_op op, const struct lf_pipe_spec *s,
                     int k)
{
    const int begin = k / (s->group * s->chunks) * s->group;
    const int left = s->micro_batches - begin, size = left < s->group ? left : s->group;
    const int in_group = k - begin * s->chunks;
    const int chunk = op == LF_PIPE_F ? in_group / size : s->chunks - 1 - in_group / size;
    lf_pipe_push(l, op, chunk, begin + in_group % size);
}

void lf_pipe_order_interleaved(struct lf_pipe_list *l, const struct lf_pipe_spec *s, int rank)
{
    const int all = s->micro_batches * s->chunks;
    /* Twice as many as ranks are behind: a forward pass of chunk c+1 waits for one of chunk c that
     * went through all ranks, while the backward passes come one by one. With one chunk nothing
     * comes round again. */
    const int64_t want = s->chunks == 1
                             ? s->ranks - 1 - rank
                             : 2 * (s->ranks - 1 - rank) + (int64_t)(s->chunks - 1) * s->group;
    const int first = want < all ? (int)want : all;
    for (int k = 0; k < first; k++)
        push_kth(l, LF_PIPE_F, s, k);
    for (int k = first; k < all; k++) {
        push_kth(l, LF_PIPE_F, s, k);
        push_kth(l, LF_PIPE_Z, s, k - first);
    }
    for (int k = all - first; k < all; k++)
        push_kth(l, LF_PIPE_Z, s, k);
}

/* All ranks have one order, and nothing reads what stands behind it there, so it cannot hang. */
void lf_pipe_order_forward(struct lf_pipe_list *l, const struct lf_pipe_spec *s, int rank)
{
    (void)rank; /* The list is the same on all ranks. */
    for (int k = 0; k < s->micro_batches * s->chunks; k++)
        push_kth(l, LF_PIPE_F, s, k);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * ZB-H1: 1F1B whose backward pass is split. Rank r puts off r gradients of weights, and does them
 * where it would be idle at the end. So every rank has min(P, m) micro-batches alive.
 */
#include "engine/pipe/pipe_priv.h"

void lf_pipe_order_zb_h1(struct lf_pipe_list *l, const struct lf_pipe_spec *s, int rank)
{
    const int behind = s->ranks - 1 - rank, m = s->micro_batches;
    const int first = behind < m ? behind : m;
    int w = 0;
    for (int i = 0; i < first; i++)
        lf_pipe_push(l, LF_PIPE_F, 0, i);
    for (int b = 0; b < m; b++) {
        if (first + b < m)
            lf_pipe_push(l, LF_PIPE_F, 0, first + b);
        lf_pipe_push(l, LF_PIPE_B, 0, b);
        if (b + 1 - w > rank)
            lf_pipe_push(l, LF_PIPE_W, 0, w++);
    }
    while (w < m)
        lf_pipe_push(l, LF_PIPE_W, 0, w++);
}

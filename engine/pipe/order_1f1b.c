/* SPDX-License-Identifier: Apache-2.0
 *
 * 1F1B: a rank begins with as many forward passes as there are ranks behind it. Then each forward
 * pass is followed by the oldest backward pass, so that no more micro-batches are alive.
 */
#include "engine/pipe/pipe_priv.h"

void lf_pipe_order_1f1b(struct lf_pipe_list *l, const struct lf_pipe_spec *s, int rank)
{
    const int behind = s->ranks - 1 - rank, m = s->micro_batches;
    const int first = behind < m ? behind : m;
    for (int i = 0; i < first; i++)
        lf_pipe_push(l, LF_PIPE_F, 0, i);
    for (int i = first; i < m; i++) {
        lf_pipe_push(l, LF_PIPE_F, 0, i);
        lf_pipe_push(l, LF_PIPE_Z, 0, i - first);
    }
    for (int i = m - first; i < m; i++)
        lf_pipe_push(l, LF_PIPE_Z, 0, i);
}

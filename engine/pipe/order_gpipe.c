/* SPDX-License-Identifier: Apache-2.0
 *
 * GPipe: all forward passes, then all backward passes.
 */
#include "engine/pipe/pipe_priv.h"

void lf_pipe_order_gpipe(struct lf_pipe_list *l, const struct lf_pipe_spec *s, int rank)
{
    (void)rank; /* The list is the same on all ranks. */
    for (int i = 0; i < s->micro_batches; i++)
        lf_pipe_push(l, LF_PIPE_F, 0, i);
    for (int i = 0; i < s->micro_batches; i++)
        lf_pipe_push(l, LF_PIPE_Z, 0, i);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The CPU queue: calls run at once, with at most `threads` threads (team.h).
 */
#include "config.h"

#include <stdlib.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gemm_onednn.h"

lf_queue *lf_cpu_queue_create(int threads)
{
    lf_queue *q = threads >= 1 ? malloc(sizeof *q) : NULL;
    if (q)
        *q = (lf_queue){.threads = threads};
    return q;
}

void lf_cpu_queue_destroy(lf_queue *q)
{
    if (q) {
        lf_team_end(q->team);
        lf_onednn_forget(q);
    }
    free(q);
}

void lf_cpu_queue_border(lf_queue *q, void (*border)(void *arg), void *arg)
{
    q->border = border;
    q->border_arg = arg;
}

int lf_cpu_queue_threads(const lf_queue *q)
{
    return q->threads;
}

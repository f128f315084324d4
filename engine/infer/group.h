/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that run one model together (graph/layout.h) and so make the same passes. What one of them
 * alone may find, a stop or a failure between two passes, ends all of them at the same pass: none
 * waits in a sum for a rank that has left.
 */
#ifndef LF_INFER_GROUP_H
#define LF_INFER_GROUP_H

#include <stdbool.h>

#include "engine/comm/comm.h"

struct lf_group {
    lf_comm *comm;      /* NULL: one rank */
    bool (*stop)(void); /* of this rank; NULL: never */
    bool ended;
    int by; /* with ended: a rank of comm that did it */
};

/* From now on lf_group_stop asks the ranks of comm, until the next call; a process works for one
 * group at a time. g stays where it is. */
void lf_group_begin(struct lf_group *g, lf_comm *comm, bool (*stop)(void));
/* Has any rank of the group been asked to stop, or ended its work? Generation and scoring call it
 * before each pass (lf_gen_work.stop), equally often on each rank. */
bool lf_group_stop(void);
/* Ends the work with the rc of this rank. A rank that has failed between two passes is heard of
 * here, or by the next lf_group_stop of the others. Returns rc, or LF_EINTR where another rank has
 * ended it; the message names that rank. */
int lf_group_end(struct lf_group *g, int rc, lf_err *err);

#endif

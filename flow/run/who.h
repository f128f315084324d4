/* SPDX-License-Identifier: Apache-2.0
 *
 * Processes that records name (engine/base/id.h): whether they live, and signals to them.
 */
#ifndef LF_FLOW_WHO_H
#define LF_FLOW_WHO_H

#include "engine/base/err.h"
#include "engine/base/id.h"

/* ELSEWHERE also for a record that is missing (NULL) or incomplete: unknown is not gone. */
enum lf_proc_state lf_who_look(const lf_proc_id *who);
/* Signal a process that is provably the recorded one (group: its process group): LF_ENOENT gone,
 * LF_ENOTSUP elsewhere. */
int lf_who_kill(const lf_proc_id *who, int sig, int group, lf_err *err);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Processes as JSON records that survive in files: {"host","boot","pidns","pid","start"}, on top of
 * engine/base/id.h.
 */
#ifndef LF_FLOW_WHO_H
#define LF_FLOW_WHO_H

#include <jansson.h>
#include <sys/types.h>

#include "engine/base/err.h"
#include "engine/base/id.h"

/* A process of this machine, 0 = this one; NULL with err when it does not exist. New reference. */
json_t *lf_who_make(pid_t pid, lf_err *err);
/* ELSEWHERE also for a record that is missing or incomplete: unknown is not gone. */
enum lf_proc_state lf_who_look(const json_t *who);
/* Signal a process that is provably the recorded one (group: its process group): LF_ENOENT gone,
 * LF_ENOTSUP elsewhere. */
int lf_who_kill(const json_t *who, int sig, int group, lf_err *err);

#endif

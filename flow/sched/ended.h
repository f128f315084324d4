/* SPDX-License-Identifier: Apache-2.0
 *
 * The commands on_end and on_fail of [pipeline]: what a user wants to hear when a run has ended.
 *
 * A run has ended when none of the stages that were wanted runs, waits in a queue, or may still be
 * somewhere. Its state is that of all of them:
 *   done       all are done
 *   failed     one failed, and nothing goes on by itself
 *   cancelled  one was cancelled
 *   stopped    none of these: a stage stopped at a checkpoint, or waits for a person
 * on_fail is run at the end of a failed run, then on_end at any end.
 *
 * Who runs them: on this machine the driver (run, resume) after its last stage; with a batch
 * scheduler the first command that sees the end, which is `submit --wait` or `resume --wait`,
 * `cancel` of the whole run, or `tick`. Jobs do not: they know only of themselves, and compute
 * nodes often have no network. Only the owner of the run's directory runs its commands.
 *
 * At most once: before the first command a record is published with link(2) whose name counts the
 * attempts and starts of the run. Whoever finds it runs nothing. So a run that goes on and ends
 * again tells it again, and a command that was killed is not run a second time.
 *
 * A command is a line for /bin/sh. It runs in the project's directory with PATH, HOME, LF_RUN (the
 * id), LF_NAME (of the pipeline), LF_STATE and LF_REASON, and nothing else in its environment, for
 * at most on_time_limit; then it and its children are killed. What it says is appended to
 * RUN/ended.log. Its failure is a note. Nothing that it does changes the state or the exit code of
 * the run. The ledger gets an event run_end.
 */
#ifndef LF_FLOW_ENDED_H
#define LF_FLOW_ENDED_H

#include <stdbool.h>

#include "flow/run/project.h"
#include "flow/run/select.h"

struct lf_ended {
    const lf_project *project;
    const lf_run *run;       /* loaded */
    const lf_select *select; /* the stages that were wanted */
    /* The caller writes a page at the end: then the record is published without commands, too. */
    bool page;
    void (*say)(void *user, const char *text); /* one line; may be NULL */
    void *user;
};
/* Runs the commands if the run has ended and nobody did before; returns whether that is so. A
 * failure is said and has no other effect. */
bool lf_ended_tell(const struct lf_ended *e);

#endif

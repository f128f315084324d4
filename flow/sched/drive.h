/* SPDX-License-Identifier: Apache-2.0
 *
 * Driving a run on this machine: submit what can run, wait, look again, until nothing is left. The
 * driver holds nothing that is not on disk: killed at any moment, the next `run` or `resume` finds
 * everything in the run's directory, adopts jobs that still live and finishes what a crash cut in
 * half.
 */
#ifndef LF_FLOW_DRIVE_H
#define LF_FLOW_DRIVE_H

#include <stdbool.h>

#include "engine/base/err.h"
#include "flow/run/select.h"
#include "flow/run/state.h"
#include "flow/sched/submit.h"

typedef struct lf_drive {
    const lf_project *project;
    const lf_submitter *submitter;
    const lf_texts *accepted; /* settings whose change does not restart a stage; NULL: none */
    bool fresh;               /* do not continue from earlier checkpoints */
    int jobs;                 /* stages at once */
    lf_select select;
    void (*say)(void *user, const char *text); /* one line of progress; may be NULL */
    /* The run as it is now, after every look; may be NULL. With it `say` is told of logs only
     * what has to stay: validations, warnings and notes. selected: of each stage, does this drive
     * run it? v NULL: a stage has ended, so that what was shown is out of date, or the drive is
     * over. */
    void (*look)(void *user, const lf_run_view *v, const bool *selected);
    void *user;
} lf_drive;

/* A file in the run's directory: asks its driver to start nothing more. The next driver removes
 * it. */
#define LF_RUN_CANCEL "driver.cancel"

/* run: borrowed, loaded. *code: 0 all selected stages are done, 1 one failed or cannot run, 75
 * stopped on request or at a checkpoint. */
int lf_drive_run(const lf_drive *d, const lf_run *run, int *code, lf_err *err);

/* Seconds between two looks at a run, a look of which took cost_s of processor time: a look reads
 * all records of the run again, so that it costs at most a fiftieth of a processor, and runs of any
 * size are looked at every 0.25 to 5 s. */
double lf_drive_pause_s(double cost_s);

/* Write the end record that a dead start could not write, and the end event of a commit whose
 * wrapper died just behind it. */
int lf_stage_repair(const lf_run *run, const lf_stage_view *s, lf_err *err);

#endif

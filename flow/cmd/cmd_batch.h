/* SPDX-License-Identifier: Apache-2.0
 *
 * submit and resume where a batch scheduler runs the stages; called by cmd_run.c when the run is
 * frozen.
 */
#ifndef LF_FLOW_CMD_BATCH_H
#define LF_FLOW_CMD_BATCH_H

#include "flow/cmd/cmd.h"
#include "flow/cmd/prep.h"
#include "flow/sched/batch.h"

/* Options that submit and resume have beside those of run. */
#define LF_CMD_BATCH_ROWS                                                                          \
    LF_OPT_ROW(.name = "dry_run", .type = LF_OPT_BOOL, LF_OPT_COMMAND, .def = "no",                \
               .help = "print the job scripts and commands, byte for byte; submit nothing"),       \
        LF_OPT_ROW(.name = "wait", .type = LF_OPT_BOOL, LF_OPT_COMMAND, .def = "no",               \
                   .help = "stay until nothing of the run is left to do; exit code as of run")

/* Submit what is missing of p (committed), say what was done. Returns an exit code. */
int lf_cmd_batch_submit(const lf_cmd *c, lf_prep *p, const lf_batch *b, lf_err *err);
/* Print what would be submitted; p need not be committed. */
int lf_cmd_batch_dry_run(const lf_cmd *c, const lf_prep *p, const lf_batch *b, lf_err *err);

#endif

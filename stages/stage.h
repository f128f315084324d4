/* SPDX-License-Identifier: Apache-2.0
 *
 * What every stage's main shares: options from INI and command line, --help, --version,
 * --print-config, --plan, log level, stop requests and the exit code. A stage gives four functions;
 * lf_stage_main calls them in this order:
 *
 *   setup    read and cross-check every option (and the rest of the INI file); touch no input data.
 *            Texts of options may be borrowed: o outlives self.
 *            LF_EINVAL = exit 2. An option given explicitly that setup does not read is an error
 *            naming it.
 *   plan     for --plan only: fill the JSON object; "stage" and "outputs" are there already.
 *   run      do the work. comm: the ranks that a launcher started (engine/comm); NULL when this
 *            process is alone. A stage whose `ranks` is false is refused more than one. LF_EINTR =
 *            stopped at a good checkpoint = exit 75; other failures = exit 1.
 *   destroy  release self (may be NULL).
 *
 * Exit codes: 0 done, 1 failed, 2 usage or bad option, 75 stopped at a good checkpoint.
 */
#ifndef LF_STAGES_STAGE_H
#define LF_STAGES_STAGE_H

#include <jansson.h>

#include "engine/back/back.h"
#include "engine/base/opt.h"
#include "engine/comm/comm.h"

#define LF_EXIT_FAILED  1
#define LF_EXIT_USAGE   2
#define LF_EXIT_STOPPED 75

struct lf_profile;
typedef struct lf_stage {
    const lf_opt_table *table;
    /* REPEAT option that plain command-line words are added to, NULL: words are refused */
    const char *words;
    int (*setup)(void **self, lf_optset *o, lf_err *err);
    int (*plan)(void *self, json_t *plan, lf_err *err);
    int (*run)(void *self, lf_comm *comm, lf_err *err);
    void (*destroy)(void *self);
    bool ranks; /* can run on several */
    /* Of stages with the row `profile`: take it before run; it outlives self. With --profile
     * lf_stage_main makes it and, when run has ended, tells it: a table to the log, profile.json
     * and profile.trace.json beside the metrics file or, without one, below out (of other ranks
     * than the first profile.RANK.json and so on). */
    void (*profile)(void *self, struct lf_profile *p);
    /* Results of other options (made_by.h) are refused before run: those of these names, a list
     * that ends with NULL; the function NULL: the table's outputs. An empty list: run asks itself,
     * as its inputs decide which there are. */
    const char *const *(*makes)(const void *self);
    bool continues; /* what is not finished may go on with other options: the engine says how */
} lf_stage;

/* Returns the exit code; a failure has been logged as one line. */
int lf_stage_main(const lf_stage *st, int argc, char **argv);

/* Collective over comm (NULL: returns rc): how all ranks fared. A failure of one is a failure of
 * all, and so is LF_EINTR: one rank that was asked to stop stops all. */
int lf_stage_agree(lf_comm *comm, int rc, lf_err *err);

/* Value of `threads`, with 0 replaced by OMP_NUM_THREADS, which launchers set, or by the processors
 * available. */
int lf_stage_threads(const lf_optset *o);
/* Value of `device`. */
enum lf_device lf_stage_device(const lf_optset *o);
/* Value of `precision`, also by its number among the choices. */
enum lf_dtype lf_stage_precision(const lf_optset *o);
enum lf_dtype lf_stage_dtype(int precision);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * What every stage's main shares: options from INI and command line, --help, --version,
 * --print-config, --plan, the log level, stop requests and the exit code. A stage gives four
 * functions. lf_stage_main calls them in this order:
 *
 *   setup    Reads and cross-checks every option (and the rest of the INI file). Touches no input
 *            data. Texts of options may be borrowed, since o outlives self. LF_EINVAL is exit 2. An
 *            option that was given and that setup does not read is an error that names it.
 *   plan     For --plan only. Fills the JSON object; "stage" and "outputs" are there already.
 *            LF_EINVAL and LF_ENOTSUP are exit 2.
 *   run      Does the work. comm has the ranks that a launcher started (engine/comm); NULL when
 *            this process is alone. A stage whose `ranks` is false refuses more than one rank.
 *            LF_EINTR means stopped at a good checkpoint and is exit 75. Other failures are exit
 *            1.
 *   destroy  Releases self (may be NULL).
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
    /* the REPEAT option that plain command-line words are added to; NULL: words are refused */
    const char *words;
    /* Prints what an option asks for that stands alone, as --version does, before required options
     * are missed. 1: printed, and all is done; 0: no such option; negative: failed. NULL: the stage
     * has no such option. */
    int (*tell)(const lf_optset *o, lf_err *err);
    int (*setup)(void **self, lf_optset *o, lf_err *err);
    int (*plan)(void *self, json_t *plan, lf_err *err);
    int (*run)(void *self, lf_comm *comm, lf_err *err);
    void (*destroy)(void *self);
    bool ranks; /* the stage can run on several ranks */
    /* Of stages with the row `profile`: takes p before run; p outlives self. With --profile
     * lf_stage_main makes p. When run has ended it writes a table to the log, and profile.json and
     * profile.trace.json beside the metrics file or, without one, below out. Ranks other than the
     * first write profile.RANK.json and so on. */
    void (*profile)(void *self, struct lf_profile *p);
    /* The names of the results that run makes, a list that ends with NULL. Existing results of
     * these names that were made with other options are refused before run (made_by.h). A NULL
     * function stands for the table's outputs. An empty list: run checks by itself, because its
     * inputs decide which results there are. */
    const char *const *(*makes)(const void *self);
    /* an unfinished result may continue with other options; the engine decides how */
    bool continues;
} lf_stage;

/* Returns the exit code. A failure has been logged as one line. */
int lf_stage_main(const lf_stage *st, int argc, char **argv);

/* Collective over comm (NULL: returns rc). Returns the common result of all ranks. A failure of one
 * rank is a failure of all. So is LF_EINTR: one rank that was asked to stop stops all. */
int lf_stage_agree(lf_comm *comm, int rc, lf_err *err);

/* The value of `threads`. 0 is replaced by OMP_NUM_THREADS, which launchers set, or by the number
 * of available processors. */
int lf_stage_threads(const lf_optset *o);
/* The value of `device`. */
enum lf_device lf_stage_device(const lf_optset *o);
/* The value of `precision`; the second function takes its number among the choices. */
enum lf_dtype lf_stage_precision(const lf_optset *o);
enum lf_dtype lf_stage_dtype(int precision);

#endif

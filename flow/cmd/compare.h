/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs side by side, for the columns of `status --all`: settings in which they differ, and values
 * of metrics. The name of a column is one of
 *   STAGE.OPTION, model.KEY     a setting (flow/run/settings.h)
 *   STAGE.METRIC, METRIC        the last value; METRIC alone is that of the stage that trains last
 *   min.X, max.X                the smallest and the largest value of a metric X
 *   last, best                  the last and the best value of the metric by which the stage that
 *                               trains last is judged
 */
#ifndef LF_FLOW_COMPARE_H
#define LF_FLOW_COMPARE_H

#include "flow/record/shown.h"
#include "flow/run/project.h"
#include "flow/run/settings.h"

/* A run; all is borrowed. */
typedef struct lf_compared_run {
    const lf_run_shown *shown;
    const lf_pairs *settings;
} lf_compared_run;

typedef struct lf_comparison lf_comparison;

/* Lays n runs side by side. All values but the last ones come from the ledger; without it they are
 * not known. runs, tables and p are borrowed until lf_comparison_close. Returns NULL with err. */
lf_comparison *lf_comparison_open(const lf_compared_run *runs, size_t n, const lf_project *p,
                                  const lf_opt_table *const *tables, lf_err *err);
void lf_comparison_close(lf_comparison *c); /* NULL is legal */

/* Settings in which the runs differ, as names of columns; those in which most runs stand apart come
 * first. Owned. */
int lf_comparison_settings(lf_texts *out, const lf_comparison *c, lf_err *err);
/* Has any run something in this column? */
bool lf_comparison_has(const lf_comparison *c, const char *name);
/* The names that there are, for messages. Owned. */
int lf_comparison_names(lf_texts *out, const lf_comparison *c, lf_err *err);
/* The heading of "last" and "best": which metric it is, when it is the same for all runs. */
void lf_comparison_title(char *buf, size_t cap, const lf_comparison *c, const char *name);
/* The number of a column for run i, NAN where it has none or it is no number. */
double lf_comparison_number(const lf_comparison *c, size_t i, const char *name);
/* The text of a column for run i, owned; "-" where it has none; NULL with err. */
char *lf_comparison_cell(const lf_comparison *c, size_t i, const char *name, lf_err *err);

#endif

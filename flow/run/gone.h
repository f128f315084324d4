/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs and data directories that were there and are not: taken away by hand, or not mounted. The
 * roots of the project and the ledger remember them, so that nobody is told that there never were
 * any.
 */
#ifndef LF_FLOW_GONE_H
#define LF_FLOW_GONE_H

#include "engine/base/err.h"
#include "flow/run/project.h"

/* LF_ENOENT with what is gone and the remedy; 0: nothing is. word: the run that somebody wants,
 * NULL: any. */
int lf_gone_run(const lf_project *p, const char *word, lf_err *err);
/* The same for data directories alone. */
int lf_gone_data(const lf_project *p, lf_err *err);

#endif

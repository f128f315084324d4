/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing the page of a run, for `report` and for the end of `run`: adds what the ledger and other
 * runs know of it.
 */
#ifndef LF_FLOW_WRITE_REPORT_H
#define LF_FLOW_WRITE_REPORT_H

#include "engine/base/opt.h"
#include "flow/run/project.h"
#include "flow/run/state.h"

/* path: in the place of what is there, never half; "-": standard output. refresh_s: the page
 * reloads itself so often, 0: it does not. */
int lf_write_report(const lf_project *p, const lf_run_view *v, const char *path, int refresh_s,
                    lf_err *err);
/* One page about n runs. tables: of the stages. */
int lf_write_comparison(const lf_run_view *const *views, size_t n,
                        const lf_opt_table *const *tables, const char *path, int refresh_s,
                        lf_err *err);
/* At the end of a run: writes the page where `report` of [pipeline] says so. Prints a line that
 * says where it is, or how to get one; quiet: prints nothing. A page that cannot be written is a
 * note. */
void lf_report_at_end(const lf_project *p, const lf_run_view *v, bool quiet);

#endif

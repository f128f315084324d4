/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of `status --all`.
 */
#ifndef LF_FLOW_STATUS_ALL_H
#define LF_FLOW_STATUS_ALL_H

#include "flow/cmd/cmd.h"

/* Prints the runs that pass the filters of the command's options. */
int lf_cmd_status_all(lf_cmd *c, const lf_project *p, lf_err *err);

#endif

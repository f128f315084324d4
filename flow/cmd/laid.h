/* SPDX-License-Identifier: Apache-2.0
 *
 * What plan prints of a stage whose ranks divide layers or matrices.
 */
#ifndef LF_FLOW_CMD_LAID_H
#define LF_FLOW_CMD_LAID_H

#include "flow/record/doc.h"

/* Prints what each rank sends in a step, along each axis where there are several, and the ranks of
 * the pipeline axis: layers, memory and order of passes. Nothing for one rank. */
void lf_laid_print(const lf_cost *plan);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The layout of a stage's ranks in words, from what its executable says (lf-KIND --plan).
 */
#ifndef LF_FLOW_LAID_H
#define LF_FLOW_LAID_H

#include <stdbool.h>
#include <stddef.h>

#include "flow/record/doc.h"

/* Are there ranks that divide layers, rows, matrices or experts? */
bool lf_laid_out(const lf_cost *c);
/* Writes "pipeline 2, data 2, context 2, tensor 2" to buf, with sep between axes; one of one rank
 * is left out. "" where nothing is divided. Returns buf. */
const char *lf_laid_words(char *buf, size_t cap, const lf_cost *c, const char *sep);

#endif

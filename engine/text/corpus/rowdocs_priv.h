/* SPDX-License-Identifier: Apache-2.0
 *
 * Between making documents (rowdocs.c) and shortening them (rowdocs_cut.c).
 */
#ifndef LF_TEXT_ROWDOCS_PRIV_H
#define LF_TEXT_ROWDOCS_PRIV_H

#include "engine/text/corpus/rowdocs.h"

/* The document that begins at ids[at] and goes to their end, of max_length tokens now. */
int lf_rowdocs_cut(lf_rowdocs *d, const lf_rowdocs_opts *o, size_t at, lf_err *err);

#endif

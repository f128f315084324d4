/* SPDX-License-Identifier: Apache-2.0
 *
 * Declarations that rowdocs.c (making documents) and rowdocs_cut.c (shortening them) share.
 */
#ifndef LF_TEXT_ROWDOCS_PRIV_H
#define LF_TEXT_ROWDOCS_PRIV_H

#include "engine/text/corpus/rowdocs.h"

/* Shortens the document that begins at ids[at] and goes to the end of ids to max_length tokens. */
int lf_rowdocs_cut(lf_rowdocs *d, const lf_rowdocs_opts *o, size_t at, lf_err *err);

#endif

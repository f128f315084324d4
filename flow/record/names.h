/* SPDX-License-Identifier: Apache-2.0
 *
 * Places by name: a hash table over texts that stay where they are. What looks things up by name
 * for every stage of a pipeline does it here, so that a pipeline of ten thousand stages is ten
 * times the work of one of a thousand.
 */
#ifndef LF_FLOW_NAMES_H
#define LF_FLOW_NAMES_H

#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"

#define LF_NAMES_NONE SIZE_MAX

/* A zeroed object is an empty table. */
typedef struct lf_names {
    struct lf_name *entries; /* 2^k of them, at most half of them in use */
    size_t n, cap;
} lf_names;

/* a, b: borrowed until fini; a name is the pair of them, b may be "". A pair that is there already
 * keeps its first place. */
int lf_names_put(lf_names *t, const char *a, const char *b, size_t place, lf_err *err);
/* The place, or LF_NAMES_NONE. */
size_t lf_names_find(const lf_names *t, const char *a, const char *b);
void lf_names_fini(lf_names *t);

#endif

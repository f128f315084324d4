/* SPDX-License-Identifier: Apache-2.0
 *
 * The representation of an optset, for opt.c, opt_fill.c and opt_print.c only.
 */
#ifndef LF_BASE_OPT_PRIV_H
#define LF_BASE_OPT_PRIV_H

#include "engine/base/opt.h"

#define LF_OPT_CLI "command line"

enum { LF_SOURCE_DEFAULT, LF_SOURCE_INI, LF_SOURCE_CLI };

struct lf_opt_parsed {
    int64_t i; /* INT COUNT BYTES DURATION, index of ENUM */
    double f;
    bool b;
};

/* The values of one option as text, in order, and the last one parsed. n == 0: unset. */
struct lf_opt_val {
    char **texts;
    size_t n, cap;
    struct lf_opt_parsed parsed;
    int source;
    char *where; /* place for messages, owned; NULL for a default */
    bool read;
};

struct lf_optset {
    const lf_opt_table *t;
    struct lf_opt_val *vals; /* one per option of t */
    const char *filled;      /* the struct that lf_optset_fill filled; NULL: none yet */
};

/* Returns the values of an option. LF_BUG: the table has no such name. */
struct lf_opt_val *lf_optset_val(const lf_optset *s, const char *name);

#endif

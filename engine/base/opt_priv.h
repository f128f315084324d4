/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by opt.c and opt_print.c only.
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

/* One option's values as text, in order, and the last one parsed. n == 0: unset. */
struct lf_opt_val {
    char **texts;
    size_t n, cap;
    struct lf_opt_parsed parsed;
    int source;
    char *where; /* owned; NULL for a default */
    bool read;
};

struct lf_optset {
    const lf_opt_table *t;
    struct lf_opt_val *vals; /* one per option of t */
    const char *filled;      /* by lf_optset_fill; NULL: nothing yet */
};

/* Value by name, LF_BUG for a name that is not in the table. */
struct lf_opt_val *lf_optset_val(const lf_optset *s, const char *name);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Declarations that shape.c (recognising a row) and shape_read.c (reading it) share.
 */
#ifndef LF_TEXT_SHAPE_PRIV_H
#define LF_TEXT_SHAPE_PRIV_H

#include "engine/base/mem.h"
#include "engine/text/chat/shape.h"

#define LF_SHAPE_COLUMNS 6

/* One way to write a shape. The first `need` columns must be present; the others may be. */
struct lf_variant {
    enum lf_shape shape;
    int need;
    const char *columns[LF_SHAPE_COLUMNS];
};

struct lf_row_ctx {
    const lf_shape_opts *o;
    const char *where;
    json_t *root;
    lf_arena *arena;
};

/* the column, NULL when absent or null */
json_t *lf_shape_get(const struct lf_row_ctx *c, const char *name);
/* Fills the parts of a row whose variant is known. */
int lf_shape_read(lf_row *r, const struct lf_row_ctx *c, const struct lf_variant *v, lf_err *err);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Text for people: tables from rows of structs, and printing that never lets a control byte of a
 * name, a path or a log reach the terminal. Everything that a command prints and did not write
 * itself goes through lf_say or lf_print_safe.
 */
#ifndef LF_FLOW_TABLE_H
#define LF_FLOW_TABLE_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/base/err.h"
#include "flow/record/fields.h"

typedef struct lf_column {
    const char *key, *title; /* member of the row; heading */
    bool right;              /* numbers */
    bool hidden;             /* not in the default format */
} lf_column;

typedef struct lf_format {
    const char *name, *spec;
} lf_format;

typedef struct lf_table {
    const lf_column *cols;
    size_t n_cols;
    const lf_format *formats; /* ends with a NULL name; may be NULL */
} lf_table;

/* What is to be shown: n rows whose members are named by the keys of columns. */
typedef struct lf_cells {
    size_t n;
    /* The text of a member, owned, "-" when it is not given; NULL with err. */
    char *(*cell)(const void *rows, size_t row, const char *key, lf_err *err);
    const void *rows;
} lf_cells;
/* spec: what -o takes (keys with widths, named formats, "+KEY"); NULL: the columns that are not
 * hidden; "help": say what there is. The column "state" has a colour on a terminal. */
int lf_table_cells(const lf_table *t, const lf_cells *cells, const char *spec, lf_err *err);
/* Of any LF_ROWS of structs that fields describe. */
int lf_table_show(const lf_table *t, const void *rows, const struct lf_fields *fields,
                  const char *spec, lf_err *err);

/* Text from outside to stdout: control bytes other than newline and tab are replaced by '?'. */
void lf_print_safe(const char *text);
/* printf through lf_print_safe, to stdout and to stderr. */
void lf_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void lf_say_err(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Is stdout a terminal that wants colour (NO_COLOR, TERM)? */
bool lf_colour(void);
/* The SGR number of a state's colour. */
const char *lf_state_colour(const char *state);
/* Columns of the terminal that stdout is; otherwise those of $COLUMNS, or 80. */
size_t lf_screen_width(void);
/* Characters on the screen, near enough: bytes that do not continue a UTF-8 sequence. */
size_t lf_text_width(const char *s);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * A file of lines that a killed run continues. Lines are appended to NAME.part, fsynced now and
 * then; NAME itself appears when all are there. Whatever a crash leaves is a prefix of the lines
 * plus at most one line cut short, which is dropped.
 */
#ifndef LF_INFER_LINES_H
#define LF_INFER_LINES_H

#include <stddef.h>

#include "engine/base/err.h"

#define LF_LINE_MAX ((size_t)64 << 20) /* bytes of a line */

typedef struct lf_lines lf_lines;

/* Is this the line that belongs at index? Negative: no, with the reason in err. */
typedef int (*lf_lines_check)(void *arg, size_t index, const char *line, size_t len, lf_err *err);

struct lf_lines_place {
    const char *dir, *name;
    const char *const *from; /* [n_from] directories of earlier starts */
    size_t n_from;
    lf_lines_check check;
    void *arg; /* of check */
};

/* Open dir/name.part for appending. The longest run of whole, acceptable lines among it, dir/name
 * and those of from[i] is kept (copied when it is another's); *n_kept says how many. A last line
 * cut short is dropped; a whole line that check refuses is LF_EFORMAT: the file belongs to another
 * run. Borrows `at` for the call. */
int lf_lines_open(lf_lines **out, const struct lf_lines_place *at, size_t *n_kept, lf_err *err);
/* written at once, fsynced every second or MiB */
int lf_lines_append(lf_lines *l, const char *line, size_t len, lf_err *err);
int lf_lines_sync(lf_lines *l, lf_err *err);
/* Sync, link to dir/name, remove the .part. LF_EEXIST: dir/name is there already with other
 * bytes. */
int lf_lines_finish(lf_lines *l, lf_err *err);
void lf_lines_close(lf_lines *l); /* without finishing: the .part stays */

#endif

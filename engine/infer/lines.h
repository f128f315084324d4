/* SPDX-License-Identifier: Apache-2.0
 *
 * A file of lines that a later start continues. Lines are appended to NAME.part, which is fsynced
 * now and then. NAME itself appears when all lines are written. A crash leaves a prefix of the
 * lines and at most one incomplete line, which is dropped.
 */
#ifndef LF_INFER_LINES_H
#define LF_INFER_LINES_H

#include <stddef.h>

#include "engine/base/err.h"

#define LF_LINE_MAX ((size_t)64 << 20) /* bytes of a line */

typedef struct lf_lines lf_lines;

/* Is this the line that belongs at index? A negative code means no, with the reason in err. */
typedef int (*lf_lines_check)(void *arg, size_t index, const char *line, size_t len, lf_err *err);

struct lf_lines_place {
    const char *dir, *name;
    const char *const *from; /* [n_from] directories of earlier starts */
    size_t n_from;
    lf_lines_check check;
    void *arg; /* of check */
};

/* Opens dir/name.part for appending. It keeps the longest beginning of whole, accepted lines among
 * this file, dir/name and those of from[i], which are copied. *n_kept becomes the number of lines.
 * An incomplete last line is dropped. `at` is borrowed for the call. LF_EFORMAT: check refuses a
 * whole line, so the file belongs to another run. */
int lf_lines_open(lf_lines **out, const struct lf_lines_place *at, size_t *n_kept, lf_err *err);
/* written at once, fsynced every second or MiB */
int lf_lines_append(lf_lines *l, const char *line, size_t len, lf_err *err);
int lf_lines_sync(lf_lines *l, lf_err *err);
/* Syncs the file, links it to dir/name and removes the .part. LF_EEXIST: dir/name exists with other
 * bytes. */
int lf_lines_finish(lf_lines *l, lf_err *err);
void lf_lines_close(lf_lines *l); /* without finishing: the .part stays */

#endif

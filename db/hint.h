/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside libdb only: which runs may hold something that the ledger has not read. Whoever writes an
 * event touches DATA/changed/<run>, before it and after it, so that bringing the ledger up to date
 * need not walk every directory of every run. A hint is only removed when the walk began a good
 * while after the touch, by the file server's clock; so an event that comes late, or a writer that
 * died between the two touches, is still found. Hints are not needed for correctness of what was
 * read, only for finding it soon: now and then, and after this machine was booted, everything is
 * walked.
 */
#ifndef LF_DB_HINT_H
#define LF_DB_HINT_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/base/err.h"

/* The run's spool is about to get an event, or has got it. spool_dir is at or below .../runs/<run>.
 * Failures are silent. */
void lf_hint_touch(const char *spool_dir, const char *run, unsigned dir_mode, unsigned file_mode);

struct lf_hints {
    char *dir;
    char **runs; /* sorted */
    double *t;   /* when each was touched */
    size_t n;
    double now; /* by the file server's clock; 0: it cannot be asked */
};
/* The hints below a data root as they stand; none when there is no directory for them. */
int lf_hints_load(struct lf_hints *out, const char *data_root, lf_err *err);
bool lf_hints_has(const struct lf_hints *h, const char *run);
/* Everything was walked since lf_hints_load: remove the hints that are old enough. */
void lf_hints_settle(const struct lf_hints *h);
void lf_hints_fini(struct lf_hints *h);

#endif

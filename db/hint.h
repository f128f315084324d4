/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside libdb only: hints at runs that may hold something that the ledger has not read. Whoever
 * writes an event touches DATA/changed/<run> before and after writing it. So an update of the
 * ledger need not walk every directory of every run. A hint is removed only when the walk began
 * long enough after the touch, by the file server's clock. So an event that comes late is still
 * found, and so is one whose writer died between the two touches. Hints do not affect what is
 * found, only how soon: everything is walked now and then, and after this machine was booted.
 */
#ifndef LF_DB_HINT_H
#define LF_DB_HINT_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/base/err.h"

/* Call it before the run's spool gets an event, and again after. spool_dir is at or below
 * .../runs/<run>. Failures are silent. */
void lf_hint_touch(const char *spool_dir, const char *run, unsigned dir_mode, unsigned file_mode);

struct lf_hints {
    char *dir;
    char **runs; /* sorted */
    double *t;   /* when each was touched */
    size_t n;
    double now; /* time by the file server's clock; 0: it could not be asked */
};
/* The hints below a data root now. *out is empty when there is no directory of hints. */
int lf_hints_load(struct lf_hints *out, const char *data_root, lf_err *err);
bool lf_hints_has(const struct lf_hints *h, const char *run);
/* Call it when everything was walked since lf_hints_load. Removes the hints that are old enough. */
void lf_hints_settle(const struct lf_hints *h);
void lf_hints_fini(struct lf_hints *h);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Records what a result in --out was made with. OUT/.NAME.made_by.json stands beside the artifact
 * OUT/NAME and is written when the work on it begins. It has the stage, spec_version, and the
 * options of the classes identity and numeric that have a value. For an option that names a path it
 * has the identity of what is there, so a copy elsewhere counts as the same. A stage that is
 * started by hand in a finished directory compares its options with the record. It refuses other
 * options by name, instead of calling the result complete.
 */
#ifndef LF_STAGES_MADE_BY_H
#define LF_STAGES_MADE_BY_H

#include <stdbool.h>

#include "engine/base/opt.h"

enum lf_made_by_rule {
    /* Only a finished result is compared. An unfinished one may continue with other options; the
     * engine decides how. */
    LF_MADE_BY_WHOLE,
    /* An unfinished result with other options is refused too, once one of its files has
     * contents. */
    LF_MADE_BY_BEGUN
};

/* The one process that holds OUT calls it before the work on OUT/name begins. With out NULL nothing
 * is written and nothing is compared. LF_EEXIST: the result is there and was made with other
 * options; the message names one of them. A result without a record passes with a warning. */
int lf_made_by(const lf_optset *o, const lf_opt_table *t, const char *out, const char *name,
               enum lf_made_by_rule rule, lf_err *err);

/* lf_made_by with LF_MADE_BY_WHOLE. *done is set, and a line logged, when the result is complete
 * already. */
int lf_made_already(bool *done, const lf_optset *o, const lf_opt_table *t, const char *out,
                    const char *name, lf_err *err);

/* Removes the record of OUT/name when there is no such result. */
void lf_made_by_forget(const char *out, const char *name);

#endif

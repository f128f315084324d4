/* SPDX-License-Identifier: Apache-2.0
 *
 * What a result in --out was made with. Beside the artifact OUT/NAME stands OUT/.NAME.made_by.json,
 * written when the work on it begins: stage, spec_version, and the options of class identity and
 * numeric that have a value; an option that names a path has the identity of what is there in its
 * place, so a copy elsewhere is the same. A stage that is started by hand in a directory that is
 * finished compares, and refuses other options by name, instead of calling them complete.
 */
#ifndef LF_STAGES_MADE_BY_H
#define LF_STAGES_MADE_BY_H

#include <stdbool.h>

#include "engine/base/opt.h"

enum lf_made_by_rule {
    /* Only a finished result is compared. An unfinished one may go on with other options; the
     * engine says how. */
    LF_MADE_BY_WHOLE,
    /* A result that was begun with other options is refused too, once one of its files holds
     * anything. */
    LF_MADE_BY_BEGUN
};

/* The one process that holds OUT calls it before the work on OUT/name begins. out NULL: nothing is
 * written and nothing is compared. LF_EEXIST: the result is there and was made with other options;
 * the message names one of them. A result that does not say how it was made passes with a
 * warning. */
int lf_made_by(const lf_optset *o, const lf_opt_table *t, const char *out, const char *name,
               enum lf_made_by_rule rule, lf_err *err);

/* lf_made_by with LF_MADE_BY_WHOLE. *done: the result is complete already, which is logged. */
int lf_made_already(bool *done, const lf_optset *o, const lf_opt_table *t, const char *out,
                    const char *name, lf_err *err);

/* Removes the record of OUT/name when there is no such result. */
void lf_made_by_forget(const char *out, const char *name);

#endif

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
    LF_MADE_BY_WHOLE, /* what is not finished may go on with other options; how, the engine says */
    /* what was begun with other options is refused too, when a file of it holds anything */
    LF_MADE_BY_BEGUN
};

/* Before the work on OUT/name begins, by the one process that holds OUT. out NULL: nothing is
 * written, nothing is asked. LF_EEXIST: it is there, made with other options, of which one is
 * named. One that does not say how it was made is passed with a warning. */
int lf_made_by(const lf_optset *o, const lf_opt_table *t, const char *out, const char *name,
               enum lf_made_by_rule rule, lf_err *err);

/* The same (whole), and whether it is complete already, which is logged. */
int lf_made_already(bool *done, const lf_optset *o, const lf_opt_table *t, const char *out,
                    const char *name, lf_err *err);

/* Where OUT/name is not there at all nobody needs to know what would have made it. */
void lf_made_by_forget(const char *out, const char *name);

#endif

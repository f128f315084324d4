/* SPDX-License-Identifier: Apache-2.0
 *
 * How far a stage that counts no steps is: the file that its long loop keeps (lf_progress of
 * engine/base/sys.h).
 */
#ifndef LF_FLOW_DOING_H
#define LF_FLOW_DOING_H

#include "flow/record/values.h"

typedef struct lf_doing {
    bool given;
    char *what, *unit;          /* "tokenizing", "bytes read" */
    lf_real done, total, per_s; /* total is not given where it is not known */
    lf_real t;                  /* when that was so */
} lf_doing;

/* Not given where the start keeps no such file, or where it cannot be read. Owned:
 * lf_doing_fini. */
void lf_doing_load(lf_doing *out, const char *start_dir);
void lf_doing_fini(lf_doing *d);

#endif

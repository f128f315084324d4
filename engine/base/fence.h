/* SPDX-License-Identifier: Apache-2.0
 *
 * The fence of this process: the name of a file that the next start of the same stage makes. Once
 * the file is there, this start is superseded: it publishes nothing, removes nothing and ends. A
 * process may still be paused between its look and what it does next, so nobody relies on the fence
 * for being right: a later start goes on only from what it has listed and taken before
 * (flow/run/handover.h). The fence ends what would compute in vain.
 */
#ifndef LF_BASE_FENCE_H
#define LF_BASE_FENCE_H

#include <stdbool.h>

#include "engine/base/err.h"

/* Environment variable in which the wrapper gives the name to the stage's processes. */
#define LF_FENCE_ENV "LF_FENCE"

/* path NULL: there is no fence. Call once, from a stage's main. */
int lf_fence_install(const char *path, lf_err *err);
/* Has a newer start begun? Looks at the file system; false without a fence. */
bool lf_fence_closed(void);
/* 0, or LF_EBUSY: a newer start has begun, `what` is not published. */
int lf_fence_check(const char *what, lf_err *err);
/* Is there a file of this name, by the word of the file server rather than of a cache? */
bool lf_fence_there(const char *path);

#endif

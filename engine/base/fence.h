/* SPDX-License-Identifier: Apache-2.0
 *
 * The fence of this process is a file that the next start of the same stage makes. Once the file is
 * there, this start is superseded: it publishes nothing, removes nothing and ends. A process may be
 * paused between its look at the fence and its next action. So correct results do not depend on the
 * fence: a later start continues only from what it has listed and taken before
 * (flow/run/handover.h). The fence saves computing in vain.
 */
#ifndef LF_BASE_FENCE_H
#define LF_BASE_FENCE_H

#include <stdbool.h>

#include "engine/base/err.h"

/* The wrapper passes the name of the file to the stage's processes in this environment variable. */
#define LF_FENCE_ENV "LF_FENCE"

/* path NULL: there is no fence. Call once, from a stage's main. */
int lf_fence_install(const char *path, lf_err *err);
/* Has a newer start begun? Looks at the file system; false without a fence. */
bool lf_fence_closed(void);
/* Returns 0, or LF_EBUSY when a newer start has begun; the message says that `what` is not
 * published. */
int lf_fence_check(const char *what, lf_err *err);
/* Is there a file of this name? The file server is asked, not a cache. */
bool lf_fence_there(const char *path);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The project lock: a file claimed by link(2), which is atomic on local disks, NFS and Lustre
 * alike; no flock, no fcntl.
 *
 * 1. The lock is held by whoever's claim file has the name `path`. The file is JSON: host, pid,
 *    boot id, pid namespace, start time, a random token, the program's purpose and user.
 * 2. A thread of the holder renews the file's mtime every ttl/6 while it is held.
 * 3. A claim is stale when its process is certainly gone (lf_proc_look), or, for a holder that
 *    cannot be seen from here, when its mtime is older than ttl by the server's clock (the mtime of
 *    a file touched beside it), never by ours.
 * 4. Breaking a stale claim needs the claim `path.break`, and the token is read again under it, so
 *    two breakers cannot remove a fresh lock.
 */
#ifndef LF_BASE_LOCK_H
#define LF_BASE_LOCK_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/base/err.h"

typedef struct lf_lock lf_lock;

typedef struct lf_lock_opts {
    const char *purpose; /* "loong-flow run", shown to whoever waits; NULL: "" */
    double wait_s;       /* keep trying for this long; 0: once */
    double ttl_s;        /* 0: 300 */
} lf_lock_opts;

/* Returns owned; NULL with LF_EBUSY "... is held by USER@HOST pid N (PURPOSE) since TIME" or
 * another failure. opts may be NULL. */
lf_lock *lf_lock_acquire(const char *path, const lf_lock_opts *opts, lf_err *err);
/* Still ours? LF_EBUSY when someone broke it (this host slept longer than ttl): stop writing. */
int lf_lock_check(lf_lock *l, lf_err *err);
/* Who holds path, as the text of the LF_EBUSY message; 0: nobody, 1: text set. */
int lf_lock_holder(char *text, size_t cap, const char *path, lf_err *err);
/* Is path claimed by a process that is not certainly gone? */
bool lf_lock_held(const char *path);
void lf_lock_release(lf_lock *l); /* NULL is legal */

#endif

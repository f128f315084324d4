/* SPDX-License-Identifier: Apache-2.0
 *
 * The project lock is a file that is claimed by link(2), which is atomic on local disks, NFS and
 * Lustre. flock and fcntl are not used.
 *
 * 1. The process whose claim file has the name `path` holds the lock. The file is JSON: host, pid,
 *    boot id, pid namespace, start time, a random token, the program's purpose and user.
 * 2. A thread of the holder renews the file's mtime every ttl/6 while the lock is held. 3. A claim
 *    is stale when its process is certainly gone (lf_proc_look). A claim of a process that cannot
 *    be seen from here is stale when its mtime is older than ttl by the server's clock, which is
 *    the mtime of a file touched beside it. The local clock is not used.
 * 4. Whoever breaks a stale claim first claims `path.break` and then reads the token again. So two
 *    processes that break a stale claim at once cannot remove a fresh lock.
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

/* Returns a lock that the caller owns, or NULL. LF_EBUSY: "... is held by USER@HOST pid N (PURPOSE)
 * since TIME". opts may be NULL. */
lf_lock *lf_lock_acquire(const char *path, const lf_lock_opts *opts, lf_err *err);
/* Checks that this process still holds the lock. LF_EBUSY: another process broke it, because this
 * host slept longer than ttl; the caller stops writing. */
int lf_lock_check(lf_lock *l, lf_err *err);
/* Tells who holds path, in the words of the LF_EBUSY message. Returns 1 with text set, or 0 when no
 * process holds it. */
int lf_lock_holder(char *text, size_t cap, const char *path, lf_err *err);
/* Is path claimed by a process that is not certainly gone? */
bool lf_lock_held(const char *path);
void lf_lock_release(lf_lock *l); /* NULL is legal */

#endif

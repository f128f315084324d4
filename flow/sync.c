/* SPDX-License-Identifier: Apache-2.0
 *
 * The ledger's side of a command: ingest under the project lock.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "db/ledger.h"
#include "engine/base/io.h"
#include "engine/base/lock.h"
#include "flow/drive.h"

/* Does this filesystem refuse file locks (no lock daemon, a mount without flock)? SQLite reports that as "busy". */
static bool locks_refused(const char *dir)
{
    char *path = lf_path_join(dir, ".lock-probe", NULL);
    int fd = path != NULL ? open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600) : -1;
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    bool refused = fd >= 0 && fcntl(fd, F_SETLK, &range) < 0 && errno != EAGAIN && errno != EACCES;
    if (fd >= 0) {
        close(fd);
        unlink(path);
    }
    free(path);
    return refused;
}

/* The caller holds the project's link lock, which alone keeps others out where file locks do not work. */
static lf_ledger *open_for_writing(const char *dir, const char *db, lf_err *err)
{
    lf_err first = LF_ERR_INIT;
    lf_ledger *l = lf_ledger_open(db, LF_LEDGER_WRITE, &first);
    if (l == NULL && locks_refused(dir))
        return lf_ledger_open(db, LF_LEDGER_WRITE | LF_LEDGER_NOLOCK, err);
    if (l == NULL && err != NULL)
        *err = first;
    return l;
}

/* The ledger and its copy are for those that .loong is for, whatever the umask of whoever writes them. */
static void set_mode(const char *dot, const char *db)
{
    struct stat st, now;
    if (stat(dot, &st) < 0)
        return;
    mode_t mode = (st.st_mode & S_IRGRP) != 0 && (st.st_mode & S_ISGID) != 0 ? 0640 : 0600;
    if (stat(db, &now) == 0 && now.st_uid == geteuid() && (now.st_mode & 07777) != mode)
        chmod(db, mode);
}

static int with_ledger(lf_ledger_ingested *out, const lf_project *p, const char *data, const char *run, bool everything,
                       double wait_s, lf_err *err)
{
    char *lock_path = lf_path_join(p->dot, "lock", err), *db = lf_path_join(p->dot, "ledger.db", err);
    int rc = lock_path == NULL || db == NULL ? LF_ENOMEM : 0;
    lf_lock_opts opts = {.purpose = "loong-flow", .wait_s = wait_s, .ttl_s = 0};
    lf_lock *lock = rc == 0 ? lf_lock_acquire(lock_path, &opts, err) : NULL;
    lf_ledger *l = lock != NULL ? open_for_writing(p->dot, db, err) : NULL;
    if (l != NULL)
        set_mode(p->dot, db);
    if (rc == 0 && l == NULL) {
        rc = err != NULL && err->rc != 0 ? err->rc : LF_EIO;
        if (rc == LF_ENOTSUP) /* a newer ledger: for the exit code the same as a damaged one */
            rc = err->rc = LF_EFORMAT;
    }
    if (rc == 0 && data != NULL) {
        lf_ledger_ingest_opts io = {.run = run, .everything = everything, .trusted = NULL, .n_trusted = 0};
        rc = lf_ledger_ingest(l, data, &io, out, err);
        if (rc == 0)
            rc = lf_ledger_publish(l, err);
    }
    lf_ledger_close(l);
    lf_lock_release(lock);
    free(lock_path);
    free(db);
    return rc;
}

int lf_sync(const lf_project *p, const char *data, const char *run, lf_err *err)
{
    return with_ledger(NULL, p, data, run, false, 10.0, err);
}

int lf_sync_probe(const lf_project *p, lf_err *err)
{
    return with_ledger(NULL, p, NULL, NULL, false, 10.0, err);
}

int lf_sync_count(lf_ledger_ingested *out, const lf_project *p, const char *data, bool everything, lf_err *err)
{
    return with_ledger(out, p, data, NULL, everything, 10.0, err);
}

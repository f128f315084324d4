/* SPDX-License-Identifier: Apache-2.0
 *
 * The ledger's side of a command: ingest under the project lock.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "db/ledger.h"
#include "engine/base/io.h"
#include "engine/base/lock.h"
#include "engine/base/str.h"
#include "flow/plan/conf.h"
#include "flow/run/sync.h"

enum { MAX_TRUSTED = 64 };

/* What the site and the user say about ledgers: [site] ledger_locks, [user] trust. */
struct policy {
    unsigned flags;
    uid_t trusted[MAX_TRUSTED];
    size_t n_trusted;
};

static int load_policy(struct policy *out, lf_err *err)
{
    lf_conf c;
    const lf_conf_args a = {.pipeline_path = NULL};
    int rc = lf_conf_load(&c, &a, err);
    if (rc < 0)
        return rc;
    const lf_conf_item *it = lf_conf_find(&c, "site", "ledger_locks");
    bool locks = true;
    if (it != NULL && lf_parse_bool(&locks, it->raw, NULL) < 0)
        rc = lf_conf_fail(it, err, "ledger_locks = %s: yes or no", it->raw);
    out->flags = locks ? 0 : LF_LEDGER_NOLOCK;
    for (size_t i = 0; i < c.n_trusted && out->n_trusted < MAX_TRUSTED; i++) {
        const struct passwd *pw = getpwnam(c.trusted[i]);
        if (pw != NULL)
            out->trusted[out->n_trusted++] = pw->pw_uid;
    }
    lf_conf_fini(&c);
    return rc;
}

int lf_sync_read_flags(unsigned *flags, lf_err *err)
{
    struct policy p = {.flags = 0};
    int rc = load_policy(&p, err);
    *flags = p.flags;
    return rc;
}

/* Does this filesystem refuse file locks (no lock daemon, a mount without flock)? SQLite reports
 * that as "busy". */
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

/* The caller holds the project's link lock, which alone keeps others out where file locks do not
 * work. */
static lf_ledger *open_for_writing(const char *dir, const char *db, unsigned flags, lf_err *err)
{
    lf_err first = LF_ERR_INIT;
    lf_ledger *l = lf_ledger_open(db, LF_LEDGER_WRITE | flags, &first);
    if (l == NULL && flags == 0 && locks_refused(dir))
        return lf_ledger_open(db, LF_LEDGER_WRITE | LF_LEDGER_NOLOCK, err);
    if (l == NULL && err != NULL)
        *err = first;
    return l;
}

/* The ledger and its copy are for those that .loong is for, whatever the umask of whoever writes
 * them. */
static void set_mode(const char *dot, const char *db)
{
    struct stat st, now;
    if (stat(dot, &st) < 0)
        return;
    mode_t mode = (st.st_mode & S_IRGRP) != 0 && (st.st_mode & S_ISGID) != 0 ? 0640 : 0600;
    if (stat(db, &now) == 0 && now.st_uid == geteuid() && (now.st_mode & 07777) != mode)
        chmod(db, mode);
}

/* data NULL: nothing is read; with a run the ledger forgets that one. */
static int with_ledger(lf_ledger_ingested *out, const lf_project *p, const char *data,
                       const char *run, bool everything, double wait_s, lf_err *err)
{
    char *lock_path = lf_path_join(p->dot, "lock", err),
         *db = lf_path_join(p->dot, "ledger.db", err);
    struct policy policy = {.flags = 0};
    int rc = lock_path == NULL || db == NULL ? LF_ENOMEM : load_policy(&policy, err);
    lf_lock_opts opts = {.purpose = "loong-flow", .wait_s = wait_s, .ttl_s = 0};
    lf_lock *lock = rc == 0 ? lf_lock_acquire(lock_path, &opts, err) : NULL;
    lf_ledger *l = lock != NULL ? open_for_writing(p->dot, db, policy.flags, err) : NULL;
    if (l != NULL)
        set_mode(p->dot, db);
    if (rc == 0 && l == NULL) {
        rc = err != NULL && err->rc != 0 ? err->rc : LF_EIO;
        if (rc == LF_ENOTSUP) /* a newer ledger: for the exit code the same as a damaged one */
            rc = err->rc = LF_EFORMAT;
    }
    if (rc == 0 && data == NULL && run != NULL) {
        rc = lf_ledger_forget(l, run, err);
        if (rc == 0)
            rc = lf_ledger_publish(l, err);
    }
    if (rc == 0 && data != NULL) {
        lf_ledger_ingest_opts io = {.run = run,
                                    .everything = everything,
                                    .trusted = policy.trusted,
                                    .n_trusted = policy.n_trusted};
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

int lf_sync_forget(const lf_project *p, const char *run, lf_err *err)
{
    char *db = lf_path_join(p->dot, "ledger.db", err);
    int rc = db == NULL         ? LF_ENOMEM
             : lf_io_exists(db) ? with_ledger(NULL, p, NULL, run, false, 10.0, err)
                                : 0;
    free(db);
    return rc;
}

int lf_sync_probe(const lf_project *p, lf_err *err)
{
    return with_ledger(NULL, p, NULL, NULL, false, 10.0, err);
}

int lf_sync_count(lf_ledger_ingested *out, const lf_project *p, const char *data, bool everything,
                  lf_err *err)
{
    return with_ledger(out, p, data, NULL, everything, 10.0, err);
}

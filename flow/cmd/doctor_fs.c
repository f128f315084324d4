/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor: the directories. What loong-flow asks of a filesystem is little and strict: link(2) fails
 * where the name exists, fsync of files and directories, executables may be started from it, and
 * (for the ledger alone) record locks that exclude.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/quota.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/str.h"
#include "engine/base/sys.h"
#include "flow/cmd/doctor.h"
#include "flow/record/record.h"
#include "flow/sched/sched.h"

enum kind { LOCAL, VOLATILE, SHARED, DOUBTFUL };
/* Magic numbers: statfs(2), and the headers of the filesystems themselves (Lustre, GPFS, BeeGFS,
 * PanFS). */
static const struct fs {
    unsigned long magic;
    const char *name;
    enum kind kind;
} known[] = {
    {0xEF53, "ext4", LOCAL},         {0x58465342, "xfs", LOCAL},
    {0x9123683E, "btrfs", LOCAL},    {0x2FC12FC1, "ZFS", LOCAL},
    {0xF2F52010, "f2fs", LOCAL},     {0x01021994, "tmpfs", VOLATILE},
    {0x858458F6, "ramfs", VOLATILE}, {0x794C7630, "overlay", LOCAL},
    {0x6969, "NFS", SHARED},         {0x0BD00BD0, "Lustre", SHARED},
    {0x47504653, "GPFS", SHARED},    {0x19830326, "BeeGFS", SHARED},
    {0x00C36400, "CephFS", SHARED},  {0xAAD7AAEA, "PanFS", SHARED},
    {0x01161970, "GFS2", SHARED},    {0x7461636F, "OCFS2", SHARED},
    {0x65735546, "FUSE", DOUBTFUL},  {0xFF534D42, "CIFS", DOUBTFUL},
    {0xFE534D42, "SMB2", DOUBTFUL},  {0x5346414F, "AFS", DOUBTFUL},
    {0x01021997, "9p", DOUBTFUL},
};

static const struct fs *fs_of(const struct statfs *s)
{
    static const struct fs unknown = {0, "a filesystem of unknown kind", DOUBTFUL};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if ((unsigned long)s->f_type == known[i].magic)
            return &known[i];
    return &unknown;
}

static void check_kind(lf_doctor *d, const char *what, const char *dir, const struct statfs *s,
                       bool shared)
{
    const struct fs *f = fs_of(s);
    if (f->kind == VOLATILE)
        lf_doctor_add(d, "warn", what, "choose a directory on a disk ([pipeline] data_dir)",
                      "%s on %s: gone after a restart, and it takes memory", dir, f->name);
    else if (shared && f->kind == LOCAL)
        lf_doctor_add(d, "warn", what,
                      "check with `loong-flow doctor --launch`; choose a data_dir on the shared "
                      "filesystem if it fails",
                      "%s on %s, which is local to this machine unless it is exported: jobs on "
                      "other nodes may not see it",
                      dir, f->name);
    else if (f->kind == DOUBTFUL)
        lf_doctor_add(
            d, "warn", what,
            "what is tested below counts; prefer NFS, Lustre, GPFS or BeeGFS for a data_dir",
            "%s on %s", dir, f->name);
    else
        lf_doctor_add(d, "ok", what, NULL, "%s on %s", dir, f->name);
}

static void check_space(lf_doctor *d, const char *what, const struct statfs *s)
{
    char b[32], t[32];
    double left = (double)s->f_bavail * (double)s->f_bsize,
           all = (double)s->f_blocks * (double)s->f_bsize;
    lf_doctor_add(d, left > 1e9 ? "ok" : "warn", what,
                  left > 1e9 ? NULL
                             : "free some space; `loong-flow gc` says what of ours may be deleted",
                  "%s of %s free", lf_fmt_bytes(b, sizeof b, left), lf_fmt_bytes(t, sizeof t, all));
    if (s->f_files > 0 && s->f_ffree < 10000)
        lf_doctor_add(d, "warn", what, "delete small files, or ask for more inodes",
                      "only %llu more files can be made", (unsigned long long)s->f_ffree);
}

/* used of limit, both in `unit`s; limit 0: none. */
static void judge_quota(lf_doctor *d, const char *what, const char *of, double used, double limit,
                        bool bytes)
{
    char b[32], t[32];
    if (limit <= 0)
        return;
    bool tight = used > 0.9 * limit;
    if (bytes) {
        lf_fmt_bytes(b, sizeof b, used);
        lf_fmt_bytes(t, sizeof t, limit);
    } else {
        lf_fmt_count(b, sizeof b, used);
        lf_fmt_count(t, sizeof t, limit);
    }
    lf_doctor_add(d, tight ? "warn" : "ok", what,
                  tight ? "a full quota stops training at the next checkpoint: free some" : NULL,
                  "quota of %s: %s of %s used", of, b, t);
}

/* Disk quotas of the kernel; where the filesystem keeps its own (Lustre), its command is asked. */
static void check_quota(lf_doctor *d, const char *what, const char *dir, const struct statfs *s)
{
#ifdef SYS_quotactl_fd
    struct dqblk q;
    memset(&q, 0, sizeof q);
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0 && syscall(SYS_quotactl_fd, fd, QCMD((unsigned)Q_GETQUOTA, USRQUOTA), (int)getuid(),
                           &q) == 0) {
        judge_quota(d, what, "space", (double)q.dqb_curspace, 1024.0 * (double)q.dqb_bhardlimit,
                    true);
        judge_quota(d, what, "files", (double)q.dqb_curinodes, (double)q.dqb_ihardlimit, false);
    }
    if (fd >= 0)
        close(fd);
#endif
    if ((unsigned long)s->f_type != 0x0BD00BD0)
        return;
    char uid[16];
    lf_sched_out o;
    snprintf(uid, sizeof uid, "%u", (unsigned)getuid());
    if (lf_sched_runv(&o, d->site, 10, NULL, "lfs", "quota", "-q", "-u", uid, dir, NULL) < 0)
        return;
    /* "PATH kbytes[*] quota limit grace files[*] quota limit grace", on one line or two */
    double kb = 0, klimit = 0, files = 0, flimit = 0;
    if (!o.missing && o.exit == 0 &&
        sscanf(o.out.data, "%*s %lf%*[* ] %*s %lf %*s %lf%*[* ] %*s %lf", &kb, &klimit, &files,
               &flimit) == 4) {
        judge_quota(d, what, "space", 1024.0 * kb, 1024.0 * klimit, true);
        judge_quota(d, what, "files", files, flimit, false);
    }
    lf_sched_out_fini(&o);
}

static void check_mount(lf_doctor *d, const char *what, const char *dir)
{
    struct statvfs v;
    if (statvfs(dir, &v) != 0)
        return;
    if (v.f_flag & ST_RDONLY)
        lf_doctor_add(d, "fail", what, "choose a directory that can be written",
                      "%s is mounted read-only", dir);
    if (v.f_flag & ST_NOEXEC)
        lf_doctor_add(
            d, "fail", what,
            "choose another data_dir: runs keep copies of the programs there and start those",
            "%s is mounted noexec: nothing can be started from it", dir);
}

/* Publishing in small: a file, fsync, two links to one name of which the second must fail. */
static void check_links(lf_doctor *d, const char *what, const char *dir)
{
    char a[PATH_MAX], b[PATH_MAX];
    lf_err e = LF_ERR_INIT;
    if (lf_path_set(a, &e, "%s/.doctor-a-%d", dir, (int)getpid()) < 0 ||
        lf_path_set(b, &e, "%s/.doctor-b-%d", dir, (int)getpid()) < 0)
        return lf_doctor_add(d, "fail", what, NULL, "%s", e.text);
    double t0 = lf_now_s();
    if (lf_io_publish(a, "x", 1, 0600, &e) < 0)
        return lf_doctor_add(d, "fail", what, "make it writable, or choose another directory", "%s",
                             e.text);
    double ms = (lf_now_s() - t0) * 1000;
    struct stat s = {.st_nlink = 0};
    bool first = link(a, b) == 0, second = link(a, b) == 0,
         two = stat(a, &s) == 0 && s.st_nlink == 2;
    unlink(a);
    unlink(b);
    if (!first || second || !two)
        lf_doctor_add(
            d, "fail", what,
            "choose a directory on another filesystem: results are published with hard links",
            "link(2) does not work in %s as it must (%s)", dir,
            !first   ? "refused"
            : second ? "a second link to the same name succeeded"
                     : "the count of links is wrong");
    else
        lf_doctor_add(d, ms < 1000 ? "ok" : "warn", what,
                      ms < 1000
                          ? NULL
                          : "events and checkpoints will be slow here: is the server overloaded?",
                      "publishing (write, fsync, link) works and takes %.1f ms", ms);
}

/* SQLite stands on record locks: one process must keep the other out. */
static void check_locks(lf_doctor *d, const char *what, const char *dir)
{
    char a[PATH_MAX];
    if (lf_path_set(a, NULL, "%s/.doctor-l-%d", dir, (int)getpid()) < 0)
        return;
    int fd = open(a, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return; /* said by check_links */
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int status = -1;
    if (fcntl(fd, F_SETLK, &l) == 0) {
        pid_t pid = fork();
        if (pid == 0) {
            int other = open(a, O_RDWR | O_CLOEXEC);
            alarm(20);
            _exit(other >= 0 && fcntl(other, F_SETLK, &l) != 0 &&
                          (errno == EAGAIN || errno == EACCES)
                      ? 0
                      : 1);
        }
        while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
        }
    }
    int why = errno;
    close(fd);
    unlink(a);
    if (status == 0)
        lf_doctor_add(d, "ok", what, NULL, "record locks keep a second process out");
    else
        lf_doctor_add(d, "warn", what,
                      "set `ledger_locks = no` in [site]: the project lock, which needs no such "
                      "locks, suffices",
                      status < 0 ? "record locks (fcntl) do not work: %s"
                                 : "record locks (fcntl) exclude nobody",
                      strerror(why));
}

/* Ages and heartbeats are judged by the file server's clock; times on screen are this machine's. */
static void check_clock(lf_doctor *d, const char *what, const char *dir)
{
    char a[PATH_MAX];
    struct stat s;
    if (lf_path_set(a, NULL, "%s/.doctor-t-%d", dir, (int)getpid()) < 0)
        return;
    double before = lf_wall_s();
    int fd = open(a, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    bool seen = write(fd, "x", 1) == 1 && fsync(fd) == 0;
    close(fd);
    seen = stat(a, &s) == 0 && seen;
    double after = lf_wall_s();
    unlink(a);
    if (!seen)
        return;
    double t = (double)s.st_mtim.tv_sec + 1e-9 * (double)s.st_mtim.tv_nsec;
    double skew = t < before - 0.1  ? t - before
                  : t > after + 0.1 ? t - after
                                    : 0; /* the kernel's clock ticks */
    if (skew > 5 || skew < -5)
        lf_doctor_add(d, "warn", what,
                      "set the clocks (chrony, ntp): times and ages will look wrong",
                      "the file server's clock is %.0f s %s this machine's",
                      skew > 0 ? skew : -skew, skew > 0 ? "ahead of" : "behind");
    else
        lf_doctor_add(d, "ok", what, NULL, "the file server's clock agrees (%.1f s)", skew);
}

void lf_doctor_dir(lf_doctor *d, const char *what, const char *dir, bool shared, bool ledger)
{
    char at[PATH_MAX];
    struct statfs s;
    if (lf_path_set(at, NULL, "%s", dir) < 0)
        return lf_doctor_add(d, "fail", what, "choose a shorter path", "%s is too long", dir);
    while (statfs(at, &s) != 0) {
        char *slash = strrchr(at, '/');
        if (slash == NULL || slash == at || errno != ENOENT)
            return lf_doctor_add(d, "fail", what, "make it, or name another", "%s: %s", dir,
                                 strerror(errno));
        *slash = '\0';
    }
    check_kind(d, what, dir, &s, shared);
    check_space(d, what, &s);
    check_quota(d, what, at, &s);
    check_mount(d, what, at);
    if (access(at, W_OK) != 0)
        return lf_doctor_add(d, "fail", what,
                             "ask its owner for the right to write, or choose another",
                             "%s cannot be written: %s", at, strerror(errno));
    check_links(d, what, at);
    if (ledger)
        check_locks(d, what, at);
    check_clock(d, what, at);
}

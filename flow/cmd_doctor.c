/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor: is this site usable? Each check does the thing itself (a link, an fsync, a start of an executable) where the
 * project's files will lie, and says what it saw.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/lock.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/base/sys.h"
#include "flow/cmds.h"
#include "flow/drive.h"
#include "flow/freeze.h"
#include "flow/record.h"
#include "flow/who.h"

static const lf_opt doctor_rows[] = {
    LF_CMD_COMMON,
    LF_CMD_ROW("data_dir", LF_OPT_PATH, 0, "loong-data", NULL, "data directory to look at, against the project"),
};
LF_CMD_TABLE(doctor, "is this machine and this directory usable?", doctor_rows);

static void note(json_t *list, const char *verdict, const char *what, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
static void note(json_t *list, const char *verdict, const char *what, const char *fmt, ...)
{
    char text[1200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "verdict", verdict, "check", what, "text", text));
}

static const char *fs_name(const struct statfs *s)
{
    static const struct {
        unsigned long magic;
        const char *name;
    } known[] = {{0xEF53, "ext4"},        {0x58465342, "xfs"},     {0x9123683E, "btrfs"},   {0x01021994, "tmpfs"},
                 {0x794C7630, "overlay"}, {0x6969, "NFS"},         {0x0BD00BD0, "Lustre"},  {0x47504653, "GPFS"},
                 {0x19830326, "BeeGFS"},  {0x2FC12FC1, "ZFS"},     {0x65735546, "FUSE"},    {0xFF534D42, "CIFS"}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if ((unsigned long)s->f_type == known[i].magic)
            return known[i].name;
    return "unknown kind";
}

/* The protocol in small: a file, fsync, two links to one name, of which the second must fail. */
static void check_links(json_t *list, const char *dir)
{
    char a[PATH_MAX], b[PATH_MAX];
    lf_err e = LF_ERR_INIT;
    if (lf_path_set(a, &e, "%s/.doctor-a-%d", dir, (int)getpid()) < 0 ||
        lf_path_set(b, &e, "%s/.doctor-b-%d", dir, (int)getpid()) < 0)
        return note(list, "bad", "publishing", "%s", e.text);
    double t0 = lf_now_s();
    if (lf_io_publish(a, "x", 1, 0600, &e) < 0) {
        note(list, "bad", "publishing", "%s", e.text);
        return;
    }
    double ms = (lf_now_s() - t0) * 1000;
    bool first = link(a, b) == 0, second = link(a, b) == 0;
    unlink(a);
    unlink(b);
    if (!first || second)
        note(list, "bad", "publishing", "link(2) does not behave in %s: it must fail where the name exists", dir);
    else
        note(list, "ok", "publishing", "link and fsync work in %s (%.1f ms)", dir, ms);
}

static void check_dir(json_t *list, const char *what, const char *dir)
{
    char at[PATH_MAX], b[32];
    struct statfs s;
    if (lf_path_set(at, NULL, "%s", dir) < 0)
        return;
    while (statfs(at, &s) != 0) {
        char *slash = strrchr(at, '/');
        if (slash == NULL || slash == at)
            return note(list, "bad", what, "%s: %s", dir, strerror(errno));
        *slash = '\0';
    }
    double left = (double)s.f_bavail * (double)s.f_bsize;
    note(list, left > 1e9 ? "ok" : "warn", what, "%s on %s, %s free", dir, fs_name(&s), lf_fmt_bytes(b, sizeof b, left));
    if (access(at, W_OK) != 0)
        note(list, "bad", what, "%s cannot be written: %s", at, strerror(errno));
    else
        check_links(list, at);
}

static void check_exe(json_t *list, const char *name)
{
    char *path = NULL;
    lf_err e = LF_ERR_INIT;
    if (lf_exe_find(&path, name, &e) < 0) {
        note(list, "bad", name, "%s", e.text);
        return;
    }
    pid_t pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_RDWR);
        dup2(null, 0);
        dup2(null, 1);
        dup2(null, 2);
        execl(path, name, "--version", (char *)NULL);
        _exit(127);
    }
    int status = 0;
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    bool good = pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    note(list, good ? "ok" : "bad", name, good ? "%s starts" : "%s does not start (try it by hand: a library may be missing)",
         path);
    free(path);
}

static void check_limits(json_t *list)
{
    struct rlimit r;
    char b[32];
    if (getrlimit(RLIMIT_FSIZE, &r) == 0 && r.rlim_cur != RLIM_INFINITY)
        note(list, "warn", "limits", "files may not grow beyond %s (ulimit -f)",
             lf_fmt_bytes(b, sizeof b, (double)r.rlim_cur));
    if (getrlimit(RLIMIT_AS, &r) == 0 && r.rlim_cur != RLIM_INFINITY)
        note(list, "warn", "limits", "address space is limited to %s (ulimit -v)",
             lf_fmt_bytes(b, sizeof b, (double)r.rlim_cur));
    if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < 256)
        note(list, "warn", "limits", "only %llu open files (ulimit -n)", (unsigned long long)r.rlim_cur);
    note(list, "ok", "machine", "%d processors available", lf_ncpu());
    json_t *who = lf_who_make(0, NULL);
    note(list, who != NULL ? "ok" : "bad", "processes",
         who != NULL ? "can be identified through /proc" : "/proc does not identify processes");
    json_decref(who);
}

static void check_project(json_t *list, lf_cmd *c)
{
    lf_project p;
    lf_err e = LF_ERR_INIT;
    if (lf_cmd_project(&p, c, &e) < 0) {
        note(list, "ok", "project", "none here yet");
        check_dir(list, "project directory", ".");
        return;
    }
    note(list, "ok", "project", "%s (%s)", p.root, p.id);
    check_dir(list, "project directory", p.dot);
    const char *dir = lf_optset_str(c->opts, "data_dir");
    char data[PATH_MAX];
    if (lf_path_set(data, NULL, "%s%s%s", dir[0] == '/' ? "" : p.root, dir[0] == '/' ? "" : "/", dir) == 0)
        check_dir(list, "data_dir", data);
    if (lf_sync_probe(&p, &e) < 0)
        note(list, "bad", "ledger", "%s", e.text);
    else
        note(list, "ok", "ledger", "can be locked and written");
    lf_project_fini(&p);
}

static int run_doctor(lf_cmd *c, lf_err *err)
{
    json_t *list = json_array();
    if (list == NULL)
        return lf_fail(err, LF_ENOMEM, "out of memory");
    check_project(list, c);
    for (const lf_opt_table *const *t = c->tables; *t != NULL; t++) {
        char name[160];
        snprintf(name, sizeof name, "lf-%s", (*t)->stage);
        check_exe(list, name);
    }
    check_limits(list);
    bool bad = false;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *o = json_array_get(list, i);
        const char *v = json_string_value(json_object_get(o, "verdict"));
        bad = bad || strcmp(v, "bad") == 0;
        if (c->json)
            continue;
        printf("%-5s %s: ", v, json_string_value(json_object_get(o, "check")));
        lf_print_safe(json_string_value(json_object_get(o, "text")));
        putchar('\n');
    }
    int rc = c->json ? lf_cmd_print_json(json_pack("{s:b, s:O}", "ok", !bad, "checks", list), err) : 0;
    json_decref(list);
    return rc < 0 ? rc : bad ? LF_FLOW_FAILED : LF_FLOW_OK;
}

const lf_cmd_def lf_cmd_doctor = {.table = &doctor_table, .words = "", .max_words = 0, .run = run_doctor};

/* SPDX-License-Identifier: Apache-2.0
 *
 * Projects: identity, data roots, sharing modes. Runs are in runs.c.
 */
#include "config.h"

#include "flow/record/identity.h"
#include "flow/run/project.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/hash.h"
#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/base/sys.h"
#include "flow/plan/conf.h"
#include "flow/record/record.h"

/* Spool and project files are trusted only when nobody else could have written them. */
static int check_dot(const char *dot, lf_err *err)
{
    struct stat st;
    if (lstat(dot, &st) < 0)
        return errno == ENOENT ? lf_fail(err, LF_ENOENT, "%s does not exist", dot)
                               : lf_fail_errno(err, "%s", dot);
    if (!S_ISDIR(st.st_mode))
        return lf_fail(err, LF_EINVAL, "%s is not a directory (symbolic links are refused)", dot);
    if ((st.st_mode & S_IWOTH) != 0)
        return lf_fail(err, LF_EINVAL, "%s is writable by everybody; chmod o-w it", dot);
    return 0;
}

/* A project of somebody else who shares it with nobody, or not with this user. */
static int check_readable(const char *dot, lf_err *err)
{
    static const char *const parts[] = {"", "/project.json", "/roots"};
    char path[PATH_MAX];
    struct stat st;
    if (lstat(dot, &st) != 0) /* it may be a directory above that cannot be searched */
        return 0;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (lf_path_set(path, err, "%s%s", dot, parts[i]) < 0)
            return LF_ENOMEM;
        if (access(path, i == 1 ? R_OK : R_OK | X_OK) == 0 || errno != EACCES)
            continue;
        const struct passwd *owner = getpwuid(st.st_uid);
        return lf_fail(err, LF_EIO,
                       "the project in %.*s is unreadable for you: %s: Permission denied; its "
                       "owner%s%s can share it with a group (share = GROUP in [pipeline])",
                       (int)(strrchr(dot, '/') - dot), dot, path, owner != NULL ? " " : "",
                       owner != NULL ? owner->pw_name : "");
    }
    return 0;
}

static int read_identity(lf_project *p, const char *path, lf_err *err)
{
    char *id = NULL;
    int rc = lf_identity_load(&id, path, err);
    if (rc == 0 && !lf_ulid_valid(id))
        rc = lf_fail(err, LF_EFORMAT, "%s: \"%s\" is not a project id", path, id);
    if (rc == 0)
        memcpy(p->id, id, LF_ULID_SIZE);
    free(id);
    return rc;
}

static int create_identity(const char *dot, const char *path, lf_err *err)
{
    int rc = lf_io_mkdirs(dot, 0700, err); /* lf_project_share opens it to a group */
    if (rc < 0)
        return rc;
    char id[LF_ULID_SIZE];
    rc = lf_ulid(id, err);
    if (rc < 0)
        return rc;
    lf_err e = LF_ERR_INIT;
    rc = lf_identity_write(path, id, &e);
    if (rc < 0 && rc != LF_EEXIST) /* another loong-flow was first: use its id */
        return lf_fail(err, rc, "%s", e.text);
    return 0;
}

int lf_project_open(lf_project *out, const char *root, bool create, lf_err *err)
{
    lf_project p;
    memset(&p, 0, sizeof p);
    p.root = realpath(root, NULL);
    if (p.root == NULL)
        return lf_fail_errno(err, "project directory %s", root);
    p.dot = lf_path_join(p.root, ".loong", err);
    char *path = p.dot != NULL ? lf_path_join(p.dot, "project.json", err) : NULL;
    int rc = path == NULL ? LF_ENOMEM : 0;
    if (rc == 0 && create)
        rc = lf_path_plain(p.root, "the project directory", err);
    if (rc == 0 && !lf_io_exists(path) && create)
        rc = create_identity(p.dot, path, err);
    if (rc == 0)
        rc = check_dot(p.dot, err);
    if (rc == 0)
        rc = check_readable(p.dot, err);
    if (rc == LF_ENOENT) {
        lf_err_clear(err);
        lf_fail(err, LF_ENOENT,
                "%s is not a loong-flow project (no .loong in it); run a pipeline there first",
                p.root);
    }
    if (rc == 0)
        rc = read_identity(&p, path, err);
    free(path);
    if (rc < 0)
        lf_project_fini(&p);
    else
        *out = p;
    return rc;
}

void lf_project_fini(lf_project *p)
{
    free(p->root);
    free(p->dot);
    memset(p, 0, sizeof *p);
}

int lf_project_find(char **root, const char *start, lf_err *err)
{
    char *dir = realpath(start, NULL);
    if (dir == NULL)
        return lf_fail_errno(err, "%s", start);
    for (;;) {
        char *dot = lf_path_join(dir, ".loong/project.json", err);
        if (dot == NULL) {
            free(dir);
            return LF_ENOMEM;
        }
        bool found = lf_io_exists(dot);
        *strrchr(dot, '/') = '\0';
        int rc = found || errno != EACCES ? 0 : check_readable(dot, err);
        free(dot);
        if (rc < 0) {
            free(dir);
            return rc;
        }
        if (found) {
            *root = dir;
            return 0;
        }
        char *slash = strrchr(dir, '/');
        if (slash == NULL || slash == dir)
            break;
        *slash = '\0';
    }
    free(dir);
    return lf_fail(
        err, LF_ENOENT,
        "no loong-flow project here: neither %s nor a directory above it has a .loong; use "
        "--project DIR, or run a pipeline first",
        start);
}

char *lf_project_data(const lf_project *p, const char *data_dir, lf_err *err)
{
    lf_buf b;
    lf_buf_init(&b);
    if (data_dir[0] != '/')
        lf_buf_addf(&b, "%s/", p->root);
    lf_buf_addf(&b, "%s/%s", data_dir, p->id);
    char *s = lf_buf_steal(&b, err);
    lf_buf_fini(&b);
    return s;
}

int lf_project_add_root(const lf_project *p, const char *data_dir, lf_err *err)
{
    uint8_t digest[LF_HASH_BYTES];
    char hex[LF_HASH_HEX];
    int rc = lf_hash_buf(digest, data_dir, strlen(data_dir), err);
    if (rc < 0)
        return rc;
    lf_hash_hex(hex, digest);
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/roots", p->dot) >= (int)sizeof path - 80)
        return lf_fail(err, LF_EINVAL, "%s: the path is too long", p->dot);
    rc = lf_io_mkdirs(path, 0755, err);
    if (rc < 0)
        return rc;
    size_t n = strlen(path);
    snprintf(path + n, sizeof path - n, "/%.16s", hex);
    if (lf_io_exists(path))
        return 0;
    lf_err e = LF_ERR_INIT;
    rc = lf_io_publish(path, data_dir, strlen(data_dir), 0644, &e);
    return rc == LF_EEXIST || rc == 0 ? 0 : lf_fail(err, rc, "%s", e.text);
}

/* What is mine of a directory's plain files: to its group, readable. */
static void share_files(const char *dir, gid_t group)
{
    DIR *d = opendir(dir);
    for (const struct dirent *e = d != NULL ? readdir(d) : NULL; e != NULL; e = readdir(d)) {
        struct stat st;
        if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
            st.st_uid == geteuid() &&
            fchownat(dirfd(d), e->d_name, (uid_t)-1, group, AT_SYMLINK_NOFOLLOW) == 0)
            fchmodat(dirfd(d), e->d_name, 0640, 0);
    }
    if (d != NULL)
        closedir(d);
}

int lf_project_share(const lf_project *p, const char *share, lf_err *err)
{
    struct stat st;
    if (strcmp(share, "none") == 0)
        return 0;
    const struct group *g = getgrnam(share);
    if (g == NULL)
        return lf_fail(err, LF_EINVAL, "share = %s: there is no such group", share);
    if (stat(p->dot, &st) == 0 && st.st_gid == g->gr_gid && (st.st_mode & 07777) == 02750)
        return 0; /* what is made in it inherits the group */
    static const char *const subs[] = {"roots", "names"};
    gid_t group = g->gr_gid;
    int rc = lf_share_dir(p->dot, share, err);
    if (rc == 0)
        share_files(p->dot, group);
    for (size_t i = 0; rc == 0 && i < sizeof subs / sizeof subs[0]; i++) {
        char dir[PATH_MAX];
        if (snprintf(dir, sizeof dir, "%s/%s", p->dot, subs[i]) >= (int)sizeof dir ||
            !lf_io_exists(dir))
            continue;
        rc = lf_share_dir(dir, share, err);
        if (rc == 0)
            share_files(dir, group);
    }
    return rc;
}

int lf_share_check(const char *share, lf_err *err)
{
    if (strcmp(share, "none") == 0 || getgrnam(share) != NULL)
        return 0;
    return lf_fail(err, LF_EINVAL, "share = %s: there is no such group (or give none)", share);
}

int lf_share_apply(const char *share, lf_err *err)
{
    int rc = lf_share_check(share, err);
    if (rc == 0)
        umask(strcmp(share, "none") == 0 ? 0077 : 0027);
    return rc;
}

int lf_share_dir(const char *path, const char *share, lf_err *err)
{
    if (strcmp(share, "none") == 0)
        return chmod(path, 0700) == 0 ? 0 : lf_fail_errno(err, "cannot set the mode of %s", path);
    const struct group *g = getgrnam(share);
    if (g == NULL)
        return lf_fail(err, LF_EINVAL, "share = %s: there is no such group", share);
    if (chown(path, (uid_t)-1, g->gr_gid) < 0)
        return lf_fail_errno(err, "cannot give %s to group %s", path, share);
    return chmod(path, 02750) == 0 ? 0 : lf_fail_errno(err, "cannot set the mode of %s", path);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Executables by content, revisions of runs.
 */
#include "config.h"

#include "flow/run/freeze.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/hash.h"
#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/base/sys.h"
#include "flow/record/record.h"
#include "flow/run/leftover.h"
#include "flow/run/naming.h"
#include "flow/run/par.h"

/* ---- finding ---- */

static int own_path(char out[PATH_MAX], lf_err *err)
{
    ssize_t n = readlink("/proc/self/exe", out, PATH_MAX - 1);
    if (n <= 0)
        return lf_fail_errno(err, "cannot find this program's own file");
    out[n] = '\0';
    return 0;
}

static int try_dir(char **out, const char *dir, const char *sub, const char *name, lf_err *err)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s%s/%s", dir, sub, name) >= (int)sizeof path)
        return 0;
    if (access(path, X_OK) != 0)
        return 0;
    *out = lf_strdup(path, err);
    return *out != NULL ? 1 : LF_ENOMEM;
}

int lf_exe_find(char **out, const char *name, lf_err *err)
{
    char self[PATH_MAX];
    int rc = own_path(self, err);
    if (rc < 0)
        return rc;
    if (strcmp(name, "loong-flow") == 0) {
        *out = lf_strdup(self, err);
        return *out != NULL ? 0 : LF_ENOMEM;
    }
    const char *env = getenv("LF_LIBEXEC");
    char *slash = strrchr(self, '/');
    *slash = '\0';
    static const char *const subs[] = {"", "/stages", "/../stages", "/../libexec/loong-flow"};
    rc = env != NULL && env[0] == '/' ? try_dir(out, env, "", name, err) : 0;
    for (size_t i = 0; rc == 0 && i < sizeof subs / sizeof subs[0]; i++)
        rc = try_dir(out, self, subs[i], name, err);
    if (rc == 0)
        rc = try_dir(out, LF_LIBEXECDIR, "", name, err);
    if (rc < 0)
        return rc;
    return rc == 1 ? 0
                   : lf_fail(err, LF_ENOENT,
                             "the executable %s is neither beside loong-flow (%s) nor in %s", name,
                             self, LF_LIBEXECDIR);
}

static int describe_one(lf_doc_exe *out, const char *name, lf_err *err)
{
    char *path = NULL;
    int rc = lf_exe_find(&path, name, err);
    if (rc < 0)
        return rc;
    uint8_t digest[LF_HASH_BYTES];
    char hex[LF_HASH_HEX];
    int64_t bytes = 0;
    rc = lf_tree_hash_file(digest, &bytes, path, err);
    if (rc == 0)
        rc = lf_text_set(&out->path, name, "path", err);
    if (rc == 0) {
        lf_hash_hex(hex, digest);
        rc = lf_text_set(&out->sha256, hex, "sha256", err);
    }
    out->given = rc == 0;
    free(path);
    return rc;
}

/* The same program as a stage that was described before. */
static int describe_again(lf_doc_exe *out, const lf_doc_exe *known, lf_err *err)
{
    int rc = lf_text_set(&out->path, known->path, "path", err);
    if (rc == 0)
        rc = lf_text_set(&out->sha256, known->sha256, "sha256", err);
    out->given = rc == 0;
    return rc;
}

/* Each program is read once. */
static int describe_stage(lf_doc *plan, size_t i, lf_names *kinds, lf_err *err)
{
    lf_doc_stage *st = &plan->stages.v[i];
    char name[160];
    size_t known = lf_names_find(kinds, st->kind, "");
    if (known != LF_NAMES_NONE)
        return describe_again(&st->exe, &plan->stages.v[known].exe, err);
    snprintf(name, sizeof name, "lf-%s", st->kind);
    int rc = describe_one(&st->exe, name, err);
    return rc == 0 ? lf_names_put(kinds, st->kind, "", i, err) : rc;
}

int lf_exe_describe(lf_doc *plan, bool missing_ok, lf_err *err)
{
    lf_names kinds = {NULL, 0, 0};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < plan->stages.n; i++) {
        lf_err e = LF_ERR_INIT;
        rc = describe_stage(plan, i, &kinds, &e);
        if (rc == LF_ENOENT && missing_ok)
            rc = 0;
        else if (rc < 0)
            rc = lf_fail(err, rc, "stage %s: %s", plan->stages.v[i].name, e.text);
    }
    lf_names_fini(&kinds);
    return rc == 0 ? describe_one(&plan->loong_flow, "loong-flow", err) : rc;
}

/* ---- copying ---- */

static int copy_file(const char *from, const char *to, lf_err *err)
{
    int in = open(from, O_RDONLY | O_CLOEXEC), out = -1, rc = 0;
    if (in < 0)
        return lf_fail_errno(err, "cannot open %s", from);
    out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0750);
    if (out < 0) {
        rc = lf_fail_errno(err, "cannot create %s", to);
        goto out;
    }
    if (ioctl(out, FICLONE, in) != 0) {
        char *chunk = lf_malloc(1 << 20, 1, err);
        rc = chunk == NULL ? LF_ENOMEM : 0;
        while (rc == 0) {
            ssize_t n = read(in, chunk, 1 << 20);
            if (n < 0 && errno == EINTR)
                continue;
            if (n < 0)
                rc = lf_fail_errno(err, "cannot read %s", from);
            if (n <= 0)
                break;
            rc = lf_io_write_all(out, chunk, (size_t)n, to, err);
        }
        free(chunk);
    }
out:
    if (out >= 0)
        close(out);
    close(in);
    return rc;
}

/* The program may have been replaced since it was described. */
static int check_copy(const char *copy, const char *from, const char *sha, lf_err *err)
{
    uint8_t digest[LF_HASH_BYTES];
    char hex[LF_HASH_HEX];
    int64_t bytes = 0;
    int rc = lf_tree_hash_file(digest, &bytes, copy, err);
    if (rc < 0)
        return rc;
    lf_hash_hex(hex, digest);
    return strcmp(hex, sha) == 0
               ? 0
               : lf_fail(err, LF_EBUSY, "%s changed while the run was prepared; do it again", from);
}

/* Keep a file by content and link it as dir/name. source: where it is, NULL: an executable to be
 * found. The copy is made under a name of its own and then published, so two submits at once are
 * harmless. */
static int keep_file(const char *data, const char *name, const char *source, const char *sha,
                     const char *bin_dir, lf_err *err)
{
    char kept[PATH_MAX], tmp[PATH_MAX], dir[PATH_MAX], link_to[PATH_MAX];
    char *from = NULL;
    int rc = lf_path_set(dir, err, "%s/exe", data);
    if (rc == 0)
        rc = lf_path_set(kept, err, "%s/%s", dir, sha);
    if (rc == 0)
        rc = lf_path_set(tmp, err, "%s/.tmp-%d-%.16s", dir, (int)getpid(), sha);
    if (rc == 0)
        rc = lf_path_set(link_to, err, "%s/%s", bin_dir, name);
    if (rc == 0)
        rc = lf_io_mkdirs(dir, 0750, err);
    if (rc == 0 && !lf_io_exists(kept)) {
        rc = source == NULL                            ? lf_exe_find(&from, name, err)
             : (from = lf_strdup(source, err)) == NULL ? LF_ENOMEM
                                                       : 0;
        unlink(tmp);
        if (rc == 0)
            rc = copy_file(from, tmp, err);
        if (rc == 0)
            rc = check_copy(tmp, from, sha, err);
        lf_err e = LF_ERR_INIT;
        if (rc == 0 && (rc = lf_io_publish_tmp(tmp, kept, &e)) < 0)
            rc = rc == LF_EEXIST ? 0 : lf_fail(err, rc, "%s", e.text);
        unlink(tmp);
        free(from);
    }
    if (rc == 0 && link(kept, link_to) < 0 && errno != EEXIST)
        rc = lf_fail_errno(err, "cannot link %s", link_to);
    return rc;
}

/* Of one that is not kept below data yet. */
static int64_t copy_bytes(const char *data, const lf_doc_exe *exe)
{
    char kept[PATH_MAX], *from = NULL;
    if (data != NULL &&
        (lf_path_set(kept, NULL, "%s/exe/%s", data, exe->sha256) < 0 || lf_io_exists(kept)))
        return 0;
    const int64_t n = lf_exe_find(&from, exe->path, NULL) == 0 ? lf_io_size(from, NULL) : 0;
    free(from);
    return n > 0 ? n : 0;
}

int64_t lf_exe_copy_bytes(const char *data, const lf_doc *plan)
{
    lf_names seen = {NULL, 0, 0};
    int64_t sum = 0;
    for (size_t i = 0; i <= plan->stages.n; i++) {
        const lf_doc_exe *exe = i < plan->stages.n ? &plan->stages.v[i].exe : &plan->loong_flow;
        if (exe->path == NULL || exe->sha256 == NULL ||
            lf_names_find(&seen, exe->sha256, "") != LF_NAMES_NONE)
            continue;
        sum += copy_bytes(data, exe);
        if (lf_names_put(&seen, exe->sha256, "", i, NULL) < 0)
            break;
    }
    lf_names_fini(&seen);
    return sum;
}

static int freeze_exes(const char *data, const lf_doc *plan, const char *bin_dir, lf_err *err)
{
    lf_names kept = {NULL, 0, 0}; /* stages of a kind share theirs */
    int rc = lf_io_mkdirs(bin_dir, 0750, err);
    for (size_t i = 0; rc == 0 && i <= plan->stages.n; i++) {
        const lf_doc_exe *exe = i < plan->stages.n ? &plan->stages.v[i].exe : &plan->loong_flow;
        if (exe->path == NULL || exe->sha256 == NULL)
            rc = lf_fail(err, LF_EINVAL, "an executable is not described");
        else if (lf_names_find(&kept, exe->path, exe->sha256) == LF_NAMES_NONE &&
                 (rc = keep_file(data, exe->path, NULL, exe->sha256, bin_dir, err)) == 0)
            rc = lf_names_put(&kept, exe->path, exe->sha256, i, err);
    }
    lf_names_fini(&kept);
    return rc == 0 ? lf_io_fsync_path(bin_dir, err) : rc;
}

/* A bundle (`make bundle`) carries shared libraries in ../lib/loong-flow, named one a line in LIBS;
 * its executables look there relative to themselves. Their frozen copies look in the revision, so
 * the libraries are frozen too. */
static int freeze_libs(const char *data, const char *rev_dir, lf_err *err)
{
    char self[PATH_MAX], from[PATH_MAX], dir[PATH_MAX], name[PATH_MAX], list[PATH_MAX];
    lf_buf text;
    lf_buf_init(&text);
    int rc = own_path(self, err);
    if (rc == 0) {
        *strrchr(self, '/') = '\0';
        rc = lf_path_set(list, err, "%s/../lib/loong-flow/LIBS", self);
    }
    if (rc == 0 && lf_io_exists(list))
        rc = lf_io_read_file(list, (size_t)1 << 20, &text, err);
    char *save = NULL;
    for (char *l = rc == 0 ? strtok_r(text.data, "\n", &save) : NULL; rc == 0 && l != NULL;
         l = strtok_r(NULL, "\n", &save)) {
        if (l[0] == '/' || strstr(l, "..") != NULL)
            rc = lf_fail(err, LF_EFORMAT, "%s: not a name below it: %.80s", list, l);
        if (rc < 0)
            break;
        rc = lf_path_set(from, err, "%s/../lib/loong-flow/%s", self, l);
        if (rc == 0)
            rc = lf_path_set(dir, err, "%s/lib/loong-flow/%s", rev_dir, l);
        if (rc < 0)
            break;
        char *slash = strrchr(dir, '/');
        snprintf(name, sizeof name, "%s", slash + 1);
        *slash = '\0';
        uint8_t digest[LF_HASH_BYTES];
        char hex[LF_HASH_HEX];
        rc = lf_io_mkdirs(dir, 0750, err);
        if (rc == 0)
            rc = lf_tree_hash_file(digest, NULL, from, err);
        if (rc < 0)
            break;
        lf_hash_hex(hex, digest);
        rc = keep_file(data, name, from, hex, dir, err);
    }
    if (rc == 0 &&
        text.len > 0) { /* so that a command started from the revision finds the list too */
        rc = lf_path_set(dir, err, "%s/lib/loong-flow/LIBS", rev_dir);
        lf_buf_clear(&text);
        if (rc == 0)
            rc = lf_io_read_file(list, (size_t)1 << 20, &text, err);
        if (rc == 0)
            rc = lf_io_publish(dir, text.data, text.len, 0640, err);
    }
    lf_buf_fini(&text);
    return rc;
}

/* ---- runs and revisions ---- */

/* data_dir, DATA/<project id>, its runs and the run itself: those that are new get the modes and
 * group of `share`, each before the next is made in it, so that everything below inherits the
 * group. */
static int make_shared_dirs(const char *data, const char *run_dir, const char *share, lf_err *err)
{
    char dir[4][PATH_MAX];
    int rc = lf_path_set(dir[0], err, "%s", data);
    char *slash = rc == 0 ? strrchr(dir[0], '/') : NULL;
    if (slash != NULL && slash > dir[0])
        *slash = '\0';
    if (rc == 0)
        rc = lf_path_set(dir[1], err, "%s", data);
    if (rc == 0)
        rc = lf_path_set(dir[2], err, "%s/runs", data);
    if (rc == 0)
        rc = lf_path_set(dir[3], err, "%s", run_dir);
    for (int i = 0; rc == 0 && i < 4; i++) {
        bool there = lf_io_exists(dir[i]);
        rc = lf_io_mkdirs(dir[i], 0750, err);
        if (rc == 0 && !there)
            rc = lf_share_dir(dir[i], share, err);
    }
    return rc;
}

int lf_run_create(lf_run *out, const lf_project *p, const char *data_dir, const char *share,
                  lf_err *err)
{
    lf_run r;
    memset(&r, 0, sizeof r);
    int rc = lf_ulid(r.id, err);
    if (rc == 0)
        rc = lf_share_apply(share, err);
    r.data = rc == 0 ? lf_project_data(p, data_dir, err) : NULL;
    lf_buf b;
    lf_buf_init(&b);
    if (r.data != NULL)
        lf_buf_addf(&b, "%s/runs/%s", r.data, r.id);
    r.dir = lf_buf_steal(&b, err);
    lf_buf_fini(&b);
    if (rc == 0 && (r.data == NULL || r.dir == NULL))
        rc = LF_ENOMEM;
    if (rc == 0)
        rc = lf_data_check_owner(r.data, err);
    if (rc == 0)
        rc = make_shared_dirs(r.data, r.dir, share, err);
    if (rc < 0) {
        if (r.dir != NULL)
            rmdir(r.dir); /* empty, if it is there at all */
        lf_run_fini(&r);
    } else {
        *out = r;
    }
    return rc;
}

static int run_event(const lf_run *r, const lf_project *p, const lf_doc *plan, const char *ini_text,
                     lf_err *err)
{
    char user[128], host[256], hex[LF_HASH_HEX];
    uint8_t digest[LF_HASH_BYTES];
    lf_record_user(user, sizeof user);
    lf_record_host(host, sizeof host);
    int rc = lf_hash_buf(digest, ini_text, strlen(ini_text), err);
    if (rc < 0)
        return rc;
    lf_hash_hex(hex, digest);
    const lf_run_event e = {.name = plan->name,
                            .project = p->id,
                            .config_sha256 = hex,
                            .config_text = ini_text,
                            .user = user,
                            .host = host,
                            .version = PACKAGE_VERSION};
    return lf_run_event_write(r->dir, r->id, &e, err);
}

struct freezing {
    const lf_run *run;
    const lf_doc *plan;
};

static int stage_event(void *user, size_t i, lf_err *err)
{
    const struct freezing *f = user;
    const lf_doc_stage *st = &f->plan->stages.v[i];
    char *dir = lf_path_join(f->run->dir, st->name, err);
    int rc = dir == NULL ? LF_ENOMEM : lf_io_mkdirs(dir, 0750, err);
    if (rc == 0)
        rc = lf_stage_event_write(dir, f->run->id, (int)i, st, err);
    free(dir);
    return rc;
}

static int stage_events(const lf_run *r, const lf_doc *plan, lf_err *err)
{
    struct freezing f = {.run = r, .plan = plan};
    return lf_par_each(plan->stages.n, stage_event, &f, err);
}

static int next_rev_dir(int *rev, char dir[PATH_MAX], const lf_run *run, lf_err *err)
{
    for (int k = run->rev + 1; k < run->rev + 10000; k++) {
        if (snprintf(dir, PATH_MAX, "%s/rev.%d", run->dir, k) >= PATH_MAX - 64)
            return lf_fail(err, LF_EINVAL, "%s: the path is too long", run->dir);
        if (mkdir(dir, 0750) == 0) {
            *rev = k;
            return 0;
        }
        if (errno != EEXIST)
            return lf_fail_errno(err, "cannot create %s", dir);
    }
    return lf_fail(err, LF_EBUSY, "%s: no free revision number", run->dir);
}

/* The document as it is frozen. NULL with err. */
static lf_doc *frozen_form(const lf_run *run, const lf_project *p, int rev, const lf_doc *plan,
                           lf_err *err)
{
    char user[128], host[256];
    lf_record_user(user, sizeof user);
    lf_record_host(host, sizeof host);
    lf_doc *d = lf_doc_copy(plan, err);
    int rc = d == NULL ? LF_ENOMEM : lf_text_set(&d->run, run->id, "run", err);
    if (rc == 0)
        rc = lf_text_set(&d->project_id, p->id, "project_id", err);
    if (rc == 0)
        rc = lf_text_set(&d->user, user, "user", err);
    if (rc == 0)
        rc = lf_text_set(&d->host, host, "host", err);
    if (rc == 0)
        rc = lf_text_set(&d->version, PACKAGE_VERSION, "version", err);
    if (rc == 0) {
        d->lf_plan = lf_int_of(1);
        d->rev = lf_int_of(rev);
        d->created = lf_real_of(lf_wall_s());
    }
    if (rc == 0)
        return d;
    lf_doc_free(d);
    return NULL;
}

static int fill_revision(const char *dir, const lf_run *run, const lf_project *p,
                         const lf_doc *plan, const char *ini_text, lf_err *err)
{
    char path[PATH_MAX];
    int rc = lf_path_set(path, err, "%s/bin", dir);
    if (rc == 0)
        rc = freeze_exes(run->data, plan, path, err);
    if (rc == 0)
        rc = freeze_libs(run->data, dir, err);
    if (rc == 0)
        rc = lf_path_set(path, err, "%s/pipeline.ini", dir);
    if (rc == 0)
        rc = lf_io_publish(path, ini_text, strlen(ini_text), 0640, err);
    if (rc == 0)
        rc = run_event(run, p, plan, ini_text, err);
    if (rc == 0)
        rc = stage_events(run, plan, err);
    if (rc == 0)
        rc = lf_doc_write(plan, dir, err); /* last: until now the revision does not exist */
    return rc;
}

static int no_room(const lf_run *run, lf_err *err, int rc)
{
    if (err == NULL)
        return rc;
    bool full = err->errnum == ENOSPC || err->errnum == EDQUOT;
    lf_err e = *err;
    int n = full ? (int)sizeof e.text / 2 : (int)sizeof e.text;
    snprintf(err->text, sizeof err->text,
             "run %s could not be written, nothing of it is kept: %.*s%s", run->id, n, e.text,
             full ? "; make room (`loong-flow gc` shows what may go) or set another data_dir" : "");
    return rc;
}

/* Where there is no room, what was written is taken away again, or the next try would have less. */
int lf_run_freeze(lf_run *run, const lf_project *p, const lf_doc *plan, const char *ini_text,
                  lf_err *err)
{
    char dir[PATH_MAX], file[PATH_MAX];
    int rev = 0;
    int rc = next_rev_dir(&rev, dir, run, err);
    if (rc < 0)
        return rc;
    char *taken = NULL; /* a short name that is new */
    lf_doc *frozen = frozen_form(run, p, rev, plan, err);
    rc = frozen == NULL ? LF_ENOMEM : 0;
    if (rc == 0 && frozen->short_name == NULL)
        rc = lf_naming_take(&taken, p, plan->name, run->id, err);
    if (rc == 0 && taken != NULL)
        rc = lf_text_set(&frozen->short_name, taken, "short_name", err);
    if (rc == 0)
        rc = fill_revision(dir, run, p, frozen, ini_text, err);
    /* The last step may have failed behind the plan (its directory could not be synced): then it
     * stands. */
    bool stands = lf_path_set(file, NULL, "%s/plan.json", dir) == 0 && lf_io_exists(file);
    if (rc < 0 && !stands)
        lf_leftover_drop(run->data, dir);
    if (rc < 0 && !stands)
        lf_naming_drop(p, taken);
    free(taken);
    if (rc < 0) {
        lf_doc_free(frozen);
        return no_room(run, err, rc);
    }
    lf_run_take_plan(run, frozen);
    run->rev = rev;
    return 0;
}

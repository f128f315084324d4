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
#include "flow/plan/pipeline_priv.h"
#include "flow/record/record.h"
#include "flow/run/leftover.h"
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

static int describe_one(json_t **out, const char *name, lf_err *err)
{
    char *path = NULL;
    int rc = lf_exe_find(&path, name, err);
    if (rc < 0)
        return rc;
    uint8_t digest[LF_HASH_BYTES];
    char hex[LF_HASH_HEX];
    int64_t bytes = 0;
    rc = lf_tree_hash_file(digest, &bytes, path, err);
    if (rc == 0) {
        lf_hash_hex(hex, digest);
        *out = json_pack("{s:s, s:s}", "path", name, "sha256", hex);
        rc = *out != NULL ? 0 : lf_fail(err, LF_ENOMEM, "out of memory");
    }
    free(path);
    return rc;
}

int lf_exe_describe(json_t *doc, bool missing_ok, lf_err *err)
{
    json_t *stages = json_object_get(doc, "stages"), *exe = NULL,
           *known = json_object(); /* each program is read once */
    int rc = known == NULL ? lf_fail(err, LF_ENOMEM, "out of memory") : 0;
    for (size_t i = 0; rc == 0 && i < json_array_size(stages); i++) {
        json_t *st = json_array_get(stages, i);
        char name[160];
        snprintf(name, sizeof name, "lf-%s", json_string_value(json_object_get(st, "kind")));
        lf_err e = LF_ERR_INIT;
        exe = json_incref(json_object_get(known, name));
        rc = exe != NULL ? 0 : describe_one(&exe, name, &e);
        if (rc == 0)
            json_object_set(known, name, exe);
        if (rc == LF_ENOENT && missing_ok)
            rc = 0;
        else if (rc < 0)
            rc = lf_fail(err, rc, "stage %s: %s", json_string_value(json_object_get(st, "name")),
                         e.text);
        else
            rc = lf_json_set_new(st, "exe", exe, err);
    }
    json_decref(known);
    if (rc == 0)
        rc = describe_one(&exe, "loong-flow", err);
    if (rc == 0)
        rc = lf_json_set_new(doc, "loong_flow", exe, err);
    return rc;
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

static int freeze_exes(const char *data, const json_t *doc, const char *bin_dir, lf_err *err)
{
    int rc = lf_io_mkdirs(bin_dir, 0750, err);
    json_t *stages = json_object_get(doc, "stages");
    for (size_t i = 0; rc == 0 && i <= json_array_size(stages); i++) {
        json_t *exe = i < json_array_size(stages)
                          ? json_object_get(json_array_get(stages, i), "exe")
                          : json_object_get(doc, "loong_flow");
        const char *name = json_string_value(json_object_get(exe, "path"));
        const char *sha = json_string_value(json_object_get(exe, "sha256"));
        if (name == NULL || sha == NULL)
            return lf_fail(err, LF_EINVAL, "an executable is not described");
        rc = keep_file(data, name, NULL, sha, bin_dir, err);
    }
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

static int run_event(const lf_run *r, const lf_project *p, const json_t *doc, const char *ini_text,
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
    json_t *d =
        json_pack("{s:O, s:s, s:s, s:s, s:s, s:s, s:s}", "name", json_object_get(doc, "name"),
                  "project", p->id, "config_sha256", hex, "config_text", ini_text, "user", user,
                  "host", host, "version", PACKAGE_VERSION);
    return lf_record_event(r->dir, r->id, NULL, 0, 0, "run", d, err);
}

/* Inputs as the ledger wants them: producers by name, outside files by path and hash. */
static json_t *event_inputs(const json_t *stage)
{
    json_t *out = json_array(), *inputs = json_object_get(stage, "inputs");
    json_t *spec = json_object_get(json_object_get(stage, "spec"), "inputs");
    for (size_t i = 0; i < json_array_size(inputs); i++) {
        json_t *in = json_array_get(inputs, i), *refs = json_object_get(in, "refs");
        const char *opt = json_string_value(json_object_get(in, "option"));
        for (size_t k = 0; k < json_array_size(refs); k++)
            json_array_append_new(
                out, json_pack("{s:s, s:O, s:O}", "name", opt, "stage",
                               json_object_get(json_array_get(refs, k), "stage"), "output",
                               json_object_get(json_array_get(refs, k), "output")));
        const char *hash = json_string_value(json_array_get(
            json_object_get(spec, opt), (size_t)json_integer_value(json_object_get(in, "index"))));
        if (json_array_size(refs) == 0 && hash != NULL && lf_str_has_prefix(hash, "sha256:"))
            json_array_append_new(out, json_pack("{s:s, s:O, s:s}", "name", opt, "path",
                                                 json_object_get(in, "text"), "sha256", hash + 7));
    }
    return out;
}

struct freezing {
    const lf_run *run;
    const json_t *doc;
};

static int stage_event(void *user, size_t i, lf_err *err)
{
    static const char *const classes[] = {"identity", "numeric", "operational"};
    const struct freezing *f = user;
    json_t *st = json_array_get(json_object_get(f->doc, "stages"), i), *options = json_object();
    for (size_t k = 0; k < 3; k++)
        json_object_update(options, json_object_get(st, classes[k]));
    json_t *d = json_pack(
        "{s:O, s:i, s:O, s:O, s:O, s:o, s:o, s:O}", "kind", json_object_get(st, "kind"), "seq",
        (int)i, "spec_id", json_object_get(st, "spec_id"), "spec_version",
        json_object_get(st, "spec_version"), "outputs", json_object_get(st, "outputs"), "options",
        options, "inputs", event_inputs(st), "after", json_object_get(st, "deps"));
    json_t *sha = json_object_get(json_object_get(st, "exe"), "sha256");
    if (d != NULL && sha != NULL)
        json_object_set(d, "exe_sha256", sha);
    const char *name = json_string_value(json_object_get(st, "name"));
    char *dir = lf_path_join(f->run->dir, name, err);
    int rc = dir == NULL ? LF_ENOMEM : lf_io_mkdirs(dir, 0750, err);
    if (rc == 0)
        rc = lf_record_event(dir, f->run->id, name, 0, 0, "stage", d, err);
    else
        json_decref(d);
    free(dir);
    return rc;
}

static int stage_events(const lf_run *r, const json_t *doc, lf_err *err)
{
    struct freezing f = {.run = r, .doc = doc};
    return lf_par_each(json_array_size(json_object_get(doc, "stages")), stage_event, &f, err);
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

/* The document as it is frozen. New reference, NULL with err. */
static json_t *frozen_form(const lf_run *run, const lf_project *p, int rev, const json_t *doc,
                           lf_err *err)
{
    json_t *copy = json_deep_copy(doc);
    char user[128], host[256];
    lf_record_user(user, sizeof user);
    lf_record_host(host, sizeof host);
    json_t *head = json_pack("{s:i, s:s, s:i, s:s, s:f, s:s, s:s, s:s}", "lf_plan", 1, "run",
                             run->id, "rev", rev, "project_id", p->id, "created", lf_wall_s(),
                             "user", user, "host", host, "version", PACKAGE_VERSION);
    if (copy == NULL || head == NULL || json_object_update(copy, head) < 0) {
        lf_fail(err, LF_ENOMEM, "out of memory");
        json_decref(copy);
        copy = NULL;
    }
    json_decref(head);
    return copy;
}

static int fill_revision(const char *dir, const lf_run *run, const lf_project *p,
                         const json_t *copy, const char *ini_text, lf_err *err)
{
    char path[PATH_MAX];
    int rc = lf_path_set(path, err, "%s/bin", dir);
    if (rc == 0)
        rc = freeze_exes(run->data, copy, path, err);
    if (rc == 0)
        rc = freeze_libs(run->data, dir, err);
    if (rc == 0)
        rc = lf_path_set(path, err, "%s/pipeline.ini", dir);
    if (rc == 0)
        rc = lf_io_publish(path, ini_text, strlen(ini_text), 0640, err);
    if (rc == 0)
        rc = run_event(run, p, copy, ini_text, err);
    if (rc == 0)
        rc = stage_events(run, copy, err);
    if (rc == 0)
        rc = lf_record_publish(dir, "plan.json", copy,
                               err); /* last: until now the revision does not exist */
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
int lf_run_freeze(lf_run *run, const lf_project *p, json_t *doc, const char *ini_text, lf_err *err)
{
    char dir[PATH_MAX], plan[PATH_MAX];
    int rev = 0;
    int rc = next_rev_dir(&rev, dir, run, err);
    if (rc < 0)
        return rc;
    json_t *copy = frozen_form(run, p, rev, doc, err);
    rc = copy == NULL ? LF_ENOMEM : fill_revision(dir, run, p, copy, ini_text, err);
    /* The last step may have failed behind the plan (its directory could not be synced): then it
     * stands. */
    if (rc < 0 && (lf_path_set(plan, NULL, "%s/plan.json", dir) < 0 || !lf_io_exists(plan)))
        lf_leftover_drop(run->data, dir);
    if (rc < 0) {
        json_decref(copy);
        return no_room(run, err, rc);
    }
    json_decref(run->doc);
    run->doc = copy;
    run->rev = rev;
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The wrapper's course from claim to end record.
 */
#include "config.h"

#include "flow/exec.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/base/artifact.h"
#include "engine/base/hash.h"
#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/base/sys.h"
#include "flow/epoch.h"
#include "flow/pipeline_priv.h"
#include "flow/record.h"
#include "flow/who.h"

#define ATTEMPT_MAX_BYTES ((size_t)8 << 20)

/* ---- 0: what to do ---- */

static int load_attempt(lf_exec *x, lf_err *err)
{
    char path[PATH_MAX];
    const char *token = NULL;
    int64_t rev = 0;
    snprintf(path, sizeof path, "%s/attempt.%d.json", x->stage_dir, x->args.attempt);
    x->attempt = lf_json_load_file(path, ATTEMPT_MAX_BYTES, err);
    if (x->attempt == NULL)
        return err != NULL && err->rc != 0 ? err->rc : LF_EFORMAT;
    int rc = lf_json_get_str(&token, x->attempt, "token", true, path, err);
    if (rc == 0)
        rc = lf_json_get_i64(&rev, x->attempt, "rev", true, path, err);
    if (rc == 0 && strcmp(token, x->args.token) != 0)
        return lf_fail(err, LF_EINVAL, "%s: the token of this job is not the attempt's", path);
    if (rc < 0)
        return rc;
    snprintf(path, sizeof path, "%s/attempt.%d.json", x->stage_dir, x->args.attempt + 1);
    if (lf_io_exists(path))
        return lf_fail(err, LF_EBUSY, "attempt %d of stage %s was given up: a newer one exists", x->args.attempt,
                       x->args.stage);
    rc = lf_run_load_rev(&x->run, (int)rev, err);
    if (rc < 0)
        return rc;
    x->stage = lf_run_stage(&x->run, x->args.stage);
    return x->stage != NULL ? 0 : lf_fail(err, LF_EFORMAT, "%s has no stage %s", x->run.dir, x->args.stage);
}

static int open_run(lf_exec *x, lf_err *err)
{
    const char *slash = strrchr(x->args.run_dir, '/');
    if (slash == NULL || !lf_ulid_valid(slash + 1))
        return lf_fail(err, LF_EINVAL, "%s is not the directory of a run", x->args.run_dir);
    memcpy(x->run.id, slash + 1, LF_ULID_SIZE);
    x->run.dir = lf_strdup(x->args.run_dir, err);
    x->run.data = lf_strndup(x->args.run_dir, (size_t)(slash - x->args.run_dir), err);
    x->stage_dir = lf_path_join(x->args.run_dir, x->args.stage, err);
    if (x->run.dir == NULL || x->run.data == NULL || x->stage_dir == NULL)
        return LF_ENOMEM;
    char *parent = strrchr(x->run.data, '/');
    if (parent != NULL)
        *parent = '\0'; /* DATA/<project id>/runs -> DATA/<project id> */
    int rc = lf_run_check_owner(&x->run, err);
    return rc == 0 ? load_attempt(x, err) : rc;
}

/* ---- 1, 2: claim ---- */

static int claim(lf_exec *x, lf_err *err)
{
    json_t *who = lf_who_make(0, err);
    json_t *rec = who != NULL ? json_pack("{s:o, s:s, s:f}", "process", who, "token", x->args.token, "t", lf_wall_s())
                              : NULL;
    if (rec == NULL)
        return lf_fail(err, LF_ENOMEM, "cannot describe this process");
    const char *spec = json_string_value(json_object_get(x->stage, "spec_id"));
    int rc = lf_epoch_claim(&x->epoch, x->stage_dir, x->args.attempt, spec, rec, err);
    json_decref(rec);
    if (rc < 0)
        return rc;
    char name[64];
    snprintf(name, sizeof name, "%d.%d", x->args.attempt, x->epoch);
    x->dir = lf_path_join(x->stage_dir, name, err);
    char *out = x->dir != NULL ? lf_path_join(x->dir, "out", err) : NULL;
    rc = out == NULL ? LF_ENOMEM : lf_io_mkdirs(out, 0750, err);
    free(out);
    return rc;
}

/* ---- 8, 9: what it made ---- */

static int describe_output(json_t *outputs, lf_exec *x, const char *name, lf_err *err)
{
    char rel[256], manifest[PATH_MAX];
    snprintf(rel, sizeof rel, "out/%s", name);
    char *path = lf_path_join(x->dir, rel, err);
    enum lf_artifact_state st = LF_ARTIFACT_ABSENT;
    lf_err e = LF_ERR_INIT;
    lf_artifact a;
    memset(&a, 0, sizeof a);
    lf_buf text;
    lf_buf_init(&text);
    uint8_t digest[LF_HASH_BYTES];
    char hex[LF_HASH_HEX];
    int64_t bytes = 0;
    int rc = path == NULL ? LF_ENOMEM : lf_artifact_state(&st, path, &e);
    if (rc == 0 && st == LF_ARTIFACT_ABSENT)
        goto out;
    if (rc < 0 || st != LF_ARTIFACT_PRESENT) {
        rc = lf_fail(err, rc < 0 ? rc : LF_EFORMAT, "output %s: %s", name, e.text);
        goto out;
    }
    rc = lf_artifact_load(&a, path, NULL, err);
    snprintf(manifest, sizeof manifest, "%s/%s", path, LF_ARTIFACT_MANIFEST);
    if (rc == 0)
        rc = lf_io_read_file(manifest, LF_ARTIFACT_MAX_MANIFEST, &text, err);
    if (rc == 0)
        rc = lf_hash_buf(digest, text.data, text.len, err);
    if (rc < 0)
        goto out;
    lf_hash_hex(hex, digest);
    for (size_t i = 0; i < a.n_files; i++)
        bytes += a.files[i].bytes;
    rc = lf_json_set_new(outputs, name, json_pack("{s:s, s:s, s:s, s:I, s:I, s:O}", "path", rel, "kind", a.kind,
                                                  "manifest_sha256", hex, "bytes", (json_int_t)bytes, "files",
                                                  (json_int_t)a.n_files, "meta", a.meta), err);
out:
    lf_buf_fini(&text);
    lf_artifact_fini(&a);
    free(path);
    return rc;
}

static int collect_outputs(json_t **out, lf_exec *x, lf_err *err)
{
    json_t *outputs = json_object(), *names = json_object_get(x->stage, "outputs");
    int rc = outputs == NULL ? lf_fail(err, LF_ENOMEM, "out of memory") : 0;
    for (size_t i = 0; rc == 0 && i < json_array_size(names); i++)
        rc = describe_output(outputs, x, json_string_value(json_array_get(names, i)), err);
    const char *first = json_string_value(json_array_get(names, 0));
    if (rc == 0 && first != NULL && json_object_get(outputs, first) == NULL)
        rc = lf_fail(err, LF_EFORMAT, "the stage ended well but did not publish its output \"%s\"", first);
    if (rc < 0)
        json_decref(outputs);
    else
        *out = outputs;
    return rc;
}

static int artifact_events(lf_exec *x, json_t *outputs, lf_err *err)
{
    const char *name;
    json_t *o;
    int rc = 0;
    json_object_foreach(outputs, name, o)
    {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "runs/%s/%s/%d.%d/%s", x->run.id, x->args.stage, x->args.attempt, x->epoch,
                 json_string_value(json_object_get(o, "path")));
        json_t *d = json_pack("{s:s, s:s, s:O, s:O, s:O, s:O, s:O, s:O}", "name", name, "path", path, "kind",
                              json_object_get(o, "kind"), "sha256", json_object_get(o, "manifest_sha256"), "bytes",
                              json_object_get(o, "bytes"), "files", json_object_get(o, "files"), "spec_id",
                              json_object_get(x->stage, "spec_id"), "meta", json_object_get(o, "meta"));
        if (rc == 0)
            rc = lf_record_event(x->dir, x->run.id, x->args.stage, x->args.attempt, x->epoch, "artifact", d, err);
    }
    return rc;
}

static int commit(lf_exec *x, lf_err *err)
{
    json_t *outputs = NULL;
    int rc = collect_outputs(&outputs, x, err);
    if (rc == 0)
        rc = artifact_events(x, outputs, err);
    json_t *done = rc == 0 ? json_pack("{s:i, s:s, s:s, s:i, s:i, s:s, s:O, s:O, s:O, s:f, s:f, s:O, s:O, s:O}", "lf_done", 1,
                                       "run", x->run.id, "stage", x->args.stage, "attempt", x->args.attempt, "epoch",
                                       x->epoch, "token", x->args.token, "kind", json_object_get(x->stage, "kind"),
                                       "spec_id", json_object_get(x->stage, "spec_id"), "spec_version",
                                       json_object_get(x->stage, "spec_version"), "t_start", x->t_start, "t_end",
                                       lf_wall_s(), "outputs", outputs, "inputs", x->inputs, "resume", x->resume)
                           : NULL;
    json_t *sha = json_object_get(json_object_get(x->stage, "exe"), "sha256");
    if (rc == 0 && (done == NULL || (sha != NULL && json_object_set(done, "exe_sha256", sha) < 0)))
        rc = lf_fail(err, LF_ENOMEM, "out of memory");
    if (rc == 0)
        rc = lf_epoch_commit(x->stage_dir, x->args.attempt, x->epoch, done, err);
    json_decref(done);
    json_decref(outputs);
    return rc;
}

/* ---- 10: the end ---- */

static int write_end(lf_exec *x, const lf_end_class *c, lf_err *err)
{
    json_t *lines = lf_log_lines_that_matter(x->log_tail != NULL ? x->log_tail : "", 8, err);
    json_t *end = json_pack("{s:i, s:s, s:s, s:s, s:f, s:f, s:i, s:i, s:o}", "lf_end", 1, "state", c->state, "class",
                            c->cls, "reason", c->reason, "t_start", x->t_start, "t_end", lf_wall_s(), "exit",
                            x->ev.exit_code, "signal", x->ev.signal, "log", lines);
    int rc = end == NULL ? lf_fail(err, LF_ENOMEM, "out of memory") : lf_record_publish(x->dir, "end.json", end, err);
    json_decref(end);
    if (rc < 0)
        return rc;
    json_t *d = json_pack("{s:s, s:i, s:i, s:s, s:s}", "state", c->state, "exit", x->ev.exit_code, "signal",
                          x->ev.signal, "reason", c->cls, "message", c->reason);
    return lf_record_event(x->dir, x->run.id, x->args.stage, x->args.attempt, x->epoch, "end", d, err);
}

static int start_event(lf_exec *x, lf_err *err)
{
    json_t *who = lf_who_make(0, err);
    if (who == NULL)
        return LF_ENOMEM;
    json_t *d = json_pack("{s:O, s:O, s:O, s:O}", "host", json_object_get(who, "host"), "pid", json_object_get(who, "pid"),
                          "boot_id", json_object_get(who, "boot"), "proc_start", json_object_get(who, "start"));
    json_decref(who);
    int rc = lf_record_event(x->dir, x->run.id, x->args.stage, x->args.attempt, x->epoch, "start", d, err);
    for (size_t i = 0; rc == 0 && i < json_array_size(x->inputs); i++) {
        json_t *in = json_array_get(x->inputs, i);
        json_t *e = json_pack("{s:O, s:O}", "name", json_object_get(in, "name"), "path", json_object_get(in, "path"));
        const char *p = json_string_value(json_object_get(in, "path"));
        size_t n = strlen(x->run.data);
        if (e != NULL && strncmp(p, x->run.data, n) == 0 && p[n] == '/')
            json_object_set_new(e, "path", json_string(p + n + 1)); /* inside the data root: relative to it */
        if (e != NULL && json_object_get(in, "sha256") != NULL)
            json_object_set(e, "sha256", json_object_get(in, "sha256"));
        rc = lf_record_event(x->dir, x->run.id, x->args.stage, x->args.attempt, x->epoch, "input", e, err);
    }
    return rc;
}

static int run_claimed(lf_exec *x, lf_end_class *c, lf_err *err)
{
    lf_err e = LF_ERR_INIT;
    int rc = lf_exec_prepare(x, &e);
    if (rc == 0)
        rc = start_event(x, &e);
    if (rc == 0)
        rc = lf_exec_child(x, &e);
    if (rc < 0) {
        memset(c, 0, sizeof *c);
        c->state = "failed";
        c->cls = rc == LF_ENOENT ? "bad_input" : "launch";
        snprintf(c->reason, sizeof c->reason, "%.390s", e.text);
        lf_text_clean(c->reason);
        x->ev.exit_code = 1;
        return write_end(x, c, err);
    }
    lf_classify(c, &x->ev);
    if (strcmp(c->state, "done") == 0 && (rc = commit(x, &e)) < 0) {
        bool fenced = rc == LF_EBUSY;
        c->state = fenced ? "stopped" : "failed";
        c->cls = fenced ? "superseded" : e.errnum == 28 ? "disk" : "unknown";
        snprintf(c->reason, sizeof c->reason, "%.390s", e.text);
        lf_text_clean(c->reason);
    }
    return write_end(x, c, err);
}

static int exit_code(const lf_end_class *c)
{
    if (strcmp(c->state, "done") == 0)
        return 0;
    return strcmp(c->state, "stopped") == 0 ? 75 : 1;
}

int lf_exec_main(const lf_exec_args *args, lf_err *err)
{
    lf_exec x;
    memset(&x, 0, sizeof x);
    x.args = *args;
    x.t_start = lf_wall_s();
    /* Blocked for the whole life of the wrapper: nothing ends it between two steps, a stop asked for early is seen by
     * the first sigtimedwait. */
    sigset_t set;
    sigemptyset(&set);
    const int all[] = {SIGCHLD, SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        sigaddset(&set, all[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    lf_end_class c;
    memset(&c, 0, sizeof c);
    lf_err e = LF_ERR_INIT;
    int rc = open_run(&x, &e);
    if (rc == 0)
        rc = lf_share_apply(json_string_value(json_object_get(x.run.doc, "share")) != NULL
                                ? json_string_value(json_object_get(x.run.doc, "share")) : "none", &e);
    if (rc == 0)
        rc = claim(&x, &e);
    bool already = rc == LF_EEXIST;
    if (rc == 0)
        rc = run_claimed(&x, &c, &e);
    int code = rc < 0 ? (already ? 0 : 1) : exit_code(&c);
    if (rc < 0 && !already)
        lf_fail(err, rc, "%s", e.text);
    lf_run_fini(&x.run);
    json_decref(x.attempt);
    json_decref(x.inputs);
    json_decref(x.resume);
    free(x.stage_dir);
    free(x.dir);
    free(x.log_tail);
    return code;
}

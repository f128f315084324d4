/* SPDX-License-Identifier: Apache-2.0
 *
 * The result of a start: its outputs described, the artifact events written, the marker
 * published.
 */
#include "config.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/artifact.h"
#include "engine/base/hash.h"
#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/base/sys.h"
#include "flow/job/exec.h"
#include "flow/plan/pipeline_priv.h"
#include "flow/record/record.h"
#include "flow/run/epoch.h"
#include "flow/run/handover.h"

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
    rc = lf_json_set_new(outputs, name,
                         json_pack("{s:s, s:s, s:s, s:I, s:I, s:O}", "path", rel, "kind", a.kind,
                                   "manifest_sha256", hex, "bytes", (json_int_t)bytes, "files",
                                   (json_int_t)a.n_files, "meta", a.meta),
                         err);
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
    bool any = json_is_true(json_object_get(x->stage, "any_output"));
    if (rc == 0 && first != NULL &&
        (any ? json_object_size(outputs) == 0 : json_object_get(outputs, first) == NULL))
        rc = lf_fail(err, LF_EFORMAT, "the stage ended well but did not publish %s \"%s\"",
                     any ? "any of its outputs, the first of which is" : "its output", first);
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
        snprintf(path, sizeof path, "runs/%s/%s/%d.%d/%s", x->run.id, x->args.stage,
                 x->args.attempt, x->epoch, json_string_value(json_object_get(o, "path")));
        json_t *d = json_pack(
            "{s:s, s:s, s:O, s:O, s:O, s:O, s:O, s:O}", "name", name, "path", path, "kind",
            json_object_get(o, "kind"), "sha256", json_object_get(o, "manifest_sha256"), "bytes",
            json_object_get(o, "bytes"), "files", json_object_get(o, "files"), "spec_id",
            json_object_get(x->stage, "spec_id"), "meta", json_object_get(o, "meta"));
        if (rc == 0)
            rc = lf_record_event(x->dir, x->run.id, x->args.stage, x->args.attempt, x->epoch,
                                 "artifact", d, err);
    }
    return rc;
}

static int commit_result(lf_exec *x, lf_err *err)
{
    json_t *outputs = NULL;
    int rc = collect_outputs(&outputs, x, err);
    if (rc == 0)
        rc = artifact_events(x, outputs, err);
    json_t *done =
        rc == 0
            ? json_pack("{s:i, s:s, s:s, s:i, s:i, s:s, s:O, s:O, s:O, s:f, s:f, s:O, s:O, s:O}",
                        "lf_done", 1, "run", x->run.id, "stage", x->args.stage, "attempt",
                        x->args.attempt, "epoch", x->epoch, "token", x->args.token, "kind",
                        json_object_get(x->stage, "kind"), "spec_id",
                        json_object_get(x->stage, "spec_id"), "spec_version",
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

/* Nobody goes on from what this start and those before it took: it would only keep room that
 * nothing else keeps. */
static void discard_all(const lf_exec *x)
{
    lf_stage_view s;
    lf_handover_discard(x->dir);
    if (lf_stage_scan(&s, x->run.dir, x->stage, NULL) < 0)
        return;
    for (size_t i = 0; i < s.n_incs; i++)
        if (s.incs[i].epoch < x->epoch)
            lf_handover_discard(s.incs[i].dir);
    lf_stage_scan_fini(&s);
}

void lf_exec_commit(lf_exec *x, lf_end_class *c)
{
    lf_err e = LF_ERR_INIT;
    int rc = commit_result(x, &e);
    if (rc == 0) {
        discard_all(x);
        return;
    }
    bool fenced = rc == LF_EBUSY;
    c->state = fenced ? "stopped" : "failed";
    c->cls = fenced                                           ? "superseded"
             : e.errnum != 0 && lf_cause_class(&e)[0] != '\0' ? lf_cause_class(&e)
                                                              : "unknown";
    snprintf(c->reason, sizeof c->reason, "%.390s", e.text);
    lf_text_clean(c->reason);
}

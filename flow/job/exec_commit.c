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
#include "engine/base/mem.h"
#include "engine/base/sys.h"
#include "flow/job/exec.h"
#include "flow/record/event.h"
#include "flow/record/record.h"
#include "flow/run/epoch.h"
#include "flow/run/handover.h"

struct outputs {
    struct lf_output *rows;
    size_t n, cap;
};

static int add_output(struct outputs *all, const char *name, const char *rel, const char *hex,
                      lf_artifact *a, lf_err *err)
{
    int rc = lf_grow(&all->rows, &all->cap, all->n, sizeof *all->rows, err);
    if (rc < 0)
        return rc;
    struct lf_output *o = &all->rows[all->n++];
    *o = (struct lf_output){.files = (int64_t)a->n_files};
    struct json_t *meta = a->meta;
    a->meta = NULL; /* it is the output's now */
    if ((rc = lf_output_take_meta(o, meta, err)) < 0)
        return rc;
    for (size_t i = 0; i < a->n_files; i++)
        o->bytes += a->files[i].bytes;
    o->name = lf_strdup(name, err);
    o->path = lf_strdup(rel, err);
    o->kind = lf_strdup(a->kind, err);
    o->manifest_sha256 = lf_strdup(hex, err);
    return o->name == NULL || o->path == NULL || o->kind == NULL || o->manifest_sha256 == NULL
               ? LF_ENOMEM
               : 0;
}

static int describe_output(struct outputs *all, lf_exec *x, const char *name, lf_err *err)
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
    rc = add_output(all, name, rel, hex, &a, err);
out:
    lf_buf_fini(&text);
    lf_artifact_fini(&a);
    free(path);
    return rc;
}

static int collect_outputs(struct lf_done *done, lf_exec *x, lf_err *err)
{
    const lf_texts *names = &x->plan->outputs;
    struct outputs all = {0};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < names->n; i++)
        rc = describe_output(&all, x, names->v[i], err);
    done->outputs = all.rows;
    done->n_outputs = all.n;
    const char *first = names->n > 0 ? names->v[0] : NULL;
    bool any = x->plan->any_output.v;
    if (rc == 0 && first != NULL && (any ? all.n == 0 : lf_done_output(done, first) == NULL))
        rc = lf_fail(err, LF_EFORMAT, "the stage ended well but did not publish %s \"%s\"",
                     any ? "any of its outputs, the first of which is" : "its output", first);
    return rc;
}

static int artifact_events(lf_exec *x, const struct lf_done *done, lf_err *err)
{
    const lf_origin from = lf_exec_origin(x);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < done->n_outputs; i++) {
        const struct lf_output *o = &done->outputs[i];
        char path[PATH_MAX];
        rc = lf_path_set(path, err, "runs/%s/%s/%d.%d/%s", x->run.id, x->args.stage,
                         x->args.attempt, x->epoch, o->path);
        if (rc < 0)
            return rc;
        rc = lf_event_artifact(&from, o, path, done->spec_id, err);
    }
    return rc;
}

/* An output of a training says so in its manifest; all of them are of the same training. */
static int look_for_end(struct lf_done *done, lf_exec *x, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && x->plan->carry.given && i < done->n_outputs && x->ended == NULL;
         i++)
        rc = lf_output_ended(&x->ended, &done->outputs[i], err);
    done->ended = x->ended;
    return rc == 0 && x->ended != NULL ? lf_exec_settle_mark(x, err) : rc;
}

static int commit_result(lf_exec *x, lf_err *err)
{
    struct lf_done done = {.run = x->run.id,
                           .stage = x->args.stage,
                           .attempt = x->args.attempt,
                           .epoch = x->epoch,
                           .token = x->args.token,
                           .kind = x->plan->kind,
                           .spec_id = x->plan->spec_id,
                           .spec_version = x->plan->spec_version.v,
                           .t_start = x->t_start,
                           .inputs = x->inputs,
                           .n_inputs = x->n_inputs,
                           .resume = x->resume,
                           .exe_sha256 = x->plan->exe.sha256};
    int rc = collect_outputs(&done, x, err);
    if (rc == 0)
        rc = look_for_end(&done, x, err);
    if (rc == 0)
        rc = artifact_events(x, &done, err);
    done.t_end = lf_wall_s();
    if (rc == 0)
        rc = lf_epoch_commit(x->stage_dir, &done, err);
    lf_outputs_free(done.outputs, done.n_outputs);
    return rc;
}

/* Nobody goes on from what this start and those before it took: it would only keep room that
 * nothing else keeps. */
static void discard_all(const lf_exec *x)
{
    lf_stage_view s;
    lf_handover_discard(x->dir);
    if (lf_stage_scan(&s, x->run.dir, x->plan, NULL) < 0)
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

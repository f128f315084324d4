/* SPDX-License-Identifier: Apache-2.0
 *
 * Event files: the table of kinds, writing, parsing. A kind's row names its scope and the members
 * of data with their types, so that whoever applies an event need not look again.
 */
#include "db/event.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "db/hint.h"
#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/base/sys.h"

enum { RUN, STAGE, ATTEMPT, EPOCH };

/* members: "name:T" or "name*T" (required); T is s text, i integer, n number, o object, a list, b
 * truth. */
static const struct kind {
    const char *name;
    int scope; /* what the event must name at least */
    const char *members;
} kinds[] = {
    {"run", RUN,
     "project*s name:s config_sha256:s config_text:s user:s host:s git:s version:s parent_run:s"},
    {"stage", STAGE,
     "kind*s seq*i spec_id*s spec_version:i exe_sha256:s outputs:a options:o inputs:a after:a"},
    {"submit", ATTEMPT, "token*s backend*s cluster:s submit_cmd:s script_sha256:s spec_id:s req:o"},
    {"submitted", ATTEMPT, "jobid*s job_submit_t:n"},
    {"start", EPOCH, "host:s pid:i boot_id:s proc_start:i jobid:s step:i from:o"},
    {"end", EPOCH, "state*s exit:i signal:i reason:s message:s step:i used:o"},
    {"artifact", EPOCH,
     "name*s path*s kind:s sha256:s bytes:i files:i step:i spec_id:s meta:o role:s"},
    {"input", EPOCH, "name*s path*s sha256:s"},
    {"cancel", RUN, "by:s why:s"},
    {"gone", RUN, "path*s why:s"},
    {"note", RUN, "text*s by:s"},
    {"node_strike", EPOCH, "host*s cause*s"},
    {"strike", RUN, "host*s cause*s"},
    {"tag", RUN, "tag*s by:s remove:b"},
    {"run_end", RUN, "command*s state*s reason:s exit:i"},
    {"rung", RUN, "rung*i step*i stage:s metric:s kept*a ended*a"},
    {"requeue", EPOCH, "cause*s jobid:s"},
    {"adopt", ATTEMPT, "jobid*s by:s"},
    {"observed", ATTEMPT, "state*s raw:s reason:s exit:i signal:i host:s jobid:s message:s"},
};

static bool type_ok(const json_t *v, char type)
{
    switch (type) {
    case 's':
        return json_is_string(v);
    case 'i':
        return json_is_integer(v);
    case 'n':
        return json_is_number(v);
    case 'o':
        return json_is_object(v);
    case 'b':
        return json_is_boolean(v);
    default:
        return json_is_array(v);
    }
}

static int check_members(const struct kind *k, json_t *data, const char *path, lf_err *err)
{
    for (const char *p = k->members; *p;) {
        char name[32];
        size_t n = strcspn(p, ":*");
        bool need = p[n] == '*';
        char type = p[n + 1];
        snprintf(name, sizeof name, "%.*s", (int)n, p);
        json_t *v = json_object_get(data, name);
        if ((!v || json_is_null(v)) && need)
            return lf_fail(err, LF_EFORMAT, "%s: event \"%s\" has no \"%s\"", path, k->name, name);
        if (v && !json_is_null(v) && !type_ok(v, type))
            return lf_fail(err, LF_EFORMAT, "%s: event \"%s\": \"%s\" has the wrong type", path,
                           k->name, name);
        p += n + 2;
        p += strspn(p, " ");
    }
    return 0;
}

/* Names become path components. */
static bool name_ok(const char *s)
{
    size_t n = strlen(s);
    return n > 0 && n <= LF_EVENT_NAME_MOST && s[0] != '.' &&
           strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.@-") == n;
}

static int check(const lf_event *ev, const char *path, lf_err *err)
{
    int has = ev->epoch ? EPOCH : ev->attempt ? ATTEMPT : ev->stage ? STAGE : RUN;
    if (!ev->run || !name_ok(ev->run) || (ev->stage && !name_ok(ev->stage)) || !ev->kind ||
        !name_ok(ev->kind))
        return lf_fail(err, LF_EFORMAT, "%s: an event needs plain names for run, stage and kind",
                       path);
    if (ev->attempt < 0 || ev->epoch < 0 || (ev->attempt && !ev->stage) ||
        (ev->epoch && !ev->attempt))
        return lf_fail(err, LF_EFORMAT, "%s: event \"%s\": attempt needs a stage, epoch an attempt",
                       path, ev->kind);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        static const char *const scopes[] = {"run", "stage", "attempt", "epoch"};
        if (strcmp(kinds[i].name, ev->kind) != 0)
            continue;
        if (has < kinds[i].scope)
            return lf_fail(err, LF_EFORMAT, "%s: event \"%s\" must name its %s", path, ev->kind,
                           scopes[kinds[i].scope]);
        return check_members(&kinds[i], ev->data, path, err);
    }
    return 0;
}

static json_t *to_json(const lf_event *ev)
{
    json_t *o = json_pack("{s:i, s:s, s:f, s:s, s:s, s:O}", "lf_event", 1, "id", ev->id, "t", ev->t,
                          "run", ev->run, "kind", ev->kind, "data", ev->data);
    bool ok = o != NULL;
    if (ok && ev->stage)
        ok = json_object_set_new(o, "stage", json_string(ev->stage)) == 0;
    if (ok && ev->attempt)
        ok = json_object_set_new(o, "attempt", json_integer(ev->attempt)) == 0;
    if (ok && ev->epoch)
        ok = json_object_set_new(o, "epoch", json_integer(ev->epoch)) == 0;
    if (!ok) {
        json_decref(o);
        o = NULL;
    }
    return o;
}

int lf_event_write(const char *spool_dir, lf_event *ev, unsigned dir_mode, unsigned file_mode,
                   lf_err *err)
{
    char *text = NULL, *path = NULL, name[200];
    lf_event e = *ev;
    json_t *empty = json_object(), *o = NULL;
    int rc = empty ? 0 : LF_ENOMEM;
    if (!e.data)
        e.data = empty;
    if (e.t == 0)
        e.t = lf_wall_s();
    if (rc == 0)
        rc = lf_ulid(e.id, err);
    if (rc == 0)
        rc = check(&e, spool_dir, err);
    if (rc < 0)
        goto out;
    snprintf(name, sizeof name, "%s-%s.json", e.id, e.kind);
    rc = LF_ENOMEM;
    if (!(o = to_json(&e))) {
        rc =
            lf_fail(err, LF_EINVAL, "event \"%s\": no memory, or a text that is not UTF-8", e.kind);
        goto out;
    }
    if (!(text = lf_json_dump(o, err)) || !(path = lf_path_join(spool_dir, name, err)))
        goto out;
    rc = lf_io_mkdirs(spool_dir, (mode_t)dir_mode, err);
    if (rc == 0) {
        lf_hint_touch(spool_dir, e.run, dir_mode, file_mode);
        rc = lf_io_publish(path, text, strlen(text), (mode_t)(file_mode & 0444), err);
        lf_hint_touch(spool_dir, e.run, dir_mode, file_mode);
    }
    if (rc == 0) {
        memcpy(ev->id, e.id, sizeof ev->id);
        ev->t = e.t;
    }
out:
    json_decref(o);
    json_decref(empty);
    free(text);
    free(path);
    return rc;
}

int lf_event_parse(lf_event *out, json_t **root, const char *text, size_t len, const char *path,
                   lf_err *err)
{
    lf_event ev = {0};
    const char *id = NULL;
    int64_t version = 0;
    json_t *o = lf_json_load_text(text, len, path, err);
    int rc = o ? 0 : LF_EFORMAT;
    if (rc == 0)
        rc = lf_json_get_i64(&version, o, "lf_event", true, path, err);
    if (rc == 0 && version != 1)
        rc = lf_fail(err, LF_ENOTSUP, "%s: event format %lld; this loong-flow knows 1", path,
                     (long long)version);
    if (rc == 0)
        rc = lf_json_get_str(&id, o, "id", true, path, err);
    if (rc == 0 && !lf_ulid_valid(id))
        rc = lf_fail(err, LF_EFORMAT, "%s: \"%s\" is not an event id", path, id);
    if (rc == 0)
        memcpy(ev.id, id, sizeof ev.id);
    if (rc == 0)
        rc = lf_json_get_f64(&ev.t, o, "t", true, path, err);
    if (rc == 0)
        rc = lf_json_get_str(&ev.run, o, "run", true, path, err);
    if (rc == 0)
        rc = lf_json_get_str(&ev.stage, o, "stage", false, path, err);
    if (rc == 0)
        rc = lf_json_get_i64(&ev.attempt, o, "attempt", false, path, err);
    if (rc == 0)
        rc = lf_json_get_i64(&ev.epoch, o, "epoch", false, path, err);
    if (rc == 0)
        rc = lf_json_get_str(&ev.kind, o, "kind", true, path, err);
    if (rc == 0)
        rc = lf_json_get_object(&ev.data, o, "data", true, path, err);
    if (rc == 0)
        rc = check(&ev, path, err);
    if (rc < 0) {
        json_decref(o);
        return rc;
    }
    *out = ev;
    *root = o;
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * What each event does to the tables. Every statement gives the same rows in any order of events:
 * columns are replaced only by an event with a larger id, extremes are kept, the rest is
 * insert-or-ignore. Members' types were checked by lf_event_parse.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "db/ledger_priv.h"
#include "engine/base/json.h"

static const char *text(const lf_event *ev, const char *key)
{
    return json_string_value(json_object_get(ev->data, key));
}

static const int64_t *integer(const lf_event *ev, const char *key, int64_t *room)
{
    const json_t *v = json_object_get(ev->data, key);
    if (!json_is_integer(v))
        return NULL;
    *room = json_integer_value(v);
    return room;
}

/* Owned JSON text of a member; NULL when absent (then *rc stays) or on failure. */
static char *json_text(const lf_event *ev, const char *key, int *rc, lf_err *err)
{
    const json_t *v = json_object_get(ev->data, key);
    if (!v || json_is_null(v))
        return NULL;
    char *s = lf_json_dump(v, err);
    if (!s)
        *rc = LF_ENOMEM;
    return s;
}

/* SQLite reads the whole row of the run to compare its name, and the row holds the text of the
 * pipeline, which is long where there are many stages. So it is asked for once, not for each of
 * their events. */
static int ensure_run(lf_ledger *l, const lf_event *ev, lf_err *err)
{
    if (strcmp(l->run_there, ev->run) == 0)
        return 0;
    int rc = lf_db_run(l, err, "INSERT OR IGNORE INTO run (run) VALUES (?1)", "s", ev->run);
    if (rc == 0)
        snprintf(l->run_there, sizeof l->run_there, "%s", ev->run);
    return rc;
}

/* Rows that the event refers to exist, if only as names. */
static int ensure_parents(lf_ledger *l, const lf_event *ev, lf_err *err)
{
    int rc = ensure_run(l, ev, err);
    if (rc == 0 && ev->stage)
        rc = lf_db_run(l, err, "INSERT OR IGNORE INTO stage (run, stage) VALUES (?1, ?2)", "ss",
                       ev->run, ev->stage);
    if (rc == 0 && ev->attempt)
        rc = lf_db_run(l, err,
                       "INSERT OR IGNORE INTO attempt (run, stage, attempt) VALUES (?1, ?2, ?3)",
                       "ssi", ev->run, ev->stage, ev->attempt);
    if (rc == 0 && ev->epoch)
        rc = lf_db_run(
            l, err,
            "INSERT OR IGNORE INTO segment (run, stage, attempt, epoch) VALUES (?1, ?2, ?3, ?4)",
            "ssii", ev->run, ev->stage, ev->attempt, ev->epoch);
    return rc;
}

static int on_run(lf_ledger *l, const lf_event *ev, lf_err *err)
{
    return lf_db_run(l, err,
                     "UPDATE run SET ev = ?2, t = ?3, name = ?4, project = ?5, config_sha256 = ?6, "
                     "config_text = ?7, "
                     "user = ?8, host = ?9, git = ?10, version = ?11, parent_run = ?12 WHERE run = "
                     "?1 AND ev < ?2",
                     "ssfsssssssss", ev->run, ev->id, ev->t, text(ev, "name"), text(ev, "project"),
                     text(ev, "config_sha256"), text(ev, "config_text"), text(ev, "user"),
                     text(ev, "host"), text(ev, "git"), text(ev, "version"),
                     text(ev, "parent_run"));
}

/* What a stage gets from another or waits for; NULL: not said. */
struct edge {
    const char *kind, *name, *from, *output, *path, *sha256;
};

static int add_edge(lf_ledger *l, const lf_event *ev, const struct edge *e, lf_err *err)
{
    return lf_db_run(
        l, err,
        "INSERT OR IGNORE INTO edge (run, to_stage, kind, name, from_stage, output, path, sha256) "
        "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        "ssssssss", ev->run, ev->stage, e->kind, e->name, e->from ? e->from : "",
        e->output ? e->output : "", e->path ? e->path : "", e->sha256);
}

static int add_edges(lf_ledger *l, const lf_event *ev, lf_err *err)
{
    size_t i;
    json_t *v;
    int rc = lf_db_run(l, err, "DELETE FROM edge WHERE run = ?1 AND to_stage = ?2", "ss", ev->run,
                       ev->stage);
    json_array_foreach(json_object_get(ev->data, "inputs"), i, v)
    {
        const struct edge input = {
            .kind = "input",
            .name = json_string_value(json_object_get(v, "name")),
            .from = json_string_value(json_object_get(v, "stage")),
            .output = json_string_value(json_object_get(v, "output")),
            .path = json_string_value(json_object_get(v, "path")),
            .sha256 = json_string_value(json_object_get(v, "sha256")),
        };
        if (rc == 0)
            rc = input.name ? add_edge(l, ev, &input, err)
                            : lf_fail(err, LF_EFORMAT, "event \"stage\": an input without a name");
    }
    json_array_foreach(json_object_get(ev->data, "after"), i, v)
    {
        const struct edge after = {.kind = "after", .name = "", .from = json_string_value(v)};
        if (rc == 0)
            rc = json_is_string(v)
                     ? add_edge(l, ev, &after, err)
                     : lf_fail(err, LF_EFORMAT,
                               "event \"stage\": \"after\" holds something else than names");
    }
    return rc;
}

static int on_stage(lf_ledger *l, const lf_event *ev, lf_err *err)
{
    int64_t seq, version;
    int rc = 0;
    char *outputs = json_text(ev, "outputs", &rc, err),
         *options = json_text(ev, "options", &rc, err);
    if (rc == 0)
        rc = lf_db_run(l, err,
                       "UPDATE stage SET ev = ?3, t = ?4, kind = ?5, seq = ?6, spec_id = ?7, "
                       "spec_version = ?8, "
                       "exe_sha256 = ?9, outputs = ?10, options = ?11 WHERE run = ?1 AND stage = "
                       "?2 AND ev < ?3",
                       "sssfsIsIsss", ev->run, ev->stage, ev->id, ev->t, text(ev, "kind"),
                       integer(ev, "seq", &seq), text(ev, "spec_id"),
                       integer(ev, "spec_version", &version), text(ev, "exe_sha256"), outputs,
                       options);
    if (rc == 0 && sqlite3_changes(l->db) > 0)
        rc = add_edges(l, ev, err);
    free(outputs);
    free(options);
    return rc;
}

static int on_submit(lf_ledger *l, const lf_event *ev, lf_err *err)
{
    int rc = 0;
    char *req = json_text(ev, "req", &rc, err);
    if (rc == 0)
        rc = lf_db_run(
            l, err,
            "UPDATE attempt SET ev = ?4, t_submit = ?5, token = ?6, backend = ?7, cluster = ?8, "
            "submit_cmd = ?9, script_sha256 = ?10, req = ?11, spec_id = ?12 "
            "WHERE run = ?1 AND stage = ?2 AND attempt = ?3 AND ev < ?4",
            "ssisfsssssss", ev->run, ev->stage, ev->attempt, ev->id, ev->t, text(ev, "token"),
            text(ev, "backend"), text(ev, "cluster"), text(ev, "submit_cmd"),
            text(ev, "script_sha256"), req, text(ev, "spec_id"));
    free(req);
    return rc;
}

static int on_submitted(lf_ledger *l, const lf_event *ev, lf_err *err)
{
    const json_t *t = json_object_get(ev->data, "job_submit_t");
    double submit_t = json_number_value(t);
    return lf_db_run(
        l, err,
        "UPDATE attempt SET ev_submitted = ?4, t_submitted = ?5, jobid = ?6, job_submit_t = ?7 "
        "WHERE run = ?1 AND stage = ?2 AND attempt = ?3 AND ev_submitted < ?4",
        "ssisfsF", ev->run, ev->stage, ev->attempt, ev->id, ev->t, text(ev, "jobid"),
        json_is_number(t) ? &submit_t : NULL);
}

static int on_start(lf_ledger *l, const lf_event *ev, lf_err *err)
{
    int64_t pid, start, step, fa = 0, fe = 0;
    json_t *from = json_object_get(ev->data, "from");
    bool has_from = json_is_object(from);
    if (has_from &&
        (lf_json_get_i64(&fa, from, "attempt", true, "event \"start\": from", err) < 0 ||
         lf_json_get_i64(&fe, from, "epoch", true, "event \"start\": from", err) < 0))
        return LF_EFORMAT;
    return lf_db_run(l, err,
                     "UPDATE segment SET ev = ?5, t_start = ?6, host = ?7, pid = ?8, boot_id = ?9, "
                     "proc_start = ?10, "
                     "jobid = ?11, step_from = ?12, from_attempt = ?13, from_epoch = ?14 "
                     "WHERE run = ?1 AND stage = ?2 AND attempt = ?3 AND epoch = ?4 AND ev < ?5",
                     "ssiisfsIsIsIII", ev->run, ev->stage, ev->attempt, ev->epoch, ev->id, ev->t,
                     text(ev, "host"), integer(ev, "pid", &pid), text(ev, "boot_id"),
                     integer(ev, "proc_start", &start), text(ev, "jobid"),
                     integer(ev, "step", &step), has_from ? &fa : NULL, has_from ? &fe : NULL);
}

static int on_end(lf_ledger *l, const lf_event *ev, lf_err *err)
{
    static const char *const states[] = {"done", "failed", "stopped", "cancelled"};
    int64_t code, sig, step;
    int rc = 0;
    bool known = false;
    for (size_t i = 0; i < 4; i++)
        known = known || strcmp(text(ev, "state"), states[i]) == 0;
    if (!known)
        return lf_fail(err, LF_EFORMAT, "event \"end\": unknown state \"%s\"", text(ev, "state"));
    char *used = json_text(ev, "used", &rc, err);
    if (rc == 0)
        rc = lf_db_run(
            l, err,
            "UPDATE segment SET ev_end = ?5, t_end = ?6, state = ?7, exit = ?8, signal = ?9, "
            "reason = ?10, "
            "message = ?11, step_to = ?12, used = ?13 "
            "WHERE run = ?1 AND stage = ?2 AND attempt = ?3 AND epoch = ?4 AND ev_end < ?5",
            "ssiisfsIIssIs", ev->run, ev->stage, ev->attempt, ev->epoch, ev->id, ev->t,
            text(ev, "state"), integer(ev, "exit", &code), integer(ev, "signal", &sig),
            text(ev, "reason"), text(ev, "message"), integer(ev, "step", &step), used);
    free(used);
    return rc;
}

static int add_io(lf_ledger *l, const lf_event *ev, const char *role, lf_err *err)
{
    return lf_db_run(
        l, err,
        "INSERT OR IGNORE INTO io (run, stage, attempt, epoch, role, name, path, sha256) "
        "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        "ssiissss", ev->run, ev->stage, ev->attempt, ev->epoch, role, text(ev, "name"),
        text(ev, "path"), text(ev, "sha256"));
}

/* Paths in artifacts stay below the data root. */
static bool path_ok(const char *p)
{
    if (!*p || *p == '/')
        return false;
    for (const char *s = p; s; s = strchr(s, '/')) {
        s += *s == '/';
        if (strcmp(s, "..") == 0 || strncmp(s, "../", 3) == 0)
            return false;
    }
    return true;
}

static int on_artifact(lf_ledger *l, const lf_event *ev, lf_err *err)
{
    int64_t bytes, files, step;
    const char *role = text(ev, "role") ? text(ev, "role") : "output";
    int rc = 0;
    if (!path_ok(text(ev, "path")))
        return lf_fail(err, LF_EFORMAT, "event \"artifact\": the path \"%s\" leaves the data root",
                       text(ev, "path"));
    char *meta = json_text(ev, "meta", &rc, err);
    if (rc == 0)
        rc = lf_db_run(
            l, err,
            "INSERT INTO artifact (path, run, stage, attempt, epoch, name, role, kind, sha256, "
            "bytes, files, "
            "step, spec_id, meta, t, ev) "
            "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16) "
            "ON CONFLICT (path) DO UPDATE SET run = ?2, stage = ?3, attempt = ?4, epoch = ?5, name "
            "= ?6, "
            "role = ?7, kind = ?8, sha256 = ?9, bytes = ?10, files = ?11, step = ?12, spec_id = "
            "?13, "
            "meta = ?14, t = ?15, ev = ?16 WHERE ev < ?16",
            "sssiissssIIIssfs", text(ev, "path"), ev->run, ev->stage, ev->attempt, ev->epoch,
            text(ev, "name"), role, text(ev, "kind"), text(ev, "sha256"),
            integer(ev, "bytes", &bytes), integer(ev, "files", &files), integer(ev, "step", &step),
            text(ev, "spec_id"), meta, ev->t, ev->id);
    free(meta);
    return rc < 0 ? rc : add_io(l, ev, "out", err);
}

static int on_input(lf_ledger *l, const lf_event *ev, lf_err *err)
{
    return add_io(l, ev, "in", err);
}

static int on_cancel(lf_ledger *l, const lf_event *ev, lf_err *err)
{
    if (ev->attempt)
        return lf_db_run(l, err,
                         "UPDATE attempt SET cancelled_t = max(coalesce(cancelled_t, ?4), ?4) "
                         "WHERE run = ?1 AND stage = ?2 AND attempt = ?3",
                         "ssif", ev->run, ev->stage, ev->attempt, ev->t);
    if (ev->stage)
        return lf_db_run(l, err,
                         "UPDATE stage SET cancelled_t = max(coalesce(cancelled_t, ?3), ?3) WHERE "
                         "run = ?1 AND stage = ?2",
                         "ssf", ev->run, ev->stage, ev->t);
    return lf_db_run(
        l, err, "UPDATE run SET cancelled_t = max(coalesce(cancelled_t, ?2), ?2) WHERE run = ?1",
        "sf", ev->run, ev->t);
}

static int on_gone(lf_ledger *l, const lf_event *ev, lf_err *err)
{
    return lf_db_run(l, err,
                     "INSERT INTO gone (path, t, why, ev) VALUES (?1, ?2, ?3, ?4) "
                     "ON CONFLICT (path) DO UPDATE SET t = ?2, why = ?3, ev = ?4 WHERE ev < ?4",
                     "sfss", text(ev, "path"), ev->t, text(ev, "why"), ev->id);
}

static int on_note(lf_ledger *l, const lf_event *ev, lf_err *err)
{
    return lf_db_run(l, err,
                     "INSERT OR IGNORE INTO note (ev, t, run, stage, author, text) VALUES (?1, ?2, "
                     "?3, ?4, ?5, ?6)",
                     "sfssss", ev->id, ev->t, ev->run, ev->stage, text(ev, "by"), text(ev, "text"));
}

static int on_strike(lf_ledger *l, const lf_event *ev, lf_err *err)
{
    return lf_db_run(l, err,
                     "INSERT OR IGNORE INTO node_strike (ev, t, host, cause, run, stage) VALUES "
                     "(?1, ?2, ?3, ?4, ?5, ?6)",
                     "sfssss", ev->id, ev->t, text(ev, "host"), text(ev, "cause"), ev->run,
                     ev->stage);
}

static int on_tag(lf_ledger *l, const lf_event *ev, lf_err *err)
{
    return lf_db_run(l, err,
                     "INSERT INTO tag (run, stage, tag, t, author, removed, ev) VALUES (?1, ?2, "
                     "?3, ?4, ?5, ?6, ?7) "
                     "ON CONFLICT (run, stage, tag) DO UPDATE SET t = ?4, author = ?5, removed = "
                     "?6, ev = ?7 WHERE ev < ?7",
                     "sssfsis", ev->run, ev->stage ? ev->stage : "", text(ev, "tag"), ev->t,
                     text(ev, "by"), (int64_t)json_is_true(json_object_get(ev->data, "remove")),
                     ev->id);
}

static int on_requeue(lf_ledger *l, const lf_event *ev, lf_err *err)
{
    return lf_db_run(
        l, err,
        "INSERT OR IGNORE INTO requeue (ev, t, run, stage, attempt, epoch, cause, jobid) "
        "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        "sfssiiss", ev->id, ev->t, ev->run, ev->stage, ev->attempt, ev->epoch, text(ev, "cause"),
        text(ev, "jobid"));
}

/* The decision is a function of the run's records, so all events of a rung say the same; of these
 * the first one stands, in whatever order they are read. */
static int on_rung(lf_ledger *l, const lf_event *ev, lf_err *err)
{
    char *kept = lf_json_dump(json_object_get(ev->data, "kept"), err);
    char *ended = kept != NULL ? lf_json_dump(json_object_get(ev->data, "ended"), err) : NULL;
    int64_t rung = json_integer_value(json_object_get(ev->data, "rung")),
            step = json_integer_value(json_object_get(ev->data, "step"));
    int rc =
        ended == NULL
            ? LF_ENOMEM
            : lf_db_run(l, err,
                        "INSERT INTO rung (run, rung, step, stage, metric, kept, ended, t, ev) "
                        "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT (run, rung) "
                        "DO UPDATE SET step = excluded.step, stage = excluded.stage, metric = "
                        "excluded.metric, kept = excluded.kept, ended = excluded.ended, t = "
                        "excluded.t, ev = excluded.ev WHERE excluded.ev < rung.ev",
                        "siissssfs", ev->run, rung, step, text(ev, "stage"), text(ev, "metric"),
                        kept, ended, ev->t, ev->id);
    free(kept);
    free(ended);
    return rc;
}

/* The scheduler's answer that was lost: the job id counts as if it had been submitted now. */
static int on_adopt(lf_ledger *l, const lf_event *ev, lf_err *err)
{
    int rc = lf_db_run(l, err,
                       "INSERT OR IGNORE INTO adopt (ev, t, run, stage, attempt, jobid, author) "
                       "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                       "sfssiss", ev->id, ev->t, ev->run, ev->stage, ev->attempt, text(ev, "jobid"),
                       text(ev, "by"));
    return rc < 0 ? rc : on_submitted(l, ev, err);
}

static int on_observed(lf_ledger *l, const lf_event *ev, lf_err *err)
{
    static const char *const states[] = {"pending", "running", "failed", "cancelled", "lost"};
    int64_t code, sig;
    bool known = false;
    for (size_t i = 0; i < sizeof states / sizeof states[0]; i++)
        known = known || strcmp(text(ev, "state"), states[i]) == 0;
    if (!known)
        return lf_fail(err, LF_EFORMAT, "event \"observed\": unknown state \"%s\"",
                       text(ev, "state"));
    return lf_db_run(l, err,
                     "INSERT INTO observed (run, stage, attempt, t, state, raw, reason, exit, "
                     "signal, host, jobid, message, ev) "
                     "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13) "
                     "ON CONFLICT (run, stage, attempt) DO UPDATE SET t = ?4, state = ?5, raw = "
                     "?6, reason = ?7, exit = ?8, "
                     "signal = ?9, host = ?10, jobid = ?11, message = ?12, ev = ?13 WHERE ev < ?13",
                     "ssifsssIIssss", ev->run, ev->stage, ev->attempt, ev->t, text(ev, "state"),
                     text(ev, "raw"), text(ev, "reason"), integer(ev, "exit", &code),
                     integer(ev, "signal", &sig), text(ev, "host"), text(ev, "jobid"),
                     text(ev, "message"), ev->id);
}

int lf_ledger_apply(lf_ledger *l, const lf_event *ev, const char *path, lf_err *err)
{
    static const struct {
        const char *kind;
        int (*apply)(lf_ledger *l, const lf_event *ev, lf_err *err);
    } table[] = {
        {"run", on_run},           {"stage", on_stage},
        {"submit", on_submit},     {"submitted", on_submitted},
        {"start", on_start},       {"end", on_end},
        {"artifact", on_artifact}, {"input", on_input},
        {"cancel", on_cancel},     {"gone", on_gone},
        {"note", on_note},         {"node_strike", on_strike},
        {"strike", on_strike},     {"tag", on_tag},
        {"requeue", on_requeue},   {"adopt", on_adopt},
        {"observed", on_observed}, {"rung", on_rung},
    };
    int rc = ensure_parents(l, ev, err);
    for (size_t i = 0; rc == 0 && i < sizeof table / sizeof table[0]; i++)
        if (strcmp(table[i].kind, ev->kind) == 0)
            rc = table[i].apply(l, ev, err);
    if (rc < 0)
        return rc;
    char *data = lf_json_dump(ev->data, err);
    if (!data)
        return LF_ENOMEM;
    rc =
        lf_db_run(l, err,
                  "INSERT INTO event (id, t, run, stage, attempt, epoch, kind, data, path) "
                  "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
                  "sfssIIsss", ev->id, ev->t, ev->run, ev->stage, ev->attempt ? &ev->attempt : NULL,
                  ev->epoch ? &ev->epoch : NULL, ev->kind, data, path);
    free(data);
    return rc;
}

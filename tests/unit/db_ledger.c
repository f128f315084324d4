/* SPDX-License-Identifier: Apache-2.0
 *
 * Events and metrics into the ledger and out again: states, idempotence, independence of order,
 * refusals, curves, lineage, rebuild, backup, check.
 */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "db/ledger_priv.h"
#include "engine/base/frame.h"
#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/str.h"
#include "tests/tap/tap.h"

static char root[1024];
static double clock_t0 = 1763724000;

static char *fmt_path(char *out, size_t cap, const char *a, const char *b)
{
    int n = snprintf(out, cap, "%s/%s", a, b);
    if (n < 0 || (size_t)n >= cap)
        tap_bail("path");
    return out;
}

/* Write an event below root; data is JSON text. Returns its id in a static buffer. */
static const char *event_at(const char *at, const char *run, const char *stage, int attempt,
                            int epoch, const char *kind, const char *data)
{
    static char id[LF_ULID_SIZE];
    lf_err err = LF_ERR_INIT;
    json_error_t je;
    char rel[512], dir[1600];
    json_t *d = json_loads(data, 0, &je);
    lf_event ev = {.t = clock_t0 += 1,
                   .run = run,
                   .stage = stage,
                   .attempt = attempt,
                   .epoch = epoch,
                   .kind = kind,
                   .data = d};
    if (epoch)
        snprintf(rel, sizeof rel, "runs/%s/%s/%d.%d/spool", run, stage, attempt, epoch);
    else if (stage)
        snprintf(rel, sizeof rel, "runs/%s/%s/spool", run, stage);
    else
        snprintf(rel, sizeof rel, "runs/%s/spool", run);
    if (lf_event_write(fmt_path(dir, sizeof dir, at, rel), &ev, 0755, 0644, &err) < 0)
        tap_bail("event: %s", err.text);
    json_decref(d);
    memcpy(id, ev.id, sizeof id);
    return id;
}
#define event(...) event_at(root, __VA_ARGS__)

static void metrics(const char *rel, int64_t from, int64_t to, double scale)
{
    lf_err err = LF_ERR_INIT;
    char path[1600];
    lf_frame_writer *w = lf_frame_writer_open(fmt_path(path, sizeof path, root, rel), &err);
    for (int64_t s = from; s < to; s++) {
        char text[200];
        int n = snprintf(text, sizeof text,
                         "{\"step\":%lld,\"t\":%lld.5,\"loss\":%.17g,\"lr\":0.001,\"note\":\"x\"}",
                         (long long)s, (long long)(1000 + s), scale / (double)(s + 1));
        if (lf_frame_append(w, text, (size_t)n, &err) < 0)
            tap_bail("%s", err.text);
    }
    lf_frame_writer_close(w, &err);
}

/* Every table as text; metric ids, which depend on the order of arrival, by their key. */
static char *dump(lf_ledger *l)
{
    static const char *const sql[] = {
        "SELECT * FROM run ORDER BY 1",
        "SELECT * FROM stage ORDER BY 1, 2",
        "SELECT * FROM edge ORDER BY 1, 2, 3, 4, 5, 6, 7",
        "SELECT * FROM attempt ORDER BY 1, 2, 3",
        "SELECT * FROM segment ORDER BY 1, 2, 3, 4",
        "SELECT * FROM artifact ORDER BY 1",
        "SELECT * FROM gone ORDER BY 1",
        "SELECT * FROM io ORDER BY 1, 2, 3, 4, 5, 6, 7",
        "SELECT * FROM note ORDER BY 1",
        "SELECT * FROM node_strike ORDER BY 1",
        "SELECT * FROM rung ORDER BY 1, 2",
        "SELECT * FROM event ORDER BY 1",
        "SELECT path, offset FROM source ORDER BY 1",
        "SELECT run, stage, attempt, key, stride, last_epoch, last_i, last_step, last, min, "
        "min_step, max, max_step FROM metric "
        "ORDER BY 1, 2, 3, 4",
        "SELECT key, attempt, p.* FROM metric_point p JOIN metric m ON m.id = p.metric ORDER BY 1, "
        "2, epoch, i",
        "SELECT key, attempt, epoch, n FROM metric_epoch e JOIN metric m ON m.id = e.metric ORDER "
        "BY 1, 2, 3",
        "SELECT * FROM metric_span ORDER BY 1, 2, 3, 4",
        "SELECT * FROM stage_state ORDER BY 1, 2",
    };
    lf_err err = LF_ERR_INIT;
    json_t *all = json_array();
    for (size_t i = 0; i < sizeof sql / sizeof sql[0]; i++) {
        json_t *rows = lf_ledger_sql(l, sql[i], &err), *v;
        size_t k;
        if (!rows)
            tap_bail("%s", err.text);
        json_array_foreach(rows, k, v) json_object_del(v, "metric");
        json_array_append_new(all, rows);
    }
    char *s = lf_json_dump(all, &err);
    json_decref(all);
    return s;
}

/* Column v of the first row, as text in a static buffer; "absent" without a row. */
static const char *ask(lf_ledger *l, const char *sql)
{
    static char text[100];
    lf_err err = LF_ERR_INIT;
    json_t *rows = lf_ledger_sql(l, sql, &err), *v = json_object_get(json_array_get(rows, 0), "v");
    snprintf(text, sizeof text, "%s", rows ? "absent" : "query failed");
    if (json_is_string(v))
        snprintf(text, sizeof text, "%s", json_string_value(v));
    else if (json_is_integer(v))
        snprintf(text, sizeof text, "%lld", (long long)json_integer_value(v));
    else if (json_is_real(v))
        snprintf(text, sizeof text, "%.17g", json_real_value(v));
    json_decref(rows);
    return text;
}

static const char *state_of(lf_ledger *l, const char *run, const char *stage)
{
    char sql[200];
    snprintf(sql, sizeof sql,
             "SELECT state AS v FROM stage_state WHERE run = '%s' AND stage = '%s'", run, stage);
    return ask(l, sql);
}

/* Files that come from nowhere leave no hints. */
static const lf_ledger_ingest_opts everything = {.everything = true};

static void ingest(lf_ledger *l, int64_t events, int64_t problems, const char *what)
{
    lf_err err = LF_ERR_INIT;
    lf_ledger_ingested got = {-1, -1, -1};
    tap_rc(lf_ledger_ingest(l, root, NULL, &got, &err), 0, &err, NULL, what);
    tap_i64(got.events, events, "new events");
    tap_i64(got.problems, problems, "new problems");
}

static const char *const STAGE_TOK =
    "{\"kind\":\"tokenize\",\"seq\":0,\"spec_id\":\"s0\",\"outputs\":[\"shards\"],"
    "\"options\":{\"vocab_size\":\"4096\"},\"inputs\":[{\"name\":\"input\",\"path\":\"/c.txt\","
    "\"sha256\":\"cc\"}]}";
static const char *const STAGE_TRAIN =
    "{\"kind\":\"pretrain\",\"seq\":1,\"spec_id\":\"s1\",\"inputs\":[{\"name\":\"data\","
    "\"stage\":\"tok\",\"output\":\"shards\"}],\"after\":[\"tok\"]}";

static void test_states(lf_ledger *l)
{
    event(
        "R1", NULL, 0, 0, "run",
        "{\"project\":\"p\",\"name\":\"first\",\"config_text\":\"[pipeline]\\n\",\"user\":\"me\"}");
    event("R1", "tok", 0, 0, "stage", STAGE_TOK);
    event("R1", "train", 0, 0, "stage", STAGE_TRAIN);
    ingest(l, 3, 0, "a run");
    tap_str(state_of(l, "R1", "tok"), "waiting", "waiting");
    event("R1", "tok", 1, 0, "submit",
          "{\"token\":\"T1\",\"backend\":\"local\",\"spec_id\":\"s0\",\"req\":{\"cpus\":2}}");
    ingest(l, 1, 0, "a submit");
    tap_str(state_of(l, "R1", "tok"), "pending", "pending");
    event("R1", "tok", 1, 1, "start",
          "{\"host\":\"h\",\"pid\":12,\"boot_id\":\"b\",\"proc_start\":99}");
    ingest(l, 1, 0, "a start");
    tap_str(state_of(l, "R1", "tok"), "running", "running");
    event("R1", "tok", 1, 1, "end", "{\"state\":\"stopped\",\"exit\":75,\"step\":10}");
    ingest(l, 1, 0, "a stop");
    tap_str(state_of(l, "R1", "tok"), "pending", "stopped at a good checkpoint is pending");
    event("R1", "tok", 1, 2, "start",
          "{\"host\":\"h\",\"step\":10,\"from\":{\"attempt\":1,\"epoch\":1}}");
    event("R1", "tok", 0, 0, "cancel", "{\"by\":\"me\"}");
    ingest(l, 2, 0, "restarted and cancelled");
    tap_str(state_of(l, "R1", "tok"), "running", "a cancel counts once the process has ended");
    event("R1", "tok", 1, 2, "end",
          "{\"state\":\"failed\",\"exit\":1,\"reason\":\"oom\",\"message\":\"killed\"}");
    ingest(l, 1, 0, "failed");
    tap_str(state_of(l, "R1", "tok"), "cancelled", "cancelled");
    event("R1", "tok", 2, 0, "submit",
          "{\"token\":\"T2\",\"backend\":\"local\",\"spec_id\":\"s0\"}");
    event("R1", "tok", 2, 1, "start", "{\"from\":{\"attempt\":1,\"epoch\":2}}");
    event("R1", "tok", 2, 1, "input", "{\"name\":\"input\",\"path\":\"/c.txt\",\"sha256\":\"cc\"}");
    event("R1", "tok", 2, 1, "artifact",
          "{\"name\":\"shards\",\"path\":\"runs/R1/tok/2.1/out/"
          "shards\",\"kind\":\"shards\",\"sha256\":\"aaaaaaaa11\",\"bytes\":5}");
    event("R1", "tok", 2, 1, "end", "{\"state\":\"done\",\"exit\":0}");
    ingest(l, 5, 0, "another attempt");
    tap_str(state_of(l, "R1", "tok"), "done", "done");
    event("R1", "tok", 0, 0, "stage", "{\"kind\":\"tokenize\",\"seq\":0,\"spec_id\":\"s0b\"}");
    ingest(l, 1, 0, "an edited stage");
    tap_str(state_of(l, "R1", "tok"), "waiting", "done under another spec is not done");
    event("R1", "tok", 0, 0, "stage", STAGE_TOK);
    ingest(l, 1, 0, "edited back");
    tap_str(state_of(l, "R1", "tok"), "done", "done again");
    ingest(l, 0, 0, "nothing new");
    event("R1", NULL, 0, 0, "note", "{\"text\":\"looks good\",\"by\":\"me\"}");
    event("R1", "tok", 2, 1, "node_strike", "{\"host\":\"h\",\"cause\":\"ECC\"}");
    /* Two that decided at once say the same; the first event stands. */
    event("R1", NULL, 0, 0, "rung", "{\"rung\":1,\"step\":5,\"kept\":[2],\"ended\":[1]}");
    event("R1", NULL, 0, 0, "rung", "{\"rung\":1,\"step\":6,\"kept\":[2],\"ended\":[1]}");
    event("R1", "tok", 2, 1, "future_kind", "{\"anything\":[1]}");
    ingest(l, 5, 0, "notes, strikes, rungs and kinds to come");
}

/* Kinds that come from outside a start. */
static void test_observed(lf_ledger *l)
{
    event("R3", NULL, 0, 0, "run", "{\"project\":\"p\",\"name\":\"third\"}");
    event("R3", "s", 0, 0, "stage", "{\"kind\":\"k\",\"seq\":0,\"spec_id\":\"x\"}");
    event("R3", "s", 1, 0, "submit", "{\"token\":\"t1\",\"backend\":\"slurm\",\"spec_id\":\"x\"}");
    ingest(l, 3, 0, "a run of a scheduler");
    event("R3", "s", 1, 0, "adopt", "{\"jobid\":\"77\",\"by\":\"tick\"}");
    ingest(l, 1, 0, "a lost answer");
    lf_err err = LF_ERR_INIT;
    tap_str(ask(l, "SELECT jobid AS v FROM attempt WHERE token = 't1'"), "77",
            "an adopted job's id");
    event("R3", "s", 1, 0, "observed", "{\"state\":\"pending\",\"raw\":\"PENDING\"}");
    ingest(l, 1, 0, "seen in the queue");
    tap_str(state_of(l, "R3", "s"), "pending", "changes nothing");
    event("R3", "s", 1, 1, "start", "{}");
    ingest(l, 1, 0, "started");
    tap_str(state_of(l, "R3", "s"), "running", "running");
    event("R3", "s", 1, 0, "observed",
          "{\"state\":\"failed\",\"raw\":\"NODE_FAIL\",\"reason\":\"node\"}");
    ingest(l, 1, 0, "its node failed");
    tap_str(state_of(l, "R3", "s"), "failed",
            "what nobody could record is known from the scheduler");
    event("R3", "s", 1, 2, "start", "{}");
    event("R3", "s", 1, 1, "requeue", "{\"cause\":\"node\",\"jobid\":\"77\"}");
    ingest(l, 2, 0, "run again");
    tap_str(state_of(l, "R3", "s"), "running", "a later start is stronger");
    event("R3", "s", 1, 2, "end", "{\"state\":\"stopped\",\"exit\":75}");
    ingest(l, 1, 0, "stopped");
    tap_str(state_of(l, "R3", "s"), "pending", "at a checkpoint");
    event("R3", "s", 1, 0, "observed", "{\"state\":\"cancelled\",\"raw\":\"CANCELLED\"}");
    event("R3", "s", 0, 0, "strike", "{\"host\":\"n9\",\"cause\":\"ecc\"}");
    event("R3", NULL, 0, 0, "tag", "{\"tag\":\"paper\",\"by\":\"me\"}");
    event("R3", NULL, 0, 0, "tag", "{\"tag\":\"draft\"}");
    event("R3", NULL, 0, 0, "tag", "{\"tag\":\"draft\",\"remove\":true}");
    ingest(l, 5, 0, "cancelled in the queue, a strike, tags");
    tap_str(state_of(l, "R3", "s"), "cancelled", "cancelled while it waited");
    json_t *tags = lf_ledger_tags(l, "R3", &err);
    tap_i64((int64_t)json_array_size(tags), 1, "a tag that was taken off is off");
    tap_str(json_string_value(json_object_get(json_array_get(tags, 0), "tag")), "paper",
            "the other is there");
    json_decref(tags);
    json_t *q = lf_ledger_sql(l, "SELECT cause FROM requeue WHERE run = 'R3'", &err);
    tap_i64((int64_t)json_array_size(q), 1, "requeues are counted");
    json_decref(q);
    event("R3", "s", 1, 0, "observed", "{\"state\":\"fine\"}");
    ingest(l, 0, 1, "a word that is no state is refused");
    lf_db_exec(l, "DELETE FROM problem", NULL);
    char path[2200];
    snprintf(path, sizeof path, "%s/runs/R3", root);
    lf_io_remove_tree(path, &err);
    static const char *const all[] = {"run", "stage",   "attempt", "segment",  "event",
                                      "tag", "requeue", "adopt",   "observed", "node_strike"};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        char sql[100];
        snprintf(sql, sizeof sql, "DELETE FROM %s WHERE run = 'R3'", all[i]);
        lf_db_exec(l, sql, &err);
    }
    tap_rc(err.rc, 0, &err, NULL, "and the rest of the test goes on without it");
}

static void test_train(lf_ledger *l)
{
    event("R1", "train", 1, 0, "submit",
          "{\"token\":\"T3\",\"backend\":\"local\",\"spec_id\":\"s1\"}");
    event("R1", "train", 1, 1, "start", "{}");
    event("R1", "train", 1, 1, "input",
          "{\"name\":\"data\",\"path\":\"runs/R1/tok/2.1/out/shards\",\"sha256\":\"aaaaaaaa11\"}");
    metrics("runs/R1/train/1.1/metrics", 0, 3000, 10);
    event("R1", "train", 1, 1, "artifact",
          "{\"name\":\"ckpt\",\"role\":\"checkpoint\",\"path\":\"runs/R1/train/1.1/out/checkpoints/"
          "step-2500\",\"step\":2500,"
          "\"sha256\":\"bbbbbbbb22\"}");
    ingest(l, 4, 0, "training");
#define LOSS   " FROM metric WHERE run = 'R1' AND key = 'loss'"
#define POINTS " FROM metric_point WHERE metric = (SELECT id" LOSS ")"
    tap_str(ask(l, "SELECT n AS v FROM metric_epoch WHERE metric = (SELECT id" LOSS ")"), "3000",
            "records");
    tap_str(ask(l, "SELECT last_step AS v" LOSS), "2999", "last step");
    tap_f64(strtod(ask(l, "SELECT min AS v" LOSS), NULL), 10.0 / 3000, 0, "best");
    tap_str(ask(l, "SELECT max_step AS v" LOSS), "0", "worst step");
    tap_str(ask(l, "SELECT count(*) AS v FROM metric"), "2", "text members are no metrics");
    tap_str(ask(l, "SELECT count(*) AS v" POINTS), "1500",
            "3,000 records are thinned to every second");
    tap_str(ask(l, "SELECT step AS v" POINTS " AND i = 2"), "2", "stride 2");

    /* Killed at step 3000, resumed from 2500 in the next epoch with other values. */
    event("R1", "train", 1, 2, "start", "{\"step\":2500,\"from\":{\"attempt\":1,\"epoch\":1}}");
    metrics("runs/R1/train/1.2/metrics", 2500, 2700, 1e6);
    event("R1", "train", 1, 2, "artifact",
          "{\"name\":\"checkpoint\",\"path\":\"runs/R1/train/1.2/out/"
          "checkpoint\",\"step\":2700,\"sha256\":\"cccccccc33\"}");
    event("R1", "train", 1, 2, "end", "{\"state\":\"done\",\"exit\":0,\"step\":2700}");
    ingest(l, 3, 0, "resumed");
    tap_str(ask(l, "SELECT last_step AS v" LOSS), "2699", "the later start's last step");
    tap_str(ask(l, "SELECT count(*) AS v" POINTS " AND epoch = 2"), "100",
            "its points are thinned likewise");
}

static void test_queries(lf_ledger *l)
{
    lf_err err = LF_ERR_INIT;
    json_t *rows = lf_ledger_runs(l, NULL, &err), *r = json_array_get(rows, 0);
    tap_str(json_string_value(json_object_get(r, "state")), "done", "state of the run");
    tap_i64(json_integer_value(json_object_get(r, "n_done")), 2, "stages done");
    json_decref(rows);
    char *id = lf_ledger_find_run(l, "first", &err);
    tap_str(id, "R1", "by name");
    free(id);
    id = lf_ledger_find_run(l, "R", &err);
    tap_str(id, "R1", "by prefix");
    free(id);
    id = lf_ledger_find_run(l, NULL, &err);
    tap_str(id, "R1", "the newest");
    free(id);
    tap_ok(!lf_ledger_find_run(l, "frist", &err), "a typo");
    tap_rc(err.rc, LF_ENOENT, &err, "no run \"frist\"; did you mean \"first\"?", "is answered");
    tap_str(ask(l, "SELECT config_text AS v FROM run"), "[pipeline]\n", "configuration");
    tap_str(ask(l, "SELECT from_stage AS v FROM edge WHERE to_stage = 'train'"), "tok",
            "what train waits for");
    tap_str(ask(l, "SELECT coalesce(step_to, step_from) AS v FROM segment WHERE stage = 'train' "
                   "ORDER BY epoch DESC"),
            "2700", "its step");
    tap_str(ask(l, "SELECT json_extract(options, '$.vocab_size') AS v FROM stage WHERE stage = "
                   "'tok'"),
            "4096", "options");
    tap_str(ask(l, "SELECT count(*) AS v FROM attempt WHERE stage = 'tok'"), "2", "attempts");
    tap_str(ask(l, "SELECT count(*) AS v FROM segment WHERE stage = 'tok' AND attempt = 1"), "2",
            "segments");
    tap_str(ask(l, "SELECT reason AS v FROM segment WHERE stage = 'tok' AND epoch = 2"), "oom",
            "reason");
    tap_str(ask(l, "SELECT attempt AS v FROM attempt WHERE token = 'T2'"), "2", "by token");
    tap_str(ask(l, "SELECT cause AS v FROM node_strike"), "ECC", "strike");
    tap_str(ask(l, "SELECT count(*) || ' ' || step || kept || ended AS v FROM rung"), "1 5[2][1]",
            "a rung is decided once");
    rows = lf_ledger_notes(l, NULL, &err);
    tap_i64((int64_t)json_array_size(rows), 1, "note");
    json_decref(rows);
    tap_str(ask(l, "SELECT count(*) AS v FROM event"), "28", "events");
}

static void test_lineage(lf_ledger *l)
{
    lf_err err = LF_ERR_INIT;
    json_t *o = lf_ledger_lineage(l, "cccccccc", &err);
    tap_ok(o != NULL, "lineage %s", err.text);
    json_t *by = json_object_get(o, "made_by"), *from = json_object_get(o, "from");
    tap_str(json_string_value(json_object_get(by, "kind")), "pretrain", "made by");
    tap_i64(json_integer_value(json_object_get(json_object_get(from, "artifact"), "step")), 2500,
            "continued from");
    json_t *in = json_array_get(json_object_get(from, "inputs"), 0),
           *up = json_object_get(in, "lineage");
    tap_str(json_string_value(json_object_get(json_object_get(up, "made_by"), "stage")), "tok",
            "which read what tok made");
    in = json_array_get(json_object_get(up, "inputs"), 0);
    tap_str(json_string_value(json_object_get(in, "path")), "/c.txt", "from a file outside");
    tap_ok(json_is_null(json_object_get(in, "lineage")), "where the chain ends");
    json_decref(o);
    tap_ok(!lf_ledger_lineage(l, "dddddddd", &err), "an unknown artifact");
    tap_rc(err.rc, LF_ENOENT, &err, "no artifact \"dddddddd\"", "says so");
}

static void test_sql(lf_ledger *l)
{
    static const char *const bad[] = {"DELETE FROM run",
                                      "SELECT 1; SELECT 2",
                                      "PRAGMA journal_mode = wal",
                                      "ATTACH ':memory:' AS m",
                                      "",
                                      "SELEC 1",
                                      "CREATE TABLE x (a)",
                                      "BEGIN",
                                      "SELECT load_extension('x')"};
    lf_err err = LF_ERR_INIT;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        json_t *r = lf_ledger_sql(l, bad[i], &err);
        tap_ok(!r, "refused: %s (%s)", bad[i], err.text);
        json_decref(r);
        lf_err_clear(&err);
    }
    json_t *r = lf_ledger_sql(l, "SELECT count(*) AS n FROM run;  ", &err);
    tap_i64(json_integer_value(json_object_get(json_array_get(r, 0), "n")), 1, "a query");
    json_decref(r);
}

static void test_rebuild(lf_ledger *l, const char *db)
{
    lf_err err = LF_ERR_INIT;
    char path[1100];
    char *before = dump(l);
    tap_rc(lf_ledger_backup(l, fmt_path(path, sizeof path, tap_tmpdir(), "backup.db"), &err), 0,
           &err, NULL, "backup");
    tap_rc(lf_ledger_backup(l, path, &err), LF_EEXIST, &err, "exists already", "not over another");
    lf_ledger *b = lf_ledger_open(path, 0, &err);
    char *copy = b ? dump(b) : NULL;
    tap_str(copy, before, "the backup is equal");
    lf_ledger_close(b);
    free(copy);
    lf_ledger_ingested got = {0};
    tap_rc(lf_ledger_rebuild(db, root, 0, NULL, &got, &err), 0, &err, NULL, "rebuild");
    tap_i64(got.events, 28, "events");
    tap_i64(got.records, 3200, "records");
    b = lf_ledger_open(db, LF_LEDGER_WRITE, &err);
    copy = b ? dump(b) : NULL;
    tap_str(copy, before, "rebuilt from the run directories: equal");
    free(copy);
    json_t *f = lf_ledger_check(b, NULL, &err);
    tap_i64((int64_t)json_array_size(f), 0, "nothing wrong inside");
    json_decref(f);
    f = lf_ledger_check(b, root, &err);
    tap_i64((int64_t)json_array_size(f), 1, "three artifacts that were never written, in one line");
    tap_str(json_string_value(json_array_get(f, 0)),
            "run R1: 3 artifacts are not there, the first is runs/R1/tok/2.1/out/shards; restore "
            "them, or let `loong-flow resume` make them again where they are needed",
            "said so");
    json_decref(f);
    event("R1", NULL, 0, 0, "gone", "{\"path\":\"runs/R1/tok/2.1/out/shards\",\"why\":\"purge\"}");
    ingest(b, 1, 0, "gone");
    f = lf_ledger_check(b, root, &err);
    const char *two = json_string_value(json_array_get(f, 0));
    tap_ok(two && strstr(two, ": 2 artifacts are not there") != NULL,
           "known to be gone is no finding");
    json_decref(f);
    lf_ledger_close(b);
    fmt_path(path, sizeof path, tap_tmpdir(), "l.db.old");
    tap_ok(lf_io_exists(path), "the old ledger is kept");
    free(before);
}

/* The same files, arriving last first, ingested one by one, with the metrics in pieces: the same
 * rows. */
static void test_order(const char *db)
{
    lf_err err = LF_ERR_INIT;
    char other[1100], other_db[1100], from[2200], to[2200];
    lf_ledger *a = lf_ledger_open(db, 0, &err);
    char *want = dump(a);
    json_t *paths = lf_ledger_sql(a, "SELECT path FROM event ORDER BY id DESC", &err), *v;
    size_t i;
    lf_ledger_close(a);
    fmt_path(other, sizeof other, tap_tmpdir(), "other");
    lf_ledger *b = lf_ledger_open(fmt_path(other_db, sizeof other_db, tap_tmpdir(), "other.db"),
                                  LF_LEDGER_WRITE, &err);
    static const char *const files[] = {"runs/R1/train/1.2/metrics", "runs/R1/train/1.1/metrics"};
    for (int f = 0; f < 2; f++) {
        lf_buf data;
        lf_buf_init(&data);
        lf_io_read_file(fmt_path(from, sizeof from, root, files[f]), 1 << 24, &data, &err);
        fmt_path(to, sizeof to, other, files[f]);
        *strrchr(to, '/') = '\0';
        lf_io_mkdirs(to, 0755, &err);
        fmt_path(to, sizeof to, other, files[f]);
        /* Cut at places that are not record boundaries. */
        for (size_t n = 0; n < data.len;) {
            n = n + 40001 < data.len ? n + 40001 : data.len;
            lf_io_replace(to, data.data, n, 0644, &err);
            if (lf_ledger_ingest(b, other, &everything, NULL, &err) < 0)
                tap_diag("%s", err.text);
        }
        lf_buf_fini(&data);
    }
    json_array_foreach(paths, i, v)
    {
        const char *rel = json_string_value(json_object_get(v, "path"));
        lf_buf data;
        lf_buf_init(&data);
        lf_io_read_file(fmt_path(from, sizeof from, root, rel), 1 << 20, &data, &err);
        fmt_path(to, sizeof to, other, rel);
        *strrchr(to, '/') = '\0';
        lf_io_mkdirs(to, 0755, &err);
        fmt_path(to, sizeof to, other, rel);
        lf_io_publish(to, data.data, data.len, 0444, &err);
        lf_ledger_ingest(b, other, &everything, NULL, &err);
        lf_buf_fini(&data);
    }
    tap_rc(err.rc, 0, &err, NULL, "backwards and in pieces");
    char *got = dump(b);
    tap_ok(strcmp(got, want) == 0, "gives the same rows");
    if (strcmp(got, want) != 0) {
        size_t k = 0;
        while (got[k] == want[k])
            k++;
        tap_diag("got  %.300s\nwant %.300s", got + (k > 150 ? k - 150 : 0),
                 want + (k > 150 ? k - 150 : 0));
    }
    free(got);
    free(want);
    json_decref(paths);
    lf_ledger_close(b);
}

static void bad_file(const char *rel_dir, const char *name, const char *text)
{
    lf_err err = LF_ERR_INIT;
    char dir[1600], path[2200];
    lf_io_mkdirs(fmt_path(dir, sizeof dir, root, rel_dir), 0755, &err);
    lf_io_replace(fmt_path(path, sizeof path, dir, name), text, strlen(text), 0644, &err);
}

static void test_bad_files(const char *db)
{
    lf_err err = LF_ERR_INIT;
    lf_ledger *l = lf_ledger_open(db, LF_LEDGER_WRITE, &err);
    static const char *const spool = "runs/R2/spool";
#define ID(n) "01ARZ3NDEKTSV4RRFFQ69G5FA" n
    bad_file(spool, ID("0") "-run.json", "{");
    bad_file(spool, ID("1") "-run.json",
             "{\"lf_event\":2,\"id\":\"" ID(
                 "1") "\",\"t\":1,\"run\":\"R2\",\"kind\":\"run\",\"data\":{\"project\":\"p\"}}");
    bad_file(spool, ID("2") "-run.json",
             "{\"lf_event\":1,\"id\":\"" ID(
                 "2") "\",\"t\":1,\"run\":\"R3\",\"kind\":\"run\",\"data\":{\"project\":\"p\"}}");
    bad_file(spool, ID("3") "-run.json",
             "{\"lf_event\":1,\"id\":\"" ID(
                 "2") "\",\"t\":1,\"run\":\"R2\",\"kind\":\"run\",\"data\":{\"project\":\"p\"}}");
    bad_file(spool, ID("4") "-run.json",
             "{\"lf_event\":1,\"id\":\"" ID(
                 "4") "\",\"t\":1,\"run\":\"R2\",\"kind\":\"run\",\"data\":{}}");
    bad_file("runs/R2/s/1.1/spool", ID("5") "-end.json",
             "{\"lf_event\":1,\"id\":\"" ID(
                 "5") "\",\"t\":1,\"run\":\"R2\",\"stage\":\"s\",\"attempt\":1,\"epoch\":1,"
                      "\"kind\":\"end\",\"data\":{\"state\":\"great\"}}");
    bad_file(
        "runs/R2/s/1.1/spool", ID("6") "-artifact.json",
        "{\"lf_event\":1,\"id\":\"" ID(
            "6") "\",\"t\":1,\"run\":\"R2\",\"stage\":\"s\",\"attempt\":1,\"epoch\":1,"
                 "\"kind\":\"artifact\",\"data\":{\"name\":\"x\",\"path\":\"runs/../../etc\"}}");
    bad_file("runs/R2/s/1.1/spool", ID("7") "-end.json",
             "{\"lf_event\":1,\"id\":\"" ID(
                 "7") "\",\"t\":1,\"run\":\"R2\",\"stage\":\"s\",\"attempt\":1,\"epoch\":2,"
                      "\"kind\":\"end\",\"data\":{\"state\":\"done\"}}");
    bad_file(spool, ID("8") "-run.json.1-2-3.tmp", "{");
    bad_file(spool, "hello.json", "{");
    bad_file("runs/R2/s/1.1", "metrics", "not a framed file at all, and long enough");
    bad_file(spool, ID("9") "-run.json",
             "{\"lf_event\":1,\"id\":\"" ID(
                 "9") "\",\"t\":1,\"run\":\"R2\",\"kind\":\"run\",\"data\":{\"project\":\"p\"}}");
    ingest(l, 1, 9, "nine bad files do not stop a good one");
    ingest(l, 0, 0, "and are reported once");
    json_t *p = lf_ledger_sql(l, "SELECT path, text FROM problem ORDER BY path", &err), *v;
    static const char *const want[] = {"damaged",       "speaks of",           "event format 2",
                                       "speaks of",     "its name says",       "no \"project\"",
                                       "unknown state", "leaves the data root"};
    size_t i, found = 0;
    json_array_foreach(p, i, v)
    {
        for (size_t k = 0; k < sizeof want / sizeof want[0]; k++)
            if (k != 3 && strstr(json_string_value(json_object_get(v, "text")), want[k])) {
                found++;
                break;
            }
        tap_diag("%s: %s", json_string_value(json_object_get(v, "path")),
                 json_string_value(json_object_get(v, "text")));
    }
    tap_i64((int64_t)json_array_size(p), 9, "problems");
    tap_i64((int64_t)found, 8, "with their reasons");
    json_decref(p);
    p = lf_ledger_sql(l, "SELECT count(*) AS n FROM segment WHERE run = 'R2'", &err);
    tap_i64(json_integer_value(json_object_get(json_array_get(p, 0), "n")), 0,
            "a refused event leaves no trace");
    json_decref(p);
    lf_ledger_close(l);
}

static void test_event_write(void)
{
    lf_err err = LF_ERR_INIT;
    lf_event ev = {.run = "R9", .kind = "submit"};
    char dir[1100];
    fmt_path(dir, sizeof dir, tap_tmpdir(), "w");
    tap_rc(lf_event_write(dir, &ev, 0755, 0644, &err), LF_EFORMAT, &err, "must name its attempt",
           "a submit of nothing");
    ev = (lf_event){.run = "../x", .kind = "note"};
    tap_rc(lf_event_write(dir, &ev, 0755, 0644, &err), LF_EFORMAT, &err, "plain names",
           "a name that leaves");
    json_t *d = json_pack("{s:i}", "text", 3);
    ev = (lf_event){.run = "R9", .kind = "note", .data = d};
    tap_rc(lf_event_write(dir, &ev, 0755, 0644, &err), LF_EFORMAT, &err,
           "\"text\" has the wrong type", "a wrong type");
    json_decref(d);
    tap_ok(!lf_io_exists(dir), "nothing was written");
}

/* ---- what a later start supersedes ---- */

static void record(const char *rel, const char *text)
{
    lf_err err = LF_ERR_INIT;
    char path[1600];
    lf_frame_writer *w = lf_frame_writer_open(fmt_path(path, sizeof path, root, rel), &err);
    if (!w || lf_frame_append(w, text, strlen(text), &err) < 0)
        tap_bail("%s", err.text);
    lf_frame_writer_close(w, &err);
}

/* Steps with a loss of 100 - step, every `valid` steps a validation. */
static void steps(const char *rel, int from, int to, int valid)
{
    for (int s = from; s <= to; s++) {
        char text[100];
        int n = snprintf(text, sizeof text, "{\"step\":%d,\"loss\":%d.5", s, 100 - s);
        if (s % valid == 0)
            n += snprintf(text + n, sizeof text - (size_t)n, ",\"valid_loss\":%d.5", 200 - s);
        snprintf(text + n, sizeof text - (size_t)n, "}");
        record(rel, text);
    }
}

#define OF(key) " FROM metric WHERE run = 'R5' AND key = '" key "'"
#define COUNT(key)                                                                                 \
    "SELECT sum(n) AS v FROM metric_epoch WHERE metric = (SELECT id" OF(key) ") AND n > 0"
#define FURTHEST(key)                                                                              \
    "SELECT max(step) AS v FROM metric_point WHERE metric = (SELECT id" OF(key) ")"

static void check_superseded(lf_ledger *l, const char *last, const char *n)
{
    tap_str(ask(l, "SELECT last_step AS v" OF("loss")), last, "the last step");
    tap_str(ask(l, "SELECT min_step AS v" OF("loss")), last, "of the smallest value, too");
    tap_str(ask(l, COUNT("loss")), n, "records");
    tap_str(ask(l, FURTHEST("loss")), last, "no point is beyond");
    tap_str(ask(l, "SELECT count(*) AS v" OF("valid_loss")), "0",
            "nor a validation that was made there");
}

static void test_superseded(void)
{
    char was[sizeof root], path[1100];
    lf_err err = LF_ERR_INIT;
    snprintf(was, sizeof was, "%s", root);
    snprintf(root, sizeof root, "%s/superseded", tap_tmpdir());
    lf_ledger *l =
        lf_ledger_open(fmt_path(path, sizeof path, tap_tmpdir(), "s.db"), LF_LEDGER_WRITE, &err);
    event("R5", "train", 1, 1, "start", "{}");
    steps("runs/R5/train/1.1/metrics", 1, 20, 15);
    record("runs/R5/train/1.1/metrics", "{\"step\":20,\"valid_loss\":9.5}");
    ingest(l, 1, 0, "twenty steps, validated at 15 and 20");
    tap_str(ask(l, COUNT("valid_loss")), "2", "both validations");

    event("R5", "train", 1, 2, "start", "{}");
    record("runs/R5/train/1.2/metrics", "{\"step\":10,\"resumed\":true}");
    ingest(l, 1, 0, "the next start resumes at 10");
    check_superseded(l, "10", "10");
    steps("runs/R5/train/1.2/metrics", 11, 12, 15);
    ingest(l, 0, 0, "and makes two steps");
    check_superseded(l, "12", "12");
    steps("runs/R5/train/1.1/metrics", 21, 22, 15);
    ingest(l, 0, 0, "while the first, which does not know yet, makes two more");
    check_superseded(l, "12", "12");

    event("R5", "train", 1, 3, "start", "{}");
    steps("runs/R5/train/1.3/metrics", 6, 6, 15);
    ingest(l, 1, 0, "a third, which does not say where it resumes, begins with 6");
    check_superseded(l, "6", "6");
    tap_str(ask(l, "SELECT max AS v" OF("loss")), "99.5", "the first step is the first start's");
    event("R5", "train", 1, 4, "start", "{}");
    record("runs/R5/train/1.4/metrics", "{\"step\":6,\"resumed\":true}");
    record("runs/R5/train/1.4/metrics", "{\"step\":6,\"sample_tokens\":12}");
    ingest(l, 1, 0, "a fourth only measures step 6 again");
    check_superseded(l, "6", "6");
    ingest(l, 0, 0, "nothing new");

    char *before = dump(l);
    lf_ledger_close(l);
    l = lf_ledger_open(fmt_path(path, sizeof path, tap_tmpdir(), "s2.db"), LF_LEDGER_WRITE, &err);
    ingest(l, 4, 0, "all of it at once");
    char *after = dump(l);
    tap_str(after, before, "gives the same rows");
    free(before);
    free(after);
    lf_ledger_close(l);
    snprintf(root, sizeof root, "%s", was);
}

int main(void)
{
    lf_err err = LF_ERR_INIT;
    char db[1100];
    snprintf(root, sizeof root, "%s/data", tap_tmpdir());
    lf_ledger *l =
        lf_ledger_open(fmt_path(db, sizeof db, tap_tmpdir(), "l.db"), LF_LEDGER_WRITE, &err);
    if (!l)
        tap_bail("%s", err.text);
    tap_ok(!lf_ledger_find_run(l, NULL, &err), "an empty ledger has no run");
    tap_rc(err.rc, LF_ENOENT, &err, "nothing was run here yet", "and says so");
    TAP(3, ingest(l, 0, 0, "no data root yet"));
    TAP(42, test_states(l));
    TAP(38, test_observed(l));
    TAP(15, test_train(l));
    TAP(19, test_queries(l));
    TAP(8, test_lineage(l));
    TAP(10, test_sql(l));
    TAP(15, test_rebuild(l, db));
    lf_ledger_close(l);
    TAP(2, test_order(db));
    TAP(52, test_superseded());
    TAP(9, test_bad_files(db));
    TAP(4, test_event_write());
    return tap_done();
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Speed of a large project's ledger and queries; tests/bench/ledger.sh drives it.
 *
 *   ledger_bench make DIR RUNS ATTEMPTS RECORDS   a project with RUNS runs of one stage, ATTEMPTS
 *                                                 attempts each, and RECORDS metric records of five
 *                                                 keys per attempt; files are not synced
 *   ledger_bench event DIR N                      N times: write an event, then ingest and publish
 *                                                 it; medians
 *   ledger_bench time N COMMAND...                median wall time of N runs of a command
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "db/event.h"
#include "db/ledger.h"
#include "engine/base/frame.h"
#include "engine/base/hash.h"
#include "engine/base/id.h"
#include "engine/base/io.h"
#include "engine/base/lock.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/base/sys.h"

#define PROJECT_ID "01M8000000000000000000000P"
#define SPEC       "00000000000000000000000000000000000000000000000000000000000005ec"

static const char *const keys[] = {"loss", "lr", "grad_norm", "tokens_per_s", "memory_bytes"};

static void die(const lf_err *err)
{
    fprintf(stderr, "ledger_bench: %s\n", err->text);
    exit(1);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, size_t n)
{
    qsort(v, n, sizeof *v, by_value);
    return v[n / 2];
}

/* ---- making a project ---- */

static void put(const char *path, const void *data, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
    if (fd < 0 || write(fd, data, n) != (ssize_t)n || close(fd) < 0) {
        fprintf(stderr, "ledger_bench: %s: %s\n", path, strerror(errno));
        exit(1);
    }
}

static void put_text(const char *dir, const char *name, const char *text)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    put(path, text, strlen(text));
}

static void make_dir(char *out, const char *parent, const char *name)
{
    snprintf(out, PATH_MAX, "%.3800s/%.200s", parent, name);
    if (mkdir(out, 0750) < 0 && errno != EEXIST) {
        fprintf(stderr, "ledger_bench: %s: %s\n", out, strerror(errno));
        exit(1);
    }
}

/* One event file; data is the text of its object. */
static void put_event(const char *parent, const char *run, const char *kind, int attempt, int epoch,
                      double t, const char *data)
{
    char id[LF_ULID_SIZE], spool[PATH_MAX], name[128], text[2048];
    lf_err err = LF_ERR_INIT;
    if (lf_ulid(id, &err) < 0)
        die(&err);
    make_dir(spool, parent, "spool");
    int n = snprintf(text, sizeof text,
                     "{\"lf_event\":1,\"id\":\"%s\",\"kind\":\"%s\",\"run\":\"%s\",\"t\":%.3f", id,
                     kind, run, t);
    if (strcmp(kind, "run") != 0)
        n += snprintf(text + n, sizeof text - (size_t)n, ",\"stage\":\"train\"");
    if (attempt > 0)
        n += snprintf(text + n, sizeof text - (size_t)n, ",\"attempt\":%d", attempt);
    if (epoch > 0)
        n += snprintf(text + n, sizeof text - (size_t)n, ",\"epoch\":%d", epoch);
    snprintf(text + n, sizeof text - (size_t)n, ",\"data\":%s}", data);
    snprintf(name, sizeof name, "%s-%s.json", id, kind);
    put_text(spool, name, text);
}

static void put_metrics(const char *dir, int attempt, int records)
{
    char path[PATH_MAX], text[400];
    lf_buf b;
    lf_buf_init(&b);
    for (int i = 0; i < records; i++) {
        int step = attempt * records + i + 1;
        int n = snprintf(text, sizeof text, "{\"step\":%d,\"t\":%.3f", step, 1.7e9 + step);
        for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++)
            n += snprintf(text + n, sizeof text - (size_t)n, ",\"%s\":%.7g", keys[k],
                          (double)(k + 1) / (double)(step + 3));
        n += snprintf(text + n, sizeof text - (size_t)n, "}");
        uint32_t len = (uint32_t)n, crc = lf_crc32c(0, text, (size_t)n);
        const unsigned char head[8] = {(unsigned char)len,         (unsigned char)(len >> 8),
                                       (unsigned char)(len >> 16), (unsigned char)(len >> 24),
                                       (unsigned char)crc,         (unsigned char)(crc >> 8),
                                       (unsigned char)(crc >> 16), (unsigned char)(crc >> 24)};
        lf_buf_add(&b, head, sizeof head);
        lf_buf_add(&b, text, (size_t)n);
    }
    snprintf(path, sizeof path, "%.4000s/metrics", dir);
    put(path, b.data, b.len);
    lf_buf_fini(&b);
}

static void put_attempt(const char *stage, const char *run, int attempt, int attempts, int records)
{
    char dir[PATH_MAX], name[64], text[1500];
    bool last = attempt == attempts;
    double t = 1.7e9 + attempt * 1000;
    snprintf(name, sizeof name, "%d.%d", attempt, attempt);
    make_dir(dir, stage, name);
    put_event(stage, run, "submit", attempt, 0, t,
              "{\"token\":\"0123456789abcdef0123456789abcdef\",\"backend\":\"slurm\","
              "\"cluster\":\"c\",\"submit_cmd\":\"sbatch --parsable\",\"spec_id\":\"" SPEC
              "\",\"req\":{\"nodes\":4,\"gpus\":8}}");
    put_event(dir, run, "start", attempt, attempt, t + 1,
              "{\"host\":\"node17\",\"pid\":4711,\"boot_id\":\"b\",\"proc_start\":1}");
    snprintf(text, sizeof text,
             "{\"state\":\"%s\",\"exit\":%d,\"signal\":0,\"reason\":\"%s\",\"message\":\"\","
             "\"step\":%d}",
             last ? "done" : "failed", last ? 0 : 1, last ? "" : "node", attempt * records);
    put_event(dir, run, "end", attempt, attempt, t + 900, text);
    snprintf(text, sizeof text,
             "{\"name\":\"checkpoint\",\"path\":\"runs/%s/train/%d.%d/out/"
             "checkpoint\",\"kind\":\"checkpoint\","
             "\"sha256\":\"%064d\",\"bytes\":123456789,\"files\":9,\"step\":%d,\"spec_id\":\"" SPEC
             "\",\"meta\":{}}",
             run, attempt, attempt, attempt, attempt * records);
    put_event(dir, run, "artifact", attempt, attempt, t + 899, text);
    put_metrics(dir, attempt - 1, records);
    put_text(dir, "log", "lf-train: a line\nlf-train: another line\n");
    snprintf(text, sizeof text,
             "{\"lf_end\":1,\"state\":\"%s\",\"exit\":%d,\"signal\":0,\"class\":\"%s\",\"reason\":"
             "\"\",\"log\":[],"
             "\"t_start\":%.1f,\"t_end\":%.1f}",
             last ? "done" : "failed", last ? 0 : 1, last ? "" : "node", t, t + 900);
    put_text(dir, "end.json", text);
    snprintf(name, sizeof name, "attempt.%d.json", attempt);
    snprintf(text, sizeof text,
             "{\"lf_attempt\":1,\"rev\":1,\"run\":\"%s\",\"stage\":\"train\",\"attempt\":%d,"
             "\"backend\":\"local\","
             "\"spec_id\":\"" SPEC "\",\"spec\":{\"kind\":\"work\",\"spec_version\":1,\"options\":{"
             "},\"inputs\":{}},\"t\":%.1f,"
             "\"token\":\"0123456789abcdef0123456789abcdef\",\"accepted\":[],\"fresh\":false}",
             run, attempt, t);
    put_text(stage, name, text);
    snprintf(name, sizeof name, "epoch.%d", attempt);
    snprintf(
        text, sizeof text,
        "{\"lf_epoch\":1,\"kind\":\"claim\",\"attempt\":%d,\"epoch\":%d,\"t\":%.1f,\"token\":"
        "\"0123456789abcdef\","
        "\"process\":{\"host\":\"elsewhere\",\"boot\":\"b\",\"pid\":1,\"pidns\":1,\"start\":1}}",
        attempt, attempt, t);
    put_text(stage, name, text);
}

static void put_run(const char *runs, int attempts, int records)
{
    char id[LF_ULID_SIZE], dir[PATH_MAX], sub[PATH_MAX], text[3000];
    lf_err err = LF_ERR_INIT;
    if (lf_ulid(id, &err) < 0)
        die(&err);
    make_dir(dir, runs, id);
    make_dir(sub, dir, "rev.1");
    snprintf(text, sizeof text,
             "{\"lf_plan\":1,\"run\":\"%s\",\"rev\":1,\"name\":\"bench\",\"data_dir\":\"data\","
             "\"project_id\":\"" PROJECT_ID
             "\",\"scheduler\":\"local\",\"share\":\"none\",\"created\":1700000000.5,\"stages\":[{"
             "\"name\":\"train\",\"kind\":\"work\","
             "\"spec_id\":\"" SPEC "\",\"spec_version\":1,\"deps\":[],\"inputs\":[],\"outputs\":["
             "\"result\"],\"options\":{},\"types\":{},"
             "\"spec\":{\"kind\":\"work\",\"spec_version\":1,\"options\":{},\"inputs\":{}},"
             "\"identity\":{},\"numeric\":{},\"operational\":{},"
             "\"after\":[],\"grace_s\":120,\"plan\":{\"steps\":%d}}]}",
             id, attempts * records);
    put_text(sub, "plan.json", text);
    snprintf(text, sizeof text,
             "{\"name\":\"bench\",\"project\":\"" PROJECT_ID
             "\",\"config_text\":\"%0*d\",\"user\":\"me\",\"host\":\"h\"}",
             1000, 0);
    put_event(dir, id, "run", 0, 0, 1.7e9, text);
    make_dir(sub, dir, "train");
    put_event(sub, id, "stage", 0, 0, 1.7e9,
              "{\"kind\":\"work\",\"seq\":0,\"spec_id\":\"" SPEC "\",\"outputs\":[\"result\"],"
              "\"options\":{\"steps\":\"1000\",\"learning_rate\":\"0.0003\"}}");
    for (int a = 1; a <= attempts; a++)
        put_attempt(sub, id, a, attempts, records);
}

static void make_project(const char *dir, int runs, int attempts, int records)
{
    char dot[PATH_MAX], data[PATH_MAX], sub[PATH_MAX], hex[LF_HASH_HEX];
    uint8_t digest[LF_HASH_BYTES];
    make_dir(dot, dir, ".loong");
    put_text(dot, "project.json",
             "{\"lf_project\":1,\"id\":\"" PROJECT_ID "\",\"created\":\"2026-01-01T00:00:00Z\"}\n");
    make_dir(sub, dot, "roots");
    lf_hash_buf(digest, "data", 4, NULL);
    lf_hash_hex(hex, digest);
    hex[16] = '\0';
    put_text(sub, hex, "data");
    make_dir(data, dir, "data");
    make_dir(sub, data, PROJECT_ID);
    make_dir(data, sub, "runs");
    for (int r = 0; r < runs; r++)
        put_run(data, attempts, records);
}

/* ---- one event ---- */

static char *newest_run(const char *data)
{
    lf_err err = LF_ERR_INIT;
    char db[PATH_MAX];
    snprintf(db, sizeof db, "%s/.loong/ledger.db", data);
    lf_ledger *l = lf_ledger_open(db, 0, &err);
    char *run = l ? lf_ledger_find_run(l, NULL, &err) : NULL;
    if (!run)
        die(&err);
    lf_ledger_close(l);
    return run;
}

/* What a command does that has something to tell. run NULL: as a command that does not know which
 * run was touched. */
static double ingest_once(const char *project, const char *root, const char *run, int64_t want)
{
    char db[PATH_MAX], lock_path[PATH_MAX];
    lf_err err = LF_ERR_INIT;
    lf_ledger_ingested got;
    snprintf(db, sizeof db, "%s/.loong/ledger.db", project);
    snprintf(lock_path, sizeof lock_path, "%s/.loong/lock", project);
    double t = lf_now_s();
    lf_lock *lock = lf_lock_acquire(lock_path, NULL, &err);
    lf_ledger *l = lock ? lf_ledger_open(db, LF_LEDGER_WRITE, &err) : NULL;
    const lf_ledger_ingest_opts o = {.run = run};
    if (!l || lf_ledger_ingest(l, root, &o, &got, &err) < 0 || lf_ledger_publish(l, &err) < 0)
        die(&err);
    lf_ledger_close(l);
    lf_lock_release(lock);
    if (got.events != want) {
        fprintf(stderr, "ledger_bench: %lld events were read, not %lld\n", (long long)got.events,
                (long long)want);
        exit(1);
    }
    return (lf_now_s() - t) * 1000;
}

static double read_snapshot(const char *project)
{
    char db[PATH_MAX];
    lf_err err = LF_ERR_INIT;
    snprintf(db, sizeof db, "%s/.loong/ledger.db", project);
    double t = lf_now_s();
    lf_ledger *l = lf_ledger_open(db, LF_LEDGER_NOLOCK, &err);
    json_t *rows = l ? lf_ledger_sql(l, "SELECT count(*) AS n FROM note", &err) : NULL;
    if (!rows || !lf_ledger_is_snapshot(l))
        die(&err);
    json_decref(rows);
    lf_ledger_close(l);
    return (lf_now_s() - t) * 1000;
}

static void bench_event(const char *project, int n)
{
    char root[PATH_MAX], spool[PATH_MAX];
    double *known = calloc((size_t)n, sizeof *known), *unknown = calloc((size_t)n, sizeof *unknown);
    double *snapshot = calloc((size_t)n, sizeof *snapshot);
    char *run = newest_run(project);
    lf_err err = LF_ERR_INIT;
    if (!known || !unknown || !snapshot)
        exit(1);
    snprintf(root, sizeof root, "%s/data/" PROJECT_ID, project);
    snprintf(spool, sizeof spool, "%.4000s/runs/%.26s/spool", root, run);
    for (int i = 0; i < 2 * n; i++) {
        json_t *d = json_pack("{s:s}", "text", "bench");
        lf_event ev = {.run = run, .kind = "note", .data = d};
        if (lf_event_write(spool, &ev, 0750, 0640, &err) < 0)
            die(&err);
        json_decref(d);
        if (i % 2 == 0)
            known[i / 2] = ingest_once(project, root, run, 1);
        else
            unknown[i / 2] = ingest_once(project, root, NULL, 1);
        if (i % 2 == 0)
            snapshot[i / 2] = read_snapshot(project);
    }
    printf("one event, run known: ingest and publish %.1f ms; run not known: %.1f ms; a query of "
           "the snapshot %.1f ms\n",
           median(known, (size_t)n), median(unknown, (size_t)n), median(snapshot, (size_t)n));
    free(known);
    free(unknown);
    free(snapshot);
    free(run);
}

/* ---- a command ---- */

static double run_once(char **argv)
{
    double t = lf_now_s();
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY);
        dup2(null, 1);
        execvp(argv[0], argv);
        _exit(127);
    }
    if (pid < 0 || waitpid(pid, &status, 0) < 0 || !WIFEXITED(status) || WEXITSTATUS(status) > 1) {
        fprintf(stderr, "ledger_bench: %s failed\n", argv[0]);
        exit(1);
    }
    return (lf_now_s() - t) * 1000;
}

int main(int argc, char **argv)
{
    int64_t n[3] = {0, 0, 0};
    for (int i = 0; i < 3 && argc > i + 3; i++)
        if (strcmp(argv[1], "make") == 0 && lf_parse_i64(&n[i], argv[i + 3], NULL) < 0)
            argc = 0;
    if (argc == 6 && strcmp(argv[1], "make") == 0) {
        make_project(argv[2], (int)n[0], (int)n[1], (int)n[2]);
    } else if (argc == 4 && strcmp(argv[1], "event") == 0 &&
               lf_parse_i64(&n[0], argv[3], NULL) == 0 && n[0] > 0) {
        bench_event(argv[2], (int)n[0]);
    } else if (argc > 3 && strcmp(argv[1], "time") == 0 &&
               lf_parse_i64(&n[0], argv[2], NULL) == 0 && n[0] > 0) {
        double *v = calloc((size_t)n[0], sizeof *v);
        for (int i = 0; v && i < n[0]; i++)
            v[i] = run_once(argv + 3);
        printf("%.1f\n", v ? median(v, (size_t)n[0]) : -1);
        free(v);
    } else {
        fprintf(stderr, "usage: ledger_bench make DIR RUNS ATTEMPTS RECORDS | event DIR N | time N "
                        "COMMAND...\n");
        return 2;
    }
    return 0;
}

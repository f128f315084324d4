/* SPDX-License-Identifier: Apache-2.0
 *
 * The test stages' program, called lf-work or lf-join: honours the contract of a stage (options,
 * plan, metrics, checkpoints, stop requests, artifacts, exit codes) and does nothing else. Its
 * result is a function of its identity options and inputs alone, so an interrupted run can be
 * compared with an uninterrupted one.
 */
#include "config.h"

#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/artifact.h"
#include "engine/base/cause.h"
#include "engine/base/ending.h"
#include "engine/base/fence.h"
#include "engine/base/frame.h"
#include "engine/base/hash.h"
#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/opt.h"
#include "engine/base/str.h"
#include "engine/base/sys.h"
#include "tests/flow/fake.h"

struct work {
    lf_optset *o;
    const char *out;
    char state[LF_HASH_HEX];
    int64_t step, steps, made; /* made: by this process */
    lf_frame_writer *metrics;
};

static void chain(char state[LF_HASH_HEX], const char *text)
{
    uint8_t d[LF_HASH_BYTES];
    lf_buf b;
    lf_buf_init(&b);
    lf_buf_addf(&b, "%s|%s", state, text);
    lf_hash_buf(d, b.data, b.len, NULL);
    lf_hash_hex(state, d);
    lf_buf_fini(&b);
}

/* A file of many zeros that takes no room, with the tree hash that reading it would give. */
static int add_big(lf_artifact *a, const char *dir, int64_t bytes, lf_err *err)
{
    size_t n = (size_t)((bytes + (int64_t)LF_HASH_LEAF - 1) / (int64_t)LF_HASH_LEAF),
           last = (size_t)bytes - (n - 1) * LF_HASH_LEAF;
    uint8_t root[LF_HASH_BYTES], *zeros = calloc(LF_HASH_LEAF, 1),
                                 *leaves = calloc(n, LF_HASH_BYTES);
    char *path = lf_path_join(dir, "big.bin", err);
    int rc = zeros == NULL || leaves == NULL || path == NULL
                 ? LF_ENOMEM
                 : lf_io_write_file(path, "", 0, 0640, err);
    for (size_t i = 0; rc == 0 && i < n; i++)
        if (i == 0 || i == n - 1)
            lf_hash_buf(leaves + i * LF_HASH_BYTES, zeros, i == n - 1 ? last : LF_HASH_LEAF, NULL);
        else
            memcpy(leaves + i * LF_HASH_BYTES, leaves, LF_HASH_BYTES);
    if (rc == 0 && truncate(path, bytes) < 0)
        rc = lf_fail_errno(err, "%s", path);
    if (rc == 0)
        rc = lf_tree_hash_root(root, (uint64_t)bytes, leaves, n, err);
    if (rc == 0)
        rc = lf_artifact_add(a, "big.bin", bytes, root, err);
    free(zeros);
    free(leaves);
    free(path);
    return rc;
}

/* How the count ended early, as a training stage says it in the manifest. */
static int tell_end(lf_artifact *a, const struct work *w)
{
    if (w->step < w->steps && w->step == lf_optset_int(w->o, "patience_at"))
        return json_object_set_new(
            a->meta, "out_of_patience",
            json_pack("{s:I,s:I,s:s,s:s,s:s,s:i,s:I}", "at", (json_int_t)w->step, "of",
                      (json_int_t)w->steps, "unit", "steps", "metric", "valid_loss", "measurements",
                      "validations", "stale", 2, "best_step", (json_int_t)w->step - 2));
    return w->step < w->steps &&
           json_object_set_new(a->meta, "ended",
                               json_pack("{s:I,s:I,s:I,s:s,s:s}", "ended_at_step",
                                         (json_int_t)w->step, "at", (json_int_t)w->step, "of",
                                         (json_int_t)w->steps, "unit", "steps", "by", "request"));
}

/* w: NULL for what is no count. */
static int publish_result(const char *out, const char *name, const char *text, const struct work *w,
                          lf_err *err)
{
    const int64_t big = w != NULL ? lf_optset_int(w->o, "big_bytes") : 0;
    lf_artifact a;
    char *dir = lf_path_join(out, name, err), *file = NULL;
    memset(&a, 0, sizeof a);
    int rc = dir == NULL ? LF_ENOMEM : lf_io_mkdirs(dir, 0750, err);
    if (rc == 0)
        file = lf_path_join(dir, "data.txt", err);
    if (rc == 0)
        rc = lf_io_replace(file, text, strlen(text), 0640, err);
    if (rc == 0)
        rc = lf_artifact_init(&a, "text", err);
    if (rc == 0)
        rc = lf_artifact_add_hashed(&a, dir, "data.txt", err);
    if (rc == 0 && big > 0)
        rc = add_big(&a, dir, big, err);
    if (rc == 0 && w != NULL && tell_end(&a, w))
        rc = LF_ENOMEM;
    if (rc == 0)
        rc = lf_artifact_publish(&a, dir, err);
    lf_artifact_fini(&a);
    free(dir);
    free(file);
    return rc;
}

/* The newest checkpoint of the earlier starts: ck-<step> holds the state. */
static void restore(struct work *w)
{
    for (size_t i = 0; i < lf_optset_count(w->o, "resume_from"); i++)
        for (int64_t s = w->steps; s > w->step; s--) {
            char path[4096];
            lf_buf b;
            lf_buf_init(&b);
            snprintf(path, sizeof path, "%s/ck-%lld", lf_optset_str_at(w->o, "resume_from", i),
                     (long long)s);
            if (lf_io_read_file(path, 1024, &b, NULL) == 0 && b.len == LF_HASH_HEX - 1) {
                memcpy(w->state, b.data, LF_HASH_HEX);
                w->step = s;
                fprintf(stderr, "lf-work: continues at step %lld\n", (long long)s);
            }
            lf_buf_fini(&b);
        }
}

/* 0 of a stage that nobody launched as one of several. */
static int my_rank(void)
{
    const char *rank = getenv("PMIX_RANK");
    return rank != NULL ? atoi(rank) : 0;
}

static int fail_now(const struct work *w)
{
    switch (lf_optset_choice(w->o, "fail_how")) {
    case 1:
        abort();
    case 2:
        fprintf(stderr, "lf-work: %s/big: cannot write: No space left on device\n", w->out);
        return 1;
    case 3:
        fprintf(stderr, "lf-work: corpus.txt: invalid UTF-8 at byte 17\n");
        return 1;
    case 4:
        fprintf(stderr, "lf-work: step %lld: the loss is non-finite\n", (long long)w->step);
        return 1;
    case 5:
        fprintf(stderr, "lf-work: --factor is wrong\n");
        return 2;
    case 6:
        for (;;)
            sleep(1); /* hears nothing: signals only set a flag that nobody looks at */
    case 7:
        fprintf(stderr, "lf-work: caf\xe9.txt: No such file or directory\n");
        return 1;
    case 8:
        fprintf(stderr, "lf-work: step %lld: Cannot allocate memory\n", (long long)w->step);
        return 1;
    case 9:
        fprintf(stderr, "NVRM: Xid (PCI:0000:01:00): 79\nlf-work: the device is gone\n");
        return 1;
    case 10:
        /* words that mean something in an error, here in ordinary text that a stage may well
         * print */
        for (int i = 0; i < 20; i++)
            fprintf(stderr,
                    "document %d: the archive was corrupt and truncated, and its hash of no use\n",
                    i);
        fprintf(stderr, "lf-work: one\nlf-work: two\nlf-work: three\n");
        return 1;
    case 11: /* what it says stands above what its log looks like */
        fprintf(stderr, "lf-work: corpus.txt: invalid UTF-8 at byte 17\n");
        lf_cause_say("lf-work", "config", "steps = 5 does not fit corpus.txt");
        return 1;
    case 12: /* rank 1 is killed, the others wait for their launcher to end them */
        if (my_rank() == 1)
            raise(SIGKILL);
        sleep(100);
        return 1;
    default:
        fprintf(stderr, "lf-work: something \x1b[31mred\x1b[0m <b>failed</b>\n");
        return 1;
    }
}

static int one_step(struct work *w, lf_err *err)
{
    char text[128], path[4096];
    usleep((useconds_t)lf_optset_int(w->o, "step_time") * 1000);
    w->step++;
    w->made++;
    chain(w->state, "step");
    /* What a sweep compares depends on the settings. A value that is not finite (note = nan) is
     * left out, as the training stages do. */
    const char *note = lf_optset_str(w->o, "note");
    const double off = lf_optset_float(w->o, "factor") - 2, add = note != NULL ? atof(note) : 0;
    const double score = off * off + 1.0 / (double)w->step + 0.01 * add;
    const int64_t every = lf_optset_int(w->o, "valid_every");
    const double loss = 10.0 / (double)w->step;
    int n = snprintf(text, sizeof text, "{\"step\":%lld,\"loss\":%.6f", (long long)w->step, loss);
    if (every > 0 && w->step % every == 0)
        n += snprintf(text + n, sizeof text - (size_t)n, ",\"valid_loss\":%.6f", loss + 1);
    n += snprintf(text + n, sizeof text - (size_t)n, ",\"t\":%.3f", lf_wall_s());
    if (isfinite(score) || w->step == 1)
        n += snprintf(text + n, sizeof text - (size_t)n, ",\"score\":%.6f",
                      isfinite(score) ? score : 1.0);
    n += snprintf(text + n, sizeof text - (size_t)n, "}");
    int rc = lf_frame_append(w->metrics, text, (size_t)n, err);
    snprintf(path, sizeof path, "%s/ck-%lld", w->out, (long long)w->step);
    if (rc == 0)
        rc = lf_io_publish(path, w->state, LF_HASH_HEX - 1, 0640, err);
    return rc;
}

static bool asked_to_end(void)
{
    const char *request = getenv(LF_ENDING_ENV);
    return request != NULL && lf_ending_read(request) != LF_ENDING_NO;
}

/* Until the test has done what it does while this stage runs, or somebody wants it to end. */
static void hold(const struct work *w)
{
    const char *file = lf_optset_str(w->o, "hold");
    const bool due = file && w->made >= lf_optset_int(w->o, "hold_at");
    while (due && !lf_stop_requested() && !asked_to_end() && lf_io_exists(file))
        usleep(20000);
}

static int count_up(struct work *w, lf_err *err)
{
    int64_t fail_at = lf_optset_int(w->o, "fail_at");
    while (w->step < w->steps) {
        hold(w);
        if (lf_stop_requested()) {
            usleep((useconds_t)lf_optset_int(w->o, "save_time") * 1000);
            fprintf(stderr, "lf-work: stopped at step %lld (%s)\n", (long long)w->step,
                    lf_stop_reason());
            return 75;
        }
        if (w->step > 0 && (asked_to_end() || w->step == lf_optset_int(w->o, "patience_at")))
            break;
        if (fail_at > 0 && w->step + 1 == fail_at)
            return fail_now(w);
        if (one_step(w, err) < 0)
            return 1;
        fprintf(stderr, "lf-work: step %lld of %lld\n", (long long)w->step, (long long)w->steps);
    }
    if (publish_result(w->out, "result", w->state, w, err) < 0)
        return 1;
    return 0;
}

/* A file has one writer, so every rank but the first keeps its metrics beside the stage's. */
static lf_frame_writer *open_metrics(const char *path, lf_err *err)
{
    char own[4096];
    if (my_rank() == 0)
        return lf_frame_writer_open(path, err);
    snprintf(own, sizeof own, "%s.%d", path, my_rank());
    return lf_frame_writer_open(own, err);
}

/* As a reader of a checkpoint or of shards does. */
static int check_hash(const char *dir, lf_err *err)
{
    lf_artifact a = {0};
    uint8_t is[LF_HASH_BYTES];
    char *path = lf_path_join(dir, "data.txt", err);
    int rc = path == NULL ? LF_ENOMEM : lf_artifact_load(&a, dir, NULL, err);
    const lf_artifact_file *f = rc == 0 ? lf_artifact_find(&a, "data.txt") : NULL;
    if (f != NULL)
        rc = lf_tree_hash_file(is, NULL, path, err);
    if (f != NULL && rc == 0 && memcmp(is, f->sha256, sizeof is) != 0)
        rc = lf_fail(err, LF_EFORMAT, "the hash of %s is not that in its manifest", path);
    lf_artifact_fini(&a);
    free(path);
    return rc;
}

static int mix_inputs(char state[LF_HASH_HEX], const lf_optset *o, const char *option, lf_err *err)
{
    for (size_t i = 0; i < lf_optset_count(o, option); i++) {
        lf_buf b, p;
        lf_buf_init(&b);
        lf_buf_init(&p);
        lf_buf_adds(&p, lf_optset_str_at(o, option, i));
        int rc = lf_io_read_file(p.data, 1 << 20, &b, NULL);
        if (rc < 0) { /* an artifact of another stage */
            rc = check_hash(p.data, err);
            lf_buf_adds(&p, "/data.txt");
            if (rc == 0)
                rc = lf_io_read_file(p.data, 1 << 20, &b, err);
        }
        chain(state, b.data);
        lf_buf_fini(&b);
        lf_buf_fini(&p);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int print_plan(const lf_optset *o, const char *kind)
{
    if (strcmp(kind, "work") == 0 && lf_optset_int(o, "fail_at") == 1 &&
        lf_optset_choice(o, "fail_how") == 5) {
        fprintf(stderr, "lf-work: --factor is wrong\n");
        return 2;
    }
    if (strcmp(kind, "join") == 0) {
        printf("{\"stage\":\"join\",\"bytes\":{\"total\":1000},\"disk_bytes\":100,\"outputs\":["
               "\"joined\"],\"notes\":[]}\n");
        return 0;
    }
    printf(
        "{\"stage\":\"work\",\"parameters\":1234567,\"bytes\":{\"params\":1000,\"device\":%lld,"
        "\"total\":%lld},\"flops_per_step\":1e9,"
        "%s\"steps\":%lld,\"tokens\":1000,\"disk_bytes\":%lld,\"outputs\":[\"result\"],\"notes\":["
        "\"a fake\"]}\n",
        (long long)(lf_optset_choice(o, "device") == 2 ? lf_optset_int(o, "needs_gpu_bytes") : 0),
        (long long)lf_optset_int(o, "needs_bytes"),
        lf_optset_bool(o, "measure") ? "\"measured_flops\":2e9," : "",
        (long long)lf_optset_int(o, "steps"), (long long)lf_optset_int(o, "needs_disk"));
    return 0;
}

static int run_work(lf_optset *o, lf_err *err)
{
    struct work w = {.o = o, .out = lf_optset_str(o, "out"), .steps = lf_optset_int(o, "steps")};
    char text[64];
    memset(w.state, '0', sizeof w.state - 1);
    snprintf(text, sizeof text, "factor %.6f", lf_optset_float(o, "factor"));
    chain(w.state, text);
    if (mix_inputs(w.state, o, "input", err) < 0)
        return 1;
    for (int64_t i = 0; i < lf_optset_int(o, "warnings"); i++)
        lf_log(1, "%s", i % 2 == 0 ? "9000 sequences were replaced" : "it is late");
    restore(&w);
    w.metrics = open_metrics(lf_optset_str(o, "metrics"), err);
    if (w.metrics == NULL)
        return 1;
    int code = count_up(&w, err);
    lf_frame_writer_close(w.metrics, NULL);
    return code;
}

static int run_join(lf_optset *o, lf_err *err)
{
    char state[LF_HASH_HEX] = "join";
    const char *file = lf_optset_str(o, "hold");
    lf_progress p; /* of a stage that counts no steps: how far its loop is */
    lf_progress_begin(&p, "joining", "rows", 0, 200);
    usleep(1100000 *
           (file != NULL)); /* the file of the progress is a second old, so it is renewed */
    lf_progress_update(&p, 90);
    while (file != NULL && lf_io_exists(file) && !lf_stop_requested())
        usleep(20000);
    if (mix_inputs(state, o, "parts", err) < 0)
        return 1;
    /* Results of a stage that counts no steps, such as an evaluation, are one record at step 0. */
    lf_frame_writer *m = lf_frame_writer_open(lf_optset_str(o, "metrics"), err);
    static const char result[] = "{\"step\":0,\"score\":0.5}";
    if (m == NULL || lf_frame_append(m, result, sizeof result - 1, err) < 0 ||
        lf_frame_writer_close(m, err) < 0)
        return 1;
    return publish_result(lf_optset_str(o, "out"), "joined", state, NULL, err) < 0 ? 1 : 0;
}

int main(int argc, char **argv)
{
    const char *base = strrchr(argv[0], '/') != NULL ? strrchr(argv[0], '/') + 1 : argv[0];
    bool join = strstr(base, "join") != NULL;
    lf_err err = LF_ERR_INIT;
    lf_log_init(join ? "lf-join" : "lf-work", 2);
    lf_optset *o = lf_optset_create(join ? &lf_fake_join : &lf_fake_work, &err);
    int code = 1;
    if (o == NULL || lf_optset_parse_argv(o, argc, argv, NULL, NULL, &err) < 0)
        code = 2;
    else if (lf_optset_bool(o, "version"))
        code = puts("fake") < 0;
    else if (lf_optset_bool(o, "plan"))
        code = print_plan(o, join ? "join" : "work");
    else if (lf_stop_install(lf_optset_str(o, "stop_file"), &err) == 0 &&
             lf_fence_install(getenv(LF_FENCE_ENV), &err) == 0)
        code = join ? run_join(o, &err) : run_work(o, &err);
    if (err.rc != 0)
        fprintf(stderr, "lf-%s: %s\n", join ? "join" : "work", err.text);
    lf_optset_destroy(o);
    return code;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Crash scenarios of real stages: lf-tokenize on a tiny corpus, lf-pretrain for four steps. The
 * program runs as a child of the scenario, so its own lines that call fsync are put to the test;
 * what it was given lies outside the traced directory.
 */
#include "config.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/frame.h"
#include "engine/base/hash.h"
#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/store/ckpt.h"
#include "tests/fault/crash_test.h"

#define MAX_ARGS 8

static const char *program(const char *name)
{
    const char *build = getenv("LF_BUILDDIR");
    return at(build ? build : ".", name);
}

/* A path beside the traced directory, which stays when that goes. */
static const char *beside(const char *dir, const char *name)
{
    char parent[4096];
    snprintf(parent, sizeof parent, "%.*s", (int)(strrchr(dir, '/') - dir), dir);
    return at(parent, name);
}

/* Run to the end, words to a file that is named in the error. */
static int spawn(const char *exe, const char *const args[MAX_ARGS], const char *log)
{
    char *argv[MAX_ARGS + 2];
    int n = 0, status = 0;
    argv[n++] = strdup(exe);
    for (int i = 0; i < MAX_ARGS && args[i]; i++)
        argv[n++] = strdup(args[i]);
    argv[n] = NULL;
    pid_t pid = fork();
    if (pid == 0) {
        int fd = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        dup2(fd, 1);
        dup2(fd, 2);
        execv(exe, argv);
        _exit(127);
    }
    int rc = pid < 0 || waitpid(pid, &status, 0) != pid
                 ? lf_fail_errno(&crash_err, "cannot run %s", exe)
                 : 0;
    if (rc == 0 && status != 0)
        rc = lf_fail(&crash_err, LF_EIO, "%s ended with status %d, see %s", exe, status, log);
    while (n > 0)
        free(argv[--n]);
    return rc;
}

/* A file there, made when it is missing. */
static const char *given(const char *dir, const char *name, const char *text)
{
    const char *path = beside(dir, name);
    if (!lf_io_exists(path)) {
        FILE *f = fopen(path, "w");
        need(f && fputs(text, f) >= 0 && fclose(f) == 0
                 ? 0
                 : lf_fail_errno(&crash_err, "cannot write %s", path));
    }
    return path;
}

static bool is_there(const char *dir)
{
    enum lf_artifact_state state;
    return lf_artifact_state(&state, dir, NULL) == 0 && state == LF_ARTIFACT_PRESENT;
}

/* What is published says with which options it was made: the record is whole before the work
 * begins. */
static int has_made_by(const char *dir, const char *name)
{
    char file[100];
    snprintf(file, sizeof file, "out/.%s.made_by.json", name);
    json_t *o = lf_json_load_file(at(dir, file), 1 << 20, &crash_err);
    int rc = json_is_object(json_object_get(o, "options"))
                 ? 0
                 : lf_fail(&crash_err, LF_EFORMAT, "%s is there, its %s is not", name, file);
    json_decref(o);
    return rc;
}

/* ---- lf-tokenize: a vocabulary, two groups of shards, their records, two manifests ---- */

static int tokenize(const char *dir)
{
    char text[24000] = "";
    size_t n = 0;
    unsigned x = 7;
    while (n < sizeof text - 64) { /* words of few letters; a line is a document */
        x = x * 1103515245u + 12345u;
        n += (size_t)snprintf(text + n, sizeof text - n, "%.*s%c", (int)(2 + (x >> 16) % 5),
                              "etaoinshrdlu" + (x >> 20) % 7, (x >> 24) % 9 ? ' ' : '\n');
    }
    const char *const args[MAX_ARGS] = {
        "--out", at(dir, "out"), "--config",
        given(dir, "tokenize.ini",
              "[stage]\ndoc_split = line\nvocab_size = 270\nvalid_fraction = 0.2\n"
              "shard_tokens = 6k\nthreads = 1\n"),
        given(dir, "text.txt", text)};
    return spawn(program("stages/lf-tokenize"), args, beside(dir, "tokenize.log"));
}

static void tokenize_run(const char *dir)
{
    need(tokenize(dir));
    mark(1);
}

/* A record in progress/ is believed when the stage goes on: its shards must be what it says. */
static int check_record(const char *dir, const char *path)
{
    json_t *o = lf_json_load_file(path, 1 << 20, &crash_err),
           *shards = json_object_get(o, "shards"), *s;
    size_t i;
    int rc = o ? 0 : -1;
    json_array_foreach(shards, i, s)
    {
        uint8_t digest[LF_HASH_BYTES];
        char hex[LF_HASH_HEX];
        int64_t bytes = 0;
        const char *name = json_string_value(json_object_get(s, "path")),
                   *want = json_string_value(json_object_get(s, "tree_sha256"));
        if (rc == 0)
            rc = lf_tree_hash_file(digest, &bytes, at(at(dir, "out/shards"), name ? name : "?"),
                                   &crash_err);
        if (rc == 0) {
            lf_hash_hex(hex, digest);
            rc = want && strcmp(hex, want) == 0
                     ? 0
                     : lf_fail(&crash_err, LF_EFORMAT, "%s is not what its record says", name);
        }
    }
    if (rc == 0 && json_array_size(shards) == 0)
        rc = lf_fail(&crash_err, LF_EFORMAT, "%s names no shard", path);
    json_decref(o);
    return rc;
}

static int tokenize_check(const char *dir, int promised)
{
    enum lf_artifact_state shards, vocab;
    if (whole(at(dir, "out/shards"), &shards) || whole(at(dir, "out/tokenizer"), &vocab))
        return -1;
    int records = 0;
    for (int i = 0; i < 10; i++) {
        char name[64];
        snprintf(name, sizeof name, "out/progress/%05d.json", i);
        if (!lf_io_exists(at(dir, name)))
            break;
        records++;
        if (check_record(dir, at(dir, name)))
            return -1;
    }
    if ((records > 0 || shards == LF_ARTIFACT_PRESENT) && vocab != LF_ARTIFACT_PRESENT)
        return lf_fail(&crash_err, LF_EFORMAT, "shards without their tokenizer");
    if (shards == LF_ARTIFACT_PRESENT && has_made_by(dir, "shards"))
        return -1;
    if (shards == LF_ARTIFACT_PRESENT && records < 2)
        return lf_fail(&crash_err, LF_EFORMAT,
                       "shards are published, but only %d records are there", records);
    return promised && shards != LF_ARTIFACT_PRESENT
               ? lf_fail(&crash_err, LF_EFORMAT, "the shards are gone")
               : 0;
}

static int tokenize_recover(const char *dir)
{
    int rc = tokenize(dir);
    return rc == 0 && !is_there(at(dir, "out/shards"))
               ? lf_fail(&crash_err, LF_EFORMAT, "no shards after another run")
               : rc;
}

/* ---- lf-pretrain: four steps, a checkpoint after each, one kept, metrics ---- */

#define STEPS 4

static int pretrain(const char *dir)
{
    char text[1024];
    const char *data = beside(dir, "data");
    if (!lf_io_exists(at(data, "manifest.json"))) {
        const char *const args[MAX_ARGS] = {"data", data, "30", "3"};
        int rc = spawn(program("tests/stage/train_tool"), args, beside(dir, "data.log"));
        if (rc)
            return rc;
    }
    snprintf(text, sizeof text,
             "[stage]\ndata = %s\nsteps = %d\nseq_length = 16\nsave_interval = 1\nsave_time = "
             "0\nkeep = 1\nvalid_tokens = 16\n"
             "threads = 1\n[model]\nfamily = gpt2\nlayers = 1\nhidden = 8\nheads = 1\nffn = "
             "8\nvocab = 64\nmax_positions = 16\n",
             data, STEPS);
    const char *const args[MAX_ARGS] = {"--out",     at(dir, "out"),
                                        "--metrics", at(dir, "metrics"),
                                        "--config",  given(dir, "pretrain.ini", text)};
    return spawn(program("stages/lf-pretrain"), args, beside(dir, "pretrain.log"));
}

static void pretrain_run(const char *dir)
{
    need(pretrain(dir));
    mark(1);
}

static int count_record(void *ctx, const char *payload, size_t n, int64_t offset, lf_err *e)
{
    int *count = ctx;
    char want[32];
    (void)offset;
    int k = snprintf(want, sizeof want, "{\"step\":%d,", ++*count);
    return n > (size_t)k && memcmp(payload, want, (size_t)k) == 0
               ? 1
               : lf_fail(e, LF_EFORMAT, "metrics: not record %d", *count);
}

/* One checkpoint: absent, or whole, of this step, with the metrics up to it on disk. */
static int one_checkpoint(const char *path, int step, int records, int *newest)
{
    enum lf_artifact_state state;
    if (whole(path, &state))
        return -1;
    if (state != LF_ARTIFACT_PRESENT)
        return 0;
    lf_ckpt *c = NULL;
    if (lf_ckpt_open(&c, path, 1, &crash_err))
        return -1;
    int64_t s = lf_ckpt_step(c);
    lf_ckpt_close(c);
    if (s != step || records < step)
        return lf_fail(&crash_err, LF_EFORMAT, "%s: step %lld, metrics of %d steps", path,
                       (long long)s, records);
    *newest = step > *newest ? step : *newest;
    return 0;
}

static int pretrain_check(const char *dir, int promised)
{
    int64_t offset = 0;
    int records = 0, newest = 0;
    if (lf_io_exists(at(dir, "metrics")) &&
        lf_frame_read(at(dir, "metrics"), &offset, count_record, &records, &crash_err))
        return -1;
    for (int s = 1; s <= STEPS; s++) {
        char *path = lf_ckpt_step_dir(at(dir, "out"), s, &crash_err);
        int rc = path ? one_checkpoint(path, s, records, &newest) : -1;
        free(path);
        if (rc)
            return rc;
    }
    if (one_checkpoint(at(dir, "out/checkpoint"), STEPS, records, &newest))
        return -1;
    if (is_there(at(dir, "out/checkpoint")) && has_made_by(dir, "checkpoint"))
        return -1;
    if (promised && !is_there(at(dir, "out/checkpoint")))
        return lf_fail(&crash_err, LF_EFORMAT, "the final checkpoint is gone");
    /* The record of step n is written after saving n - 1 began, which had waited for n - 2. */
    if (newest < records - 2)
        return lf_fail(&crash_err, LF_EFORMAT,
                       "step %d was reached, the newest checkpoint is of step %d", records, newest);
    return 0;
}

static int pretrain_recover(const char *dir)
{
    int rc = pretrain(dir);
    return rc == 0 ? pretrain_check(dir, 1) : rc;
}

const struct scenario crash_tokenize = {"tokenize", tokenize_run, tokenize_check, tokenize_recover,
                                        0};
/* The last two syncs are of metrics whose every record the final checkpoint has synced already.
 * They are for runs that end otherwise; that the line matters is shown by scenario frames. */
const struct scenario crash_pretrain = {"pretrain", pretrain_run, pretrain_check, pretrain_recover,
                                        2};

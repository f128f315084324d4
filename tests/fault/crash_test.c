/* SPDX-License-Identifier: Apache-2.0
 *
 * Every crash state of everything that publishes. A scenario runs once under preload.c, which
 * writes down all it did; then, for every point of the trace, every state that a crash may leave
 * (crash_fs.h) is built and checked: what was promised by then is there and whole, what is there is
 * whole, the rest is absent. To prove that the check has teeth, each fsync is left out in turn: for
 * every line of the code that calls fsync, leaving it out must make some state of some scenario
 * fail.
 *
 *     crash_test                      all scenarios
 *     crash_test --run NAME DIR       one scenario, in the traced child
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "config.h"
#include "engine/base/artifact.h"
#include "engine/base/frame.h"
#include "engine/base/io.h"
#include "engine/infer/lines.h"
#include "engine/store/ckpt.h"
#include "tests/fault/crash_fs.h"
#include "tests/fault/crash_test.h"
#include "tests/tap/tap.h"

lf_err crash_err;

void need(int rc)
{
    if (rc < 0) {
        fprintf(stderr, "scenario: %s\n", crash_err.text);
        exit(1);
    }
}

void mark(int n)
{
    char text[64];
    snprintf(text, sizeof text, "/lf-trace-mark/%d", n);
    (void)!access(text, F_OK);
}

const char *at(const char *dir, const char *name)
{
    static char path[8][4096];
    static int k;
    k = (k + 1) % 8;
    snprintf(path[k], sizeof path[k], "%s/%s", dir, name);
    return path[k];
}

/* ---- artifact: two files below a new directory, then the manifest ---- */

static void write_file(const char *path, char fill, size_t n)
{
    char buf[4096];
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0640);
    memset(buf, fill, sizeof buf);
    need(fd < 0 ? lf_fail_errno(&crash_err, "%s", path)
                : lf_io_write_all(fd, buf, n, path, &crash_err));
    close(fd);
}

static void artifact_run(const char *dir)
{
    lf_artifact a = {0};
    need(lf_io_mkdirs(at(dir, "out/art/sub"), 0750, &crash_err));
    write_file(at(dir, "out/art/one.bin"), 'a', 4000);
    write_file(at(dir, "out/art/sub/two.bin"), 'b', 100);
    need(lf_artifact_init(&a, "test", &crash_err));
    need(lf_artifact_add_hashed(&a, at(dir, "out/art"), "one.bin", &crash_err));
    need(lf_artifact_add_hashed(&a, at(dir, "out/art"), "sub/two.bin", &crash_err));
    need(lf_artifact_publish(&a, at(dir, "out/art"), &crash_err));
    mark(1);
    lf_artifact_fini(&a);
}

int whole(const char *dir, enum lf_artifact_state *state)
{
    lf_artifact a = {0};
    int rc = lf_artifact_state(state, dir, &crash_err);
    if (rc == 0 && *state != LF_ARTIFACT_ABSENT && *state != LF_ARTIFACT_PRESENT)
        return -1;
    if (rc == 0 && *state == LF_ARTIFACT_PRESENT) {
        rc = lf_artifact_load(&a, dir, NULL, &crash_err);
        if (rc == 0)
            rc = lf_artifact_check_hashes(&a, dir, 1, &crash_err);
    }
    lf_artifact_fini(&a);
    return rc;
}

static int artifact_check(const char *dir, int promised)
{
    enum lf_artifact_state state;
    if (whole(at(dir, "out/art"), &state))
        return -1;
    return promised >= 1 && state != LF_ARTIFACT_PRESENT ? -1 : 0;
}

/* ---- publish: a file that appears once, durably, in directories made for it ---- */

static void publish_run(const char *dir)
{
    need(lf_io_mkdirs(at(dir, "x/y"), 0750, &crash_err));
    need(lf_io_publish(at(dir, "x/y/done.json"), "{\"done\":1}", 10, 0640, &crash_err));
    mark(1);
    need(lf_io_replace(at(dir, "x/view"), "old!", 4, 0640, &crash_err));
    mark(2);
    need(lf_io_replace(at(dir, "x/view"), "new!", 4, 0640, &crash_err));
    mark(3);
}

static int holds(const char *path, const char *text)
{
    lf_buf b;
    lf_buf_init(&b);
    int ok = lf_io_read_file(path, 100, &b, NULL) == 0 && strcmp(b.data, text) == 0;
    lf_buf_fini(&b);
    return ok;
}

static int publish_check(const char *dir, int promised)
{
    const char *done = at(dir, "x/y/done.json"), *view = at(dir, "x/view");
    if (lf_io_exists(done) ? !holds(done, "{\"done\":1}") : promised >= 1)
        return -1;
    if (promised >= 3)
        return holds(view, "new!") ? 0 : -1;
    if (lf_io_exists(view) ? !holds(view, "old!") && !holds(view, "new!") : promised >= 2)
        return -1;
    return 0;
}

/* ---- checkpoints: two saves, then only the newest is kept ---- */

enum { ELEMENTS = 300 };

static void checkpoint_run(const char *dir)
{
    float v[ELEMENTS];
    const lf_ckpt_tensor t[] = {{.name = "model/a",
                                 .kind = "weight",
                                 .dtype = LF_H5_F32,
                                 .ndim = 1,
                                 .shape = {ELEMENTS},
                                 .data = v}};
    lf_ckpt_writer *w;
    need(lf_ckpt_writer_create(&w, t, 1, &(lf_ckpt_options){0}, &crash_err));
    for (int step = 1; step <= 2; step++) {
        json_t *state = json_pack("{s:i}", "step", step);
        char *path = lf_ckpt_step_dir(dir, step, &crash_err);
        for (int i = 0; i < ELEMENTS; i++)
            v[i] = (float)(i * step);
        need(lf_ckpt_save_begin(w, path, state, &crash_err));
        need(lf_ckpt_save_wait(w, NULL, &crash_err));
        mark(step);
        json_decref(state);
        free(path);
    }
    need(lf_ckpt_retain(dir, 1, 0, &crash_err));
    mark(3);
    lf_ckpt_writer_destroy(w);
}

/* The same by two writers, each of a part, and one of them publishes. */
static void parts_run(const char *dir)
{
    float v[ELEMENTS];
    lf_ckpt_writer *w[2];
    for (int i = 0; i < 2; i++) {
        const int64_t first = i ? 101 : 0, end = i ? ELEMENTS : 101;
        const lf_ckpt_tensor t[] = {{.name = "model/a",
                                     .kind = "weight",
                                     .dtype = LF_H5_F32,
                                     .ndim = 1,
                                     .shape = {ELEMENTS},
                                     .flat = {first, end},
                                     .data = v + first}};
        const lf_ckpt_options o = {.part = i, .parts = 2};
        need(lf_ckpt_writer_create(&w[i], t, 1, &o, &crash_err));
    }
    for (int step = 1; step <= 2; step++) {
        json_t *state = json_pack("{s:i}", "step", step);
        char *path = lf_ckpt_step_dir(dir, step, &crash_err);
        const char *receipts[2];
        for (int i = 0; i < ELEMENTS; i++)
            v[i] = (float)(i * step);
        for (int i = 0; i < 2; i++) {
            need(lf_ckpt_save_begin(w[i], path, state, &crash_err));
            need(lf_ckpt_save_wait(w[i], NULL, &crash_err));
            receipts[i] = lf_ckpt_save_receipt(w[i]);
        }
        need(lf_ckpt_publish(
            path,
            &(struct lf_ckpt_parts){.receipts = receipts, .n = 2, .state = state, .threads = 1},
            NULL, &crash_err));
        mark(step);
        json_decref(state);
        free(path);
    }
    need(lf_ckpt_retain(dir, 1, 0, &crash_err));
    mark(3);
    for (int i = 0; i < 2; i++)
        lf_ckpt_writer_destroy(w[i]);
}

static int checkpoint_at(const char *dir, int step)
{
    lf_ckpt *c;
    float v[ELEMENTS];
    if (lf_ckpt_open(&c, dir, 1, &crash_err))
        return -1;
    int rc = lf_ckpt_step(c) == step
                 ? lf_ckpt_read(c, lf_ckpt_find(c, "model/a", "weight"), NULL, NULL, v, &crash_err)
                 : -1;
    for (int i = 0; rc == 0 && i < ELEMENTS; i++)
        rc = v[i] == (float)(i * step) ? 0 : -1;
    lf_ckpt_close(c);
    return rc;
}

static int checkpoint_check(const char *dir, int promised)
{
    char *newest = NULL;
    int64_t step = 0;
    for (int s = 1; s <= 2; s++) {
        enum lf_artifact_state state;
        char *path = lf_ckpt_step_dir(dir, s, &crash_err);
        int rc = whole(path, &state);
        bool need_it = promised >= s && (s == 2 || promised == 1);
        if (rc == 0 && state == LF_ARTIFACT_PRESENT)
            rc = checkpoint_at(path, s);
        else if (rc == 0 && need_it)
            rc = -1;
        /* After retention came back, the first one is gone for good or, where its names survived
         * the crash, still whole. */
        free(path);
        if (rc)
            return -1;
    }
    int rc = lf_ckpt_find_newest(&newest, &step,
                                 &(struct lf_ckpt_search){.out_dirs = &dir, .n = 1, .max_step = -1},
                                 &crash_err);
    free(newest);
    return rc || (promised >= 1 && step < (promised > 2 ? 2 : promised)) ? -1 : 0;
}

/* ---- frames: five records, synced one by one ---- */

static void frames_run(const char *dir)
{
    char text[32];
    need(lf_io_mkdirs(at(dir, "m"), 0750, &crash_err));
    lf_frame_writer *w = lf_frame_writer_open(at(dir, "m/metrics"), &crash_err);
    need(w ? 0 : -1);
    for (int i = 1; i <= 5; i++) {
        int n = snprintf(text, sizeof text, "{\"step\":%d}", i);
        need(lf_frame_append(w, text, (size_t)n, &crash_err));
        need(lf_frame_sync(w, &crash_err));
        mark(i);
    }
    need(lf_frame_append(w, "{\"step\":6}", 10, &crash_err));
    need(lf_frame_writer_close(w, &crash_err)); /* syncs what nobody did */
    mark(6);
}

static int count_frame(void *ctx, const char *payload, size_t n, int64_t offset, lf_err *e)
{
    char text[32];
    int *count = ctx;
    (void)offset;
    (void)e;
    snprintf(text, sizeof text, "{\"step\":%d}", ++*count);
    return strlen(text) == n && memcmp(text, payload, n) == 0
               ? 1
               : lf_fail(e, LF_EFORMAT, "another record");
}

static int frames_check(const char *dir, int promised)
{
    int count = 0;
    int64_t offset = 0;
    if (!lf_io_exists(at(dir, "m/metrics")))
        return promised ? -1 : 0;
    return lf_frame_read(at(dir, "m/metrics"), &offset, count_frame, &count, &crash_err) ||
                   count < promised
               ? -1
               : 0;
}

/* ---- result lines: three, each synced, and a fourth that finishing syncs ---- */

static int check_line(void *arg, size_t index, const char *line, size_t len, lf_err *e)
{
    char text[32];
    (void)arg;
    snprintf(text, sizeof text, "line %zu", index);
    return len == strlen(text) && memcmp(line, text, len) == 0
               ? 0
               : lf_fail(e, LF_EFORMAT, "another line");
}

static void lines_run(const char *dir)
{
    lf_lines *l;
    size_t kept;
    need(lf_lines_open(
        &l,
        &(struct lf_lines_place){.dir = at(dir, "text"), .name = "out.jsonl", .check = check_line},
        &kept, &crash_err));
    for (int i = 0; i < 3; i++) {
        char text[32];
        int n = snprintf(text, sizeof text, "line %d\n", i);
        need(lf_lines_append(l, text, (size_t)n, &crash_err));
        need(lf_lines_sync(l, &crash_err));
        mark(i + 1);
    }
    need(lf_lines_append(l, "line 3\n", 7, &crash_err));
    need(lf_lines_finish(l, &crash_err));
    mark(4);
    lf_lines_close(l);
}

static int lines_check(const char *dir, int promised)
{
    lf_lines *l;
    size_t kept;
    if (lf_io_exists(at(dir, "text/out.jsonl")))
        return holds(at(dir, "text/out.jsonl"), "line 0\nline 1\nline 2\nline 3\n") ? 0 : -1;
    if (promised >= 4)
        return -1;
    if (lf_lines_open(&l,
                      &(struct lf_lines_place){
                          .dir = at(dir, "text"), .name = "out.jsonl", .check = check_line},
                      &kept, &crash_err))
        return -1;
    lf_lines_close(l);
    return kept < (size_t)promised ? -1 : 0;
}

/* ---- the harness ---- */

static const struct scenario artifact = {"artifact", artifact_run, artifact_check, NULL, 0};
static const struct scenario publish = {"publish", publish_run, publish_check, NULL, 0};
static const struct scenario checkpoint = {"checkpoint", checkpoint_run, checkpoint_check, NULL, 0};
static const struct scenario parts = {"parts", parts_run, checkpoint_check, NULL, 0};
static const struct scenario frames = {"frames", frames_run, frames_check, NULL, 0};
static const struct scenario lines = {"lines", lines_run, lines_check, NULL, 0};
static const struct scenario *const scenarios[] = {
    &artifact, &publish,      &checkpoint,   &parts,          &frames,
    &lines,    &crash_epochs, &crash_events, &crash_tokenize, &crash_pretrain};

/* Run a scenario in a traced child, which writes the trace to `file`. */
static void trace(const struct scenario *s, const char *self, const char *file)
{
    char dir[4096];
    lf_err e = LF_ERR_INIT;
    snprintf(dir, sizeof dir, "%s/%s.dir", tap_tmpdir(), s->name);
    if (lf_io_mkdirs(dir, 0750, &e))
        tap_bail("%s", e.text);
    pid_t pid = fork();
    if (pid == 0) {
        setenv("LD_PRELOAD", LF_TRACE_LIBRARY, 1);
        setenv("LF_TRACE", file, 1);
        setenv("LF_TRACE_ROOT", dir, 1);
        execl(self, self, "--run", s->name, dir, (char *)NULL);
        _exit(127);
    }
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) ||
        WEXITSTATUS(status) != 0)
        tap_bail("scenario %s failed (status %d)", s->name, status);
    (void)lf_io_remove_tree(dir, NULL);
}

enum { RECOVER_EVERY = 19 }; /* a program run again takes time */

static char state_root[64];

static void drop_state_root(void)
{
    (void)lf_io_remove_tree(state_root, NULL);
}

/* Where the trees of states stand: thousands of small ones, made and removed. A file system in
 * memory has no search for inodes that were not used lately. */
static const char *state_dir(void)
{
    if (!state_root[0]) {
        strcpy(state_root, "/dev/shm/lf-test-XXXXXX");
        if (!mkdtemp(state_root))
            return tap_tmpdir();
        atexit(drop_state_root);
    }
    return state_root;
}

/* Number of states that fail; *built counts the different ones. Stops at the first failure when
 * `first`. */
static int try_states(const struct scenario *s, crash_fs *fs, bool first, int *built)
{
    char dir[4096];
    int bad = 0, promised = 0;
    *built = 0;
    snprintf(dir, sizeof dir, "%s/%s.state", state_dir(), s->name);
    for (size_t i = 0; i < crash_fs_ops(fs); i++) {
        const char *m = crash_fs_step(fs, i);
        promised = m ? (int)strtol(m, NULL, 10) : promised;
        for (int state = 0; state < CRASH_STATES; state++) {
            if (!crash_fs_build(fs, state, dir))
                continue;
            ++*built;
            lf_err_clear(&crash_err);
            int rc = s->check(dir, promised);
            if (rc == 0 && !first && s->recover && *built % RECOVER_EVERY == 0)
                rc = s->recover(dir);
            if (rc && !first && bad < 5)
                tap_diag("%s: after op %zu (promise %d), %s data, %s names: %s", s->name, i,
                         promised, state & CRASH_KEEP_DATA ? "kept" : "dropped",
                         state & CRASH_KEEP_NAMES       ? "all"
                         : state & CRASH_KEEP_LAST_NAME ? "last"
                                                        : "synced",
                         crash_err.text);
            bad += rc != 0;
            (void)lf_io_remove_tree(dir, NULL);
            if (bad && first)
                return bad;
        }
    }
    return bad;
}

/* A line of the code that calls fsync: does leaving it out lose something anywhere? */
struct site {
    uint64_t id;
    const char *scenario;
    size_t first; /* number of its first fsync there */
    bool matters;
};
static struct site sites[256];
static size_t n_sites;

static struct site *site_of(const struct scenario *s, uint64_t id, size_t n)
{
    for (size_t i = 0; i < n_sites; i++)
        if (sites[i].id == id)
            return &sites[i];
    if (n_sites == sizeof sites / sizeof *sites)
        tap_bail("too many sites");
    sites[n_sites] = (struct site){id, s->name, n, false};
    return &sites[n_sites++];
}

static void test_scenario(const struct scenario *s, const char *self)
{
    char file[4096];
    int built;
    snprintf(file, sizeof file, "%s/%s.trace", tap_tmpdir(), s->name);
    trace(s, self, file);
    crash_fs *fs = crash_fs_load(file);
    size_t fsyncs = crash_fs_fsyncs(fs);
    int bad = try_states(s, fs, false, &built);
    tap_ok(bad == 0 && built > 10, "%s: %d crash states of %zu operations all recover", s->name,
           built, crash_fs_ops(fs));
    for (size_t n = 0; n + (size_t)s->spare < fsyncs; n++) {
        struct site *at_line = site_of(s, crash_fs_site(fs, n), n);
        if (at_line->matters)
            continue;
        crash_fs *without = crash_fs_load(file);
        crash_fs_drop(without, n);
        if (bad == 0)
            crash_fs_know(without, fs); /* these states recover */
        at_line->matters = try_states(s, without, true, &built) > 0;
        crash_fs_free(without);
    }
    crash_fs_free(fs);
    unlink(file);
}

int main(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
        if (argc == 4 && strcmp(argv[1], "--run") == 0 &&
            strcmp(argv[2], scenarios[i]->name) == 0) {
            scenarios[i]->run(argv[3]);
            return 0;
        }
#ifdef LF_SANITIZERS
    tap_skip_all("the tracing library cannot be loaded before the sanitizers' own");
#endif
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
        if (argc < 2 || strcmp(argv[1], scenarios[i]->name) == 0)
            TAP(1, test_scenario(scenarios[i], argv[0]));
    for (size_t i = 0; i < n_sites; i++)
        tap_ok(sites[i].matters, "fsync %zu of scenario %s: its line cannot be deleted unnoticed",
               sites[i].first + 1, sites[i].scenario);
    return tap_done();
}

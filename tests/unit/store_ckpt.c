/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints: round trip in every layout with one identity, reading boxes, damage anywhere is seen
 * and named, a killed or refused save leaves the earlier checkpoints alone, newest and retention.
 */
#include "engine/store/ckpt.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/artifact.h"
#include "engine/base/io.h"
#include "engine/base/rng.h"
#include "engine/store/ckpt_priv.h"
#include "tests/tap/tap.h"

#define N_TENSORS 7

static uint32_t memory[N_TENSORS][20000];
static lf_ckpt_tensor tensors[N_TENSORS] = {
    {.name = "model/embed.weight",
     .kind = "weight",
     .dtype = LF_H5_BF16,
     .ndim = 2,
     .shape = {37, 24}},
    {.name = "model/embed.weight",
     .kind = "master",
     .dtype = LF_H5_F32,
     .ndim = 2,
     .shape = {37, 24}},
    {.name = "model/embed.weight",
     .kind = "adam_m",
     .dtype = LF_H5_F32,
     .ndim = 2,
     .shape = {37, 24}},
    {.name = "model/layers.0/q.weight",
     .kind = "weight",
     .dtype = LF_H5_F32,
     .ndim = 3,
     .shape = {5, 7, 11}},
    {.name = "model/norm", .kind = "weight", .dtype = LF_H5_F32, .ndim = 1, .shape = {1}},
    {.name = "model/big", .kind = "weight", .dtype = LF_H5_F32, .ndim = 2, .shape = {100, 200}},
    {.name = "rng", .kind = "other", .dtype = LF_H5_I64, .ndim = 1, .shape = {3}},
};
static char tmp[4096];

static const char *at(const char *name)
{
    snprintf(tmp, sizeof tmp, "%s/%s", tap_tmpdir(), name);
    return tmp;
}

static size_t bytes_of(const lf_ckpt_tensor *t)
{
    size_t n = lf_h5_type_bytes(t->dtype);
    for (int k = 0; k < t->ndim; k++)
        n *= (size_t)t->shape[k];
    return n;
}

static void fill(uint64_t seed)
{
    for (size_t i = 0; i < N_TENSORS; i++) {
        for (size_t k = 0; k < 20000; k++)
            memory[i][k] =
                lf_rng_u32(seed, (uint32_t)i, k) & 0x3fff3fff; /* no NaN as f32 or bf16 */
        tensors[i].data = memory[i];
    }
}

static json_t *state_at(int64_t step)
{
    return json_pack("{s:I, s:f, s:s}", "step", (json_int_t)step, "lr", 0.1 + 0.2, "text",
                     "caf\xc3\xa9");
}

/* Save synchronously or not; returns what begin/wait said. */
static int save_to(const char *dir, int64_t step, const lf_ckpt_options *o, lf_ckpt_result *res,
                   lf_err *err)
{
    lf_ckpt_writer *w = NULL;
    json_t *state = state_at(step);
    int rc = lf_ckpt_writer_create(&w, tensors, N_TENSORS, o, err);
    if (rc == 0 && (rc = lf_ckpt_save_begin(w, dir, state, err)) == 0)
        rc = lf_ckpt_save_wait(w, res, err);
    json_decref(state);
    lf_ckpt_writer_destroy(w);
    return rc;
}

static void check_contents(const char *dir, const char *what)
{
    lf_ckpt *c = NULL;
    lf_err err = LF_ERR_INIT;
    static uint32_t buf[20000];
    int64_t bad = 0;
    tap_rc(lf_ckpt_open(&c, dir, 2, &err), 0, &err, NULL, what);
    if (!c)
        return;
    tap_i64((int64_t)lf_ckpt_n_entries(c), N_TENSORS, "all tensors");
    for (size_t i = 0; i < N_TENSORS; i++) {
        const lf_ckpt_tensor *t = &tensors[i];
        const lf_ckpt_entry *e = lf_ckpt_find(c, t->name, t->kind);
        bad += !e || e->dtype != t->dtype || e->ndim != t->ndim;
        bad += !e || lf_ckpt_read(c, e, NULL, NULL, buf, &err) < 0 ||
               memcmp(buf, t->data, bytes_of(t)) != 0;
    }
    tap_i64(bad, 0, "every byte of every tensor");
    tap_ok(lf_ckpt_find(c, "model/none", "weight") == NULL, "find says no");
    tap_f64(json_real_value(json_object_get(lf_ckpt_state(c), "lr")), 0.1 + 0.2, 0.0,
            "reals of the state are exact");
    lf_ckpt_close(c);
}

/* Random boxes of the tensors against memory. */
static void check_boxes(const char *dir)
{
    lf_ckpt *c = NULL;
    lf_err err = LF_ERR_INIT;
    static uint32_t buf[20000];
    int64_t bad = 0;
    if (lf_ckpt_open(&c, dir, 1, &err) < 0)
        tap_bail("%s", err.text);
    for (uint64_t trial = 0; trial < 300; trial++) {
        const lf_ckpt_tensor *t = &tensors[trial % 2 ? 3 : 5];
        int64_t lo[LF_CKPT_MAX_DIMS] = {0}, hi[LF_CKPT_MAX_DIMS] = {1, 1, 1, 1, 1, 1}, n = 0,
                s[4] = {1, 1, 1, 1};
        const uint32_t *src = t->data;
        for (int k = 0; k < t->ndim; k++) {
            lo[k] = lf_rng_u32(3, 1, trial * 8 + (uint64_t)k) % t->shape[k];
            hi[k] = lo[k] + 1 + lf_rng_u32(3, 2, trial * 8 + (uint64_t)k) % (t->shape[k] - lo[k]);
        }
        for (int k = t->ndim - 2; k >= 0; k--)
            s[k] = s[k + 1] * t->shape[k + 1];
        bad += lf_ckpt_read(c, lf_ckpt_find(c, t->name, t->kind), lo, hi, buf, &err) < 0;
        for (int64_t i = lo[0]; i < hi[0]; i++)
            for (int64_t j = lo[1]; j < hi[1]; j++)
                for (int64_t k = t->ndim > 2 ? lo[2] : 0; k < (t->ndim > 2 ? hi[2] : 1); k++)
                    bad += buf[n++] != src[i * s[0] + j * s[1] + (t->ndim > 2 ? k : 0)];
    }
    tap_i64(bad, 0, "boxes of tensors");
    bad = 0;
    for (uint64_t trial = 0; trial < 300; trial++) {
        const lf_ckpt_tensor *t = &tensors[trial % 2 ? 3 : 5];
        int64_t all = (int64_t)(bytes_of(t) / 4), from = lf_rng_u32(4, 1, trial) % all,
                n = lf_rng_u32(4, 2, trial) % (all - from + 1);
        bad += lf_ckpt_read_flat(c, lf_ckpt_find(c, t->name, t->kind), from, n, buf, &err) < 0 ||
               memcmp(buf, (const uint32_t *)t->data + from, (size_t)n * 4) != 0;
    }
    tap_i64(bad, 0, "flat ranges of tensors");
    tap_rc(lf_ckpt_read_flat(c, lf_ckpt_find(c, "model/big", "weight"), 19999, 2, buf, &err),
           LF_EINVAL, &err, "20000", "a range that is too long");
    lf_err_clear(&err);
    int64_t lo[2] = {0, 0}, hi[2] = {101, 1};
    const lf_ckpt_entry *e = lf_ckpt_find(c, "model/big", "weight");
    tap_rc(lf_ckpt_read(c, e, lo, hi, buf, &err), LF_EINVAL, &err, "model/big",
           "a box that is too large");
    lf_ckpt_close(c);
}

static void test_layouts(void)
{
    static const lf_ckpt_options o[] = {{.threads = 1},
                                        {.threads = 3},
                                        {.threads = 2, .file_bytes = 8000},
                                        {.threads = 2, .file_bytes = 3000, .piece_bytes = 1004}};
    lf_ckpt_result first = {0}, r = {0};
    lf_err err = LF_ERR_INIT;
    char name[64];
    fill(1);
    for (size_t i = 0; i < sizeof o / sizeof o[0]; i++) {
        snprintf(name, sizeof name, "layout%zu/deep/er", i);
        tap_rc(save_to(at(name), 7, &o[i], &r, &err), 1, &err, NULL, "save");
        check_contents(at(name), name);
        check_boxes(at(name));
        if (i == 0)
            first = r;
        tap_mem(r.identity, first.identity, LF_HASH_BYTES, "one identity for every layout");
    }
    memory[2][5] ^= 1;
    save_to(at("other"), 7, &o[0], &r, &err);
    tap_ok(memcmp(r.identity, first.identity, LF_HASH_BYTES) != 0, "one bit changes the identity");
    memory[2][5] ^= 1;
    tap_rc(save_to(at("other"), 7, &o[0], &r, &err), LF_EEXIST, &err, "already",
           "a checkpoint is never overwritten");
    tap_ok(access(at("layout3/deep/er/index.h5"), F_OK) == 0, "several files have an index");
}

static int fill_from(void *user, int64_t first, int64_t n, void *dst, lf_err *err)
{
    const lf_ckpt_tensor *t = user;
    size_t elem = lf_h5_type_bytes(t->dtype);
    if (!t->data)
        return lf_fail(err, LF_EFORMAT, "%s cannot be had", t->name);
    memcpy(dst, (const char *)t->data + (size_t)first * elem, (size_t)n * elem);
    return 0;
}

/* Tensors that are asked for block by block: the same checkpoint; a refusal ends the save and
 * leaves nothing. */
static void test_fill(void)
{
    static lf_ckpt_tensor mine[N_TENSORS];
    lf_ckpt_options o = {.threads = 2};
    lf_ckpt_result want = {0}, r = {0};
    lf_ckpt_writer *w = NULL;
    lf_err err = LF_ERR_INIT;
    json_t *state = state_at(7);
    void *arena = aligned_alloc(64, lf_ckpt_snapshot_bytes(tensors, N_TENSORS));
    fill(1);
    save_to(at("in-memory"), 7, &o, &want, &err);
    for (size_t i = 0; i < N_TENSORS; i++) {
        mine[i] = tensors[i];
        mine[i].data = NULL;
        mine[i].fill = fill_from;
        mine[i].user = &tensors[i];
    }
    if (lf_ckpt_writer_create(&w, mine, N_TENSORS, &o, &err) < 0)
        tap_bail("%s", err.text);
    tap_rc(lf_ckpt_save_begin(w, at("asked"), state, &err), 0, &err, NULL, "begin");
    tap_rc(lf_ckpt_save_wait(w, &r, &err), 1, &err, NULL, "wait");
    tap_mem(r.identity, want.identity, LF_HASH_BYTES, "the identity of what was in memory");
    check_contents(at("asked"), "tensors asked for");
    tensors[3].data = NULL;
    tap_rc(lf_ckpt_save_begin(w, at("refused"), state, &err), LF_EFORMAT, &err, "cannot be had",
           "a tensor that cannot be had");
    tap_ok(access(at("refused"), F_OK) != 0, "nothing is left");
    lf_err_clear(&err);
    lf_ckpt_writer_destroy(w);
    fill(1);
    o.arena = arena;
    mine[0] = tensors[0];
    tap_ok(lf_ckpt_snapshot_bytes(mine, N_TENSORS) == lf_ckpt_snapshot_bytes(tensors, 1),
           "a snapshot has the others alone");
    if (lf_ckpt_writer_create(&w, mine, N_TENSORS, &o, &err) < 0)
        tap_bail("%s", err.text);
    tap_rc(lf_ckpt_save_begin(w, at("mixed"), state, &err), 0, &err, NULL, "begin");
    tap_rc(lf_ckpt_save_wait(w, &r, &err), 1, &err, NULL, "wait");
    tap_mem(r.identity, want.identity, LF_HASH_BYTES, "some from memory, some asked for");
    lf_ckpt_writer_destroy(w);
    free(arena);
    json_decref(state);
}

static void test_snapshot(void)
{
    lf_ckpt_writer *w = NULL;
    lf_err err = LF_ERR_INIT;
    lf_ckpt_result r = {0};
    size_t n = lf_ckpt_snapshot_bytes(tensors, N_TENSORS);
    void *arena = aligned_alloc(64, n);
    lf_ckpt_options o = {.arena = arena, .threads = 1};
    json_t *state = state_at(3);
    fill(2);
    if (lf_ckpt_writer_create(&w, tensors, N_TENSORS, &o, &err) < 0)
        tap_bail("%s", err.text);
    tap_i64(lf_ckpt_save_wait(w, &r, &err), 0, "nothing to wait for");
    tap_ok(lf_ckpt_save_idle(w), "idle");
    tap_rc(lf_ckpt_save_begin(w, at("snap"), state, &err), 0, &err, NULL, "begin");
    fill(3); /* training goes on */
    tap_rc(lf_ckpt_save_wait(w, &r, &err), 1, &err, NULL, "wait");
    fill(2);
    check_contents(at("snap"), "the snapshot is what was saved");
    /* A failure is delivered once, at the next call, and the writer can be used again. */
    lf_io_mkdirs(at("file-parent"), 0750, &err);
    close(open(at("file-parent/x"), O_CREAT | O_WRONLY, 0600));
    tap_rc(lf_ckpt_save_begin(w, at("file-parent/x/y"), state, &err), LF_EIO, &err, "x",
           "a directory that cannot be");
    tap_rc(lf_ckpt_save_begin(w, at("file-parent"), state, &err), LF_EEXIST, &err, "'x'",
           "nothing foreign is removed");
    tap_rc(lf_ckpt_save_begin(w, at("snap2"), state, &err), 0, &err, NULL, "and again");
    tap_rc(lf_ckpt_save_wait(w, &r, &err), 1, &err, NULL, "wait");
    json_object_del(state, "step");
    tap_rc(lf_ckpt_save_begin(w, at("snap3"), state, &err), LF_EINVAL, &err, "step",
           "a state needs a step");
    json_decref(state);
    lf_ckpt_writer_destroy(w);
    free(arena);
}

/* ---- a save that goes on ---- */

static struct {
    int calls, stop_at; /* stop_at 0: never */
    bool wrong;         /* deliver other bytes */
} asking;

static int fill_some(void *user, int64_t first, int64_t n, void *dst, lf_err *err)
{
    if (++asking.calls == asking.stop_at)
        return lf_fail(err, LF_EINTR, "stopped");
    int rc = fill_from(user, first, n, dst, err);
    if (asking.wrong)
        memset(dst, 0x11, 4);
    return rc;
}

/* A save that asks; returns how often, and what it said in *rc. */
static int save_asking(const char *dir, const char *key, const char *from, int stop_at, int *rc,
                       lf_ckpt_result *res)
{
    static lf_ckpt_tensor mine[N_TENSORS];
    lf_ckpt_options o = {.threads = 1,
                         .file_bytes = 9000,
                         .resume = {.key = key, .dirs = &from, .n_dirs = from != NULL}};
    lf_ckpt_writer *w = NULL;
    lf_err err = LF_ERR_INIT;
    json_t *state = state_at(7);
    for (size_t i = 0; i < N_TENSORS; i++) {
        mine[i] = tensors[i];
        mine[i].data = NULL;
        mine[i].fill = fill_some;
        mine[i].user = &tensors[i];
    }
    asking.calls = 0;
    asking.stop_at = stop_at;
    if (lf_ckpt_writer_create(&w, mine, N_TENSORS, &o, &err) < 0)
        tap_bail("%s", err.text);
    *rc = lf_ckpt_save_begin(w, dir, state, &err);
    if (*rc == 0)
        *rc = lf_ckpt_save_wait(w, res, &err);
    lf_ckpt_writer_destroy(w);
    json_decref(state);
    return asking.calls;
}

/* The units that a checkpoint hashes of this tensor, and rows of each. */
enum { UNITS = 8, UNIT_ROWS = 900, UNIT_WIDTH = 1000 };
static uint16_t unit_data[UNITS * UNIT_ROWS * UNIT_WIDTH];
static uint8_t unit_seen[UNITS * UNIT_ROWS * UNIT_WIDTH]; /* how often each was asked for */

static int fill_units(void *user, int64_t first, int64_t n, void *dst, lf_err *err)
{
    (void)user;
    if (++asking.calls == asking.stop_at)
        return lf_fail(err, LF_EINTR, "stopped");
    memcpy(dst, unit_data + first, (size_t)n * 2);
    for (int64_t i = 0; i < n; i++)
        unit_seen[first + i]++;
    return 0;
}

static int save_units(const char *dir, bool ask, const char *from, int stop_at, lf_ckpt_result *res)
{
    const lf_ckpt_options o = {
        .threads = 1,
        .resume = {.key = ask ? "units" : NULL, .dirs = &from, .n_dirs = from != NULL}};
    const lf_ckpt_tensor t = {.name = "w",
                              .kind = "weight",
                              .dtype = LF_H5_BF16,
                              .ndim = 2,
                              .shape = {UNITS * UNIT_ROWS, UNIT_WIDTH},
                              .data = ask ? NULL : unit_data,
                              .fill = ask ? fill_units : NULL};
    lf_ckpt_writer *w = NULL;
    lf_err err = LF_ERR_INIT;
    json_t *state = state_at(7);
    asking.calls = 0;
    asking.stop_at = stop_at;
    if (lf_ckpt_writer_create(&w, &t, 1, &o, &err) < 0)
        tap_bail("%s", err.text);
    int rc = lf_ckpt_save_begin(w, dir, state, &err);
    if (rc == 0)
        rc = lf_ckpt_save_wait(w, res, &err);
    lf_ckpt_writer_destroy(w);
    json_decref(state);
    return rc;
}

/* Units that are smaller than what is asked for at once are asked for together, and hashed and kept
 * one by one. */
static void test_fill_units(void)
{
    const size_t n = sizeof unit_data / sizeof *unit_data;
    lf_ckpt_result want = {0}, r = {0};
    char stopped[4096];
    int64_t bad = 0;
    snprintf(stopped, sizeof stopped, "%s", at("stopped-units"));
    for (size_t i = 0; i < n; i++)
        unit_data[i] = (uint16_t)(i * 2654435761u >> 8 & 0x3fff);
    tap_i64(save_units(at("units"), false, NULL, 0, &want), 1, "from memory");
    tap_i64(save_units(stopped, true, NULL, 2, &r), LF_EINTR, "stopped at the second");
    tap_i64(save_units(at("more-units"), true, stopped, 0, &r), 1, "goes on");
    tap_i64(asking.calls, 1, "the other half in one call");
    tap_i64(r.reused_bytes, (int64_t)n, "half of the bytes is kept");
    tap_mem(r.identity, want.identity, LF_HASH_BYTES, "the identity of what was in memory");
    for (size_t i = 0; i < n; i++)
        bad += unit_seen[i] != 1;
    tap_i64(bad, 0, "each element is asked for once");
}

static char *slurp(const char *path, size_t *n);

/* Every file of one checkpoint is in the other, with the same bytes; and no record is left. */
static bool same_files(const char *a, const char *b)
{
    lf_artifact x = {0};
    lf_err err = LF_ERR_INIT;
    char path[2][4096];
    bool same = lf_artifact_load(&x, a, "checkpoint", &err) == 0 && x.n_files > 3;
    for (size_t i = 0; i < x.n_files && same; i++) {
        size_t n[2];
        snprintf(path[0], sizeof path[0], "%s/%s", a, x.files[i].path);
        snprintf(path[1], sizeof path[1], "%s/%s", b, x.files[i].path);
        char *p = slurp(path[0], &n[0]), *q = slurp(path[1], &n[1]);
        same = n[0] == n[1] && memcmp(p, q, n[0]) == 0;
        free(p);
        free(q);
    }
    lf_artifact_fini(&x);
    snprintf(path[0], sizeof path[0], "%s/" LF_PARTIAL_FILE, b);
    return same && access(path[0], F_OK) != 0;
}

static void overwrite(const char *path, off_t at, const char *data, size_t n)
{
    int fd = open(path, O_WRONLY);
    if (fd < 0 || pwrite(fd, data, n, at) != (ssize_t)n)
        tap_bail("write %s", path);
    close(fd);
}

static void test_resume(void)
{
    char want[4096], from[4096], to[4096], file[8192];
    lf_ckpt_result r = {0};
    int rc = 0;
    fill(1);
    snprintf(want, sizeof want, "%s/whole", tap_tmpdir());
    int all = save_asking(want, NULL, NULL, 0, &rc, &r);
    tap_i64(rc, 1, "a save in one go");
    tap_i64(r.reused_bytes, 0, "has nothing to take over");
    for (int stop = 1; stop <= all; stop++) {
        snprintf(from, sizeof from, "%s/stopped%d", tap_tmpdir(), stop);
        snprintf(to, sizeof to, "%s/resumed%d", tap_tmpdir(), stop);
        save_asking(from, "aa", NULL, stop, &rc, &r);
        tap_ok(rc == LF_EINTR && access(from, F_OK) == 0, "stopped at %d of %d: its files are kept",
               stop, all);
        int asked = save_asking(to, "aa", from, 0, &rc, &r);
        tap_ok(rc == 1 && asked == all - stop + 1,
               "goes on with the %d that are missing (%d asked for)", all - stop + 1, asked);
        tap_ok((r.reused_bytes > 0) == (stop > 1), "and says so");
        tap_ok(same_files(want, to), "the same bytes as in one go");
    }
    /* Of another source: all of it again. */
    snprintf(from, sizeof from, "%s/stopped%d", tap_tmpdir(), all);
    snprintf(to, sizeof to, "%s/other-key", tap_tmpdir());
    tap_i64(save_asking(to, "ab", from, 0, &rc, &r), all, "another source: nothing is taken over");
    /* What is not what the record says is made again: bytes of a tensor, of HDF5's own, a torn
     * record, a file that is gone. */
    snprintf(to, sizeof to, "%s/damaged", tap_tmpdir());
    snprintf(file, sizeof file, "%s/data-00000.h5", from);
    overwrite(file, 0, "\0\0\0\0\0\0\0\0", 8);
    struct stat st;
    if (stat(file, &st) < 0)
        tap_bail("stat");
    for (off_t at = 4096; at < st.st_size; at += 512)
        overwrite(file, at, "damage", 6);
    int asked = save_asking(to, "aa", from, 0, &rc, &r);
    tap_ok(rc == 1 && asked > 1 && asked < all, "damaged parts are made again (%d of %d asked for)",
           asked, all);
    tap_ok(same_files(want, to), "the same bytes as in one go");
    snprintf(file, sizeof file, "%s/" LF_PARTIAL_FILE, from);
    size_t n;
    char *text = slurp(file, &n);
    if (truncate(file, (off_t)n - 30) < 0)
        tap_bail("truncate");
    snprintf(to, sizeof to, "%s/torn", tap_tmpdir());
    save_asking(to, "aa", from, 0, &rc, &r);
    tap_ok(rc == 1 && same_files(want, to), "a record with a torn line");
    free(text);
    snprintf(file, sizeof file, "%s/data-00000.h5", from);
    unlink(file);
    snprintf(to, sizeof to, "%s/gone", tap_tmpdir());
    tap_i64(save_asking(to, "aa", from, 0, &rc, &r), all, "a file that is gone: all again");
    tap_ok(rc == 1 && same_files(want, to), "the same bytes as in one go");
    /* The check can fail: bytes that differ are seen. */
    asking.wrong = true;
    snprintf(to, sizeof to, "%s/wrong", tap_tmpdir());
    save_asking(to, "aa", NULL, 0, &rc, &r);
    asking.wrong = false;
    tap_ok(rc == 1 && !same_files(want, to), "other bytes are other files");
}

static void test_refused(void)
{
    lf_ckpt_writer *w = NULL;
    lf_err err = LF_ERR_INIT;
    lf_ckpt_options o = {.threads = 1};
    static const struct {
        const char *name[2], *kind, *want;
        int64_t dim;
    } v[] = {{{"a", "a"}, "weight", "twice", 4},
             {{"a", "a/b"}, "weight", "folder", 4},
             {{"a/../b", "c"}, "weight", "a/../b", 4},
             {{"/a", "c"}, "weight", "/a", 4},
             {{"a b", "c"}, "weight", "a b", 4},
             {{"a", "c"}, "Weight", "Weight", 4},
             {{"a", "c"}, "pieces", "pieces", 4},
             {{"a", "c"}, "weight", "dimension", 0},
             {{"a", "c"}, "weight", "large", INT64_MAX / 4}};
    for (size_t i = 0; i < sizeof v / sizeof v[0]; i++) {
        lf_ckpt_tensor t[2] = {
            {.name = v[i].name[0],
             .kind = v[i].kind,
             .dtype = LF_H5_F32,
             .ndim = 1,
             .shape = {v[i].dim}},
            {.name = v[i].name[1], .kind = v[i].kind, .dtype = LF_H5_F32, .ndim = 1, .shape = {4}}};
        int rc = lf_ckpt_writer_create(&w, t, 2, &o, &err);
        tap_ok(rc < 0 && strstr(err.text, v[i].want), "refused: %s", err.text);
        lf_err_clear(&err);
    }
}

static char *slurp(const char *path, size_t *n)
{
    lf_buf b;
    lf_buf_init(&b);
    if (lf_io_read_file(path, (size_t)1 << 30, &b, NULL) < 0)
        tap_bail("read %s", path);
    *n = b.len;
    return b.data;
}

static void spit(const char *path, const char *data, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0640);
    if (fd < 0 || write(fd, data, n) != (ssize_t)n)
        tap_bail("write %s", path);
    close(fd);
}

static void flip_all(const char *dir, const char *file, size_t step, lf_ckpt_options o)
{
    lf_err err = LF_ERR_INIT;
    lf_ckpt_result r;
    char path[8192];
    size_t n;
    int64_t accepted = 0, unnamed = 0, tensor_named = 0, tried = 0;
    if (save_to(at(dir), 9, &o, &r, &err) != 1)
        tap_bail("%s", err.text);
    snprintf(path, sizeof path, "%s/%s", at(dir), file);
    char *data = slurp(path, &n);
    for (size_t i = 0; i < n; i += step) {
        lf_ckpt *c = NULL;
        data[i] = (char)(data[i] ^ 1);
        spit(path, data, n);
        data[i] = (char)(data[i] ^ 1);
        int rc = lf_ckpt_open(&c, at(dir), 1, &err);
        accepted += rc == 0;
        unnamed += rc < 0 && !strstr(err.text, at(dir));
        if (rc < 0 && !strstr(err.text, at(dir)))
            tap_diag("no place: %s", err.text);
        tensor_named += rc < 0 && strstr(err.text, "tensor ") != NULL;
        tried++;
        lf_ckpt_close(c);
        lf_err_clear(&err);
    }
    tap_i64(accepted, 0, "no flipped byte is accepted");
    tap_i64(unnamed, 0, "every message says where");
    tap_diag("%s: %lld flips tried, %lld name a tensor", file, (long long)tried,
             (long long)tensor_named);
    if (strncmp(file, "data", 4) == 0)
        tap_ok(tensor_named > tried / 2, "flips inside tensors name the tensor");
    for (size_t cut = 0; cut < n; cut += n / 7) {
        lf_ckpt *c = NULL;
        spit(path, data, cut);
        int rc = lf_ckpt_open(&c, at(dir), 1, &err);
        tap_ok(rc < 0 && err.text[0], "cut to %zu bytes: %s", cut, err.text);
        lf_err_clear(&err);
    }
    free(data);
}

static void test_damage(void)
{
    fill(4);
    flip_all("flip-data", "data-00000.h5", 397, (lf_ckpt_options){.threads = 1});
    flip_all("flip-piece", "data-00003.h5", 997,
             (lf_ckpt_options){.file_bytes = 9000, .piece_bytes = 4000});
    flip_all("flip-manifest", "manifest.json", 3, (lf_ckpt_options){.threads = 1});
    flip_all("flip-state", "state.json", 1, (lf_ckpt_options){.threads = 1});
}

/* A checkpoint as several ranks would write it: the right and left halves of a matrix, one of them
 * in two flat ranges. Whole boxes are 2-D pieces, so this also proves that the reader follows
 * boxes, not rows. */
static void test_boxes_by_hand(void)
{
    lf_err err = LF_ERR_INIT;
    lf_h5 *f = NULL;
    lf_artifact a;
    float full[6][10], part[30], got[60];
    uint64_t off[3];
    int64_t n0 = 24, n1 = 17, n2 = 19;
    struct lf_ckpt_piece p[3] = {{.lo = {0, 6}, .hi = {6, 10}, .flat = {0, 24}},
                                 {.lo = {0, 0}, .hi = {6, 6}, .flat = {0, 17}},
                                 {.lo = {0, 0}, .hi = {6, 6}, .flat = {17, 36}}};
    struct lf_ckpt_rec r = {
        .e = {.name = "m/w", .kind = "weight", .dtype = LF_H5_F32, .ndim = 2, .shape = {6, 10}},
        .name = NULL,
        .n_elems = 60,
        .pieces = p,
        .n_pieces = 3};
    struct lf_ckpt_meta m = {.version = 1, .recs = &r, .n_recs = 1, .step = 0};
    char path[8192], dir[4096];
    for (int i = 0; i < 60; i++)
        full[i / 10][i % 10] = (float)i;
    snprintf(dir, sizeof dir, "%s", at("hand"));
    snprintf(path, sizeof path, "%s/data-00000.h5", dir);
    lf_io_mkdirs(dir, 0750, &err);
    if (lf_h5_create(&f, path, &err) < 0 ||
        lf_h5_put_extent(f, "pieces/weight/m/w/00000", LF_H5_F32, 1, &n0, &off[0], &err) < 0 ||
        lf_h5_put_extent(f, "pieces/weight/m/w/00001", LF_H5_F32, 1, &n1, &off[1], &err) < 0 ||
        lf_h5_put_extent(f, "pieces/weight/m/w/00002", LF_H5_F32, 1, &n2, &off[2], &err) < 0 ||
        lf_h5_close(f, &err) < 0)
        tap_bail("%s", err.text);
    int fd = open(path, O_WRONLY);
    for (int k = 0; k < 3; k++) {
        int64_t w = p[k].hi[1] - p[k].lo[1];
        for (int64_t i = p[k].flat[0]; i < p[k].flat[1]; i++)
            part[i - p[k].flat[0]] = full[i / w][p[k].lo[1] + i % w];
        size_t n = (size_t)(p[k].flat[1] - p[k].flat[0]) * sizeof(float);
        if (pwrite(fd, part, n, (off_t)off[k]) != (ssize_t)n)
            tap_bail("pwrite");
        p[k].offset = (int64_t)off[k];
    }
    close(fd);
    static char name[] = "data-00000.h5";
    p[0].file = p[1].file = p[2].file = name;
    snprintf(path, sizeof path, "%s/state.json", dir);
    spit(path, "{\"step\":0}", 10);
    lf_tree_hash *h = lf_tree_hash_create(&err);
    lf_tree_hash_update(h, full, sizeof full, &err);
    lf_tree_hash_final(h, r.sha256, &err);
    lf_tree_hash_destroy(h);
    lf_ckpt_make_identity(&m, m.identity, &err);
    lf_artifact_init(&a, "checkpoint", &err);
    lf_artifact_add_hashed(&a, dir, "data-00000.h5", &err);
    lf_artifact_add_hashed(&a, dir, "state.json", &err);
    lf_ckpt_meta_store(&m, a.meta, &err);
    tap_rc(lf_artifact_publish(&a, dir, &err), 0, &err, NULL, "publish a checkpoint in boxes");
    lf_artifact_fini(&a);
    lf_ckpt *c = NULL;
    tap_rc(lf_ckpt_open(&c, dir, 1, &err), 0, &err, NULL, "open it");
    if (c) {
        tap_rc(lf_ckpt_read(c, lf_ckpt_entry_at(c, 0), NULL, NULL, got, &err), 0, &err, NULL,
               "read it whole");
        tap_mem(got, full, sizeof full, "boxes and ranges put together");
        int64_t lo[] = {1, 3}, hi[] = {5, 9}, bad = 0;
        lf_ckpt_read(c, lf_ckpt_entry_at(c, 0), lo, hi, got, &err);
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 6; j++)
                bad += got[i * 6 + j] < full[1 + i][3 + j] || got[i * 6 + j] > full[1 + i][3 + j];
        tap_i64(bad, 0, "a box across them");
        lf_ckpt_close(c);
    }
    /* Tilings that are none. */
    p[2].flat[0] = 18;
    tap_rc(lf_ckpt_check_pieces(&r, &err), LF_EFORMAT, &err, "follow", "a gap");
    p[2].flat[0] = 17;
    p[0].lo[1] = 5;
    p[0].flat[1] = 30;
    tap_rc(lf_ckpt_check_pieces(&r, &err), LF_EFORMAT, &err, "piece 1 overlaps", "an overlap");
    p[0].lo[1] = 6;
    p[0].flat[1] = 24;
    r.n_pieces = 2;
    tap_rc(lf_ckpt_check_pieces(&r, &err), LF_EFORMAT, &err, "missing", "an end that is missing");
}

static void test_killed(void)
{
    lf_err err = LF_ERR_INIT;
    int64_t bad = 0, last = -1;
    char out[4096];
    snprintf(out, sizeof out, "%s", at("killed"));
    const char *dirs[] = {out};
    for (uint64_t round = 0; round < 8; round++) {
        int saved[2];
        char one;
        bad += pipe(saved) < 0;
        pid_t pid = fork();
        if (pid == 0) {
            for (int64_t step = last + 1;; step++) {
                char *dir = lf_ckpt_step_dir(out, step, &err);
                const lf_ckpt_options o = {.threads = 2, .file_bytes = 20000};
                if (!dir || save_to(dir, step, &o, NULL, &err) < 0 || write(saved[1], "x", 1) != 1)
                    _exit(1);
                free(dir);
            }
        }
        close(saved[1]);
        if (round % 2) /* behind one that is whole, at the latest the last time */
            bad += read(saved[0], &one, 1) != 1;
        usleep(3000 + lf_rng_u32(11, 1, round) % 30000);
        kill(pid, SIGKILL);
        close(saved[0]);
        int status;
        waitpid(pid, &status, 0);
        bad += !WIFSIGNALED(status);
        char *dir = NULL;
        int64_t step = -1;
        lf_ckpt *c = NULL;
        bad += lf_ckpt_find_newest(
                   &dir, &step, &(struct lf_ckpt_search){.out_dirs = dirs, .n = 1, .max_step = -1},
                   &err) < 0;
        if (dir) {
            bad += lf_ckpt_open(&c, dir, 1, &err) < 0 || lf_ckpt_step(c) != step || step < last;
            last = step;
        }
        lf_ckpt_close(c);
        free(dir);
    }
    tap_i64(bad, 0, "after kill -9 the newest checkpoint is whole");
    tap_ok(last >= 0, "checkpoints were made (%lld)", (long long)last);
}

static void test_disk_full(void)
{
    lf_err err = LF_ERR_INIT;
    char dir[4096];
    snprintf(dir, sizeof dir, "%s", at("full/ckpt"));
    pid_t pid = fork();
    if (pid == 0) {
        struct rlimit lim = {40000, 40000};
        size_t n = lf_ckpt_snapshot_bytes(tensors, N_TENSORS);
        void *arena = aligned_alloc(64, n);
        setrlimit(RLIMIT_FSIZE, &lim);
        int rc = save_to(dir, 1, &(lf_ckpt_options){.arena = arena, .threads = 2}, NULL, &err);
        bool said = strstr(err.text, dir) &&
                    (strstr(err.text, "too large") || strstr(err.text, "disk full"));
        free(arena);
        _exit(rc < 0 && said ? 42 : 1);
    }
    int status;
    waitpid(pid, &status, 0);
    tap_ok(WIFEXITED(status) && WEXITSTATUS(status) == 42,
           "a file that cannot grow is an error with its name (status %d)", status);
    tap_ok(access(dir, F_OK) != 0, "and leaves nothing behind");
}

static int n_reports;
static char last_report[2048];
static void count_report(void *user, const char *dir, const char *text)
{
    (void)user;
    (void)dir;
    n_reports++;
    snprintf(last_report, sizeof last_report, "%s", text);
}

static void save_step(const char *out, int64_t step)
{
    lf_err err = LF_ERR_INIT;
    char *dir = lf_ckpt_step_dir(out, step, &err);
    if (save_to(dir, step, &(lf_ckpt_options){.threads = 1}, NULL, &err) != 1)
        tap_bail("%s", err.text);
    free(dir);
}

/* What cannot be looked at is neither damaged nor absent: going back behind it would lose its
 * steps. */
static void test_unreadable(void)
{
    lf_err err = LF_ERR_INIT;
    char out[4096], step_dir[8192], final[8192];
    char *dir = NULL;
    int64_t step = -1;
    snprintf(out, sizeof out, "%s", at("unreadable"));
    const char *dirs[] = {out};
    save_step(out, 10);
    n_reports = 0;
    snprintf(step_dir, sizeof step_dir, "%s/checkpoints/step-00000020", out);
    if (symlink("step-00000020", step_dir) !=
        0) /* a loop: every look at it fails with ELOOP, for root too */
        tap_bail("symlink");
    tap_rc(
        lf_ckpt_find_newest(&dir, &step,
                            &(struct lf_ckpt_search){
                                .out_dirs = dirs, .n = 1, .max_step = -1, .report = count_report},
                            &err),
        LF_EIO, &err, "step-00000020", "an error of the system ends the search");
    tap_i64(n_reports, 0, "and is not told as damage");
    tap_rc(
        lf_ckpt_find_newest(&dir, &step,
                            &(struct lf_ckpt_search){
                                .out_dirs = dirs, .n = 1, .max_step = 15, .report = count_report},
                            &err),
        0, &err, NULL, "below the bound nobody looks at it");
    tap_i64(step, 10, "so the one before is found");
    free(dir);
    tap_rc(lf_ckpt_retain(out, 1, 0, &err), 0, &err, NULL, "retention leaves it alone");
    unlink(step_dir);
    snprintf(final, sizeof final, "%s/checkpoint", out);
    if (symlink("checkpoint", final) != 0)
        tap_bail("symlink");
    tap_rc(
        lf_ckpt_find_newest(&dir, &step,
                            &(struct lf_ckpt_search){
                                .out_dirs = dirs, .n = 1, .max_step = -1, .report = count_report},
                            &err),
        LF_EIO, &err, "checkpoint", "the same for the final checkpoint");
}

static void test_newest_and_retain(void)
{
    lf_err err = LF_ERR_INIT;
    char a[4096], b[4096], path[8192];
    char *dir = NULL;
    int64_t step = -1;
    snprintf(a, sizeof a, "%s", at("na"));
    snprintf(b, sizeof b, "%s", at("nb"));
    const char *dirs[] = {a, b};
    tap_rc(
        lf_ckpt_find_newest(&dir, &step,
                            &(struct lf_ckpt_search){
                                .out_dirs = dirs, .n = 2, .max_step = -1, .report = count_report},
                            &err),
        0, &err, NULL, "no directory at all");
    tap_ok(dir == NULL, "nothing found");
    for (int64_t s = 10; s <= 50; s += 10)
        save_step(a, s);
    save_step(b, 30);
    lf_ckpt_find_newest(
        &dir, &step,
        &(struct lf_ckpt_search){.out_dirs = dirs, .n = 2, .max_step = -1, .report = count_report},
        &err);
    tap_i64(step, 50, "the greatest step");
    free(dir);
    lf_ckpt_find_newest(
        &dir, &step,
        &(struct lf_ckpt_search){.out_dirs = dirs, .n = 2, .max_step = 30, .report = count_report},
        &err);
    tap_ok(step == 30 && dir && strncmp(dir, b, strlen(b)) == 0,
           "bounded, the later directory wins: %s", dir);
    free(dir);
    tap_i64(n_reports, 0, "nothing to report yet");
    snprintf(path, sizeof path, "%s/checkpoints/step-00000050/data-00000.h5", a);
    unlink(path);
    snprintf(path, sizeof path, "%s/checkpoints/step-00000060", a);
    lf_io_mkdirs(path, 0750, &err);
    lf_ckpt_find_newest(
        &dir, &step,
        &(struct lf_ckpt_search){.out_dirs = dirs, .n = 2, .max_step = -1, .report = count_report},
        &err);
    tap_i64(step, 40, "purged and unfinished ones are passed over");
    tap_ok(n_reports == 1 && strstr(last_report, "data-00000.h5"), "the purged one is reported: %s",
           last_report);
    free(dir);
    snprintf(path, sizeof path, "%s/checkpoint", b);
    save_to(path, 45, &(lf_ckpt_options){.threads = 1}, NULL, &err);
    lf_ckpt_find_newest(
        &dir, &step,
        &(struct lf_ckpt_search){.out_dirs = dirs, .n = 2, .max_step = -1, .report = count_report},
        &err);
    tap_i64(step, 45, "the final checkpoint counts");
    free(dir);
    snprintf(path, sizeof path, "%s/checkpoints/step-00000005", a);
    lf_io_mkdirs(path, 0750, &err);
    tap_rc(lf_ckpt_retain(a, 2, 20, &err), 0, &err, NULL, "retain the last two and every 20th");
    static const struct {
        int64_t step;
        bool there;
    } v[] = {{5, false}, {10, false}, {20, true}, {30, true}, {40, true}, {50, true}, {60, true}};
    for (size_t i = 0; i < sizeof v / sizeof v[0]; i++) {
        char *d = lf_ckpt_step_dir(a, v[i].step, &err);
        tap_ok((access(d, F_OK) == 0) == v[i].there, "step %lld %s", (long long)v[i].step,
               v[i].there ? "stays" : "goes");
        free(d);
    }
    lf_ckpt_retain(b, 0, 0, &err);
    lf_ckpt_find_newest(
        &dir, &step,
        &(struct lf_ckpt_search){.out_dirs = (const char *[]){b}, .n = 1, .max_step = 44}, &err);
    tap_i64(step, 30, "the newest one is never removed");
    free(dir);
}

/* The same tensors saved by this program have another identity; each knows that of the other. */
static void test_forms(const char *old_dir)
{
    lf_err err = LF_ERR_INIT;
    lf_ckpt *old = NULL, *now = NULL;
    lf_ckpt_writer *w = NULL;
    lf_ckpt_tensor t[60];
    char hex[2][LF_HASH_HEX];
    const lf_ckpt_options o = {.threads = 1};
    if (lf_ckpt_open(&old, old_dir, 1, &err) < 0 || lf_ckpt_n_entries(old) != 60)
        tap_bail("%s", err.text);
    for (size_t i = 0; i < 60; i++) {
        const lf_ckpt_entry *e = lf_ckpt_entry_at(old, i);
        t[i] =
            (lf_ckpt_tensor){.name = e->name, .kind = e->kind, .dtype = e->dtype, .ndim = e->ndim};
        memcpy(t[i].shape, e->shape, sizeof t[i].shape);
        void *data = malloc(bytes_of(&t[i]));
        if (lf_ckpt_read(old, e, NULL, NULL, data, &err) < 0)
            tap_bail("%s", err.text);
        t[i].data = data;
    }
    if (lf_ckpt_writer_create(&w, t, 60, &o, &err) < 0 ||
        lf_ckpt_save_begin(w, at("now"), lf_ckpt_state(old), &err) < 0 ||
        lf_ckpt_save_wait(w, NULL, &err) != 1 || lf_ckpt_open(&now, at("now"), 1, &err) < 0)
        tap_bail("%s", err.text);
    lf_hash_hex(hex[0], lf_ckpt_identity(old));
    lf_hash_hex(hex[1], lf_ckpt_identity(now));
    tap_ok(strcmp(hex[0], hex[1]) != 0, "the same tensors saved now");
    tap_ok(lf_ckpt_is(old, hex[0], &err) == 1 && lf_ckpt_is(old, hex[1], &err) == 1, "old is new");
    tap_ok(lf_ckpt_is(now, hex[0], &err) == 1 && lf_ckpt_is(now, hex[1], &err) == 1, "new is old");
    hex[0][5] ^= 1;
    tap_ok(lf_ckpt_is(old, hex[0], &err) == 0 && lf_ckpt_is(now, hex[0], &err) == 0,
           "another identity is none of them");
    for (size_t i = 0; i < 60; i++)
        free((void *)(uintptr_t)t[i].data);
    lf_ckpt_writer_destroy(w);
    lf_ckpt_close(old);
    lf_ckpt_close(now);
}

/* A checkpoint as it was written before leaves had a grid: opened in every mode, read, and saved
 * again. */
static void test_old(void)
{
    static const char identity[] =
        "8d46fce3cd790ff1e265494d9fbaad7b1ef1aaab7855e9ab95edfe13cb22ecbd";
    static const char *const files[] = {"data-00000.h5", "state.json", "manifest.json"};
    char src[4096], dir[4096], path[2][8192], hex[LF_HASH_HEX];
    static float buf[512];
    lf_err err = LF_ERR_INIT;
    snprintf(src, sizeof src, "%s/tests/golden/store/ckpt-1",
             getenv("LF_SRCDIR") ? getenv("LF_SRCDIR") : "..");
    snprintf(dir, sizeof dir, "%s", at("old"));
    lf_io_mkdirs(dir, 0750, &err);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        size_t n;
        snprintf(path[0], sizeof path[0], "%s/%s", src, files[i]);
        snprintf(path[1], sizeof path[1], "%s/%s", dir, files[i]);
        char *data = slurp(path[0], &n);
        spit(path[1], data, n);
        free(data);
    }
    const lf_ckpt_entry *e = NULL;
    for (int mode = LF_CKPT_CHECK_ALL; mode <= LF_CKPT_CHECK_READS; mode++) {
        lf_ckpt *c = NULL;
        if (lf_ckpt_open_checked(&c, dir, (enum lf_ckpt_check)mode, 1, &err) < 0)
            tap_bail("%s", err.text);
        lf_hash_hex(hex, lf_ckpt_identity(c));
        tap_ok(strcmp(hex, identity) == 0 && lf_ckpt_identity_version(c) == 1 &&
                   lf_ckpt_step(c) == 2,
               "an old checkpoint has its identity");
        tap_i64((int64_t)lf_ckpt_n_entries(c), 60, "its tensors");
        e = lf_ckpt_find(c, "model/embed.weight", "weight");
        tap_rc(lf_ckpt_read(c, e, NULL, NULL, buf, &err), 0, &err, NULL, "their bytes");
        tap_f64(buf[511], -0.0032845272216945887, 0, "the last number of one");
        lf_ckpt_close(c);
    }
    test_forms(dir);
    /* In the mode that hashes what it reads, one wrong bit in the tensor is seen, elsewhere not. */
    snprintf(path[1], sizeof path[1], "%s/data-00000.h5", dir);
    lf_ckpt *c = NULL;
    struct lf_ckpt_piece *p = NULL;
    if (lf_ckpt_open_checked(&c, dir, LF_CKPT_CHECK_READS, 1, &err) < 0)
        tap_bail("%s", err.text);
    e = lf_ckpt_find(c, "model/embed.weight", "weight");
    p = ((const struct lf_ckpt_rec *)(const void *)e)->pieces;
    overwrite(path[1], (off_t)p->offset + 17, "x", 1);
    int64_t flat[2] = {0, 1};
    tap_rc(lf_ckpt_read_part(c, e, NULL, NULL, flat, buf, &err), LF_EFORMAT, &err,
           "model/embed.weight (weight) in data-00000.h5 is damaged", "a damaged tensor");
    e = lf_ckpt_find(c, "model/embed.weight", "adam_m");
    tap_rc(lf_ckpt_read_part(c, e, NULL, NULL, flat, buf, &err), 0, &err, NULL, "one beside it");
    lf_ckpt_close(c);
}

int main(void)
{
    TAP(18, test_old());
    TAP(47, test_layouts());
    TAP(14, test_snapshot());
    TAP(14, test_fill());
    TAP(7, test_fill_units());
    TAP(37, test_resume());
    TAP(9, test_refused());
    TAP(42, test_damage());
    TAP(8, test_boxes_by_hand());
    TAP(2, test_killed());
    TAP(2, test_disk_full());
    TAP(6, test_unreadable());
    TAP(17, test_newest_and_retain());
    return tap_done();
}

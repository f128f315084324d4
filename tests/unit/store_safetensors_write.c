/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing safetensors: files equal those of the Python library byte for byte, nothing is left
 * half-written, hashes are those of the files.
 */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/str.h"
#include "engine/store/safetensors.h"
#include "engine/store/sink.h"
#include "tests/tap/tap.h"

#define KNOWN_PART 6 /* copies in parts of this length know the hash of tensor 1 */

static char dir[4096];

static void fresh_dir(const char *name)
{
    lf_err err = LF_ERR_INIT;
    snprintf(dir, sizeof dir, "%s/%s", tap_tmpdir(), name);
    if (lf_io_mkdirs(dir, 0750, &err) < 0)
        tap_bail("%s", err.text);
}

static int files_in_dir(void)
{
    int n = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));)
        n += e->d_name[0] != '.';
    if (d)
        closedir(d);
    return n;
}

static lf_st *open_golden(const char *name)
{
    char path[4096];
    lf_err err = LF_ERR_INIT;
    lf_st *s = NULL;
    const char *src = getenv("LF_SRCDIR");
    snprintf(path, sizeof path, "%s/tests/golden/store/safetensors/%s", src ? src : ".", name);
    if (lf_st_open(&s, path, &err) < 0)
        tap_bail("%s", err.text);
    return s;
}

static lf_st_decl decl_of(const lf_st_entry *e)
{
    lf_st_decl d = {.name = e->name, .dtype = e->dtype, .ndim = e->ndim};
    memcpy(d.shape, e->shape, sizeof d.shape);
    return d;
}

static void same_file(const char *got_dir, const char *got_name, const char *want_path)
{
    lf_err err = LF_ERR_INIT;
    lf_buf a, b;
    char *path = lf_path_join(got_dir, got_name, &err);
    lf_buf_init(&a);
    lf_buf_init(&b);
    if (!path || lf_io_read_file(path, 1 << 20, &a, &err) < 0 ||
        lf_io_read_file(want_path, 1 << 20, &b, &err) < 0)
        tap_ok(false, "%s", err.text);
    else
        tap_ok(a.len == b.len && memcmp(a.data, b.data, a.len) == 0,
               "%s is the library's, byte for byte (%zu, %zu bytes)", got_name, a.len, b.len);
    lf_buf_fini(&a);
    lf_buf_fini(&b);
    free(path);
}

/* Copy every tensor of s through w, in parts of `part` bytes. */
static int copy_tensors(lf_st_writer *w, const lf_st *s, const lf_st_decl *decl, size_t n,
                        size_t part, lf_err *err)
{
    int rc = 0;
    for (size_t i; rc == 0 && (i = lf_st_writer_next(w)) < n;) {
        const lf_st_entry *e = lf_st_find(s, decl[i].name);
        unsigned char buf[4096];
        size_t bytes = (size_t)e->bytes;
        rc = lf_st_read(s, e, 0, e->elems, buf, err);
        for (size_t at = 0; at < bytes && rc == 0; at += part)
            rc = lf_st_writer_put(w, buf + at, bytes - at < part ? bytes - at : part, err);
    }
    return rc;
}

static void check_hashes(const lf_st_written *files, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint8_t sum[LF_HASH_BYTES];
        int64_t bytes = 0;
        lf_err err = LF_ERR_INIT;
        char *path = lf_path_join(dir, files[i].name, &err);
        tap_rc(path ? lf_tree_hash_file(sum, &bytes, path, &err) : LF_ENOMEM, 0, &err, NULL,
               files[i].name);
        tap_mem(files[i].sha256, sum, sizeof sum, "hash of the file");
        tap_i64(files[i].bytes, bytes, "length of the file");
        free(path);
    }
}

/* Write what the golden set has, declared in the order of `names` (NULL: that of the files). */
static void round_trip(const char *golden, const char *const *names, const lf_st_write_options *o,
                       size_t part)
{
    lf_err err = LF_ERR_INIT;
    lf_st *s = open_golden(golden);
    size_t n = lf_st_n_entries(s), n_files = 0;
    lf_st_decl decl[64];
    lf_st_writer *w = NULL;
    lf_st_written *files = NULL;
    for (size_t i = 0; i < n; i++)
        decl[i] = decl_of(names ? lf_st_find(s, names[i]) : lf_st_entry_at(s, n - 1 - i));
    tap_rc(lf_st_writer_create(&w, dir, decl, n, o, &err), 0, &err, NULL, golden);
    const uint8_t known[LF_HASH_BYTES] = {1, 2, 3};
    if (part == KNOWN_PART)
        lf_st_writer_know(w, 1, known);
    tap_rc(copy_tensors(w, s, decl, n, part, &err), 0, &err, NULL, "tensors");
    if (part == KNOWN_PART)
        tap_mem(lf_st_writer_hash(w, 1), known, sizeof known, "a hash that is known is taken");
    tap_rc(lf_st_writer_finish(w, &files, &n_files, &err), 0, &err, NULL, "finish");
    for (size_t i = 0; i < n && o && o->hash_tensors; i++) {
        if (part == KNOWN_PART && i == 1)
            continue;
        uint8_t sum[LF_HASH_BYTES];
        unsigned char buf[4096];
        const lf_st_entry *e = lf_st_find(s, decl[i].name);
        lf_tree_hash *h = lf_tree_hash_create(&err);
        if (!h || lf_st_read(s, e, 0, e->elems, buf, &err) < 0 ||
            lf_tree_hash_update(h, buf, (size_t)e->bytes, &err) < 0 ||
            lf_tree_hash_final(h, sum, &err) < 0)
            tap_bail("%s", err.text);
        lf_tree_hash_destroy(h);
        tap_mem(lf_st_writer_hash(w, i), sum, sizeof sum, "hash of a tensor");
    }
    tap_i64(files_in_dir(), (int64_t)n_files, "nothing else is in the directory");
    check_hashes(files, n_files);
    lf_st_writer_destroy(w);
    lf_st_written_free(files, n_files);
    tap_i64(files_in_dir(), (int64_t)n_files, "destroying leaves them there");
    lf_st_close(s);
}

static void equal_bytes(void)
{
    char path[8192];
    static const char *const NAMES[] = {"t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7", "t8"};
    const char *src = getenv("LF_SRCDIR");
    fresh_dir("one");
    round_trip("all.safetensors", NULL, &(lf_st_write_options){.hash_tensors = true}, 5);
    snprintf(path, sizeof path, "%s/tests/golden/store/safetensors/all.safetensors",
             src ? src : ".");
    same_file(dir, "model.safetensors", path);
    fresh_dir("known");
    round_trip("all.safetensors", NULL, &(lf_st_write_options){.hash_tensors = true}, KNOWN_PART);
    fresh_dir("many");
    round_trip("sharded", NAMES, &(lf_st_write_options){.max_file = 100}, 1000);
    for (int i = 0; i <= 6; i++) {
        char name[64] = LF_SAFETENSORS_INDEX;
        if (i)
            snprintf(name, sizeof name, "model-%05d-of-00006.safetensors", i);
        snprintf(path, sizeof path, "%s/tests/golden/store/safetensors/sharded/%s", src ? src : ".",
                 name);
        same_file(dir, name, path);
    }
    fresh_dir("again");
    round_trip("sharded", NAMES, &(lf_st_write_options){.stem = "adapter", .format = "lf"}, 1000);
    snprintf(path, sizeof path, "%s/adapter.safetensors", dir);
    tap_ok(lf_io_exists(path), "another stem");
}

static void nothing(void)
{
    lf_err err = LF_ERR_INIT;
    lf_st_writer *w = NULL;
    lf_st *s = NULL;
    fresh_dir("none");
    tap_rc(lf_st_writer_create(&w, dir, NULL, 0, &(lf_st_write_options){.format = ""}, &err), 0,
           &err, NULL, "no tensors");
    tap_rc(lf_st_writer_finish(w, NULL, NULL, &err), 0, &err, NULL, "no tensors");
    lf_st_writer_destroy(w);
    tap_rc(lf_st_open(&s, dir, &err), 0, &err, NULL, "is a file without tensors");
    lf_st_close(s);
    tap_rc(lf_st_writer_create(&w, dir, NULL, 0, NULL, &err), LF_EEXIST, &err,
           "model.safetensors is there already", "never written over");
    lf_st_writer_destroy(NULL);
    lf_sink_destroy(NULL);
}

static void refusals(void)
{
    lf_err err = LF_ERR_INIT;
    lf_st_writer *w = NULL;
    const struct {
        lf_st_decl d[2];
        size_t n;
        const char *text;
    } V[] = {
        {{{"a", LF_ST_F32, 1, {1}}, {"a", LF_ST_F32, 1, {2}}}, 2, "tensor a is declared twice"},
        {{{"__metadata__", LF_ST_F32, 1, {1}}}, 1, "cannot be the name"},
        {{{"", LF_ST_F32, 1, {1}}}, 1, "cannot be the name"},
        {{{"\xff", LF_ST_F32, 1, {1}}}, 1, "cannot be the name"},
        {{{"a", 0, 1, {1}}}, 1, "unknown type"},
        {{{"a", LF_ST_F32, 9, {1}}}, 1, "9 dimensions"},
        {{{"a", LF_ST_F32, 2, {INT64_MAX, 2}}}, 1, "no file can hold"},
        {{{"a", LF_ST_F32, 1, {-1}}}, 1, "no file can hold"}};
    fresh_dir("bad");
    for (size_t i = 0; i < sizeof V / sizeof *V; i++)
        tap_rc(lf_st_writer_create(&w, dir, V[i].d, V[i].n, NULL, &err), LF_EINVAL, &err, V[i].text,
               V[i].text);
    tap_i64(files_in_dir(), 0, "refusals leave nothing");
    const lf_st_decl two[] = {{"a", LF_ST_F32, 1, {2}}, {"b", LF_ST_F32, 1, {2}}};
    const lf_st_write_options o = {.max_file = 8};
    tap_rc(lf_st_writer_create(&w, dir, two, 2, &o, &err), 0, &err, NULL, "two files");
    tap_rc(lf_st_writer_put(w, "12345678", 8, &err), 0, &err, NULL, "the first");
    tap_rc(lf_st_writer_put(w, "12345678x", 9, &err), LF_EINVAL, &err,
           "9 bytes are more than b has left", "too many");
    tap_rc(lf_st_writer_put(w, "1234", 4, &err), 0, &err, NULL, "half of the second");
    tap_rc(lf_st_writer_finish(w, NULL, NULL, &err), LF_EINVAL, &err,
           "tensor b was not written in full", "too early");
    tap_i64(files_in_dir(), 2, "two temporary files");
    lf_st_writer_destroy(w);
    tap_i64(files_in_dir(), 0, "given up: nothing is left");
    fresh_dir("bad/not/there");
    rmdir(dir);
    tap_rc(lf_st_writer_create(&w, dir, two, 2, &o, &err), LF_ENOENT, &err, "cannot create",
           "no directory");
}

/* The name appears while the file is being written. */
static void race(void)
{
    lf_err err = LF_ERR_INIT;
    lf_st_writer *w = NULL;
    char path[8192];
    const lf_st_decl two[] = {{"a", LF_ST_F32, 1, {2}}, {"b", LF_ST_F32, 1, {2}}};
    fresh_dir("race");
    snprintf(path, sizeof path, "%s/model-00002-of-00002.safetensors", dir);
    if (lf_st_writer_create(&w, dir, two, 2, &(lf_st_write_options){.max_file = 8}, &err) < 0 ||
        lf_st_writer_put(w, "12345678", 8, &err) < 0 ||
        lf_st_writer_put(w, "12345678", 8, &err) < 0 ||
        lf_io_write_file(path, "other", 5, 0640, &err) < 0)
        tap_bail("%s", err.text);
    tap_rc(lf_st_writer_finish(w, NULL, NULL, &err), LF_EEXIST, &err, "00002-of-00002",
           "somebody else's file");
    lf_st_writer_destroy(w);
    tap_i64(files_in_dir(), 1, "only that is left");
    tap_i64(lf_io_size(path, NULL), 5, "as it was");
}

/* A limit on the length of files stands for a full disk: many blocks, so that the threads meet
 * it. */
static void full_disk(void)
{
    lf_err err = LF_ERR_INIT;
    lf_st_writer *w = NULL;
    struct rlimit old, small;
    const lf_st_decl d = {"a", LF_ST_U8, 1, {64 << 20}};
    static unsigned char zeros[1 << 20];
    int rc = 0;
    fresh_dir("full");
    getrlimit(RLIMIT_FSIZE, &old);
    small = old;
    small.rlim_cur = 9 << 20;
    setrlimit(RLIMIT_FSIZE, &small);
    if (lf_st_writer_create(&w, dir, &d, 1, NULL, &err) < 0)
        tap_bail("%s", err.text);
    for (int i = 0; i < 64 && rc == 0; i++)
        rc = lf_st_writer_put(w, zeros, sizeof zeros, &err);
    tap_rc(rc, LF_EIO, &err, "model.safetensors.tmp", "a full disk is told by name");
    tap_rc(lf_st_writer_put(w, zeros, 1, &err), LF_EINVAL, &err, "failed before", "and stays told");
    tap_rc(lf_st_writer_finish(w, NULL, NULL, &err), LF_EINVAL, &err, "failed", "to the end");
    lf_st_writer_destroy(w);
    setrlimit(RLIMIT_FSIZE, &old);
    tap_i64(files_in_dir(), 0, "nothing is left");
}

/* Lengths around the block of the sink, through both ways in. */
static void sinks(void)
{
    const size_t B = LF_SINK_BLOCK,
                 V[] = {0, 1, B - 1, B, B + 1, 3 * B, (LF_SINK_BLOCKS + 2) * B + 7};
    lf_err err = LF_ERR_INIT;
    lf_sink *k = NULL;
    char path[8192];
    fresh_dir("sink");
    snprintf(path, sizeof path, "%s/x", dir);
    for (size_t i = 0; i < sizeof V / sizeof *V; i++) {
        uint8_t got[LF_HASH_BYTES], want[LF_HASH_BYTES];
        int64_t bytes = -1;
        int rc = lf_sink_create(&k, path, 0640, &err);
        for (size_t at = 0; at < V[i] && rc == 0;) {
            void *room;
            size_t n;
            rc = lf_sink_room(k, &room, &n, &err);
            n = n > V[i] - at ? V[i] - at : n > 1000003 ? 1000003 : n;
            memset(room, (int)(at % 251), n);
            lf_sink_add(k, n);
            at += n;
        }
        tap_rc(rc, 0, &err, NULL, "bytes in");
        tap_rc(lf_sink_finish(k, &bytes, got, &err), 0, &err, NULL, "finish");
        tap_i64(bytes, (int64_t)V[i], "length");
        lf_tree_hash_file(want, &bytes, path, &err);
        tap_mem(got, want, sizeof want, "hash");
        tap_rc(lf_sink_create(&k, path, 0640, &err), LF_EEXIST, &err, "cannot create",
               "there already");
        unlink(path);
    }
    if (lf_sink_create(&k, path, 0640, &err) < 0 || lf_sink_put(k, "x", 1, &err) < 0)
        tap_bail("%s", err.text);
    lf_sink_destroy(k);
    tap_i64(files_in_dir(), 0, "given up: nothing is left");
}

/* ---- files of a writer that did not end ---- */

#define PARTS 6

static int put_parts(const char *where, const char *from, const char *key, int stop, int *put,
                     lf_st_written **files, size_t *n_files)
{
    static const char *const names[PARTS] = {"a", "b", "c", "d", "e", "f"};
    lf_st_decl d[PARTS];
    lf_st_write_options o = {.max_file = 2400,
                             .hash_tensors = true,
                             .resume = {.key = key, .dirs = &from, .n_dirs = from != NULL}};
    lf_st_writer *w = NULL;
    lf_err err = LF_ERR_INIT;
    int32_t v[250];
    size_t k;
    for (int i = 0; i < PARTS; i++)
        d[i] = (lf_st_decl){.name = names[i], .dtype = LF_ST_I32, .ndim = 1, .shape = {250}};
    if (lf_io_mkdirs(where, 0750, &err) < 0 ||
        lf_st_writer_create(&w, where, d, PARTS, &o, &err) < 0)
        tap_bail("%s", err.text);
    *put = 0;
    int rc = 0;
    while (!rc && *put != stop && (k = lf_st_writer_next(w)) < PARTS) {
        for (int i = 0; i < 250; i++)
            v[i] = (int32_t)(1000 * k) + i;
        rc = lf_st_writer_put(w, v, sizeof v, &err);
        ++*put;
    }
    if (!rc && lf_st_writer_next(w) == PARTS)
        rc = lf_st_writer_finish(w, files, n_files, &err);
    else
        lf_st_writer_keep(w);
    for (size_t i = 0; i < PARTS && rc == 0 && files && *files; i++) {
        uint8_t want[LF_HASH_BYTES];
        for (int k2 = 0; k2 < 250; k2++)
            v[k2] = (int32_t)(1000 * i) + k2;
        lf_tree_hash *h = lf_tree_hash_create(&err);
        lf_tree_hash_update(h, v, sizeof v, &err);
        lf_tree_hash_final(h, want, &err);
        lf_tree_hash_destroy(h);
        if (memcmp(want, lf_st_writer_hash(w, i), LF_HASH_BYTES) != 0)
            rc = LF_EFORMAT;
    }
    lf_st_writer_destroy(w);
    return rc;
}

static bool same_written(const char *a, const char *b)
{
    static const char *const names[] = {
        "model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
        "model-00003-of-00003.safetensors", "model.safetensors.index.json"};
    bool same = true;
    for (size_t i = 0; i < 4 && same; i++) {
        lf_buf x, y;
        lf_err err = LF_ERR_INIT;
        char *p = lf_path_join(a, names[i], &err), *q = lf_path_join(b, names[i], &err);
        lf_buf_init(&x);
        lf_buf_init(&y);
        same = p && q && lf_io_read_file(p, 1 << 20, &x, &err) == 0 &&
               lf_io_read_file(q, 1 << 20, &y, &err) == 0 && x.len == y.len &&
               memcmp(x.data, y.data, x.len) == 0;
        lf_buf_fini(&x);
        lf_buf_fini(&y);
        free(p);
        free(q);
    }
    return same;
}

static void resume(void)
{
    char want[4096], from[4096], to[4096], file[8192];
    lf_st_written *files = NULL;
    size_t n = 0;
    int put;
    snprintf(want, sizeof want, "%s/resume-whole", tap_tmpdir());
    tap_i64(put_parts(want, NULL, NULL, -1, &put, &files, &n), 0, "in one go");
    lf_st_written_free(files, n);
    for (int stop = 0; stop < PARTS; stop++) {
        snprintf(from, sizeof from, "%s/resume-from%d", tap_tmpdir(), stop);
        snprintf(to, sizeof to, "%s/resume-to%d", tap_tmpdir(), stop);
        put_parts(from, NULL, "aa", stop, &put, NULL, NULL);
        files = NULL;
        tap_i64(put_parts(to, from, "aa", -1, &put, &files, &n), 0,
                "goes on, with the right hashes");
        tap_i64(put, PARTS - stop / 2 * 2, "with what is not in a complete file");
        tap_ok(same_written(want, to), "the same bytes as in one go");
        lf_st_written_free(files, n);
    }
    snprintf(file, sizeof file, "%s/model-00001-of-00003.safetensors.tmp", from);
    FILE *f = fopen(file, "r+");
    if (!f || fseek(f, 500, SEEK_SET) != 0 || fputs("damage", f) < 0 || fclose(f) != 0)
        tap_bail("damage");
    snprintf(to, sizeof to, "%s/resume-damaged", tap_tmpdir());
    tap_i64(put_parts(to, from, "aa", -1, &put, NULL, NULL), 0, "a damaged file");
    tap_i64(put, PARTS - 2, "is made again, the other is not");
    tap_ok(same_written(want, to), "the same bytes as in one go");
    snprintf(to, sizeof to, "%s/resume-other", tap_tmpdir());
    put_parts(to, from, "ab", -1, &put, NULL, NULL);
    tap_i64(put, PARTS, "another source: nothing is taken over");
    snprintf(file, sizeof file, "%s/" LF_PARTIAL_FILE, to);
    tap_ok(access(file, F_OK) != 0, "no record is left");
}

int main(void)
{
    signal(SIGXFSZ, SIG_IGN);
    TAP(109, equal_bytes());
    TAP(4, nothing());
    TAP(17, refusals());
    TAP(3, race());
    TAP(4, full_disk());
    TAP(24, resume());
    TAP(36, sinks());
    return tap_done();
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * io.h and hash.h: whole reads, publication, trees; SHA-256 vectors and the tree hash. The order of
 * system calls in a publication (write, fsync, link, unlink, fsync of the directory) is proved by
 * recording them: the linker wraps them.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/hash.h"
#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "tests/tap/tap.h"

/* ---- the trace: -Wl,--wrap=... in local.mk ---- */
static char trace[256];
static int fail_fsync_at, n_fsync;

static void note(char c)
{
    size_t n = strlen(trace);
    if (n + 1 < sizeof trace) {
        trace[n] = c;
        trace[n + 1] = '\0';
    }
}

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    struct stat st;
    fstat(fd, &st);
    note(S_ISDIR(st.st_mode) ? 'D' : 'S');
    if (++n_fsync == fail_fsync_at) {
        errno = EIO;
        return -1;
    }
    return __real_fsync(fd);
}
ssize_t __real_write(int fd, const void *p, size_t n);
ssize_t __wrap_write(int fd, const void *p, size_t n);
ssize_t __wrap_write(int fd, const void *p, size_t n)
{
    note('w');
    return __real_write(fd, p, n);
}
int __real_link(const char *a, const char *b);
int __wrap_link(const char *a, const char *b);
int __wrap_link(const char *a, const char *b)
{
    note('L');
    return __real_link(a, b);
}
int __real_unlink(const char *a);
int __wrap_unlink(const char *a);
int __wrap_unlink(const char *a)
{
    note('U');
    return __real_unlink(a);
}
int __real_rename(const char *a, const char *b);
int __wrap_rename(const char *a, const char *b);
int __wrap_rename(const char *a, const char *b)
{
    note('R');
    return __real_rename(a, b);
}

static const char *dir;
static char path_buf[4][1024];

static const char *in_dir(int slot, const char *name)
{
    snprintf(path_buf[slot], sizeof path_buf[slot], "%s/%s", dir, name);
    return path_buf[slot];
}

static int files_in(const char *name)
{
    lf_err err = LF_ERR_INIT;
    char cmd[1200];
    int n = -1;
    snprintf(cmd, sizeof cmd, "ls -A '%s' | wc -l", in_dir(3, name));
    FILE *f = popen(cmd, "re");
    if (!f || fscanf(f, "%d", &n) != 1)
        lf_fail(&err, LF_EIO, "ls");
    if (f)
        pclose(f);
    return n;
}

static void test_publish(void)
{
    lf_err err = LF_ERR_INIT;
    lf_buf b;
    lf_buf_init(&b);
    lf_io_mkdirs(in_dir(0, "pub"), 0755, &err);
    const char *p = in_dir(0, "pub/marker");
    trace[0] = '\0';
    tap_rc(lf_io_publish(p, "one", 3, 0644, &err), 0, &err, NULL, "publish");
    tap_str(trace, "wSLUD", "order: write, fsync, link, unlink, fsync of the directory");
    tap_rc(lf_io_publish(p, "two", 3, 0644, &err), LF_EEXIST, &err, "exists already",
           "a second publish is refused");
    lf_io_read_file(p, 100, &b, &err);
    tap_str(b.data, "one", "and changes nothing");
    tap_i64(files_in("pub"), 1, "no temporary file stays");

    const char *q = in_dir(1, "pub/second");
    fail_fsync_at = n_fsync + 1;
    tap_rc(lf_io_publish(q, "x", 1, 0644, &err), LF_EIO, &err, "cannot sync",
           "a failing fsync is an error");
    tap_ok(!lf_io_exists(q), "and nothing is published");
    tap_i64(files_in("pub"), 1, "nor left behind");
    lf_io_write_file(in_dir(3, "pub/marker.1-2-3.tmp"), "", 0, 0644, &err);
    lf_io_write_file(in_dir(3, "pub/markers.1-2-3.tmp"), "", 0, 0644, &err);
    tap_rc(lf_io_tidy(p, &err), 0, &err, NULL, "what a killed publication left goes");
    tap_ok(!lf_io_exists(in_dir(3, "pub/marker.1-2-3.tmp")) && lf_io_exists(p) &&
               lf_io_exists(in_dir(3, "pub/markers.1-2-3.tmp")),
           "that of this name, and nothing else");
    remove(in_dir(3, "pub/markers.1-2-3.tmp"));
    tap_rc(lf_io_tidy(in_dir(3, "nowhere/marker"), &err), 0, &err, NULL,
           "in a directory that is not there nothing is to be done");

    const char *tmp = in_dir(2, "pub/tmp");
    lf_io_replace(tmp, "data", 4, 0600, &err);
    trace[0] = '\0';
    tap_rc(lf_io_publish_tmp(tmp, q, &err), 0, &err, NULL, "publish a written file");
    tap_str(trace, "SLDU", "order for a written file");
    tap_ok(!lf_io_exists(tmp) && lf_io_exists(q), "moved");
    trace[0] = '\0';
    tap_rc(lf_io_replace(q, "new", 3, 0644, &err), 0, &err, NULL, "replace");
    tap_str(trace, "wSRD", "order of replace");
    lf_buf_clear(&b);
    lf_io_read_file(q, 100, &b, &err);
    tap_str(b.data, "new", "replaced");
    lf_buf_fini(&b);
}

static void test_full_disk(void)
{
    lf_err err = LF_ERR_INIT;
    struct rlimit old, small = {1000, 1000};
    char data[4096] = {0};
    /* A file-size limit answers as a full disk does: a short write, then an error. */
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    small.rlim_max = old.rlim_max;
    setrlimit(RLIMIT_FSIZE, &small);
    int rc = lf_io_publish(in_dir(0, "pub/large"), data, sizeof data, 0644, &err);
    setrlimit(RLIMIT_FSIZE, &old);
    tap_rc(rc, LF_EIO, &err, "cannot write", "a full disk is an error");
    tap_ok(!lf_io_exists(in_dir(0, "pub/large")), "and publishes nothing");
    tap_i64(files_in("pub"), 2, "nor leaves a part");
}

static void test_files(void)
{
    lf_err err = LF_ERR_INIT;
    lf_buf b;
    lf_buf_init(&b);
    tap_rc(lf_io_read_file(in_dir(0, "none"), 10, &b, &err), LF_ENOENT, &err, "none",
           "an absent file");
    tap_rc(lf_io_read_file(dir, 10, &b, &err), LF_EINVAL, &err, "not a regular file",
           "a directory");
    lf_io_replace(in_dir(0, "ten"), "0123456789", 10, 0644, &err);
    tap_rc(lf_io_read_file(in_dir(0, "ten"), 9, &b, &err), LF_EFORMAT, &err, "larger than 9 bytes",
           "the cap");
    tap_i64((int64_t)b.len, 0, "nothing added on failure");
    tap_rc(lf_io_read_file(in_dir(0, "ten"), 10, &b, &err), 0, &err, NULL, "exactly the cap");
    tap_str(b.data, "0123456789", "contents");
    tap_i64(lf_io_size(in_dir(0, "ten"), &err), 10, "size");
    mkfifo(in_dir(1, "fifo"), 0600);
    tap_rc(lf_io_read_file(in_dir(1, "fifo"), 10, &b, &err), LF_EINVAL, &err, "not a regular",
           "a FIFO does not hang");
    char got[8];
    int fd = open(in_dir(0, "ten"), O_RDONLY | O_CLOEXEC);
    tap_rc(lf_io_pread_all(fd, got, 4, 6, "ten", &err), 0, &err, NULL, "pread at the end");
    tap_rc(lf_io_pread_all(fd, got, 4, 7, "ten", &err), LF_EFORMAT, &err, "1 bytes too early",
           "pread behind the end");
    close(fd);

    tap_rc(lf_io_mkdirs(in_dir(0, "a/b//c/"), 0755, &err), 0, &err, NULL, "mkdirs");
    tap_rc(lf_io_mkdirs(in_dir(0, "a/b/c"), 0755, &err), 0, &err, NULL, "mkdirs again");
    tap_rc(lf_io_mkdirs(in_dir(0, "ten/x"), 0755, &err), LF_EIO, &err, "ten", "a file in the way");
    lf_io_replace(in_dir(0, "a/b/f"), "", 0, 0644, &err);
    tap_ok(symlink("../../ten", in_dir(0, "a/b/link")) == 0, "symlink made");
    tap_rc(lf_io_remove_tree(in_dir(0, "a"), &err), 0, &err, NULL, "remove a tree");
    tap_ok(!lf_io_exists(in_dir(0, "a")) && lf_io_exists(in_dir(0, "ten")),
           "links are not followed");
    tap_rc(lf_io_remove_tree(in_dir(0, "a"), &err), 0, &err, NULL, "a missing tree is fine");
    char *j = lf_path_join("d/", "n", &err), *k = lf_path_join("", "n", &err);
    tap_str(j, "d/n", "join");
    tap_str(k, "n", "join to nothing");
    free(j);
    free(k);
    lf_buf_fini(&b);
}

static void hex_of(char hex[LF_HASH_HEX], const void *data, size_t n)
{
    uint8_t d[LF_HASH_BYTES] = {0};
    lf_hash_buf(d, data, n, NULL);
    lf_hash_hex(hex, d);
}

/* The tree hash written out from its definition. */
static void plain_tree(uint8_t out[LF_HASH_BYTES], const uint8_t *data, size_t n)
{
    uint8_t text[9 + 8 + 3 * LF_HASH_BYTES] = "lf-tree-1";
    size_t used = 17;
    for (int i = 0; i < 8; i++)
        text[9 + i] = (uint8_t)((uint64_t)n >> (8 * i));
    for (size_t at = 0; at < n; at += LF_HASH_LEAF, used += LF_HASH_BYTES)
        lf_hash_buf(text + used, data + at, n - at < LF_HASH_LEAF ? n - at : LF_HASH_LEAF, NULL);
    lf_hash_buf(out, text, used, NULL);
}

static void test_hash(void)
{
    lf_err err = LF_ERR_INIT;
    char hex[LF_HASH_HEX];
    hex_of(hex, "", 0);
    tap_str(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "SHA-256 of nothing");
    hex_of(hex, "abc", 3);
    tap_str(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            "SHA-256 of abc (FIPS 180-4)");

    size_t sizes[] = {
        0, 1, 1000, LF_HASH_LEAF - 1, LF_HASH_LEAF, LF_HASH_LEAF + 1, 2 * LF_HASH_LEAF};
    size_t most = 2 * LF_HASH_LEAF;
    uint8_t *data = lf_malloc(most, 1, &err), want[LF_HASH_BYTES], got[LF_HASH_BYTES] = {0};
    for (size_t i = 0; i < most; i++)
        data[i] = (uint8_t)(i * 2654435761u >> 13);
    int fd = open(in_dir(0, "big"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    lf_io_pwrite_all(fd, data, most, 0, "big", &err);
    lf_tree_hash *h = lf_tree_hash_create(&err);
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        size_t n = sizes[6 - s];
        int64_t bytes = -1;
        plain_tree(want, data, n);
        for (size_t at = 0; at < n;) {
            size_t take = at % 7 == 0 ? 12345677 : 30000001;
            take = take < n - at ? take : n - at;
            lf_tree_hash_update(h, data + at, take, &err);
            at += take;
        }
        tap_rc(lf_tree_hash_final(h, got, &err), 0, &err, NULL, "tree hash");
        tap_mem(got, want, sizeof want, "streamed in odd pieces equals the definition");
        if (ftruncate(fd, (off_t)n) < 0)
            tap_bail("ftruncate");
        memset(got, 0, sizeof got);
        tap_rc(lf_tree_hash_file(got, &bytes, in_dir(0, "big"), &err), 0, &err, NULL,
               "tree hash of a file");
        tap_mem(got, want, sizeof want, "file hash equals the definition");
        tap_i64(bytes, (int64_t)n, "its length");
    }
    tap_rc(lf_tree_hash_root(got, 5, NULL, 0, &err), LF_EINVAL, &err,
           "0 leaves do not make 5 bytes", "leaf count");
    tap_rc(lf_tree_hash_file(got, NULL, dir, &err), LF_EINVAL, &err, "regular", "a directory");
    lf_tree_hash_destroy(h);
    close(fd);
    free(data);
}

int main(void)
{
    dir = tap_tmpdir();
    TAP(17, test_publish());
    TAP(3, test_full_disk());
    TAP(19, test_files());
    TAP(39, test_hash());
    return tap_done();
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * frame.h: checksums, appending, following, torn tails of every length, corruption, cutting for a
 * resume, full disk.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "engine/base/frame.h"
#include "engine/base/io.h"
#include "tests/tap/tap.h"

static char path[1024];

struct seen {
    int n, stop_at, sum;
    int64_t last_offset;
    char last[64];
};

static int see(void *ctx, const char *payload, size_t n, int64_t offset, lf_err *err)
{
    struct seen *s = ctx;
    (void)err;
    if (s->stop_at && s->n == s->stop_at)
        return 0;
    s->n++;
    s->sum += atoi(payload);
    s->last_offset = offset;
    snprintf(s->last, sizeof s->last, "%.*s", (int)n, payload);
    return 1;
}

static int refuse(void *ctx, const char *payload, size_t n, int64_t offset, lf_err *err)
{
    (void)ctx, (void)payload, (void)n;
    return lf_fail(err, LF_EFORMAT, "no good at %lld", (long long)offset);
}

static void write_ten(void)
{
    lf_err err = LF_ERR_INIT;
    unlink(path);
    lf_frame_writer *w = lf_frame_writer_open(path, &err);
    for (int i = 1; i <= 10; i++) {
        char text[32];
        int n = snprintf(text, sizeof text, "%d record", i);
        lf_frame_append(w, text, (size_t)n, &err);
    }
    tap_rc(lf_frame_writer_close(w, &err), 0, &err, NULL, "ten records");
}

static void patch(int64_t at, const void *data, size_t n)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || pwrite(fd, data, n, (off_t)at) != (ssize_t)n)
        tap_bail("patch");
    close(fd);
}

static void test_crc(void)
{
    unsigned char zeros[32] = {0}, ones[32], up[32];
    memset(ones, 0xff, sizeof ones);
    for (int i = 0; i < 32; i++)
        up[i] = (unsigned char)i;
    /* RFC 3720, appendix B.4 */
    tap_i64(lf_crc32c(0, zeros, 32), 0x8a9136aa, "32 zeros");
    tap_i64(lf_crc32c(0, ones, 32), 0x62a8ab43, "32 ones");
    tap_i64(lf_crc32c(0, up, 32), 0x46dd794e, "0 to 31");
    tap_i64(lf_crc32c(0, "123456789", 9), 0xe3069283, "check value");
    tap_i64(lf_crc32c(lf_crc32c(0, "1234", 4), "56789", 5), 0xe3069283, "in pieces");
    tap_i64(lf_crc32c(0, "", 0), 0, "nothing");
}

static void test_follow(void)
{
    lf_err err = LF_ERR_INIT;
    struct seen s = {0};
    int64_t offset = 0;
    write_ten();
    tap_rc(lf_frame_read(path, &offset, see, &s, &err), 0, &err, NULL, "read");
    tap_i64(s.sum, 55, "all ten");
    lf_frame_writer *w = lf_frame_writer_open(path, &err);
    tap_i64(lf_frame_writer_offset(w), offset, "a writer goes on at the end");
    s = (struct seen){0};
    tap_rc(lf_frame_read(path, &offset, see, &s, &err), 0, &err, NULL, "nothing new");
    tap_i64(s.n, 0, "nothing");
    lf_frame_append(w, "11 x", 4, &err);
    tap_rc(lf_frame_read(path, &offset, see, &s, &err), 0, &err, NULL, "follow");
    tap_str(s.last, "11 x", "the new one");
    tap_rc(lf_frame_append(w, "", 0, &err), LF_EINVAL, &err, "record of 0 bytes",
           "an empty record");
    tap_rc(lf_frame_append(w, "", LF_FRAME_MAX + 1, &err), LF_EINVAL, &err, "1 to 1048576",
           "a huge record");
    lf_frame_writer_close(w, &err);
    offset = 0;
    s = (struct seen){.stop_at = 3};
    tap_rc(lf_frame_read(path, &offset, see, &s, &err), 0, &err, NULL, "stop after three");
    s = (struct seen){0};
    lf_frame_read(path, &offset, see, &s, &err);
    tap_str(s.last, "11 x", "and go on");
    tap_i64(s.n, 8, "with the fourth");
    int64_t before = offset = 0;
    tap_rc(lf_frame_read(path, &offset, refuse, NULL, &err), LF_EFORMAT, &err, "no good at 0",
           "a refusing callback");
    tap_i64(offset, before, "offset stays");
    offset = 1 << 20;
    tap_rc(lf_frame_read(path, &offset, see, &s, &err), LF_EFORMAT, &err, "cut or replaced",
           "offset behind the end");
}

static void test_torn(void)
{
    lf_err err = LF_ERR_INIT;
    struct seen s;
    int bad = 0;
    write_ten();
    int64_t full = lf_io_size(path, &err), nine, offset = 0;
    s = (struct seen){.stop_at = 9};
    lf_frame_read(path, &offset, see, &s, &err);
    nine = offset;
    for (int64_t size = full - 1; size >= nine; size--) {
        if (truncate(path, (off_t)size) < 0)
            tap_bail("truncate");
        offset = 0;
        s = (struct seen){0};
        if (lf_frame_read(path, &offset, see, &s, &err) < 0 || s.n != 9 || offset != nine)
            bad++;
    }
    tap_i64(bad, 0, "a tail torn anywhere is ignored");
    truncate(path, (off_t)(nine + 5));
    lf_frame_writer *w = lf_frame_writer_open(path, &err);
    tap_i64(lf_io_size(path, &err), nine, "the next writer cuts it off");
    lf_frame_append(w, "10 again", 8, &err);
    lf_frame_writer_close(w, &err);
    truncate(path, (off_t)(lf_io_size(path, &err) + 5000));
    offset = 0;
    s = (struct seen){0};
    tap_rc(lf_frame_read(path, &offset, see, &s, &err), 0, &err, NULL,
           "zeros to the end are a torn tail");
    tap_str(s.last, "10 again", "behind the last record");
    write_ten();
    patch(nine + LF_FRAME_HEAD, "X", 1);
    offset = 0;
    s = (struct seen){0};
    tap_rc(lf_frame_read(path, &offset, see, &s, &err), 0, &err, NULL,
           "a damaged last record is a torn tail");
    tap_i64(s.n, 9, "nine good");
}

static void test_corrupt(void)
{
    lf_err err = LF_ERR_INIT;
    struct seen s = {.stop_at = 4};
    char want[64];
    int64_t offset = 0, fourth;
    write_ten();
    lf_frame_read(path, &offset, see, &s, &err);
    fourth = s.last_offset;
    patch(fourth + LF_FRAME_HEAD + 1, "X", 1);
    snprintf(want, sizeof want, "record at byte %lld is damaged", (long long)fourth);
    offset = 0;
    s = (struct seen){0};
    tap_rc(lf_frame_read(path, &offset, see, &s, &err), LF_EFORMAT, &err, want,
           "a damaged record in the middle");
    tap_i64(s.n, 3, "three before it");
    tap_i64(offset, fourth, "offset stands at it");
    tap_ok(!lf_frame_writer_open(path, &err), "a writer refuses the file");
    tap_rc(err.rc, LF_EFORMAT, &err, want, "with the same words");
    patch(fourth, "\xff\xff\xff\x7f", 4);
    offset = 0;
    tap_rc(lf_frame_read(path, &offset, see, &s, &err), LF_EFORMAT, &err, want,
           "an impossible length");
    int64_t kept = -1;
    tap_rc(lf_frame_truncate(path, see, &s, &kept, &err), 0, &err, NULL, "a resume cuts it off");
    tap_i64(kept, 3, "keeping three");
    lf_frame_writer *w = lf_frame_writer_open(path, &err);
    tap_ok(w != NULL, "and can write again");
    lf_frame_writer_close(w, &err);
}

static void test_truncate(void)
{
    lf_err err = LF_ERR_INIT;
    struct seen s = {.stop_at = 6};
    int64_t kept = -1, offset = 0;
    write_ten();
    tap_rc(lf_frame_truncate(path, see, &s, &kept, &err), 0, &err, NULL, "cut behind the sixth");
    tap_i64(kept, 6, "six kept");
    s = (struct seen){0};
    lf_frame_read(path, &offset, see, &s, &err);
    tap_str(s.last, "6 record", "the sixth is the last");
    tap_i64(offset, lf_io_size(path, &err), "nothing behind it");
    tap_rc(lf_frame_truncate(path, refuse, NULL, &kept, &err), LF_EFORMAT, &err, "no good",
           "a failing callback");
    tap_i64(lf_io_size(path, &err), offset, "cuts nothing");
    tap_rc(lf_frame_truncate("/nonexistent/m", see, &s, &kept, &err), 0, &err, NULL,
           "an absent file");
    tap_i64(kept, 0, "is empty");
    static const char text[] = "Once upon a time, there was a text that nobody wanted to lose.\n";
    tap_rc(lf_io_replace(path, text, strlen(text), 0644, &err), 0, &err, NULL,
           "a file of another kind");
    tap_rc(lf_frame_truncate(path, see, &s, &kept, &err), LF_EFORMAT, &err, "right file",
           "is refused");
    tap_i64(lf_io_size(path, &err), (int64_t)strlen(text), "and stays as it is");
}

static void test_full_disk(void)
{
    lf_err err = LF_ERR_INIT;
    struct rlimit old, small;
    char data[200] = {'1'};
    unlink(path);
    lf_frame_writer *w = lf_frame_writer_open(path, &err);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    small = old;
    small.rlim_cur = 1000;
    setrlimit(RLIMIT_FSIZE, &small);
    int n = 0, rc;
    while ((rc = lf_frame_append(w, data, sizeof data, &err)) == 0)
        n++;
    setrlimit(RLIMIT_FSIZE, &old);
    tap_rc(rc, LF_EIO, &err, path, "a full disk is an error");
    tap_i64(n, 4, "four records fit");
    tap_i64(lf_io_size(path, &err), 4 * (200 + LF_FRAME_HEAD), "no half record stays");
    tap_rc(lf_frame_append(w, data, sizeof data, &err), 0, &err, NULL,
           "room again, writing goes on");
    lf_frame_writer_close(w, &err);
}

int main(void)
{
    snprintf(path, sizeof path, "%s/metrics", tap_tmpdir());
    TAP(6, test_crc());
    TAP(16, test_follow());
    TAP(8, test_torn());
    TAP(10, test_corrupt());
    TAP(12, test_truncate());
    TAP(4, test_full_disk());
    return tap_done();
}

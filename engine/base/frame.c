/* SPDX-License-Identifier: Apache-2.0
 *
 * Framed append-only files: checksum, writer, reader, cut.
 */
#include "engine/base/frame.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/le.h"
#include "engine/base/mem.h"

/* Reflected polynomial 0x82F63B78, four bits at a time: records are short and a 64-byte table needs
 * no set-up. */
static uint32_t crc_nibbles(uint32_t crc, const uint8_t *p, size_t n)
{
    static const uint32_t table[16] = {0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1,
                                       0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
                                       0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
                                       0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75};
    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        crc = crc >> 4 ^ table[crc & 15];
        crc = crc >> 4 ^ table[crc & 15];
    }
    return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc_sse42(uint32_t crc, const uint8_t *p,
                                                            size_t n)
{
    uint64_t c = crc;
    for (; n >= 8; p += 8, n -= 8) {
        uint64_t v;
        memcpy(&v, p, 8);
        c = __builtin_ia32_crc32di(c, v);
    }
    crc = (uint32_t)c;
    for (; n; p++, n--)
        crc = __builtin_ia32_crc32qi(crc, *p);
    return crc;
}
#endif

uint32_t lf_crc32c(uint32_t crc, const void *data, size_t n)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2"))
        return ~crc_sse42(~crc, data, n);
#endif
    return ~crc_nibbles(~crc, data, n);
}

/* ---- scanning ---- */

enum tail { TAIL_CLEAN, TAIL_TORN, TAIL_CORRUPT, TAIL_STOPPED };

struct scan {
    int fd;
    const char *path;
    int64_t size; /* of the file when the scan began: what is appended later is for the next scan */
    int64_t offset; /* behind the last accepted record */
    int64_t n;      /* accepted records */
    enum tail tail;
    bool foreign; /* does not even begin as a file of records */
    uint8_t *buf; /* LF_FRAME_MAX + 1 */
};

static int all_zero_to_end(const struct scan *s, bool *zero, lf_err *err)
{
    uint8_t chunk[4096];
    *zero = true;
    for (int64_t at = s->offset; at < s->size && *zero;) {
        size_t n = s->size - at < (int64_t)sizeof chunk ? (size_t)(s->size - at) : sizeof chunk;
        int rc = lf_io_pread_all(s->fd, chunk, n, (off_t)at, s->path, err);
        if (rc < 0)
            return rc;
        for (size_t i = 0; i < n; i++)
            *zero = *zero && chunk[i] == 0;
        at += (int64_t)n;
    }
    return 0;
}

/* Read the record at s->offset into s->buf. 1: whole, *len set; 0: the tail begins here (s->tail
 * says which). */
static int scan_record(struct scan *s, size_t *len, lf_err *err)
{
    uint8_t head[LF_FRAME_HEAD];
    int64_t left = s->size - s->offset;
    bool zero;
    int rc;
    s->tail = TAIL_CLEAN;
    if (left == 0)
        return 0;
    s->tail = TAIL_TORN;
    if (left < LF_FRAME_HEAD)
        return 0;
    if ((rc = lf_io_pread_all(s->fd, head, sizeof head, (off_t)s->offset, s->path, err)) < 0)
        return rc;
    uint32_t n = (uint32_t)lf_get_le(head, 4);
    if (n == 0 || n > LF_FRAME_MAX) {
        if ((rc = all_zero_to_end(s, &zero, err)) < 0)
            return rc;
        s->tail = zero ? TAIL_TORN : TAIL_CORRUPT;
        s->foreign = s->offset == 0 && n > LF_FRAME_MAX;
        return 0;
    }
    if ((int64_t)n > left - LF_FRAME_HEAD)
        return 0;
    if ((rc = lf_io_pread_all(s->fd, s->buf, n, (off_t)s->offset + LF_FRAME_HEAD, s->path, err)) <
        0)
        return rc;
    if (lf_crc32c(0, s->buf, n) != lf_get_le(head + 4, 4)) {
        s->tail = (int64_t)n == left - LF_FRAME_HEAD ? TAIL_TORN : TAIL_CORRUPT;
        return 0;
    }
    s->buf[n] = '\0';
    *len = n;
    return 1;
}

static int scan_all(struct scan *s, lf_frame_fn fn, void *ctx, lf_err *err)
{
    size_t len = 0;
    int rc;
    while ((rc = scan_record(s, &len, err)) > 0) {
        if (fn && (rc = fn(ctx, (const char *)s->buf, len, s->offset, err)) <= 0) {
            s->tail = TAIL_STOPPED;
            return rc;
        }
        s->offset += LF_FRAME_HEAD + (int64_t)len;
        s->n++;
    }
    return rc;
}

static int corrupt(const struct scan *s, lf_err *err)
{
    return lf_fail(err, LF_EFORMAT, "%s: the record at byte %lld is damaged (%lld bytes follow it)",
                   s->path, (long long)s->offset, (long long)(s->size - s->offset));
}

static int scan_open(struct scan *s, int fd, const char *path, int64_t offset, lf_err *err)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return lf_fail_errno(err, "cannot look at %s", path);
    if (!S_ISREG(st.st_mode))
        return lf_fail(err, LF_EINVAL, "%s is not a regular file", path);
    if (offset < 0 || offset > st.st_size)
        return lf_fail(err, LF_EFORMAT,
                       "%s has %lld bytes, fewer than the %lld read before: it was cut or replaced",
                       path, (long long)st.st_size, (long long)offset);
    *s = (struct scan){.fd = fd, .path = path, .size = st.st_size, .offset = offset};
    s->buf = lf_malloc(LF_FRAME_MAX + 1, 1, err);
    return s->buf ? 0 : LF_ENOMEM;
}

int lf_frame_read(const char *path, int64_t *offset, lf_frame_fn fn, void *ctx, lf_err *err)
{
    struct scan s = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return lf_fail_errno(err, "cannot open %s", path);
    int rc = scan_open(&s, fd, path, *offset, err);
    if (rc == 0) {
        rc = scan_all(&s, fn, ctx, err);
        *offset = s.offset;
        if (rc == 0 && s.tail == TAIL_CORRUPT)
            rc = corrupt(&s, err);
    }
    free(s.buf);
    close(fd);
    return rc < 0 ? rc : 0;
}

static int cut(int fd, const char *path, int64_t size, lf_err *err)
{
    if (ftruncate(fd, (off_t)size) < 0)
        return lf_fail_errno(err, "cannot cut %s to %lld bytes", path, (long long)size);
    return 0;
}

int lf_frame_truncate(const char *path, lf_frame_fn keep, void *ctx, int64_t *kept, lf_err *err)
{
    struct scan s = {0};
    int rc, fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        if (errno != ENOENT)
            return lf_fail_errno(err, "cannot open %s", path);
        if (kept)
            *kept = 0;
        return 0;
    }
    rc = scan_open(&s, fd, path, 0, err);
    if (rc == 0)
        rc = scan_all(&s, keep, ctx, err);
    /* A crash leaves zeros or bytes of records where they belong; this is somebody's file of
     * another kind. */
    if (rc == 0 && s.foreign)
        rc = lf_fail(err, LF_EFORMAT,
                     "%s is no file of records, so nothing is cut; is it the right file?", path);
    if (rc == 0 && s.offset < s.size)
        rc = cut(fd, path, s.offset, err);
    if (rc == 0)
        rc = lf_io_fsync(fd, path, err);
    if (rc == 0 && kept)
        *kept = s.n;
    free(s.buf);
    close(fd);
    return rc;
}

/* ---- writer ---- */

struct lf_frame_writer {
    int fd;
    char *path;
    int64_t offset;
    uint8_t *buf; /* head and payload, so that one write(2) carries both */
};

static void writer_free(lf_frame_writer *w)
{
    if (!w)
        return;
    if (w->fd >= 0)
        close(w->fd);
    free(w->path);
    free(w->buf);
    free(w);
}

lf_frame_writer *lf_frame_writer_open(const char *path, lf_err *err)
{
    struct scan s = {0};
    int rc = LF_ENOMEM;
    bool created = false;
    lf_frame_writer *w = lf_calloc(1, sizeof *w, err);
    if (!w)
        return NULL;
    w->fd = -1;
    w->path = lf_strdup(path, err);
    w->buf = lf_malloc(LF_FRAME_HEAD + LF_FRAME_MAX, 1, err);
    if (!w->path || !w->buf)
        goto out;
    w->fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (w->fd < 0 && errno == ENOENT) {
        w->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        created = true;
    }
    if (w->fd < 0) {
        rc = lf_fail_errno(err, "cannot open %s for writing", path);
        goto out;
    }
    if (created && (rc = lf_io_fsync_parent(path, err)) < 0)
        goto out;
    if ((rc = scan_open(&s, w->fd, path, 0, err)) < 0 || (rc = scan_all(&s, NULL, NULL, err)) < 0)
        goto out;
    if (s.tail == TAIL_CORRUPT)
        rc = corrupt(&s, err);
    else if (s.tail == TAIL_TORN)
        rc = cut(w->fd, path, s.offset, err);
    w->offset = s.offset;
out:
    free(s.buf);
    if (rc < 0) {
        writer_free(w);
        return NULL;
    }
    return w;
}

int lf_frame_append(lf_frame_writer *w, const void *payload, size_t n, lf_err *err)
{
    if (n == 0 || n > LF_FRAME_MAX)
        return lf_fail(err, LF_EINVAL, "%s: a record of %zu bytes (1 to %zu fit)", w->path, n,
                       LF_FRAME_MAX);
    lf_put_le(w->buf, n, 4);
    lf_put_le(w->buf + 4, lf_crc32c(0, payload, n), 4);
    memcpy(w->buf + LF_FRAME_HEAD, payload, n);
    int rc = lf_io_pwrite_all(w->fd, w->buf, LF_FRAME_HEAD + n, (off_t)w->offset, w->path, err);
    if (rc < 0) {
        /* The first failure is what the caller hears; a cut that fails as well leaves a torn tail,
         * which is legal. */
        (void)cut(w->fd, w->path, w->offset, NULL);
        return rc;
    }
    w->offset += LF_FRAME_HEAD + (int64_t)n;
    return 0;
}

int lf_frame_sync(lf_frame_writer *w, lf_err *err)
{
    return lf_io_fsync(w->fd, w->path, err);
}

int64_t lf_frame_writer_offset(const lf_frame_writer *w)
{
    return w->offset;
}

int lf_frame_writer_close(lf_frame_writer *w, lf_err *err)
{
    if (!w)
        return 0;
    int rc = lf_frame_sync(w, err), fd = w->fd;
    w->fd = -1;
    if (close(fd) < 0 && rc == 0)
        rc = lf_fail_errno(err, "cannot close %s", w->path);
    writer_free(w);
    return rc;
}

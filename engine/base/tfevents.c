/* SPDX-License-Identifier: Apache-2.0
 *
 * Event files of TensorBoard: see tfevents.h. The wire format of protobuf is written by hand: a
 * dozen fields of four types are less than a library.
 */
#include "engine/base/tfevents.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/frame.h"
#include "engine/base/io.h"
#include "engine/base/le.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"

#define PREFIX "events.out.tfevents."
#define HEAD   12 /* of a record: length and its checksum */
#define TAIL   4

struct lf_tfevents {
    int fd;
    char *path;
    int64_t offset; /* behind the last whole record */
    /* Value messages are built in `value` and collected in `summary`; `record` is what is
     * written. */
    lf_buf part, value, summary, record;
};

uint32_t lf_tfevents_crc(const void *data, size_t n)
{
    const uint32_t crc = lf_crc32c(0, data, n);
    return (crc >> 15 | crc << 17) + UINT32_C(0xa282ead8);
}

/* ---- protobuf ---- */

enum wire { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

static void put_varint(lf_buf *b, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        lf_buf_addc(b, (char)(v | 0x80));
    lf_buf_addc(b, (char)v);
}

static void put_key(lf_buf *b, int field, enum wire type)
{
    put_varint(b, (uint64_t)field << 3 | (uint64_t)type);
}

/* A field whose value is zero is left out, as every writer of proto3 does. */
static void put_int(lf_buf *b, int field, int64_t v)
{
    if (v == 0)
        return;
    put_key(b, field, VARINT);
    put_varint(b, (uint64_t)v);
}

static void put_bytes(lf_buf *b, int field, const void *data, size_t n)
{
    put_key(b, field, BYTES);
    put_varint(b, n);
    lf_buf_add(b, data, n);
}

/* A message within a message. */
static void put_part(lf_buf *b, int field, const lf_buf *part)
{
    put_bytes(b, field, part->data, part->len);
    b->failed |= part->failed;
}

static void put_text(lf_buf *b, int field, const char *text)
{
    put_bytes(b, field, text, strlen(text));
}

static void put_fixed(lf_buf *b, int field, enum wire type, uint64_t bits)
{
    uint8_t le[8];
    const size_t n = type == FIXED64 ? 8 : 4;
    lf_put_le(le, bits, n);
    put_key(b, field, type);
    lf_buf_add(b, le, n);
}

/* ---- records ---- */

/* The head of the next record and the fields that all events have. */
static void begin(lf_tfevents *w, double wall_s, int64_t step)
{
    static const char head[HEAD] = {0};
    uint64_t bits;
    lf_buf_clear(&w->record);
    lf_buf_add(&w->record, head, sizeof head);
    memcpy(&bits, &wall_s, sizeof bits);
    put_fixed(&w->record, 1, FIXED64, bits);
    put_int(&w->record, 2, step);
}

static int end(lf_tfevents *w, lf_err *err)
{
    lf_buf *b = &w->record;
    uint8_t sum[TAIL];
    int rc = lf_buf_check(b, err);
    if (rc != 0)
        return rc;
    uint8_t *head = (uint8_t *)b->data;
    const size_t n = b->len - HEAD;
    lf_put_le(head, n, 8);
    lf_put_le(head + 8, lf_tfevents_crc(head, 8), 4);
    lf_put_le(sum, lf_tfevents_crc(head + HEAD, n), TAIL);
    lf_buf_add(b, sum, sizeof sum);
    rc = lf_buf_check(b, err);
    if (rc == 0)
        rc = lf_io_pwrite_all(w->fd, b->data, b->len, (off_t)w->offset, w->path, err);
    if (rc == 0)
        w->offset += (int64_t)b->len;
    else
        (void)!ftruncate(w->fd, (off_t)w->offset); /* else the next record is written over it */
    return rc;
}

/* ---- the file ---- */

#define SECONDS_MAX 9999999999 /* of ten digits, as names have them */

/* The greatest SECONDS of the event files in dir; 0: none. Other programs may have put files there,
 * so a number that no writer makes does not count. */
static long long newest(const char *dir)
{
    long long max = 0;
    DIR *d = opendir(dir);
    for (const struct dirent *e; d && (e = readdir(d));) {
        if (!lf_str_has_prefix(e->d_name, PREFIX))
            continue;
        const long long s = strtoll(e->d_name + strlen(PREFIX), NULL, 10);
        max = s > max && s < SECONDS_MAX ? s : max;
    }
    if (d)
        closedir(d);
    return max;
}

/* Another process on this host may have taken the name. */
static int create(lf_tfevents *w, const char *dir, double wall_s, lf_err *err)
{
    char host[256] = "";
    long long seconds = (long long)wall_s, last = newest(dir);
    if (gethostname(host, sizeof host - 1) != 0 || !host[0])
        memcpy(host, "host", 5);
    seconds = seconds > last ? seconds : last + 1;
    for (int i = 0; i < 1000; i++) {
        lf_buf b;
        lf_buf_init(&b);
        lf_buf_addf(&b, "%s/" PREFIX "%010lld.%s.%ld.%d", dir, seconds, host, (long)getpid(), i);
        free(w->path);
        if (!(w->path = lf_buf_steal(&b, err)))
            return LF_ENOMEM;
        w->fd = open(w->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        if (w->fd >= 0)
            return 0;
        if (errno != EEXIST)
            break;
    }
    return lf_fail_errno(err, "cannot make %s", w->path);
}

lf_tfevents *lf_tfevents_open(const char *dir, double wall_s, lf_err *err)
{
    lf_tfevents *w = lf_calloc(1, sizeof *w, err);
    if (!w)
        return NULL;
    w->fd = -1;
    lf_buf_init(&w->part);
    lf_buf_init(&w->value);
    lf_buf_init(&w->summary);
    lf_buf_init(&w->record);
    int rc = lf_io_mkdirs(dir, 0777, err);
    if (rc == 0)
        rc = create(w, dir, wall_s, err);
    if (rc == 0) {
        begin(w, wall_s, 0);
        put_text(&w->record, 3, "brain.Event:2");
        rc = end(w, err);
    }
    if (rc == 0)
        return w;
    lf_tfevents_close(w);
    return NULL;
}

const char *lf_tfevents_path(const lf_tfevents *w)
{
    return w->path;
}

int lf_tfevents_start(lf_tfevents *w, double wall_s, int64_t step, lf_err *err)
{
    enum { START = 1 };
    begin(w, wall_s, step);
    lf_buf_clear(&w->value);
    put_int(&w->value, 1, START);
    put_part(&w->record, 7, &w->value);
    return end(w, err);
}

void lf_tfevents_scalar(lf_tfevents *w, const char *tag, double value)
{
    const float f = (float)value;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    lf_buf_clear(&w->value);
    put_text(&w->value, 1, tag);
    put_fixed(&w->value, 2, FIXED32, bits);
    put_part(&w->summary, 1, &w->value);
}

void lf_tfevents_metric(lf_tfevents *w, const char *key, double value)
{
    const bool valid = lf_str_has_prefix(key, "valid_");
    lf_buf tag;
    if (strcmp(key, "step") == 0 || strcmp(key, "t") == 0)
        return;
    lf_buf_init(&tag);
    lf_buf_addf(&tag, "%s/%s", valid ? "valid" : "train", valid ? key + strlen("valid_") : key);
    lf_tfevents_scalar(w, tag.data, value);
    w->summary.failed |= tag.failed;
    lf_buf_fini(&tag);
}

int lf_tfevents_flush(lf_tfevents *w, double wall_s, int64_t step, lf_err *err)
{
    int rc = 0;
    if (w->summary.len > 0) {
        begin(w, wall_s, step);
        put_part(&w->record, 5, &w->summary);
        rc = end(w, err);
    }
    lf_buf_clear(&w->summary);
    return rc;
}

/* A tensor of one string, and that it is for the dashboard of texts. */
int lf_tfevents_text(lf_tfevents *w, double wall_s, int64_t step, const char *tag, const char *text,
                     size_t n, lf_err *err)
{
    enum { DT_STRING = 7 };
    static const char shape[] = {0x12, 2, 8, 1}; /* dim { size: 1 } */
    lf_buf_clear(&w->value);
    put_text(&w->value, 1, tag);
    lf_buf_clear(&w->part);
    put_int(&w->part, 1, DT_STRING);
    put_bytes(&w->part, 2, shape, sizeof shape);
    put_bytes(&w->part, 8, text, n);
    put_part(&w->value, 8, &w->part);
    lf_buf_clear(&w->part);
    put_bytes(&w->part, 1, "\x0a\x04text", 6); /* plugin_data { plugin_name: "text" } */
    put_part(&w->value, 9, &w->part);
    begin(w, wall_s, step);
    lf_buf_clear(&w->part);
    put_part(&w->part, 1, &w->value);
    put_part(&w->record, 5, &w->part);
    return end(w, err);
}

void lf_tfevents_close(lf_tfevents *w)
{
    if (!w)
        return;
    if (w->fd >= 0)
        close(w->fd);
    free(w->path);
    lf_buf_fini(&w->part);
    lf_buf_fini(&w->value);
    lf_buf_fini(&w->summary);
    lf_buf_fini(&w->record);
    free(w);
}

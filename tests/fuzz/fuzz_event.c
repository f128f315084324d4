/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: event files and framed files, which other users' processes may have written.
 */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "db/event.h"
#include "engine/base/frame.h"
#include "engine/base/io.h"
#include "tests/fuzz/fuzz.h"

struct count {
    int64_t next, size;
};

static int on_record(void *ctx, const char *payload, size_t n, int64_t offset, lf_err *err)
{
    struct count *c = ctx;
    (void)err;
    if (offset != c->next || n == 0 || n > LF_FRAME_MAX || payload[n] != '\0')
        LF_BUG("record of %zu bytes at %lld", n, (long long)offset);
    c->next = offset + LF_FRAME_HEAD + (int64_t)n;
    if (c->next > c->size)
        LF_BUG("record ends at %lld of %lld", (long long)c->next, (long long)c->size);
    return 1;
}

static void check_frames(const uint8_t *data, size_t n)
{
    char path[64];
    lf_err err = LF_ERR_INIT;
    struct count c = {0, (int64_t)n};
    int64_t offset = 0;
    int fd = memfd_create("frames", MFD_CLOEXEC);
    if (fd < 0 || lf_io_write_all(fd, data, n, "frames", &err) < 0)
        LF_BUG("no memory file");
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int rc = lf_frame_read(path, &offset, on_record, &c, &err);
    if (offset != c.next || (rc < 0 && rc != LF_EFORMAT))
        LF_BUG("offset %lld, %s", (long long)offset, err.text);
    close(fd);
}

const char *const fuzz_corpus = "event";

size_t fuzz_seed(size_t i, uint8_t *buf, size_t cap)
{
    (void)i, (void)buf, (void)cap;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    lf_event ev = {0};
    json_t *root = NULL;
    lf_err err = LF_ERR_INIT;
    int rc = lf_event_parse(&ev, &root, (const char *)data, n, "fuzz", &err);
    fuzz_check_error(rc, &err);
    if (rc == 0 && (!ev.run || !ev.kind || !json_is_object(ev.data) || strchr(ev.run, '/')))
        LF_BUG("an event without its parts");
    if (rc < 0 && root)
        LF_BUG("a refusal that left something");
    json_decref(root);
    check_frames(data, n);
    return 0;
}

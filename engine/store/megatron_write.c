/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing Megatron indexed datasets: the .bin as tokens come, the .idx at the end from tables in
 * memory. The bytes are those Megatron's own builder writes for the same sequences.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/artifact.h"
#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/store/megatron_data.h"
#include "engine/store/megatron_priv.h"

#define BUFFER ((size_t)1 << 20)

struct lf_megatron_writer {
    char *bin, *idx;
    int fd;
    enum lf_megatron_dtype dtype;
    bool with_modes;
    uint8_t *buf; /* [BUFFER] */
    size_t fill;
    int32_t *lengths;
    int8_t *modes;
    uint64_t *docs; /* ends of documents, without the 0 */
    size_t n, cap_lengths, cap_modes, n_docs, cap_docs;
    bool failed; /* the .bin may lack tokens that the tables count */
};

static void writer_free(lf_megatron_writer *w)
{
    if (w->fd >= 0)
        close(w->fd);
    free(w->bin);
    free(w->idx);
    free(w->buf);
    free(w->lengths);
    free(w->modes);
    free(w->docs);
    free(w);
}

int lf_megatron_create(lf_megatron_writer **out, const char *name, enum lf_megatron_dtype dtype,
                       bool modes, lf_err *err)
{
    if (!lf_megatron_dtype_bytes(dtype) || dtype == LF_MEGATRON_F32 || dtype == LF_MEGATRON_F64)
        return lf_fail(err, LF_EINVAL, "token ids cannot be written as Megatron dtype %d",
                       (int)dtype);
    lf_megatron_writer *w = lf_calloc(1, sizeof *w, err);
    if (!w)
        return LF_ENOMEM;
    w->fd = -1;
    w->dtype = dtype;
    w->with_modes = modes;
    int rc = lf_megatron_names(&w->bin, &w->idx, name, err);
    if (rc == 0 && !(w->buf = lf_malloc(BUFFER, 1, err)))
        rc = LF_ENOMEM;
    if (rc == 0 && lf_io_exists(w->idx))
        rc = lf_fail(err, LF_EEXIST, "%s exists already", w->idx);
    if (rc == 0 && (w->fd = open(w->bin, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                                 LF_ARTIFACT_MODE)) < 0)
        rc = lf_fail_errno(err, "cannot create %s", w->bin);
    if (rc < 0) {
        writer_free(w);
        return rc;
    }
    *out = w;
    return 0;
}

static int flush(lf_megatron_writer *w, lf_err *err)
{
    int rc = lf_io_write_all(w->fd, w->buf, w->fill, w->bin, err);
    w->failed = w->failed || rc < 0;
    w->fill = 0;
    return rc;
}

/* The largest id of a dtype. */
static uint32_t top_id(enum lf_megatron_dtype t)
{
    switch (t) {
    case LF_MEGATRON_U8:
        return UINT8_MAX;
    case LF_MEGATRON_I8:
        return INT8_MAX;
    case LF_MEGATRON_I16:
        return INT16_MAX;
    case LF_MEGATRON_U16:
        return UINT16_MAX;
    default:
        return INT32_MAX;
    }
}

int lf_megatron_extend(lf_megatron_writer *w, const uint32_t *ids, size_t n, lf_err *err)
{
    size_t size = lf_megatron_dtype_bytes(w->dtype);
    uint32_t top = top_id(w->dtype);
    if (w->n == 0)
        LF_BUG("no sequence to extend");
    for (size_t i = 0; i < n; i++)
        if (ids[i] > top)
            return lf_fail(err, LF_EINVAL, "token id %u does not fit into %s of a Megatron file",
                           ids[i], lf_megatron_dtype_name(w->dtype));
    if (n > (size_t)(INT32_MAX - w->lengths[w->n - 1]))
        return lf_fail(err, LF_EINVAL, "a sequence of a Megatron file has at most 2^31 - 1 tokens");
    for (size_t i = 0; i < n; i++) {
        int rc = w->fill + size > BUFFER ? flush(w, err) : 0;
        if (rc < 0)
            return rc;
        lf_put_le(w->buf + w->fill, ids[i], size);
        w->fill += size;
    }
    w->lengths[w->n - 1] += (int32_t)n;
    return 0;
}

int lf_megatron_append(lf_megatron_writer *w, const uint32_t *ids, size_t n, int8_t mode,
                       lf_err *err)
{
    int rc = lf_grow(&w->lengths, &w->cap_lengths, w->n, sizeof *w->lengths, err);
    if (rc == 0 && w->with_modes)
        rc = lf_grow(&w->modes, &w->cap_modes, w->n, sizeof *w->modes, err);
    if (rc < 0)
        return rc;
    w->lengths[w->n] = 0;
    if (w->with_modes)
        w->modes[w->n] = mode;
    w->n++;
    rc = lf_megatron_extend(w, ids, n, err);
    w->n -= rc < 0;
    return rc;
}

int lf_megatron_end_document(lf_megatron_writer *w, lf_err *err)
{
    int rc = lf_grow(&w->docs, &w->cap_docs, w->n_docs, sizeof *w->docs, err);
    if (rc == 0)
        w->docs[w->n_docs++] = w->n;
    return rc;
}

/* The whole .idx; it is built in memory, where its tables are anyway. */
static int write_index(const lf_megatron_writer *w, lf_err *err)
{
    uint64_t at = 0, size = lf_megatron_dtype_bytes(w->dtype);
    size_t n = w->n, m = w->n_docs + 1,
           bytes = LF_MEGATRON_HEADER + 12 * n + 8 * m + (w->with_modes ? n : 0);
    uint8_t *b = lf_malloc(bytes, 1, err), *p = b;
    if (!b)
        return LF_ENOMEM;
    memcpy(p, LF_MEGATRON_MAGIC, 9);
    lf_put_le(p + 9, 1, 8);
    p[17] = (uint8_t)w->dtype;
    lf_put_le(p + 18, n, 8);
    lf_put_le(p + 26, m, 8);
    p += LF_MEGATRON_HEADER;
    for (size_t i = 0; i < n; i++, p += 4)
        lf_put_le(p, (uint32_t)w->lengths[i], 4);
    for (size_t i = 0; i < n; i++, p += 8) {
        lf_put_le(p, at, 8);
        at += (uint64_t)w->lengths[i] * size;
    }
    lf_put_le(p, 0, 8);
    p += 8;
    for (size_t i = 0; i + 1 < m; i++, p += 8)
        lf_put_le(p, w->docs[i], 8);
    if (w->with_modes && n)
        memcpy(p, w->modes, n);
    int rc = lf_io_publish(w->idx, b, bytes, LF_ARTIFACT_MODE, err);
    free(b);
    return rc;
}

int lf_megatron_finish(lf_megatron_writer *w, lf_err *err)
{
    int rc =
        w->failed ? lf_fail(err, LF_EIO, "%s: an earlier write failed", w->bin) : flush(w, err);
    if (rc == 0 && w->n != (w->n_docs ? w->docs[w->n_docs - 1] : 0))
        rc = lf_fail(err, LF_EINVAL, "%s: sequences after the last end of a document", w->bin);
    if (rc == 0)
        rc = lf_io_fsync(w->fd, w->bin, err);
    if (rc == 0)
        rc = write_index(w, err); /* last: without it the .bin is nothing */
    if (rc < 0) {
        lf_megatron_abort(w);
        return rc;
    }
    writer_free(w);
    return 0;
}

void lf_megatron_abort(lf_megatron_writer *w)
{
    if (!w)
        return;
    unlink(w->bin);
    writer_free(w);
}

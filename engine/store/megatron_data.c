/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading Megatron indexed datasets.
 */
#include "engine/store/megatron_data.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/store/megatron_priv.h"

#define READ_IDS 8192 /* ids converted at a time */

struct lf_megatron_data {
    lf_megatron_info info;
    char *idx, *bin;
    int fd;
    int64_t bin_bytes;
    int32_t *lengths;
    int64_t *offsets, *docs;
    int8_t *modes;
};

static const struct {
    const char *name;
    size_t bytes;
} dtypes[] = {{NULL, 0},  {"u8", 1},  {"i8", 1},  {"i16", 2}, {"i32", 4},
              {"i64", 8}, {"f64", 8}, {"f32", 4}, {"u16", 2}};

size_t lf_megatron_dtype_bytes(enum lf_megatron_dtype t)
{
    return (unsigned)t <= LF_MEGATRON_U16 ? dtypes[t].bytes : 0;
}

const char *lf_megatron_dtype_name(enum lf_megatron_dtype t)
{
    return lf_megatron_dtype_bytes(t) ? dtypes[t].name : "?";
}

enum lf_megatron_dtype lf_megatron_dtype_for(int64_t vocab_size)
{
    return vocab_size < 65500 ? LF_MEGATRON_U16 : LF_MEGATRON_I32;
}

int lf_megatron_names(char **bin, char **idx, const char *path, lf_err *err)
{
    size_t n = strlen(path);
    if (lf_str_has_suffix(path, ".idx") || lf_str_has_suffix(path, ".bin"))
        n -= 4;
    char *b = lf_malloc(n + 5, 1, err), *i = lf_malloc(n + 5, 1, err);
    if (!b || !i) {
        free(b);
        free(i);
        return LF_ENOMEM;
    }
    snprintf(b, n + 5, "%.*s.bin", (int)n, path);
    snprintf(i, n + 5, "%.*s.idx", (int)n, path);
    *bin = b;
    *idx = i;
    return 0;
}

/* ---- the index ---- */

struct header {
    uint64_t n, m;
    bool modes;
};

static int read_header(lf_megatron_data *d, int fd, int64_t bytes, struct header *h, lf_err *err)
{
    uint8_t b[LF_MEGATRON_HEADER];
    if (bytes < LF_MEGATRON_HEADER)
        return lf_fail(err, LF_EFORMAT,
                       "%s has %lld bytes, less than the header of a Megatron index", d->idx,
                       (long long)bytes);
    int rc = lf_io_pread_all(fd, b, sizeof b, 0, d->idx, err);
    if (rc < 0)
        return rc;
    if (memcmp(b, LF_MEGATRON_MAGIC, 9) != 0)
        return lf_fail(err, LF_EFORMAT, "%s is no Megatron index: it does not begin with MMIDIDX",
                       d->idx);
    uint64_t version = lf_get_le(b + 9, 8);
    if (version != 1)
        return lf_fail(err, LF_EFORMAT, "%s: version %llu at byte 9; 1 is known", d->idx,
                       (unsigned long long)version);
    if (!lf_megatron_dtype_bytes((enum lf_megatron_dtype)b[17]))
        return lf_fail(err, LF_EFORMAT, "%s: dtype code %d at byte 17; 1 to 8 are known", d->idx,
                       b[17]);
    d->info.dtype = (enum lf_megatron_dtype)b[17];
    h->n = lf_get_le(b + 18, 8);
    h->m = lf_get_le(b + 26, 8);
    /* Both are compared with the length of the file before anything is multiplied. */
    uint64_t left = (uint64_t)(bytes - LF_MEGATRON_HEADER);
    if (h->n > left / 12 || h->m > (left - h->n * 12) / 8)
        return lf_fail(
            err, LF_EFORMAT,
            "%s: %llu sequences and %llu document entries do not fit into its %lld bytes", d->idx,
            (unsigned long long)h->n, (unsigned long long)h->m, (long long)bytes);
    left -= h->n * 12 + h->m * 8;
    h->modes = left == h->n && h->n > 0;
    if (left != 0 && !h->modes)
        return lf_fail(err, LF_EFORMAT, "%s: %llu bytes after its tables; is it damaged?", d->idx,
                       (unsigned long long)left);
    return h->m ? 0
                : lf_fail(err, LF_EFORMAT,
                          "%s: the document index is empty; it has at least the entry 0", d->idx);
}

/* n little-endian integers of `size` bytes as they are; on a little-endian host nothing has to be
 * turned. */
static void *read_table(int fd, uint64_t n, size_t size, uint64_t *at, const char *path,
                        lf_err *err)
{
    void *v = lf_malloc((size_t)n, size, err);
    if (v && lf_io_pread_all(fd, v, (size_t)n * size, (off_t)*at, path, err) < 0) {
        free(v);
        return NULL;
    }
    *at += n * size;
    return v;
}

static int check_sequences(lf_megatron_data *d, lf_err *err)
{
    uint64_t size = lf_megatron_dtype_bytes(d->info.dtype), packed = 0,
             bin = (uint64_t)d->bin_bytes;
    bool in_order = true;
    for (uint64_t i = 0; i < d->info.n_seqs; i++) {
        if (d->lengths[i] < 0)
            return lf_fail(err, LF_EFORMAT, "%s: sequence %llu has %d tokens", d->idx,
                           (unsigned long long)i, d->lengths[i]);
        uint64_t bytes = (uint64_t)d->lengths[i] * size, at = (uint64_t)d->offsets[i];
        if (d->offsets[i] < 0 || at > bin || bytes > bin - at)
            return lf_fail(
                err, LF_EFORMAT,
                "%s: sequence %llu (%d tokens at byte %lld) is beyond the %lld bytes of %s", d->idx,
                (unsigned long long)i, d->lengths[i], (long long)d->offsets[i],
                (long long)d->bin_bytes, d->bin);
        in_order = in_order && at == packed;
        packed += bytes; /* both below 2^63, so the sum does not wrap before it is seen here */
        if (packed > INT64_MAX)
            return lf_fail(err, LF_EFORMAT, "%s: its sequences have more than 2^63 bytes", d->idx);
    }
    d->info.n_tokens = packed / size;
    d->info.packed = in_order && packed == bin;
    return 0;
}

static int check_docs(const lf_megatron_data *d, uint64_t m, lf_err *err)
{
    const int64_t *v = d->docs;
    if (v[0] != 0 || v[m - 1] != (int64_t)d->info.n_seqs)
        return lf_fail(
            err, LF_EFORMAT,
            "%s: the document index runs from %lld to %lld, the sequences from 0 to %llu", d->idx,
            (long long)v[0], (long long)v[m - 1], (unsigned long long)d->info.n_seqs);
    for (uint64_t i = 1; i < m; i++)
        if (v[i] < v[i - 1])
            return lf_fail(err, LF_EFORMAT, "%s: the document index decreases at entry %llu",
                           d->idx, (unsigned long long)i);
    return 0;
}

static int read_index(lf_megatron_data *d, int fd, lf_err *err)
{
    struct header h = {0};
    uint64_t at = LF_MEGATRON_HEADER;
    int64_t bytes = lf_io_size(d->idx, err);
    int rc = bytes < 0 ? (int)bytes : read_header(d, fd, bytes, &h, err);
    if (rc < 0)
        return rc;
    if (!(d->lengths = read_table(fd, h.n, 4, &at, d->idx, err)) ||
        !(d->offsets = read_table(fd, h.n, 8, &at, d->idx, err)) ||
        !(d->docs = read_table(fd, h.m, 8, &at, d->idx, err)) ||
        (h.modes && !(d->modes = read_table(fd, h.n, 1, &at, d->idx, err))))
        return err && err->rc ? err->rc : LF_ENOMEM;
    d->info.n_seqs = h.n;
    d->info.n_docs = h.m - 1;
    d->info.lengths = d->lengths;
    d->info.docs = d->docs;
    d->info.modes = d->modes;
    rc = check_sequences(d, err);
    return rc < 0 ? rc : check_docs(d, h.m, err);
}

int lf_megatron_open(lf_megatron_data **out, const char *path, lf_err *err)
{
    int fd = -1, rc;
    lf_megatron_data *d = lf_calloc(1, sizeof *d, err);
    if (!d)
        return LF_ENOMEM;
    d->fd = -1;
    if ((rc = lf_megatron_names(&d->bin, &d->idx, path, err)) < 0)
        goto out;
    if ((fd = open(d->idx, O_RDONLY | O_CLOEXEC)) < 0 ||
        (d->fd = open(d->bin, O_RDONLY | O_CLOEXEC)) < 0) {
        rc = lf_fail_errno(err, "cannot open %s", fd < 0 ? d->idx : d->bin);
        goto out;
    }
    d->bin_bytes = lf_io_size(d->bin, err);
    rc = d->bin_bytes < 0 ? (int)d->bin_bytes : read_index(d, fd, err);
    if (rc < 0)
        goto out;
    *out = d;
    d = NULL;
out:
    if (fd >= 0)
        close(fd);
    lf_megatron_close(d);
    return rc;
}

void lf_megatron_close(lf_megatron_data *d)
{
    if (!d)
        return;
    if (d->fd >= 0)
        close(d->fd);
    free(d->lengths);
    free(d->offsets);
    free(d->docs);
    free(d->modes);
    free(d->bin);
    free(d->idx);
    free(d);
}

const lf_megatron_info *lf_megatron_get_info(const lf_megatron_data *d)
{
    return &d->info;
}

/* ---- tokens ---- */

/* A little-endian integer of this dtype as a signed number; u64 does not exist here, so all fit. */
static int64_t get_id(const uint8_t *p, enum lf_megatron_dtype t)
{
    uint64_t v = lf_get_le(p, lf_megatron_dtype_bytes(t));
    switch (t) {
    case LF_MEGATRON_I8:
        return (int8_t)v;
    case LF_MEGATRON_I16:
        return (int16_t)v;
    case LF_MEGATRON_I32:
        return (int32_t)v;
    default:
        return (int64_t)v;
    }
}

int lf_megatron_read_ids(const lf_megatron_data *d, uint64_t seq, uint64_t first, size_t n,
                         uint32_t *dst, lf_err *err)
{
    uint8_t raw[READ_IDS * 8];
    enum lf_megatron_dtype t = d->info.dtype;
    size_t size = lf_megatron_dtype_bytes(t);
    if (t == LF_MEGATRON_F32 || t == LF_MEGATRON_F64)
        return lf_fail(err, LF_EFORMAT, "%s: its dtype is %s; token ids are whole numbers", d->idx,
                       lf_megatron_dtype_name(t));
    if (seq >= d->info.n_seqs || first > (uint64_t)d->lengths[seq] ||
        n > (uint64_t)d->lengths[seq] - first)
        return lf_fail(err, LF_EINVAL, "%s: tokens %llu + %zu of sequence %llu", d->bin,
                       (unsigned long long)first, n, (unsigned long long)seq);
    for (size_t done = 0; done < n;) {
        size_t k = n - done < READ_IDS ? n - done : READ_IDS;
        off_t at = (off_t)((uint64_t)d->offsets[seq] + (first + done) * size);
        int rc = lf_io_pread_all(d->fd, raw, k * size, at, d->bin, err);
        if (rc < 0)
            return rc;
        for (size_t i = 0; i < k; i++) {
            int64_t id = get_id(raw + i * size, t);
            if (id < 0 || id > INT32_MAX)
                return lf_fail(err, LF_EFORMAT,
                               "%s: token %llu of sequence %llu is %lld; ids are 0 to 2^31 - 1 "
                               "(labels and marks of "
                               "instruction data cannot be read as text)",
                               d->bin, (unsigned long long)(first + done + i),
                               (unsigned long long)seq, (long long)id);
            dst[done + i] = (uint32_t)id;
        }
        done += k;
    }
    return 0;
}

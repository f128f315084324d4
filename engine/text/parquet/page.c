/* SPDX-License-Identifier: Apache-2.0
 *
 * Pages: a header in Thrift, then levels and values. In a page v1 all of it is packed together; in
 * a page v2 the levels stand unpacked before the values.
 */
#include "config.h"

#include <string.h>

#include "engine/base/io.h"
#include "engine/base/le.h"
#include "engine/text/parquet/parquet_priv.h"

enum { DATA_PAGE, INDEX_PAGE, DICTIONARY_PAGE, DATA_PAGE_V2 };

struct header {
    int type;
    int64_t bytes, packed; /* unpacked, as stored */
    bool has_crc;
    uint32_t crc;
    int64_t values;
    int encoding, def_encoding, rep_encoding;
    int64_t def_bytes, rep_bytes; /* v2 */
    bool is_packed;
    bool described; /* the struct of its type was there */
};

static void read_v1(lf_thrift *t, struct header *h)
{
    int id = 0;
    enum lf_thrift_type f;
    while (lf_thrift_field(t, &id, &f)) {
        if (id == 1)
            h->values = lf_thrift_size(t, f, INT32_MAX);
        else if (id == 2)
            h->encoding = (int)lf_thrift_size(t, f, 1000);
        else if (id == 3)
            h->def_encoding = (int)lf_thrift_size(t, f, 1000);
        else if (id == 4)
            h->rep_encoding = (int)lf_thrift_size(t, f, 1000);
        else
            lf_thrift_skip(t, f);
    }
}

static void read_dict(lf_thrift *t, struct header *h)
{
    int id = 0;
    enum lf_thrift_type f;
    while (lf_thrift_field(t, &id, &f)) {
        if (id == 1)
            h->values = lf_thrift_size(t, f, INT32_MAX);
        else if (id == 2)
            h->encoding = (int)lf_thrift_size(t, f, 1000);
        else
            lf_thrift_skip(t, f);
    }
}

static void read_v2(lf_thrift *t, struct header *h)
{
    int id = 0;
    enum lf_thrift_type f;
    while (lf_thrift_field(t, &id, &f)) {
        if (id == 1)
            h->values = lf_thrift_size(t, f, INT32_MAX);
        else if (id == 4)
            h->encoding = (int)lf_thrift_size(t, f, 1000);
        else if (id == 5)
            h->def_bytes = lf_thrift_size(t, f, INT32_MAX);
        else if (id == 6)
            h->rep_bytes = lf_thrift_size(t, f, INT32_MAX);
        else if (id == 7)
            h->is_packed = lf_thrift_bool(t, f);
        else
            lf_thrift_skip(t, f);
    }
}

static void parse(lf_thrift *t, struct header *h)
{
    int id = 0;
    enum lf_thrift_type f;
    *h = (struct header){.type = -1,
                         .bytes = -1,
                         .packed = -1,
                         .values = -1,
                         .encoding = -1,
                         .def_encoding = LF_PQ_RLE,
                         .rep_encoding = LF_PQ_RLE,
                         .is_packed = true};
    while (lf_thrift_field(t, &id, &f)) {
        if (id == 1)
            h->type = (int)lf_thrift_size(t, f, 100);
        else if (id == 2)
            h->bytes = lf_thrift_size(t, f, INT32_MAX);
        else if (id == 3)
            h->packed = lf_thrift_size(t, f, INT32_MAX);
        else if (id == 4) {
            h->has_crc = true;
            h->crc = (uint32_t)lf_thrift_int(t, f);
        } else if (id == 5 && lf_thrift_struct(t, f)) {
            h->described = h->described || h->type == DATA_PAGE;
            read_v1(t, h);
        } else if (id == 7 && lf_thrift_struct(t, f)) {
            h->described = h->described || h->type == DICTIONARY_PAGE;
            read_dict(t, h);
        } else if (id == 8 && lf_thrift_struct(t, f)) {
            h->described = h->described || h->type == DATA_PAGE_V2;
            read_v2(t, h);
        } else {
            lf_thrift_skip(t, f);
        }
    }
}

/* The header at l->at, of which nothing is known but that it ends before l->end; *len bytes. */
static int read_header(struct lf_pq_leaf *l, struct header *h, size_t *len, lf_err *err)
{
    size_t room = (size_t)(l->end - l->at), n = 256;
    for (;; n *= 8) {
        size_t have = n < room ? n : room;
        int rc = lf_pq_mem_need(&l->head, have, err);
        if (rc == 0)
            rc = lf_io_pread_all(l->file->fd, l->head.p, have, l->at, l->file->path, err);
        if (rc < 0)
            return rc;
        lf_thrift t = {.p = l->head.p, .end = l->head.p + have};
        parse(&t, h);
        *len = (size_t)(t.p - l->head.p);
        if (!t.bad)
            return 0;
        if (!t.cut || have == room || n >= LF_PQ_HEADER_MAX)
            return lf_pq_fail(l, err, LF_EFORMAT, "its header cannot be read");
    }
}

static int check_header(const struct lf_pq_leaf *l, const struct header *h, lf_err *err)
{
    if (h->type < 0 || h->bytes < 0 || h->packed < 0)
        return lf_pq_fail(l, err, LF_EFORMAT, "its header does not say what it is");
    if (h->packed > l->end - l->at)
        return lf_pq_fail(l, err, LF_EFORMAT, "it says that it has %lld bytes, the column %lld",
                          (long long)h->packed, (long long)(l->end - l->at));
    if (h->bytes > (int64_t)LF_PQ_PAGE_MAX)
        return lf_pq_fail(l, err, LF_ENOTSUP,
                          "it unpacks to %lld bytes, of at most %zu; write the file with smaller "
                          "pages",
                          (long long)h->bytes, LF_PQ_PAGE_MAX);
    if (h->type == INDEX_PAGE)
        return 0;
    if (h->type > DATA_PAGE_V2)
        return lf_pq_fail(l, err, LF_ENOTSUP, "its kind, number %d, is not known", h->type);
    if (!h->described || h->values < 0 || h->encoding < 0)
        return lf_pq_fail(l, err, LF_EFORMAT, "its header does not say what is in it");
    return 0;
}

/* n bytes of the file at l->at to m. */
static int read_bytes(struct lf_pq_leaf *l, struct lf_pq_mem *m, size_t n, lf_err *err)
{
    int rc = lf_pq_mem_need(m, n, err);
    return rc < 0 ? rc : lf_io_pread_all(l->file->fd, m->p, n, l->at, l->file->path, err);
}

static int check_crc(const struct lf_pq_leaf *l, const struct header *h, const uint8_t *p,
                     lf_err *err)
{
    if (!h->has_crc || lf_crc32_add(&l->file->crc, 0, p, (size_t)h->packed) == h->crc)
        return 0;
    return lf_pq_fail(l, err, LF_EFORMAT, "its bytes do not have the checksum of its header");
}

/* The page's bytes unpacked to m; the first `plain` of them are stored as they are. */
static int read_body(struct lf_pq_leaf *l, const struct header *h, struct lf_pq_mem *m,
                     size_t plain, lf_err *err)
{
    size_t n = (size_t)h->packed, to = (size_t)h->bytes;
    bool as_is = l->codec == LF_PQ_UNCOMPRESSED || !h->is_packed;
    if (plain > n || plain > to || (as_is && n != to) ||
        (!as_is && !lf_pq_codec_plausible(l->codec, n - plain, to - plain)))
        return lf_pq_fail(l, err, LF_EFORMAT, "%zu bytes cannot be %zu unpacked ones", n, to);
    struct lf_pq_mem *stored = as_is ? m : &l->packed;
    int rc = read_bytes(l, stored, n, err);
    if (rc == 0)
        rc = check_crc(l, h, stored->p, err);
    if (rc < 0 || as_is)
        return rc;
    if ((rc = lf_pq_mem_need(m, to, err)) < 0)
        return rc;
    memcpy(m->p, stored->p, plain);
    if (to > plain &&
        !lf_pq_codec_unpack(l->codec, stored->p + plain, n - plain, m->p + plain, to - plain))
        return lf_pq_fail(l, err, LF_EFORMAT, "its bytes cannot be unpacked to %zu", to);
    return 0;
}

static int read_dictionary(struct lf_pq_leaf *l, const struct header *h, lf_err *err)
{
    if (h->encoding != LF_PQ_PLAIN && h->encoding != LF_PQ_PLAIN_DICTIONARY)
        return lf_pq_fail(l, err, LF_ENOTSUP, "a dictionary of encoding number %d is not read",
                          h->encoding);
    if (l->has_dict)
        return lf_pq_fail(l, err, LF_EFORMAT, "the column has a second dictionary");
    int rc = read_body(l, h, &l->dict, 0, err);
    return rc < 0 ? rc : lf_pq_dict_index(l, (size_t)h->values, (size_t)h->bytes, err);
}

/* Levels of a page v1 at *p: their length, then runs. */
static int begin_levels(struct lf_pq_leaf *l, struct lf_pq_hybrid *h, int max, int encoding,
                        lf_err *err)
{
    if (max == 0)
        return 0;
    if (encoding != LF_PQ_RLE)
        return lf_pq_fail(l, err, LF_ENOTSUP,
                          "levels of encoding number %d are not read; write the file anew",
                          encoding);
    uint64_t room = (uint64_t)(l->e - l->p), n = room >= 4 ? lf_get_le(l->p, 4) : 0;
    if (room < 4 || n > room - 4)
        return lf_pq_fail(l, err, LF_EFORMAT, "its levels end too early");
    lf_pq_hybrid_begin(h, l->p + 4, l->p + 4 + n, lf_pq_width((uint32_t)max));
    l->p += 4 + n;
    return 0;
}

static int begin_v1(struct lf_pq_leaf *l, const struct header *h, lf_err *err)
{
    int rc = begin_levels(l, &l->reps, l->max_rep, h->rep_encoding, err);
    return rc < 0 ? rc : begin_levels(l, &l->defs, l->max_def, h->def_encoding, err);
}

static void begin_v2(struct lf_pq_leaf *l, const struct header *h)
{
    const uint8_t *defs = l->p + h->rep_bytes, *values = defs + h->def_bytes;
    lf_pq_hybrid_begin(&l->reps, l->p, defs, lf_pq_width((uint32_t)l->max_rep));
    lf_pq_hybrid_begin(&l->defs, defs, values, lf_pq_width((uint32_t)l->max_def));
    l->p = values;
}

static int read_data(struct lf_pq_leaf *l, const struct header *h, lf_err *err)
{
    bool v2 = h->type == DATA_PAGE_V2;
    int64_t levels = v2 ? h->rep_bytes + h->def_bytes : 0;
    if (h->values > l->left)
        return lf_pq_fail(l, err, LF_EFORMAT, "it has %lld entries, the column has %lld left",
                          (long long)h->values, (long long)l->left);
    int rc = read_body(l, h, &l->page, (size_t)levels, err);
    if (rc < 0)
        return rc;
    l->p = l->page.p;
    l->e = l->p + h->bytes;
    l->encoding = h->encoding;
    l->begun = false;
    l->page_n = l->page_left = (uint32_t)h->values;
    l->left -= h->values;
    if (!v2)
        return begin_v1(l, h, err);
    begin_v2(l, h);
    return 0;
}

int lf_pq_page_next(struct lf_pq_leaf *l, lf_err *err)
{
    while (l->page_left == 0) {
        struct header h;
        size_t len;
        if (l->left == 0)
            return 0;
        l->page_at = l->at;
        if (l->at >= l->end)
            return lf_pq_fail(l, err, LF_EFORMAT, "the column ends with %lld entries missing",
                              (long long)l->left);
        int rc = read_header(l, &h, &len, err);
        if (rc < 0)
            return rc;
        l->at += (int64_t)len;
        rc = check_header(l, &h, err);
        if (rc == 0 && h.type == DICTIONARY_PAGE)
            rc = read_dictionary(l, &h, err);
        else if (rc == 0 && h.type != INDEX_PAGE)
            rc = read_data(l, &h, err);
        if (rc < 0)
            return rc;
        l->at += h.packed;
        l->file->bytes += (int64_t)len + h.packed;
    }
    return 1;
}

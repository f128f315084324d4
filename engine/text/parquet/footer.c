/* SPDX-License-Identifier: Apache-2.0
 *
 * The footer: schema elements, and where in it the row groups stand. A row group's columns are read
 * from it again when their turn comes, so that a file of many groups needs no more memory than its
 * footer.
 */
#include "config.h"

#include <string.h>

#include "engine/base/io.h"
#include "engine/base/le.h"
#include "engine/base/utf8.h"
#include "engine/text/parquet/parquet_priv.h"

#define TAIL 8 /* length of the footer, magic */

static int damaged(const lf_parquet *p, const char *what, lf_err *err)
{
    return lf_fail(err, LF_EFORMAT, "%s: its footer is damaged: %s", p->path, what);
}

/* ---- schema elements ---- */

static void read_logical(lf_thrift *t, struct lf_pq_elem *e, enum lf_thrift_type type)
{
    int id = 0, inner = 0;
    enum lf_thrift_type f;
    if (!lf_thrift_struct(t, type))
        return;
    while (lf_thrift_field(t, &id, &f)) {
        e->logical = id;
        if (id != 10) { /* INTEGER says its sign */
            lf_thrift_skip(t, f);
            continue;
        }
        if (!lf_thrift_struct(t, f))
            return;
        while (lf_thrift_field(t, &inner, &f)) {
            if (inner == 2)
                e->is_signed = lf_thrift_bool(t, f);
            else
                lf_thrift_skip(t, f);
        }
    }
}

static int read_elem(lf_parquet *p, lf_thrift *t, lf_err *err)
{
    struct lf_pq_elem e = {.type = -1, .converted = -1, .is_signed = true};
    const char *name = NULL;
    size_t len = 0;
    int id = 0;
    enum lf_thrift_type f;
    while (lf_thrift_field(t, &id, &f)) {
        if (id == 1)
            e.type = (int)lf_thrift_size(t, f, LF_PQ_TYPES - 1);
        else if (id == 3)
            e.repetition = (int)lf_thrift_size(t, f, 2);
        else if (id == 4)
            name = lf_thrift_binary(t, f, &len);
        else if (id == 5)
            e.children = (size_t)lf_thrift_size(t, f, LF_PQ_COLS_MAX);
        else if (id == 6)
            e.converted = (int)lf_thrift_size(t, f, 127);
        else if (id == 10)
            read_logical(t, &e, f);
        else
            lf_thrift_skip(t, f);
    }
    if (t->bad || !name)
        return damaged(p, "a column of the schema cannot be read", err);
    if (len > 1000 || memchr(name, 0, len) || lf_utf8_check(name, len) != len)
        return damaged(p, "the name of a column is no text of at most 1000 bytes", err);
    int rc = lf_grow(&p->elem, &p->cap_elem, p->n_elem, sizeof *p->elem, err);
    char *copy = rc == 0 ? lf_arena_alloc(p->arena, len + 1, 1, err) : NULL;
    if (!copy)
        return LF_ENOMEM;
    memcpy(copy, name, len);
    e.name = copy;
    p->elem[p->n_elem++] = e;
    return 0;
}

static int read_schema(lf_parquet *p, lf_thrift *t, enum lf_thrift_type type, lf_err *err)
{
    size_t n = lf_thrift_list(t, type, LF_THRIFT_STRUCT);
    int rc = 0;
    if (n > LF_PQ_COLS_MAX)
        return lf_fail(err, LF_ENOTSUP, "%s: its schema has %zu columns and groups, of at most %d",
                       p->path, n, LF_PQ_COLS_MAX);
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = read_elem(p, t, err);
    return rc;
}

/* ---- row groups ---- */

static int read_groups(lf_parquet *p, lf_thrift *t, enum lf_thrift_type type, lf_err *err)
{
    size_t n = lf_thrift_list(t, type, LF_THRIFT_STRUCT);
    for (size_t i = 0; i < n && !t->bad; i++) {
        int rc = lf_grow(&p->group, &p->cap_group, p->n_group, sizeof *p->group, err);
        if (rc < 0)
            return rc;
        struct lf_pq_group *g = &p->group[p->n_group++];
        *g = (struct lf_pq_group){.at = (size_t)(t->p - p->foot), .rows = -1};
        int id = 0;
        enum lf_thrift_type f;
        while (lf_thrift_field(t, &id, &f)) {
            if (id == 3)
                g->rows = lf_thrift_size(t, f, INT64_MAX);
            else
                lf_thrift_skip(t, f);
        }
        if (g->rows < 0)
            return damaged(p, "a row group does not say its rows", err);
    }
    return 0;
}

/* ---- chunks of a row group ---- */

struct chunk {
    int type, codec;
    int64_t values, bytes, data, dict;
    bool elsewhere, encrypted;
};

static void read_chunk_meta(lf_thrift *t, enum lf_thrift_type type, struct chunk *c)
{
    int id = 0;
    enum lf_thrift_type f;
    if (!lf_thrift_struct(t, type))
        return;
    while (lf_thrift_field(t, &id, &f)) {
        if (id == 1)
            c->type = (int)lf_thrift_size(t, f, LF_PQ_TYPES - 1);
        else if (id == 4)
            c->codec = (int)lf_thrift_size(t, f, 1000);
        else if (id == 5)
            c->values = lf_thrift_size(t, f, INT64_MAX);
        else if (id == 7)
            c->bytes = lf_thrift_size(t, f, INT64_MAX);
        else if (id == 9)
            c->data = lf_thrift_size(t, f, INT64_MAX);
        else if (id == 11)
            c->dict = lf_thrift_int(t, f);
        else
            lf_thrift_skip(t, f);
    }
}

static void read_chunk(lf_thrift *t, struct chunk *c)
{
    int id = 0;
    size_t len;
    enum lf_thrift_type f;
    *c = (struct chunk){.type = -1, .codec = -1, .values = -1, .bytes = -1, .data = -1};
    while (lf_thrift_field(t, &id, &f)) {
        if (id == 1) {
            lf_thrift_binary(t, f, &len);
            c->elsewhere = len > 0;
        } else if (id == 3) {
            read_chunk_meta(t, f, c);
        } else {
            c->encrypted = c->encrypted || id == 8 || id == 9;
            lf_thrift_skip(t, f);
        }
    }
}

static int open_chunk(lf_parquet *p, struct lf_pq_leaf *l, const struct chunk *c, lf_err *err)
{
    if (c->encrypted)
        return lf_pq_fail(l, err, LF_ENOTSUP,
                          "the column is encrypted; write it without encryption where its key is");
    if (c->elsewhere)
        return lf_pq_fail(l, err, LF_ENOTSUP,
                          "the column lies in another file; name the files that hold rows");
    if (c->type < 0 || c->codec < 0 || c->values < 0 || c->bytes < 0 || c->data < 0)
        return lf_pq_fail(l, err, LF_EFORMAT, "the footer does not say where the column is");
    if (c->type != (int)l->node->type)
        return lf_pq_fail(l, err, LF_EFORMAT, "its type is not that of the schema");
    int rc = lf_pq_codec_check(p, c->codec, l->node->path, err);
    if (rc < 0)
        return rc;
    int64_t at = c->dict > 0 && c->dict < c->data ? c->dict : c->data;
    int64_t room = p->size - TAIL - (int64_t)p->foot_len;
    l->left = c->values;
    lf_pq_leaf_begin(l);
    if (c->values == 0) { /* of a group without rows, whose places writers leave at 0 */
        l->at = l->end = 0;
        return 0;
    }
    if (at < 4 || at > room || c->bytes > room - at)
        return lf_pq_fail(l, err, LF_EFORMAT,
                          "bytes %lld to %lld are not all between the file's begin and its footer",
                          (long long)at, (long long)at + (c->bytes < room ? c->bytes : room));
    l->codec = c->codec;
    l->at = l->page_at = at;
    l->end = at + c->bytes;
    return 0;
}

int lf_pq_group_open(lf_parquet *p, size_t g, lf_err *err)
{
    lf_thrift t = {.p = p->foot + p->group[g].at, .end = p->foot + p->foot_len};
    size_t n = 0, k = 0;
    int id = 0, rc = 0;
    bool seen = false;
    enum lf_thrift_type f;
    while (rc == 0 && lf_thrift_field(&t, &id, &f)) {
        if (id != 1 || seen) {
            lf_thrift_skip(&t, f);
            continue;
        }
        seen = true;
        n = lf_thrift_list(&t, f, LF_THRIFT_STRUCT);
        for (size_t i = 0; i < n && rc == 0 && !t.bad; i++) {
            struct chunk c;
            read_chunk(&t, &c);
            if (k < p->n_leaf && p->leaf[k].column == i && !t.bad)
                rc = open_chunk(p, &p->leaf[k++], &c, err);
        }
    }
    if (rc == 0 && (t.bad || n != p->n_column))
        rc = lf_fail(err, LF_EFORMAT, "%s: row group %zu: its columns are not those of the schema",
                     p->path, g);
    return rc;
}

/* ---- the whole ---- */

static int read_meta(lf_parquet *p, lf_err *err)
{
    lf_thrift t = {.p = p->foot, .end = p->foot + p->foot_len};
    int id = 0, rc = 0;
    int64_t rows = -1, sum = 0;
    bool groups = false, encrypted = false;
    enum lf_thrift_type f;
    while (rc == 0 && lf_thrift_field(&t, &id, &f)) {
        if (id == 2 && p->n_elem == 0)
            rc = read_schema(p, &t, f, err);
        else if (id == 3)
            rows = lf_thrift_size(&t, f, INT64_MAX);
        else if (id == 4 && !groups) {
            groups = true;
            rc = read_groups(p, &t, f, err);
        } else {
            encrypted = encrypted || id == 8;
            lf_thrift_skip(&t, f);
        }
    }
    if (rc < 0)
        return rc;
    if (t.bad)
        return damaged(p, t.cut ? "it ends too early" : "it is no Thrift structure", err);
    if (encrypted)
        return lf_fail(err, LF_ENOTSUP,
                       "%s: it is encrypted; write it without encryption where its key is",
                       p->path);
    for (size_t i = 0; i < p->n_group && rows >= 0; i++)
        if (__builtin_add_overflow(sum, p->group[i].rows, &sum))
            return damaged(p, "its row groups have too many rows", err);
    if (p->n_elem == 0 || rows < 0 || sum != rows)
        return damaged(p, "it has no schema, or its rows are not those of its row groups", err);
    p->rows = rows;
    return 0;
}

int lf_pq_footer_read(lf_parquet *p, lf_err *err)
{
    uint8_t tail[TAIL], head[4];
    if (p->size < 4 + TAIL)
        return lf_fail(err, LF_EFORMAT, "%s: %lld bytes are no parquet file; is it complete?",
                       p->path, (long long)p->size);
    int rc = lf_io_pread_all(p->fd, head, 4, 0, p->path, err);
    if (rc == 0)
        rc = lf_io_pread_all(p->fd, tail, TAIL, p->size - TAIL, p->path, err);
    if (rc < 0)
        return rc;
    if (memcmp(tail + 4, "PARE", 4) == 0)
        return lf_fail(err, LF_ENOTSUP,
                       "%s: it is encrypted; write it without encryption where its key is",
                       p->path);
    if (memcmp(head, "PAR1", 4) != 0 || memcmp(tail + 4, "PAR1", 4) != 0)
        return lf_fail(err, LF_EFORMAT,
                       "%s: it does not %s with PAR1, so it is no parquet file; is it complete?",
                       p->path, memcmp(head, "PAR1", 4) != 0 ? "begin" : "end");
    p->foot_len = (size_t)lf_get_le(tail, 4);
    if (p->foot_len > LF_PQ_FOOTER_MAX || (int64_t)p->foot_len > p->size - 4 - TAIL)
        return lf_fail(err, LF_EFORMAT,
                       "%s: its footer says that it has %zu bytes; the file has %lld, and %zu are "
                       "the most",
                       p->path, p->foot_len, (long long)p->size, LF_PQ_FOOTER_MAX);
    p->foot = lf_malloc(p->foot_len, 1, err);
    if (!p->foot)
        return LF_ENOMEM;
    rc = lf_io_pread_all(p->fd, p->foot, p->foot_len, p->size - TAIL - (int64_t)p->foot_len,
                         p->path, err);
    return rc < 0 ? rc : read_meta(p, err);
}

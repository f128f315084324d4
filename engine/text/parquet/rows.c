/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows put together from their columns. A node is there, null or a list without elements by the
 * definition level of its first column; its other columns must say the same, or the file is
 * damaged.
 */
#include "config.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/text/parquet/parquet_priv.h"
#include "engine/text/parquet/rowpack.h"

/* ---- the file ---- */

int lf_parquet_is(bool *yes, const char *path, lf_err *err)
{
    struct stat st;
    char head[4], tail[4];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0) {
        int rc = lf_fail_errno(err, "cannot open %s", path);
        if (fd >= 0)
            close(fd);
        return rc;
    }
    int rc = 0;
    *yes = false;
    if (S_ISREG(st.st_mode) && st.st_size >= 12) {
        rc = lf_io_pread_all(fd, head, 4, 0, path, err);
        if (rc == 0)
            rc = lf_io_pread_all(fd, tail, 4, st.st_size - 4, path, err);
        *yes = rc == 0 && memcmp(head, tail, 4) == 0 &&
               (memcmp(head, "PAR1", 4) == 0 || memcmp(head, "PARE", 4) == 0);
    }
    close(fd);
    return rc;
}

static int open_file(lf_parquet *p, const char *path, lf_err *err)
{
    struct stat st;
    if (!(p->path = lf_strdup(path, err)) || !(p->arena = lf_arena_create(err)))
        return LF_ENOMEM;
    p->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (p->fd < 0 || fstat(p->fd, &st) != 0)
        return lf_fail_errno(err, "cannot open %s", path);
    if (!S_ISREG(st.st_mode))
        return lf_fail(err, LF_EINVAL,
                       "%s: parquet is read from its end, which only a regular file has", path);
    p->size = st.st_size;
    return 0;
}

int lf_parquet_open(lf_parquet **out, const char *path, const lf_parquet_opts *o, lf_err *err)
{
    lf_parquet *p = lf_calloc(1, sizeof *p, err);
    if (!p)
        return LF_ENOMEM;
    p->fd = -1;
    p->o = *o;
    lf_crc32_init(&p->crc);
    int rc = open_file(p, path, err);
    if (rc == 0)
        rc = lf_pq_footer_read(p, err);
    if (rc == 0)
        rc = lf_pq_schema_build(p, err);
    if (rc < 0) {
        lf_parquet_close(p);
        return rc;
    }
    *out = p;
    return 0;
}

void lf_parquet_close(lf_parquet *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < p->n_leaf; i++)
        lf_pq_leaf_fini(&p->leaf[i]);
    if (p->fd >= 0)
        close(p->fd);
    free(p->leaf);
    free(p->passed);
    free(p->foot);
    free(p->elem);
    free(p->group);
    lf_arena_destroy(p->arena);
    free(p->path);
    free(p);
}

const char *const *lf_parquet_passed(const lf_parquet *p, size_t *n)
{
    *n = p->n_passed;
    return p->passed;
}

int64_t lf_parquet_rows(const lf_parquet *p)
{
    return p->rows;
}

int64_t lf_parquet_bytes_done(const lf_parquet *p)
{
    return p->bytes;
}

/* ---- a row ---- */

static long long row_number(const lf_parquet *p)
{
    return (long long)(p->group[p->next_group - 1].rows - p->rows_left + 1);
}

static int disagree(const struct lf_pq_leaf *l, lf_err *err)
{
    return lf_pq_fail(l, err, LF_EFORMAT,
                      "row %lld of the group has other levels here than in the columns beside it",
                      row_number(l->file));
}

static int too_long(const struct lf_pq_leaf *l, lf_err *err)
{
    const lf_parquet_opts *o = &l->file->o;
    return lf_pq_fail(l, err, LF_EINVAL, "row %lld of the group is longer than %zu bytes%s%s",
                      row_number(l->file), o->max_row_bytes, o->raise ? "; raise " : "",
                      o->raise ? o->raise : "");
}

/* The next entry of a column, which must be there and have this repetition level. */
static int expect(struct lf_pq_leaf *l, int rep, lf_err *err)
{
    int rc = lf_pq_leaf_peek(l, err);
    if (rc == 0)
        return lf_pq_fail(l, err, LF_EFORMAT, "the column has fewer rows than its row group");
    return rc < 0 ? rc : l->rep == rep ? 0 : disagree(l, err);
}

/* Go over one entry without a value of each column below n. */
static int drop(lf_parquet *p, const struct lf_pq_node *n, int rep, int def, lf_err *err)
{
    struct lf_pq_value none;
    int rc = 0;
    for (size_t i = n->leaf; i < n->leaf + n->n_leaf && rc == 0; i++) {
        struct lf_pq_leaf *l = &p->leaf[i];
        rc = expect(l, rep, err);
        if (rc == 0 && l->def != def)
            rc = disagree(l, err);
        if (rc == 0)
            rc = lf_pq_leaf_take(l, &none, err);
    }
    return rc;
}

static int put_value(const struct lf_pq_leaf *l, struct lf_pq_value *v, lf_buf *out, lf_err *err)
{
    bool narrow = l->node->type == LF_PQ_INT32;
    switch (l->node->kind) {
    case LF_PQ_TEXT:
        lf_rowpack_put_text(out, v->text.p, v->text.n);
        return 0;
    case LF_PQ_BYTES:
        lf_rowpack_put(out, LF_ROWPACK_BYTES, v->text.n, 4);
        lf_buf_add(out, v->text.p, v->text.n);
        return 0;
    case LF_PQ_BOOL:
        lf_buf_addc(out, v->i ? LF_ROWPACK_TRUE : LF_ROWPACK_FALSE);
        return 0;
    case LF_PQ_UINT:
        v->i = narrow ? (int64_t)(uint32_t)v->i : v->i;
        if (v->i < 0)
            return lf_pq_fail(l, err, LF_ENOTSUP, "a number is above 2^63 - 1");
        break;
    case LF_PQ_REAL:
        if (!isfinite(v->d))
            return lf_pq_fail(l, err, LF_ENOTSUP,
                              "a number is infinite or none (NaN), which a row has no place for");
        break;
    default:
        break;
    }
    lf_rowpack_put(out, l->node->kind == LF_PQ_REAL ? LF_ROWPACK_REAL : LF_ROWPACK_INT,
                   (uint64_t)v->i, 8); /* the bits of a real, too */
    return 0;
}

static int emit_leaf(lf_parquet *p, const struct lf_pq_node *n, lf_buf *out, lf_err *err)
{
    struct lf_pq_leaf *l = &p->leaf[n->leaf];
    struct lf_pq_value v = {.i = 0};
    if (l->def != n->def)
        return disagree(l, err);
    int rc = lf_pq_leaf_take(l, &v, err);
    if (rc < 0)
        return rc;
    if ((n->kind == LF_PQ_TEXT || n->kind == LF_PQ_BYTES) && v.text.n > p->o.max_row_bytes)
        return too_long(l, err);
    return put_value(l, &v, out, err);
}

static int emit(lf_parquet *p, const struct lf_pq_node *n, int rep, lf_buf *out, lf_err *err);

static int emit_list(lf_parquet *p, const struct lf_pq_node *n, int rep, lf_buf *out, lf_err *err)
{
    struct lf_pq_leaf *l = &p->leaf[n->leaf];
    int more = l->def > n->def, rc = more ? 0 : drop(p, n, rep, n->def, err);
    lf_buf_addc(out, LF_ROWPACK_LIST);
    while (more && rc == 0) {
        rc = emit(p, n->child[0], rep, out, err);
        if (rc == 0)
            rc = lf_pq_leaf_peek(l, err);
        rep = n->rep;
        more = rc == 1 && l->rep == rep;
        rc = rc < 0 ? rc : 0;
    }
    lf_buf_addc(out, LF_ROWPACK_LIST_END);
    return rc;
}

static int emit_struct(lf_parquet *p, const struct lf_pq_node *n, int rep, lf_buf *out, lf_err *err)
{
    int rc = 0;
    lf_buf_addc(out, LF_ROWPACK_OBJECT);
    for (size_t i = 0; i < n->n_child && rc == 0; i++) {
        lf_rowpack_put_name(out, n->child[i]->name);
        rc = emit(p, n->child[i], rep, out, err);
    }
    lf_buf_addc(out, LF_ROWPACK_OBJECT_END);
    return rc;
}

/* What n has of the row, whose next entries have repetition level rep. */
static int emit(lf_parquet *p, const struct lf_pq_node *n, int rep, lf_buf *out, lf_err *err)
{
    struct lf_pq_leaf *l = &p->leaf[n->leaf];
    int rc = expect(l, rep, err);
    if (rc < 0)
        return rc;
    if (out->len > p->o.max_row_bytes)
        return too_long(l, err);
    if (l->def < n->def) {
        if (!n->optional || l->def != n->def - 1)
            return disagree(l, err);
        lf_buf_addc(out, LF_ROWPACK_NULL);
        return drop(p, n, rep, l->def, err);
    }
    if (n->kind == LF_PQ_LIST)
        return emit_list(p, n, rep, out, err);
    if (n->kind == LF_PQ_STRUCT)
        return emit_struct(p, n, rep, out, err);
    return emit_leaf(p, n, out, err);
}

/* ---- row groups ---- */

/* After the last row of a group nothing may be left in its columns. */
static int end_group(lf_parquet *p, lf_err *err)
{
    for (size_t i = 0; i < p->n_leaf && p->next_group > 0; i++) {
        int rc = lf_pq_leaf_peek(&p->leaf[i], err);
        if (rc > 0)
            rc = lf_pq_fail(&p->leaf[i], err, LF_EFORMAT,
                            "the column has more rows than its row group");
        if (rc < 0)
            return rc;
    }
    return 0;
}

int lf_parquet_next(lf_parquet *p, lf_buf *row, lf_err *err)
{
    lf_buf_clear(row);
    while (p->rows_left == 0) {
        int rc = end_group(p, err);
        if (rc < 0 || p->next_group == p->n_group)
            return rc;
        size_t g = p->next_group++;
        p->rows_left = p->group[g].rows;
        rc = lf_pq_group_open(p, g, err);
        if (rc < 0)
            return rc;
    }
    int rc = emit_struct(p, p->root, 0, row, err);
    p->rows_left--;
    if (rc == 0)
        rc = lf_buf_check(row, err);
    return rc < 0 ? rc : 1;
}

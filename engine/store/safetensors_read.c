/* SPDX-License-Identifier: Apache-2.0
 *
 * The header of one safetensors file.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/le.h"
#include "engine/base/mem.h"
#include "engine/base/utf8.h"
#include "engine/store/safetensors.h"
#include "engine/store/safetensors_priv.h"

/* ---- the header of one file ---- */

static int get_shape(int64_t *shape, int *ndim, json_t *v, const char *what, lf_err *err)
{
    json_t *a = NULL;
    int rc = lf_json_get_array(&a, v, "shape", true, what, err);
    if (rc < 0)
        return rc;
    if (json_array_size(a) > LF_ST_MAX_DIMS)
        return lf_fail(err, LF_ENOTSUP, "%s has %zu dimensions; at most %d are read", what,
                       json_array_size(a), LF_ST_MAX_DIMS);
    for (size_t k = 0; k < json_array_size(a); k++) {
        json_t *d = json_array_get(a, k);
        if (!json_is_integer(d) || json_integer_value(d) < 0)
            return lf_fail(err, LF_EFORMAT,
                           "%s: dimension %zu of its shape is not a number of elements", what, k);
        shape[k] = json_integer_value(d);
    }
    *ndim = (int)json_array_size(a);
    return 0;
}

static int get_offsets(int64_t lo_hi[2], json_t *v, const char *what, lf_err *err)
{
    json_t *a = NULL;
    int rc = lf_json_get_array(&a, v, "data_offsets", true, what, err);
    if (rc < 0)
        return rc;
    for (size_t k = 0; k < 2; k++) {
        json_t *d = json_array_get(a, k);
        if (json_array_size(a) != 2 || !json_is_integer(d) || json_integer_value(d) < 0)
            return lf_fail(err, LF_EFORMAT, "%s: \"data_offsets\" are not two numbers of bytes",
                           what);
        lo_hi[k] = json_integer_value(d);
    }
    return 0;
}

/* {"dtype":..,"shape":..,"data_offsets":..} of one tensor; data: where the file's tensors begin and
 * how many bytes. */
static int add_tensor(lf_st *s, int file, const char *name, json_t *v, const int64_t data[2],
                      lf_err *err)
{
    char what[256];
    const char *dtype = "";
    enum lf_st_dtype t = 0;
    int ndim = 0;
    int64_t shape[LF_ST_MAX_DIMS], at[2];
    snprintf(what, sizeof what, "tensor %.200s", name);
    int rc = lf_json_get_str(&dtype, v, "dtype", true, what, err);
    if (rc == 0 && (rc = lf_st_dtype_parse(&t, dtype, err)) < 0)
        lf_err_prefix(err, "%s", what);
    if (rc == 0)
        rc = get_shape(shape, &ndim, v, what, err);
    if (rc == 0)
        rc = get_offsets(at, v, what, err);
    if (rc == 0 && json_object_size(v) != 3)
        rc = lf_fail(err, LF_EFORMAT, "%s has members other than dtype, shape and data_offsets",
                     what);
    if (rc < 0)
        return rc;
    lf_st_entry *e = lf_st_add_entry(s, name, t, ndim, shape, err);
    if (!e)
        return err ? err->rc : LF_EFORMAT;
    if (at[0] > at[1] || at[1] > data[1])
        return lf_fail(
            err, LF_EFORMAT,
            "%s: its bytes %lld to %lld do not lie in the %lld bytes of data (truncated file?)",
            what, (long long)at[0], (long long)at[1], (long long)data[1]);
    if (at[1] - at[0] != e->bytes)
        return lf_fail(err, LF_EFORMAT,
                       "%s: its shape and dtype need %lld bytes, its data_offsets hold %lld", what,
                       (long long)e->bytes, (long long)(at[1] - at[0]));
    lf_st_place(s, file, data[0] + at[0]);
    return 0;
}

static int add_metadata(lf_st *s, const lf_jscan *outer, lf_err *err)
{
    lf_jscan j;
    lf_buf text;
    int rc;
    lf_buf_init(&text);
    lf_jscan_init(&j, outer->value, outer->value_len, "__metadata__");
    while ((rc = lf_jscan_next(&j, err)) == 1) {
        rc = lf_jscan_string(&j, &text, err);
        if (rc == 0)
            rc = lf_st_add_meta(s, j.key.data, text.data, err);
        if (rc < 0)
            break;
    }
    lf_jscan_fini(&j);
    lf_buf_fini(&text);
    return rc;
}

static int add_member(lf_st *s, int file, const lf_jscan *j, const int64_t data[2], lf_err *err)
{
    if (strcmp(j->key.data, "__metadata__") == 0)
        return add_metadata(s, j, err);
    if (j->value_len > LF_JSCAN_VALUE)
        return lf_fail(
            err, LF_EFORMAT,
            "tensor %.200s is described by %zu bytes; a dtype, a shape and two offsets never "
            "need more than %zu",
            j->key.data, j->value_len, LF_JSCAN_VALUE);
    json_t *v = lf_json_load_text(j->value, j->value_len, j->key.data, err);
    if (!v)
        return LF_EFORMAT;
    int rc = add_tensor(s, file, j->key.data, v, data, err);
    json_decref(v);
    return rc;
}

static int by_offset(const void *a, const void *b)
{
    const struct lf_st_rec *x = a, *y = b;
    if (x->place != y->place)
        return x->place < y->place ? -1 : 1;
    return (x->e.bytes > y->e.bytes) - (x->e.bytes < y->e.bytes);
}

/* The tensors of this file, entries [first, ...), must follow each other from the first byte of
 * data to the last. */
static int check_tiling(lf_st *s, size_t first, const int64_t data[2], lf_err *err)
{
    int64_t at = data[0];
    const char *before = "the header";
    if (s->n_recs > first)
        qsort(s->recs + first, s->n_recs - first, sizeof *s->recs, by_offset);
    for (size_t i = first; i < s->n_recs; i++) {
        const lf_st_entry *e = &s->recs[i].e;
        if (e->offset != at)
            return lf_fail(err, LF_EFORMAT, "tensor %.200s %s %.200s by %lld bytes", e->name,
                           e->offset < at ? "overlaps" : "leaves a hole after", before,
                           (long long)(e->offset < at ? at - e->offset : e->offset - at));
        at += e->bytes;
        before = e->name;
    }
    if (at != data[0] + data[1])
        return lf_fail(err, LF_EFORMAT, "%lld bytes after the last tensor belong to none",
                       (long long)(data[0] + data[1] - at));
    return 0;
}

static int parse_header(lf_st *s, int file, const char *text, size_t len, const int64_t data[2],
                        lf_err *err)
{
    lf_jscan j;
    size_t first = s->n_recs, bad = lf_utf8_check(text, len);
    int rc;
    if (bad < len)
        return lf_fail(err, LF_EFORMAT, "byte %zu of the header is not UTF-8", bad);
    if (text[0] != '{')
        return lf_fail(err, LF_EFORMAT, "the header does not begin with '{'");
    lf_jscan_init(&j, text, len, "header");
    bool meta = false;
    while ((rc = lf_jscan_next(&j, err)) == 1) {
        if (strcmp(j.key.data, "__metadata__") == 0 && meta)
            rc = lf_fail(err, LF_EFORMAT, "__metadata__ is there twice");
        meta |= strcmp(j.key.data, "__metadata__") == 0;
        if (rc < 0 || (rc = add_member(s, file, &j, data, err)) < 0)
            break;
    }
    lf_jscan_fini(&j);
    return rc < 0 ? rc : check_tiling(s, first, data, err);
}

/* Add the tensors of the file open at fd (taken). */
static int add_safetensors(lf_st *s, int fd, const char *path, lf_err *err)
{
    unsigned char head[8];
    char *text = NULL;
    int file = lf_st_add_file(s, fd, path, err);
    if (file < 0)
        return file;
    int64_t bytes = s->files[file].bytes, data[2];
    if (bytes < 8)
        return lf_fail(err, LF_EFORMAT,
                       "%s: %lld bytes are too few for a safetensors file (truncated?)", path,
                       (long long)bytes);
    int rc = lf_io_pread_all(fd, head, sizeof head, 0, path, err);
    if (rc < 0)
        return rc;
    uint64_t n = lf_get_le(head, 8);
    if (n > LF_SAFETENSORS_MAX_HEADER)
        return lf_fail(
            err, LF_EFORMAT,
            "%s: a header of %llu bytes is announced, more than %d: not a safetensors file", path,
            (unsigned long long)n, LF_SAFETENSORS_MAX_HEADER);
    if (n < 2 || n > (uint64_t)bytes - 8)
        return lf_fail(err, LF_EFORMAT,
                       "%s: a header of %llu bytes is announced in a file of %lld (truncated?)",
                       path, (unsigned long long)n, (long long)bytes);
    if (!(text = lf_malloc((size_t)n, 1, err)))
        return LF_ENOMEM;
    rc = lf_io_pread_all(fd, text, (size_t)n, 8, path, err);
    data[0] = 8 + (int64_t)n;
    data[1] = bytes - data[0];
    if (rc == 0 && (rc = parse_header(s, file, text, (size_t)n, data, err)) < 0)
        lf_err_prefix(err, "%s", path);
    free(text);
    return rc;
}

int lf_st_open(lf_st **out, const char *path, lf_err *err)
{
    static const struct lf_st_kind kind = {LF_SAFETENSORS_FILE, LF_SAFETENSORS_INDEX,
                                           add_safetensors};
    return lf_st_open_kind(out, &kind, path, err);
}

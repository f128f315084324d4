/* SPDX-License-Identifier: Apache-2.0
 *
 * Files for tests/stage/convert.sh: the tensors of a directory written again with one thing
 * changed.
 *
 *     convert_tool IN OUT [drop NAME | rename OLD NEW | widen NAME | nan NAME | add NAME | copy
 *     NAME NEW | change NAME
 * | f16 | bf16 | split BYTES]
 *
 * widen: one more row; add: a scalar that no model has; copy: NAME again under NEW; change: the
 * first value is another.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/convert/move.h"
#include "engine/store/safetensors.h"

#define MAX 400

struct out {
    lf_st_decl d;
    const lf_st_entry *from; /* NULL: zeros */
    bool nan, change;
};

static void die(const lf_err *err)
{
    fprintf(stderr, "convert_tool: %s\n", err->text);
    exit(1);
}

static bool is(int argc, char **argv, const char *op, const char *name)
{
    return argc > 4 && strcmp(argv[3], op) == 0 && strcmp(argv[4], name) == 0;
}

static size_t declare(struct out *v, const lf_st *s, int argc, char **argv)
{
    size_t n = 0;
    for (size_t i = 0; i < lf_st_n_entries(s) && n + 2 < MAX; i++) {
        const lf_st_entry *e = lf_st_entry_at(s, i);
        if (is(argc, argv, "drop", e->name))
            continue;
        struct out *o = &v[n++];
        *o = (struct out){{e->name, e->dtype, e->ndim, {0}},
                          e,
                          is(argc, argv, "nan", e->name),
                          is(argc, argv, "change", e->name)};
        memcpy(o->d.shape, e->shape, sizeof e->shape);
        if (is(argc, argv, "rename", e->name))
            o->d.name = argv[5];
        if (is(argc, argv, "widen", e->name))
            o->d.shape[0]++;
        if (argc > 3 && strcmp(argv[3], "f16") == 0)
            o->d.dtype = LF_ST_F16;
        if (argc > 3 && strcmp(argv[3], "bf16") == 0)
            o->d.dtype = LF_ST_BF16;
        if (is(argc, argv, "copy", e->name)) {
            v[n] = *o;
            v[n++].d.name = argv[5];
        }
    }
    if (argc > 4 && strcmp(argv[3], "add") == 0)
        v[n++] = (struct out){.d = {argv[4], LF_ST_F32, 1, {1}}};
    return n;
}

static void put(lf_st_writer *w, const lf_st *s, const struct out *o, lf_err *err)
{
    int64_t n = 1, have = o->from ? o->from->elems : 0;
    for (int k = 0; k < o->d.ndim; k++)
        n *= o->d.shape[k];
    size_t size = lf_st_dtype_bytes(o->d.dtype);
    char *raw = calloc((size_t)n + 1, 8), *cast = calloc((size_t)n + 1, 8);
    if (!raw || !cast || (o->from && lf_st_read(s, o->from, 0, have, raw, err)) ||
        (o->from && lf_move_cast(o->d.dtype, cast, o->from->dtype, raw, have, err)))
        die(err);
    if (o->nan)
        memset(cast, 0xff, size);
    if (o->change)
        cast[size - 1] ^= 1;
    if (lf_st_writer_put(w, cast, (size_t)n * size, err))
        die(err);
    free(raw);
    free(cast);
}

int main(int argc, char **argv)
{
    static struct out v[MAX];
    static lf_st_decl decls[MAX];
    lf_err err = LF_ERR_INIT;
    lf_st *s = NULL;
    lf_st_writer *w = NULL;
    if (argc < 3)
        return 2;
    lf_st_write_options o = {.max_file =
                                 argc > 4 && strcmp(argv[3], "split") == 0 ? atoll(argv[4]) : 0};
    if (lf_st_open(&s, argv[1], &err) || lf_io_mkdirs(argv[2], 0750, &err))
        die(&err);
    size_t n = declare(v, s, argc, argv), k;
    for (size_t i = 0; i < n; i++)
        decls[i] = v[i].d;
    if (lf_st_writer_create(&w, argv[2], decls, n, &o, &err))
        die(&err);
    while ((k = lf_st_writer_next(w)) < n)
        put(w, s, &v[k], &err);
    if (lf_st_writer_finish(w, NULL, NULL, &err))
        die(&err);
    lf_st_writer_destroy(w);
    lf_st_close(s);
    return 0;
}

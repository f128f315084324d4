/* SPDX-License-Identifier: Apache-2.0
 *
 * From objects to a set: which form a file has, and every tensor that its top object reaches.
 */
#include "engine/store/torch_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/store/torch_file_priv.h"

#define MAX_DEPTH 32
#define MAX_NODES                                                                                  \
    ((size_t)2 << 20) /* visits: shared objects are visited once for every way that leads to them */
#define MAX_OTHER 400 /* bytes of names of what is no tensor */

void lf_torch_fini(struct lf_torch *t)
{
    lf_pickle_destroy(t->pickle);
    free(t->text);
    memset(t, 0, sizeof *t);
}

int lf_torch_load(struct lf_torch *out, lf_st *s, int fd, const char *path, lf_err *err)
{
    unsigned char head[512] = {0};
    int file = lf_st_add_file(s, fd, path, err);
    if (file < 0)
        return file;
    int64_t bytes = s->files[file].bytes;
    int rc = lf_io_pread_all(fd, head, bytes < (int64_t)sizeof head ? (size_t)bytes : sizeof head,
                             0, path, err);
    if (rc < 0)
        return rc;
    if (memcmp(head, "PK\3\4", 4) == 0 || memcmp(head, "PK\5\6", 4) == 0)
        return lf_torch_load_zip(out, s, file, err);
    if (head[0] == 0x80)
        return lf_torch_load_legacy(out, s, file, err);
    if (memcmp(head + 257, "ustar", 5) == 0)
        return lf_fail(
            err, LF_ENOTSUP,
            "%s is a tar archive, the form of PyTorch before 0.1.10; load and save it with a "
            "newer one",
            path);
    return lf_fail(err, LF_EFORMAT,
                   "%s is no file of torch.save: neither a zip archive nor a pickle", path);
}

int lf_torch_add_tensor(lf_st *s, const char *name, const struct lf_pv_tensor *t, lf_err *err)
{
    int64_t elem = (int64_t)lf_st_dtype_bytes(t->dtype);
    lf_st_entry *e = lf_st_add_entry(s, name, t->dtype, t->ndim, t->shape, err);
    if (!e)
        return err && err->rc ? err->rc : LF_EFORMAT;
    struct lf_st_piece p = {
        .file = t->storage->file, .ndim = t->ndim, .offset = t->storage->offset + t->first * elem};
    if (e->elems == 0) {
        lf_st_place(s, p.file, t->storage->offset);
        return 0;
    }
    int64_t dst = 1;
    for (int k = t->ndim - 1; k >= 0; k--) {
        p.n[k] = t->shape[k];
        p.src[k] = t->stride[k];
        p.dst[k] = dst;
        dst *= t->shape[k];
    }
    return lf_st_add_piece(s, &p, err);
}

/* ---- everything that can be reached ---- */

struct walk {
    lf_torch_emit emit;
    void *user;
    lf_buf name, *other;
    size_t nodes;
    struct level {
        const lf_pv *v;
        uint32_t next;
        size_t name_len; /* of its own name */
    } levels[MAX_DEPTH];
    int depth;
};

static int add_key(struct walk *w, const lf_pv *key, uint32_t index, lf_err *err)
{
    int64_t i = index;
    if (w->name.len)
        lf_buf_addc(&w->name, '.');
    if (key && key->type == LF_PV_STR) {
        if (memchr(key->u.text, '\0', key->n))
            return lf_fail(err, LF_EFORMAT, "a name with a NUL in %.200s", w->name.data);
        lf_buf_add(&w->name, key->u.text, key->n);
    } else if (!key || lf_pv_i64(key, &i)) {
        lf_buf_addf(&w->name, "%lld", (long long)i);
    } else {
        return lf_fail(err, LF_EFORMAT,
                       "a member of %.200s is named by something that is neither text nor number",
                       w->name.len > 1 ? w->name.data : "the top dictionary");
    }
    if (w->name.len > LF_ST_MAX_NAME)
        return lf_fail(err, LF_EFORMAT, "a name of more than %d bytes: %.200s", LF_ST_MAX_NAME,
                       w->name.data);
    return lf_buf_check(&w->name, err);
}

static int visit(struct walk *w, const lf_pv *v, lf_err *err)
{
    if (++w->nodes > MAX_NODES)
        return lf_fail(err, LF_EFORMAT, "more than %zu objects can be reached (a memo bomb?)",
                       MAX_NODES);
    if (v->type == LF_PV_TENSOR)
        return w->emit(w->user, w->name.data, v->u.tensor, err);
    if (v->type == LF_PV_DICT || v->type == LF_PV_LIST || v->type == LF_PV_TUPLE) {
        if (w->depth == MAX_DEPTH)
            return lf_fail(err, LF_EFORMAT, "%.200s: objects nested deeper than %d", w->name.data,
                           MAX_DEPTH);
        w->levels[w->depth++] = (struct level){v, 0, w->name.len};
    } else if (w->other && v->type != LF_PV_NONE && w->other->len < MAX_OTHER) {
        lf_buf_adds(w->other, w->other->len ? ", " : "");
        lf_buf_add(w->other, w->name.data, w->name.len < 100 ? w->name.len : 100);
    }
    return 0;
}

int lf_torch_walk(const lf_pv *root, lf_torch_emit emit, void *user, lf_buf *other, lf_err *err)
{
    struct walk w = {.emit = emit, .user = user, .other = other};
    lf_buf_init(&w.name);
    int rc = visit(&w, root, err);
    while (rc == 0 && w.depth > 0) {
        struct level *l = &w.levels[w.depth - 1];
        w.name.len = l->name_len;
        w.name.data[w.name.len] = '\0';
        if (l->next == l->v->n) {
            w.depth--;
            continue;
        }
        uint32_t i = l->next++;
        bool dict = l->v->type == LF_PV_DICT;
        rc = add_key(&w, dict ? l->v->u.items[2 * i] : NULL, i, err);
        if (rc == 0)
            rc = visit(&w, l->v->u.items[dict ? 2 * i + 1 : i], err);
    }
    lf_buf_fini(&w.name);
    return rc;
}

static int add_tensor(void *user, const char *name, const struct lf_pv_tensor *t, lf_err *err)
{
    return lf_torch_add_tensor(user, name, t, err);
}

static int add_torch(lf_st *s, int fd, const char *path, lf_err *err)
{
    struct lf_torch t = {0};
    lf_buf other;
    size_t before = s->n_recs;
    lf_buf_init(&other);
    int rc = lf_torch_load(&t, s, fd, path, err);
    if (rc == 0 && lf_pickle_root(t.pickle)->type != LF_PV_DICT)
        rc = lf_fail(err, LF_EFORMAT, "%s: its top object is no dictionary of tensors", path);
    if (rc == 0 && (rc = lf_torch_walk(lf_pickle_root(t.pickle), add_tensor, s, &other, err)) < 0)
        lf_err_prefix(err, "%s", path);
    if (rc == 0 && s->n_recs == before)
        rc = lf_fail(err, LF_EFORMAT, "%s holds no tensor", path);
    if (rc == 0 && other.len)
        rc = lf_st_add_meta(s, LF_TORCH_META_OTHER, other.data, err);
    lf_buf_fini(&other);
    lf_torch_fini(&t);
    return rc;
}

int lf_torch_open(lf_st **out, const char *path, lf_err *err)
{
    static const struct lf_st_kind kind = {LF_TORCH_FILE, LF_TORCH_INDEX, add_torch};
    return lf_st_open_kind(out, &kind, path, err);
}

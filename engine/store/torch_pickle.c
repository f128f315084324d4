/* SPDX-License-Identifier: Apache-2.0
 *
 * Values and their memory: all of them live in one arena whose size lf_pickle_alloc counts.
 */
#include "engine/store/torch_pickle.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/store/torch_pickle_priv.h"

int lf_pickle_fail(lf_pickle *p, int rc, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return lf_fail(p->err, rc, "%s: byte %zu, %s (0x%02x): %s", p->what, (size_t)(p->op - p->text),
                   lf_pickle_op_name(*p->op), *p->op, text);
}

/* ---- memory ---- */

void *lf_pickle_alloc(lf_pickle *p, size_t n, size_t size)
{
    size_t bytes;
    /* As the arena rounds. */
    if (!lf_size_mul(&bytes, n, size) || !lf_size_add(&bytes, bytes, 15) ||
        (bytes &= ~(size_t)15) > p->max_memory - p->memory) {
        lf_pickle_fail(
            p, LF_EFORMAT,
            "its values take more than %zu bytes; no file of tensors of this length needs that",
            p->max_memory);
        return NULL;
    }
    p->memory += bytes;
    return lf_arena_alloc(p->arena, n, size, p->err);
}

lf_pv *lf_pickle_value(lf_pickle *p, enum lf_pv_type type)
{
    lf_pv *v = lf_pickle_alloc(p, 1, sizeof *v);
    if (v)
        v->type = type;
    return v;
}

/* The old array stays in the arena: twice the size at most. */
int lf_pickle_reserve(lf_pickle *p, lf_pv *v, size_t used, size_t more)
{
    if (used + more <= v->cap)
        return 0;
    size_t cap = used + more > 2 * used ? used + more : 2 * used;
    lf_pv **items = cap < UINT32_MAX / 2 ? lf_pickle_alloc(p, cap, sizeof *items) : NULL;
    if (!items)
        return lf_pickle_fail(p, LF_ENOMEM, "too many items");
    if (used)
        memcpy(items, v->u.items, used * sizeof *items);
    v->u.items = items;
    v->cap = (uint32_t)cap;
    return 0;
}

int lf_pickle_append(lf_pickle *p, lf_pv *seq, lf_pv *v)
{
    int rc = lf_pickle_reserve(p, seq, seq->n, 1);
    if (rc == 0)
        seq->u.items[seq->n++] = v;
    return rc;
}

int lf_pickle_put(lf_pickle *p, lf_pv *dict, lf_pv *key, lf_pv *v)
{
    int rc = lf_pickle_reserve(p, dict, 2 * (size_t)dict->n, 2);
    if (rc == 0) {
        dict->u.items[2 * dict->n] = key;
        dict->u.items[2 * dict->n + 1] = v;
        dict->n++;
    }
    return rc;
}

int lf_pickle_load(lf_pickle **out, const void *text, size_t len, size_t *used, const char *what,
                   lf_err *err)
{
    lf_err own = LF_ERR_INIT;
    if (len > LF_PICKLE_MAX)
        return lf_fail(err, LF_EFORMAT, "%s: a pickle of %zu bytes; at most %zu are read", what,
                       len, LF_PICKLE_MAX);
    lf_pickle *p = lf_calloc(1, sizeof *p, err);
    if (!p)
        return LF_ENOMEM;
    p->text = p->p = text;
    p->end = p->text + len;
    p->what = what;
    p->err = &own;
    p->max_memory = ((size_t)64 << 20) + 8 * len;
    p->arena = lf_arena_create(&own);
    int rc = p->arena ? lf_pickle_run(p) : LF_ENOMEM;
    p->err = NULL;
    p->what = NULL;
    if (rc < 0) {
        if (used)
            *used = p->ended ? len + 1 : 0;
        lf_pickle_destroy(p);
        return lf_fail(err, rc, "%s", own.text);
    }
    if (used)
        *used = (size_t)(p->p - p->text);
    *out = p;
    return 0;
}

void lf_pickle_destroy(lf_pickle *p)
{
    if (!p)
        return;
    lf_arena_destroy(p->arena);
    free(p->stack);
    free(p->storages);
    free(p);
}

lf_pv *lf_pickle_root(lf_pickle *p)
{
    return p->root;
}

size_t lf_pickle_n_storages(const lf_pickle *p)
{
    return p->n_storages;
}

struct lf_pv_storage *lf_pickle_storage(lf_pickle *p, size_t i)
{
    return p->storages[i];
}

lf_pv *lf_pv_get(const lf_pv *d, const char *key)
{
    size_t len = strlen(key);
    for (uint32_t i = d && d->type == LF_PV_DICT ? d->n : 0; i-- > 0;) {
        const lf_pv *k = d->u.items[2 * i];
        if (k->type == LF_PV_STR && k->n == len && memcmp(k->u.text, key, len) == 0)
            return d->u.items[2 * i + 1];
    }
    return NULL;
}

bool lf_pv_i64(const lf_pv *v, int64_t *out)
{
    if (!v || (v->type != LF_PV_INT && v->type != LF_PV_BOOL))
        return false;
    *out = v->u.i;
    return true;
}

bool lf_pv_str(const lf_pv *v, char *buf, size_t cap)
{
    if (!v || v->type != LF_PV_STR || v->n >= cap || memchr(v->u.text, '\0', v->n))
        return false;
    memcpy(buf, v->u.text, v->n);
    buf[v->n] = '\0';
    return true;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * See rowpack.h.
 */
#include "config.h"

#include "engine/text/parquet/rowpack.h"

static bool get_text(lf_rowpack_item *out, const char *p, size_t n, size_t *at)
{
    bool name = out->tag == LF_ROWPACK_MEMBER;
    size_t head = name ? 2 : 4;
    if (n - *at < head)
        return false;
    size_t len = (size_t)lf_get_le((const uint8_t *)p + *at, head);
    *at += head;
    if (n - *at < len || (name && (n - *at == len || p[*at + len] != 0)))
        return false;
    out->text.p = p + *at;
    out->text.n = len;
    *at += len + name;
    return true;
}

bool lf_rowpack_get(lf_rowpack_item *out, const char *p, size_t n, size_t *at)
{
    if (*at >= n)
        return false;
    out->tag = (enum lf_rowpack_tag)p[(*at)++];
    switch (out->tag) {
    case LF_ROWPACK_NULL:
    case LF_ROWPACK_FALSE:
    case LF_ROWPACK_TRUE:
    case LF_ROWPACK_LIST:
    case LF_ROWPACK_LIST_END:
    case LF_ROWPACK_OBJECT:
    case LF_ROWPACK_OBJECT_END:
        return true;
    case LF_ROWPACK_INT:
    case LF_ROWPACK_REAL:
        if (n - *at < 8)
            return false;
        memcpy(&out->i, p + *at, 8); /* the bytes of a real are those of the union */
        *at += 8;
        return true;
    case LF_ROWPACK_TEXT:
    case LF_ROWPACK_BYTES:
    case LF_ROWPACK_MEMBER:
        return get_text(out, p, n, at);
    }
    return false;
}

bool lf_rowpack_skip(const char *p, size_t n, size_t *at)
{
    lf_rowpack_item it;
    size_t depth = 0;
    do {
        if (!lf_rowpack_get(&it, p, n, at))
            return false;
        if (it.tag == LF_ROWPACK_LIST || it.tag == LF_ROWPACK_OBJECT)
            depth++;
        else if (it.tag == LF_ROWPACK_LIST_END || it.tag == LF_ROWPACK_OBJECT_END)
            depth -= depth > 0;
    } while (depth > 0 || it.tag == LF_ROWPACK_MEMBER);
    return true;
}

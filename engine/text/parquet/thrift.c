/* SPDX-License-Identifier: Apache-2.0
 *
 * See thrift.h.
 */
#include "config.h"

#include "engine/text/parquet/thrift.h"

#define DEPTH_MAX 32

static void bad(lf_thrift *t, bool cut)
{
    if (!t->bad)
        t->cut = cut;
    t->bad = true;
    t->p = t->end;
}

static uint8_t byte(lf_thrift *t)
{
    if (t->p < t->end)
        return *t->p++;
    bad(t, true);
    return 0;
}

uint64_t lf_thrift_varint(lf_thrift *t)
{
    uint64_t v = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        uint8_t b = byte(t);
        if (t->bad)
            return 0;
        if (shift == 63 && b > 1)
            break;
        v |= (uint64_t)(b & 0x7F) << shift;
        if (b < 0x80)
            return v;
    }
    bad(t, false);
    return 0;
}

int64_t lf_thrift_zigzag(lf_thrift *t)
{
    uint64_t v = lf_thrift_varint(t);
    return (int64_t)(v >> 1 ^ (0 - (v & 1)));
}

bool lf_thrift_field(lf_thrift *t, int *id, enum lf_thrift_type *type)
{
    uint8_t head = byte(t);
    if (t->bad || head == 0)
        return false;
    *type = (enum lf_thrift_type)(head & 15);
    int64_t next = head >> 4 ? *id + (head >> 4) : lf_thrift_zigzag(t);
    if (*type == LF_THRIFT_STOP || *type > LF_THRIFT_STRUCT || next < 0 || next > INT16_MAX)
        bad(t, false);
    *id = (int)next;
    return !t->bad;
}

int64_t lf_thrift_int(lf_thrift *t, enum lf_thrift_type type)
{
    if (type == LF_THRIFT_I8)
        return (int8_t)byte(t);
    if (type == LF_THRIFT_I16 || type == LF_THRIFT_I32 || type == LF_THRIFT_I64)
        return lf_thrift_zigzag(t);
    bad(t, false);
    return 0;
}

int64_t lf_thrift_size(lf_thrift *t, enum lf_thrift_type type, int64_t max)
{
    int64_t v = lf_thrift_int(t, type);
    if (v >= 0 && v <= max)
        return v;
    bad(t, false);
    return 0;
}

bool lf_thrift_bool(lf_thrift *t, enum lf_thrift_type type)
{
    if (type != LF_THRIFT_TRUE && type != LF_THRIFT_FALSE)
        bad(t, false);
    return type == LF_THRIFT_TRUE;
}

const char *lf_thrift_binary(lf_thrift *t, enum lf_thrift_type type, size_t *len)
{
    uint64_t n = 0;
    *len = 0;
    if (type == LF_THRIFT_BINARY)
        n = lf_thrift_varint(t);
    else
        bad(t, false);
    if (!t->bad && n > (uint64_t)(t->end - t->p))
        bad(t, true);
    if (t->bad)
        return "";
    const char *p = (const char *)t->p;
    t->p += n;
    *len = (size_t)n;
    return p;
}

/* The head of a list or set. */
static size_t list_head(lf_thrift *t, enum lf_thrift_type *of)
{
    uint8_t head = byte(t);
    uint64_t n = head >> 4 < 15 ? (uint64_t)(head >> 4) : lf_thrift_varint(t);
    *of = (enum lf_thrift_type)(head & 15);
    /* Each element has at least one byte. */
    if (!t->bad && n > (uint64_t)(t->end - t->p))
        bad(t, true);
    return t->bad ? 0 : (size_t)n;
}

size_t lf_thrift_list(lf_thrift *t, enum lf_thrift_type type, enum lf_thrift_type of)
{
    enum lf_thrift_type is;
    if (type != LF_THRIFT_LIST) {
        bad(t, false);
        return 0;
    }
    size_t n = list_head(t, &is);
    if (n > 0 && is != of)
        bad(t, false);
    return t->bad ? 0 : n;
}

bool lf_thrift_struct(lf_thrift *t, enum lf_thrift_type type)
{
    if (type != LF_THRIFT_STRUCT)
        bad(t, false);
    return !t->bad;
}

static void skip(lf_thrift *t, enum lf_thrift_type type, int depth);

static void skip_list(lf_thrift *t, int depth)
{
    enum lf_thrift_type of;
    size_t n = list_head(t, &of);
    for (size_t i = 0; i < n && !t->bad; i++) {
        if (of == LF_THRIFT_TRUE || of == LF_THRIFT_FALSE) /* a byte in lists */
            byte(t);
        else
            skip(t, of, depth);
    }
}

static void skip_map(lf_thrift *t, int depth)
{
    uint64_t n = lf_thrift_varint(t);
    uint8_t kinds = n > 0 ? byte(t) : 0;
    if (!t->bad && n > (uint64_t)(t->end - t->p))
        bad(t, true);
    for (uint64_t i = 0; i < n && !t->bad; i++) {
        skip(t, (enum lf_thrift_type)(kinds >> 4), depth);
        skip(t, (enum lf_thrift_type)(kinds & 15), depth);
    }
}

static void skip(lf_thrift *t, enum lf_thrift_type type, int depth)
{
    size_t n;
    int id = 0;
    enum lf_thrift_type of;
    if (depth > DEPTH_MAX) {
        bad(t, false);
        return;
    }
    switch (type) {
    case LF_THRIFT_TRUE:
    case LF_THRIFT_FALSE:
        return;
    case LF_THRIFT_I8:
        byte(t);
        return;
    case LF_THRIFT_I16:
    case LF_THRIFT_I32:
    case LF_THRIFT_I64:
        lf_thrift_varint(t);
        return;
    case LF_THRIFT_DOUBLE:
        for (int i = 0; i < 8; i++)
            byte(t);
        return;
    case LF_THRIFT_BINARY:
        lf_thrift_binary(t, type, &n);
        return;
    case LF_THRIFT_LIST:
    case LF_THRIFT_SET:
        skip_list(t, depth + 1);
        return;
    case LF_THRIFT_MAP:
        skip_map(t, depth + 1);
        return;
    case LF_THRIFT_STRUCT:
        while (lf_thrift_field(t, &id, &of))
            skip(t, of, depth + 1);
        return;
    default:
        bad(t, false);
    }
}

void lf_thrift_skip(lf_thrift *t, enum lf_thrift_type type)
{
    skip(t, type, 0);
}

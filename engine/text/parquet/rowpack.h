/* SPDX-License-Identifier: Apache-2.0
 *
 * A row with typed values in one piece of memory, so that it can wait in a batch and be worked on
 * by another thread. It never leaves the process.
 *
 *   n          null              f, t       false, true
 *   i 8 bytes  an integer        d 8 bytes  a real
 *   s 4 bytes of length, text (not checked for UTF-8)
 *   b 4 bytes of length, bytes that are no text
 *   [ values ] a list            { members } an object; a member is k, 2 bytes of length, name, 0,
 *                                            value
 *
 * Numbers are little-endian. A row is an object.
 */
#ifndef LF_TEXT_ROWPACK_H
#define LF_TEXT_ROWPACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "engine/base/le.h"
#include "engine/base/str.h"

enum lf_rowpack_tag {
    LF_ROWPACK_NULL = 'n',
    LF_ROWPACK_FALSE = 'f',
    LF_ROWPACK_TRUE = 't',
    LF_ROWPACK_INT = 'i',
    LF_ROWPACK_REAL = 'd',
    LF_ROWPACK_TEXT = 's',
    LF_ROWPACK_BYTES = 'b',
    LF_ROWPACK_LIST = '[',
    LF_ROWPACK_LIST_END = ']',
    LF_ROWPACK_OBJECT = '{',
    LF_ROWPACK_OBJECT_END = '}',
    LF_ROWPACK_MEMBER = 'k'
};

#define LF_ROWPACK_NAME_MAX 65535

/* tag with the n bytes of a number behind it */
static inline void lf_rowpack_put(lf_buf *b, enum lf_rowpack_tag tag, uint64_t v, size_t n)
{
    uint8_t head[9] = {(uint8_t)tag};
    lf_put_le(head + 1, v, n);
    lf_buf_add(b, head, 1 + n);
}

static inline void lf_rowpack_put_text(lf_buf *b, const void *text, uint32_t len)
{
    lf_rowpack_put(b, LF_ROWPACK_TEXT, len, 4);
    lf_buf_add(b, text, len);
}

static inline void lf_rowpack_put_name(lf_buf *b, const char *name)
{
    size_t n = strlen(name);
    lf_rowpack_put(b, LF_ROWPACK_MEMBER, n, 2);
    lf_buf_add(b, name, n + 1);
}

/* What stands at *at of the n bytes at p; *at goes behind it. false: nothing that could stand
 * there. */
typedef struct lf_rowpack_item {
    enum lf_rowpack_tag tag;
    union {
        int64_t i;
        double d;
        struct {
            const char *p; /* the name of a member ends with 0 */
            size_t n;
        } text;
    };
} lf_rowpack_item;
bool lf_rowpack_get(lf_rowpack_item *out, const char *p, size_t n, size_t *at);

/* Goes over one whole value. */
bool lf_rowpack_skip(const char *p, size_t n, size_t *at);

#endif

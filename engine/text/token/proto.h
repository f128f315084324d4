/* SPDX-License-Identifier: Apache-2.0
 *
 * A reader of protocol buffers in wire format: a cursor over one message, without a schema. Every
 * length is checked against the bytes left. Groups (wire types 3 and 4) are refused.
 */
#ifndef LF_TEXT_PROTO_H
#define LF_TEXT_PROTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct lf_proto {
    const uint8_t *p, *end;
    /* The field that lf_proto_next found. */
    uint32_t field;
    unsigned wire;  /* 0 varint, 1 eight bytes, 2 bytes, 5 four bytes */
    uint64_t value; /* wire 0, 1, 5 */
    const uint8_t *bytes;
    size_t len; /* wire 2 */
    bool broken;
} lf_proto;

static inline lf_proto lf_proto_open(const uint8_t *p, size_t len)
{
    return (lf_proto){.p = p, .end = p + len};
}

/* Moves to the next field. false at the end of the message, or with `broken` set where the bytes
 * are no message. */
bool lf_proto_next(lf_proto *m);
float lf_proto_f32(const lf_proto *m); /* a value of wire type 5 */

#endif

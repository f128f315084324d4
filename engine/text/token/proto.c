/* SPDX-License-Identifier: Apache-2.0
 *
 * See proto.h.
 */
#include "config.h"

#include "engine/text/token/proto.h"

#include <string.h>

#include "engine/base/le.h"

static bool varint(lf_proto *m, uint64_t *out)
{
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 64 && m->p < m->end; shift += 7) {
        uint8_t b = *m->p++;
        v |= (uint64_t)(b & 0x7F) << shift;
        if (b < 0x80) {
            *out = v;
            return true;
        }
    }
    return false;
}

static bool fixed(lf_proto *m, size_t n)
{
    if ((size_t)(m->end - m->p) < n)
        return false;
    m->value = lf_get_le(m->p, n);
    m->p += n;
    return true;
}

bool lf_proto_next(lf_proto *m)
{
    uint64_t tag;
    if (m->p == m->end || m->broken)
        return false;
    bool ok = varint(m, &tag) && tag >> 3 != 0 && tag >> 3 <= UINT32_MAX;
    if (ok) {
        m->field = (uint32_t)(tag >> 3);
        m->wire = (unsigned)(tag & 7);
        uint64_t len = 0;
        if (m->wire == 0)
            ok = varint(m, &m->value);
        else if (m->wire == 1 || m->wire == 5)
            ok = fixed(m, m->wire == 1 ? 8 : 4);
        else if (m->wire == 2 && (ok = varint(m, &len) && len <= (uint64_t)(m->end - m->p))) {
            m->bytes = m->p;
            m->len = (size_t)len;
            m->p += len;
        } else
            ok = false;
    }
    m->broken = !ok;
    return ok;
}

float lf_proto_f32(const lf_proto *m)
{
    uint32_t u = (uint32_t)m->value;
    float f;
    memcpy(&f, &u, sizeof(f));
    return f;
}

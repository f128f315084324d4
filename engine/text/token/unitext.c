/* SPDX-License-Identifier: Apache-2.0
 *
 * See unitext.h.
 */
#include "config.h"

#include "engine/text/token/unitext.h"

#include <string.h>

#include "engine/base/mem.h"
#include "engine/text/token/uniclass.h"
#include "engine/text/token/unitext_data.h"

uint8_t *lf_unitext_create(lf_err *err)
{
    uint8_t *t = lf_malloc(LF_UNICLASS_SIZE, 1, err);
    size_t n = sizeof(lf_unitext_runs) / sizeof(lf_unitext_runs[0]);
    for (size_t i = 0; t && i < n; i++) {
        uint32_t first = lf_unitext_runs[i] >> 8;
        uint32_t end = i + 1 < n ? lf_unitext_runs[i + 1] >> 8 : LF_UNICLASS_SIZE;
        memset(t + first, (int)(lf_unitext_runs[i] & 0xFF), end - first);
    }
    return t;
}

uint32_t lf_unitext_lower(uint32_t c)
{
    if (c < 0x80)
        return c >= 'A' && c <= 'Z' ? c + 32 : c;
    size_t lo = 0, hi = sizeof(lf_lower_runs) / sizeof(lf_lower_runs[0]);
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        const struct lf_lower_run *r = &lf_lower_runs[mid];
        if (c < r->first)
            hi = mid;
        else if (c > r->last)
            lo = mid + 1;
        else
            return (c - r->first) % (uint32_t)r->step == 0 ? (uint32_t)((int32_t)c + r->delta) : c;
    }
    return c;
}

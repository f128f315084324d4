/* SPDX-License-Identifier: Apache-2.0
 *
 * Expands the generated runs to one byte per code point (1.1 MB; only the pages of scripts in use
 * are ever touched again). See uniclass.h.
 */
#include "config.h"

#include "engine/text/token/uniclass.h"

#include <string.h>

#include "engine/base/mem.h"
#include "engine/text/token/uniclass_data.h"

uint8_t *lf_uniclass_create(lf_err *err)
{
    uint8_t *t = lf_malloc(LF_UNICLASS_SIZE, 1, err);
    size_t n = sizeof(lf_uniclass_runs) / sizeof(lf_uniclass_runs[0]);
    for (size_t i = 0; t && i < n; i++) {
        uint32_t first = lf_uniclass_runs[i] >> 8;
        uint32_t end = i + 1 < n ? lf_uniclass_runs[i + 1] >> 8 : LF_UNICLASS_SIZE;
        memset(t + first, (int)(lf_uniclass_runs[i] & 0xFF), end - first);
    }
    return t;
}

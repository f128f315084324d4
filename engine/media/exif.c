/* SPDX-License-Identifier: Apache-2.0
 *
 * The orientation in EXIF data. A camera's data is often damaged by programs that rewrite it, and
 * the picture is worth reading all the same: what is broken counts as absent.
 */
#include "engine/media/exif.h"

#include <stdbool.h>
#include <string.h>

#include "engine/base/le.h"

enum { ORIENTATION = 0x0112, SHORT = 3, LONG = 4, ENTRY_BYTES = 12 };

static uint32_t number(const uint8_t *p, size_t n, bool big)
{
    uint32_t v = (uint32_t)lf_get_le(p, n);
    return !big ? v : n == 2 ? __builtin_bswap16((uint16_t)v) : __builtin_bswap32(v);
}

/* One value of a directory's entry: tag (2), type (2), count (4), then the value itself. */
static int entry_value(const uint8_t *e, bool big)
{
    uint32_t type = number(e + 2, 2, big);
    if (number(e, 2, big) != ORIENTATION || number(e + 4, 4, big) != 1 ||
        (type != SHORT && type != LONG))
        return 0;
    uint32_t v = number(e + 8, type == SHORT ? 2 : 4, big);
    return v >= 1 && v <= 8 ? (int)v : 0;
}

int lf_exif_orientation(const uint8_t *p, size_t n)
{
    if (n >= 6 && memcmp(p, "Exif\0\0", 6) == 0) {
        p += 6;
        n -= 6;
    }
    if (n < 8 || (memcmp(p, "II*\0", 4) != 0 && memcmp(p, "MM\0*", 4) != 0))
        return 0;
    bool big = p[0] == 'M';
    size_t at = number(p + 4, 4, big);
    if (at > n - 2)
        return 0;
    size_t entries = number(p + at, 2, big), found = 0;
    at += 2;
    for (size_t i = 0; i < entries && n - at >= ENTRY_BYTES; i++, at += ENTRY_BYTES)
        if (number(p + at, 2, big) == ORIENTATION)
            found = (size_t)entry_value(p + at, big);
    return (int)found;
}

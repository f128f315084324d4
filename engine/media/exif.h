/* SPDX-License-Identifier: Apache-2.0
 *
 * The orientation in EXIF data: the TIFF header of either byte order, then the first directory.
 * Source: TIFF 6.0 (1992) section 2, Exif 2.3 tag 0x0112.
 */
#ifndef LF_MEDIA_EXIF_H
#define LF_MEDIA_EXIF_H

#include <stddef.h>
#include <stdint.h>

/* Returns 1 to 8, or 0 when the data has none, is broken, or says something else. The six bytes
 * "Exif\0\0" may stand in front. Of several entries the last counts, as in Pillow. */
int lf_exif_orientation(const uint8_t *p, size_t n);

#endif

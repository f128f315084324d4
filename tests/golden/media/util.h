/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the tests of this folder: the JSON files that make_media.py wrote, and pictures.
 */
#ifndef LF_TESTS_GOLDEN_MEDIA_UTIL_H
#define LF_TESTS_GOLDEN_MEDIA_UTIL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/base/str.h"
#include "engine/media/image.h"

/* A JSON file of this folder; bails out without it. */
json_t *media_load(const char *name);
/* The bytes of a file of images/; the caller gives b back. */
void media_read(lf_buf *b, const char *name);
const char *media_text(const json_t *o, const char *key);
int64_t media_number(const json_t *o, const char *key);
/* Is the decoder of this file built in? */
bool media_has_decoder(const char *name);
/* One point: the SHA-256 of n bytes is row's; when it is not, the probes that differ are told. */
bool media_compare(const uint8_t *got, int64_t n, const json_t *row, const char *name);
/* The same of floats. */
bool media_compare_floats(const float *got, int64_t n, const json_t *row, const char *name);
/* A picture of w x h pixels, the same as the formula of processors.py; the caller gives it back. */
void media_formula(lf_image *im, int32_t w, int32_t h);
/* Element i of the list row[key]. */
int32_t media_side(const json_t *row, const char *key, size_t i);
void media_each(json_t *rows, void (*one)(const json_t *));

#endif

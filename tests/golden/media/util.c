/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the tests of this folder.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/hash.h"
#include "engine/base/io.h"
#include "engine/base/json.h"
#include "tests/golden/media/util.h"
#include "tests/tap/tap.h"

json_t *media_load(const char *name)
{
    char path[4096];
    lf_err err = LF_ERR_INIT;
    const char *src = getenv("LF_SRCDIR");
    snprintf(path, sizeof path, "%s/tests/golden/media/%s", src ? src : ".", name);
    json_t *v = lf_json_load_file(path, 1 << 24, &err);
    if (!v)
        tap_bail("%s", err.text);
    return v;
}

void media_read(lf_buf *b, const char *name)
{
    char path[4096];
    lf_err err = LF_ERR_INIT;
    const char *src = getenv("LF_SRCDIR");
    snprintf(path, sizeof path, "%s/tests/golden/media/images/%s", src ? src : ".", name);
    lf_buf_init(b);
    if (lf_io_read_file(path, 1 << 20, b, &err) < 0)
        tap_bail("%s", err.text);
}

const char *media_text(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

int64_t media_number(const json_t *o, const char *key)
{
    return json_integer_value(json_object_get(o, key));
}

bool media_has_decoder(const char *name)
{
    const char *dot = strrchr(name, '.');
#ifndef HAVE_JPEG
    if (strcmp(dot, ".jpg") == 0)
        return false;
#endif
#ifndef HAVE_PNG
    if (strcmp(dot, ".png") == 0)
        return false;
#endif
#ifndef HAVE_WEBP
    if (strcmp(dot, ".webp") == 0)
        return false;
#endif
    return dot != NULL;
}

/* Is the SHA-256 of n bytes the text at row[key]? */
static bool same_hash(const void *got, int64_t n, const json_t *row, const char *key)
{
    uint8_t digest[LF_HASH_BYTES];
    char hex[LF_HASH_HEX];
    if (lf_hash_buf(digest, got, (size_t)n, NULL) < 0)
        tap_bail("no hash");
    lf_hash_hex(hex, digest);
    return strcmp(hex, media_text(row, key)) == 0;
}

bool media_compare(const uint8_t *got, int64_t n, const json_t *row, const char *name)
{
    size_t i;
    json_t *probe;
    if (tap_ok(same_hash(got, n, row, "sha256"), "%s: bytes", name))
        return true;
    json_array_foreach(json_object_get(row, "probes"), i, probe)
    {
        int64_t at = json_integer_value(json_array_get(probe, 0));
        int64_t want = json_integer_value(json_array_get(probe, 1));
        if (at < n && got[at] != want)
            tap_diag("byte %lld is %d, not %lld", (long long)at, got[at], (long long)want);
    }
    return false;
}

bool media_compare_floats(const float *got, int64_t n, const json_t *row, const char *name)
{
    size_t i;
    json_t *probe;
    if (tap_ok(same_hash(got, n * (int64_t)sizeof *got, row, "floats"), "%s: floats", name))
        return true;
    json_array_foreach(json_object_get(row, "float_probes"), i, probe)
    {
        int64_t at = json_integer_value(json_array_get(probe, 0));
        float want = (float)json_number_value(json_array_get(probe, 1));
        if (at < n && got[at] != want)
            tap_diag("float %lld is %.9g, not %.9g", (long long)at, (double)got[at], (double)want);
    }
    return false;
}

void media_each(json_t *rows, void (*one)(const json_t *))
{
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row) one(row);
}

void media_formula(lf_image *im, int32_t w, int32_t h)
{
    static const uint8_t black[3] = {0};
    if (lf_image_create(im, w, h, black, NULL) < 0)
        tap_bail("no memory");
    uint8_t *p = im->rgb;
    for (int64_t y = 0; y < h; y++)
        for (int64_t x = 0; x < w; x++)
            for (int64_t c = 0; c < 3; c++)
                *p++ = (uint8_t)((x * x + 3 * x * y * (c + 1) + 7 * y * y + 50 * c) >> 2);
}

int32_t media_side(const json_t *row, const char *key, size_t i)
{
    return (int32_t)json_integer_value(json_array_get(json_object_get(row, key), i));
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Resizing against Pillow and torchvision: the bits of resize.json, which make_media.py makes from
 * pictures of a formula.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/media/resize.h"
#include "tests/golden/media/util.h"
#include "tests/tap/tap.h"

enum { N_RESIZE = 87 }; /* rows of resize.json */

static void formula(lf_image *im, int32_t w, int32_t h)
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

static int32_t side(const json_t *row, const char *key, size_t i)
{
    return (int32_t)json_integer_value(json_array_get(json_object_get(row, key), i));
}

static void one_resize(const json_t *row)
{
    const char *filter = media_text(row, "filter"), *manner = media_text(row, "manner");
    lf_image in, out = {0};
    lf_err err = LF_ERR_INIT;
    char name[1200];
    int32_t w = side(row, "to", 0), h = side(row, "to", 1);
    formula(&in, side(row, "from", 0), side(row, "from", 1));
    int rc = lf_resize(&out, &in, w, h,
                       filter[0] == 'l'   ? LF_LANCZOS
                       : filter[2] == 'c' ? LF_BICUBIC
                                          : LF_BILINEAR,
                       manner[0] == 'p' ? LF_RESIZE_PIL : LF_RESIZE_TORCHVISION, &err);
    snprintf(name, sizeof name, "%d x %d to %d x %d, %s as %s %s", in.w, in.h, w, h, filter, manner,
             err.text);
    media_compare(out.rgb, rc < 0 ? 0 : 3 * (int64_t)w * h, row, name);
    lf_image_fini(&in);
    lf_image_fini(&out);
}

int main(void)
{
    json_t *resize = media_load("resize.json");
    TAP(N_RESIZE, media_each(resize, one_resize));
    json_decref(resize);
    return tap_done();
}

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

static void one_resize(const json_t *row)
{
    const char *filter = media_text(row, "filter"), *manner = media_text(row, "manner");
    lf_image in, out = {0};
    lf_err err = LF_ERR_INIT;
    char name[1200];
    int32_t w = media_side(row, "to", 0), h = media_side(row, "to", 1);
    media_formula(&in, media_side(row, "from", 0), media_side(row, "from", 1));
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
    TAP(N_RESIZE, media_each(json_object_get(resize, "resize"), one_resize));
    json_decref(resize);
    return tap_done();
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Pictures against Pillow: every file of images/ has the pixels that images.json tells, or is
 * refused in its words. make_media.py makes both.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/media/image.h"
#include "tests/golden/media/util.h"
#include "tests/tap/tap.h"

enum { N_READ = 51, N_REFUSED = 25 }; /* rows of images.json */

/* What is before the pixels tells their size and orientation as the whole does. */
static void one_probed(const json_t *row)
{
    const char *name = media_text(row, "file");
    lf_image im = {0};
    lf_err err = LF_ERR_INIT;
    lf_buf b;
    if (!media_has_decoder(name))
        return tap_skip(1, "its decoder is not built in");
    media_read(&b, name);
    int rc = lf_image_probe(&im, b.data, b.len, NULL, &err);
    tap_ok(rc == 0 && im.rgb == NULL && im.w == media_number(row, "w") &&
               im.h == media_number(row, "h") && im.orientation == media_number(row, "orientation"),
           "%s: the same of its header %s", name, err.text);
    lf_buf_fini(&b);
}

static void one_read(const json_t *row)
{
    const char *name = media_text(row, "file");
    lf_image im = {0};
    lf_err err = LF_ERR_INIT;
    lf_buf b;
    if (!media_has_decoder(name))
        return tap_skip(2, "its decoder is not built in");
    media_read(&b, name);
    int rc = lf_image_decode(&im, b.data, b.len, NULL, &err);
    tap_ok(rc == 0 && im.w == media_number(row, "w") && im.h == media_number(row, "h") &&
               im.orientation == media_number(row, "orientation") && !im.truncated,
           "%s: size and orientation %s", name, err.text);
    media_compare(im.rgb, 3 * (int64_t)im.w * im.h, row, name);
    lf_image_fini(&im);
    lf_buf_fini(&b);
}

static void one_refused(const json_t *row)
{
    const char *name = media_text(row, "file");
    lf_image im = {0};
    lf_err err = LF_ERR_INIT;
    lf_buf b;
    if (!media_has_decoder(name))
        return tap_skip(1, "its decoder is not built in");
    media_read(&b, name);
    int rc = lf_image_decode(&im, b.data, b.len, NULL, &err);
    tap_ok(rc < 0 && im.rgb == NULL && strstr(err.text, media_text(row, "words")) != NULL,
           "%s is refused: %s", name, err.text);
    lf_image_fini(&im);
    lf_buf_fini(&b);
}

/* What the caller may ask for beside the defaults. */
static void choices(void)
{
    lf_buf b;
    lf_image im = {0};
    lf_err err = LF_ERR_INIT;
    const struct {
        const char *file;
        lf_image_opts o;
    } keep[] = {{"cut-444.jpg", {.keep_truncated = true}},
                {"cut-rgb8.png", {.keep_truncated = true}},
                {"cut-lossy.webp", {.keep_truncated = true}}};
    for (size_t i = 0; i < 3; i++) {
        if (!media_has_decoder(keep[i].file)) {
            tap_skip(1, "its decoder is not built in");
            continue;
        }
        media_read(&b, keep[i].file);
        int rc = lf_image_decode(&im, b.data, b.len, &keep[i].o, &err);
        tap_ok(rc == 0 && im.truncated && im.h == 37, "%s: what there is %s", keep[i].file,
               err.text);
        lf_image_fini(&im);
        lf_buf_fini(&b);
    }
#ifdef HAVE_PNG
    media_read(&b, "grey16.png");
    int rc = lf_image_decode(&im, b.data, b.len, &(lf_image_opts){.scale_grey16 = true}, &err);
    tap_ok(rc == 0 && im.w == 48, "16-bit grey, scaled %s", err.text);
    lf_image_fini(&im);
    lf_buf_fini(&b);
    media_read(&b, "exif.png");
    rc = lf_image_decode(&im, b.data, b.len, &(lf_image_opts){.ignore_exif = true}, &err);
    tap_ok(rc == 0 && im.w == 48 && im.orientation == 6, "orientation told, not applied");
    lf_image_fini(&im);
    rc = lf_image_decode(&im, b.data, b.len, &(lf_image_opts){.max_pixels = 48 * 37 - 1}, &err);
    tap_rc(rc, LF_EINVAL, &err, "at most 1775 are read", "a limit of the caller");
    lf_buf_fini(&b);
#else
    tap_skip(3, "PNG is not built in");
#endif
}

int main(void)
{
    json_t *images = media_load("images.json");
    TAP(N_READ, media_each(json_object_get(images, "read"), one_probed));
    TAP(2 * N_READ, media_each(json_object_get(images, "read"), one_read));
    TAP(N_REFUSED, media_each(json_object_get(images, "refused"), one_refused));
    TAP(6, choices());
    json_decref(images);
    return tap_done();
}

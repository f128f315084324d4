/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: pictures of every format, EXIF data, and what a processor makes of the result. The
 * seeds are the pictures of tests/golden/media.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/media/exif.h"
#include "engine/media/processor.h"
#include "tests/fuzz/fuzz.h"

#define PIXELS_MAX (1 << 18) /* so that a mutation of the size does not take all the time */

const char *const fuzz_corpus = NULL;

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_picture(const struct dirent *e)
{
    const char *dot = strrchr(e->d_name, '.');
    return e->d_name[0] != '.' && dot != NULL && strcmp(dot, ".bin") != 0;
}

size_t fuzz_seed(size_t i, uint8_t *buf, size_t cap)
{
    char dir[4096], path[8192];
    const char *src = getenv("LF_SRCDIR");
    struct dirent **list;
    size_t len = 0;
    snprintf(dir, sizeof dir, "%s/tests/golden/media/images", src ? src : ".");
    int n = scandir(dir, &list, is_picture, by_name);
    for (int k = 0; k < n; k++) {
        lf_buf b;
        lf_buf_init(&b);
        snprintf(path, sizeof path, "%s/%s", dir, list[k]->d_name);
        if ((size_t)k == i && lf_io_read_file(path, cap, &b, NULL) == 0) {
            memcpy(buf, b.data, b.len);
            len = b.len;
        }
        lf_buf_fini(&b);
        free(list[k]);
    }
    if (n >= 0)
        free(list);
    return len;
}

/* Every processor that takes any shape. */
static void process(const lf_image *im)
{
    static const char *const texts[] = {
        "{\"image_processor_type\":\"CLIPImageProcessor\",\"size\":8,\"crop_size\":8}",
        "{\"image_processor_type\":\"Qwen2VLImageProcessor\",\"patch_size\":4,\"min_pixels\":64,"
        "\"max_pixels\":4096}",
        "{\"image_processor_type\":\"GotOcr2ImageProcessor\",\"size\":8,\"crop_to_patches\":true}",
        "{\"image_processor_type\":\"LlavaOnevisionImageProcessor\",\"size\":8,"
        "\"image_grid_pinpoints\":[[8,16],[16,8]]}",
        "{\"image_processor_type\":\"Siglip2ImageProcessor\",\"patch_size\":4}",
        "{\"image_processor_type\":\"PixtralImageProcessor\",\"patch_size\":4,\"size\":{"
        "\"longest_edge\":24}}",
        "{\"image_processor_type\":\"Idefics3ImageProcessor\",\"size\":{\"longest_edge\":40},"
        "\"max_image_size\":{\"longest_edge\":16}}"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        const lf_processor_opts o = {(enum lf_resize_manner)(im->w & 1),
                                     i == 1 || i == 4 || i == 5 ? 0 : 4};
        lf_processor p;
        lf_pixels x = {0};
        lf_err err = LF_ERR_INIT;
        if (lf_processor_read(&p, texts[i], strlen(texts[i]), "fuzz", &o, &err) < 0)
            abort();
        int rc = lf_processor_run(&x, &p, im, im->h & 1, &err);
        fuzz_check_error(rc, &err);
        if (rc == 0 && (x.rows == NULL || x.tiles < 1))
            abort();
        lf_pixels_fini(&x);
    }
}

/* What the header says of a picture that can be read is what it is; of one that ends early the
 * orientation may stand behind that. */
static void probe(const lf_image *im, const uint8_t *data, size_t size, const lf_image_opts *o)
{
    lf_image head = {0};
    lf_err err = LF_ERR_INIT;
    int rc = lf_image_probe(&head, data, size, o, &err);
    fuzz_check_error(rc, &err);
    if (im->truncated && head.orientation != im->orientation)
        return;
    if (im->rgb != NULL && (rc < 0 || head.w != im->w || head.h != im->h || head.rgb != NULL ||
                            head.orientation != im->orientation))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const lf_image_opts o = {
        .keep_truncated = size % 2 == 0, .scale_grey16 = size % 3 == 0, .max_pixels = PIXELS_MAX};
    lf_image im = {0};
    lf_err err = LF_ERR_INIT;
    int value = lf_exif_orientation(data, size);
    if (value < 0 || value > 8)
        abort();
    int rc = lf_image_decode(&im, data, size, &o, &err);
    fuzz_check_error(rc, &err);
    if (rc == 0 && (im.w < 1 || im.h < 1 || (int64_t)im.w * im.h > PIXELS_MAX || im.rgb == NULL))
        abort();
    probe(&im, data, size, &o);
    if (rc == 0 && im.w <= 64 && im.h <= 64)
        process(&im);
    lf_image_fini(&im);
    return 0;
}

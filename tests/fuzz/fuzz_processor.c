/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: preprocessor_config.json, and what a processor that it describes makes of a small
 * picture, where that stays small.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/media/processor.h"
#include "tests/fuzz/fuzz.h"

#define SIDE_MAX 64

const char *const fuzz_corpus = NULL;

static const char *const seeds[] = {
    "{\"image_processor_type\":\"CLIPImageProcessor\",\"size\":{\"shortest_edge\":20},"
    "\"crop_size\":{\"height\":16,\"width\":24},\"do_center_crop\":true,\"resample\":3}",
    "{\"image_processor_type\":\"LlavaImageProcessor\",\"size\":16,\"crop_size\":16,\"do_pad\":"
    "true}",
    "{\"image_processor_type\":\"Siglip2ImageProcessor\",\"patch_size\":8,\"max_num_patches\":12}",
    "{\"image_processor_type\":\"Qwen2VLImageProcessor\",\"patch_size\":4,\"merge_size\":2,"
    "\"temporal_patch_size\":2,\"min_pixels\":64,\"max_pixels\":900,\"do_resize\":true}",
    "{\"image_processor_type\":\"Qwen2VLImageProcessorFast\",\"size\":{\"shortest_edge\":256,"
    "\"longest_edge\":1600},\"patch_size\":4,\"image_mean\":[0.5,0.5,0.5],\"image_std\":[1,1,1]}",
    "{\"image_processor_type\":\"GotOcr2ImageProcessor\",\"size\":{\"height\":16,\"width\":16},"
    "\"crop_to_patches\":true,\"min_patches\":1,\"max_patches\":6,\"rescale_factor\":0.004}",
    "{\"image_processor_type\":\"LlavaNextImageProcessor\",\"size\":16,\"crop_size\":16,"
    "\"image_grid_pinpoints\":[[16,32],[32,16]]}",
    "{\"image_processor\":{\"image_processor_type\":\"LlavaOnevisionImageProcessor\","
    "\"size\":{\"height\":16,\"width\":16},\"image_grid_pinpoints\":[[16,32],[48,16]]}}",
    "{\"image_processor_type\":\"Gemma3ImageProcessor\",\"size\":{\"height\":16,\"width\":16},"
    "\"do_pan_and_scan\":true,\"pan_and_scan_min_crop_size\":4,\"pan_and_scan_max_num_crops\":4,"
    "\"pan_and_scan_min_ratio_to_activate\":1.2}",
};

size_t fuzz_seed(size_t i, uint8_t *buf, size_t cap)
{
    size_t n = i < sizeof seeds / sizeof seeds[0] ? strlen(seeds[i]) : 0;
    if (n > cap)
        abort();
    if (n > 0)
        memcpy(buf, seeds[i], n);
    return n;
}

static bool small(lf_size s)
{
    return s.w <= SIDE_MAX && s.h <= SIDE_MAX;
}

/* Bounds the pictures that a processor makes, so that a run is quick. */
static bool is_quick(const lf_processor *p)
{
    bool quick = small(p->size) && small(p->crop) && p->shortest <= SIDE_MAX &&
                 p->min_pixels <= 4096 && p->patches.side <= 16 && p->patches.merge <= 4 &&
                 p->max_patches <= 64 && p->max_tiles <= 16;
    for (int32_t i = 0; i < p->n_pinpoints; i++)
        quick = quick && small(p->pinpoints[i]);
    return quick;
}

static void run(const lf_processor *p)
{
    static const uint8_t grey[3] = {127, 127, 127};
    lf_image im = {0};
    lf_pixels x = {0};
    lf_err err = LF_ERR_INIT;
    if (lf_image_create(&im, 33, 20, grey, NULL) < 0)
        return;
    int rc = lf_processor_run(&x, p, &im, true, &err);
    fuzz_check_error(rc, &err);
    if (rc == 0) {
        float *floats = malloc((size_t)lf_pixels_floats(p, &x) * sizeof *floats + 1);
        if (floats != NULL)
            lf_pixels_normalize(floats, p, &x);
        free(floats);
    }
    lf_pixels_fini(&x);
    lf_image_fini(&im);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (int32_t patch = 0; patch <= 4; patch += 4) {
        const lf_processor_opts o = {size % 2 == 0 ? LF_RESIZE_PIL : LF_RESIZE_TORCHVISION, patch};
        lf_processor p;
        lf_err err = LF_ERR_INIT;
        int rc = lf_processor_read(&p, (const char *)data, size, "fuzz", &o, &err);
        fuzz_check_error(rc, &err);
        if (rc == 0 && is_quick(&p))
            run(&p);
    }
    return 0;
}

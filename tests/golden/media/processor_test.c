/* SPDX-License-Identifier: Apache-2.0
 *
 * Processors against transformers: rows of bytes and of floats by processors.json, which
 * make_media.py makes; sizes and tiles of many pictures by the same file. Then what
 * preprocessor_config.json may not say.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/media/processor.h"
#include "tests/golden/media/util.h"
#include "tests/tap/tap.h"

enum { N_CASES = 144, N_FULL = 12, N_GRIDS = 3518 }; /* rows of processors.json */

static int read_config(lf_processor *p, const json_t *config, int32_t patch, bool pil, lf_err *err)
{
    char *text = json_dumps(config, 0);
    const lf_processor_opts o = {pil ? LF_RESIZE_PIL : LF_RESIZE_TORCHVISION, patch};
    int rc = lf_processor_read(p, text, strlen(text), "config", &o, err);
    free(text);
    return rc;
}

/* One point where a row has all floats: no bit of them differs. */
static void compare_full(const float *got, int64_t n, const char *file)
{
    char path[4096];
    lf_buf b;
    lf_err err = LF_ERR_INIT;
    const char *src = getenv("LF_SRCDIR");
    snprintf(path, sizeof path, "%s/tests/golden/media/%s", src ? src : ".", file);
    lf_buf_init(&b);
    if (lf_io_read_file(path, 1 << 20, &b, &err) < 0)
        tap_bail("%s", err.text);
    tap_ok(b.len == (size_t)n * sizeof *got && memcmp(got, b.data, b.len) == 0,
           "%s: all %lld floats", file, (long long)n);
    lf_buf_fini(&b);
}

/* Does the plan by the size alone say what was made? */
static bool planned(const lf_processor *p, const lf_pixels *x, bool alone)
{
    lf_pixels plan;
    lf_err err = LF_ERR_INIT;
    return lf_processor_plan(&plan, p, x->from, alone, &err) == 0 && plan.tiles == x->tiles &&
           plan.grid_h == x->grid_h && plan.grid_w == x->grid_w && plan.row_bytes == x->row_bytes &&
           plan.layout.w == x->layout.w && plan.layout.h == x->layout.h;
}

/* Three points: shape, bytes, floats. */
static void one_case(const json_t *row)
{
    lf_processor p;
    lf_pixels x = {0};
    lf_image im;
    lf_err err = LF_ERR_INIT;
    char name[200];
    bool pil = strcmp(media_text(row, "manner"), "pil") == 0;
    media_formula(&im, media_side(row, "from", 0), media_side(row, "from", 1));
    int rc = read_config(&p, json_object_get(row, "config"), (int32_t)media_number(row, "patch"),
                         pil, &err);
    if (rc == 0)
        rc = lf_processor_run(&x, &p, &im, json_is_true(json_object_get(row, "alone")), &err);
    snprintf(name, sizeof name, "%s as %s, %d x %d", media_text(row, "name"),
             media_text(row, "manner"), im.w, im.h);
    tap_ok(rc == 0 && x.tiles == media_number(row, "tiles") &&
               x.grid_h == media_side(row, "grid", 0) && x.grid_w == media_side(row, "grid", 1) &&
               planned(&p, &x, json_is_true(json_object_get(row, "alone"))),
           "%s: %d tiles of %d x %d patches %s", name, x.tiles, x.grid_h, x.grid_w, err.text);
    int64_t bytes = (int64_t)x.tiles * x.grid_h * x.grid_w * x.row_bytes;
    media_compare(x.rows, bytes, row, name);
    int64_t n = rc == 0 ? lf_pixels_floats(&p, &x) : 0;
    float *floats = lf_malloc((size_t)n, sizeof *floats, NULL);
    if (rc == 0)
        lf_pixels_normalize(floats, &p, &x);
    media_compare_floats(floats, n, row, name);
    const char *full = media_text(row, "full");
    if (full != NULL)
        compare_full(floats, n, full);
    free(floats);
    lf_pixels_fini(&x);
    lf_image_fini(&im);
}

/* ---- sizes alone ---- */

static bool good_grid(const char *what, const int32_t *v)
{
    lf_err err = LF_ERR_INIT;
    const lf_size in = {v[0], v[1]};
    lf_size got = {0}, crop = {0}, pins[36];
    if (strcmp(what, "smart") == 0)
        return lf_grid_smart(&got, in, v[2], v[3], v[4], &err) == 0 && got.w == v[5] &&
               got.h == v[6];
    if (strcmp(what, "naflex") == 0) {
        return lf_grid_naflex(&got, in, v[2], v[3], &err) == 0 && got.w == v[4] && got.h == v[5];
    }
    if (strcmp(what, "tiles") == 0) {
        got = lf_grid_tiles(in, (lf_size){v[2], v[2]}, v[3], v[4]);
        return got.w == v[5] && got.h == v[6];
    }
    if (strncmp(what, "anyres", 6) == 0) { /* the default sizes, or these from the last */
        bool down = strcmp(what, "anyres-down") == 0;
        for (int32_t i = 0; i < 36; i++)
            pins[down ? 35 - i : i] = (lf_size){384 * (1 + i % 6), 384 * (1 + i / 6)};
        got = lf_grid_anyres(in, pins, 36);
        return got.w == v[2] && got.h == v[3];
    }
    if (strcmp(what, "longest") == 0)
        return lf_grid_longest(&got, in, v[2], &err) == 0 && got.w == v[3] && got.h == v[4];
    if (strcmp(what, "split") == 0)
        return lf_grid_split(&got, in, v[2], &err) == 0 && got.w == v[3] && got.h == v[4];
    if (strcmp(what, "within") == 0)
        return lf_grid_within(&got, in, (lf_size){v[2], v[2]}, v[3], &err) == 0 && got.w == v[4] &&
               got.h == v[5];
    got = lf_grid_pan(&crop, in, 1.2, v[2], v[3]);
    return got.w * got.h == v[4] && (v[4] == 0 || (crop.w == v[5] && crop.h == v[6]));
}

/* One point for all, because there are many. */
static void grids(json_t *rows)
{
    size_t i, k, bad = 0;
    json_t *row, *x;
    json_array_foreach(rows, i, row)
    {
        int32_t v[8] = {0};
        const char *what = json_string_value(json_array_get(row, 0));
        json_array_foreach(row, k, x) if (k > 0) v[k - 1] = (int32_t)json_integer_value(x);
        if (good_grid(what, v))
            continue;
        bad++;
        tap_diag("%s of %d x %d", what, v[0], v[1]);
    }
    tap_ok(i == N_GRIDS && bad == 0, "%zu sizes", i);
}

/* ---- what is refused ---- */

static void refusals(void)
{
    static const struct {
        const char *text, *words;
        int32_t patch;
    } bad[] = {
        {"[]", "not a JSON object", 14},
        {"{\"size\":", "config:1", 14},
        {"{}", "image_processor_type is missing", 14},
        {"{\"image_processor_type\":\"Idefics2ImageProcessor\"}",
         "\"Idefics2ImageProcessor\" is not", 14},
        {"{\"image_processor_type\":\"Idefics3ImageProcessor\",\"max_image_size\":364}",
         "max_image_size must be an object of longest_edge", 14},
        {"{\"image_processor_type\":\"Idefics3ImageProcessor\",\"patch_size\":14}",
         "Idefics3ImageProcessor has no key patch_size", 14},
        {"{\"image_processor_type\":\"PixtralImageProcessor\",\"patch_size\":{\"height\":16,"
         "\"width\":14}}",
         "patch_size must be as wide as high", 0},
        {"{\"image_processor_type\":\"PixtralImageProcessor\",\"do_center_crop\":true}",
         "PixtralImageProcessor has no key do_center_crop", 0},
        {"{\"image_processor_type\":\"CLIPImageProcessor\",\"do_centre_crop\":true}",
         "unknown key do_centre_crop of CLIPImageProcessor; did you mean do_center_crop", 14},
        {"{\"image_processor_type\":\"CLIPImageProcessor\",\"merge_size\":2}",
         "CLIPImageProcessor has no key merge_size", 14},
        {"{\"image_processor_type\":\"CLIPImageProcessor\"}", "does not tell the patch size", 0},
        {"{\"image_processor_type\":\"Qwen2VLImageProcessor\"}",
         "patch_size is 14, but the model has "
         "patches of 16",
         16},
        {"{\"image_processor_type\":\"CLIPImageProcessor\",\"resample\":0}",
         "resample must be 1 (Lanczos)", 14},
        {"{\"image_processor_type\":\"CLIPImageProcessor\",\"size\":{\"shortest_edge\":1,\"longest_"
         "edge\":2}}",
         "size must be a number", 14},
        {"{\"image_processor_type\":\"CLIPImageProcessor\",\"image_std\":[1,0,1]}",
         "three positive", 14},
        {"{\"image_processor_type\":\"CLIPImageProcessor\",\"do_normalize\":false}",
         "do_normalize must be "
         "true",
         14},
        {"{\"image_processor_type\":\"CLIPImageProcessor\",\"default_to_square\":true}",
         "default_to_square must be false for this class", 14},
        {"{\"image_processor_type\":\"CLIPImageProcessor\",\"do_pad\":true}",
         "do_pad must be false", 14},
        {"{\"image_processor_type\":\"LlavaOnevisionImageProcessor\",\"do_center_crop\":true}",
         "do_center_crop without crop_size", 14},
        {"{\"image_processor_type\":\"Gemma3ImageProcessor\",\"do_pan_and_scan\":true}",
         "needs the three other keys", 14},
        {"{\"image_processor_type\":\"LlavaNextImageProcessor\",\"image_grid_pinpoints\":[[1]]}",
         "image_grid_pinpoints must be a list", 14},
        {"{\"image_processor_type\":\"GotOcr2ImageProcessor\",\"min_patches\":9,\"max_patches\":3}",
         "min_patches 9, max_patches 3", 14},
    };
    lf_processor p;
    lf_err err = LF_ERR_INIT;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const lf_processor_opts o = {LF_RESIZE_TORCHVISION, bad[i].patch};
        int rc = lf_processor_read(&p, bad[i].text, strlen(bad[i].text), "config", &o, &err);
        tap_ok(rc < 0 && strstr(err.text, bad[i].words) != NULL, "refused: %s", err.text);
        lf_err_clear(&err);
    }
}

/* Other forms of the same file, and a picture that a processor does not take. */
static void forms(void)
{
    static const char *const same[] = {
        "{\"image_processor_type\":\"Qwen2VLImageProcessorFast\",\"do_pad\":null}",
        "{\"processor_class\":\"Qwen2_5_VLProcessor\",\"image_processor\":"
        "{\"image_processor_type\":\"Qwen2VLImageProcessorPil\"}}",
        "{\"feature_extractor_type\":\"CLIPFeatureExtractor\",\"size\":224}"};
    static const char huge[] = "{\"image_processor_type\":\"Siglip2ImageProcessor\","
                               "\"patch_size\":60000,\"max_num_patches\":60000}";
    static const char many[] = "{\"image_processor_type\":\"LlavaNextImageProcessor\","
                               "\"crop_size\":1,\"image_grid_pinpoints\":[[600,600]]}";
    lf_processor p;
    lf_pixels x = {0};
    lf_image im;
    lf_err err = LF_ERR_INIT;
    const lf_processor_opts o = {LF_RESIZE_TORCHVISION, 14};
    for (size_t i = 0; i < 3; i++)
        tap_rc(lf_processor_read(&p, same[i], strlen(same[i]), "config", &o, &err), 0, &err, NULL,
               same[i]);
    (void)lf_processor_read(&p, same[0], strlen(same[0]), "config", &o, NULL);
    media_formula(&im, 201, 1);
    tap_rc(lf_processor_run(&x, &p, &im, true, &err), LF_EINVAL, &err, "200 times", "201 x 1");
    const lf_processor_opts none = {LF_RESIZE_TORCHVISION, 0};
    tap_rc(lf_processor_read(&p, huge, strlen(huge), "config", &none, &err), 0, &err, NULL, huge);
    tap_rc(lf_processor_run(&x, &p, &im, true, &err), LF_EINVAL, &err, "60000 x 60000",
           "too large");
    tap_rc(lf_processor_read(&p, many, strlen(many), "config", &o, &err), 0, &err, NULL, many);
    tap_rc(lf_processor_run(&x, &p, &im, true, &err), LF_EINVAL, &err,
           "into 600 x 600 tiles; at most 4096", "tiles of a pixel");
    lf_image_fini(&im);
}

int main(void)
{
    json_t *all = media_load("processors.json");
    TAP(3 * N_CASES + N_FULL, media_each(json_object_get(all, "processors"), one_case));
    TAP(1, grids(json_object_get(all, "grids")));
    TAP(22, refusals());
    TAP(8, forms());
    json_decref(all);
    return tap_done();
}

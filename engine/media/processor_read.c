/* SPDX-License-Identifier: Apache-2.0
 *
 * preprocessor_config.json. Two tables say what is known: the classes with their defaults, and the
 * keys with the kinds that take them.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/base/str.h"
#include "engine/media/processor.h"

/* ---- classes ---- */

enum statistics { CLIP, HALF };
static const struct {
    double mean[3], std[3];
} statistics[] = {
    [CLIP] = {{0.48145466, 0.4578275, 0.40821073}, {0.26862954, 0.26130258, 0.27577711}},
    [HALF] = {{0.5, 0.5, 0.5}, {0.5, 0.5, 0.5}},
};

/* Defaults of transformers 5.23, in force where the file says nothing. */
static const struct class
{
    const char *name;
    enum lf_processor_kind kind;
    enum lf_resize_filter filter;
    enum statistics statistics;
    int32_t shortest, size, crop; /* pixels, 0: none */
    int32_t patch;                /* 0: the tower's, which the file does not say */
} classes[] = {
    {"CLIPImageProcessor", LF_PROC_FIT, LF_BICUBIC, CLIP, 224, 0, 224, 0},
    {"LlavaImageProcessor", LF_PROC_FIT, LF_BICUBIC, CLIP, 224, 0, 224, 0},
    {"BitImageProcessor", LF_PROC_FIT, LF_BICUBIC, CLIP, 224, 0, 224, 0},
    {"SiglipImageProcessor", LF_PROC_FIT, LF_BICUBIC, HALF, 0, 224, 0, 0},
    {"ViTImageProcessor", LF_PROC_FIT, LF_BILINEAR, HALF, 0, 224, 0, 0},
    {"DeiTImageProcessor", LF_PROC_FIT, LF_BICUBIC, HALF, 0, 256, 224, 0},
    {"Siglip2ImageProcessor", LF_PROC_NAFLEX, LF_BILINEAR, HALF, 0, 0, 0, 16},
    {"Qwen2VLImageProcessor", LF_PROC_SMART, LF_BICUBIC, CLIP, 0, 0, 0, 14},
    {"GotOcr2ImageProcessor", LF_PROC_TILES, LF_BICUBIC, CLIP, 0, 384, 0, 0},
    {"LlavaNextImageProcessor", LF_PROC_ANYRES, LF_BICUBIC, CLIP, 224, 0, 224, 0},
    {"LlavaOnevisionImageProcessor", LF_PROC_ANYRES, LF_BICUBIC, CLIP, 0, 384, 0, 0},
    {"Gemma3ImageProcessor", LF_PROC_PAN, LF_BILINEAR, HALF, 0, 224, 0, 0},
    {"Idefics3ImageProcessor", LF_PROC_SPLIT, LF_LANCZOS, HALF, 0, 0, 0, 0},
    {"SmolVLMImageProcessor", LF_PROC_SPLIT, LF_LANCZOS, HALF, 0, 0, 0, 0},
    {"PixtralImageProcessor", LF_PROC_WITHIN, LF_BICUBIC, CLIP, 0, 1024, 0, 16},
};
enum { N_CLASSES = sizeof classes / sizeof classes[0] };
static const lf_size next_pinpoints[] = {
    {672, 336}, {336, 672}, {672, 672}, {336, 1008}, {1008, 336}}; /* as {w, h} */

/* Is `name` the class, or its variant Fast, Pil, or FeatureExtractor of older files? */
static bool is_class(const char *name, const char *class)
{
    static const char end[] = "ImageProcessor";
    size_t n = strlen(class), stem = n - strlen(end);
    if (strncmp(name, class, n) == 0)
        return strcmp(name + n, "") == 0 || strcmp(name + n, "Fast") == 0 ||
               strcmp(name + n, "Pil") == 0;
    return strncmp(name, class, stem) == 0 && strcmp(name + stem, "FeatureExtractor") == 0;
}

static int find_class(const struct class **out, json_t *o, const char *file, lf_err *err)
{
    const char *name = NULL;
    int rc = lf_json_get_str(&name, o, "image_processor_type", false, file, err);
    if (rc == 0 && name == NULL)
        rc = lf_json_get_str(&name, o, "feature_extractor_type", false, file, err);
    if (rc < 0)
        return rc;
    if (name == NULL)
        return lf_fail(err, LF_EFORMAT,
                       "%s: image_processor_type is missing: which class prepares pictures?", file);
    for (size_t i = 0; i < N_CLASSES; i++)
        if (is_class(name, classes[i].name)) {
            *out = &classes[i];
            return 0;
        }
    lf_buf known;
    lf_buf_init(&known);
    for (size_t i = 0; i < N_CLASSES; i++)
        lf_buf_addf(&known, "%s%s", i > 0 ? ", " : "", classes[i].name);
    rc = lf_fail(err, LF_ENOTSUP, "%s: image_processor_type \"%.80s\" is not read; known are %s",
                 file, name, known.data);
    lf_buf_fini(&known);
    return rc;
}

static void set_defaults(lf_processor *p, const struct class *c, const lf_processor_opts *o)
{
    *p = (lf_processor){.class_name = c->name,
                        .kind = c->kind,
                        .manner = o->manner,
                        .filter = c->filter,
                        .do_resize = true,
                        .do_crop = c->crop > 0,
                        .size = {c->size, c->size},
                        .shortest = c->shortest,
                        .crop = {c->crop, c->crop},
                        .rescale_factor = 1 / 255.0,
                        .min_pixels = 56 * 56,
                        .max_pixels = 28 * 28 * 1280,
                        .max_patches = 256,
                        .min_tiles = 1,
                        .max_tiles = 12,
                        .patches = {.side = c->patch, .merge = 1, .times = 1}};
    memcpy(p->mean, statistics[c->statistics].mean, sizeof p->mean);
    memcpy(p->std, statistics[c->statistics].std, sizeof p->std);
    if (c->kind == LF_PROC_SPLIT) {
        p->tile = 364;
        p->longest = 4 * p->tile;
        p->do_tiles = true;
    }
    if (c->kind == LF_PROC_NAFLEX)
        p->patches.order = LF_PATCH_YXC;
    if (c->kind == LF_PROC_SMART)
        p->patches.merge = p->patches.times = 2;
    if (c->kind != LF_PROC_ANYRES)
        return;
    p->tile_alone = strcmp(c->name, "LlavaOnevisionImageProcessor") == 0;
    if (!p->tile_alone) {
        p->n_pinpoints = sizeof next_pinpoints / sizeof next_pinpoints[0];
        memcpy(p->pinpoints, next_pinpoints, sizeof next_pinpoints);
        return;
    }
    for (int32_t i = 0; i < 36; i++) /* every 384 k high and 384 m wide, k and m from 1 to 6 */
        p->pinpoints[p->n_pinpoints++] = (lf_size){384 * (1 + i % 6), 384 * (1 + i / 6)};
}

/* ---- values ---- */

struct reading {
    lf_processor *p;
    const char *file, *key;
    lf_err *err;
};

static int wrong(const struct reading *r, const char *want)
{
    return lf_fail(r->err, LF_EFORMAT, "%s: %s must be %s", r->file, r->key, want);
}

static int get_bool(bool *out, json_t *v, const struct reading *r)
{
    if (!json_is_boolean(v))
        return wrong(r, "true or false");
    *out = json_is_true(v);
    return 0;
}

static int get_whole(int64_t *out, json_t *v, int64_t most, const struct reading *r)
{
    char want[80];
    snprintf(want, sizeof want, "a whole number from 1 to %lld", (long long)most);
    if (!json_is_integer(v) || json_integer_value(v) < 1 || json_integer_value(v) > most)
        return wrong(r, want);
    *out = json_integer_value(v);
    return 0;
}

static int get_side(int32_t *out, json_t *v, const struct reading *r)
{
    int64_t n = 0;
    int rc = get_whole(&n, v, LF_IMAGE_MAX_SIDE, r);
    if (rc == 0)
        *out = (int32_t)n;
    return rc;
}

static int get_three(double out[3], json_t *v, bool positive, const struct reading *r)
{
    if (!json_is_array(v) || json_array_size(v) != 3)
        return wrong(r, "a list of three numbers");
    for (size_t i = 0; i < 3; i++) {
        json_t *x = json_array_get(v, i);
        if (!json_is_number(x) || (positive && !(json_number_value(x) > 0)))
            return wrong(r,
                         positive ? "a list of three positive numbers" : "a list of three numbers");
        out[i] = json_number_value(x);
    }
    return 0;
}

static int get_filter(lf_processor *p, json_t *v, const struct reading *r)
{
    switch (json_is_integer(v) ? json_integer_value(v) : -1) {
    case 1:
        p->filter = LF_LANCZOS;
        return 0;
    case 2:
        p->filter = LF_BILINEAR;
        return 0;
    case 3:
        p->filter = LF_BICUBIC;
        return 0;
    default:
        return wrong(r, "1 (Lanczos), 2 (bilinear) or 3 (bicubic)");
    }
}

/* {"height": h, "width": w} or one number for both. */
static int get_square(lf_size *out, json_t *v, const struct reading *r)
{
    int rc = 0;
    lf_size s = {0};
    if (json_is_integer(v)) {
        rc = get_side(&s.w, v, r);
        s.h = s.w;
    } else if (json_is_object(v) && json_object_size(v) == 2 && json_object_get(v, "height") &&
               json_object_get(v, "width")) {
        rc = get_side(&s.h, json_object_get(v, "height"), r);
        if (rc == 0)
            rc = get_side(&s.w, json_object_get(v, "width"), r);
    } else {
        return wrong(r, "a number, or an object of height and width");
    }
    if (rc == 0)
        *out = s;
    return rc;
}

/* Qwen's "edges" are areas. */
static int get_areas(lf_processor *p, json_t *v, const struct reading *r)
{
    if (!json_is_object(v) || json_object_size(v) != 2 || !json_object_get(v, "shortest_edge") ||
        !json_object_get(v, "longest_edge"))
        return wrong(r, "an object of shortest_edge and longest_edge (in pixels of area)");
    int rc = get_whole(&p->min_pixels, json_object_get(v, "shortest_edge"), LF_IMAGE_MAX_PIXELS, r);
    return rc < 0 ? rc
                  : get_whole(&p->max_pixels, json_object_get(v, "longest_edge"),
                              LF_IMAGE_MAX_PIXELS, r);
}

/* Does one number for the size mean a square, not the shorter side? */
static bool is_square(const lf_processor *p)
{
    return p->kind == LF_PROC_TILES || p->kind == LF_PROC_PAN || p->kind == LF_PROC_NAFLEX ||
           p->kind == LF_PROC_SPLIT || p->kind == LF_PROC_WITHIN ||
           strcmp(p->class_name, "ViTImageProcessor") == 0 ||
           strcmp(p->class_name, "DeiTImageProcessor") == 0;
}

/* A file that says otherwise than its class would mean another size by the same number. */
static int check_square(const lf_processor *p, json_t *v, const struct reading *r)
{
    bool square = false;
    int rc = get_bool(&square, v, r);
    if (rc < 0 || square == is_square(p))
        return rc;
    return wrong(r, is_square(p) ? "true for this class" : "false for this class");
}

/* {"longest_edge": n} */
static int get_edge(int32_t *out, json_t *v, const struct reading *r)
{
    json_t *edge = json_object_get(v, "longest_edge");
    if (edge == NULL || json_object_size(v) != 1)
        return wrong(r, "an object of longest_edge");
    return get_side(out, edge, r);
}

/* The longest side of Idefics 3 keeps the shape; that of Pixtral is the most of both. */
static int get_longest(lf_processor *p, json_t *v, const struct reading *r)
{
    int32_t n = 0;
    int rc = get_edge(&n, v, r);
    if (rc < 0)
        return rc;
    if (p->kind == LF_PROC_SPLIT)
        p->longest = n;
    else
        p->size = (lf_size){n, n};
    return 0;
}

/* A number, or for Pixtral an object of two equal ones. */
static int get_patch(lf_processor *p, json_t *v, const struct reading *r)
{
    lf_size s = {0};
    if (p->kind != LF_PROC_WITHIN)
        return get_side(&p->patches.side, v, r);
    int rc = get_square(&s, v, r);
    if (rc == 0 && s.w != s.h)
        rc = wrong(r, "as wide as high");
    if (rc == 0)
        p->patches.side = s.w;
    return rc;
}

static int get_size(lf_processor *p, json_t *v, const struct reading *r)
{
    if (p->kind == LF_PROC_SMART)
        return get_areas(p, v, r);
    if ((p->kind == LF_PROC_SPLIT || p->kind == LF_PROC_WITHIN) &&
        json_object_get(v, "longest_edge"))
        return get_longest(p, v, r);
    p->longest = 0;
    json_t *edge = json_is_object(v) ? json_object_get(v, "shortest_edge") : v;
    if (!is_square(p) && edge != NULL && (json_is_integer(v) || json_object_size(v) == 1)) {
        p->size = (lf_size){0};
        return get_side(&p->shortest, edge, r);
    }
    p->shortest = 0;
    return get_square(&p->size, v, r);
}

static int get_pinpoints(lf_processor *p, json_t *v, const struct reading *r)
{
    static const char want[] = "a list of 1 to 256 pairs [height, width]";
    size_t n = json_is_array(v) ? json_array_size(v) : 0;
    if (n < 1 || n > LF_PINPOINTS_MAX)
        return wrong(r, want);
    for (size_t i = 0; i < n; i++) {
        json_t *pair = json_array_get(v, i);
        if (!json_is_array(pair) || json_array_size(pair) != 2)
            return wrong(r, want);
        int rc = get_side(&p->pinpoints[i].h, json_array_get(pair, 0), r);
        if (rc == 0)
            rc = get_side(&p->pinpoints[i].w, json_array_get(pair, 1), r);
        if (rc < 0)
            return rc;
    }
    p->n_pinpoints = (int32_t)n;
    return 0;
}

/* Three things have this name: the square of Llava, the batch of LLaVA-NeXT, Idefics 3 and Pixtral,
 * which is not ours to make, and the batch of the others, which nobody uses. */
static int get_pad(lf_processor *p, json_t *v, const struct reading *r)
{
    bool on = false;
    int rc = get_bool(&on, v, r);
    if (rc < 0 || p->kind == LF_PROC_ANYRES || p->kind == LF_PROC_SPLIT ||
        p->kind == LF_PROC_WITHIN)
        return rc;
    if (strcmp(p->class_name, "LlavaImageProcessor") == 0)
        p->pad_square = on;
    else if (on)
        return wrong(r, "false for this class");
    return 0;
}

static int must_be_true(json_t *v, const struct reading *r)
{
    return json_is_true(v) ? 0 : wrong(r, "true: rows are always scaled and normalised");
}

static int get_positive(double *out, json_t *v, const struct reading *r)
{
    if (!json_is_number(v) || !(json_number_value(v) > 0))
        return wrong(r, "a positive number");
    *out = json_number_value(v);
    return 0;
}

/* ---- keys ---- */

#define KIND(k)  (1u << LF_PROC_##k)
#define ANY_KIND 0xffu
enum type {
    SKIP,
    TRUE_ONLY,
    BOOL,
    SIDE,
    AREA,
    POSITIVE,
    MEAN,
    STD,
    FILTER,
    SIZE,
    SQUARE,
    ONE_NUMBER,
    PINPOINTS,
    PAD,
    PATCH,
    EDGE
};

/* SKIP: keys that change no pixel here. Everything is RGB, channels first, and batches are not made
 * in this folder. */
static const struct key {
    const char *name;
    enum type type;
    unsigned kinds;
    size_t at;
} keys[] = {
    {"image_processor_type", SKIP, ANY_KIND, 0},
    {"feature_extractor_type", SKIP, ANY_KIND, 0},
    {"processor_class", SKIP, ANY_KIND, 0},
    {"_valid_processor_keys", SKIP, ANY_KIND, 0},
    {"do_convert_rgb", SKIP, ANY_KIND, 0},
    {"data_format", SKIP, ANY_KIND, 0},
    {"input_data_format", SKIP, ANY_KIND, 0},
    {"return_tensors", SKIP, ANY_KIND, 0},
    {"device", SKIP, ANY_KIND, 0},
    {"disable_grouping", SKIP, ANY_KIND, 0},
    {"default_to_square", ONE_NUMBER, ANY_KIND, 0},
    {"image_seq_length", SKIP, ANY_KIND, 0},
    {"do_rescale", TRUE_ONLY, ANY_KIND, 0},
    {"do_normalize", TRUE_ONLY, ANY_KIND, 0},
    {"do_resize", BOOL, ANY_KIND, offsetof(lf_processor, do_resize)},
    {"resample", FILTER, ANY_KIND, 0},
    {"image_mean", MEAN, ANY_KIND, offsetof(lf_processor, mean)},
    {"image_std", STD, ANY_KIND, offsetof(lf_processor, std)},
    {"rescale_factor", POSITIVE, ANY_KIND, offsetof(lf_processor, rescale_factor)},
    {"size", SIZE, ANY_KIND & ~KIND(NAFLEX), 0},
    {"do_center_crop", BOOL, KIND(FIT) | KIND(ANYRES), offsetof(lf_processor, do_crop)},
    {"crop_size", SQUARE, KIND(FIT) | KIND(ANYRES), offsetof(lf_processor, crop)},
    {"do_pad", PAD, ANY_KIND, 0},
    {"min_pixels", AREA, KIND(SMART), offsetof(lf_processor, min_pixels)},
    {"max_pixels", AREA, KIND(SMART), offsetof(lf_processor, max_pixels)},
    {"patch_size", PATCH, KIND(SMART) | KIND(NAFLEX) | KIND(WITHIN), 0},
    {"temporal_patch_size", SIDE, KIND(SMART), offsetof(lf_processor, patches.times)},
    {"merge_size", SIDE, KIND(SMART), offsetof(lf_processor, patches.merge)},
    {"max_num_patches", SIDE, KIND(NAFLEX), offsetof(lf_processor, max_patches)},
    {"crop_to_patches", BOOL, KIND(TILES), offsetof(lf_processor, do_tiles)},
    {"min_patches", SIDE, KIND(TILES), offsetof(lf_processor, min_tiles)},
    {"max_patches", SIDE, KIND(TILES), offsetof(lf_processor, max_tiles)},
    {"image_grid_pinpoints", PINPOINTS, KIND(ANYRES), 0},
    {"do_image_splitting", BOOL, KIND(SPLIT), offsetof(lf_processor, do_tiles)},
    {"max_image_size", EDGE, KIND(SPLIT), offsetof(lf_processor, tile)},
    {"return_row_col_info", SKIP, KIND(SPLIT), 0},
    {"video_sampling", SKIP, KIND(SPLIT), 0}, /* of films */
    {"do_pan_and_scan", BOOL, KIND(PAN), offsetof(lf_processor, do_tiles)},
    {"pan_and_scan_min_crop_size", SIDE, KIND(PAN), offsetof(lf_processor, pan_min_crop)},
    {"pan_and_scan_max_num_crops", SIDE, KIND(PAN), offsetof(lf_processor, pan_max)},
    {"pan_and_scan_min_ratio_to_activate", POSITIVE, KIND(PAN),
     offsetof(lf_processor, pan_min_ratio)},
};
enum { N_KEYS = sizeof keys / sizeof keys[0] };

static int set_key(const struct key *k, json_t *v, const struct reading *r)
{
    void *at = (char *)r->p + k->at;
    switch (k->type) {
    case SKIP:
        return 0;
    case TRUE_ONLY:
        return must_be_true(v, r);
    case BOOL:
        return get_bool(at, v, r);
    case SIDE:
        return get_side(at, v, r);
    case AREA:
        return get_whole(at, v, LF_IMAGE_MAX_PIXELS, r);
    case POSITIVE:
        return get_positive(at, v, r);
    case MEAN:
        return get_three(at, v, false, r);
    case STD:
        return get_three(at, v, true, r);
    case FILTER:
        return get_filter(r->p, v, r);
    case SIZE:
        return get_size(r->p, v, r);
    case SQUARE:
        return get_square(at, v, r);
    case PINPOINTS:
        return get_pinpoints(r->p, v, r);
    case ONE_NUMBER:
        return check_square(r->p, v, r);
    case PAD:
        return get_pad(r->p, v, r);
    case PATCH:
        return get_patch(r->p, v, r);
    case EDGE:
        return get_edge(at, v, r);
    }
    LF_BUG("key type %d", (int)k->type);
}

static int unknown_key(const struct reading *r)
{
    const char *names[N_KEYS];
    for (size_t i = 0; i < N_KEYS; i++)
        names[i] = keys[i].name;
    const char *near = lf_nearest(r->key, names, N_KEYS);
    return lf_fail(r->err, LF_EFORMAT, "%s: unknown key %.80s of %s%s%s", r->file, r->key,
                   r->p->class_name, near != NULL ? "; did you mean " : "",
                   near != NULL ? near : "");
}

/* In the order of the table, so that `size` is read before the keys that change a part of it. */
static int read_keys(lf_processor *p, json_t *o, const char *file, lf_err *err)
{
    struct reading r = {.p = p, .file = file, .err = err};
    json_t *v;
    int rc = 0;
    json_object_foreach(o, r.key, v)
    {
        bool known = false;
        for (size_t i = 0; i < N_KEYS; i++)
            known = known || strcmp(r.key, keys[i].name) == 0;
        if (!known)
            return unknown_key(&r);
    }
    for (size_t i = 0; rc == 0 && i < N_KEYS; i++) {
        r.key = keys[i].name;
        v = json_object_get(o, r.key);
        if (v == NULL || json_is_null(v))
            continue;
        if ((keys[i].kinds >> p->kind & 1) == 0)
            return lf_fail(err, LF_EFORMAT, "%s: %s has no key %s", file, p->class_name, r.key);
        rc = set_key(&keys[i], v, &r);
    }
    return rc;
}

/* ---- together ---- */

static int set_patch(lf_processor *p, const lf_processor_opts *o, const char *file, lf_err *err)
{
    if (p->patches.side == 0)
        p->patches.side = o->patch;
    if (p->patches.side < 1 || p->patches.side > LF_IMAGE_MAX_SIDE)
        return lf_fail(err, LF_EINVAL, "%s: %s does not tell the patch size; the model's file does",
                       file, p->class_name);
    if (o->patch != 0 && o->patch != p->patches.side)
        return lf_fail(err, LF_EINVAL, "%s: patch_size is %d, but the model has patches of %d",
                       file, p->patches.side, o->patch);
    if (p->patches.times > 64 || (int64_t)p->patches.side * p->patches.merge > LF_IMAGE_MAX_SIDE)
        return lf_fail(err, LF_EINVAL,
                       "%s: patch_size %d, merge_size %d and temporal_patch_size %d are too large",
                       file, p->patches.side, p->patches.merge, p->patches.times);
    return 0;
}

static int check(const lf_processor *p, const char *file, lf_err *err)
{
    if (p->do_crop && p->crop.w == 0)
        return lf_fail(err, LF_EFORMAT, "%s: do_center_crop without crop_size", file);
    if (p->min_pixels > p->max_pixels)
        return lf_fail(err, LF_EFORMAT, "%s: least area %lld, largest %lld", file,
                       (long long)p->min_pixels, (long long)p->max_pixels);
    if (p->min_tiles > p->max_tiles || p->max_tiles > LF_TILES_MAX)
        return lf_fail(err, LF_EFORMAT, "%s: min_patches %d, max_patches %d (at most %d)", file,
                       p->min_tiles, p->max_tiles, LF_TILES_MAX);
    if (p->kind == LF_PROC_PAN && p->do_tiles &&
        (p->pan_min_crop == 0 || p->pan_max == 0 || p->pan_min_ratio == 0))
        return lf_fail(err, LF_EFORMAT,
                       "%s: do_pan_and_scan needs the three other keys of pan_and_scan", file);
    return 0;
}

static int read_object(lf_processor *out, json_t *o, const char *name,
                       const lf_processor_opts *opts, lf_err *err)
{
    const struct class *c = NULL;
    lf_processor p;
    if (!json_is_object(o))
        return lf_fail(err, LF_EFORMAT, "%s: not a JSON object", name);
    json_t *inner = json_object_get(o, "image_processor");
    if (json_is_object(inner))
        o = inner;
    int rc = find_class(&c, o, name, err);
    if (rc < 0)
        return rc;
    set_defaults(&p, c, opts);
    rc = read_keys(&p, o, name, err);
    if (rc == 0)
        rc = set_patch(&p, opts, name, err);
    if (rc == 0)
        rc = check(&p, name, err);
    if (rc < 0)
        return rc;
    lf_norm_table(p.table, p.mean, p.std, p.rescale_factor, p.manner);
    *out = p;
    return 0;
}

int lf_processor_read(lf_processor *out, const char *text, size_t len, const char *name,
                      const lf_processor_opts *o, lf_err *err)
{
    json_t *v = lf_json_load_text(text, len, name, err);
    if (v == NULL)
        return LF_EFORMAT;
    int rc = read_object(out, v, name, o, err);
    json_decref(v);
    return rc;
}

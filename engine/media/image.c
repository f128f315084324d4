/* SPDX-License-Identifier: Apache-2.0
 *
 * Which decoder reads a file, limits, and the order of the rules.
 */
#include "engine/media/image.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/media/check.h"
#include "engine/media/image_priv.h"

/* ---- what the first bytes tell ---- */

typedef int decode_fn(lf_raster *, const uint8_t *, size_t, const lf_image_opts *, lf_err *);
typedef const char *version_fn(char[32]);

static const struct decoder {
    const char *format;
    decode_fn *decode;
    version_fn *version;
} decoders[LF_DECODERS] = {{"JPEG", lf_jpeg_decode, lf_jpeg_version},
                           {"PNG", lf_png_decode, lf_png_version},
                           {"WebP", lf_webp_decode, lf_webp_version}};
enum { NONE = -1 };

/* The first row whose bytes stand at 0 and, where `then` is given, at `at` decides. */
static const struct magic {
    const char *first;
    uint8_t n, at, n_then;
    const char *then;
    int8_t decoder;
    const char *name; /* of what has no decoder */
} magics[] = {
    {"\xff\xd8\xff", 3, 0, 0, NULL, 0, NULL},
    {"\x89PNG\r\n\x1a\n", 8, 0, 0, NULL, 1, NULL},
    {"RIFF", 4, 8, 4, "WEBP", 2, NULL},
    {"GIF8", 4, 0, 0, NULL, NONE, "a GIF picture"},
    {"II*\0", 4, 0, 0, NULL, NONE, "a TIFF picture"},
    {"MM\0*", 4, 0, 0, NULL, NONE, "a TIFF picture"},
    {"II+\0", 4, 0, 0, NULL, NONE, "a BigTIFF picture"},
    {"MM\0+", 4, 0, 0, NULL, NONE, "a BigTIFF picture"},
    {"", 0, 4, 8, "ftypavif", NONE, "an AVIF picture"},
    {"", 0, 4, 8, "ftypavis", NONE, "an AVIF picture"},
    {"", 0, 4, 7, "ftyphei", NONE, "a HEIC picture"},
    {"", 0, 4, 7, "ftyphev", NONE, "a HEIC picture"},
    {"", 0, 4, 8, "ftypmif1", NONE, "a HEIF picture"},
    {"", 0, 4, 8, "ftypmsf1", NONE, "a HEIF picture"},
    {"\xff\x0a", 2, 0, 0, NULL, NONE, "a JPEG XL picture"},
    {"\0\0\0\x0cJXL ", 8, 0, 0, NULL, NONE, "a JPEG XL picture"},
    {"\0\0\0\x0cjP  ", 8, 0, 0, NULL, NONE, "a JPEG 2000 picture"},
    {"", 0, 4, 4, "ftyp", NONE, "a video or sound (MP4)"},
    {"\x1a\x45\xdf\xa3", 4, 0, 0, NULL, NONE, "a video (Matroska or WebM)"},
    {"RIFF", 4, 8, 4, "AVI ", NONE, "a video (AVI)"},
    {"RIFF", 4, 8, 4, "WAVE", NONE, "sound (WAV)"},
    {"fLaC", 4, 0, 0, NULL, NONE, "sound (FLAC)"},
    {"OggS", 4, 0, 0, NULL, NONE, "sound or video (Ogg)"},
    {"ID3", 3, 0, 0, NULL, NONE, "sound (MP3)"},
    {"BM", 2, 0, 0, NULL, NONE, "a BMP picture"},
    {"<svg", 4, 0, 0, NULL, NONE, "an SVG drawing"},
};

static bool matches(const struct magic *m, const uint8_t *p, size_t n)
{
    return n >= m->n && memcmp(p, m->first, m->n) == 0 &&
           (m->then == NULL ||
            (n >= (size_t)m->at + m->n_then && memcmp(p + m->at, m->then, m->n_then) == 0));
}

static int find_decoder(const struct decoder **out, const uint8_t *p, size_t n, lf_err *err)
{
    if (n == 0)
        return lf_fail(err, LF_EFORMAT, "the picture has no bytes");
    for (size_t i = 0; i < sizeof magics / sizeof magics[0]; i++) {
        if (!matches(&magics[i], p, n))
            continue;
        if (magics[i].decoder == NONE)
            return lf_fail(err, LF_ENOTSUP,
                           "this is %s; pictures are read from JPEG, PNG and WebP: convert it",
                           magics[i].name);
        *out = &decoders[magics[i].decoder];
        return 0;
    }
    return lf_fail(err, LF_EFORMAT,
                   "the first bytes are of no picture (JPEG, PNG and WebP are read)");
}

const char *lf_decoder_version(const char **format, int i, char buf[32])
{
    *format = decoders[i].format;
    return decoders[i].version(buf);
}

/* ---- limits ---- */

/* what: "it declares" or "it would have" */
static int judge_size(const char *what, int64_t w, int64_t h, const lf_image_opts *o, lf_err *err)
{
    int64_t most = o->max_pixels > 0 && o->max_pixels < LF_IMAGE_MAX_PIXELS ? o->max_pixels
                                                                            : LF_IMAGE_MAX_PIXELS;
    if (w < 1 || h < 1)
        return lf_fail(err, LF_EFORMAT, "%s %lld x %lld pixels", what, (long long)w, (long long)h);
    if (w > LF_IMAGE_MAX_SIDE || h > LF_IMAGE_MAX_SIDE || w * h > most)
        return lf_fail(err, LF_EINVAL,
                       "%s %lld x %lld pixels; at most %lld are read, and %d a side: "
                       "make it smaller",
                       what, (long long)w, (long long)h, (long long)most, LF_IMAGE_MAX_SIDE);
    return 0;
}

size_t lf_raster_channels(enum lf_raster_kind kind)
{
    static const uint8_t channels[] = {[LF_RASTER_GREY] = 1,
                                       [LF_RASTER_GREY_A] = 2,
                                       [LF_RASTER_RGB] = 3,
                                       [LF_RASTER_RGBA] = 4,
                                       [LF_RASTER_CMYK] = 4};
    return channels[kind];
}

int lf_raster_alloc(lf_raster *r, int64_t w, int64_t h, const lf_image_opts *o, lf_err *err)
{
    int rc = judge_size("it declares", w, h, o, err);
    if (rc < 0)
        return rc;
    r->w = (int32_t)w;
    r->h = (int32_t)h;
    if (r->size_only)
        return 0;
    r->px = lf_calloc((size_t)(w * h), lf_raster_channels(r->kind), err);
    return r->px != NULL ? 0 : LF_ENOMEM;
}

/* ---- all of it ---- */

void lf_image_fini(lf_image *im)
{
    free(im->rgb);
    *im = (lf_image){0};
}

int lf_image_create(lf_image *out, int32_t w, int32_t h, const uint8_t fill[3], lf_err *err)
{
    int rc = judge_size("it would have", w, h, &(lf_image_opts){0}, err);
    if (rc < 0)
        return rc;
    int64_t n = (int64_t)w * h;
    uint8_t *rgb = lf_malloc((size_t)n, 3, err);
    if (rgb == NULL)
        return LF_ENOMEM;
    if (fill[0] == fill[1] && fill[1] == fill[2])
        memset(rgb, fill[0], 3 * (size_t)n);
    else
        for (int64_t i = 0; i < n; i++)
            memcpy(rgb + 3 * i, fill, 3);
    *out = (lf_image){.rgb = rgb, .w = w, .h = h, .format = "", .orientation = 1};
    return 0;
}

/* Takes the pixels of r over, or makes others of them. */
static int from_raster(lf_image *im, lf_raster *r, lf_err *err)
{
    *im = (lf_image){.w = r->w,
                     .h = r->h,
                     .orientation = r->orientation > 0 ? r->orientation : 1,
                     .warnings = r->warnings,
                     .truncated = r->truncated};
    if (r->kind == LF_RASTER_RGB) {
        im->rgb = r->px;
        r->px = NULL;
        return 0;
    }
    int64_t n = (int64_t)r->w * r->h;
    im->rgb = lf_malloc((size_t)n, 3, err);
    if (im->rgb == NULL)
        return LF_ENOMEM;
    lf_colour_rgb(im->rgb, r->px, n, r->kind);
    return 0;
}

/* Reads the file with the decoder that its first bytes name. */
static int read_raster(lf_raster *r, const char **format, const void *bytes, size_t n,
                       const lf_image_opts *o, lf_err *err)
{
    const struct decoder *d = NULL;
    int rc = find_decoder(&d, bytes, n, err);
    if (rc < 0)
        return rc;
    *format = d->format;
    rc = d->decode(r, bytes, n, o, err);
    return rc < 0 ? lf_err_prefix(err, "%s", d->format) : 0;
}

static const lf_image_opts no_opts;

int lf_image_probe(lf_image *out, const void *bytes, size_t n, const lf_image_opts *opts,
                   lf_err *err)
{
    const lf_image_opts *o = opts != NULL ? opts : &no_opts;
    lf_raster r = {.size_only = true};
    const char *format = NULL;
    lf_err why = LF_ERR_INIT;
    int rc = read_raster(&r, &format, bytes, n, o, err != NULL ? err : &why);
    if (rc < 0)
        return rc;
    const bool turned = !o->ignore_exif && r.orientation > 4;
    *out = (lf_image){.w = turned ? r.h : r.w,
                      .h = turned ? r.w : r.h,
                      .format = format,
                      .orientation = r.orientation > 0 ? r.orientation : 1};
    return 0;
}

int lf_image_decode(lf_image *out, const void *bytes, size_t n, const lf_image_opts *opts,
                    lf_err *err)
{
    const lf_image_opts *o = opts != NULL ? opts : &no_opts;
    const char *format = NULL;
    lf_raster r = {0};
    lf_image im = {0};
    lf_err why = LF_ERR_INIT;
    int rc = read_raster(&r, &format, bytes, n, o, err != NULL ? err : &why);
    if (rc == 0)
        rc = from_raster(&im, &r, err);
    free(r.px);
    if (rc == 0 && !o->ignore_exif)
        rc = lf_orient(&im, im.orientation, err);
    if (rc < 0) {
        lf_image_fini(&im);
        return rc;
    }
    im.format = format;
    *out = im;
    return 0;
}

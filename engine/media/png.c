/* SPDX-License-Identifier: Apache-2.0
 *
 * PNG by libpng. Gamma and profiles are left alone, as other programs of this kind do.
 */
#include "config.h"

#include "engine/media/image_priv.h"

#ifdef HAVE_PNG
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <png.h>

#include "engine/base/crc32.h"
#include "engine/media/exif.h"

/* Everything of one file, in memory that a longjmp leaves alone. */
struct job {
    png_structp png;
    png_infop info;
    jmp_buf jump;
    const uint8_t *p;
    size_t left;
    lf_raster *r;
    const lf_image_opts *o;
    lf_err *err;
    int rc;
    bool ended;    /* more bytes were asked for than there are */
    bool has_rows; /* all of them */
};

/* libpng's way out. A file that is over keeps the rows that it had, if the caller wants them; what
 * is wrong behind the last row is worth a warning. */
static void fail(png_structp png, png_const_charp text)
{
    struct job *j = png_get_error_ptr(png);
    if (j->has_rows) {
        j->r->warnings++;
    } else if (j->ended && j->r->px != NULL && j->o->keep_truncated) {
        j->r->truncated = true;
    } else {
        j->rc = j->ended ? lf_fail(j->err, LF_EFORMAT, "the file ends early")
                         : lf_fail(j->err, LF_EFORMAT, "%s", text);
    }
    longjmp(j->jump, 1);
}

static void warn(png_structp png, png_const_charp text)
{
    (void)text;
    struct job *j = png_get_error_ptr(png);
    j->r->warnings++;
}

static void take(png_structp png, png_bytep to, size_t n)
{
    struct job *j = png_get_io_ptr(png);
    if (n > j->left) {
        j->ended = true;
        png_error(png, "the file ends early");
    }
    memcpy(to, j->p, n);
    j->p += n;
    j->left -= n;
}

/* Chunks that are not read: texts and profiles, which can unpack to any size. */
static void skip_chunks(png_structp png)
{
    static const png_byte names[] = "iCCP\0zTXt\0iTXt\0tEXt\0sPLT";
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, names, 5);
}

/* Everything to 8 bits, palette to colours, transparent colours to alpha. */
static int set_transforms(struct job *j, int depth, int colour)
{
    if (depth == 16 && colour == PNG_COLOR_TYPE_GRAY && !j->o->scale_grey16)
        return lf_fail(j->err, LF_ENOTSUP,
                       "16-bit grey: other programs clip it at 255 instead of scaling it, so say "
                       "what you mean: convert it to 8 bits");
    if (depth == 16)
        png_set_strip_16(j->png);
    if (colour == PNG_COLOR_TYPE_PALETTE)
        png_set_palette_to_rgb(j->png);
    if (colour == PNG_COLOR_TYPE_GRAY && depth < 8)
        png_set_expand_gray_1_2_4_to_8(j->png);
    if (png_get_valid(j->png, j->info, PNG_INFO_tRNS) != 0)
        png_set_tRNS_to_alpha(j->png);
    return 0;
}

/* A row is packed by at most 1032 to 1. */
static int judge_bytes(const struct job *j, int64_t pixels, int depth, lf_err *err)
{
    if (!j->o->keep_truncated && pixels * depth / 8 / 1040 > (int64_t)j->left)
        return lf_fail(err, LF_EFORMAT,
                       "it declares %lld pixels, more than its bytes can hold: it is cut off or "
                       "made to exhaust memory",
                       (long long)pixels);
    return 0;
}

static int start(struct job *j, int *passes)
{
    png_uint_32 w = 0, h = 0;
    int depth = 0, colour = 0, interlace = 0;
    png_read_info(j->png, j->info);
    png_get_IHDR(j->png, j->info, &w, &h, &depth, &colour, &interlace, NULL, NULL);
    int rc = set_transforms(j, depth, colour);
    if (rc < 0)
        return rc;
    *passes = png_set_interlace_handling(j->png);
    png_read_update_info(j->png, j->info);
    static const enum lf_raster_kind kinds[] = {LF_RASTER_GREY, LF_RASTER_GREY_A, LF_RASTER_RGB,
                                                LF_RASTER_RGBA};
    j->r->kind = kinds[png_get_channels(j->png, j->info) - 1];
    if ((uint64_t)w * h <= LF_IMAGE_MAX_PIXELS) { /* else lf_raster_alloc refuses it */
        rc = judge_bytes(j, (int64_t)w * h, depth, j->err);
        if (rc < 0)
            return rc;
    }
    return lf_raster_alloc(j->r, w, h, j->o, j->err);
}

/* Runs below setjmp: it keeps nothing in variables of its own that a jump would have to give back.
 * */
static int read_picture(struct job *j)
{
    int passes = 1, rc = start(j, &passes);
    if (rc < 0 || j->r->size_only)
        return rc;
    size_t stride = (size_t)j->r->w * lf_raster_channels(j->r->kind);
    for (int pass = 0; pass < passes; pass++)
        for (int32_t y = 0; y < j->r->h; y++)
            png_read_row(j->png, j->r->px + stride * (size_t)y, NULL);
    j->has_rows = true;
    png_read_end(j->png, j->info);
    return 0;
}

static int run(struct job *j)
{
    if (setjmp(j->jump) != 0)
        return j->rc;
    png_set_read_fn(j->png, j, take);
    png_set_user_limits(j->png, 0x7fffffff, 0x7fffffff); /* image.c has limits of its own */
    png_set_chunk_malloc_max(j->png, 8 << 20);
    skip_chunks(j->png);
    return read_picture(j);
}

static size_t number(const uint8_t *p)
{
    return (size_t)p[0] << 24 | (size_t)p[1] << 16 | (size_t)p[2] << 8 | p[3];
}

/* Do the n bytes of name and data have the checksum that stands behind them? */
static bool is_whole(const uint8_t *p, size_t n)
{
    lf_crc32 tables;
    lf_crc32_init(&tables);
    return lf_crc32_add(&tables, 0, p, n) == number(p + n);
}

/* The EXIF that stands behind the pixels, where nothing was read: chunks are length (4), name (4),
 * data and checksum (4). One that is damaged does not count, as for libpng. */
static int far_orientation(const uint8_t *p, size_t n)
{
    for (size_t at = 8; at < n && n - at >= 12;) {
        const uint8_t *c = p + at;
        const size_t len = number(c);
        if (len > n - at - 12)
            return 0;
        if (memcmp(c + 4, "eXIf", 4) == 0 && is_whole(c + 4, len + 4))
            return lf_exif_orientation(c + 8, len);
        at += len + 12;
    }
    return 0;
}

static int orientation(struct job *j)
{
    png_uint_32 n = 0;
    png_bytep exif = NULL;
    if (png_get_eXIf_1(j->png, j->info, &n, &exif) == 0)
        return 0;
    return lf_exif_orientation(exif, n);
}

int lf_png_decode(lf_raster *r, const uint8_t *p, size_t n, const lf_image_opts *o, lf_err *err)
{
    struct job j = {.p = p, .left = n, .r = r, .o = o, .err = err};
    j.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &j, fail, warn);
    if (j.png != NULL)
        j.info = png_create_info_struct(j.png);
    if (j.info == NULL) {
        png_destroy_read_struct(&j.png, NULL, NULL);
        return lf_fail(err, LF_ENOMEM, "no memory, or the libpng here is not the one of the build");
    }
    int rc = run(&j);
    if (rc == 0)
        r->orientation = orientation(&j);
    if (rc == 0 && r->size_only && r->orientation == 0)
        r->orientation = far_orientation(p, n);
    png_destroy_read_struct(&j.png, &j.info, NULL);
    return rc;
}

const char *lf_png_version(char buf[32])
{
    snprintf(buf, 32, "%s", png_get_libpng_ver(NULL));
    return buf;
}

#else /* !HAVE_PNG */

int lf_png_decode(lf_raster *r, const uint8_t *p, size_t n, const lf_image_opts *o, lf_err *err)
{
    (void)r, (void)p, (void)n, (void)o;
    return lf_fail(err, LF_ENOTSUP,
                   "no decoder in this build; install libpng-dev (Debian) or libpng-devel (RHEL) "
                   "and run configure again");
}

const char *lf_png_version(char buf[32])
{
    (void)buf;
    return NULL;
}
#endif

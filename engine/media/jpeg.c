/* SPDX-License-Identifier: Apache-2.0
 *
 * JPEG by libjpeg-turbo, with its defaults: exact integer DCT, fancy upsampling. That is what other
 * programs use, and the faster ways give other pixels.
 */
#include "config.h"

#include "engine/media/image_priv.h"

#ifdef HAVE_JPEG
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <jpeglib.h>

#include "engine/media/exif.h"

/* A progressive file repeats passes over all coefficients as often as it likes; real ones have
 * about ten. */
enum { MAX_SCANS = 100 };

/* Everything of one file, in memory that a longjmp leaves alone. */
struct job {
    struct jpeg_decompress_struct d;
    struct jpeg_error_mgr mgr;
    struct jpeg_progress_mgr progress;
    struct jpeg_source_mgr src;
    jmp_buf jump;
    lf_raster *r;
    const lf_image_opts *o;
    lf_err *err;
    int rc;
    bool has_rows; /* all of them: what is missing behind them is no loss */
};

static void fail(j_common_ptr c)
{
    struct job *j = c->client_data;
    char text[JMSG_LENGTH_MAX];
    c->err->format_message(c, text);
    j->rc = lf_fail(j->err, LF_EFORMAT, "%s", text);
    longjmp(j->jump, 1);
}

static void be_quiet(j_common_ptr c)
{
    (void)c;
}

static void count_scans(j_common_ptr c)
{
    struct job *j = c->client_data;
    if (j->d.input_scan_number <= MAX_SCANS)
        return;
    j->rc = lf_fail(j->err, LF_EFORMAT, "more than %d scans", MAX_SCANS);
    longjmp(j->jump, 1);
}

/* ---- the bytes ---- */

static void source_nothing(j_decompress_ptr d)
{
    (void)d;
}

/* The file is over. libjpeg is told that the picture ends here, and fills with grey what it lacks.
 * */
static boolean source_ended(j_decompress_ptr d)
{
    static const JOCTET end[2] = {0xff, JPEG_EOI};
    struct job *j = d->client_data;
    if (!j->has_rows && !j->o->keep_truncated) {
        j->rc = lf_fail(j->err, LF_EFORMAT, "the file ends early, after %u of %u rows",
                        d->output_scanline, d->image_height);
        longjmp(j->jump, 1);
    }
    j->r->truncated = j->r->truncated || !j->has_rows;
    d->src->next_input_byte = end;
    d->src->bytes_in_buffer = sizeof end;
    return TRUE;
}

static void source_skip(j_decompress_ptr d, long n)
{
    while (n > (long)d->src->bytes_in_buffer) {
        n -= (long)d->src->bytes_in_buffer;
        source_ended(d);
        if (n > 2)
            n = 0; /* the rest of the skipped marker is not there */
    }
    if (n > 0) {
        d->src->next_input_byte += n;
        d->src->bytes_in_buffer -= (size_t)n;
    }
}

/* ---- the picture ---- */

static int orientation(const struct jpeg_decompress_struct *d)
{
    for (jpeg_saved_marker_ptr m = d->marker_list; m != NULL; m = m->next)
        if (m->marker == JPEG_APP0 + 1 && m->data_length >= 6 &&
            memcmp(m->data, "Exif\0\0", 6) == 0)
            return lf_exif_orientation(m->data, m->data_length);
    return 0;
}

static int choose_colour(struct job *j)
{
    switch (j->d.num_components) {
    case 1:
        j->d.out_color_space = JCS_GRAYSCALE;
        j->r->kind = LF_RASTER_GREY;
        return 0;
    case 3:
        j->d.out_color_space = JCS_RGB;
        j->r->kind = LF_RASTER_RGB;
        return 0;
    case 4:
        j->d.out_color_space = JCS_CMYK;
        j->r->kind = LF_RASTER_CMYK;
        return 0;
    default:
        return lf_fail(j->err, LF_ENOTSUP, "%d colour components; 1, 3 and 4 are read",
                       j->d.num_components);
    }
}

/* Runs below setjmp: it keeps nothing in variables of its own that a jump would have to give back.
 * */
static int read_picture(struct job *j)
{
    struct jpeg_decompress_struct *d = &j->d;
    jpeg_save_markers(d, JPEG_APP0 + 1, 0xffff);
    (void)jpeg_read_header(d, TRUE);
    j->r->orientation = orientation(d);
    int rc = choose_colour(j);
    if (rc < 0)
        return rc;
    rc = lf_raster_alloc(j->r, d->image_width, d->image_height, j->o, j->err);
    if (rc < 0 || j->r->size_only)
        return rc;
    (void)jpeg_start_decompress(d);
    size_t stride = (size_t)j->r->w * lf_raster_channels(j->r->kind);
    while (d->output_scanline < d->output_height) {
        JSAMPROW row = j->r->px + stride * d->output_scanline;
        (void)jpeg_read_scanlines(d, &row, 1);
    }
    j->has_rows = true;
    (void)jpeg_finish_decompress(d);
    return 0;
}

static int run(struct job *j)
{
    if (setjmp(j->jump) != 0)
        return j->rc;
    jpeg_create_decompress(&j->d);
    j->d.progress = &j->progress;
    j->d.src = &j->src;
    return read_picture(j);
}

int lf_jpeg_decode(lf_raster *r, const uint8_t *p, size_t n, const lf_image_opts *o, lf_err *err)
{
    struct job j = {.r = r, .o = o, .err = err};
    j.d.err = jpeg_std_error(&j.mgr);
    j.d.client_data = &j;
    j.mgr.error_exit = fail;
    j.mgr.output_message = be_quiet;
    j.progress.progress_monitor = count_scans;
    j.src = (struct jpeg_source_mgr){.next_input_byte = p,
                                     .bytes_in_buffer = n,
                                     .init_source = source_nothing,
                                     .fill_input_buffer = source_ended,
                                     .skip_input_data = source_skip,
                                     .resync_to_restart = jpeg_resync_to_restart,
                                     .term_source = source_nothing};
    int rc = run(&j);
    r->warnings = j.mgr.num_warnings;
    jpeg_destroy_decompress(&j.d);
    return rc;
}

const char *lf_jpeg_version(char buf[32])
{
    snprintf(buf, 32, "%d.%d.%d", LIBJPEG_TURBO_VERSION_NUMBER / 1000000,
             LIBJPEG_TURBO_VERSION_NUMBER / 1000 % 1000, LIBJPEG_TURBO_VERSION_NUMBER % 1000);
    return buf;
}

#else /* !HAVE_JPEG */

int lf_jpeg_decode(lf_raster *r, const uint8_t *p, size_t n, const lf_image_opts *o, lf_err *err)
{
    (void)r, (void)p, (void)n, (void)o;
    return lf_fail(err, LF_ENOTSUP,
                   "no decoder in this build; install libjpeg-dev (Debian) or "
                   "libjpeg-turbo-devel (RHEL) and run configure again");
}

const char *lf_jpeg_version(char buf[32])
{
    (void)buf;
    return NULL;
}
#endif

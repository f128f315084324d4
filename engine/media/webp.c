/* SPDX-License-Identifier: Apache-2.0
 *
 * WebP by libwebp, with its defaults (fancy upsampling).
 */
#include "config.h"

#include "engine/media/image_priv.h"

#ifdef HAVE_WEBP
#include <stdio.h>
#include <string.h>

#include <webp/decode.h>

#include "engine/base/le.h"
#include "engine/media/exif.h"

/* Walks the chunks of the RIFF container: name (4), length (4, little-endian), data, padded to an
 * even length. */
static int orientation(const uint8_t *p, size_t n)
{
    for (size_t at = 12; n - at >= 8;) {
        size_t len = lf_get_le(p + at + 4, 4), room = n - at - 8;
        if (memcmp(p + at, "EXIF", 4) == 0)
            return lf_exif_orientation(p + at + 8, len < room ? len : room);
        if (len + (len & 1) > room)
            return 0;
        at += 8 + len + (len & 1);
    }
    return 0;
}

static int judge(VP8StatusCode status, const lf_image_opts *o, lf_err *err)
{
    switch (status) {
    case VP8_STATUS_OK:
        return 0;
    case VP8_STATUS_NOT_ENOUGH_DATA:
    case VP8_STATUS_SUSPENDED:
        return o->keep_truncated ? 0 : lf_fail(err, LF_EFORMAT, "the file ends early");
    case VP8_STATUS_OUT_OF_MEMORY:
        return lf_fail(err, LF_ENOMEM, "no memory");
    default:
        return lf_fail(err, LF_EFORMAT, "the data is broken (code %d of libwebp)", (int)status);
    }
}

int lf_webp_decode(lf_raster *r, const uint8_t *p, size_t n, const lf_image_opts *o, lf_err *err)
{
    WebPBitstreamFeatures f;
    VP8StatusCode status = WebPGetFeatures(p, n, &f);
    if (status == VP8_STATUS_NOT_ENOUGH_DATA)
        return lf_fail(err, LF_EFORMAT, "the file ends early, before the size of the picture");
    if (status != VP8_STATUS_OK)
        return judge(status, o, err);
    if (f.has_animation)
        return lf_fail(err, LF_ENOTSUP, "it is animated; take one picture out of it");
    r->kind = f.has_alpha ? LF_RASTER_RGBA : LF_RASTER_RGB;
    int rc = lf_raster_alloc(r, f.width, f.height, o, err);
    r->orientation = orientation(p, n);
    if (rc < 0 || r->size_only)
        return rc;
    size_t stride = (size_t)r->w * lf_raster_channels(r->kind);
    WebPIDecoder *d =
        WebPINewRGB(f.has_alpha ? MODE_RGBA : MODE_RGB, r->px, stride * (size_t)r->h, (int)stride);
    if (d == NULL)
        return lf_fail(err, LF_ENOMEM, "no memory");
    status = WebPIUpdate(d, p, n);
    WebPIDelete(d);
    rc = judge(status, o, err);
    r->truncated = status != VP8_STATUS_OK;
    return rc;
}

const char *lf_webp_version(char buf[32])
{
    int v = WebPGetDecoderVersion();
    snprintf(buf, 32, "%d.%d.%d", v >> 16, v >> 8 & 255, v & 255);
    return buf;
}

#else /* !HAVE_WEBP */

int lf_webp_decode(lf_raster *r, const uint8_t *p, size_t n, const lf_image_opts *o, lf_err *err)
{
    (void)r, (void)p, (void)n, (void)o;
    return lf_fail(err, LF_ENOTSUP,
                   "no decoder in this build; install libwebp-dev (Debian) or libwebp-devel (RHEL) "
                   "and run configure again");
}

const char *lf_webp_version(char buf[32])
{
    (void)buf;
    return NULL;
}
#endif

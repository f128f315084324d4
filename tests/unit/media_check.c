/* SPDX-License-Identifier: Apache-2.0
 *
 * lf_image_check: decoders that are right, one that rounds otherwise, one that fails.
 */
#include "config.h"

#include <string.h>

#include "engine/media/check.h"
#include "engine/media/image_priv.h"
#include "tests/tap/tap.h"

static bool wrong;

#define WRAPPED(name)                                                                              \
    int __real_##name(lf_raster *r, const uint8_t *p, size_t n, const lf_image_opts *o,            \
                      lf_err *e);                                                                  \
    int __wrap_##name(lf_raster *r, const uint8_t *p, size_t n, const lf_image_opts *o,            \
                      lf_err *e);                                                                  \
    int __wrap_##name(lf_raster *r, const uint8_t *p, size_t n, const lf_image_opts *o, lf_err *e)

/* One level off in the last byte. */
WRAPPED(lf_jpeg_decode)
{
    int rc = __real_lf_jpeg_decode(r, p, n, o, e);
    if (rc == 0 && wrong)
        r->px[3 * (size_t)r->w * (size_t)r->h - 1] ^= 1;
    return rc;
}

WRAPPED(lf_png_decode)
{
    return wrong ? lf_fail(e, LF_EFORMAT, "planted") : __real_lf_png_decode(r, p, n, o, e);
}

static enum lf_decoder_state built(enum lf_decoder_state state, const lf_decoder_check *c)
{
    return c->version[0] != 0 ? state : LF_DECODER_ABSENT;
}

static void check(enum lf_decoder_state jpeg, enum lf_decoder_state png, const char *when)
{
    lf_decoder_check c[LF_DECODERS];
    lf_err err = LF_ERR_INIT;
    tap_rc(lf_image_check(c, &err), 0, &err, NULL, when);
    tap_ok(strcmp(c[0].format, "JPEG") == 0 && c[0].state == built(jpeg, &c[0]), "JPEG: %s", when);
    tap_ok(strcmp(c[1].format, "PNG") == 0 && c[1].state == built(png, &c[1]), "PNG: %s", when);
    tap_ok(c[2].state == built(LF_DECODER_SAME, &c[2]), "WebP: %s", when);
}

int main(void)
{
    TAP(4, check(LF_DECODER_SAME, LF_DECODER_SAME, "as they are"));
    wrong = true;
    TAP(4, check(LF_DECODER_DIFFERS, LF_DECODER_FAILS, "planted"));
    return tap_done();
}

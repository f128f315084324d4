/* SPDX-License-Identifier: Apache-2.0
 *
 * Do the decoders of this machine give the pixels of the reference? The libraries are the system's,
 * and another version or another vendor's may round otherwise: then rows made here and elsewhere
 * differ by a few levels, which no error tells.
 */
#ifndef LF_MEDIA_CHECK_H
#define LF_MEDIA_CHECK_H

#include "engine/media/image.h"

enum lf_decoder_state {
    LF_DECODER_SAME,    /* every small picture of check_data.h has the expected bytes */
    LF_DECODER_DIFFERS, /* one has not */
    LF_DECODER_FAILS,   /* one is refused */
    LF_DECODER_ABSENT   /* not built in */
};

typedef struct lf_decoder_check {
    const char *format; /* "JPEG", "PNG", "WebP" */
    char version[32];   /* of the library, "" when absent */
    enum lf_decoder_state state;
} lf_decoder_check;

enum { LF_DECODERS = 3 };

/* Decodes about 2 kB of pictures. LF_ENOMEM only: what a decoder does wrong is its state. */
int lf_image_check(lf_decoder_check out[LF_DECODERS], lf_err *err);

#endif

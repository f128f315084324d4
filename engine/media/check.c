/* SPDX-License-Identifier: Apache-2.0
 *
 * The decoders against pictures whose bytes are known.
 */
#include "engine/media/check.h"

#include <stdio.h>
#include <string.h>

#include "engine/base/hash.h"
#include "engine/media/check_data.h"
#include "engine/media/image_priv.h"

/* The state that this picture alone would give its decoder. */
static int try_sample(enum lf_decoder_state *state, const struct lf_check_sample *s, lf_err *err)
{
    uint8_t digest[LF_HASH_BYTES];
    char hex[LF_HASH_HEX];
    lf_image im = {0};
    lf_err refused = LF_ERR_INIT;
    int rc = lf_image_decode(&im, s->bytes, s->n, NULL, &refused);
    if (rc == LF_ENOMEM)
        return lf_fail(err, rc, "%s", refused.text);
    if (rc < 0) {
        *state = LF_DECODER_FAILS;
        return 0;
    }
    rc = lf_hash_buf(digest, im.rgb, 3 * (size_t)im.w * (size_t)im.h, err);
    lf_image_fini(&im);
    if (rc < 0)
        return rc;
    lf_hash_hex(hex, digest);
    *state = strcmp(hex, s->sha256) == 0 ? LF_DECODER_SAME : LF_DECODER_DIFFERS;
    return 0;
}

static int check_one(lf_decoder_check *c, lf_err *err)
{
    for (size_t i = 0; i < sizeof check_samples / sizeof check_samples[0]; i++) {
        enum lf_decoder_state state;
        if (strcmp(check_samples[i].format, c->format) != 0)
            continue;
        int rc = try_sample(&state, &check_samples[i], err);
        if (rc < 0)
            return rc;
        if (state > c->state)
            c->state = state;
    }
    return 0;
}

int lf_image_check(lf_decoder_check out[LF_DECODERS], lf_err *err)
{
    for (int i = 0; i < LF_DECODERS; i++) {
        const char *version = lf_decoder_version(&out[i].format, i, out[i].version);
        out[i].state = LF_DECODER_SAME;
        if (version == NULL) {
            out[i].version[0] = 0;
            out[i].state = LF_DECODER_ABSENT;
            continue;
        }
        int rc = check_one(&out[i], err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

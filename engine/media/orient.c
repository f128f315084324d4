/* SPDX-License-Identifier: Apache-2.0
 *
 * EXIF orientation: where the first pixel of a picture lies, and which way rows run.
 *
 *   value   first row is at the   first column is at the
 *   1       top                   left                      as it is
 *   2       top                   right                     mirrored
 *   3       bottom                right                     turned by 180 degrees
 *   4       bottom                left                      upside down
 *   5       left                  top                       transposed
 *   6       right                 top                       turned by 90 degrees clockwise
 *   7       right                 bottom                    transposed over the other diagonal
 *   8       left                  bottom                    turned by 90 degrees counter-clockwise
 */
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/media/image_priv.h"

int lf_orient(lf_image *im, int orientation, lf_err *err)
{
    static const struct {
        bool swap, flip_x, flip_y; /* out(x, y) reads (x', y'): swapped, then mirrored */
    } rule[9] = {[2] = {false, true, false}, [3] = {false, true, true}, [4] = {false, false, true},
                 [5] = {true, false, false}, [6] = {true, false, true}, [7] = {true, true, true},
                 [8] = {true, true, false}};
    if (orientation < 2 || orientation > 8)
        return 0;
    int64_t w = im->w, h = im->h;
    uint8_t *out = lf_malloc((size_t)(w * h), 3, err);
    if (out == NULL)
        return LF_ENOMEM;
    int64_t step_x = rule[orientation].flip_x ? -3 : 3,
            step_y = (rule[orientation].flip_y ? -3 : 3) * w;
    const uint8_t *from =
        im->rgb + (step_x < 0 ? 3 * (w - 1) : 0) + (step_y < 0 ? 3 * w * (h - 1) : 0);
    bool swap = rule[orientation].swap;
    int64_t out_w = swap ? h : w, out_h = swap ? w : h;
    int64_t next_x = swap ? step_y : step_x, next_y = swap ? step_x : step_y;
    uint8_t *to = out;
    for (int64_t y = 0; y < out_h; y++)
        for (int64_t x = 0; x < out_w; x++, to += 3)
            memcpy(to, from + y * next_y + x * next_x, 3);
    free(im->rgb);
    im->rgb = out;
    im->w = (int32_t)out_w;
    im->h = (int32_t)out_h;
    return 0;
}

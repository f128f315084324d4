/* SPDX-License-Identifier: Apache-2.0
 *
 * Resizing of 8-bit pictures, bit for bit as two other programs do it.
 *
 * For an axis of `in` pixels made to `out`, all in f64:
 *   scale = in / out, fs = max(scale, 1), c = (i + 0.5) scale,
 *   lo = max(0, trunc(c - s fs + 0.5)), hi = min(in, trunc(c + s fs + 0.5)),
 *   w[j] = f((lo + j - c + 0.5) (1 / fs)) for lo + j < hi, divided by their sum,
 * with f and s: bilinear (triangle) 1, bicubic (a = -0.5) 2, Lanczos 3. out[i] is the sum of
 * w[j] in[lo + j], in integers with p fraction bits: weights rounded half away from zero, the sum
 * begun at 2^(p-1), shifted by p, clipped to 0..255. Columns first, then rows, each rounded to
 * 8 bits; an axis that keeps its size is left alone.
 *
 *   manner        p
 *   torchvision   the largest up to 22 with trunc(0.5 + wmax 2^(p+1)) < 2^15, wmax over the axis
 *   PIL           22; and a picture more than 100 times as high as wide goes rows first when it
 *                 loses height
 *
 * The two differ by at most two levels. torchvision's bilinear is that of processors with AVX2.
 * Source: torchvision 0.29 with torch 2.15 (antialias), Pillow 12.3. Pillow 13 chooses the order of
 * the axes by another rule.
 */
#ifndef LF_MEDIA_RESIZE_H
#define LF_MEDIA_RESIZE_H

#include "engine/media/image.h"

enum lf_resize_filter { LF_BILINEAR, LF_BICUBIC, LF_LANCZOS };
enum lf_resize_manner { LF_RESIZE_TORCHVISION, LF_RESIZE_PIL };

/* Makes a w x h picture of `in` in *out, which the caller gives back. LF_EINVAL: w or h beyond the
 * limits of image.h. */
int lf_resize(lf_image *out, const lf_image *in, int32_t w, int32_t h, enum lf_resize_filter filter,
              enum lf_resize_manner manner, lf_err *err);

#endif

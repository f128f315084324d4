/* SPDX-License-Identifier: Apache-2.0
 *
 * Patches and normalising.
 */
#include "engine/media/patch.h"

#include <string.h>

/* One patch whose first pixel is at `from`. */
static void cut_patch(uint8_t *dst, const uint8_t *from, size_t stride, const lf_patches *p)
{
    size_t side = (size_t)p->side;
    if (p->order == LF_PATCH_YXC) {
        for (size_t y = 0; y < side; y++)
            memcpy(dst + y * side * 3, from + y * stride, side * 3);
        return;
    }
    for (size_t y = 0; y < side; y++)
        for (size_t x = 0; x < side; x++)
            for (size_t c = 0; c < 3; c++)
                dst[(c * side + y) * side + x] = from[y * stride + x * 3 + c];
}

void lf_patch_rows(uint8_t *dst, const lf_image *im, const lf_patches *p)
{
    size_t side = (size_t)p->side, m = (size_t)p->merge, stride = 3 * (size_t)im->w;
    size_t gh = (size_t)im->h / side, gw = (size_t)im->w / side, row = 3 * side * side;
    for (size_t by = 0; by < gh; by += m)
        for (size_t bx = 0; bx < gw; bx += m)
            for (size_t k = 0; k < m * m; k++, dst += row)
                cut_patch(dst, im->rgb + (by + k / m) * side * stride + (bx + k % m) * side * 3,
                          stride, p);
}

void lf_norm_table(float table[3][256], const double mean[3], const double std[3], double factor,
                   enum lf_resize_manner manner)
{
    for (int c = 0; c < 3; c++) {
        float m = (float)mean[c], s = (float)std[c];
        bool fused = manner == LF_RESIZE_TORCHVISION;
        if (fused) {
            m *= (float)(1 / factor);
            s *= (float)(1 / factor);
        }
        for (int x = 0; x < 256; x++)
            table[c][x] = ((fused ? (float)x : (float)(x * factor)) - m) / s;
    }
}

void lf_norm_rows(float *dst, const uint8_t *rows, int64_t n_rows, const lf_patches *p,
                  const float table[3][256])
{
    int64_t plane = (int64_t)p->side * p->side;
    if (p->order == LF_PATCH_YXC) {
        for (int64_t i = 0; i < n_rows * plane; i++)
            for (int c = 0; c < 3; c++)
                *dst++ = table[c][*rows++];
        return;
    }
    for (int64_t i = 0; i < n_rows; i++)
        for (int c = 0; c < 3; c++, rows += plane)
            for (int t = 0; t < p->times; t++)
                for (int64_t k = 0; k < plane; k++)
                    *dst++ = table[c][rows[k]];
}

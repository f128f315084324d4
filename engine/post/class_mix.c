/* SPDX-License-Identifier: Apache-2.0
 *
 * See class_mix.h. */
#include "engine/post/class_mix.h"

#include <math.h>

/* Where number (c, y, x) of a picture lies, of its first frame. */
static float *number(const struct lf_class_view *v, int c, int32_t y, int32_t x)
{
    const int64_t P = v->p->side, m = v->p->merge, row = y / P, col = x / P,
                  block = row / m * (v->w / m) + col / m,
                  patch = block * m * m + row % m * m + col % m, K = 3 * P * P * v->p->times,
                  in = y % P * P + x % P;
    return v->rows + patch * K + (v->p->order == LF_PATCH_YXC ? 3 * in + c : c * K / 3 + in);
}

void lf_class_erase(const struct lf_class_view *v, lf_draws *d)
{
    const int32_t P = v->p->side, H = v->h * P, W = v->w * P;
    const double low = log(0.3), high = log(3.3);
    for (int i = 0; i < 10; i++) {
        const double area = (double)H * W * (0.02 + 0.31 * lf_draw_u01(d)),
                     ratio = exp(low + (high - low) * lf_draw_u01(d));
        const int32_t h = (int32_t)nearbyint(sqrt(area * ratio)),
                      w = (int32_t)nearbyint(sqrt(area / ratio));
        if (h < 1 || w < 1 || h >= H || w >= W)
            continue;
        const int32_t y0 = (int32_t)lf_draw_below(d, (uint32_t)(H - h + 1)),
                      x0 = (int32_t)lf_draw_below(d, (uint32_t)(W - w + 1));
        for (int c = 0; c < 3; c++)
            for (int32_t y = y0; y < y0 + h; y++)
                for (int32_t x = x0; x < x0 + w; x++) {
                    float *to = number(v, c, y, x);
                    const float noise = (float)lf_draw_normal(d);
                    for (int t = 0; t < v->p->times; t++)
                        to[(int64_t)t * P * P] = noise;
                }
        return;
    }
}

static int32_t inside(double x, int32_t most)
{
    return x < 0 ? 0 : x > most ? most : (int32_t)x;
}

struct lf_class_mix lf_class_mix_of(lf_draws *d, double mixup, double cutmix, lf_size of)
{
    const bool second = lf_draw_below(d, 2);
    struct lf_class_mix m = {.cut = cutmix > 0 && (second || !(mixup > 0))};
    m.keep = lf_draw_beta(d, m.cut ? cutmix : mixup);
    if (!m.cut)
        return m;
    const double share = sqrt(1 - m.keep), h = trunc(of.h * share), w = trunc(of.w * share),
                 y = lf_draw_below(d, (uint32_t)of.h), x = lf_draw_below(d, (uint32_t)of.w);
    m.box.y = inside(y - floor(h / 2), of.h);
    m.box.x = inside(x - floor(w / 2), of.w);
    m.box.h = inside(y + floor(h / 2), of.h) - m.box.y;
    m.box.w = inside(x + floor(w / 2), of.w) - m.box.x;
    m.keep = 1 - (double)m.box.h * m.box.w / ((double)of.h * of.w);
    return m;
}

static void exchange(const struct lf_cutout *box, const struct lf_class_view *a,
                     const struct lf_class_view *b)
{
    const int64_t plane = (int64_t)a->p->side * a->p->side;
    for (int c = 0; c < 3; c++)
        for (int32_t y = box->y; y < box->y + box->h; y++)
            for (int32_t x = box->x; x < box->x + box->w; x++) {
                float *p = number(a, c, y, x), *q = number(b, c, y, x);
                for (int t = 0; t < a->p->times; t++) {
                    const float was = p[t * plane];
                    p[t * plane] = q[t * plane];
                    q[t * plane] = was;
                }
            }
}

void lf_class_mix_apply(const struct lf_class_mix *m, const struct lf_class_view *a,
                        const struct lf_class_view *b)
{
    if (m->cut) {
        exchange(&m->box, a, b);
        return;
    }
    const int64_t n = 3 * (int64_t)a->p->side * a->p->side * a->p->times * a->h * a->w;
    const float keep = (float)m->keep, rest = (float)(1 - m->keep);
    for (int64_t i = 0; i < n; i++) {
        const float x = a->rows[i], y = b->rows[i];
        a->rows[i] = keep * x + rest * y;
        b->rows[i] = keep * y + rest * x;
    }
}

void lf_class_mix_labels(const struct lf_class_mix *m, double *a, double *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const double x = a[i], y = b[i];
        a[i] = m->keep * x + (1 - m->keep) * y;
        b[i] = m->keep * y + (1 - m->keep) * x;
    }
}

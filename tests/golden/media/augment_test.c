/* SPDX-License-Identifier: Apache-2.0
 *
 * What training changes of pictures against torchvision on pictures of Pillow (augment.json, by
 * make_augment.py), byte for byte; decisions by their formula, and their distribution; pictures
 * that are erased and mixed.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/base64.h"
#include "engine/base/rng.h"
#include "engine/media/augment.h"
#include "engine/post/class_mix.h"
#include "tests/golden/media/util.h"
#include "tests/tap/tap.h"

enum { N_OPS = 36, N_FLAT = 5, N_BOXES = 4, N_BLURS = 4 };

static lf_err err = LF_ERR_INIT;

static void pixels(lf_buf *b, const json_t *o, const char *key)
{
    const char *text = media_text(o, key);
    lf_buf_init(b);
    if (!lf_base64_decode(b, text, strlen(text)))
        tap_bail("%s is no base64", key);
}

static void picture(lf_image *im, const json_t *o)
{
    static const uint8_t black[3] = {0};
    lf_buf b;
    pixels(&b, o, "rgb");
    if (lf_image_create(im, (int32_t)media_number(o, "w"), (int32_t)media_number(o, "h"), black,
                        &err))
        tap_bail("%s", err.text);
    memcpy(im->rgb, b.data, b.len);
    lf_buf_fini(&b);
}

static void same(const lf_image *im, const json_t *o, const char *key, const char *name)
{
    lf_buf want;
    int64_t apart = 0, n = 3 * (int64_t)im->w * im->h;
    pixels(&want, o, key);
    for (int64_t i = 0; i < n && n == (int64_t)want.len; i++)
        apart += im->rgb[i] != (uint8_t)want.data[i];
    tap_ok(n == (int64_t)want.len && apart == 0, "%s: %lld of %lld bytes differ", name,
           (long long)apart, (long long)n);
    lf_buf_fini(&want);
}

static void test_ops(const json_t *from, const json_t *rows)
{
    static const uint8_t fill[3] = {124, 116, 104};
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row)
    {
        lf_image im;
        char name[64];
        const double v = json_number_value(json_object_get(row, "magnitude"));
        const int op = (int)media_number(row, "op");
        picture(&im, from);
        if (lf_augment_apply(&im, (enum lf_augment_op)op, v, fill, &err))
            tap_bail("%s", err.text);
        snprintf(name, sizeof name, "operation %d by %g", op, v);
        same(&im, row, "rgb", name);
        lf_image_fini(&im);
    }
}

static void test_boxes(const json_t *o)
{
    size_t i;
    json_t *row;
    lf_image im;
    picture(&im, o);
    json_array_foreach(json_object_get(o, "boxes"), i, row)
    {
        lf_image out = {0};
        const struct lf_cutout b = {media_side(row, "box", 0), media_side(row, "box", 1),
                                    media_side(row, "box", 2), media_side(row, "box", 3)};
        if (lf_augment_cut(&out, &im, &b,
                           (lf_size){media_side(row, "to", 0), media_side(row, "to", 1)}, &err))
            tap_bail("%s", err.text);
        same(&out, row, "rgb", "a box");
        lf_image_fini(&out);
    }
    lf_augment_flip(&im);
    same(&im, o, "flip", "mirrored");
    lf_image_fini(&im);
}

static void test_blurs(const json_t *o)
{
    size_t i;
    json_t *row;
    json_array_foreach(json_object_get(o, "blurs"), i, row)
    {
        const double deviation = json_number_value(json_object_get(row, "deviation"));
        const int side = (int)media_number(row, "side");
        char name[64];
        lf_image im;
        picture(&im, o);
        if (lf_augment_blur(&im, side, deviation, &err))
            tap_bail("%s", err.text);
        snprintf(name, sizeof name, "blurred by %g over %d", deviation, side);
        same(&im, row, "rgb", name);
        lf_image_fini(&im);
    }
    tap_ok(lf_augment_blur_side((lf_size){224, 300}) == 23 &&
               lf_augment_blur_side((lf_size){32, 32}) == 3 &&
               lf_augment_blur_side((lf_size){40, 200}) == 5,
           "over a tenth of the shorter side, odd");
}

/* ---- decisions ---- */

static void test_draws(void)
{
    uint32_t four[4];
    lf_draws d = lf_draws_of(7, LF_SITE_AUGMENT, 11, 3), e = d;
    lf_philox(four, 7, 0x4155472Eu, 11 | (uint64_t)3 << 44, 0);
    bool equal = true;
    for (int i = 0; i < 4; i++)
        equal = equal && lf_draw(&d) == four[i];
    lf_philox(four, 7, 0x4155472Eu, 11 | (uint64_t)3 << 44, 1);
    tap_ok(equal && lf_draw(&d) == four[0], "draws are words of Philox, in their order");
    tap_ok(lf_draw_below(&e, 10) < 10, "below a bound");
    int n = 0;
    double sum = 0, square = 0, beta = 0, spread = 0;
    for (int i = 0; i < 20000; i++) {
        lf_draws f = lf_draws_of(1, LF_SITE_BLEND, i, 0);
        const double x = lf_draw_normal(&f), b = lf_draw_beta(&f, 0.8);
        sum += x;
        square += x * x;
        beta += b;
        spread += (b - 0.5) * (b - 0.5);
        n++;
    }
    tap_ok(fabs(sum / n) < 0.03 && fabs(square / n - 1) < 0.04, "normals: mean %.3f, square %.3f",
           sum / n, square / n);
    tap_ok(fabs(beta / n - 0.5) < 0.01 && fabs(spread / n - 1 / (4 * 2.6)) < 0.004,
           "Beta(0.8, 0.8): mean %.3f, variance %.4f", beta / n, spread / n);
}

/* A large picture that is erased takes more draws than 2^18: they neither come again nor are those
 * of the next picture. */
static void test_many_draws(void)
{
    uint32_t first[4], next[4], bad = 0, last[4] = {0};
    lf_draws d = lf_draws_of(7, LF_SITE_ERASE, 11, 1), e = lf_draws_of(7, LF_SITE_ERASE, 11, 2);
    for (int i = 0; i < 4; i++) {
        first[i] = lf_draw(&d);
        next[i] = lf_draw(&e);
    }
    for (int i = 4; i < 1 << 19; i++) {
        last[i % 4] = lf_draw(&d);
        bad += i % 4 == 3 &&
               (memcmp(last, first, sizeof first) == 0 || memcmp(last, next, sizeof next) == 0);
    }
    tap_ok(bad == 0, "2^19 draws of one picture: %u of its own first or of its neighbour's", bad);
}

/* Beta of a very small alpha is 0 or 1, not one half. */
static void test_small_alpha(void)
{
    int ends = 0, high = 0;
    for (int i = 0; i < 1000; i++) {
        lf_draws d = lf_draws_of(1, LF_SITE_BLEND, i, 0);
        const double b = lf_draw_beta(&d, 1e-9);
        ends += b < 1e-6 || b > 1 - 1e-6;
        high += b > 0.5;
    }
    tap_ok(ends == 1000 && high > 430 && high < 570,
           "Beta(1e-9, 1e-9): %d of 1,000 at an end, %d at 1", ends, high);
}

/* Boxes are in the picture, of the ratios and shares that are asked for. */
static void test_box_draws(void)
{
    int bad = 0, places = 0;
    double share = 0;
    for (int i = 0; i < 5000; i++) {
        lf_draws d = lf_draws_of(3, LF_SITE_AUGMENT, i, 0);
        const struct lf_cutout b = lf_augment_box(&d, (lf_size){60, 40}, 0.25);
        const double ratio = (double)b.w / b.h;
        bad +=
            b.x < 0 || b.y < 0 || b.x + b.w > 60 || b.y + b.h > 40 || ratio < 0.7 || ratio > 1.44;
        share += (double)b.w * b.h / 2400;
        places += b.x > 0 && b.y > 0;
    }
    tap_ok(bad == 0 && places > 2000, "5,000 boxes are in the picture, %d of them not at an edge",
           places);
    tap_ok(share / 5000 > 0.45 && share / 5000 < 0.65, "they have %.3f of the area", share / 5000);
    lf_draws d = lf_draws_of(3, LF_SITE_AUGMENT, 0, 0);
    const struct lf_cutout b = lf_augment_box(&d, (lf_size){100, 3}, 0.99);
    tap_ok(b.w == 4 && b.h == 3 && b.x == 48 && b.y == 0,
           "where none fits, one in the middle: %d x %d at %d, %d", b.w, b.h, b.x, b.y);
}

/* The same sample is changed alike, and another one otherwise. */
static void test_change(const json_t *o)
{
    const struct lf_augment a = {.seed = 9, .flip = true, .ops = 2, .magnitude = 9};
    int alike = 0, other = 0;
    for (int64_t s = 0; s < 50; s++) {
        lf_image im[3];
        for (int k = 0; k < 3; k++) {
            lf_draws d = lf_draws_of(9, LF_SITE_AUGMENT, k < 2 ? s : s + 100, 0);
            picture(&im[k], o);
            if (lf_augment_change(&im[k], &a, &d, &err))
                tap_bail("%s", err.text);
        }
        const size_t n = 3 * (size_t)im[0].w * (size_t)im[0].h;
        alike += memcmp(im[0].rgb, im[1].rgb, n) == 0;
        other += memcmp(im[0].rgb, im[2].rgb, n) != 0;
        for (int k = 0; k < 3; k++)
            lf_image_fini(&im[k]);
    }
    tap_ok(alike == 50 && other > 40, "%d samples again alike, %d others otherwise", alike, other);
    const double want[] = {0,
                           0.09,
                           0.09,
                           150.0 / 331 * 20 * 0.3,
                           150.0 / 331 * 10 * 0.3,
                           9,
                           0.27,
                           0.27,
                           0.27,
                           0.27,
                           7,
                           178.5,
                           0,
                           0};
    bool right = true;
    for (int i = 0; i < LF_AUG_OPS; i++)
        right = right && fabs(lf_augment_magnitude((enum lf_augment_op)i, 9, (lf_size){20, 10}) -
                              want[i]) < 1e-12;
    tap_ok(right, "magnitudes of level 9");
}

/* Of samples 4 r to 4 r + 3 the first two are first views, and what is of second views alone
 * leaves them as they are. */
static void test_views(const json_t *o)
{
    const struct lf_augment second = {.seed = 9, .solarize = {0, 1}},
                            first = {.seed = 9, .blur = {1, 0}},
                            some = {.seed = 9, .jitter = 0.5, .grey = 0.25};
    int wrong = 0, done = 0, changed = 0, without = 0;
    for (int64_t s = 0; s < 200; s++) {
        const struct lf_augment *const all[] = {&second, &first, &some};
        for (int k = 0; k < 3; k++) {
            lf_image im, was;
            lf_draws d = lf_draws_of(9, LF_SITE_AUGMENT, s, 0);
            picture(&im, o);
            picture(&was, o);
            if (lf_augment_change(&im, all[k], &d, &err))
                tap_bail("%s", err.text);
            const int64_t n = 3 * (int64_t)im.w * im.h;
            const bool other = memcmp(im.rgb, was.rgb, (size_t)n) != 0;
            bool grey = true;
            for (int64_t i = 0; i < n; i += 3)
                grey = grey && im.rgb[i] == im.rgb[i + 1] && im.rgb[i] == im.rgb[i + 2];
            wrong += k < 2 && other && s / 2 % 2 == k;
            done += k < 2 && other;
            changed += k == 2 && other;
            without += k == 2 && grey;
            lf_image_fini(&im);
            lf_image_fini(&was);
        }
    }
    tap_ok(wrong == 0 && done > 180, /* the smallest deviations blur nothing */
           "what one view has the other has not: %d wrong, %d of 200 changed", wrong, done);
    tap_ok(changed > 105 && changed < 145 && without > 30 && without < 70,
           "%d of 200 are changed, where 125 are expected, and %d lose their colours", changed,
           without);
}

/* ---- erased and mixed ---- */

enum { P = 2, GH = 4, GW = 6, K = 3 * P * P, ROWS = GH * GW };

static float at(const float *rows, const lf_patches *p, int c, int y, int x)
{
    lf_image im;
    uint8_t one[3 * GH * P * GW * P] = {0};
    static uint8_t cut[ROWS * K];
    im = (lf_image){.rgb = one, .w = GW * P, .h = GH * P};
    one[3 * (y * GW * P + x) + c] = 1; /* where it goes, by what cuts patches */
    lf_patch_rows(cut, &im, p);
    for (int i = 0; i < ROWS * K; i++)
        if (cut[i])
            return rows[i];
    return NAN;
}

static void test_cut(const lf_patches *p)
{
    float a[ROWS * K], b[ROWS * K];
    for (int i = 0; i < ROWS * K; i++) {
        a[i] = (float)i;
        b[i] = (float)(-1 - i);
    }
    const struct lf_class_view x = {a, GH, GW, p}, y = {b, GH, GW, p};
    const struct lf_class_mix m = {.keep = 0.5, .cut = true, .box = {3, 1, 5, 4}};
    lf_class_mix_apply(&m, &x, &y);
    int bad = 0;
    for (int c = 0; c < 3; c++)
        for (int i = 0; i < GH * P; i++)
            for (int j = 0; j < GW * P; j++) {
                const bool in = i >= 1 && i < 5 && j >= 3 && j < 8;
                bad += (at(a, p, c, i, j) < 0) != in || (at(b, p, c, i, j) >= 0) != in;
            }
    tap_ok(bad == 0, "a box is exchanged, order %d, merge %d", p->order, p->merge);
}

static void test_mixes(void)
{
    const lf_patches p = {.side = P, .merge = 1, .times = 1, .order = LF_PATCH_CYX};
    float a[ROWS * K], b[ROWS * K];
    int cuts = 0, bad = 0, erased = 0;
    for (int i = 0; i < 2000; i++) {
        lf_draws d = lf_draws_of(4, LF_SITE_BLEND, i, 0);
        const struct lf_class_mix m = lf_class_mix_of(&d, 0.8, 1, (lf_size){GW * P, GH * P});
        cuts += m.cut;
        bad += m.keep < 0 || m.keep > 1 ||
               (m.cut && (m.box.x < 0 || m.box.y < 0 || m.box.x + m.box.w > GW * P ||
                          m.box.y + m.box.h > GH * P ||
                          fabs(1 - m.keep - (double)m.box.w * m.box.h / (ROWS * P * P)) > 1e-12));
    }
    tap_ok(bad == 0 && cuts > 900 && cuts < 1100, "%d of 2,000 mixtures exchange a box", cuts);
    for (int i = 0; i < ROWS * K; i++) {
        a[i] = 1;
        b[i] = 3;
    }
    const struct lf_class_view x = {a, GH, GW, &p}, y = {b, GH, GW, &p};
    const struct lf_class_mix half = {.keep = 0.75};
    double q[] = {1, 0}, r[] = {0, 1};
    lf_class_mix_apply(&half, &x, &y);
    lf_class_mix_labels(&half, q, r, 2);
    tap_ok(fabsf(a[5] - 1.5f) < 1e-6f && fabsf(b[9] - 2.5f) < 1e-6f && fabs(q[1] - 0.25) < 1e-12 &&
               fabs(r[1] - 0.75) < 1e-12,
           "both are mixed, and their labels");
    int64_t numbers = 0;
    for (int i = 0; i < 200; i++) {
        lf_draws d = lf_draws_of(4, LF_SITE_ERASE, i, 0);
        int64_t n = 0;
        for (int j = 0; j < ROWS * K; j++)
            a[j] = 100;
        lf_class_erase(&x, &d);
        for (int j = 0; j < ROWS * K; j++)
            n += a[j] < 50;
        erased += n > 0 && n % 3 == 0 && n <= ROWS * K / 2;
        numbers += n;
    }
    tap_ok(erased > 195 && numbers / 200 > ROWS * K / 20 && numbers / 200 < ROWS * K / 4,
           "boxes become noise: %lld of %d numbers", (long long)numbers / 200, ROWS * K);
}

int main(void)
{
    json_t *o = media_load("augment.json"), *flat = json_object_get(o, "flat");
    TAP(N_OPS, test_ops(o, json_object_get(o, "ops")));
    TAP(N_FLAT, test_ops(flat, json_object_get(flat, "ops")));
    TAP(N_BOXES + 1, test_boxes(o));
    TAP(N_BLURS + 1, test_blurs(o));
    TAP(2, test_views(o));
    TAP(4, test_draws());
    TAP(1, test_many_draws());
    TAP(1, test_small_alpha());
    TAP(3, test_box_draws());
    TAP(2, test_change(o));
    TAP(1, test_cut(&(lf_patches){.side = P, .merge = 1, .times = 1, .order = LF_PATCH_CYX}));
    TAP(1, test_cut(&(lf_patches){.side = P, .merge = 2, .times = 1, .order = LF_PATCH_CYX}));
    TAP(1, test_cut(&(lf_patches){.side = P, .merge = 1, .times = 1, .order = LF_PATCH_YXC}));
    TAP(3, test_mixes());
    json_decref(o);
    return tap_done();
}

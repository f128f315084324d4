/* SPDX-License-Identifier: Apache-2.0
 *
 * Both manners of resizing. Every loop over pixels adds one weight times consecutive bytes to
 * consecutive sums, which compilers turn into vector code: along rows this is natural, along
 * columns BLOCK rows are first laid side by side.
 */
#include "config.h"

#include "engine/media/resize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"

enum {
    BLOCK = 16,        /* rows resized together along the columns */
    CHUNK = 1024,      /* bytes of a row summed at a time: their sums stay in the first cache */
    PIL_BITS = 22,     /* fraction bits of a weight */
    NARROW_MAX = 32768 /* torchvision's weights are 16-bit integers */
};

/* ---- weights ---- */

static double triangle(double x)
{
    x = fabs(x);
    return x < 1 ? 1 - x : 0;
}

static double cubic(double x)
{
    const double a = -0.5;
    x = fabs(x);
    if (x < 1)
        return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

static double sinc(double x)
{
    return x == 0 ? 1 : sin(x * M_PI) / (x * M_PI);
}

static double lanczos(double x)
{
    return x >= -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0;
}

static const struct {
    double (*f)(double);
    double support;
} filters[] = {
    [LF_BILINEAR] = {triangle, 1}, [LF_BICUBIC] = {cubic, 2}, [LF_LANCZOS] = {lanczos, 3}};

struct axis {
    int32_t out, taps; /* taps: room for each output's weights */
    int32_t *lo, *n;   /* [out]: first input, how many */
    double *real;      /* [out][taps] */
    int32_t *weight;   /* [out][taps], real with `bits` fraction bits */
    int bits;
    bool narrow; /* weights fit into 16 bits */
};

static void axis_fini(struct axis *a)
{
    free(a->lo);
    free(a->n);
    free(a->real);
    free(a->weight);
}

static void fill_real(struct axis *a, int32_t in, enum lf_resize_filter filter)
{
    double scale = (double)in / a->out, fs = scale > 1 ? scale : 1;
    double support = filters[filter].support * fs, inverse = 1 / fs;
    for (int32_t i = 0; i < a->out; i++) {
        double c = (i + 0.5) * scale, sum = 0, *w = a->real + (size_t)i * (size_t)a->taps;
        int64_t lo = (int64_t)(c - support + 0.5), hi = (int64_t)(c + support + 0.5);
        lo = lo > 0 ? lo : 0;
        hi = hi < in ? hi : in;
        a->lo[i] = (int32_t)lo;
        a->n[i] = (int32_t)(hi - lo);
        for (int32_t j = 0; j < a->n[i]; j++) {
            w[j] = filters[filter].f(((double)(lo + j) - c + 0.5) * inverse);
            sum += w[j];
        }
        for (int32_t j = 0; j < a->n[i] && sum != 0; j++)
            w[j] /= sum;
    }
}

static int narrow_bits(const struct axis *a)
{
    double most = 0;
    for (int32_t i = 0; i < a->out; i++)
        for (int32_t j = 0; j < a->n[i]; j++)
            most = fmax(most, a->real[(size_t)i * (size_t)a->taps + (size_t)j]);
    int bits = 0;
    while (bits < PIL_BITS && (int)(0.5 + most * (double)(1 << (bits + 1))) < NARROW_MAX)
        bits++;
    return bits;
}

static int axis_init(struct axis *a, int32_t in, int32_t out, enum lf_resize_filter filter,
                     enum lf_resize_manner manner, lf_err *err)
{
    double fs = in > out ? (double)in / out : 1;
    *a = (struct axis){.out = out, .taps = 2 * (int32_t)ceil(filters[filter].support * fs) + 1};
    size_t n = (size_t)out * (size_t)a->taps;
    a->lo = lf_malloc((size_t)out, sizeof *a->lo, err);
    a->n = lf_malloc((size_t)out, sizeof *a->n, err);
    a->real = lf_calloc(n, sizeof *a->real, err);
    a->weight = lf_malloc(n, sizeof *a->weight, err);
    if (a->lo == NULL || a->n == NULL || a->real == NULL || a->weight == NULL)
        return LF_ENOMEM;
    fill_real(a, in, filter);
    a->narrow = manner == LF_RESIZE_TORCHVISION;
    a->bits = a->narrow ? narrow_bits(a) : PIL_BITS;
    double one = (double)(1 << a->bits);
    for (size_t i = 0; i < n; i++)
        a->weight[i] = (int32_t)(a->real[i] * one + (a->real[i] < 0 ? -0.5 : 0.5));
    return 0;
}

/* ---- sums ---- */

/* Once for each kind of processor: whole numbers are the same on all of them. */
#ifdef HAVE_TARGET_CLONES
#define CLONES __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define CLONES
#endif

/* 16-bit operands let the compiler use the multiplier that every processor has in vector form. */
static inline void add_tap(int32_t *restrict sum, const uint8_t *restrict px, int n, int32_t weight,
                           bool narrow)
{
    if (narrow)
        for (int i = 0; i < n; i++)
            sum[i] += (int16_t)weight * (int16_t)px[i];
    else
        for (int i = 0; i < n; i++)
            sum[i] += weight * px[i];
}

static inline void begin(int32_t *restrict sum, int n, int bits)
{
    int32_t half = bits > 0 ? 1 << (bits - 1) : 0;
    for (int i = 0; i < n; i++)
        sum[i] = half;
}

static inline void finish(uint8_t *restrict px, const int32_t *restrict sum, int n, int bits)
{
    for (int i = 0; i < n; i++) {
        int32_t v = sum[i] >> bits;
        px[i] = (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
    }
}

/* Rows: each output row is a sum of input rows. */
CLONES static void along_rows(uint8_t *dst, const uint8_t *src, size_t stride, const struct axis *a)
{
    int32_t sum[CHUNK];
    for (int32_t y = 0; y < a->out; y++) {
        const int32_t *w = a->weight + (size_t)y * (size_t)a->taps;
        for (size_t at = 0; at < stride; at += CHUNK) {
            int n = (int)(stride - at < CHUNK ? stride - at : CHUNK);
            const uint8_t *from = src + (size_t)a->lo[y] * stride + at;
            begin(sum, n, a->bits);
            for (int32_t j = 0; j < a->n[y]; j++, from += stride)
                add_tap(sum, from, n, w[j], a->narrow);
            finish(dst + (size_t)y * stride + at, sum, n, a->bits);
        }
    }
}

/* Words whose bytes stand in memory from the lowest on: byte j of word i becomes byte i of word j.
 * Each pass exchanges what lies off the diagonal of blocks of 8, 4 and 2 bytes (Warren, Hacker's
 * Delight, 7-3). */
static inline void turn(uint64_t w[8])
{
    for (int i = 0; i < 4; i++) {
        const uint64_t t = (w[i] >> 32 ^ w[i + 4]) & 0x00000000ffffffff;
        w[i + 4] ^= t;
        w[i] ^= t << 32;
    }
    for (int k = 0; k < 4; k++) {
        const int i = k + (k & 2);
        const uint64_t t = (w[i] >> 16 ^ w[i + 2]) & 0x0000ffff0000ffff;
        w[i + 2] ^= t;
        w[i] ^= t << 16;
    }
    for (int i = 0; i < 8; i += 2) {
        const uint64_t t = (w[i] >> 8 ^ w[i + 1]) & 0x00ff00ff00ff00ff;
        w[i + 1] ^= t;
        w[i] ^= t << 8;
    }
}

/* Whole squares of a block, eight columns at a time: how many columns that was. */
static size_t lay_squares(uint8_t *restrict side, const uint8_t *restrict rows, size_t stride)
{
    uint64_t w[8];
    size_t k = 0;
    for (; k + 8 <= stride; k += 8)
        for (size_t r = 0; r < BLOCK; r += 8) {
            for (size_t i = 0; i < 8; i++)
                memcpy(&w[i], rows + (r + i) * stride + k, 8);
            turn(w);
            for (size_t i = 0; i < 8; i++)
                memcpy(side + (k + i) * BLOCK + r, &w[i], 8);
        }
    return k;
}

/* side[column][channel][row of the block] of up to BLOCK rows, and back. */
static void lay_side(uint8_t *restrict side, const uint8_t *restrict rows, size_t stride, int n)
{
    const size_t laid = n == BLOCK ? lay_squares(side, rows, stride) : 0;
    for (int r = 0; r < n; r++)
        for (size_t at = laid; at < stride; at++)
            side[at * BLOCK + (size_t)r] = rows[(size_t)r * stride + at];
}

CLONES static void lay_back(uint8_t *restrict rows, const uint8_t *restrict side, size_t stride,
                            int n)
{
    for (int r = 0; r < n; r++)
        for (size_t k = 0; k < stride; k++)
            rows[(size_t)r * stride + k] = side[k * BLOCK + (size_t)r];
}

CLONES static void block_along_columns(uint8_t *dst, const uint8_t *src, const struct axis *a)
{
    enum { N = 3 * BLOCK };
    int32_t sum[N];
    for (int32_t x = 0; x < a->out; x++) {
        const int32_t *w = a->weight + (size_t)x * (size_t)a->taps;
        const uint8_t *from = src + (size_t)a->lo[x] * N;
        begin(sum, N, a->bits);
        if (a->narrow)
            for (int32_t j = 0; j < a->n[x]; j++, from += N)
                add_tap(sum, from, N, w[j], true);
        else
            for (int32_t j = 0; j < a->n[x]; j++, from += N)
                add_tap(sum, from, N, w[j], false);
        finish(dst + (size_t)x * N, sum, N, a->bits);
    }
}

static int along_columns(lf_image *out, const lf_image *in, const struct axis *a, lf_err *err)
{
    size_t from = 3 * (size_t)in->w, to = 3 * (size_t)a->out;
    uint8_t *side = lf_calloc(from, BLOCK, err), *made = lf_malloc(to, BLOCK, err);
    bool good = side != NULL && made != NULL;
    for (int32_t y = 0; good && y < in->h; y += BLOCK) {
        int n = in->h - y < BLOCK ? in->h - y : BLOCK;
        lay_side(side, in->rgb + (size_t)y * from, from, n);
        block_along_columns(made, side, a);
        lay_back(out->rgb + (size_t)y * to, made, to, n);
    }
    free(side);
    free(made);
    return good ? 0 : LF_ENOMEM;
}

/* ---- the picture ---- */

struct way {
    enum lf_resize_filter filter;
    enum lf_resize_manner manner;
};

/* One axis of `in`. */
static int resize_axis(lf_image *out, const lf_image *in, bool columns, int32_t to,
                       const struct way *way, lf_err *err)
{
    static const uint8_t black[3] = {0};
    struct axis a;
    int rc = lf_image_create(out, columns ? to : in->w, columns ? in->h : to, black, err);
    if (rc < 0)
        return rc;
    rc = axis_init(&a, columns ? in->w : in->h, to, way->filter, way->manner, err);
    if (rc == 0 && columns)
        rc = along_columns(out, in, &a, err);
    else if (rc == 0)
        along_rows(out->rgb, in->rgb, 3 * (size_t)in->w, &a);
    axis_fini(&a);
    if (rc < 0)
        lf_image_fini(out);
    return rc;
}

static int copy(lf_image *out, const lf_image *in, lf_err *err)
{
    static const uint8_t black[3] = {0};
    int rc = lf_image_create(out, in->w, in->h, black, err);
    if (rc == 0)
        memcpy(out->rgb, in->rgb, 3 * (size_t)in->w * (size_t)in->h);
    return rc;
}

int lf_resize(lf_image *out, const lf_image *in, int32_t w, int32_t h, enum lf_resize_filter filter,
              enum lf_resize_manner manner, lf_err *err)
{
    const struct way way = {filter, manner};
    bool rows_first = manner == LF_RESIZE_PIL && in->h > 100 * (int64_t)in->w && h < in->h;
    lf_image now = {0}, next = {0};
    int rc = 0;
    for (int pass = 0; rc == 0 && pass < 2; pass++) {
        const lf_image *from = now.rgb != NULL ? &now : in;
        bool columns = (pass == 0) != rows_first;
        if ((columns ? from->w : from->h) == (columns ? w : h))
            continue;
        rc = resize_axis(&next, from, columns, columns ? w : h, &way, err);
        lf_image_fini(&now);
        if (rc == 0)
            now = next;
    }
    if (rc == 0 && now.rgb == NULL)
        rc = copy(&now, in, err);
    if (rc < 0)
        return rc;
    *out = *in; /* what else is known of the picture */
    out->rgb = now.rgb;
    out->w = now.w;
    out->h = now.h;
    return 0;
}

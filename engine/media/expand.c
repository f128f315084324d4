/* SPDX-License-Identifier: Apache-2.0
 *
 * How many placeholders a picture has, and the text that stands for its mark.
 */
#include "config.h"

#include "engine/media/expand.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- how many ---- */

/* Python's int(round(x, 7)) of a number that is not negative: the digits before the point of the
 * nearest number with seven places. */
static int64_t round7(double x)
{
    char text[400];
    snprintf(text, sizeof text, "%.7f", x);
    return strtoll(text, NULL, 10);
}

/* Python's a // b of positive numbers. */
static int64_t floor_div(double a, double b)
{
    double q = (a - fmod(a, b)) / b, f = floor(q);
    return (int64_t)(q - f > 0.5 ? f + 1 : f);
}

/* The features of the tiles without the borders that make the picture fit them, and a line end for
 * each of their rows; a tile has h x w features. */
static int64_t unpadded(const lf_expand *e, const lf_pixels *x, int64_t h, int64_t w)
{
    int64_t ch = h * x->layout.h, cw = w * x->layout.w;
    const double from_h = x->from.h, from_w = x->from.w;
    if (from_w / from_h > (double)cw / (double)ch)
        ch -= (ch - round7(from_h * ((double)cw / from_w))) / 2 * 2;
    else
        cw -= (cw - round7(from_w * ((double)ch / from_h))) / 2 * 2;
    if (e->kind != LF_EXPAND_ONEVISION)
        return ch * cw + ch;
    double ratio = sqrt((double)(ch * cw) / (double)(e->max_ratio * h * h));
    if (!(ratio > 1.1))
        return ch * cw + ch;
    int64_t rows = floor_div((double)ch, ratio);
    return rows * floor_div((double)cw, ratio) + rows;
}

static int64_t count_onevision(const lf_expand *e, const lf_pixels *x, bool alone)
{
    int64_t side = (int64_t)sqrt((double)e->seq_length);
    if (!alone)
        return (int64_t)e->seq_length + 1 - e->drop_first;
    return e->seq_length + unpadded(e, x, side, side) - e->drop_first;
}

int64_t lf_expand_count(const lf_expand *e, const lf_processor *p, const lf_pixels *x, bool alone)
{
    const int64_t patches = (int64_t)x->grid_h * x->grid_w, m = p->patches.merge;
    switch (e->kind) {
    case LF_EXPAND_LLAVA:
        return patches + e->additional - e->drop_first;
    case LF_EXPAND_LLAVA_NEXT:
        return patches + e->additional + unpadded(e, x, x->grid_h, x->grid_w) - e->drop_first;
    case LF_EXPAND_ONEVISION:
        return count_onevision(e, x, alone);
    case LF_EXPAND_QWEN:
        return patches / (m * m);
    case LF_EXPAND_PIXTRAL:
        return patches / (m * m);
    case LF_EXPAND_INTERNVL:
    case LF_EXPAND_GEMMA3:
    case LF_EXPAND_IDEFICS3:
        return (int64_t)e->seq_length * x->tiles;
    case LF_EXPAND_PALIGEMMA:
        return e->seq_length;
    case LF_EXPAND_BESIDE:
        return 0;
    }
    LF_BUG("placeholders of kind %d", (int)e->kind);
}

lf_expand_picture lf_expand_measure(const lf_expand *e, const lf_processor *p, const lf_pixels *x,
                                    bool alone)
{
    const int32_t m = p->patches.merge;
    return (lf_expand_picture){
        lf_expand_count(e, p, x, alone), x->tiles,
        e->kind == LF_EXPAND_PIXTRAL ? (lf_size){x->grid_w / m, x->grid_h / m} : x->layout};
}

bool lf_expand_apart(const lf_expand *e)
{
    return e->kind == LF_EXPAND_IDEFICS3 || e->kind == LF_EXPAND_PIXTRAL;
}

/* ---- the text ---- */

const char *lf_expand_mark(const lf_expand *e)
{
    return e->kind == LF_EXPAND_GEMMA3 ? e->begin : e->image_token;
}

static void add_tokens(lf_buf *out, const lf_expand *e, int64_t n)
{
    for (int64_t i = 0; i < n && !out->failed; i++)
        lf_buf_adds(out, e->image_token);
}

static void add_run(lf_buf *out, const lf_expand *e, int64_t n)
{
    lf_buf_adds(out, e->begin);
    add_tokens(out, e, n);
    lf_buf_adds(out, e->end);
}

/* The tiles by their rows and columns, then all of the picture, between fake tokens. */
static void add_idefics3(lf_buf *out, const lf_expand *e, const lf_expand_picture *v)
{
    const int64_t n = v->count / v->tiles;
    for (int32_t i = 0; i < v->layout.h; i++) {
        for (int32_t k = 0; k < v->layout.w; k++) {
            lf_buf_addf(out, "%s<row_%d_col_%d>", e->begin, i + 1, k + 1);
            add_tokens(out, e, n);
        }
        lf_buf_adds(out, "\n");
    }
    lf_buf_addf(out, "%s%s%s", v->layout.h > 0 ? "\n" : "", e->begin, e->end);
    add_tokens(out, e, n);
    lf_buf_adds(out, e->begin);
}

static void add_pixtral(lf_buf *out, const lf_expand *e, const lf_expand_picture *v)
{
    for (int32_t i = 0; i < v->layout.h; i++) {
        add_tokens(out, e, v->layout.w);
        lf_buf_adds(out, i + 1 < v->layout.h ? e->begin : e->end);
    }
}

static void add_gemma3(lf_buf *out, const lf_expand *e, const lf_expand_picture *v)
{
    const int64_t n = v->count / v->tiles;
    for (int32_t i = 0; i < v->tiles; i++) {
        if (v->tiles > 1)
            lf_buf_adds(out, i == 0   ? "Here is the original image "
                             : i == 1 ? " and here are some crops to help you see better "
                                      : " ");
        lf_buf_adds(out, "\n\n");
        add_run(out, e, n);
        lf_buf_adds(out, "\n\n");
    }
}

/* What stands for a mark. */
static void add_picture(lf_buf *out, const lf_expand *e, const lf_expand_picture *v)
{
    switch (e->kind) {
    case LF_EXPAND_GEMMA3:
        add_gemma3(out, e, v);
        break;
    case LF_EXPAND_IDEFICS3:
        add_idefics3(out, e, v);
        break;
    case LF_EXPAND_PIXTRAL:
        add_pixtral(out, e, v);
        break;
    default:
        add_run(out, e, v->count);
    }
}

static size_t count_marks(const char *text, size_t len, const char *mark)
{
    const char *at = text, *end = text + len;
    size_t n = 0, m = strlen(mark);
    while ((at = memmem(at, (size_t)(end - at), mark, m)) != NULL) {
        at += m;
        n++;
    }
    return n;
}

static int check_marks(const lf_expand *e, const lf_buf *text, size_t n, bool part, lf_err *err)
{
    const size_t marks = count_marks(text->data, text->len, lf_expand_mark(e));
    if (marks == n || (part && marks < n) || (lf_expand_beside(e) && !marks))
        return 0;
    return lf_fail(err, LF_EFORMAT,
                   "the text has the mark of a picture (%s) %zu times for %zu picture%s%s",
                   lf_expand_mark(e), marks, n, n == 1 ? "" : "s",
                   marks == 0 ? "; does the chat template write it?" : "");
}

/* PaliGemma: BOS between the last picture and the prompt, and a line end behind it. */
static void close_prompt(const lf_expand *e, lf_buf *out, size_t last)
{
    lf_buf rest;
    lf_buf_init(&rest);
    lf_buf_add(&rest, out->data + last, out->len - last);
    out->data[out->len = last] = 0;
    lf_buf_adds(out, e->bos);
    lf_buf_add(out, rest.data, rest.len);
    lf_buf_adds(out, "\n");
    out->failed = out->failed || rest.failed;
    lf_buf_fini(&rest);
}

static void replace(const lf_expand *e, const lf_expand_picture *v, const lf_buf *text, lf_buf *out,
                    const struct lf_expand_places *places)
{
    const char *mark = lf_expand_mark(e), *at = text->data, *end = text->data + text->len, *next;
    const size_t m = strlen(mark), n = places ? places->n : 0;
    size_t p = 0, last = 0;
    for (; (next = memmem(at, (size_t)(end - at), mark, m)) != NULL; at = next + m) {
        for (; p < n && places->v[p] <= (size_t)(next - text->data); p++)
            places->v[p] += out->len - (size_t)(at - text->data);
        lf_buf_add(out, at, (size_t)(next - at));
        const size_t before = out->len;
        add_picture(out, e, v);
        v++;
        last = out->len;
        /* inside of a mark: to its beginning */
        for (; p < n && places->v[p] < (size_t)(next - text->data) + m; p++)
            places->v[p] = before;
    }
    for (; p < n; p++)
        places->v[p] += out->len - (size_t)(at - text->data);
    lf_buf_add(out, at, (size_t)(end - at));
    if (e->kind == LF_EXPAND_PALIGEMMA && last > 0 && !(places && places->part))
        close_prompt(e, out, last);
}

int lf_expand_text(const lf_expand *e, const lf_expand_picture *v, size_t n, lf_buf *text,
                   const struct lf_expand_places *places, lf_err *err)
{
    lf_buf out;
    int rc = check_marks(e, text, n, places && places->part, err);
    if (rc < 0 || n == 0)
        return rc;
    lf_buf_init(&out);
    replace(e, v, text, &out, places);
    rc = lf_buf_check(&out, err);
    if (rc == 0) {
        lf_buf old = *text;
        *text = out;
        out = old;
    }
    lf_buf_fini(&out);
    return rc;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrices behind each other that are turned one by one (map.h, blocks): every run of elements of
 * either side, whatever blocks it begins and ends in, is that of the whole. Conversions move larger
 * pieces than any tensor of the golden files has. */
#include <string.h>

#include "engine/convert/move.h"
#include "tests/tap/tap.h"

enum { BLOCKS = 3, ROWS = 2, COLS = 5, ALL = 2 * ROWS };
static float ours[2][BLOCKS][ROWS][COLS], outside[BLOCKS][COLS][ALL];

static void fill(void)
{
    for (int b = 0; b < BLOCKS; b++)
        for (int c = 0; c < COLS; c++)
            for (int r = 0; r < ALL; r++)
                outside[b][c][r] = ours[r / ROWS][b][r % ROWS][c] =
                    (float)(100 * b + 10 * c + r + 1);
}

static enum lf_st_dtype dtype(void *ctx, int src)
{
    (void)ctx;
    (void)src;
    return LF_ST_F32;
}

/* ctx: the tensors of the source one after the other, each of `each` elements. */
struct source {
    const float *data;
    int64_t each;
};

static int read_source(void *ctx, int src, int64_t first, int64_t n, void *dst, lf_err *err)
{
    const struct source *s = ctx;
    if (first < 0 || first + n > s->each)
        return lf_fail(err, LF_EINVAL, "elements %lld to %lld", (long long)first,
                       (long long)(first + n));
    memcpy(dst, s->data + src * s->each + first, (size_t)n * sizeof *s->data);
    return 0;
}

/* How many runs of the tensor differ from `want`. */
static int differing(struct lf_move *m, const float *want, int64_t n)
{
    float got[BLOCKS * COLS * ALL];
    lf_err err = LF_ERR_INIT;
    int bad = 0;
    for (int64_t first = 0; first < n; first++)
        for (int64_t k = 1; first + k <= n; k++)
            bad += lf_move_block(m, first, k, got, &err) != 0 ||
                   memcmp(got, want + first, (size_t)k * sizeof *got) != 0;
    return bad;
}

static void test_import(void)
{
    struct source s = {&outside[0][0][0], BLOCKS * COLS * ALL};
    const struct lf_move_source from = {&s, dtype, read_source};
    for (int i = 0; i < 2; i++) {
        struct lf_map_seg seg = {0, ROWS, 0, i * ROWS};
        const struct lf_map_parts parts = {
            .segs = &seg, .n = 1, .turned = true, .blocks = {BLOCKS, ROWS, COLS, ALL}};
        struct lf_move m = {.from = &from,
                            .parts = &parts,
                            .rows = BLOCKS * ROWS,
                            .width = COLS,
                            .src_width = ALL,
                            .dtype = LF_ST_F32};
        tap_i64(differing(&m, &ours[i][0][0][0], BLOCKS * ROWS * COLS), 0,
                "blocks of ours, each turned from a part of an outside block");
    }
}

static void test_export(void)
{
    struct source s = {&ours[0][0][0][0], BLOCKS * ROWS * COLS};
    const struct lf_move_source from = {&s, dtype, read_source};
    struct lf_map_seg seg[] = {{0, ROWS, 0, 0}, {ROWS, ROWS, 1, 0}};
    const struct lf_map_parts parts = {
        .segs = seg, .n = 2, .turned = true, .blocks = {BLOCKS, COLS, ALL, COLS}};
    struct lf_move m = {.from = &from,
                        .parts = &parts,
                        .cut_columns = true,
                        .rows = BLOCKS * COLS,
                        .width = ALL,
                        .src_width = COLS,
                        .dtype = LF_ST_F32};
    tap_i64(differing(&m, &outside[0][0][0], BLOCKS * COLS * ALL), 0,
            "outside blocks, each of two of ours turned");
}

int main(void)
{
    fill();
    TAP(2, test_import());
    TAP(1, test_export());
    return tap_done();
}

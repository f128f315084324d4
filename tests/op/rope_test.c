/* SPDX-License-Identifier: Apache-2.0
 *
 * rope against its formula in f64: in place, back again, two and three positions, positions beyond
 * the tables; threads bit for bit. heads_join and heads_split: every channel. kv_write: every row
 * in its slot, everything else untouched. Rows with gaps that no vector can start on, and rows
 * without.
 */
#include "config.h"

#include "tests/op/op_test.h"

static lf_queue *queue[4];

static double *doubles(int64_t n)
{
    return calloc((size_t)n + 1, sizeof(double));
}

struct rcase {
    int64_t rows, heads, d, rot, gap;
    bool interleaved;
    int64_t at; /* the first channel that turns */
};
static const struct rcase rcases[] = {
    {0, 1, 4, 4, 3, false, 0},   {3, 2, 10, 6, 3, false, 0},    {5, 3, 64, 64, 3, false, 0},
    {5, 2, 70, 34, 3, true, 0},  {9, 1, 16, 16, 3, true, 0},    {400, 4, 80, 80, 3, false, 0},
    {7, 2, 6, 2, 3, true, 0},    {5, 3, 64, 48, 8, false, 0},   {6, 2, 40, 24, 8, true, 0},
    {4, 2, 32, 32, 0, true, 0},  {9, 2, 128, 128, 8, false, 0}, {7, 3, 10, 4, 3, true, 6},
    {5, 2, 96, 32, 8, true, 64}, {5, 2, 48, 16, 8, false, 16},  {4, 2, 12, 6, 1, false, 2}};

static void test_rope(const struct lf_kernels *k, const struct rcase *e, int type)
{
    enum { POS = 50 };
    const int64_t half = e->rot / 2, w = e->heads * e->d, ld = w + e->gap, n = e->rows * ld;
    struct op_buf x = op_random(n, type, 1, 2.0), cs = op_alloc((size_t)(POS * half) * 4),
                  sn = op_alloc((size_t)(POS * half) * 4), pos = op_alloc((size_t)e->rows * 4),
                  y[4];
    double *want = doubles(n);
    for (int64_t i = 0; i < POS * half; i++) {
        double angle = (double)(i / half) * pow(10000, -(double)(i % half) / (double)half);
        op_set(cs.p, i, LF_F32, cos(angle));
        op_set(sn.p, i, LF_F32, sin(angle));
    }
    for (int64_t r = 0; r < e->rows; r++) {
        int64_t p = r * 7 % POS;
        ((int32_t *)pos.p)[r] = (int32_t)p;
        for (int64_t h = 0; h < e->heads; h++)
            for (int64_t c = 0; c < e->d; c++) {
                const int64_t at = r * ld + h * e->d, u = c - e->at; /* which that turns */
                int64_t i = e->interleaved ? u / 2 : u % (half ? half : 1);
                bool first = e->interleaved ? u % 2 == 0 : u < half;
                double own = op_get(x.p, at + c, type);
                want[at + c] = own;
                if (u >= 0 && u < e->rot) {
                    int64_t other = e->at + (e->interleaved ? u ^ 1 : first ? u + half : u - half);
                    double co = op_get(cs.p, p * half + i, LF_F32),
                           si = op_get(sn.p, p * half + i, LF_F32),
                           o = op_get(x.p, at + other, type);
                    want[at + c] = first ? own * co - o * si : own * co + o * si;
                }
            }
    }
    bool same = true;
    struct lf_k_rope a = {.rows = e->rows,
                          .heads = e->heads,
                          .d = e->d,
                          .first = e->at,
                          .rot = e->rot,
                          .max_pos = POS,
                          .x = x.p,
                          .ldx = ld,
                          .ldy = ld,
                          .position = pos.p,
                          .cos = cs.p,
                          .sin = sn.p,
                          .interleaved = e->interleaved,
                          .x_type = (uint8_t)type};
    for (int t = 1; t <= 3; t++) {
        y[t] = op_alloc((size_t)n * lf_dtype_size((enum lf_dtype)type));
        a.y = y[t].p;
        same = same && k->rope.check(&a) == 0 && k->rope.run(queue[t], &a) == 0 &&
               memcmp(y[1].p, y[t].p, y[1].bytes) == 0 && op_guards_intact(&y[t]);
    }
    tap_ok(same, "rope: same bits with 1 to 3 threads, %s", k->family);
    for (int64_t r = 0; r < e->rows; r++)
        for (int64_t g = w; g < ld; g++)
            op_set(y[1].p, r * ld + g, type, want[r * ld + g] = 0); /* gaps are not compared */
    op_ok(op_compare(y[1].p, type, want, NULL, n, 4e-7), "rope");
    if (n > 1)
        op_prove(y[1].p, type, want, NULL, n, 4e-7, 1);
    a.y = x.p; /* in place, and back */
    k->rope.run(queue[1], &a);
    bool in_place = true;
    for (int64_t i = 0; i < n; i++)
        in_place = in_place && (i % ld >= w || op_get(x.p, i, type) == op_get(y[1].p, i, type));
    tap_ok(in_place, "rope in place");
    struct op_buf orig = op_random(n, type, 1, 2.0);
    a.inverse = true;
    k->rope.run(queue[2], &a);
    double worst = 0;
    for (int64_t i = 0; i < n; i++)
        worst = i % ld >= w
                    ? worst
                    : tap_worse(worst, fabs(op_get(x.p, i, type) - op_get(orig.p, i, type)));
    tap_ok(worst <= (type == LF_BF16  ? 0.03
                     : type == LF_F16 ? 0.004
                                      : 2e-6),
           "inverse rope takes it back (error %.2g)", worst);
    op_free(&orig);
    if (e->rows > 0) {
        ((int32_t *)pos.p)[0] = POS;
        k->rope.run(queue[1], &a);
        tap_ok(isnan(op_get(x.p, e->at, type)), "a position beyond the tables gives NaN");
    }
    for (int t = 1; t <= 3; t++)
        op_free(&y[t]);
    op_free(&x);
    op_free(&cs);
    op_free(&sn);
    op_free(&pos);
    free(want);
}

/* Two positions: as two calls, each over every second head with a row distance that skips the
 * others. */
static void test_rope_2d(const struct lf_kernels *k, int type)
{
    enum { R = 9, H = 3, D = 10, POS = 12 };
    const size_t size = lf_dtype_size((enum lf_dtype)type);
    struct op_buf x = op_random(R * 2 * H * D, type, 1, 2.0),
                  cs = op_random(POS * D / 2, LF_F32, 2, 1.0),
                  sn = op_random(POS * D / 2, LF_F32, 3, 1.0), y = op_alloc(x.bytes),
                  z = op_alloc(x.bytes), pos = op_alloc(2 * R * sizeof(int32_t));
    int32_t *first = pos.p, *second = first + R;
    for (int r = 0; r < R; r++) {
        first[r] = r;
        second[r] = (r * 5 + 3) % POS;
    }
    struct lf_k_rope a = {.rows = R,
                          .heads = 2 * H,
                          .d = D,
                          .rot = D,
                          .max_pos = POS,
                          .x = x.p,
                          .y = y.p,
                          .ldx = 2 * H * D,
                          .ldy = 2 * H * D,
                          .position = first,
                          .position2 = second,
                          .cos = cs.p,
                          .sin = sn.p,
                          .x_type = (uint8_t)type};
    bool ok = k->rope.check(&a) == 0 && k->rope.run(queue[2], &a) == 0;
    a.position2 = NULL;
    a.heads = 1;
    for (int h = 0; h < 2 * H; h++) {
        a.position = h % 2 ? second : first;
        a.x = (char *)x.p + (size_t)(h * D) * size;
        a.y = (char *)z.p + (size_t)(h * D) * size;
        ok = ok && k->rope.run(queue[1], &a) == 0;
    }
    tap_ok(ok && memcmp(y.p, z.p, x.bytes) == 0,
           "rope: heads of odd number turn by the second position, %s", k->family);
    struct op_buf *b[] = {&x, &cs, &sn, &y, &z, &pos};
    for (size_t i = 0; i < 6; i++)
        op_free(b[i]);
}

/* Three positions: each pair has the bits of a call in which all pairs turn by the one of its
 * axis. */
static void test_rope_axes(const struct lf_kernels *k, int type, int64_t d, int64_t rot,
                           bool interleaved)
{
    enum { R = 9, H = 3, POS = 12 };
    const int64_t half = rot / 2, w = H * d;
    const size_t size = lf_dtype_size((enum lf_dtype)type);
    struct op_buf x = op_random(R * w, type, 1, 2.0), cs = op_random(POS * half, LF_F32, 2, 1.0),
                  sn = op_random(POS * half, LF_F32, 3, 1.0), y[4], z[3],
                  index = op_alloc((size_t)(6 * R + half) * sizeof(int32_t));
    int32_t *three = index.p, *one = three + 3 * R, *axis = one + 3 * R;
    for (int i = 0; i < 3 * R; i++) {
        three[i] = (i * 5 + 3) % POS;
        one[i % 3 * R + i / 3] = three[i];
    }
    for (int64_t i = 0; i < half; i++)
        axis[i] = (int32_t)(i * 7 % 3);
    struct lf_k_rope a = {.rows = R,
                          .heads = H,
                          .d = d,
                          .rot = rot,
                          .max_pos = POS,
                          .x = x.p,
                          .ldx = w,
                          .ldy = w,
                          .position = three,
                          .axis = axis,
                          .cos = cs.p,
                          .sin = sn.p,
                          .interleaved = interleaved,
                          .x_type = (uint8_t)type};
    bool ok = k->rope.check(&a) == 0;
    for (int t = 1; t <= 3; t++) {
        y[t] = op_alloc(x.bytes);
        a.y = y[t].p;
        ok = ok && k->rope.run(queue[t], &a) == 0 && memcmp(y[1].p, y[t].p, x.bytes) == 0;
    }
    tap_ok(ok, "rope by axes: same bits with 1 to 3 threads, %s", k->family);
    a.axis = NULL;
    for (int m = 0; m < 3; m++) {
        z[m] = op_alloc(x.bytes);
        a.position = one + m * R;
        a.y = z[m].p;
        ok = ok && k->rope.run(queue[1], &a) == 0;
    }
    int wrong = 0;
    for (int64_t i = 0; i < R * w; i++) {
        const int64_t c = i % d, pair = interleaved ? c / 2 : c % half;
        const char *want = (char *)z[c < rot ? axis[pair] : 0].p;
        wrong += memcmp((char *)y[1].p + (size_t)i * size, want + (size_t)i * size, size) != 0;
    }
    tap_ok(ok && wrong == 0, "each pair turns by its axis (%d elements do not)", wrong);
    a.axis = axis;
    a.position = three;
    a.x = y[2].p;
    a.y = y[1].p;
    three[2] = POS;
    ok = k->rope.run(queue[1], &a) == 0;
    tap_ok(ok && isnan(op_get(y[1].p, 0, type)) && !isnan(op_get(y[1].p, w, type)),
           "one of three positions beyond the tables gives NaN, in its row");
    a.position2 = one;
    tap_ok(k->rope.check(&a) != 0, "axes and a second position are refused");
    for (int t = 1; t <= 3; t++)
        op_free(&y[t]);
    for (int m = 0; m < 3; m++)
        op_free(&z[m]);
    struct op_buf *b[] = {&x, &cs, &sn, &index};
    for (size_t i = 0; i < 4; i++)
        op_free(b[i]);
}

/* Heads of a channels of their own and b that all share, there and back. */
static void test_heads(const struct lf_kernels *k, int type, int64_t heads, int64_t a, int64_t b,
                       int64_t gap)
{
    enum { R = 6 };
    const int64_t wide = a + b, ldx = heads * a + gap, ldz = b + gap, ldy = heads * wide + gap;
    const size_t size = lf_dtype_size((enum lf_dtype)type);
    struct op_buf x = op_random(R * ldx, type, 1, 2.0), z = op_random(R * ldz, type, 2, 2.0),
                  y[2] = {op_alloc((size_t)(R * ldy) * size), op_alloc((size_t)(R * ldy) * size)},
                  dy = op_random(R * ldy, type, 3, 2.0), dx = op_alloc(x.bytes),
                  dz[2] = {op_alloc(z.bytes), op_alloc(z.bytes)};
    struct lf_k_heads_join f = {.rows = R,
                                .heads = heads,
                                .a = a,
                                .b = b,
                                .ldx = ldx,
                                .ldz = ldz,
                                .ldy = ldy,
                                .x = x.p,
                                .z = z.p,
                                .x_type = (uint8_t)type};
    struct lf_k_heads_split g = {.rows = R,
                                 .heads = heads,
                                 .a = a,
                                 .b = b,
                                 .lddy = ldy,
                                 .lddx = ldx,
                                 .lddz = ldz,
                                 .dy = dy.p,
                                 .dx = dx.p,
                                 .x_type = (uint8_t)type};
    bool ok = k->heads_join.check(&f) == 0 && k->heads_split.check(&g) == 0;
    for (int t = 0; t < 2; t++) {
        f.y = y[t].p;
        g.dz = dz[t].p;
        ok = ok && k->heads_join.run(queue[1 + 2 * t], &f) == 0 &&
             k->heads_split.run(queue[1 + 2 * t], &g) == 0;
    }
    ok =
        ok && memcmp(y[0].p, y[1].p, y[0].bytes) == 0 && memcmp(dz[0].p, dz[1].p, dz[0].bytes) == 0;
    double *want = doubles(R * b), *limit = doubles(R * b);
    for (int64_t r = 0; r < R; r++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t c = 0; c < wide; c++) {
                const int64_t to = r * ldy + h * wide + c, own = r * ldx + h * a + c,
                              all = r * ldz + c - a, sum = r * b + c - a;
                ok = ok && op_get(y[0].p, to, type) ==
                               (c < a ? op_get(x.p, own, type) : op_get(z.p, all, type));
                ok = ok && (c >= a || op_get(dx.p, own, type) == op_get(dy.p, to, type));
                if (c >= a) {
                    want[sum] += op_get(dy.p, to, type);
                    limit[sum] += fabs(op_get(dy.p, to, type));
                }
            }
    tap_ok(ok && op_guards_intact(&y[0]) && op_guards_intact(&dx) && op_guards_intact(&dz[0]),
           "heads_join, heads_split, %lld heads of %lld and %lld, gap %lld: %s", (long long)heads,
           (long long)a, (long long)b, (long long)gap, k->family);
    double most = 0, planted = 0;
    for (int64_t i = 0; i < R * b; i++) {
        const double got = op_get(dz[0].p, i / b * ldz + i % b, type),
                     bound = limit[i] * (type == LF_F32    ? 1e-6
                                         : type == LF_BF16 ? 1.0 / 256
                                                           : 1.0 / 2048);
        most = tap_worse(most, fabs(got - want[i]) / bound);
        planted = tap_worse(planted, fabs(got * 1.02 - want[i]) / bound);
    }
    tap_ok(most <= 1 && planted > 1, "and the sum over heads: error / limit %.3f", most);
    f.ldy = heads * wide - 1;
    g.lddx = heads * a - 1;
    tap_ok(k->heads_join.check(&f) != 0 && k->heads_split.check(&g) != 0,
           "rows that are too short are refused");
    struct op_buf *all[] = {&x, &z, &y[0], &y[1], &dy, &dx, &dz[0], &dz[1]};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        op_free(all[i]);
    free(want);
    free(limit);
}

/* Rows of two sequences and one skipped row, over shuffled pages. */
static void test_kv_write(const struct lf_kernels *k, int type, int64_t d, int64_t e, int64_t gap)
{
    enum { R = 7, G = 3, PAGE = 64, PAGES = 4 };
    const int64_t ldk = G * d + gap, ldv = G * e + gap;
    const size_t size = lf_dtype_size((enum lf_dtype)type), row = (size_t)(G * d) * size,
                 vrow = (size_t)(G * e) * size;
    static const int32_t where[3][R] = {
        {1, 0, -1, 1, 0, 0, 1}, {0, 127, 5, 64, 3, 63, 63}, {2, 0, 3, 1}};
    struct op_buf kk = op_random(R * ldk, type, 1, 2.0), v = op_random(R * ldv, type, 2, 2.0),
                  at = op_alloc(sizeof where), kp = op_alloc(PAGES * PAGE * row),
                  vp = op_alloc(PAGES * PAGE * vrow);
    memcpy(at.p, where, sizeof where);
    const int32_t *seq = at.p, *pos = seq + R, *table = pos + R;
    struct lf_k_kv_write a = {.rows = R,
                              .groups = G,
                              .d = d,
                              .d_value = e,
                              .page_tokens = PAGE,
                              .max_pages = 2,
                              .k = kk.p,
                              .v = v.p,
                              .ldk = ldk,
                              .ldv = ldv,
                              .k_pages = kp.p,
                              .v_pages = vp.p,
                              .seq = seq,
                              .pos = pos,
                              .table = table,
                              .x_type = (uint8_t)type};
    bool ok = k->kv_write.check(&a) == 0 && k->kv_write.run(queue[2], &a) == 0;
    int64_t written = 0;
    for (int64_t slot = 0; slot < PAGES * PAGE; slot++) {
        const unsigned char *ks = (unsigned char *)kp.p + (size_t)slot * row,
                            *vs = (unsigned char *)vp.p + (size_t)slot * vrow;
        int64_t from = -1;
        for (int64_t r = 0; r < R; r++)
            if (seq[r] >= 0 && table[seq[r] * 2 + pos[r] / PAGE] * PAGE + pos[r] % PAGE == slot)
                from = r;
        written += from >= 0;
        for (size_t i = 0; from < 0 && i < row; i++)
            ok = ok && ks[i] == 0xA5;
        for (size_t i = 0; from < 0 && i < vrow; i++)
            ok = ok && vs[i] == 0xA5;
        ok = ok && (from < 0 || (memcmp(ks, (char *)kk.p + (size_t)(from * ldk) * size, row) == 0 &&
                                 memcmp(vs, (char *)v.p + (size_t)(from * ldv) * size, vrow) == 0));
    }
    tap_ok(ok && written == R - 1 && op_guards_intact(&kp) && op_guards_intact(&vp),
           "kv_write, keys of %lld, values of %lld, gap %lld", (long long)d, (long long)e,
           (long long)gap);
    struct op_buf *b[] = {&kk, &v, &at, &kp, &vp};
    for (size_t i = 0; i < 5; i++)
        op_free(b[i]);
}

int main(void)
{
    for (int t = 1; t <= 3; t++)
        queue[t] = op_queue_create(t);
    for (int i = 0; i < OP_BACKENDS; i++) {
        const struct lf_kernels *k = op_kernels(i);
        for (int type = LF_F32; k && type <= OP_LAST_FLOAT; type++) {
            TAP(1, test_rope_2d(k, type));
            TAP(4, test_rope_axes(k, type, 72, 72, false));
            TAP(4, test_rope_axes(k, type, 16, 16, true));
            TAP(4, test_rope_axes(k, type, 10, 6, false));
            TAP(1, test_kv_write(k, type, 16, 16, 8));
            TAP(1, test_kv_write(k, type, 6, 6, 3));
            TAP(1, test_kv_write(k, type, 10, 5, 3));
            TAP(3, test_heads(k, type, 3, 6, 4, 3));
            TAP(3, test_heads(k, type, 4, 40, 24, 8));
            TAP(3, test_heads(k, type, 1, 5, 17, 0));
            for (size_t n = 0; n < sizeof rcases / sizeof *rcases; n++)
                TAP(rcases[n].rows > 0 ? 6 : 4, test_rope(k, &rcases[n], type));
        }
    }
    for (int t = 1; t <= 3; t++)
        op_queue_destroy(queue[t]);
    return tap_done();
}

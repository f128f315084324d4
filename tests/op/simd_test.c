/* SPDX-License-Identifier: Apache-2.0
 *
 * kernels/cpu/simd.h, compiled once per instruction set: accuracy of exp, tanh and erf against libm
 * in double, special values, lane independence, bf16 rounding, masked tails, horizontal sums.
 */
#include "config.h"

#include "kernels/cpu/simd.h"
#include "tests/op/op_test.h"

enum which { EXP, TANH, ERF };

static lf_v eval(enum which w, lf_v x)
{
    return w == EXP ? lf_v_exp(x) : w == TANH ? lf_v_tanh(x) : lf_v_erf(x);
}
static double ref(enum which w, double x)
{
    return w == EXP ? exp(x) : w == TANH ? tanh(x) : erf(x);
}

static double ulp(double y)
{
    int e;
    frexp(y, &e);
    return ldexp(1.0, (e < -125 ? -125 : e) - 24);
}

static void accuracy(enum which w, const char *name, double lo, double hi)
{
    double worst = 0, at = 0;
    float x[LF_VL], y[LF_VL];
    for (int64_t i = 0; i < 400000; i += LF_VL) {
        for (int l = 0; l < LF_VL; l++)
            x[l] = (float)(lo + (hi - lo) * 0.5 * (1 + op_rand(7, i + l)));
        lf_v_store(y, eval(w, lf_v_load(x)));
        for (int l = 0; l < LF_VL; l++) {
            double r = ref(w, (double)x[l]), e = fabs((double)y[l] - r) / ulp(r);
            if (e > worst) {
                worst = e;
                at = (double)x[l];
            }
        }
    }
    tap_ok(worst <= 2.0, "%s within 2 ulp on [%g, %g]", name, lo, hi);
    tap_diag("%s: %.2f ulp at %.9g", name, worst, at);
}

static void special(void)
{
    const float in[] = {0.0f,    -0.0f,   INFINITY, -INFINITY, 88.8f, -87.4f,
                        -100.0f, -110.0f, 1e-30f,   -1e-30f,   20.0f, -20.0f};
    bool ok[3] = {true, true, true}, nan_ok = true;
    for (int w = 0; w < 3; w++) {
        for (size_t i = 0; i < sizeof in / sizeof *in; i++) {
            lf_v y = eval((enum which)w, lf_v_set1(in[i]));
            float want = (float)ref((enum which)w, (double)in[i]), got = y[0];
            double e = fabs((double)got - (double)want);
            if (!(got == want || e <= 2 * ulp((double)want))) {
                ok[w] = false;
                tap_diag("f%d(%g) = %.9g, want %.9g", w, (double)in[i], (double)got, (double)want);
            }
        }
        lf_v n = eval((enum which)w, lf_v_set1(NAN));
        nan_ok = nan_ok && isnan(n[0]) && isnan(n[LF_VL - 1]);
    }
    tap_ok(ok[EXP] && ok[TANH] && ok[ERF], "zeros, infinities, overflow, subnormals");
    tap_ok(nan_ok, "NaN in, NaN out");
}

static void lanes(void)
{
    bool same = true;
    for (int i = 0; i < 2000; i++) {
        float x[LF_VL], y[LF_VL], one = (float)(10 * op_rand(3, i));
        for (int w = 0; w < 3; w++) {
            lf_v all = eval((enum which)w, lf_v_set1(one));
            for (int l = 0; l < LF_VL; l++)
                x[l] = l == i % LF_VL ? one : (float)(50 * op_rand(4, i + l));
            lf_v_store(y, eval((enum which)w, lf_v_load(x)));
            float a = all[0];
            same = same && !memcmp(&y[i % LF_VL], &a, sizeof a);
        }
    }
    tap_ok(same, "a lane's result does not depend on its place or its neighbours");
}

static void bf16(void)
{
    bool same = true;
    for (int64_t i = 0; i < 200000; i++) {
        uint32_t u = (uint32_t)((op_rand(11, i) + 1) * 2147483648.0);
        if (i % 3 == 0)
            u = (u & 0xffff0000u) | 0x8000u; /* ties */
        float f;
        memcpy(&f, &u, 4);
        uint16_t v[LF_VL], s = lf_f32_to_bf16(f);
        lf_v_store_bf16(v, lf_v_set1(f));
        same = same && v[0] == s && v[LF_VL - 1] == s &&
               (f != f ? (s & 0x7fff) > 0x7f80 : s == op_to_bf16((double)f));
        float back = lf_bf16_to_f32(s), w = lf_v_load_bf16(v)[LF_VL - 1];
        same = same && !memcmp(&back, &w, 4);
    }
    tap_ok(same,
           "bf16 rounding agrees with the reference, scalar and vector, NaN and ties included");
}

static void tails(void)
{
    bool ok = true;
    for (int n = 0; n <= LF_VL; n++) {
        struct op_buf f = op_random(n, LF_F32, 5, 1), h = op_random(n, LF_BF16, 5, 1),
                      g = op_alloc((size_t)n * 4), k = op_alloc((size_t)n * 2);
        lf_v a = lf_v_load_n(f.p, n), b = lf_v_load_bf16_n(h.p, n);
        for (int l = n; l < LF_VL; l++)
            ok = ok && a[l] == 0 && b[l] == 0;
        lf_v_store_n(g.p, a, n);
        lf_v_store_bf16_n(k.p, b, n);
        ok = ok && !memcmp(f.p, g.p, (size_t)n * 4) && !memcmp(h.p, k.p, (size_t)n * 2) &&
             op_guards_intact(&g) && op_guards_intact(&k);
        op_free(&f), op_free(&h), op_free(&g), op_free(&k);
    }
    tap_ok(ok, "masked loads and stores touch exactly n elements");
    lf_v v = lf_v_from_int(lf_vi_iota());
    tap_f64((double)lf_v_hsum(v), LF_VL * (LF_VL - 1) / 2.0, 0, "hsum");
    tap_f64((double)lf_v_hmax(v), LF_VL - 1, 0, "hmax");
}

#if LF_BF16_DOT
/* Sums of whole numbers are exact whatever the order and the rounding, so what is left is which
 * products go where. */
static void dot(void)
{
    bool ok = true;
    for (int i = 0; i < 1000; i++) {
        uint16_t a[2 * LF_VL], b[2 * LF_VL];
        float c[LF_VL];
        lf_v x, y;
        for (int l = 0; l < 2 * LF_VL; l++) {
            a[l] = lf_f32_to_bf16((float)(int)(100 * op_rand(21, i * 64 + l)));
            b[l] = lf_f32_to_bf16((float)(int)(100 * op_rand(22, i * 64 + l)));
        }
        for (int l = 0; l < LF_VL; l++)
            c[l] = (float)(int)(1000 * op_rand(23, i * 64 + l));
        memcpy(&x, a, sizeof x);
        memcpy(&y, b, sizeof y);
        lf_v got = lf_v_dot(x, y, lf_v_load(c));
        for (int l = 0; l < LF_VL; l++)
            ok = ok && got[l] == c[l] + lf_bf16_to_f32(a[2 * l]) * lf_bf16_to_f32(b[2 * l]) +
                                     lf_bf16_to_f32(a[2 * l + 1]) * lf_bf16_to_f32(b[2 * l + 1]);
    }
    tap_ok(ok, "a lane of a dot product: its own two products and its own addend");
}
#endif

static void transposed(void)
{
    lf_v r[LF_VL];
    bool ok = true;
    for (int i = 0; i < LF_VL; i++)
        r[i] = lf_v_from_int(lf_vi_iota() + lf_vi_set1(100 * i));
    lf_v_transpose(r);
    for (int i = 0; i < LF_VL; i++)
        for (int l = 0; l < LF_VL; l++)
            ok = ok && r[i][l] == (float)(100 * l + i);
    tap_ok(ok, "a block is transposed");
}

int main(void)
{
    if (!lf_cpu_kernels((enum lf_isa)LF_CPU_ISA))
        tap_skip_all("this processor lacks the instruction set");
    TAP(1, accuracy(EXP, "exp", -87.3, 88.7));
    TAP(1, accuracy(EXP, "exp", -103.9, -87.3));
    TAP(1, accuracy(EXP, "exp", -1, 1));
    TAP(1, accuracy(TANH, "tanh", -1, 1));
    TAP(1, accuracy(TANH, "tanh", -10, 10));
    TAP(1, accuracy(ERF, "erf", -1, 1));
    TAP(1, accuracy(ERF, "erf", -5, 5));
    TAP(2, special());
    TAP(1, lanes());
    TAP(1, bf16());
    TAP(3, tails());
    TAP(1, transposed());
#if LF_BF16_DOT
    TAP(1, dot());
#endif
    return tap_done();
}

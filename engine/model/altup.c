/* SPDX-License-Identifier: Apache-2.0
 *
 * AltUp (Baykal et al. 2023) and LAuReL (Menghani et al. 2024) as Gemma 3n has them: N streams of
 * C channels side by side, of which a layer computes the first and predicts the others.
 *
 *     before the layers     x_i = match(x_0 W_in_i, x_0), i > 0, of the magnitude of x_0
 *     router                r(x) = tanh(norm(x) / C W_router)                        [R, N]
 *     prediction            p_q = x_q + sum over i of (r(x_0) W_predict)[q N + i] x_i
 *     layer                 y = f(p_0)
 *     correction            x_q = p_q + (1 + (r(y) W_correct)[q]) (y - p_0)
 *     channels of a layer   x_q += e(gain x_0), q > 0                                (per_layer.c)
 *     behind the layers     the mean of x_0 and all match(x_i W_out_i, x_0)
 *
 * LAuReL, beside attention, which reads h: x = (x + attention + h + norm(h A B)) / sqrt(2). */
#include <math.h>
#include <stdio.h>

#include "engine/model/decoder_priv.h"

/* Of squares of which a magnitude is made, the least mean. */
#define LEAST_SQUARE 1e-5f

static int streams_of(const struct lf_dec_build *b)
{
    return (int)b->c->altup_streams;
}

lf_val lf_dec_altup_first(struct lf_dec_build *b, lf_val x)
{
    const struct lf_altup_opts o = {.from = streams_of(b), .to = 1, .read = 1, .offset = 1};
    return lf_altup_mix(b->g, x, LF_NONE, &o);
}

lf_val lf_dec_altup_in(struct lf_dec_build *b, lf_val x)
{
    const lf_val others = lf_match_rms(b->g, lf_dec_linear(b, x, false, "altup.in", LF_DEC_OUTSIDE),
                                       x, streams_of(b) - 1, LEAST_SQUARE);
    return lf_heads_join(b->g, x, others, 1);
}

lf_val lf_dec_altup_out(struct lf_dec_build *b, lf_val x)
{
    const lf_val first = lf_slice(b->g, x, 0, b->c->hidden);
    lf_val sum = first;
    for (int i = 1; i < streams_of(b); i++) {
        char part[32];
        snprintf(part, sizeof part, "altup.out.%d", i);
        const lf_val u = lf_dec_linear(b, lf_slice(b->g, x, i * b->c->hidden, b->c->hidden), false,
                                       part, LF_DEC_OUTSIDE);
        sum = lf_add(b->g, sum, lf_match_rms(b->g, u, first, 1, LEAST_SQUARE));
    }
    return lf_scale(b->g, sum, 1 / (float)streams_of(b));
}

/* Coefficients that layer l makes of x [R, C]. */
static lf_val coefficients(struct lf_dec_build *b, lf_val x, const char *part, int64_t l)
{
    const lf_val h = lf_scale(b->g, lf_dec_norm(b, x, "altup.norm", l), 1 / (float)b->c->hidden),
                 r = lf_act(b->g, lf_dec_linear(b, h, false, "altup.router", l), LF_ACT_TANH);
    return lf_dec_linear(b, r, false, part, l);
}

lf_val lf_dec_altup_predict(struct lf_dec_build *b, lf_val x, int64_t l)
{
    const struct lf_altup_opts o = {.from = streams_of(b), .to = streams_of(b)};
    const lf_val w = coefficients(b, lf_dec_altup_first(b, x), "altup.predict", l);
    return lf_add(b->g, x, lf_altup_mix(b->g, x, w, &o));
}

lf_val lf_dec_altup_correct(struct lf_dec_build *b, lf_val predicted, lf_val first, lf_val y,
                            int64_t l)
{
    const struct lf_altup_opts o = {.from = 1, .to = streams_of(b), .offset = 1};
    const lf_val w = coefficients(b, y, "altup.correct", l),
                 news = lf_add(b->g, y, lf_scale(b->g, first, -1));
    return lf_add(b->g, predicted, lf_altup_mix(b->g, news, w, &o));
}

lf_val lf_dec_altup_add_per_layer(struct lf_dec_build *b, lf_val x, int64_t l)
{
    const struct lf_altup_opts o = {.from = 1, .to = streams_of(b), .first = 1, .offset = 1};
    const lf_val read = lf_col_gate(b->g, lf_dec_altup_first(b, x),
                                    lf_paramf(b->g, "layers.%lld.altup.gain", (long long)l));
    return lf_add(b->g, x, lf_altup_mix(b->g, lf_dec_read_per_layer(b, read, l), LF_NONE, &o));
}

lf_val lf_dec_laurel(struct lf_dec_build *b, lf_val x, lf_val h, int64_t l)
{
    const lf_val low = lf_dec_linear(b, lf_dec_linear(b, h, false, "laurel.in", l), false,
                                     "laurel.out", l),
                 own = lf_add(b->g, h, lf_dec_norm(b, low, "laurel.norm", l));
    return lf_scale(b->g, lf_add(b->g, x, own), (float)M_SQRT1_2);
}

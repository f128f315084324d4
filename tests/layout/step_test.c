/* SPDX-License-Identifier: Apache-2.0
 *
 * Three optimizer steps of ranks in lock step against those of one rank, for a few layouts, in
 * every mode. The modes have the same bits. matrix.c has all switches. And the measure itself: what
 * a rounding makes of a gradient near zero is not held against the weights.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/layout/rig.h"
#include "tests/tap/tap.h"

static void run(const struct rig_case *k, struct rig_seen *s)
{
    lf_err err = LF_ERR_INIT;
    if (rig_run(k, s, &err) != 0)
        tap_bail("%s", err.text);
}

static void test_layout(const struct rig_layout *l)
{
    struct rig_case k;
    struct rig_seen one, plain, s;
    char text[800];
    rig_begin(&k);
    k.batch = 11; /* no number of ranks here divides it */
    run(&k, &one);
    k.layout = *l;
    run(&k, &plain);
    const struct rig_bounds b = rig_bounds(&k);
    tap_ok(rig_compare(&one, &plain, &b, text, sizeof text) == 0 && one.norm[2] > k.c.clip,
           "%d ranks, zero = %d, zero_inner = %d, tensor = %d%s: what one rank computes, clipped",
           l->ranks, l->zero, l->zero_inner, l->tensor, l->sequence ? ", rows divided" : "");
    if (text[0])
        tap_diag("%s", text);
    for (int mode = 0; mode < 4; mode++) {
        static const char *const names[] = {"poisoned", "no bytes used again", "late",
                                            "late, poisoned, drawn turns"};
        struct rig_case m = k;
        m.poison = mode == 0 || mode == 3;
        m.no_reuse = mode == 1;
        m.late = mode >= 2;
        m.turns = mode == 3 ? 11 : 0;
        run(&m, &s);
        tap_ok(rig_equal(&plain, &s, text, sizeof text), "%s: the same bits", names[mode]);
        if (text[0])
            tap_diag("%s differs", text);
        rig_fini(&s);
    }
    rig_fini(&one);
    rig_fini(&plain);
}

/* ---- the measure ---- */

enum { N = 4 };

/* A run of one tensor with these first gradients, and the weights that one step makes of the
 * gradients `moved`. */
struct shown {
    struct rig_tensor t;
    float before[N], after[N], grad[N];
    struct rig_seen s;
};

static void show(struct shown *x, const float grad[N], const float moved[N],
                 const struct rig_bounds *b)
{
    double sum = 0;
    *x = (struct shown){.t = {.name = "w", .n = N}};
    memcpy(x->grad, grad, sizeof x->grad);
    for (int e = 0; e < N; e++) {
        x->after[e] = (float)(moved[e] > 0 ? -b->lr : b->lr);
        sum += (double)grad[e] * (double)grad[e];
    }
    x->t.v[RIG_BEFORE] = x->before;
    x->t.v[RIG_AFTER] = x->after;
    x->t.v[RIG_GRAD] = x->grad;
    x->s = (struct rig_seen){.t = &x->t, .n = 1};
    for (int i = 0; i < RIG_STEPS; i++)
        x->s.loss[i] = x->s.norm[i] = x->s.scale[i] = sqrt(sum);
    for (int i = 0; i < RIG_TOLD; i++)
        x->s.told[i] = NAN;
}

static void test_signs(void)
{
    static const float grad[N] = {4, -5, 6, 0.05f}, near[N] = {4, -5, 6, -0.05f},
                       moved[N] = {4, -5, -6, 0.05f};
    struct rig_case k;
    struct shown one, s;
    char text[800];
    rig_begin(&k);
    k.c.compute = LF_BF16;
    k.layout.tensor = 2;
    const struct rig_bounds b = rig_bounds(&k);
    show(&one, grad, grad, &b);
    show(&s, near, near, &b);
    tap_ok(rig_compare(&one.s, &s.s, &b, text, sizeof text) == 0,
           "a gradient that is zero but for rounding may move its weight either way");
    show(&s, near, grad, &b);
    tap_ok(rig_compare(&one.s, &s.s, &b, text, sizeof text) == RIG_SAW_CHANGE,
           "a weight that does not follow its gradient is seen");
    show(&s, grad, moved, &b);
    tap_ok(rig_compare(&one.s, &s.s, &b, text, sizeof text) == RIG_SAW_CHANGE,
           "a weight that goes the other way is seen");
}

int main(void)
{
    static const struct rig_layout layouts[] = {
        {.ranks = 2},
        {.ranks = 3, .zero = 1},
        {.ranks = 4, .zero = 2},
        {.ranks = 8, .zero = 3},
        {.ranks = 4, .zero = 1, .zero_inner = 2},
        {.ranks = 6, .zero = 3, .zero_inner = 2},
        {.ranks = 1, .tensor = 2},
        {.ranks = 1, .tensor = 4, .sequence = true},
        {.ranks = 1, .zero = 1, .tensor = 8},
        {.ranks = 2, .zero = 1, .tensor = 2, .sequence = true},
        {.ranks = 3, .tensor = 2},
        {.ranks = 2, .zero = 3, .tensor = 2, .sequence = true}};
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++)
        TAP(5, test_layout(&layouts[i]));
    TAP(3, test_signs());
    return tap_done();
}

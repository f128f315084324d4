/* SPDX-License-Identifier: Apache-2.0
 *
 * Three optimizer steps of ranks in lock step against those of one rank, for a few layouts, in
 * every mode. The modes have the same bits. matrix.c has all switches.
 */
#include <stdio.h>

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
    return tap_done();
}

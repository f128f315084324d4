/* SPDX-License-Identifier: Apache-2.0
 *
 * A checkpoint of each layout goes on in each other one: every rank finds the weights and moments
 * that one rank reads, to the bit, and the steps that follow are those of one rank that was never
 * stopped. In its own layout a run goes on to the bits of the run that was not stopped.
 */
#include <stdio.h>
#include <string.h>

#include "tests/layout/rig.h"
#include "tests/tap/tap.h"

static const struct rig_layout layouts[] = {
    {1, 0, 0, 0, false}, {2, 0, 0, 0, false}, {3, 1, 0, 0, false}, {4, 2, 0, 0, false},
    {2, 3, 0, 0, false}, {8, 3, 0, 0, false}, {4, 1, 2, 0, false}, {6, 3, 2, 0, false}};
enum { LAYOUTS = sizeof layouts / sizeof layouts[0] };

struct what {
    const char *name, *keys; /* of the model */
    enum lf_dtype state;
    int step; /* from layout to layout of the list */
};

static void run(const struct rig_case *k, struct rig_seen *s)
{
    lf_err err = LF_ERR_INIT;
    if (rig_run(k, s, &err) != 0)
        tap_bail("%d ranks, zero = %d: %s", k->layout.ranks, k->layout.zero, err.text);
}

static void begin(const struct what *w, struct rig_case *k)
{
    lf_err err = LF_ERR_INIT;
    rig_begin(k);
    k->batch = 11;
    if (rig_model(k, w->keys, &err))
        tap_bail("%s", err.text);
    if (w->state == LF_BF16) {
        k->c.compute = k->c.adam.moments = k->c.adam.masters = LF_BF16;
        k->c.adam.stochastic = true;
    }
}

static const char *layout_text(const struct rig_layout *l, char *text, size_t cap)
{
    snprintf(text, cap, l->zero_inner ? "%d ranks, zero = %d, groups of %d" : "%d ranks, zero = %d",
             l->ranks, l->zero, l->zero_inner);
    return text;
}

/* What a checkpoint is compared with. */
struct measure {
    const struct rig_layout *saved;
    const struct rig_seen *one;   /* one rank, never stopped */
    const struct rig_seen *whole; /* the layout that saved it, never stopped */
    const struct rig_seen *read;  /* one rank that goes on from it */
};

static void go_on(const struct rig_case *k, const struct measure *m)
{
    const struct rig_bounds b = rig_bounds(k);
    const bool same = memcmp(m->saved, &k->layout, sizeof k->layout) == 0;
    struct rig_seen s;
    char text[1100] = "", from[80], to[80];
    run(k, &s);
    const bool good = rig_begins_alike(m->read, &s, text, sizeof text) &&
                      rig_compare(m->one, &s, &b, text, sizeof text) == 0 &&
                      (!same || rig_ends_alike(m->whole, &s, text, sizeof text));
    tap_ok(good, "of %s, on %s", layout_text(m->saved, from, sizeof from),
           layout_text(&k->layout, to, sizeof to));
    if (!good)
        tap_diag("%s", text);
    rig_fini(&s);
}

static void test_saved(const struct what *w, size_t saved, const struct rig_seen *one)
{
    struct rig_case k;
    struct rig_seen whole, read;
    const struct measure m = {&layouts[saved], one, &whole, &read};
    char out[400];
    snprintf(out, sizeof out, "%s/%s-%zu", tap_tmpdir(), w->name, saved);
    begin(w, &k);
    k.out = out;
    k.layout = layouts[saved];
    k.save = true;
    run(&k, &whole);
    k.save = false;
    k.from = 1;
    k.layout = layouts[0];
    run(&k, &read);
    for (size_t i = 0; i < LAYOUTS; i += (size_t)w->step) {
        k.layout = layouts[i];
        go_on(&k, &m);
    }
    rig_fini(&whole);
    rig_fini(&read);
}

static void test_all(const struct what *w)
{
    struct rig_case k;
    struct rig_seen one;
    begin(w, &k);
    run(&k, &one);
    tap_diag("checkpoints, %s", w->name);
    for (size_t i = 0; i < LAYOUTS; i += (size_t)w->step)
        test_saved(w, i, &one);
    rig_fini(&one);
}

int main(void)
{
    static const struct what f32 = {"f32", "tied_head=yes qk_norm=yes", LF_F32, 1},
                             bf16 = {"bf16-state",
                                     "experts=4 experts_per_token=2 expert_ffn=64 router_aux=0.05 "
                                     "router_bias=yes router_bias_rate=0.01",
                                     LF_BF16, 2};
    TAP(LAYOUTS * LAYOUTS, test_all(&f32));
    TAP(LAYOUTS * LAYOUTS / 4, test_all(&bf16));
    return tap_done();
}

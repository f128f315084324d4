/* SPDX-License-Identifier: Apache-2.0
 *
 * A checkpoint of each layout goes on in each other one: every rank finds the weights and moments
 * that one rank reads, to the bit, and the steps that follow are those of one rank that was never
 * stopped. In its own layout a run goes on to the bits of the run that was not stopped.
 *
 * Ranks of a mesh write their boxes. What they have read they write again before the first step: a
 * checkpoint with the same identity, so every tensor of every kind is the same to the byte, whoever
 * has written it.
 */
#include <stdio.h>
#include <string.h>

#include "tests/layout/rig.h"
#include "tests/tap/tap.h"

static const struct rig_layout of_data[] = {{.ranks = 1},
                                            {.ranks = 2},
                                            {.ranks = 3, .zero = 1},
                                            {.ranks = 4, .zero = 2},
                                            {.ranks = 2, .zero = 3},
                                            {.ranks = 8, .zero = 3},
                                            {.ranks = 4, .zero = 1, .zero_inner = 2},
                                            {.ranks = 6, .zero = 3, .zero_inner = 2}};
/* Heads of keys are 2, so 4 and 8 ranks have copies of them. */
static const struct rig_layout of_mesh[] = {{.ranks = 1},
                                            {.ranks = 1, .tensor = 2},
                                            {.ranks = 1, .tensor = 4},
                                            {.ranks = 1, .tensor = 8},
                                            {.ranks = 2, .zero = 1, .tensor = 2},
                                            {.ranks = 1, .tensor = 2, .sequence = true}};
/* One of each kind, and all axes together. */
static const struct rig_layout of_axes[] = {
    {.ranks = 1},
    {.ranks = 1, .tensor = 4},
    {.ranks = 1, .pipeline = 4},
    {.ranks = 1, .tensor = 2, .pipeline = 2, .schedule = LF_PIPE_ZB_V + 1},
    {.ranks = 4, .zero = 1},
    {.ranks = 2, .zero = 3},
    {.ranks = 2, .tensor = 2, .expert = 4, .expert_tensor = 1},
    {.ranks = 2, .zero = 3, .context = 2, .expert = 2},
    {.ranks = 2, .tensor = 2, .pipeline = 2},
    {.ranks = 1, .zero = 1, .tensor = 2, .context = 4}};
/* Of an encoder-decoder, whose tables by distance are on several ranks of a pipeline. */
static const struct rig_layout of_stacks[] = {{.ranks = 1},
                                              {.ranks = 1, .tensor = 4, .sequence = true},
                                              {.ranks = 1, .pipeline = 4},
                                              {.ranks = 2, .zero = 1, .tensor = 2, .pipeline = 2}};
enum {
    OF_STACKS = sizeof of_stacks / sizeof of_stacks[0],
    OF_DATA = sizeof of_data / sizeof of_data[0],
    OF_MESH = sizeof of_mesh / sizeof of_mesh[0],
    OF_AXES = sizeof of_axes / sizeof of_axes[0]
};

struct what {
    const char *name, *keys; /* of the model */
    enum lf_dtype compute, state;
    const struct rig_layout *layouts;
    size_t n, step; /* from layout to layout of the list */
    bool copied;    /* what is read is written again, too; every other pair makes no step */
    bool still;     /* none makes one */
    bool stacks;    /* the model is an encoder-decoder */
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
    k->c.steps = 2; /* the first one is saved, the second one rests on what was read */
    if (rig_model(k, w->keys, &err))
        tap_bail("%s", err.text);
    if (w->stacks)
        rig_two_stacks(k);
    k->c.compute = w->compute;
    k->c.adam.moments = k->c.adam.masters = w->state;
    k->c.adam.stochastic = w->state == LF_BF16;
}

static const char *layout_text(const struct rig_layout *l, char *text, size_t cap)
{
    char groups[32] = "", tensor[40] = "", parts[32] = "", rows[48] = "", experts[32] = "";
    if (l->zero_inner)
        snprintf(groups, sizeof groups, ", groups of %d", l->zero_inner);
    if (l->tensor > 1)
        snprintf(tensor, sizeof tensor, ", tensor = %d%s", l->tensor,
                 l->sequence ? ", rows divided" : "");
    if (l->pipeline > 1)
        snprintf(parts, sizeof parts, ", pipeline = %d%s", l->pipeline,
                 l->schedule ? " in a V" : "");
    if (l->context > 1)
        snprintf(rows, sizeof rows, ", context = %d (%s)", l->context,
                 lf_context_kind_name(l->kind));
    if (l->expert > 1)
        snprintf(experts, sizeof experts, ", expert = %d", l->expert);
    snprintf(text, cap, "%d ranks, zero = %d%s%s%s%s%s", l->ranks, l->zero, groups, rows, experts,
             tensor, parts);
    return text;
}

/* ---- identities ---- */

struct identity {
    uint8_t hash[LF_HASH_BYTES];
};

static struct identity identity_of(const char *dir)
{
    struct identity id;
    lf_err err = LF_ERR_INIT;
    lf_ckpt *c = NULL;
    if (lf_ckpt_open(&c, dir, 1, &err) != 0)
        tap_bail("%s", err.text);
    memcpy(id.hash, lf_ckpt_identity(c), sizeof id.hash);
    lf_ckpt_close(c);
    return id;
}

/* What a checkpoint is compared with. */
struct measure {
    const struct what *w;
    const struct rig_layout *saved;
    struct identity id;
    const struct rig_seen *one;   /* one rank, never stopped */
    const struct rig_seen *whole; /* the layout that saved it, never stopped */
    const struct rig_seen *read;  /* one rank that goes on from it */
};

/* Is what the case has read, and written again to `copy`, the same? */
static bool same_copy(const char *copy, const struct measure *m, char *text, size_t cap)
{
    const struct identity is = identity_of(copy);
    if (memcmp(&is, &m->id, sizeof is) == 0)
        return true;
    snprintf(text, cap, "what it has read has another identity");
    return false;
}

static bool as_never_stopped(const struct rig_case *k, const struct measure *m,
                             const struct rig_seen *s, char *text, size_t cap)
{
    const struct rig_bounds b = rig_bounds(k);
    const bool same = memcmp(m->saved, &k->layout, sizeof k->layout) == 0;
    return rig_compare(m->one, s, &b, text, cap) == 0 &&
           (!same || rig_ends_alike(m->whole, s, text, cap));
}

static void go_on(struct rig_case *k, const struct measure *m, size_t number)
{
    struct rig_seen s;
    char text[1100] = "", from[160], to[160], copy[440];
    snprintf(copy, sizeof copy, "%s/copy-%zu", k->out, number);
    k->copy = m->w->copied ? copy : NULL;
    k->still = m->w->still || (m->w->copied && number % 2);
    run(k, &s);
    const bool good = rig_begins_alike(m->read, &s, text, sizeof text) &&
                      (!m->w->copied || same_copy(copy, m, text, sizeof text)) &&
                      (k->still || as_never_stopped(k, m, &s, text, sizeof text));
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
    struct measure m = {
        .w = w, .saved = &w->layouts[saved], .one = one, .whole = &whole, .read = &read};
    char out[400], dir[440];
    snprintf(out, sizeof out, "%s/%s-%zu", tap_tmpdir(), w->name, saved);
    snprintf(dir, sizeof dir, "%s/checkpoints/step-00000001", out);
    begin(w, &k);
    k.out = out;
    k.layout = w->layouts[saved];
    k.save = true;
    run(&k, &whole);
    m.id = identity_of(dir);
    k.save = false;
    k.from = 1;
    k.layout = w->layouts[0];
    run(&k, &read);
    for (size_t i = 0; i < w->n; i += w->step) {
        k.layout = w->layouts[i];
        go_on(&k, &m, i + saved);
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
    for (size_t i = 0; i < w->n; i += w->step)
        test_saved(w, i, &one);
    rig_fini(&one);
}

#define EXPERTS                                                                                    \
    "experts=4 experts_per_token=2 expert_ffn=64 router_aux=0.05 router_bias=yes "                 \
    "router_bias_rate=0.01"

int main(void)
{
    static const struct what data_f32 = {.name = "f32",
                                         .keys = "tied_head=yes qk_norm=yes",
                                         .layouts = of_data,
                                         .n = OF_DATA,
                                         .step = 1},
                             data_bf16 = {.name = "bf16-state",
                                          .keys = EXPERTS,
                                          .compute = LF_BF16,
                                          .state = LF_BF16,
                                          .layouts = of_data,
                                          .n = OF_DATA,
                                          .step = 2},
                             mesh_f32 = {.name = "mesh-f32",
                                         .keys = "qkv_bias=yes qk_norm=yes",
                                         .layouts = of_mesh,
                                         .n = OF_MESH,
                                         .step = 1,
                                         .copied = true},
                             mesh_bf16 = {.name = "mesh-bf16",
                                          .keys = "out_bias=yes head_bias=yes",
                                          .compute = LF_BF16,
                                          .layouts = of_mesh,
                                          .n = OF_MESH,
                                          .step = 2,
                                          .copied = true,
                                          .still = true},
                             mesh_state = {.name = "mesh-bf16-state",
                                           .keys = "tied_head=yes mlp_bias=yes",
                                           .compute = LF_BF16,
                                           .state = LF_BF16,
                                           .layouts = of_mesh,
                                           .n = OF_MESH,
                                           .step = 2,
                                           .copied = true,
                                           .still = true};
    static const struct what axes_f32 = {.name = "axes-f32",
                                         .keys = "layers=4 tied_head=yes qk_norm=yes " EXPERTS
                                                 " layer_mlps=dm*",
                                         .layouts = of_axes,
                                         .n = OF_AXES,
                                         .step = 1,
                                         .copied = true};
    static const struct what stacks_f32 = {.name = "stacks-f32",
                                           .keys = "tied_head=yes",
                                           .layouts = of_stacks,
                                           .n = OF_STACKS,
                                           .step = 1,
                                           .copied = true,
                                           .stacks = true};
    TAP(OF_DATA * OF_DATA, test_all(&data_f32));
    TAP(OF_DATA * OF_DATA / 4, test_all(&data_bf16));
    TAP(OF_MESH * OF_MESH, test_all(&mesh_f32));
    TAP(OF_MESH * OF_MESH / 4, test_all(&mesh_bf16));
    TAP(OF_MESH * OF_MESH / 4, test_all(&mesh_state));
    TAP(OF_AXES * OF_AXES, test_all(&axes_f32));
    TAP(OF_STACKS * OF_STACKS, test_all(&stacks_f32));
    return tap_done();
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * MoCo v3: sizes, parameters, graph. */
#include "engine/model/moco.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/model/decoder_priv.h"

struct lf_moco {
    const lf_decoder *d;
    lf_vision *momentum;
    lf_model_config reads; /* of d, with classes.read as the encoder has it */
    struct lf_moco_sizes s;
};

/* ---- sizes and names ---- */

int64_t lf_moco_in(const struct lf_moco_sizes *s, int l)
{
    const int64_t in[LF_MOCO_LINEARS] = {s->width, s->hidden, s->hidden, s->dim, s->hidden};
    return in[l];
}

int64_t lf_moco_out(const struct lf_moco_sizes *s, int l)
{
    return lf_moco_bends(l) ? s->hidden : s->dim;
}

bool lf_moco_bends(int l)
{
    return l != LF_MOCO_PROJECTOR - 1 && l != LF_MOCO_LINEARS - 1;
}

const char *lf_moco_name(char buf[48], int l, const char *norm)
{
    const bool first = l < LF_MOCO_PROJECTOR;
    snprintf(buf, 48, "moco.%s.%d.%s%s", first ? "projector" : "predictor",
             first ? l : l - LF_MOCO_PROJECTOR, norm ? "norm." : "", norm ? norm : "weight");
    return buf;
}

/* ---- the object ---- */

lf_moco *lf_moco_create(const lf_decoder *d, int64_t hidden, int64_t dim, lf_err *err)
{
    if (!lf_model_is_encoder(&d->c)) {
        lf_fail(err, LF_EINVAL,
                "objective = moco trains an encoder of pictures alone: [model] has vision.* and "
                "nothing else");
        return NULL;
    }
    lf_moco *m = lf_calloc(1, sizeof *m, err);
    if (!m)
        return NULL;
    m->d = d;
    m->reads = d->c;
    m->reads.classes.read = d->c.vision.class_token ? LF_CLASS_FIRST : LF_CLASS_MEAN;
    m->s = (struct lf_moco_sizes){lf_vision_width(&d->c.vision), hidden, dim};
    m->momentum = lf_vision_create(&d->c.vision, LF_MOCO_AVERAGE "vision.", LF_VISION_SIDES, err);
    if (!m->momentum) {
        lf_moco_destroy(m);
        return NULL;
    }
    lf_vision_share_inputs(m->momentum, d->vision);
    return m;
}

void lf_moco_destroy(lf_moco *m)
{
    if (!m)
        return;
    lf_vision_destroy(m->momentum);
    free(m);
}

const struct lf_moco_sizes *lf_moco_sizes_of(const lf_moco *m)
{
    return &m->s;
}

const lf_model_config *lf_moco_reads(const lf_moco *m)
{
    return &m->reads;
}

/* ---- parameters ---- */

/* Linear layers begin as PyTorch's do: uniform within 1 / sqrt(columns). */
static int declare_linear(const lf_moco *m, lf_pstore *ps, int l, const char *before, lf_err *err)
{
    static const char *const norms[] = {"weight", "bias"};
    char name[48], whole[64];
    const int64_t in = lf_moco_in(&m->s, l), out = lf_moco_out(&m->s, l);
    const bool frozen = before[0] != 0;
    struct lf_param_desc d = {.name = whole,
                              .ndim = 2,
                              .dims = {out, in},
                              .init = LF_INIT_UNIFORM,
                              .init_std = (float)(1 / sqrt((double)in)),
                              .frozen = frozen,
                              .decay = true};
    snprintf(whole, sizeof whole, "%s%s", before, lf_moco_name(name, l, NULL));
    int rc = lf_pstore_add(ps, &d, err);
    for (int k = 0; k < 2 && rc >= 0 && lf_moco_bends(l); k++) {
        d = (struct lf_param_desc){.name = whole,
                                   .ndim = 2,
                                   .dims = {out, 1},
                                   .init = k ? LF_INIT_ZERO : LF_INIT_ONE,
                                   .frozen = frozen};
        snprintf(whole, sizeof whole, "%s%s", before, lf_moco_name(name, l, norms[k]));
        rc = lf_pstore_add(ps, &d, err);
    }
    return rc < 0 ? rc : 0;
}

int lf_moco_declare(const lf_moco *m, lf_pstore *ps, lf_err *err)
{
    int rc = lf_vision_declare(m->momentum, ps, err);
    (void)lf_pstore_freeze(ps, LF_MOCO_AVERAGE, true);
    for (int l = 0; l < LF_MOCO_LINEARS && rc == 0; l++)
        rc = declare_linear(m, ps, l, "", err);
    for (int l = 0; l < LF_MOCO_PROJECTOR && rc == 0; l++)
        rc = declare_linear(m, ps, l, LF_MOCO_AVERAGE, err);
    return rc;
}

/* ---- averages ---- */

static int move_one(lf_pstore *ps, int i, int of, double m, lf_err *err)
{
    const void *is = NULL, *to = NULL;
    void *copy[2] = {NULL, NULL};
    struct lf_pview v;
    float *next = NULL;
    if (lf_pstore_view(ps, i, LF_P_MASTER, &v) != 1)
        LF_BUG("%s has no master", lf_pstore_desc(ps, i)->name);
    int rc = lf_pstore_host(ps, of, LF_P_MASTER, &is, &copy[0], err);
    if (rc == 0)
        rc = lf_pstore_host(ps, i, LF_P_MASTER, &to, &copy[1], err);
    if (rc == 0)
        rc = (next = lf_malloc((size_t)v.count, sizeof *next, err)) ? 0 : LF_ENOMEM;
    const float *const w = is, *const was = to;
    for (int64_t e = 0; e < v.count && rc == 0; e++)
        next[e] = m > 0 ? (float)(m * (double)was[e] + (1 - m) * (double)w[e]) : w[e];
    const int64_t range[] = {0, v.count}; /* of a rank's box: both tensors are divided alike */
    if (rc == 0)
        rc = lf_pstore_write_part(ps, i, LF_P_MASTER, LF_F32, next, range, err);
    free(next);
    free(copy[0]);
    free(copy[1]);
    return rc;
}

int lf_moco_move(lf_pstore *ps, double m, lf_err *err)
{
    const size_t skip = strlen(LF_MOCO_AVERAGE);
    int rc = 0;
    for (int i = 0; i < lf_pstore_count(ps) && rc == 0; i++) {
        const char *name = lf_pstore_desc(ps, i)->name;
        if (strncmp(name, LF_MOCO_AVERAGE, skip) == 0)
            rc = move_one(ps, i, lf_pstore_find(ps, name + skip), m, err);
    }
    return rc;
}

/* ---- the graph ---- */

/* A row for each picture. */
static lf_val read_rows(lf_graph *g, const struct lf_classes_rows *r, const lf_model_config *c,
                        lf_val h)
{
    const struct lf_mix read = lf_classes_read(g, c, r);
    lf_val x = lf_mix_rows(g, h, &read);
    lf_pin_f32(g, x);
    return x;
}

/* The gradient by w of what linear layer l gives for x. */
static void weigh(lf_graph *g, int l, lf_val x)
{
    char name[48], out[32], back[32];
    lf_val z = lf_linear(g, x, lf_param(g, lf_moco_name(name, l, NULL)), LF_NONE);
    snprintf(out, sizeof out, "moco.z.%d", l);
    snprintf(back, sizeof back, "moco.dz.%d", l);
    lf_pin_f32(g, z);
    lf_output_grad(g, z, out, back);
}

/* A tensor whose gradient the host has: w [H, 1] times 1 is a row of its numbers. */
static void hand_on(lf_graph *g, int l, const char *norm)
{
    char name[48], out[32], back[32];
    lf_val one = lf_input(g, "moco.one", LF_F32, 1, 1),
           z = lf_linear(g, one, lf_param(g, lf_moco_name(name, l, norm)), LF_NONE);
    snprintf(out, sizeof out, "moco.norm.%d.%s", l, norm);
    snprintf(back, sizeof back, "moco.dnorm.%d.%s", l, norm);
    lf_pin_f32(g, z);
    lf_output_grad(g, z, out, back);
}

static void add_heads(const lf_moco *m, lf_graph *g, int64_t pictures, lf_val h)
{
    for (int l = 0; l < LF_MOCO_LINEARS; l++) {
        char name[32];
        snprintf(name, sizeof name, "moco.x.%d", l);
        weigh(g, l, l ? lf_input(g, name, LF_F32, pictures, lf_moco_in(&m->s, l)) : h);
        if (!lf_moco_bends(l))
            continue;
        hand_on(g, l, "weight");
        hand_on(g, l, "bias");
    }
}

lf_graph *lf_moco_graph(const lf_moco *m, lf_pstore *ps, const char *name,
                        const struct lf_classes_rows *r, bool train, lf_err *err)
{
    struct lf_vision_rows second = r->media.vision;
    second.stack = 1;
    lf_graph *g = lf_graph_create(ps, name, err);
    if (!g)
        return NULL;
    lf_val h = lf_vision_encode(m->d->vision, g, &r->media.vision, NULL, 0, NULL),
           k = lf_vision_encode(m->momentum, g, &second, NULL, 0, NULL);
    h = read_rows(g, r, &m->reads, h);
    k = read_rows(g, r, &m->reads, k);
    lf_output(g, h, "features");
    lf_output(g, k, "keys");
    if (train)
        add_heads(m, g, r->pictures, h);
    if (!lf_graph_check(g, err))
        return g;
    lf_graph_destroy(g);
    return NULL;
}
